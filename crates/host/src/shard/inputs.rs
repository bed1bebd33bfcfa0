//! Inputs: connections, mail, timers.

use super::Shard;
use super::command::{Carried, Command, Origin, Place};
use super::head::entry;
use super::picture::{has_lost_its_path, is_too_late, open_slot};
use super::queue::{Phase, Progress, Queue};
use super::quiesce::is_quiesced;
use crate::mail::{CommandOutcome, Mail, OpenQueue, PeerMail, ToControl, ToShard};
use crate::table::Key;
use crate::topology::{Association, ControllerId, HeadId};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use anabranch_proto::host_queue::{Attempt, HostData};
use anabranch_proto::machine::{Buffers, CloseCause, CloseHow, ConnId, Output, Time, WorkerId};
use core::cmp::Reverse;
use core::time::Duration;

/// How long a peer gets to take our termination request and close before we abort: reads of this
/// path move only after that.
const TERMINATION_GUARD: Duration = Duration::from_millis(50);
/// Until a flush is given again to a worker that did not take it.
const CARRIER_PAUSE: Duration = Duration::from_millis(1);

impl Shard {
    pub(crate) fn connected(&mut self, now: Time, conn: ConnId) {
        if let Some(queue) = self.queue_of(conn)
            && queue.phase == Phase::Opening
        {
            queue.is_connected(now);
            let deadline = queue.deadline;
            self.wake_at(deadline);
        }
    }

    pub(crate) fn received(
        &mut self,
        now: Time,
        conn: ConnId,
        bytes: Received<'_>,
        bufs: &mut dyn Buffers,
    ) {
        let Some(queue) = self.queue_of(conn) else { return };
        if queue.phase == Phase::Closing {
            return;
        }
        match bytes {
            Received::Bytes(bytes) => queue.link.received(bytes, bufs),
            Received::Into(len) => queue.link.received_into(len, bufs),
        }
        let (controller, hint) = (queue.open.controller, queue.link.receive_hint());
        if let Some(entry) = entry(&self.controllers, controller) {
            entry.view.load.hear(now);
        }
        if let Some(buf) = hint {
            self.outputs.push_back(Output::ReceiveInto { conn, buf });
        }
        self.after_link(now, conn, bufs);
    }

    pub(crate) fn transmitted(&mut self, now: Time, conn: ConnId, bufs: &mut dyn Buffers) {
        let queue = self.queues.get_mut(conn.index() as usize);
        let Some(queue) = queue.and_then(Option::as_deref_mut) else { return };
        queue.transmitted(&mut self.connect_data, bufs);
        self.after_link(now, conn, bufs);
    }

    /// Takes what the queue pair has brought forth: progress of its own life, completions.
    fn after_link(&mut self, now: Time, conn: ConnId, bufs: &mut dyn Buffers) {
        let slot = conn.index() as u16;
        let queue = self.queues.get_mut(usize::from(slot));
        let Some(queue) = queue.and_then(Option::as_deref_mut) else { return };
        if queue.phase == Phase::Closing {
            return;
        }
        let progress = queue.progress(&mut self.connect_data, bufs);
        self.act_on(slot, progress, now, bufs);
        while let Some(queue) = self.queues[usize::from(slot)].as_mut() {
            if queue.phase == Phase::Closing {
                return;
            }
            match queue.poll_completion(&mut self.connect_data, bufs) {
                None => return,
                Some(Err(progress)) => self.act_on(slot, progress, now, bufs),
                Some(Ok((key, done))) => {
                    if self.commands.get(key).is_some() {
                        queue.land(&mut self.commands, key);
                        self.answered(key, (done.status, done.flaw), now, bufs);
                    }
                }
            }
        }
    }

    /// Queue pairs that found no room for their Connect data try again: some may have come back.
    pub(super) fn connect_waiting(&mut self, now: Time, bufs: &mut dyn Buffers) {
        self.connect_data.someone_waits = false;
        for slot in 0..self.queues.len() {
            if let Some(queue) = self.queues[slot].as_mut()
                && queue.phase == Phase::Opening
            {
                let progress = queue.progress(&mut self.connect_data, bufs);
                self.act_on(slot as u16, progress, now, bufs);
            }
        }
    }

    fn act_on(&mut self, slot: u16, progress: Progress, now: Time, bufs: &mut dyn Buffers) {
        match progress {
            Progress::Nothing => {}
            Progress::Opened => {
                let Some(queue) = self.queues[usize::from(slot)].as_ref() else { return };
                let (controller, association) = queue.of();
                let qid = queue.open.qid;
                self.rebind_all(now, bufs);
                self.tell_control(ToControl::QueueOpen { controller, association, qid });
            }
            Progress::GiveUp(why) => self.give_up(slot, why, now, bufs),
        }
    }

    /// Aborts a queue pair's connection. Its commands move when `Closed` has come; those that have
    /// never been handed to it move at once.
    fn give_up(&mut self, slot: u16, why: String, now: Time, bufs: &mut dyn Buffers) {
        let Some(queue) = self.queues[usize::from(slot)].as_mut() else { return };
        if queue.phase == Phase::Closing {
            return;
        }
        queue.phase = Phase::Closing;
        queue.failure = Some(why.clone());
        // A fault has its termination request to send first.
        let how = if queue.link.fault().is_some() {
            let guard = now.after(TERMINATION_GUARD);
            queue.close_guard = Some(guard);
            self.wake = Some(self.wake.map_or(guard, |wake| wake.min(guard)));
            CloseHow::Graceful
        } else {
            CloseHow::Abort
        };
        self.outputs.push_back(Output::Close { conn: queue.conn, how });
        self.out_of_service(slot, why, now, bufs);
    }

    /// Takes a queue pair out of service: no path uses it any more, control knows, and commands
    /// that it has never been given go elsewhere.
    fn out_of_service(&mut self, slot: u16, why: String, now: Time, bufs: &mut dyn Buffers) {
        let Some(queue) = self.queues[usize::from(slot)].as_mut() else { return };
        let ((controller, association), qid) = (queue.of(), queue.open.qid);
        if queue.was_open && !queue.stop_asked {
            self.tell_control(ToControl::QueueLost { controller, association, qid, why });
        }
        self.rebind_all(now, bufs);
        if let Some(queue) = self.queues[usize::from(slot)].as_mut() {
            queue.scatter(&mut self.commands);
        }
        while let Some(queue) = self.queues[usize::from(slot)].as_mut()
            && let Some(key) = queue
                .waiting
                .pop_front(&mut self.commands)
                .or_else(|| queue.set_aside.pop_front(&mut self.commands))
        {
            self.lost(key, Attempt::NeverSent, now, bufs);
        }
    }

    pub(crate) fn closed(
        &mut self,
        now: Time,
        conn: ConnId,
        cause: CloseCause,
        bufs: &mut dyn Buffers,
    ) {
        let slot = conn.index() as u16;
        let Some(queue) = self.queue_of(conn) else { return };
        if queue.phase != Phase::Closing {
            let why = queue.close_reason(cause);
            queue.failure = Some(why.clone());
            queue.phase = Phase::Closing;
            let controller = queue.open.controller;
            if let Some(entry) = entry(&self.controllers, controller) {
                // Whoever ends a connection is not silent.
                entry.view.load.hear(now);
            }
            self.out_of_service(slot, why, now, bufs);
        }
        let Some(mut queue) = self.queues[usize::from(slot)].take() else { return };
        queue.free_connect_data(&mut self.connect_data, bufs);
        let (controller, association) = queue.of();
        self.drain_queue(&mut queue, now, bufs);
        if queue.stop_asked {
            if self.slots_of(queue.of()).is_empty() {
                self.tell_control(ToControl::QueueStopped { controller, association });
            }
        } else if !queue.was_open {
            let why = queue.failure.take().unwrap_or_default();
            self.tell_control(ToControl::QueueFailed {
                controller,
                association,
                qid: queue.open.qid,
                why,
            });
        }
    }

    /// The connection is closed: its commands go elsewhere, in the order in which they were sent.
    fn drain_queue(&mut self, queue: &mut Queue, now: Time, bufs: &mut dyn Buffers) {
        let mut unsent = alloc::vec::Vec::new();
        while let Some(abandoned) = queue.link.drain() {
            if abandoned.attempt == Attempt::NeverSent {
                unsent.push(Key::from_token(abandoned.user));
            }
        }
        // Answers that were held back for their payload are facts all the same.
        while let Some(done) = queue.poll_completion(&mut self.connect_data, bufs) {
            if let Ok((key, done)) = done
                && self.commands.get(key).is_some()
            {
                queue.land(&mut self.commands, key);
                self.answered(key, (done.status, done.flaw), now, bufs);
            }
        }
        unsent.sort_unstable();
        while let Some(key) = queue.flying.pop_front(&mut self.commands) {
            let attempt = if unsent.binary_search(&key).is_ok() {
                Attempt::NeverSent
            } else {
                Attempt::Uncertain
            };
            self.lost(key, attempt, now, bufs);
        }
    }

    pub(crate) fn mail(
        &mut self,
        now: Time,
        from: WorkerId,
        mail: ShardMail,
        bufs: &mut dyn Buffers,
    ) {
        match mail {
            ShardMail::Control(ToShard::Topology(topology)) => self.topology(topology, now, bufs),
            ShardMail::Control(ToShard::OpenQueue(open)) => self.open_queue(open, now),
            ShardMail::Control(ToShard::StopQueue { controller, association }) => {
                self.stop_queue(controller, association, now, bufs);
            }
            ShardMail::Control(ToShard::ReportStats { id, of, detail }) => {
                let stats = Box::new(self.stats_report(&of, detail, now));
                self.tell_control(ToControl::Stats { id, stats });
            }
            ShardMail::Control(ToShard::Drain) => self.draining = true,
            ShardMail::Peer(PeerMail::Carry {
                controller,
                association,
                head,
                epoch,
                sqe,
                data,
                token,
            }) => {
                let carried = Carried { worker: from, token, association, epoch, sqe, data };
                self.carry(controller, head, carried, now);
            }
            ShardMail::Peer(PeerMail::Recall { tokens }) => self.give_back(from, &tokens),
            ShardMail::Peer(PeerMail::Done { token, outcome }) => {
                self.carried(Key::from_token(token), outcome, now, bufs);
            }
        }
    }

    /// What became of a command that another worker carried.
    fn carried(&mut self, key: Key, outcome: CommandOutcome, now: Time, bufs: &mut dyn Buffers) {
        let Some(command) = self.commands.get(key) else { return };
        if command.place != Place::Carried {
            return;
        }
        let (controller, class) = (command.controller, command.class());
        match outcome {
            CommandOutcome::Answered { status, flaw } => {
                self.answered(key, (status, flaw), now, bufs);
            }
            CommandOutcome::Lost { attempt, gone } => {
                // The carrier knows before the next picture does; until then nothing goes there.
                let entry = self.controllers.get_mut(controller.0);
                if let (Some(entry), Some(_)) = (entry, gone) {
                    let lost = entry.carrier_lost.of_mut(class);
                    if core::mem::replace(lost, gone) != gone {
                        self.rebind_all(now, bufs);
                    }
                }
                let bounced = gone.is_none() && attempt == Attempt::NeverSent;
                if bounced && self.commands[key].is_owed_flush() {
                    // Its carrier knows the path no more, or not yet. Nobody else can do it.
                    self.leave_path(key);
                    return self.delay(key, now.after(CARRIER_PAUSE), None, now, bufs);
                }
                self.lost(key, attempt, now, bufs);
            }
            CommandOutcome::TooLate { association } => {
                if let Some(entry) = self.controllers.get_mut(controller.0)
                    && entry.takes_no_more.replace(association) != Some(association)
                {
                    self.rebind_all(now, bufs);
                }
                self.lost(key, Attempt::NeverSent, now, bufs);
            }
        }
    }

    fn open_queue(&mut self, open: Box<OpenQueue>, now: Time) {
        let slot = match self.queues.iter().position(Option::is_none) {
            Some(slot) => slot,
            None => {
                self.queues.push(None);
                self.queues.len() - 1
            }
        };
        let conn = ConnId::opened(slot as u32);
        self.outputs.push_back(Output::Connect {
            conn,
            to: open.to.clone(),
            options: open.socket.clone(),
        });
        let queue = Queue::new(open, conn, now);
        self.wake_at(queue.deadline);
        self.queues[slot] = Some(Box::new(queue));
    }

    fn stop_queue(
        &mut self,
        controller: ControllerId,
        association: Association,
        now: Time,
        bufs: &mut dyn Buffers,
    ) {
        let slots = self.slots_of((controller, association));
        if slots.is_empty() {
            return self.tell_control(ToControl::QueueStopped { controller, association });
        }
        for &slot in &slots {
            if let Some(queue) = self.queues[slot].as_mut() {
                queue.stop_asked = true;
            }
        }
        for slot in slots {
            if self.queues[slot].as_ref().is_some_and(|queue| queue.phase != Phase::Closing) {
                self.give_up(slot as u16, "stopped".to_string(), now, bufs);
            }
        }
    }

    /// Where the queue pairs of an association are, whatever becomes of them.
    fn slots_of(&self, of: (ControllerId, Association)) -> Vec<usize> {
        let queues = self.queues.iter().enumerate();
        let is_it = |queue: &Option<Box<Queue>>| queue.as_ref().is_some_and(|it| it.of() == of);
        let found = queues.filter(|(_, queue)| is_it(queue));
        found.map(|(slot, _)| slot).collect()
    }

    /// Another worker submits through our queue pair.
    fn carry(&mut self, controller: ControllerId, head: HeadId, carried: Carried, now: Time) {
        let Carried { worker: from, token, association, epoch, data, .. } = carried;
        let origin = Origin::Peer(carried);
        let command = Command { controller, ..Command::new(origin, head, now) };
        let slot = open_slot(&self.queues, (controller, association), command.class());
        let queue_is_gone = slot.is_none();
        // Whoever sends this has yet to hear that the controller is being reset.
        let is_older = epoch <= self.topology.epoch;
        if !queue_is_gone && is_older && is_too_late(&command, self.known()) {
            return self.send_back(from, token, CommandOutcome::TooLate { association });
        }
        let slot = slot.filter(|_| !has_lost_its_path(&command, self.known()));
        let is_probe = matches!(data, HostData::Sink(_));
        let slot = slot.filter(|_| self.has_spare_room());
        let taken = slot.and_then(|slot| {
            let queue = self.queues[usize::from(slot)].as_mut()?;
            if is_probe && (is_quiesced(&self.heads, head) || !queue.can_spare()) {
                return None;
            }
            let key = self.commands.insert_with(|| command)?;
            self.commands[key].place = Place::Waiting { slot };
            let list = if is_quiesced(&self.heads, head) {
                &mut queue.set_aside
            } else {
                &mut queue.waiting
            };
            list.push_back(&mut self.commands, key);
            Some(())
        });
        if taken.is_none() {
            let attempt = Attempt::NeverSent;
            let gone = queue_is_gone.then_some(association);
            self.send_back(from, token, CommandOutcome::Lost { attempt, gone });
        }
    }

    fn send_back(&mut self, to: WorkerId, token: u64, outcome: CommandOutcome) {
        let mail = Mail::Peer(PeerMail::Done { token, outcome });
        self.outputs.push_back(Output::Mail { to, mail });
    }

    pub(crate) fn timeout(&mut self, now: Time, bufs: &mut dyn Buffers) {
        if self.wake.is_none_or(|wake| now < wake) {
            return;
        }
        self.wake = None;
        while let Some(&Reverse((until, key))) = self.delayed.peek() {
            if until > now {
                self.wake_at(until);
                break;
            }
            self.delayed.pop();
            self.try_again(key, until, now, bufs);
        }
        self.compute_weights();
        self.look_after_stuck(now, bufs);
        for slot in 0..self.queues.len() {
            let Some(queue) = self.queues[slot].as_mut() else { continue };
            match queue.next_deadline(&self.commands) {
                Some(deadline) if deadline <= now => self.late(slot as u16, now, bufs),
                Some(deadline) => self.wake_at(deadline),
                None => {}
            }
        }
    }

    fn try_again(&mut self, key: Key, due: Time, now: Time, bufs: &mut dyn Buffers) {
        let Some(command) = self.commands.get(key) else { return };
        match command.place {
            Place::Delayed { until, again_on } if until == due => {
                self.dispatch_again(key, again_on, now, bufs);
            }
            Place::Doubted { until, .. } if until == due => self.looked_in_vain(key, now, bufs),
            _ => {}
        }
    }

    /// A queue pair's oldest command, its opening or its orderly end took too long. A command that
    /// is late takes the whole controller down, as Linux does for NVMe/TCP.
    fn late(&mut self, slot: u16, now: Time, bufs: &mut dyn Buffers) {
        let Some(queue) = self.queues[usize::from(slot)].as_mut() else { return };
        let why = match queue.phase {
            Phase::Opening => "connecting timed out".to_string(),
            _ => alloc::format!("a command was not answered in {:?}", queue.io_timeout),
        };
        if queue.phase == Phase::Closing {
            queue.close_guard = None;
            self.outputs.push_back(Output::Close { conn: queue.conn, how: CloseHow::Abort });
        } else {
            self.give_up(slot, why, now, bufs);
        }
    }

    fn queue_of(&mut self, conn: ConnId) -> Option<&mut Queue> {
        self.queues.get_mut(conn.index() as usize)?.as_deref_mut()
    }
}

/// How bytes came in.
pub(crate) enum Received<'a> {
    Bytes(&'a [u8]),
    Into(u32),
}

/// Mail that a shard understands.
pub(crate) enum ShardMail {
    Control(ToShard),
    Peer(PeerMail),
}
