//! Streams between engines.

use crate::rng::Rng;
use anabranch_proto::machine::{BufRef, Buffers, ConnId, Endpoint, Gather, SystemError, Time};
use std::collections::VecDeque;
use std::time::Duration;

/// Names an engine in a world: host workers first, then targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub usize);

/// How long things take; each time is drawn evenly from the range.
#[derive(Clone, Copy, Debug)]
pub struct LinkTimes {
    /// Least and most time for bytes to arrive.
    pub travel: (Duration, Duration),
    /// Least and most time for mail between workers.
    pub mail: (Duration, Duration),
    /// Least and most time from the end of a connection to `Closed`.
    pub closing: (Duration, Duration),
    /// Least and most time from when a batch has left until its engine is told so: an answer may be
    /// there before that.
    pub telling: (Duration, Duration),
    /// Least and most time for an operation on a file.
    pub disk: (Duration, Duration),
}

impl Default for LinkTimes {
    fn default() -> LinkTimes {
        LinkTimes {
            travel: (Duration::from_micros(5), Duration::from_micros(50)),
            mail: (Duration::from_nanos(200), Duration::from_micros(20)),
            closing: (Duration::ZERO, Duration::from_micros(20)),
            telling: (Duration::ZERO, Duration::ZERO),
            disk: (Duration::from_micros(2), Duration::from_micros(100)),
        }
    }
}

pub(super) fn draw(rng: &mut Rng, (least, most): (Duration, Duration)) -> Duration {
    let span = most.saturating_sub(least).as_nanos() as u64;
    least + Duration::from_nanos(rng.below(span + 1))
}

/// A piece of a batch: copied, or referred to until the batch has left.
pub(super) enum Segment {
    Copied(Vec<u8>),
    Referred(BufRef),
}

/// Collects one batch. Payload is only looked at when the batch leaves, as the real thing may do.
#[derive(Default)]
pub(super) struct SimGather {
    pub(super) segments: Vec<Segment>,
    bytes: usize,
}

/// A batch takes no further unit beyond this many bytes.
const BATCH_BYTES: usize = 64 * 1024;

impl Gather for SimGather {
    fn copy(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        match self.segments.last_mut() {
            Some(Segment::Copied(last)) => last.extend_from_slice(bytes),
            _ => self.segments.push(Segment::Copied(bytes.to_vec())),
        }
    }

    fn payload(&mut self, buf: BufRef, _bufs: &dyn Buffers) {
        self.bytes += buf.len() as usize;
        self.segments.push(Segment::Referred(buf));
    }

    fn has_room(&self) -> bool {
        self.bytes < BATCH_BYTES
    }
}

impl SimGather {
    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// The bytes, as memory holds them now.
    pub(super) fn resolve(&self, bufs: &dyn Buffers) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes);
        for segment in &self.segments {
            match segment {
                Segment::Copied(copied) => bytes.extend_from_slice(copied),
                Segment::Referred(buf) => bytes.extend_from_slice(bufs.bytes(*buf)),
            }
        }
        bytes
    }
}

/// How far an end of a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndState {
    Connecting,
    Open,
    /// Our engine asked for an orderly end.
    Closing,
    /// `Closed` has been given or is on its way.
    Over,
}

/// One end of a stream.
pub(super) struct End {
    pub(super) node: NodeId,
    pub(super) conn: ConnId,
    pub(super) state: EndState,
    pub(super) wants_transmit: bool,
    /// A batch that the engine has not been told of yet.
    pub(super) in_flight: Option<SimGather>,
    pub(super) paused: bool,
    pub(super) hint: Option<BufRef>,
    /// Arrived, not yet delivered.
    pub(super) inbox: VecDeque<u8>,
    /// The peer sends no more.
    pub(super) peer_done: bool,
    /// We send no more.
    pub(super) sent_fin: bool,
    /// Bytes arrive in order: nothing arrives before this.
    pub(super) last_arrival: Time,
}

impl End {
    pub(super) fn new(node: NodeId, conn: ConnId, state: EndState) -> End {
        End {
            node,
            conn,
            state,
            wants_transmit: false,
            in_flight: None,
            paused: false,
            hint: None,
            inbox: VecDeque::new(),
            peer_done: false,
            sent_fin: false,
            last_arrival: Time::ZERO,
        }
    }

    /// The first bytes of the inbox, copied in stretches: one by one they would take most of a
    /// simulation's time.
    pub(super) fn take(&mut self, len: usize) -> Vec<u8> {
        let (front, back) = self.inbox.as_slices();
        let at_front = len.min(front.len());
        let bytes = [&front[..at_front], &back[..len - at_front]].concat();
        self.inbox.drain(..len);
        bytes
    }
}

/// A stream: end 0 connected, end 1 accepted.
pub(super) struct Stream {
    pub(super) ends: [End; 2],
    /// Where it leads to.
    pub(super) to: Endpoint,
    /// Tells streams apart; never used again.
    pub(super) serial: u32,
    /// Bytes on the way in both directions wait until then (a stall of the network).
    pub(super) stalled_until: Time,
    /// What end 0 sends leaves it then at the earliest (its socket is full).
    pub(super) blocked_until: Time,
    /// Nothing gets through any more, in either direction, without anybody being told.
    pub(super) silent: bool,
    /// Extra travel time.
    pub(super) slow: Duration,
    /// The next batch for end 0 is cut at some byte: what is behind that arrives so much later.
    pub(super) torn: Option<Duration>,
}

/// Why a stream breaks.
pub(super) const BROKEN: SystemError = SystemError::RESET;
