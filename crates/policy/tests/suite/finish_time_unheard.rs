//! `finish-time` after a pause, in which nothing was heard of any path: commands are placed by what
//! is known all the same.

use crate::support::{Path, paths};
use anabranch_policy::{
    Charge, OpClass, Parameters, Policy, Selector, finish, sample, start, start_probe,
};
use std::collections::VecDeque;

const BYTES: u32 = 4096;
const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const SECOND: u64 = 1_000 * MS;

fn parameters() -> Parameters {
    Parameters::of(Policy::FinishTime)
}

fn begin(path: &Path, now_ns: u64) -> Charge {
    start(&parameters(), path.load(), OpClass::Write, BYTES, now_ns)
}

fn end(path: &Path, charge: Charge, now_ns: u64) {
    finish(charge, path.load());
    sample(&parameters(), charge, path.load(), 2, now_ns);
}

/// Writes one after the other, that take so long each; gives back when they are over.
fn writes(path: &Path, count: u64, latency_ns: u64, from_ns: u64) -> u64 {
    (0..count).fold(from_ns, |now_ns, _| {
        let charge = begin(path, now_ns);
        end(path, charge, now_ns + latency_ns);
        now_ns + latency_ns
    })
}

/// So many writes are always in flight on the first path for a while, behind each other; gives back
/// when they are over.
fn queue(selector: &mut Selector, table: &[Path], open: usize, from_ns: u64) -> u64 {
    const EACH_NS: u64 = 50 * US;
    let mut now_ns = from_ns;
    let mut flying = VecDeque::new();
    for _ in 0..5_000 {
        if flying.len() == open {
            now_ns += EACH_NS;
            end(&table[0], flying.pop_front().expect("some are"), now_ns);
        }
        selector.select(&parameters(), table, OpClass::Write, BYTES, now_ns);
        flying.push_back(begin(&table[0], now_ns));
    }
    for charge in flying {
        now_ns += EACH_NS;
        end(&table[0], charge, now_ns);
    }
    now_ns
}

/// So many writes at once; gives back where they go.
fn burst(selector: &mut Selector, table: &[Path], count: usize, now_ns: u64) -> Vec<usize> {
    let place = |_| {
        let choice = selector.select(&parameters(), table, OpClass::Write, BYTES, now_ns);
        let index = choice.expect("all are usable").index;
        let _: Charge = begin(&table[index], now_ns);
        index
    };
    (0..count).map(place).collect()
}

#[test]
fn writes_after_a_pause_go_where_they_are_done_first() {
    let table = paths("oo");
    let heard_ns = writes(&table[0], 100, 30 * MS, SECOND);
    let heard_ns = writes(&table[1], 100, 100 * US, heard_ns);
    let gone = burst(&mut Selector::new(), &table, 8, heard_ns + 10 * SECOND);
    assert_eq!(gone, [1; 8], "the other one is 30 ms away");
}

#[test]
fn a_write_after_a_pause_does_not_spill_to_a_path_of_which_nothing_is_known() {
    const OPEN: usize = 16;
    let table = paths("oo");
    let mut selector = Selector::new();
    let mut now_ns = writes(&table[0], 10, 100 * US, SECOND);
    now_ns = queue(&mut selector, &table, OPEN, now_ns);
    let gone = burst(&mut selector, &table, OPEN, now_ns + 10 * SECOND);
    assert_eq!(gone, [0; OPEN]);
}

#[test]
fn what_commands_waited_before_a_pause_does_not_make_them_spill_after_it() {
    let table = paths("oo");
    let mut selector = Selector::new();
    let heard_ns = writes(&table[1], 10, MS, SECOND);
    let heard_ns = writes(&table[0], 10, 100 * US, heard_ns);
    let heard_ns = queue(&mut selector, &table, 16, heard_ns);
    let gone = burst(&mut selector, &table, 8, heard_ns + SECOND);
    assert_eq!(gone, [0; 8], "the other one is ten times as far");
}

/// Silent is who has work and has not answered for twice its longest base latency and 200 µs.
#[test]
fn a_path_with_work_that_has_fallen_silent_is_left() {
    let table = paths("oo");
    let heard_ns = writes(&table[1], 100, 300 * US, SECOND);
    let heard_ns = writes(&table[0], 100, 100 * US, heard_ns);
    let place = |after_ns| {
        let (mut selector, now_ns) = (Selector::new(), heard_ns + after_ns);
        let choice = selector.select(&parameters(), &table, OpClass::Write, BYTES, now_ns);
        choice.expect("both are usable").index
    };
    assert_eq!(place(500 * MS), 0, "it has nothing to answer");
    let _: Charge = begin(&table[0], heard_ns);
    assert_eq!(place(390 * US), 0, "longer than the other one would take, but nothing unusual");
    assert_eq!(place(410 * US), 1, "silent");
}

/// Of a few writes a second, none of which reads the far path beside it often enough for that to be
/// heard of: those that come before the near path is overdue are lost to it, and no others.
#[test]
fn few_writes_leave_a_path_that_has_died() {
    const NEAR_NS: u64 = 100 * US;
    for (far_ns, each_ns, most) in [
        (300 * US, SECOND, 1),
        (MS, SECOND, 1),
        (5 * MS, SECOND, 1),
        (5 * MS, 250 * MS, 1),
        (5 * MS, 20 * MS, 4),
    ] {
        let table = paths("oo");
        let (mut selector, mut now_ns) = (Selector::new(), SECOND);
        let latency_ns = [NEAR_NS, far_ns];
        for _ in 0..20 {
            now_ns = writes(&table[0], 1, NEAR_NS, now_ns) + 10 * MS;
            now_ns = writes(&table[1], 1, far_ns, now_ns) + 10 * MS;
        }
        let (alive_ns, end_ns) = (now_ns + 20 * SECOND, now_ns + 35 * SECOND);
        let mut stuck = Vec::new();
        while now_ns < end_ns {
            now_ns += each_ns;
            let answers = |index| now_ns < alive_ns || index == 1;
            let choice = selector.select(&parameters(), &table, OpClass::Write, BYTES, now_ns);
            let index = choice.expect("all are usable").index;
            if let Some(probed) = selector.take_probe().filter(|&probed| answers(probed)) {
                let charge = start_probe(table[probed].load(), BYTES, now_ns);
                end(&table[probed], charge, now_ns + latency_ns[probed]);
            }
            let charge = begin(&table[index], now_ns);
            if answers(index) {
                end(&table[index], charge, now_ns + latency_ns[index]);
            } else {
                stuck.push(now_ns - alive_ns);
            }
        }
        assert!(!stuck.is_empty(), "the near path was in use");
        assert!(stuck.len() <= most, "{far_ns} ns away, each {each_ns} ns: {stuck:?}");
    }
}
