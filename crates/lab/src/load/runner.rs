//! One job on one data worker: a fixed number of requests at once, each slot with its buffer.

use super::check::{Extent, Register};
use super::job::{Job, JobError};
use super::report::{LoadReport, TOLD_MISMATCHES};
use crate::rng::Rng;
use anabranch_host::topology::{HeadId, HeadView};
use anabranch_host::user::{Done, Refused, Request, RequestOp, Submit};
use anabranch_proto::machine::{BufRef, Buffers, Time, WorkerId};
use std::sync::Arc;
use std::time::Duration;

/// How often a free extent is sought before a slot waits for the next completion.
const DRAWS_MAX: u32 = 32;

/// Pause after a failed request, so that a device that fails everything at once does not make us
/// spin.
const ERROR_PAUSE: Duration = Duration::from_millis(10);

struct InFlight {
    extent: Extent,
    /// The write's sequence number; 0 = a read.
    sequence: u64,
    submitted: Time,
}

struct Slot {
    buf: BufRef,
    in_flight: Option<InFlight>,
}

/// Where the job works, once the device is known.
struct Region {
    head: HeadId,
    block_bytes: u32,
    first: u64,
    blocks: u64,
    cursor: u64,
    register: Option<Register>,
}

pub(super) struct Runner {
    job: Job,
    index: u16,
    shares: u16,
    rng: Rng,
    region: Option<Region>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    sequence: u64,
    submitted: u64,
    running: bool,
    report: LoadReport,
    began: Option<Time>,
    last_completion: Option<Time>,
    pause_until: Option<Time>,
}

impl Runner {
    pub(super) fn new(job: Job, worker: WorkerId, workers: u16) -> Runner {
        let index = worker.0.saturating_sub(1);
        Runner {
            rng: Rng::new(job.seed ^ (u64::from(index) << 48)),
            job,
            index,
            shares: workers.saturating_sub(1).max(1),
            region: None,
            slots: Vec::new(),
            free: Vec::new(),
            sequence: 0,
            submitted: 0,
            running: true,
            report: LoadReport::default(),
            began: None,
            last_completion: None,
            pause_until: None,
        }
    }

    pub(super) fn stop(&mut self) {
        self.running = false;
        self.pause_until = None;
    }

    pub(super) fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    pub(super) fn wake(&self) -> Option<Time> {
        self.pause_until
    }

    pub(super) fn report(&self, now: Time) -> LoadReport {
        let mut report = self.report.clone();
        report.elapsed = self.began.map_or(Duration::ZERO, |began| now.since(began));
        report
    }

    pub(super) fn finish(&mut self, now: Time, bufs: &mut dyn Buffers) -> LoadReport {
        self.slots.drain(..).for_each(|slot| bufs.free(slot.buf));
        self.free.clear();
        let end = self.last_completion.unwrap_or(now);
        self.report(end)
    }

    /// Submits on every free slot.
    pub(super) fn advance(
        &mut self,
        now: Time,
        host: &mut dyn Submit,
        bufs: &mut dyn Buffers,
    ) -> Result<(), JobError> {
        if !self.running || self.pause_until.is_some_and(|until| now < until) {
            return Ok(());
        }
        self.pause_until = None;
        if self.region.is_none() {
            let Some(head) = host.heads().iter().find(|head| head.name == self.job.device) else {
                return Ok(());
            };
            let head = Arc::clone(head);
            self.prepare(&head, bufs).inspect_err(|_| self.running = false)?;
            self.began = Some(now);
            self.last_completion = Some(now);
        }
        while let Some(&slot) = self.free.last() {
            if self.job.number_ios.is_some_and(|most| self.submitted >= most) {
                break;
            }
            match self.submit(slot, now, host, bufs) {
                Ok(true) => {
                    self.submitted += 1;
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

    fn prepare(&mut self, head: &HeadView, bufs: &mut dyn Buffers) -> Result<(), JobError> {
        let block = u64::from(head.block_bytes);
        self.job.check(head.block_bytes, head.blocks * block)?;
        let all = self.job.size.map_or(head.blocks - self.job.offset / block, |size| size / block);
        let mut first = self.job.offset / block;
        let mut blocks = all;
        if self.job.verify {
            blocks = all / u64::from(self.shares);
            first += blocks * u64::from(self.index);
        }
        let largest = u64::from(self.job.largest()) / block;
        if blocks < largest {
            let text = format!("the region of {blocks} blocks is smaller than one request");
            return Err(JobError(text));
        }
        let writer = u32::from(self.index) + 1;
        let register =
            self.job.verify.then(|| Register::new(self.job.seed, writer, first, blocks as usize));
        let (head_id, block_bytes, cursor) = (head.id, head.block_bytes, first);
        self.region = Some(Region { head: head_id, block_bytes, first, blocks, cursor, register });
        for slot in 0..self.job.depth_on(self.index, self.shares) as usize {
            let Some(buf) = bufs.alloc(self.job.largest()) else { break };
            self.slots.push(Slot { buf, in_flight: None });
            self.free.push(slot);
        }
        if self.slots.is_empty() && self.job.depth_on(self.index, self.shares) > 0 {
            return Err(JobError("no buffer left for the load".into()));
        }
        Ok(())
    }

    /// Draws a request and submits it; `false` when none can be submitted now.
    fn submit(
        &mut self,
        slot: usize,
        now: Time,
        host: &mut dyn Submit,
        bufs: &mut dyn Buffers,
    ) -> Result<bool, Refused> {
        let read = self.rng.percent(self.job.read_percent);
        let Some(extent) = self.draw_extent() else { return Ok(false) };
        let Some(region) = &mut self.region else { return Ok(false) };
        let buf = self.slots[slot].buf.slice(0, extent.blocks * region.block_bytes);
        let sequence = if read { 0 } else { self.sequence + 1 };
        if let Some(register) = &region.register
            && !read
        {
            register.fill(extent, sequence, bufs.bytes_mut(buf));
        }
        let Extent { lba, blocks } = extent;
        let op = if read {
            RequestOp::Read { lba, blocks, buf }
        } else {
            RequestOp::Write { lba, blocks, buf, fua: false }
        };
        let request = Request { head: region.head, op, tag: slot as u64 };
        match host.submit(now, request) {
            Ok(()) => {
                self.sequence = self.sequence.max(sequence);
                self.slots[slot].in_flight = Some(InFlight { extent, sequence, submitted: now });
                Ok(true)
            }
            Err(refused) => {
                if let Some(register) = &mut region.register {
                    register.release(extent);
                }
                if matches!(refused, Refused::Full | Refused::NotHere) {
                    Ok(false)
                } else {
                    Err(refused)
                }
            }
        }
    }

    /// An extent that no request covers now (when verifying), or any.
    fn draw_extent(&mut self) -> Option<Extent> {
        let bytes = self.job.draw_size(&mut self.rng);
        let region = self.region.as_mut()?;
        let blocks = bytes / region.block_bytes;
        for _ in 0..DRAWS_MAX {
            let places = region.blocks / u64::from(blocks);
            let lba = if self.job.random {
                region.first + self.rng.below(places) * u64::from(blocks)
            } else {
                if region.cursor + u64::from(blocks) > region.first + region.blocks {
                    region.cursor = region.first;
                }
                let lba = region.cursor;
                region.cursor += u64::from(blocks);
                lba
            };
            let extent = Extent { lba, blocks };
            if region.register.as_mut().is_none_or(|register| register.claim(extent)) {
                return Some(extent);
            }
        }
        None
    }

    pub(super) fn completed(&mut self, now: Time, done: Done, bufs: &mut dyn Buffers) {
        let index = done.tag as usize;
        let Some(slot) = self.slots.get_mut(index) else { return };
        let request = slot.in_flight.take().expect("a request is answered once");
        let buf = slot.buf;
        self.free.push(index);
        if let Some(last) = self.last_completion.replace(now) {
            self.report.longest_gap = self.report.longest_gap.max(now.since(last));
        }
        let Some(region) = &mut self.region else { return };
        let bytes = request.extent.blocks * region.block_bytes;
        let write = request.sequence != 0;
        if let Some(register) = &mut region.register {
            register.release(request.extent);
            if write {
                register.written(request.extent, request.sequence, done.result.is_ok());
            } else if done.result.is_ok() {
                let data = bufs.bytes(buf.slice(0, bytes));
                let report = &mut self.report;
                report.blocks_verified += register.verify(request.extent, data, |mismatch| {
                    report.verify_errors += 1;
                    if report.mismatches.len() < TOLD_MISMATCHES {
                        report.mismatches.push(mismatch.to_string());
                    }
                });
            }
        }
        match done.result {
            Ok(()) => {
                let op = usize::from(write);
                self.report.requests[op] += 1;
                self.report.bytes[op] += u64::from(bytes);
                let latency_ns = now.since(request.submitted).as_nanos() as u64;
                self.report.latency_ns[op].record(latency_ns);
                if !self.job.thinktime.is_zero() && self.running {
                    self.pause_until = Some(now.after(self.job.thinktime));
                }
            }
            Err(error) => {
                self.report.errors += 1;
                self.report.first_error.get_or_insert_with(|| error.to_string());
                self.pause_until = self.running.then(|| now.after(ERROR_PAUSE));
            }
        }
    }
}
