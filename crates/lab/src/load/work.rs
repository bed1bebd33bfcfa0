//! One job on one stretch of a device: what to ask next, what the answers were worth.
//!
//! It knows neither how requests travel nor how many are under way: a load on a head and a load
//! through NBD both draw from it.

use super::check::{Extent, Register};
use super::job::{Device, Job, JobError};
use super::report::{LoadReport, TOLD_MISMATCHES};
use crate::rng::Rng;
use anabranch_proto::machine::Time;
use std::fmt;
use std::time::Duration;

/// How often a free extent is sought before a slot waits for the next completion.
const DRAWS_MAX: u32 = 32;

/// Pause after a failed request, so that a device that fails everything at once does not make us
/// spin.
const ERROR_PAUSE: Duration = Duration::from_millis(10);

/// Which part of a job this is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// From 0.
    pub(crate) index: u16,
    /// How many there are.
    pub(crate) of: u16,
}

/// A request that was drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drawn {
    pub(crate) extent: Extent,
    /// The write's sequence number; 0 = a read.
    sequence: u64,
}

impl Drawn {
    pub(crate) fn is_read(self) -> bool {
        self.sequence == 0
    }
}

pub(crate) struct Work {
    job: Job,
    rng: Rng,
    block_bytes: u32,
    first: u64,
    blocks: u64,
    cursor: u64,
    register: Option<Register>,
    sequence: u64,
    submitted: u64,
    report: LoadReport,
    began: Time,
    last_completion: Time,
    pause_until: Option<Time>,
}

impl Work {
    /// A share of `job` on `device`, from `now` on.
    ///
    /// # Errors
    /// The job does not fit the device.
    pub(crate) fn new(job: Job, share: Share, device: Device, now: Time) -> Result<Work, JobError> {
        job.check(device, share.of)?;
        let blocks = job.blocks_each(device, share.of).unwrap_or(0);
        let mut first = job.offset / u64::from(device.block_bytes);
        if job.verify {
            first += blocks * u64::from(share.index);
        }
        let writer = u32::from(share.index) + 1;
        let register = job.verify.then(|| Register::new(job.seed, writer, first, blocks as usize));
        Ok(Work {
            rng: Rng::new(job.seed ^ (u64::from(share.index) << 48)),
            job,
            block_bytes: device.block_bytes,
            first,
            blocks,
            cursor: first,
            register,
            sequence: 0,
            submitted: 0,
            report: LoadReport::default(),
            began: now,
            last_completion: now,
            pause_until: None,
        })
    }

    /// The figures up to `now`.
    pub(crate) fn report(&self, now: Time) -> LoadReport {
        let mut report = self.report.clone();
        report.elapsed = now.since(self.began);
        report
    }

    /// The figures up to the last completion.
    pub(crate) fn final_report(&self) -> LoadReport {
        self.report(self.last_completion)
    }

    /// Until when nothing is submitted.
    pub(crate) fn pause(&self) -> Option<Time> {
        self.pause_until
    }

    /// Whether a request may be drawn now: no pause runs, and the limit is not reached.
    pub(crate) fn may_draw(&mut self, now: Time) -> bool {
        if self.pause_until.is_some_and(|until| now < until) {
            return false;
        }
        self.pause_until = None;
        self.job.number_ios.is_none_or(|most| self.submitted < most)
    }

    pub(crate) fn bytes(&self, drawn: Drawn) -> u32 {
        drawn.extent.blocks * self.block_bytes
    }

    /// First byte on the device.
    pub(crate) fn offset(&self, drawn: Drawn) -> u64 {
        drawn.extent.lba * u64::from(self.block_bytes)
    }

    /// Draws a request; `None` when all that was drawn is in use (only when verifying). It ends in
    /// [`Work::completed`] or [`Work::give_back`].
    #[inline(always)]
    pub(crate) fn draw(&mut self) -> Option<Drawn> {
        let read = self.rng.percent(self.job.read_percent);
        let extent = self.draw_extent()?;
        Some(Drawn { extent, sequence: if read { 0 } else { self.sequence + 1 } })
    }

    /// An extent that no request covers now (when verifying), or any.
    #[inline(always)]
    fn draw_extent(&mut self) -> Option<Extent> {
        let blocks = self.job.draw_size(&mut self.rng) / self.block_bytes;
        for _ in 0..DRAWS_MAX {
            let places = self.blocks / u64::from(blocks);
            let lba = if self.job.random {
                self.first + self.rng.below(places) * u64::from(blocks)
            } else {
                if self.cursor + u64::from(blocks) > self.first + self.blocks {
                    self.cursor = self.first;
                }
                let lba = self.cursor;
                self.cursor += u64::from(blocks);
                lba
            };
            let extent = Extent { lba, blocks };
            if self.register.as_mut().is_none_or(|register| register.claim(extent)) {
                return Some(extent);
            }
        }
        None
    }

    /// Fills the payload of a write, if it is to be verified.
    pub(crate) fn fill(&self, drawn: Drawn, payload: &mut [u8]) {
        if let Some(register) = &self.register {
            register.fill(drawn.extent, drawn.sequence, payload);
        }
    }

    /// The request is on its way.
    pub(crate) fn submitted(&mut self, drawn: Drawn) {
        self.sequence = self.sequence.max(drawn.sequence);
        self.submitted += 1;
    }

    /// The request could not be submitted.
    pub(crate) fn give_back(&mut self, drawn: Drawn) {
        if let Some(register) = &mut self.register {
            register.release(drawn.extent);
        }
    }

    /// A request has ended. `data` is what a read has brought.
    pub(crate) fn completed<E: fmt::Display>(
        &mut self,
        now: Time,
        submitted: Time,
        drawn: Drawn,
        result: Result<(), E>,
        data: &[u8],
    ) {
        let gap = now.since(self.last_completion);
        self.report.longest_gap = self.report.longest_gap.max(gap);
        self.last_completion = now;
        self.check(drawn, result.is_ok(), data);
        match result {
            Ok(()) => {
                let op = usize::from(!drawn.is_read());
                self.report.requests[op] += 1;
                self.report.bytes[op] += u64::from(self.bytes(drawn));
                let latency_ns = now.since(submitted).as_nanos() as u64;
                self.report.latency_ns[op].record(latency_ns);
                if !self.job.thinktime.is_zero() {
                    self.pause_until = Some(now.after(self.job.thinktime));
                }
            }
            Err(error) => {
                self.report.errors += 1;
                self.report.first_error.get_or_insert_with(|| error.to_string());
                self.pause_until = Some(now.after(ERROR_PAUSE));
            }
        }
    }

    fn check(&mut self, drawn: Drawn, well: bool, data: &[u8]) {
        let Some(register) = &mut self.register else { return };
        register.release(drawn.extent);
        if !drawn.is_read() {
            register.written(drawn.extent, drawn.sequence, well);
        } else if well {
            let report = &mut self.report;
            report.blocks_verified += register.verify(drawn.extent, data, |mismatch| {
                report.verify_errors += 1;
                if report.mismatches.len() < TOLD_MISMATCHES {
                    report.mismatches.push(mismatch.to_string());
                }
            });
        }
    }
}
