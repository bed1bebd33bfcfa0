//! When descriptors run out, accepting rests; it does not spin, and goes on when there are some.
//! Alone in its process: the limit is the process's.

#[path = "suite/support/mod.rs"]
mod support;

use anabranch_proto::machine::{CloseCause, CloseHow, SystemError, WorkerId};
use anabranch_rt::Config;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::{LIMIT, Rig, Seen, loopback, tcp};

static TOLD: AtomicUsize = AtomicUsize::new(0);

fn tell(error: SystemError) {
    assert_eq!(error, SystemError(24), "too many open files");
    TOLD.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn accepting_rests_and_goes_on() {
    let mut rig = Rig::with(Config { starved: Some(tell), ..Config::named("test") }, 1);
    let at = SockAddr::from(tcp(&rig.listen(0, loopback())));
    // The clients' descriptors are made before they run out.
    let client = || Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let (first, second, third, fourth) = (client(), client(), client(), client());
    first.connect(&at).expect("connected");
    let conn = rig.accepted(0);
    let limit = getrlimit(Resource::Nofile);
    let tight = Rlimit { current: Some(64), maximum: limit.maximum };
    setrlimit(Resource::Nofile, tight).expect("set");
    let take_all =
        || -> Vec<File> { std::iter::from_fn(|| File::open("/dev/null").ok()).collect() };
    let hoard = take_all();
    let before = rig.group.stats(WorkerId(0)).expect("stats");
    let start = anabranch_rt::now();
    // The accept that waits already may hold a descriptor; it does not for both of these.
    second.connect(&at).expect("connected, in the backlog");
    third.connect(&at).expect("connected, in the backlog");
    rig.ask(0, |engine, _| engine.timer = Some(engine.now.after(Duration::from_millis(350))));
    rig.expect(0, &Seen::Timeout);
    let stats = rig.group.stats(WorkerId(0)).expect("stats");
    let failures = stats.accept_failures - before.accept_failures;
    // Ten a second at most, however long this took.
    let most = anabranch_rt::now().since(start).as_millis() as u64 / 100 + 3;
    assert!((1..=most).contains(&failures), "rests between failures: {stats:?}");
    let enters = stats.enters - before.enters;
    assert!(enters < 10 * most, "does not spin: {before:?} {stats:?}");
    assert_eq!(TOLD.load(Ordering::Relaxed), 1, "told once, however many wait");
    // Established connections live on, and with descriptors the listener does too.
    assert!(!rig.has(0, &Seen::Closed(conn, CloseCause::PeerClosed)));
    drop(hoard);
    for _ in 0..2 {
        let next = rig.accepted(0);
        rig.ask(0, move |engine, _| engine.close(next, CloseHow::Abort));
        rig.closed(0, next);
    }
    // The next time is told again. (The accept that waits already may hold a descriptor.)
    let hoard = take_all();
    fourth.connect(&at).expect("connected, in the backlog");
    let start = anabranch_rt::now();
    while TOLD.load(Ordering::Relaxed) < 2 {
        assert!(anabranch_rt::now().since(start) < LIMIT, "nothing is told");
        rig.ask(0, |engine, _| engine.timer = Some(engine.now.after(Duration::from_millis(1))));
        rig.expect(0, &Seen::Timeout);
    }
    drop(hoard);
    rig.stop();
}
