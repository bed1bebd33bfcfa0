//! Any bytes against the controller's side of a connection.

use crate::machine::{BufRef, Buffers};
use crate::nvme::opcode::Direction;
use crate::nvme::{Sqe, Status};
use crate::target_queue::{Slot, TargetEvent, TargetQueue, TargetQueueConfig};
use crate::testing::{MemoryBuffers, VecGather};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

const DEPTH: u16 = 8;
const MEMORY_BYTES: u64 = 1 << 20;
const TRANSFER_BYTES: u32 = 64 << 10;

/// An engine that answers everything, sometimes late, sometimes early.
struct Engine {
    queue: TargetQueue,
    bufs: MemoryBuffers,
    transfers: Vec<Option<BufRef>>,
    late: VecDeque<(Slot, Sqe)>,
    whims: u8,
}

/// The first two bytes choose how the stream is cut and how the engine behaves, the rest is what a
/// host sends. Whatever it is: commands in progress stay within the depth, memory within its limit,
/// a connection at fault falls silent, and in the end every buffer has come back once.
///
/// # Panics
/// When any of that is not so.
pub fn target_queue(bytes: &[u8]) {
    let [cut, whims, stream @ ..] = bytes else { return };
    let mut engine = Engine {
        queue: TargetQueue::new(TargetQueueConfig {
            depth: DEPTH,
            in_capsule_bytes: 8192,
            max_h2c_data: 8192,
            allow_hdr_digest: true,
            allow_data_digest: true,
            max_transfer_bytes: TRANSFER_BYTES,
        }),
        bufs: MemoryBuffers::with_limit(MEMORY_BYTES),
        transfers: vec![None; DEPTH.into()],
        late: VecDeque::new(),
        whims: *whims,
    };
    let piece = match cut {
        0 => stream.len().max(1),
        small @ 1..128 => usize::from(*small),
        large => usize::from(*large) * 64,
    };
    let mut rest = stream;
    while !rest.is_empty() {
        rest = engine.feed(rest, piece);
        engine.serve();
        engine.send();
        assert!(engine.queue.in_flight() <= DEPTH);
    }
    engine.answer_late();
    engine.send();
    engine.end();
}

impl Engine {
    fn feed<'a>(&mut self, rest: &'a [u8], piece: usize) -> &'a [u8] {
        let aimed = self.queue.receive_hint().filter(|_| self.whims & 1 != 0);
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

    fn serve(&mut self) {
        while let Some(event) = self.queue.poll_event() {
            match event {
                TargetEvent::Command { slot } => {
                    let sqe = *self.queue.sqe(slot);
                    let data = self.queue.take_data(slot);
                    self.command(slot, sqe, data);
                }
                TargetEvent::DataReady { slot } => self.transferred(slot, Status::SUCCESS),
                TargetEvent::DataDigestError { slot } => {
                    self.transferred(slot, Status::TRANSIENT_TRANSPORT_ERROR);
                }
            }
        }
    }

    fn command(&mut self, slot: Slot, sqe: Sqe, data: Option<BufRef>) {
        if let Some(buf) = data {
            self.bufs.free(buf);
            self.queue.complete(slot, Status::SUCCESS, 0);
        } else if self.whims & 2 != 0 && sqe.cid() & 1 != 0 {
            self.late.push_back((slot, sqe));
        } else {
            self.answer(slot, &sqe);
        }
    }

    fn answer(&mut self, slot: Slot, sqe: &Sqe) {
        let wanted = sqe.sgl().length().min(TRANSFER_BYTES);
        let buf = if wanted > 0 { self.bufs.alloc(wanted) } else { None };
        match (sqe.direction(), buf) {
            (Direction::HostToController, Some(buf)) => {
                self.transfers[usize::from(slot.index())] = Some(buf);
                self.queue.request_data(slot, buf);
                if self.whims & 4 != 0 && sqe.cid() & 2 != 0 {
                    // The queue gives the buffer back by itself.
                    self.transfers[usize::from(slot.index())] = None;
                    self.queue.complete(slot, Status::ABORT_REQUESTED, 0);
                }
            }
            (Direction::ControllerToHost, Some(buf)) => {
                let bad = self.whims & 8 != 0 && sqe.cid() & 4 != 0;
                let status = if bad { Status::INTERNAL_ERROR } else { Status::SUCCESS };
                self.queue.send_data(slot, buf);
                self.queue.complete(slot, status, 0);
            }
            (_, buf) => {
                if let Some(buf) = buf {
                    self.bufs.free(buf);
                }
                self.queue.set_sq_flow_control(self.whims & 16 == 0);
                self.queue.complete(slot, Status::SUCCESS, 1);
            }
        }
    }

    fn transferred(&mut self, slot: Slot, status: Status) {
        let buf = self.transfers[usize::from(slot.index())].take();
        self.bufs.free(buf.expect("a transfer was asked for"));
        self.queue.complete(slot, status, 0);
    }

    fn answer_late(&mut self) {
        while let Some((slot, sqe)) = self.late.pop_back() {
            self.answer(slot, &sqe);
        }
    }

    fn send(&mut self) {
        if self.late.len() > 3 {
            self.answer_late();
        }
        if self.whims & 32 != 0 && self.queue.in_flight() < DEPTH / 2 {
            // A slow line: the batch waits.
            return;
        }
        let at_fault = self.queue.fault().is_some();
        let mut pdus = 0;
        while self.queue.has_transmit() {
            let mut batch = VecGather::with_room(2);
            self.queue.poll_transmit(&mut batch, &mut self.bufs);
            assert!(!batch.is_empty(), "something was ready");
            pdus += 1;
            self.queue.transmitted();
            while let Some(buf) = self.queue.poll_released() {
                self.bufs.free(buf);
            }
        }
        assert!(!at_fault || pdus <= 1, "only a farewell after a fault");
    }

    fn end(&mut self) {
        while let Some(drained) = self.queue.drain() {
            if let Some(buf) = drained.buf {
                self.bufs.free(buf);
            }
        }
        assert_eq!(self.bufs.in_use_bytes(), 0, "every buffer came back once");
        assert_eq!(self.queue.in_flight(), 0);
    }
}
