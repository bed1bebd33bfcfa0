//! A user that does everything a user can do, on several devices, drawn from a seed.

use crate::register::{Ended, Extent, Moment, Register, fill};
use crate::spans::{Span, Spans};
use crate::wire::Settled;
use anabranch_host::topology::HeadView;
use anabranch_host::user::{Done, IoError, Refused, Request, RequestOp, Submit, User};
use anabranch_lab::rng::Rng;
use anabranch_proto::machine::{BufRef, Buffers, ConnId, Gather, Input, Output, Time, WorkerId};
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Blocks of a device that one worker uses.
pub(crate) const REGION: u64 = 128;

/// Blocks of one request when everything is read in the end.
const PIECE: u32 = 8;

/// Until a user asks again that was refused or found no memory.
const PAUSE: Duration = Duration::from_micros(300);

/// One withdrawal takes back one in so many of a worker's requests to a device.
const WITHDRAWN: u64 = 3;

/// What a worker is to do.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) devices: Vec<String>,
    /// From this device on, they may go: requests to them may fail.
    pub(crate) safe: usize,
    pub(crate) requests: u64,
    pub(crate) depth: usize,
    pub(crate) most_blocks: u32,
    /// Of a thousand requests so many are followed by a withdrawal.
    pub(crate) withdrawals: u64,
    /// How often the target has lost its power.
    pub(crate) power_cuts: Arc<AtomicU64>,
    pub(crate) seed: u64,
}

/// What a worker has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) answered: u64,
    pub(crate) failed: u64,
    pub(crate) withdrawn: u64,
    pub(crate) verified: u64,
    /// Blocks that a loss of power has taken back.
    pub(crate) lost: u64,
    /// What flushes have made durable.
    pub(crate) settled: Vec<Settled>,
    pub(crate) spans: Spans,
    /// What must not be.
    pub(crate) wrong: Vec<String>,
}

impl Seen {
    /// Takes in what another worker has seen.
    pub(crate) fn add(&mut self, other: &Seen) {
        self.answered += other.answered;
        self.failed += other.failed;
        self.withdrawn += other.withdrawn;
        self.verified += other.verified;
        self.lost += other.lost;
        self.settled.extend(&other.settled);
        self.spans.add(&other.spans);
        self.wrong.extend(other.wrong.iter().cloned());
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Read,
    Write,
    Zero,
    Discard,
    Compare,
    Flush,
}

struct Flying {
    device: usize,
    what: What,
    extent: Extent,
    buf: Option<BufRef>,
    /// Force unit access.
    durable: bool,
    asked: Moment,
    since: Time,
    withdrawn: bool,
    /// Power was lost since it was asked for.
    power_lost: bool,
}

/// The user on one worker.
#[derive(Default)]
pub(crate) struct Everything {
    outputs: VecDeque<Output<Job, (), Infallible>>,
    work: Option<Work>,
    pub(crate) seen: Seen,
}

struct Work {
    job: Job,
    rng: Rng,
    left: u64,
    next: u64,
    registers: Vec<Register>,
    flying: BTreeMap<u64, Flying>,
    pause: Option<Time>,
    /// Answers so far.
    answers: Moment,
    power_cuts: u64,
    /// Blocks of devices that are still to be read.
    unread: VecDeque<(usize, Extent)>,
}

impl Everything {
    pub(crate) fn is_done(&self) -> bool {
        self.work
            .as_ref()
            .is_some_and(|work| work.left == 0 && work.flying.is_empty() && work.unread.is_empty())
    }

    /// The first time it is asked it does its job, the second time it reads everything.
    fn begin(&mut self, job: Job, worker: WorkerId) {
        let first = REGION * u64::from(worker.0 - 1);
        if let Some(work) = &mut self.work {
            for device in 0..work.job.safe {
                let pieces = (first..first + REGION).step_by(PIECE as usize);
                let pieces = pieces.map(|lba| (device, Extent { lba, blocks: PIECE }));
                work.unread.extend(pieces);
            }
            return;
        }
        let devices = 0..job.devices.len();
        self.work = Some(Work {
            rng: Rng::new(job.seed ^ u64::from(worker.0) << 40),
            left: job.requests,
            next: 0,
            registers: devices.map(|it| Register::new(it, first, REGION as usize)).collect(),
            flying: BTreeMap::new(),
            pause: None,
            answers: 0,
            power_cuts: 0,
            unread: VecDeque::new(),
            job,
        });
    }

    fn advance(&mut self, now: Time, host: &mut dyn Submit, bufs: &mut dyn Buffers) {
        let Some(work) = &mut self.work else { return };
        if work.pause.is_some_and(|until| now < until) {
            return;
        }
        work.pause = None;
        work.look_at_power();
        while work.flying.len() < work.job.depth {
            let submitted = match (work.left, work.unread.is_empty()) {
                (0, true) => return,
                (0, false) => work.read_next(now, host, bufs),
                _ => work.submit_one(now, host, bufs),
            };
            if !submitted {
                work.pause = Some(now.after(PAUSE));
                return;
            }
        }
    }
}

impl Work {
    /// Draws a request and submits it; `false` when it is better to wait.
    fn submit_one(&mut self, now: Time, host: &mut dyn Submit, bufs: &mut dyn Buffers) -> bool {
        let device = self.rng.below(self.job.devices.len() as u64) as usize;
        let name = &self.job.devices[device];
        let Some(head) = host.heads().iter().find(|head| head.name == *name).cloned() else {
            // It has gone; there may be no other.
            self.left -= u64::from(device >= self.job.safe);
            return false;
        };
        let what = [
            (40, What::Read),
            (75, What::Write),
            (80, What::Zero),
            (84, What::Discard),
            (90, What::Compare),
            (100, What::Flush),
        ];
        let draw = self.rng.below(100);
        let what = what.iter().find(|(below, _)| draw < *below).map_or(What::Read, |it| it.1);
        let blocks = 1 + self.rng.below(u64::from(self.job.most_blocks)) as u32;
        let at = self.rng.below(REGION - u64::from(blocks) + 1);
        let extent = match what {
            What::Flush => Extent::default(),
            _ => self.registers[device].extent(at, blocks),
        };
        if !self.registers_claim(device, extent) {
            return false;
        }
        let taken = self.make(device, what, extent, &head, bufs);
        let taken =
            taken.map(|(op, buf)| self.submit(now, (device, &head), (what, extent, op), buf, host));
        let Some(taken) = taken else {
            self.registers_release(device, extent);
            return false;
        };
        let Err((refused, buf)) = taken else {
            if self.rng.below(1000) < self.job.withdrawals {
                self.withdraw(device, &head, host);
            }
            return true;
        };
        buf.into_iter().for_each(|buf| bufs.free(buf));
        self.registers_release(device, extent);
        let may_be = device >= self.job.safe || refused == Refused::Full;
        assert!(may_be || refused == Refused::NotSupported, "{refused:?}");
        self.left -= u64::from(refused != Refused::Full);
        false
    }

    fn registers_claim(&mut self, device: usize, extent: Extent) -> bool {
        extent.blocks == 0 || self.registers[device].claim(extent)
    }

    fn registers_release(&mut self, device: usize, extent: Extent) {
        if extent.blocks > 0 {
            self.registers[device].release(extent);
        }
    }

    /// The request, with its memory; `None` where there is none, or nothing to compare with.
    fn make(
        &mut self,
        device: usize,
        what: What,
        Extent { lba, blocks }: Extent,
        head: &Arc<HeadView>,
        bufs: &mut dyn Buffers,
    ) -> Option<(RequestOp, Option<BufRef>)> {
        let carries = matches!(what, What::Read | What::Write | What::Compare);
        let buf = match carries {
            true => Some(bufs.alloc(blocks * head.block_bytes)?),
            false => None,
        };
        let fua = self.rng.percent(20);
        let op = match (what, buf) {
            (What::Read, Some(buf)) => RequestOp::Read { lba, blocks, buf },
            (What::Write, Some(buf)) => {
                let bytes = bufs.bytes_mut(buf).chunks_mut(head.block_bytes as usize);
                (lba..).zip(bytes).for_each(|(lba, to)| fill(device, lba, self.next + 1, to));
                RequestOp::Write { lba, blocks, buf, fua }
            }
            (What::Compare, Some(buf)) => {
                let extent = Extent { lba, blocks };
                if !self.registers[device].certain(extent, bufs.bytes_mut(buf)) {
                    bufs.free(buf);
                    return None;
                }
                RequestOp::Compare { lba, blocks, buf }
            }
            (What::Zero, _) => {
                let deallocate = self.rng.percent(50);
                RequestOp::WriteZeroes { lba, blocks: blocks.into(), deallocate }
            }
            (What::Discard, _) => RequestOp::Discard { lba, blocks: blocks.into() },
            _ => RequestOp::Flush,
        };
        Some((op, buf))
    }

    /// In the end: the next piece of all that is to be read; `false` when it is better to wait.
    fn read_next(&mut self, now: Time, host: &mut dyn Submit, bufs: &mut dyn Buffers) -> bool {
        let Some(&(device, extent)) = self.unread.front() else { return false };
        let heads = host.heads();
        let Some(head) = heads.iter().find(|head| head.name == self.job.devices[device]).cloned()
        else {
            return false;
        };
        let Some(buf) = bufs.alloc(extent.blocks * head.block_bytes) else { return false };
        let op = RequestOp::Read { lba: extent.lba, blocks: extent.blocks, buf };
        let done = self.submit(now, (device, &head), (What::Read, extent, op), Some(buf), host);
        if done.is_err() {
            bufs.free(buf);
            return false;
        }
        self.registers_claim(device, extent);
        self.unread.pop_front();
        true
    }

    fn submit(
        &mut self,
        now: Time,
        (device, head): (usize, &HeadView),
        (what, extent, op): (What, Extent, RequestOp),
        buf: Option<BufRef>,
        host: &mut dyn Submit,
    ) -> Result<(), (Refused, Option<BufRef>)> {
        let (withdrawn, power_lost) = (false, false);
        let durable = match op {
            RequestOp::Write { fua, .. } => fua,
            _ => false,
        };
        let (asked, since) = (self.answers, now);
        let flying =
            Flying { device, what, extent, buf, durable, asked, since, withdrawn, power_lost };
        let tag = self.next + 1;
        match host.submit(now, Request { head: head.id, op, tag }) {
            Ok(()) => {
                self.next = tag;
                self.left = self.left.saturating_sub(1);
                self.flying.insert(tag, flying);
                Ok(())
            }
            Err(refused) => Err((refused, flying.buf)),
        }
    }

    fn withdraw(&mut self, device: usize, head: &HeadView, host: &mut dyn Submit) {
        let rest = self.rng.below(WITHDRAWN);
        let theirs = |tag: u64| tag % WITHDRAWN == rest;
        host.withdraw(head.id, &theirs);
        for (&tag, flying) in &mut self.flying {
            flying.withdrawn |= flying.device == device && theirs(tag);
        }
    }

    /// What power was lost under can have happened before that, or after.
    fn look_at_power(&mut self) {
        let cuts = self.job.power_cuts.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.power_cuts, cuts) != cuts {
            self.registers.iter_mut().for_each(Register::power_lost);
            self.flying.values_mut().for_each(|flying| flying.power_lost = true);
        }
    }

    fn completed(&mut self, now: Time, done: Done, seen: &mut Seen, bufs: &mut dyn Buffers) {
        self.look_at_power();
        self.answers += 1;
        let flying = self.flying.remove(&done.tag).expect("a request is answered once");
        let Flying { device, what, extent, buf, durable, asked, since, withdrawn, power_lost } =
            flying;
        self.registers_release(device, extent);
        let (well, at) = (done.result.is_ok(), self.answers);
        let ended = Ended { well, durable, power_lost, at };
        let nsid = device as u32 + 1;
        let span = Span { asked: since, ended: now, nsid, extent, well, owed: well && !durable };
        if matches!(what, What::Write | What::Zero) {
            seen.spans.writes.push(span);
        }
        let register = &mut self.registers[device];
        match what {
            What::Write => register.written(extent, done.tag, ended),
            What::Zero => register.written(extent, 0, ended),
            // The blocks may be zero then, or not.
            What::Discard => register.written(extent, 0, Ended { well: false, ..ended }),
            What::Read if well && device < self.job.safe => {
                let bytes = bufs.bytes(buf.expect("a read has a buffer"));
                seen.verified += u64::from(extent.blocks);
                match register.verify(extent, bytes, power_lost, at) {
                    Ok(lost) => seen.lost += lost,
                    Err(wrong) => seen.wrong.push(wrong),
                }
            }
            What::Flush if well && !power_lost => {
                let settled = register.flushed(asked).into_iter();
                let settled = settled.map(|lba| Settled { asked: since, ended: now, nsid, lba });
                seen.settled.extend(settled);
                seen.spans.flushes.push(span);
            }
            What::Read | What::Compare | What::Flush => {}
        }
        buf.into_iter().for_each(|buf| bufs.free(buf));
        match done.result {
            Ok(()) => seen.answered += 1,
            Err(IoError::Withdrawn) if withdrawn => seen.withdrawn += 1,
            Err(_) if device >= self.job.safe => seen.failed += 1,
            // What it was compared with has gone.
            Err(IoError::Status(_)) if power_lost && what == What::Compare => seen.failed += 1,
            Err(error) => seen.wrong.push(format!("{what:?} {extent:?} of {device}: {error}")),
        }
    }
}

impl User for Everything {
    type Mail = Job;
    type Verb = Job;
    type Reply = ();
    type Event = Infallible;

    fn handle(
        &mut self,
        now: Time,
        input: Input<'_, Job, Job>,
        host: &mut dyn Submit,
        bufs: &mut dyn Buffers,
    ) {
        match input {
            Input::Verb { verb, .. } => {
                for worker in 1..host.workers() {
                    let mail = verb.clone();
                    self.outputs.push_back(Output::Mail { to: WorkerId(worker), mail });
                }
            }
            Input::Mail { mail, .. } => {
                self.begin(mail, host.worker());
                self.advance(now, host, bufs);
            }
            Input::Timeout => self.advance(now, host, bufs),
            _ => {}
        }
    }

    fn completed(&mut self, now: Time, done: Done, host: &mut dyn Submit, bufs: &mut dyn Buffers) {
        let work = self.work.as_mut().expect("only what was submitted is answered");
        work.completed(now, done, &mut self.seen, bufs);
        self.advance(now, host, bufs);
    }

    fn heads_changed(&mut self, now: Time, host: &mut dyn Submit, bufs: &mut dyn Buffers) {
        self.advance(now, host, bufs);
    }

    fn poll_output(&mut self) -> Option<Output<Job, (), Infallible>> {
        self.outputs.pop_front()
    }

    fn poll_transmit(&mut self, _: Time, _: ConnId, _: &mut dyn Gather, _: &mut dyn Buffers) {}

    fn poll_timeout(&mut self) -> Option<Time> {
        self.work.as_ref()?.pause
    }
}
