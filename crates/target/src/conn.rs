//! A connection: one queue pair of one controller, or one that is still to say which.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use anabranch_proto::machine::{BufRef, ConnId, Peer, Time, network};
use anabranch_proto::nvme::{Sqe, Status};
use anabranch_proto::target_queue::{Slot, TargetQueue};
use core::net::IpAddr;

/// A command slot of a connection.
pub(crate) type SlotId = u16;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// No Connect yet.
    New,
    /// The admin queue of a controller (place in the table).
    Admin(usize),
    /// An I/O queue of a controller (place in the table).
    Io(usize),
}

/// Data that goes along with a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerData {
    None,
    /// A pool buffer; exactly its bytes are sent.
    Buffer(BufRef),
    /// To be read from a namespace in memory when the link lets it leave, so that a slow port
    /// holds no buffers.
    Memory {
        nsid: u32,
        generation: u64,
        offset: u64,
        len: u32,
    },
}

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: Status,
    pub(crate) result: u64,
    pub(crate) data: AnswerData,
}

impl Answer {
    pub(crate) const fn status(status: Status) -> Answer {
        Answer { status, result: 0, data: AnswerData::None }
    }

    pub(crate) const fn result(result: u64) -> Answer {
        Answer { status: Status::SUCCESS, result, data: AnswerData::None }
    }

    /// An error that no retry will change.
    pub(crate) const fn refuse(status: Status) -> Answer {
        Answer::status(status.with_dnr())
    }

    pub(crate) fn bytes(&self) -> u32 {
        match self.data {
            AnswerData::None => 0,
            AnswerData::Buffer(buf) => buf.len(),
            AnswerData::Memory { len, .. } => len,
        }
    }
}

/// How far a command has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// In the inbound pipe.
    Inbound,
    /// Waits for a buffer.
    Waiting,
    /// Caught by a stall.
    Held,
    /// Data is on its way into this buffer.
    Transfer(BufRef),
    /// Takes its time at a server, or waits for one.
    Served,
    /// A file operation runs.
    Disk,
    /// In the outbound pipe, or waiting for a buffer behind it.
    Outbound(Answer),
    /// An asynchronous event request.
    Parked,
    /// A Disconnect: waits until all others are over.
    Last,
}

/// A command in progress.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) slot: Slot,
    pub(crate) stage: Stage,
    /// Data from the host: ours to free.
    pub(crate) data: Option<BufRef>,
    /// Answer with this, do not execute: the transport could not read the data right, somebody has
    /// withdrawn it, or its namespace is gone.
    pub(crate) verdict: Option<Status>,
    /// It has taken its time at a server.
    pub(crate) served: bool,
}

#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) id: ConnId,
    pub(crate) port: usize,
    /// Who it is, when the transport knows addresses.
    pub(crate) peer: Option<Peer>,
    /// The network that it can be told by then.
    pub(crate) from: Option<IpAddr>,
    pub(crate) role: Role,
    pub(crate) queue: TargetQueue,
    pub(crate) entries: Vec<Option<Entry>>,
    /// Tells this connection from an earlier one in the same place.
    pub(crate) generation: u32,
    /// `Close` was asked for; inputs are ignored until `Closed`.
    pub(crate) closing: bool,
    /// It is over, and its port's stall keeps that from the peer.
    pub(crate) ends_later: bool,
    /// When a connection that has not got through Connect, or is closing gracefully, is aborted.
    pub(crate) deadline: Option<Time>,
    /// `Transmit` was asked for and not pulled yet.
    pub(crate) announced: bool,
    /// Its port has stalled: it is not read.
    pub(crate) paused: bool,
    /// It has brought more data in capsules than its share of little memory: it is not read.
    pub(crate) choked: bool,
    /// Commands that wait for a buffer, in order.
    pub(crate) waiting: VecDeque<SlotId>,
    /// It stands in the line of those that have such commands.
    pub(crate) in_line: bool,
    /// It has had its turn and something left, and stands in line for the next.
    pub(crate) awaits_turn: bool,
    /// The Disconnect that deletes the queue: nothing is begun from then on.
    pub(crate) last: Option<SlotId>,
}

impl Conn {
    pub(crate) fn entry(&mut self, slot: SlotId) -> Option<&mut Entry> {
        self.entries.get_mut(usize::from(slot))?.as_mut()
    }

    /// The command of an entry.
    pub(crate) fn sqe(&self, slot: SlotId) -> Option<&Sqe> {
        let entry = self.entries.get(usize::from(slot))?.as_ref()?;
        Some(self.queue.sqe(entry.slot))
    }

    /// A Disconnect that is to be answered now: all others are over.
    pub(crate) fn last_of_all(&self) -> Option<SlotId> {
        let last = self.last?;
        let mut open = (0..).zip(&self.entries).filter(|(_, entry)| entry.is_some());
        let (slot, entry) = open.next()?;
        let waits = entry.as_ref().is_some_and(|entry| entry.stage == Stage::Last);
        (slot == last && waits && open.next().is_none()).then_some(last)
    }

    /// How many at the front of the line hold their data and wait for a second buffer.
    pub(crate) fn waiting_with_data(&self) -> usize {
        let holds = |slot: &SlotId| {
            let entry = self.entries.get(usize::from(*slot)).and_then(Option::as_ref);
            entry.is_some_and(|entry| entry.data.is_some())
        };
        self.waiting.iter().take_while(|slot| holds(slot)).count()
    }

    /// So many commands hold payload memory, at most, or are about to: those in progress that do
    /// not wait for some, and those whose last data is being sent. Those that wait for their second
    /// buffer are not counted.
    pub(crate) fn holding(&self) -> usize {
        let in_progress = usize::from(self.queue.in_flight()).saturating_sub(self.waiting.len());
        in_progress + self.queue.buffers_in_batch()
    }

    /// The controller that the connection belongs to.
    pub(crate) fn controller(&self) -> Option<usize> {
        match self.role {
            Role::New => None,
            Role::Admin(controller) | Role::Io(controller) => Some(controller),
        }
    }
}

/// All connections, by place. Places are used again; generations are not.
#[derive(Debug, Default)]
pub(crate) struct Conns {
    places: Vec<Option<Box<Conn>>>,
    free: Vec<u32>,
    by_id: BTreeMap<ConnId, u32>,
    generation: u32,
}

impl Conns {
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn find(&self, id: ConnId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn get(&self, place: u32) -> Option<&Conn> {
        self.places.get(place as usize)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, place: u32) -> Option<&mut Conn> {
        self.places.get_mut(place as usize)?.as_deref_mut()
    }

    pub(crate) fn insert(
        &mut self,
        id: ConnId,
        port: usize,
        peer: Option<Peer>,
        queue: TargetQueue,
    ) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        });
        self.generation = self.generation.wrapping_add(1);
        self.places[place as usize] = Some(Box::new(Conn {
            id,
            port,
            peer,
            from: from(peer),
            role: Role::New,
            queue,
            entries: Vec::new(),
            generation: self.generation,
            closing: false,
            ends_later: false,
            deadline: None,
            announced: false,
            paused: false,
            choked: false,
            waiting: VecDeque::new(),
            in_line: false,
            awaits_turn: false,
            last: None,
        }));
        self.by_id.insert(id, place);
        place
    }

    pub(crate) fn remove(&mut self, place: u32) -> Option<Box<Conn>> {
        let conn = self.places.get_mut(place as usize)?.take()?;
        self.by_id.remove(&conn.id);
        self.free.push(place);
        Some(conn)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Conn)> {
        (0_u32..).zip(&self.places).filter_map(|(place, conn)| Some((place, conn.as_deref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Conn> {
        self.places.iter_mut().flatten().map(Box::as_mut)
    }
}

/// What a peer cannot choose of its address.
pub(crate) fn from(peer: Option<Peer>) -> Option<IpAddr> {
    match peer {
        Some(Peer::Address(address)) => Some(network(address.ip())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_proto::target_queue::TargetQueueConfig;

    #[test]
    fn places_are_used_again() {
        let config = TargetQueueConfig {
            depth: 1,
            in_capsule_bytes: 0,
            max_h2c_data: 4096,
            allow_hdr_digest: false,
            allow_data_digest: false,
            max_transfer_bytes: 4096,
        };
        let mut conns = Conns::default();
        let come = |conns: &mut Conns, id| {
            let place = conns.insert(ConnId::accepted(id), 0, None, TargetQueue::new(config));
            (place, conns.get(place).expect("it is there").generation)
        };
        let (place, generation) = come(&mut conns, 1);
        conns.remove(place);
        let again = come(&mut conns, 2);
        assert_eq!(again.0, place);
        assert_ne!(again.1, generation, "what is left of the former one does not concern it");
    }
}
