//! Who is told of a flush of a file that failed, and what counts as one (fault F39).

use crate::common::*;
use anabranch_proto::machine::{ConnId, SystemError};
use anabranch_proto::nvme::fabrics::{ConnectCommand, ConnectData};
use anabranch_proto::nvme::io;
use anabranch_proto::nvme::property::Cc;
use anabranch_proto::nvme::{Status, Uuid};
use anabranch_target::{TargetEvent, TargetVerb};

const FAULT: Status = Status::WRITE_FAULT.with_dnr();
/// Whoever still sends commands so long after an answer has heard it.
const HEARD_MS: u64 = 30_000;

fn rig() -> (Rig, ConnId, ConnId) {
    let mut config = config();
    config.subsystems[0].namespaces = vec![file_namespace(1, MIB)];
    let mut rig = Rig::new(config);
    let (admin, queue) = rig.controller(0);
    (rig, admin, queue)
}

/// A flush that reaches the disk; its status.
fn flush(rig: &mut Rig, queue: ConnId, result: Result<u32, SystemError>) -> Status {
    let cid = rig.start(queue, io::flush(1), 0);
    assert!(rig.poll(queue, cid).is_none(), "not before the disk");
    rig.finish_disk(result);
    rig.poll(queue, cid).expect("answered when the disk is done").status
}

/// Lets the time pass after which a host that sends a command has heard what it was told.
fn hear(rig: &mut Rig, admin: ConnId) {
    rig.advance(ms(HEARD_MS));
    rig.csts(admin);
}

fn leave(rig: &mut Rig, (admin, queue): (ConnId, ConnId)) {
    rig.hang_up(queue);
    rig.hang_up(admin);
}

/// A controller of another host, enabled, with one I/O queue.
fn stranger(rig: &mut Rig) -> (ConnId, ConnId) {
    let connect = |rig: &mut Rig, qid, cntlid| {
        let conn = rig.open(0);
        let command = ConnectCommand { qid, sqsize: 31, disable_sq_flow: true, kato_ms: 0 };
        let (hostid, hostnqn) = (Uuid([9; 16]), nqn(OTHER_HOST));
        let data = ConnectData { hostid, hostnqn, ..connect_data(cntlid, SUBSYSTEM) };
        let done = rig.connect_with(conn, command, &data.to_bytes());
        assert_eq!(done.status, Status::SUCCESS);
        (conn, u16::try_from(done.result & 0xffff).expect("an identifier"))
    };
    let (admin, cntlid) = connect(rig, 0, 0xffff);
    assert_eq!(rig.set_cc(admin, Cc::ENABLE).status, Status::SUCCESS);
    (admin, connect(rig, 1, cntlid).0)
}

/// Months later, on a disk that was mended long ago, too.
#[test]
fn who_has_heard_of_a_failed_flush_is_not_told_again_when_it_comes_back() {
    // The controller that was told is still there, or is not.
    for stays in [true, false] {
        let (mut rig, admin, queue) = rig();
        assert_eq!(flush(&mut rig, queue, Err(SystemError::IO)), FAULT);
        hear(&mut rig, admin);
        if !stays {
            leave(&mut rig, (admin, queue));
        }
        for _ in 0..3 {
            let late = rig.controller(1);
            assert_eq!(flush(&mut rig, late.1, Ok(0)), Status::SUCCESS, "{stays}");
            leave(&mut rig, late);
        }
        // The next failure is news again.
        let (_, failing) = rig.controller(0);
        assert_eq!(flush(&mut rig, failing, Err(SystemError::IO)), FAULT);
        let (_, late) = rig.controller(1);
        assert_eq!(rig.run(late, io::flush(1), 0).status, FAULT, "{stays}");
        rig.assert_no_leak();
    }
}

/// Its answer may have been lost with the connection.
#[test]
fn who_leaves_right_after_it_was_told_of_a_failed_flush_is_told_again() {
    let (mut rig, admin, queue) = rig();
    assert_eq!(flush(&mut rig, queue, Err(SystemError::IO)), FAULT);
    rig.advance(ms(HEARD_MS - 1));
    rig.csts(admin);
    // Nothing more is heard of it.
    rig.advance(ms(HEARD_MS));
    leave(&mut rig, (admin, queue));
    let (admin, queue) = rig.controller(0);
    assert_eq!(rig.run(queue, io::flush(1), 0).status, FAULT);
    hear(&mut rig, admin);
    leave(&mut rig, (admin, queue));
    let (_, queue) = rig.controller(0);
    assert_eq!(flush(&mut rig, queue, Ok(0)), Status::SUCCESS);
    rig.assert_no_leak();
}

/// Nothing that it wrote can be lost. Once it was here that is another matter.
#[test]
fn who_first_comes_after_a_failed_flush_is_not_told_of_it() {
    let (mut rig, _, queue) = rig();
    assert_eq!(flush(&mut rig, queue, Err(SystemError::IO)), FAULT);
    let pair = stranger(&mut rig);
    assert_eq!(flush(&mut rig, pair.1, Ok(0)), Status::SUCCESS);
    leave(&mut rig, pair);
    let pair = stranger(&mut rig);
    assert_eq!(flush(&mut rig, pair.1, Ok(0)), Status::SUCCESS, "when it is back neither");
    assert_eq!(flush(&mut rig, queue, Err(SystemError::IO)), FAULT);
    assert_eq!(rig.run(pair.1, io::flush(1), 0).status, FAULT);
    rig.assert_no_leak();
}

#[test]
fn a_host_that_was_away_is_told_once_of_a_flush_that_failed_meanwhile() {
    let (mut rig, _, queue) = rig();
    let pair = stranger(&mut rig);
    leave(&mut rig, pair);
    assert_eq!(flush(&mut rig, queue, Err(SystemError::IO)), FAULT);
    let (admin, late) = stranger(&mut rig);
    assert_eq!(rig.run(late, io::flush(1), 0).status, FAULT);
    assert_eq!(flush(&mut rig, late, Ok(0)), Status::SUCCESS);
    hear(&mut rig, admin);
    leave(&mut rig, (admin, late));
    let (_, late) = stranger(&mut rig);
    assert_eq!(flush(&mut rig, late, Ok(0)), Status::SUCCESS);
    rig.assert_no_leak();
}

/// Another controller of the same host may have acknowledged other writes.
#[test]
fn each_controller_is_told_of_a_failed_flush_though_its_host_has_heard() {
    let (mut rig, admin, queue) = rig();
    let (_, other) = rig.controller(1);
    assert_eq!(flush(&mut rig, queue, Err(SystemError::IO)), FAULT);
    hear(&mut rig, admin);
    assert_eq!(rig.run(other, io::flush(1), 0).status, FAULT);
    assert_eq!(flush(&mut rig, other, Ok(0)), Status::SUCCESS);
    rig.assert_no_leak();
}

/// What was to be written is still there, and the next flush has it.
#[test]
fn a_flush_that_the_disk_was_not_asked_for_has_lost_nothing() {
    let (mut rig, _, queue) = rig();
    let (_, other) = rig.controller(1);
    let again = flush(&mut rig, queue, Err(SystemError::AGAIN));
    assert_eq!(again, Status::COMMAND_INTERRUPTED, "it may be tried again");
    let lost = |e: &TargetEvent| matches!(e, TargetEvent::FlushFailed { .. });
    assert!(!rig.events.iter().any(lost), "{:?}", rig.events);
    for queue in [queue, other] {
        assert_eq!(flush(&mut rig, queue, Ok(0)), Status::SUCCESS);
    }
    // It does not stand in the way of what others have lost.
    let cid = rig.start(queue, io::flush(1), 0);
    let beside = rig.disk.pop_front().expect("a flush");
    assert_eq!(flush(&mut rig, other, Err(SystemError::IO)), FAULT);
    rig.disk.push_front(beside);
    rig.finish_disk(Err(SystemError::AGAIN));
    assert_eq!(rig.poll(queue, cid).expect("answered").status, FAULT);
    rig.assert_no_leak();
}

#[test]
fn a_flush_that_fails_while_its_namespace_goes_is_told() {
    for again in [false, true] {
        let (mut rig, _, queue) = rig();
        let cid = rig.start(queue, io::flush(1), 0);
        let subsystem = || nqn(SUBSYSTEM);
        rig.ok(TargetVerb::NamespaceRemove { subsystem: subsystem(), nsid: 1 });
        if again {
            let config = file_namespace(1, MIB);
            rig.ok(TargetVerb::NamespaceAdd { subsystem: subsystem(), config });
        }
        rig.events.clear();
        rig.finish_disk(Err(SystemError::IO));
        let told =
            TargetEvent::FlushFailed { subsystem: subsystem(), nsid: 1, error: SystemError::IO };
        assert_eq!(rig.events, [told]);
        assert!(!rig.poll(queue, cid).expect("answered").status.is_success());
        if again {
            assert_eq!(flush(&mut rig, queue, Ok(0)), Status::SUCCESS, "the new one lost nothing");
        }
        rig.assert_no_leak();
    }
}
