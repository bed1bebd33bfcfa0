//! How connections end: one `Closed` each, with the right cause, and only when the system has
//! nothing of them any more.

use crate::support::{Dir, LIMIT, Piece, Rig, Seen, loopback, tcp};
use anabranch_proto::machine::{BufRef, CloseCause, CloseHow, ConnId, Endpoint, SystemError};
use anabranch_rt::Config;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;

const CONN: ConnId = ConnId::opened(0);

fn listener() -> (TcpListener, Endpoint) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let at = Endpoint::Tcp(listener.local_addr().expect("an address"));
    (listener, at)
}

/// A rig whose worker 0 is connected to a plain socket.
fn connected() -> (Rig, TcpStream) {
    let mut rig = Rig::new(1);
    let (listener, at) = listener();
    rig.connect(0, CONN, at);
    let (peer, _) = listener.accept().expect("accepted");
    peer.set_read_timeout(Some(LIMIT)).expect("a limit");
    (rig, peer)
}

#[test]
fn refused() {
    let mut rig = Rig::new(1);
    let (gone, at) = listener();
    drop(gone);
    rig.ask(0, move |engine, _| engine.connect(CONN, at));
    assert_eq!(rig.closed(0, CONN), CloseCause::Failed(SystemError::REFUSED));
    // The name is free again.
    let (_listener, at) = listener();
    rig.connect(0, CONN, at);
    rig.stop();
}

#[test]
fn impossible_endpoints_end_in_closed() {
    let mut rig = Rig::new(1);
    for path in ["/nonexistent/socket".to_owned(), "x".repeat(300)] {
        rig.ask(0, move |engine, _| engine.connect(CONN, Endpoint::Unix(path)));
        assert!(matches!(rig.closed(0, CONN), CloseCause::Failed(_)));
    }
    rig.stop();
}

#[test]
fn a_slow_attempt_is_given_up() {
    let mut rig = Rig::new(1);
    // A full backlog leaves a Unix connect waiting.
    let dir = Dir::new("slow");
    let path = dir.path("s");
    let addr = socket2::SockAddr::unix(&path).expect("an address");
    let server = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
    server.bind(&addr).expect("bound");
    server.listen(0).expect("listening");
    let first = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
    first.connect(&addr).expect("connected");
    rig.ask(0, move |engine, _| engine.connect(CONN, Endpoint::Unix(path)));
    rig.ask(0, |engine, _| engine.close(CONN, CloseHow::Graceful));
    assert_eq!(rig.closed(0, CONN), CloseCause::Requested);
    assert!(!rig.has(0, &Seen::Connected(CONN)));
    rig.stop();
}

#[test]
fn by_the_peer_in_order() {
    let (mut rig, peer) = connected();
    drop(peer);
    assert_eq!(rig.closed(0, CONN), CloseCause::PeerClosed);
    rig.stop();
}

#[test]
fn by_the_peer_with_a_reset() {
    let (mut rig, peer) = connected();
    socket2::SockRef::from(&peer).set_linger(Some(std::time::Duration::ZERO)).expect("linger");
    drop(peer);
    assert_eq!(rig.closed(0, CONN), CloseCause::Failed(SystemError::RESET));
    rig.stop();
}

/// A graceful close sends what the engine still has, ends our direction, and waits for the peer's.
#[test]
fn gracefully() {
    let (mut rig, mut peer) = connected();
    let sent = vec![5u8; 3_000_000];
    let copy = sent.clone();
    rig.ask(0, move |engine, _| {
        engine.send(CONN, Piece::Copy(copy));
        engine.close(CONN, CloseHow::Graceful);
    });
    peer.write_all(b"not read by anybody").expect("written");
    let mut all = Vec::new();
    peer.read_to_end(&mut all).expect("an orderly end");
    assert!(all == sent, "everything arrived: {} bytes", all.len());
    // The peer has not ended its direction yet.
    rig.ask(0, |_, _| ());
    assert!(!rig.has(0, &Seen::Closed(CONN, CloseCause::Requested)));
    peer.write_all(b"nor is this").expect("still open");
    drop(peer);
    assert_eq!(rig.closed(0, CONN), CloseCause::Requested);
    rig.stop();
}

/// A peer that has ended its own direction meanwhile is still sent everything.
#[test]
fn gracefully_from_a_peer_that_has_said_all() {
    let mut rig = Rig::new(1);
    let at = rig.listen(0, loopback());
    let mut peer = TcpStream::connect(tcp(&at)).expect("connected");
    peer.set_read_timeout(Some(LIMIT)).expect("a limit");
    let conn = rig.accepted(0);
    let sent = 64 << 20;
    rig.ask(0, move |engine, bufs| {
        while engine.rules.free_at_close.len() < 64 {
            let buf = bufs.alloc(1 << 20).expect("a buffer");
            engine.send(conn, Piece::Payload(buf));
            engine.rules.free_at_close.push(buf);
        }
        engine.close(conn, CloseHow::Graceful);
    });
    peer.shutdown(std::net::Shutdown::Write).expect("its direction ends");
    // By the second answer the worker has seen that; no socket takes all that is to be sent.
    rig.ask(0, |_, _| ());
    rig.ask(0, move |engine, _| assert!(!engine.all_sent(conn), "the peer does not read"));
    let came = std::io::copy(&mut peer, &mut std::io::sink()).expect("an orderly end");
    assert_eq!(came, sent);
    assert_eq!(rig.closed(0, conn), CloseCause::Requested);
    rig.stop();
}

/// The guard of the engine: a graceful close that takes too long becomes an abort.
#[test]
fn gracefully_then_aborted() {
    let (mut rig, mut peer) = connected();
    rig.ask(0, |engine, _| {
        engine.send(CONN, Piece::Copy(b"bye".to_vec()));
        engine.close(CONN, CloseHow::Graceful);
    });
    let mut bytes = [0; 3];
    peer.read_exact(&mut bytes).expect("the last words");
    assert_eq!(peer.read(&mut bytes).expect("end of stream"), 0);
    rig.ask(0, |engine, _| engine.close(CONN, CloseHow::Abort));
    assert_eq!(rig.closed(0, CONN), CloseCause::Requested);
    let error = loop {
        if let Err(error) = peer.write_all(&[0; 1000]) {
            break error;
        }
    };
    assert!(error.raw_os_error() == Some(104) || error.raw_os_error() == Some(32), "{error}");
    rig.stop();
}

/// A peer that never ends its direction but floods it is cut off without a guard of the engine's:
/// discarding for ever would cost a core.
#[test]
fn gracefully_from_a_peer_that_floods() {
    let (mut rig, mut peer) = connected();
    rig.ask(0, |engine, _| {
        engine.send(CONN, Piece::Copy(b"bye".to_vec()));
        engine.close(CONN, CloseHow::Graceful);
    });
    let mut bytes = [0; 3];
    peer.read_exact(&mut bytes).expect("the last words come before the flood");
    let block = vec![0; 1 << 20];
    let flood = (0..1024).find_map(|mib| peer.write_all(&block).err().map(|error| (mib, error)));
    let (mib, error) = flood.expect("a gibibyte was taken in");
    assert!(error.raw_os_error() == Some(104) || error.raw_os_error() == Some(32), "{error}");
    assert!(mib >= 64, "cut off after {mib} MiB: that may still have been in good faith");
    assert_eq!(rig.closed(0, CONN), CloseCause::Requested);
    rig.stop();
}

/// The peer does not read: a referenced send is stuck in the kernel. Its buffers are the driver's
/// until `Closed`; freeing them then, and using them again, is allowed (the pool checks).
fn aborted(at: Endpoint, hold: impl FnOnce() -> Box<dyn std::any::Any>) {
    let mut rig = Rig::new(1);
    rig.connect(0, CONN, at);
    let peer = hold();
    let count = rig.ask(0, |engine, bufs| {
        let mut all: Vec<BufRef> = Vec::new();
        while let Some(buf) = bufs.alloc(1 << 20) {
            engine.send(CONN, Piece::Payload(buf));
            all.push(buf);
            if all.len() == 64 {
                break;
            }
        }
        engine.rules.free_at_close.clone_from(&all);
        all.len()
    });
    assert_eq!(count, 64);
    // By the second answer the first batch is on its way; no socket takes all of them.
    rig.ask(0, |_, _| ());
    rig.ask(0, |engine, _| {
        assert!(!engine.all_sent(CONN), "the peer does not read");
        engine.close(CONN, CloseHow::Abort);
    });
    assert_eq!(rig.closed(0, CONN), CloseCause::Requested);
    let again = rig.ask(0, |engine, bufs| {
        assert!(engine.rules.free_at_close.is_empty(), "freed at `Closed`");
        let again: Vec<BufRef> = (0..64).filter_map(|_| bufs.alloc(1 << 20)).collect();
        for buf in &again {
            bufs.bytes_mut(*buf).fill(1);
        }
        again.len()
    });
    assert_eq!(again, 64, "the whole pool is free again");
    drop(peer);
    rig.stop();
}

#[test]
fn aborted_with_a_send_in_flight_over_tcp() {
    let (listener, at) = listener();
    aborted(at, move || {
        let accepted = listener.accept().expect("accepted");
        Box::new(accepted)
    });
}

#[test]
fn aborted_with_a_send_in_flight_over_a_unix_socket() {
    let dir = Dir::new("aborted");
    let listener = UnixListener::bind(dir.path("s")).expect("bound");
    aborted(Endpoint::Unix(dir.path("s")), move || {
        let accepted = listener.accept().expect("accepted");
        Box::new(accepted)
    });
}

/// An abort over TCP is a reset for the peer, not an orderly end.
#[test]
fn aborted_means_reset() {
    let (mut rig, mut peer) = connected();
    rig.ask(0, |engine, _| engine.close(CONN, CloseHow::Abort));
    assert_eq!(rig.closed(0, CONN), CloseCause::Requested);
    let error = peer.read(&mut [0; 1]).expect_err("a reset");
    assert_eq!(error.raw_os_error(), Some(SystemError::RESET.0));
    rig.stop();
}

/// What the kernel still has to send dies with the connection, also when it is the peer that ends
/// its direction: by then the engine has sent elsewhere what it was not answered, and the first
/// copy must not arrive after that.
#[test]
fn nothing_leaves_after_the_peer_has_ended() {
    let (mut rig, mut peer) = connected();
    rig.ask(0, |engine, _| engine.send(CONN, Piece::Copy(vec![7; 64 << 20])));
    rig.ask(0, |_, _| ());
    peer.shutdown(std::net::Shutdown::Write).expect("our direction ends");
    assert_eq!(rig.closed(0, CONN), CloseCause::PeerClosed);
    let mut bytes = vec![0; 1 << 20];
    let error = loop {
        match peer.read(&mut bytes) {
            Ok(0) => panic!("an orderly end: all that was queued has come"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.raw_os_error(), Some(SystemError::RESET.0));
    rig.stop();
}

/// A receive aimed at a buffer is cancelled before `Closed`: freeing the buffer there passes the
/// pool's check.
#[test]
fn aborted_with_an_aimed_receive_in_flight() {
    let mut rig = Rig::new(1);
    rig.ask(0, |engine, bufs| {
        let buf = bufs.alloc(100_000).expect("a buffer");
        engine.rules.into = Some(buf);
        engine.rules.free_at_close.push(buf);
    });
    let at = rig.listen(0, loopback());
    let mut peer = TcpStream::connect(tcp(&at)).expect("connected");
    let conn = rig.accepted(0);
    // A part of it is there; the rest never comes.
    peer.write_all(&[1; 1000]).expect("written");
    rig.ask(0, move |engine, _| engine.close(conn, CloseHow::Abort));
    assert_eq!(rig.closed(0, conn), CloseCause::Requested);
    rig.stop();
}

/// Many connections opened and aborted at once, each in whatever state it is: one `Closed` each.
#[test]
fn every_connection_ends_once() {
    let mut rig = Rig::new(2);
    rig.ask(0, |engine, _| engine.rules.echo = true);
    let at = rig.listen(0, loopback());
    for round in 0..20u32 {
        let at = at.clone();
        rig.ask(1, move |engine, _| {
            for i in 0..50 {
                let conn = ConnId::opened(i);
                engine.connect(conn, at.clone());
                if i % 3 == round % 3 {
                    engine.close(conn, CloseHow::Abort);
                }
            }
        });
        rig.ask(1, |engine, _| {
            for i in 0..50 {
                let conn = ConnId::opened(i);
                engine.send(conn, Piece::Copy(vec![1; 100]));
                engine.close(conn, if i % 2 == 0 { CloseHow::Abort } else { CloseHow::Graceful });
                engine.close(conn, CloseHow::Abort);
            }
        });
        for i in 0..50 {
            rig.closed(1, ConnId::opened(i));
        }
    }
    for i in 0..50 {
        assert!(!rig.has(1, &Seen::Closed(ConnId::opened(i), CloseCause::Requested)));
    }
    rig.stop();
}

/// However connections end, their receive buffers come back: with two of them, none may be lost.
#[test]
fn receive_buffers_come_back() {
    let config = Config { receive_buffers: 2, ..Config::named("two") };
    let mut rig = Rig::with(config, 1);
    rig.ask(0, |engine, _| engine.rules.echo = true);
    let at = rig.listen(0, loopback());
    for i in 0..60 {
        let mut peer = TcpStream::connect(tcp(&at)).expect("connected");
        peer.set_read_timeout(Some(LIMIT)).expect("a limit");
        let conn = rig.accepted(0);
        peer.write_all(&[i; 100]).expect("written");
        let mut back = [0; 100];
        peer.read_exact(&mut back).expect("the echo");
        assert_eq!(back, [i; 100]);
        match i % 4 {
            0 => drop(peer),
            1 => {
                let linger = Some(std::time::Duration::ZERO);
                socket2::SockRef::from(&peer).set_linger(linger).expect("linger");
                drop(peer);
            }
            2 => {
                let _ = peer.write_all(&[0; 1 << 20]);
                rig.ask(0, move |engine, _| engine.close(conn, CloseHow::Abort));
            }
            _ => {
                rig.ask(0, move |engine, _| engine.close(conn, CloseHow::Graceful));
                let _ = peer.write_all(&[0; 1 << 18]);
                drop(peer);
            }
        }
        rig.closed(0, conn);
    }
    rig.stop();
}
