//! Reads on queue pairs of their own (`nr_write_queues`).

use crate::rig::{MS, Rig, SECOND, Setup, reads, writes};
use crate::script::Op;
use crate::setup;
use crate::wire::Pdu;
use anabranch_host::verb::Verb;
use anabranch_policy::Policy;
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::opcode::io;
use std::collections::BTreeSet;

const WORKERS: u16 = 3;

fn connected(ports: u16, writes: u16, granted: u16) -> Rig {
    let mut setup = Setup::new(ports, WORKERS);
    setup.options.nr_write_queues = writes;
    setup.target.limits.io_queues = granted;
    setup.connect()
}

/// Reads and everything else from every worker; gives back the connections that carried reads, and
/// those that carried the rest, by the worker at whose end they are.
fn carriers(rig: &mut Rig) -> [BTreeSet<(u16, u32)>; 2] {
    let before = rig.seen(Pdu::is_io).len();
    let mut names = Vec::new();
    for worker in 1..=WORKERS {
        names.extend(rig.submit_to(worker, "nvme0n1", writes(10, worker as u8)));
        names.extend(rig.submit_to(worker, "nvme0n1", reads(10)));
        let others = [Op::Discard { lba: 70, blocks: 10 }, Op::Flush];
        names.extend(rig.submit_to(worker, "nvme0n1", others));
    }
    rig.succeed(&names);
    let sent = rig.seen(Pdu::is_io).split_off(before);
    let of = |reads: bool| {
        let wanted = |pdu: &&Pdu| pdu.sqe.is_some_and(|sqe| (sqe.opcode() == io::READ) == reads);
        sent.iter().filter(wanted).map(|pdu| (pdu.worker, pdu.serial)).collect()
    };
    [of(true), of(false)]
}

fn workers(of: &BTreeSet<(u16, u32)>) -> Vec<u16> {
    of.iter().map(|&(worker, _)| worker).collect()
}

#[test]
fn b13_writes_share_no_queue_with_reads() {
    // One per worker of either kind, fewer for writes, and as many as are granted.
    for (asked, granted, others) in
        [(3, 64, vec![1, 2, 3]), (1, 64, vec![1]), (3, 5, vec![1, 2]), (9, 4, vec![1])]
    {
        let mut rig = connected(1, asked, granted);
        let [of_reads, of_others] = carriers(&mut rig);
        assert!(of_reads.is_disjoint(&of_others), "{of_reads:?} {of_others:?}");
        assert_eq!(workers(&of_reads), [1, 2, 3], "{asked} {granted}");
        assert_eq!(workers(&of_others), others, "{asked} {granted}");
        rig.finish();
    }
}

#[test]
fn with_as_many_queues_as_were_asked_for_reads_alone_all_commands_share_them() {
    let mut rig = connected(1, 3, 3);
    let [of_reads, of_others] = carriers(&mut rig);
    assert_eq!(of_reads, of_others);
    assert_eq!(workers(&of_reads), [1, 2, 3]);
    rig.finish();
}

/// What fills the connections of writes does not stand in the way of a read.
#[test]
fn b13_reads_pass_writes_that_wait_on_their_connection() {
    let mut rig = connected(1, 1, 64);
    let names = rig.io([Op::Write { lba: 0, blocks: 1, fill: 1 }]);
    assert!(names[0].result.is_ok());
    let of_writes = rig.seen(Pdu::is_io).last().map(|pdu| pdu.serial).expect("a write");
    let stream = rig.world.stream_with_serial(of_writes).expect("open");
    rig.world.stall_stream(stream, SECOND);
    let stuck = rig.submit_to(2, "nvme0n1", writes(40, 2));
    let through = rig.submit_to(2, "nvme0n1", reads(40));
    rig.run(100 * MS);
    assert_eq!((rig.answered(&stuck), rig.answered(&through)), (0, 40));
    rig.succeed(&stuck);
    rig.finish();
}

/// One of a worker's queue pairs goes: the controller goes with it, nothing is lost, and it is back
/// with all of them.
#[test]
fn a_controller_that_loses_one_of_two_queue_pairs_of_a_worker_lets_go_of_both() {
    for of_reads in [true, false] {
        let mut rig = connected(2, 2, 64);
        let before = carriers(&mut rig);
        let names: Vec<u64> = (1..=WORKERS)
            .flat_map(|worker| {
                let names = rig.submit_to(worker, "nvme0n1", writes(30, 7));
                [names, rig.submit_to(worker, "nvme0n1", reads(30))].concat()
            })
            .collect();
        let serial = before[usize::from(!of_reads)].iter().next().expect("some").1;
        let stream = rig.world.stream_with_serial(serial).expect("open");
        rig.world.break_stream(stream);
        rig.succeed(&names);
        let port = (0..2).find(|&port| !rig.is_live(port)).expect("one has been lost");
        rig.wait_live(port);
        let after = carriers(&mut rig);
        assert!(after[0].is_disjoint(&after[1]), "{after:?}");
        assert_eq!(rig.controller(port).expect("there").io_queues, WORKERS + 2);
        rig.finish();
    }
}

#[test]
fn a_reset_and_a_disconnect_wait_for_all_queue_pairs() {
    let mut rig = connected(1, 3, 64);
    let under_way = rig.submit_to(2, "nvme0n1", writes(60, 9).chain(reads(60)));
    rig.done(Verb::Reset { controller: "nvme0".into() });
    rig.wait_live(0);
    rig.succeed(&under_way);
    let [of_reads, of_others] = carriers(&mut rig);
    assert_eq!((of_reads.len(), of_others.len()), (3, 3));
    rig.done_disconnecting(0);
    assert_eq!(rig.world.stream(WorkerId(1), &setup::port(0)), None, "all are closed");
    rig.finish();
}

/// Probes are reads, and go where reads go.
#[test]
fn what_policies_measure_is_the_same_on_queues_of_their_own() {
    for policy in Policy::ALL {
        let mut rig = connected(2, 1, 64);
        rig.set("nvme-subsys0", "iopolicy", policy.name());
        for round in 0..20 {
            let fill = round as u8;
            let names = (1..=WORKERS).flat_map(|worker| {
                let names = rig.submit_to(worker, "nvme0n1", writes(20, fill));
                [names, rig.submit_to(worker, "nvme0n1", reads(20))].concat()
            });
            let names: Vec<u64> = names.collect();
            rig.succeed(&names);
        }
        let sent = rig.seen(Pdu::is_io);
        let on = |reads: bool| -> BTreeSet<u32> {
            let fits = |pdu: &&Pdu| pdu.sqe.is_some_and(|it| (it.opcode() == io::READ) == reads);
            sent.iter().filter(fits).map(|pdu| pdu.serial).collect()
        };
        assert!(on(true).is_disjoint(&on(false)), "{policy}");
        rig.finish();
    }
}

/// What carries its flushes is open.
#[test]
fn a_controller_that_has_lost_its_queue_of_reads_alone_is_flushed() {
    let mut setup = Setup::new(2, 1);
    setup.options.nr_write_queues = 1;
    setup.target.limits.io_queues = 64;
    setup.times.mail = (50 * MS, 50 * MS);
    let mut rig = setup.build();
    (0..2).for_each(|port| {
        rig.connect(port);
        rig.run(SECOND);
    });
    rig.io([Op::Flush]);
    rig.io(writes(4, 1));
    rig.io(reads(4));
    let serial = |opcode: u8| {
        let of = |pdu: &Pdu| {
            pdu.is_io() && pdu.port == 0 && pdu.sqe.is_some_and(|sqe| sqe.opcode() == opcode)
        };
        rig.seen(of).last().map(|pdu| pdu.serial).expect("some")
    };
    let (of_reads, of_writes) = (serial(io::READ), serial(io::WRITE));
    assert_ne!(of_reads, of_writes);
    let stream = rig.world.stream_with_serial(of_reads).expect("open");
    // It comes to its worker before control hears of the loss, and has the controller shut down.
    let names = rig.submit([Op::Flush]);
    rig.run(40 * MS);
    rig.world.break_stream(stream);
    rig.run(5 * MS);
    assert!(rig.world.stream_with_serial(of_writes).is_some(), "that one is open");
    rig.succeed(&names);
    let flushes =
        rig.seen(|pdu| pdu.is_io() && pdu.sqe.is_some_and(|sqe| sqe.opcode() == io::FLUSH));
    let mut last: Vec<u16> = flushes.iter().rev().take(2).map(|pdu| pdu.port).collect();
    last.sort_unstable();
    assert_eq!((flushes.len(), last), (4, vec![0, 1]), "two at first, two now");
    rig.finish();
}
