//! What a further namespace costs a host that does nothing with it.

#[path = "support/heap.rs"]
mod heap;

use anabranch::daemon::rpc::{Answer, answer};
use anabranch::daemon::view::{HeadView, HostView, PathView, SubsystemView};
use anabranch_host::config::{ConnectRequest, ControllerOptions, DEFAULT_MAX_REQUESTS, HostConfig};
use anabranch_host::verb::{Reply, Verb};
use anabranch_host::{Event, Worker};
use anabranch_lab::load::{Load, LoadReply, LoadVerb};
use anabranch_policy::Policy;
use anabranch_proto::machine::{Endpoint, WorkerId};
use anabranch_proto::nvme::{Nqn, Uuid};
use anabranch_rt::{Config, Group};
use anabranch_target::config::{BackendConfig, NamespaceConfig, PortConfig, SubsystemConfig};
use anabranch_target::{Target, TargetConfig, TargetEvent};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const SUBSYSTEM: &str = "nqn.2026-01.org.anabranch:memory";

fn nqn(text: &str) -> Nqn {
    text.parse().expect("a valid NQN")
}

/// A target with so many namespaces, and where it listens.
fn target(namespaces: u32) -> (Group<Target>, Endpoint) {
    let namespace = |nsid| NamespaceConfig {
        nsid,
        backend: BackendConfig::Memory { bytes: 1 << 20 },
        block_bytes: 4096,
        uuid: None,
        nguid: None,
        ana_group: 1,
    };
    let subsystem = SubsystemConfig {
        nqn: nqn(SUBSYSTEM),
        serial: "MEMORY".into(),
        model: "memory".into(),
        namespaces: (1..=namespaces).map(namespace).collect(),
        allowed_hosts: Vec::new(),
    };
    let config = TargetConfig {
        subsystems: vec![subsystem],
        ports: vec![PortConfig::new(Endpoint::Tcp(([127, 0, 0, 1], 0).into()))],
        ..TargetConfig::default()
    };
    let engine = Target::new(config, 1).expect("a valid configuration");
    let (tell, events) = channel();
    let sink = Box::new(move |_, event| drop(tell.send(event)));
    let group = Group::start(Config::named("target"), vec![engine], sink).expect("it starts");
    loop {
        let event = events.recv_timeout(PATIENCE).expect("the port comes up");
        if let TargetEvent::PortUp { at, .. } = event {
            return (group, at);
        }
    }
}

fn host(policy: Policy) -> Group<Worker<Load>> {
    let config = HostConfig {
        host_nqn: nqn("nqn.2014-08.org.nvmexpress:uuid:0c0ffee0-0000-4000-8000-000000000001"),
        host_id: Uuid([1; 16]),
        data_workers: 1,
        shared_queue: false,
        default_policy: policy,
        subsystems: Vec::new(),
        kernel_exact: false,
        max_requests: DEFAULT_MAX_REQUESTS,
        worker_nodes: vec![0],
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

fn devices(host: &Group<Worker<Load>>) -> usize {
    let Reply::Snapshot(snapshot) = ask(host, Verb::Snapshot) else { panic!("no snapshot") };
    snapshot.subsystems.iter().map(|subsystem| subsystem.heads.len()).sum()
}

/// Bytes that a host holds for so many namespaces, and those that it takes to show them once.
fn cost(namespaces: u32, policy: Policy) -> [i64; 2] {
    let (target, to) = target(namespaces);
    let host = host(policy);
    assert_eq!(devices(&host), 0);
    let before = heap::held_bytes();
    let request = ConnectRequest {
        subsystem_nqn: nqn(SUBSYSTEM),
        to,
        options: ControllerOptions::default(),
        keep_trying: false,
    };
    let reply = ask(&host, Verb::Connect(Box::new(request)));
    assert!(matches!(reply, Reply::Connected(..)), "{reply:?}");
    let begun = Instant::now();
    while devices(&host) < namespaces as usize {
        assert!(begun.elapsed() < PATIENCE, "all namespaces become devices");
        std::thread::yield_now();
    }
    let held = heap::held_bytes() - before;
    let before = heap::taken_bytes();
    devices(&host);
    let shown = heap::taken_bytes() - before;
    host.stop().expect("the host ends");
    target.stop().expect("the target ends");
    [held, shown].map(|bytes| bytes as i64)
}

/// Heap operations of an answer that shows a thousand devices with four paths each.
fn operations_of_an_answer() -> u64 {
    let head = HeadView { paths: vec![PathView::default(); 4], ..HeadView::default() };
    let subsystem = SubsystemView { heads: vec![head; 1000], ..SubsystemView::default() };
    let view = HostView { subsystems: vec![subsystem], ..HostView::default() };
    let before = heap::own_operations();
    let line = answer(None, Answer::of(&view));
    assert!(line.len() > 1 << 20 && line.ends_with(b"\n"), "{} bytes", line.len());
    heap::own_operations() - before
}

/// One test: the counts are of the whole process.
#[test]
fn a_namespace_costs_little_memory_until_it_is_used() {
    let per_namespace = |policy| {
        let (one, many) = (cost(1, policy), cost(129, policy));
        [0, 1].map(|at| (many[at] - one[at]) / 128)
    };
    // Text that grows, and no tree of values, which takes several times the memory.
    let operations = operations_of_an_answer();
    assert!(operations < 1000, "{operations} heap operations");
    let [held, shown] = per_namespace(Policy::QueueDepth);
    let [measuring, _] = per_namespace(Policy::Latency);
    let [forecasting, _] = per_namespace(Policy::FinishTime);
    println!("{held} bytes held, {shown} taken to show it");
    println!("{measuring} held under latency, {forecasting} under finish-time");
    // 4.2 KiB of it are eight places for requests and commands, which no page is touched for.
    assert!(held <= 8 << 10, "{held} bytes are held per namespace");
    assert!(shown <= 4 << 10, "{shown} bytes are taken per namespace to show it");
    assert!(forecasting >= held + 1024, "only some policies count by path: {forecasting}");
    assert!(measuring >= held + 1024, "only latency has room for its measurements: {measuring}");
}
