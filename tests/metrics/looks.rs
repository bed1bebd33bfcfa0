//! Looks without a host.

use anabranch::daemon::host::ExportState;
use anabranch::daemon::metrics::{Look, Source, Unavailable};
use anabranch_host::load::Charged;
use anabranch_host::topology::{ControllerState, PathId};
use anabranch_host::verb::{
    AwaitedSnapshot, ControllerSnapshot, HeadSnapshot, HostSnapshot, PathSnapshot, PolicySource,
    SubsystemSnapshot,
};
use anabranch_policy::{FinishTimeReport, Histogram};
use anabranch_proto::machine::Time;
use anabranch_proto::nvme::ana::AnaState;
use std::sync::Arc;
use std::time::SystemTime;

/// A policy, and what else is different.
pub(crate) struct With<'a> {
    pub(crate) policy: &'a str,
    /// What the target says of itself.
    pub(crate) text: &'a str,
}

fn controller(with: &With<'_>) -> ControllerSnapshot {
    ControllerSnapshot {
        name: "nvme0".into(),
        transport: "tcp".into(),
        traddr: "127.0.0.1".into(),
        trsvcid: "4420".into(),
        host_traddr: Some(with.text.into()),
        host_iface: Some(with.text.into()),
        src_addr: None,
        state: ControllerState::Live,
        cntlid: Some(1),
        serial: with.text.into(),
        model: with.text.into(),
        firmware: with.text.into(),
        io_queues: 2,
        queue_size: 128,
        reconnects: 3,
        reconnect_attempts: 5,
        resets: 4,
        last_error: Some(with.text.into()),
        options: Vec::new(),
        ignored: Vec::new(),
    }
}

fn path(with: &With<'_>) -> PathSnapshot {
    let estimates = FinishTimeReport {
        measured: true,
        rate_bytes_per_s: 200_000_000,
        rate_is_least: true,
        apart_bytes_per_s: None,
        in_flight_bytes: 8192,
        base_ns: [[0, 250_000, 0, 0, 0, 0, 0, 0], [0; 8]],
        finish_ns: 1_500_000,
        outliers_ns: 0,
        standing_ns: 0,
        toll_ns: 0,
        elasticity_percent: None,
        silent_ns: 0,
        probes: 1,
        probe_bytes: 4096,
    };
    let mut latency = Histogram::new();
    [100_000, 200_000, 3_000_000].into_iter().for_each(|ns| latency.record(ns));
    PathSnapshot {
        id: PathId(1),
        name: "nvme0c0n1".into(),
        controller: "nvme0".into(),
        ana_state: AnaState::NonOptimized,
        ana_group: 1,
        usable: true,
        hindrance: None,
        queue_depth: 2,
        relative_throughput: 7,
        charged: Charged { bytes: 12_288, ..Charged::default() },
        latency_weights: (with.policy == "latency").then_some([128, 64, 0]),
        finish_time: (with.policy == "finish-time").then(|| Box::new(estimates)),
        numa_nodes: Vec::new(),
        commands: [2, 1, 0],
        bytes: [8192, 4096],
        latency_sums_ns: [300_000, 3_000_000, 0],
        errors: 1,
        flawed: 10,
        retries: 2,
        failovers: 3,
        uncertain_writes_resent: 4,
        in_flight: 5,
        probes: 6,
        probe_bytes: 7,
        probe_errors: 8,
        rescued: 9,
        latency_ns: Arc::new(latency),
    }
}

fn head(with: &With<'_>) -> HeadSnapshot {
    HeadSnapshot {
        name: "nvme0n1".into(),
        wwid: with.text.into(),
        nsid: 1,
        uuid: None,
        nguid: None,
        eui64: None,
        blocks: 2048,
        used_blocks: 0,
        block_bytes: 512,
        read_only: false,
        requests: [2, 1, 0],
        bytes: [8192, 4096],
        latency_sums_ns: [300_000, 3_000_000, 0],
        errors: 1,
        in_flight: 2,
        quiesced: 2,
        frozen: 1,
        requeued_no_usable_path: 3,
        failed_no_available_path: 4,
        latency_ns: Arc::default(),
        paths: vec![path(with)],
    }
}

/// One subsystem, one controller, one device, one path.
pub(crate) fn look(with: &With<'_>) -> Look {
    let text = || with.text.to_owned();
    let subsystem = SubsystemSnapshot {
        name: "nvme-subsys0".into(),
        nqn: text(),
        model: text(),
        serial: text(),
        firmware: text(),
        iopolicy: with.policy.into(),
        iopolicy_default: "queue-depth".into(),
        awaited: vec![AwaitedSnapshot {
            name: "nvme1".into(),
            traddr: text(),
            trsvcid: "4420".into(),
        }],
        unborn: Vec::new(),
        iopolicy_source: PolicySource::Attribute,
        kernel_exact: false,
        queue_depth_scope: "controller".into(),
        controllers: vec![controller(with)],
        heads: vec![head(with)],
    };
    let snapshot = HostSnapshot {
        at: Time::default(),
        data_workers: 2,
        host_nqn: text(),
        host_id: text(),
        subsystems: vec![subsystem],
    };
    Look {
        snapshot: Box::new(snapshot),
        start_time: SystemTime::UNIX_EPOCH,
        nbd_clients: 1,
        exports: vec![ExportState { name: "disk".to_owned(), clients: 1, present: false }],
    }
}

/// Always answers the same.
pub(crate) struct Fixed(pub(crate) Result<Look, Unavailable>);

impl Fixed {
    pub(crate) fn good() -> Fixed {
        Fixed(Ok(look(&With { policy: "queue-depth", text: "x" })))
    }
}

impl Source for Fixed {
    fn look(&self) -> Result<Look, Unavailable> {
        self.0.clone()
    }
}
