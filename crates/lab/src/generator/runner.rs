//! One plan on one data worker. Times are nanoseconds since the beginning of the run, but for
//! those of type [`Time`].

use super::figures::HostFigures;
use super::lanes::{Lanes, depth, largest_payload};
use super::plan::{Payload, Plan};
use super::record::Record;
use super::slots::{MAX_OPEN, Slot, Stage, Timers};
use super::stamp;
use anabranch_host::topology::{HeadId, HeadView};
use anabranch_host::user::{Done, Refused, Request, RequestOp, Submit};
use anabranch_policy::OpClass;
use anabranch_proto::machine::{BufRef, Buffers, Time, WorkerId};
use std::collections::VecDeque;
use std::sync::Arc;

/// A slot pauses so long after a failed request, so that a device that fails everything at once
/// does not make us spin; a worker that takes no requests is asked again after it.
const ERROR_PAUSE_NS: u64 = 10_000_000;

/// What exists as soon as the device is known.
struct Work {
    head: HeadId,
    block_bytes: u32,
    lanes: Lanes,
    /// First those of closed loops. There is room for all that may come: it never moves.
    slots: Vec<Slot>,
    most_slots: usize,
    timers: Timers,
    /// Requests that have begun, and that the host has not taken yet.
    ready: VecDeque<u32>,
    /// Free slots of open loops.
    free: Vec<u32>,
    /// The longest payload of open loops: the length of their slots' buffers.
    open_bytes: u32,
    in_flight: u32,
}

pub(super) struct Runner {
    plan: Box<Plan>,
    me: u32,
    workers: u32,
    work: Option<Work>,
    record: Record,
    rejected: Option<String>,
    /// The window is over: the books are closed, nothing is submitted any more.
    closed: bool,
    /// The host or the pool had no room: the next completion makes some.
    full: bool,
    /// So many of the requests that are ready, the first ones, are known to wait for room.
    waiting: usize,
    /// When to try again, if no completion will tell.
    retry_ns: Option<u64>,
}

impl Runner {
    pub(super) fn new(plan: Box<Plan>, worker: WorkerId, workers: u16) -> Runner {
        Runner {
            record: Record::new(&plan),
            plan,
            me: u32::from(worker.0.saturating_sub(1)),
            workers: u32::from(workers.saturating_sub(1).max(1)),
            work: None,
            rejected: None,
            closed: false,
            full: false,
            waiting: 0,
            retry_ns: None,
        }
    }

    /// The window is over, and everything that was submitted has ended.
    pub(super) fn is_over(&self) -> bool {
        self.closed && self.work.as_ref().is_none_or(|work| work.in_flight == 0)
    }

    /// When something is to be done that no completion brings.
    pub(super) fn wake(&self) -> Option<Time> {
        if self.closed {
            return None;
        }
        let mut next = self.plan.end_ns();
        if let Some(work) = &self.work {
            let due = [work.timers.next_ns(), work.lanes.next_arrival_ns(), self.retry_ns];
            next = due.into_iter().flatten().fold(next, u64::min);
        }
        Some(Time::from_ns(self.plan.begin.ns().saturating_add(next)))
    }

    /// Gives the buffers back.
    ///
    /// # Errors
    /// Why the plan could not be run.
    pub(super) fn finish(self, bufs: &mut dyn Buffers) -> Result<Box<HostFigures>, String> {
        if let Some(work) = self.work {
            let taken = work.slots.iter().map(|slot| slot.buf).filter(|buf| !buf.is_empty());
            taken.for_each(|buf| bufs.free(buf));
        }
        match self.rejected {
            Some(words) => Err(words),
            None => Ok(self.record.finish()),
        }
    }

    #[inline]
    fn since_begin(&self, now: Time) -> u64 {
        now.ns().saturating_sub(self.plan.begin.ns())
    }

    /// Begins what is due and submits it; closes the books when the window is over.
    ///
    /// # Errors
    /// The plan cannot be run, in words; told once.
    pub(super) fn advance(
        &mut self,
        now: Time,
        host: &mut dyn Submit,
        bufs: &mut dyn Buffers,
    ) -> Result<(), String> {
        if self.closed {
            return Ok(());
        }
        let end = self.plan.end_ns();
        let now_ns = self.since_begin(now);
        if self.work.is_none() {
            let head = host.heads().iter().find(|head| head.name == self.plan.device);
            let made = match head.map(Arc::clone) {
                Some(head) => self.prepare(&head, bufs),
                None if now_ns < end => return Ok(()),
                None => Err(format!("there is no device {}", self.plan.device)),
            };
            if let Err(words) = made {
                self.closed = true;
                self.rejected = Some(words.clone());
                return Err(words);
            }
        }
        if now < self.plan.begin {
            return Ok(());
        }
        if now_ns >= end {
            self.close();
        } else {
            self.begin_due(now_ns);
            self.submit_ready(now, host, bufs);
        }
        Ok(())
    }

    /// Makes the tables, and draws the first requests.
    fn prepare(&mut self, head: &HeadView, bufs: &mut dyn Buffers) -> Result<(), String> {
        let jobs = &self.plan.jobs;
        let mut lanes = Lanes::new(&self.plan, self.me, self.workers, head)?;
        let mut slots = Vec::new();
        let mut open_bytes = 0;
        for lane in 0..lanes.len() as u32 {
            let job = &jobs[lanes.job_of(lane)];
            slots.resize(slots.len() + depth(job) as usize, Slot::new(lane));
            if depth(job) == 0 {
                open_bytes = open_bytes.max(largest_payload(job));
            }
        }
        let closed = slots.len();
        let open = if lanes.has_arrivals() { MAX_OPEN } else { 0 };
        slots.reserve_exact(open);
        let mut timers = Timers::with_capacity(closed);
        for (index, slot) in slots.iter_mut().enumerate() {
            slot.start_ns = lanes.draw(jobs, slot, 0);
            slot.stage = Stage::Planned;
            timers.plan(slot.start_ns, index as u32);
        }
        let mut work = Work {
            head: head.id,
            block_bytes: head.block_bytes,
            lanes,
            slots,
            most_slots: closed + open,
            timers,
            ready: VecDeque::with_capacity(closed + open),
            free: Vec::with_capacity(open),
            open_bytes,
            in_flight: 0,
        };
        let filled = work.take_buffers(&self.plan, bufs);
        // Also when it failed: `finish` gives back what was taken.
        self.work = Some(work);
        filled
    }

    /// Everything that was meant to start by then begins.
    #[inline]
    fn begin_due(&mut self, now_ns: u64) {
        let Some(work) = &mut self.work else { return };
        while let Some((at_ns, slot)) = work.timers.pop(now_ns) {
            work.begin(slot, at_ns, &mut self.record);
        }
        while let Some((at_ns, lane)) = work.lanes.pop_arrival(now_ns) {
            match work.open_slot(lane) {
                Some(index) => {
                    let slot = &mut work.slots[index as usize];
                    work.lanes.draw(&self.plan.jobs, slot, at_ns);
                    work.begin(index, at_ns, &mut self.record);
                }
                None => self.record.refused(),
            }
        }
    }

    /// The window is over: what has begun and not ended counts as open.
    fn close(&mut self) {
        self.begin_due(self.plan.end_ns().saturating_sub(1));
        self.closed = true;
        let Some(work) = &self.work else { return };
        let open = |slot: &&Slot| matches!(slot.stage, Stage::Ready | Stage::InFlight);
        work.slots.iter().filter(open).for_each(|slot| self.record.open(slot));
    }

    #[inline]
    fn submit_ready(&mut self, now: Time, host: &mut dyn Submit, bufs: &mut dyn Buffers) {
        let now_ns = self.since_begin(now);
        if self.full && self.retry_ns.is_none_or(|at| now_ns < at) {
            return self.all_wait();
        }
        (self.full, self.retry_ns) = (false, None);
        loop {
            let Some(work) = &mut self.work else { return };
            let Some(&index) = work.ready.front() else { return };
            let stamped = self.plan.payload == Payload::Stamped;
            let refused = match work.request(index, stamped, bufs) {
                Some(request) => host.submit(now, request).err(),
                None => Some(Refused::Full),
            };
            match refused {
                None => {
                    work.ready.pop_front();
                    self.waiting = self.waiting.saturating_sub(1);
                    work.in_flight += 1;
                    let slot = &mut work.slots[index as usize];
                    slot.stage = Stage::InFlight;
                    let taken = self.plan.clock.map_or(now, |clock| clock());
                    let taken_ns = taken.ns().saturating_sub(self.plan.begin.ns());
                    self.record.taken(slot, taken_ns);
                }
                Some(Refused::Full | Refused::NotHere) => {
                    self.full = true;
                    if work.in_flight == 0 {
                        self.retry_ns = Some(now_ns.saturating_add(ERROR_PAUSE_NS));
                    }
                    return self.all_wait();
                }
                Some(refused) => {
                    work.ready.pop_front();
                    self.waiting = self.waiting.saturating_sub(1);
                    self.record.error(|| format!("{}: {refused}", self.plan.device));
                    self.ended(index, now_ns, false);
                }
            }
        }
    }

    /// There is no room for what is ready.
    fn all_wait(&mut self) {
        let ready = self.work.as_ref().map_or(0, |work| work.ready.len());
        self.record.waited(ready - self.waiting);
        self.waiting = ready;
    }

    /// A request of ours has ended.
    #[inline]
    pub(super) fn completed(&mut self, now: Time, done: Done, bufs: &mut dyn Buffers) {
        let now_ns = self.since_begin(now);
        if !self.closed && now_ns >= self.plan.end_ns() {
            self.close();
        }
        let Some(work) = &mut self.work else { return };
        let index = u32::try_from(done.tag).expect("our own tag");
        let slot = &work.slots[index as usize];
        assert!(slot.stage == Stage::InFlight, "a request is answered once");
        work.in_flight -= 1;
        if self.closed {
            work.slots[index as usize].stage = Stage::Free;
            return;
        }
        self.full = false;
        let mut well = true;
        if let Err(error) = done.result {
            well = false;
            self.record.error(|| error.to_string());
        } else if self.plan.payload == Payload::Stamped && slot.op == OpClass::Read {
            let data = bufs.bytes(slot.buf.slice(0, slot.bytes));
            if let Err(words) = stamp::check(data, slot.lba, work.block_bytes as usize) {
                well = false;
                self.record.error(|| format!("{}: {words}", self.plan.device));
            }
        }
        self.ended(index, now_ns, well);
    }

    /// Records it, and plans the slot's next request.
    #[inline]
    fn ended(&mut self, index: u32, now_ns: u64, well: bool) {
        let Some(work) = &mut self.work else { return };
        let slot = &mut work.slots[index as usize];
        let job = work.lanes.job_of(slot.lane);
        self.record.ended(slot, job, now_ns, well);
        slot.stage = Stage::Free;
        if depth(&self.plan.jobs[job]) == 0 {
            work.free.push(index);
            return;
        }
        let mut at_ns = work.lanes.draw(&self.plan.jobs, slot, now_ns);
        if !well {
            at_ns = at_ns.max(now_ns.saturating_add(ERROR_PAUSE_NS));
        }
        if at_ns > now_ns {
            slot.stage = Stage::Planned;
            work.timers.plan(at_ns, index);
        } else {
            work.begin(index, at_ns, &mut self.record);
        }
    }
}

impl Work {
    /// A buffer for each slot of a closed loop. Those of open loops take theirs when they are used
    /// for the first time.
    fn take_buffers(&mut self, plan: &Plan, bufs: &mut dyn Buffers) -> Result<(), String> {
        let slots = self.slots.len();
        let longest = self.open_bytes.min(bufs.max_alloc());
        if longest < self.open_bytes {
            return Err(too_long(self.open_bytes, longest));
        }
        for slot in &mut self.slots {
            let bytes = largest_payload(&plan.jobs[self.lanes.job_of(slot.lane)]);
            if bytes == 0 {
                continue;
            }
            if bytes > bufs.max_alloc() {
                return Err(too_long(bytes, bufs.max_alloc()));
            }
            slot.buf = bufs.alloc(bytes).ok_or_else(|| {
                format!("no memory for {slots} requests at once; use less iodepth or numjobs")
            })?;
        }
        Ok(())
    }

    /// A request begins.
    #[inline]
    fn begin(&mut self, index: u32, at_ns: u64, record: &mut Record) {
        let slot = &mut self.slots[index as usize];
        slot.start_ns = at_ns;
        slot.stage = Stage::Ready;
        record.begun(slot);
        self.ready.push_back(index);
    }

    /// A free slot of an open loop.
    #[inline]
    fn open_slot(&mut self, lane: u32) -> Option<u32> {
        if let Some(index) = self.free.pop() {
            self.slots[index as usize].lane = lane;
            return Some(index);
        }
        if self.slots.len() == self.most_slots {
            return None;
        }
        self.slots.push(Slot::new(lane));
        Some(self.slots.len() as u32 - 1)
    }

    /// What the host is asked; `None` while the pool has no buffer.
    #[inline]
    fn request(&mut self, index: u32, stamped: bool, bufs: &mut dyn Buffers) -> Option<Request> {
        let slot = &mut self.slots[index as usize];
        if slot.bytes > 0 && slot.buf.is_empty() {
            slot.buf = bufs.alloc(self.open_bytes)?;
        }
        let (lba, blocks) = (slot.lba, slot.blocks);
        let buf: BufRef = slot.buf.slice(0, slot.bytes);
        let op = match slot.op {
            OpClass::Read => RequestOp::Read { lba, blocks, buf },
            OpClass::Write => {
                if stamped {
                    stamp::fill(bufs.bytes_mut(buf), lba, self.block_bytes as usize);
                }
                RequestOp::Write { lba, blocks, buf, fua: false }
            }
            OpClass::Other => RequestOp::Discard { lba, blocks: u64::from(blocks) },
        };
        Some(Request { head: self.head, op, tag: u64::from(index) })
    }
}

fn too_long(bytes: u32, longest: u32) -> String {
    format!("a request of {bytes} bytes is longer than the longest buffer, {longest} bytes")
}
