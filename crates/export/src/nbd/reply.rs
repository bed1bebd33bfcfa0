//! What answers are made of, and in which order they leave.

use super::errno::Fault;
use super::wire;
use std::collections::VecDeque;

/// One unit of an answer, not yet sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    /// The request.
    pub(super) slot: u16,
    pub(super) part: Part,
    /// Nothing of the request's answer comes after it.
    pub(super) last: bool,
}

/// Which unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A simple reply without payload: success or the request's fault.
    Simple,
    /// A simple reply with the payload of a piece. Unless it is the last, more payload must follow
    /// directly.
    SimpleData { piece: u16 },
    /// More payload of a simple reply.
    More { piece: u16 },
    /// A chunk with the data of a piece.
    Chunk { piece: u16 },
    /// The chunk that ends a request which failed.
    ErrorChunk,
}

impl Part {
    pub(super) fn piece(self) -> Option<u16> {
        match self {
            Part::SimpleData { piece } | Part::More { piece } | Part::Chunk { piece } => {
                Some(piece)
            }
            Part::Simple | Part::ErrorChunk => None,
        }
    }
}

/// The answers of a connection in the order in which they leave.
///
/// Only one thing disturbs "first come, first sent": a long simple reply is one unbroken stretch of
/// the stream although its pieces come one by one. Meanwhile all others are held back.
#[derive(Default)]
pub(super) struct Queue {
    ready: VecDeque<Reply>,
    held: VecDeque<Reply>,
    /// The request whose long simple reply is under way.
    streaming: Option<u16>,
}

impl Queue {
    pub(super) fn push(&mut self, reply: Reply) {
        if !self.may_follow(reply) {
            self.held.push_back(reply);
            return;
        }
        self.follow(reply);
        while let Some(&reply) = self.held.front()
            && self.may_follow(reply)
        {
            self.held.pop_front();
            self.follow(reply);
        }
    }

    /// Whether nothing under way is torn apart by it.
    fn may_follow(&self, reply: Reply) -> bool {
        let more = matches!(reply.part, Part::More { .. });
        self.streaming.is_none_or(|slot| more && slot == reply.slot)
    }

    fn follow(&mut self, reply: Reply) {
        self.ready.push_back(reply);
        if matches!(reply.part, Part::SimpleData { .. } | Part::More { .. }) {
            self.streaming = (!reply.last).then_some(reply.slot);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Reply> {
        self.ready.pop_front()
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.held.is_empty()
    }

    /// Whether the reply of this request has begun and is not complete.
    pub(super) fn is_streaming(&self, slot: u16) -> bool {
        self.streaming == Some(slot)
    }

    pub(super) fn clear(&mut self) {
        self.ready.clear();
        self.held.clear();
        self.streaming = None;
    }
}

/// A simple reply's header.
pub(super) fn simple(errno: u32, cookie: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&wire::SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&errno.to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

fn chunk_header(done: bool, kind: u16, cookie: u64, bytes: u32) -> [u8; 20] {
    let flags = if done { wire::chunk::DONE } else { 0 };
    let mut header = [0; 20];
    header[..4].copy_from_slice(&wire::CHUNK_MAGIC.to_be_bytes());
    header[4..6].copy_from_slice(&flags.to_be_bytes());
    header[6..8].copy_from_slice(&kind.to_be_bytes());
    header[8..16].copy_from_slice(&cookie.to_be_bytes());
    header[16..].copy_from_slice(&bytes.to_be_bytes());
    header
}

/// What stands before the data of a chunk: header and offset on the device.
pub(super) fn data_chunk(done: bool, cookie: u64, offset: u64, bytes: u32) -> [u8; 28] {
    let mut chunk = [0; 28];
    // A piece is far shorter than 2^32 - 8.
    let header = chunk_header(done, wire::chunk::OFFSET_DATA, cookie, bytes + 8);
    chunk[..20].copy_from_slice(&header);
    chunk[20..].copy_from_slice(&offset.to_be_bytes());
    chunk
}

/// The header and body of an error chunk, which is always the last one. The text follows.
pub(super) fn error_chunk(cookie: u64, fault: Fault) -> [u8; 26] {
    let mut chunk = [0; 26];
    // Texts of ours, far shorter than 2^16.
    let text_bytes = fault.text.len() as u16;
    let header = chunk_header(true, wire::chunk::ERROR, cookie, 6 + u32::from(text_bytes));
    chunk[..20].copy_from_slice(&header);
    chunk[20..24].copy_from_slice(&fault.errno.to_be_bytes());
    chunk[24..].copy_from_slice(&text_bytes.to_be_bytes());
    chunk
}
