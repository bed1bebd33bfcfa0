use crate::config::HostConfig;
use crate::load::{ControllerLoad, PathLoad};
use crate::mail::{CommandOutcome, Mail, PeerMail, ToShard};
use crate::shard::{Shard, ShardMail, ShardOutput};
use crate::topology::{
    Association, ControllerId, ControllerState, ControllerView, HeadId, HeadView, Limits, PathId,
    PathView, Topology,
};
use crate::user::{Request, RequestOp, Submit};
use crate::write_marks::WriteMarks;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use anabranch_policy::{LOCAL_DISTANCE, Parameters, Policy};
use anabranch_proto::host_queue::{Attempt, HostData};
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
        distances: Vec::new(),
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
    let path = |id: u32| PathView {
        id: PathId(id.into()),
        controller: ControllerId(id),
        nsid: 1,
        ana_state: AnaState::Optimized,
        ana_pending: false,
        ready: true,
        doubts: 0,
        zeroes_may_deallocate: false,
        distance: [LOCAL_DISTANCE; 2].into(),
        affinity: Arc::default(),
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

/// So many writes of a user, one by one, beside probes that end as they are told to. Gives back how
/// many these were.
fn load(shard: &mut Shard, probe_ends: impl Fn() -> CommandOutcome) -> u64 {
    let mut bufs = MemoryBuffers::new();
    let mut now = Time::from_ns(1_000_000_000);
    shard.mail(now, WorkerId(0), ShardMail::Control(ToShard::Topology(topology())), &mut bufs);
    let room = shard.commands.room();
    let buf = bufs.filled(&[7; 4096]);
    let mut probes = 0;
    for tag in 0..20_000 {
        let op = RequestOp::Write { lba: 0, blocks: 8, buf, fua: false };
        shard.submit(now, Request { head: HeadId(0), op, tag }).expect("there is room");
        shard.pump(now, &mut bufs);
        let mail = carried(shard);
        assert!(!mail[0].2, "the user's command is first");
        assert_eq!(mail.iter().filter(|(.., probe)| !probe).count(), 1);
        probes += mail.len() as u64 - 1;
        // The second controller takes a hundred times as long.
        let far = mail[0].0 == ControllerId(1);
        now = now.after(Duration::from_micros(if far { 10_000 } else { 100 }));
        for (_, token, probe) in mail {
            let outcome = if probe { probe_ends() } else { answered(Status::SUCCESS) };
            let done = PeerMail::Done { token, outcome };
            shard.mail(now, WorkerId(1), ShardMail::Peer(done), &mut bufs);
        }
        assert!(shard.poll_done().is_some_and(|done| done.result.is_ok()));
    }
    assert_eq!((shard.probes, shard.commands.room()), (0, room), "all places are free again");
    probes
}

fn answered(status: Status) -> CommandOutcome {
    CommandOutcome::Answered { status, result: 0 }
}

#[test]
fn the_users_command_is_mailed_before_the_probe_beside_it() {
    let probes = load(&mut shard(), || answered(Status::SUCCESS));
    assert!(probes > 1, "there were probes: {probes}");
}

#[test]
fn a_probe_counts_as_an_error_when_it_was_sent_and_did_not_end_well() {
    let lost = |attempt| CommandOutcome::Lost { attempt, gone: None };
    let ends: [(&dyn Fn() -> CommandOutcome, u64); 4] = [
        (&|| answered(Status::SUCCESS), 0),
        (&|| lost(Attempt::NeverSent), 0),
        (&|| lost(Attempt::Uncertain), 1),
        (&|| answered(Status::INTERNAL_ERROR), 1),
    ];
    for (at, (ends, errors)) in ends.into_iter().enumerate() {
        let mut shard = shard();
        let probes = load(&mut shard, ends);
        assert!(probes > 0);
        let counted: u64 = shard.stats.paths.iter().map(|path| path.probe_errors).sum();
        assert_eq!(counted, errors * probes, "case {at}");
    }
}
