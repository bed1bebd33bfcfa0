//! The load through NBD allocates nothing per request.

#[path = "support/heap.rs"]
mod heap;

use anabranch_lab::nbd::fuzz::{greet, job, opened};
use anabranch_lab::nbd::{NbdLoad, NbdLoadVerb};
use anabranch_proto::machine::{
    BufRef, Buffers, ConnId, Endpoint, Gather, Input, Machine, Output, Time, VerbId,
};
use anabranch_proto::testing::MemoryBuffers;
use std::convert::Infallible;

const CONN: ConnId = ConnId::opened(0);
const DEPTH: u32 = 16;
const BYTES: u32 = 4096;

/// A batch of which only the requests' cookies are kept, and whether they are reads.
struct Cookies {
    seen: Vec<(u64, bool)>,
}

impl Gather for Cookies {
    fn copy(&mut self, bytes: &[u8]) {
        if let Ok(header) = <[u8; 28]>::try_from(bytes) {
            let cookie = u64::from_be_bytes(header[8..16].try_into().expect("eight bytes"));
            self.seen.push((cookie, header[7] == 0));
        }
    }

    fn payload(&mut self, _buf: BufRef, _bufs: &dyn Buffers) {}

    fn has_room(&self) -> bool {
        true
    }
}

struct Server {
    load: NbdLoad,
    pool: MemoryBuffers,
    batch: Cookies,
    now: u64,
}

impl Server {
    fn input(&mut self, input: Input<'_, NbdLoadVerb, Infallible>) {
        self.now += 1000;
        let now = Time::from_ns(self.now);
        self.load.handle(now, input, &mut self.pool);
        let mut transmit = false;
        while let Some(output) = self.load.poll_output() {
            transmit |= matches!(output, Output::Transmit { .. });
        }
        if transmit {
            self.load.poll_transmit(now, CONN, &mut self.batch, &mut self.pool);
            self.load.handle(now, Input::Transmitted { conn: CONN }, &mut self.pool);
        }
    }

    fn say(&mut self, bytes: &[u8]) {
        self.input(Input::Received { conn: CONN, bytes });
    }

    /// Answers this many requests, the oldest first.
    fn answer(&mut self, count: usize, bytes: &mut [u8]) {
        for _ in 0..count {
            let (cookie, read) = self.batch.seen.remove(0);
            bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
            self.say(if read { bytes } else { &bytes[..16] });
        }
    }
}

#[test]
fn nothing_is_allocated_per_request() {
    let mut server = Server {
        load: NbdLoad::new(),
        pool: MemoryBuffers::new(),
        batch: Cookies { seen: Vec::with_capacity(4 * DEPTH as usize) },
        now: 0,
    };
    let to = Endpoint::Tcp(([127, 0, 0, 1], 10809).into());
    let open = NbdLoadVerb::Open { to, export: "disk".to_owned(), connections: 1 };
    server.input(Input::Verb { id: VerbId(1), verb: open });
    server.say(&greet());
    server.say(&opened(1 << 20));
    let job = Box::new(job(50, &[BYTES], DEPTH, false));
    let start = NbdLoadVerb::Start { job, first: 0, of: 1 };
    server.input(Input::Verb { id: VerbId(2), verb: start });
    let mut reply = vec![0; 16 + BYTES as usize];
    reply[..4].copy_from_slice(&anabranch_export::nbd::wire::SIMPLE_REPLY_MAGIC.to_be_bytes());
    server.answer(1000, &mut reply);
    let before = heap::own_operations();
    server.answer(20_000, &mut reply);
    assert_eq!(heap::own_operations() - before, 0, "heap operations in 20000 requests");
    assert_eq!(server.batch.seen.len(), DEPTH as usize, "the depth is kept");
}
