//! What holds for every table of paths, over random tables, loads and events.

use crate::support;

use crate::support::{Path, Random, read};
use anabranch_policy::{Affinity, AnaRank, Policy, Selector};

#[cfg(not(miri))]
const ROUNDS: usize = 4000;
#[cfg(miri)]
const ROUNDS: usize = 40;

/// The class of a path: the smaller, the better.
fn class(path: &Path, policy: Policy, exact: bool) -> (bool, AnaRank) {
    match policy {
        // Standby paths come after all others.
        Policy::ServiceTime => (path.controller.relative_throughput() == 0, path.rank),
        // Kernel-exact, `latency` knows no ANA classes.
        Policy::Latency if exact => (false, AnaRank::Optimized),
        _ => (false, path.rank),
    }
}

/// Whether a policy may use a path at all.
fn may(path: &Path, policy: Policy) -> bool {
    let mapped = policy != Policy::IoAffinity || path.affinity != Affinity::Unmapped;
    path.usable && mapped
}

/// No usable path exists, or the one chosen is usable, and of the best class that is.
fn check_choice(table: &[Path], policy: Policy, exact: bool, chosen: Option<usize>) {
    let usable = table.iter().filter(|path| may(path, policy));
    let best = usable.map(|path| class(path, policy, exact)).min();
    match (chosen, best) {
        (None, None) => {}
        (Some(chosen), Some(best)) => {
            assert!(may(&table[chosen], policy), "chose an unusable path");
            assert_eq!(class(&table[chosen], policy, exact), best, "passed over a better class");
        }
        (chosen, best) => panic!("chose {chosen:?} where the best was {best:?}"),
    }
}

/// One random thing that happens to a table between two commands.
fn disturb(random: &mut Random, table: &mut Vec<Path>, selector: &mut Selector) {
    let index = random.below(table.len());
    match random.below(12) {
        0 => table[index].usable = !table[index].usable,
        1 => table[index].rank = AnaRank::Optimized,
        2 => table[index].rank = AnaRank::NonOptimized,
        3 => selector.forget_path(index),
        4 => selector.clear_cache(),
        5 if table.len() > 1 => {
            table.remove(index);
            selector.path_removed(index);
        }
        6 => table.append(&mut random.paths(1)),
        7 => table[index].controller.set_relative_throughput(random.below(3) as u32),
        8 => {
            use Affinity::{Mapped, Node, Own, Unmapped};
            table[index].affinity = [Own, Node, Mapped, Unmapped][random.below(4)];
        }
        _ => {}
    }
}

#[test]
fn a_choice_is_usable_and_of_the_best_class_whatever_happened_before() {
    let mut random = Random::seeded();
    for _ in 0..ROUNDS {
        let mut table = random.paths(8);
        let mut selector = Selector::new();
        for _ in 0..20 {
            let policy = Policy::ALL[random.below(Policy::ALL.len())];
            let exact = random.below(2) == 0;
            let chosen = read(&mut selector, policy, exact, &table);
            check_choice(&table, policy, exact, chosen);
            disturb(&mut random, &mut table, &mut selector);
        }
    }
}

#[test]
fn a_stale_selector_never_leaves_a_shorter_list() {
    // Even a caller who forgets to report a removal gets a position inside the list.
    let mut random = Random::seeded();
    for _ in 0..ROUNDS {
        let mut selector = Selector::new();
        for _ in 0..4 {
            let table = random.paths(6);
            let policy = Policy::ALL[random.below(Policy::ALL.len())];
            let exact = random.below(2) == 0;
            let chosen = read(&mut selector, policy, exact, &table);
            check_choice(&table, policy, exact, chosen);
        }
    }
}

#[test]
fn queue_depth_takes_a_minimum_of_the_best_class() {
    let mut random = Random::seeded();
    for _ in 0..ROUNDS {
        let table = random.paths(10);
        let mut selector = Selector::new();
        for exact in [false, true, false] {
            let Some(chosen) = read(&mut selector, Policy::QueueDepth, exact, &table) else {
                continue;
            };
            let class =
                || table.iter().filter(|path| path.usable && path.rank == table[chosen].rank);
            let least = class().map(|path| path.controller.nr_active()).min();
            assert_eq!(Some(table[chosen].controller.nr_active()), least);
        }
    }
}

#[test]
fn equally_deep_paths_all_get_their_turn_by_default() {
    let mut random = Random::seeded();
    for _ in 0..ROUNDS {
        let table = random.paths(10);
        let mut selector = Selector::new();
        let mut chosen: Vec<usize> = (0..table.len())
            .filter_map(|_| read(&mut selector, Policy::QueueDepth, false, &table))
            .collect();
        let Some(&first) = chosen.first() else { continue };
        let key = |path: &Path| (path.usable, path.rank, path.controller.nr_active());
        let least = key(&table[first]);
        let ties: Vec<usize> = (0..table.len()).filter(|&i| key(&table[i]) == least).collect();
        // Idle optimized paths end the scan, deep ones are compared; both rotate.
        chosen.sort_unstable();
        chosen.dedup();
        assert_eq!(chosen, ties);
    }
}

#[test]
fn round_robin_visits_k_optimized_paths_in_any_k_consecutive_selections() {
    let mut random = Random::seeded();
    for _ in 0..ROUNDS {
        let table = random.paths(10);
        let is_optimized = |path: &&Path| path.usable && path.rank == AnaRank::Optimized;
        let optimized = table.iter().filter(is_optimized).count();
        if optimized == 0 {
            continue;
        }
        let mut selector = Selector::new();
        let exact = random.below(2) == 0;
        let chosen: Vec<usize> = (0..3 * optimized)
            .filter_map(|_| read(&mut selector, Policy::RoundRobin, exact, &table))
            .collect();
        for window in chosen.windows(optimized) {
            let mut window = window.to_vec();
            window.sort_unstable();
            window.dedup();
            assert_eq!(window.len(), optimized);
        }
    }
}

#[test]
fn round_robin_visits_every_non_optimized_path_when_there_is_nothing_better() {
    let mut random = Random::seeded();
    for _ in 0..ROUNDS {
        let mut table = random.paths(10);
        for path in &mut table {
            path.rank = AnaRank::NonOptimized;
        }
        let usable = table.iter().filter(|path| path.usable).count();
        let mut selector = Selector::new();
        let exact = random.below(2) == 0;
        let mut chosen: Vec<usize> = (0..usable)
            .filter_map(|_| read(&mut selector, Policy::RoundRobin, exact, &table))
            .collect();
        chosen.sort_unstable();
        chosen.dedup();
        assert_eq!(chosen.len(), usable);
    }
}

#[test]
fn numa_takes_the_first_of_the_nearest_in_the_best_class() {
    let mut random = Random::seeded();
    for _ in 0..ROUNDS {
        let table = random.paths(10);
        let expected = (0..table.len())
            .filter(|&i| table[i].usable)
            .min_by_key(|&i| (table[i].rank, table[i].distance, i));
        let mut selector = Selector::new();
        for exact in [false, true] {
            assert_eq!(read(&mut selector, Policy::Numa, exact, &table), expected);
        }
    }
}

#[test]
fn a_removed_path_does_not_disturb_the_rotation_of_the_others() {
    let mut random = Random::seeded();
    for _ in 0..ROUNDS {
        // Paths are told apart by their distance here.
        let mut table = support::paths("oooooo");
        for (i, path) in table.iter_mut().enumerate() {
            path.distance = i as u32;
        }
        let mut selector = Selector::new();
        let policy = [Policy::RoundRobin, Policy::QueueDepth][random.below(2)];
        for _ in 0..random.below(12) {
            read(&mut selector, policy, false, &table);
        }
        let removed = random.below(table.len());
        table.remove(removed);
        selector.path_removed(removed);
        let mut seen: Vec<u32> = (0..5)
            .filter_map(|_| read(&mut selector, policy, false, &table))
            .map(|chosen| table[chosen].distance)
            .collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 5, "each of the remaining paths once");
    }
}

/// `numa` on the second of four paths, which are as far as given.
fn bound_to_the_second(distances: [u32; 4]) -> (Vec<Path>, Selector) {
    let mut table = support::paths("oooo");
    table.iter_mut().zip(distances).for_each(|(path, distance)| path.distance = distance);
    let mut selector = Selector::new();
    assert_eq!(read(&mut selector, Policy::Numa, false, &table), Some(1));
    (table, selector)
}

#[test]
fn the_path_that_numa_remembers_moves_with_the_list_and_is_forgotten_with_itself() {
    let distances = [20, 10, 30, 10];
    for (removed, bound) in [(0, Some(0)), (1, None), (2, Some(1)), (3, Some(1))] {
        let (mut table, mut selector) = bound_to_the_second(distances);
        table.remove(removed);
        selector.path_removed(removed);
        assert_eq!(selector.numa_path(), bound, "without {removed}");
        // The nearest of those that are left, not the one that has moved up.
        let next = read(&mut selector, Policy::Numa, false, &table);
        assert_eq!(next, Some(bound.unwrap_or(2)), "without {removed}");
    }
    for (place, bound) in [(0, 2), (1, 2), (2, 1), (3, 1)] {
        let (mut table, mut selector) = bound_to_the_second(distances);
        table.insert(place, Path::new(true, AnaRank::Optimized));
        selector.path_added(place);
        assert_eq!(selector.numa_path(), Some(bound), "one more at {place}");
        assert_eq!(read(&mut selector, Policy::Numa, false, &table), Some(bound), "at {place}");
    }
}

#[test]
fn a_rotation_goes_on_behind_the_path_used_last_wherever_another_one_joins() {
    for place in 0..4 {
        let mut table = support::paths("oooo");
        let mut selector = Selector::new();
        (0..2).for_each(|_| _ = read(&mut selector, Policy::QueueDepth, false, &table));
        table.insert(place, Path::new(false, AnaRank::Optimized));
        selector.path_added(place);
        let expected = if place <= 2 { 3 } else { 2 };
        assert_eq!(read(&mut selector, Policy::QueueDepth, false, &table), Some(expected));
    }
}

#[test]
fn a_rotation_goes_on_behind_the_path_used_last_whichever_leaves() {
    // Paths are told apart by their distance here; the third one is used last.
    for (removed, expected) in [(0, 3), (1, 3), (2, 3), (3, 4), (4, 3)] {
        let mut table = support::paths("ooooo");
        table.iter_mut().zip(0..).for_each(|(path, distance)| path.distance = distance);
        let mut selector = Selector::new();
        (0..3).for_each(|_| _ = read(&mut selector, Policy::QueueDepth, false, &table));
        table.remove(removed);
        selector.path_removed(removed);
        let next = read(&mut selector, Policy::QueueDepth, false, &table).expect("a path");
        assert_eq!(table[next].distance, expected, "without {removed}");
    }
}
