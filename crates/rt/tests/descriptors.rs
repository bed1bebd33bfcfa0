//! When descriptors run out, accepting rests; it does not spin, and goes on when there are some.
//! Alone in its process: the limit is the process's.

mod support;

use anabranch_proto::machine::{CloseHow, ConnId, WorkerId};
use std::fs::File;
use std::net::TcpStream;
use std::time::Duration;
use support::{Rig, Seen, loopback, tcp};

#[test]
fn accepting_rests_and_goes_on() {
    let mut rig = Rig::new(1);
    let at = rig.listen(0, loopback());
    // One client's descriptor is made before they run out; its connection waits in the backlog.
    let first = TcpStream::connect(tcp(&at)).expect("connected");
    let conn = rig.accepted(0);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let tight = rustix::process::Rlimit { current: Some(64), maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, tight).expect("set");
    let spare = File::open("/dev/null").expect("opened");
    let mut hoard = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        hoard.push(file);
    }
    drop(spare);
    let second = TcpStream::connect(tcp(&at)).expect("connected");
    // The accept that was in flight already may hold a descriptor; a third connection finds none.
    let before = rig.group.stats(WorkerId(0)).expect("stats");
    hoard.pop();
    let start = anabranch_rt::now();
    let third = TcpStream::connect(tcp(&at)).expect("connected");
    rig.ask(0, |engine, _| engine.timer = Some(engine.now.after(Duration::from_millis(350))));
    rig.expect(0, &Seen::Timeout);
    let stats = rig.group.stats(WorkerId(0)).expect("stats");
    let failures = stats.accept_failures;
    // Ten a second at most, however long this took.
    let most = anabranch_rt::now().since(start).as_millis() as u64 / 100 + 3;
    assert!((1..=most).contains(&failures), "rests between failures: {stats:?}");
    let enters = stats.enters - before.enters;
    assert!(enters < 10 * most, "does not spin: {before:?} {stats:?}");
    // Established connections live on, and with descriptors the listener does too.
    assert!(!rig.has(0, &Seen::Closed(conn, anabranch_proto::machine::CloseCause::PeerClosed)));
    drop(hoard);
    let next = rig.accepted(0);
    rig.ask(0, move |engine, _| engine.close(next, CloseHow::Abort));
    rig.closed(0, next);
    drop((first, second, third));
    assert_ne!(conn, ConnId::opened(0));
    rig.stop();
}
