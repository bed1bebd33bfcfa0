//! File operations in flight: what each was for, and what follows when it ends.

use super::Target;
use super::data::{count, lost_write, next_range};
use crate::backend::{Backend, DiskKind, disk_status};
use crate::conn::{Answer, AnswerData, SlotId};
use crate::io::Plan;
use crate::verb::{TargetError, TargetEvent, TargetReply};
use alloc::vec::Vec;
use anabranch_proto::machine::{
    BufRef, Buffers, DiskId, DiskOp, FileId, Output, SystemError, Time, VerbId,
};
use anabranch_proto::nvme::Status;

/// What follows an operation that went well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    Nothing,
    /// Make it durable (Write Zeroes with force unit access).
    Flush,
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
}

#[derive(Clone, Copy, Debug)]
enum Work {
    Command(Job),
    /// The fault of [`crate::TargetVerb::Corrupt`].
    Corrupt {
        verb: VerbId,
        buf: BufRef,
    },
}

/// Operations in flight, by place. Bounded by the command slots of all connections.
#[derive(Debug, Default)]
pub(super) struct DiskTable {
    places: Vec<Option<Work>>,
    free: Vec<usize>,
}

impl DiskTable {
    fn insert(&mut self, work: Work) -> DiskId {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = Some(work);
        DiskId(place as u64)
    }

    fn remove(&mut self, id: DiskId) -> Option<Work> {
        let place = usize::try_from(id.0).ok()?;
        let work = self.places.get_mut(place)?.take()?;
        self.free.push(place);
        Some(work)
    }

    /// Whether something that a controller was asked for is still on its way to a file.
    pub(super) fn works_for(&self, cntlid: u16) -> bool {
        let mut work = self.places.iter().flatten();
        work.any(|work| matches!(work, Work::Command(job) if job.cntlid == cntlid))
    }

    /// Makes room for this many more operations.
    pub(super) fn reserve(&mut self, more: usize) {
        let wanted = self.places.len() - self.free.len() + more;
        self.places.reserve(wanted.saturating_sub(self.places.len()));
        self.free.reserve(wanted.saturating_sub(self.free.len()));
    }
}

impl Target {
    pub(super) fn submit(&mut self, file: FileId, job: Job, op: DiskOp) {
        let id = self.disk.insert(Work::Command(job));
        self.outputs.push_back(Output::Disk { id, file, op });
    }

    pub(super) fn submit_corruption(
        &mut self,
        file: FileId,
        verb: VerbId,
        offset: u64,
        buf: BufRef,
    ) {
        let id = self.disk.insert(Work::Corrupt { verb, buf });
        let op = DiskOp::Write { offset, buf, durable: false };
        self.outputs.push_back(Output::Disk { id, file, op });
    }

    pub(super) fn disk_done(
        &mut self,
        now: Time,
        id: DiskId,
        result: Result<u32, SystemError>,
        bufs: &mut dyn Buffers,
    ) {
        match self.disk.remove(id) {
            None => {}
            Some(Work::Corrupt { verb, buf }) => {
                bufs.free(buf);
                let reply = result.map(|_| TargetReply::Done).map_err(TargetError::Disk);
                self.outputs.push_back(Output::Reply { id: verb, reply });
            }
            Some(Work::Command(job)) => self.job_done(now, job, result, bufs),
        }
    }

    fn job_done(
        &mut self,
        now: Time,
        job: Job,
        result: Result<u32, SystemError>,
        bufs: &mut dyn Buffers,
    ) {
        if let (DiskKind::Durable, Err(error)) = (job.kind, result) {
            self.flush_failed(&job, error);
        }
        let answer = match result {
            Err(error) => {
                // This controller hears of a failed flush by this very answer.
                self.take_lost_write(&job);
                Some(Answer::status(disk_status(job.kind, error)))
            }
            Ok(_) => self.go_on(&job, bufs),
        };
        let Some(mut answer) = answer else { return };
        // A flush that ran beside a failed one must not acknowledge what that one lost.
        if answer.status.is_success() && job.kind == DiskKind::Durable && self.take_lost_write(&job)
        {
            answer = Answer::refuse(Status::WRITE_FAULT);
        }
        if let Some(namespace) = self.subsystems[job.subsystem]
            .namespace_mut(job.nsid)
            .filter(|namespace| namespace.generation == job.namespace)
        {
            count(namespace, job.plan, answer.status);
        }
        match (job.kind, job.buf) {
            (DiskKind::Read, Some(buf)) if answer.status.is_success() => {
                answer.data = AnswerData::Buffer(buf);
            }
            (_, Some(buf)) => bufs.free(buf),
            _ => {}
        }
        let alive = self.conns.get(job.place).is_some_and(|c| c.generation == job.generation);
        if alive {
            self.answer(now, job.place, job.slot, answer, bufs);
        } else if let AnswerData::Buffer(buf) = answer.data {
            bufs.free(buf);
        }
    }

    /// What follows a success; `None` when another operation was started.
    fn go_on(&mut self, job: &Job, bufs: &mut dyn Buffers) -> Option<Answer> {
        let done = Some(Answer::status(Status::SUCCESS));
        let subsystem = &self.subsystems[job.subsystem];
        let namespace = subsystem.namespace(job.nsid).filter(|n| n.generation == job.namespace);
        let conn = self.conns.get_mut(job.place);
        let conn = conn.filter(|conn| conn.generation == job.generation);
        let closing = conn.as_ref().is_none_or(|conn| conn.closing);
        let data = conn.and_then(|conn| conn.entry(job.slot)).and_then(|entry| entry.data);
        let (kind, op, rest) = match (job.rest, data) {
            (Rest::Nothing, _) => return done,
            (Rest::Compare, Some(data)) => {
                let read = bufs.bytes(job.buf.unwrap_or(BufRef::EMPTY));
                let equal = bufs.bytes(data).get(..read.len()) == Some(read);
                if equal {
                    return done;
                }
                return Some(Answer::refuse(Status::COMPARE_FAILURE));
            }
            (Rest::Flush, _) => (DiskKind::Durable, DiskOp::Flush, Rest::Nothing),
            (Rest::Ranges { next }, Some(data)) if !closing => {
                let Some((index, offset, len)) =
                    namespace.and_then(|n| next_range(n, bufs.bytes(data), next))
                else {
                    return done;
                };
                let op = DiskOp::Zero { offset, len, deallocate: true };
                (DiskKind::Zero, op, Rest::Ranges { next: index + 1 })
            }
            // The connection is gone or going: nothing more of it is carried out.
            _ => return Some(Answer::refuse(Status::INTERNAL_ERROR)),
        };
        let Some(Backend::File(store)) = namespace.map(|namespace| &namespace.backend) else {
            return Some(Answer::refuse(Status::INVALID_NAMESPACE));
        };
        let file = store.file;
        self.submit(file, Job { kind, rest, ..*job }, op);
        None
    }

    fn flush_failed(&mut self, job: &Job, error: SystemError) {
        let subsystem = &mut self.subsystems[job.subsystem];
        let nqn = subsystem.nqn.clone();
        let namespace = subsystem.namespace_mut(job.nsid);
        let Some(namespace) = namespace.filter(|n| n.generation == job.namespace) else { return };
        if let Backend::File(store) = &mut namespace.backend {
            store.lost_writes += 1;
        }
        self.tell(TargetEvent::FlushFailed { subsystem: nqn, nsid: job.nsid, error });
    }

    /// Whether the job's controller has still to hear of a failed flush; it does so now.
    fn take_lost_write(&mut self, job: &Job) -> bool {
        let alive = self.conns.get(job.place).is_some_and(|conn| {
            conn.generation == job.generation && conn.controller() == Some(job.controller)
        });
        let Some(controller) = self.controllers[job.controller].as_mut().filter(|_| alive) else {
            return false;
        };
        match self.subsystems[job.subsystem].namespace(job.nsid) {
            Some(namespace) if namespace.generation == job.namespace => {
                lost_write(controller, namespace)
            }
            _ => false,
        }
    }
}
