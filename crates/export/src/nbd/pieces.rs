//! What a connection has in progress: requests, and the pieces that they are carried in.

use super::errno::Fault;
use super::request::Op;
use anabranch_host::Mark;
use anabranch_proto::machine::BufRef;

pub(super) struct Request {
    pub(super) cookie: u64,
    pub(super) op: Op,
    /// Byte offset on the device.
    pub(super) offset: u64,
    /// Bytes that pieces have to carry (a payload that is only skipped included).
    pub(super) bytes: u32,
    /// Of those, how many pieces have been made for or were skipped.
    pub(super) issued: u32,
    /// Pieces that are being filled, wait, or are at the host.
    pub(super) open: u32,
    /// It is answered in one chunk, and so carried in one piece.
    pub(super) whole: bool,
    /// A read of several pieces whose simple reply begins when all of them are there.
    pub(super) gathered: bool,
    pub(super) fault: Option<Fault>,
    /// Of how many failed flushes its answer tells, if of any.
    pub(super) tells: u64,
}

impl Request {
    /// All that was to be done has ended.
    pub(super) fn is_over(&self) -> bool {
        self.issued == self.bytes && self.open == 0
    }
}

pub(super) struct Piece {
    pub(super) slot: u16,
    /// Whole, as allocated; empty for commands without data.
    pub(super) buf: BufRef,
    /// Where it lies in the request.
    pub(super) offset: u32,
    pub(super) bytes: u32,
    pub(super) stage: Stage,
    /// The host has it, and makes data durable.
    pub(super) mark: Option<Mark>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Payload comes in.
    Filling,
    /// To be submitted.
    Waiting,
    /// To be submitted: the flush behind a trim or zeroes with FUA.
    WaitingToFlush,
    /// To be submitted: zeroes that the device has refused to make itself.
    WaitingToBlank,
    /// The host has it.
    Submitted,
    /// The host has its flush.
    Flushing,
    /// Part of an answer.
    Replying,
}
