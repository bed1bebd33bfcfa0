//! The I/O policy changes while I/O runs.

use crate::rig::{MS, Rig, Setup, reads, writes};
use anabranch_policy::Policy;
use anabranch_proto::nvme::opcode::io;

/// M9, once in either mode.
fn switch_under_load(kernel_exact: bool) {
    let mut setup = Setup::new(3, 2);
    setup.host.kernel_exact = kernel_exact;
    setup.host.default_policy = Policy::QueueDepth;
    setup.host.max_requests = 512;
    setup.options.queue_size = 16;
    let mut rig = setup.connect();
    let mut names = Vec::new();
    for round in 0..30 {
        let policy = Policy::ALL[round % Policy::ALL.len()];
        for worker in 1..=2 {
            names.extend(rig.submit_to(worker, "nvme0n1", writes(60, round as u8)));
        }
        rig.set("nvme-subsys0", "iopolicy", &policy.to_string());
        rig.run(MS / 20);
    }
    rig.succeed(&names);
    let sent = rig.seen(|pdu| pdu.is_io());
    assert_eq!(sent.len(), names.len(), "every write went out once");
    let switches =
        rig.events().iter().filter(|(_, text)| text.contains("iopolicy changed")).count();
    assert!(switches >= 25, "the policy really changed: {switches} times");
    let most = (0..3).map(|port| rig.sent(port)).max();
    assert!(most < Some(names.len()), "more than one path was used");
    rig.finish();
}

#[test]
fn m9_a_policy_switch_under_load_loses_nothing() {
    switch_under_load(false);
}

#[test]
fn m9_a_policy_switch_under_load_loses_nothing_kernel_exact() {
    switch_under_load(true);
}

#[test]
fn m9_a_switch_drops_what_the_old_policy_had_cached() {
    let mut setup = Setup::new(2, 1);
    setup.host.default_policy = Policy::Numa;
    let mut rig = setup.connect();
    rig.io(writes(10, 1));
    assert_eq!((rig.sent(0), rig.sent(1)), (10, 0), "numa stays on the first of equal paths");
    rig.set("nvme-subsys0", "iopolicy", "round-robin");
    rig.run(MS);
    rig.io(reads(10));
    assert_eq!((rig.sent(0), rig.sent(1)), (15, 5), "the very next requests alternate");
    let reads = rig.seen(|pdu| pdu.is_io() && pdu.sqe.is_some_and(|sqe| sqe.opcode() == io::READ));
    assert_eq!(reads.len(), 10);
    rig.finish();
}

/// As of `latency`: what was measured belongs to the time before.
#[test]
fn a_switch_forgets_what_finish_time_has_measured() {
    let mut rig = crate::rescue::measured(|_| ());
    let is_known = |rig: &mut Rig| {
        let stat = rig.get("nvme0c0n1", "finish_time_stat");
        !stat.contains("standing queue: not known")
    };
    assert!(is_known(&mut rig));
    rig.set("nvme-subsys0", "iopolicy", "queue-depth");
    rig.run(MS);
    rig.set("nvme-subsys0", "iopolicy", "finish-time");
    rig.run(MS);
    assert!(!is_known(&mut rig));
    rig.finish();
}
