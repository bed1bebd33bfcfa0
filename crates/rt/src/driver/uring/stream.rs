//! The life of a connection on the ring: connecting, receiving, sending, ending.

use super::buffers::GROUP;
use super::conn::{Conn, Phase, Receiving};
use super::{CLOSE, KEPT_BATCHES, Kind, Uring};
use crate::driver::batch::Pieces;
use crate::driver::{Batch, Early, Event, Handed, Received, socket};
use crate::interface::node_of_connection;
use anabranch_proto::machine::{
    BufRef, CloseCause, CloseHow, ConnId, Endpoint, ListenerId, SocketOptions, SystemError,
};
use io_uring::{cqueue, opcode, squeue, types};
use std::os::fd::AsFd;

/// `IORING_RECVSEND_POLL_FIRST`: do not try before the socket has bytes.
const POLL_FIRST: u16 = 1;
/// What a receive takes by copy after one that was aimed; it doubles while the engine does not aim.
const AFTER_AIMED: u32 = 16 << 10;
/// What a peer may send after the engine has closed gracefully; one that goes on sends for the sake
/// of our time, and is cut off. More than any client of ours has on its way in good faith.
const DISCARD_MAX: u64 = 64 << 20;
/// System calls of making a socket (a lower bound, for the counters).
const MAKE_SOCKET: u64 = 2;

impl Uring {
    pub(super) fn start_connect(&mut self, id: ConnId, to: &Endpoint, options: &SocketOptions) {
        assert!(!id.is_accepted(), "{id:?} is a name for accepted connections");
        assert!(self.conns.slot(id).is_none(), "{id:?} is in use");
        self.counters.system_calls.add(MAKE_SOCKET);
        let (fd, addr) = match socket::for_connect(to, options) {
            Ok(made) => made,
            Err(error) => {
                let cause = CloseCause::Failed(socket::system_error(&error));
                self.events.push_back(Event::Closed { conn: id, cause });
                return;
            }
        };
        let addr = Box::new(addr);
        let raw = types::Fd(socket::raw(&fd));
        let entry = opcode::Connect::new(raw, addr.as_ptr().cast(), addr.len()).build();
        let slot = self.conns.insert(|_| {
            let mut conn = Conn::new(id, fd, Phase::Connecting);
            conn.connecting = Some(addr);
            conn.tell_node = options.tell_node;
            conn
        });
        self.push(entry, Kind::Connect, slot);
    }

    pub(super) fn connect_done(&mut self, slot: u32, result: i32) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        if conn.phase != Phase::Connecting {
            conn.connecting = None;
            self.finish(slot);
            return;
        }
        conn.connecting = None;
        if result < 0 {
            self.end(slot, CloseCause::Failed(SystemError(-result)));
            return;
        }
        conn.phase = Phase::Open;
        let id = conn.id;
        let fd = conn.fd.as_ref().map(AsFd::as_fd);
        let local = fd.and_then(socket::local_addr);
        let node = fd.filter(|_| conn.tell_node).and_then(|fd| node_of_connection(fd, local));
        self.counters.system_calls.add(1);
        self.events.push_back(Event::Connected { conn: id, local, node });
    }

    // ---- receiving ----

    pub(super) fn aim(&mut self, id: ConnId, buf: BufRef) {
        let Some(slot) = self.conns.slot(id) else { return };
        let Some(conn) = self.conns.get_mut(slot) else { return };
        // A receive in flight gets the bytes that the hint is about: too late for it.
        if conn.phase == Phase::Open && conn.receiving.is_none() && !buf.is_empty() {
            conn.into = Some(buf);
        }
    }

    pub(super) fn stop_reading(&mut self, id: ConnId, watch: bool) {
        let Some(slot) = self.conns.slot(id) else { return };
        let Some(conn) = self.conns.get_mut(slot) else { return };
        if conn.phase != Phase::Open {
            return;
        }
        conn.paused = true;
        conn.watched = watch;
        if watch {
            self.watch(slot);
        }
    }

    pub(super) fn read_on(&mut self, id: ConnId) {
        let Some(slot) = self.conns.slot(id) else { return };
        let Some(conn) = self.conns.get_mut(slot) else { return };
        conn.paused = false;
        self.receive(slot);
    }

    /// Unless more has come already: then the peer does not wait.
    pub(super) fn acknowledge_now(&mut self, id: ConnId) {
        let conn = self.conns.slot(id).and_then(|slot| self.conns.get_mut(slot));
        let open = conn.filter(|it| it.phase == Phase::Open && it.drained);
        if let Some(fd) = open.and_then(|it| it.fd.as_ref()) {
            self.counters.system_calls.add(1);
            socket::acknowledge(fd.as_fd());
        }
    }

    /// Asked of the socket at once: an operation of its own would be answered later, perhaps too
    /// late for whoever has to know before it goes on.
    pub(super) fn look_for_peer(&mut self, id: ConnId) {
        let conn = self.conns.slot(id).and_then(|slot| self.conns.get_mut(slot));
        let Some(conn) = conn.filter(|it| it.phase == Phase::Open && !it.peer_gone) else { return };
        let Some(fd) = conn.fd.as_ref() else { return };
        self.counters.system_calls.add(1);
        if !socket::peer_has_ended(fd.as_fd()) {
            self.events.push_back(Event::Looked { conn: id });
        }
    }

    /// Starts the next receive where one should be in flight.
    pub(super) fn receive(&mut self, slot: u32) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        let reading = matches!(conn.phase, Phase::Open | Phase::Draining | Phase::Discarding);
        if !reading || conn.receiving.is_some() || conn.delivering || conn.paused || conn.peer_done
        {
            return;
        }
        let Some(fd) = &conn.fd else { return };
        let fd = types::Fd(socket::raw(fd));
        let first = if conn.drained { POLL_FIRST } else { 0 };
        let entry = if let Some(buf) = conn.into.take() {
            conn.receiving = Some(Receiving::Into(buf));
            conn.filled = false;
            let at = self.regions.lend(buf);
            // Without MSG_WAITALL: the system tries such a receive again 128 times, and then leaves
            // it to a thread. Whoever trickles would have one per connection.
            opcode::Recv::new(fd, at, buf.len()).build()
        } else {
            conn.receiving = Some(Receiving::Provided);
            if std::mem::take(&mut conn.filled) {
                conn.limit = conn.limit.saturating_mul(2);
            }
            let limit = conn.limit.min(self.buffers.size());
            opcode::Recv::new(fd, std::ptr::null_mut(), limit)
                .ioprio(first)
                .buf_group(GROUP)
                .build()
                .flags(squeue::Flags::BUFFER_SELECT)
        };
        self.push(entry, Kind::Receive, slot);
    }

    pub(super) fn receive_done(&mut self, slot: u32, result: i32, flags: u32) {
        let buffer = cqueue::buffer_select(flags);
        if buffer.is_some() {
            self.buffers.taken();
        }
        let Some(conn) = self.conns.get_mut(slot) else { return };
        let into = match conn.receiving.take() {
            Some(Receiving::Into(buf)) => {
                self.regions.reaped(buf);
                // Long payload is on this connection: take little more than the next header by
                // copy, so that the engine can aim the rest.
                conn.limit = AFTER_AIMED;
                true
            }
            _ => {
                conn.filled = u32::try_from(result).is_ok_and(|len| len >= conn.limit);
                false
            }
        };
        conn.drained = !cqueue::sock_nonempty(flags);
        let len = u32::try_from(result).unwrap_or(0);
        if len > 0 {
            self.counters.receives.add(1);
            self.counters.received_bytes.add(u64::from(len));
        }
        let id = conn.id;
        if conn.phase == Phase::Open && len > 0 {
            conn.delivering = true;
            if into {
                self.counters.received_into_bytes.add(u64::from(len));
                self.events.push_back(Event::ReceivedInto { conn: id, len });
            } else if let Some(buffer) = buffer {
                let bytes = Received { buffer, len };
                self.events.push_back(Event::Received { conn: id, bytes });
            }
            return;
        }
        if let (Phase::Leaving { .. }, Some(buffer), 1..) = (conn.phase, buffer, len) {
            let bytes = self.buffers.bytes(Received { buffer, len });
            conn.early = Some(bytes.to_vec());
        }
        if let Some(buffer) = buffer {
            self.buffers.provide(buffer);
        }
        self.receive_ended(slot, result);
    }

    /// A receive brought nothing for the engine.
    fn receive_ended(&mut self, slot: u32, result: i32) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        match (conn.phase, result) {
            (Phase::Leaving { .. }, _) => self.leave(slot),
            (Phase::Ending { .. } | Phase::Over | Phase::Connecting, _) => self.finish(slot),
            (_, e) if e == -libc::ENOBUFS => {
                self.counters.receive_starved.add(1);
                // Too few are in use. There are some: those of all completions before this one
                // have come back, as each is delivered before the next is looked at.
                self.buffers.double();
                debug_assert!(self.buffers.any(), "all are lost");
                self.receive(slot);
            }
            (_, e) if e == -libc::EINTR || e == -libc::EAGAIN => self.receive(slot),
            (Phase::Draining | Phase::Discarding, 1..) => {
                conn.discarded += u64::try_from(result).unwrap_or(0);
                match conn.discarded {
                    ..=DISCARD_MAX => self.receive(slot),
                    _ => self.end(slot, CloseCause::Requested),
                }
            }
            (Phase::Open, 0) => self.end(slot, CloseCause::PeerClosed),
            (Phase::Open, e) => self.end(slot, CloseCause::Failed(SystemError(-e))),
            (Phase::Draining, 0) => conn.peer_done = true,
            (Phase::Draining | Phase::Discarding, _) => self.end(slot, CloseCause::Requested),
        }
    }

    // ---- sending ----

    pub(super) fn want_send(&mut self, id: ConnId) {
        let Some(slot) = self.conns.slot(id) else { return };
        let Some(conn) = self.conns.get_mut(slot) else { return };
        if matches!(conn.phase, Phase::Open | Phase::Draining) {
            conn.wants_send = true;
            self.queue_sender(slot);
        }
    }

    fn queue_sender(&mut self, slot: u32) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        if conn.wants_send && conn.sending.is_none() && !conn.queued {
            conn.queued = true;
            self.senders.push_back(slot);
        }
    }

    pub(super) fn pop_sender(&mut self) -> Option<(ConnId, Box<Batch>)> {
        while let Some(slot) = self.senders.pop_front() {
            let Some(conn) = self.conns.get_mut(slot) else { continue };
            conn.queued = false;
            let may = matches!(conn.phase, Phase::Open | Phase::Draining);
            if may && conn.wants_send && conn.sending.is_none() {
                let id = conn.id;
                let batch = self.batches.pop();
                return Some((id, batch.unwrap_or_else(|| Batch::new(self.regions.clone()))));
            }
        }
        None
    }

    pub(super) fn start_send(&mut self, id: ConnId, batch: Box<Batch>) {
        let slot = self.conns.slot(id);
        let conn = slot.and_then(|slot| self.conns.get_mut(slot));
        let (Some(slot), Some(conn)) = (slot, conn) else { return self.keep(batch) };
        if batch.left() == 0 {
            conn.wants_send = false;
            self.keep(batch);
            self.drained(slot);
            return;
        }
        conn.sending = Some(batch);
        self.send_rest(slot);
    }

    /// Submits what is left of the batch.
    fn send_rest(&mut self, slot: u32) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        let (Some(fd), Some(batch)) = (&conn.fd, &mut conn.sending) else { return };
        let fd = types::Fd(socket::raw(fd));
        // MSG_WAITALL: the kernel continues a partial send by itself; should it stop, we do.
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let entry = match batch.pieces() {
            Pieces::One(base, len) => opcode::Send::new(fd, base, len).flags(flags).build(),
            Pieces::Many(header) => opcode::SendMsg::new(fd, header).flags(flags as u32).build(),
        };
        self.counters.sends.add(1);
        self.push(entry, Kind::Send, slot);
    }

    pub(super) fn send_done(&mut self, slot: u32, result: i32) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        let Some(mut batch) = conn.sending.take() else { return };
        let sent = u64::try_from(result).unwrap_or(0);
        self.counters.sent_bytes.add(sent);
        batch.advance(sent);
        let going = matches!(conn.phase, Phase::Open | Phase::Draining);
        let again = sent > 0 || result == -libc::EINTR || result == -libc::EAGAIN;
        if going && again && batch.left() > 0 {
            conn.sending = Some(batch);
            self.send_rest(slot);
            return;
        }
        let complete = batch.left() == 0;
        let (id, phase) = (conn.id, conn.phase);
        self.keep(batch);
        match phase {
            Phase::Open | Phase::Draining if complete => {
                self.events.push_back(Event::Transmitted { conn: id });
                self.queue_sender(slot);
            }
            Phase::Open => {
                let error =
                    if result < 0 { SystemError(-result) } else { SystemError::BROKEN_PIPE };
                self.end(slot, CloseCause::Failed(error));
            }
            Phase::Draining | Phase::Discarding => self.end(slot, CloseCause::Requested),
            Phase::Leaving { .. } => self.leave(slot),
            Phase::Connecting | Phase::Ending { .. } | Phase::Over => self.finish(slot),
        }
    }

    fn keep(&mut self, mut batch: Box<Batch>) {
        batch.clear();
        if self.batches.len() < KEPT_BATCHES {
            self.batches.push(batch);
        }
    }

    // ---- ending ----

    pub(super) fn start_close(&mut self, id: ConnId, how: CloseHow) {
        let Some(slot) = self.conns.slot(id) else { return };
        let Some(conn) = self.conns.get_mut(slot) else { return };
        match (conn.phase, how) {
            (Phase::Over | Phase::Ending { .. } | Phase::Leaving { .. }, _) => {}
            (Phase::Connecting, _) => self.end(slot, CloseCause::Requested),
            (Phase::Draining | Phase::Discarding, CloseHow::Graceful) => {}
            (_, CloseHow::Abort) => {
                if let Some(fd) = &conn.fd {
                    socket::set_reset_on_close(fd.as_fd());
                    self.counters.system_calls.add(1);
                }
                self.end(slot, CloseCause::Requested);
            }
            (Phase::Open, CloseHow::Graceful) => {
                conn.phase = Phase::Draining;
                conn.paused = false;
                conn.into = None;
                conn.wants_send = true;
                self.queue_sender(slot);
                self.receive(slot);
            }
        }
    }

    /// The engine has nothing more to send: a connection that drains ends our direction.
    fn drained(&mut self, slot: u32) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        if conn.phase != Phase::Draining {
            return;
        }
        conn.phase = Phase::Discarding;
        let shut = conn.fd.as_ref().map(|fd| socket::shutdown_write(fd.as_fd()));
        self.counters.system_calls.add(1);
        if conn.peer_done || !matches!(shut, Some(Ok(()))) {
            self.end(slot, CloseCause::Requested);
        }
    }

    /// Gives the connection up: cancels what is in flight. `Closed` comes when all is reaped.
    pub(super) fn end(&mut self, slot: u32, cause: CloseCause) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        conn.phase = Phase::Ending { cause };
        conn.into = None;
        self.cancel(slot);
        self.finish(slot);
    }

    fn cancel(&mut self, slot: u32) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        if !conn.busy() || conn.cancelling {
            return;
        }
        let Some(fd) = &conn.fd else { return };
        conn.cancelling = true;
        let fd = socket::raw(fd);
        self.push_cancel(fd, Kind::Cancel, slot);
    }

    pub(super) fn cancel_done(&mut self, slot: u32) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        conn.cancelling = false;
        // A cancel misses an operation that is just changing hands inside the kernel (seen with a
        // connect to a Unix socket whose backlog is full), so it is repeated until all are reaped.
        self.cancel(slot);
        match self.conns.get(slot).map(|conn| conn.phase) {
            Some(Phase::Leaving { .. }) => self.leave(slot),
            _ => self.finish(slot),
        }
    }

    /// Closes a connection that is ending once the kernel has nothing of it any more.
    pub(super) fn finish(&mut self, slot: u32) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        let Phase::Ending { cause } = conn.phase else { return };
        if !conn.reaped() {
            return;
        }
        conn.phase = Phase::Over;
        conn.fd = None;
        let id = conn.id;
        self.counters.system_calls.add(CLOSE);
        self.forget_sender(slot);
        self.events.push_back(Event::Closed { conn: id, cause });
    }

    fn forget_sender(&mut self, slot: u32) {
        self.senders.retain(|waiting| *waiting != slot);
    }

    // ---- leaving for another worker ----

    pub(super) fn early_of(&mut self, id: ConnId) -> Early {
        let conn = self.conns.slot(id).and_then(|slot| self.conns.get_mut(slot));
        let conn = conn.filter(|it| it.phase == Phase::Open)?;
        let early = conn.early.take()?;
        // What the engine had a buffer for.
        conn.into = None;
        Some(early)
    }

    pub(super) fn start_leaving(&mut self, id: ConnId, listener: ListenerId, to: u16) {
        let Some(slot) = self.conns.slot(id) else { return };
        let Some(conn) = self.conns.get_mut(slot) else { return };
        if conn.phase != Phase::Open {
            return;
        }
        conn.phase = Phase::Leaving { listener, to };
        conn.into = None;
        self.cancel(slot);
        self.leave(slot);
    }

    pub(super) fn leave(&mut self, slot: u32) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        let Phase::Leaving { listener, to } = conn.phase else { return };
        if !conn.reaped() {
            return;
        }
        let Some(fd) = conn.fd.take() else { return };
        conn.phase = Phase::Over;
        let id = conn.id;
        let handed = Handed { listener, peer: conn.peer, fd, early: conn.early.take() };
        self.forget_sender(slot);
        self.events.push_back(Event::Leaving { conn: id, handed, to });
    }
}
