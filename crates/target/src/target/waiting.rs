//! Payload memory: who gets some, and in which order commands wait for it.
//!
//! All connections share the worker's pool. A host may ask for much and take nothing, or announce
//! much and send nothing: when the pool gets low, no connection gets more than a share, and no
//! host, on all its connections, more than is left to the others, so that the last of it stays with
//! those that hold least. A peer can claim to be many hosts, but hardly to be elsewhere: when the
//! pool is nearly empty the same holds for all hosts at one address together. (Not before: hosts
//! that share an address would have to answer for each other.) While an eighth is left, a
//! connection that holds nothing has memory for one command all the same: a path on which nothing
//! moves must not stop the other paths of its host. What small data needs, a Connect's and that in
//! capsules, is not given to larger: it comes unasked, so that a command whose data finds no room
//! can only be refused. And a line that does not move holds up no other: connections wait in turn,
//! each with its commands in order. Of data in capsules see `capsules`.
//!
//! A comparison with a file needs memory twice: for what the host sends, then for what the file
//! has. It begins only while the pool is not low, and is first in its line for the second buffer,
//! so that comparisons never hold all there is while each waits for more. Of one whose data came in
//! the capsule nobody could ask whether it may begin: it is refused when only the last is left,
//! which is then there for the second buffer of those that wait.

use super::held::Most;
use super::{Target, Ticket};
use crate::conn::{Conn, Stage};
use anabranch_proto::machine::{BufRef, Buffers, Time};
use anabranch_proto::nvme::{SglKind, Sqe};
use core::time::Duration;

/// When commands that found no buffer are tried again at the latest.
pub(super) const RETRY: Duration = Duration::from_millis(1);
/// Connections that are tried at once; the others have their turn next time.
pub(super) const TRIED_AT_ONCE: usize = 64;
/// The pool is low when less than one part in so many is left, and a connection may then hold
/// memory for so many commands.
const LOW: (u64, usize) = (4, 4);
/// A connection that holds nothing has memory for one command until less than one part in so many
/// is left.
pub(super) const FIRST: u64 = 8;
/// As [`LOW`] when the pool is nearly empty.
pub(super) const NEARLY_EMPTY: (u64, usize) = (16, 1);

/// One part in so many of the pool is kept for buffers up to [`SMALL`] bytes.
pub(super) const KEPT_FOR_SMALL: u64 = 32;
pub(super) const SMALL: u32 = 8192;
/// The longest answer to an admin command that is short: the ANA log, as hosts read it, is.
const SHORT_ANSWER: u32 = 16 << 10;

/// Whether the pool is low.
pub(super) fn is_low(bufs: &dyn Buffers) -> bool {
    bufs.spare() < bufs.capacity() / LOW.0
}

/// How many commands of a connection may hold memory when the pool is low.
pub(super) fn share(bufs: &dyn Buffers) -> usize {
    let nearly_empty = bufs.spare() < bufs.capacity() / NEARLY_EMPTY.0;
    if nearly_empty { NEARLY_EMPTY.1 } else { LOW.1 }
}

/// Whether a command that brought its data in the capsule, and needs as much again, would leave
/// too little for the second buffer of those like it.
pub(super) fn leaves_no_second(sqe: &Sqe, bufs: &dyn Buffers) -> bool {
    sqe.sgl().kind() == SglKind::InCapsule && bufs.spare() < bufs.capacity() / KEPT_FOR_SMALL
}

impl Target {
    /// Memory for the payload of one command of a connection, if it may have some now.
    pub(super) fn payload(
        &mut self,
        place: u32,
        len: u32,
        bufs: &mut dyn Buffers,
    ) -> Option<BufRef> {
        if self.may_take(place, len, bufs) { bufs.alloc(len) } else { None }
    }

    /// Whether a connection may take memory for the command that it is asked about, which is in
    /// progress and does not wait.
    pub(super) fn may_take(&mut self, place: u32, len: u32, bufs: &dyn Buffers) -> bool {
        if !is_low(bufs) {
            self.held.forget();
            return true;
        }
        let may = self.may_take_of_little(place, len, bufs);
        if may {
            self.granted(place);
        }
        may
    }

    fn may_take_of_little(&mut self, place: u32, len: u32, bufs: &dyn Buffers) -> bool {
        let (spare, all) = (bufs.spare(), bufs.capacity());
        if len > SMALL && spare < all / KEPT_FOR_SMALL + bufs.cost(len) {
            return false;
        }
        let share = share(bufs);
        let holding = self.conns.get(place).map_or(0, Conn::holding);
        if holding > share {
            return false;
        }
        if holding <= 1 && len <= SMALL {
            // As small writes have it, which bring their data: whatever its host and those beside
            // it hold, a connection has memory for one small command.
            return true;
        }
        if holding <= 1 && spare >= all / FIRST + bufs.cost(len) {
            return true;
        }
        let most = (spare / u64::from(self.limits.max_transfer_bytes) / 2).max(1);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        self.holds_at_most(place, Most::Commands(most), spare < all / NEARLY_EMPTY.0)
    }

    /// Whether a controller may have memory for the answer to an admin command. A host that means
    /// well has few of them under way and reads them: they come out of what is kept from longer
    /// payload, too, so that hosts can connect and see what has changed however little is left. But
    /// no admin queue has more than a share when that is so.
    pub(super) fn may_answer(&self, at: usize, len: u32, bufs: &dyn Buffers) -> bool {
        if !is_low(bufs) {
            return true;
        }
        let (spare, all) = (bufs.spare(), bufs.capacity());
        let share = share(bufs);
        let controller = self.controllers[at].as_ref();
        let holding = controller.map_or(0, |controller| {
            let conn = self.conns.get(controller.admin);
            conn.map_or(0, Conn::holding).saturating_sub(controller.events.parked())
        });
        holding <= share && (len <= SHORT_ANSWER || spare >= all / FIRST + bufs.cost(len))
    }

    /// Puts a command behind those of its connection that wait for a buffer; one that holds some
    /// memory already, before those that do not.
    pub(super) fn wait(&mut self, now: Time, ticket: Ticket, stage: Stage) {
        let Ticket { place, generation, slot } = ticket;
        let Some(conn) = self.conns.get_mut(place) else { return };
        let Some(entry) = conn.entry(slot) else { return };
        entry.stage = stage;
        let holds = entry.data.is_some();
        let first_without = if holds { conn.waiting_with_data() } else { conn.waiting.len() };
        conn.waiting.insert(first_without, slot);
        if !core::mem::replace(&mut conn.in_line, true) {
            self.waiting.push_back((place, generation));
        }
        self.retry_at = Some(now.after(RETRY));
    }

    /// Tries commands that wait for a buffer again: of each connection in turn, until one finds
    /// none.
    pub(super) fn retry_waiting(&mut self, now: Time, bufs: &mut dyn Buffers) {
        if self.waiting.is_empty() && self.choked.is_empty() {
            return;
        }
        self.retry_line(now, bufs);
        self.unchoke(bufs);
        if self.waiting.is_empty() && self.choked.is_empty() {
            self.retry_at = None;
        } else if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = Some(now.after(RETRY));
        }
    }

    fn retry_line(&mut self, now: Time, bufs: &mut dyn Buffers) {
        for _ in 0..self.waiting.len().min(TRIED_AT_ONCE) {
            let Some((place, generation)) = self.waiting.pop_front() else { break };
            let alive = |conn: &&mut crate::conn::Conn| conn.generation == generation;
            if self.conns.get_mut(place).filter(alive).is_none_or(|conn| conn.closing) {
                continue;
            }
            self.retry_connection(now, place, bufs);
            let Some(conn) = self.conns.get_mut(place) else { continue };
            conn.in_line = !conn.waiting.is_empty();
            if conn.in_line {
                self.waiting.push_back((place, generation));
            }
        }
        // Who was first is not first again.
        if self.waiting.len() <= TRIED_AT_ONCE && !self.waiting.is_empty() {
            self.waiting.rotate_left(1);
        }
    }

    fn retry_connection(&mut self, now: Time, place: u32, bufs: &mut dyn Buffers) {
        while let Some(conn) = self.conns.get_mut(place) {
            let Some(slot) = conn.waiting.pop_front() else { return };
            let (port, generation, left) = (conn.port, conn.generation, conn.waiting.len());
            let stage = conn.entry(slot).map(|entry| entry.stage);
            if self.ports[port].is_stalled() {
                self.ports[port].held.push((place, generation, slot));
                continue;
            }
            match stage {
                Some(Stage::Waiting) => self.run(now, place, slot, bufs),
                Some(Stage::Outbound(answer)) => self.finish(now, place, slot, &answer, bufs),
                _ => {}
            }
            if let Some(conn) = self.conns.get_mut(place)
                && conn.waiting.len() > left
            {
                // Still none: it keeps its turn.
                if let Some(at) = conn.waiting.iter().rposition(|&waits| waits == slot) {
                    conn.waiting.remove(at);
                    conn.waiting.push_front(slot);
                }
                return;
            }
        }
    }

    /// Commands that wait for a buffer.
    pub(super) fn waiting_count(&self) -> usize {
        self.conns.iter().map(|(_, conn)| conn.waiting.len()).sum()
    }
}
