//! Where our default and the kernel's behaviour differ, side by side.

use crate::rig::{MS, Rig, Setup, writes};
use crate::setup;
use anabranch_policy::Policy;
use anabranch_proto::machine::WorkerId;

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
