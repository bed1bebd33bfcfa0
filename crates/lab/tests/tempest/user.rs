//! A user that does everything a user can do, on several devices, drawn from a seed.

use crate::register::{Extent, Register, fill};
use anabranch_host::topology::HeadView;
use anabranch_host::user::{Done, IoError, Refused, Request, RequestOp, Submit, User};
use anabranch_lab::rng::Rng;
use anabranch_proto::machine::{BufRef, Buffers, ConnId, Gather, Input, Output, Time, WorkerId};
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// Blocks of a device that one worker uses.
pub(crate) const REGION: u64 = 128;

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
    pub(crate) seed: u64,
}

/// What a worker has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) answered: u64,
    pub(crate) failed: u64,
    pub(crate) withdrawn: u64,
    pub(crate) verified: u64,
    /// What must not be.
    pub(crate) wrong: Vec<String>,
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
    withdrawn: bool,
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
}

impl Everything {
    pub(crate) fn is_done(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.left == 0 && work.flying.is_empty())
    }

    fn begin(&mut self, job: Job, worker: WorkerId) {
        let first = REGION * u64::from(worker.0 - 1);
        let devices = 0..job.devices.len();
        self.work = Some(Work {
            rng: Rng::new(job.seed ^ u64::from(worker.0) << 40),
            left: job.requests,
            next: 0,
            registers: devices.map(|it| Register::new(it, first, REGION as usize)).collect(),
            flying: BTreeMap::new(),
            pause: None,
            job,
        });
    }

    fn advance(&mut self, now: Time, host: &mut dyn Submit, bufs: &mut dyn Buffers) {
        let Some(work) = &mut self.work else { return };
        if work.pause.is_some_and(|until| now < until) {
            return;
        }
        work.pause = None;
        while work.left > 0 && work.flying.len() < work.job.depth {
            if !work.submit_one(now, host, bufs) {
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
        let taken = self.make(device, what, extent, &head, bufs).map(|(op, buf)| {
            let flying = Flying { device, what, extent, buf, withdrawn: false };
            self.submit(now, &head, op, flying, host)
        });
        let Some(taken) = taken else {
            self.registers_release(device, extent);
            return false;
        };
        let Err((refused, flying)) = taken else {
            if self.rng.below(1000) < self.job.withdrawals {
                self.withdraw(device, &head, host);
            }
            return true;
        };
        flying.buf.into_iter().for_each(|buf| bufs.free(buf));
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
                RequestOp::WriteZeroes { lba, blocks: blocks.into(), deallocate, fua }
            }
            (What::Discard, _) => RequestOp::Discard { lba, blocks: blocks.into() },
            _ => RequestOp::Flush,
        };
        Some((op, buf))
    }

    fn submit(
        &mut self,
        now: Time,
        head: &HeadView,
        op: RequestOp,
        flying: Flying,
        host: &mut dyn Submit,
    ) -> Result<(), (Refused, Flying)> {
        let tag = self.next + 1;
        match host.submit(now, Request { head: head.id, op, tag }) {
            Ok(()) => {
                self.next = tag;
                self.left -= 1;
                self.flying.insert(tag, flying);
                Ok(())
            }
            Err(refused) => Err((refused, flying)),
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

    fn completed(&mut self, done: Done, seen: &mut Seen, bufs: &mut dyn Buffers) {
        let flying = self.flying.remove(&done.tag).expect("a request is answered once");
        let Flying { device, what, extent, buf, withdrawn } = flying;
        self.registers_release(device, extent);
        let well = done.result.is_ok();
        let register = &mut self.registers[device];
        match what {
            What::Write => register.written(extent, done.tag, well),
            What::Zero => register.written(extent, 0, well),
            // The blocks may be zero then, or not.
            What::Discard => register.written(extent, 0, false),
            What::Read if well && device < self.job.safe => {
                let bytes = bufs.bytes(buf.expect("a read has a buffer"));
                seen.verified += u64::from(extent.blocks);
                seen.wrong.extend(register.verify(extent, bytes).err());
            }
            What::Read | What::Compare | What::Flush => {}
        }
        buf.into_iter().for_each(|buf| bufs.free(buf));
        match done.result {
            Ok(()) => seen.answered += 1,
            Err(IoError::Withdrawn) if withdrawn => seen.withdrawn += 1,
            Err(_) if device >= self.job.safe => seen.failed += 1,
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
        work.completed(done, &mut self.seen, bufs);
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
