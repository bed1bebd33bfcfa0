//! A watch that ends without having seen anything, as where the system has no memory for it.

use crate::Config;
use crate::driver::uring::Kind;
use crate::driver::{Driver, Event, Handed, Sleeper, Uring};
use crate::memory::Regions;
use anabranch_proto::machine::{CloseCause, ConnId, ListenerId, Time};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

struct Awake;

impl Sleeper for Awake {
    fn is_pending(&self) -> bool {
        false
    }

    fn may_sleep(&self) -> bool {
        true
    }

    fn awake(&self) {}
}

/// Only a driver that never does what is waited for gets there.
const LIMIT: Duration = Duration::from_secs(30);

/// Runs the driver until `is_it` says so of its state and the next event.
fn run(driver: &mut Uring, is_it: impl Fn(&Uring, Option<&Event>) -> bool) {
    let end: Time = crate::now().after(LIMIT);
    while crate::now() < end {
        driver.wait(Some(end), Duration::ZERO, &Awake).expect("the ring works");
        loop {
            let event = driver.next_event();
            if is_it(driver, event.as_ref()) {
                return;
            }
            if event.is_none() {
                break;
            }
        }
    }
    panic!("it never comes");
}

#[test]
fn a_watch_that_fails_is_set_again() {
    let wake = eventfd(0, EventfdFlags::CLOEXEC).expect("an event descriptor");
    let regions = Arc::new(Regions::new(1, 4 << 20).expect("memory"));
    let mut driver =
        Uring::new(&Config::default(), regions, Arc::default(), wake.as_fd()).expect("a ring");
    let (ours, peer) = UnixStream::pair().expect("a pair");
    let raw = ours.as_raw_fd();
    let (conn, slot) = (ConnId::accepted(0), 0);
    driver.adopt(Handed { listener: ListenerId(0), peer: None, fd: ours.into(), early: None });
    driver.pause(conn, true);
    let watched = |driver: &Uring| driver.conns.get(slot).is_some_and(|it| it.watching);
    assert!(watched(&driver));
    driver.push_cancel(raw, Kind::CancelWake, 0);
    run(&mut driver, |driver, _| !watched(driver));
    drop(peer);
    let closed = |event: &Event| match event {
        Event::Closed { conn: of, cause } => (*of, *cause) == (conn, CloseCause::PeerClosed),
        _ => false,
    };
    run(&mut driver, |_, event| event.is_some_and(closed));
}
