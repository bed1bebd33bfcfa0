//! The statements D1, D2 and D5, and the selectors of device-mapper against a model that keeps its
//! paths as device-mapper does: in a list, of which the chosen one goes to the tail.

use crate::support::{Path, Random, begin, load, one_at_a_time, parameters, paths, read};
use anabranch_policy::{
    Affinity, AnaRank, AsCandidate, Charge, Choice, OpClass, Parameters, Policy, Reason, Selector,
    finish, inputs, reset_statistics, sample, start,
};
use std::cmp::Ordering;

const ROUNDS: usize = if cfg!(miri) { 5 } else { 600 };
const MODES: [bool; 2] = [false, true];

/// Device-mapper's list of valid paths, by identity: here the NUMA distance.
#[derive(Default)]
struct List(Vec<u32>);

impl List {
    /// A path that joins or comes back gets in at the tail; one that fails or leaves is taken out.
    fn follow(&mut self, table: &[Path]) {
        let valid = |id: u32| table.iter().any(|path| path.distance == id && path.usable);
        self.0.retain(|&id| valid(id));
        for path in table.iter().filter(|path| path.usable) {
            if !self.0.contains(&path.distance) {
                self.0.push(path.distance);
            }
        }
    }

    /// The best of the best class, from the head of the list: better means strictly better.
    fn choose(
        &mut self,
        table: &[Path],
        compare: impl Fn(&Path, &Path) -> Ordering,
    ) -> Option<u32> {
        let path = |id: u32| table.iter().find(|path| path.distance == id).unwrap();
        let class = self.0.iter().map(|&id| path(id).rank).min()?;
        let mut best: Option<u32> = None;
        for &id in self.0.iter().filter(|&&id| path(id).rank == class) {
            if best.is_none_or(|best| compare(path(id), path(best)) == Ordering::Less) {
                best = Some(id);
            }
        }
        let best = best?;
        self.0.retain(|&id| id != best);
        self.0.push(best);
        Some(best)
    }
}

/// At most one path changes between two selections, so that the order of changes is known to both.
fn disturb(random: &mut Random, table: &mut Vec<Path>, selector: &mut Selector, next: &mut u32) {
    let index = random.below(table.len());
    match random.below(8) {
        0 | 1 => table[index].usable = !table[index].usable,
        2 => table[index].rank = [AnaRank::Optimized, AnaRank::NonOptimized][random.below(2)],
        3 if table.len() > 1 => {
            table.remove(index);
            selector.path_removed(index);
        }
        4 if table.len() < 9 => {
            let mut path = Path::new(true, AnaRank::Optimized);
            path.distance = *next;
            *next += 1;
            let place = random.below(table.len() + 1);
            table.insert(place, path);
            selector.path_added(place);
        }
        _ => {}
    }
}

/// Runs a policy and its model side by side. `compare` is the model's; `prepare` changes loads.
fn follow_the_list(
    parameters: &Parameters,
    mut prepare: impl FnMut(&mut Random, &mut [Path], u64),
    compare: impl Fn(&Path, &Path, u64) -> Ordering,
) {
    let mut random = Random::seeded();
    for _ in 0..ROUNDS {
        let mut table = paths(["oooo", "onon", "oo", "nnnnn", "oooooooo"][random.below(5)]);
        let mut next = 0;
        for path in &mut table {
            path.distance = next;
            next += 1;
        }
        let (mut selector, mut list) = (Selector::new(), List::default());
        for round in 1..60 {
            let now_ns = round * 1_000;
            prepare(&mut random, &mut table, now_ns);
            list.follow(&table);
            let expected = list.choose(&table, |a, b| compare(a, b, now_ns));
            let choice = selector.select(parameters, &table, OpClass::Read, 4096, now_ns);
            let chosen = choice.map(|choice| table[choice.index].distance);
            assert_eq!(chosen, expected, "{:?}", parameters.policy);
            disturb(&mut random, &mut table, &mut selector, &mut next);
        }
    }
}

#[test]
fn queue_length_is_device_mappers() {
    for exact in MODES {
        follow_the_list(
            &parameters(Policy::QueueLength, exact),
            |random, table, _| {
                let index = random.below(table.len());
                if random.below(3) == 0 {
                    let _: Charge = begin(&table[index], Policy::QueueLength);
                }
            },
            |a, b, _| a.shared.nr_active().cmp(&b.shared.nr_active()),
        );
    }
}

#[test]
fn service_time_by_default_is_device_mappers() {
    let compare = |a: &Path, b: &Path, _: u64| {
        let size = |path: &Path| path.controller.in_flight_bytes() + 4096;
        let (wa, wb) = (a.controller.relative_throughput(), b.controller.relative_throughput());
        match (wa, wb) {
            (0, 0) => size(a).cmp(&size(b)),
            (0, _) => Ordering::Greater,
            (_, 0) => Ordering::Less,
            _ => (size(a) * u64::from(wb)).cmp(&(size(b) * u64::from(wa))).then(wb.cmp(&wa)),
        }
    };
    follow_the_list(
        &Parameters::of(Policy::ServiceTime),
        |random, table, _| {
            // One class, so that standby is a matter of weights alone.
            table.iter_mut().for_each(|path| path.rank = AnaRank::Optimized);
            let index = random.below(table.len());
            match random.below(4) {
                0 => drop_charge(begin(&table[index], Policy::ServiceTime)),
                1 => table[index].controller.set_relative_throughput(random.below(4) as u32),
                _ => {}
            }
        },
        compare,
    );
}

/// The command stays in flight.
fn drop_charge(_: Charge) {}

#[test]
fn historical_service_time_is_device_mappers() {
    for threshold_multiplier in [0, 1, 2, 5] {
        let mut parameters = Parameters::of(Policy::HistoricalServiceTime);
        parameters.historical.threshold_multiplier = threshold_multiplier;
        let state = move |path: &Path, now_ns: u64| {
            let seen = inputs(&parameters, path.candidate(), OpClass::Read, 4096, now_ns);
            // Histories of whole nanoseconds: the tests below teach nothing else.
            let history = i128::from(seen.latency_ns.unwrap()) << 10;
            let staleness = inputs(&parameters, path.candidate(), OpClass::Read, 4096, u64::MAX);
            let stale_after = i128::from(u64::MAX - staleness.stale_ns.unwrap_or(u64::MAX));
            (i128::from(path.shared.nr_active()), history, stale_after)
        };
        // Negative: the first is better.
        let compare = move |a: &Path, b: &Path, now_ns: u64| {
            let now = i128::from(now_ns);
            let ((out_a, a_ns, stale_a), (out_b, b_ns, stale_b)) =
                (state(a, now_ns), state(b, now_ns));
            let threshold = i128::from(threshold_multiplier);
            if a_ns <= threshold * b_ns && b_ns <= threshold * a_ns {
                return out_a.cmp(&out_b);
            }
            match (out_a == 0, out_b == 0) {
                (true, true) => return stale_a.cmp(&stale_b),
                (true, false) if stale_a < now => return Ordering::Less,
                (false, true) if stale_b < now => return Ordering::Greater,
                _ => {}
            }
            let order = ((1 + out_a) * a_ns).cmp(&((1 + out_b) * b_ns));
            let winner_is_stale = if order == Ordering::Less { stale_a } else { stale_b } < now;
            if winner_is_stale { out_a.cmp(&out_b) } else { order }
        };
        follow_the_list(
            &parameters,
            |random, table, now_ns| {
                let path = &table[random.below(table.len())];
                match random.below(4) {
                    0 => drop_charge(start(&parameters, path.load(), OpClass::Read, 1, now_ns)),
                    1 => {
                        let mut taught = parameters;
                        taught.historical.base_weight = "0".parse().unwrap();
                        let charge = start(&taught, path.load(), OpClass::Read, 1, now_ns);
                        finish(charge, path.load());
                        // The clock goes on inside a round; several of these may be equal.
                        let end_ns = now_ns + [100, 200, 300, 900][random.below(4)];
                        sample(&taught, charge, path.load(), 2, end_ns);
                    }
                    2 if random.below(4) == 0 => reset_statistics(path.load()),
                    _ => {}
                }
            },
            compare,
        );
    }
}

#[test]
fn d1_service_time_rotates_ties_and_avoids_weight_zero_by_default() {
    let table = paths("oooo");
    table[1].controller.set_relative_throughput(0);
    let mut selector = Selector::new();
    let chosen = one_at_a_time(&mut selector, Policy::ServiceTime, false, &table, 6);
    assert_eq!(chosen, [0, 2, 3, 0, 2, 3]);
    // The command's own bytes: 4 KiB at weight 4 is less than 4 KiB at weight 3.
    table[2].controller.set_relative_throughput(4);
    table[3].controller.set_relative_throughput(3);
    let chosen = one_at_a_time(&mut selector, Policy::ServiceTime, false, &table, 3);
    assert_eq!(chosen, [2; 3]);
    let _: Charge = begin(&table[2], Policy::ServiceTime);
    assert_eq!(read(&mut selector, Policy::ServiceTime, false, &table), Some(3));
}

#[test]
fn d1_kernel_exact_service_time_sticks_to_the_first() {
    let table = paths("noo");
    let mut selector = Selector::new();
    let chosen = one_at_a_time(&mut selector, Policy::ServiceTime, true, &table, 4);
    assert_eq!(chosen, [1; 4]);
}

#[test]
fn d2_ties_of_queue_length_go_to_the_least_recently_used() {
    for exact in MODES {
        let mut table = paths("ooo");
        let mut selector = Selector::new();
        let policy = Policy::QueueLength;
        let chosen = one_at_a_time(&mut selector, policy, exact, &table, 4);
        assert_eq!(chosen, [0, 1, 2, 0]);
        // Order of use now: 1, 2, 0. While the second is busy the third is used.
        let busy = begin(&table[1], policy);
        assert_eq!(read(&mut selector, policy, exact, &table), Some(2));
        finish(busy, table[1].load());
        // Not the one behind the last one used, which would be the first: the one that waited.
        assert_eq!(read(&mut selector, policy, exact, &table), Some(1));
        // A path that comes back is behind the others.
        table[0].usable = false;
        assert_eq!(read(&mut selector, policy, exact, &table), Some(2));
        table[0].usable = true;
        let chosen = one_at_a_time(&mut selector, policy, exact, &table, 3);
        assert_eq!(chosen, [1, 2, 0]);
    }
}

#[test]
fn d2_ties_of_queue_depth_stick_to_the_first_when_kernel_exact_and_rotate_by_default() {
    let table = paths("ooo");
    for (exact, expected) in [(true, [0, 0, 0, 0]), (false, [0, 1, 2, 0])] {
        let mut selector = Selector::new();
        let chosen = one_at_a_time(&mut selector, Policy::QueueDepth, exact, &table, 4);
        assert_eq!(chosen, expected);
    }
}

#[test]
fn more_paths_than_are_kept_in_order_are_all_looked_at() {
    let mut table = paths(&"o".repeat(70));
    let mut selector = Selector::new();
    for (busy, path) in table.iter().enumerate() {
        load(path, u32::from(busy != 67));
    }
    assert_eq!(read(&mut selector, Policy::QueueLength, false, &table), Some(67));
    table[67].usable = false;
    let chosen = one_at_a_time(&mut selector, Policy::QueueLength, false, &table, 65);
    assert_eq!(chosen[..64], Vec::from_iter(0..64));
    table.drain(1..);
    (1..70).rev().for_each(|index| selector.path_removed(index));
    assert_eq!(read(&mut selector, Policy::QueueLength, false, &table), Some(0));
}

fn assigned(affinities: &[Affinity]) -> Vec<Path> {
    let mut table = paths(&"o".repeat(affinities.len()));
    for (path, &affinity) in table.iter_mut().zip(affinities) {
        path.affinity = affinity;
    }
    table
}

fn affine(selector: &mut Selector, exact: bool, table: &[Path]) -> Option<Choice> {
    let parameters = parameters(Policy::IoAffinity, exact);
    selector.select(&parameters, table, OpClass::Read, 4096, 0)
}

#[test]
fn d5_own_worker_then_node_then_any_then_none() {
    use Affinity::{Mapped, Node, Own, Unmapped};
    for exact in MODES {
        let mut table = assigned(&[Unmapped, Mapped, Mapped, Node, Node, Own, Own]);
        let mut selector = Selector::new();
        for (index, reason) in [
            (5, Reason::OwnWorker),
            (6, Reason::OwnWorker),
            (3, Reason::SameNode),
            (4, Reason::SameNode),
            (1, Reason::OtherWorker),
            (2, Reason::OtherWorker),
        ] {
            // Twice: it does not rotate.
            for _ in 0..2 {
                let choice = affine(&mut selector, exact, &table);
                assert_eq!(choice, Some(Choice { index, reason }));
            }
            table[index].usable = false;
        }
        // What is assigned to nobody is not used, even if nothing else is left.
        assert_eq!(affine(&mut selector, exact, &table), None);
    }
}

#[test]
fn d5_ana_classes_come_before_masks() {
    use Affinity::{Mapped, Node, Own, Unmapped};
    for exact in MODES {
        let mut table = assigned(&[Own, Node, Mapped, Unmapped]);
        table[0].rank = AnaRank::NonOptimized;
        table[1].rank = AnaRank::NonOptimized;
        let mut selector = Selector::new();
        let choice = affine(&mut selector, exact, &table);
        assert_eq!(choice, Some(Choice { index: 2, reason: Reason::OtherWorker }));
        // The only optimized path left is assigned to nobody.
        table[2].usable = false;
        let choice = affine(&mut selector, exact, &table);
        assert_eq!(choice, Some(Choice { index: 0, reason: Reason::NoOptimized }));
        table[0].usable = false;
        let choice = affine(&mut selector, exact, &table);
        assert_eq!(choice, Some(Choice { index: 1, reason: Reason::NoOptimized }));
    }
}

#[test]
fn d5_misses_count_selections_of_a_worker_without_a_path() {
    use Affinity::{Mapped, Node, Own, Unmapped};
    for exact in MODES {
        let mut selector = Selector::new();
        let mut table = assigned(&[Own, Mapped]);
        affine(&mut selector, exact, &table);
        // Its path can not be used: that is not a miss.
        table[0].usable = false;
        affine(&mut selector, exact, &table);
        assert_eq!(selector.affinity_misses(), 0);
        for (affinities, misses) in
            [(&[Node, Mapped][..], 1), (&[Unmapped], 2), (&[], 3), (&[Mapped, Own], 3)]
        {
            affine(&mut selector, exact, &assigned(affinities));
            assert_eq!(selector.affinity_misses(), misses);
        }
        // Other policies do not count.
        read(&mut selector, Policy::Numa, exact, &assigned(&[Mapped]));
        assert_eq!(selector.affinity_misses(), 3);
    }
}

#[test]
fn one_that_joins_where_the_order_ends_pushes_the_last_one_out_of_it() {
    for place in [10, 63, 64, 65] {
        let mut table = paths(&"o".repeat(66));
        let mut selector = Selector::new();
        let policy = Policy::QueueLength;
        let chosen = one_at_a_time(&mut selector, policy, false, &table, 64);
        assert_eq!(chosen, Vec::from_iter(0..64));
        table.insert(place, Path::new(true, AnaRank::Optimized));
        selector.path_added(place);
        // Those that were used stay in order; one that joined among them is behind them.
        let mut order: Vec<usize> = (0..64).filter(|&index| index != place).collect();
        order.extend((place < 64).then_some(place));
        let chosen = one_at_a_time(&mut selector, policy, false, &table, 64);
        assert_eq!(chosen, order, "at {place}");
    }
}
