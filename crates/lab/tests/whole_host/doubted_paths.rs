//! A worker meets a status that puts a path in doubt: who keeps off that path, and until when.

use crate::rig::{MS, Rig, SECOND, Setup, reads, writes};
use crate::script::Op;
use crate::setup;
use crate::wire::{Pdu, kind};
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::opcode::{admin, io};
use anabranch_proto::nvme::{AnaState, Nguid, Sqe, Status, Uuid};
use anabranch_target::TargetVerb;
use anabranch_target::config::NamespaceConfig;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The next write of a worker to the first port is answered so.
fn answer_once(rig: &Rig, worker: u16, status: Status) {
    let once = Cell::new(true);
    rig.wire().rule(move |pdu| {
        let theirs = pdu.port == 0 && pdu.worker == worker && pdu.answers(io::WRITE);
        if theirs && once.replace(false) {
            pdu.answer(status);
        }
    });
}

/// What control reads of the first controller comes only later.
fn stall_admin(rig: &mut Rig) {
    let admin = rig.world.stream(WorkerId(0), &setup::port(0)).expect("open");
    rig.world.stall_stream(admin, 500 * MS);
}

#[test]
fn what_one_worker_has_met_keeps_all_of_them_off_the_path() {
    for status in [Status::ANA_INACCESSIBLE, Status::INVALID_NAMESPACE.with_dnr()] {
        let mut rig = Setup::new(2, 2).connect();
        answer_once(&rig, 1, status);
        stall_admin(&mut rig);
        rig.io(writes(2, 1));
        rig.run(MS);
        let sent = rig.sent(0);
        for worker in 1..=2 {
            let names = rig.submit_to(worker, "nvme0n1", writes(10, 2));
            rig.succeed(&names);
        }
        assert_eq!(rig.sent(0), sent, "{status}: nobody goes there before control has looked");
        rig.run(SECOND);
        let names = rig.submit_to(2, "nvme0n1", writes(10, 3));
        rig.succeed(&names);
        assert!(rig.sent(0) > sent, "{status}: there is nothing wrong with it");
        rig.finish();
    }
}

/// What was told on a path that is out for another reason at that moment counts, too: when that
/// reason is gone, it is still to be looked at.
#[test]
fn a_path_that_is_out_already_is_put_in_doubt_as_well() {
    let mut rig = Setup::new(2, 1).connect();
    rig.run(2 * SECOND);
    let answers = [Status::ANA_INACCESSIBLE, Status::INVALID_NAMESPACE.with_dnr()];
    let answers = RefCell::new(answers.into_iter());
    rig.wire().rule(move |pdu| {
        if pdu.port == 0
            && pdu.answers(io::WRITE)
            && let Some(status) = answers.borrow_mut().next()
        {
            pdu.answer(status);
        }
    });
    let looks = |rig: &Rig| rig.seen(|pdu| pdu.port == 0 && pdu.is_admin(admin::IDENTIFY));
    let before = looks(&rig).len();
    rig.io(writes(4, 1));
    assert_eq!(rig.sent(0), 2, "one for each answer");
    rig.wait(SECOND, "use of the path", |rig| {
        let names = rig.submit(writes(2, 2));
        rig.succeed(&names);
        rig.sent(0) > 2
    });
    assert!(looks(&rig).len() > before, "it is used again and nobody has looked");
    rig.finish();
}

/// News of other paths come first; they do not bring this one back.
#[test]
fn the_worker_itself_keeps_off_the_path_before_control_knows() {
    for status in [Status::ANA_INACCESSIBLE, Status::INVALID_NAMESPACE.with_dnr()] {
        let mut setup = Setup::new(3, 1);
        setup.times.mail = (50 * MS, 50 * MS);
        let mut rig = setup.build();
        (0..3).for_each(|port| {
            rig.connect(port);
            rig.run(SECOND);
        });
        let other = rig.world.stream(WorkerId(1), &setup::port(2)).expect("open");
        answer_once(&rig, 1, status);
        rig.io(writes(3, 1));
        let sent = rig.sent(0);
        rig.world.break_stream(other);
        // What control says next, too, is from before.
        rig.ana(1, AnaState::NonOptimized);
        let names = rig.submit(writes(10, 2));
        rig.succeed(&names);
        assert_eq!(rig.sent(0), sent, "{status}");
        rig.run(5 * SECOND);
        rig.finish();
    }
}

/// A controller that has announced a change, and takes its time to say of what, refuses the
/// namespace of a device until then.
fn announced(ports: u16) -> (Rig, Rc<Cell<bool>>) {
    let mut setup = Setup::new(ports, 1);
    setup.namespaces().push(setup::namespace(2, 512));
    let mut rig = setup.connect();
    rig.run(2 * SECOND);
    let refuses = Rc::new(Cell::new(true));
    let (first, answer) = (Rc::clone(&refuses), Status::INVALID_NAMESPACE.with_dnr());
    rig.wire().rule(move |pdu| {
        if pdu.port == 0 && pdu.answers(io::WRITE) && first.get() {
            pdu.answer(answer);
        }
    });
    for port in 0..ports {
        let admin = rig.world.stream(WorkerId(0), &setup::port(port)).expect("open");
        rig.world.slow_stream(admin, 100 * MS);
    }
    rig.target(TargetVerb::NamespaceRemove { subsystem: setup::subsystem(), nsid: 2 });
    let asks = |pdu: &Pdu| pdu.port == 0 && pdu.is_admin(admin::GET_LOG_PAGE);
    let before = rig.seen(asks).len();
    rig.wait(SECOND, "reading of what has changed", |rig| rig.seen(asks).len() > before);
    (rig, refuses)
}

#[test]
fn a_path_is_in_doubt_though_its_controller_has_only_announced_a_change() {
    let (mut rig, refuses) = announced(2);
    for _ in 0..10 {
        rig.io(writes(1, 1));
    }
    assert_eq!((rig.sent(0), rig.sent(1)), (1, 10), "it was asked once");
    refuses.set(false);
    rig.wait(5 * SECOND, "use of the path", |rig| {
        rig.io(writes(2, 2));
        rig.sent(0) > 1
    });
    rig.finish();
}

#[test]
fn a_device_that_stays_without_a_path_waits_for_what_was_announced() {
    let (mut rig, refuses) = announced(1);
    rig.set("nvme0n1", "delayed_removal_secs", "60");
    let names = rig.submit(writes(4, 1).chain([Op::Flush]));
    rig.run(50 * MS);
    assert_eq!(rig.answered(&names), 0, "nobody has looked yet");
    refuses.set(false);
    rig.succeed(&names);
    rig.finish();
}

/// The first port has lost its namespace, and control does not hear of it yet: writes that meet
/// that, and are not answered.
fn meets_no_namespace(rig: &mut Rig) -> Vec<u64> {
    rig.wire().rule(|pdu| {
        if pdu.port == 0 && pdu.answers(io::WRITE) {
            pdu.answer(Status::INVALID_NAMESPACE.with_dnr());
        }
    });
    stall_admin(rig);
    let names = rig.submit(writes(10, 1));
    rig.run(50 * MS);
    assert_eq!(rig.answered(&names), 0);
    names
}

/// As where it moves from one node to another: what is sent meanwhile waits, like what comes when
/// the first one is known to have lost it.
#[test]
fn a_namespace_that_leaves_one_path_is_waited_for_where_there_is_no_access_yet() {
    let mut rig = Setup::new(2, 1).connect();
    rig.ana(1, AnaState::Inaccessible);
    rig.wait(SECOND, "end of access", |rig| rig.path(1).ana_state == AnaState::Inaccessible);
    let names = meets_no_namespace(&mut rig);
    assert_eq!(rig.sent(1), 0);
    rig.ana(1, AnaState::Optimized);
    rig.succeed(&names);
    assert_eq!(rig.sent(1), 10);
    rig.wire().clear_rules();
    rig.run(SECOND);
    rig.finish();
}

/// The same while the other node is not there at all, as long as it may come back.
#[test]
fn a_namespace_that_leaves_one_path_is_waited_for_while_another_one_connects_again() {
    let mut rig = Setup::new(2, 1).connect();
    rig.target(TargetVerb::Cut { port: 1 });
    rig.wait(SECOND, "loss of the path", |rig| !rig.is_live(1));
    let names = meets_no_namespace(&mut rig);
    let before = rig.sent(1);
    rig.target(TargetVerb::Restore { port: 1 });
    rig.succeed(&names);
    assert_eq!(rig.sent(1) - before, 10);
    rig.wire().clear_rules();
    rig.run(SECOND);
    rig.finish();
}

/// Behind the same NSID may be another namespace by now: what has not been sent is not sent there.
#[test]
fn what_waits_for_a_tag_leaves_a_path_that_another_worker_has_put_in_doubt() {
    let mut setup = Setup::new(2, 2);
    setup.options.queue_size = 16;
    let mut rig = setup.connect();
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.stall_stream(stream, 100 * MS);
    let names = rig.submit(writes(60, 1));
    rig.run(10 * MS);
    let to_first = |rig: &Rig| rig.seen(|p| p.is_io() && p.worker == 1 && p.port == 0).len();
    assert_eq!((to_first(&rig), rig.answered(&names)), (15, 30), "15 wait for a tag");
    answer_once(&rig, 2, Status::INVALID_NAMESPACE.with_dnr());
    stall_admin(&mut rig);
    let doubting = rig.submit_to(2, "nvme0n1", writes(2, 1));
    rig.succeed(&doubting);
    rig.succeed(&names);
    assert_eq!(to_first(&rig), 15, "those that waited went elsewhere");
    rig.run(SECOND);
    rig.finish();
}

/// The same for commands that another worker had sent on their way before it could know.
#[test]
fn what_is_carried_is_not_sent_on_a_path_that_its_carrier_has_put_in_doubt() {
    let mut setup = Setup::new(2, 2);
    setup.host.shared_queue = true;
    setup.times.mail = (50 * MS, 50 * MS);
    let mut rig = setup.build();
    (0..2).for_each(|port| {
        rig.connect(port);
        rig.run(SECOND);
    });
    let (first, others) = (rig.submit(writes(2, 1)), MS * 40);
    answer_once(&rig, 1, Status::INVALID_NAMESPACE.with_dnr());
    rig.run(others);
    let names = rig.submit_to(2, "nvme0n1", writes(10, 2));
    rig.succeed(&first);
    let sent = rig.sent(0);
    rig.succeed(&names);
    assert_eq!((sent, rig.sent(0)), (1, 1), "the ten arrive when the carrier knows, control not");
    rig.run(5 * SECOND);
    rig.finish();
}

/// Another namespace has taken the NSID: what a worker has sent on its way before it could know is
/// not for that one, though its carrier does not know the device any more.
#[test]
fn what_is_carried_for_a_device_that_has_gone_is_not_sent_to_the_next_one() {
    let mut setup = Setup::new(1, 2);
    setup.host.shared_queue = true;
    setup.times.mail = (50 * MS, 50 * MS);
    let mut rig = setup.build();
    rig.connect(0);
    rig.run(SECOND);
    // They arrive at their worker just before the news does, and at its carrier long after.
    let names = rig.submit_to(2, "nvme0n1", writes(10, 1));
    let subsystem = setup::subsystem();
    rig.target(TargetVerb::NamespaceRemove { subsystem: subsystem.clone(), nsid: 1 });
    let config = NamespaceConfig { uuid: Some(Uuid([9; 16])), ..setup::namespace(1, 512) };
    rig.target(TargetVerb::NamespaceAdd { subsystem, config });
    assert!(rig.answers(&names).iter().all(|outcome| outcome.result.is_err()));
    assert_eq!(rig.sent(0), 0, "no command to somebody else's blocks");
    rig.run(5 * SECOND);
    rig.finish();
}

/// Two namespaces have changed places: what one worker has made for the NSID that a device had
/// until then, and another one has not sent yet, would be for the other device.
#[test]
fn what_is_carried_is_not_sent_to_an_nsid_that_its_device_has_left() {
    let mut setup = Setup::new(1, 2);
    setup.options.queue_size = 16;
    setup.host.shared_queue = true;
    let namespace = |nsid, id| NamespaceConfig {
        uuid: Some(Uuid([id; 16])),
        nguid: Some(Nguid([id; 16])),
        ..setup::namespace(nsid, 512)
    };
    *setup.namespaces() = vec![namespace(1, 1), namespace(2, 2)];
    let mut rig = setup.connect();
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.stall_stream(stream, 500 * MS);
    let names = rig.submit_to(2, "nvme0n1", writes(40, 1));
    rig.run(MS);
    let sent = rig.sent(0);
    assert!((10..15).contains(&sent), "{sent}: the others wait for a tag");
    // Control sees what comes of it, and no step between.
    let admin = rig.world.stream(WorkerId(0), &setup::port(0)).expect("open");
    rig.world.stall_stream(admin, 100 * MS);
    for nsid in [1, 2] {
        rig.target(TargetVerb::NamespaceRemove { subsystem: setup::subsystem(), nsid });
    }
    for config in [namespace(2, 1), namespace(1, 2)] {
        rig.target(TargetVerb::NamespaceAdd { subsystem: setup::subsystem(), config });
    }
    rig.succeed(&names);
    let nsids: Vec<u32> = rig.seen(|pdu| pdu.is_io()).iter().map(nsid_of).collect();
    assert_eq!(nsids.len(), sent + 40);
    assert!(nsids[..sent].iter().all(|nsid| *nsid == 1), "{nsids:?}");
    assert_eq!(
        nsids[sent..],
        [2; 40],
        "where the device is now, those that met the other one, too"
    );
    rig.finish();
}

/// A path is silent while its NSID becomes another namespace's, and answers what it had then, well.
#[test]
fn a_success_of_a_path_that_may_lead_to_another_namespace_is_none() {
    for load in [reads(20).collect::<Vec<_>>(), writes(20, 1).collect()] {
        let mut rig = Setup::new(2, 1).connect();
        rig.run(2 * SECOND);
        for worker in [0, 1] {
            let stream = rig.world.stream(WorkerId(worker), &setup::port(1)).expect("open");
            rig.world.stall_stream(stream, 800 * MS);
        }
        let names = rig.submit(load);
        rig.run(100 * MS);
        let silent = rig.seen(|pdu| pdu.is_io() && pdu.port == 1).len();
        assert!(silent > 0 && rig.answered(&names) == 20 - silent, "{silent} on the silent path");
        let (subsystem, uuid) = (setup::subsystem(), Some(Uuid([9; 16])));
        rig.target(TargetVerb::NamespaceRemove { subsystem: subsystem.clone(), nsid: 1 });
        let config = NamespaceConfig { uuid, ..setup::namespace(1, 512) };
        rig.target(TargetVerb::NamespaceAdd { subsystem, config });
        let ended = rig.answers(&names);
        let well = ended.iter().filter(|outcome| outcome.result.is_ok()).count();
        assert_eq!(well, 20 - silent, "what the other namespace has answered is no success");
        rig.run(5 * SECOND);
        rig.finish();
    }
}

fn nsid_of(pdu: &Pdu) -> u32 {
    pdu.sqe.map_or(0, |sqe| sqe.nsid())
}

/// What may have changed is looked at once, however often they do not say what it was.
#[test]
fn controllers_that_do_not_say_what_has_changed_stop_reads_once() {
    let mut rig = Setup::new(2, 1).connect();
    rig.wire().rule(|pdu| {
        let list = |sqe: Sqe| sqe.opcode() == admin::GET_LOG_PAGE && sqe.cdw(10) & 0xff == 4;
        if pdu.worker == 0 && pdu.kind == kind::CAPSULE_RESP && pdu.sqe.is_some_and(list) {
            pdu.answer(Status::INTERNAL_ERROR);
        }
    });
    for port in 0..2 {
        let admin = rig.world.stream(WorkerId(0), &setup::port(port)).expect("open");
        rig.world.slow_stream(admin, 50 * MS);
    }
    let config = setup::namespace(7, 512);
    rig.target(TargetVerb::NamespaceAdd { subsystem: setup::subsystem(), config });
    let mut waited = 0;
    for _ in 0..400 {
        let begin = rig.now();
        rig.io(reads(1));
        waited += u32::from(rig.now().since(begin) > 20 * MS);
        rig.run(20 * MS);
    }
    assert_eq!(waited, 1);
    let logs = rig.seen(|pdu| pdu.sqe.is_some_and(|sqe| sqe.cdw(10) & 0xff == 4)).len();
    assert!(logs >= 8, "they were asked again: {logs}");
    rig.finish();
}
