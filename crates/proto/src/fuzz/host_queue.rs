//! Any bytes against the host's side of a connection.

use crate::host_queue::{Attempt, Cid, HostData, HostQueue, HostQueueConfig};
use crate::machine::{BufRef, Buffers};
use crate::nvme::io;
use crate::testing::{MemoryBuffers, VecGather};
use alloc::vec;
use alloc::vec::Vec;

const DEPTH: u16 = 8;
const COMMAND_BYTES: u32 = 24 << 10;
const FILL: u8 = 0x5a;
/// What a read's buffer holds once it was taken back.
const POISON: u8 = 0xa7;
/// The one read with a buffer.
const READ: usize = 0;

/// A host with commands of each kind on their way, each with a buffer between two guards.
struct Host {
    queue: HostQueue,
    bufs: MemoryBuffers,
    buffers: Vec<BufRef>,
    ended: Vec<u32>,
    whims: u8,
    read: Option<Cid>,
    /// Pieces that are still to come before the read's buffer is taken back; for ever with 0.
    patience: u8,
    taken_back: bool,
}

/// The first two bytes choose how the stream is cut and how the host behaves, the rest is what a
/// controller sends. Whatever it is: each command ends once, no byte outside a read's buffer, none
/// of one that was taken back and none of a write's is touched, and a connection at fault sends one
/// farewell at most.
///
/// # Panics
/// When any of that is not so.
pub fn host_queue(bytes: &[u8]) {
    let [cut, whims, stream @ ..] = bytes else { return };
    let mut host = Host::new(*whims);
    let piece = match cut {
        0 => stream.len().max(1),
        small @ 1..128 => usize::from(*small),
        large => usize::from(*large) * 64,
    };
    let mut rest = stream;
    while !rest.is_empty() {
        let aimed = host.aim();
        host.take_back(aimed);
        rest = host.feed(rest, piece, aimed);
        host.submit();
        host.send();
        host.collect();
    }
    host.end();
}

impl Host {
    fn new(whims: u8) -> Host {
        let mut queue = HostQueue::new(HostQueueConfig {
            qid: 1,
            depth: DEPTH,
            hdr_digest: whims & 2 != 0,
            data_digest: whims & 4 != 0,
            in_capsule_bytes: 8192,
        });
        queue.connected();
        let mut bufs = MemoryBuffers::new();
        let buffers = vec![bufs.filled(&[FILL; 3 * COMMAND_BYTES as usize]); 1];
        let (ended, patience) = (Vec::new(), whims >> 4);
        Host { queue, bufs, buffers, ended, whims, read: None, patience, taken_back: false }
    }

    /// Commands as soon as the connection is ready: a read, a small and a large write, a flush, a
    /// read that nobody wants.
    fn submit(&mut self) {
        if !self.queue.is_ready() || !self.ended.is_empty() {
            return;
        }
        for user in 0..5 {
            let whole = self.bufs.filled(&[FILL; 3 * COMMAND_BYTES as usize]);
            let middle = whole.slice(COMMAND_BYTES, COMMAND_BYTES);
            let (sqe, data) = match user {
                0 => (io::read(1, 0, 48), HostData::In(middle)),
                1 => (io::write(1, 0, 8, false), HostData::Out(middle.slice(0, 4096))),
                2 => (io::write(1, 0, 48, false), HostData::Out(middle)),
                3 => (io::flush(1), HostData::None),
                _ => (io::read(1, 0, 48), HostData::Sink(COMMAND_BYTES)),
            };
            self.buffers.push(whole);
            self.ended.push(0);
            let taken = self.queue.submit(sqe, data, user);
            assert!(taken.is_ok(), "a fresh queue has tags");
            self.read = self.read.or(taken.ok());
        }
    }

    /// Where the driver aims the next receive.
    fn aim(&mut self) -> Option<BufRef> {
        if self.whims & 1 != 0 { self.queue.receive_hint() } else { None }
    }

    /// Tries to take the read's buffer back when its time has come, and from then on.
    fn take_back(&mut self, aimed: Option<BufRef>) {
        let Some(cid) = self.read.filter(|_| self.patience > 0) else { return };
        if self.patience > 1 {
            self.patience -= 1;
            return;
        }
        let ended = self.ended[READ] > 0;
        if self.queue.release_buffer(cid) {
            assert!(!ended && !self.taken_back, "once, and before the command has ended");
            assert_eq!(aimed, None, "the driver has a read's buffer at most");
            let middle = self.buffers[READ + 1].slice(COMMAND_BYTES, COMMAND_BYTES);
            self.bufs.bytes_mut(middle).fill(POISON);
            self.taken_back = true;
        }
    }

    fn feed<'a>(&mut self, rest: &'a [u8], piece: usize, aimed: Option<BufRef>) -> &'a [u8] {
        let Some(buf) = aimed else {
            let (now, later) = rest.split_at(rest.len().min(piece));
            self.queue.received(now, &mut self.bufs);
            return later;
        };
        let len = rest.len().min(piece).min(buf.len() as usize);
        let (now, later) = rest.split_at(len);
        self.bufs.bytes_mut(buf)[..len].copy_from_slice(now);
        self.queue.received_into(len as u32, &mut self.bufs);
        later
    }

    fn send(&mut self) {
        let at_fault = self.queue.fault().is_some();
        let mut batches = 0;
        while self.queue.has_transmit() {
            let mut batch = VecGather::with_room(2);
            self.queue.poll_transmit(&mut batch, &mut self.bufs);
            batches += 1;
            if self.whims & 8 == 0 {
                self.queue.transmitted();
            }
            assert!(batches < 1000, "sending comes to an end");
        }
        // A slow line: what has left is told late.
        self.queue.transmitted();
        assert!(!at_fault || batches <= 1, "only a farewell after a fault");
    }

    fn collect(&mut self) {
        while let Some(done) = self.queue.poll_completion() {
            self.ended[done.user as usize] += 1;
        }
    }

    fn end(mut self) {
        while let Some(left) = self.queue.drain() {
            self.ended[left.user as usize] += 1;
            let ready = self.queue.is_ready() || self.queue.fault().is_some();
            assert!(ready || left.attempt == Attempt::NeverSent, "nothing leaves before ICResp");
        }
        self.collect();
        assert!(self.ended.iter().all(|&times| times == 1), "each command ends once");
        assert_eq!(self.queue.in_flight(), 0);
        for (index, whole) in self.buffers.iter().enumerate() {
            let read = index == READ + 1;
            let bytes = self.bufs.bytes(*whole);
            let (before, rest) = bytes.split_at(COMMAND_BYTES as usize);
            let (middle, after) = rest.split_at(COMMAND_BYTES as usize);
            let untouched = |part: &[u8]| part.iter().all(|&byte| byte == FILL);
            assert!(untouched(before) && untouched(after), "the guards of buffer {index}");
            assert!(read || untouched(middle), "buffer {index} is not read into");
            let poisoned = middle.iter().all(|&byte| byte == POISON);
            assert!(!(read && self.taken_back) || poisoned, "it was taken back");
        }
    }
}
