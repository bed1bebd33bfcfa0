//! Back-pressure: a paused connection is not read, so its peer has to wait.

use crate::support::{Dir, Rig, Seen, loopback, tcp};
use anabranch_proto::machine::{CloseCause, CloseHow, ConnId, Endpoint, Output};
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

#[test]
fn a_paused_connection_is_not_read() {
    let mut rig = Rig::new(1);
    let at = rig.listen(0, loopback());
    let mut peer = TcpStream::connect(tcp(&at)).expect("connected");
    let conn = rig.accepted(0);
    rig.ask(0, move |engine, _| engine.out(Output::Pause { conn, watch: false }));
    // A receive in flight may deliver once more; after it, nothing is taken and the peer stands.
    peer.set_nonblocking(true).expect("set");
    let chunk = [3u8; 64 << 10];
    let mut written = 0;
    // Two full stops with an answer of the worker in between: it is really not reading.
    for _ in 0..3 {
        loop {
            match peer.write(&chunk) {
                Ok(n) => written += n,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        rig.ask(0, |_, _| ());
    }
    let stats = rig.group.stats(anabranch_proto::machine::WorkerId(0)).expect("stats");
    assert!(stats.receives <= 1, "{stats:?}");
    rig.ask(0, move |engine, _| engine.out(Output::Resume { conn }));
    let all = rig.bytes(0, conn, written);
    assert!(all.len() == written && all.iter().all(|b| *b == 3), "nothing was lost");
    rig.stop();
}

/// Pausing does not keep a connection from ending.
#[test]
fn a_paused_connection_can_be_closed() {
    let mut rig = Rig::new(1);
    let at = rig.listen(0, loopback());
    for how in [CloseHow::Graceful, CloseHow::Abort] {
        let mut peer = TcpStream::connect(tcp(&at)).expect("connected");
        let conn = rig.accepted(0);
        rig.ask(0, move |engine, _| engine.out(Output::Pause { conn, watch: false }));
        peer.write_all(&[0; 100_000]).expect("written");
        rig.ask(0, move |engine, _| engine.close(conn, how));
        if how == CloseHow::Graceful {
            rig.ask(0, |_, _| ());
            assert!(!rig.has(0, &Seen::Closed(conn, CloseCause::Requested)), "the peer is open");
            drop(peer);
        }
        assert_eq!(rig.closed(0, conn), CloseCause::Requested);
    }
    rig.stop();
}

/// Whoever waits for a peer's requests to go on must hear that the peer is gone.
#[test]
fn the_end_of_a_paused_connection_that_is_watched_is_told() {
    let mut rig = Rig::new(1);
    let at = rig.listen(0, loopback());
    let mut tcp = TcpStream::connect(tcp(&at)).expect("connected");
    let conn = rig.accepted(0);
    rig.ask(0, move |engine, _| engine.out(Output::Pause { conn, watch: true }));
    tcp.write_all(&[0; 100_000]).expect("written");
    rig.ask(0, |_, _| ());
    assert!(!rig.has(0, &Seen::Closed(conn, CloseCause::PeerClosed)), "it is there");
    drop(tcp);
    assert_eq!(rig.closed(0, conn), CloseCause::PeerClosed);
    rig.stop();
}

#[test]
fn the_end_of_a_paused_unix_socket_that_is_watched_is_told() {
    let dir = Dir::new("pause");
    let path = dir.path("s");
    let mut rig = Rig::new(1);
    rig.listen(0, Endpoint::Unix(path.clone()));
    let peer = UnixStream::connect(&path).expect("connected");
    let conn = rig.accepted(0);
    rig.ask(0, move |engine, _| engine.out(Output::Pause { conn, watch: true }));
    drop(peer);
    assert_eq!(rig.closed(0, conn), CloseCause::PeerClosed);
    rig.stop();
}

/// A paused connection that was watched once and is not any more. Its peer has gone after a
/// thousand fives; the receive that is in flight may bring them, then nothing is read.
fn gone_unwatched(rig: &mut Rig) -> ConnId {
    let at = rig.listen(0, loopback());
    let mut peer = TcpStream::connect(tcp(&at)).expect("connected");
    let conn = rig.accepted(0);
    for watch in [true, false] {
        rig.ask(0, move |engine, _| engine.out(Output::Pause { conn, watch }));
    }
    peer.write_all(&[5; 1000]).expect("written");
    conn
}

/// Who is not watched is read to the end.
#[test]
fn the_end_of_a_paused_connection_that_is_not_watched_waits_for_its_bytes() {
    let mut rig = Rig::new(1);
    let conn = gone_unwatched(&mut rig);
    for _ in 0..3 {
        rig.ask(0, |_, _| ());
    }
    assert!(!rig.has(0, &Seen::Closed(conn, CloseCause::PeerClosed)), "nobody asked");
    rig.ask(0, move |engine, _| engine.out(Output::Resume { conn }));
    assert_eq!(rig.bytes(0, conn, 1000), [5; 1000]);
    assert_eq!(rig.closed(0, conn), CloseCause::PeerClosed);
    rig.stop();
}

#[test]
fn a_peer_that_was_gone_before_it_is_watched_again_is_told_as_well() {
    let mut rig = Rig::new(1);
    let conn = gone_unwatched(&mut rig);
    rig.ask(0, |_, _| ());
    rig.ask(0, move |engine, _| engine.out(Output::Pause { conn, watch: true }));
    assert_eq!(rig.closed(0, conn), CloseCause::PeerClosed);
    rig.stop();
}

/// A look tells that a peer is there. One that has gone is not, also where what it sent before was
/// not read.
#[test]
fn a_look_tells_whether_a_peer_is_there() {
    let dir = Dir::new("look");
    let path = dir.path("s");
    let mut rig = Rig::new(1);
    rig.listen(0, Endpoint::Unix(path.clone()));
    let mut peer = UnixStream::connect(&path).expect("connected");
    let conn = rig.accepted(0);
    rig.ask(0, move |engine, _| {
        engine.out(Output::Pause { conn, watch: false });
        engine.out(Output::Look { conn });
    });
    rig.expect(0, &Seen::Looked(conn));
    peer.write_all(&[5; 100_000]).expect("written");
    drop(peer);
    rig.ask(0, move |engine, _| engine.out(Output::Look { conn }));
    for _ in 0..3 {
        rig.ask(0, |_, _| ());
    }
    assert!(!rig.has(0, &Seen::Looked(conn)), "it has gone");
    rig.ask(0, move |engine, _| engine.out(Output::Resume { conn }));
    assert_eq!(rig.closed(0, conn), CloseCause::PeerClosed);
    rig.stop();
}
