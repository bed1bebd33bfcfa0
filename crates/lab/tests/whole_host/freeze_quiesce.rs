//! Quiesce stops dispatch and leaves alone what is in flight; freeze drains; both nest.

use crate::rig::{MS, Rig, SECOND, Setup, writes};
use crate::setup;
use anabranch_host::verb::{Reply, Selection, Verb};
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::AnaState;

fn device() -> String {
    "nvme0n1".into()
}

/// Two data workers on one path whose answers take 100 ms.
fn slow(queue_size: u16) -> Rig {
    let mut setup = Setup::new(1, 2);
    setup.options.queue_size = queue_size;
    let mut rig = setup.connect();
    for worker in 1..=2 {
        let stream = rig.world.stream(WorkerId(worker), &setup::port(0)).expect("open");
        rig.world.slow_stream(stream, 50 * MS);
    }
    rig
}

fn submit(rig: &mut Rig, count: u64) -> Vec<u64> {
    (1..=2).flat_map(|worker| rig.submit_to(worker, "nvme0n1", writes(count, 1))).collect()
}

#[test]
fn b15_quiesce_leaves_alone_what_is_in_flight_and_nests() {
    let mut rig = slow(128);
    let first = submit(&mut rig, 8);
    rig.run(10 * MS);
    rig.done(Verb::Quiesce { device: device() });
    let second = submit(&mut rig, 8);
    rig.run(SECOND);
    assert_eq!(rig.answered(&first), 16, "in flight: answered");
    assert_eq!((rig.answered(&second), rig.sent(0)), (0, 16), "new: not even sent");
    rig.done(Verb::Quiesce { device: device() });
    rig.done(Verb::Unquiesce { device: device() });
    rig.run(SECOND);
    assert_eq!((rig.answered(&second), rig.sent(0)), (0, 16), "still quiesced once");
    rig.done(Verb::Unquiesce { device: device() });
    rig.succeed(&first);
    rig.succeed(&second);
    assert_eq!(rig.head().errors, 0);
    let told = rig.events().into_iter().filter(|(_, text)| text.contains("quiesced"));
    let told: Vec<String> = told.map(|(_, text)| text).collect();
    let expected = ["nvme0n1: quiesced: I/O waits until it is unquiesced", "nvme0n1: unquiesced"];
    assert_eq!(told, expected, "each once, however often");
    rig.finish();
}

#[test]
fn b15_once_quiesce_is_answered_nothing_more_is_sent() {
    let mut rig = slow(16);
    // 40 for each worker: 15 in flight (a queue of 16 entries), the others wait for a tag.
    let names = submit(&mut rig, 40);
    rig.run(10 * MS);
    assert_eq!(rig.sent(0), 30);
    rig.done(Verb::Quiesce { device: device() });
    let sent = rig.sent(0);
    rig.run(SECOND);
    assert_eq!((rig.sent(0), rig.answered(&names)), (sent, sent), "in flight ends, nothing starts");
    assert!(sent < names.len());
    rig.done(Verb::Unquiesce { device: device() });
    rig.succeed(&names);
    assert_eq!(rig.sent(0), names.len(), "each was sent once");
    rig.finish();
}

#[test]
fn b15_quiesce_is_answered_when_every_worker_has_stopped() {
    let mut setup = Setup::new(1, 3);
    setup.options.queue_size = 16;
    setup.host.max_requests = 512;
    // News of the stop reach the workers at very different times.
    setup.times.mail = (MS, 20 * MS);
    let mut rig = setup.connect();
    rig.run(SECOND);
    let mut names = Vec::new();
    for worker in 1..=3 {
        let stream = rig.world.stream(WorkerId(worker), &setup::port(0)).expect("open");
        rig.world.slow_stream(stream, MS);
        names.extend(rig.submit_to(worker, "nvme0n1", writes(500, 1)));
    }
    rig.run(40 * MS);
    rig.done(Verb::Quiesce { device: device() });
    // A batch may be on its way to the driver.
    rig.run(MS / 10);
    let sent = rig.sent(0);
    rig.run(SECOND);
    assert_eq!(rig.sent(0), sent);
    assert!(sent > 0 && sent < names.len(), "{sent} of {}", names.len());
    rig.done(Verb::Unquiesce { device: device() });
    rig.succeed(&names);
    rig.finish();
}

#[test]
fn b15_freeze_drains_and_nests() {
    let mut rig = slow(16);
    let first = submit(&mut rig, 40);
    rig.run(10 * MS);
    let frozen = rig.start(Verb::Freeze { device: device() });
    rig.run(MS);
    let second = submit(&mut rig, 8);
    while rig.world.take_host_reply(frozen).is_none() {
        assert_eq!(rig.answered(&second), 0);
        rig.run(MS / 10);
    }
    assert_eq!(rig.answered(&first), first.len(), "frozen means: all that was there is answered");
    let sent = rig.sent(0);
    rig.run(SECOND);
    assert_eq!((rig.answered(&second), rig.sent(0)), (0, sent));
    rig.done(Verb::Freeze { device: device() });
    rig.done(Verb::Unfreeze { device: device() });
    rig.run(SECOND);
    assert_eq!(rig.answered(&second), 0, "still frozen once");
    rig.done(Verb::Unfreeze { device: device() });
    rig.succeed(&second);
    let reply = rig.ask(Verb::Unfreeze { device: device() });
    assert!(matches!(reply, Reply::Error(_)), "not frozen that often: {reply:?}");
    rig.finish();
}

#[test]
fn b15_a_freeze_ends_through_a_failover() {
    let mut rig = Setup::new(2, 1).connect();
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.slow_stream(stream, 20 * SECOND);
    let names = rig.submit(writes(10, 1));
    rig.run(10 * MS);
    let frozen = rig.start(Verb::Freeze { device: device() });
    rig.run(10 * MS);
    assert!(rig.world.take_host_reply(frozen).is_none(), "half of them are in flight");
    rig.world.break_stream(stream);
    let reply = rig.world.host_answer(frozen, SECOND).expect("they move although it is frozen");
    assert!(matches!(reply, Reply::Done));
    rig.succeed(&names);
    rig.done(Verb::Unfreeze { device: device() });
    rig.wait_live(0);
    rig.finish();
}

/// A device that rests loses its last path: what it held is answered.
fn goes_while_it_rests(rest: Verb<crate::script::Batch>) {
    let mut rig = Setup::new(1, 1).connect();
    rig.done(rest);
    let names = rig.submit(writes(10, 1));
    rig.run(MS);
    let reply = rig.ask(Verb::Disconnect(Selection::All));
    assert!(matches!(reply, Reply::Disconnected(1)), "{reply:?}");
    assert!(rig.answers(&names).iter().all(|outcome| outcome.result.is_err()));
    rig.finish();
}

#[test]
fn b15_a_frozen_device_that_goes_answers_what_it_held() {
    goes_while_it_rests(Verb::Freeze { device: device() });
}

#[test]
fn b15_a_quiesced_device_that_goes_answers_what_it_held() {
    goes_while_it_rests(Verb::Quiesce { device: device() });
}

#[test]
fn b15_a_path_that_is_lost_while_quiesced_moves_its_commands_afterwards() {
    let mut setup = Setup::new(2, 1);
    setup.options.queue_size = 16;
    let mut rig = setup.connect();
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.slow_stream(stream, 20 * SECOND);
    let names = rig.submit(writes(60, 1));
    rig.run(10 * MS);
    rig.done(Verb::Quiesce { device: device() });
    assert_eq!((rig.sent(0), rig.answered(&names)), (15, 30));
    rig.world.break_stream(stream);
    rig.run(SECOND);
    assert_eq!((rig.sent(0) + rig.sent(1), rig.answered(&names)), (45, 30), "they wait");
    rig.done(Verb::Unquiesce { device: device() });
    rig.succeed(&names);
    rig.wait_live(0);
    rig.finish();
}

#[test]
fn b15_shutdown_of_a_frozen_device_is_bounded_and_answers_what_it_held() {
    let mut rig = Setup::new(1, 1).connect();
    rig.done(Verb::Freeze { device: device() });
    let names = rig.submit(writes(10, 1));
    rig.run(MS);
    let reply = rig.ask(Verb::Shutdown);
    assert!(matches!(reply, Reply::ShutDown { unanswered: 10 }), "{reply:?}");
    assert!(rig.answers(&names).iter().all(|outcome| outcome.result.is_err()));
    rig.run(SECOND);
    assert_eq!(rig.world.host_buffers(), 0);
}

#[test]
fn b14_events_are_heard_while_the_device_is_frozen() {
    let mut rig = Setup::new(2, 1).connect();
    rig.done(Verb::Freeze { device: device() });
    rig.ana(0, AnaState::NonOptimized);
    rig.wait(10 * MS, "news of the state", |rig| rig.path(0).ana_state == AnaState::NonOptimized);
    rig.done(Verb::Unfreeze { device: device() });
    rig.run(MS);
    rig.io(writes(10, 1));
    assert_eq!((rig.sent(0), rig.sent(1)), (0, 10));
    rig.finish();
}
