//! Requests in progress on one connection, and the pieces that they are carried in.
//!
//! A *request* is what the client sent; a *piece* is what is submitted to the host: one buffer of
//! at most [`PIECE_BYTES`], or none. A long read moves through a window of pieces, each of which is
//! used again when its part of the answer has left; a long write takes a piece when payload comes
//! and returns it when it is written.

use super::errno::Fault;
use super::exports::{Catalog, Device, Export};
use super::failures::Failures;
use super::memory::{Held, Memory};
use super::pieces::{Piece, Request, Stage};
use super::reply::{self, Part, Queue, Reply};
use super::request::{Header, Op};
use super::slab::Slab;
use super::wire::command_flag;
use super::{
    LEAST_PIECE_BYTES, MAX_BUFFER_BYTES, MAX_PIECES, MAX_REQUESTS, PIECE_BYTES, READ_WINDOW,
};
use anabranch_host::user::{IoError, Refused, Request as HostRequest, RequestOp, Submit};
use anabranch_proto::machine::{BufRef, Buffers, Gather, ListenerId, Time};
use farewell::Farewell;
use std::collections::VecDeque;

mod farewell;

/// What a connection works with while it is called.
pub(super) struct Seat<'a> {
    pub(super) now: Time,
    pub(super) host: &'a mut dyn Submit,
    pub(super) memory: Memory<'a>,
    /// What is offered, and to the clients of which listener.
    pub(super) exports: &'a [(ListenerId, Export)],
    /// A client whose connection ends may come back.
    pub(super) may_return: bool,
}

impl Seat<'_> {
    /// What the clients of a listener can open.
    pub(super) fn catalog(&self, listener: ListenerId) -> Catalog<'_> {
        Catalog { listener, exports: self.exports, heads: self.host.heads(), heard: None }
    }
}

/// Why something can not go on right now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// For something of this connection to end.
    Own,
    /// For payload memory, which the whole worker shares.
    Memory,
    /// For a part of it, of which the users of a device have as much as they may.
    Share,
    /// For room in the host, which the users of a device share.
    Room,
    /// For the device to be there.
    Device,
    /// For all to be heard of that have left.
    Look,
    /// For what one that has left was not answered: a new client, or a write to the same blocks.
    Rest,
    /// For nothing any more: the host takes no more requests.
    End,
}

pub(super) struct Transfer {
    /// Names the connection in the tags of submitted requests.
    key: u32,
    pub(super) device: Device,
    structured: bool,
    /// The client was told so.
    read_only: bool,
    requests: Slab<Request>,
    pieces: Slab<Piece>,
    waiting: VecDeque<u16>,
    queue: Queue,
    /// In the batch that is being sent.
    sent: Vec<Reply>,
    buffer_bytes: u32,
    /// The same as the pool counts it.
    held: Held,
    at_host: usize,
    /// Counts buffers and places in the host that it was given.
    granted: u64,
    /// What the client knows of flushes that have failed.
    pub(super) failures: Failures,
    /// Since the client has said that it leaves, as long as others have to wait for what it asked.
    farewell: Option<Farewell>,
    /// It has said so.
    leaves: bool,
    /// Nobody waits for answers any more.
    muted: bool,
    /// An answer has begun that can not be completed.
    broken: bool,
}

/// Takes apart the tag of a request that this module submitted: connection and piece.
pub(super) fn split_tag(tag: u64) -> (u32, u16) {
    // The lower 16 bits are the piece, the 32 above it the connection.
    ((tag >> 16) as u32, tag as u16)
}

impl Transfer {
    pub(super) fn new(key: u32, device: Device, structured: bool, host: &dyn Submit) -> Transfer {
        Transfer {
            failures: Failures::new(host, &device),
            key,
            device,
            structured,
            read_only: device.read_only,
            requests: Slab::new(MAX_REQUESTS),
            pieces: Slab::new(MAX_PIECES),
            waiting: VecDeque::new(),
            queue: Queue::default(),
            sent: Vec::new(),
            buffer_bytes: 0,
            held: Held::default(),
            at_host: 0,
            granted: 0,
            farewell: None,
            leaves: false,
            muted: false,
            broken: false,
        }
    }

    /// The device has changed. What the client was offered it goes on using: a path that can do
    /// less than the others may join at any time. Who was told that it is read-only never changes
    /// it: "If this flag is set, the server MUST error subsequent write operations".
    pub(super) fn follow(&mut self, device: Device) {
        let old = self.device;
        self.device = Device {
            read_only: device.read_only || self.read_only,
            trim: device.trim || old.trim,
            write_zeroes: device.write_zeroes || old.write_zeroes,
            ..device
        };
    }

    /// Whether another request can be let in: there is room, and none waits to be submitted.
    pub(super) fn has_room(&self) -> bool {
        !self.requests.is_full() && self.waiting.is_empty()
    }

    /// Lets a request in. With a fault it is only answered, after its payload was skipped. Call
    /// only when there is room.
    pub(super) fn open(&mut self, header: &Header) -> Option<(u16, Result<Op, Fault>)> {
        let checked = header.check(&self.device, self.structured);
        self.failures.asks(checked.ok());
        let read = header.command == super::wire::command::READ;
        // For a refused request the operation only decides how it is answered.
        let (op, (offset, bytes)) = match checked {
            Ok(Op::Flush) => (Op::Flush, (0, 0)),
            Ok(op @ Op::Trim { .. }) => (op, header.whole_blocks(&self.device)),
            Ok(op) => (op, (header.offset, header.bytes)),
            Err(_) if read => (Op::Read, (0, 0)),
            Err(_) => (Op::Write { fua: false }, (0, header.payload_bytes())),
        };
        let request = Request {
            cookie: header.cookie,
            op,
            offset,
            bytes,
            issued: 0,
            open: 0,
            whole: header.flags & command_flag::DF != 0,
            gathered: false,
            fault: checked.err(),
            tells: 0,
        };
        Some((self.requests.insert(request)?, checked))
    }

    /// Starts a request without payload, or answers a refused one.
    ///
    /// # Errors
    /// There is no buffer for it; try again.
    pub(super) fn start(&mut self, slot: u16, seat: &mut Seat<'_>) -> Result<(), Wait> {
        let Some(request) = self.requests.get(slot) else { return Ok(()) };
        match request.op {
            _ if request.fault.is_some() => self.answer_if_over(slot),
            Op::Write { .. } | Op::Blank { .. } => {}
            // Less than a block: nothing that could be given back.
            Op::Trim { .. } if request.bytes == 0 => self.answer_if_over(slot),
            Op::Read if !self.structured => return self.start_simple_read(slot, seat),
            Op::Read => {
                let piece = self.data_piece(slot, Stage::Waiting, seat)?;
                self.waiting.push_back(piece);
                for _ in 1..READ_WINDOW {
                    // Further pieces only make it faster.
                    let Ok(piece) = self.data_piece(slot, Stage::Waiting, seat) else { break };
                    self.waiting.push_back(piece);
                }
            }
            Op::Flush | Op::Trim { .. } | Op::WriteZeroes { .. } => {
                let bytes = request.bytes;
                let buf = BufRef::EMPTY;
                let stage = Stage::Waiting;
                let piece = Piece { slot, buf, offset: 0, bytes, stage, mark: None };
                let piece = self.pieces.insert(piece).ok_or(Wait::Own)?;
                if let Some(request) = self.requests.get_mut(slot) {
                    request.issued = bytes;
                    request.open = 1;
                }
                self.waiting.push_back(piece);
            }
        }
        Ok(())
    }

    /// Starts a read whose answer is one unbroken stretch. What fits into a few pieces is read
    /// whole before that begins. A longer one is read piece by piece, as is any where others have
    /// left too little memory, and costs the client its connection when one of them fails: "If an
    /// error occurs while reading after the server has already sent out the reply header [...],
    /// the server MUST immediately initiate a hard disconnect". Linux's own client, which reads up
    /// to 1280 KiB at once, loses its device by that.
    ///
    /// # Errors
    /// There is no buffer for it, or the client's other requests hold too many; try again.
    fn start_simple_read(&mut self, slot: u16, seat: &mut Seat<'_>) -> Result<(), Wait> {
        let bytes = self.requests.get(slot).map_or(0, |request| request.bytes);
        let most = PIECE_BYTES - PIECE_BYTES % self.device.block_bytes;
        let fits = bytes <= READ_WINDOW * most;
        let others = self.buffer_bytes;
        if fits && others > 0 && others + bytes > MAX_BUFFER_BYTES {
            return Err(Wait::Own);
        }
        let mut pieces = [0; READ_WINDOW as usize];
        pieces[0] = self.data_piece(slot, Stage::Waiting, seat)?;
        let mut count = 1;
        while fits && count < pieces.len() {
            let Ok(piece) = self.data_piece(slot, Stage::Waiting, seat) else { break };
            pieces[count] = piece;
            count += 1;
        }
        let whole = self.requests.get(slot).is_some_and(|request| request.issued == bytes);
        let keep = if whole { count } else { 1 };
        for &piece in &pieces[keep..count] {
            self.give_up(piece, &mut seat.memory);
        }
        if let Some(request) = self.requests.get_mut(slot) {
            request.gathered = whole && count > 1;
        }
        self.waiting.extend(&pieces[..keep]);
        Ok(())
    }

    /// Unmakes one of the last pieces of a request, of which nothing was done.
    fn give_up(&mut self, index: u16, memory: &mut Memory<'_>) {
        let Some(piece) = self.pieces.get(index) else { return };
        if let Some(request) = self.requests.get_mut(piece.slot) {
            request.issued -= piece.bytes;
            request.open -= 1;
        }
        self.release(index, memory);
    }

    /// A piece with a buffer for the next bytes of the request. When there are none left to make a
    /// piece for, that is `Wait::Own`.
    fn data_piece(&mut self, slot: u16, stage: Stage, seat: &mut Seat<'_>) -> Result<u16, Wait> {
        let request = self.requests.get_mut(slot).ok_or(Wait::Own)?;
        let most = PIECE_BYTES - PIECE_BYTES % self.device.block_bytes;
        let (issued, left) = (request.issued, request.bytes - request.issued);
        if left == 0 || self.pieces.is_full() {
            return Err(Wait::Own);
        }
        let least = if request.whole { left } else { LEAST_PIECE_BYTES };
        let buf = self.buffer(left.min(most), least, &mut seat.memory)?;
        let bytes = buf.len();
        let piece = Piece { slot, buf, offset: issued, bytes, stage, mark: None };
        let index = self.pieces.insert(piece).ok_or(Wait::Own)?;
        if let Some(request) = self.requests.get_mut(slot) {
            request.issued += bytes;
            request.open += 1;
        }
        Ok(index)
    }

    /// A buffer of so many bytes: fewer, but whole blocks and not less than `least`, where less is
    /// left for a client that has none yet.
    fn buffer(&mut self, most: u32, least: u32, memory: &mut Memory<'_>) -> Result<BufRef, Wait> {
        let block = self.device.block_bytes;
        let least = least.next_multiple_of(block);
        let mut bytes = most;
        let buf = loop {
            if self.buffer_bytes > 0 && self.buffer_bytes + bytes > MAX_BUFFER_BYTES {
                return Err(Wait::Own);
            }
            match memory.take(self.device.head, &mut self.held, (bytes, bytes <= least)) {
                Err(Wait::Share) if bytes > least => {
                    bytes = (bytes / 2 - bytes / 2 % block).max(least);
                }
                taken => break taken?,
            }
        };
        self.buffer_bytes += buf.len();
        self.granted += 1;
        Ok(buf)
    }

    /// A piece for payload that comes in, and its length.
    ///
    /// # Errors
    /// There is no buffer for it; try again.
    pub(super) fn payload_piece(
        &mut self,
        slot: u16,
        seat: &mut Seat<'_>,
    ) -> Result<(u16, u32), Wait> {
        let piece = self.data_piece(slot, Stage::Filling, seat)?;
        Ok((piece, self.pieces.get(piece).map_or(0, |piece| piece.bytes)))
    }

    /// Where the rest of the payload of a piece belongs, `filled` bytes in.
    pub(super) fn payload_buffer(&self, piece: u16, filled: u32) -> BufRef {
        self.pieces
            .get(piece)
            .map_or(BufRef::EMPTY, |piece| piece.buf.slice(filled, piece.bytes - filled))
    }

    /// The payload of a piece is complete.
    pub(super) fn payload_complete(&mut self, piece: u16, memory: &mut Memory<'_>) {
        let Some(entry) = self.pieces.get_mut(piece) else { return };
        let slot = entry.slot;
        let failed = self.requests.get(slot).is_none_or(|request| request.fault.is_some());
        if !failed {
            entry.stage = Stage::Waiting;
            self.waiting.push_back(piece);
            return;
        }
        // Another piece has failed meanwhile: the request fails, the stream stays in step.
        self.release(piece, memory);
        self.piece_ended(slot);
        self.answer_if_over(slot);
    }

    /// Whether the payload that is still to come need not be kept.
    pub(super) fn is_failed(&self, slot: u16) -> bool {
        self.requests.get(slot).is_none_or(|request| request.fault.is_some())
    }

    /// Payload was thrown away.
    pub(super) fn skipped(&mut self, slot: u16, bytes: u32) {
        if let Some(request) = self.requests.get_mut(slot) {
            request.issued += bytes;
        }
        self.answer_if_over(slot);
    }

    /// Submits what waits, in order.
    ///
    /// # Errors
    /// The host has no room for another request to this device, or still has one to the same blocks
    /// of a client that has left: try again; or it is ending.
    pub(super) fn submit(&mut self, seat: &mut Seat<'_>) -> Result<(), Wait> {
        if self.farewell.is_some() {
            self.end_farewell();
        }
        // So many that still wait got no memory.
        let mut passed_over = 0;
        while let Some(&index) = self.waiting.front() {
            let Some(op) = self.host_op(index) else {
                self.waiting.pop_front();
                continue;
            };
            let undone = match &self.farewell {
                None => seat.host.may_be_undone(self.device.head, &op),
                Some(farewell) => farewell.may_be_undone_by_others(&op),
            };
            if undone {
                return Err(Wait::Rest);
            }
            let tag = u64::from(self.key) << 16 | u64::from(index);
            let request = HostRequest { head: self.device.head, op, tag };
            let mark = self.failures.begin(&op);
            let outcome = match self.pieces.get(index).map(|piece| piece.stage) {
                Some(Stage::WaitingToBlank) => Err(Refused::NotSupported),
                _ => seat.host.submit(seat.now, request),
            };
            if outcome.is_err() {
                self.failures.end(mark, false);
            }
            let unable = outcome == Err(Refused::NotSupported);
            match op {
                _ if outcome == Err(Refused::Full) => return Err(Wait::Room),
                _ if outcome == Err(Refused::NotHere) => return Err(Wait::End),
                RequestOp::WriteZeroes { .. } if unable => {
                    match self.write_instead(index, seat) {
                        // What stands behind it may hold the memory that it waits for.
                        Err(_) if passed_over + 1 < self.waiting.len() => {
                            passed_over += 1;
                            self.waiting.rotate_left(1);
                        }
                        done => done?,
                    }
                    continue;
                }
                _ => {}
            }
            self.waiting.pop_front();
            self.at_host += 1;
            self.granted += 1;
            if let Some(piece) = self.pieces.get_mut(index) {
                let flush = piece.stage == Stage::WaitingToFlush;
                piece.stage = if flush { Stage::Flushing } else { Stage::Submitted };
                piece.mark = mark.filter(|_| outcome.is_ok());
            }
            if let Err(refused) = outcome {
                let writes = matches!(op, RequestOp::Write { .. } | RequestOp::WriteZeroes { .. });
                // A trim is a hint: where it is of no use any more it is done.
                let hint = unable && matches!(op, RequestOp::Discard { .. });
                let fault = Fault::of_refusal(refused, writes);
                let result = if hint { Ok(()) } else { Err(fault) };
                self.ended(index, result, &mut seat.memory);
            }
        }
        Ok(())
    }

    /// The device does not make zeroes, though the client was told so: the piece gets a
    /// buffer full of them, which is written as often as it takes.
    ///
    /// # Errors
    /// There is no buffer for it; try again.
    fn write_instead(&mut self, index: u16, seat: &mut Seat<'_>) -> Result<(), Wait> {
        let Some(slot) = self.pieces.get(index).map(|piece| piece.slot) else { return Ok(()) };
        let Some(request) = self.requests.get(slot) else { return Ok(()) };
        let most = PIECE_BYTES - PIECE_BYTES % self.device.block_bytes;
        let buf = self.buffer(request.bytes.min(most), LEAST_PIECE_BYTES, &mut seat.memory)?;
        seat.memory.bufs.bytes_mut(buf).fill(0);
        let Some(piece) = self.pieces.get_mut(index) else { return Ok(()) };
        let Some(request) = self.requests.get_mut(slot) else { return Ok(()) };
        (piece.buf, piece.bytes, piece.stage) = (buf, buf.len(), Stage::Waiting);
        request.issued = buf.len();
        request.op = Op::Blank { fua: matches!(request.op, Op::WriteZeroes { fua: true, .. }) };
        Ok(())
    }

    /// A piece in the host's words.
    fn host_op(&self, index: u16) -> Option<RequestOp> {
        let piece = self.pieces.get(index)?;
        let request = self.requests.get(piece.slot)?;
        let block = u64::from(self.device.block_bytes);
        let lba = (request.offset + u64::from(piece.offset)) / block;
        // At most 2^32 - 1 bytes are no more blocks.
        let blocks = piece.bytes / self.device.block_bytes;
        let buf = || piece.buf.slice(0, piece.bytes);
        Some(match request.op {
            _ if piece.stage == Stage::WaitingToFlush => RequestOp::Flush,
            Op::Read => RequestOp::Read { lba, blocks, buf: buf() },
            Op::Write { fua } | Op::Blank { fua } => {
                RequestOp::Write { lba, blocks, buf: buf(), fua }
            }
            Op::Flush => RequestOp::Flush,
            Op::Trim { .. } => RequestOp::Discard { lba, blocks: u64::from(blocks) },
            Op::WriteZeroes { deallocate, .. } => {
                RequestOp::WriteZeroes { lba, blocks: u64::from(blocks), deallocate }
            }
        })
    }

    /// The host has finished a piece.
    pub(super) fn completed(
        &mut self,
        piece: u16,
        result: Result<(), IoError>,
        seat: &mut Seat<'_>,
    ) {
        let memory = &mut seat.memory;
        let op = self.pieces.get(piece).and_then(|piece| self.requests.get(piece.slot));
        let op = op.map(|request| request.op);
        let flushes = op == Some(Op::Flush) || self.is_in(piece, Stage::Flushing);
        let mark = self.pieces.get_mut(piece).and_then(|piece| piece.mark.take());
        self.failures.end(mark, flushes && result.is_ok());
        let result = match (result, op) {
            // The device has offered what it cannot do.
            (Err(IoError::Status(status)), Some(op)) if status.is_unsupported_io() => match op {
                _ if flushes => result,
                Op::WriteZeroes { .. } if self.blank_later(piece) => return,
                // A hint: where it is of no use it is done.
                Op::Trim { .. } => Ok(()),
                _ => result,
            },
            _ => result,
        };
        let writes = op.is_some_and(Op::writes);
        let mut result = result.map_err(|error| match flushes {
            true => Fault::of_flush(error),
            false => Fault::of_io(error, writes),
        });
        if let Some(failed) = flushes.then(|| self.failures.news()).flatten() {
            let request = self.pieces.get(piece).map(|piece| piece.slot);
            if let Some(request) = request.and_then(|slot| self.requests.get_mut(slot)) {
                request.tells = failed;
            }
            result = result.and(Err(Fault::FLUSH_OF_ANOTHER));
        }
        self.ended(piece, result, memory);
    }

    fn is_in(&self, piece: u16, stage: Stage) -> bool {
        self.pieces.get(piece).is_some_and(|piece| piece.stage == stage)
    }

    /// Zeroes that were refused are to be written, if they are still wanted.
    fn blank_later(&mut self, index: u16) -> bool {
        let piece = self.pieces.get_mut(index).filter(|_| self.leaves || !self.muted);
        let Some(piece) = piece else { return false };
        piece.stage = Stage::WaitingToBlank;
        self.at_host -= 1;
        self.waiting.push_back(index);
        true
    }

    fn ended(&mut self, index: u16, result: Result<(), Fault>, memory: &mut Memory<'_>) {
        self.at_host -= 1;
        let Some(piece) = self.pieces.get_mut(index) else { return };
        let slot = piece.slot;
        let Some(request) = self.requests.get_mut(slot) else { return };
        if self.muted && (request.op == Op::Read || !self.leaves) {
            self.release(index, memory);
            return;
        }
        let owes_flush = request.op.needs_flush() && piece.stage == Stage::Submitted;
        if owes_flush && result.is_ok() {
            piece.stage = Stage::WaitingToFlush;
            self.waiting.push_back(index);
            return;
        }
        request.open -= 1;
        if let Err(fault) = result {
            request.fault.get_or_insert(fault);
            if matches!(request.op, Op::Read | Op::Blank { .. }) {
                // Nothing more needs to be read, or written.
                request.issued = request.bytes;
            }
        }
        let blank = matches!(request.op, Op::Blank { .. });
        if request.op == Op::Read && request.fault.is_none() {
            self.reply_with(index);
        } else if !blank || !self.reuse(index) {
            self.release(index, memory);
            self.drop_gathered(slot, memory);
            self.answer_if_over(slot);
        }
    }

    /// A piece of a read has its data: that is a part of the answer.
    fn reply_with(&mut self, index: u16) {
        let Some(piece) = self.pieces.get_mut(index) else { return };
        let Some(request) = self.requests.get(piece.slot) else { return };
        piece.stage = Stage::Replying;
        if request.gathered {
            let slot = piece.slot;
            return self.reply_with_all(slot);
        }
        let part = match (self.structured, piece.offset) {
            (true, _) => Part::Chunk { piece: index },
            (false, 0) => Part::SimpleData { piece: index },
            (false, _) => Part::More { piece: index },
        };
        self.queue.push(Reply { slot: piece.slot, part, last: request.is_over() });
    }

    /// Answers a read that was to be gathered, if all of it is there.
    fn reply_with_all(&mut self, slot: u16) {
        let Some(request) = self.requests.get(slot).filter(|request| request.is_over()) else {
            return;
        };
        let (mut offset, bytes) = (0, request.bytes);
        while offset < bytes {
            let next = (0..MAX_PIECES as u16).find_map(|index| {
                let piece = self.pieces.get(index)?;
                (piece.slot == slot && piece.offset == offset).then_some((index, piece.bytes))
            });
            let Some((piece, len)) = next else { return };
            let part = if offset == 0 { Part::SimpleData { piece } } else { Part::More { piece } };
            offset += len;
            self.queue.push(Reply { slot, part, last: offset == bytes });
        }
    }

    /// Of a read that was to be gathered and has failed, the pieces that succeeded.
    fn drop_gathered(&mut self, slot: u16, memory: &mut Memory<'_>) {
        if !self.requests.get(slot).is_some_and(|request| request.gathered && request.is_over()) {
            return;
        }
        for index in 0..MAX_PIECES as u16 {
            if self.pieces.get(index).is_some_and(|piece| piece.slot == slot) {
                self.release(index, memory);
            }
        }
    }

    /// Answers a request that has no more to do, and whose answer has no data.
    fn answer_if_over(&mut self, slot: u16) {
        let Some(request) = self.requests.get(slot) else { return };
        if !request.is_over() || self.muted {
            return;
        }
        let part = match request.op {
            // "The server SHOULD prefer sending errors via a structured reply", which says why.
            _ if self.structured && request.fault.is_some() => Part::ErrorChunk,
            Op::Read if self.queue.is_streaming(slot) => {
                // The header that promised success has left.
                self.broken = true;
                return;
            }
            _ => Part::Simple,
        };
        self.queue.push(Reply { slot, part, last: true });
    }

    fn piece_ended(&mut self, slot: u16) {
        if let Some(request) = self.requests.get_mut(slot) {
            request.open -= 1;
        }
    }

    fn release(&mut self, piece: u16, memory: &mut Memory<'_>) {
        let Some(piece) = self.pieces.remove(piece) else { return };
        if !piece.buf.is_empty() {
            self.buffer_bytes -= piece.buf.len();
            memory.give(self.device.head, &mut self.held, piece.buf);
        }
    }

    /// Something can be sent.
    pub(super) fn has_transmit(&self) -> bool {
        self.queue.has_ready()
    }

    /// Fills a batch with answers.
    pub(super) fn poll_transmit(&mut self, batch: &mut dyn Gather, bufs: &dyn Buffers) {
        while batch.has_room() {
            let Some(reply) = self.queue.pop() else { return };
            self.emit(reply, batch, bufs);
            self.sent.push(reply);
        }
    }

    fn emit(&self, reply: Reply, batch: &mut dyn Gather, bufs: &dyn Buffers) {
        let Some(request) = self.requests.get(reply.slot) else { return };
        let piece = reply.part.piece().and_then(|piece| self.pieces.get(piece));
        match reply.part {
            Part::Simple => {
                let errno = request.fault.map_or(0, |fault| fault.errno);
                batch.copy(&reply::simple(errno, request.cookie));
            }
            Part::SimpleData { .. } => batch.copy(&reply::simple(0, request.cookie)),
            Part::More { .. } => {}
            Part::Chunk { .. } => {
                let (offset, bytes) = piece.map_or((0, 0), |piece| (piece.offset, piece.bytes));
                let offset = request.offset + u64::from(offset);
                batch.copy(&reply::data_chunk(reply.last, request.cookie, offset, bytes));
            }
            Part::ErrorChunk => {
                let fault = request.fault.unwrap_or(Fault::NONE);
                batch.copy(&reply::error_chunk(request.cookie, fault));
                batch.copy(fault.text.as_bytes());
            }
        }
        if let Some(piece) = piece {
            batch.payload(piece.buf.slice(0, piece.bytes), bufs);
        }
    }

    /// The batch has left: pieces are used again or returned, complete answers are forgotten.
    pub(super) fn transmitted(&mut self, seat: &mut Seat<'_>) {
        let memory = &mut seat.memory;
        let mut sent = std::mem::take(&mut self.sent);
        for reply in sent.drain(..) {
            if let Some(piece) = reply.part.piece()
                && (self.muted || !self.reuse(piece))
            {
                self.release(piece, memory);
            }
            if let Some(request) = reply.last.then(|| self.requests.remove(reply.slot)).flatten() {
                self.failures.told(request.tells);
            }
        }
        // The same memory serves for the next batch.
        self.sent = sent;
    }

    /// Aims a piece at the next part of its long read, or of zeroes to write, if there is one.
    fn reuse(&mut self, index: u16) -> bool {
        let Some(piece) = self.pieces.get_mut(index) else { return false };
        let Some(request) = self.requests.get_mut(piece.slot) else { return false };
        let bytes = (request.bytes - request.issued).min(piece.bytes);
        if bytes == 0 {
            return false;
        }
        piece.offset = request.issued;
        piece.bytes = bytes;
        piece.stage = Stage::Waiting;
        request.issued += bytes;
        request.open += 1;
        self.waiting.push_back(index);
        true
    }

    /// Nothing is left to do for the client but what it has not sent completely.
    pub(super) fn is_quiet(&self) -> bool {
        self.queue.is_empty() && self.sent.is_empty() && self.pieces.len() == 0
    }

    /// An answer has begun that can not be completed.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Pieces that the host has not finished.
    pub(super) fn at_host(&self) -> usize {
        self.at_host
    }

    /// Grows with each buffer and each place in the host that it gets.
    pub(super) fn granted(&self) -> u64 {
        self.granted
    }

    /// Requests that are not answered completely.
    pub(super) fn unanswered(&self) -> usize {
        self.requests.len()
    }
}
