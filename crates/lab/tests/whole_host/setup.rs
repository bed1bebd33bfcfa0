//! What tests of host and target together have in common: names, addresses, configurations.

use anabranch_host::config::{ConnectRequest, ControllerOptions, DEFAULT_MAX_REQUESTS, HostConfig};
use anabranch_policy::Policy;
use anabranch_proto::machine::Endpoint;
use anabranch_proto::nvme::{Nqn, Uuid};
use anabranch_target::TargetConfig;
use anabranch_target::config::{BackendConfig, NamespaceConfig, PortConfig, SubsystemConfig};
use std::time::Duration;

/// The subsystem that every test connects to.
pub(crate) fn subsystem() -> Nqn {
    "nqn.2026-01.org.anabranch:pair".parse().expect("a valid NQN")
}

/// The address of a port of the target.
pub(crate) fn port(index: u16) -> Endpoint {
    Endpoint::Tcp(([127, 0, 0, 1], 4420 + index).into())
}

/// A namespace in memory, in ANA group 1.
pub(crate) fn namespace(nsid: u32, block_bytes: u32) -> NamespaceConfig {
    NamespaceConfig {
        nsid,
        backend: BackendConfig::Memory { bytes: 1 << 20 },
        block_bytes,
        uuid: None,
        nguid: None,
        ana_group: 1,
    }
}

/// A target with one subsystem.
pub(crate) fn target(ports: Vec<PortConfig>, namespaces: Vec<NamespaceConfig>) -> TargetConfig {
    let subsystem = SubsystemConfig {
        nqn: subsystem(),
        serial: "PAIR".into(),
        model: "pair".into(),
        namespaces,
        allowed_hosts: Vec::new(),
    };
    TargetConfig { subsystems: vec![subsystem], ports, ..TargetConfig::default() }
}

/// A host whose workers are all on node 0.
pub(crate) fn host(data_workers: u16, policy: Policy) -> HostConfig {
    let name = "nqn.2014-08.org.nvmexpress:uuid:0c0ffee0-0000-4000-8000-000000000001";
    HostConfig {
        host_nqn: name.parse().expect("a valid NQN"),
        host_id: Uuid([1; 16]),
        data_workers,
        shared_queue: false,
        default_policy: policy,
        subsystems: Vec::new(),
        kernel_exact: false,
        max_requests: DEFAULT_MAX_REQUESTS.min(64),
        worker_nodes: vec![0; usize::from(data_workers)],
        distances: Vec::new(),
        shutdown_timeout: Duration::from_secs(5),
    }
}

/// How to connect to a port.
pub(crate) fn connect(index: u16, options: &ControllerOptions) -> ConnectRequest {
    ConnectRequest {
        subsystem_nqn: subsystem(),
        to: port(index),
        options: options.clone(),
        keep_trying: true,
    }
}
