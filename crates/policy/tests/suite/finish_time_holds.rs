//! `finish-time` where a path does nothing for a while, and goes on.

use crate::support::{Path, paths};
use anabranch_policy::{
    Charge, FinishTimeReport, OpClass, Parameters, Policy, Sampled, finish, finish_time_report,
    sample, start,
};

const BYTES: u32 = 4096;
const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
/// The path's way, and what it then delivers one command after the other in.
const WAY_NS: u64 = 100 * US;
const EACH_NS: u64 = 10 * US;
const DEPTH: usize = 16;

fn report(path: &Path, now_ns: u64) -> FinishTimeReport {
    finish_time_report(path.load(), now_ns)
}

fn begin(path: &Path, now_ns: u64) -> Charge {
    start(&Parameters::of(Policy::FinishTime), path.load(), OpClass::Read, BYTES, now_ns)
}

fn end(path: &Path, charge: Charge, now_ns: u64) -> Sampled {
    finish(charge, path.load());
    sample(&Parameters::of(Policy::FinishTime), charge, path.load(), 2, now_ns)
}

/// A closed load of [`DEPTH`] commands on a link.
struct Link<'a> {
    path: &'a Path,
    /// In flight, the oldest first.
    flying: std::collections::VecDeque<Charge>,
    now_ns: u64,
}

impl Link<'_> {
    /// So many end, each so long after the one before it, and as many begin.
    fn serve(&mut self, count: usize, each_ns: u64) {
        for _ in 0..count {
            self.now_ns += each_ns;
            let oldest = self.flying.pop_front().expect("a closed load");
            end(self.path, oldest, self.now_ns);
            self.flying.push_back(begin(self.path, self.now_ns));
        }
    }
}

/// A link that is known well.
fn link(path: &Path) -> Link<'_> {
    for turn in 1..100 {
        end(path, begin(path, turn * MS), turn * MS + WAY_NS);
    }
    let now_ns = 200 * MS;
    let flying = (0..DEPTH).map(|_| begin(path, now_ns)).collect();
    let mut link = Link { path, flying, now_ns: now_ns + WAY_NS };
    link.serve(2000, EACH_NS);
    link
}

#[test]
fn what_was_sent_before_a_path_went_on_as_before_says_nothing() {
    for silence_ns in [5 * MS, 20 * MS, 60 * MS, 400 * MS] {
        let path = &paths("o")[0];
        let mut link = link(path);
        for turn in 0..10 {
            let before = report(path, link.now_ns);
            link.now_ns += silence_ns;
            link.serve(DEPTH, US);
            let after = report(path, link.now_ns);
            assert!(after.measured, "{silence_ns} ns, {turn}");
            assert_eq!(after.rate_bytes_per_s, before.rate_bytes_per_s, "{silence_ns} ns, {turn}");
            assert_eq!(after.base_ns, before.base_ns, "{silence_ns} ns, {turn}");
            // As usual: the next silence is one, too.
            link.serve(200, EACH_NS);
        }
    }
}

/// All that is in flight ends at once then, too, once for each round trip.
#[test]
fn a_way_that_has_become_longer_is_soon_known() {
    let path = &paths("o")[0];
    let mut link = link(path);
    let before = report(path, link.now_ns).finish_ns;
    for _ in 0..20 {
        link.now_ns += 10 * MS;
        link.serve(DEPTH, US);
    }
    let after = report(path, link.now_ns).finish_ns;
    assert!(after > 2 * MS && before < MS, "{before} before, {after} after");
}

#[test]
fn a_path_that_goes_on_more_slowly_has_another_rate() {
    for silence_ns in [20 * MS, 60 * MS] {
        let path = &paths("o")[0];
        let mut link = link(path);
        let before = report(path, link.now_ns).rate_bytes_per_s;
        link.now_ns += silence_ns;
        link.serve(10 * DEPTH, 100 * EACH_NS);
        let after = report(path, link.now_ns);
        assert!(after.measured, "{silence_ns} ns");
        let rate = after.rate_bytes_per_s;
        assert!(rate < before / 20, "{silence_ns} ns: {rate}, {before} before");
    }
}

/// Who was silent for long and says a word now may say no other one.
#[test]
fn a_path_of_which_one_command_ends_after_a_long_silence_is_measured_anew() {
    const LONG_NS: u64 = 60 * MS;
    let path = &paths("o")[0];
    let mut link = link(path);
    link.now_ns += LONG_NS;
    link.serve(1, 0);
    assert!(report(path, link.now_ns).measured, "the next one tells");
    link.serve(1, LONG_NS / 4);
    assert!(!report(path, link.now_ns).measured);
}
