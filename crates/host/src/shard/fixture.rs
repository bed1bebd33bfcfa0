//! What tests of one shard start from: a shard without queue pairs of its own, and pictures for it.

use super::{Shard, ShardOutput};
use crate::config::HostConfig;
use crate::load::{ControllerLoad, PathLoad};
use crate::mail::{CommandOutcome, Mail, PeerMail};
use crate::topology::{
    Association, ControllerId, ControllerState, ControllerView, HeadId, HeadView, Limits, PathId,
    PathView, Topology,
};
use crate::write_marks::WriteMarks;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use anabranch_policy::{LOCAL_DISTANCE, Parameters, Policy};
use anabranch_proto::host_queue::HostData;
use anabranch_proto::machine::{Output, WorkerId};
use anabranch_proto::nvme::Status;
use anabranch_proto::nvme::ana::AnaState;
use anabranch_proto::nvme::ids::Uuid;
use core::time::Duration;

/// The second of two workers, which submits through the queue pairs of the first.
pub(super) fn shard() -> Shard {
    let config = HostConfig {
        host_nqn: "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"
            .parse()
            .expect("a valid NQN"),
        host_id: Uuid([7; 16]),
        data_workers: 2,
        shared_queue: true,
        default_policy: Policy::FinishTime,
        subsystems: Vec::new(),
        kernel_exact: false,
        max_requests: 64,
        worker_nodes: vec![0; 2],
        distances: Vec::new(),
        shutdown_timeout: Duration::from_secs(5),
    };
    Shard::new(&config, WorkerId(2))
}

fn controller(id: u32) -> Arc<ControllerView> {
    Arc::new(ControllerView {
        id: ControllerId(id),
        association: Association(1),
        state: ControllerState::Live,
        fast_io_failed: false,
        queue_of_worker: vec![WorkerId(1); 2],
        read_queue_of_worker: vec![WorkerId(1); 2],
        tags: 0,
        io_timeout: Duration::from_secs(30),
        command_retry_delays: [Duration::ZERO; 3],
        ana_generation: 1,
        load: Arc::new(ControllerLoad::new(2)),
    })
}

/// A path through the controller with the same number.
pub(super) fn path(id: u32) -> PathView {
    PathView {
        id: PathId(id.into()),
        controller: ControllerId(id),
        nsid: 1,
        ana_state: AnaState::Optimized,
        ana_pending: false,
        verified: true,
        blocks: 0,
        ready: true,
        doubts: 0,
        doubted: 0,
        zeroes_may_deallocate: false,
        distance: [LOCAL_DISTANCE; 2].into(),
        affinity: Arc::default(),
        load: Arc::new(PathLoad::new(2)),
        nodes: Vec::new(),
        writes: Arc::new(WriteMarks::new(0)),
    }
}

/// A head with these paths.
pub(super) fn head(paths: Vec<PathView>) -> HeadView {
    HeadView {
        id: HeadId(0),
        name: "nvme0n1".to_string(),
        wwid: "uuid.0".to_string(),
        blocks: 1 << 20,
        block_bytes: 512,
        limits: Limits {
            max_transfer_bytes: 1 << 20,
            max_write_zeroes_blocks: 0,
            max_discard_blocks: 0,
            volatile_write_cache: false,
            compare: false,
            read_only: false,
        },
        parameters: Parameters::of(Policy::FinishTime),
        policy_epoch: 0,
        paths,
        queue_if_no_path: false,
        gone: false,
        quiesced: 0,
        frozen: 0,
        max_retries: 5,
        explain_sample: 0,
        zeroes_refused: false,
        written: Arc::default(),
        leftovers: Arc::default(),
        failed_flushes: Arc::default(),
    }
}

/// A picture with one head, all of whose paths can be used.
pub(super) fn picture(epoch: u64, head: HeadView) -> Arc<Topology> {
    let controllers = head.paths.iter().map(|path| controller(path.controller.0)).collect();
    Arc::new(Topology { epoch, controllers, heads: vec![Arc::new(head)] })
}

/// What is mailed to the worker with the queue pairs, in order: controller, token, whether it is a
/// probe.
pub(super) fn carried(shard: &mut Shard) -> Vec<(ControllerId, u64, bool)> {
    let mut carried = Vec::new();
    while let Some(output) = shard.poll_output() {
        let output: ShardOutput = output;
        if let Output::Mail {
            mail: Mail::Peer(PeerMail::Carry { controller, data, token, .. }),
            ..
        } = output
        {
            carried.push((controller, token, matches!(data, HostData::Sink(_))));
        }
    }
    carried
}

/// It was answered so.
pub(super) fn answered(status: Status) -> CommandOutcome {
    CommandOutcome::Answered { status, flaw: None }
}
