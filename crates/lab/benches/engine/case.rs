//! What is counted: one data worker and one target in virtual time.

use crate::counted::{CountedHost, CountedTarget};
use crate::keeper::{BLOCK_BYTES, BLOCKS, Go, Keeper};
use anabranch_host::Worker;
use anabranch_host::config::{ConnectRequest, ControllerOptions, HostConfig};
use anabranch_host::verb::{Reply, Verb};
use anabranch_lab::sim::{LinkTimes, World};
use anabranch_policy::Policy;
use anabranch_proto::machine::Endpoint;
use anabranch_proto::nvme::{Nqn, Uuid};
use anabranch_target::config::{BackendConfig, NamespaceConfig, PortConfig, SubsystemConfig};
use anabranch_target::{Target, TargetConfig};
use std::hint::black_box;
use std::time::Duration;

/// Requests per count; many, so that what comes once does not show.
pub(crate) const REQUESTS: u64 = 4000;

/// Virtual time that anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

type Pair = World<CountedHost, CountedTarget>;

pub(crate) struct Case {
    pub(crate) name: &'static str,
    policy: Policy,
    paths: u16,
    writes: bool,
}

pub(crate) const CASES: [Case; 4] = [
    Case { name: "read,numa,1", policy: Policy::Numa, paths: 1, writes: false },
    Case { name: "write,numa,1", policy: Policy::Numa, paths: 1, writes: true },
    Case { name: "read,queue-depth,2", policy: Policy::QueueDepth, paths: 2, writes: false },
    Case { name: "read,latency,2", policy: Policy::Latency, paths: 2, writes: false },
];

impl Case {
    /// Connects, warms up with writes (so that reads find blocks and tables are made), counts.
    pub(crate) fn run(&self) {
        let mut pair = self.pair();
        load(&mut pair, Go { writes: true, requests: BLOCKS });
        load(&mut pair, Go { writes: self.writes, requests: BLOCKS });
        counted(&mut pair, Go { writes: self.writes, requests: REQUESTS });
    }

    fn pair(&self) -> Pair {
        let workers = Worker::group(&host(self.policy), |_| Keeper::default());
        let hosts = workers.into_iter().map(CountedHost).collect();
        let target = Target::new(target(self.paths), 1).expect("a valid configuration");
        let mut pair = World::new(hosts, vec![CountedTarget(target)], LinkTimes::default(), 1);
        for index in 0..self.paths {
            let id = pair.host_verb(Verb::Connect(Box::new(ConnectRequest {
                subsystem_nqn: subsystem(),
                to: port(index),
                options: ControllerOptions::default(),
                keep_trying: false,
            })));
            let reply = pair.host_answer(id, PATIENCE).expect("connect is answered");
            assert!(matches!(reply, Reply::Connected(..)), "{reply:?}");
        }
        pair.run(Duration::from_millis(10));
        pair
    }
}

fn load(pair: &mut Pair, go: Go) {
    let id = pair.host_verb(Verb::User(go));
    pair.host_answer(id, PATIENCE).expect("every request is answered");
}

/// Where counting begins and ends.
pub(crate) const COUNTED: &str = concat!(module_path!(), "::counted");

#[inline(never)]
fn counted(pair: &mut Pair, go: Go) {
    load(pair, go);
    // Something to do behind the call, or it becomes a jump and callgrind sees no end of it.
    black_box(pair);
}

fn subsystem() -> Nqn {
    "nqn.2026-01.org.anabranch:bench".parse().expect("a valid NQN")
}

fn port(index: u16) -> Endpoint {
    Endpoint::Tcp(([127, 0, 0, 1], 4420 + index).into())
}

fn target(paths: u16) -> TargetConfig {
    let namespace = NamespaceConfig {
        nsid: 1,
        backend: BackendConfig::Memory { bytes: BLOCKS * u64::from(BLOCK_BYTES) },
        block_bytes: BLOCK_BYTES,
        uuid: None,
        nguid: None,
        ana_group: 1,
    };
    let subsystem = SubsystemConfig {
        nqn: subsystem(),
        serial: "BENCH".into(),
        model: "bench".into(),
        namespaces: vec![namespace],
        allowed_hosts: Vec::new(),
    };
    let ports = (0..paths).map(|index| PortConfig::new(port(index))).collect();
    TargetConfig { subsystems: vec![subsystem], ports, ..TargetConfig::default() }
}

fn host(policy: Policy) -> HostConfig {
    let name = "nqn.2014-08.org.nvmexpress:uuid:0c0ffee0-0000-4000-8000-000000000001";
    HostConfig {
        host_nqn: name.parse().expect("a valid NQN"),
        host_id: Uuid([1; 16]),
        data_workers: 1,
        shared_queue: false,
        default_policy: policy,
        subsystems: Vec::new(),
        kernel_exact: false,
        max_requests: 256,
        worker_nodes: vec![0],
        distances: Vec::new(),
        shutdown_timeout: Duration::from_secs(5),
    }
}
