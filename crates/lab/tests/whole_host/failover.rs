//! A path is lost: when that is noticed, and what becomes of its commands.

use crate::rig::{MS, Rig, SECOND, Setup, reads, writes};
use crate::script::Op;
use crate::setup;
use anabranch_host::verb::Verb;
use anabranch_policy::Policy;
use anabranch_proto::machine::{Time, WorkerId};
use anabranch_proto::nvme::AnaState;
use std::time::Duration;

/// Two ports; what worker 1 sends to the first one swallows a stream without a word.
fn silenced(setup: Setup) -> (Rig, Time) {
    let mut rig = setup.connect();
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.silence_stream(stream);
    let at = rig.now();
    (rig, at)
}

/// When the answers came, counted from a moment.
fn waits(rig: &mut Rig, names: &[u64], since: Time) -> Vec<Duration> {
    rig.succeed(names).iter().map(|outcome| outcome.at.since(since)).collect()
}

#[test]
fn b10_a_reset_moves_the_io_at_once() {
    let mut rig = Setup::new(2, 1).connect();
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.slow_stream(stream, 10 * SECOND);
    let names = rig.submit(writes(10, 1));
    rig.run(10 * MS);
    assert_eq!(rig.answered(&names), 5);
    let begin = rig.now();
    rig.world.break_stream(stream);
    let waits = waits(&mut rig, &names, begin);
    assert!(waits.iter().all(|&wait| wait < 2 * MS), "{waits:?}");
    assert_eq!(rig.path(0).failovers, 5);
    assert_eq!(rig.path(0).uncertain_writes_resent, 5, "counted, as long as they are sent at once");
    rig.wait_live(0);
    rig.finish();
}

#[test]
fn b10_silence_with_io_is_noticed_by_io_timeout() {
    let mut setup = Setup::new(2, 1);
    setup.options.io_timeout = 2 * SECOND;
    let (mut rig, begin) = silenced(setup);
    let names = rig.submit(writes(10, 1));
    rig.run(10 * MS);
    assert_eq!(rig.answered(&names), 5, "the other path goes on");
    let waits = waits(&mut rig, &names, begin);
    let late: Vec<_> = waits.iter().filter(|&&wait| wait > 10 * MS).collect();
    assert_eq!(late.len(), 5);
    for wait in late {
        assert!(*wait >= 2 * SECOND && *wait < 2 * SECOND + 10 * MS, "{wait:?}");
    }
    assert!(
        rig.event(begin, "nvme0: live -> resetting").is_some(),
        "the controller goes as a whole"
    );
    assert!(rig.event(begin, "nvme1: live").is_none());
    rig.wait_live(0);
    rig.finish();
}

#[test]
fn b10_a_healthy_path_is_not_held_up_by_a_silent_one() {
    let mut setup = Setup::new(2, 1);
    setup.options.io_timeout = 2 * SECOND;
    setup.host.default_policy = Policy::QueueDepth;
    let (mut rig, _) = silenced(setup);
    let stuck = rig.submit(writes(2, 1));
    rig.run(MS);
    assert_eq!(rig.answered(&stuck), 1);
    for round in 0..100 {
        let begin = rig.now();
        let names = rig.submit(writes(1, round));
        let waits = waits(&mut rig, &names, begin);
        assert!(waits[0] < MS, "round {round}: {waits:?}");
    }
    assert!(rig.now() < Time::ZERO.after(2 * SECOND), "all of that before the time-out");
    rig.succeed(&stuck);
    rig.wait_live(0);
    rig.finish();
}

#[test]
fn b10_silence_without_io_is_noticed_by_keep_alive() {
    let mut setup = Setup::new(2, 1);
    setup.options.keep_alive_tmo = 5 * SECOND;
    let (mut rig, begin) = silenced(setup);
    let admin = rig.world.stream(WorkerId(0), &setup::port(0)).expect("open");
    rig.world.silence_stream(admin);
    rig.run(20 * SECOND);
    let noticed = rig.event(begin, "nvme0: live -> resetting").expect("noticed").since(begin);
    assert!(noticed <= 5 * SECOND + 100 * MS, "within KATO: {noticed:?}");
    assert!(rig.is_live(0), "and back long since");
    rig.io(reads(10));
    rig.finish();
}

#[test]
fn what_was_never_sent_moves_before_closed_and_the_rest_not_before() {
    let mut setup = Setup::new(2, 1);
    setup.options.queue_size = 16;
    setup.options.io_timeout = SECOND;
    setup.times.closing = (50 * MS, 50 * MS);
    let (mut rig, begin) = silenced(setup);
    // 30 each: a queue of 16 entries holds 15 commands, the other 15 wait for a tag.
    let names = rig.submit(writes(60, 1));
    rig.run(500 * MS);
    assert_eq!((rig.sent(0), rig.answered(&names)), (15, 30));
    let waits = waits(&mut rig, &names, begin);
    let between = |from: Duration, to: Duration| {
        waits.iter().filter(|&&wait| wait >= from && wait < to).count()
    };
    assert_eq!(between(SECOND, SECOND + 10 * MS), 15, "never sent: at once {waits:?}");
    assert_eq!(between(SECOND + 50 * MS, SECOND + 60 * MS), 15, "sent: after Closed {waits:?}");
    assert_eq!(rig.path(0).failovers, 30);
    assert_eq!(rig.path(0).uncertain_writes_resent, 15);
    rig.wait_live(0);
    rig.finish();
}

/// A write that has not begun to leave is not among those whose outcome nobody knows.
#[test]
fn only_what_may_have_reached_the_controller_counts_as_uncertain() {
    let mut rig = Setup::new(2, 1).connect();
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    // A batch takes 64 KiB: more than two of them.
    let write = |at: u64| Op::Write { lba: at * 16, blocks: 16, fill: 1 };
    let names = rig.submit((0..60).map(write));
    while rig.sent(0) == 0 {
        assert!(rig.world.step());
    }
    rig.world.break_stream(stream);
    let sent = rig.sent(0) as u64;
    rig.succeed(&names);
    let path = rig.path(0);
    assert_eq!(path.failovers, 30, "all of them were to go there");
    assert!((sent..30).contains(&path.uncertain_writes_resent), "{path:?}");
    rig.wait_live(0);
    rig.finish();
}

/// Whatever was under way: what it had taken comes back, and it is tried again.
#[test]
fn a_connection_that_breaks_while_it_opens_leaves_nothing_behind() {
    for steps in 0..60 {
        let mut rig = Setup::new(1, 1).build();
        let request = setup::connect(0, &rig.options);
        rig.start(Verb::Connect(Box::new(request)));
        let stream = loop {
            match rig.world.stream(WorkerId(1), &setup::port(0)) {
                Some(stream) => break stream,
                None => assert!(rig.world.step()),
            }
        };
        (0..steps).for_each(|_| assert!(rig.world.step()));
        rig.world.break_stream(stream);
        rig.run(SECOND);
        rig.io(writes(1, 1));
        rig.finish();
    }
}

#[test]
fn m22_counters_of_failover_and_requeue_can_be_read_and_reset() {
    let mut rig = Setup::new(2, 1).connect();
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.slow_stream(stream, SECOND);
    let names = rig.submit(writes(10, 1));
    rig.run(10 * MS);
    rig.world.break_stream(stream);
    rig.succeed(&names);
    let failovers = ("nvme0c0n1", "multipath_failover_count");
    assert_eq!(rig.get(failovers.0, failovers.1), "5");
    rig.set(failovers.0, failovers.1, "0");
    assert_eq!(rig.get(failovers.0, failovers.1), "0");
    rig.wait_live(0);

    for port in 0..2 {
        rig.ana(port, AnaState::Inaccessible);
    }
    rig.run(10 * MS);
    let names = rig.submit(writes(7, 2));
    rig.run(10 * MS);
    let requeued = ("nvme0n1", "io_requeue_no_usable_path_count");
    assert_eq!(rig.get(requeued.0, requeued.1), "7");
    rig.set(requeued.0, requeued.1, "0");
    assert_eq!(rig.get(requeued.0, requeued.1), "0");
    rig.ana(0, AnaState::Optimized);
    rig.succeed(&names);
    rig.finish();
}
