//! Selection: bursts, as long as the weights say.

use super::{Group, LatencyParameters};
use crate::{AnaRank, AsCandidate, Candidate, Choice, Load, OpClass, Parameters, Reason, Selector};

#[inline]
pub(crate) fn select<P: AsCandidate>(
    selector: &mut Selector,
    parameters: &Parameters,
    paths: &[P],
    op: OpClass,
    bytes: u32,
) -> Option<Choice> {
    let walk = Walk::new(parameters, op, bytes);
    // By default each group goes its own way; as posted, all share one pointer.
    let turns = &selector.turns;
    let last = if walk.exact { turns.get_of_all() } else { turns.get(walk.slot) };
    let last = last.map(|last| last as usize).filter(|&last| last < paths.len());
    let at = match last {
        Some(last) => last,
        None if walk.exact => 0,
        None => selector.rotation_start(paths),
    };
    // The burst goes on: the usual case, and one path is looked at.
    let path = paths.get(at)?.candidate();
    let may = path.usable && (!walk.classes || path.rank == AnaRank::Optimized);
    if may && walk.spend(path.load) {
        walk.note(selector, at);
        return Some(Choice { index: at, reason: Reason::Credit });
    }
    // Without a weight it had its turn last time.
    let had_its_turn = !walk.exact && last.is_some() && walk.weight(path.load) == 0;
    let from = match had_its_turn {
        true if at + 1 < paths.len() => at + 1,
        true => 0,
        false => at,
    };
    let chosen = walk.choose(paths, from)?;
    walk.note(selector, chosen.index);
    Some(chosen)
}

/// What holds for the choice of one path.
struct Walk {
    slot: usize,
    per_node: bool,
    /// Optimized paths come first.
    classes: bool,
    /// A path without a weight is used until it has one, and all groups share a pointer.
    exact: bool,
}

impl Walk {
    #[inline]
    fn new(parameters: &Parameters, op: OpClass, bytes: u32) -> Walk {
        Walk {
            slot: Group::of(&parameters.latency, op, bytes).slot(),
            per_node: parameters.latency.per_node,
            classes: !(parameters.kernel_exact || parameters.latency.compete),
            exact: parameters.kernel_exact,
        }
    }

    /// The path used last is this one.
    #[inline]
    fn note(&self, selector: &mut Selector, index: usize) {
        // No head has 2^32 paths.
        let index = index as u32;
        selector.last = Some(index);
        if self.exact {
            selector.turns.set_of_all(index);
        } else {
            selector.turns.set(self.slot, index);
        }
    }

    /// The first path that may be used, in the best class, on the way around from `from`.
    fn choose<P: AsCandidate>(&self, paths: &[P], from: usize) -> Option<Choice> {
        if !self.classes {
            return self.circle(paths, from, |_| true);
        }
        let optimized = self.circle(paths, from, |path| path.rank == AnaRank::Optimized);
        optimized.or_else(|| {
            // Every usable path is a non-optimized one.
            let other = self.circle(paths, from, |_| true)?;
            Some(Choice { reason: Reason::NoOptimized, ..other })
        })
    }

    /// Twice around the list: in the first round each path that has no credit gets one, so the
    /// second ends at the first usable path, if there is one.
    fn circle<P: AsCandidate>(
        &self,
        paths: &[P],
        from: usize,
        may: impl Fn(&Candidate<'_>) -> bool,
    ) -> Option<Choice> {
        let (before, behind) = paths.split_at(from);
        for _ in 0..2 {
            let mut usable = false;
            for (base, stretch) in [(from, behind), (0, before)] {
                for (offset, path) in stretch.iter().enumerate() {
                    let path = path.candidate();
                    if !path.usable || !may(&path) {
                        continue;
                    }
                    usable = true;
                    if let Some(reason) = self.take(path.load) {
                        return Some(Choice { index: base + offset, reason });
                    }
                }
            }
            if !usable {
                break;
            }
        }
        None
    }

    /// The turn of a path: it is used, or it is given credit for next time.
    #[inline]
    fn take(&self, load: Load<'_>) -> Option<Reason> {
        if self.spend(load) {
            return Some(Reason::Credit);
        }
        // Where nothing is kept it stays as it is before the first measurement.
        let Some(local) = load.local else { return Some(Reason::Unmeasured) };
        let turn = local.turn(self.slot);
        let weight = self.weight(load);
        if weight == 0 {
            turn.selected.set(turn.selected.get() + 1);
            return Some(Reason::Unmeasured);
        }
        turn.credit.set(weight);
        None
    }

    /// Uses the path if it has credit left.
    #[inline]
    fn spend(&self, load: Load<'_>) -> bool {
        let Some(local) = load.local else { return false };
        let turn = local.turn(self.slot);
        let credit = turn.credit.get();
        if credit > 0 {
            turn.credit.set(credit - 1);
            turn.selected.set(turn.selected.get() + 1);
        }
        credit > 0
    }

    #[inline]
    fn weight(&self, load: Load<'_>) -> u32 {
        weight(self.per_node, load, self.slot)
    }
}

/// The weight in force; 0 before the first computation.
#[inline]
pub(super) fn weight(per_node: bool, load: Load<'_>, slot: usize) -> u32 {
    if per_node {
        load.node.map_or(0, |node| node.weight(slot))
    } else {
        load.local.map_or(0, |local| local.turn(slot).weight.get())
    }
}

/// What selection compares, for explain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyInputs {
    /// 0 before the first computation.
    pub weight: u32,
    /// Commands left of the present burst.
    pub credit: u32,
    /// What the weight came from; 0 before the first sample.
    pub smoothed_ns: u64,
}

/// What selection under `latency` looks at when such a command is placed.
#[must_use]
pub fn latency_inputs(
    parameters: &Parameters,
    load: Load<'_>,
    op: OpClass,
    bytes: u32,
) -> LatencyInputs {
    let LatencyParameters { per_node, .. } = parameters.latency;
    let slot = Group::of(&parameters.latency, op, bytes).slot();
    LatencyInputs {
        weight: weight(per_node, load, slot),
        credit: load.local.map_or(0, |local| local.turn(slot).credit.get()),
        smoothed_ns: u64::from(super::compute::smoothed_ns(per_node, load, slot)),
    }
}
