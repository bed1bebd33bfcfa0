//! Noting decisions: every choice is counted, one in so many is noted with what the policy saw.

use super::head::PathState;
use crate::explain::{CANDIDATES_MAX, Sample};
use crate::topology::{ControllerId, HeadId};
use alloc::vec::Vec;
use anabranch_policy::{AsCandidate, Choice, Inputs, OpClass, Parameters, Policy, inputs};
use anabranch_proto::machine::Time;

/// Decisions that a worker keeps.
const RING: usize = 256;

const _: () =
    assert!(RING * size_of::<Sample>() <= 320 << 10, "a worker's ring is at most 320 KiB");

/// Which choices of a head are noted: the first, and of every so many from there one, not always at
/// the same place among them. (What recurs would be noted always or never: of two paths in turn it
/// would be one, and unused paths are looked at with every eighth choice.)
#[derive(Debug, Default)]
pub(super) struct Countdown {
    every: u32,
    /// Choices until the next one that is noted, with that one; 0: none is.
    left: u64,
    /// How many of the present choices come before it, and the last number drawn.
    before: u32,
    drawn: u32,
}

impl Countdown {
    /// Takes over the attribute; counting begins anew when it has changed.
    pub(super) fn set(&mut self, every: u32) {
        if self.every != every {
            *self = Countdown { every, left: every.min(1).into(), ..Countdown::default() };
        }
    }

    /// Whether the next choice is to be noted.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.left == 1
    }

    /// A choice was made.
    #[inline]
    pub(super) fn chosen(&mut self) {
        match self.left {
            // Off: it stays so.
            0 => {}
            1 => self.left = self.draw(),
            _ => self.left -= 1,
        }
    }

    /// How far it is to the place among the next choices.
    fn draw(&mut self) -> u64 {
        // Knuth's generator, of which the upper bits are good.
        self.drawn = self.drawn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let before = ((u64::from(self.drawn) * u64::from(self.every)) >> 32) as u32;
        let left = u64::from(self.every) - u64::from(self.before) + u64::from(before);
        self.before = before;
        left
    }
}

/// What a decision is about.
#[derive(Clone, Copy)]
pub(super) struct About {
    pub(super) head: HeadId,
    pub(super) op: OpClass,
    pub(super) bytes: u32,
    pub(super) at: Time,
}

/// The decisions that this worker has noted, of all heads. The memory is taken with the first.
#[derive(Default)]
pub(super) struct Ring {
    samples: Vec<Sample>,
    /// How many were ever noted.
    pub(super) noted: u64,
    /// What the policy is about to see, in list order.
    found: Vec<Found>,
}

/// A path just before a choice.
#[derive(Clone, Copy)]
pub(super) struct Found {
    path: ControllerId,
    pub(super) inputs: Inputs,
    /// Bytes in flight, if the policy counts them.
    pub(super) bytes: Option<u64>,
}

/// What the policy counts.
fn in_flight_bytes(policy: Policy, path: &PathState) -> Option<u64> {
    match policy {
        Policy::FinishTime => Some(path.load().in_flight_work()),
        Policy::ServiceTime => Some(path.controller.ledger.in_flight_bytes()),
        _ => None,
    }
}

impl Ring {
    /// Looks at the paths before one is chosen: choosing changes what there is to see.
    #[cold]
    pub(super) fn look(&mut self, parameters: &Parameters, paths: &[PathState], about: About) {
        let About { op, bytes, at, .. } = about;
        self.found.clear();
        self.found.extend(paths.iter().map(|path| Found {
            path: path.view.controller,
            inputs: inputs(parameters, path.candidate(), op, bytes, at.ns()),
            bytes: in_flight_bytes(parameters.policy, path),
        }));
    }

    /// Notes what was chosen from among those.
    #[cold]
    pub(super) fn note(&mut self, about: About, policy: Policy, choice: Choice) {
        let found = &self.found;
        let (mut kept, count) = kept(found, choice.index);
        kept[..count].sort_unstable();
        let mut candidates = [None; CANDIDATES_MAX];
        for (to, &index) in candidates.iter_mut().zip(&kept[..count]) {
            *to = Some((found[index].path, found[index].inputs));
        }
        let chosen = &found[choice.index];
        let sample = Sample {
            at: about.at,
            head: about.head,
            op: about.op,
            bytes: about.bytes,
            policy,
            reason: choice.reason,
            chosen: chosen.path,
            paths: found.len().min(usize::from(u16::MAX)) as u16,
            candidates,
        };
        if self.samples.len() < RING {
            if self.samples.capacity() == 0 {
                self.samples.reserve_exact(RING);
            }
            self.samples.push(sample);
        } else {
            self.samples[(self.noted % RING as u64) as usize] = sample;
        }
        self.noted += 1;
    }

    /// What [`Ring::look`] has found, in list order.
    pub(super) fn found(&self) -> &[Found] {
        &self.found
    }

    /// What is noted of one head, oldest first.
    pub(super) fn of(&self, head: HeadId) -> Vec<Sample> {
        let oldest = if self.samples.len() < RING { 0 } else { self.noted % RING as u64 };
        let (newer, older) = self.samples.split_at(oldest as usize);
        older.iter().chain(newer).filter(|sample| sample.head == head).copied().collect()
    }
}

/// Which paths a sample keeps, and how many: the chosen one, then those that it was chosen from,
/// then others that can be used, then the rest; of each the first ones in list order.
fn kept(found: &[Found], chosen: usize) -> ([usize; CANDIDATES_MAX], usize) {
    let class = |index: usize| match found[index].inputs {
        _ if index == chosen => 0,
        Inputs { usable: false, .. } => 3,
        Inputs { rank, .. } if rank == found[chosen].inputs.rank => 1,
        _ => 2,
    };
    let mut kept = [0; CANDIDATES_MAX];
    let order = (0..4).flat_map(|wanted| (0..found.len()).filter(move |&at| class(at) == wanted));
    let places = kept.iter_mut().zip(order);
    let count = places.map(|(place, index)| *place = index).count();
    (kept, count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_policy::{AnaRank, Reason};
    use anabranch_proto::machine::Time;

    fn due(countdown: &mut Countdown, choices: usize) -> Vec<usize> {
        let noted = (0..choices).filter(|_| {
            let due = countdown.is_due();
            countdown.chosen();
            due
        });
        noted.collect()
    }

    #[test]
    fn the_first_and_one_of_every_n_choices_are_noted_all_with_1_none_with_0() {
        let mut countdown = Countdown::default();
        assert_eq!(due(&mut countdown, 100), [] as [usize; 0]);
        countdown.set(4);
        let first = due(&mut countdown, 400);
        assert_eq!(first[0], 0);
        let blocks: Vec<usize> = first.iter().map(|at| at / 4).collect();
        assert_eq!(blocks, (0..100).collect::<Vec<_>>(), "one of each four");
        countdown.set(4);
        assert_eq!(due(&mut countdown, 4).len(), 1, "the same again changes nothing");
        countdown.set(1);
        assert_eq!(due(&mut countdown, 3), [0, 1, 2]);
        countdown.set(0);
        assert_eq!(due(&mut countdown, 5), [] as [usize; 0]);
        countdown.set(u32::MAX);
        assert_eq!(due(&mut countdown, 1000), [0]);
    }

    /// Paths come in turn, and `finish-time` looks at unused ones with every eighth choice.
    #[test]
    fn what_recurs_is_noted_as_often_as_it_occurs() {
        let mut countdown = Countdown::default();
        countdown.set(64);
        let noted = due(&mut countdown, 64 * 640);
        assert_eq!(noted.len(), 640);
        for period in [2, 3, 4, 8, 64] {
            for phase in 0..period {
                let found = noted.iter().filter(|at| *at % period == phase).count();
                let share = 640 / period;
                assert!(found.abs_diff(share) <= share / 4 + 8, "{found} of {period}, {phase}");
            }
        }
    }

    fn note(ring: &mut Ring, number: u32, paths: u32, index: usize) {
        let inputs = Inputs {
            usable: true,
            rank: AnaRank::Optimized,
            commands: Some(0),
            bytes: None,
            weight: None,
            credit: None,
            latency_ns: None,
            stale_ns: None,
            finish_ns: None,
            rate_kib_per_s: None,
            distance: None,
            affinity: None,
        };
        let found = |path| Found { path: ControllerId(path), inputs, bytes: None };
        ring.found = (0..paths).map(found).collect();
        let about = About {
            head: HeadId(number % 2),
            op: OpClass::Read,
            bytes: number,
            at: Time::from_ns(u64::from(number)),
        };
        ring.note(about, Policy::QueueDepth, Choice { index, reason: Reason::FewestCommands });
    }

    #[test]
    fn a_full_ring_loses_the_oldest() {
        let mut ring = Ring::default();
        let total = RING as u32 + 10;
        (0..total).for_each(|number| note(&mut ring, number, 2, 1));
        assert_eq!(ring.noted, u64::from(total));
        let numbers: Vec<u32> = ring.of(HeadId(0)).iter().map(|sample| sample.bytes).collect();
        assert_eq!(numbers, (10..total).step_by(2).collect::<Vec<_>>());
        assert_eq!(ring.samples.capacity(), RING);
    }

    #[test]
    fn the_chosen_path_is_always_among_the_candidates() {
        let mut ring = Ring::default();
        note(&mut ring, 0, 3, 2);
        note(&mut ring, 2, 20, 17);
        let samples = ring.of(HeadId(0));
        let ids = |sample: &Sample| sample.candidates().map(|(id, _)| id.0).collect::<Vec<_>>();
        assert_eq!((samples[0].chosen, samples[0].paths), (ControllerId(2), 3));
        assert_eq!(ids(&samples[0]), [0, 1, 2]);
        assert_eq!((samples[1].chosen, samples[1].paths), (ControllerId(17), 20));
        assert_eq!(ids(&samples[1]), [0, 1, 2, 3, 4, 5, 6, 17]);
    }

    #[test]
    fn of_many_paths_those_are_kept_that_it_was_chosen_from() {
        let mut ring = Ring::default();
        note(&mut ring, 0, 20, 17);
        for (index, found) in ring.found.iter_mut().enumerate() {
            found.inputs.usable = index >= 4;
            let optimized = [9, 15, 17].contains(&index);
            found.inputs.rank = if optimized { AnaRank::Optimized } else { AnaRank::NonOptimized };
        }
        assert_eq!(kept(&ring.found, 17), ([17, 9, 15, 4, 5, 6, 7, 8], 8));
        ring.found.truncate(6);
        assert_eq!(kept(&ring.found, 5), ([5, 4, 0, 1, 2, 3, 0, 0], 6));
    }
}
