//! What a command's status leads to: another path, the same path again, or the user.

use crate::rig::{MS, Rig, SECOND, Setup, reads, writes};
use crate::script::{Failure, Outcome};
use crate::wire::kind;
use anabranch_host::user::IoError;
use anabranch_proto::nvme::opcode::{admin, io};
use anabranch_proto::nvme::{AnaState, Status};
use anabranch_target::TargetVerb;
use std::cell::Cell;
use std::rc::Rc;

/// All answers to writes on a port say this from now on.
fn refuse_writes(rig: &Rig, port: u16, status: Status) {
    rig.wire().rule(move |pdu| {
        if pdu.port == port && pdu.answers(io::WRITE) {
            pdu.answer(status);
        }
    });
}

fn error(outcome: &Outcome) -> Status {
    match outcome.result {
        Err(Failure::Io(IoError::Status(status))) => status,
        other => panic!("{other:?}"),
    }
}

#[test]
fn m12_a_path_error_never_reaches_the_user_while_there_is_another_path() {
    let codes = [0x00, 0x01, 0x02, 0x03, 0x60, 0x70, 0x71, 0x7f];
    for status in codes.map(|code| Status::new(3, code)) {
        let mut rig = Setup::new(2, 1).connect();
        refuse_writes(&rig, 0, status);
        rig.io(writes(20, 1));
        assert!(rig.path(0).failovers > 0, "{status}: some went to the bad path first");
        assert_eq!(rig.path(0).commands[1], 0, "{status}");
        assert_eq!(rig.path(1).commands[1], 20, "{status}");
        assert_eq!(rig.path(0).retries, 0, "{status}: no retry on the same path");
        rig.finish();
    }
}

/// Many at once: whatever the policy's next turn would be, it is not the path that has just failed.
#[test]
fn m12_a_command_does_not_go_back_to_the_path_that_has_just_failed() {
    for policy in ["round-robin", "queue-depth", "numa", "service-time", "latency"] {
        let mut rig = Setup::new(2, 1).connect();
        rig.set("nvme-subsys0", "iopolicy", policy);
        refuse_writes(&rig, 0, Status::INTERNAL_PATH_ERROR);
        let start = rig.now();
        for outcome in rig.io(writes(64, 1)) {
            let took = outcome.at.since(start);
            assert!(took < 100 * MS, "{policy}: no pause while another path serves: {took:?}");
        }
        let sent = rig.sent(0) + rig.sent(1);
        assert!(sent <= 2 * 64, "{policy}: each at most once in vain: {sent}");
        rig.finish();
    }
}

#[test]
fn m12_a_path_error_with_dnr_is_the_users() {
    for code in [0x00, 0x02, 0x60, 0x71] {
        let mut rig = Setup::new(2, 1).connect();
        let status = Status::new(3, code).with_dnr();
        refuse_writes(&rig, 0, status);
        let names = rig.submit(writes(2, 1));
        let outcomes = rig.answers(&names);
        let failed: Vec<_> = outcomes.iter().filter(|outcome| outcome.result.is_err()).collect();
        assert_eq!(failed.len(), 1, "one of two went to the bad path");
        assert_eq!(error(failed[0]), status);
        assert_eq!((rig.sent(0), rig.sent(1)), (1, 1), "it was not sent again");
        rig.finish();
    }
}

#[test]
fn m12_path_errors_on_all_paths_are_waited_out_at_a_measured_pace() {
    let mut rig = Setup::new(2, 1).connect();
    refuse_writes(&rig, 0, Status::INTERNAL_PATH_ERROR);
    refuse_writes(&rig, 1, Status::INTERNAL_PATH_ERROR);
    let names = rig.submit(writes(1, 1));
    rig.run(10 * SECOND);
    assert_eq!(rig.answered(&names), 0);
    let tries = rig.sent(0) + rig.sent(1);
    assert!((20..=200).contains(&tries), "not given up and not in a spin: {tries}");
    rig.wire().clear_rules();
    rig.succeed(&names);
    rig.finish();
}

#[test]
fn m13_other_errors_are_retried_on_the_same_path_five_times() {
    for status in [Status::new(2, 0x80), Status::new(0, 0x82), Status::new(0, 0x06)] {
        let mut rig = Setup::new(2, 1).connect();
        refuse_writes(&rig, 0, status);
        refuse_writes(&rig, 1, status);
        let names = rig.submit(writes(1, 1));
        let outcomes = rig.answers(&names);
        assert_eq!(error(&outcomes[0]), status);
        let mut sent = [rig.sent(0), rig.sent(1)];
        sent.sort_unstable();
        assert_eq!(sent, [0, 6], "{status}: once and five retries, all on one path");
        let (first, second) = (rig.path(0), rig.path(1));
        assert_eq!(first.retries + second.retries, 5, "{status}");
        assert_eq!(first.failovers + second.failovers, 0, "{status}");
        rig.finish();
    }
}

/// What fails over is issued anew, as in Linux: what was tried in vain on the path that failed does
/// not count on the next one.
#[test]
fn m13_the_tries_on_a_path_that_fails_do_not_count_on_the_next_one() {
    let mut rig = Setup::new(2, 1).connect();
    let not_ready = Status::new(0, 0x82);
    let answers = Cell::new(0);
    // Five answers before the path fails; the next one takes as many to become ready.
    rig.wire().rule(move |pdu| {
        if pdu.answers(io::WRITE) {
            match answers.replace(answers.get() + 1) {
                4 => pdu.answer(Status::INTERNAL_PATH_ERROR),
                0..=8 => pdu.answer(not_ready),
                _ => {}
            }
        }
    });
    rig.io(writes(1, 1));
    assert_eq!((rig.sent(0), rig.sent(1)), (5, 5));
    rig.finish();
}

#[test]
fn a_transport_error_that_stays_is_a_matter_of_the_path() {
    let mut rig = Setup::new(2, 1).connect();
    refuse_writes(&rig, 0, Status::TRANSIENT_TRANSPORT_ERROR);
    rig.io(writes(20, 1));
    assert_eq!(rig.path(1).commands[1], 20, "all went well in the end, over the other path");
    let (failovers, retries) = (rig.path(0).failovers, rig.path(0).retries);
    assert!(failovers > 0, "some began on the bad path");
    assert_eq!(retries, 3 * failovers, "each was tried four times there");
    // On all paths it is the user's, and soon.
    refuse_writes(&rig, 1, Status::TRANSIENT_TRANSPORT_ERROR);
    let before = rig.sent(0) + rig.sent(1);
    let names = rig.submit(writes(1, 1));
    assert_eq!(error(&rig.answers(&names)[0]), Status::TRANSIENT_TRANSPORT_ERROR);
    assert_eq!(rig.sent(0) + rig.sent(1) - before, 6, "once and five times again");
    rig.finish();
}

/// A controller for which the device has become smaller, and nobody has looked yet: another one
/// serves. When all of them say so it is the user's.
/// It is sent to each of them in turn. The one that takes nothing is asked five times in all, and
/// then that is the answer.
#[test]
fn a_request_ends_where_one_path_says_path_errors_and_the_other_takes_nothing() {
    let mut rig = Setup::new(2, 1).connect();
    rig.io(writes(4, 1));
    rig.wire().rule(|pdu| {
        if pdu.is_io_answer() {
            let takes_nothing = Status::COMMAND_SEQUENCE_ERROR.with_dnr();
            pdu.answer([Status::INTERNAL_PATH_ERROR, takes_nothing][usize::from(pdu.port)]);
        }
    });
    let names = rig.submit(reads(1));
    rig.run(10 * SECOND);
    assert_eq!(rig.answered(&names), 1);
}

#[test]
fn blocks_that_one_path_does_not_have_are_asked_of_another() {
    for (mistaken, answers) in [(1, true), (2, false)] {
        let mut rig = Setup::new(2, 1).connect();
        rig.run(2 * SECOND);
        rig.wire().rule(move |pdu| {
            if pdu.port < mistaken && pdu.answers(io::WRITE) {
                pdu.answer(Status::LBA_OUT_OF_RANGE.with_dnr());
            }
        });
        let names = rig.submit(writes(20, 1));
        let outcomes = rig.answers(&names);
        let well = outcomes.iter().filter(|outcome| outcome.result.is_ok()).count();
        assert_eq!(well, if answers { 20 } else { 0 });
        assert!(rig.sent(0) + rig.sent(1) <= 40, "each at most once on each path");
        rig.wire().clear_rules();
        rig.run(2 * SECOND);
        rig.io(writes(20, 2));
        assert!(rig.path(0).usable && rig.path(1).usable, "both have been looked at");
        rig.finish();
    }
}

#[test]
fn m13_an_error_with_dnr_is_not_retried() {
    let mut rig = Setup::new(2, 1).connect();
    let status = Status::new(2, 0x80).with_dnr();
    refuse_writes(&rig, 0, status);
    refuse_writes(&rig, 1, status);
    let names = rig.submit(writes(4, 1));
    for outcome in rig.answers(&names) {
        assert_eq!(error(&outcome), status);
    }
    assert_eq!(rig.sent(0) + rig.sent(1), 4);
    rig.finish();
}

/// Who gets an error finds its cause in the log; a device that fails everything does not fill it.
#[test]
fn the_log_hears_why_requests_fail() {
    let mut rig = Setup::new(1, 1).connect();
    let told = |rig: &Rig| -> Vec<String> {
        let lines = rig.events().into_iter().map(|(_, text)| text);
        lines.filter(|text| text.contains(" failed: ")).collect()
    };
    refuse_writes(&rig, 0, Status::RESERVATION_CONFLICT.with_dnr());
    let names = rig.submit(writes(4, 1));
    rig.answers(&names);
    let first = told(&rig);
    assert_eq!(first.len(), 1, "{first:?}");
    assert!(first[0].starts_with("nvme0n1: write of 1 blocks at "), "{first:?}");
    assert!(first[0].ends_with("DNR, says nvme0"), "{first:?}");
    assert!(first[0].contains("Reservation Conflict"), "{first:?}");
    rig.run(2 * SECOND);
    let names = rig.submit(writes(1, 1));
    rig.answers(&names);
    let second = told(&rig);
    assert_eq!(second.len(), 2, "{second:?}");
    assert!(second[1].ends_with("says nvme0 (3 more before)"), "{second:?}");
    rig.finish();
}

#[test]
fn m13_a_retry_waits_as_long_as_crd_says_within_reason() {
    let mut setup = Setup::new(1, 1);
    setup.options.io_timeout = 3 * SECOND;
    let mut rig = setup.build();
    rig.wire().rule(crate::wire::retry_delays([2, 9, u16::MAX]));
    rig.connect(0);
    // The last one, nearly two hours, is cut down to what a command may take.
    for (crd, pause) in [(0, 0), (1, 200), (2, 900), (3, 3000)] {
        let left = Rc::new(Cell::new(2));
        rig.wire().rule(move |pdu| {
            if pdu.answers(io::WRITE) && left.get() > 0 {
                left.set(left.get() - 1);
                pdu.answer(Status::new(0, 0x06).with_crd(crd));
            }
        });
        let before = rig.sent(0);
        rig.io(writes(1, 1));
        let sent = rig.seen(|pdu| pdu.is_io());
        assert_eq!(sent.len(), before + 3, "two retries, then it goes well");
        for pair in sent[before..].windows(2) {
            let gap = pair[1].at.since(pair[0].at);
            assert!(gap >= pause * MS && gap < (pause + 2) * MS, "CRD {crd}: {gap:?}");
        }
    }
    rig.finish();
}

#[test]
fn an_invalid_namespace_on_one_path_is_tried_on_another() {
    for status in [Status::INVALID_NAMESPACE, Status::INVALID_NAMESPACE.with_dnr()] {
        let mut rig = Setup::new(2, 1).connect();
        refuse_writes(&rig, 0, status);
        let scans = |rig: &Rig| rig.seen(|p| p.port == 0 && p.is_admin(admin::IDENTIFY)).len();
        let before = scans(&rig);
        rig.io(writes(10, 1));
        assert_eq!(rig.path(1).commands[1], 10);
        assert!(rig.path(0).failovers > 0, "what left the first path is counted there");
        rig.run(2 * SECOND);
        assert!(scans(&rig) > before, "the namespaces of that controller are looked at again");
        rig.finish();
    }
}

/// Paths that failed under a command before do not use up the tries of the one that is good.
#[test]
fn an_invalid_namespace_behind_path_errors_is_tried_on_another() {
    let mut rig = Setup::new(2, 1).connect();
    rig.run(2 * SECOND);
    let error = Status::INTERNAL_PATH_ERROR;
    let mut answers = [error, error, Status::INVALID_NAMESPACE.with_dnr()].into_iter();
    rig.wire().rule(move |pdu| {
        if pdu.answers(io::WRITE)
            && let Some(status) = answers.next()
        {
            pdu.answer(status);
        }
    });
    rig.io(writes(1, 1));
    assert_eq!((rig.sent(0), rig.sent(1)), (2, 2), "in turn");
    rig.finish();
}

#[test]
fn an_invalid_namespace_on_every_path_is_the_users() {
    let mut rig = Setup::new(2, 1).connect();
    let status = Status::INVALID_NAMESPACE.with_dnr();
    refuse_writes(&rig, 0, status);
    refuse_writes(&rig, 1, status);
    let names = rig.submit(writes(1, 1));
    assert_eq!(error(&rig.answers(&names)[0]), status);
    assert_eq!((rig.sent(0), rig.sent(1)), (1, 1), "it was tried on both");
    // The next one waits until the namespaces have been looked at. They are there, each time: it
    // is told the same in the end.
    let names = rig.submit(writes(1, 1));
    assert_eq!(error(&rig.answers(&names)[0]), status);
    assert!(rig.sent(0) + rig.sent(1) <= 2 + 2 * 6, "it was not tried for ever");
    rig.finish();
}

/// A path that is out by its ANA state may give access later. Until then the first one is looked
/// at, and tried again as often as anything is that nothing comes of.
#[test]
fn an_invalid_namespace_does_not_wait_for_ever_for_a_path_without_access() {
    let mut rig = Setup::new(2, 1).connect();
    rig.run(2 * SECOND);
    rig.ana(1, AnaState::Inaccessible);
    rig.run(10 * MS);
    let status = Status::INVALID_NAMESPACE.with_dnr();
    refuse_writes(&rig, 0, status);
    let names = rig.submit(writes(1, 1));
    rig.run(10 * MS);
    assert_eq!(rig.answered(&names), 0);
    assert_eq!(error(&rig.answers(&names)[0]), status);
    assert_eq!((rig.sent(0), rig.sent(1)), (6, 0));
    rig.finish();
}

/// As when one node of a cluster gives a namespace up and the other has yet to start: what comes
/// after these waits for that one, so these do, too.
#[test]
fn an_invalid_namespace_waits_for_another_controller_that_may_come_back() {
    let mut rig = Setup::new(2, 1).connect();
    rig.run(2 * SECOND);
    rig.target(TargetVerb::Cut { port: 1 });
    rig.wait(SECOND, "lost controller", |rig| !rig.is_live(1));
    refuse_writes(&rig, 0, Status::INVALID_NAMESPACE.with_dnr());
    rig.wire().rule(|pdu| {
        let lists = pdu.sqe.is_some_and(|it| it.opcode() == admin::IDENTIFY && it.cdw(10) == 2);
        if pdu.port == 0 && pdu.worker == 0 && pdu.kind == kind::C2H_DATA && lists {
            pdu.bytes[24..].fill(0);
        }
    });
    let names = rig.submit(writes(4, 1));
    rig.run(2 * SECOND);
    assert_eq!(rig.head().paths.len(), 1, "the first one has left");
    let later = rig.submit(writes(4, 1));
    rig.run(SECOND);
    assert_eq!((rig.answered(&names), rig.answered(&later)), (0, 0));
    rig.target(TargetVerb::Restore { port: 1 });
    rig.succeed(&names);
    rig.succeed(&later);
    rig.wire().clear_rules();
    rig.finish();
}

/// Whoever has a device kept without a path has asked for its I/O to wait.
#[test]
fn an_invalid_namespace_on_every_path_is_waited_for_where_the_device_is_kept() {
    for paths in [1, 2] {
        let mut rig = Setup::new(paths, 1).connect();
        rig.set("nvme0n1", "delayed_removal_secs", "60");
        let left = Rc::new(Cell::new(8));
        let refusals = left.clone();
        rig.wire().rule(move |pdu| {
            if pdu.answers(io::WRITE) && left.get() > 0 {
                left.set(left.get() - 1);
                pdu.answer(Status::INVALID_NAMESPACE.with_dnr());
            }
        });
        let names = rig.submit(writes(4, 1));
        rig.succeed(&names);
        // It is there at each look, and never for a command: it is not tried for ever.
        refusals.set(usize::MAX);
        let before = rig.seen(|pdu| pdu.is_io()).len();
        let names = rig.submit(writes(1, 1));
        assert_eq!(error(&rig.answers(&names)[0]), Status::INVALID_NAMESPACE.with_dnr());
        assert!(rig.seen(|pdu| pdu.is_io()).len() - before <= 2 * 6, "not for ever");
        refusals.set(0);
        rig.finish();
    }
}

/// A path that only waits to be looked at may still have the namespace.
#[test]
fn an_invalid_namespace_is_tried_on_a_path_that_is_looked_at_meanwhile() {
    let mut rig = Setup::new(2, 1).connect();
    rig.run(2 * SECOND);
    let left = Rc::new(Cell::new(2));
    rig.wire().rule(move |pdu| {
        if pdu.answers(io::WRITE) && left.get() > 0 {
            left.set(left.get() - 1);
            pdu.answer(Status::INVALID_NAMESPACE.with_dnr());
        }
    });
    // One on each path, at once: each meets a path that the other has cast doubt on.
    let names = rig.submit(writes(2, 1));
    rig.succeed(&names);
    rig.finish();
}

/// What waits for a tag when a namespace is not there has not been sent yet: nor is it before the
/// namespace was looked at, for it may be another one by then.
#[test]
fn what_waits_for_a_tag_is_not_sent_to_a_namespace_that_is_not_there() {
    let mut setup = Setup::new(1, 1);
    setup.options.queue_size = 16;
    let mut rig = setup.connect();
    rig.run(2 * SECOND);
    let left = Rc::new(Cell::new(1));
    rig.wire().rule(move |pdu| {
        if pdu.answers(io::WRITE) && left.get() > 0 {
            left.set(left.get() - 1);
            pdu.answer(Status::INVALID_NAMESPACE.with_dnr());
        }
    });
    let identified = |rig: &Rig| rig.seen(|pdu| pdu.is_admin(admin::IDENTIFY));
    let before = identified(&rig).len();
    let names = rig.submit(writes(40, 1));
    let outcomes = rig.answers(&names);
    assert_eq!(outcomes.iter().filter(|outcome| outcome.result.is_err()).count(), 1);
    let looks = identified(&rig);
    assert!(looks.len() > before, "it was looked at");
    let looked_at = looks.last().expect("just now").at;
    let sent = rig.seen(|pdu| pdu.is_io());
    assert_eq!(sent.len(), 40 + 14, "again what was answered well after that: by whom?");
    let early = sent.iter().filter(|pdu| pdu.at < looked_at).count();
    assert!(early < 16, "{early} were sent before it was looked at, more than there are tags");
    rig.finish();
}
