//! One job on one data worker: a fixed number of requests at once, each slot with its buffer.

use super::job::{Device, Job, JobError};
use super::report::LoadReport;
use super::work::{Drawn, Share, Work};
use anabranch_host::topology::{HeadId, HeadView};
use anabranch_host::user::{Done, Refused, Request, RequestOp, Submit};
use anabranch_proto::machine::{BufRef, Buffers, Time, WorkerId};
use std::sync::Arc;

struct InFlight {
    drawn: Drawn,
    submitted: Time,
}

struct Slot {
    buf: BufRef,
    in_flight: Option<InFlight>,
}

/// What the job does, once the device is known.
struct OnHead {
    head: HeadId,
    work: Work,
}

/// This part of the pool a load leaves to those that do I/O beside it.
const LEFT_TO_OTHERS: u64 = 4;

pub(super) struct Runner {
    job: Job,
    share: Share,
    on: Option<OnHead>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    running: bool,
    rejected: Option<String>,
}

impl Runner {
    pub(super) fn new(job: Job, worker: WorkerId, workers: u16) -> Runner {
        let index = worker.0.saturating_sub(1);
        Runner {
            job,
            share: Share { index, of: workers.saturating_sub(1).max(1) },
            on: None,
            slots: Vec::new(),
            free: Vec::new(),
            running: true,
            rejected: None,
        }
    }

    pub(super) fn stop(&mut self) {
        self.running = false;
    }

    pub(super) fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    pub(super) fn wake(&self) -> Option<Time> {
        self.on.as_ref().filter(|_| self.running).and_then(|on| on.work.pause())
    }

    pub(super) fn report(&self, now: Time) -> LoadReport {
        self.told(self.on.as_ref().map(|on| on.work.report(now)).unwrap_or_default())
    }

    pub(super) fn finish(&mut self, bufs: &mut dyn Buffers) -> LoadReport {
        let report = self.on.as_ref().map(|on| on.work.final_report()).unwrap_or_default();
        let report = self.told(report);
        self.slots.drain(..).for_each(|slot| bufs.free(slot.buf));
        self.free.clear();
        report
    }

    /// What only the runner knows.
    fn told(&self, report: LoadReport) -> LoadReport {
        LoadReport { rejected: self.rejected.clone(), depth: self.slots.len() as u64, ..report }
    }

    /// Submits on every free slot.
    ///
    /// # Errors
    /// The job does not fit the device, or the host refuses a request; nothing more is submitted.
    pub(super) fn advance(
        &mut self,
        now: Time,
        host: &mut dyn Submit,
        bufs: &mut dyn Buffers,
    ) -> Result<(), JobError> {
        self.try_advance(now, host, bufs).inspect_err(|error| {
            self.rejected = Some(error.to_string());
        })
    }

    fn try_advance(
        &mut self,
        now: Time,
        host: &mut dyn Submit,
        bufs: &mut dyn Buffers,
    ) -> Result<(), JobError> {
        if !self.running {
            return Ok(());
        }
        if self.on.is_none() {
            let Some(head) = host.heads().iter().find(|head| head.is_called(&self.job.device))
            else {
                return Ok(());
            };
            let head = Arc::clone(head);
            self.prepare(now, &head, bufs).inspect_err(|_| self.running = false)?;
        }
        let Some(on) = &mut self.on else { return Ok(()) };
        while on.work.may_draw(now)
            && let Some(&slot) = self.free.last()
        {
            match on.submit(slot, &mut self.slots[slot], now, host, bufs) {
                Ok(true) => {
                    self.free.pop();
                }
                Ok(false) => break,
                Err(refused) => {
                    self.running = false;
                    return Err(JobError(format!("{}: {refused}", self.job.device)));
                }
            }
        }
        Ok(())
    }

    fn prepare(
        &mut self,
        now: Time,
        head: &HeadView,
        bufs: &mut dyn Buffers,
    ) -> Result<(), JobError> {
        let device = Device { block_bytes: head.block_bytes, blocks: head.blocks };
        let work = Work::new(self.job.clone(), self.share, device, now)?;
        self.on = Some(OnHead { head: head.id, work });
        let (largest, most) = (self.job.largest(), bufs.max_alloc());
        if largest > most {
            let text = format!("a request of {largest} bytes exceeds a buffer, at most {most}");
            return Err(JobError(text));
        }
        let depth = self.job.depth_on(self.share.index, self.share.of);
        // The load keeps its buffers until it ends: some of the pool stays for others' I/O.
        let others = bufs.capacity() / LEFT_TO_OTHERS;
        for slot in 0..depth as usize {
            if slot > 0 && bufs.spare() <= others {
                break;
            }
            let Some(buf) = bufs.alloc(largest) else { break };
            self.slots.push(Slot { buf, in_flight: None });
            self.free.push(slot);
        }
        if self.slots.is_empty() && depth > 0 {
            return Err(JobError("no buffer left for the load".into()));
        }
        Ok(())
    }

    pub(super) fn completed(&mut self, now: Time, done: Done, bufs: &mut dyn Buffers) {
        let index = done.tag as usize;
        let Some(slot) = self.slots.get_mut(index) else { return };
        let request = slot.in_flight.take().expect("a request is answered once");
        self.free.push(index);
        let Some(on) = &mut self.on else { return };
        let data = bufs.bytes(slot.buf.slice(0, on.work.bytes(request.drawn)));
        on.work.completed(now, request.submitted, request.drawn, done.result, data);
    }
}

impl OnHead {
    /// Draws a request and submits it; `false` when none can be submitted now.
    fn submit(
        &mut self,
        index: usize,
        slot: &mut Slot,
        now: Time,
        host: &mut dyn Submit,
        bufs: &mut dyn Buffers,
    ) -> Result<bool, Refused> {
        let Some(drawn) = self.work.draw() else { return Ok(false) };
        let buf = slot.buf.slice(0, self.work.bytes(drawn));
        let (lba, blocks) = (drawn.extent.lba, drawn.extent.blocks);
        let op = if drawn.is_read() {
            RequestOp::Read { lba, blocks, buf }
        } else {
            self.work.fill(drawn, bufs.bytes_mut(buf));
            RequestOp::Write { lba, blocks, buf, fua: false }
        };
        match host.submit(now, Request { head: self.head, op, tag: index as u64 }) {
            Ok(()) => {
                self.work.submitted(drawn);
                slot.in_flight = Some(InFlight { drawn, submitted: now });
                Ok(true)
            }
            Err(refused) => {
                self.work.give_back(drawn);
                if matches!(refused, Refused::Full | Refused::NotHere) {
                    Ok(false)
                } else {
                    Err(refused)
                }
            }
        }
    }
}
