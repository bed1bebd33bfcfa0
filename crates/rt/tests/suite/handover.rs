//! An accepted connection moves to another worker, and nothing that was sent on it is lost.

use crate::support::{LIMIT, Rig, Seen, loopback, tcp};
use anabranch_proto::machine::{ListenerId, Output, WorkerId};
use std::io::{Read, Write};
use std::net::TcpStream;

#[test]
fn at_once() {
    let mut rig = Rig::new(3);
    rig.ask(0, |engine, _| engine.rules.hand_to = Some(WorkerId(2)));
    rig.ask(2, |engine, _| engine.rules.echo = true);
    let at = rig.listen(0, loopback());
    for i in 0..20u8 {
        let mut peer = TcpStream::connect(tcp(&at)).expect("connected");
        peer.set_read_timeout(Some(LIMIT)).expect("a limit");
        // Bytes may be there before the connection is handed over.
        peer.write_all(&[i; 10]).expect("written");
        let conn = rig.accepted(2);
        let mut back = [0; 10];
        peer.read_exact(&mut back).expect("the echo");
        assert_eq!(back, [i; 10]);
        drop(peer);
        rig.closed(2, conn);
    }
    assert!(!rig.any(0, |seen| matches!(seen, Seen::Accepted(..))));
    rig.stop();
}

/// The engine decides later, while a receive is in flight: it is taken back first.
#[test]
fn after_a_while() {
    let mut rig = Rig::new(2);
    rig.ask(1, |engine, _| engine.rules.echo = true);
    let at = rig.listen(0, loopback());
    for early in [false, true] {
        let mut peer = TcpStream::connect(tcp(&at)).expect("connected");
        peer.set_read_timeout(Some(LIMIT)).expect("a limit");
        let conn = rig.accepted(0);
        rig.ask(0, |_, _| ());
        let expected = if early { b"early" } else { b"late!" };
        let mut peer = rig.ask(0, move |engine, _| {
            if early {
                // May arrive in the receive that is being taken back, or stay in the socket.
                peer.write_all(expected).expect("written");
            }
            let listener = ListenerId(7);
            engine.out(Output::HandOver { conn, listener, to: WorkerId(1) });
            peer
        });
        if !early {
            peer.write_all(expected).expect("written");
        }
        let mut back = [0; 5];
        peer.read_exact(&mut back).expect("the echo");
        assert_eq!(&back, expected);
        rig.accepted(1);
    }
    rig.stop();
}

/// What a receive has brought when the engine decides goes with the connection.
#[test]
fn with_bytes_that_were_received_already() {
    let mut rig = Rig::new(2);
    rig.ask(1, |engine, _| engine.rules.echo = true);
    let mut second = hand_over_with_early_bytes(&mut rig);
    let mut back = [0; 5];
    second.read_exact(&mut back).expect("the echo");
    assert_eq!(&back, b"early");
    rig.stop();
}

/// Has worker 0 hand a connection to worker 1 when it has read "early" from it.
fn hand_over_with_early_bytes(rig: &mut Rig) -> TcpStream {
    let at = rig.listen(0, loopback());
    let mut connect = || {
        let peer = TcpStream::connect(tcp(&at)).expect("connected");
        peer.set_read_timeout(Some(LIMIT)).expect("a limit");
        (peer, rig.accepted(0))
    };
    let ((mut first, _), (mut second, conn)) = (connect(), connect());
    // By the answer both receives are armed.
    rig.ask(0, |_, _| ());
    // Both end in the same turn, in this order: the worker is busy here meanwhile.
    let (_first, second) = rig.ask(0, move |engine, _| {
        engine.rules.hand_over = Some((conn, WorkerId(1)));
        first.write_all(b"go").expect("written");
        second.write_all(b"early").expect("written");
        (first, second)
    });
    second
}

/// So does it when the worker that gets the connection hands it on.
#[test]
fn twice_with_bytes_that_were_received_already() {
    let mut rig = Rig::new(3);
    rig.ask(1, |engine, _| engine.rules.hand_to = Some(WorkerId(2)));
    rig.ask(2, |engine, _| engine.rules.echo = true);
    let mut second = hand_over_with_early_bytes(&mut rig);
    second.write_all(b"late!").expect("written");
    let mut back = [0; 10];
    second.read_exact(&mut back).expect("the echo");
    assert_eq!(&back, b"earlylate!");
    rig.stop();
}

/// A buffer that the engine names as soon as it knows the connection is for these bytes: the next
/// ones do not go there.
#[test]
fn with_bytes_that_were_received_already_and_a_buffer_for_them() {
    let mut rig = Rig::new(2);
    rig.ask(1, |engine, bufs| {
        engine.rules.into = bufs.alloc(4096);
        engine.rules.aim_accepted_only = true;
    });
    let mut second = hand_over_with_early_bytes(&mut rig);
    let conn = rig.accepted(1);
    assert_eq!(rig.bytes(1, conn, 5), b"early");
    second.write_all(b"late!").expect("written");
    assert_eq!(rig.bytes(1, conn, 5), b"late!");
    assert!(!rig.any(1, |seen| matches!(seen, Seen::ReceivedInto(..))));
    rig.stop();
}

/// A worker may name itself.
#[test]
fn to_oneself() {
    let mut rig = Rig::new(1);
    let at = rig.listen(0, loopback());
    let mut peer = TcpStream::connect(tcp(&at)).expect("connected");
    let conn = rig.accepted(0);
    rig.ask(0, move |engine, _| {
        let listener = ListenerId(9);
        engine.out(Output::HandOver { conn, listener, to: WorkerId(0) });
    });
    let again = rig.accepted(0);
    peer.write_all(b"hello").expect("written");
    assert_eq!(rig.bytes(0, again, 5), b"hello");
    rig.stop();
}
