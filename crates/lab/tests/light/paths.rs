//! Paths that fail, fall silent, slow down and return.

use super::rig::*;
use anabranch_lab::light::{Books, Cell, adaptations, jain_ppm};
use anabranch_lab::scenario::{Alteration, AnaState, Hosts, Job, Mix, PathState, Scenario};
use anabranch_policy::Policy;
use anabranch_target::link::Shape;
use std::time::Duration;

fn two() -> Scenario {
    let delay = Duration::from_micros(50);
    let paths = vec![path("a", 1000 * MBIT, delay), path("b", 1000 * MBIT, delay)];
    scenario(paths, vec![reads(16_384, 16, 4)])
}

fn state(at_ms: u64, path: usize, state: PathState) -> anabranch_lab::scenario::Change {
    change(at_ms, path, Alteration::State(state))
}

#[test]
fn a_cut_path_carries_nothing_and_its_commands_go_elsewhere() {
    let changes = vec![state(200, 0, PathState::Cut), state(600, 0, PathState::Up)];
    let scenario = Scenario { changes, ..two() };
    for policy in Policy::ALL {
        let figures = run_policy(&scenario, policy);
        // Cut from 300 to 700 ms of the run: windows 6 to 13.
        for window in 6..14 {
            let [a, b] = *figures.series.bytes_of(window) else { panic!("two paths") };
            assert_eq!(a, 0, "{policy}, window {window}");
            assert!(b > 5_000_000, "{policy}, window {window}: {b}");
            assert_eq!(figures.series.in_flight_milli[window * 2], 0, "{policy}");
        }
        assert!(figures.series.bytes_of(16)[0] > 0 || policy == Policy::Numa, "{policy}");
        let lost = figures.books.commands_lost;
        // `latency` hunts: at that moment it may be using the other one alone.
        let least = u64::from(policy != Policy::Latency);
        assert!((least..=64).contains(&lost), "{policy}: {lost} lost");
        // Nothing takes longer than a full queue on one path.
        assert!(figures.latency.max() < 30 * MS, "{policy}: {} ns", figures.latency.max());
    }
}

/// What the target has taken in ends well. What waits for a tag goes elsewhere, and so does what
/// arrives later.
#[test]
fn an_inaccessible_path_begins_nothing_any_more() {
    let delay = Duration::from_micros(50);
    let mix = |read| Mix { read, write: 100 - read, trim: 0 };
    for (read, most) in [(0, 1), (100, 16)] {
        let job = Job { mix: mix(read), ..reads(65_536, 256, 1) };
        let paths = vec![path("a", 40 * MBIT, delay), path("b", 1000 * MBIT, delay)];
        let changes = [(200, AnaState::Inaccessible), (700, AnaState::Optimized)];
        let changes = changes.map(|(at_ms, ana)| change(at_ms, 0, Alteration::Ana(ana))).to_vec();
        let mut scenario = Scenario { changes, ..scenario(paths, vec![job]) };
        scenario.hosts = Hosts { queue_depth: 16, ..Hosts::default() };
        for policy in [Policy::RoundRobin, Policy::QueueDepth, Policy::FinishTime] {
            let figures = run_policy(&scenario, policy);
            let carried = |windows: std::ops::Range<usize>| {
                windows.map(|window| figures.series.bytes_of(window)[0] / 65_536).sum::<u64>()
            };
            let (before, after, again) = (carried(0..6), carried(6..16), carried(16..20));
            assert!(before > 5 && again > 2, "{policy}: {before} before, {again} when it is back");
            assert!(after <= most, "{policy}, {read} % reads: {after} commands");
            assert!(figures.books.commands_lost > 0, "{policy}, {read} % reads");
        }
    }
}

#[test]
fn without_any_path_requests_wait_for_one() {
    let both = |at, to| [state(at, 0, to), state(at, 1, to)];
    let changes = [both(200, PathState::Cut), both(500, PathState::Up)].concat();
    let figures = run_policy(&Scenario { changes, ..two() }, Policy::RoundRobin);
    assert!(figures.series.requests[6..12].iter().all(|&requests| requests == 0));
    let longest = figures.latency.max();
    assert!((300 * MS..330 * MS).contains(&longest), "longest {longest} ns");
    assert_eq!(figures.books.requests_open, 64);
}

#[test]
fn silence_holds_what_is_on_the_path_until_it_is_noticed() {
    let mut scenario = Scenario { changes: vec![state(200, 0, PathState::Silent)], ..two() };
    scenario.hosts = Hosts { detect_ns: 300 * MS, ..Hosts::default() };
    for policy in [Policy::QueueDepth, Policy::RoundRobin, Policy::ServiceTime] {
        let figures = run_policy(&scenario, policy);
        assert!(figures.books.commands_lost > 0, "{policy}");
        let longest = figures.latency.max();
        assert!((300 * MS..330 * MS).contains(&longest), "{policy}: longest {longest} ns");
    }
    // Round-robin gives every second command to the silent path, so everything ends up there.
    let figures = run_policy(&scenario, Policy::RoundRobin);
    assert!(figures.series.requests[7..11].iter().all(|&requests| requests == 0));
}

#[test]
fn silence_that_ends_before_it_is_noticed_loses_nothing() {
    let changes = vec![state(200, 0, PathState::Silent), state(300, 0, PathState::Up)];
    for policy in Policy::ALL.into_iter().filter(|policy| *policy != Policy::FinishTime) {
        let figures = run_policy(&Scenario { changes: changes.clone(), ..two() }, policy);
        assert_eq!(figures.books.commands_lost, 0, "{policy}");
        let longest = figures.latency.max();
        // `latency` hunts: it may give the path something a little later only.
        assert!((95 * MS..130 * MS).contains(&longest), "{policy}: longest {longest} ns");
    }
}

/// What never got a tag was never sent: it leaves a silent path also where nothing is sent twice.
#[test]
fn finish_time_without_probes_takes_unsent_commands_off_a_silent_path() {
    let mut scenario = Scenario { changes: vec![state(200, 0, PathState::Silent)], ..two() };
    scenario.hosts = Hosts { queue_depth: 4, detect_ns: 5000 * MS, ..Hosts::default() };
    let mut variant = plain(Policy::FinishTime, 2);
    variant.parameters.finish_time.probes = false;
    let Books { commands_lost, requests_open, .. } = run_variant(&scenario, &variant, 1).books;
    assert!(commands_lost >= 16, "{commands_lost} of 64 left the path");
    assert_eq!(requests_open, 64, "and are open by another");
}

#[test]
fn finish_time_sends_reads_elsewhere_long_before_a_silence_is_noticed() {
    let mut scenario = Scenario { changes: vec![state(200, 0, PathState::Silent)], ..two() };
    scenario.hosts = Hosts { detect_ns: 500 * MS, ..Hosts::default() };
    let mut variant = plain(Policy::FinishTime, 2);
    let figures = run_variant(&scenario, &variant, 1);
    let longest = figures.latency.max();
    // 50 ms of silence, or eight times what was expected, and a full queue on one path.
    assert!((50 * MS..120 * MS).contains(&longest), "longest {longest} ns");
    // All that were stuck; each of them once.
    assert!((16..=48).contains(&figures.books.commands_lost), "{:?}", figures.books);
    // Nothing is sent twice where nothing may be.
    variant.parameters.finish_time.probes = false;
    let figures = run_variant(&scenario, &variant, 1);
    assert!(figures.latency.max() > 500 * MS, "{:?}", figures.latency);
    // The path is back before anybody has noticed: late answers find nobody.
    scenario.changes.push(state(300, 0, PathState::Up));
    variant.parameters.finish_time.probes = true;
    let figures = run_variant(&scenario, &variant, 1);
    assert!(figures.latency.max() < 120 * MS, "{:?}", figures.latency);
    assert!(figures.series.bytes_of(16)[0] > 0, "it is used again");
}

#[test]
fn writes_are_not_sent_twice() {
    let writes = Job { mix: Mix { read: 0, write: 100, trim: 0 }, ..reads(16_384, 16, 4) };
    let mut scenario = Scenario { changes: vec![state(200, 0, PathState::Silent)], ..two() };
    scenario.jobs = vec![writes];
    scenario.hosts = Hosts { detect_ns: 300 * MS, ..Hosts::default() };
    let figures = run_policy(&scenario, Policy::FinishTime);
    let longest = figures.latency.max();
    assert!((300 * MS..330 * MS).contains(&longest), "longest {longest} ns");
}

#[test]
fn the_time_to_adapt_is_that_of_the_last_window_below_85_percent() {
    let slower = Shape { rate_out: Some(100 * MBIT), ..two().paths[0].shape.clone() };
    let changes = vec![
        change(200, 0, Alteration::Shape(slower)),
        change(600, 0, Alteration::Shape(two().paths[0].shape.clone())),
    ];
    let scenario = Scenario { changes, ..two() };
    let adapt = |policy| {
        let variant = plain(policy, 2);
        let figures = run_variant(&scenario, &variant, 1);
        adaptations(Cell { scenario: &scenario, variant: &variant, seed: 1 }, &figures)
    };
    let found = adapt(Policy::QueueDepth);
    assert_eq!(found.iter().map(|one| one.at_ns).collect::<Vec<_>>(), [300 * MS, 700 * MS]);
    assert!(found.iter().all(|one| one.took_ns.is_some_and(|ns| ns <= 50 * MS)), "{found:?}");
    assert!(found[0].limit_bytes_per_second * 18 < found[1].limit_bytes_per_second * 10);
    // Round-robin never gets there while one path is slow, and at once when it is not.
    let found = adapt(Policy::RoundRobin);
    assert_eq!((found[0].took_ns, found[1].took_ns.is_some()), (None, true), "{found:?}");
}

#[test]
fn no_time_to_adapt_is_told_where_windows_have_too_few_requests_to_tell() {
    let told = |job: Job| {
        let delay = Duration::from_micros(50);
        let paths = vec![path("a", 1000 * MBIT, delay), path("b", 1000 * MBIT, delay)];
        let farther = Shape { delay: delay * 2, ..paths[0].shape.clone() };
        let changes = vec![change(200, 0, Alteration::Shape(farther))];
        let scenario = Scenario { changes, ..scenario(paths, vec![job]) };
        let variant = plain(Policy::RoundRobin, 2);
        let figures = run_variant(&scenario, &variant, 1);
        adaptations(Cell { scenario: &scenario, variant: &variant, seed: 1 }, &figures).len()
    };
    let [few, enough] = [2_000, 20_000].map(|iops| told(arrivals(iops)));
    assert_eq!((few, enough), (0, 1), "they arrive by chance");
    // Of 4 MiB the links carry 59 in a second, of 64 KiB thousands.
    assert_eq!(told(reads(4 << 20, 4, 1)), 0);
    assert_eq!(told(reads(65_536, 16, 4)), 1);
}

#[test]
fn a_slower_link_slows_down_what_waits_for_it() {
    // One path, 64 requests of 16 KiB: 8 ms of work at 1 Gbit/s, 84 ms at 100 Mbit/s.
    let only = path("only", 1000 * MBIT, Duration::from_micros(50));
    let mut scenario = scenario(vec![only], vec![reads(16_384, 16, 4)]);
    let slower = Shape { rate_out: Some(100 * MBIT), ..scenario.paths[0].shape.clone() };
    scenario.changes = vec![change(200, 0, Alteration::Shape(slower))];
    let figures = run_policy(&scenario, Policy::QueueDepth);
    let after: u64 = figures.series.bytes[6..].iter().sum();
    // 0.7 s of 100 Mbit/s, the one under way when it slowed down counted in.
    assert!(after <= 100 * MBIT / 8 * 7 / 10 + 16_384, "{after} bytes");
    assert!(after >= 100 * MBIT / 8 * 69 / 100, "{after} bytes");
}

#[test]
fn hosts_share_evenly() {
    let mut scenario = two();
    scenario.hosts.count = 20;
    for policy in Policy::ALL {
        let figures = run_policy(&scenario, policy);
        assert_eq!(figures.hosts.len(), 20);
        let jain = jain_ppm(&figures.hosts);
        assert!(jain > 990_000, "{policy}: {jain}");
    }
}
