//! Generators on a device that answers after a fixed time, in virtual time.

use anabranch_host::topology::{HeadId, HeadView, Limits};
use anabranch_host::user::{Done, IoError, Refused, Request, RequestOp, Submit, User};
use anabranch_lab::generator::{
    Generator, GeneratorEvent, GeneratorMail, GeneratorReply, GeneratorVerb, HostFigures, Plan,
};
use anabranch_lab::sim::SimBuffers;
use anabranch_proto::machine::{Buffers, Input, Output, Time, VerbId, WorkerId};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;

/// When runs begin.
pub(crate) const BEGIN: Time = Time::from_ns(7 * SECOND);

/// What the device does.
pub(crate) struct Device {
    /// A request takes so long.
    pub(crate) latency_ns: u64,
    /// Each worker takes so many requests at once.
    pub(crate) room: usize,
    /// Requests of this range of blocks fail.
    pub(crate) broken: std::ops::Range<u64>,
    pub(crate) block_bytes: u32,
    pub(crate) blocks: u64,
    pub(crate) max_discard_blocks: u32,
    /// Its contents; nothing is kept when empty.
    pub(crate) data: Vec<u8>,
}

impl Device {
    pub(crate) fn new(latency_ns: u64) -> Device {
        Device {
            latency_ns,
            room: 1 << 20,
            broken: 0..0,
            block_bytes: 4096,
            blocks: 1 << 18,
            max_discard_blocks: 1 << 16,
            data: Vec::new(),
        }
    }

    /// One that keeps what is written: so many blocks of 512 bytes.
    pub(crate) fn small(latency_ns: u64, blocks: u64) -> Device {
        let data = vec![0; 512 * blocks as usize];
        Device { block_bytes: 512, blocks, data, ..Device::new(latency_ns) }
    }

    fn head(&self) -> HeadView {
        HeadView {
            id: HeadId(3),
            name: "nvme0n1".to_owned(),
            wwid: "uuid.0".to_owned(),
            blocks: self.blocks,
            block_bytes: self.block_bytes,
            limits: Limits {
                max_transfer_bytes: 1 << 20,
                max_write_zeroes_blocks: 0,
                max_discard_blocks: self.max_discard_blocks,
                volatile_write_cache: false,
                compare: false,
                read_only: false,
            },
            parameters: Default::default(),
            policy_epoch: 0,
            paths: Vec::new(),
            queue_if_no_path: false,
            gone: false,
            quiesced: 0,
            frozen: 0,
            max_retries: 0,
            explain_sample: 0,
            zeroes_refused: false,
            written: Arc::default(),
            leftovers: Arc::default(),
            failed_flushes: Arc::default(),
        }
    }

    fn bytes(&self, lba: u64, blocks: u64) -> std::ops::Range<usize> {
        let block = u64::from(self.block_bytes);
        (lba * block) as usize..((lba + blocks) * block) as usize
    }

    fn execute(&mut self, op: RequestOp, bufs: &mut SimBuffers) -> Result<(), IoError> {
        let lba = match op {
            RequestOp::Read { lba, .. } | RequestOp::Write { lba, .. } => lba,
            RequestOp::Discard { lba, .. } => lba,
            _ => unreachable!("a generator asks for nothing else"),
        };
        if self.broken.contains(&lba) {
            return Err(IoError::NoPath);
        }
        if self.data.is_empty() {
            return Ok(());
        }
        match op {
            RequestOp::Read { lba, blocks, buf } => {
                let at = self.bytes(lba, blocks.into());
                bufs.bytes_mut(buf).copy_from_slice(&self.data[at]);
            }
            RequestOp::Write { lba, blocks, buf, .. } => {
                let at = self.bytes(lba, blocks.into());
                self.data[at].copy_from_slice(bufs.bytes(buf));
            }
            RequestOp::Discard { lba, blocks } => {
                let at = self.bytes(lba, blocks);
                self.data[at].fill(0);
            }
            _ => {}
        }
        Ok(())
    }
}

/// A request that the device has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Since [`BEGIN`].
    pub(crate) at_ns: u64,
    pub(crate) worker: usize,
    pub(crate) op: RequestOp,
}

/// What a generator finds on its worker.
struct Seat {
    worker: WorkerId,
    workers: u16,
    heads: Vec<Arc<HeadView>>,
    room: usize,
    in_flight: usize,
    submitted: VecDeque<Request>,
}

impl Submit for Seat {
    fn submit(&mut self, _now: Time, request: Request) -> Result<(), Refused> {
        let head = self.heads.first().ok_or(Refused::NotHere)?;
        assert_eq!(request.head, head.id);
        let (lba, blocks) = match request.op {
            RequestOp::Read { lba, blocks, buf } | RequestOp::Write { lba, blocks, buf, .. } => {
                assert_eq!(buf.len(), blocks * head.block_bytes);
                (lba, u64::from(blocks))
            }
            RequestOp::Discard { lba, blocks } => (lba, blocks),
            other => panic!("{other:?}"),
        };
        if blocks == 0 || lba + blocks > head.blocks {
            return Err(Refused::OutOfRange);
        }
        if self.in_flight == self.room {
            return Err(Refused::Full);
        }
        self.in_flight += 1;
        self.submitted.push_back(request);
        Ok(())
    }

    fn heads(&self) -> &[Arc<HeadView>] {
        &self.heads
    }

    fn worker(&self) -> WorkerId {
        self.worker
    }

    fn workers(&self) -> u16 {
        self.workers
    }
}

/// One host: a generator on each worker.
pub(crate) struct Fake {
    pub(crate) now: Time,
    pub(crate) device: Device,
    pub(crate) bufs: SimBuffers,
    /// What was taken, if it is to be kept.
    pub(crate) taken: Option<Vec<Taken>>,
    pub(crate) events: Vec<GeneratorEvent>,
    generators: Vec<Generator>,
    seats: Vec<Seat>,
    replies: Vec<GeneratorReply>,
    /// When a request ends, its number, its worker, its place in `ops`.
    ends: BinaryHeap<Reverse<(Time, u64, usize, usize)>>,
    submitted: u64,
    ops: Vec<(RequestOp, u64)>,
    free_ops: Vec<usize>,
}

impl Fake {
    /// A host with so many data workers.
    pub(crate) fn new(workers: u16, device: Device) -> Fake {
        let head = Arc::new(device.head());
        let seat = |worker: u16| Seat {
            worker: WorkerId(worker),
            workers: workers + 1,
            heads: if worker == 0 { Vec::new() } else { vec![Arc::clone(&head)] },
            room: if worker == 0 { 0 } else { device.room },
            in_flight: 0,
            submitted: VecDeque::new(),
        };
        Fake {
            now: Time::ZERO,
            seats: (0..=workers).map(seat).collect(),
            generators: (0..=workers).map(|_| Generator::new()).collect(),
            device,
            bufs: SimBuffers::default(),
            taken: Some(Vec::new()),
            events: Vec::new(),
            replies: Vec::new(),
            ends: BinaryHeap::new(),
            submitted: 0,
            ops: Vec::new(),
            free_ops: Vec::new(),
        }
    }

    /// No worker knows the device.
    pub(crate) fn hide_device(&mut self) {
        self.seats.iter_mut().for_each(|seat| seat.heads.clear());
    }

    /// All data workers know it.
    pub(crate) fn show_device(&mut self) {
        let head = Arc::new(self.device.head());
        for worker in 1..self.seats.len() {
            self.seats[worker].heads = vec![Arc::clone(&head)];
            let (generator, seat) = (&mut self.generators[worker], &mut self.seats[worker]);
            generator.heads_changed(self.now, seat, &mut self.bufs);
            self.drain(worker);
        }
    }

    pub(crate) fn start(&mut self, plan: Plan) -> GeneratorReply {
        self.verb(GeneratorVerb::Start(Box::new(plan)));
        self.replies.pop().expect("a start is answered at once")
    }

    pub(crate) fn verb(&mut self, verb: GeneratorVerb) {
        self.give(0, Input::Verb { id: VerbId(1), verb });
    }

    pub(crate) fn take_reply(&mut self) -> Option<GeneratorReply> {
        self.replies.pop()
    }

    /// Collects; runs until that is answered.
    pub(crate) fn collect(&mut self) -> GeneratorReply {
        self.verb(GeneratorVerb::Collect);
        loop {
            if let Some(reply) = self.replies.pop() {
                return reply;
            }
            assert!(self.step(Time::from_ns(u64::MAX)), "the collection is never answered");
        }
    }

    /// Runs a plan from its start to its figures, which must balance.
    pub(crate) fn run(&mut self, plan: Plan) -> Box<HostFigures> {
        assert!(matches!(self.start(plan), GeneratorReply::Started));
        match self.collect() {
            GeneratorReply::Figures(figures) => {
                if let Err(what) = figures.books.check() {
                    panic!("{what}");
                }
                assert_eq!(self.bufs.live(), 0, "buffers are given back");
                figures
            }
            other => panic!("{other:?}"),
        }
    }

    /// Everything up to this time since the beginning, that included.
    pub(crate) fn run_until(&mut self, ns: u64) {
        let end = BEGIN.after(Duration::from_nanos(ns));
        while self.step(end) {}
        self.now = end;
    }

    /// The next thing that happens, if it does by then.
    fn step(&mut self, end: Time) -> bool {
        let wakes = self.generators.iter_mut().enumerate().filter_map(|(worker, generator)| {
            generator.poll_timeout().map(|at| (at.max(self.now), worker))
        });
        let wake = wakes.min();
        let done = self.ends.peek().map(|Reverse((at, ..))| *at);
        match (wake, done) {
            (Some((at, worker)), done) if at <= end && done.is_none_or(|done| at < done) => {
                self.now = at;
                self.give(worker, Input::Timeout);
            }
            (_, Some(done)) if done <= end => self.end_one(),
            _ => return false,
        }
        true
    }

    fn end_one(&mut self) {
        let Some(Reverse((at, _, worker, key))) = self.ends.pop() else { return };
        self.now = at;
        let (op, tag) = self.ops[key];
        self.free_ops.push(key);
        let result = self.device.execute(op, &mut self.bufs);
        let done = Done { head: HeadId(3), tag, result };
        let seat = &mut self.seats[worker];
        seat.in_flight -= 1;
        self.generators[worker].completed(at, done, seat, &mut self.bufs);
        self.drain(worker);
    }

    fn give(&mut self, worker: usize, input: Input<'_, GeneratorVerb, GeneratorMail>) {
        let seat = &mut self.seats[worker];
        self.generators[worker].handle(self.now, input, seat, &mut self.bufs);
        self.drain(worker);
    }

    /// Takes what a worker has submitted and said.
    fn drain(&mut self, worker: usize) {
        while let Some(request) = self.seats[worker].submitted.pop_front() {
            let (op, tag) = (request.op, request.tag);
            if let Some(taken) = &mut self.taken {
                let at_ns = self.now.since(BEGIN).as_nanos() as u64;
                assert!(self.now >= BEGIN, "nothing starts before the beginning");
                taken.push(Taken { at_ns, worker, op });
            }
            let key = self.free_ops.pop().unwrap_or_else(|| {
                self.ops.push((op, tag));
                self.ops.len() - 1
            });
            self.ops[key] = (op, tag);
            self.submitted += 1;
            let at = self.now.after(Duration::from_nanos(self.device.latency_ns));
            self.ends.push(Reverse((at, self.submitted, worker, key)));
        }
        while let Some(output) = self.generators[worker].poll_output() {
            match output {
                Output::Mail { to, mail } => {
                    let from = WorkerId(worker as u16);
                    self.give(usize::from(to.0), Input::Mail { from, mail });
                }
                Output::Reply { reply, .. } => self.replies.push(reply),
                Output::Event(event) => self.events.push(event),
                other => panic!("{other:?}"),
            }
        }
    }
}
