//! Socket options reach the socket.

use crate::support;

use crate::support::{Rig, loopback, tcp};
use anabranch_proto::machine::{CloseCause, ConnId, Endpoint, Output, SocketOptions};
use rustix::net::sockopt::{set_tcp_quickack, tcp_quickack};
use socket2::SockRef;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

const CONN: ConnId = ConnId::opened(0);

fn listener() -> (TcpListener, Endpoint) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let at = Endpoint::Tcp(listener.local_addr().expect("an address"));
    (listener, at)
}

/// What the worker's socket that leads to `peer` has, seen from outside: among the descriptors of
/// this process.
fn of_socket<T>(peer: SocketAddr, look: impl Fn(&SockRef<'_>) -> io::Result<T>) -> Option<T> {
    std::fs::read_dir("/proc/self/fd").expect("listed").find_map(|entry| {
        let fd = entry.ok()?.file_name().to_str()?.parse().ok()?;
        // SAFETY: only read while the worker, which owns it, is idle; not closed here.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
        let socket = SockRef::from(&fd);
        let to = socket.peer_addr().ok()?.as_socket()?;
        (to == peer).then(|| look(&socket).expect("it can be read"))
    })
}

#[test]
fn of_outgoing_connections() {
    let mut rig = Rig::new(1);
    let (listener, to) = listener();
    let at = tcp(&to);
    let source: IpAddr = "127.0.0.9".parse().expect("an address");
    let options = SocketOptions {
        source: Some(source),
        interface: Some("lo".to_owned()),
        tos: Some(0x20),
        buffer_bytes: Some(64 << 10),
        ..SocketOptions::default()
    };
    rig.ask(0, move |engine, _| engine.out(Output::Connect { conn: CONN, to, options }));
    let (_peer, from) = listener.accept().expect("accepted");
    assert_eq!(from.ip(), source);
    rig.expect(0, &support::Seen::Connected(CONN));
    let ours = of_socket(at, |socket| {
        let bytes = (socket.send_buffer_size()?, socket.recv_buffer_size()?);
        Ok((socket.device()?, socket.tos_v4()?, bytes, socket.tcp_nodelay()?, socket.linger()?))
    });
    // The system doubles what is asked for.
    let bytes = (128 << 10, 128 << 10);
    // What is left to send dies with the connection.
    let linger = Some(Duration::ZERO);
    assert_eq!(ours, Some((Some(b"lo".to_vec()), 0x20, bytes, true, linger)));
    rig.stop();
}

#[test]
fn type_of_service_over_ipv6() {
    let mut rig = Rig::new(1);
    let Ok(listener) = TcpListener::bind("[::1]:0") else {
        return println!("this machine has no IPv6");
    };
    let at = listener.local_addr().expect("an address");
    let options = SocketOptions { tos: Some(0x20), ..SocketOptions::default() };
    let to = Endpoint::Tcp(at);
    rig.ask(0, move |engine, _| engine.out(Output::Connect { conn: CONN, to, options }));
    rig.expect(0, &support::Seen::Connected(CONN));
    assert_eq!(of_socket(at, |socket| socket.tclass_v6()), Some(0x20));
    rig.stop();
}

/// Where the system would wait for something to send that carries it.
#[test]
fn acknowledgements_are_sent_at_once_when_that_is_asked_for() {
    let mut rig = Rig::new(1);
    let (listener, to) = listener();
    let at = tcp(&to);
    let options = SocketOptions::default();
    rig.ask(0, move |engine, _| engine.out(Output::Connect { conn: CONN, to, options }));
    rig.expect(0, &support::Seen::Connected(CONN));
    let (peer, _) = listener.accept().expect("accepted");
    let at_once = || of_socket(at, |socket| Ok(tcp_quickack(socket.as_fd())?));
    // As after a while of questions and answers.
    of_socket(at, |socket| Ok(set_tcp_quickack(socket.as_fd(), false)?));
    assert_eq!(at_once(), Some(false));
    rig.ask(0, move |engine, _| engine.out(Output::Acknowledge { conn: CONN }));
    assert_eq!(at_once(), Some(true));
    drop(peer);
    rig.closed(0, CONN);
    // Of one that is over it means nothing.
    rig.ask(0, move |engine, _| engine.out(Output::Acknowledge { conn: CONN }));
    rig.stop();
}

#[test]
fn impossible_ones_end_in_closed() {
    let mut rig = Rig::new(1);
    let (_listener, at) = listener();
    let elsewhere = Some("192.0.2.1".parse().expect("an address"));
    let family = Some("::1".parse().expect("an address"));
    let nowhere = Some("nosuchif0".to_owned());
    for options in [
        SocketOptions { source: elsewhere, ..SocketOptions::default() },
        SocketOptions { source: family, ..SocketOptions::default() },
        SocketOptions { interface: nowhere, ..SocketOptions::default() },
    ] {
        let to = at.clone();
        rig.ask(0, move |engine, _| engine.out(Output::Connect { conn: CONN, to, options }));
        assert!(matches!(rig.closed(0, CONN), CloseCause::Failed(_)));
    }
    rig.stop();
}

/// Nothing waits for Nagle, on either side; buffer sizes are inherited from the listener; a peer
/// that is gone without a word is noticed.
#[test]
fn of_accepted_connections() {
    let mut rig = Rig::new(1);
    let options = SocketOptions { buffer_bytes: Some(32 << 10), ..SocketOptions::default() };
    rig.ask(0, move |engine, _| {
        let listener = anabranch_proto::machine::ListenerId(7);
        engine.out(Output::Listen { listener, at: loopback(), options });
    });
    let at = rig.wait(0, |seen| match seen {
        support::Seen::Listening(_, at) => Some(at.clone()),
        _ => None,
    });
    let peer = TcpStream::connect(tcp(&at)).expect("connected");
    rig.accepted(0);
    let ours = of_socket(peer.local_addr().expect("an address"), |socket| {
        let kept = (socket.keepalive()?, socket.tcp_keepalive_time()?.as_secs());
        Ok((socket.tcp_nodelay()?, socket.send_buffer_size()?, kept))
    });
    // The system doubles what is asked for.
    assert_eq!(ours, Some((true, 64 << 10, (true, 60))));
    rig.stop();
}
