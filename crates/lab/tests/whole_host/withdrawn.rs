//! Requests whose user has lost whom they were for: nothing of them is sent any more.

use crate::rig::{MS, Rig, SECOND, Setup, reads, writes};
use crate::script::{Failure, Op};
use crate::setup;
use crate::wire::retry_delays;
use anabranch_host::user::IoError;
use anabranch_host::verb::Verb;
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::Status;
use anabranch_proto::nvme::opcode::io;
use anabranch_target::TargetVerb;
use std::ops::Range;

fn cut(rig: &mut Rig) {
    (0..2).for_each(|port| rig.target(TargetVerb::Cut { port }));
    rig.run(10 * MS);
}

fn restore(rig: &mut Rig) {
    (0..2).for_each(|port| rig.target(TargetVerb::Restore { port }));
    (0..2).for_each(|port| rig.wait_live(port));
}

/// Whether they were carried out or not is not told.
fn assert_withdrawn(rig: &mut Rig, names: &[u64]) {
    let withdrawn = Err(Failure::Io(IoError::Withdrawn));
    assert!(rig.answers(names).iter().all(|outcome| outcome.result == withdrawn));
}

/// A client lost patience while no path was there, came back on another worker, and was answered
/// newer writes to the same blocks: its old ones must not follow.
#[test]
fn what_waits_for_a_path_never_undoes_what_is_written_after_it_was_withdrawn() {
    let mut rig = Setup::new(2, 2).connect();
    rig.io(writes(40, 1));
    // Some are in flight when the paths go, some come when there is none.
    (0..2).for_each(|port| rig.target(TargetVerb::Stall { port }));
    let mut old = rig.submit(writes(20, 2));
    rig.run(MS);
    cut(&mut rig);
    old.extend(rig.submit((20..40).map(|lba| Op::Write { lba, blocks: 1, fill: 2 })));
    old.extend(rig.submit([Op::Discard { lba: 0, blocks: 40 }, Op::Flush]));
    rig.run(SECOND);
    rig.submit([Op::Withdraw]);
    rig.run(MS);
    assert_eq!(rig.answered(&old), old.len(), "nothing waits for a path any more");
    assert_withdrawn(&mut rig, &old);
    let new = rig.submit_to(2, "nvme0n1", writes(40, 3));
    restore(&mut rig);
    rig.succeed(&new);
    rig.run(SECOND);
    let reads = rig.io((0..40).map(|lba| Op::Read { lba, blocks: 1 }));
    assert!(reads.iter().all(|read| read.data.iter().all(|&byte| byte == 3)));
    assert_eq!(rig.head().errors, 0, "nobody was told of an error");
    rig.finish();
}

/// What a controller has is waited for; when its connection is lost it goes nowhere else.
#[test]
fn what_is_in_flight_ends_where_it_is() {
    let mut rig = Setup::new(2, 1).connect();
    rig.target(TargetVerb::Stall { port: 0 });
    rig.target(TargetVerb::Stall { port: 1 });
    let names = rig.submit(writes(20, 1));
    rig.run(MS);
    let sent = rig.sent(0) + rig.sent(1);
    rig.submit([Op::Withdraw]);
    rig.run(MS);
    assert_eq!(rig.answered(&names), 0);
    rig.target(TargetVerb::Cut { port: 0 });
    rig.target(TargetVerb::Restore { port: 1 });
    assert_withdrawn(&mut rig, &names);
    assert_eq!(rig.sent(0) + rig.sent(1), sent, "nothing was sent again");
    assert_eq!(rig.path(0).uncertain_writes_resent, 0, "and nothing counts as sent again");
    rig.finish();
}

/// Users let nobody begin until what may still change blocks has ended, on whichever worker.
#[test]
fn what_may_still_be_carried_out_is_counted_until_it_has_ended() {
    let mut rig = Setup::new(2, 2).connect();
    let any = |rig: &Rig| {
        let script = rig.world.host(WorkerId(1)).user();
        script.leftovers.as_ref().is_some_and(|leftovers| leftovers.any())
    };
    (0..2).for_each(|port| rig.target(TargetVerb::Stall { port }));
    let read = rig.submit(reads(4));
    rig.run(MS);
    rig.submit([Op::Withdraw]);
    assert!(!any(&rig), "who reads changes nothing");
    let ops = [Op::Discard { lba: 0, blocks: 1 }, Op::Zero { lba: 0, blocks: 1 }];
    let written = rig.submit_to(2, "nvme0n1", writes(2, 1).chain(ops));
    rig.run(MS);
    let twice = rig.submit_to(2, "nvme0n1", [Op::Withdraw, Op::Withdraw]);
    rig.run(MS);
    assert!(any(&rig), "another worker has seen it");
    assert_eq!(rig.answered(&written), 0);
    cut(&mut rig);
    assert_withdrawn(&mut rig, &written);
    assert!(!any(&rig));
    restore(&mut rig);
    rig.succeed(&twice);
    assert_withdrawn(&mut rig, &read);
    rig.finish();
}

/// Whichever worker is asked, it knows which blocks another one may still change.
#[test]
fn what_may_still_be_changed_is_known_until_it_has_ended() {
    let mut rig = Setup::new(2, 2).connect();
    (0..2).for_each(|port| rig.target(TargetVerb::Stall { port }));
    let left = rig.submit_to(2, "nvme0n1", writes(2, 1));
    rig.run(MS);
    let withdrawn = rig.submit_to(2, "nvme0n1", [Op::Withdraw]);
    rig.run(MS);
    let blocks: [Range<u64>; 3] = [1..2, 0..40, 2..40];
    let touched = |rig: &Rig| {
        let script = rig.world.host(WorkerId(2)).user();
        let leftovers = script.leftovers.as_ref().expect("something was withdrawn");
        blocks.each_ref().map(|blocks| leftovers.touch(blocks))
    };
    assert_eq!(touched(&rig), [true, true, false]);
    (0..2).for_each(|port| rig.target(TargetVerb::Restore { port }));
    assert_withdrawn(&mut rig, &left);
    assert_eq!(touched(&rig), [false; 3]);
    rig.succeed(&withdrawn);
    rig.finish();
}

/// Nor is it tried again when the controller says that it failed.
#[test]
fn what_fails_after_it_was_withdrawn_is_not_tried_again() {
    for status in [Status::INTERNAL_ERROR, Status::INTERNAL_PATH_ERROR] {
        let mut rig = Setup::new(2, 1).connect();
        rig.wire().rule(move |pdu| {
            if pdu.answers(io::WRITE) {
                pdu.answer(status);
            }
        });
        (0..2).for_each(|port| rig.target(TargetVerb::Stall { port }));
        let names = rig.submit(writes(4, 1));
        rig.run(MS);
        rig.submit([Op::Withdraw]);
        rig.run(MS);
        (0..2).for_each(|port| rig.target(TargetVerb::Restore { port }));
        assert_withdrawn(&mut rig, &names);
        rig.run(SECOND);
        assert_eq!(rig.sent(0) + rig.sent(1), 4, "{status}");
        rig.finish();
    }
}

/// Nor is the pause waited out that the controller asks for before it is tried again.
#[test]
fn what_fails_after_it_was_withdrawn_ends_with_its_answer() {
    let mut rig = Setup::new(1, 1).build();
    rig.wire().rule(retry_delays([100, 0, 0]));
    rig.connect(0);
    rig.wire().rule(|pdu| {
        if pdu.answers(io::WRITE) {
            pdu.answer(Status::NAMESPACE_NOT_READY.with_crd(1));
        }
    });
    rig.target(TargetVerb::Stall { port: 0 });
    let names = rig.submit(writes(4, 1));
    rig.run(MS);
    rig.submit([Op::Withdraw]);
    rig.run(MS);
    rig.target(TargetVerb::Restore { port: 0 });
    rig.run(10 * MS);
    assert_eq!(rig.answered(&names), 4, "nothing of them is with the controller any more");
    assert_withdrawn(&mut rig, &names);
    rig.finish();
}

/// Another user of the device, or of another one, does not notice.
#[test]
fn what_others_have_asked_for_goes_on() {
    let mut setup = Setup::new(1, 1);
    setup.options.queue_size = 16;
    setup.namespaces().push(setup::namespace(2, 512));
    let mut rig = setup.connect();
    rig.target(TargetVerb::Stall { port: 0 });
    let mut names = rig.submit(writes(20, 1));
    let others = rig.submit_to(1, "nvme0n2", writes(20, 1));
    rig.run(MS);
    rig.start(Verb::Freeze { device: "nvme0n1".into() });
    rig.run(MS);
    names.extend(rig.submit(writes(4, 2)));
    rig.run(MS);
    rig.submit([Op::WithdrawOdd]);
    rig.run(MS);
    rig.target(TargetVerb::Restore { port: 0 });
    rig.succeed(&others);
    rig.done(Verb::Unfreeze { device: "nvme0n1".into() });
    for (name, outcome) in names.iter().zip(rig.answers(&names)) {
        let theirs = Err(Failure::Io(IoError::Withdrawn));
        assert_eq!(outcome.result, if name % 2 == 1 { theirs } else { Ok(()) }, "{name}");
    }
    let reads = rig.io(reads(4));
    assert_eq!([0, 2].map(|lba: usize| reads[lba].data[0]), [2, 2], "what is answered is done");
    rig.finish();
}

/// What waited for a tag when its device was quiesced is not sent after that either, whichever
/// worker has it.
#[test]
fn what_a_quiesced_device_has_not_sent_ends_at_once() {
    for shared_queue in [false, true] {
        let mut setup = Setup::new(1, 2);
        setup.options.queue_size = 16;
        setup.host.shared_queue = shared_queue;
        let mut rig = setup.connect();
        rig.target(TargetVerb::Stall { port: 0 });
        let names = rig.submit_to(2, "nvme0n1", writes(40, 1));
        rig.run(MS);
        rig.start(Verb::Quiesce { device: "nvme0n1".into() });
        rig.run(MS);
        let sent = rig.sent(0);
        rig.submit_to(2, "nvme0n1", [Op::Withdraw]);
        rig.run(MS);
        assert_eq!((sent, rig.answered(&names)), (15, 25), "{shared_queue}");
        rig.done(Verb::Unquiesce { device: "nvme0n1".into() });
        rig.target(TargetVerb::Restore { port: 0 });
        assert_withdrawn(&mut rig, &names);
        assert_eq!(rig.sent(0), sent, "nothing more was sent");
        rig.finish();
    }
}

/// The same for what waits for a tag, for room in the command table, and on a frozen device.
#[test]
fn what_has_not_been_sent_ends_at_once() {
    let mut setup = Setup::new(1, 1);
    setup.options.queue_size = 16;
    let mut rig = setup.connect();
    rig.target(TargetVerb::Stall { port: 0 });
    let mut names = rig.submit(writes(40, 1));
    names.extend(rig.submit([Op::Write { lba: 0, blocks: 2048, fill: 1 }, Op::Flush]));
    rig.run(MS);
    rig.start(Verb::Freeze { device: "nvme0n1".into() });
    rig.run(MS);
    names.extend(rig.submit(writes(10, 2)));
    rig.run(MS);
    let sent = rig.sent(0);
    rig.submit([Op::Withdraw]);
    rig.run(MS);
    assert_eq!(rig.answered(&names), names.len() - sent);
    rig.target(TargetVerb::Restore { port: 0 });
    assert_withdrawn(&mut rig, &names);
    assert_eq!(rig.sent(0), sent, "nothing more was sent");
    rig.done(Verb::Unfreeze { device: "nvme0n1".into() });
    rig.io(writes(10, 3));
    rig.finish();
}

/// Of a long request some commands are with the controller, and others have not been made.
#[test]
fn a_request_that_is_partly_sent_ends_with_what_was_sent() {
    let mut setup = Setup::new(1, 1);
    setup.target.limits.max_transfer_bytes = 16 << 10;
    let mut rig = setup.connect();
    rig.target(TargetVerb::Stall { port: 0 });
    // 63 commands each: the table has room for 2048.
    let names = rig.submit((0..40).map(|n| Op::Write { lba: n, blocks: 2000, fill: 1 }));
    rig.run(MS);
    let sent = rig.sent(0);
    rig.submit([Op::Withdraw]);
    rig.run(MS);
    assert!(rig.answered(&names) < names.len(), "some were sent");
    rig.target(TargetVerb::Restore { port: 0 });
    assert_withdrawn(&mut rig, &names);
    assert_eq!(rig.sent(0), sent, "nothing more was sent");
    rig.finish();
}

/// A queue pair may be another worker's: what waits there for a tag is given back.
#[test]
fn what_another_worker_has_not_sent_ends_at_once() {
    let mut setup = Setup::new(1, 2);
    setup.options.queue_size = 16;
    setup.host.shared_queue = true;
    let mut rig = setup.connect();
    rig.target(TargetVerb::Stall { port: 0 });
    let theirs = rig.submit(writes(5, 1));
    rig.run(MS);
    let names = rig.submit_to(2, "nvme0n1", writes(40, 2));
    rig.run(MS);
    let sent = rig.sent(0);
    rig.submit_to(2, "nvme0n1", [Op::Withdraw]);
    rig.run(MS);
    assert_eq!(names.len() - rig.answered(&names), sent - theirs.len());
    rig.target(TargetVerb::Restore { port: 0 });
    assert_withdrawn(&mut rig, &names);
    rig.succeed(&theirs);
    assert_eq!(rig.sent(0), sent, "nothing more was sent");
    rig.io(writes(10, 3));
    rig.finish();
}
