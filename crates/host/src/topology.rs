//! What control publishes and every shard works from: an immutable picture of controllers, heads
//! and paths. Each change is a new picture with a higher epoch; shards replace theirs as a whole.

use crate::failed_flushes::FailedFlushes;
use crate::leftovers::Leftovers;
use crate::load::{ControllerLoad, PathLoad};
use crate::write_marks::{WriteMarks, WrittenUnder};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use anabranch_policy::{Affinity, NodeLatency, Parameters};
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::ana::AnaState;
use core::fmt;
use core::time::Duration;

/// Names a controller; not used again while the process lives (unlike the N of `nvmeN`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControllerId(pub u32);

/// A namespace head's index in the topology. Not used again while the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeadId(pub u32);

/// Names a path; not used again while the process lives. A namespace that comes back through the
/// same controller is another path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u64);

/// Counts the connections of one controller: each (re)connect is a new association. Mail that
/// names an old association is stale and ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Association(pub u32);

/// States of a controller, the kernel's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControllerState {
    /// Known, never connected.
    New,
    /// Carries I/O.
    Live,
    /// Being taken down after an error or on request.
    Resetting,
    /// Waiting to (re)connect or connecting.
    Connecting,
    /// Being removed in an orderly way; may still finish I/O.
    Deleting,
    /// Gone.
    Dead,
}

impl ControllerState {
    /// What whoever asks for a controller is told that is there, in this state.
    #[must_use]
    pub fn already(self) -> &'static str {
        match self {
            ControllerState::Live => "already connected",
            _ => "already being connected",
        }
    }
}

impl fmt::Display for ControllerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ControllerState::New => "new",
            ControllerState::Live => "live",
            ControllerState::Resetting => "resetting",
            ControllerState::Connecting => "connecting",
            ControllerState::Deleting => "deleting",
            ControllerState::Dead => "dead",
        })
    }
}

/// The whole picture.
#[derive(Debug, Default)]
pub struct Topology {
    /// Grows with every change.
    pub epoch: u64,
    /// Controllers that exist, ordered by id.
    pub controllers: Vec<Arc<ControllerView>>,
    /// Heads that exist, ordered by id.
    pub heads: Vec<Arc<HeadView>>,
}

/// A controller as shards see it.
#[derive(Debug)]
pub struct ControllerView {
    /// Its instance number.
    pub id: ControllerId,
    /// Its current (or, when down, last) association.
    pub association: Association,
    /// Its state.
    pub state: ControllerState,
    /// `fast_io_fail_tmo` has passed since the connection was lost.
    pub fast_io_failed: bool,
    /// For each data worker in order: the worker that owns the queue pair it submits through.
    /// Itself normally; another one when the controller grants fewer queues or one queue is shared.
    pub queue_of_worker: Vec<WorkerId>,
    /// The same for its reads, which may have queue pairs of their own.
    pub read_queue_of_worker: Vec<WorkerId>,
    /// Commands that each of its queue pairs carries at once.
    pub tags: u16,
    /// Time limit of one I/O command.
    pub io_timeout: Duration,
    /// How long to wait before a command is tried again, by the status's CRD field 1 to 3
    /// (Identify Controller, CRDT1 to CRDT3).
    pub command_retry_delays: [Duration; 3],
    /// Grows with each ANA log that was processed for this controller. A shard that has met an
    /// ANA status keeps the path out until it sees a higher number than at that moment.
    pub ana_generation: u64,
    /// What is in flight on it, all workers.
    pub load: Arc<ControllerLoad>,
}

/// A namespace head as shards and users see it.
#[derive(Clone, Debug)]
pub struct HeadView {
    /// Its index.
    pub id: HeadId,
    /// `nvme0n1`.
    pub name: String,
    /// Its world wide identifier, as the attribute `wwid` has it: the same after a restart.
    pub wwid: String,
    /// Blocks on the device.
    pub blocks: u64,
    /// Bytes per block, a power of two from 512.
    pub block_bytes: u32,
    /// The strictest limits over its paths.
    pub limits: Limits,
    /// How its paths are chosen: the I/O policy of its subsystem and what can be set about it.
    pub parameters: Parameters,
    /// Grows with changes of these after which cached choices and measurements are worth nothing
    /// any more: they are dropped.
    pub policy_epoch: u32,
    /// Paths in the order of their addition.
    pub paths: Vec<PathView>,
    /// I/O waits although no path may come back (delayed removal).
    pub queue_if_no_path: bool,
    /// The head is removed: everything that waits fails.
    pub gone: bool,
    /// Dispatch is stopped while not zero; commands in flight go on (quiesce nests).
    pub quiesced: u32,
    /// New requests wait while not zero, and each shard reports when its own are all answered.
    pub frozen: u32,
    /// How often a command that failed for another reason than its path is tried again.
    pub max_retries: u8,
    /// One in so many choices of a worker is noted in full; 0 = none.
    pub explain_sample: u32,
    /// A worker was refused a Write Zeroes as a command that the namespace does not have: no more
    /// are taken, whatever the limits say.
    pub zeroes_refused: bool,
    /// Under which picture a write was acknowledged last, on any worker: whoever has an older one
    /// waits before it flushes. Made once per head, kept in every picture.
    pub written: Arc<WrittenUnder>,
    /// What users have withdrawn and a controller may still carry out, on any worker. Made and kept
    /// as that.
    pub leftovers: Arc<Leftovers>,
    /// Flushes that a controller has failed, on any worker. Made and kept as the above.
    pub failed_flushes: Arc<FailedFlushes>,
}

impl HeadView {
    /// Whether it is the device that somebody calls so: by its name, or by its world wide
    /// identifier.
    #[must_use]
    pub fn is_called(&self, device: &str) -> bool {
        is_called(&self.name, &self.wwid, device)
    }
}

/// The same of a device with this name and this identifier.
#[must_use]
pub fn is_called(name: &str, wwid: &str, device: &str) -> bool {
    name == device || wwid.eq_ignore_ascii_case(device)
}

/// One path of a head.
#[derive(Clone, Debug)]
pub struct PathView {
    /// Its name.
    pub id: PathId,
    /// The controller it goes through.
    pub controller: ControllerId,
    /// The namespace's NSID there.
    pub nsid: u32,
    /// ANA state of its group there.
    pub ana_state: AnaState,
    /// An ANA log must be read before the path may be used.
    pub ana_pending: bool,
    /// Its controller was asked which namespace it is, since that was last in doubt: the head's.
    pub verified: bool,
    /// Its size there, when that was asked last, in blocks.
    pub blocks: u64,
    /// That, and its size is the head's.
    pub ready: bool,
    /// How often workers have reported that there is no such namespace; only grows.
    pub doubts: u32,
    /// How often it has come into doubt which namespace it leads to, for whatever reason; modulo
    /// 2^32.
    pub doubted: u32,
    /// Write Zeroes may be told there to give the space back.
    pub zeroes_may_deallocate: bool,
    /// NUMA distance from each data worker, in order.
    pub distance: Arc<[u32]>,
    /// For each data worker, in order: whether the path is assigned to it, for `io-affinity`.
    pub affinity: Arc<[Affinity]>,
    /// What selection counts and measures by path. Paths share one, in which nothing is counted,
    /// until a policy first counts by path; from then on they have their own in every picture.
    pub load: Arc<PathLoad>,
    /// What the workers of each NUMA node measure together; nothing unless `latency` averages so.
    pub nodes: Vec<Arc<NodeLatency>>,
    /// What a flush through this path has to cover; made once per path, kept in every picture.
    pub writes: Arc<WriteMarks>,
}

/// What a head accepts at once. Larger requests are split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in one read, write or compare command.
    pub max_transfer_bytes: u32,
    /// Blocks in one Write Zeroes command; 0 = not supported.
    pub max_write_zeroes_blocks: u32,
    /// Blocks in one deallocate command; 0 = not supported.
    pub max_discard_blocks: u32,
    /// Some path has a volatile write cache: flush and FUA mean something.
    pub volatile_write_cache: bool,
    /// Compare is supported.
    pub compare: bool,
    /// Every path is write-protected.
    pub read_only: bool,
}
