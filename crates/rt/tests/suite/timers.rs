//! Time-outs come when they were asked for, not before, and traffic does not hold them up.

use crate::support::{LIMIT, Piece, Rig, Seen, loopback};
use anabranch_proto::machine::{ConnId, Time, WorkerId};
use anabranch_rt::Config;
use std::time::Duration;

/// Sets a timer and checks what came of it.
fn timer(rig: &mut Rig, worker: u16, delay: Duration) {
    rig.ask(worker, move |engine, _| engine.timer = Some(engine.now.after(delay)));
    rig.expect(worker, &Seen::Timeout);
    let (named, came) =
        rig.ask(worker, |engine, _| engine.last_timeout.take()).expect("a time-out");
    assert!(came >= named, "not earlier than named: {came:?} {named:?}");
}

#[test]
fn not_before_their_time() {
    let mut rig = Rig::new(1);
    for us in [0, 1, 10, 100, 1000, 10_000, 100_000] {
        timer(&mut rig, 0, Duration::from_micros(us));
    }
    rig.stop();
}

#[test]
fn while_traffic_flows() {
    let mut rig = Rig::new(2);
    let conn = ConnId::opened(1);
    for worker in [0, 1] {
        rig.ask(worker, |engine, _| {
            engine.rules.echo = true;
            engine.rules.quiet = true;
        });
    }
    let at = rig.listen(0, loopback());
    rig.connect(1, conn, at);
    // A ball that never stops.
    rig.ask(1, move |engine, _| engine.send(conn, Piece::Copy(vec![1; 64])));
    for _ in 0..50 {
        timer(&mut rig, 1, Duration::from_millis(1));
        timer(&mut rig, 0, Duration::ZERO);
    }
    rig.stop();
}

/// The earlier of two times counts, and a timer that is taken back does not fire.
#[test]
fn moved_and_taken_back() {
    let mut rig = Rig::new(1);
    let hour = Duration::from_secs(3600);
    rig.ask(0, move |engine, _| engine.timer = Some(engine.now.after(hour)));
    timer(&mut rig, 0, Duration::from_millis(1));
    rig.ask(0, move |engine, _| {
        engine.timer = Some(engine.now.after(Duration::from_millis(20)));
    });
    rig.ask(0, |engine, _| engine.timer = None);
    timer(&mut rig, 0, Duration::from_millis(50));
    // The end of time is not in the past.
    rig.ask(0, |engine, _| engine.timer = Some(Time::from_ns(u64::MAX)));
    let enters = |rig: &Rig| rig.group.stats(WorkerId(0)).expect("stats").enters;
    let before = enters(&rig);
    for _ in 0..100 {
        rig.ask(0, |_, _| ());
    }
    assert!(enters(&rig) - before < 500, "the worker does not spin");
    assert!(!rig.has(0, &Seen::Timeout));
    rig.stop();
}

/// A worker that spins does not begin to sleep when a time-out is due.
#[test]
fn at_the_end_of_spinning() {
    let mut rig = Rig::with(Config { spin: LIMIT, ..Config::named("test") }, 1);
    timer(&mut rig, 0, Duration::from_millis(1));
    assert_eq!(rig.group.stats(WorkerId(0)).expect("stats").sleeps, 0);
    rig.stop();
}
