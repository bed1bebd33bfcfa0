//! What can be asked of a running host, and the answers: plain values, printed by others.

use crate::attribute::{Attribute, Dir, ObjectKind};
use crate::config::ConnectRequest;
use crate::explain::ExplainReport;
use crate::load::Charged;
use crate::topology::{ControllerState, PathId};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use anabranch_policy::{FinishTimeReport, Histogram};
use anabranch_proto::machine::{Endpoint, Time};
use anabranch_proto::nvme::ana::AnaState;
use anabranch_proto::nvme::log::DiscoveryEntry;
use anabranch_proto::nvme::nqn::Nqn;
use core::convert::Infallible;
use core::fmt;

/// A number that was set aside. Not used again while the process lives: the number itself, which is
/// given again, may be set aside for another one of the same subsystem later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsideId(pub u64);

/// A control request. `U` is the users' own verb.
#[derive(Debug)]
pub enum Verb<U> {
    /// Add a controller. Answered `Connected` when it is live; an error when the first attempt
    /// fails (unless `keep_trying`: then answered at once with the name).
    Connect(Box<ConnectRequest>),
    /// Keep the number that the next controller would have for one of this subsystem that cannot
    /// be connected yet: so the others, and the devices, are called as if it were there. Answered
    /// `SetAside`.
    SetAside {
        /// The subsystem.
        nqn: Nqn,
        /// The name that has no address yet.
        traddr: String,
        /// Port.
        trsvcid: String,
    },
    /// Such a number is wanted no more. Answered `Done`; an error where the controller has come.
    GiveUp(AsideId),
    /// As `Connect`, with a number that was set aside.
    ConnectAs(AsideId, Box<ConnectRequest>),
    /// The controller that this request made is at another address now: attempts to connect that
    /// begin from now on go there, unless the one that is under way succeeds, or somebody else has
    /// the address by then. Answered `Done`; an error while it is connected.
    Move {
        /// What it was asked for with, and where it is tried now.
        request: Box<ConnectRequest>,
        /// Where it is.
        to: Endpoint,
    },
    /// Remove controllers in an orderly way. Answered `Disconnected` when they are gone.
    Disconnect(Selection),
    /// Read the discovery log of a discovery controller (its NQN is in the request), then leave.
    Discover(Box<ConnectRequest>),
    /// Everything there is to see.
    Snapshot,
    /// The same with what policies have measured (it costs the workers more). Answered `Snapshot`.
    Watch,
    /// Every object that has attributes, and what belongs to what.
    Objects,
    /// What an object is and which attributes it shows, without their texts: costs no figures.
    Describe {
        /// The object.
        object: String,
    },
    /// Everything that an object shows, texts included.
    Attributes {
        /// The object; all of them when there is none.
        object: Option<String>,
    },
    /// Read an attribute: `OBJECT` is `nvme_core`, `nvme-subsysN`, `nvmeN`, `nvmeXnY`, `nvmeXcYnZ`.
    Get {
        /// The object.
        object: String,
        /// The attribute.
        attribute: String,
    },
    /// Write an attribute.
    Set {
        /// The object.
        object: String,
        /// The attribute.
        attribute: String,
        /// The new value as text.
        value: String,
    },
    /// Why commands of a device went where they went.
    Explain {
        /// `nvmeXnY`.
        device: String,
    },
    /// Read the ANA log from a controller now: raw bytes.
    AnaLog {
        /// `nvmeN`.
        controller: String,
    },
    /// Identify Controller, raw 4096 bytes, from the controller now.
    IdCtrl {
        /// `nvmeN`.
        controller: String,
    },
    /// Identify Namespace, raw 4096 bytes, from a controller of the head now.
    IdNs {
        /// `nvmeXnY`.
        device: String,
    },
    /// Reset a controller: answered when it is live again or the attempt failed.
    Reset {
        /// `nvmeN`.
        controller: String,
    },
    /// Stop dispatch on a head and answer when every worker has; commands in flight go on. Nests.
    Quiesce {
        /// `nvmeXnY`.
        device: String,
    },
    /// Undo one `Quiesce`.
    Unquiesce {
        /// `nvmeXnY`.
        device: String,
    },
    /// Let no new request in and answer when none is in flight. Nests.
    Freeze {
        /// `nvmeXnY`.
        device: String,
    },
    /// Undo one `Freeze`.
    Unfreeze {
        /// `nvmeXnY`.
        device: String,
    },
    /// Stop taking I/O, finish what is in flight within `shutdown_timeout`, shut controllers down.
    Shutdown,
    /// For the user on the control worker.
    User(U),
}

impl<U> Verb<U> {
    /// The verb as control takes it; `None` for the user's own.
    pub(crate) fn for_control(self) -> Option<Verb<Infallible>> {
        Some(match self {
            Verb::Connect(request) => Verb::Connect(request),
            Verb::SetAside { nqn, traddr, trsvcid } => Verb::SetAside { nqn, traddr, trsvcid },
            Verb::GiveUp(aside) => Verb::GiveUp(aside),
            Verb::ConnectAs(aside, request) => Verb::ConnectAs(aside, request),
            Verb::Move { request, to } => Verb::Move { request, to },
            Verb::Disconnect(selection) => Verb::Disconnect(selection),
            Verb::Discover(request) => Verb::Discover(request),
            Verb::Snapshot => Verb::Snapshot,
            Verb::Watch => Verb::Watch,
            Verb::Objects => Verb::Objects,
            Verb::Describe { object } => Verb::Describe { object },
            Verb::Attributes { object } => Verb::Attributes { object },
            Verb::Get { object, attribute } => Verb::Get { object, attribute },
            Verb::Set { object, attribute, value } => Verb::Set { object, attribute, value },
            Verb::Explain { device } => Verb::Explain { device },
            Verb::AnaLog { controller } => Verb::AnaLog { controller },
            Verb::IdCtrl { controller } => Verb::IdCtrl { controller },
            Verb::IdNs { device } => Verb::IdNs { device },
            Verb::Reset { controller } => Verb::Reset { controller },
            Verb::Quiesce { device } => Verb::Quiesce { device },
            Verb::Unquiesce { device } => Verb::Unquiesce { device },
            Verb::Freeze { device } => Verb::Freeze { device },
            Verb::Unfreeze { device } => Verb::Unfreeze { device },
            Verb::Shutdown => Verb::Shutdown,
            Verb::User(_) => return None,
        })
    }
}

/// Which controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All of a subsystem.
    Subsystem(Nqn),
    /// One, `nvmeN`.
    Controller(String),
    /// All.
    All,
}

/// The answer to a verb.
#[derive(Debug)]
pub enum Reply<U> {
    /// The verb failed.
    Error(VerbError),
    /// The controller's name, `nvmeN`, and what it has that became no path (of which nothing is
    /// known yet where it is kept trying).
    Connected(String, Vec<IgnoredSnapshot>),
    /// The number of the controller that is to come, and by what it is asked for.
    SetAside(u32, AsideId),
    /// How many controllers were removed.
    Disconnected(u32),
    /// The entries of a discovery log and its generation counter.
    Discovered {
        /// Generation counter.
        generation: u64,
        /// The entries that could be understood.
        entries: Vec<DiscoveryEntry>,
        /// Why others could not: a line each for the first ones, then one that says how many more.
        skipped: Vec<String>,
    },
    /// Everything there is to see.
    Snapshot(Box<HostSnapshot>),
    /// Every object that has attributes.
    Objects(Vec<Object>),
    /// An object and which attributes it shows.
    Description(Object, Vec<&'static Attribute>),
    /// What objects show.
    Attributes(Vec<ObjectAttributes>),
    /// Why commands went where they went.
    Explain(Box<ExplainReport>),
    /// An attribute's text, without newline.
    Value(String),
    /// Raw bytes of a log or identify structure.
    Raw(Vec<u8>),
    /// Done, nothing more to say.
    Done,
    /// Requests that were still unanswered when the time was over (0 = a clean end).
    ShutDown {
        /// How many.
        unanswered: u64,
    },
    /// From the user.
    User(U),
}

impl<U> Reply<U> {
    /// What control answered.
    pub(crate) fn from_control(reply: Reply<Infallible>) -> Reply<U> {
        match reply {
            Reply::Error(error) => Reply::Error(error),
            Reply::Connected(name, ignored) => Reply::Connected(name, ignored),
            Reply::SetAside(number, aside) => Reply::SetAside(number, aside),
            Reply::Disconnected(count) => Reply::Disconnected(count),
            Reply::Discovered { generation, entries, skipped } => {
                Reply::Discovered { generation, entries, skipped }
            }
            Reply::Snapshot(snapshot) => Reply::Snapshot(snapshot),
            Reply::Objects(objects) => Reply::Objects(objects),
            Reply::Description(object, shows) => Reply::Description(object, shows),
            Reply::Attributes(attributes) => Reply::Attributes(attributes),
            Reply::Explain(report) => Reply::Explain(report),
            Reply::Value(text) => Reply::Value(text),
            Reply::Raw(bytes) => Reply::Raw(bytes),
            Reply::Done => Reply::Done,
            Reply::ShutDown { unanswered } => Reply::ShutDown { unanswered },
            Reply::User(never) => match never {},
        }
    }
}

/// Why a verb failed: who or what, and a clear sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerbError {
    /// No such object, attribute or value; not writable: the caller's mistake.
    Invalid(String),
    /// A number beyond what the attribute's type holds (`ERANGE` in the kernel).
    OutOfRange(String),
    /// Something is in the way, or a limit is reached.
    Conflict(String),
    /// A path to the same address was asked for before, and is there.
    Connected(String),
    /// The peer or the network failed us.
    Failed(String),
}

impl fmt::Display for VerbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VerbError::Invalid(text)
            | VerbError::OutOfRange(text)
            | VerbError::Conflict(text)
            | VerbError::Connected(text)
            | VerbError::Failed(text) => f.write_str(text),
        }
    }
}

/// An object that has attributes, and what it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: ObjectKind,
    /// The subsystem that it is or belongs to. A controller that was never admitted stands with
    /// the others of its NQN, and has none when there are no others.
    pub subsystem: Option<String>,
    /// The controller that it is, or that a path leads through.
    pub controller: Option<String>,
    /// The device that it is, or that a path leads to.
    pub head: Option<String>,
}

/// What an object shows now.
#[derive(Clone, Debug)]
pub struct ObjectAttributes {
    /// Which object.
    pub object: Object,
    /// Its attributes.
    pub attributes: Vec<ShownAttribute>,
}

/// An attribute and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownAttribute {
    /// Its name.
    pub name: &'static str,
    /// Where it stands.
    pub dir: Dir,
    /// Permission bits of its file; writable when the owner's write bit is set.
    pub mode: u16,
    /// Its text, without newline.
    pub text: String,
}

impl ShownAttribute {
    /// Whether it can be written.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.mode & 0o200 != 0
    }
}

/// Everything there is to see.
#[derive(Clone, Debug)]
pub struct HostSnapshot {
    /// When this was true.
    pub at: Time,
    /// Data workers.
    pub data_workers: u16,
    /// Host NQN.
    pub host_nqn: String,
    /// Host identifier as UUID text.
    pub host_id: String,
    /// Subsystems by instance.
    pub subsystems: Vec<SubsystemSnapshot>,
}

/// A subsystem.
#[derive(Clone, Debug)]
pub struct SubsystemSnapshot {
    /// `nvme-subsysN`.
    pub name: String,
    /// Its NQN.
    pub nqn: String,
    /// Model, serial, firmware: as the controller says, trimmed.
    pub model: String,
    /// Serial number.
    pub serial: String,
    /// Firmware revision.
    pub firmware: String,
    /// The policy in force.
    pub iopolicy: String,
    /// The default policy: what a subsystem would get that came now.
    pub iopolicy_default: String,
    /// Where the policy in force was set.
    pub iopolicy_source: PolicySource,
    /// Whether it behaves kernel-exact.
    pub kernel_exact: bool,
    /// Whose commands `queue-depth` compares.
    pub queue_depth_scope: String,
    /// Its controllers by instance.
    pub controllers: Vec<ControllerSnapshot>,
    /// Those that are to come.
    pub awaited: Vec<AwaitedSnapshot>,
    /// Its heads.
    pub heads: Vec<HeadSnapshot>,
    /// Heads without a device so far: none of their paths has been usable yet.
    pub unborn: Vec<HeadSnapshot>,
}

/// A controller whose name has no address yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitedSnapshot {
    /// `nvmeN`, which it is going to be.
    pub name: String,
    /// The name that is looked up.
    pub traddr: String,
    /// Port.
    pub trsvcid: String,
}

/// Where a subsystem's policy was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicySource {
    /// Copied from the default policy when the subsystem was first seen.
    Default,
    /// Configured for this subsystem.
    Configuration,
    /// Written to its attribute.
    Attribute,
}

impl fmt::Display for PolicySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PolicySource::Default => "default",
            PolicySource::Configuration => "configuration",
            PolicySource::Attribute => "attribute",
        })
    }
}

/// A controller.
#[derive(Clone, Debug)]
pub struct ControllerSnapshot {
    /// `nvmeN`.
    pub name: String,
    /// `tcp`.
    pub transport: String,
    /// Address.
    pub traddr: String,
    /// Port.
    pub trsvcid: String,
    /// The host address asked for, if any.
    pub host_traddr: Option<String>,
    /// The interface asked for, if any.
    pub host_iface: Option<String>,
    /// The host address in use.
    pub src_addr: Option<String>,
    /// State.
    pub state: ControllerState,
    /// Controller identifier at the target, when connected.
    pub cntlid: Option<u16>,
    /// Serial number; empty until it was connected.
    pub serial: String,
    /// Model number, likewise.
    pub model: String,
    /// Firmware revision, likewise.
    pub firmware: String,
    /// I/O queues in use (plus the admin queue).
    pub io_queues: u16,
    /// Entries of each I/O queue; one stays free.
    pub queue_size: u16,
    /// Times it came back to live after a loss or reset.
    pub reconnects: u64,
    /// Attempts to reconnect after it was lost (`reconnect_count`).
    pub reconnect_attempts: u64,
    /// Resets, asked for or forced.
    pub resets: u64,
    /// Why it was last lost or could not connect.
    pub last_error: Option<String>,
    /// Keep-alive time-out, reconnect delay, … in force, as attribute name and text.
    pub options: Vec<(String, String)>,
    /// Namespaces that it has and that are no device's, by NSID.
    pub ignored: Vec<IgnoredSnapshot>,
}

/// A namespace that cannot be used through a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoredSnapshot {
    /// Its NSID there.
    pub nsid: u32,
    /// Why, as the log says.
    pub why: String,
}

/// A namespace head.
#[derive(Clone, Debug)]
pub struct HeadSnapshot {
    /// `nvmeXnY`.
    pub name: String,
    /// World wide identifier, as the attribute of this name.
    pub wwid: String,
    /// The NSID (of its first path).
    pub nsid: u32,
    /// Identifiers as text, when the controller gives them.
    pub uuid: Option<String>,
    /// NGUID as text.
    pub nguid: Option<String>,
    /// EUI64 as text.
    pub eui64: Option<String>,
    /// Blocks.
    pub blocks: u64,
    /// Blocks in use, as its first path said at the last scan (NUSE).
    pub used_blocks: u64,
    /// Bytes per block.
    pub block_bytes: u32,
    /// It is write-protected on every path.
    pub read_only: bool,
    /// Requests completed well: reads, writes, others.
    pub requests: [u64; 3],
    /// Bytes read, written.
    pub bytes: [u64; 2],
    /// How long these requests took, summed: reads, writes, others.
    pub latency_sums_ns: [u64; 3],
    /// Requests that failed to the user.
    pub errors: u64,
    /// Requests in flight or waiting.
    pub in_flight: u64,
    /// How often it is quiesced: while not 0, its I/O waits.
    pub quiesced: u32,
    /// How often it is frozen: while not 0, no I/O is taken in.
    pub frozen: u32,
    /// Commands that waited for a usable path.
    pub requeued_no_usable_path: u64,
    /// Commands that failed for want of an available path.
    pub failed_no_available_path: u64,
    /// Latency of requests, ns. All devices and paths without any have the same empty one.
    pub latency_ns: Arc<Histogram>,
    /// Its paths in order.
    pub paths: Vec<PathSnapshot>,
}

/// What whoever asks for a device is told whose namespace is known, but not usable yet.
#[must_use]
pub fn no_device_yet(name: &str, paths: usize) -> String {
    let why = match paths {
        1 => String::from("its path has not been usable"),
        _ => format!("none of its {paths} paths has been usable"),
    };
    format!("there is no device {name} yet: {why} so far ('anabranch show-topology' shows why)")
}

/// What keeps a path from being chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// Its controller is not live, or is being removed.
    Controller,
    /// Its ANA state.
    AnaState,
    /// An ANA log that says more has yet to be read.
    AnaLog,
    /// The ANA log does not have its group.
    AnaGroup,
    /// Its controller says that the namespace has another size than the device.
    Size,
    /// Its controller or its namespace is still being looked at.
    Scan,
}

impl fmt::Display for Hindrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Hindrance::Controller => "controller",
            Hindrance::AnaState => "ana-state",
            Hindrance::AnaLog => "reading-ana-log",
            Hindrance::AnaGroup => "not-in-ana-log",
            Hindrance::Size => "size-differs",
            Hindrance::Scan => "scanning",
        })
    }
}

/// A path.
#[derive(Clone, Debug)]
pub struct PathSnapshot {
    /// Another one when it comes back under the same name, and its counts begin anew.
    pub id: PathId,
    /// `nvmeXcYnZ`.
    pub name: String,
    /// `nvmeN`.
    pub controller: String,
    /// ANA state.
    pub ana_state: AnaState,
    /// ANA group, 0 when the controller has no ANA.
    pub ana_group: u32,
    /// May be chosen now: nothing hinders.
    pub usable: bool,
    /// What keeps it from being chosen.
    pub hindrance: Option<Hindrance>,
    /// Commands in flight in the ledger of `queue_depth_scope` (`queue_depth` under that policy).
    pub queue_depth: u32,
    /// Weight of its controller under `service-time`.
    pub relative_throughput: u32,
    /// What its commands, or those of its controller, are charged to.
    pub charged: Charged,
    /// Under `latency`, when it was watched for: its weights for reads, writes and others, each the
    /// mean over the workers (and sizes) that have one; 0 when none has.
    pub latency_weights: Option<[u32; 3]>,
    /// Under `finish-time`, when it was watched for: its estimates.
    pub finish_time: Option<Box<FinishTimeReport>>,
    /// Nodes whose workers have it cached under `numa`.
    pub numa_nodes: Vec<u32>,
    /// Commands completed well: reads, writes, others.
    pub commands: [u64; 3],
    /// Bytes read, written.
    pub bytes: [u64; 2],
    /// How long these commands took, summed: reads, writes, others.
    pub latency_sums_ns: [u64; 3],
    /// Commands that ended with an error.
    pub errors: u64,
    /// Of them (since the start, whatever was reset), those that the controller has answered with
    /// success: a data digest did not match, or not all of the data had moved.
    pub flawed: u64,
    /// Commands tried again on it.
    pub retries: u64,
    /// Commands that left it for another path.
    pub failovers: u64,
    /// Writes whose outcome was unknown when they were sent again elsewhere.
    pub uncertain_writes_resent: u64,
    /// Commands in flight, without probes.
    pub in_flight: u64,
    /// Probes sent under `finish-time`: reads that nobody waits for, counted nowhere else.
    pub probes: u64,
    /// Bytes that they asked for.
    pub probe_bytes: u64,
    /// Of them, those that ended with an error or with their connection.
    pub probe_errors: u64,
    /// Reads that were stuck on it while it was silent, and were sent again on another path.
    pub rescued: u64,
    /// Latency of its commands, ns.
    pub latency_ns: Arc<Histogram>,
}
