//! In steady state no I/O allocates or frees heap memory: not in the host, not in the target, not
//! in what runs them, and not in the load.

#[path = "support/heap.rs"]
mod heap;

use anabranch_host::config::{ConnectRequest, ControllerOptions, DEFAULT_MAX_REQUESTS, HostConfig};
use anabranch_host::verb::{Reply, Verb};
use anabranch_host::{Event, Worker};
use anabranch_lab::load::{BlockSize, Job, Load, LoadReply, LoadVerb};
use anabranch_policy::Policy;
use anabranch_proto::machine::{Endpoint, WorkerId};
use anabranch_proto::nvme::{Nqn, Uuid};
use anabranch_rt::{Config, Files, Group};
use anabranch_target::config::{BackendConfig, NamespaceConfig, PortConfig, SubsystemConfig};
use anabranch_target::{Target, TargetConfig, TargetEvent};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
const SUBSYSTEM: &str = "nqn.2026-01.org.anabranch:heap";

fn nqn(text: &str) -> Nqn {
    text.parse().expect("a valid NQN")
}

/// Size of the namespace.
const BYTES: u64 = 16 << 20;

/// A target with two ports, the second of them far away or not, and where they listen.
fn target(far: bool) -> (Group<Target>, Vec<Endpoint>) {
    target_on(far, BackendConfig::Memory { bytes: BYTES }, Files::new())
}

/// The same with its blocks in a file, which has no name any more.
fn target_on_file() -> (Group<Target>, Vec<Endpoint>) {
    let path = std::env::temp_dir().join(format!("anabranch-heap-{}", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(&path).expect("a new file");
    std::fs::remove_file(&path).expect("it goes");
    file.set_len(BYTES).expect("it grows");
    let files = Files::new();
    let file = files.register(file);
    target_on(false, BackendConfig::File { file, bytes: BYTES }, files)
}

fn target_on(far: bool, backend: BackendConfig, files: Files) -> (Group<Target>, Vec<Endpoint>) {
    let any = Endpoint::Tcp(([127, 0, 0, 1], 0).into());
    let mut second = PortConfig::new(any.clone());
    if far {
        second.shape = "delay=20ms".parse().expect("a valid shape");
    }
    let namespace = NamespaceConfig {
        nsid: 1,
        backend,
        block_bytes: 4096,
        uuid: None,
        nguid: None,
        ana_group: 1,
    };
    let subsystem = SubsystemConfig {
        nqn: nqn(SUBSYSTEM),
        serial: "HEAP".into(),
        model: "heap".into(),
        namespaces: vec![namespace],
        allowed_hosts: Vec::new(),
    };
    let config = TargetConfig {
        subsystems: vec![subsystem],
        ports: vec![PortConfig::new(any), second],
        ..TargetConfig::default()
    };
    let engine = Target::new(config, 1).expect("a valid configuration");
    let runtime = Config { files, ..Config::named("target") };
    let (tell, events) = channel();
    let sink = Box::new(move |_, event| drop(tell.send(event)));
    let group = Group::start(runtime, vec![engine], sink).expect("it starts");
    (group, listening(&events))
}

fn listening(events: &Receiver<TargetEvent>) -> Vec<Endpoint> {
    let mut at = Vec::new();
    while at.len() < 2 {
        let event = events.recv_timeout(PATIENCE).expect("both ports come up");
        if let TargetEvent::PortUp { at: endpoint, .. } = event {
            at.push(endpoint);
        }
    }
    at
}

fn host(shared_queue: bool) -> Group<Worker<Load>> {
    let config = HostConfig {
        host_nqn: nqn("nqn.2014-08.org.nvmexpress:uuid:0c0ffee0-0000-4000-8000-000000000001"),
        host_id: Uuid([1; 16]),
        data_workers: 2,
        shared_queue,
        default_policy: Policy::QueueDepth,
        subsystems: Vec::new(),
        kernel_exact: false,
        max_requests: DEFAULT_MAX_REQUESTS,
        worker_nodes: vec![0, 0],
        distances: Vec::new(),
        shutdown_timeout: Duration::from_secs(5),
    };
    let engines = Worker::group(&config, |_| Load::new());
    let sink = Box::new(|_, _: Event<_>| ());
    Group::start(Config::named("host"), engines, sink).expect("it starts")
}

fn ask(host: &Group<Worker<Load>>, verb: Verb<LoadVerb>) -> Reply<LoadReply> {
    host.verb(WorkerId(0), verb, PATIENCE).expect("an answer")
}

/// Waits until reads have brought so many bytes more; gives back how many there are then.
fn await_bytes(host: &Group<Worker<Load>>, more: u64) -> u64 {
    let received = || -> u64 {
        let worker = |worker| host.stats(WorkerId(worker)).expect("a worker").received_bytes;
        worker(1) + worker(2)
    };
    let end = received() + more;
    while received() < end {
        assert!(host.failure().is_none(), "the host runs");
        std::thread::yield_now();
    }
    received()
}

/// A host that is connected to both ports of a target.
struct Pair {
    target: Group<Target>,
    host: Group<Worker<Load>>,
}

impl Pair {
    fn start(shared_queue: bool) -> Pair {
        Pair::connect(target(false), shared_queue, &ControllerOptions::default())
    }

    fn connect(
        (target, ports): (Group<Target>, Vec<Endpoint>),
        shared_queue: bool,
        options: &ControllerOptions,
    ) -> Pair {
        let host = host(shared_queue);
        for to in ports {
            let request = ConnectRequest {
                subsystem_nqn: nqn(SUBSYSTEM),
                to,
                options: options.clone(),
                keep_trying: false,
            };
            let reply = ask(&host, Verb::Connect(Box::new(request)));
            assert!(matches!(reply, Reply::Connected(..)), "{reply:?}");
        }
        Pair { target, host }
    }

    fn set(&self, object: &str, attribute: &str, value: &str) {
        let [object, attribute, value] = [object, attribute, value].map(str::to_owned);
        let reply = ask(&self.host, Verb::Set { object, attribute, value });
        assert!(matches!(reply, Reply::Done), "{reply:?}");
    }

    /// Heap operations of the whole process per thousand reads, with as many writes beside them.
    fn operations_per_thousand_reads(&self, sizes: &[u32], counted_bytes: u64) -> u64 {
        let job = Job {
            device: "nvme0n1".into(),
            read_percent: 50,
            random: true,
            sizes: sizes.iter().map(|&bytes| BlockSize { bytes, weight: 1 }).collect(),
            depth: 16,
            jobs: 2,
            offset: 0,
            size: None,
            number_ios: None,
            thinktime: Duration::ZERO,
            verify: false,
            seed: 1,
        };
        ask(&self.host, Verb::User(LoadVerb::Start(Box::new(job))));
        let before = await_bytes(&self.host, counted_bytes / 2);
        let operations = heap::operations();
        let after = await_bytes(&self.host, counted_bytes);
        let operations = heap::operations() - operations;
        let Reply::User(LoadReply::Report(report)) = ask(&self.host, Verb::User(LoadVerb::Stop))
        else {
            panic!("no report");
        };
        assert_eq!(report.errors, 0, "{:?}", report.first_error);
        let mean = sizes.iter().map(|&bytes| u64::from(bytes)).sum::<u64>() / sizes.len() as u64;
        let reads = (after - before) / mean;
        println!("{operations} heap operations, {reads} reads of {sizes:?} bytes");
        operations * 1000 / reads
    }

    /// Probes that were sent so far.
    fn probes(&self) -> u64 {
        let Reply::Snapshot(snapshot) = ask(&self.host, Verb::Snapshot) else {
            panic!("no snapshot");
        };
        let heads = snapshot.subsystems.iter().flat_map(|subsystem| &subsystem.heads);
        heads.flat_map(|head| &head.paths).map(|path| path.probes).sum()
    }

    fn stop(self) {
        self.host.stop().expect("the host ends");
        self.target.stop().expect("the target ends");
    }
}

/// Keep Alive and timers may use it; I/O may not.
fn check(pair: &Pair, what: &str, sizes: &[u32], counted_bytes: u64) {
    let operations = pair.operations_per_thousand_reads(sizes, counted_bytes);
    assert!(operations < 20, "{what}: {operations} per 1000 reads of {sizes:?} bytes");
}

/// One test: the count is of the whole process.
#[test]
fn steady_io_does_without_the_heap() {
    for shared_queue in [false, true] {
        let pair = Pair::start(shared_queue);
        for bytes in [4096, 64 << 10] {
            check(&pair, "the default policy", &[bytes], 128 << 20);
        }
        pair.stop();
    }
    // So few blocks that many operations have to wait for others.
    let pair = Pair::connect(target_on_file(), false, &ControllerOptions::default());
    check(&pair, "a file", &[4096, 256 << 10], 256 << 20);
    pair.stop();
    let pair = Pair::start(false);
    pair.set("nvme0n1", "latency_size_buckets", "1");
    pair.set("nvme0n1", "latency_batch_timeout", "1ms");
    pair.set("nvme0n1", "explain_sample", "1");
    for policy in Policy::ALL {
        pair.set("nvme-subsys0", "iopolicy", policy.name());
        check(&pair, policy.name(), &[4096, 32 << 10], 64 << 20);
    }
    pair.stop();
    for digests in [false, true] {
        let options = ControllerOptions {
            hdr_digest: digests,
            data_digest: digests,
            ..ControllerOptions::default()
        };
        let pair = Pair::connect(target(true), false, &options);
        pair.set("nvme-subsys0", "iopolicy", "finish-time");
        for bytes in [4096, 64 << 10] {
            let before = pair.probes();
            check(&pair, "probes of a far path", &[bytes], 128 << 20);
            let probes = pair.probes() - before;
            println!("{probes} probes");
            assert!(probes > 0, "the far path was looked at");
        }
        pair.stop();
    }
}
