//! What the load generator itself costs per I/O: on a host that takes everything and answers it at
//! once. `cargo run --release -p anabranch-lab --example generator_speed`

use anabranch_host::topology::{HeadId, HeadView, Limits};
use anabranch_host::user::{Done, Refused, Request, Submit, User};
use anabranch_lab::generator::{Generator, GeneratorMail, GeneratorVerb, Payload, Plan};
use anabranch_lab::scenario::{Arrival, BlockSize, Job, Mix, Order, PerOp, Sizes};
use anabranch_lab::sim::SimBuffers;
use anabranch_proto::machine::{Input, Time, WorkerId};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// Takes everything.
struct Host {
    heads: Vec<Arc<HeadView>>,
    taken: VecDeque<u64>,
}

impl Submit for Host {
    fn submit(&mut self, _now: Time, request: Request) -> Result<(), Refused> {
        self.taken.push_back(request.tag);
        Ok(())
    }

    fn heads(&self) -> &[Arc<HeadView>] {
        &self.heads
    }

    fn worker(&self) -> WorkerId {
        WorkerId(1)
    }

    fn workers(&self) -> u16 {
        2
    }
}

const HEAD: HeadId = HeadId(0);

fn head() -> HeadView {
    let limits = Limits {
        max_transfer_bytes: 1 << 20,
        max_write_zeroes_blocks: 0,
        max_discard_blocks: 1,
        volatile_write_cache: false,
        compare: false,
        read_only: false,
    };
    HeadView {
        id: HEAD,
        name: "nvme0n1".to_owned(),
        blocks: 1 << 20,
        block_bytes: 4096,
        limits,
        parameters: Default::default(),
        policy_epoch: 0,
        paths: Vec::new(),
        queue_if_no_path: false,
        gone: false,
        quiesced: 0,
        frozen: 0,
        max_retries: 0,
        explain_sample: 0,
    }
}

/// Nanoseconds per I/O of one job, and how many there were.
fn measure(job: &Job, payload: Payload) -> (u64, u64) {
    let mut host = Host { heads: vec![Arc::new(head())], taken: VecDeque::with_capacity(1 << 17) };
    let (mut generator, mut bufs) = (Generator::new(), SimBuffers::default());
    let plan = Plan {
        jobs: Arc::from([job.clone()]),
        device: "nvme0n1".to_owned(),
        host: 0,
        paths: 2,
        seed: 1,
        begin: Time::ZERO,
        ramp_ns: 0,
        window_ns: 1_000_000_000,
        clock: None,
        payload,
    };
    let (from, mail) = (WorkerId(0), GeneratorMail::Start(Box::new(plan)));
    generator.handle(Time::ZERO, Input::Mail { from, mail }, &mut host, &mut bufs);
    let (mut ios, began) = (0, Instant::now());
    let mut now = 0;
    while now < 1_000_000_000 {
        match host.taken.pop_front() {
            Some(tag) => {
                now += 250;
                ios += 1;
                let done = Done { head: HEAD, tag, result: Ok(()) };
                generator.completed(Time::from_ns(now), done, &mut host, &mut bufs);
            }
            None => {
                let Some(at) = generator.poll_timeout() else { break };
                now = now.max(at.ns());
                generator.handle(at, Input::<GeneratorVerb, _>::Timeout, &mut host, &mut bufs);
            }
        }
    }
    let ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    (ns / ios.max(1), ios)
}

fn main() {
    let plain = Job { order: Order::Random, depth: 32, clones: 4, ..Job::default() };
    let split = [4096, 65_536].map(|bytes| BlockSize { bytes, weight: 50 });
    let mixed = Job {
        mix: Mix { read: 70, write: 29, trim: 1 },
        sizes: PerOp::all(Sizes::Split(split.to_vec())),
        ..plain.clone()
    };
    let writes = Job { mix: Mix { read: 0, write: 100, trim: 0 }, ..plain.clone() };
    let paced = Job { rate_iops: PerOp::all(Some(500_000)), ..plain.clone() };
    let open = Job { arrival: Arrival::Poisson { iops: 2_000_000 }, ..plain.clone() };
    println!("{:<24} {:>10} {:>12}", "job", "I/Os", "ns per I/O");
    for (name, job, payload) in [
        ("random 4k reads", &plain, Payload::Plain),
        ("writes, stamped", &writes, Payload::Stamped),
        ("mixed", &mixed, Payload::Plain),
        ("rate_iops", &paced, Payload::Plain),
        ("Poisson", &open, Payload::Plain),
    ] {
        let runs = (0..5).map(|_| measure(job, payload));
        let (each, ios) = runs.min().unwrap_or_default();
        println!("{name:<24} {ios:>10} {each:>12}");
    }
}
