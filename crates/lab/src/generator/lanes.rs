//! What this worker's threads ask for: drawing requests and their addresses.

use super::plan::Plan;
use super::slots::Slot;
use crate::pace::{self, Chains, Source, Thread};
use crate::rng::Rng;
use crate::scenario::{Arrival, Hosts, Job, Order, PerOp, Target};
use anabranch_host::topology::HeadView;
use anabranch_policy::OpClass;

/// Parts a thread's chain of addresses from its chain of requests.
const PLACES: u64 = 0x0070_6c61_6365_7321;

/// Where a job works: blocks.
#[derive(Clone, Copy, Debug)]
struct Region {
    first: u64,
    blocks: u64,
}

/// A thread on this worker.
#[derive(Debug)]
struct Lane {
    thread: Thread,
    places: Rng,
    /// The next block of a sequential job, from the region's first.
    cursor: u64,
}

/// The arrivals of an open loop, as far as they concern this worker.
#[derive(Debug)]
struct Arrivals {
    source: Source,
    /// The lane of each thread of the job; `None` for those of other workers.
    lanes: Vec<Option<u32>>,
    /// The next that concerns this worker: when, and for which lane.
    next: (u64, u32),
}

impl Arrivals {
    /// On to the next one of ours. At least one lane is.
    fn advance(&mut self) {
        loop {
            let at = self.source.next_ns();
            let thread = self.source.next_thread() - self.source.first_thread;
            if let Some(lane) = self.lanes[thread as usize] {
                self.next = (at, lane);
                return;
            }
        }
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    arrivals: Vec<Arrivals>,
    regions: Vec<Region>,
    block_shift: u32,
}

impl Lanes {
    /// The threads of worker `me` of `workers`, from 0, on this head.
    ///
    /// # Errors
    /// A job that does not fit on the head, in words.
    pub(super) fn new(
        plan: &Plan,
        me: u32,
        workers: u32,
        head: &HeadView,
    ) -> Result<Lanes, String> {
        let regions = plan.jobs.iter().map(|job| region(job, head)).collect::<Result<_, _>>()?;
        let mut chain = Chains::new(plan.seed, plan.paths).load;
        chain.skip(pace::draws_per_host(&plan.jobs).wrapping_mul(u64::from(plan.host)));
        let load = pace::load_of_host(&plan.jobs, workers, &mut chain);
        let mut place = vec![None; load.threads.len()];
        let mut lanes = Vec::new();
        for (thread, place) in load.threads.into_iter().zip(&mut place) {
            if thread.worker == me {
                *place = Some(lanes.len() as u32);
                let places = Rng::new(thread.rng.clone().next_u64() ^ PLACES);
                lanes.push(Lane { thread, places, cursor: 0 });
            }
        }
        let mut arrivals = Vec::new();
        for source in load.sources {
            let first = source.first_thread as usize;
            let lanes = place[first..][..source.threads() as usize].to_vec();
            if lanes.iter().any(Option::is_some) {
                let mut own = Arrivals { source, lanes, next: (0, 0) };
                own.advance();
                arrivals.push(own);
            }
        }
        let block_shift = head.block_bytes.trailing_zeros();
        Ok(Lanes { lanes, arrivals, regions, block_shift })
    }

    pub(super) fn len(&self) -> usize {
        self.lanes.len()
    }

    pub(super) fn has_arrivals(&self) -> bool {
        !self.arrivals.is_empty()
    }

    /// The job that a lane belongs to.
    #[inline]
    pub(super) fn job_of(&self, lane: u32) -> usize {
        self.lanes[lane as usize].thread.job as usize
    }

    /// Draws a lane's next request into its slot. When it may start that would like to `now`, in
    /// nanoseconds since the beginning (an open loop does not ask).
    #[inline]
    pub(super) fn draw(&mut self, jobs: &[Job], slot: &mut Slot, now_ns: u64) -> u64 {
        let lane = &mut self.lanes[slot.lane as usize];
        let index = lane.thread.job as usize;
        let (job, region) = (&jobs[index], &self.regions[index]);
        let asked = lane.thread.next(job, now_ns);
        (slot.op, slot.bytes) = (asked.op, asked.bytes);
        let bytes = match slot.op {
            OpClass::Other => job.sizes.trim.draw(&mut lane.places),
            OpClass::Read | OpClass::Write => slot.bytes,
        };
        slot.blocks = bytes >> self.block_shift;
        let blocks = u64::from(slot.blocks);
        let at = match job.order {
            Order::Random => lane.places.below(region.blocks / blocks) * blocks,
            Order::Sequential => {
                if lane.cursor + blocks > region.blocks {
                    lane.cursor = 0;
                }
                let at = lane.cursor;
                lane.cursor += blocks;
                at
            }
        };
        slot.lba = region.first + at;
        asked.at_ns
    }

    /// When the next request of an open loop is meant to start here.
    #[inline]
    pub(super) fn next_arrival_ns(&self) -> Option<u64> {
        self.arrivals.iter().map(|arrivals| arrivals.next.0).min()
    }

    /// The next such request that is due by then: when it was meant to start, and its lane.
    #[inline]
    pub(super) fn pop_arrival(&mut self, now_ns: u64) -> Option<(u64, u32)> {
        let due = self.arrivals.iter_mut().filter(|arrivals| arrivals.next.0 <= now_ns);
        let first = due.min_by_key(|arrivals| arrivals.next.0)?;
        let next = first.next;
        first.advance();
        Some(next)
    }
}

/// Where a job works on this head, once that is known to be possible.
fn region(job: &Job, head: &HeadView) -> Result<Region, String> {
    let block = u64::from(head.block_bytes);
    let size_bytes = head.blocks.saturating_mul(block);
    let target = Target { block_bytes: head.block_bytes, size_bytes, ..Target::default() };
    // A worker that is not there is another one here.
    let hosts = Hosts { workers: u32::MAX, ..Hosts::default() };
    let problem = |text: String| format!("job {:?} on {}: {text}", job.name, head.name);
    job.check(&target, &hosts).map_err(|found| problem(found.to_string()))?;
    let limits = &head.limits;
    if job.mix.trim > 0 && limits.max_discard_blocks == 0 {
        return Err(problem("the device supports no deallocate: leave out trims".to_owned()));
    }
    if job.mix.write + job.mix.trim > 0 && limits.read_only {
        return Err(problem("the device is read-only".to_owned()));
    }
    let (first, end) = job.region(&target);
    Ok(Region { first: first / block, blocks: (end - first) / block })
}

/// The longest payload of a job; 0 when it has none.
pub(super) fn largest_payload(job: &Job) -> u32 {
    let PerOp { read, write, .. } = &job.sizes;
    let of = |percent: u32, sizes: &crate::scenario::Sizes| {
        if percent > 0 { sizes.largest() } else { 0 }
    };
    of(job.mix.read, read).max(of(job.mix.write, write))
}

/// Requests that a lane of this job keeps open by itself.
pub(super) fn depth(job: &Job) -> u32 {
    match job.arrival {
        Arrival::Closed => job.depth,
        Arrival::Poisson { .. } => 0,
    }
}
