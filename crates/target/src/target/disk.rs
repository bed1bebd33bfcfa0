//! File operations in flight: what each was for, and what follows when it ends.

use super::Target;
use super::data::{count, lost_write, next_range};
use crate::backend::{Backend, DiskKind, FileStore, disk_status};
use crate::conn::{Answer, AnswerData, SlotId, Stage};
use crate::controller::Of;
use crate::io::Plan;
use crate::order::{Order, Range};
use crate::verb::{TargetError, TargetEvent, TargetReply};
use alloc::vec::Vec;
use anabranch_proto::machine::{
    BufRef, Buffers, DiskId, DiskOp, FileId, Output, SystemError, Time, VerbId,
};
use anabranch_proto::nvme::Status;
use core::time::Duration;

/// After an operation on a file that failed was told, those of its namespace are only counted for
/// so long.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// So long after a write, whether the file still has its end. The last block itself is not written
/// without a look: that would hide for ever that it was gone.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// What follows an operation that went well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    Nothing,
    /// Make it durable (force unit access). By itself, so that an error tells whether the command
    /// has failed or what was acknowledged before may be lost.
    Sync,
    /// Compare what was read with what the host sent.
    Compare,
    /// Go on with this Dataset Management range.
    Ranges {
        next: usize,
    },
}

/// A command's file operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) place: u32,
    pub(super) generation: u32,
    pub(super) slot: SlotId,
    pub(super) controller: usize,
    /// Its identifier: the place may be another one's by now.
    pub(super) cntlid: u16,
    pub(super) subsystem: usize,
    pub(super) nsid: u32,
    /// The namespace's generation.
    pub(super) namespace: u64,
    pub(super) plan: Plan,
    pub(super) kind: DiskKind,
    /// The buffer that the operation names; the driver's until it ends.
    pub(super) buf: Option<BufRef>,
    pub(super) rest: Rest,
    /// How often data of the namespace had been lost when the command began.
    pub(super) lost_before: u64,
}

#[derive(Clone, Copy, Debug)]
enum Work {
    Command(Job),
    /// The fault of [`crate::TargetVerb::Corrupt`].
    Corrupt {
        verb: VerbId,
        buf: BufRef,
    },
    /// Whether a file still has its last block.
    Look {
        of: Place,
        buf: BufRef,
    },
}

/// A namespace: its subsystem, its number there, and its generation.
type Place = (usize, u32, u64);

/// What becomes of a command whose operation has waited for others.
enum Outlook {
    Go,
    /// Nobody wants it any more: its connection is gone or going.
    Gone,
    /// Its port has stalled.
    Stalled,
    /// It would be refused now.
    Refused(Status),
}

/// An operation that the driver has, or that waits for one that overlaps it.
#[derive(Clone, Copy, Debug)]
struct Task {
    work: Work,
    file: FileId,
    op: DiskOp,
}

/// Operations in flight, by place, and those that wait their turn. Bounded by the command slots of
/// all connections.
#[derive(Debug, Default)]
pub(super) struct DiskTable {
    places: Vec<Option<Task>>,
    free: Vec<u32>,
    order: Order,
    /// Commands among them, by the identifier of their controller.
    commands: Vec<u32>,
}

impl DiskTable {
    /// Takes an operation in; `Some` when the driver is to have it now.
    fn insert(&mut self, task: Task) -> Option<DiskId> {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            (self.places.len() - 1) as u32
        });
        self.places[place as usize] = Some(task);
        if let Work::Command(job) = &task.work {
            let at = usize::from(job.cntlid);
            if self.commands.len() <= at {
                self.commands.resize(at + 1, 0);
            }
            self.commands[at] += 1;
        }
        let begins = task.range().is_none_or(|range| self.order.enter(place, range));
        begins.then_some(DiskId(place.into()))
    }

    fn remove(&mut self, id: DiskId) -> Option<Task> {
        let place = u32::try_from(id.0).ok()?;
        let task = self.places.get_mut(place as usize)?.take()?;
        if let Work::Command(job) = &task.work {
            self.commands[usize::from(job.cntlid)] -= 1;
        }
        self.order.leave(place);
        self.free.push(place);
        Some(task)
    }

    /// An operation whose turn has come.
    fn poll_ready(&mut self) -> Option<(DiskId, Task)> {
        let place = self.order.poll_ready()?;
        Some((DiskId(place.into()), self.places[place as usize]?))
    }

    /// Whether something that a controller was asked for is still on its way to a file.
    pub(super) fn works_for(&self, cntlid: u16) -> bool {
        self.commands.get(usize::from(cntlid)).is_some_and(|commands| *commands != 0)
    }

    /// Makes room for this many more operations.
    pub(super) fn reserve(&mut self, more: usize) {
        let wanted = self.places.len() - self.free.len() + more;
        self.places.reserve(wanted.saturating_sub(self.places.len()));
        self.free.reserve(wanted.saturating_sub(self.free.len()));
        self.order.reserve(wanted);
    }
}

impl Task {
    /// The blocks that it is about; a flush is about none.
    fn range(&self) -> Option<Range> {
        let (start, len, writes) = match self.op {
            DiskOp::Read { offset, buf } => (offset, buf.len().into(), false),
            DiskOp::Write { offset, buf, .. } => (offset, buf.len().into(), true),
            DiskOp::Zero { offset, len, .. } | DiskOp::Deallocate { offset, len } => {
                (offset, len, true)
            }
            DiskOp::Flush | DiskOp::Sync { .. } => return None,
        };
        Some(Range { file: self.file, start, end: start.saturating_add(len), writes })
    }

    /// What is left to zero when the driver has done the front of it only.
    fn left(&self, result: Result<u32, SystemError>) -> Option<DiskOp> {
        let (DiskOp::Zero { offset, len, deallocate }, Ok(done)) = (self.op, result) else {
            return None;
        };
        let done = u64::from(done);
        (1..len).contains(&done).then(|| DiskOp::Zero {
            offset: offset + done,
            len: len - done,
            deallocate,
        })
    }
}

impl Target {
    pub(super) fn submit(&mut self, file: FileId, job: Job, op: DiskOp) {
        self.submit_task(Task { work: Work::Command(job), file, op });
    }

    pub(super) fn submit_corruption(
        &mut self,
        file: FileId,
        verb: VerbId,
        offset: u64,
        buf: BufRef,
    ) {
        let op = DiskOp::Write { offset, buf };
        self.submit_task(Task { work: Work::Corrupt { verb, buf }, file, op });
    }

    fn submit_task(&mut self, task: Task) {
        if let Some(id) = self.disk.insert(task) {
            let Task { file, op, .. } = task;
            self.outputs.push_back(Output::Disk { id, file, op });
        }
    }

    pub(super) fn disk_done(
        &mut self,
        now: Time,
        id: DiskId,
        result: Result<u32, SystemError>,
        bufs: &mut dyn Buffers,
    ) {
        let Some(task) = self.disk.remove(id) else { return };
        match task.work {
            Work::Corrupt { verb, buf } => {
                bufs.free(buf);
                let reply = result.map(|_| TargetReply::Done).map_err(TargetError::Disk);
                self.outputs.push_back(Output::Reply { id: verb, reply });
            }
            Work::Look { of, buf } => {
                let all = u64::from(buf.len());
                bufs.free(buf);
                if let Some(store) = self.store(of) {
                    store.looking = false;
                }
                // An error is told to whoever comes for data.
                if result.is_ok_and(|read| u64::from(read) < all) {
                    let end = task.range().map_or(0, |range| range.end);
                    self.file_is_short(now, of, DiskKind::Look, end);
                }
            }
            Work::Command(job) => self.job_done(now, job, task.left(result), result, bufs),
        }
        while let Some((id, task)) = self.disk.poll_ready() {
            self.begin(now, id, task, bufs);
        }
    }

    /// The turn of an operation that waited has come. Much may have changed meanwhile: it does what
    /// its command would do if it came now.
    fn begin(&mut self, now: Time, id: DiskId, task: Task, bufs: &mut dyn Buffers) {
        let Task { work, file, op } = task;
        let refusal = match work {
            Work::Corrupt { .. } | Work::Look { .. } => None,
            Work::Command(job) => match self.outlook(&job, task.range()) {
                Outlook::Go => None,
                other => Some((job, other)),
            },
        };
        let Some((job, outlook)) = refusal else {
            return self.outputs.push_back(Output::Disk { id, file, op });
        };
        self.disk.remove(id);
        match outlook {
            Outlook::Refused(status) => self.conclude(now, job, Answer::status(status), bufs),
            Outlook::Stalled => self.hold(job, bufs),
            Outlook::Go | Outlook::Gone => {
                if let Some(buf) = job.buf {
                    bufs.free(buf);
                }
            }
        }
    }

    /// What becomes of a command whose operation has waited.
    fn outlook(&mut self, job: &Job, range: Option<Range>) -> Outlook {
        let conn = self.conns.get_mut(job.place);
        let Some(conn) = conn.filter(|conn| conn.generation == job.generation && !conn.closing)
        else {
            return Outlook::Gone;
        };
        let port = conn.port;
        let Some(sqe) = conn.sqe(job.slot).copied() else { return Outlook::Gone };
        if self.ports[port].is_stalled() {
            return Outlook::Stalled;
        }
        if let Err(status) = self.access(job.controller, &sqe) {
            return Outlook::Refused(status);
        }
        let namespace = self.subsystems[job.subsystem].namespace(job.nsid);
        let Some(namespace) = namespace.filter(|found| found.generation == job.namespace) else {
            return Outlook::Refused(Status::INVALID_NAMESPACE.with_dnr());
        };
        let bytes = namespace.blocks << namespace.block_shift;
        if range.is_some_and(|range| range.end > bytes) {
            return Outlook::Refused(Status::LBA_OUT_OF_RANGE.with_dnr());
        }
        Outlook::Go
    }

    /// A stall has caught a command that waited: it gives its place to those behind it, and comes
    /// again when the stall ends.
    fn hold(&mut self, job: Job, bufs: &mut dyn Buffers) {
        let Some(conn) = self.conns.get_mut(job.place) else { return };
        let port = conn.port;
        let Some(entry) = conn.entry(job.slot) else { return };
        entry.stage = Stage::Held;
        match (job.plan, job.buf) {
            (Plan::Write { .. }, buf) => entry.data = buf,
            (_, Some(buf)) => bufs.free(buf),
            _ => {}
        }
        self.ports[port].held.push((job.place, job.generation, job.slot));
    }

    fn job_done(
        &mut self,
        now: Time,
        job: Job,
        left: Option<DiskOp>,
        result: Result<u32, SystemError>,
        bufs: &mut dyn Buffers,
    ) {
        let result = match (result, job.kind, job.buf) {
            // The file has become shorter than the namespace: blocks are lost, not zero.
            (Ok(read), DiskKind::Read | DiskKind::Compare, Some(buf)) if read < buf.len() => {
                let of = (job.subsystem, job.nsid, job.namespace);
                let (start, len) = job.plan.blocks();
                self.file_is_short(now, of, job.kind, start + len);
                Err(SystemError::IO)
            }
            // The disk was not asked: what it has to write is not lost.
            (Err(error), DiskKind::Durable, _) if error != SystemError::AGAIN => {
                self.flush_failed(&job, error);
                result
            }
            (Err(error), ..) => {
                let of = (job.subsystem, job.nsid, job.namespace);
                self.file_failed(now, of, job.kind, Some(error));
                result
            }
            (Ok(_), ..) => result,
        };
        let answer = match result {
            Err(error) => Some(Answer::status(disk_status(job.kind, error))),
            Ok(_) => self.go_on(&job, left, bufs),
        };
        let Some(mut answer) = answer else { return };
        // What may be asked again must not pass over what others have lost either.
        if job.kind == DiskKind::Durable
            && let Some(status) = self.doubt_of(now, &job)
            && !answer.status.dnr()
        {
            answer = Answer::refuse(status);
        }
        self.conclude(now, job, answer, bufs);
    }

    /// A command's last operation is over.
    fn conclude(&mut self, now: Time, job: Job, mut answer: Answer, bufs: &mut dyn Buffers) {
        if let Some(namespace) = self.subsystems[job.subsystem]
            .namespace_mut(job.nsid)
            .filter(|namespace| namespace.generation == job.namespace)
        {
            count(namespace, &job.plan, answer.status);
        }
        match (job.plan, job.buf) {
            (Plan::Read { .. }, Some(buf)) if answer.status.is_success() => {
                answer.data = AnswerData::Buffer(buf);
            }
            (_, Some(buf)) => bufs.free(buf),
            _ => {}
        }
        let alive = self.conns.get(job.place).is_some_and(|c| c.generation == job.generation);
        if alive {
            self.answer(now, job.place, job.slot, &answer, bufs);
        } else if let AnswerData::Buffer(buf) = answer.data {
            bufs.free(buf);
        }
    }

    /// What follows a success; `None` when another operation was started, or will be.
    fn go_on(&mut self, job: &Job, left: Option<DiskOp>, bufs: &mut dyn Buffers) -> Option<Answer> {
        let done = Some(Answer::status(Status::SUCCESS));
        let namespace = self.subsystems[job.subsystem].namespace(job.nsid);
        let namespace = namespace.filter(|found| found.generation == job.namespace);
        let conn = self.conns.get_mut(job.place);
        let conn = conn.filter(|conn| conn.generation == job.generation);
        let data = conn.and_then(|conn| conn.entry(job.slot)).and_then(|entry| entry.data);
        let (offset, len) = job.plan.blocks();
        let durable = (DiskKind::Durable, DiskOp::Sync { offset, len }, Rest::Nothing);
        let (kind, op, rest) = match (left, job.rest, data) {
            (Some(op), rest, _) => (DiskKind::Zero, op, rest),
            (None, Rest::Nothing, _) => return done,
            (None, Rest::Compare, Some(data)) => {
                let read = bufs.bytes(job.buf.unwrap_or(BufRef::EMPTY));
                let equal = bufs.bytes(data).get(..read.len()) == Some(read);
                if !equal {
                    return Some(Answer::refuse(Status::COMPARE_FAILURE));
                }
                if !job.plan.is_durable() {
                    return done;
                }
                durable
            }
            (None, Rest::Sync, _) => durable,
            (None, Rest::Ranges { next }, Some(data)) => {
                let Some((index, offset, len)) =
                    namespace.and_then(|n| next_range(n, bufs.bytes(data), next))
                else {
                    return done;
                };
                let op = DiskOp::Deallocate { offset, len };
                (DiskKind::Zero, op, Rest::Ranges { next: index + 1 })
            }
            // The connection is gone.
            (None, ..) => return Some(Answer::refuse(Status::INTERNAL_ERROR)),
        };
        let Some(Backend::File(store)) = namespace.map(|namespace| &namespace.backend) else {
            return Some(Answer::refuse(Status::INVALID_NAMESPACE));
        };
        let task = Task { work: Work::Command(Job { kind, rest, ..*job }), file: store.file, op };
        if kind == DiskKind::Zero {
            // More blocks change only as long as the command would be taken.
            match self.outlook(job, task.range()) {
                Outlook::Go => {}
                Outlook::Refused(status) => return Some(Answer::status(status)),
                Outlook::Gone => return Some(Answer::refuse(Status::INTERNAL_ERROR)),
                Outlook::Stalled => {
                    self.hold(*job, bufs);
                    return None;
                }
            }
        }
        self.submit_task(task);
        None
    }

    /// The host has a status, which says little of what is wrong here: that is told, too, of
    /// several in a short time the first.
    #[cold]
    fn file_failed(&mut self, now: Time, of: Place, kind: DiskKind, error: Option<SystemError>) {
        let Some(store) = self.store(of) else { return };
        if store.failures_quiet_until.is_some_and(|until| now < until) {
            store.failures_untold = store.failures_untold.saturating_add(1);
            return;
        }
        store.failures_quiet_until = Some(now.after(FAILURE_PAUSE));
        let untold = core::mem::take(&mut store.failures_untold);
        let (subsystem, nsid, work) = (self.subsystems[of.0].nqn.clone(), of.1, kind.name());
        self.tell(TargetEvent::FileFailed { subsystem, nsid, work, error, untold });
    }

    /// The file of a namespace, if that is still there.
    fn store(&mut self, (subsystem, nsid, generation): Place) -> Option<&mut FileStore> {
        let namespace = self.subsystems[subsystem].namespace_mut(nsid)?;
        match &mut namespace.backend {
            Backend::File(store) if namespace.generation == generation => Some(store),
            _ => None,
        }
    }

    /// Nothing is done to it from now on, unless what was read is not the namespace's any more: it
    /// was made smaller in an orderly way meanwhile.
    #[cold]
    fn file_is_short(&mut self, now: Time, of: Place, kind: DiskKind, end: u64) {
        let namespace = self.subsystems[of.0].namespace(of.1);
        let has_it = namespace.is_some_and(|it| end <= it.blocks << it.block_shift);
        if let Some(store) = self.store(of).filter(|it| has_it && !it.is_short) {
            // However lately something else was told: nothing fails there any more.
            (store.is_short, store.failures_quiet_until) = (true, None);
            self.file_failed(now, of, kind, None);
        }
    }

    /// Before a command begins that may write, or some time after one has written: whether the file
    /// still has its end. Asking for its length would be another call into the system, which waits
    /// where the file hangs; a read is a piece of work like the others.
    pub(super) fn look_at_end(
        &mut self,
        now: Time,
        at: usize,
        nsid: u32,
        plan: &Plan,
        bufs: &mut dyn Buffers,
    ) {
        let Some(Of::Subsystem(subsystem)) = self.controllers[at].as_ref().map(|it| it.of) else {
            return;
        };
        let Some(namespace) = self.subsystems[subsystem].namespace_mut(nsid) else { return };
        let block = 1 << namespace.block_shift;
        let bytes = namespace.blocks << namespace.block_shift;
        let Backend::File(store) = &mut namespace.backend else { return };
        let (start, len) = plan.blocks();
        let (writes, has_end) = match plan {
            Plan::Write { .. } | Plan::Zero { .. } => (true, start + len >= bytes),
            Plan::Ranges { .. } => (true, false),
            Plan::Read { .. } | Plan::Compare { .. } | Plan::Flush => (false, false),
        };
        let is_due = has_end || store.look_at.is_some_and(|at| at <= now);
        let look = if is_due && !store.looking { bufs.alloc(block) } else { None };
        if look.is_some() {
            (store.looking, store.look_at) = (true, None);
        }
        if writes {
            store.look_at.get_or_insert(now.after(LOOK_PAUSE));
        }
        // Without memory for it the next one looks.
        let Some(buf) = look else { return };
        let (file, of) = (store.file, (subsystem, nsid, namespace.generation));
        let op = DiskOp::Read { offset: bytes - u64::from(block), buf };
        self.submit_task(Task { work: Work::Look { of, buf }, file, op });
    }

    fn flush_failed(&mut self, job: &Job, error: SystemError) {
        if let Some(store) = self.store((job.subsystem, job.nsid, job.namespace)) {
            store.lost_writes += 1;
        }
        // Also when the namespace was taken away meanwhile: its blocks may be wanted elsewhere.
        let subsystem = self.subsystems[job.subsystem].nqn.clone();
        self.tell(TargetEvent::FlushFailed { subsystem, nsid: job.nsid, error });
    }

    /// Why a command that was to make blocks durable must not be said to have done so, if it must
    /// not.
    ///
    /// The system tells one of those that run at the same time of what it could not write,
    /// whichever of them that was for, so all that had begun by then fail. A flush, or a read, is
    /// for what was written before, too: with it its controller has heard of it. A write speaks for
    /// its own blocks alone. Of a namespace that was taken away meanwhile nobody knows any more.
    fn doubt_of(&mut self, now: Time, job: &Job) -> Option<Status> {
        let namespace = self.subsystems[job.subsystem].namespace(job.nsid);
        let namespace = namespace.filter(|found| found.generation == job.namespace);
        let Some((namespace, Backend::File(store))) = namespace.map(|it| (it, &it.backend)) else {
            return Some(Status::INVALID_NAMESPACE);
        };
        let meanwhile = store.lost_writes > job.lost_before;
        let alive = self.conns.get(job.place).is_some_and(|conn| {
            conn.generation == job.generation && conn.controller() == Some(job.controller)
        });
        let of_before = matches!(job.plan, Plan::Flush | Plan::Read { .. } | Plan::Compare { .. });
        let has_lost = match self.controllers[job.controller].as_mut() {
            Some(controller) if alive && of_before => {
                lost_write(now, controller, namespace) || meanwhile
            }
            _ => meanwhile,
        };
        has_lost.then_some(Status::WRITE_FAULT)
    }
}
