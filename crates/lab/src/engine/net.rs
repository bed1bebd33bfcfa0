//! Streams between engines: calm ones. Batches arrive whole, in order, a constant time after they
//! were pulled.

use anabranch_proto::machine::{BufRef, Buffers, ConnId, Endpoint, Gather};

/// What one batch takes at most, in bytes and in pieces.
const BATCH_BYTES: usize = 256 << 10;
const BATCH_PIECES: usize = 256;

/// A piece of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Piece {
    /// So many of the copied bytes.
    Copied(u32),
    /// The sender's until the batch has arrived.
    Payload(BufRef),
}

/// One batch. Its memory is used again for the next.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) copied: Vec<u8>,
    pub(super) pieces: Vec<Piece>,
    bytes: usize,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.copied.clear();
        self.pieces.clear();
        self.bytes = 0;
    }
}

impl Gather for Batch {
    #[inline]
    fn copy(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.copied.extend_from_slice(bytes);
        let len = bytes.len() as u32;
        match self.pieces.last_mut() {
            Some(Piece::Copied(last)) => *last += len,
            _ => self.pieces.push(Piece::Copied(len)),
        }
    }

    #[inline]
    fn payload(&mut self, buf: BufRef, _bufs: &dyn Buffers) {
        self.bytes += buf.len() as usize;
        self.pieces.push(Piece::Payload(buf));
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.bytes < BATCH_BYTES && self.pieces.len() < BATCH_PIECES
    }
}

/// How far an end of a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndState {
    Connecting,
    Open,
    /// Its engine asked for an orderly end: it reads nothing more.
    Closing,
    /// `Closed` is on its way, or has been given.
    Over,
}

/// One end of a stream.
#[derive(Debug)]
pub(super) struct End {
    pub(super) node: u32,
    pub(super) conn: ConnId,
    pub(super) state: EndState,
    pub(super) wants_transmit: bool,
    /// A batch is on its way, and `Transmitted` has not been given.
    pub(super) sending: bool,
    pub(super) batch: Batch,
    /// The batch has arrived, and the other end does not read.
    pub(super) parked: bool,
    pub(super) paused: bool,
    pub(super) hint: Option<BufRef>,
    pub(super) told: bool,
}

impl End {
    pub(super) fn new(node: u32, conn: ConnId) -> End {
        End {
            node,
            conn,
            state: EndState::Connecting,
            wants_transmit: false,
            sending: false,
            batch: Batch::default(),
            parked: false,
            paused: false,
            hint: None,
            told: false,
        }
    }

    /// Whether its engine may send.
    pub(super) fn may_send(&self) -> bool {
        !self.sending && matches!(self.state, EndState::Open | EndState::Closing)
    }
}

/// A stream: end 0 connected, end 1 accepted.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) ends: [End; 2],
    pub(super) to: Endpoint,
    /// Tells it from another one in the same place.
    pub(super) serial: u32,
}
