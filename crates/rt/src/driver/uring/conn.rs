//! A connection: what is in flight on it, and how it ends.
//!
//! | phase | receives | sends | leaves by |
//! | --- | --- | --- | --- |
//! | `Connecting` | no | no | connected → `Open`, failure or `close` → `Ending` |
//! | `Open` | to the engine | yes | `close` → `Draining`, `Ending`; end, error → `Ending` |
//! | `Draining` | discarded | until the engine has no more | empty batch → `Discarding` |
//! | `Discarding` | discarded | shut down | end of stream, error, abort, too much → `Ending` |
//! | `Leaving` | cancelled | no | all reaped → event `Leaving`, `Over` |
//! | `Ending` | cancelled | cancelled | all reaped, closed → event `Closed`, `Over` |
//! | `Over` | | | its last event was taken: the slot is free |

use crate::driver::{Batch, Early};
use anabranch_proto::machine::{BufRef, CloseCause, ConnId, ListenerId, Peer};
use socket2::SockAddr;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::os::fd::OwnedFd;

/// One connection.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) id: ConnId,
    pub(super) fd: Option<OwnedFd>,
    pub(super) phase: Phase,
    /// The connect operation in flight holds this address.
    pub(super) connecting: Option<Box<SockAddr>>,
    /// The engine wants to know the NUMA node that it goes through.
    pub(super) tell_node: bool,
    pub(super) receiving: Option<Receiving>,
    pub(super) sending: Option<Box<Batch>>,
    /// A cancel operation is in flight. Until it is reaped the descriptor stays open: it names the
    /// descriptor by number.
    pub(super) cancelling: bool,
    /// The engine is being told something of this connection; reading goes on after that.
    pub(super) delivering: bool,
    pub(super) paused: bool,
    /// The peer's end is told while it is paused.
    pub(super) watched: bool,
    /// The operation that waits for that is in flight. It stays when reading goes on: most
    /// connections that pause do so again and again.
    pub(super) watching: bool,
    /// It has ended: the peer sends no more.
    pub(super) peer_gone: bool,
    /// Where the next receive belongs.
    pub(super) into: Option<BufRef>,
    /// Bytes that the next receive into a receive buffer takes at most; `u32::MAX` is all of it.
    pub(super) limit: u32,
    /// The last receive reached its limit.
    pub(super) filled: bool,
    /// The engine has something to send (or may have).
    pub(super) wants_send: bool,
    /// In the list of senders.
    pub(super) queued: bool,
    /// The socket was empty after the last receive: wait for bytes first.
    pub(super) drained: bool,
    /// The peer has ended its direction (noted while ours is still draining).
    pub(super) peer_done: bool,
    /// Bytes that came after the engine had closed.
    pub(super) discarded: u64,
    pub(super) peer: Option<Peer>,
    /// What was read before it was handed over here, until the engine has it; or what has come
    /// since it is leaving.
    pub(super) early: Early,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Connecting,
    Open,
    Draining,
    Discarding,
    Leaving { listener: ListenerId, to: u16 },
    Ending { cause: CloseCause },
    Over,
}

/// A receive in flight.
#[derive(Clone, Copy, Debug)]
pub(super) enum Receiving {
    /// Into a receive buffer that the kernel chooses.
    Provided,
    /// Into the engine's buffer.
    Into(BufRef),
}

impl Conn {
    pub(super) fn new(id: ConnId, fd: OwnedFd, phase: Phase) -> Conn {
        Conn {
            id,
            fd: Some(fd),
            phase,
            connecting: None,
            tell_node: false,
            receiving: None,
            sending: None,
            cancelling: false,
            delivering: true,
            paused: false,
            watched: false,
            watching: false,
            peer_gone: false,
            into: None,
            limit: u32::MAX,
            filled: false,
            wants_send: false,
            queued: false,
            drained: true,
            peer_done: false,
            discarded: 0,
            peer: None,
            early: None,
        }
    }

    /// Whether an operation is in flight that a cancel would end.
    pub(super) fn busy(&self) -> bool {
        self.connecting.is_some()
            || self.receiving.is_some()
            || self.sending.is_some()
            || self.watching
    }

    /// Whether the kernel has nothing of this connection any more.
    pub(super) fn reaped(&self) -> bool {
        !self.busy() && !self.cancelling
    }
}

/// All connections of a worker. A slot is named by the operations in flight; it is free again only
/// when the connection's last event was taken.
#[derive(Debug, Default)]
pub(super) struct Conns {
    slots: Vec<Option<Conn>>,
    free: Vec<u32>,
    opened: HashMap<u32, u32, BuildHasherDefault<IndexHasher>>,
}

impl Conns {
    /// Adds a connection; `id` gets the slot.
    pub(super) fn insert(&mut self, make: impl FnOnce(u32) -> Conn) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 connections")
        });
        let conn = make(slot);
        if !conn.id.is_accepted() {
            let before = self.opened.insert(conn.id.index(), slot);
            assert!(before.is_none(), "{:?} is in use", conn.id);
        }
        self.slots[slot as usize] = Some(conn);
        slot
    }

    /// The slot of a connection that has not had its last event.
    pub(super) fn slot(&self, id: ConnId) -> Option<u32> {
        if !id.is_accepted() {
            return self.opened.get(&id.index()).copied();
        }
        self.get(id.index()).is_some_and(|conn| conn.id == id).then_some(id.index())
    }

    pub(super) fn get(&self, slot: u32) -> Option<&Conn> {
        self.slots.get(slot as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Conn> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    pub(super) fn remove(&mut self, id: ConnId) {
        let Some(slot) = self.slot(id) else { return };
        if !id.is_accepted() {
            self.opened.remove(&id.index());
        }
        self.slots[slot as usize] = None;
        self.free.push(slot);
    }

    pub(super) fn ids(&self) -> Vec<ConnId> {
        self.slots.iter().flatten().map(|conn| conn.id).collect()
    }
}

/// Connection indices are chosen by our own engines: spreading the bits is all that is needed.
#[derive(Debug, Default)]
pub(super) struct IndexHasher(u64);

impl Hasher for IndexHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        let mixed = (self.0 ^ u64::from(value)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}
