use crate::config::HostConfig;
use crate::load::{ControllerLoad, PathLoad};
use crate::mail::{CommandOutcome, Mail, PeerMail, ToShard};
use crate::shard::{Shard, ShardMail, ShardOutput};
use crate::topology::{
    Association, ControllerId, ControllerState, ControllerView, HeadId, HeadView, Limits, PathView,
    Topology,
};
use crate::user::{Request, RequestOp, Submit};
use crate::write_marks::WriteMarks;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use anabranch_policy::{LOCAL_DISTANCE, Parameters, Policy};
use anabranch_proto::host_queue::HostData;
use anabranch_proto::machine::{Output, Time, WorkerId};
use anabranch_proto::nvme::Status;
use anabranch_proto::nvme::ana::AnaState;
use anabranch_proto::nvme::ids::Uuid;
use anabranch_proto::testing::MemoryBuffers;
use core::time::Duration;

/// The second of two workers, which submits through the queue pairs of the first.
fn shard() -> Shard {
    let config = HostConfig {
        host_nqn: "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"
            .parse()
            .expect("a valid NQN"),
        host_id: Uuid([7; 16]),
        data_workers: 2,
        shared_queue: true,
        default_policy: Policy::FinishTime,
        policies: Vec::new(),
        kernel_exact: false,
        max_requests: 64,
        worker_nodes: vec![0; 2],
        shutdown_timeout: Duration::from_secs(5),
        seed: 1,
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
        io_timeout: Duration::from_secs(30),
        command_retry_delays: [Duration::ZERO; 3],
        ana_generation: 1,
        load: Arc::new(ControllerLoad::new(2)),
    })
}

/// One head with a path through each of two controllers.
fn topology() -> Arc<Topology> {
    let path = |id| PathView {
        controller: ControllerId(id),
        nsid: 1,
        ana_state: AnaState::Optimized,
        ana_pending: false,
        ready: true,
        doubts: 0,
        zeroes_may_deallocate: false,
        distance: vec![LOCAL_DISTANCE; 2],
        affinity: Vec::new(),
        load: Arc::new(PathLoad::new(2)),
        nodes: Vec::new(),
        writes: Arc::new(WriteMarks::new(0)),
    };
    let head = HeadView {
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
        paths: vec![path(0), path(1)],
        queue_if_no_path: false,
        gone: false,
        quiesced: 0,
        frozen: 0,
        max_retries: 5,
        explain_sample: 0,
        zeroes_refused: false,
    };
    let controllers = vec![controller(0), controller(1)];
    Arc::new(Topology { epoch: 1, controllers, heads: vec![Arc::new(head)] })
}

/// What is mailed to the worker with the queue pairs, in order: controller, token, whether it is a
/// probe.
fn carried(shard: &mut Shard) -> Vec<(ControllerId, u64, bool)> {
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

#[test]
fn the_users_command_is_mailed_before_the_probe_beside_it() {
    let (mut shard, mut bufs) = (shard(), MemoryBuffers::new());
    let mut now = Time::from_ns(1_000_000_000);
    shard.mail(now, WorkerId(0), ShardMail::Control(ToShard::Topology(topology())), &mut bufs);
    let buf = bufs.filled(&[7; 4096]);
    let (mut probes, mut late) = (0, Vec::new());
    for tag in 0..20_000 {
        let op = RequestOp::Write { lba: 0, blocks: 8, buf, fua: false };
        shard.submit(now, Request { head: HeadId(0), op, tag }).expect("there is room");
        shard.pump(now, &mut bufs);
        let mail = carried(&mut shard);
        assert!(!mail[0].2, "the user's command is first");
        assert_eq!(mail.iter().filter(|(.., probe)| !probe).count(), 1);
        probes += mail.len() - 1;
        late.extend(mail.iter().filter(|(.., probe)| *probe).map(|(_, token, _)| *token));
        // The second controller takes a hundred times as long.
        let far = mail[0].0 == ControllerId(1);
        now = now.after(Duration::from_micros(if far { 10_000 } else { 100 }));
        let user = mail[0].1;
        for token in [user].into_iter().chain(late.drain(..)) {
            let outcome = CommandOutcome::Answered { status: Status::SUCCESS, result: 0 };
            let done = PeerMail::Done { token, outcome };
            shard.mail(now, WorkerId(1), ShardMail::Peer(done), &mut bufs);
        }
        assert!(shard.poll_done().is_some_and(|done| done.result.is_ok()));
    }
    assert!(probes > 1, "there were probes: {probes}");
}
