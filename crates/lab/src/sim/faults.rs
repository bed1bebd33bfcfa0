//! What can be done to streams from outside: breaking, silencing, delaying, watching, forging.

use super::net::{BROKEN, EndState};
use super::world::World;
use anabranch_proto::machine::{CloseCause, Endpoint, Machine, Time, WorkerId};
use std::time::Duration;

/// Names an open stream, until the next step of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamId(usize);

/// A batch that has left one end and sets out for the other.
pub struct Passing<'a> {
    /// The present.
    pub now: Time,
    /// The host worker at whose end the stream was opened.
    pub worker: WorkerId,
    /// Where the stream leads.
    pub to: &'a Endpoint,
    /// Tells streams apart; the next stream has another one.
    pub serial: u32,
    /// From the host to the target, or back.
    pub to_target: bool,
    /// Whole PDUs; what is left here travels on.
    pub bytes: &'a mut Vec<u8>,
}

/// Sees every batch that leaves, and may change it.
pub type Tap = Box<dyn FnMut(&mut Passing<'_>)>;

impl<H: Machine, T: Machine> World<H, T> {
    /// Puts somebody on the line, for all streams.
    pub fn tap(&mut self, tap: Tap) {
        self.core.tap = Some(tap);
    }

    /// How often somebody has wanted to acknowledge at once what had come.
    pub fn acknowledged(&self) -> u64 {
        self.core.acknowledged
    }

    /// The open stream of a host worker to an address.
    pub fn stream(&self, worker: WorkerId, to: &Endpoint) -> Option<StreamId> {
        let owner = usize::from(worker.0);
        self.open_streams().find(|&StreamId(index)| {
            let stream = self.core.streams[index].as_ref();
            stream.is_some_and(|s| s.ends[0].node.0 == owner && s.to == *to)
        })
    }

    /// The open stream that [`Passing::serial`] tells apart.
    pub fn stream_with_serial(&self, serial: u32) -> Option<StreamId> {
        self.open_streams().find(|&StreamId(index)| {
            self.core.streams[index].as_ref().is_some_and(|stream| stream.serial == serial)
        })
    }

    /// One of the open streams, drawn.
    pub fn any_stream(&mut self) -> Option<StreamId> {
        let open: Vec<StreamId> = self.open_streams().collect();
        if open.is_empty() {
            return None;
        }
        Some(open[self.core.rng.below(open.len() as u64) as usize])
    }

    /// Breaks a stream at whatever byte it is; both ends learn of it.
    pub fn break_stream(&mut self, stream: StreamId) {
        for end in 0..2 {
            self.core.end_over(stream.0, end, CloseCause::Failed(BROKEN));
        }
    }

    /// Holds a stream up: what sets out from now on arrives after `stretch` at the earliest.
    pub fn stall_stream(&mut self, stream: StreamId, stretch: Duration) {
        let until = self.core.now.after(stretch);
        if let Some(stream) = self.core.streams[stream.0].as_mut() {
            stream.stalled_until = until;
        }
    }

    /// Fills the socket of the host's end of a stream: what it sends from now on leaves it after
    /// `stretch` at the earliest, and a batch at a time is on its way.
    pub fn block_stream(&mut self, stream: StreamId, stretch: Duration) {
        let until = self.core.now.after(stretch);
        if let Some(stream) = self.core.streams[stream.0].as_mut() {
            stream.blocked_until = until;
        }
    }

    /// Holds a stream up in the middle of what the target sends next, at whatever byte.
    pub fn tear_stream(&mut self, stream: StreamId, stretch: Duration) {
        if let Some(stream) = self.core.streams[stream.0].as_mut() {
            stream.torn = Some(stretch);
        }
    }

    /// Makes a stream swallow everything from now on, without a word.
    pub fn silence_stream(&mut self, stream: StreamId) {
        if let Some(stream) = self.core.streams[stream.0].as_mut() {
            stream.silent = true;
        }
    }

    /// Makes a stream slower.
    pub fn slow_stream(&mut self, stream: StreamId, extra: Duration) {
        if let Some(stream) = self.core.streams[stream.0].as_mut() {
            stream.slow = extra;
        }
    }

    fn open_streams(&self) -> impl Iterator<Item = StreamId> {
        let streams = self.core.streams.iter().enumerate();
        streams.filter_map(|(index, stream)| {
            let ends = &stream.as_ref()?.ends;
            ends.iter().all(|end| end.state == EndState::Open).then_some(StreamId(index))
        })
    }
}
