//! Two to twelve requests, where each of them makes a difference.

use super::rig::*;
use anabranch_lab::scenario::{
    Alteration, Brownout, Change, Job, Mix, Path, PerOp, Scenario, Sizes, Target,
};
use anabranch_policy::Policy;
use std::time::Duration;

const MIB: u64 = 8 << 20;

fn link(name: &str, mib_s: u64, delay_us: u64) -> Path {
    path(name, mib_s * MIB, Duration::from_micros(delay_us))
}

fn on(paths: &[Path], job: Job, read_us: u64, write_us: u64) -> Scenario {
    let mut scenario = scenario(paths.to_vec(), vec![job]);
    scenario.target =
        Target { read_ns: read_us * 1000, write_ns: write_us * 1000, ..Target::default() };
    scenario.run.window_ns = 2000 * MS;
    scenario
}

fn is_as_good_as_queue_depth(scenario: &Scenario) {
    let [ours, theirs] =
        [Policy::FinishTime, Policy::QueueDepth].map(|policy| run_policy(scenario, policy).bytes);
    println!("{ours} bytes, {theirs} with queue-depth");
    assert!(ours * 100 >= theirs * 98, "{ours} against {theirs}");
}

#[test]
fn what_a_near_path_cannot_hold_goes_on_at_once() {
    // Half of them fit on the near path. Told by waits, all went there in turn, then none.
    let paths = &[link("near", 145, 20), link("far", 145, 200)];
    is_as_good_as_queue_depth(&on(paths, reads(4096, 3, 4), 100, 20));
    let paths = &[link("near", 1459, 20), link("far", 1459, 200)];
    is_as_good_as_queue_depth(&on(paths, reads(65_536, 4, 1), 10, 10));
}

#[test]
fn what_two_workers_have_too_much_goes_on_too() {
    // They take turns at the port: who found three commands there is not the fourth to be served.
    let paths = &[link("far", 37, 200), link("near", 60, 20)];
    let mut scenario = on(paths, reads(8192, 1, 4), 10, 60);
    (scenario.hosts.workers, scenario.hosts.nodes) = (2, vec![0; 2]);
    is_as_good_as_queue_depth(&scenario);
}

#[test]
fn a_path_that_is_just_full_is_full() {
    // Three of four commands are what it holds, to a hundredth; the fourth is worth an eighth.
    let paths = &[link("near", 129, 50), link("beside", 32, 50)];
    let job = Job { mix: Mix { read: 0, write: 100, trim: 0 }, ..reads(4096, 4, 1) };
    let done = |paths| run_policy(&on(paths, job.clone(), 30, 10), Policy::FinishTime).bytes;
    let (ours, alone) = (done(&paths[..]), done(&paths[..1]));
    println!("{ours} bytes, {alone} on the near path alone");
    assert!(ours * 100 >= alone * 112, "{ours} against {alone}");
}

#[test]
fn a_near_path_that_is_idle_is_not_passed_over() {
    for far_us in [2700, 3000] {
        let paths = &[link("near", 21, 20), link("far", 110, far_us)];
        is_as_good_as_queue_depth(&on(paths, reads(16_384, 2, 2), 100, 16));
    }
}

#[test]
fn a_near_path_with_brownouts_is_the_nearest_all_the_same() {
    // 0.2 ms, with one of twenty commands that takes 9 ms more: 0.65 ms on average, and 0.95 ms on
    // the other path. Each of those commands kept the next ones away for long.
    let mut near = link("near", 400, 20);
    near.brownout = Some(Brownout { percent: 5, delay: Duration::from_millis(9) });
    let paths = [near, link("far", 100, 600)];
    for requests in [2, 4] {
        let mix = Mix { read: 0, write: 100, trim: 0 };
        let job = Job { mix, ..reads(32_768, 1, requests) };
        let done = |paths| run_policy(&on(paths, job.clone(), 30, 30), Policy::FinishTime).bytes;
        let (ours, alone) = (done(&paths[..]), done(&paths[..1]));
        println!("{requests} requests: {ours} bytes, {alone} on the near path alone");
        assert!(ours * 100 >= alone * 80, "{ours} against {alone}");
    }
}

#[test]
fn a_near_path_is_the_nearest_again_when_brownouts_end() {
    // One of twenty takes 30 ms more, 1.5 ms on average: so long the other path is better.
    let mut near = link("near", 400, 20);
    near.brownout = Some(Brownout { percent: 5, delay: Duration::from_millis(30) });
    let paths = [near, link("far", 100, 600)];
    let mut scenario = on(&paths, reads(32_768, 1, 2), 30, 30);
    (scenario.run.ramp_ns, scenario.run.window_ns) = (3000 * MS, 6000 * MS);
    scenario.changes = vec![Change { at_ns: MS, path: 0, what: Alteration::Brownout(None) }];
    let [ours, alone] =
        [Policy::FinishTime, Policy::Numa].map(|policy| run_policy(&scenario, policy).bytes);
    println!("{ours} bytes, {alone} on the near path alone");
    assert!(ours * 100 >= alone * 90, "soon again: {ours} against {alone}");
}

#[test]
fn writes_are_tried_where_only_reads_go() {
    // Writes take less there than anywhere else, reads more than writes.
    let paths = &[link("slower", 458, 50), link("faster", 916, 20)];
    let sizes = PerOp::all(Sizes::fixed(16_384));
    let mix = Mix { read: 50, write: 50, trim: 0 };
    let job = Job { mix, sizes, ..reads(16_384, 2, 1) };
    let done = |paths| run_policy(&on(paths, job.clone(), 100, 10), Policy::FinishTime).bytes;
    let (ours, alone) = (done(&paths[..]), done(&paths[1..]));
    println!("{ours} bytes, {alone} on the faster path alone");
    assert!(ours * 100 >= alone * 98, "{ours} against {alone}");
}
