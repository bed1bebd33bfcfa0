//! What the NBD tests share.

use anabranch_export::fuzz::{Harness, client};
use anabranch_export::nbd::{Export, NbdConfig, wire};
use anabranch_proto::machine::ConnId;
use std::collections::BTreeMap;

pub(crate) const DISK_BYTES: u64 = 4 << 20;
pub(crate) const LARGE_DISK_BYTES: u64 = 64 << 20;

pub(crate) fn export(name: &str, device: &str) -> Export {
    Export {
        name: name.into(),
        description: format!("the disk {device}"),
        device: device.into(),
        ..Export::default()
    }
}

/// A server with one small disk of 512-byte blocks, exported as `disk`.
pub(crate) fn server() -> Harness {
    server_of(DISK_BYTES)
}

/// The same with a disk that takes requests of the largest size.
pub(crate) fn large_server() -> Harness {
    server_of(LARGE_DISK_BYTES)
}

fn server_of(disk_bytes: u64) -> Harness {
    let config = NbdConfig { listen: None, exports: vec![export("disk", "nvme0n1")] };
    let mut harness = Harness::new(config, 256 << 20);
    harness.host.add_disk("nvme0n1", disk_bytes as usize, 512);
    harness
}

/// A client that has opened the export; the server's side of the negotiation is taken.
pub(crate) fn open(harness: &mut Harness, structured: bool) -> ConnId {
    let conn = harness.connect();
    harness.send(conn, &client::negotiate("disk", structured));
    let bytes = harness.take(conn);
    let (replies, rest) = client::negotiation(&bytes);
    assert!(replies.iter().all(|reply| reply.kind & (1 << 31) == 0));
    assert!(rest.is_empty());
    conn
}

/// Sends one request that carries no payload and returns its answer.
pub(crate) fn ask(
    harness: &mut Harness,
    conn: ConnId,
    command: u16,
    flags: u16,
    offset: u64,
    bytes: u32,
) -> client::Answer {
    harness.send(conn, &client::request(command, flags, 77, offset, bytes));
    one_answer(harness, conn, if command == wire::command::READ { bytes } else { 0 })
}

/// The one answer, to cookie 77, that the server has sent.
pub(crate) fn one_answer(harness: &mut Harness, conn: ConnId, read_bytes: u32) -> client::Answer {
    let received = harness.take(conn);
    let (mut answers, rest) = client::answers(&received, &BTreeMap::from([(77, read_bytes)]));
    assert!(rest.is_empty(), "a whole number of replies");
    assert_eq!(answers.len(), 1, "one answer");
    let answer = answers.remove(&77).expect("to the request");
    assert!(answer.done);
    answer
}

/// SplitMix64; the seed is printed and can be set with the environment variable `SEED`.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn seeded() -> Random {
        let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(4);
        println!("SEED={seed}");
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
