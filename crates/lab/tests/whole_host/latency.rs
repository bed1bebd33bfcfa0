//! `latency` in a whole host: what completions teach, and when it is forgotten.

use crate::rig::{MS, Rig, SECOND, Setup, reads, writes};
use crate::script::Op;
use crate::setup;
use anabranch_host::explain::ExplainReport;
use anabranch_host::verb::{Reply, Verb};
use anabranch_policy::{Policy, Reason, SizeClass};
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::Status;
use anabranch_proto::nvme::opcode::io;
use std::time::Duration;

/// Two ports; what the second sends and gets takes longer.
fn latency(kernel_exact: bool, workers: u16, slower: Duration) -> Rig {
    let mut setup = Setup::new(2, workers);
    setup.host.default_policy = Policy::Latency;
    setup.host.kernel_exact = kernel_exact;
    let mut rig = setup.connect();
    for worker in 1..=workers {
        let stream = rig.world.stream(WorkerId(worker), &setup::port(1)).expect("open");
        rig.world.slow_stream(stream, slower);
    }
    rig
}

fn one_by_one(rig: &mut Rig, op: Op, count: usize) {
    (0..count).for_each(|_| drop(rig.io([op])));
}

fn explain(rig: &mut Rig) -> ExplainReport {
    match rig.ask(Verb::Explain { device: "nvme0n1".into() }) {
        Reply::Explain(report) => *report,
        other => panic!("{other:?}"),
    }
}

/// Choices for a reason, by path.
fn chosen(rig: &mut Rig, reason: Reason) -> [u64; 2] {
    let report = explain(rig);
    [0, 1].map(|at| {
        SizeClass::all().map(|size| report.paths[at].choices.of(size, reason)).sum::<u64>()
    })
}

/// How often each path was used while `io` ran.
fn shares(rig: &mut Rig, mut io: impl FnMut(&mut Rig)) -> [usize; 2] {
    let before = [rig.sent(0), rig.sent(1)];
    io(rig);
    [rig.sent(0) - before[0], rig.sent(1) - before[1]]
}

const READ: Op = Op::Read { lba: 0, blocks: 1 };
const WRITE: Op = Op::Write { lba: 0, blocks: 1, fill: 1 };

#[test]
fn l8_a_slow_path_is_tried_once_in_a_while() {
    for kernel_exact in [false, true] {
        let mut rig = latency(kernel_exact, 1, 20 * MS);
        // Each path is measured once (kernel-exact: the first until it has a weight).
        one_by_one(&mut rig, READ, 2);
        let scale = if kernel_exact { 64 } else { 128 };
        let used = shares(&mut rig, |rig| one_by_one(rig, READ, 6 * scale));
        let unmeasured = chosen(&mut rig, Reason::Unmeasured);
        assert!(unmeasured.iter().sum::<u64>() >= 1, "{unmeasured:?}");
        // The second path is slower by far: its weight is 1.
        assert!(used[0] > 40 * used[1], "kernel_exact {kernel_exact}: {used:?}");
        assert!(used[1] >= 3, "it is tried all the same: {used:?}");
        rig.finish();
    }
}

#[test]
fn l6_reads_teach_nothing_about_writes() {
    let mut rig = latency(false, 1, 20 * MS);
    one_by_one(&mut rig, READ, 50);
    let before = chosen(&mut rig, Reason::Unmeasured);
    rig.io([WRITE, WRITE]);
    let after = chosen(&mut rig, Reason::Unmeasured);
    assert_eq!(after.iter().sum::<u64>(), before.iter().sum::<u64>() + 2, "both paths are new");
    rig.finish();
}

#[test]
fn l7_workers_learn_by_themselves() {
    let mut rig = latency(false, 2, 20 * MS);
    one_by_one(&mut rig, READ, 50);
    let before: u64 = chosen(&mut rig, Reason::Unmeasured).iter().sum();
    let names = rig.submit_to(2, "nvme0n1", [READ, READ]);
    rig.succeed(&names);
    assert_eq!(chosen(&mut rig, Reason::Unmeasured).iter().sum::<u64>(), before + 2);
    rig.finish();
}

#[test]
fn l7_a_sample_counts_where_the_command_was_submitted_although_another_worker_carried_it() {
    let mut setup = Setup::new(2, 2);
    setup.host.default_policy = Policy::Latency;
    setup.host.shared_queue = true;
    let mut rig = setup.connect();
    let read = |rig: &mut Rig, worker: u16| {
        let before: u64 = chosen(rig, Reason::Unmeasured).iter().sum();
        let names = rig.submit_to(worker, "nvme0n1", [READ, READ]);
        rig.succeed(&names);
        chosen(rig, Reason::Unmeasured).iter().sum::<u64>() - before
    };
    assert_eq!([read(&mut rig, 2), read(&mut rig, 2)], [2, 0], "the second worker has weights");
    assert_eq!([read(&mut rig, 1), read(&mut rig, 1)], [2, 0], "the carrier has learned nothing");
    rig.finish();
}

#[test]
fn l9_a_device_with_one_path_never_has_weights() {
    let mut setup = Setup::new(1, 1);
    setup.host.default_policy = Policy::Latency;
    let mut rig = setup.connect();
    one_by_one(&mut rig, READ, 20);
    let report = explain(&mut rig);
    let unmeasured = report.paths[0].choices.of(SizeClass::of(512), Reason::Unmeasured);
    assert_eq!((unmeasured, report.paths[0].choices.total()), (20, 20));
    rig.finish();
}

/// Runs reads until both paths have weights, then `event`; how many commands go out after it to
/// paths that nothing is known about.
fn unmeasured_after(kernel_exact: bool, event: impl FnOnce(&mut Rig)) -> u64 {
    let mut rig = latency(kernel_exact, 1, 5 * MS);
    one_by_one(&mut rig, READ, 200);
    event(&mut rig);
    rig.run(MS);
    let before: u64 = chosen(&mut rig, Reason::Unmeasured).iter().sum();
    one_by_one(&mut rig, READ, 10);
    let after: u64 = chosen(&mut rig, Reason::Unmeasured).iter().sum();
    rig.finish();
    after - before
}

fn switch_away_and_back(rig: &mut Rig) {
    rig.set("nvme-subsys0", "iopolicy", "numa");
    rig.set("nvme-subsys0", "iopolicy", "latency");
}

/// One write meets a path error and goes to the other path; reads are what was measured.
fn one_failover(rig: &mut Rig) {
    let mut left = 1;
    rig.wire().rule(move |pdu| {
        if pdu.answers(io::WRITE) && left > 0 {
            left -= 1;
            pdu.answer(Status::new(3, 0x70));
        }
    });
    rig.io([WRITE]);
    assert!(rig.path(0).failovers + rig.path(1).failovers > 0);
}

#[test]
fn l10_a_policy_switch_forgets_what_was_measured() {
    for kernel_exact in [false, true] {
        assert!(unmeasured_after(kernel_exact, switch_away_and_back) > 0, "{kernel_exact}");
        assert_eq!(unmeasured_after(kernel_exact, |_| {}), 0, "{kernel_exact}");
    }
}

#[test]
fn l10_a_failover_forgets_what_was_measured_kernel_exact() {
    let mut rig = latency(true, 1, 5 * MS);
    one_by_one(&mut rig, READ, 200);
    let stat = |rig: &mut Rig| chosen(rig, Reason::Unmeasured).iter().sum::<u64>();
    let before = stat(&mut rig);
    one_failover(&mut rig);
    // The write was the first of its class: itself and its second attempt are unmeasured.
    let between = stat(&mut rig);
    assert!(between > before);
    one_by_one(&mut rig, READ, 200);
    assert!(stat(&mut rig) > between, "the reads have to measure that path again");
    rig.finish();
}

#[test]
fn l10_twin_by_default_a_failover_forgets_nothing() {
    assert_eq!(unmeasured_after(false, one_failover), 0);
}

#[test]
fn l10_a_path_that_came_back_under_the_same_controller_keeps_what_was_measured() {
    let reset = |rig: &mut Rig| {
        rig.ask(Verb::Reset { controller: "nvme1".into() });
        rig.wait_live(1);
    };
    assert_eq!(unmeasured_after(false, reset), 0);
}

#[test]
fn l10_a_namespace_that_left_and_came_back_is_measured_anew() {
    let again = |rig: &mut Rig| {
        rig.set("nvme0n1", "delayed_removal_secs", "10");
        let subsystem = setup::subsystem();
        rig.target(anabranch_target::TargetVerb::NamespaceRemove { subsystem, nsid: 1 });
        rig.run(SECOND);
        let (subsystem, config) = (setup::subsystem(), setup::namespace(1, 512));
        rig.target(anabranch_target::TargetVerb::NamespaceAdd { subsystem, config });
        rig.run(SECOND);
    };
    assert!(unmeasured_after(false, again) > 0);
}

#[test]
fn l10_a_capacity_that_changed_forgets_what_was_measured() {
    let grow = |rig: &mut Rig| {
        let (subsystem, bytes) = (setup::subsystem(), 2 << 20);
        rig.target(anabranch_target::TargetVerb::NamespaceResize { subsystem, nsid: 1, bytes });
        rig.run(SECOND);
    };
    assert!(unmeasured_after(false, grow) > 0);
}

#[test]
fn l10_samples_of_the_time_before_a_switch_are_not_taken() {
    let mut rig = latency(false, 1, 50 * MS);
    let names = rig.submit(reads(8));
    rig.run(MS);
    switch_away_and_back(&mut rig);
    rig.succeed(&names);
    let before: u64 = chosen(&mut rig, Reason::Unmeasured).iter().sum();
    one_by_one(&mut rig, READ, 1);
    let after: u64 = chosen(&mut rig, Reason::Unmeasured).iter().sum();
    assert_eq!(after, before + 1, "they ended under another epoch");
    rig.finish();
}

#[test]
fn l2_weights_are_there_right_after_the_completion_that_closed_the_batch() {
    let mut rig = latency(false, 1, Duration::ZERO);
    rig.io(writes(2, 1));
    let unmeasured = chosen(&mut rig, Reason::Unmeasured);
    rig.io(writes(20, 1));
    assert_eq!(chosen(&mut rig, Reason::Unmeasured), unmeasured, "no more bootstrap");
    rig.finish();
}
