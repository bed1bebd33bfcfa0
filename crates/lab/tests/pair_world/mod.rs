//! One run of the pair: what is built, which faults fall, what must hold at the end.

mod noise;
#[path = "../whole_host/setup.rs"]
mod setup;

use anabranch_host::Worker;
use anabranch_host::config::{ControllerOptions, HostConfig};
use anabranch_host::load::Charged;
use anabranch_host::verb::{HostSnapshot, Reply, Selection, Verb};
use anabranch_lab::load::{BlockSize, Job, Load, LoadReply, LoadReport, LoadVerb};
use anabranch_lab::rng::Rng;
use anabranch_lab::sim::{LinkTimes, StreamId, World};
use anabranch_policy::{Policy, Scope};
use anabranch_proto::machine::VerbId;
use anabranch_proto::nvme::{AnaState, Uuid};
use anabranch_target::config::{NamespaceConfig, PortConfig};
use anabranch_target::{Shape, Target, TargetVerb};
use noise::Noise;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// How long anything may take once all faults are over.
const PATIENCE: Duration = Duration::from_secs(120);

const REQUESTS_PER_WORKER: u64 = 150;

/// Which faults fall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Faults {
    /// Paths and ANA states: no request may fail.
    Paths,
    /// What administrators do as well: namespaces and controllers come and go. Requests may fail,
    /// but each is answered, nothing is left over, and no read is wrong.
    Administration,
    /// Any bit may flip on the way, with digests or without: requests may fail and data be wrong,
    /// but each is answered and nothing is left over.
    Garbage,
}

type Pair = World<Worker<Load>, Target>;

/// What a run has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) trace_hash: u64,
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) blocks_verified: u64,
    pub(crate) failovers: u64,
    pub(crate) reconnects: u64,
    pub(crate) requeued: u64,
    pub(crate) retries: u64,
    pub(crate) uncertain_writes_resent: u64,
}

impl Outcome {
    pub(crate) fn add(&mut self, other: &Outcome) {
        self.trace_hash ^= other.trace_hash;
        self.requests += other.requests;
        self.errors += other.errors;
        self.blocks_verified += other.blocks_verified;
        self.failovers += other.failovers;
        self.reconnects += other.reconnects;
        self.requeued += other.requeued;
        self.retries += other.retries;
        self.uncertain_writes_resent += other.uncertain_writes_resent;
    }
}

struct Plan {
    rng: Rng,
    ports: u16,
    shared_queue: bool,
    block_bytes: u32,
    options: ControllerOptions,
    policy: Policy,
    kernel_exact: bool,
    scope: Scope,
    depth: u32,
    faults: u64,
    kind: Faults,
    times: LinkTimes,
    /// Verbs that must have been answered in the end.
    asked: Vec<VerbId>,
    /// Quiesce and freeze counts to take back.
    quiesced: u32,
    frozen: u32,
    /// The target itself has changed what is behind the NSID: the namespace was removed and one of
    /// that number came back, or it was made smaller. Until the host has heard of it (and nothing
    /// says when a stalled path does), its commands meet the new one.
    data_dropped: bool,
    /// Paths may belong to nobody, so that `io-affinity` finds none.
    masks_written: bool,
    noise: Option<Noise>,
    /// No noise any more.
    quiet: Rc<Cell<bool>>,
}

impl Plan {
    fn draw(seed: u64, kind: Faults) -> Plan {
        let mut rng = Rng::new(seed);
        let administration = kind == Faults::Administration;
        let mut times = LinkTimes::default();
        if administration && rng.percent(30) {
            times.mail.1 = MS * 3;
        }
        let options = ControllerOptions {
            queue_size: [16, 32, 128][rng.below(3) as usize],
            reconnect_delay: MS * (1 + rng.below(20) as u32),
            ctrl_loss_tmo: None,
            keep_alive_tmo: Duration::from_millis(200 + rng.below(1000)),
            io_timeout: Duration::from_millis(100 + rng.below(400)),
            admin_timeout: Duration::from_millis(100 + rng.below(400)),
            hdr_digest: rng.percent(30),
            data_digest: rng.percent(30),
            nr_io_queues: (administration && rng.percent(30)).then_some(1),
            nr_write_queues: if rng.percent(30) { 1 + rng.below(2) as u16 } else { 0 },
            ..ControllerOptions::default()
        };
        Plan {
            ports: 2 + rng.below(2) as u16,
            shared_queue: rng.percent(25),
            block_bytes: if rng.percent(50) { 512 } else { 4096 },
            policy: Policy::ALL[rng.below(Policy::ALL.len() as u64) as usize],
            kernel_exact: rng.percent(25),
            scope: Scope::ALL[rng.below(Scope::ALL.len() as u64) as usize],
            depth: if administration && rng.percent(50) { 60 } else { 1 + rng.below(4) as u32 },
            faults: rng.below(if administration { 14 } else { 8 }),
            kind,
            times,
            asked: Vec::new(),
            quiesced: 0,
            frozen: 0,
            data_dropped: false,
            masks_written: false,
            noise: (kind == Faults::Garbage || rng.percent(25)).then(|| Noise {
                errors: rng.below(40),
                flips: rng.below(8),
                hdr_digest: options.hdr_digest,
                data_digest: options.data_digest,
                echoes: 0,
                everywhere: kind == Faults::Garbage,
            }),
            quiet: Rc::default(),
            options,
            rng,
        }
    }
}

fn target(plan: &mut Plan) -> Target {
    let slow = Shape { delay: MS * plan.rng.below(4) as u32, ..Shape::default() };
    let ports = (0..plan.ports).map(|index| PortConfig {
        shape: if index == 1 { slow.clone() } else { Shape::default() },
        ..PortConfig::new(setup::port(index))
    });
    let config = setup::target(ports.collect(), vec![setup::namespace(1, plan.block_bytes)]);
    Target::new(config, plan.rng.next_u64()).expect("a valid configuration")
}

fn host(plan: &Plan) -> Vec<Worker<Load>> {
    let config = HostConfig {
        shared_queue: plan.shared_queue,
        kernel_exact: plan.kernel_exact,
        ..setup::host(2, plan.policy)
    };
    Worker::group(&config, |_| Load::new())
}

fn job(plan: &mut Plan, seed: u64) -> Job {
    let sizes = [(1, 6), (4, 3), (16, 1)];
    let sizes = sizes.map(|(blocks, weight)| BlockSize { bytes: blocks * 4096, weight });
    Job {
        device: "nvme0n1".into(),
        read_percent: 50,
        random: true,
        sizes: sizes.to_vec(),
        depth: plan.depth,
        jobs: 2,
        offset: 0,
        size: None,
        number_ios: Some(REQUESTS_PER_WORKER),
        thinktime: Duration::from_micros(plan.rng.below(400)),
        verify: true,
        seed,
    }
}

/// Runs one seed; panics when something does not hold.
pub(crate) fn run_seed(seed: u64, kind: Faults, loud: bool) -> Outcome {
    let mut plan = Plan::draw(seed, kind);
    let (hosts, targets) = (host(&plan), vec![target(&mut plan)]);
    let mut world: Pair = World::new(hosts, targets, plan.times, seed);
    for index in 0..plan.ports {
        let id = world.host_verb(connect(&plan, index));
        let reply = world.host_answer(id, PATIENCE).expect("connect is answered");
        assert!(matches!(reply, Reply::Connected(..)), "{reply:?}");
    }
    let id = world.host_verb(Verb::Set {
        object: "nvme-subsys0".into(),
        attribute: "queue_depth_scope".into(),
        value: plan.scope.to_string(),
    });
    plan.asked.push(id);
    let start = LoadVerb::Start(Box::new(job(&mut plan, seed)));
    let id = world.host_verb(Verb::User(start));
    let reply = world.host_answer(id, PATIENCE).expect("start is answered");
    assert!(matches!(reply, Reply::User(LoadReply::Started)), "{reply:?}");
    if let Some(noise) = plan.noise {
        world.tap(noise.tap(Rng::new(plan.rng.next_u64()), Rc::clone(&plan.quiet)));
    }
    for _ in 0..plan.faults {
        world.run(Duration::from_micros(200 + plan.rng.below(6000)));
        fault(&mut world, &mut plan, loud);
    }
    world.run(MS * 5);
    heal(&mut world, &mut plan);
    if loud {
        for (at, event) in world.host_events() {
            println!("{:>12} ns  {event}", at.ns());
        }
    }
    finish(&mut world, &mut plan)
}

fn connect(plan: &Plan, index: u16) -> Verb<LoadVerb> {
    Verb::Connect(Box::new(setup::connect(index, &plan.options)))
}

fn fault(world: &mut Pair, plan: &mut Plan, loud: bool) {
    let port = plan.rng.below(u64::from(plan.ports)) as u16;
    if plan.kind == Faults::Administration && plan.rng.percent(60) {
        return administer(world, plan, port, loud);
    }
    if plan.rng.percent(30) {
        return retune(world, plan, loud);
    }
    let draw = plan.rng.below(10);
    if loud {
        println!("{:>12} ns  fault {draw} (port {port})", world.now().ns());
    }
    match draw {
        0..=4 => {
            if let Some(stream) = world.any_stream() {
                stream_fault(world, plan, stream, draw);
            }
        }
        5 => {
            world.target_verb(0, TargetVerb::Cut { port });
        }
        6 => {
            world.target_verb(0, TargetVerb::Stall { port });
        }
        7 => {
            world.target_verb(0, TargetVerb::Restore { port });
        }
        _ => {
            let states = [
                AnaState::Optimized,
                AnaState::NonOptimized,
                AnaState::Inaccessible,
                AnaState::Change,
            ];
            let state = states[plan.rng.below(4) as usize];
            world.target_verb(0, TargetVerb::Ana { port, group: 1, state });
        }
    }
}

/// Another policy, or something that can be set about one: at any moment.
fn retune(world: &mut Pair, plan: &mut Plan, loud: bool) {
    let rng = &mut plan.rng;
    let subsystem = || String::from("nvme-subsys0");
    let device = || String::from("nvme0n1");
    let switch = |rng: &mut Rng| rng.below(2).to_string();
    let (object, attribute, value) = match rng.below(18) {
        0..=4 => {
            let policy = Policy::ALL[rng.below(Policy::ALL.len() as u64) as usize];
            (subsystem(), "iopolicy", policy.to_string())
        }
        5 | 6 => {
            let scope = Scope::ALL[rng.below(Scope::ALL.len() as u64) as usize];
            (subsystem(), "queue_depth_scope", scope.to_string())
        }
        7 => (subsystem(), "kernel_exact", switch(rng)),
        8 | 9 => {
            let path = format!("nvme0c{}n1", rng.below(u64::from(plan.ports)));
            let weight = [0, 1, 4, 100][rng.below(4) as usize];
            (path, "relative_throughput", weight.to_string())
        }
        10 => {
            let timeout = ["0", "50us", "3ms", "15"][rng.below(4) as usize];
            (device(), "latency_batch_timeout", timeout.to_owned())
        }
        11 => (device(), "latency_ewma_shift", rng.below(9).to_string()),
        12 => (device(), "latency_size_buckets", switch(rng)),
        13 => {
            let name = ["latency_per_node", "latency_ignore_ana"][rng.below(2) as usize];
            (device(), name, switch(rng))
        }
        14 => (subsystem(), "hst_base_weight", [0, 512, 1023][rng.below(3) as usize].to_string()),
        15 => (subsystem(), "hst_threshold_multiplier", rng.below(3).to_string()),
        16 => {
            let path = format!("nvme0c{}n1", rng.below(u64::from(plan.ports)));
            plan.masks_written = true;
            (path, "io_affinity", format!("{:x}", rng.below(4)))
        }
        _ => (device(), "explain_sample", [0, 1, 5][rng.below(3) as usize].to_string()),
    };
    if loud {
        println!("{:>12} ns  {object} {attribute} = {value}", world.now().ns());
    }
    let attribute = attribute.to_owned();
    plan.asked.push(world.host_verb(Verb::Set { object, attribute, value }));
}

fn stream_fault(world: &mut Pair, plan: &mut Plan, stream: StreamId, draw: u64) {
    match draw {
        0 | 1 => world.break_stream(stream),
        2 => world.stall_stream(stream, MS * (1 + plan.rng.below(100) as u32)),
        3 => world.silence_stream(stream),
        _ => world.slow_stream(stream, MS * (1 + plan.rng.below(5) as u32)),
    }
}

/// What an administrator may do, on either side, at the worst moment.
fn administer(world: &mut Pair, plan: &mut Plan, port: u16, loud: bool) {
    let draw = plan.rng.below(12);
    if loud {
        println!("{:>12} ns  administration {draw} (port {port})", world.now().ns());
    }
    let subsystem = setup::subsystem();
    let device = || String::from("nvme0n1");
    // Controllers are numbered on with each connect.
    let controller = format!("nvme{}", plan.rng.below(u64::from(plan.ports) + 2));
    let verb = match draw {
        0 => {
            world.target_verb(0, TargetVerb::NamespaceRemove { subsystem, nsid: 1 });
            return;
        }
        1 | 2 => {
            // The same one again, or another one under its NSID.
            let uuid = plan.rng.percent(50).then(|| Uuid([2 + plan.rng.below(200) as u8; 16]));
            plan.data_dropped = true;
            let config = NamespaceConfig { uuid, ..setup::namespace(1, plan.block_bytes) };
            world.target_verb(0, TargetVerb::NamespaceAdd { subsystem, config });
            return;
        }
        3 => {
            let bytes = (1 << 19) << plan.rng.below(3);
            plan.data_dropped = true;
            world.target_verb(0, TargetVerb::NamespaceResize { subsystem, nsid: 1, bytes });
            return;
        }
        4 => Verb::Reset { controller },
        5 => Verb::Disconnect(Selection::Controller(controller)),
        6 | 7 => connect(plan, port),
        8 => {
            plan.quiesced += 1;
            Verb::Quiesce { device: device() }
        }
        9 => {
            plan.frozen += 1;
            Verb::Freeze { device: device() }
        }
        10 => Verb::Set {
            object: device(),
            attribute: "delayed_removal_secs".into(),
            value: plan.rng.below(3).to_string(),
        },
        _ => Verb::Disconnect(Selection::All),
    };
    plan.asked.push(world.host_verb(verb));
}

fn heal(world: &mut Pair, plan: &mut Plan) {
    plan.quiet.set(true);
    for index in 0..plan.ports {
        if plan.kind == Faults::Administration {
            plan.asked.push(world.host_verb(connect(plan, index)));
        }
    }
    if plan.masks_written {
        plan.asked.push(world.host_verb(Verb::Set {
            object: "nvme-subsys0".into(),
            attribute: "iopolicy".into(),
            value: Policy::RoundRobin.to_string(),
        }));
    }
    let device = || String::from("nvme0n1");
    for _ in 0..plan.quiesced {
        plan.asked.push(world.host_verb(Verb::Unquiesce { device: device() }));
    }
    for _ in 0..plan.frozen {
        plan.asked.push(world.host_verb(Verb::Unfreeze { device: device() }));
    }
    for port in 0..plan.ports {
        world.target_verb(0, TargetVerb::Restore { port });
        world.target_verb(0, TargetVerb::Ana { port, group: 1, state: AnaState::Optimized });
    }
}

/// Faults are over: every request that the load has to make is made and answered.
fn let_load_end(world: &mut Pair) {
    let end = world.now().after(PATIENCE);
    while world.now() < end {
        let id = world.host_verb(Verb::User(LoadVerb::Report));
        let reply = world.host_answer(id, PATIENCE).expect("a report is answered");
        let Reply::User(LoadReply::Report(report)) = reply else { panic!("a report: {reply:?}") };
        if report.total_requests() + report.errors >= 2 * REQUESTS_PER_WORKER {
            return;
        }
        world.run(MS * 20);
    }
    panic!("the load does not come to its end");
}

fn finish(world: &mut Pair, plan: &mut Plan) -> Outcome {
    if plan.kind == Faults::Paths {
        let_load_end(world);
    } else {
        world.run(MS * 200);
    }
    let id = world.host_verb(Verb::User(LoadVerb::Stop));
    let reply = world.host_answer(id, PATIENCE).expect("every request is answered in the end");
    let Reply::User(LoadReply::Report(report)) = reply else { panic!("a report: {reply:?}") };
    match plan.kind {
        Faults::Paths => check_report(&report),
        // The register remembers one write of unknown outcome per block, not several.
        Faults::Administration if report.errors == 0 && !plan.data_dropped => {
            assert_eq!(report.verify_errors, 0, "every read is legal: {:?}", report.mismatches);
        }
        Faults::Administration | Faults::Garbage => {}
    }
    let explain = Verb::Explain { device: "nvme0n1".into() };
    plan.asked.push(world.host_verb(explain));
    for id in plan.asked.drain(..) {
        world.host_answer(id, PATIENCE).expect("every verb is answered");
    }
    let mut outcome = check_snapshot(&at_rest(world));
    let id = world.host_verb(Verb::Shutdown);
    let reply = world.host_answer(id, PATIENCE).expect("shutdown is answered");
    assert!(matches!(reply, Reply::ShutDown { unanswered: 0 }), "{reply:?}");
    world.run(Duration::from_secs(10));
    assert_eq!(world.host_buffers(), 0, "every buffer of the host came back");
    outcome.requests = report.total_requests();
    outcome.errors = report.errors;
    outcome.blocks_verified = report.blocks_verified;
    outcome.trace_hash = world.trace_hash();
    outcome
}

/// What there is to see once the last probe has ended: nobody waits for those.
fn at_rest(world: &mut Pair) -> HostSnapshot {
    let end = world.now().after(PATIENCE);
    loop {
        let id = world.host_verb(Verb::Snapshot);
        let reply = world.host_answer(id, PATIENCE).expect("a snapshot is answered");
        let Reply::Snapshot(snapshot) = reply else { panic!("a snapshot: {reply:?}") };
        let heads = snapshot.subsystems.iter().flat_map(|subsystem| &subsystem.heads);
        let work: u64 = heads.flat_map(|head| &head.paths).map(|path| path.charged.work).sum();
        if work == 0 || world.now() > end {
            return *snapshot;
        }
        world.run(MS * 20);
    }
}

fn check_report(report: &LoadReport) {
    assert_eq!(report.errors, 0, "no request fails: {:?}", report.first_error);
    assert_eq!(report.verify_errors, 0, "every read is legal: {:?}", report.mismatches);
    assert!(report.total_requests() > 0, "the load ran");
}

fn check_snapshot(snapshot: &HostSnapshot) -> Outcome {
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
                outcome.uncertain_writes_resent += path.uncertain_writes_resent;
            }
        }
    }
    outcome
}
