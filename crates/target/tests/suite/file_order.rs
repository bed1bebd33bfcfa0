//! File operations that overlap: of two that share blocks, one of them writing, the later waits
//! until the earlier has ended. So each command that reads or writes finds or leaves whole blocks,
//! as AWUN promises, although the system lets a read run beside a write.

use crate::common::*;
use anabranch_proto::machine::{Buffers, ConnId, DiskOp, Input, SystemError};
use anabranch_proto::nvme::io::{self, DsmRange};
use anabranch_proto::nvme::property::Cc;
use anabranch_proto::nvme::{AnaState, Status, aer};
use anabranch_target::TargetVerb;

/// Two controllers, each through a port of its own, and their queues.
fn rig() -> (Rig, [ConnId; 2]) {
    let mut config = config();
    config.subsystems[0].namespaces = vec![file_namespace(1, 2 * MIB)];
    let mut rig = Rig::new(config);
    let (_, queue) = rig.controller(0);
    let (_, other) = rig.controller(1);
    (rig, [queue, other])
}

/// What the driver has been asked for and not ended, as kind and first block.
fn running(rig: &Rig) -> Vec<(char, u64)> {
    let name = |op: &DiskOp| match *op {
        DiskOp::Read { offset, .. } => ('r', offset / 4096),
        DiskOp::Write { offset, .. } => ('w', offset / 4096),
        DiskOp::Zero { offset, .. } => ('z', offset / 4096),
        DiskOp::Deallocate { offset, .. } => ('d', offset / 4096),
        DiskOp::Flush | DiskOp::Sync { .. } => ('f', 0),
    };
    rig.disk.iter().map(|(.., op)| name(op)).collect()
}

/// Ends the operation that was given to the driver at this place among those it has.
fn finish(rig: &mut Rig, at: usize) {
    let (id, _, op) = rig.disk.remove(at).expect("a file operation");
    let bytes = match op {
        DiskOp::Read { buf, .. } | DiskOp::Write { buf, .. } => buf.len(),
        _ => 0,
    };
    rig.input(Input::DiskDone { id, result: Ok(bytes) });
}

fn finish_all(rig: &mut Rig) {
    while !rig.disk.is_empty() {
        finish(rig, 0);
    }
}

fn status(rig: &mut Rig, conn: ConnId, cid: u16) -> Status {
    rig.poll(conn, cid).expect("answered").status
}

const DATA: [u8; 4096] = [1; 4096];

#[test]
fn a_read_and_a_write_of_the_same_blocks_wait_for_each_other() {
    let (mut rig, [queue, other]) = rig();
    rig.start_out(queue, write(0, 1), &DATA);
    let reading = rig.start(other, read(0, 1), 4096);
    rig.start(queue, read(1, 1), 4096);
    rig.start(queue, io::flush(1), 0);
    assert_eq!(running(&rig), [('w', 0), ('r', 1), ('f', 0)], "the next block and a flush go");
    finish(&mut rig, 0);
    assert_eq!(running(&rig), [('r', 1), ('f', 0), ('r', 0)]);
    let writing = rig.start_out(queue, write(0, 2), &[2; 8192]);
    let zeroing = rig.start(other, io::write_zeroes(1, 0, 4, false, false), 0);
    finish(&mut rig, 0);
    assert_eq!(running(&rig), [('f', 0), ('r', 0)], "a write waits for all readers");
    finish(&mut rig, 1);
    assert_eq!(running(&rig), [('f', 0), ('w', 0)]);
    finish(&mut rig, 1);
    assert_eq!(running(&rig), [('f', 0), ('z', 0)]);
    finish_all(&mut rig);
    for (conn, cid) in [(other, reading), (queue, writing), (other, zeroing)] {
        assert_eq!(status(&mut rig, conn, cid), Status::SUCCESS);
    }
    rig.assert_no_leak();
}

#[test]
fn reads_of_the_same_blocks_go_side_by_side_and_damage_waits_for_them() {
    let (mut rig, [queue, other]) = rig();
    rig.start(queue, read(3, 1), 4096);
    rig.start(other, read(3, 1), 4096);
    rig.start_out(queue, io::compare(1, 3, 1), &DATA);
    let subsystem = nqn(SUBSYSTEM);
    rig.later(TargetVerb::Corrupt { subsystem, nsid: 1, lba: 3 });
    assert_eq!(running(&rig), [('r', 3); 3]);
    finish(&mut rig, 0);
    finish(&mut rig, 0);
    assert_eq!(running(&rig), [('r', 3)]);
    finish(&mut rig, 0);
    assert_eq!(running(&rig), [('w', 3)]);
    finish_all(&mut rig);
    rig.assert_no_leak();
}

/// First come, first served: a stream of small reads does not keep a large write waiting.
#[test]
fn a_large_write_is_not_starved_by_small_reads() {
    let (mut rig, [queue, other]) = rig();
    rig.start(other, read(9, 1), 4096);
    rig.start_out(queue, write(0, 16), &[3; 64 << 10]);
    for lba in [9, 15, 0] {
        rig.start(other, read(lba, 1), 4096);
    }
    assert_eq!(running(&rig), [('r', 9)]);
    finish(&mut rig, 0);
    assert_eq!(running(&rig), [('w', 0)]);
    finish(&mut rig, 0);
    assert_eq!(running(&rig), [('r', 9), ('r', 15), ('r', 0)]);
    finish_all(&mut rig);
    rig.assert_no_leak();
}

/// Another queue in the place of one that went, with a command in the same slot.
fn replaced(rig: &mut Rig, queue: ConnId, cntlid: u16) -> (ConnId, u16) {
    rig.hang_up(queue);
    let queue = rig.io_queue(0, cntlid, 2);
    let cid = rig.start_out(queue, write(5, 1), &DATA);
    (queue, cid)
}

#[test]
fn who_takes_the_place_of_a_queue_has_nothing_to_do_with_its_commands() {
    for waits in [false, true] {
        let mut config = config();
        config.subsystems[0].namespaces = vec![file_namespace(1, MIB)];
        let mut rig = Rig::new(config);
        let (admin, cntlid) = rig.admin_of(0, SUBSYSTEM, 0);
        rig.set_cc(admin, Cc::ENABLE);
        let (_, other) = rig.controller(1);
        let queue = rig.io_queue(0, cntlid, 1);
        if waits {
            rig.start(other, read(0, 1), 4096);
        }
        rig.start_out(queue, write(0, 1), &[2; 4096]);
        let (queue, cid) = replaced(&mut rig, queue, cntlid);
        assert_eq!(running(&rig), [(if waits { 'r' } else { 'w' }, 0), ('w', 5)]);
        finish(&mut rig, 0);
        assert_eq!(running(&rig), [('w', 5)], "what waited is gone with its queue");
        assert!(rig.poll(queue, cid).is_none(), "that was another command");
        finish(&mut rig, 0);
        assert_eq!(status(&mut rig, queue, cid), Status::SUCCESS);
        rig.assert_no_leak();
    }
}

/// A write that the driver has is waited for, whoever it was for; one that only waited is dropped.
/// "Aborted" would mean that it is not done any more.
#[test]
fn what_is_on_its_way_to_a_file_or_to_its_host_is_not_aborted() {
    let (mut rig, _) = rig();
    let (admin, queue) = rig.controller(0);
    let cids = [
        rig.start_out(queue, write(0, 1), &DATA),
        rig.start_out(queue, write(0, 1), &DATA),
        rig.start_out(queue, io::compare(1, 8, 1), &DATA),
        rig.start(queue, read(16, 1), 4096),
        rig.start(queue, io::flush(1), 0),
        rig.start(queue, write(32, 4), 16 << 10),
    ];
    for cid in cids {
        assert_eq!(rig.run(admin, aer::abort(1, cid), 0).result, 1, "not aborted");
    }
    finish_all(&mut rig);
    for cid in [cids[0], cids[1], cids[3], cids[4]] {
        assert_eq!(status(&mut rig, queue, cid), Status::SUCCESS);
    }
    let answered = rig.start(queue, read(16, 1), 4096);
    rig.ok(TargetVerb::Stall { port: 0 });
    finish_all(&mut rig);
    rig.ok(TargetVerb::Restore { port: 0 });
    assert_eq!(status(&mut rig, queue, answered), Status::SUCCESS);
}

#[test]
fn a_cut_drops_what_waits_and_what_runs_is_still_waited_for() {
    let (mut rig, [queue, other]) = rig();
    rig.start_out(queue, write(0, 1), &DATA);
    rig.start_out(queue, write(0, 1), &[2; 4096]);
    rig.start_out(queue, io::compare(1, 0, 1), &DATA);
    let again = rig.start_out(other, write(0, 1), &[3; 4096]);
    rig.ok(TargetVerb::Cut { port: 0 });
    assert_eq!(running(&rig), [('w', 0)]);
    finish(&mut rig, 0);
    let DiskOp::Write { buf, .. } = rig.disk[0].2 else { panic!("{:?}", rig.disk) };
    assert_eq!((rig.bufs.bytes(buf)[0], rig.disk.len()), (3, 1), "the living host's write");
    finish(&mut rig, 0);
    assert!(rig.disk.is_empty());
    assert_eq!(status(&mut rig, other, again), Status::SUCCESS);
    rig.assert_no_leak();
}

#[test]
fn no_write_that_waited_takes_effect_after_its_host_fell_silent() {
    let mut config = config();
    config.subsystems[0].namespaces = vec![file_namespace(1, MIB)];
    let mut rig = Rig::new(config);
    let (_, silent) = rig.controller_with(0, 1000);
    let (_, other) = rig.controller(1);
    rig.start(other, read(0, 4), 4 * 4096);
    rig.start_out(silent, write(1, 1), &DATA);
    rig.advance(ms(3000));
    finish_all(&mut rig);
    assert!(rig.disk.is_empty());
    assert_eq!(rig.status().subsystems[0].namespaces[0].counters.writes, 0);
    rig.assert_no_leak();
}

/// What a stall has caught holds nobody up on other ports.
#[test]
fn a_stall_gives_way_to_those_behind_and_goes_on_later() {
    let (mut rig, [queue, other]) = rig();
    rig.start(other, read(0, 1), 4096);
    let held = rig.start_out(queue, write(0, 1), &DATA);
    let compared = rig.start_out(queue, io::compare(1, 0, 1), &DATA);
    let reading = rig.start(queue, read(0, 1), 4096);
    let passed = rig.start_out(other, write(0, 1), &[2; 4096]);
    rig.ok(TargetVerb::Stall { port: 0 });
    finish(&mut rig, 0);
    let DiskOp::Write { buf, .. } = rig.disk[0].2 else { panic!("{:?}", rig.disk) };
    assert_eq!(rig.bufs.bytes(buf)[0], 2, "the write of the port that works");
    finish_all(&mut rig);
    assert_eq!(status(&mut rig, other, passed), Status::SUCCESS);
    rig.ok(TargetVerb::Restore { port: 0 });
    assert_eq!(running(&rig), [('w', 0)]);
    finish(&mut rig, 0);
    assert_eq!(running(&rig), [('r', 0), ('r', 0)]);
    for (.., op) in rig.disk.clone() {
        let DiskOp::Read { buf, .. } = op else { panic!() };
        rig.bufs.bytes_mut(buf).fill(1);
    }
    finish_all(&mut rig);
    for cid in [held, compared, reading] {
        assert_eq!(status(&mut rig, queue, cid), Status::SUCCESS);
    }
    rig.assert_no_leak();
}

#[test]
fn a_stall_that_ends_in_a_cut_drops_what_it_caught() {
    let (mut rig, [queue, other]) = rig();
    rig.start(other, read(0, 1), 4096);
    rig.start_out(queue, write(0, 1), &DATA);
    rig.start(queue, read(0, 1), 4096);
    rig.ok(TargetVerb::Stall { port: 0 });
    finish(&mut rig, 0);
    rig.ok(TargetVerb::Cut { port: 0 });
    assert!(rig.disk.is_empty());
    rig.assert_no_leak();
}

/// A command that has waited meets what is there when its turn comes.
#[test]
fn changes_while_a_command_waits_are_heeded() {
    let subsystem = || nqn(SUBSYSTEM);
    let resize = |bytes| TargetVerb::NamespaceResize { subsystem: subsystem(), nsid: 1, bytes };
    let ana = TargetVerb::Ana { port: 0, group: 1, state: AnaState::Inaccessible };
    let remove = TargetVerb::NamespaceRemove { subsystem: subsystem(), nsid: 1 };
    for (change, expected) in [
        (resize(4096), Status::LBA_OUT_OF_RANGE),
        (resize(MIB), Status::SUCCESS),
        (ana, Status::ANA_INACCESSIBLE),
        (remove, Status::INVALID_NAMESPACE),
    ] {
        let (mut rig, [queue, other]) = rig();
        let zeroing = rig.start(other, io::write_zeroes(1, 1, 1, false, false), 0);
        let waiting = rig.start_out(queue, write(1, 1), &DATA);
        rig.ok(change);
        finish_all(&mut rig);
        assert_eq!(status(&mut rig, other, zeroing), Status::SUCCESS);
        let got = status(&mut rig, queue, waiting);
        assert!(got.is(expected), "{got}, not {expected}");
        rig.assert_no_leak();
    }
}

#[test]
fn ranges_that_have_waited_must_still_lie_in_the_namespace() {
    for (bytes, expected) in [(3 * 4096, Status::SUCCESS), (2 * 4096, Status::LBA_OUT_OF_RANGE)] {
        let (mut rig, [queue, other]) = rig();
        rig.start(other, read(1, 1), 4096);
        let range = DsmRange { attributes: 0, blocks: 2, lba: 1 }.to_bytes();
        let waiting = rig.start_out(queue, io::deallocate(1, 1), &range);
        rig.ok(TargetVerb::NamespaceResize { subsystem: nqn(SUBSYSTEM), nsid: 1, bytes });
        finish_all(&mut rig);
        let got = status(&mut rig, queue, waiting);
        assert!(got.is(expected), "{got}, not {expected}");
        rig.assert_no_leak();
    }
}

/// The file counts, not the namespace: the last write of one that has gone may still run.
#[test]
fn another_namespace_in_the_same_file_waits_for_what_the_former_left() {
    let (mut rig, [queue, other]) = rig();
    rig.start_out(queue, write(0, 1), &DATA);
    rig.start_out(queue, write(0, 1), &DATA);
    let subsystem = || nqn(SUBSYSTEM);
    rig.ok(TargetVerb::NamespaceRemove { subsystem: subsystem(), nsid: 1 });
    let config = file_namespace(1, MIB);
    rig.ok(TargetVerb::NamespaceAdd { subsystem: subsystem(), config });
    rig.start(other, read(0, 1), 4096);
    assert_eq!(running(&rig), [('w', 0)]);
    finish(&mut rig, 0);
    assert_eq!(running(&rig), [('r', 0)], "the second write was for the former namespace");
    finish_all(&mut rig);
    let counters = rig.status().subsystems[0].namespaces[0].counters;
    assert_eq!((counters.reads, counters.writes, counters.errors), (1, 0, 0), "its own");
    rig.assert_no_leak();
}

/// A controller that was told to stop is not through while a write of it may still begin, and
/// begins none.
#[test]
fn what_waits_when_its_controller_is_shut_down_is_aborted() {
    let mut config = config();
    config.subsystems[0].namespaces = vec![file_namespace(1, MIB)];
    let mut rig = Rig::new(config);
    let (admin, queue) = rig.controller(0);
    let (_, other) = rig.controller(1);
    rig.start(other, read(0, 1), 4096);
    let waiting = rig.start_out(queue, write(0, 1), &DATA);
    rig.set_cc(admin, Cc::ENABLE.with_shutdown());
    assert_eq!(rig.csts(admin) >> 2 & 3, 1, "not through");
    finish(&mut rig, 0);
    assert!(rig.disk.is_empty());
    assert_eq!(rig.csts(admin) >> 2 & 3, 2);
    // Its host may do it again, elsewhere.
    assert_eq!(status(&mut rig, queue, waiting), Status::ABORTED_SQ_DELETION);
    rig.assert_no_leak();
}

/// Zeroes that have to be written take long: others have their turn in between, and they end with
/// their association.
#[test]
fn zeroes_that_take_long_give_way_and_end_with_their_connection() {
    let (mut rig, [queue, other]) = rig();
    let zero = |block: u64, blocks: u64, deallocate| DiskOp::Zero {
        offset: block * 4096,
        len: blocks * 4096,
        deallocate,
    };
    let zeroing = rig.start(queue, io::write_zeroes(1, 0, 512, false, false), 0);
    // The last block is among them, and looked at first.
    assert_eq!(running(&rig), [('r', 511)]);
    finish(&mut rig, 0);
    rig.start(other, read(300, 1), 4096);
    assert_eq!(rig.finish_disk(Ok(256 * 4096)), zero(0, 512, false));
    assert_eq!(running(&rig), [('r', 300)]);
    finish(&mut rig, 0);
    assert_eq!(rig.finish_disk(Ok(128 * 4096)), zero(256, 256, false));
    assert_eq!(rig.finish_disk(Ok(0)), zero(384, 128, false));
    assert_eq!(status(&mut rig, queue, zeroing), Status::SUCCESS);

    // A stall in the middle: all of it is done when it ends.
    let zeroing = rig.start(queue, io::write_zeroes(1, 0, 512, false, false), 0);
    finish(&mut rig, 0);
    rig.ok(TargetVerb::Stall { port: 0 });
    rig.finish_disk(Ok(256 * 4096));
    assert!(rig.disk.is_empty(), "nothing is begun meanwhile");
    rig.ok(TargetVerb::Restore { port: 0 });
    finish(&mut rig, 0);
    assert_eq!(rig.finish_disk(Ok(0)), zero(0, 512, false));
    assert_eq!(status(&mut rig, queue, zeroing), Status::SUCCESS);

    let range = |lba, blocks| DsmRange { attributes: 0, blocks, lba }.to_bytes();
    rig.start(queue, io::write_zeroes(1, 0, 256, true, false), 0);
    assert_eq!(rig.finish_disk(Ok(128 * 4096)), zero(0, 256, true));
    rig.start_out(queue, io::deallocate(1, 2), &[range(300, 8), range(400, 1)].concat());
    assert_eq!(rig.disk[0].2, zero(128, 128, true));
    assert_eq!(running(&rig), [('z', 128), ('d', 300)]);
    rig.ok(TargetVerb::Cut { port: 0 });
    rig.finish_disk(Ok(64 * 4096));
    rig.finish_disk(Ok(0));
    assert!(rig.disk.is_empty(), "nothing more of a connection that was cut");
    rig.assert_no_leak();
}

#[test]
fn an_operation_that_fails_lets_the_next_one_go() {
    let (mut rig, [queue, other]) = rig();
    let failing = rig.start_out(queue, write(0, 1), &DATA);
    let waiting = rig.start(other, read(0, 1), 4096);
    rig.finish_disk(Err(SystemError::IO));
    assert_eq!(status(&mut rig, queue, failing), Status::WRITE_FAULT.with_dnr());
    finish(&mut rig, 0);
    assert_eq!(status(&mut rig, other, waiting), Status::SUCCESS);
    rig.assert_no_leak();
}
