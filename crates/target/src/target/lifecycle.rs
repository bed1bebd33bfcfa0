//! Listeners, connections and controllers: how they come and go.

use super::Target;
use crate::aer::Notice;
use crate::conn::{AnswerData, Conn, Role, Stage, from};
use crate::port::{Listener, PortFault};
use crate::verb::TargetEvent;
use alloc::format;
use alloc::vec::Vec;
use anabranch_proto::machine::{
    Buffers, CloseHow, ConnId, Endpoint, Gather, ListenerId, Output, Peer, SocketOptions,
    SystemError, Time,
};
use anabranch_proto::target_queue::{TargetQueue, TargetQueueConfig};
use core::net::IpAddr;
use core::time::Duration;

/// From accept to a successful Connect (reliability C10).
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Few connections are left when it is less than one in so many.
const NEARLY_FULL: usize = 16;
/// From a fault to the end of the connection, when the peer does not end it.
pub(super) const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// Slots of a connection before Connect says how many it wants.
const FIRST_SLOTS: u16 = 1;
/// In-capsule data of admin queues, and before Connect (TCP 3.3: 8192).
pub(super) const ADMIN_CAPSULE_BYTES: u32 = 8192;
/// Socket buffers of a shaped port: small, so that the link holds the queue, not the socket.
const SHAPED_BUFFER_BYTES: u32 = 256 << 10;
/// Text of a peer's fault that is told at most, in bytes.
const FAULT_TEXT: usize = 200;

impl Target {
    pub(super) fn start(&mut self, now: Time) {
        for at in 0..self.ports.len() {
            let shape = self.ports[at].shaper.shape.clone();
            self.ports[at].shaper.reshape(shape, now);
            self.listen(at);
        }
    }

    pub(super) fn listen(&mut self, at: usize) {
        let listener = ListenerId(self.next_listener);
        self.next_listener = self.next_listener.wrapping_add(1);
        let port = &mut self.ports[at];
        port.listener = Listener::Starting(listener);
        let shaped = !port.shaper.shape.is_none();
        let options = SocketOptions {
            buffer_bytes: shaped.then_some(SHAPED_BUFFER_BYTES),
            ..SocketOptions::default()
        };
        let at = port.at.clone();
        self.outputs.push_back(Output::Listen { listener, at, options });
    }

    fn port_of(&self, wanted: ListenerId) -> Option<usize> {
        self.ports.iter().position(|port| {
            matches!(port.listener, Listener::Starting(id) | Listener::Up(id)
                | Listener::Stopping(id) if id == wanted)
        })
    }

    pub(super) fn listening(&mut self, listener: ListenerId, bound: Endpoint) {
        let Some(at) = self.port_of(listener) else { return };
        let port = &mut self.ports[at];
        port.at = bound.clone();
        if port.fault == PortFault::Cut {
            port.listener = Listener::Stopping(listener);
            self.outputs.push_back(Output::Unlisten { listener });
            return;
        }
        port.listener = Listener::Up(listener);
        self.tell(TargetEvent::PortUp { port: number(at), at: bound });
    }

    pub(super) fn unlistened(&mut self, listener: ListenerId, error: Option<SystemError>) {
        let Some(at) = self.port_of(listener) else { return };
        let port = &mut self.ports[at];
        match error {
            Some(error) => {
                port.listener = Listener::Failed(error);
                let event =
                    TargetEvent::PortFailed { port: number(at), at: port.at.clone(), error };
                self.tell(event);
            }
            None => {
                port.listener = Listener::Idle;
                if port.fault != PortFault::Cut {
                    // Restored before the cut was through.
                    self.listen(at);
                }
            }
        }
    }

    pub(super) fn accepted(
        &mut self,
        now: Time,
        listener: ListenerId,
        conn: ConnId,
        peer: Option<Peer>,
    ) {
        let at = self.port_of(listener);
        let is_cut = at.is_none_or(|at| self.ports[at].fault == PortFault::Cut);
        let from = from(peer);
        let full = self.conns.len() >= self.limits.connections as usize;
        let hoards = from.is_some_and(|from| self.hoards_connections(from));
        let (full, hoards) =
            if (full || hoards) && self.let_go() { (false, false) } else { (full, hoards) };
        if full {
            self.drop_oldest_unconnected(|_| true);
        } else if hoards {
            self.drop_oldest_unconnected(|conn| conn.from == from);
        }
        let queue = TargetQueue::new(TargetQueueConfig {
            depth: FIRST_SLOTS,
            in_capsule_bytes: ADMIN_CAPSULE_BYTES,
            max_h2c_data: self.limits.max_h2c_data_bytes,
            allow_hdr_digest: self.limits.hdr_digest,
            allow_data_digest: self.limits.data_digest,
            max_transfer_bytes: self.limits.max_transfer_bytes,
        });
        // Also a connection that is refused has a place until it is closed.
        let place = self.conns.insert(conn, at.unwrap_or(0), peer, queue);
        let port = &mut self.ports[at.unwrap_or(0)];
        port.connections += 1;
        port.shaper.inbound.attach(place, FIRST_SLOTS);
        port.shaper.outbound.attach(place, FIRST_SLOTS);
        let stalled = port.is_stalled();
        if is_cut || full || hoards {
            self.close(place, CloseHow::Abort);
            if stalled {
                self.end_now(place);
            }
            return;
        }
        let deadline = now.after(CONNECT_LIMIT);
        self.check_by(deadline);
        if let Some(conn) = self.conns.get_mut(place) {
            conn.deadline = Some(deadline);
        }
        if stalled {
            self.pause(place);
        }
    }

    /// Whether an address has had its part of the connections. Those that are queues may stay for
    /// ever, so the last places are not for whoever has most: a host elsewhere finds some when it
    /// comes (back).
    fn hoards_connections(&self, from: IpAddr) -> bool {
        let all = self.limits.connections as usize;
        let left = all.saturating_sub(self.conns.len());
        if left >= all / NEARLY_FULL {
            return false;
        }
        self.conns.iter().filter(|(_, conn)| conn.from == Some(from)).count() > left
    }

    /// Makes room for new connections: hosts that say nothing go first.
    fn drop_oldest_unconnected(&mut self, whose: impl Fn(&Conn) -> bool) {
        let oldest = self
            .conns
            .iter()
            .filter(|(_, conn)| conn.role == Role::New && !conn.closing && whose(conn))
            .min_by_key(|(_, conn)| conn.deadline)
            .map(|(place, _)| place);
        if let Some(place) = oldest {
            self.close(place, CloseHow::Abort);
        }
    }

    /// Ends what only stalls keep: their silence is not worth the connections of other ports. Tells
    /// whether there was any.
    fn let_go(&mut self) -> bool {
        let kept = self.conns.iter().filter(|(_, conn)| conn.ends_later);
        let kept: Vec<u32> = kept.map(|(place, _)| place).collect();
        for &place in &kept {
            self.end_now(place);
        }
        !kept.is_empty()
    }

    /// Ends a connection that is over, whatever its port does.
    pub(super) fn end_now(&mut self, place: u32) {
        let Some(conn) = self.conns.get_mut(place) else { return };
        conn.ends_later = false;
        self.outputs.push_back(Output::Close { conn: conn.id, how: CloseHow::Abort });
    }

    /// Stops reading, for a stall; also where it was not read anyhow: now not even its end shows.
    pub(super) fn pause(&mut self, place: u32) {
        if let Some(conn) = self.conns.get_mut(place)
            && !conn.closing
            && !core::mem::replace(&mut conn.paused, true)
        {
            self.outputs.push_back(Output::Pause { conn: conn.id, watch: false });
        }
    }

    /// A stall is over.
    pub(super) fn resume(&mut self, place: u32) {
        if let Some(conn) = self.conns.get_mut(place)
            && !conn.closing
            && core::mem::replace(&mut conn.paused, false)
        {
            let (conn, choked) = (conn.id, conn.choked);
            let pause = Output::Pause { conn, watch: true };
            self.outputs.push_back(if choked { pause } else { Output::Resume { conn } });
        }
    }

    /// The place of a connection whose bytes are still wanted.
    pub(super) fn hears(&self, conn: ConnId) -> Option<u32> {
        let place = self.conns.find(conn)?;
        self.conns.get(place).is_some_and(|conn| !conn.closing).then_some(place)
    }

    /// A peer that broke the protocol gets what its queue has to say, and then the end.
    pub(super) fn end_if_at_fault(&mut self, now: Time, place: u32) {
        let Some(conn) = self.conns.get_mut(place) else { return };
        if conn.closing {
            return;
        }
        let Some(fault) = conn.queue.fault() else { return };
        let mut text = format!("{fault}");
        let cut = (0..=FAULT_TEXT.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(cut.unwrap_or(0));
        let (port, peer) = (number(conn.port), conn.peer);
        let event = TargetEvent::ProtocolFault { port, peer, fault: text };
        self.tell(event);
        self.announce(place);
        self.close(place, CloseHow::Graceful);
        let deadline = now.after(CLOSE_LIMIT);
        if let Some(conn) = self.conns.get_mut(place) {
            conn.deadline = Some(deadline);
        }
        self.check_by(deadline);
        self.forget(place, "a peer broke the protocol");
    }

    /// Ends a connection. What it has queued and not executed is dropped. On a stalled port
    /// nothing is sent, not even a reset, until the stall ends or connections run out.
    pub(super) fn close(&mut self, place: u32, how: CloseHow) {
        let Some(conn) = self.conns.get_mut(place) else { return };
        if core::mem::replace(&mut conn.closing, true) {
            return;
        }
        conn.deadline = None;
        let port = &mut self.ports[conn.port];
        port.shaper.inbound.detach(place);
        port.shaper.outbound.detach(place);
        if port.is_stalled() {
            conn.ends_later = true;
        } else {
            self.outputs.push_back(Output::Close { conn: conn.id, how });
        }
    }

    /// A connection is gone or going: what it meant to its controller ends.
    pub(super) fn forget(&mut self, place: u32, reason: &'static str) {
        let Some(conn) = self.conns.get_mut(place) else { return };
        match core::mem::replace(&mut conn.role, Role::New) {
            Role::New => {}
            Role::Admin(at) => self.end_controller(at, reason),
            Role::Io(at) => {
                if let Some(controller) = &mut self.controllers[at] {
                    controller.io_queues.retain(|(_, conn)| *conn != place);
                }
            }
        }
    }

    /// Ends an association: no command of it is executed from now on.
    pub(super) fn end_controller(&mut self, at: usize, reason: &'static str) {
        let Some(controller) = self.controllers[at].take() else { return };
        self.remember(&controller);
        self.tell(TargetEvent::ControllerDown { cntlid: controller.cntlid, reason });
        let conns: Vec<u32> = controller.io_queues.iter().map(|(_, conn)| *conn).collect();
        for place in conns.into_iter().chain([controller.admin]) {
            let Some(conn) = self.conns.get_mut(place) else { continue };
            conn.role = Role::New;
            if !conn.closing {
                self.close(place, CloseHow::Abort);
            }
        }
    }

    pub(super) fn transmit(
        &mut self,
        conn: ConnId,
        batch: &mut dyn Gather,
        bufs: &mut dyn Buffers,
    ) {
        let Some(place) = self.conns.find(conn) else { return };
        let Some(conn) = self.conns.get_mut(place) else { return };
        conn.announced = false;
        if !self.ports[conn.port].is_stalled() {
            conn.queue.poll_transmit(batch, bufs);
        }
    }

    pub(super) fn transmitted(&mut self, now: Time, conn: ConnId, bufs: &mut dyn Buffers) {
        let Some(place) = self.conns.find(conn) else { return };
        let Some(conn) = self.conns.get_mut(place) else { return };
        conn.queue.transmitted();
        while let Some(buf) = conn.queue.poll_released() {
            bufs.free(buf);
        }
        if !conn.closing {
            self.take_events(now, place, bufs);
        }
        self.announce(place);
    }

    /// The connection is over and nobody outside names its buffers: they come back.
    pub(super) fn closed(&mut self, conn: ConnId, bufs: &mut dyn Buffers) {
        let Some(place) = self.conns.find(conn) else { return };
        if let Some(conn) = self.conns.get_mut(place) {
            conn.closing = true;
        }
        self.forget(place, "its host closed the admin connection");
        let Some(mut conn) = self.conns.remove(place) else { return };
        let port = &mut self.ports[conn.port];
        port.connections -= 1;
        port.shaper.inbound.detach(place);
        port.shaper.outbound.detach(place);
        for entry in conn.entries.drain(..).flatten() {
            if let Some(buf) = entry.data {
                bufs.free(buf);
            }
            if let Stage::Outbound(answer) = entry.stage
                && let AnswerData::Buffer(buf) = answer.data
            {
                bufs.free(buf);
            }
        }
        while let Some(drained) = conn.queue.drain() {
            if let Some(buf) = drained.buf {
                bufs.free(buf);
            }
        }
    }

    /// Tells the controllers that `wanted` picks, as far as they want to hear it.
    pub(super) fn notify(
        &mut self,
        now: Time,
        notice: Notice,
        wanted: impl Fn(&crate::controller::Controller) -> bool,
        bufs: &mut dyn Buffers,
    ) {
        for at in 0..self.controllers.len() {
            let Some(controller) = self.controllers[at].as_mut().filter(|c| wanted(c)) else {
                continue;
            };
            controller.events.raise(notice);
            self.deliver_events(now, at, bufs);
        }
    }
}

/// A port as verbs and events name it.
pub(super) fn number(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}
