//! `finish-time` where paths predict the same, or about the same, or nothing.

use crate::support::{Path, paths};
use anabranch_policy::{
    Charge, Load, OpClass, Parameters, Policy, Reason, Selector, finish, sample, start,
};

const BYTES: u32 = 4096;
const US: u64 = 1_000;
const SECOND: u64 = 1_000_000_000;

fn begin(path: &Path, now_ns: u64) -> Charge {
    start(&Parameters::of(Policy::FinishTime), path.load(), OpClass::Read, BYTES, now_ns)
}

fn end(path: &Path, charge: Charge, now_ns: u64) {
    finish(charge, path.load());
    sample(&Parameters::of(Policy::FinishTime), charge, path.load(), 2, now_ns);
}

/// So many reads at once, again and again, that take so long: no queue, and a rate of as many.
fn measure(path: &Path, at_once: usize, latency_ns: u64) -> u64 {
    (0..200).fold(SECOND, |now_ns, _| {
        let charges: Vec<Charge> = (0..at_once).map(|_| begin(path, now_ns)).collect();
        charges.into_iter().for_each(|charge| end(path, charge, now_ns + latency_ns));
        now_ns + latency_ns
    })
}

/// Where four reads go that come at once.
fn four(second_ns: u64, at_once: usize) -> Vec<usize> {
    let table = paths("oo");
    let now_ns = measure(&table[0], 8, 100 * US).max(measure(&table[1], at_once, second_ns));
    let mut selector = Selector::new();
    let place = |_| {
        let parameters = Parameters::of(Policy::FinishTime);
        let choice = selector.select(&parameters, &table, OpClass::Read, BYTES, now_ns);
        let index = choice.expect("both are usable").index;
        let _: Charge = begin(&table[index], now_ns);
        index
    };
    (0..4).map(place).collect()
}

#[test]
fn of_paths_that_predict_about_the_same_the_one_with_fewer_commands_of_this_worker() {
    // An eighth is as good as nothing between paths of about the same rate …
    assert_eq!(four(110 * US, 8), [0, 1, 0, 1]);
    assert_eq!(four(120 * US, 8), [0; 4]);
    // … and a sixty-fourth between others.
    assert_eq!(four(101 * US, 4), [0, 1, 0, 1]);
    assert_eq!(four(103 * US, 4), [0; 4]);
}

#[test]
fn of_paths_that_predict_about_the_same_the_one_with_less_of_other_workers() {
    // Two reads of another worker are on the first path; this one has nothing anywhere.
    let chosen = |second_ns: u64, at_once: usize| {
        let table = paths("oo");
        let now_ns = measure(&table[0], 8, 100 * US).max(measure(&table[1], at_once, second_ns));
        let parameters = Parameters::of(Policy::FinishTime);
        let place = || {
            let choice = Selector::new().select(&parameters, &table, OpClass::Read, BYTES, now_ns);
            choice.expect("both are usable").index
        };
        assert_eq!(place(), 0, "the earlier one, while nothing is there");
        let other = Load { lane: &table[0].lanes[1], worker: 1, queue: 1, ..table[0].load() };
        for _ in 0..2 {
            let _: Charge = start(&parameters, other, OpClass::Read, BYTES, now_ns);
        }
        place()
    };
    assert_eq!(chosen(110 * US, 8), 1);
    assert_eq!(chosen(120 * US, 8), 0, "by more than an eighth");
    assert_eq!(chosen(101 * US, 4), 0, "of another rate");
}

#[test]
fn of_paths_that_predict_the_same_each_has_its_turn() {
    let table = paths("ooo");
    let now_ns = table.iter().map(|path| measure(path, 8, 100 * US)).max().expect("three");
    let mut selector = Selector::new();
    let parameters = Parameters::of(Policy::FinishTime);
    let place = |_| {
        let choice = selector.select(&parameters, &table, OpClass::Read, BYTES, now_ns);
        choice.expect("all are usable").index
    };
    assert_eq!((0..7).map(place).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2, 0]);
}

#[test]
fn without_probes_an_idle_path_of_which_nothing_is_known_comes_first() {
    for probes in [false, true] {
        let table = paths("oo");
        let now_ns = measure(&table[0], 1, 100 * US);
        let mut parameters = Parameters::of(Policy::FinishTime);
        parameters.finish_time.probes = probes;
        let place = || {
            let mut selector = Selector::new();
            let choice = selector.select(&parameters, &table, OpClass::Read, BYTES, now_ns);
            choice.map(|choice| (choice.index, choice.reason))
        };
        let first = if probes { (0, Reason::EarliestFinish) } else { (1, Reason::Unmeasured) };
        assert_eq!(place(), Some(first));
        // One is on its way: nothing is known until it ends.
        let charge = begin(&table[1], now_ns);
        assert_eq!(place(), Some((0, Reason::EarliestFinish)));
        finish(charge, table[1].load());
    }
}
