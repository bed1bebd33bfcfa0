//! Turns: how much is done for one connection before the others have theirs.
//!
//! Commands are begun as they come. A host may send thousands on many connections at once, and ones
//! that take long, so there is so much effort for what has come on a connection: what is left waits
//! in its queue, and the connection stands in line. The line goes on with the next `Timeout`, which
//! is due at once: whatever else has come meanwhile is looked at before that, Keep Alives of other
//! hosts above all. No clock is read for it: effort is estimated, from what a command names and
//! from what was found.

use super::Target;
use alloc::collections::VecDeque;
use anabranch_proto::machine::{Buffers, Time};

/// The effort for what has come on one connection, in commands that move a few blocks: no less than
/// the commands under way that hosts commonly have on a queue.
const TURN: u64 = 128;
/// The effort for the line, and for all that a link or a server lets go of at once.
const ROUND: u64 = 512;
/// So much of each kind is the effort of one such command: ranges that are named, chunks of memory
/// that are looked at to be emptied, bytes of an answer that are put together.
const RANGES: u64 = 16;
const CHUNKS: u64 = 4;
const ANSWER_BYTES: u64 = 1024;

/// What was done, and who waits.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Since the target began.
    effort: u64,
    /// Connections with something left, by place and generation.
    line: VecDeque<(u32, u32)>,
    /// When the line began.
    since: Option<Time>,
}

impl Turns {
    /// A command was begun, or goes on.
    pub(super) fn one(&mut self) {
        self.effort += 1;
    }

    /// A command's ranges were looked at.
    pub(super) fn ranges(&mut self, count: u64) {
        self.effort += count / RANGES;
    }

    /// Chunks of memory were made empty.
    pub(super) fn chunks(&mut self, count: u64) {
        self.effort += count / CHUNKS;
    }

    /// An answer, or what it is taken from, was put together.
    pub(super) fn answer(&mut self, bytes: usize) {
        self.effort += bytes as u64 / ANSWER_BYTES;
    }

    /// Where a turn that begins now ends.
    pub(super) fn turn(&self) -> u64 {
        self.effort + TURN
    }

    /// Where a round that begins now ends.
    pub(super) fn round(&self) -> u64 {
        self.effort + ROUND
    }

    /// Whether what began with that end is over.
    pub(super) fn is_over(&self, end: u64) -> bool {
        self.effort >= end
    }

    /// When the line goes on.
    pub(super) fn next(&self) -> Option<Time> {
        self.since
    }
}

impl Target {
    /// A connection has had its turn and something left. It stands in line once.
    pub(super) fn line_up(&mut self, now: Time, place: u32) {
        let Some(conn) = self.conns.get_mut(place) else { return };
        if !core::mem::replace(&mut conn.awaits_turn, true) {
            self.turns.line.push_back((place, conn.generation));
            self.turns.since.get_or_insert(now);
        }
    }

    /// Goes on with the line: a turn for each, as far as a round goes.
    pub(super) fn take_turns(&mut self, now: Time, bufs: &mut dyn Buffers) {
        let end = self.turns.round();
        for _ in 0..self.turns.line.len() {
            if self.turns.is_over(end) {
                return;
            }
            let Some((place, generation)) = self.turns.line.pop_front() else { break };
            let conn = self.conns.get_mut(place).filter(|conn| conn.generation == generation);
            let Some(conn) = conn else { continue };
            conn.awaits_turn = false;
            if !conn.closing {
                self.take_events(now, place, bufs);
                self.announce(place);
            }
        }
        if self.turns.line.is_empty() {
            self.turns.since = None;
        }
    }
}
