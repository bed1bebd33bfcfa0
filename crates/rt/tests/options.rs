//! Socket options reach the socket.

mod support;

use anabranch_proto::machine::{CloseCause, ConnId, Endpoint, Output, SocketOptions};
use socket2::SockRef;
use std::net::{IpAddr, TcpListener, TcpStream};
use support::{Rig, loopback, tcp};

const CONN: ConnId = ConnId::opened(0);

fn listener() -> (TcpListener, Endpoint) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let at = Endpoint::Tcp(listener.local_addr().expect("an address"));
    (listener, at)
}

#[test]
fn of_outgoing_connections() {
    let mut rig = Rig::new(1);
    let (listener, to) = listener();
    let source: IpAddr = "127.0.0.9".parse().expect("an address");
    let options = SocketOptions {
        source: Some(source),
        interface: Some("lo".to_owned()),
        tos: Some(0x20),
        buffer_bytes: Some(64 << 10),
    };
    rig.ask(0, move |engine, _| engine.out(Output::Connect { conn: CONN, to, options }));
    let (_peer, from) = listener.accept().expect("accepted");
    assert_eq!(from.ip(), source);
    rig.expect(0, &support::Seen::Connected(CONN));
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
    // Seen from outside: the descriptors of this process that lead to our peer.
    let ours = std::fs::read_dir("/proc/self/fd").expect("listed").find_map(|entry| {
        let fd = entry.ok()?.file_name().to_str()?.parse().ok()?;
        // SAFETY: only read while the worker, which owns it, is idle; not closed here.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
        let socket = SockRef::from(&fd);
        let to = socket.peer_addr().ok()?.as_socket()?;
        (to == peer.local_addr().ok()?).then_some(())?;
        let kept = (socket.keepalive().ok()?, socket.tcp_keepalive_time().ok()?.as_secs());
        Some((socket.tcp_nodelay().ok()?, socket.send_buffer_size().ok()?, kept))
    });
    // The system doubles what is asked for.
    assert_eq!(ours, Some((true, 64 << 10, (true, 60))));
    rig.stop();
}
