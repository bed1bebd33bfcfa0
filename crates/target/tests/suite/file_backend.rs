//! A namespace in a file: what reaches the disk, and what its errors become (promises P6 and P7,
//! fault F39, the file part of C72).

use crate::common::*;
use anabranch_proto::machine::{Buffers, ConnId, DiskOp, SystemError};
use anabranch_proto::nvme::io::{self, DsmRange};
use anabranch_proto::nvme::property::Cc;
use anabranch_proto::nvme::{Sqe, Status};
use anabranch_target::{TargetError, TargetEvent, TargetReply, TargetVerb};

fn rig() -> (Rig, ConnId) {
    let mut config = config();
    config.subsystems[0].namespaces = vec![file_namespace(1, MIB)];
    let mut rig = Rig::new(config);
    let (_, queue) = rig.controller(0);
    (rig, queue)
}

/// Starts a command (with data from the host when there is some), ends its file operation.
fn run(
    rig: &mut Rig,
    conn: ConnId,
    sqe: Sqe,
    data: &[u8],
    result: Result<u32, SystemError>,
) -> Done {
    let cid = if data.is_empty() {
        rig.start(conn, sqe, 1 << 20)
    } else {
        rig.start_out(conn, sqe, data)
    };
    assert!(rig.poll(conn, cid).is_none(), "not before the disk");
    rig.finish_disk(result);
    rig.poll(conn, cid).expect("answered when the disk is done")
}

#[test]
fn operations_reach_the_disk_as_asked() {
    let (mut rig, queue) = rig();
    let cid = rig.start_out(queue, write(2, 1), &[7; 4096]);
    let (_, file, op) = rig.disk[0];
    assert_eq!(file.0, 9);
    let DiskOp::Write { offset: 8192, buf } = op else { panic!("{op:?}") };
    assert_eq!(rig.bufs.bytes(buf), [7; 4096]);
    rig.finish_disk(Ok(4096));
    assert_eq!(rig.poll(queue, cid).unwrap().status, Status::SUCCESS);

    let cid = rig.start_out(queue, io::write(1, 0, 16, true), &vec![8; 64 << 10]);
    let op = rig.finish_disk(Ok(64 << 10));
    assert!(matches!(op, DiskOp::Write { offset: 0, .. }), "{op:?}");
    assert!(rig.poll(queue, cid).is_none(), "FUA: not before it is durable");
    assert_eq!(rig.finish_disk(Ok(0)), DiskOp::Sync { offset: 0, len: 64 << 10 });
    assert_eq!(rig.poll(queue, cid).unwrap().status, Status::SUCCESS);

    let cid = rig.start(queue, read(3, 2), 8192);
    let DiskOp::Read { offset: 12288, buf } = rig.disk[0].2 else { panic!() };
    rig.bufs.bytes_mut(buf).fill(0x3c);
    rig.finish_disk(Ok(8192));
    assert_eq!(rig.poll(queue, cid).unwrap().data, vec![0x3c; 8192]);

    let cid = rig.start(queue, io::flush(1), 0);
    assert_eq!(rig.finish_disk(Ok(0)), DiskOp::Flush);
    assert_eq!(rig.poll(queue, cid).unwrap().status, Status::SUCCESS);

    let cid = rig.start(queue, io::write_zeroes(1, 1, 3, true, true), 0);
    let zero = DiskOp::Zero { offset: 4096, len: 12288, deallocate: true };
    assert_eq!(rig.finish_disk(Ok(0)), zero);
    assert!(rig.poll(queue, cid).is_none(), "FUA: not before it is durable");
    assert_eq!(rig.finish_disk(Ok(0)), DiskOp::Sync { offset: 4096, len: 12288 });
    assert_eq!(rig.poll(queue, cid).unwrap().status, Status::SUCCESS);
    rig.assert_no_leak();
}

const FUA: u32 = 1 << 30;

/// NVM, Read and Compare: what is returned with force unit access is durable by then.
#[test]
fn what_is_read_with_fua_is_durable_when_it_is_answered() {
    let (mut rig, queue) = rig();
    let with_fua = |sqe: Sqe| sqe.with_cdw(12, sqe.cdw(12) | FUA);
    let cid = rig.start(queue, with_fua(read(3, 2)), 8192);
    let DiskOp::Read { offset: 12288, buf } = rig.disk[0].2 else { panic!() };
    rig.bufs.bytes_mut(buf).fill(0x3c);
    rig.finish_disk(Ok(8192));
    assert!(rig.poll(queue, cid).is_none());
    assert_eq!(rig.finish_disk(Ok(0)), DiskOp::Sync { offset: 12288, len: 8192 });
    assert_eq!(rig.poll(queue, cid).unwrap().data, vec![0x3c; 8192]);

    let compare = with_fua(io::compare(1, 0, 1));
    let cid = rig.start_out(queue, compare, &[6; 4096]);
    let DiskOp::Read { buf, .. } = rig.disk[0].2 else { panic!() };
    rig.bufs.bytes_mut(buf).fill(6);
    rig.finish_disk(Ok(4096));
    assert!(rig.poll(queue, cid).is_none());
    assert_eq!(rig.finish_disk(Ok(0)), DiskOp::Sync { offset: 0, len: 4096 });
    assert_eq!(rig.poll(queue, cid).unwrap().status, Status::SUCCESS);
    // What differs needs not be durable.
    let cid = rig.start_out(queue, compare, &[6; 4096]);
    let DiskOp::Read { buf, .. } = rig.disk[0].2 else { panic!() };
    rig.bufs.bytes_mut(buf).fill(5);
    rig.finish_disk(Ok(4096));
    assert_eq!(rig.poll(queue, cid).unwrap().status, Status::COMPARE_FAILURE.with_dnr());
    assert!(rig.disk.is_empty());
    rig.assert_no_leak();
}

#[test]
fn a_read_with_fua_whose_data_does_not_become_durable_fails_and_tells_of_it() {
    let (mut rig, queue) = rig();
    let (_, other) = rig.controller(1);
    let fault = Status::WRITE_FAULT.with_dnr();
    let sqe = read(0, 1);
    let cid = rig.start(queue, sqe.with_cdw(12, sqe.cdw(12) | FUA), 4096);
    rig.finish_disk(Ok(4096));
    rig.finish_disk(Err(SystemError::IO));
    let done = rig.poll(queue, cid).unwrap();
    assert_eq!((done.status, done.data.len()), (fault, 0));
    assert_eq!(rig.run(other, io::flush(1), 0).status, fault, "what was acknowledged may be lost");
    rig.assert_no_leak();
}

#[test]
fn deallocate_goes_range_by_range() {
    let (mut rig, queue) = rig();
    let range = |lba, blocks| DsmRange { attributes: 0, blocks, lba }.to_bytes();
    let ranges = [range(4, 2), range(0, 0), range(16, 1)].concat();
    let cid = rig.start_out(queue, io::deallocate(1, 3), &ranges);
    let given_back = |offset, len| DiskOp::Deallocate { offset, len };
    assert_eq!(rig.finish_disk(Ok(0)), given_back(16384, 8192));
    assert_eq!(rig.finish_disk(Ok(0)), given_back(65536, 4096));
    assert_eq!(rig.poll(queue, cid).unwrap().status, Status::SUCCESS);
    // One range outside: no file operation at all.
    let bad = [range(4, 2), range(256, 1)].concat();
    let done = rig.run_out(queue, io::deallocate(1, 2), &bad);
    assert!(done.status.is(Status::LBA_OUT_OF_RANGE));
    // Advice without deallocation does nothing.
    let advice = io::deallocate(1, 1).with_cdw(11, 1);
    assert_eq!(rig.run_out(queue, advice, &range(0, 1)).status, Status::SUCCESS);
    assert!(rig.disk.is_empty());
    rig.assert_no_leak();
}

/// What takes the NSID while a command works is another namespace, in the same file or not.
#[test]
fn ranges_that_are_left_are_not_given_back_in_another_namespace() {
    let (mut rig, queue) = rig();
    let range = |lba, blocks| DsmRange { attributes: 0, blocks, lba }.to_bytes();
    rig.start_out(queue, io::deallocate(1, 2), &[range(4, 2), range(16, 1)].concat());
    assert_eq!(rig.disk.len(), 1);
    let subsystem = || nqn(SUBSYSTEM);
    rig.ok(TargetVerb::NamespaceRemove { subsystem: subsystem(), nsid: 1 });
    let config = file_namespace(1, MIB);
    rig.ok(TargetVerb::NamespaceAdd { subsystem: subsystem(), config });
    rig.finish_disk(Ok(0));
    assert!(rig.disk.is_empty(), "the second range was for the first namespace");
    rig.assert_no_leak();
}

#[test]
fn compare_reads_and_compares() {
    let (mut rig, queue) = rig();
    for (content, status) in [(6, Status::SUCCESS), (5, Status::COMPARE_FAILURE.with_dnr())] {
        let cid = rig.start_out(queue, io::compare(1, 0, 1), &[6; 4096]);
        let DiskOp::Read { buf, .. } = rig.disk[0].2 else { panic!() };
        rig.bufs.bytes_mut(buf).fill(content);
        rig.finish_disk(Ok(4096));
        assert_eq!(rig.poll(queue, cid).unwrap().status, status);
    }
    rig.assert_no_leak();
}

#[test]
fn errors_become_statuses() {
    let (mut rig, queue) = rig();
    let quota = SystemError(122);
    let stale = SystemError(116);
    let (read_only, not_permitted) = (SystemError(30), SystemError(1));
    let data = vec![1; 4096];
    for (error, reading, writing) in [
        (SystemError::NO_SPACE, Status::CAPACITY_EXCEEDED, Status::CAPACITY_EXCEEDED),
        (quota, Status::CAPACITY_EXCEEDED, Status::CAPACITY_EXCEEDED),
        (SystemError::IO, Status::UNRECOVERED_READ_ERROR, Status::WRITE_FAULT),
        (stale, Status::INTERNAL_ERROR, Status::INTERNAL_ERROR),
        (read_only, Status::INTERNAL_ERROR, Status::WRITE_PROTECTED),
        (not_permitted, Status::INTERNAL_ERROR, Status::WRITE_PROTECTED),
        // The disk was not asked: another try may well succeed.
        (SystemError::AGAIN, Status::COMMAND_INTERRUPTED, Status::COMMAND_INTERRUPTED),
    ] {
        let lasting = |status: Status| match error {
            SystemError::AGAIN => status,
            _ => status.with_dnr(),
        };
        let (reading, writing) = (lasting(reading), lasting(writing));
        let done = run(&mut rig, queue, read(0, 1), &[], Err(error));
        assert_eq!((done.status, done.data.len()), (reading, 0));
        let done = run(&mut rig, queue, io::compare(1, 0, 1), &data, Err(error));
        assert_eq!(done.status, reading);
        let done = run(&mut rig, queue, write(0, 1), &data, Err(error));
        assert_eq!(done.status, writing);
        let done = run(&mut rig, queue, io::write_zeroes(1, 0, 1, true, false), &[], Err(error));
        assert_eq!(done.status, writing);
    }
    assert_eq!(rig.status().subsystems[0].namespaces[0].counters.errors, 28);
    rig.assert_no_leak();
}

/// Blocks that somebody has cut off are lost, which the host has to hear; zeroes would be wrong.
#[test]
fn a_read_beyond_the_end_of_the_file_is_an_error() {
    let (mut rig, queue) = rig();
    let lost = Status::UNRECOVERED_READ_ERROR.with_dnr();
    for (read_bytes, status) in [(8192, Status::SUCCESS), (8191, lost), (4096, lost), (0, lost)] {
        let done = run(&mut rig, queue, read(0, 2), &[], Ok(read_bytes));
        let data = if status.is_success() { 8192 } else { 0 };
        assert_eq!((done.status, done.data.len()), (status, data), "{read_bytes}");
        restore(&mut rig);
    }
    let compared = run(&mut rig, queue, io::compare(1, 0, 2), &[0; 8192], Ok(4096));
    assert_eq!(compared.status, lost);
    assert_eq!(rig.status().subsystems[0].namespaces[0].counters.reads, 1);
    rig.assert_no_leak();
}

/// The file is as long as the namespace again.
fn restore(rig: &mut Rig) {
    let nqn = SUBSYSTEM.parse().unwrap();
    let verb = TargetVerb::NamespaceResize { subsystem: nqn, nsid: 1, bytes: MIB };
    rig.verb(verb).expect("resized");
    rig.events.clear();
}

const READ_LOST: Status = Status::UNRECOVERED_READ_ERROR.with_dnr();
const LOST: Status = Status::WRITE_FAULT.with_dnr();

/// What a read, a write and a flush hear of a file that has lost its end: at once, as nothing is
/// done to it.
fn assert_unused(rig: &mut Rig, queue: ConnId) {
    let cids = [
        (rig.start(queue, read(0, 1), 4096), READ_LOST),
        (rig.start_out(queue, write(0, 1), &[1; 4096]), LOST),
        (rig.start(queue, io::flush(1), 0), LOST),
    ];
    assert!(rig.disk.is_empty(), "{:?}", rig.disk);
    for (cid, status) in cids {
        assert_eq!(rig.poll(queue, cid).expect("answered").status, status);
    }
}

/// Ends a read, and one that began beside it, with half of what they ask for.
fn run_beside(rig: &mut Rig, queue: ConnId, first: u16) {
    let second = rig.start(queue, read(202, 2), 8192);
    for cid in [first, second] {
        rig.finish_disk(Ok(4096));
        assert_eq!(rig.poll(queue, cid).expect("answered").status, READ_LOST);
    }
}

/// A write behind the end of a file makes it longer, and what was lost before it zeroes.
#[test]
fn a_file_that_has_lost_its_end_is_not_made_longer_by_writes() {
    let (mut rig, queue) = rig();
    // Another failure was told just now.
    run(&mut rig, queue, read(0, 1), &[], Err(SystemError::IO));
    rig.events.clear();
    let second = rig.start(queue, read(200, 2), 8192);
    run_beside(&mut rig, queue, second);
    let told = rig.events.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(told.len() == 1 && told[0].contains("it has become shorter"), "{told:?}");
    assert_unused(&mut rig, queue);
    // Whoever has the target has mended it.
    restore(&mut rig);
    assert_eq!(run(&mut rig, queue, read(0, 1), &[], Ok(4096)).status, Status::SUCCESS);
    rig.assert_no_leak();
}

/// Nobody may read what is lost before something is written behind it.
#[test]
fn the_end_of_a_file_that_is_written_is_looked_at() {
    for (look, unused) in [(4096, false), (4095, true), (0, true)] {
        let (mut rig, queue) = rig();
        run(&mut rig, queue, write(0, 1), &[1; 4096], Ok(4096));
        rig.advance(ms(999));
        run(&mut rig, queue, read(0, 1), &[], Ok(4096));
        rig.advance(ms(1));
        let cid = rig.start(queue, read(0, 1), 4096);
        assert_eq!(rig.disk.len(), 2, "it is looked at beside the read");
        assert_eq!(read_at(rig.finish_disk(Ok(look))), MIB - 4096);
        rig.finish_disk(Ok(4096));
        assert_eq!(rig.poll(queue, cid).expect("answered").status, Status::SUCCESS);
        if unused {
            assert_unused(&mut rig, queue);
            let told = rig.events.last().expect("told").to_string();
            let short = "a look at the end failed in its file: it has become shorter";
            assert!(told.contains(short), "{told}");
        } else {
            // Nothing was written since.
            rig.advance(ms(5000));
            assert_eq!(run(&mut rig, queue, read(0, 1), &[], Ok(4096)).status, Status::SUCCESS);
        }
        rig.assert_no_leak();
    }
}

fn read_at(op: DiskOp) -> u64 {
    let DiskOp::Read { offset, .. } = op else { panic!("{op:?}") };
    offset
}

/// It would be the file's new end, and nothing would tell any more that there was another.
#[test]
fn the_last_block_is_looked_at_before_it_is_written() {
    for (look, status) in [(4096, Status::SUCCESS), (0, LOST)] {
        let (mut rig, queue) = rig();
        let cid = rig.start_out(queue, write(255, 1), &[1; 4096]);
        assert_eq!(rig.disk.len(), 1, "the write waits");
        assert_eq!(read_at(rig.finish_disk(Ok(look))), MIB - 4096);
        if status.is_success() {
            assert!(matches!(rig.finish_disk(Ok(4096)), DiskOp::Write { .. }));
        }
        assert_eq!(rig.poll(queue, cid).expect("answered").status, status);
        assert!(rig.disk.is_empty());
        rig.assert_no_leak();
    }
}

/// What is on its way when a namespace is made smaller meets a file that is smaller already.
#[test]
fn a_file_that_was_made_shorter_in_an_orderly_way_has_lost_nothing() {
    let (mut rig, queue) = rig();
    let cid = rig.start(queue, read(200, 1), 4096);
    let nqn = SUBSYSTEM.parse().unwrap();
    let half = TargetVerb::NamespaceResize { subsystem: nqn, nsid: 1, bytes: MIB / 2 };
    rig.verb(half).expect("resized");
    rig.finish_disk(Ok(0));
    assert_eq!(rig.poll(queue, cid).expect("answered").status, READ_LOST);
    assert_eq!(run(&mut rig, queue, read(0, 1), &[], Ok(4096)).status, Status::SUCCESS);
    rig.assert_no_leak();
}

/// A status says little of what is wrong with a file; whoever has the target can mend it.
#[test]
fn what_is_wrong_with_a_file_is_told_once_a_second() {
    let (mut rig, queue) = rig();
    let told = |rig: &mut Rig| {
        let failed = |event: &TargetEvent| matches!(event, TargetEvent::FileFailed { .. });
        let told: Vec<_> = rig.events.iter().filter(|event| failed(event)).collect();
        let told: Vec<String> = told.into_iter().map(ToString::to_string).collect();
        rig.events.clear();
        told
    };
    let full = Err(SystemError::NO_SPACE);
    for _ in 0..3 {
        run(&mut rig, queue, write(0, 1), &[1; 4096], full);
    }
    let start = format!("{SUBSYSTEM} namespace 1: a ");
    let space = "write failed in its file: no space left on device (errno 28)";
    assert_eq!(told(&mut rig), [format!("{start}{space}")]);
    rig.advance(ms(1000));
    rig.start(queue, read(0, 1), 4096);
    // As something was written, its end is looked at.
    rig.finish_disk(Ok(4096));
    rig.finish_disk(Ok(512));
    let short = "read failed in its file: it has become shorter than the namespace, which is not \
                 used until it is resized to what is left";
    assert_eq!(told(&mut rig), [format!("{start}{short} (2 more before)")]);
    restore(&mut rig);
    rig.advance(ms(1000));
    // What is not the file's fault is no failure of it, and a failed flush is told by itself.
    let cid = rig.start_out(queue, io::compare(1, 0, 1), &[6; 4096]);
    rig.finish_disk(Ok(4096));
    assert!(rig.poll(queue, cid).is_some_and(|done| done.status.is(Status::COMPARE_FAILURE)));
    run(&mut rig, queue, io::flush(1), &[], Err(SystemError::IO));
    assert_eq!(told(&mut rig), [""; 0]);
    rig.assert_no_leak();
}

#[test]
fn a_failed_flush_is_reported_to_every_controller_before_any_other_succeeds() {
    let (mut rig, queue) = rig();
    let (_, other) = rig.controller(1);
    let fault = Status::WRITE_FAULT.with_dnr();
    // Two flushes run at once; only one of them hears the error from the system.
    let beside = rig.start(other, io::flush(1), 0);
    let first = rig.start(queue, io::flush(1), 0);
    let ok = rig.disk.pop_front().unwrap();
    rig.finish_disk(Err(SystemError::IO));
    rig.disk.push_front(ok);
    rig.finish_disk(Ok(0));
    assert_eq!(rig.poll(queue, first).unwrap().status, fault);
    assert_eq!(rig.poll(other, beside).unwrap().status, fault, "what it acknowledged is lost");
    // Reported here and there: from now on flushes go to the disk again.
    for conn in [queue, other] {
        assert_eq!(run(&mut rig, conn, io::flush(1), &[], Ok(0)).status, Status::SUCCESS);
    }
    // A controller that comes right after hears of it too, once, without the disk: its host may
    // have lost the answers.
    let (_, late) = rig.controller(0);
    assert_eq!(rig.run(late, io::flush(1), 0).status, fault);
    assert_eq!(run(&mut rig, late, io::flush(1), &[], Ok(0)).status, Status::SUCCESS);
    let failed = |e: &TargetEvent| matches!(e, TargetEvent::FlushFailed { nsid: 1, .. });
    assert!(rig.events.iter().any(failed));
    rig.assert_no_leak();
}

/// Ends the first operation of this kind.
fn end(rig: &mut Rig, kind: fn(&DiskOp) -> bool, result: Result<u32, SystemError>) {
    let at = rig.disk.iter().position(|(.., op)| kind(op)).expect("such an operation");
    rig.disk.swap(0, at);
    rig.finish_disk(result);
}

fn is_sync(op: &DiskOp) -> bool {
    matches!(op, DiskOp::Sync { .. })
}

/// The system tells one of them, whichever the blocks were for that it could not write.
#[test]
fn nothing_is_called_durable_beside_what_failed_to_be() {
    let fault = Status::WRITE_FAULT.with_dnr();
    type Start = fn(&mut Rig, ConnId) -> u16;
    let starts: [Start; 3] = [
        |rig, conn| rig.start_out(conn, io::write(1, 8, 1, true), &[2; 4096]),
        |rig, conn| rig.start(conn, io::write_zeroes(1, 8, 1, false, true), 0),
        |rig, conn| rig.start(conn, io::flush(1), 0),
    ];
    for start in starts {
        // It is heard of when both are with the system, and before the other one is.
        for both in [true, false] {
            let (mut rig, queue) = rig();
            let failed = rig.start_out(queue, io::write(1, 0, 1, true), &[1; 4096]);
            rig.finish_disk(Ok(4096));
            let beside = start(&mut rig, queue);
            if both && !matches!(rig.disk[1].2, DiskOp::Flush) {
                end(&mut rig, |op| !is_sync(op), Ok(4096));
            }
            end(&mut rig, is_sync, Err(SystemError::IO));
            while !rig.disk.is_empty() {
                rig.finish_disk(Ok(4096));
            }
            assert_eq!(rig.poll(queue, failed).unwrap().status, fault);
            assert_eq!(rig.poll(queue, beside).unwrap().status, fault);
            rig.assert_no_leak();
        }
    }
}

/// They may be the ones that were lost.
#[test]
fn blocks_that_were_written_before_are_not_called_durable_after_a_loss() {
    let (mut rig, queue) = rig();
    let (_, other) = rig.controller(1);
    let plain = rig.start_out(other, write(8, 1), &[2; 4096]);
    rig.finish_disk(Ok(4096));
    assert_eq!(rig.poll(other, plain).unwrap().status, Status::SUCCESS);
    let failed = write_through(&mut rig, queue, Ok(4096), Err(SystemError::IO));
    assert!(!failed.is_success());
    let sqe = read(8, 1);
    let durable = rig.start(other, sqe.with_cdw(12, sqe.cdw(12) | FUA), 4096);
    rig.finish_disk(Ok(4096));
    rig.finish_disk(Ok(0));
    assert_eq!(rig.poll(other, durable).unwrap().status, Status::WRITE_FAULT.with_dnr());
    rig.assert_no_leak();
}

/// Of which what was lost is counted no more.
#[test]
fn nothing_is_called_durable_in_a_namespace_that_was_taken_away_meanwhile() {
    for again in [false, true] {
        let (mut rig, queue) = rig();
        let write = |rig: &mut Rig, lba| {
            let cid = rig.start_out(queue, io::write(1, lba, 1, true), &[1; 4096]);
            end(rig, |op| !is_sync(op), Ok(4096));
            cid
        };
        let (failed, beside) = (write(&mut rig, 0), write(&mut rig, 8));
        rig.ok(TargetVerb::NamespaceRemove { subsystem: nqn(SUBSYSTEM), nsid: 1 });
        if again {
            let config = file_namespace(1, MIB);
            rig.ok(TargetVerb::NamespaceAdd { subsystem: nqn(SUBSYSTEM), config });
        }
        rig.finish_disk(Err(SystemError::IO));
        rig.finish_disk(Ok(0));
        for cid in [failed, beside] {
            assert!(!rig.poll(queue, cid).unwrap().status.is_success());
        }
        rig.assert_no_leak();
    }
}

/// It may have been for other blocks: whoever has written those hears of it with their flush.
#[test]
fn a_flush_after_a_write_that_failed_to_be_durable_is_not_called_a_success() {
    let (mut rig, queue) = rig();
    let other = rig.start_out(queue, write(8, 1), &[2; 4096]);
    rig.finish_disk(Ok(4096));
    assert_eq!(rig.poll(queue, other).unwrap().status, Status::SUCCESS);
    let durable = |rig: &mut Rig, synced| {
        let cid = rig.start_out(queue, io::write(1, 0, 1, true), &[1; 4096]);
        rig.finish_disk(Ok(4096));
        rig.finish_disk(synced);
        rig.poll(queue, cid).unwrap().status
    };
    let fault = Status::WRITE_FAULT.with_dnr();
    assert_eq!(durable(&mut rig, Err(SystemError::IO)), fault);
    // What begins now stands for its own blocks.
    assert_eq!(durable(&mut rig, Ok(0)), Status::SUCCESS);
    assert_eq!(rig.run(queue, io::flush(1), 0).status, fault);
    assert_eq!(run(&mut rig, queue, io::flush(1), &[], Ok(0)).status, Status::SUCCESS);
}

/// Its host may send the flush again from there: that one must not say that all is well.
#[test]
fn who_comes_in_the_place_of_one_that_left_hears_of_the_failed_flush_too() {
    let (mut rig, _) = rig();
    let (admin, queue) = rig.controller(1);
    rig.start(queue, io::flush(1), 0);
    rig.hang_up(queue);
    rig.hang_up(admin);
    let (_, queue) = rig.controller(1);
    rig.finish_disk(Err(SystemError::IO));
    assert_eq!(rig.run(queue, io::flush(1), 0).status, Status::WRITE_FAULT.with_dnr());
}

/// Operations take numbers that are free again.
#[test]
fn many_operations_one_after_the_other_need_the_room_of_one() {
    let (mut rig, queue) = rig();
    for _ in 0..100 {
        rig.start(queue, read(0, 1), 4096);
        assert_eq!(rig.disk[0].0.0, 0);
        rig.finish_disk(Ok(4096));
    }
}

/// A write with force unit access, whose two operations end so; its status.
fn write_through(
    rig: &mut Rig,
    conn: ConnId,
    write: Result<u32, SystemError>,
    sync: Result<u32, SystemError>,
) -> Status {
    let cid = rig.start_out(conn, io::write(1, 0, 1, true), &[1; 4096]);
    rig.finish_disk(write);
    if write.is_ok() {
        rig.finish_disk(sync);
    }
    rig.poll(conn, cid).expect("answered").status
}

#[test]
fn a_write_with_fua_that_does_not_become_durable_is_sticky_too() {
    let fault = Status::WRITE_FAULT.with_dnr();
    // No space: there was none behind the page cache for what earlier writes were promised.
    for error in [SystemError::IO, SystemError::NO_SPACE] {
        let (mut rig, queue) = rig();
        let (_, other) = rig.controller(1);
        assert_eq!(write_through(&mut rig, queue, Ok(4096), Err(error)), fault);
        for conn in [other, queue] {
            assert_eq!(rig.run(conn, io::flush(1), 0).status, fault);
        }
        let again = run(&mut rig, queue, io::flush(1), &[], Err(error));
        assert_eq!(again.status, fault);
        assert_eq!(write_through(&mut rig, queue, Ok(4096), Ok(0)), Status::SUCCESS);
        rig.assert_no_leak();
    }
}

/// What was never written was never acknowledged.
#[test]
fn a_write_with_fua_that_is_not_written_is_the_only_one_that_fails() {
    let (mut rig, queue) = rig();
    let (_, other) = rig.controller(1);
    for error in [SystemError::NO_SPACE, SystemError::IO] {
        let status = write_through(&mut rig, queue, Err(error), Ok(0));
        assert!(!status.is_success());
        for conn in [queue, other] {
            assert_eq!(run(&mut rig, conn, io::flush(1), &[], Ok(0)).status, Status::SUCCESS);
        }
        assert_eq!(write_through(&mut rig, other, Ok(4096), Ok(0)), Status::SUCCESS);
    }
    let failed = |e: &TargetEvent| matches!(e, TargetEvent::FlushFailed { .. });
    assert!(!rig.events.iter().any(failed));
    rig.assert_no_leak();
}

/// Reads and writes that succeed neither tell of a failed flush nor hide it, and one namespace is
/// not another.
#[test]
fn each_failed_flush_of_each_namespace_is_reported_once() {
    let fault = Status::WRITE_FAULT.with_dnr();
    let mut config = config();
    config.subsystems[0].namespaces = vec![file_namespace(1, MIB), file_namespace(2, MIB)];
    let mut rig = Rig::new(config);
    let (_, queue) = rig.controller(0);
    let (_, other) = rig.controller(1);
    for _ in 0..2 {
        for nsid in [1, 2] {
            let failed = run(&mut rig, queue, io::flush(nsid), &[], Err(SystemError::IO));
            assert_eq!(failed.status, fault);
        }
        let done = run(&mut rig, other, read(0, 1), &[], Ok(4096));
        assert_eq!((done.status, done.data.len()), (Status::SUCCESS, 4096));
        let done = run(&mut rig, other, write(0, 1), &[1; 4096], Ok(4096));
        assert_eq!(done.status, Status::SUCCESS);
        for nsid in [1, 2] {
            assert_eq!(rig.run(other, io::flush(nsid), 0).status, fault, "{nsid}");
            let flushed = run(&mut rig, other, io::flush(nsid), &[], Ok(0));
            assert_eq!(flushed.status, Status::SUCCESS, "{nsid}");
        }
    }
    rig.assert_no_leak();
}

/// A controller has heard of a failed flush when a flush, or what has to be durable, told it so.
#[test]
fn whatever_else_fails_does_not_stand_for_a_failed_flush() {
    let (mut rig, queue) = rig();
    let (_, other) = rig.controller(1);
    run(&mut rig, queue, io::flush(1), &[], Err(SystemError::IO));
    run(&mut rig, other, read(0, 1), &[], Err(SystemError::IO));
    run(&mut rig, other, write(0, 1), &[1; 4096], Err(SystemError::NO_SPACE));
    assert_eq!(rig.run(other, io::flush(1), 0).status, Status::WRITE_FAULT.with_dnr());
}

#[test]
fn a_connection_that_goes_leaves_the_disk_its_buffers() {
    let (mut rig, queue) = rig();
    rig.start_out(queue, write(0, 1), &[1; 4096]);
    rig.start(queue, read(1, 1), 4096);
    rig.start_out(queue, io::compare(1, 2, 1), &[1; 4096]);
    rig.start(queue, io::flush(1), 0);
    rig.ok(TargetVerb::Cut { port: 0 });
    assert_eq!(rig.bufs.in_use_bytes(), 3 * 4096, "the driver still names these");
    while !rig.disk.is_empty() {
        rig.finish_disk(Ok(4096));
    }
    rig.assert_no_leak();
}

#[test]
fn a_namespace_that_goes_during_an_operation() {
    let (mut rig, queue) = rig();
    let reading = rig.start(queue, read(0, 1), 4096);
    let zeroing = rig.start(queue, io::write_zeroes(1, 1, 1, true, true), 0);
    rig.ok(TargetVerb::NamespaceRemove { subsystem: nqn(SUBSYSTEM), nsid: 1 });
    rig.finish_disk(Ok(4096));
    rig.finish_disk(Ok(0));
    assert!(rig.poll(queue, reading).is_some());
    let done = rig.poll(queue, zeroing).unwrap();
    assert!(done.status.is(Status::INVALID_NAMESPACE), "{}", done.status);
    rig.assert_no_leak();
}

#[test]
fn damage_goes_through_the_disk() {
    let (mut rig, _) = rig();
    rig.later(TargetVerb::Corrupt { subsystem: nqn(SUBSYSTEM), nsid: 1, lba: 3 });
    let op = rig.finish_disk(Ok(4096));
    assert!(matches!(op, DiskOp::Write { offset: 12288, .. }), "{op:?}");
    assert_eq!(rig.reply(), Ok(TargetReply::Done));
    rig.later(TargetVerb::Corrupt { subsystem: nqn(SUBSYSTEM), nsid: 1, lba: 3 });
    rig.finish_disk(Err(SystemError::IO));
    assert_eq!(rig.reply(), Err(TargetError::Disk(SystemError::IO)));
    rig.assert_no_leak();
}

#[test]
fn out_of_buffers_a_file_read_waits() {
    let (mut rig, queue) = rig();
    let mut none = anabranch_proto::testing::MemoryBuffers::with_limit(0);
    std::mem::swap(&mut none, &mut rig.bufs);
    let cid = rig.start(queue, read(0, 1), 4096);
    assert!(rig.disk.is_empty());
    std::mem::swap(&mut none, &mut rig.bufs);
    rig.advance(ms(5));
    rig.finish_disk(Ok(4096));
    assert_eq!(rig.poll(queue, cid).unwrap().status, Status::SUCCESS);
}

/// A host that has told a controller to stop sends what was not answered elsewhere, once that is
/// through.
#[test]
fn a_shutdown_or_reset_is_through_when_nothing_is_on_its_way_to_the_file_any_more() {
    for (stop, during, after) in [
        (Cc::ENABLE.with_shutdown(), (1, 1), (1, 2)),
        // RDY stays until the reset is complete.
        (Cc::ENABLE.disabled(), (1, 0), (0, 0)),
    ] {
        let mut config = config();
        config.subsystems[0].namespaces = vec![file_namespace(1, MIB)];
        let mut rig = Rig::new(config);
        let (admin, queue) = rig.controller(0);
        let (other, beside) = rig.controller(1);
        rig.start_out(queue, write(0, 1), &[1; 4096]);
        rig.start(beside, read(9, 1), 4096);
        assert_eq!(rig.set_cc(admin, stop).status, Status::SUCCESS);
        let state = |rig: &mut Rig, admin| {
            let csts = rig.csts(admin);
            (csts & 1, csts >> 2 & 3)
        };
        assert_eq!(state(&mut rig, admin), during);
        assert_eq!(state(&mut rig, other), (1, 0), "another controller has nothing to do with it");
        rig.finish_disk(Ok(4096));
        assert_eq!(state(&mut rig, admin), after, "whatever others read");
    }
}
