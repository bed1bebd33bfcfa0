//! What jobs ask for and when, in integers from a seed: the same in every kind of run.
//!
//! A job's clones are [`Thread`]s, each with a chain of draws of its own, spread over the workers
//! of a host. What a thread asks for depends on the seed alone: not on the policy, not on how long
//! requests take; only where a job mixes reads and writes and has a `rate` or `rate_iops`, the one
//! that is due takes the turn of the one that is not. When it asks depends on its completions
//! (closed loop), on its `rate`, `rate_iops` and `thinktime`, or on a [`Source`] (open loop).

mod draw;

pub use draw::{FRACTION, exponential, exponential_ns};

use crate::rng::Rng;
use crate::scenario::{Arrival, Job};
use anabranch_policy::OpClass;

/// The chains of draws of one run, as its seed gives them.
#[derive(Clone, Debug)]
pub struct Chains {
    /// Three seeds for each path: of its link to the target, of that back, of its brownouts.
    pub ports: Vec<[u64; 3]>,
    /// Of service times.
    pub service: Rng,
    /// Of the jobs: for [`load_of_host`], host after host.
    pub load: Rng,
}

impl Chains {
    /// The chains of a run over so many paths.
    #[must_use]
    pub fn new(seed: u64, paths: usize) -> Chains {
        let mut rng = Rng::new(seed);
        let ports = (0..paths).map(|_| core::array::from_fn(|_| rng.next_u64())).collect();
        Chains { ports, service: rng.split(), load: rng }
    }
}

/// The load that one host makes.
#[derive(Clone, Debug)]
pub struct HostLoad {
    /// The clones of the first job, then those of the second, and so on.
    pub threads: Vec<Thread>,
    /// One for each job whose arrivals are an open loop.
    pub sources: Vec<Source>,
}

/// The threads of all jobs on a host, and what wakes those of open loops. Clones go to the workers
/// in turn, all jobs together; those of a job with `workers` of its own in turn over these (taken
/// modulo the number that there are).
pub fn load_of_host(jobs: &[Job], workers: u32, rng: &mut Rng) -> HostLoad {
    let mut load = HostLoad { threads: Vec::new(), sources: Vec::new() };
    let mut turn = 0;
    for (index, job) in jobs.iter().enumerate() {
        let first_thread = load.threads.len() as u32;
        for clone in 0..job.clones {
            let worker = match job.workers.as_slice() {
                [] => turn,
                some => some[clone as usize % some.len()],
            };
            turn += 1;
            load.threads.push(Thread::new(rng.split(), index as u32, worker % workers));
        }
        if let Arrival::Poisson { iops } = job.arrival {
            load.sources.push(Source {
                rng: rng.split(),
                per_second: iops,
                next: 0,
                first_thread,
                threads: job.clones,
                turn: 0,
            });
        }
    }
    load
}

/// How many draws [`load_of_host`] takes from its chain.
#[must_use]
pub fn draws_per_host(jobs: &[Job]) -> u64 {
    let of = |job: &Job| u64::from(job.clones) + u64::from(job.arrival != Arrival::Closed);
    jobs.iter().map(of).sum()
}

/// A request that a thread asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its class.
    pub op: OpClass,
    /// Its payload: none for trims.
    pub bytes: u32,
    /// When it may start, in nanoseconds since the run began.
    pub at_ns: u64,
}

/// A clone of a job.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Its draws, in the order of its requests.
    pub rng: Rng,
    /// The place of its job.
    pub job: u32,
    /// The worker it runs on, from 0.
    pub worker: u32,
    /// When the next read, write, other may start (`rate`).
    due_ns: [u64; 3],
}

impl Thread {
    fn new(rng: Rng, job: u32, worker: u32) -> Thread {
        Thread { rng, job, worker, due_ns: [0; 3] }
    }

    /// Draws the next request, which would like to start `now`, in nanoseconds since the run began:
    /// the first requests of a thread ask at 0. An open loop starts it then, whatever comes back.
    #[inline]
    pub fn next(&mut self, job: &Job, now: u64) -> Asked {
        // Nobody thinks before the first request.
        let at = if now == 0 { 0 } else { now + job.thinktime_ns };
        let drawn = job.mix.draw(&mut self.rng);
        let op = self.direction(job, drawn, at);
        let bytes = match op {
            // Trims move no data.
            OpClass::Other => 0,
            OpClass::Read | OpClass::Write => job.sizes.of(op).draw(&mut self.rng),
        };
        let due = &mut self.due_ns[op as usize];
        let at_ns = at.max(*due);
        // What was missed is caught up, as fio does it.
        *due = due.saturating_add(pause_ns(job, op, bytes));
        Asked { op, bytes, at_ns }
    }

    /// Reads and writes are paced each for itself. Where the one that was drawn is not due yet and
    /// the other is, or is so earlier, it is the other's turn: fio's `rate_ddir`.
    #[inline]
    fn direction(&self, job: &Job, drawn: OpClass, at: u64) -> OpClass {
        let due = |op: OpClass| self.due_ns[op as usize];
        // Without a rate that is always so.
        if due(drawn) <= at {
            return drawn;
        }
        let other = match drawn {
            OpClass::Read => OpClass::Write,
            OpClass::Write => OpClass::Read,
            OpClass::Other => return drawn,
        };
        let is_asked_for = *job.mix.of(other) > 0;
        if is_asked_for && due(other) < due(drawn) { other } else { drawn }
    }
}

/// How long a request keeps the next one of its class waiting (`rate`, `rate_iops`).
#[inline]
fn pause_ns(job: &Job, op: OpClass, bytes: u32) -> u64 {
    let (iops, rate) = (*job.rate_iops.of(op), *job.rate_bytes.of(op));
    let pause = |amount: u64, rate: Option<u64>| {
        (amount * 1_000_000_000).checked_div(rate.unwrap_or(0)).unwrap_or(0)
    };
    let counted = match op {
        OpClass::Other => pause(1, iops),
        // As fio does, which makes a rate of bytes of it.
        OpClass::Read | OpClass::Write => {
            let smallest = || job.sizes.of(op).smallest().into();
            pause(bytes.into(), iops.map(|iops| iops.saturating_mul(smallest())))
        }
    };
    counted.max(pause(bytes.into(), rate))
}

/// Where the requests of an open loop come from: one per host and job. Its threads take them in
/// turn.
#[derive(Clone, Debug)]
pub struct Source {
    rng: Rng,
    per_second: u64,
    /// The next request, with [`FRACTION`] fraction bits of a nanosecond.
    next: u128,
    /// The place of the job's first thread.
    pub first_thread: u32,
    threads: u32,
    turn: u32,
}

impl Source {
    /// When the next request arrives, in nanoseconds since the run began.
    #[inline]
    pub fn next_ns(&mut self) -> u64 {
        let gap = u128::from(exponential(&mut self.rng)) * 1_000_000_000;
        self.next += gap / u128::from(self.per_second);
        (self.next >> FRACTION) as u64
    }

    /// How many threads take turns.
    #[must_use]
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// The thread that takes the request.
    #[inline]
    pub fn next_thread(&mut self) -> u32 {
        let thread = self.first_thread + self.turn;
        self.turn = (self.turn + 1) % self.threads;
        thread
    }
}
