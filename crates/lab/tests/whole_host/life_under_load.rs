//! Controllers are reset, added, removed and shut down while I/O runs.

use crate::rig::{MS, Rig, SECOND, Setup, writes};
use crate::script::Op;
use crate::setup;
use crate::wire::Pdu;
use anabranch_host::verb::{Reply, Selection, Verb};
use anabranch_proto::machine::{Time, VerbId, WorkerId};
use anabranch_proto::nvme::opcode::admin;
use anabranch_proto::nvme::{AnaState, Sqe};
use anabranch_target::TargetVerb;
use anabranch_target::link::Large;

/// Requests on both workers; some of them are under way when this returns.
fn load(rig: &mut Rig) -> Vec<u64> {
    let names = (1..=2).flat_map(|w| rig.submit_to(w, "nvme0n1", writes(64, 1))).collect();
    rig.run(MS / 25);
    names
}

#[test]
fn a_reset_of_every_controller_in_turn_loses_nothing() {
    let mut rig = Setup::new(2, 2).connect();
    let mut names = Vec::new();
    for controller in ["nvme0", "nvme1", "nvme0"] {
        names.extend(load(&mut rig));
        rig.done(Verb::Reset { controller: controller.into() });
        names.extend(load(&mut rig));
    }
    rig.succeed(&names);
    assert_eq!(rig.get("nvme0", "reset_count"), "2");
    rig.finish();
}

/// The controller is well: nobody has to guess what became of a write.
#[test]
fn a_reset_on_request_leaves_no_write_uncertain() {
    let mut setup = Setup::new(2, 2);
    setup.target.ports[0].shape.delay = MS * 20;
    let mut rig = setup.connect();
    let names = load(&mut rig);
    rig.run(MS);
    assert!(rig.path(0).in_flight > 0);
    rig.done(Verb::Reset { controller: "nvme0".into() });
    rig.succeed(&names);
    let path = rig.path(0);
    assert_eq!((path.failovers, path.uncertain_writes_resent), (0, 0));
    assert_eq!(rig.get("nvme0", "reset_count"), "1");
    rig.finish();
}

/// When the controller of a port was told to shut down.
fn told_to_shut_down(rig: &Rig, port: u16) -> Option<Time> {
    let shutdown = |sqe: Sqe| {
        sqe.is_fabrics() && sqe.fctype() == 0 && sqe.cdw(11) == 0x14 && sqe.cdw(12) & 0xc000 != 0
    };
    let told = rig.seen(|pdu| pdu.worker == 0 && pdu.port == port && pdu.to_target);
    told.iter().find(|pdu| pdu.sqe.is_some_and(shutdown)).map(|pdu| pdu.at)
}

/// The I/O of one worker is not answered, the controller is. What is sent elsewhere follows only
/// when it has said that it works on nothing any more.
fn uncertain_writes_follow_the_shutdown(let_go: impl Fn(&mut Rig) -> Option<VerbId>) {
    let mut setup = Setup::new(2, 1);
    setup.target.limits.ana_transition_s = 2;
    setup.options.keep_alive_tmo = 5 * SECOND;
    let mut rig = setup.connect();
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.silence_stream(stream);
    let names = rig.submit(writes(20, 1));
    rig.run(MS * 10);
    assert_eq!(rig.answered(&names), 10);
    let before = rig.sent(1);
    let asked = let_go(&mut rig);
    rig.succeed(&names);
    if let Some(asked) = asked {
        rig.world.host_answer(asked, SECOND).expect("it is answered");
    }
    let told = told_to_shut_down(&rig, 0).expect("it was told");
    let again = &rig.seen(|pdu: &Pdu| pdu.is_io() && pdu.port == 1)[before..];
    assert_eq!(again.len(), 10);
    assert!(again.iter().all(|pdu| pdu.at > told));
    rig.finish();
}

#[test]
fn what_a_reset_on_request_leaves_uncertain_follows_the_shutdown() {
    uncertain_writes_follow_the_shutdown(|rig| {
        Some(rig.start(Verb::Reset { controller: "nvme0".into() }))
    });
}

/// It answers, and cannot go on: what is reset without anybody's request is told so, too.
#[test]
fn what_a_reset_by_the_host_leaves_uncertain_follows_the_shutdown() {
    uncertain_writes_follow_the_shutdown(|rig| {
        rig.ana(0, AnaState::Change);
        rig.run(4 * SECOND + 100 * MS);
        rig.ana(0, AnaState::Optimized);
        None
    });
    // What asks for it names something that there is not: an opcode, a log page, a structure.
    let garbles = |opcode, at: usize| {
        move |pdu: &mut Pdu| {
            if pdu.port == 0 && pdu.is_admin(opcode) {
                pdu.bytes[8 + at] = 0xee;
            }
        }
    };
    uncertain_writes_follow_the_shutdown(|rig| {
        rig.wire().rule(garbles(admin::KEEP_ALIVE, 0));
        None
    });
    uncertain_writes_follow_the_shutdown(|rig| {
        rig.wire().rule(garbles(admin::GET_LOG_PAGE, 40));
        rig.ana(0, AnaState::NonOptimized);
        None
    });
    uncertain_writes_follow_the_shutdown(|rig| {
        rig.wire().rule(garbles(admin::IDENTIFY, 40));
        let subsystem = setup::subsystem();
        rig.target(TargetVerb::NamespaceResize { subsystem, nsid: 1, bytes: 2 << 20 });
        None
    });
}

/// It does not answer one command of control, and works all the same.
#[test]
fn what_a_late_admin_command_leaves_uncertain_follows_the_shutdown() {
    let mut setup = Setup::new(2, 2);
    setup.options.admin_timeout = 2 * SECOND;
    let mut rig = setup.connect();
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.silence_stream(stream);
    let names = rig.submit_to(1, "nvme0n1", writes(20, 1));
    rig.run(MS * 10);
    assert_eq!(rig.answered(&names), 10);
    rig.wire().rule(|pdu| {
        if pdu.port == 0 && pdu.is_admin(admin::IDENTIFY) {
            pdu.bytes.clear();
        }
    });
    rig.start(Verb::IdNs { device: "nvme0n1".into() });
    let end = rig.now().after(3 * SECOND);
    while told_to_shut_down(&rig, 0).is_none() && rig.now() < end {
        let others = rig.submit_to(2, "nvme0n1", writes(2, 2));
        rig.succeed(&others);
        rig.run(MS * 10);
    }
    let told = told_to_shut_down(&rig, 0).expect("it was told");
    assert_eq!(rig.answered(&names), 10);
    rig.wire().clear_rules();
    rig.succeed(&names);
    assert!(rig.get("nvme0", "last_error").contains("asked for by hand"));
    let again = |pdu: &Pdu| pdu.is_io() && pdu.port == 1 && pdu.worker == 1 && pdu.at > told;
    assert_eq!(rig.seen(again).len(), 10);
    rig.finish();
}

/// One of its queue pairs is lost. The others go with it, but not what the controller has of them.
#[test]
fn what_other_queue_pairs_have_is_answered_when_one_is_lost() {
    let mut setup = Setup::new(2, 2);
    setup.target.ports[0].shape.delay = MS * 20;
    let mut rig = setup.connect();
    let names = load(&mut rig);
    rig.run(MS);
    let stream = rig.world.stream(WorkerId(2), &setup::port(0)).expect("open");
    rig.world.break_stream(stream);
    rig.succeed(&names);
    assert_eq!(rig.path(0).uncertain_writes_resent, 32, "of 64, half of them of worker 1");
    assert_eq!(rig.get("nvme0", "reset_count"), "1");
    rig.wait_live(0);
    rig.finish();
}

/// What has a tag there, or waits for one, and has not left: it goes elsewhere at once, and nothing
/// more is sent to who was told to shut down.
#[test]
fn what_other_queue_pairs_have_not_sent_does_not_wait_when_one_is_lost() {
    let mut setup = Setup::new(2, 2);
    setup.options.queue_size = 16;
    let mut rig = setup.connect();
    let [silent, lost] =
        [1, 2].map(|worker| rig.world.stream(WorkerId(worker), &setup::port(0)).expect("open"));
    rig.world.silence_stream(silent);
    let names = rig.submit_to(1, "nvme0n1", writes(60, 1));
    rig.run(10 * MS);
    assert_eq!(rig.answered(&names), 30);
    let sent = rig.sent(0);
    assert_eq!(sent, 15);
    rig.world.break_stream(lost);
    rig.run(10 * MS);
    assert_eq!(rig.answered(&names), 45, "15 wait for what becomes of them");
    rig.succeed(&names);
    assert_eq!(rig.sent(0), sent);
    assert_eq!(rig.path(0).uncertain_writes_resent, 15);
    rig.wait_live(0);
    rig.finish();
}

#[test]
fn what_a_removal_leaves_uncertain_follows_the_shutdown() {
    let selection = || Selection::Controller("nvme0".into());
    uncertain_writes_follow_the_shutdown(|rig| Some(rig.start(Verb::Disconnect(selection()))));
}

/// What reaches the controller only when it was told to shut down is not refused for good: it goes
/// elsewhere.
#[test]
fn writes_that_come_too_late_for_a_controller_that_shuts_down_do_not_fail() {
    let mut setup = Setup::new(2, 1);
    let delay = SECOND + MS / 5;
    setup.target.ports[0].shape.large = Some(Large { bytes: 16 << 10, delay });
    let mut rig = setup.connect();
    let mut names = Vec::new();
    for turn in 0..60 {
        let lba = turn * 32;
        names.extend(rig.submit([Op::Write { lba, blocks: 32, fill: 7 }]));
        rig.run(MS / 100);
    }
    let _reset = rig.start(Verb::Reset { controller: "nvme0".into() });
    rig.run(SECOND * 3);
    rig.succeed(&names);
    let told = told_to_shut_down(&rig, 0).expect("it was told");
    let answered = rig.seen(|pdu| !pdu.to_target && pdu.port == 0 && pdu.worker == 1);
    assert!(answered.iter().any(|pdu| pdu.at > told), "some came too late");
    rig.finish();
}

/// What is in flight ends there; what comes meanwhile goes elsewhere, whoever sends it.
#[test]
fn a_controller_that_is_about_to_be_reset_gets_nothing_new() {
    for shared_queue in [false, true] {
        let mut setup = Setup::new(2, 2);
        setup.host.shared_queue = shared_queue;
        let mut rig = setup.connect();
        let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
        rig.world.stall_stream(stream, MS * 500);
        let mut names = rig.submit(writes(2, 1));
        rig.run(MS);
        let sent = rig.sent(0);
        rig.start(Verb::Reset { controller: "nvme0".into() });
        rig.run(MS * 10);
        for worker in 1..=2 {
            names.extend(rig.submit_to(worker, "nvme0n1", writes(10, 2)));
        }
        rig.run(MS * 100);
        assert_eq!((rig.sent(0), rig.answered(&names)), (sent, 21), "{shared_queue}");
        rig.succeed(&names);
        assert_eq!(rig.path(0).uncertain_writes_resent, 0);
        rig.wait_live(0);
        rig.finish();
    }
}

/// One that does not answer is reset all the same, and soon.
#[test]
fn a_reset_on_request_does_not_wait_for_a_controller_that_is_silent() {
    let mut rig = Setup::new(2, 2).connect();
    rig.target(TargetVerb::Stall { port: 0 });
    let names = load(&mut rig);
    rig.run(MS * 10);
    let start = rig.now();
    rig.start(Verb::Reset { controller: "nvme0".into() });
    rig.succeed(&names);
    assert!(rig.now().since(start) < MS * 2100);
    assert!(rig.path(0).uncertain_writes_resent > 0);
    rig.target(TargetVerb::Restore { port: 0 });
    rig.wait_live(0);
    rig.finish();
}

#[test]
fn a_reset_of_the_only_controller_loses_nothing() {
    let mut rig = Setup::new(1, 2).connect();
    let mut names = load(&mut rig);
    let reset = rig.start(Verb::Reset { controller: "nvme0".into() });
    names.extend(load(&mut rig));
    let reply = rig.world.host_answer(reset, SECOND).expect("it comes back at once");
    assert!(matches!(reply, Reply::Done), "{reply:?}");
    rig.succeed(&names);
    rig.finish();
}

#[test]
fn a_path_that_joins_under_load_takes_its_share() {
    let mut rig = Setup::new(2, 2).build();
    rig.connect(0);
    let mut names = load(&mut rig);
    rig.connect(1);
    names.extend(load(&mut rig));
    rig.succeed(&names);
    assert!(rig.sent(1) >= 60, "{} of the last 128", rig.sent(1));
    assert_eq!(rig.snapshot().subsystems[0].heads.len(), 1);
    rig.finish();
}

#[test]
fn a_path_that_is_removed_under_load_loses_nothing_and_moves_nothing() {
    let mut rig = Setup::new(2, 2).connect();
    let mut names = load(&mut rig);
    let gone = rig.start(Verb::Disconnect(Selection::Controller("nvme0".into())));
    names.extend(load(&mut rig));
    let reply = rig.world.host_answer(gone, 10 * SECOND).expect("it goes");
    assert!(matches!(reply, Reply::Disconnected(1)), "{reply:?}");
    rig.succeed(&names);
    assert_eq!(rig.seen(Pdu::is_io).len(), names.len(), "drained: each was sent once");
    rig.finish();
}

#[test]
fn the_last_path_removed_under_load_answers_everything() {
    let mut rig = Setup::new(1, 2).connect();
    let mut names = load(&mut rig);
    let gone = rig.start(Verb::Disconnect(Selection::All));
    names.extend(load(&mut rig));
    let reply = rig.world.host_answer(gone, 10 * SECOND).expect("it goes");
    assert!(matches!(reply, Reply::Disconnected(1)), "{reply:?}");
    let outcomes = rig.answers(&names);
    assert!(outcomes.iter().any(|outcome| outcome.result.is_ok()));
    assert!(outcomes.iter().any(|outcome| outcome.result.is_err()), "what came too late fails");
    rig.finish();
}

#[test]
fn shutdown_under_load_answers_what_it_took() {
    let mut rig = Setup::new(2, 2).connect();
    let names = load(&mut rig);
    let reply = rig.ask(Verb::Shutdown);
    assert!(matches!(reply, Reply::ShutDown { unanswered: 0 }), "{reply:?}");
    rig.succeed(&names);
    assert!(rig.snapshot().subsystems.is_empty());
}

#[test]
fn shutdown_counts_what_it_could_not_answer_in_time() {
    let mut setup = Setup::new(1, 1);
    setup.host.shutdown_timeout = SECOND;
    let mut rig = setup.connect();
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.silence_stream(stream);
    let names = rig.submit(writes(7, 1));
    rig.run(MS);
    let begin = rig.now();
    let reply = rig.ask(Verb::Shutdown);
    assert!(matches!(reply, Reply::ShutDown { unanswered: 7 }), "{reply:?}");
    let took = rig.now().since(begin);
    assert!(took < 4 * SECOND, "{took:?}");
    rig.run(SECOND);
    assert!(rig.answers(&names).iter().all(|outcome| outcome.result.is_err()));
    assert_eq!(rig.world.host_buffers(), 0);
}

#[test]
fn a_new_io_timeout_holds_for_commands_in_flight() {
    let mut rig = Setup::new(2, 1).connect();
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.silence_stream(stream);
    let names = rig.submit(writes(4, 1));
    rig.run(2 * SECOND);
    assert_eq!(rig.answered(&names), 2, "30 s by default");
    rig.set("nvme0", "io_timeout", "3000");
    let begin = rig.now();
    let last = rig.succeed(&names).iter().map(|outcome| outcome.at).max().expect("some");
    assert!(last.since(begin) < 1100 * MS, "{:?}", last.since(begin));
    rig.wait_live(0);
    rig.finish();
}
