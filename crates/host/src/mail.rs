//! What the workers of a host tell each other.

use crate::block_stat::BlockStat;
use crate::explain::ShardExplain;
use crate::topology::{Association, ControllerId, HeadId, Topology};
use crate::user::{IoError, RequestOp};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use anabranch_policy::{FinishTimeReport, Histogram, LatencyReport};
use anabranch_proto::host_queue::{Attempt, Flaw, HostData};
use anabranch_proto::machine::{Endpoint, SocketOptions};
use anabranch_proto::nvme::fabrics::ConnectCommand;
use anabranch_proto::nvme::sqe::Sqe;
use anabranch_proto::nvme::status::Status;
use core::convert::Infallible;
use core::ops::RangeInclusive;
use core::time::Duration;

/// Mail between workers of one host; `U` is what their users tell each other.
#[derive(Debug)]
pub enum Mail<U> {
    /// Control to a shard.
    ToShard(ToShard),
    /// A shard to control.
    ToControl(ToControl),
    /// A shard to a shard: a command through another worker's queue pair.
    Peer(PeerMail),
    /// A user to a user.
    User(U),
}

impl<U> Mail<U> {
    /// What a shard says.
    pub(crate) fn from_shard(mail: Mail<Infallible>) -> Mail<U> {
        match mail {
            Mail::ToShard(mail) => Mail::ToShard(mail),
            Mail::ToControl(mail) => Mail::ToControl(mail),
            Mail::Peer(mail) => Mail::Peer(mail),
            Mail::User(never) => match never {},
        }
    }
}

/// Control to a shard.
#[derive(Debug)]
pub enum ToShard {
    /// The picture has changed. Waiting I/O is tried again.
    Topology(Arc<Topology>),
    /// Open a queue pair of this worker to a controller. Ends in `QueueOpen` or `QueueFailed`.
    OpenQueue(Box<OpenQueue>),
    /// First phase of down, reset and remove: stop using the queue pair, abort its connection, and
    /// answer `QueueStopped` once it is closed. Without a queue pair the answer comes at once.
    StopQueue {
        /// The controller.
        controller: ControllerId,
        /// The association to stop; an older one is already gone.
        association: Association,
    },
    /// Report statistics: `Stats` with the same id.
    ReportStats {
        /// Names the answer.
        id: u64,
        /// Of these heads.
        of: RangeInclusive<HeadId>,
        /// What besides the figures.
        detail: Detail,
    },
    /// Take no more requests; answer `Drained` when all are answered.
    Drain,
}

/// What a shard reports besides its figures: most callers need none of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Nothing.
    None,
    /// What policies have measured.
    Measured,
    /// Why the commands of this head went where they went.
    Explain(HeadId),
    /// No figures but those of this controller's paths that have commands in flight.
    InFlight(ControllerId),
}

/// Which commands a queue pair is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// All.
    All,
    /// Reads; there are others for the rest (`nr_write_queues`).
    Reads,
    /// All but reads.
    Others,
}

/// Everything a shard needs to open a queue pair.
#[derive(Clone, Debug)]
pub struct OpenQueue {
    /// The controller.
    pub controller: ControllerId,
    /// The association that the queue belongs to.
    pub association: Association,
    /// Where.
    pub to: Endpoint,
    /// Socket options.
    pub socket: SocketOptions,
    /// Queue identifier, from 1.
    pub qid: u16,
    /// What it is for.
    pub takes: Takes,
    /// Commands at once.
    pub queue_size: u16,
    /// Data bytes that may travel in a capsule: IOCCSZ * 16 - 64, 0 when none.
    pub in_capsule_bytes: u32,
    /// Digests.
    pub hdr_digest: bool,
    /// Digests.
    pub data_digest: bool,
    /// The Fabrics Connect command for this queue (without CID and SGL) and its 1024 bytes of data.
    pub connect: ConnectCommand,
    /// The data of the Connect command.
    pub connect_data: Box<[u8; 1024]>,
    /// Time limit of the TCP connection.
    pub tcp_limit: Duration,
    /// Time limit of ICResp after that.
    pub icresp_limit: Duration,
    /// Time limit of the whole opening.
    pub timeout: Duration,
    /// Time limit of a command; later pictures may say otherwise.
    pub io_timeout: Duration,
}

/// A shard to control.
#[derive(Debug)]
pub enum ToControl {
    /// The queue pair is connected and carries I/O as soon as the topology says live.
    QueueOpen {
        /// The controller.
        controller: ControllerId,
        /// The association.
        association: Association,
        /// Its identifier.
        qid: u16,
    },
    /// The queue pair could not be opened; its connection is closed.
    QueueFailed {
        /// The controller.
        controller: ControllerId,
        /// The association.
        association: Association,
        /// Its identifier.
        qid: u16,
        /// Why, for a human.
        why: String,
    },
    /// The queue pair was lost (closed, faulty, command time-out). Its connection is being aborted
    /// or closed already; its commands go elsewhere. Control stops the rest of the controller.
    QueueLost {
        /// The controller.
        controller: ControllerId,
        /// The association.
        association: Association,
        /// Its identifier.
        qid: u16,
        /// Why, for a human.
        why: String,
    },
    /// Answer to `StopQueue`.
    QueueStopped {
        /// The controller.
        controller: ControllerId,
        /// The association.
        association: Association,
    },
    /// A command came back with an ANA status: the path is out (here) until a log that was read
    /// after this mail has been processed.
    AnaError {
        /// The controller.
        controller: ControllerId,
        /// The association.
        association: Association,
        /// The head whose path it was.
        head: HeadId,
        /// What the command said.
        status: Status,
    },
    /// Commands went on elsewhere, as their path has fallen silent; the log is to hear of it.
    Rescued(Box<Rescued>),
    /// What a controller has answered with success could not be used; the log is to hear of it.
    Flawed {
        /// The head.
        head: HeadId,
        /// The controller of the path.
        controller: ControllerId,
        /// What was wrong.
        flaw: Flaw,
        /// Commands of this head that were so on this worker since the last mail, untold.
        untold: u32,
    },
    /// A request ends with an error to the user; the log is to hear why.
    RequestFailed(Box<RequestFailed>),
    /// A write that was to be durable (FUA) has failed so that other data may be lost.
    LossSuspected {
        /// The head.
        head: HeadId,
        /// Who said so.
        controller: ControllerId,
        /// What it said.
        status: Status,
    },
    /// A Write Zeroes was refused as a command that the namespace does not have.
    ZeroesRefused {
        /// The head.
        head: HeadId,
        /// Who said so.
        controller: ControllerId,
        /// What it said.
        status: Status,
    },
    /// A command came back with "invalid namespace or format": the namespace list may have changed.
    /// The path is out of use on this worker until a picture comes in which this is counted.
    NamespaceSuspect {
        /// The controller.
        controller: ControllerId,
        /// The association.
        association: Association,
        /// The head whose path it was.
        head: HeadId,
    },
    /// Answer to `ReportStats`.
    Stats {
        /// As asked.
        id: u64,
        /// The figures since the start.
        stats: Box<ShardStats>,
    },
    /// No request of a frozen head is in flight here. Sent once per topology epoch in which the
    /// head is frozen.
    Frozen {
        /// The head.
        head: HeadId,
        /// The epoch in which it was seen frozen.
        epoch: u64,
    },
    /// No command of a quiesced head is given a tag here any more. Sent once per topology epoch in
    /// which the head is quiesced.
    Quiesced {
        /// The head.
        head: HeadId,
        /// The epoch in which it was seen quiesced.
        epoch: u64,
    },
    /// Answer to `Drain`: nothing is in flight.
    Drained,
}

/// A command through another worker's queue pair.
#[derive(Debug)]
pub enum PeerMail {
    /// Carry this command. Ends in exactly one `Done`.
    Carry {
        /// The controller.
        controller: ControllerId,
        /// The association that the sender believes in.
        association: Association,
        /// The head that it is for.
        head: HeadId,
        /// The picture that the sender works from. Who has that, or a newer one, and does not know
        /// the head, knows that it is gone.
        epoch: u64,
        /// The command, without CID and SGL.
        sqe: Sqe,
        /// Its payload.
        data: HostData,
        /// Names the answer.
        token: u64,
    },
    /// Commands that were to be carried are not to be sent any more. Those that have not been are
    /// given back, in their `Done`; of the others nothing changes.
    Recall {
        /// Their names, in ascending order.
        tokens: Arc<[u64]>,
    },
    /// What became of it.
    Done {
        /// As asked.
        token: u64,
        /// The result.
        outcome: CommandOutcome,
    },
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOutcome {
    /// The controller answered.
    Answered {
        /// Its status.
        status: Status,
        /// What makes the status one of ours.
        flaw: Option<Flaw>,
    },
    /// It was not carried, or its queue pair was lost.
    Lost {
        /// Whether the command had been sent.
        attempt: Attempt,
        /// The association whose queue pair is gone: there is no way through it any more. `None`
        /// when only this command came back.
        gone: Option<Association>,
    },
    /// It was not carried: its controller is being reset on request. Until that is over, only
    /// flushes go there, so that what it has acknowledged becomes durable.
    TooLate {
        /// The association that ends so.
        association: Association,
    },
}

/// One shard's figures since its start.
#[derive(Clone, Debug, Default)]
pub struct ShardStats {
    /// Per path that was ever used.
    pub paths: Vec<PathStats>,
    /// Per head that was ever used.
    pub heads: Vec<HeadStats>,
    /// When it was asked for.
    pub explain: Option<Box<ShardExplain>>,
}

impl ShardStats {
    /// Puts them in the order in which [`Self::of_path`] and [`Self::of_head`] look for them.
    pub(crate) fn sort(&mut self) {
        self.paths.sort_by_key(|path| (path.head, path.controller));
        self.heads.sort_by_key(|head| head.head);
    }

    /// None yet, with room for those of so many paths and heads.
    pub(crate) fn with_room(paths: usize, heads: usize) -> ShardStats {
        let (paths, heads) = (Vec::with_capacity(paths), Vec::with_capacity(heads));
        ShardStats { paths, heads, explain: None }
    }

    /// Puts figures of further heads behind these.
    pub(crate) fn append(&mut self, mut more: ShardStats) {
        self.paths.append(&mut more.paths);
        self.heads.append(&mut more.heads);
        self.explain = more.explain.or_else(|| self.explain.take());
    }

    /// What was counted for a path: twice for one that has left and come back, while the former
    /// still has commands. Found without a look at all others, of which there may be tens of
    /// thousands: who tells all of them asks for each.
    pub(crate) fn of_path(&self, head: HeadId, controller: ControllerId) -> &[PathStats] {
        equal(&self.paths, |path| (path.head, path.controller), (head, controller))
    }

    /// What was counted for a head, found in the same way.
    pub(crate) fn of_head(&self, head: HeadId) -> &[HeadStats] {
        equal(&self.heads, |stats| stats.head, head)
    }
}

/// Those that have this key, of some that are sorted by it.
fn equal<T, K: Ord>(sorted: &[T], key: impl Fn(&T) -> K, wanted: K) -> &[T] {
    let first = sorted.partition_point(|one| key(one) < wanted);
    let behind = first + sorted[first..].partition_point(|one| key(one) == wanted);
    &sorted[first..behind]
}

/// Per path and shard.
#[derive(Clone, Debug)]
pub struct PathStats {
    /// The head.
    pub head: HeadId,
    /// The controller.
    pub controller: ControllerId,
    /// Commands completed well: reads, writes, others.
    pub commands: [u64; 3],
    /// Bytes moved by them: read, written.
    pub bytes: [u64; 2],
    /// How long they took, summed: reads, writes, others.
    pub latency_sums_ns: [u64; 3],
    /// Commands that ended with an error of whatever kind.
    pub errors: u64,
    /// Of them, those that the controller has answered with success.
    pub flawed: u64,
    /// Commands tried again on the same path.
    pub retries: u64,
    /// Commands that left this path for the requeue list (`multipath_failover_count`).
    pub failovers: u64,
    /// Of those, writes that had been sent: their outcome was unknown when they were sent again.
    pub uncertain_writes_resent: u64,
    /// Commands in flight now, without a probe.
    pub in_flight: u32,
    /// Probes sent: reads of `finish-time` that nobody waits for, counted nowhere else.
    pub probes: u64,
    /// Bytes that they asked for.
    pub probe_bytes: u64,
    /// Of them, those that ended with an error or with their connection.
    pub probe_errors: u64,
    /// Reads that were stuck here while the path was silent, and were sent again on another.
    pub rescued: u64,
    /// The path is the one that `numa` has cached for this worker.
    pub numa_cached: bool,
    /// What `stat` counts.
    pub stat: BlockStat,
    /// Latency of commands completed well, ns; nothing is kept before the first.
    pub latency_ns: Option<Box<Histogram>>,
    /// What the policy `latency` knows, when it was asked for. (Not of a path that has left.)
    pub latency: Option<Box<LatencyReport>>,
    /// What the policy `finish-time` knows, when it was asked for. (Not of a path that has left.)
    pub finish_time: Option<Box<FinishTimeReport>>,
}

/// Per head and shard.
#[derive(Clone, Debug)]
pub struct HeadStats {
    /// The head.
    pub head: HeadId,
    /// Requests completed well: reads, writes, others.
    pub requests: [u64; 3],
    /// Bytes: read, written.
    pub bytes: [u64; 2],
    /// How long the requests took, summed: reads, writes, others.
    pub latency_sums_ns: [u64; 3],
    /// Requests that ended with an error to the user.
    pub errors: u64,
    /// Requests in flight or waiting now.
    pub in_flight: u32,
    /// Commands that found no usable path and waited (`io_requeue_no_usable_path_count`).
    pub requeued_no_usable_path: u64,
    /// Commands that found no available path and failed (`io_fail_no_available_path_count`).
    pub failed_no_available_path: u64,
    /// Choices under `io-affinity` while no path belonged to this worker.
    pub affinity_misses: u64,
    /// What `stat` counts.
    pub stat: BlockStat,
    /// Latency of requests completed well, ns; nothing is kept before the first.
    pub latency_ns: Option<Box<Histogram>>,
}

/// What has left a path that has fallen silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rescued {
    /// The head.
    pub head: HeadId,
    /// The controller of the path.
    pub controller: ControllerId,
    /// For how long nothing has come from there, ns.
    pub silent_ns: u64,
    /// Reads that were sent again on other paths since the last mail about this one.
    pub reads: u32,
    /// Commands that had not been sent and went to other paths.
    pub unsent: u32,
}

/// A request that ends with an error to its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestFailed {
    /// The head.
    pub head: HeadId,
    /// Who said so, for a status.
    pub controller: Option<ControllerId>,
    /// What the request was.
    pub op: RequestOp,
    /// The first error of its commands.
    pub error: IoError,
    /// What makes its status one of ours.
    pub flaw: Option<Flaw>,
    /// Requests of this head that have failed on this worker since the last mail, untold.
    pub untold: u32,
}
