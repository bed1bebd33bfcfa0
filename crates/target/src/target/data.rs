//! I/O commands: access checks, and the work on blocks in memory. Files: see `disk`.

use super::Target;
use super::command::Step;
use super::disk::{Job, Rest};
use super::waiting::{is_low, leaves_no_second};
use crate::ana_group;
use crate::backend::{Backend, DiskKind};
use crate::conn::{Answer, AnswerData, Conn, Role, SlotId, Stage};
use crate::controller::{Controller, Of};
use crate::io::{self, Plan};
use crate::namespace::Namespace;
use anabranch_proto::machine::{BufRef, Buffers, DiskOp, Time};
use anabranch_proto::nvme::io::DsmRange;
use anabranch_proto::nvme::opcode::{self, fabrics};
use anabranch_proto::nvme::{Sqe, Status};

/// What a command hears whose namespace was removed after it had come.
pub(super) const GONE: Status = Status::INVALID_NAMESPACE.with_dnr();

impl Target {
    /// A command on an I/O queue.
    pub(super) fn io(
        &mut self,
        now: Time,
        place: u32,
        slot: SlotId,
        at: usize,
        bufs: &mut dyn Buffers,
    ) -> Step {
        let Some(sqe) = self.sqe(place, slot) else { return Step::refuse(Status::INTERNAL_ERROR) };
        if sqe.is_fabrics() {
            return self.io_queue_fabrics(now, place, slot, &sqe);
        }
        // Plan and answer stay where they were made: what was put together from fields of different
        // widths and is moved on in one piece waits until all of it has left for the cache.
        let access = self.access(at, &sqe);
        let plan = match &access {
            Ok(plan) => plan,
            Err(status) => return self.io_refused(at, &sqe, *status),
        };
        let data = match plan.host_bytes() {
            0 => BufRef::EMPTY,
            need => match self.host_data(place, slot, need) {
                // What waits has been asked already.
                Ok(_)
                    if leaves_no_second(&sqe, bufs)
                        && self.needs_two(at, &sqe, plan)
                        && !self.waits(place, slot) =>
                {
                    return self.io_refused(at, &sqe, Status::COMMAND_INTERRUPTED);
                }
                Ok(buf) => buf,
                Err(Step::Done(answer)) => return self.io_refused(at, &sqe, answer.status),
                Err(Step::Transfer(_)) if is_low(bufs) && self.needs_two(at, &sqe, plan) => {
                    return Step::Wait;
                }
                Err(step) => return step,
            },
        };
        if let Plan::Read { len, .. } = plan
            && sqe.sgl().length() < *len
        {
            return self.io_refused(at, &sqe, Status::DATA_SGL_LENGTH_INVALID.with_dnr());
        }
        if let Some(step) = self.service_due(place, slot, plan) {
            return step;
        }
        if let Plan::Ranges { len, .. } = plan {
            self.turns.ranges(u64::from(*len) / DsmRange::BYTES as u64);
        }
        let mut answer = Answer::status(Status::SUCCESS);
        match self.namespace_of(at, sqe.nsid()) {
            Some(Namespace { backend: Backend::Memory(_), .. }) => {
                if !self.on_memory(place, at, &sqe, plan, data, &mut answer, bufs) {
                    return Step::Wait;
                }
            }
            _ => {
                self.look_at_end(now, at, sqe.nsid(), plan, bufs);
                match self.on_file(now, place, slot, at, &sqe, *plan, data, bufs) {
                    Ok(step) => return step,
                    Err(refused) => answer = refused,
                }
            }
        }
        if let Some(namespace) = self.namespace_of(at, sqe.nsid()) {
            count(namespace, plan, answer.status);
        }
        self.answer(now, place, slot, &answer, bufs);
        Step::Answered
    }

    /// Whether a command needs memory for its data and then as much again.
    fn needs_two(&mut self, at: usize, sqe: &Sqe, plan: &Plan) -> bool {
        let namespace = self.namespace_of(at, sqe.nsid());
        let in_file = namespace.is_some_and(|found| matches!(found.backend, Backend::File(_)));
        in_file && matches!(plan, Plan::Compare { .. })
    }

    fn waits(&mut self, place: u32, slot: SlotId) -> bool {
        let entry = self.conns.get_mut(place).and_then(|conn| conn.entry(slot));
        entry.is_some_and(|entry| entry.stage == Stage::Waiting)
    }

    pub(super) fn sqe(&self, place: u32, slot: SlotId) -> Option<Sqe> {
        self.conns.get(place)?.sqe(slot).copied()
    }

    /// Whether the command may touch its namespace, and what it wants there.
    pub(super) fn access(&self, at: usize, sqe: &Sqe) -> Result<Plan, Status> {
        let max_bytes = self.limits.max_transfer_bytes;
        let controller = self.controllers[at].as_ref().ok_or(Status::INTERNAL_ERROR)?;
        if controller.shut_down {
            // It may have been on its way when its host shut the controller down, which is not the
            // host's mistake: it may do it again, elsewhere.
            return Err(Status::ABORTED_SQ_DELETION);
        }
        if !controller.takes_commands() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr());
        }
        let Of::Subsystem(subsystem) = controller.of else {
            return Err(Status::INVALID_OPCODE.with_dnr());
        };
        if !io::is_known(sqe.opcode()) {
            return Err(Status::INVALID_OPCODE.with_dnr());
        }
        let port = &self.ports[controller.port];
        let namespace = self.subsystems[subsystem].namespace(sqe.nsid());
        let namespace = namespace.ok_or(Status::INVALID_NAMESPACE.with_dnr())?;
        if let Some(status) = ana_group::refusal(port.ana.state(namespace.ana_group)) {
            return Err(status);
        }
        if namespace.backend.is_short() {
            let reads = matches!(sqe.opcode(), opcode::io::READ | opcode::io::COMPARE);
            let status = if reads { Status::UNRECOVERED_READ_ERROR } else { Status::WRITE_FAULT };
            return Err(status.with_dnr());
        }
        io::plan(sqe, namespace, max_bytes)
    }

    fn io_refused(&mut self, at: usize, sqe: &Sqe, status: Status) -> Step {
        if let Some(namespace) = self.namespace_of(at, sqe.nsid()) {
            namespace.counters.errors += 1;
        }
        Step::Done(Answer::status(status))
    }

    fn io_queue_fabrics(&mut self, now: Time, place: u32, slot: SlotId, sqe: &Sqe) -> Step {
        match sqe.fctype() {
            fabrics::CONNECT => Step::refuse(Status::COMMAND_SEQUENCE_ERROR),
            fabrics::DISCONNECT => self.disconnect(now, place, slot, sqe),
            // No such type, or one that is not for I/O queues (Base 4.1.2, 6).
            _ => Step::refuse(Status::INVALID_FIELD),
        }
    }

    /// A namespace is gone: what has come for it is not for another one that takes its number.
    pub(super) fn refuse_begun(&mut self, subsystem: usize, nsid: u32) {
        let is_for_it = |sqe: &Sqe| sqe.nsid() == nsid && !sqe.is_fabrics();
        for conn in self.conns.iter_mut() {
            let Role::Io(at) = conn.role else { continue };
            let of = self.controllers[at].as_ref().map(|controller| controller.of);
            if of != Some(Of::Subsystem(subsystem)) {
                continue;
            }
            let Conn { queue, entries, .. } = conn;
            for entry in entries.iter_mut().flatten() {
                if is_for_it(queue.sqe(entry.slot)) {
                    entry.verdict = entry.verdict.or(Some(GONE));
                }
            }
            queue.mark_untold(is_for_it);
        }
    }

    pub(super) fn namespace_of(&mut self, at: usize, nsid: u32) -> Option<&mut Namespace> {
        let Of::Subsystem(subsystem) = self.controllers[at].as_ref()?.of else { return None };
        self.subsystems[subsystem].namespace_mut(nsid)
    }

    /// Carries a plan out on blocks in memory; false when no buffer is free. What there is to say
    /// beyond success is put into `answer`.
    #[allow(clippy::too_many_arguments, reason = "the parts of one command, all needed")]
    fn on_memory(
        &mut self,
        place: u32,
        at: usize,
        sqe: &Sqe,
        plan: &Plan,
        data: BufRef,
        answer: &mut Answer,
        bufs: &mut dyn Buffers,
    ) -> bool {
        let port = self.conns.get(place).map_or(0, |conn| conn.port);
        let later =
            self.ports[port].is_stalled() || !self.ports[port].shaper.outbound.is_transparent();
        if let Plan::Read { len, .. } = *plan
            && !later
            && !self.may_take(place, len, bufs)
        {
            return false;
        }
        let Some(namespace) = self.namespace_of(at, sqe.nsid()) else {
            answer.status = Status::INVALID_NAMESPACE.with_dnr();
            return true;
        };
        let Backend::Memory(memory) = &mut namespace.backend else {
            answer.status = Status::INTERNAL_ERROR.with_dnr();
            return true;
        };
        let mut emptied = 0;
        match *plan {
            Plan::Read { offset, len, .. } if later => {
                let (nsid, generation) = (namespace.nsid, namespace.generation);
                answer.data = AnswerData::Memory { nsid, generation, offset, len };
            }
            Plan::Read { offset, len, .. } => {
                let Some(buf) = bufs.alloc(len) else { return false };
                memory.read(offset, bufs.bytes_mut(buf));
                answer.data = AnswerData::Buffer(buf);
            }
            Plan::Write { offset, .. } => {
                if memory.write(offset, bufs.bytes(data)).is_err() {
                    answer.status = Status::CAPACITY_EXCEEDED.with_dnr();
                }
            }
            Plan::Compare { offset, .. } => {
                if !memory.equals(offset, bufs.bytes(data)) {
                    answer.status = Status::COMPARE_FAILURE.with_dnr();
                }
            }
            Plan::Zero { offset, len, .. } => emptied = memory.zero(offset, len),
            Plan::Flush => {}
            Plan::Ranges { deallocate, .. } => match check_ranges(namespace, bufs.bytes(data)) {
                Err(status) => answer.status = status,
                Ok(()) if deallocate => emptied = zero_ranges(namespace, bufs.bytes(data)),
                Ok(()) => {}
            },
        }
        self.turns.chunks(emptied);
        true
    }

    /// Reads blocks in memory for an answer that leaves now; false when they are gone.
    pub(super) fn read_memory(&mut self, place: u32, from: AnswerData, into: &mut [u8]) -> bool {
        let AnswerData::Memory { nsid, generation, offset, len } = from else { return false };
        let controller = self.conns.get(place).and_then(|conn| conn.controller());
        let Some(namespace) = controller.and_then(|at| self.namespace_of(at, nsid)) else {
            return false;
        };
        let end = offset.saturating_add(len.into());
        let Backend::Memory(memory) = &namespace.backend else { return false };
        if namespace.generation != generation || end > namespace.blocks << namespace.block_shift {
            return false;
        }
        memory.read(offset, into);
        true
    }

    /// Starts a plan on a file; `Err` is an answer that needs no file operation.
    #[allow(clippy::too_many_arguments, reason = "the parts of one command, all needed")]
    fn on_file(
        &mut self,
        now: Time,
        place: u32,
        slot: SlotId,
        at: usize,
        sqe: &Sqe,
        plan: Plan,
        data: BufRef,
        bufs: &mut dyn Buffers,
    ) -> Result<Step, Answer> {
        let generation = self.conns.get(place).map_or(0, |conn| conn.generation);
        if plan.read_bytes().is_some_and(|len| !self.may_take(place, len, bufs)) {
            return Ok(Step::Wait);
        }
        let internal = Answer::refuse(Status::INTERNAL_ERROR);
        let controller = self.controllers[at].as_mut().ok_or(internal)?;
        let Of::Subsystem(subsystem) = controller.of else { return Err(internal) };
        let namespace = self.subsystems[subsystem].namespace_mut(sqe.nsid()).ok_or(internal)?;
        let Backend::File(store) = &namespace.backend else { return Err(internal) };
        let (file, lost_before) = (store.file, store.lost_writes);
        let alloc = |bufs: &mut dyn Buffers, len| bufs.alloc(len).ok_or(Step::Wait);
        let mut rest = if plan.is_durable() { Rest::Sync } else { Rest::Nothing };
        let (kind, op, buf) = match plan {
            Plan::Read { offset, len, .. } => match alloc(bufs, len) {
                Ok(buf) => (DiskKind::Read, DiskOp::Read { offset, buf }, Some(buf)),
                Err(step) => return Ok(step),
            },
            Plan::Compare { offset, len, .. } => match alloc(bufs, len) {
                Ok(buf) => {
                    rest = Rest::Compare;
                    (DiskKind::Compare, DiskOp::Read { offset, buf }, Some(buf))
                }
                Err(step) => return Ok(step),
            },
            Plan::Write { offset, .. } => {
                (DiskKind::Write, DiskOp::Write { offset, buf: data }, Some(data))
            }
            Plan::Zero { offset, len, deallocate, .. } => {
                (DiskKind::Zero, DiskOp::Zero { offset, len, deallocate }, None)
            }
            Plan::Flush => {
                if lost_write(now, controller, namespace) {
                    return Err(Answer::refuse(Status::WRITE_FAULT));
                }
                (DiskKind::Durable, DiskOp::Flush, None)
            }
            Plan::Ranges { deallocate, .. } => {
                check_ranges(namespace, bufs.bytes(data)).map_err(Answer::status)?;
                let done = Answer::status(Status::SUCCESS);
                let Some((index, offset, len)) =
                    next_range(namespace, bufs.bytes(data), 0).filter(|_| deallocate)
                else {
                    return Err(done);
                };
                rest = Rest::Ranges { next: index + 1 };
                (DiskKind::Zero, DiskOp::Deallocate { offset, len }, None)
            }
        };
        let keeps = !matches!(plan, Plan::Write { .. });
        let job = Job {
            place,
            generation,
            slot,
            controller: at,
            cntlid: controller.cntlid,
            subsystem,
            nsid: namespace.nsid,
            namespace: namespace.generation,
            plan,
            kind,
            buf,
            rest,
            lost_before,
        };
        self.submit(file, job, op);
        Ok(if keeps { Step::DiskKeepsData } else { Step::Disk })
    }
}

/// Whether a flush failure must be reported to this controller now.
pub(super) fn lost_write(now: Time, controller: &mut Controller, namespace: &Namespace) -> bool {
    match &namespace.backend {
        Backend::File(store) => {
            controller.take_lost_write(now, namespace.generation, store.lost_writes)
        }
        Backend::Memory(_) => false,
    }
}

/// All ranges, before the first one is touched.
fn check_ranges(namespace: &Namespace, ranges: &[u8]) -> Result<(), Status> {
    let mut index = 0;
    while let Some(range) = io::dsm_range(namespace, ranges, index) {
        range?;
        index += 1;
    }
    Ok(())
}

/// Turns all ranges into zeroes. How many chunks had to be looked at.
fn zero_ranges(namespace: &mut Namespace, ranges: &[u8]) -> u64 {
    let (mut index, mut looked_at) = (0, 0);
    while let Some((at, offset, len)) = next_range(namespace, ranges, index) {
        if let Backend::Memory(memory) = &mut namespace.backend {
            looked_at += memory.zero(offset, len);
        }
        index = at + 1;
    }
    looked_at
}

/// The first range from `index` on that is not empty: its index, offset and length in bytes.
pub(super) fn next_range(
    namespace: &Namespace,
    ranges: &[u8],
    mut index: usize,
) -> Option<(usize, u64, u64)> {
    loop {
        match io::dsm_range(namespace, ranges, index)? {
            Ok((offset, len)) if len > 0 => return Some((index, offset, len)),
            _ => index += 1,
        }
    }
}

/// Counts a command that has ended.
pub(super) fn count(namespace: &mut Namespace, plan: &Plan, status: Status) {
    let counters = &mut namespace.counters;
    if !status.is_success() {
        counters.errors += 1;
        return;
    }
    match *plan {
        Plan::Read { len, .. } => {
            counters.reads += 1;
            counters.read_bytes += u64::from(len);
        }
        Plan::Write { len, durable, .. } => {
            counters.writes += 1;
            counters.written_bytes += u64::from(len);
            counters.fua_writes += u64::from(durable);
        }
        Plan::Flush => counters.flushes += 1,
        _ => counters.others += 1,
    }
}
