//! What a world knows of its engines: who waits for what, and which streams there are.

use super::net::{End, EndState, Stream};
use anabranch_proto::machine::{
    CloseCause, CloseHow, ConnId, Endpoint, ListenerId, SystemError, WorkerId,
};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::mem::take;

/// How long everything travels: batches, ends of connections, mail between workers.
pub const TRAVEL_NS: u64 = 50;

/// What is due.
pub(super) enum Due<M> {
    /// A batch of this end arrives.
    Arrive {
        stream: u32,
        serial: u32,
        end: u8,
    },
    /// A batch of this end has arrived.
    Sent {
        stream: u32,
        serial: u32,
        end: u8,
    },
    /// This end sends nothing more.
    Fin {
        stream: u32,
        serial: u32,
        end: u8,
    },
    /// A connection is set up, or refused.
    Established {
        stream: u32,
        serial: u32,
    },
    /// This end is over.
    Over {
        stream: u32,
        serial: u32,
        end: u8,
        cause: CloseCause,
    },
    Mail {
        node: u32,
        from: WorkerId,
        mail: M,
    },
    Timeout {
        node: u32,
    },
}

pub(super) struct Queued<M> {
    pub(super) at: u64,
    pub(super) due: Due<M>,
}

/// Put off: a worker's time was stolen.
pub(super) struct Late<M> {
    pub(super) at: u64,
    pub(super) order: u64,
    pub(super) due: Due<M>,
}

impl<M> PartialEq for Late<M> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl<M> Eq for Late<M> {}
impl<M> PartialOrd for Late<M> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<M> Ord for Late<M> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// What is known of an engine here.
#[derive(Default)]
pub(super) struct Node {
    /// Streams that it opened, by connection.
    pub(super) opened: Vec<Option<u32>>,
    /// The earliest of its timers on the heap.
    pub(super) timer: Option<u64>,
    /// Connections that have asked to send since the last batches were pulled.
    pub(super) touched: Vec<ConnId>,
}

/// What does not depend on the engines' types.
pub(super) struct Core<M> {
    pub(super) now: u64,
    pub(super) queue: VecDeque<Queued<M>>,
    pub(super) late: BinaryHeap<Late<M>>,
    pub(super) order: u64,
    pub(super) timers: BinaryHeap<Reverse<(u64, u32)>>,
    pub(super) nodes: Vec<Node>,
    pub(super) streams: Vec<Option<Box<Stream>>>,
    pub(super) free: Vec<u32>,
    pub(super) serial: u32,
    pub(super) listeners: Vec<(ListenerId, Endpoint)>,
    /// The NUMA nodes of the hosts' network devices, by the ports that they lead to.
    pub(super) near: Vec<(Endpoint, u32)>,
    /// The target: behind all workers.
    pub(super) target: u32,
    /// Workers of one host, the control worker included.
    pub(super) group: u32,
}

impl<HM> Core<HM> {
    #[inline]
    pub(super) fn after(&mut self, due: Due<HM>) {
        self.queue.push_back(Queued { at: self.now + TRAVEL_NS, due });
    }

    #[inline]
    pub(super) fn timer_at(&mut self, node: u32, at: u64) {
        let at = at.max(self.now);
        let timer = &mut self.nodes[node as usize].timer;
        if timer.is_none_or(|known| at < known) {
            *timer = Some(at);
            self.timers.push(Reverse((at, node)));
        }
    }

    pub(super) fn due_timer(&mut self) -> Option<Due<HM>> {
        let Reverse((at, node)) = self.timers.pop()?;
        let timer = &mut self.nodes[node as usize].timer;
        if *timer != Some(at) {
            // An earlier one has been set since, and has set this anew if it still counts.
            return None;
        }
        *timer = None;
        Some(Due::Timeout { node })
    }

    pub(super) fn mail(&mut self, from: u32, to: WorkerId, mail: HM) {
        let first = from - from % self.group;
        let node = first + u32::from(to.0);
        self.after(Due::Mail { node, from: WorkerId((from - first) as u16), mail });
    }

    /// Who is given what is due.
    pub(super) fn receiver(&self, due: &Due<HM>) -> Option<u32> {
        let end_of = |stream: u32, serial: u32, end: usize| {
            let stream = self.streams[stream as usize].as_deref();
            stream.filter(|s| s.serial == serial).map(|s| s.ends[end].node)
        };
        match *due {
            Due::Arrive { stream, serial, end } => end_of(stream, serial, 1 - usize::from(end)),
            Due::Sent { stream, serial, end } | Due::Over { stream, serial, end, .. } => {
                end_of(stream, serial, end.into())
            }
            Due::Established { stream, serial } => end_of(stream, serial, 0),
            Due::Mail { node, .. } | Due::Timeout { node } => Some(node),
            Due::Fin { .. } => None,
        }
    }

    #[inline]
    pub(super) fn stream(&mut self, stream: u32, serial: u32) -> Option<&mut Stream> {
        self.streams[stream as usize].as_deref_mut().filter(|s| s.serial == serial)
    }

    pub(super) fn known(&mut self, stream: u32, serial: u32) -> bool {
        self.stream(stream, serial).is_some()
    }

    /// Which end of which stream a connection of an engine is.
    #[inline]
    pub(super) fn place_of(&self, node: u32, conn: ConnId) -> Option<(u32, usize)> {
        if conn.is_accepted() {
            // Named by its place, which another stream gets only after `Closed`.
            let stream = self.streams.get(conn.index() as usize)?.as_deref()?;
            return (stream.ends[1].conn == conn).then_some((conn.index(), 1));
        }
        let opened = self.nodes[node as usize].opened.get(conn.index() as usize);
        opened.copied().flatten().map(|stream| (stream, 0))
    }

    pub(super) fn with_end(&mut self, node: u32, conn: ConnId, change: impl FnOnce(&mut End)) {
        if let Some((stream, end)) = self.place_of(node, conn)
            && let Some(stream) = self.streams[stream as usize].as_deref_mut()
        {
            change(&mut stream.ends[end]);
        }
    }

    pub(super) fn connect(&mut self, node: u32, conn: ConnId, to: Endpoint) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.streams.push(None);
            self.streams.len() as u32 - 1
        });
        self.serial = self.serial.wrapping_add(1);
        let serial = self.serial;
        let ends = [End::new(node, conn), End::new(self.target, ConnId::accepted(place))];
        self.streams[place as usize] = Some(Box::new(Stream { ends, to, serial }));
        let opened = &mut self.nodes[node as usize].opened;
        let index = conn.index() as usize;
        if opened.len() <= index {
            opened.resize(index + 1, None);
        }
        opened[index] = Some(place);
        self.after(Due::Established { stream: place, serial });
    }

    pub(super) fn resume(&mut self, node: u32, conn: ConnId) {
        let Some((stream, end)) = self.place_of(node, conn) else { return };
        let Some(s) = self.streams[stream as usize].as_deref_mut() else { return };
        s.ends[end].paused = false;
        let (serial, other) = (s.serial, 1 - end);
        if take(&mut s.ends[other].parked) {
            self.after(Due::Arrive { stream, serial, end: other as u8 });
        }
    }

    pub(super) fn close(&mut self, node: u32, conn: ConnId, how: CloseHow) {
        let Some((stream, end)) = self.place_of(node, conn) else { return };
        let Some(s) = self.streams[stream as usize].as_deref_mut() else { return };
        if how == CloseHow::Graceful && s.ends[end].state == EndState::Open {
            s.ends[end].state = EndState::Closing;
            // What the engine still has is pulled before the end goes out.
            self.nodes[node as usize].touched.push(conn);
            return;
        }
        self.end_over(stream, end, CloseCause::Requested);
        self.end_over(stream, 1 - end, CloseCause::Failed(SystemError::RESET));
    }

    /// An orderly end goes out when everything before it has.
    pub(super) fn fin_if_done(&mut self, stream: u32, serial: u32, end: usize) {
        let Some(s) = self.stream(stream, serial) else { return };
        let this = &s.ends[end];
        if this.state == EndState::Closing && !this.sending && !this.wants_transmit {
            self.after(Due::Fin { stream, serial, end: end as u8 });
        }
    }

    /// An end is over: what it had on its way is dropped, `Closed` follows.
    pub(super) fn end_over(&mut self, stream: u32, end: usize, cause: CloseCause) {
        let Some(s) = self.streams[stream as usize].as_deref_mut() else { return };
        let serial = s.serial;
        let this = &mut s.ends[end];
        if this.state == EndState::Over {
            return;
        }
        let unheard = this.state == EndState::Connecting && end == 1;
        this.state = EndState::Over;
        this.hint = None;
        if unheard {
            this.told = true;
            return;
        }
        self.after(Due::Over { stream, serial, end: end as u8, cause });
    }
}
