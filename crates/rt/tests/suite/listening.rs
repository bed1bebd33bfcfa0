//! Addresses of listeners: who has one, and who gets one.

use crate::support::{Rig, Seen};
use anabranch_proto::machine::{Endpoint, ListenerId, SystemError};
use std::net::TcpListener;

fn taken() -> (TcpListener, Endpoint) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let at = Endpoint::Tcp(listener.local_addr().expect("an address"));
    (listener, at)
}

/// The kernel lets go of a killed process's listener a moment after the process has gone: who is
/// started in its place must not fail for that.
#[test]
fn an_address_that_is_just_being_given_up_is_had() {
    let mut rig = Rig::new(1);
    let (former, at) = taken();
    let wanted = at.clone();
    // Let go of by somebody else, as the worker is about to try.
    let (tell, told) = std::sync::mpsc::channel();
    let owner = std::thread::spawn(move || {
        told.recv().expect("told");
        drop(former);
    });
    rig.ask(0, move |engine, _| {
        engine.listen(7, wanted);
        tell.send(()).expect("the owner waits");
    });
    rig.expect(0, &Seen::Listening(ListenerId(7), at));
    owner.join().expect("gone");
    rig.stop();
}

#[test]
fn an_address_that_stays_in_use_is_refused() {
    let mut rig = Rig::new(1);
    let (_owner, at) = taken();
    rig.ask(0, move |engine, _| engine.listen(7, at));
    rig.expect(0, &Seen::Unlistened(ListenerId(7), Some(SystemError(98))));
    rig.stop();
}
