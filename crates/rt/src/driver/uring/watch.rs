//! Hearing of a peer's end while nothing is read.

#[cfg(test)]
mod tests;

use super::conn::Phase;
use super::{Kind, Uring};
use crate::driver::socket;
use anabranch_proto::machine::{CloseCause, Time};
use io_uring::{opcode, types};
use std::time::Duration;

/// How long a watch rests that the system had no memory for: it would fail at once again.
const WATCH_PAUSE: Duration = Duration::from_millis(100);

/// Connections whose watch has failed, and when to try again.
#[derive(Debug, Default)]
pub(super) struct Watches {
    failed: Vec<u32>,
    retry_at: Option<Time>,
}

impl Watches {
    /// When a pause ends.
    pub(super) fn retry_at(&self) -> Option<Time> {
        self.retry_at
    }
}

impl Uring {
    /// Waits for the peer's end, which no receive tells of while nothing is read.
    pub(super) fn watch(&mut self, slot: u32) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        if conn.peer_gone {
            return self.end(slot, CloseCause::PeerClosed);
        }
        let Some(fd) = conn.fd.as_ref().filter(|_| !conn.watching) else { return };
        let fd = types::Fd(socket::raw(fd));
        conn.watching = true;
        // An end of both directions and errors are told in any case.
        let entry = opcode::PollAdd::new(fd, libc::POLLRDHUP as u32).build();
        self.push(entry, Kind::Watch, slot);
    }

    pub(super) fn watch_done(&mut self, slot: u32, result: i32) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        conn.watching = false;
        let wanted = conn.paused && conn.watched;
        match conn.phase {
            Phase::Open if result > 0 => {
                conn.peer_gone = true;
                if wanted {
                    self.end(slot, CloseCause::PeerClosed);
                }
            }
            Phase::Open if wanted => {
                self.watches.failed.push(slot);
                self.watches.retry_at.get_or_insert(crate::now().after(WATCH_PAUSE));
            }
            Phase::Open | Phase::Draining | Phase::Discarding => {}
            Phase::Leaving { .. } => self.leave(slot),
            Phase::Connecting | Phase::Ending { .. } | Phase::Over => self.finish(slot),
        }
    }

    /// Watches again where that has failed. A slot may be another connection's by now, which is
    /// asked the same: whether it wants a watch, and has none.
    pub(super) fn retry_watches(&mut self, now: Time) {
        if self.watches.retry_at.is_some_and(|at| at <= now) {
            self.watches.retry_at = None;
            while let Some(slot) = self.watches.failed.pop() {
                let conn = self.conns.get(slot);
                if conn.is_some_and(|it| it.phase == Phase::Open && it.paused && it.watched) {
                    self.watch(slot);
                }
            }
        }
    }
}
