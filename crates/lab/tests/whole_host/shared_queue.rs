//! The single shared queue: all workers submit through one queue pair per path.

use crate::rig::{MS, SECOND, Setup, reads, writes};
use crate::script::Op;
use crate::setup;
use crate::wire::Pdu;
use anabranch_policy::Policy;
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::AnaState;
use std::collections::BTreeSet;

#[test]
fn one_queue_pair_per_path_carries_the_io_of_all_workers() {
    for policy in Policy::ALL {
        let mut setup = Setup::new(2, 3);
        setup.host.shared_queue = true;
        setup.host.default_policy = policy;
        let mut rig = setup.connect();
        let names: Vec<u64> =
            (1..=3).flat_map(|worker| rig.submit_to(worker, "nvme0n1", writes(40, 5))).collect();
        rig.succeed(&names);
        for worker in 1..=3 {
            let names = rig.submit_to(worker, "nvme0n1", reads(40));
            let outcomes = rig.succeed(&names);
            assert!(outcomes.iter().all(|read| read.data.iter().all(|&byte| byte == 5)));
        }
        let sent = rig.seen(Pdu::is_io);
        assert_eq!(sent.len(), 240, "{policy}");
        let streams: BTreeSet<_> = sent.iter().map(|pdu| (pdu.port, pdu.serial)).collect();
        let ports: BTreeSet<_> = sent.iter().map(|pdu| pdu.port).collect();
        assert_eq!(streams.len(), ports.len(), "{policy}: one queue pair per path");
        assert!(policy == Policy::Numa || ports.len() == 2, "{policy} uses both paths");
        rig.finish();
    }
}

#[test]
fn its_loss_moves_the_io_of_all_workers() {
    let mut setup = Setup::new(2, 3);
    setup.host.shared_queue = true;
    let mut rig = setup.connect();
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.slow_stream(stream, 100 * MS);
    let names: Vec<u64> =
        (1..=3).flat_map(|worker| rig.submit_to(worker, "nvme0n1", writes(20, 5))).collect();
    rig.run(10 * MS);
    assert_eq!(rig.answered(&names), 30);
    let begin = rig.now();
    rig.world.break_stream(stream);
    let outcomes = rig.succeed(&names);
    assert!(outcomes.iter().all(|outcome| outcome.at.since(begin) < 2 * MS));
    assert_eq!(rig.path(0).failovers, 30);
    assert_eq!(rig.path(0).uncertain_writes_resent, 30);
    rig.wait_live(0);
    rig.finish();
}

#[test]
fn a_worker_full_of_its_own_commands_still_carries_those_of_others() {
    let mut setup = Setup::new(2, 2);
    setup.host.shared_queue = true;
    setup.target.limits.max_transfer_bytes = 16 << 10;
    let mut rig = setup.connect();
    for port in 0..2 {
        let stream = rig.world.stream(WorkerId(1), &setup::port(port)).expect("open");
        rig.world.slow_stream(stream, MS);
    }
    // Each takes 32 commands: far more than the table holds.
    let large = (0..64).map(|n| Op::Write { lba: n * 16, blocks: 1024, fill: 1 });
    let own = rig.submit_to(1, "nvme0n1", large);
    rig.run(MS / 2);
    let of_other = rig.submit_to(2, "nvme0n1", reads(60));
    rig.succeed(&of_other);
    rig.succeed(&own);
    for port in 0..2 {
        assert_eq!(rig.path(port).failovers, 0, "nothing was sent back");
    }
    rig.finish();
}

#[test]
fn silence_on_it_is_noticed_by_io_timeout_for_all_workers() {
    let mut setup = Setup::new(2, 3);
    setup.host.shared_queue = true;
    setup.options.io_timeout = SECOND;
    let mut rig = setup.connect();
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.silence_stream(stream);
    let begin = rig.now();
    let names: Vec<u64> =
        (1..=3).flat_map(|worker| rig.submit_to(worker, "nvme0n1", writes(20, 5))).collect();
    let outcomes = rig.succeed(&names);
    let waits: Vec<_> = outcomes.iter().map(|outcome| outcome.at.since(begin)).collect();
    assert_eq!(waits.iter().filter(|&&wait| wait < 10 * MS).count(), 30);
    assert!(waits.iter().all(|&wait| wait < SECOND + 10 * MS), "{waits:?}");
    rig.wait_live(0);
    rig.finish();
}

/// What the carrier says is known before control has heard of it: nothing more is sent in vain.
#[test]
fn a_worker_that_was_told_of_a_lost_queue_pair_keeps_off_it() {
    let mut setup = Setup::new(2, 2);
    setup.host.shared_queue = true;
    setup.times.mail = (50 * MS, 50 * MS);
    let mut rig = setup.build();
    (0..2).for_each(|port| {
        rig.connect(port);
        rig.run(SECOND);
    });
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.slow_stream(stream, SECOND);
    let first = rig.submit_to(2, "nvme0n1", writes(2, 1));
    rig.run(110 * MS);
    assert_eq!(rig.sent(0), 1, "it was carried");
    rig.world.break_stream(stream);
    // They come when the worker has been told, and control's picture is still on its way.
    rig.run(5 * MS);
    let names = rig.submit_to(2, "nvme0n1", writes(10, 2));
    rig.succeed(&first);
    rig.succeed(&names);
    assert_eq!(rig.path(0).failovers, 1, "only the one that was there");
    rig.wait_live(0);
    rig.finish();
}

/// More commands than the carrier has places for, one after the other.
#[test]
fn what_is_carried_gives_its_place_back() {
    let mut setup = Setup::new(1, 2);
    setup.host.shared_queue = true;
    setup.target.limits.max_transfer_bytes = 16 << 10;
    let mut rig = setup.connect();
    let all = Op::Read { lba: 0, blocks: 2048 };
    let names = rig.submit_to(2, "nvme0n1", (0..240).map(|_| all));
    rig.succeed(&names);
    assert_eq!(rig.sent(0), 240 * 64);
    rig.finish();
}

/// What others have on the queue pair that carries for a worker counts there like its own.
#[test]
fn depth_by_queue_pair_counts_what_all_workers_have_there() {
    let mut setup = Setup::new(2, 2);
    setup.host.default_policy = Policy::QueueDepth;
    setup.options.nr_io_queues = Some(1);
    let mut rig = setup.connect();
    rig.set("nvme-subsys0", "queue_depth_scope", "queue-pair");
    rig.ana(1, AnaState::Inaccessible);
    rig.run(MS);
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.stall_stream(stream, SECOND);
    let mut names = rig.submit_to(1, "nvme0n1", writes(4, 1));
    rig.run(MS);
    rig.ana(1, AnaState::Optimized);
    rig.run(10 * MS);
    assert_eq!((rig.sent(0), rig.sent(1)), (4, 0));
    names.extend(rig.submit_to(2, "nvme0n1", writes(4, 2)));
    rig.run(MS);
    assert_eq!((rig.sent(0), rig.sent(1)), (4, 4), "there are four on the other already");
    rig.succeed(&names);
    rig.finish();
}
