//! Test support: fuzz bodies as ordinary functions, and the small world that they and the tests run
//! an engine in. Not for production.

pub mod client;
mod harness;
mod memory;

pub use harness::Harness;
pub use memory::MemoryHost;

use crate::nbd::{Export, NbdConfig};

/// Fuzz body: a client that sends these bytes, cut up and mixed with completions in any order, then
/// leaves. The server must not panic, and must give back every buffer.
///
/// The first four bytes say how: whether a valid negotiation goes before, in what portions bytes
/// arrive, what the host does.
///
/// # Panics
/// When the server misbehaves.
pub fn nbd(bytes: &[u8]) {
    let Some((&[mode, portion, order, memory], rest)) = bytes.split_first_chunk::<4>() else {
        return;
    };
    let exports = ["", "disk"].map(|name| Export {
        name: name.into(),
        description: "a disk".into(),
        device: "nvme0n1".into(),
        ..Export::default()
    });
    let config = NbdConfig { listen: None, exports: exports.to_vec() };
    let mut harness = Harness::new(config, 64 << 10 << (memory % 10));
    harness.host.add_disk("nvme0n1", 2 << 20, if mode & 1 == 0 { 512 } else { 4096 });
    harness.host.room = usize::from(order % 7) + 1;
    harness.portion = usize::from(portion) * 37 + 1;
    harness.complete_at_once = mode & 2 != 0;
    harness.hold_transmissions = mode & 4 != 0;
    harness.aims = mode & 8 != 0;
    let conn = harness.connect();
    if mode & 16 != 0 {
        let hello = client::negotiate("disk", mode & 32 != 0);
        harness.send(conn, &hello);
    }
    for (i, part) in rest.chunks(usize::from(portion) * 64 + 13).enumerate() {
        harness.send(conn, part);
        match usize::from(order).wrapping_add(i) % 4 {
            0 => harness.complete_one(0),
            1 => harness.complete_one(usize::MAX),
            2 => harness.release_transmissions(),
            _ => harness.pass_time(),
        }
    }
    harness.check_bounds();
    if mode & 64 != 0 {
        harness.complete_all();
    }
    harness.disconnect(conn);
    harness.complete_all();
    harness.check_empty();
}
