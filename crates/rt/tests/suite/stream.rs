//! What one side sends, the other receives: every byte, in order, in any sizes.

use crate::support::{Dir, Piece, Random, Rig, loopback};
use anabranch_proto::machine::{BufRef, ConnId, Endpoint};
use anabranch_rt::Config;

const CONN: ConnId = ConnId::opened(3);

/// Sends pieces of random sizes, copied and referenced, to an echo on another worker.
fn echo(config: Config, at: Endpoint) {
    let mut random = Random::new();
    let mut rig = Rig::with(config, 2);
    rig.ask(0, |engine, _| {
        engine.rules.echo = true;
        engine.rules.quiet = true;
    });
    let at = rig.listen(0, at);
    rig.connect(1, CONN, at);
    for _ in 0..30 {
        let count = random.below(40);
        let sent: Vec<Vec<u8>> = (0..count)
            .map(|_| {
                let most = [8, 100, 4096, 9000, 70_000][random.below(5) as usize];
                let len = 1 + random.below(most);
                random.bytes(len as usize)
            })
            .collect();
        let all = sent.concat();
        let as_payload: Vec<bool> = sent.iter().map(|_| random.below(2) == 0).collect();
        let bufs = rig.ask(1, move |engine, bufs| {
            let mut used: Vec<BufRef> = Vec::new();
            for (bytes, payload) in sent.into_iter().zip(as_payload) {
                let buf = if payload { bufs.alloc(bytes.len() as u32) } else { None };
                if let Some(buf) = buf {
                    bufs.bytes_mut(buf).copy_from_slice(&bytes);
                    used.push(buf);
                    engine.send(CONN, Piece::Payload(buf));
                } else {
                    engine.send(CONN, Piece::Copy(bytes));
                }
            }
            used
        });
        let back = rig.bytes(1, CONN, all.len());
        assert!(back == all, "{} bytes come back as they were sent", all.len());
        rig.sent(1, CONN);
        rig.ask(1, move |_, pool| bufs.into_iter().for_each(|buf| pool.free(buf)));
    }
    rig.stop();
}

/// More connections than receive buffers, all busy: everybody gets one in turn.
#[test]
fn many_connections_share_few_receive_buffers() {
    let mut random = Random::new();
    let config = Config { receive_buffers: 2, receive_buffer_bytes: 4096, ..Config::named("few") };
    let mut rig = Rig::with(config, 2);
    rig.ask(0, |engine, _| {
        engine.rules.echo = true;
        engine.rules.quiet = true;
    });
    let at = rig.listen(0, loopback());
    let conns: Vec<ConnId> = (0..40).map(ConnId::opened).collect();
    for conn in &conns {
        rig.connect(1, *conn, at.clone());
    }
    for _ in 0..5 {
        let sent: Vec<Vec<u8>> = conns.iter().map(|_| random.bytes(50_000)).collect();
        let (all, to) = (sent.clone(), conns.clone());
        rig.ask(1, move |engine, _| {
            for (conn, bytes) in to.into_iter().zip(all) {
                engine.send(conn, Piece::Copy(bytes));
            }
        });
        for (conn, bytes) in conns.iter().zip(&sent) {
            assert!(rig.bytes(1, *conn, bytes.len()) == *bytes, "{conn:?}");
        }
    }
    rig.stop();
}

#[test]
fn over_tcp() {
    echo(Config::named("tcp"), loopback());
}

#[test]
fn over_a_unix_socket() {
    let dir = Dir::new("stream");
    echo(Config::named("unix"), Endpoint::Unix(dir.path("s")));
}

#[test]
fn with_few_small_receive_buffers() {
    let config =
        Config { receive_buffers: 2, receive_buffer_bytes: 4096, ..Config::named("small") };
    echo(config, loopback());
}

#[test]
fn with_a_spin_before_sleeping() {
    let spin = std::time::Duration::from_micros(50);
    echo(Config { spin, ..Config::named("spin") }, loopback());
}
