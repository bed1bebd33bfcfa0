//! Where our default and the kernel's behaviour differ, side by side.

use crate::rig::{MS, Rig, Setup, reads, writes};
use crate::setup;
use anabranch_host::verb::Verb;
use anabranch_policy::Policy;
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::ana::AnaState;

fn queue_depth(kernel_exact: bool) -> Setup {
    let mut setup = Setup::new(2, 1);
    setup.host.default_policy = Policy::QueueDepth;
    setup.host.kernel_exact = kernel_exact;
    setup
}

fn one_by_one(rig: &mut Rig, count: u64) {
    (0..count).for_each(|_| drop(rig.io(writes(1, 1))));
}

#[test]
fn m7_queue_depth_at_depth_1_stays_on_the_first_path_kernel_exact() {
    let mut rig = queue_depth(true).connect();
    one_by_one(&mut rig, 20);
    assert_eq!((rig.sent(0), rig.sent(1)), (20, 0));
    rig.finish();
}

#[test]
fn m7_twin_by_default_ties_rotate() {
    let mut rig = queue_depth(false).connect();
    one_by_one(&mut rig, 20);
    assert_eq!((rig.sent(0), rig.sent(1)), (10, 10));
    rig.finish();
}

/// What `queue_depth` shows with 40 requests on one path whose queue holds 15.
fn shown_depth(kernel_exact: bool) -> String {
    let mut setup = queue_depth(kernel_exact);
    setup.ports = 1;
    setup.options.queue_size = 16;
    let mut rig = setup.connect();
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.slow_stream(stream, 50 * MS);
    let names = rig.submit(writes(40, 1));
    rig.run(10 * MS);
    let shown = rig.get("nvme0c0n1", "queue_depth");
    rig.succeed(&names);
    assert_eq!(rig.get("nvme0c0n1", "queue_depth"), "0");
    rig.finish();
    shown
}

#[test]
fn queue_depth_counts_what_has_started_kernel_exact() {
    assert_eq!(shown_depth(true), "15");
}

#[test]
fn queue_depth_counts_what_has_chosen_the_path_by_default() {
    assert_eq!(shown_depth(false), "40");
}

/// What is in flight on two paths that do not answer, after one request and then three at once.
fn spread(policy: Policy, kernel_exact: bool) -> [String; 2] {
    let mut setup = queue_depth(kernel_exact);
    setup.host.default_policy = policy;
    let mut rig = setup.connect();
    for port in 0..2 {
        let stream = rig.world.stream(WorkerId(1), &setup::port(port)).expect("open");
        rig.world.slow_stream(stream, 50 * MS);
    }
    let mut names = rig.submit(writes(1, 1));
    rig.run(MS);
    names.extend(rig.submit(writes(3, 2)));
    rig.run(10 * MS);
    let in_flight = |rig: &mut Rig, path: &str| {
        let stat = rig.get(path, "stat");
        stat.split_whitespace().nth(8).map(str::to_owned).unwrap_or_default()
    };
    let shown = ["nvme0c0n1", "nvme0c1n1"].map(|path| in_flight(&mut rig, path));
    rig.succeed(&names);
    rig.finish();
    shown
}

#[test]
fn what_device_mapper_counts_where_it_chooses_is_counted_there_kernel_exact_or_not() {
    for policy in [Policy::QueueLength, Policy::HistoricalServiceTime] {
        for kernel_exact in [false, true] {
            let shown = spread(policy, kernel_exact);
            assert_eq!(shown, ["2", "2"], "{policy}, kernel_exact {kernel_exact}");
        }
    }
    // Linux counts what has its tag, which none of the three has before all have chosen.
    assert_eq!(spread(Policy::QueueDepth, true), ["1", "3"]);
}

#[test]
fn m6_two_namespaces_share_their_controllers_counter() {
    for kernel_exact in [false, true] {
        let mut setup = queue_depth(kernel_exact);
        setup.namespaces().push(setup::namespace(2, 512));
        let mut rig = setup.connect();
        for port in 0..2 {
            let stream = rig.world.stream(WorkerId(1), &setup::port(port)).expect("open");
            rig.world.slow_stream(stream, 50 * MS);
        }
        let mut names = rig.submit_to(1, "nvme0n1", writes(6, 1));
        names.extend(rig.submit_to(1, "nvme0n2", writes(4, 1)));
        rig.run(10 * MS);
        let shown = ["nvme0c0n1", "nvme0c0n2", "nvme0c1n1", "nvme0c1n2"]
            .map(|path| rig.get(path, "queue_depth"));
        // A burst is spread by what is charged when it chooses: in the kernel only what has
        // started, so the six of the first device all took the first path.
        let expected = if kernel_exact { ["6", "6", "4", "4"] } else { ["5", "5", "5", "5"] };
        assert_eq!(shown, expected, "kernel_exact {kernel_exact}");
        rig.set("nvme-subsys0", "iopolicy", "numa");
        rig.succeed(&names);
        rig.set("nvme-subsys0", "iopolicy", "queue-depth");
        assert_eq!(rig.get("nvme0c0n1", "queue_depth"), "0", "although the policy was switched");
        rig.finish();
    }
}

/// Which of up to four ports the next read goes to.
fn next(rig: &mut Rig) -> u16 {
    let ports = [0, 1, 2, 3];
    let before = ports.map(|port| rig.sent(port));
    rig.io(reads(1));
    ports.into_iter().find(|port| rig.sent(*port) > before[usize::from(*port)]).expect("a path")
}

/// Where reads go one by one under `round-robin` over four paths, after each of these changes of
/// ANA states.
fn round_robin(kernel_exact: bool, changes: &[(u16, AnaState)]) -> Vec<u16> {
    let mut setup = Setup::new(4, 1);
    setup.host.default_policy = Policy::QueueDepth;
    setup.host.kernel_exact = kernel_exact;
    let mut rig = setup.connect();
    rig.set("nvme-subsys0", "iopolicy", "round-robin");
    rig.run(MS);
    let mut went = vec![next(&mut rig), next(&mut rig)];
    for (port, state) in changes {
        rig.ana(*port, *state);
        rig.run(10 * MS);
        went.push(next(&mut rig));
    }
    rig.finish();
    went
}

#[test]
fn m4_round_robin_goes_on_where_it_was_when_a_path_is_lost_to_its_state() {
    use AnaState::{Inaccessible, NonOptimized};
    // One that is used later, the one that was used last, and one that cannot be used becomes one
    // that is used last of all.
    let changes = [(3, Inaccessible), (2, Inaccessible), (3, NonOptimized)];
    for kernel_exact in [true, false] {
        let went = round_robin(kernel_exact, &changes);
        assert_eq!(went, [0, 1, 2, 0, 1], "kernel_exact {kernel_exact}");
    }
    let changes = [(1, Inaccessible), (2, NonOptimized)];
    for kernel_exact in [true, false] {
        let went = round_robin(kernel_exact, &changes);
        assert_eq!(went, [0, 1, 2, 3], "kernel_exact {kernel_exact}");
    }
}

#[test]
fn m4_round_robin_goes_on_behind_the_first_path_when_one_goes_live_kernel_exact() {
    use AnaState::{Inaccessible, NonOptimized, Optimized};
    let changes = [(3, Inaccessible), (0, NonOptimized), (3, Optimized), (0, Optimized)];
    assert_eq!(round_robin(true, &changes), [0, 1, 2, 1, 2, 1]);
}

#[test]
fn m4_twin_by_default_round_robin_goes_on_behind_the_path_used_last() {
    use AnaState::{Inaccessible, NonOptimized, Optimized};
    let changes = [(3, Inaccessible), (0, NonOptimized), (3, Optimized), (0, Optimized)];
    assert_eq!(round_robin(false, &changes), [0, 1, 2, 1, 2, 3]);
}

/// A reset forgets it, also when its state has kept commands away from it for as long.
#[test]
fn m4_round_robin_starts_over_when_the_path_used_last_is_reset_kernel_exact() {
    let mut setup = Setup::new(4, 1);
    setup.host.default_policy = Policy::RoundRobin;
    setup.host.kernel_exact = true;
    let mut rig = setup.connect();
    while next(&mut rig) != 1 {}
    rig.ana(1, AnaState::Inaccessible);
    rig.run(10 * MS);
    rig.done(Verb::Reset { controller: "nvme1".into() });
    rig.wait_live(1);
    rig.run(10 * MS);
    assert_eq!(next(&mut rig), 0);
    rig.finish();
}

/// It was in force between two commands, and nothing was chosen under it.
#[test]
fn latency_starts_over_after_another_policy_that_chose_nothing_kernel_exact() {
    let mut setup = queue_depth(true);
    setup.host.default_policy = Policy::Latency;
    let mut rig = setup.connect();
    let second = (0..200).find(|_| next(&mut rig) == 1);
    assert!(second.is_some(), "both are used");
    rig.set("nvme-subsys0", "iopolicy", "numa");
    rig.set("nvme-subsys0", "iopolicy", "latency");
    rig.run(MS);
    assert_eq!(next(&mut rig), 0);
    rig.finish();
}
