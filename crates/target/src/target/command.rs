//! A command's way through: arrival, inbound link, execution, outbound link, answer.

use super::data::GONE;
use super::lifecycle::number;
use super::{Target, Ticket};
use crate::conn::{Answer, AnswerData, Entry, Role, SlotId, Stage};
use crate::service::Work;
use crate::verb::{QueueOf, TargetEvent};
use alloc::boxed::Box;
use alloc::vec::Vec;
use anabranch_proto::machine::{BufRef, Buffers, Output, Time};
use anabranch_proto::nvme::opcode::Direction;
use anabranch_proto::nvme::{SglKind, Status};
use anabranch_proto::target_queue::TargetEvent as QueueEvent;
use core::time::Duration;

/// PDU headers as the links count them: a command capsule, a response capsule, a data PDU.
const COMMAND_BYTES: u32 = 72;
const RESPONSE_BYTES: u32 = 24;
const DATA_HEADER_BYTES: u32 = 24;

/// So many bytes of a connection's data are sent before more of its commands are looked at. They
/// leave while the processor's caches have them, and the next commands find the same buffers there;
/// and what a host asks for and does not read takes no more memory than this and one transfer.
const SENT_FIRST: u64 = 256 << 10;

/// What execution comes to.
pub(super) enum Step {
    Done(Answer),
    /// It was answered.
    Answered,
    /// No buffer is free.
    Wait,
    /// So many bytes must come from the host first.
    Transfer(u32),
    /// It takes its time at a server first.
    Serve(Work),
    /// An asynchronous event request was kept.
    Parked,
    /// A Disconnect is to be answered when all before it is.
    Last,
    /// A file operation was started; it owns the command's data.
    Disk,
    /// As `Disk`, but the command's data stays with it.
    DiskKeepsData,
}

impl Step {
    pub(super) fn refuse(status: Status) -> Step {
        Step::Done(Answer::refuse(status))
    }
}

impl Target {
    /// Takes what a connection's queue has to tell after bytes came.
    pub(super) fn received(&mut self, now: Time, place: u32, bufs: &mut dyn Buffers) {
        self.tell_damage(place);
        self.take_events(now, place, bufs);
        let Some(conn) = self.conns.get_mut(place) else { return };
        if let Some(buf) = conn.queue.receive_hint() {
            self.outputs.push_back(Output::ReceiveInto { conn: conn.id, buf });
        }
        self.end_if_at_fault(now, place);
        self.choke(now, place, bufs);
        self.announce(place);
    }

    /// Counts and tells what was damaged on its way. The host tries that again and may notice
    /// nothing: who looks after the network hears of it here.
    fn tell_damage(&mut self, place: u32) {
        let Some(conn) = self.conns.get_mut(place) else { return };
        let commands = conn.queue.take_damaged();
        if commands == 0 {
            return;
        }
        let (port, peer) = (conn.port, conn.peer);
        self.ports[port].damaged_commands += u64::from(commands);
        let controller = conn.controller().and_then(|at| self.controllers[at].as_mut());
        let queue = controller.map(|controller| {
            controller.damaged_commands += u64::from(commands);
            let (cntlid, host) = (controller.cntlid, controller.host.clone());
            let io = controller.io_queues.iter().find(|(_, conn)| *conn == place);
            Box::new(QueueOf { cntlid, qid: io.map_or(0, |(qid, _)| *qid), host })
        });
        self.tell(TargetEvent::DataDamaged { port: number(port), peer, queue, commands });
    }

    /// Begins what came, unless the connection has enough to send: [`SENT_FIRST`]. What is more
    /// than a turn waits for the next.
    pub(super) fn take_events(&mut self, now: Time, place: u32, bufs: &mut dyn Buffers) {
        let end = self.turns.turn();
        while let Some(event) = self.next_event(now, place, end) {
            self.turns.one();
            match event {
                QueueEvent::Command { slot } => {
                    let id = slot.index();
                    let Some(conn) = self.conns.get_mut(place) else { return };
                    let data = conn.queue.take_data(slot);
                    if conn.entries.len() <= usize::from(id) {
                        conn.entries.resize_with(usize::from(id) + 1, || None);
                    }
                    let stage = Stage::Inbound;
                    let gone = conn.queue.is_marked(slot).then_some(GONE);
                    let verdict = conn.last.map(|_| Status::ABORTED_SQ_DELETION).or(gone);
                    conn.entries[usize::from(id)] =
                        Some(Entry { slot, stage, data, verdict, served: false });
                    self.arrived(now, place, id, bufs);
                }
                QueueEvent::DataReady { slot } => {
                    self.data_came(now, place, slot.index(), None, bufs);
                }
                QueueEvent::DataDigestError { slot } => {
                    let verdict = Some(Status::TRANSIENT_TRANSPORT_ERROR);
                    self.data_came(now, place, slot.index(), verdict, bufs);
                }
            }
        }
    }

    fn next_event(&mut self, now: Time, place: u32, end: u64) -> Option<QueueEvent> {
        let conn = self.conns.get_mut(place)?;
        if conn.awaits_turn || conn.queue.data_unsent() >= SENT_FIRST {
            return None;
        }
        if self.turns.is_over(end) && conn.queue.has_event() {
            self.line_up(now, place);
            return None;
        }
        conn.queue.poll_event()
    }

    /// A command is here: it goes through the inbound link with its data.
    fn arrived(&mut self, now: Time, place: u32, slot: SlotId, bufs: &mut dyn Buffers) {
        let Some(conn) = self.conns.get_mut(place) else { return };
        let (port, role, controller) = (conn.port, conn.role, conn.controller());
        let Some(sqe) = conn.sqe(slot) else { return };
        // What a descriptor claims beyond that is refused, and never travels.
        let moved = sqe.sgl().length().min(self.limits.max_transfer_bytes);
        let bytes = match sqe.direction() {
            Direction::HostToController => COMMAND_BYTES.saturating_add(moved),
            _ => COMMAND_BYTES,
        };
        let stalled = self.ports[port].is_stalled();
        let is_io = matches!(role, Role::Io(_)) && !sqe.is_fabrics();
        if let Some(controller) = controller.and_then(|at| self.controllers[at].as_mut()) {
            controller.ios += u64::from(is_io);
            if !stalled {
                controller.last_seen = now;
            }
        }
        let port = &mut self.ports[port];
        port.commands += 1;
        port.bytes_in += u64::from(bytes);
        let mut extra = port.shaper.shape.large_delay(moved.into());
        if let (Some(brownout), Role::Io(_)) = (port.brownout, role)
            && self.rng.below(100) < u64::from(brownout.percent)
        {
            extra = extra.saturating_add(brownout.delay);
        }
        if !stalled && extra.is_zero() && port.shaper.inbound.is_transparent() {
            self.run(now, place, slot, bufs);
        } else {
            port.shaper.inbound.push(now, place, slot, bytes.into(), extra);
            port.touched = true;
        }
    }

    /// Data that was asked for is complete, or could not be read right.
    fn data_came(
        &mut self,
        now: Time,
        place: u32,
        slot: SlotId,
        verdict: Option<Status>,
        bufs: &mut dyn Buffers,
    ) {
        let Some(conn) = self.conns.get_mut(place) else { return };
        let (port, generation) = (conn.port, conn.generation);
        let Some(entry) = conn.entry(slot) else { return };
        if let Stage::Transfer(buf) = entry.stage {
            entry.data = Some(buf);
        }
        entry.verdict = entry.verdict.or(verdict);
        if matches!(entry.stage, Stage::Inbound | Stage::Waiting) {
            // In-capsule data that failed its digest; the command is still on its way.
            return;
        }
        if self.ports[port].is_stalled() {
            entry.stage = Stage::Held;
            self.ports[port].held.push((place, generation, slot));
        } else {
            self.run(now, place, slot, bufs);
        }
    }

    /// Lets the links that were given something deliver what is due.
    pub(super) fn serve_touched(&mut self, now: Time, bufs: &mut dyn Buffers) {
        for at in 0..self.ports.len() {
            if core::mem::take(&mut self.ports[at].touched) {
                self.serve_port(now, at, bufs);
            }
        }
    }

    /// Lets a port's links deliver what is due; after a round the rest is due still.
    pub(super) fn serve_port(&mut self, now: Time, at: usize, bufs: &mut dyn Buffers) {
        if self.ports[at].is_stalled() {
            return;
        }
        let end = self.turns.round();
        while !self.turns.is_over(end) {
            self.turns.one();
            let shaper = &mut self.ports[at].shaper;
            shaper.inbound.serve(now, &mut self.rng);
            if let Some((place, slot)) = shaper.inbound.arrived(now) {
                self.run(now, place, slot, bufs);
                continue;
            }
            shaper.outbound.serve(now, &mut self.rng);
            let Some((place, slot)) = shaper.outbound.arrived(now) else { return };
            let stage = self.conns.get_mut(place).and_then(|c| c.entry(slot)).map(|e| e.stage);
            if let Some(Stage::Outbound(answer)) = stage {
                self.finish(now, place, slot, &answer, bufs);
            }
        }
    }

    /// Executes a command as far as it goes now.
    pub(super) fn run(&mut self, now: Time, place: u32, slot: SlotId, bufs: &mut dyn Buffers) {
        let Some(conn) = self.conns.get_mut(place) else { return };
        if conn.closing {
            return;
        }
        let generation = conn.generation;
        match self.step(now, place, slot, bufs) {
            Step::Done(answer) => self.answer(now, place, slot, &answer, bufs),
            Step::Answered => {}
            Step::Wait => self.wait(now, Ticket { place, generation, slot }, Stage::Waiting),
            Step::Transfer(len) => match self.payload(place, len, bufs) {
                None => self.wait(now, Ticket { place, generation, slot }, Stage::Waiting),
                Some(buf) => {
                    let Some(conn) = self.conns.get_mut(place) else { return };
                    let Some(entry) = conn.entry(slot) else { return };
                    entry.stage = Stage::Transfer(buf);
                    let slot = entry.slot;
                    conn.queue.request_data(slot, buf);
                    self.announce(place);
                }
            },
            Step::Serve(work) => self.serve(now, Ticket { place, generation, slot }, work),
            Step::Parked => self.set_stage(place, slot, Stage::Parked),
            Step::Last => self.set_stage(place, slot, Stage::Last),
            Step::Disk => {
                if let Some(entry) = self.conns.get_mut(place).and_then(|c| c.entry(slot)) {
                    entry.stage = Stage::Disk;
                    entry.data = None;
                }
            }
            Step::DiskKeepsData => self.set_stage(place, slot, Stage::Disk),
        }
        if let Some(Role::Admin(controller)) = self.conns.get(place).map(|conn| conn.role) {
            self.deliver_events(now, controller, bufs);
        }
    }

    fn set_stage(&mut self, place: u32, slot: SlotId, stage: Stage) {
        if let Some(entry) = self.conns.get_mut(place).and_then(|c| c.entry(slot)) {
            entry.stage = stage;
        }
    }

    fn step(&mut self, now: Time, place: u32, slot: SlotId, bufs: &mut dyn Buffers) -> Step {
        let Some(conn) = self.conns.get_mut(place) else {
            return Step::refuse(Status::INTERNAL_ERROR);
        };
        let role = conn.role;
        let Some(entry) = conn.entry(slot) else { return Step::refuse(Status::INTERNAL_ERROR) };
        if let Some(status) = entry.verdict {
            return Step::Done(Answer::status(status));
        }
        if conn.sqe(slot).is_some_and(|sqe| sqe.fuse() != 0) {
            return Step::refuse(Status::INVALID_FIELD);
        }
        match role {
            Role::New => self.connect(now, place, slot, bufs),
            Role::Admin(controller) => self.admin(now, place, slot, controller, bufs),
            Role::Io(controller) => self.io(now, place, slot, controller, bufs),
        }
    }

    /// A command's data from the host, when it has at least `need` bytes of it.
    ///
    /// `Err` says what to do instead.
    pub(super) fn host_data(
        &mut self,
        place: u32,
        slot: SlotId,
        need: u32,
    ) -> Result<BufRef, Step> {
        let internal = || Step::refuse(Status::INTERNAL_ERROR);
        let conn = self.conns.get_mut(place).ok_or_else(internal)?;
        let entry = conn.entry(slot).ok_or_else(internal)?;
        if let Some(buf) = entry.data {
            if buf.len() < need {
                return Err(Step::refuse(Status::DATA_SGL_LENGTH_INVALID));
            }
            return Ok(buf.slice(0, need));
        }
        let sgl = conn.sqe(slot).ok_or_else(internal)?.sgl();
        if sgl.kind() != SglKind::Transport {
            // In-capsule, but there was no data in the capsule.
            return Err(Step::refuse(Status::DATA_SGL_LENGTH_INVALID));
        }
        if sgl.length() < need {
            return Err(Step::refuse(Status::DATA_SGL_LENGTH_INVALID));
        }
        Err(Step::Transfer(need))
    }

    /// What a stall has caught goes on.
    pub(super) fn release_held(&mut self, now: Time, at: usize, bufs: &mut dyn Buffers) {
        let held: Vec<_> = core::mem::take(&mut self.ports[at].held);
        for (place, generation, slot) in held {
            let conn = self.conns.get_mut(place).filter(|c| c.generation == generation);
            match conn.and_then(|c| c.entry(slot)).map(|entry| entry.stage) {
                Some(Stage::Held | Stage::Waiting) => self.run(now, place, slot, bufs),
                Some(Stage::Outbound(answer)) => self.finish(now, place, slot, &answer, bufs),
                _ => {}
            }
        }
    }

    /// A command is over: its answer goes through the outbound link.
    pub(super) fn answer(
        &mut self,
        now: Time,
        place: u32,
        slot: SlotId,
        answer: &Answer,
        bufs: &mut dyn Buffers,
    ) {
        let Some(conn) = self.conns.get_mut(place) else { return free_answer(answer, bufs) };
        let (at, closing) = (conn.port, conn.closing);
        let Some(entry) = conn.entry(slot) else { return free_answer(answer, bufs) };
        if let Some(buf) = entry.data.take() {
            bufs.free(buf);
        }
        if closing {
            conn.entries[usize::from(slot)] = None;
            return free_answer(answer, bufs);
        }
        let mut bytes = RESPONSE_BYTES;
        if answer.bytes() > 0 {
            bytes = bytes.saturating_add(DATA_HEADER_BYTES).saturating_add(answer.bytes());
        }
        let port = &mut self.ports[at];
        port.bytes_out += u64::from(bytes);
        if !port.is_stalled() && port.shaper.outbound.is_transparent() {
            self.finish(now, place, slot, answer, bufs);
        } else {
            entry.stage = Stage::Outbound(*answer);
            port.shaper.outbound.push(now, place, slot, bytes.into(), Duration::ZERO);
            port.touched = true;
        }
    }
}

impl Target {
    /// An answer leaves: its data and its completion go to the connection's queue.
    pub(super) fn finish(
        &mut self,
        now: Time,
        place: u32,
        slot: SlotId,
        answer: &Answer,
        bufs: &mut dyn Buffers,
    ) {
        let Some(conn) = self.conns.get(place) else { return free_answer(answer, bufs) };
        let generation = conn.generation;
        let mut status = answer.status;
        let data = match answer.data {
            AnswerData::None => None,
            AnswerData::Buffer(buf) => Some(buf),
            AnswerData::Memory { len, .. } => {
                let Some(buf) = self.payload(place, len, bufs) else {
                    let ticket = Ticket { place, generation, slot };
                    return self.wait(now, ticket, Stage::Outbound(*answer));
                };
                if self.read_memory(place, answer.data, bufs.bytes_mut(buf)) {
                    Some(buf)
                } else {
                    bufs.free(buf);
                    status = Status::INVALID_NAMESPACE.with_dnr();
                    None
                }
            }
        };
        let Some(conn) = self.conns.get_mut(place) else { return };
        let Some(entry) = conn.entries.get_mut(usize::from(slot)).and_then(Option::take) else {
            return;
        };
        if let Some(buf) = data {
            conn.queue.send_data(entry.slot, buf);
        }
        conn.queue.complete(entry.slot, status, answer.result);
        let last = conn.last_of_all();
        // A Disconnect that is through has deleted its queue: the host may connect it anew before
        // this connection ends.
        let deleted = conn.last == Some(slot) && status.is_success();
        self.announce(place);
        if deleted {
            self.forget(place, "its host disconnected the queue");
        }
        if let Some(last) = last {
            self.answer(now, place, last, &Answer::status(Status::SUCCESS), bufs);
        }
    }

    /// Asks for a send when there is something to send and none was asked for.
    pub(super) fn announce(&mut self, place: u32) {
        let Some(conn) = self.conns.get_mut(place) else { return };
        if !conn.announced && conn.queue.has_transmit() && !self.ports[conn.port].is_stalled() {
            conn.announced = true;
            self.outputs.push_back(Output::Transmit { conn: conn.id });
        }
    }
}

fn free_answer(answer: &Answer, bufs: &mut dyn Buffers) {
    if let AnswerData::Buffer(buf) = answer.data {
        bufs.free(buf);
    }
}
