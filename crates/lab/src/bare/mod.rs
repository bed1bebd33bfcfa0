//! The bare exchange: the same bytes over the same number of TCP connections, without NVMe.
//!
//! What an NVMe/TCP read of N bytes puts on the wire is 72 bytes one way and 24 + N the other (a
//! write: 72 + N and 24). Two small engines exchange just that, on the same driver and with the
//! same way of waiting as the real ones, so that a benchmark can say what NVMe costs on top.

mod client;
mod server;

pub use client::{BareClient, BareJob, BareReply, BareReport, BareVerb};
pub use server::BareServer;

/// A command capsule without data.
const COMMAND_BYTES: u32 = 72;
/// A data or response PDU's header.
const ANSWER_BYTES: u32 = 24;

/// What one exchange carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Payload bytes.
    pub bytes: u32,
    /// The payload travels with the answer (a read) instead of with the command.
    pub read: bool,
}

impl Exchange {
    fn up(self) -> u32 {
        COMMAND_BYTES + if self.read { 0 } else { self.bytes }
    }

    fn down(self) -> u32 {
        ANSWER_BYTES + if self.read { self.bytes } else { 0 }
    }
}
