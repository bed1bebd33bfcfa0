//! One connection: negotiates, then sends requests and takes replies apart.

use super::RECEIVE_INTO_BYTES;
use super::engine::Outputs;
use super::negotiation::{Negotiation, Opened};
use crate::load::{Drawn, LoadReport, Work};
use anabranch_export::nbd::wire::{self, command, errno};
use anabranch_proto::machine::{BufRef, Buffers, CloseHow, ConnId, Gather, Output, Time};
use std::collections::VecDeque;
use std::fmt;

const REPLY_BYTES: usize = 16;
/// What one unit of a batch may copy.
const COPY_BYTES: usize = 256;

/// What stands in a failed reply.
struct Errno(u32);

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            errno::EPERM => "EPERM",
            errno::EIO => "EIO",
            errno::EINVAL => "EINVAL",
            errno::ENOSPC => "ENOSPC",
            errno::EOVERFLOW => "EOVERFLOW",
            errno::ENOTSUP => "ENOTSUP",
            errno::ESHUTDOWN => "ESHUTDOWN",
            _ => "an error number",
        };
        write!(f, "the server answers {name} ({})", self.0)
    }
}

struct Slot {
    buf: BufRef,
    /// Names the request on the wire; another one at each use.
    cookie: u64,
    request: Option<(Drawn, Time)>,
    /// The request has left our queue.
    sent: bool,
    /// The driver sends from `buf`, which is ours again when that has ended: a reply may be there
    /// before.
    held: bool,
}

/// The payload of a read that is coming in.
#[derive(Clone, Copy)]
struct Incoming {
    slot: u16,
    done: u32,
    all: u32,
}

enum Phase {
    Negotiating(Box<Negotiation>),
    Open(Opened),
    /// Our farewell is due, or has left.
    Leaving {
        said: bool,
    },
    /// Given up; the driver still has to say that it is closed.
    GivenUp,
    Closed,
}

pub(super) struct Connection {
    conn: ConnId,
    phase: Phase,
    announced: bool,
    slots: Vec<Slot>,
    free: Vec<u16>,
    to_send: VecDeque<u16>,
    /// Writes whose payload is in the batch under way.
    batch: Vec<u16>,
    header: [u8; REPLY_BYTES],
    header_bytes: usize,
    incoming: Option<Incoming>,
    work: Option<Work>,
    running: bool,
    /// The last reply, or the first request after a pause.
    progress: Time,
}

impl Connection {
    pub(super) fn new(conn: ConnId, export: &str) -> Connection {
        Connection {
            conn,
            phase: Phase::Negotiating(Box::new(Negotiation::new(export))),
            announced: false,
            slots: Vec::new(),
            free: Vec::new(),
            to_send: VecDeque::new(),
            batch: Vec::new(),
            header: [0; REPLY_BYTES],
            header_bytes: 0,
            incoming: None,
            work: None,
            running: false,
            progress: Time::ZERO,
        }
    }

    pub(super) fn opened(&self) -> Option<Opened> {
        match self.phase {
            Phase::Open(opened) => Some(opened),
            _ => None,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    /// Nothing of the job is under way, neither here nor in the driver.
    pub(super) fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Requests without a reply.
    pub(super) fn in_flight(&self) -> usize {
        self.slots.iter().filter(|slot| slot.request.is_some()).count()
    }

    /// Since when no reply has come although one is owed.
    pub(super) fn silent_since(&self) -> Option<Time> {
        (self.opened().is_some() && !self.is_idle()).then_some(self.progress)
    }

    /// Gets ready to run `work` with `depth` requests at once, of at most `largest` bytes; `false`
    /// when there is not enough memory.
    pub(super) fn prepare(
        &mut self,
        work: Work,
        depth: u32,
        largest: u32,
        bufs: &mut dyn Buffers,
    ) -> bool {
        let depth = depth as usize;
        self.slots.reserve_exact(depth);
        self.free.reserve_exact(depth);
        self.to_send.reserve_exact(depth);
        self.batch.reserve_exact(depth);
        for slot in 0..depth {
            let Some(buf) = bufs.alloc(largest) else { return false };
            self.slots.push(Slot {
                buf,
                cookie: slot as u64,
                request: None,
                sent: false,
                held: false,
            });
            // At most MAX_DEPTH slots.
            self.free.push(slot as u16);
        }
        self.work = Some(work);
        true
    }

    pub(super) fn run(&mut self, now: Time, out: &mut Outputs, bufs: &mut dyn Buffers) {
        self.running = true;
        self.advance(now, out, bufs);
    }

    pub(super) fn stop(&mut self) {
        self.running = false;
    }

    /// Ends the job, which is idle (or the connection closed); its figures.
    pub(super) fn finish(&mut self, bufs: &mut dyn Buffers) -> LoadReport {
        self.free_slots(bufs);
        self.work.take().map(|work| work.final_report()).unwrap_or_default()
    }

    fn free_slots(&mut self, bufs: &mut dyn Buffers) {
        self.slots.drain(..).for_each(|slot| bufs.free(slot.buf));
        self.free.clear();
        self.to_send.clear();
        self.batch.clear();
    }

    /// When to call [`Connection::advance`] again although nothing has come.
    pub(super) fn wake(&self) -> Option<Time> {
        self.work.as_ref().filter(|_| self.running).and_then(Work::pause)
    }

    /// Queues a request on every free slot.
    pub(super) fn advance(&mut self, now: Time, out: &mut Outputs, bufs: &mut dyn Buffers) {
        let Some(work) = self.work.as_mut().filter(|_| self.running) else { return };
        if !matches!(self.phase, Phase::Open(_)) {
            return;
        }
        if self.free.len() == self.slots.len() {
            self.progress = now;
        }
        // In this order: a pause that is over ends even when no slot is free.
        while work.may_draw(now)
            && let Some(&index) = self.free.last()
        {
            let Some(drawn) = work.draw() else { break };
            let slot = &mut self.slots[usize::from(index)];
            if !drawn.is_read() {
                work.fill(drawn, bufs.bytes_mut(slot.buf.slice(0, work.bytes(drawn))));
            }
            work.submitted(drawn);
            slot.request = Some((drawn, now));
            slot.sent = false;
            slot.cookie = slot.cookie.wrapping_add(1 << 16);
            self.free.pop();
            self.to_send.push_back(index);
        }
        self.announce(out);
    }

    fn announce(&mut self, out: &mut Outputs) {
        let due = match &self.phase {
            Phase::Negotiating(negotiation) => !negotiation.output.is_empty(),
            Phase::Open(_) => !self.to_send.is_empty(),
            Phase::Leaving { .. } | Phase::GivenUp | Phase::Closed => false,
        };
        if due && !self.announced {
            self.announced = true;
            out.push_back(Output::Transmit { conn: self.conn });
        }
    }

    /// The batch has left.
    pub(super) fn transmitted(&mut self, now: Time, out: &mut Outputs, bufs: &mut dyn Buffers) {
        while let Some(index) = self.batch.pop() {
            self.slots[usize::from(index)].held = false;
            self.release(index);
        }
        self.advance(now, out, bufs);
        self.announce(out);
    }

    fn release(&mut self, index: u16) {
        let slot = &self.slots[usize::from(index)];
        if slot.request.is_none() && !slot.held {
            self.free.push(index);
        }
    }

    pub(super) fn poll_transmit(&mut self, batch: &mut dyn Gather, bufs: &dyn Buffers) {
        self.announced = false;
        match &mut self.phase {
            Phase::Negotiating(negotiation) => {
                while !negotiation.output.is_empty() && batch.has_room() {
                    let now = negotiation.output.len().min(COPY_BYTES);
                    batch.copy(&negotiation.output[..now]);
                    negotiation.output.drain(..now);
                }
            }
            Phase::Open(_) => {
                while batch.has_room()
                    && let Some(index) = self.to_send.pop_front()
                {
                    self.send(index, batch, bufs);
                }
            }
            Phase::Leaving { said } => {
                if !*said && batch.has_room() {
                    batch.copy(&request(command::DISC, 0, 0, 0));
                    *said = true;
                }
            }
            Phase::GivenUp | Phase::Closed => {}
        }
    }

    fn send(&mut self, index: u16, batch: &mut dyn Gather, bufs: &dyn Buffers) {
        let slot = &mut self.slots[usize::from(index)];
        let (Some(work), Some((drawn, _))) = (&self.work, slot.request) else { return };
        let (offset, bytes) = (work.offset(drawn), work.bytes(drawn));
        slot.sent = true;
        if drawn.is_read() {
            batch.copy(&request(command::READ, slot.cookie, offset, bytes));
        } else {
            batch.copy(&request(command::WRITE, slot.cookie, offset, bytes));
            batch.payload(slot.buf.slice(0, bytes), bufs);
            slot.held = true;
            self.batch.push(index);
        }
    }

    /// Bytes of the stream.
    ///
    /// # Errors
    /// The server breaks the protocol or refuses: one sentence.
    pub(super) fn received(
        &mut self,
        now: Time,
        mut bytes: &[u8],
        out: &mut Outputs,
        bufs: &mut dyn Buffers,
    ) -> Result<(), String> {
        while !bytes.is_empty() {
            match &mut self.phase {
                Phase::Negotiating(negotiation) => {
                    if let Some(opened) = negotiation.received(&mut bytes)? {
                        self.phase = Phase::Open(opened);
                    }
                }
                Phase::Open(_) => match self.incoming {
                    Some(incoming) => {
                        let len = bytes.len().min((incoming.all - incoming.done) as usize);
                        let (data, rest) = bytes.split_at(len);
                        bytes = rest;
                        let slot = &self.slots[usize::from(incoming.slot)];
                        // `len` is at most what is missing.
                        let len = len as u32;
                        let to = slot.buf.slice(incoming.done, len);
                        bufs.bytes_mut(to).copy_from_slice(data);
                        self.payload(now, len, bufs);
                    }
                    None => self.header(now, &mut bytes, bufs)?,
                },
                Phase::Leaving { .. } | Phase::GivenUp | Phase::Closed => return Ok(()),
            }
        }
        self.after_receive(now, out, bufs);
        Ok(())
    }

    /// Bytes were put where the last aim said.
    ///
    /// # Errors
    /// Nothing was aimed at.
    pub(super) fn received_into(
        &mut self,
        now: Time,
        len: u32,
        out: &mut Outputs,
        bufs: &mut dyn Buffers,
    ) -> Result<(), String> {
        if !matches!(self.phase, Phase::Open(_)) {
            return Ok(());
        }
        if self.incoming.is_none_or(|incoming| len > incoming.all - incoming.done) {
            return Err(format!("{len} bytes were received into no request"));
        }
        self.payload(now, len, bufs);
        self.after_receive(now, out, bufs);
        Ok(())
    }

    fn after_receive(&mut self, now: Time, out: &mut Outputs, bufs: &mut dyn Buffers) {
        if let Some(incoming) = self.incoming {
            let missing = incoming.all - incoming.done;
            if missing >= RECEIVE_INTO_BYTES {
                let slot = &self.slots[usize::from(incoming.slot)];
                let buf = slot.buf.slice(incoming.done, missing);
                out.push_back(Output::ReceiveInto { conn: self.conn, buf });
            }
        }
        self.advance(now, out, bufs);
        self.announce(out);
    }

    /// More of the payload is in its place.
    fn payload(&mut self, now: Time, len: u32, bufs: &mut dyn Buffers) {
        let Some(incoming) = &mut self.incoming else { return };
        incoming.done += len;
        if incoming.done == incoming.all {
            let slot = incoming.slot;
            self.incoming = None;
            self.answered(now, slot, Ok(()), bufs);
        }
    }

    fn header(
        &mut self,
        now: Time,
        bytes: &mut &[u8],
        bufs: &mut dyn Buffers,
    ) -> Result<(), String> {
        let len = bytes.len().min(REPLY_BYTES - self.header_bytes);
        self.header[self.header_bytes..self.header_bytes + len].copy_from_slice(&bytes[..len]);
        self.header_bytes += len;
        *bytes = &bytes[len..];
        if self.header_bytes < REPLY_BYTES {
            return Ok(());
        }
        self.header_bytes = 0;
        let number = u128::from_be_bytes(self.header);
        let (magic, error, cookie) = ((number >> 96) as u32, (number >> 64) as u32, number as u64);
        if magic == wire::CHUNK_MAGIC {
            return Err("a structured reply, which was not negotiated".to_owned());
        }
        if magic != wire::SIMPLE_REPLY_MAGIC {
            return Err(format!(
                "a reply begins with {magic:#010x}, must with {:#010x}",
                wire::SIMPLE_REPLY_MAGIC
            ));
        }
        let index = cookie as u16;
        let request = self
            .slots
            .get(usize::from(index))
            .filter(|slot| slot.cookie == cookie && slot.sent)
            .and_then(|slot| slot.request);
        let Some((drawn, _)) = request else {
            return Err(format!("a reply to cookie {cookie:#x}, which no request under way has"));
        };
        if error != 0 {
            self.answered(now, index, Err(Errno(error)), bufs);
        } else if drawn.is_read() {
            let all = self.work.as_ref().map_or(0, |work| work.bytes(drawn));
            self.incoming = Some(Incoming { slot: index, done: 0, all });
        } else {
            self.answered(now, index, Ok(()), bufs);
        }
        Ok(())
    }

    /// The reply is complete.
    fn answered(
        &mut self,
        now: Time,
        index: u16,
        result: Result<(), Errno>,
        bufs: &mut dyn Buffers,
    ) {
        self.progress = now;
        let slot = &mut self.slots[usize::from(index)];
        let (Some(work), Some((drawn, submitted))) = (&mut self.work, slot.request.take()) else {
            return;
        };
        let data = match drawn.is_read() {
            true => bufs.bytes(slot.buf.slice(0, work.bytes(drawn))),
            false => &[],
        };
        work.completed(now, submitted, drawn, result, data);
        self.release(index);
    }

    /// Says good-bye.
    pub(super) fn leave(&mut self, out: &mut Outputs) {
        if matches!(self.phase, Phase::Open(_)) {
            self.phase = Phase::Leaving { said: false };
            out.push_back(Output::Close { conn: self.conn, how: CloseHow::Graceful });
        } else {
            self.give_up(out);
        }
    }

    /// Has the connection reset; its buffers stay until it is closed.
    pub(super) fn give_up(&mut self, out: &mut Outputs) {
        if !matches!(self.phase, Phase::GivenUp | Phase::Closed) {
            self.phase = Phase::GivenUp;
            self.running = false;
            out.push_back(Output::Close { conn: self.conn, how: CloseHow::Abort });
        }
    }

    /// Nothing outside names our buffers any more. Whether it was us who wanted that.
    pub(super) fn closed(&mut self, bufs: &mut dyn Buffers) -> bool {
        let asked_for = !matches!(self.phase, Phase::Negotiating(_) | Phase::Open(_));
        self.phase = Phase::Closed;
        self.running = false;
        self.incoming = None;
        self.free_slots(bufs);
        asked_for
    }
}

fn request(command: u16, cookie: u64, offset: u64, bytes: u32) -> [u8; wire::REQUEST_BYTES] {
    let mut header = [0; wire::REQUEST_BYTES];
    header[..4].copy_from_slice(&wire::REQUEST_MAGIC.to_be_bytes());
    header[6..8].copy_from_slice(&command.to_be_bytes());
    header[8..16].copy_from_slice(&cookie.to_be_bytes());
    header[16..24].copy_from_slice(&offset.to_be_bytes());
    header[24..].copy_from_slice(&bytes.to_be_bytes());
    header
}
