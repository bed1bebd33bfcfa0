//! Everything at once, in virtual time: many workers that share tiny queues, several devices whose
//! ANA groups change and which move between them, connections that break in the middle of data,
//! damaged payload, reads that are rescued while their path is removed, devices that grow and go,
//! workers that do not run for a while.
//! Each request ends exactly once, no acknowledged byte is lost, nothing hangs, nothing is left. In
//! every other run the target has a volatile write cache and loses its power: what was flushed, or
//! written so that it is durable, is still there, although its controllers may take less at once
//! when they are back.
//!
//! `ANABRANCH_SEEDS=N` runs N seeds (from `ANABRANCH_FIRST_SEED` on), `ANABRANCH_SEED=S` runs one
//! and prints what it did.

#[path = "../pair_world/noise.rs"]
mod noise;
mod plan;
mod register;
#[path = "../whole_host/setup.rs"]
mod setup;
mod spans;
mod user;
mod weather;
mod wire;

use anabranch_host::event::HostEvent;
use anabranch_host::load::Charged;
use anabranch_host::topology::ControllerState;
use anabranch_host::verb::{HostSnapshot, Reply, Verb};
use anabranch_host::{Event, Worker};
use anabranch_lab::rng::Rng;
use anabranch_lab::sim::World;
use anabranch_proto::machine::{Endpoint, Time, WorkerId};
use anabranch_target::Target;
use plan::{DEVICES, LARGEST, PORTS_MAX, Plan, SAFE};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use user::{Everything, Job, Seen};
use wire::{Away, Line, Settled};

const MS: Duration = Duration::from_millis(1);

/// How long anything may take once the weather is fine.
const PATIENCE: Duration = Duration::from_secs(120);

/// So long before a controller connects anew its first queue pairs may have been closed.
const CLOSING: u64 = 5_000_000;

/// How long it takes until every worker knows that it is back.
const BACK: Duration = Duration::from_millis(20);

type Pair = World<Worker<Everything>, Target>;

/// What a run has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Outcome {
    trace_hash: u64,
    answered: u64,
    failed: u64,
    withdrawn: u64,
    verified: u64,
    failovers: u64,
    retries: u64,
    reconnects: u64,
    requeued: u64,
    rescued: u64,
    uncertain_writes_resent: u64,
    power_cuts: u64,
    lost: u64,
    settled: u64,
}

impl Outcome {
    fn add(&mut self, other: &Outcome) {
        self.trace_hash ^= other.trace_hash;
        self.answered += other.answered;
        self.failed += other.failed;
        self.withdrawn += other.withdrawn;
        self.verified += other.verified;
        self.failovers += other.failovers;
        self.retries += other.retries;
        self.reconnects += other.reconnects;
        self.requeued += other.requeued;
        self.rescued += other.rescued;
        self.uncertain_writes_resent += other.uncertain_writes_resent;
        self.power_cuts += other.power_cuts;
        self.lost += other.lost;
        self.settled += other.settled;
    }
}

fn run_seed(seed: u64, loud: bool) -> Outcome {
    let mut plan = Plan::draw(seed);
    let workers = Worker::group(&plan.host(), |_| Everything::default());
    let target = Target::new(plan.target(), seed).expect("a valid configuration");
    let mut world: Pair = World::new(workers, vec![target], plan.times, seed);
    for file in (1..=DEVICES).filter_map(|nsid| plan.file(nsid)) {
        let blocks = plan.used_bytes() * LARGEST / u64::from(plan.block_bytes);
        world.give_file(0, file, blocks as usize, plan.block_bytes as usize);
    }
    let line = Rc::new(RefCell::new(Line::new(Rc::clone(&plan.entries), plan.options.queue_size)));
    world.tap(Line::listen(&line, None));
    let at_first = plan.ports - u16::from(plan.late);
    for port in 0..at_first {
        let id = world.host_verb(plan.connect(port));
        let reply = world.host_answer(id, PATIENCE).expect("connect is answered");
        assert!(matches!(reply, Reply::Connected(..)), "{reply:?}");
    }
    // A path that was never there is none to come back.
    while paths(&mut world) < usize::from(at_first) * DEVICES as usize {
        world.run(MS);
    }
    let job = Job {
        devices: (1..=DEVICES).map(|nsid| format!("nvme0n{nsid}")).collect(),
        safe: SAFE,
        requests: plan.requests,
        depth: plan.depth,
        most_blocks: plan.most_blocks,
        withdrawals: plan.withdrawals,
        power_cuts: Arc::clone(&plan.power_cuts),
        seed,
    };
    world.host_verb(Verb::User(job.clone()));
    for port in at_first..plan.ports {
        plan.asked.push(world.host_verb(plan.connect(port)));
    }
    let noise = plan.noise.map(|it| it.tap(Rng::new(seed), Rc::clone(&plan.quiet)));
    world.tap(Line::listen(&line, noise));
    for _ in 0..plan.faults {
        let pause = Duration::from_micros(100 + plan.rng.below(5000));
        world.run(pause + std::mem::take(&mut plan.linger));
        weather::fault(&mut world, &mut plan, loud);
    }
    world.run(MS * 5 + std::mem::take(&mut plan.linger));
    weather::heal(&mut world, &mut plan);
    let_users_end(&mut world, &plan);
    if plan.caches {
        weather::cut_power(&mut world, &mut plan);
    }
    // Again: everything is read.
    world.host_verb(Verb::User(job));
    world.run(MS * 5);
    let seen = let_users_end(&mut world, &plan);
    if loud {
        for (at, event) in world.host_events() {
            println!("{:>12} ns  {event}", at.ns());
        }
    }
    check_line(&line.borrow(), &plan, &seen, &away(&world, &line.borrow()));
    assert!(seen.wrong.is_empty(), "{:?}", seen.wrong);
    finish(&mut world, &mut plan, &seen)
}

fn paths(world: &mut Pair) -> usize {
    let subsystems = snapshot(world).subsystems;
    subsystems.iter().flat_map(|it| &it.heads).map(|head| head.paths.len()).sum()
}

/// When controllers could not be asked. While they finish what they have they can, until they are
/// told to shut down, which empties their caches.
fn away(world: &Pair, line: &Line) -> Vec<Away> {
    let mut gone: Vec<_> = line.told.iter().map(|&(port, at)| (port, at, at)).collect();
    let mut live = Vec::new();
    for (at, event) in world.host_events() {
        let Event::Host(HostEvent::State { controller, from, to, .. }) = event else { continue };
        // They are numbered in the order of their ports.
        let is_it = |port: &u16| *controller == format!("nvme{port}");
        let Some(index) = (0..PORTS_MAX).find(is_it) else { continue };
        let Endpoint::Tcp(port) = setup::port(index) else { continue };
        if *from == ControllerState::Resetting {
            gone.push((port.port(), Time::from_ns(at.ns().saturating_sub(CLOSING)), *at));
        } else if *to == ControllerState::Live {
            live.push((port.port(), *at));
        }
    }
    let away = |(port, from, left)| {
        let back = live.iter().find(|(to, at)| *to == port && *at > left);
        let until = back.map_or(Time::from_ns(u64::MAX), |(_, at)| at.after(BACK));
        Away { port, from, until }
    };
    gone.into_iter().map(away).collect()
}

fn check_line(line: &Line, plan: &Plan, seen: &Seen, away: &[Away]) {
    assert!(line.wrong.is_empty(), "{:?}", line.wrong);
    if plan.fair {
        let settled = seen.settled.iter().copied().chain(seen.spans.settled());
        // What nobody was told of may stand in a cache.
        let is_owed = |settled: &Settled| !seen.spans.may_be_of_another(settled);
        let missed = settled.filter(is_owed).find(|settled| !line.is_durable(settled, away));
        assert!(missed.is_none(), "{missed:?} is in the cache of a controller");
    }
}

/// Every request that the users have to make is made and answered.
fn let_users_end(world: &mut Pair, plan: &Plan) -> Seen {
    let end = world.now().after(PATIENCE);
    let workers = || (1..=plan.workers).map(WorkerId);
    while !workers().all(|worker| world.host(worker).user().is_done()) {
        assert!(world.now() < end, "some request is never answered");
        world.run(MS * 20);
    }
    let mut sum = Seen::default();
    for worker in workers() {
        sum.add(&world.host(worker).user().seen);
    }
    sum
}

fn finish(world: &mut Pair, plan: &mut Plan, seen: &Seen) -> Outcome {
    for id in plan.asked.drain(..) {
        world.host_answer(id, PATIENCE).expect("every verb is answered");
    }
    let mut outcome = check(&at_rest(world));
    let id = world.host_verb(Verb::Shutdown);
    let reply = world.host_answer(id, PATIENCE).expect("shutdown is answered");
    assert!(matches!(reply, Reply::ShutDown { unanswered: 0 }), "{reply:?}");
    world.run(Duration::from_secs(10));
    assert_eq!(world.host_buffers(), 0, "every buffer of the host came back");
    outcome.trace_hash = world.trace_hash();
    outcome.answered = seen.answered;
    outcome.failed = seen.failed;
    outcome.withdrawn = seen.withdrawn;
    outcome.verified = seen.verified;
    outcome.lost = seen.lost;
    outcome.settled = if plan.fair { seen.settled.len() as u64 } else { 0 };
    outcome.power_cuts = plan.power_cuts.load(Ordering::Relaxed);
    outcome
}

fn snapshot(world: &mut Pair) -> HostSnapshot {
    let id = world.host_verb(Verb::Snapshot);
    match world.host_answer(id, PATIENCE).expect("a snapshot is answered") {
        Reply::Snapshot(snapshot) => *snapshot,
        other => panic!("a snapshot: {other:?}"),
    }
}

/// What there is to see once the last command of nobody's has ended: nobody waits for those. One of
/// a device that has gone meanwhile is charged to its controller alone, which other devices share.
fn at_rest(world: &mut Pair) -> HostSnapshot {
    let end = world.now().after(PATIENCE);
    loop {
        let snapshot = snapshot(world);
        let heads = snapshot.subsystems.iter().flat_map(|subsystem| &subsystem.heads);
        let charged = heads.flat_map(|head| &head.paths).map(|path| path.charged);
        let left: u64 = charged.map(|it| it.work + u64::from(it.workers)).sum();
        if left == 0 || world.now() > end {
            return snapshot;
        }
        world.run(MS * 20);
    }
}

fn check(snapshot: &HostSnapshot) -> Outcome {
    let mut outcome = Outcome::default();
    for subsystem in &snapshot.subsystems {
        outcome.reconnects += subsystem.controllers.iter().map(|c| c.reconnects).sum::<u64>();
        for head in &subsystem.heads {
            assert_eq!(head.in_flight, 0, "{}", head.name);
            outcome.requeued += head.requeued_no_usable_path;
            for path in &head.paths {
                assert_eq!(path.in_flight, 0, "{}", path.name);
                assert_eq!(path.charged, Charged::default(), "charges came back: {}", path.name);
                outcome.failovers += path.failovers;
                outcome.retries += path.retries;
                outcome.rescued += path.rescued;
                outcome.uncertain_writes_resent += path.uncertain_writes_resent;
            }
        }
    }
    outcome
}

#[test]
fn every_request_ends_once_and_no_byte_is_lost_whatever_happens_at_once() {
    if let Some(seed) = number("ANABRANCH_SEED") {
        println!("{:?}", run_seed(seed, true));
        return;
    }
    let seeds = number("ANABRANCH_SEEDS").unwrap_or(200);
    let first = number("ANABRANCH_FIRST_SEED").unwrap_or(0);
    let next = AtomicU64::new(first);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let run = || {
        let mut sum = Outcome::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + seeds {
                return sum;
            }
            let run = std::panic::catch_unwind(|| run_seed(seed, false));
            let Ok(outcome) = run else {
                panic!("seed {seed} failed: ANABRANCH_SEED={seed} replays it");
            };
            sum.add(&outcome);
        }
    };
    let mut sum = Outcome::default();
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        for run in runs {
            sum.add(&run.join().expect("every seed holds"));
        }
    });
    println!("{seeds} seeds: {sum:?}");
    // Each of these must have happened somewhere, or the run proves less than it says.
    assert!(sum.answered > seeds * 100 && sum.verified > seeds * 1000, "there was load");
    assert!(sum.failed > 0 && sum.withdrawn > 0, "devices went, and users");
    assert!(sum.failovers > 0 && sum.reconnects > 0 && sum.requeued > 0, "paths were lost");
    assert!(sum.uncertain_writes_resent > 0 && sum.retries > 0, "writes were sent again");
    assert!(sum.rescued > 0, "reads left paths that had fallen silent");
    assert!(sum.settled > seeds, "flushes were needed while no path had trouble");
    assert!(sum.power_cuts > seeds / 2 && sum.lost > 0, "power was lost, and what was not flushed");
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, is {text:?}")))
}
