//! What counts as a flush of a file that failed (fault F39).

use crate::common::*;
use anabranch_proto::machine::{ConnId, SystemError};
use anabranch_proto::nvme::Status;
use anabranch_proto::nvme::io;
use anabranch_target::{TargetEvent, TargetVerb};

const FAULT: Status = Status::WRITE_FAULT.with_dnr();

fn rig() -> (Rig, ConnId) {
    let mut config = config();
    config.subsystems[0].namespaces = vec![file_namespace(1, MIB)];
    let mut rig = Rig::new(config);
    let (_, queue) = rig.controller(0);
    (rig, queue)
}

/// A flush that reaches the disk; its status.
fn flush(rig: &mut Rig, queue: ConnId, result: Result<u32, SystemError>) -> Status {
    let cid = rig.start(queue, io::flush(1), 0);
    assert!(rig.poll(queue, cid).is_none(), "not before the disk");
    rig.finish_disk(result);
    rig.poll(queue, cid).expect("answered when the disk is done").status
}

/// What was to be written is still there, and the next flush has it.
#[test]
fn a_flush_that_the_disk_was_not_asked_for_has_lost_nothing() {
    let (mut rig, queue) = rig();
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
        let (mut rig, queue) = rig();
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
