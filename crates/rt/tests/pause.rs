//! Back-pressure: a paused connection is not read, so its peer has to wait.

mod support;

use anabranch_proto::machine::{CloseCause, CloseHow, Output};
use std::io::Write;
use std::net::TcpStream;
use support::{Rig, Seen, loopback, tcp};

#[test]
fn a_paused_connection_is_not_read() {
    let mut rig = Rig::new(1);
    let at = rig.listen(0, loopback());
    let mut peer = TcpStream::connect(tcp(&at)).expect("connected");
    let conn = rig.accepted(0);
    rig.ask(0, move |engine, _| engine.out(Output::Pause { conn }));
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
        rig.ask(0, move |engine, _| engine.out(Output::Pause { conn }));
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
