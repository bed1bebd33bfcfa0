//! `finish-time` where a command takes far longer than others now and then.

use crate::support::{Path, paths};
use anabranch_policy::{
    FinishTimeReport, OpClass, Parameters, Policy, SizeClass, finish, finish_time_report,
    reset_statistics, sample, start, start_probe,
};

const BYTES: u32 = 4096;
const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const USUAL_NS: u64 = 100 * US;
const OUTLIER_NS: u64 = 9 * MS;

fn report(path: &Path, now_ns: u64) -> FinishTimeReport {
    finish_time_report(path.load(), now_ns)
}

fn base_ns(path: &Path, op: OpClass) -> u64 {
    report(path, 0).base_ns[usize::from(op != OpClass::Read)][SizeClass::of(BYTES).index()]
}

/// One command after the other, of these latencies, each after a pause; gives back when they are
/// over, and the pause after them.
fn one_by_one(path: &Path, op: OpClass, latencies: &[u64], pause_ns: u64, from_ns: u64) -> u64 {
    let parameters = Parameters::of(Policy::FinishTime);
    latencies.iter().fold(from_ns, |now_ns, latency_ns| {
        let charge = start(&parameters, path.load(), op, BYTES, now_ns);
        finish(charge, path.load());
        sample(&parameters, charge, path.load(), 2, now_ns + latency_ns);
        now_ns + latency_ns + pause_ns
    })
}

fn probe(path: &Path, latency_ns: u64, now_ns: u64) {
    let charge = start_probe(path.load(), BYTES, now_ns);
    finish(charge, path.load());
    sample(&Parameters::of(Policy::FinishTime), charge, path.load(), 2, now_ns + latency_ns);
}

#[test]
fn one_alone_says_nothing_of_the_way_nor_of_its_rate() {
    let path = &paths("o")[0];
    // Each finds a path that was unused for long enough to be looked at anew.
    let now_ns = one_by_one(path, OpClass::Read, &[USUAL_NS; 200], 10 * MS, MS);
    let before = report(path, now_ns);
    let now_ns = one_by_one(path, OpClass::Read, &[OUTLIER_NS], 10 * MS, now_ns);
    let after = report(path, now_ns);
    assert_eq!(after.base_ns, before.base_ns);
    assert_eq!(after.rate_bytes_per_s, before.rate_bytes_per_s);
    // What it cost is remembered all the same.
    let cost_ns = (OUTLIER_NS - USUAL_NS) / 512;
    assert!(after.outliers_ns.abs_diff(cost_ns) <= cost_ns / 50, "{after:?}");
    assert_eq!(after.finish_ns, before.finish_ns + after.outliers_ns);
}

#[test]
fn one_that_hangs_for_seconds_does_not_keep_others_away_for_as_long() {
    let path = &paths("o")[0];
    let now_ns = one_by_one(path, OpClass::Read, &[USUAL_NS; 200], 10 * MS, MS);
    let before = report(path, now_ns);
    // Others are answered meanwhile: the path is not silent.
    let parameters = Parameters::of(Policy::FinishTime);
    let hangs = start(&parameters, path.load(), OpClass::Read, BYTES, now_ns);
    let now_ns = one_by_one(path, OpClass::Read, &[USUAL_NS; 300], 10 * MS, now_ns);
    finish(hangs, path.load());
    sample(&parameters, hangs, path.load(), 2, now_ns);
    let after = report(path, now_ns);
    assert_eq!(after.base_ns, before.base_ns);
    let cost_ns = after.outliers_ns;
    assert!((USUAL_NS..=2 * USUAL_NS).contains(&cost_ns), "{cost_ns} ns");
}

#[test]
fn one_after_another_is_a_longer_way() {
    let path = &paths("o")[0];
    let now_ns = one_by_one(path, OpClass::Read, &[USUAL_NS; 200], 10 * MS, MS);
    let now_ns = one_by_one(path, OpClass::Read, &[OUTLIER_NS; 9], 10 * MS, now_ns);
    let known = base_ns(path, OpClass::Read);
    assert!(known > OUTLIER_NS * 95 / 100, "{known} ns");
    let cost_ns = report(path, now_ns).outliers_ns;
    assert!(
        cost_ns <= (OUTLIER_NS - USUAL_NS) / 512,
        "only the first may have been one: {cost_ns}"
    );
}

#[test]
fn a_prediction_contains_what_outliers_cost_on_average() {
    let path = &paths("o")[0];
    let mut latencies = [USUAL_NS; 20];
    latencies[7] = OUTLIER_NS;
    let mut now_ns = MS;
    for _ in 0..200 {
        now_ns = one_by_one(path, OpClass::Write, &latencies, 10 * US, now_ns);
    }
    let known = report(path, now_ns);
    let cost_ns = (OUTLIER_NS - USUAL_NS) / 20;
    assert!(known.outliers_ns.abs_diff(cost_ns) < cost_ns / 10, "{known:?}");
    assert_eq!(base_ns(path, OpClass::Write), USUAL_NS);
    assert!(known.finish_ns >= USUAL_NS + known.outliers_ns, "{known:?}");
    // It passes when there are none any more, and on a path that only probes look at as well.
    let probed = &paths("o")[0];
    let mut at_ns = one_by_one(probed, OpClass::Read, &latencies, 10 * US, MS);
    let before = report(probed, at_ns).outliers_ns;
    for _ in 0..11 {
        at_ns += 160 * MS;
        probe(probed, USUAL_NS, at_ns);
    }
    let after = report(probed, at_ns).outliers_ns;
    assert!((1..=before / 2).contains(&after), "{before} ns, {after} ns after 1.8 s");
    one_by_one(path, OpClass::Write, &[USUAL_NS; 4000], 10 * US, now_ns);
    assert!(report(path, now_ns).outliers_ns < cost_ns / 100);
    reset_statistics(path.load());
    assert_eq!(report(path, now_ns).outliers_ns, 0);
}

#[test]
fn a_short_read_puts_long_writes_in_doubt() {
    let path = &paths("o")[0];
    let now_ns = one_by_one(path, OpClass::Write, &[USUAL_NS; 100], 10 * MS, MS);
    let now_ns = one_by_one(path, OpClass::Write, &[OUTLIER_NS; 3], 0, now_ns);
    let long_ns = base_ns(path, OpClass::Write);
    assert!(long_ns > 4 * MS, "{long_ns} ns");
    // So soon the write itself says more.
    probe(path, USUAL_NS, now_ns + 20 * MS);
    assert_eq!(base_ns(path, OpClass::Write), long_ns);
    probe(path, USUAL_NS, now_ns + 60 * MS);
    let doubted_ns = base_ns(path, OpClass::Write);
    assert!(doubted_ns.abs_diff(long_ns.midpoint(USUAL_NS)) <= 1, "{doubted_ns} of {long_ns} ns");
    for at in 0..10 {
        probe(path, USUAL_NS, now_ns + (200 + 160 * at) * MS);
    }
    // Writes may well take some more than reads.
    let left_ns = base_ns(path, OpClass::Write);
    assert!((USUAL_NS..=3 * USUAL_NS).contains(&left_ns), "{left_ns} ns");
    let now_ns = now_ns + 2000 * MS;
    one_by_one(path, OpClass::Write, &[OUTLIER_NS; 4], 10 * MS, now_ns);
    let again_ns = base_ns(path, OpClass::Write);
    assert!(again_ns > 4 * MS, "writes that take long say so: {again_ns} ns");
}

#[test]
fn what_a_user_reads_says_nothing_of_writes() {
    let path = &paths("o")[0];
    let now_ns = one_by_one(path, OpClass::Write, &[OUTLIER_NS; 3], 0, MS);
    let long_ns = base_ns(path, OpClass::Write);
    one_by_one(path, OpClass::Read, &[USUAL_NS; 3], 100 * MS, now_ns + 100 * MS);
    assert_eq!(base_ns(path, OpClass::Write), long_ns);
}

#[test]
fn what_outliers_have_cost_is_forgotten_in_the_end() {
    let path = &paths("o")[0];
    let now_ns = one_by_one(path, OpClass::Read, &[USUAL_NS; 200], US, MS);
    let now_ns = one_by_one(path, OpClass::Read, &[OUTLIER_NS], US, now_ns);
    assert!(report(path, now_ns).outliers_ns > 10 * US);
    let now_ns = one_by_one(path, OpClass::Read, &[USUAL_NS; 8000], US, now_ns);
    assert_eq!(report(path, now_ns).outliers_ns, 0);
}
