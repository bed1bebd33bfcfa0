//! `ReceiveInto` puts the next bytes of the stream straight into the engine's buffer.

use crate::support::{Random, Rig, Seen, loopback, tcp};
use anabranch_proto::machine::{BufRef, ConnId, WorkerId};
use anabranch_rt::Config;
use std::io::Write;
use std::net::TcpStream;

/// Every byte arrives once and in order, however it is cut and whichever way it takes.
#[test]
fn bytes_land_in_the_buffer_in_order() {
    let mut random = Random::new();
    let mut rig = Rig::new(1);
    let buf = rig.ask(0, |engine, bufs| {
        let buf = bufs.alloc(300_000).expect("a buffer");
        engine.rules.into = Some(buf);
        buf
    });
    let at = rig.listen(0, loopback());
    let mut peer = TcpStream::connect(tcp(&at)).expect("connected");
    let conn = rig.accepted(0);
    let sent = random.bytes(2_000_000);
    let copy = sent.clone();
    let mut cuts = Random(random.next());
    let writer = std::thread::spawn(move || {
        let mut rest = &copy[..];
        while !rest.is_empty() {
            let len = (1 + cuts.below(100_000) as usize).min(rest.len());
            peer.write_all(&rest[..len]).expect("written");
            rest = &rest[len..];
        }
        // The end of the stream ends a receive that waits for the rest of its buffer.
        drop(peer);
    });
    let all = rig.bytes(0, conn, sent.len());
    assert!(all == sent, "bytes in the buffer are the bytes of the stream");
    writer.join().expect("the writer");
    // Until then a receive may name the buffer.
    rig.closed(0, conn);
    let stats = rig.group.stats(WorkerId(0)).expect("stats");
    assert!(stats.received_into_bytes > 0, "the hint was used: {stats:?}");
    assert_eq!(stats.received_bytes, sent.len() as u64);
    rig.ask(0, move |_, bufs| bufs.free(buf));
    rig.stop();
}

/// Where long payload follows short headers, most of it goes straight to its place even though a
/// receive buffer could hold all.
#[test]
fn most_of_long_payload_is_aimed() {
    let mut random = Random::new();
    let mut rig = Rig::new(1);
    rig.ask(0, |engine, bufs| {
        engine.rules.into = bufs.alloc(110_000);
        engine.rules.into_seldom = true;
    });
    let at = rig.listen(0, loopback());
    let mut peer = TcpStream::connect(tcp(&at)).expect("connected");
    let conn = rig.accepted(0);
    let sent = random.bytes(8 << 20);
    let copy = sent.clone();
    let writer = std::thread::spawn(move || peer.write_all(&copy).expect("written"));
    assert!(rig.bytes(0, conn, sent.len()) == sent, "in order");
    writer.join().expect("the writer");
    let stats = rig.group.stats(WorkerId(0)).expect("stats");
    let share = stats.received_into_bytes * 100 / stats.received_bytes;
    assert!(share > 80, "{share} % went straight: {stats:?}");
    rig.stop();
}

/// A hint that comes while a receive is in flight is about bytes which that receive takes.
#[test]
fn a_late_hint_is_ignored() {
    let mut rig = Rig::new(1);
    let at = rig.listen(0, loopback());
    let mut peer = TcpStream::connect(tcp(&at)).expect("connected");
    let conn = rig.accepted(0);
    // By the answer of a second request, the receive is armed.
    rig.ask(0, |_, _| ());
    rig.ask(0, move |engine, bufs| {
        let buf = bufs.alloc(4096).expect("a buffer");
        engine.rules.into = Some(buf);
        engine.out(anabranch_proto::machine::Output::ReceiveInto { conn, buf });
    });
    peer.write_all(b"first").expect("written");
    let first = rig.wait(0, |seen| match seen {
        Seen::Received(_, bytes) => Some(bytes.clone()),
        Seen::ReceivedInto(..) => panic!("aimed at the wrong bytes"),
        _ => None,
    });
    assert_eq!(first, b"first");
    peer.write_all(&[7; 4096]).expect("written");
    rig.expect(0, &Seen::ReceivedInto(ConnId::accepted(conn.index()), 4096));
    rig.stop();
}

/// A receive that has room for nothing would look like the end of the stream.
#[test]
fn a_hint_without_room_is_ignored() {
    let mut rig = Rig::new(1);
    rig.ask(0, |engine, _| engine.rules.into = Some(BufRef::EMPTY));
    let at = rig.listen(0, loopback());
    let mut peer = TcpStream::connect(tcp(&at)).expect("connected");
    let conn = rig.accepted(0);
    peer.write_all(b"hello").expect("written");
    assert_eq!(rig.bytes(0, conn, 5), b"hello");
    rig.stop();
}

/// Numbers of the threads of this process that are called so.
fn threads(name: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc/self/task").expect("threads");
    let all = all.map(|thread| thread.expect("a thread"));
    // Some end meanwhile.
    let called = |thread: &std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm"));
    all.filter(|thread| called(thread).is_ok_and(|it| it.trim_end() == name))
        .map(|thread| thread.file_name().into_string().expect("a number"))
        .collect()
}

/// More often than the system tries a receive again by itself before it leaves it to a thread.
const TRICKLES: usize = 300;

/// A peer that trickles, or a slow link, costs no thread of the system.
#[test]
fn payload_that_comes_in_many_parts_costs_no_thread() {
    let mut rig = Rig::with(Config::named("trickle"), 1);
    rig.ask(0, |engine, bufs| {
        engine.rules.into = bufs.alloc(4096);
        engine.rules.quiet = true;
    });
    let at = rig.listen(0, loopback());
    let mut peer = TcpStream::connect(tcp(&at)).expect("connected");
    peer.set_nodelay(true).expect("an option");
    rig.accepted(0);
    let worker = threads("trickle-0").pop().expect("it runs");
    for _ in 0..TRICKLES {
        peer.write_all(b".").expect("written");
        // By the answer the worker has been awake.
        rig.ask(0, |_, _| ());
        assert_eq!(threads(&format!("iou-wrk-{worker}")), [""; 0]);
    }
    drop(peer);
    rig.stop();
}
