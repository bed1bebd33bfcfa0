//! `finish-time` tells a link that is slow one way only from one queue for all.

use crate::support::paths;
use anabranch_policy::{
    AsCandidate, Charge, Inputs, OpClass, Parameters, Policy, finish, finish_time_report, inputs,
    sample, start,
};
use std::collections::VecDeque;

const BYTES: u32 = 65_536;
const IN_FLIGHT: usize = 24;
const COMMANDS: u32 = 20_000;
/// A command or an answer alone, and the way there and back.
const SMALL_NS: u64 = 100;
const DELAY_NS: u64 = 100_000;

/// Reads and writes as they come, always as many in flight; `done` says when the next one that is
/// given to the path at a time will be done. Rates of reads and of writes, MiB/s, when they are
/// told apart.
fn rates(mut done: impl FnMut(OpClass, u64) -> u64) -> Option<[u64; 2]> {
    let parameters = Parameters::of(Policy::FinishTime);
    let path = &paths("o")[0];
    let load = path.load();
    let mut flying: VecDeque<(u64, Charge)> = VecDeque::new();
    let (mut now_ns, mut random) = (1_000_000_000, 1_u32);
    for _ in 0..COMMANDS {
        if flying.len() == IN_FLIGHT {
            let (at_ns, charge) = flying.pop_front().expect("some are");
            now_ns = at_ns;
            finish(charge, load);
            sample(&parameters, charge, load, 1, now_ns);
        }
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let op = if random >> 31 == 0 { OpClass::Read } else { OpClass::Write };
        flying.push_back((done(op, now_ns), start(&parameters, load, op, BYTES, now_ns)));
    }
    let report = finish_time_report(load, now_ns);
    for op in [OpClass::Read, OpClass::Write] {
        let shown = inputs(&parameters, path.candidate(), op, BYTES, now_ns);
        assert_told(shown, op);
    }
    report.apart_bytes_per_s.map(|rates| rates.map(|rate| rate >> 20))
}

/// What is shown as in flight, at the rate that is shown, takes as long as is predicted: a fifth
/// less of what is to be waited for in the other direction.
fn assert_told(shown: Inputs, op: OpClass) {
    let known = |of: Option<u64>| of.expect("the policy looks at it");
    let work = known(shown.bytes) + u64::from(BYTES) + 4096;
    let rate = u64::from(shown.rate_kib_per_s.expect("likewise")) << 10;
    let told_ns = work * 1_000_000_000 / rate;
    let finish_ns = known(shown.finish_ns);
    let range = told_ns * 7 / 10..=told_ns * 51 / 50;
    assert!(range.contains(&finish_ns), "{op:?}: {finish_ns} ns, {shown:?}");
}

/// First come, first served, on each of two links, in microseconds for a command's data.
fn links(to_target_us: u64, from_target_us: u64) -> Option<[u64; 2]> {
    let (mut to_free_ns, mut from_free_ns) = (0, 0);
    rates(|op, now_ns| {
        let [up_ns, down_ns] = match op {
            OpClass::Read => [SMALL_NS, from_target_us * 1000],
            _ => [to_target_us * 1000, SMALL_NS],
        };
        to_free_ns = now_ns.max(to_free_ns) + up_ns;
        from_free_ns = (to_free_ns + DELAY_NS).max(from_free_ns) + down_ns;
        from_free_ns
    })
}

#[test]
fn links_that_are_slow_one_way_are_measured_each_way() {
    // 68 KiB, as each counts 4 KiB more, in 640 and in 64 us: 104 and 1038 MiB/s. (Of the latter
    // not everything shows as long as all wait for the others.)
    let [reads, writes] = links(640, 64).expect("they are told apart");
    assert!(writes.abs_diff(104) < 10, "writes {writes}");
    assert!(reads > 2 * writes && reads < 1400, "reads {reads}");
    let [reads, writes] = links(64, 640).expect("they are told apart");
    assert!(reads.abs_diff(104) < 10, "reads {reads}");
    assert!(writes > 2 * reads && writes < 1400, "writes {writes}");
}

#[test]
fn one_queue_for_all_is_one() {
    // A disk: a command after the other, whichever way its data goes.
    let mut free_ns = 0;
    let told = rates(|_, now_ns| {
        free_ns = now_ns.max(free_ns) + 100_000;
        free_ns
    });
    assert_eq!(told, None);
}
