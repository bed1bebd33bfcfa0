//! What a running host shows, as it travels over the control socket. Printers work from this.

use anabranch_host::topology::{ControllerState, PathId, is_called};
use anabranch_host::verb as host;
use anabranch_policy::Histogram;
use anabranch_proto::machine::Time;
use anabranch_proto::nvme::ana::AnaState;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A value of the host as clients get it.
trait Show<T> {
    fn show(self) -> T;
}

impl<T> Show<T> for T {
    fn show(self) -> T {
        self
    }
}

impl Show<String> for host::PolicySource {
    fn show(self) -> String {
        self.to_string()
    }
}

impl Show<String> for ControllerState {
    fn show(self) -> String {
        self.to_string()
    }
}

impl Show<Option<String>> for Option<host::Hindrance> {
    fn show(self) -> Option<String> {
        self.map(|hindrance| hindrance.to_string())
    }
}

impl Show<String> for AnaState {
    fn show(self) -> String {
        self.to_string()
    }
}

impl Show<u64> for PathId {
    fn show(self) -> u64 {
        self.0
    }
}

impl Show<u64> for Time {
    fn show(self) -> u64 {
        self.ns()
    }
}

impl Show<LatencyView> for Arc<Histogram> {
    fn show(self) -> LatencyView {
        LatencyView::from(&*self)
    }
}

/// Structures for clients, each with the fields of one of the host's snapshots; `= name` says where
/// a field comes from that is called otherwise there.
macro_rules! views {
    ($(
        $(#[$doc:meta])*
        $view:ident shows $snapshot:ident {
            $($(#[$field_doc:meta])* $field:ident: $type:ty $(= $($source:ident).+)?,)*
        }
    )*) => { $(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct $view {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl From<host::$snapshot> for $view {
            fn from(from: host::$snapshot) -> Self {
                $view { $($field: Show::show(views!(@from from $field $($($source).+)?)),)* }
            }
        }

        impl Show<Vec<$view>> for Vec<host::$snapshot> {
            fn show(self) -> Vec<$view> {
                self.into_iter().map($view::from).collect()
            }
        }
    )* };
    (@from $from:ident $field:ident) => { $from.$field };
    (@from $from:ident $field:ident $($source:ident).+) => { $from.$($source).+ };
}

views! {
    /// Everything there is to see.
    HostView shows HostSnapshot {
        /// When this was true, by the host's clock.
        #[serde(default)]
        at_ns: u64 = at,
        /// Data workers.
        #[serde(default)]
        data_workers: u16,
        /// Host NQN.
        host_nqn: String,
        /// Host identifier.
        host_id: String,
        /// Subsystems by instance.
        subsystems: Vec<SubsystemView>,
    }

    /// A subsystem.
    SubsystemView shows SubsystemSnapshot {
        /// `nvme-subsysN`.
        name: String,
        /// Its NQN.
        nqn: String,
        /// Model number.
        model: String,
        /// Serial number.
        serial: String,
        /// Firmware revision.
        firmware: String,
        /// The policy in force.
        iopolicy: String,
        /// The default policy now.
        iopolicy_default: String,
        /// Where the policy in force was set: default, configuration or attribute.
        iopolicy_set_by: String = iopolicy_source,
        /// Whether it behaves kernel-exact.
        kernel_exact: bool,
        /// Whose commands `queue-depth` compares.
        queue_depth_scope: String,
        /// Controllers by instance.
        controllers: Vec<ControllerView>,
        /// Controllers whose names have no address yet.
        #[serde(default)]
        awaited: Vec<AwaitedView>,
        /// Namespace heads.
        heads: Vec<HeadView>,
        /// Those without a device so far: none of their paths has been usable yet.
        #[serde(default)]
        unborn: Vec<HeadView>,
    }

    /// A controller whose name has no address yet.
    AwaitedView shows AwaitedSnapshot {
        /// `nvmeN`, which it is going to be.
        name: String,
        /// The name that is looked up.
        traddr: String,
        /// Port.
        trsvcid: String,
    }

    /// A controller.
    ControllerView shows ControllerSnapshot {
        /// `nvmeN`.
        name: String,
        /// `tcp`.
        transport: String,
        /// Address.
        traddr: String,
        /// Port.
        trsvcid: String,
        /// The host address asked for.
        host_traddr: Option<String>,
        /// The interface asked for.
        host_iface: Option<String>,
        /// The host address in use.
        src_addr: Option<String>,
        /// Its state, the kernel's word.
        state: String,
        /// Controller identifier.
        cntlid: Option<u16>,
        /// Serial number; empty until it was connected.
        #[serde(default)]
        serial: String,
        /// Model number, likewise.
        #[serde(default)]
        model: String,
        /// Firmware revision, likewise.
        #[serde(default)]
        firmware: String,
        /// I/O queues in use.
        io_queues: u16,
        /// Entries of each I/O queue; one stays free.
        queue_size: u16,
        /// Times it came back to live.
        reconnects: u64,
        /// Attempts to reconnect after it was lost.
        reconnect_attempts: u64,
        /// Resets.
        resets: u64,
        /// Why it was last lost or could not connect.
        last_error: Option<String>,
        /// Options in force, as attribute name and text.
        options: Vec<(String, String)>,
        /// Namespaces that it has and that are no device's.
        #[serde(default)]
        ignored: Vec<IgnoredView>,
    }

    /// A namespace that cannot be used through a controller.
    IgnoredView shows IgnoredSnapshot {
        /// Its NSID there.
        nsid: u32,
        /// Why.
        why: String,
    }

    /// A namespace head.
    HeadView shows HeadSnapshot {
        /// `nvmeXnY`.
        name: String,
        /// World wide identifier: the same after a restart.
        wwid: String,
        /// NSID of its first path.
        nsid: u32,
        /// UUID.
        uuid: Option<String>,
        /// NGUID.
        nguid: Option<String>,
        /// EUI64.
        eui64: Option<String>,
        /// Blocks.
        blocks: u64,
        /// Blocks in use.
        #[serde(default)]
        used_blocks: u64,
        /// Bytes per block.
        block_bytes: u32,
        /// It is write-protected on every path.
        read_only: bool,
        /// Requests completed well: reads, writes, others.
        requests: [u64; 3],
        /// Bytes read, written.
        bytes: [u64; 2],
        /// Requests that failed to the user.
        errors: u64,
        /// Requests in flight or waiting.
        in_flight: u64,
        /// How often it is quiesced: while not 0, its I/O waits.
        #[serde(default)]
        quiesced: u32,
        /// How often it is frozen: while not 0, no I/O is taken in.
        #[serde(default)]
        frozen: u32,
        /// Commands that waited for a usable path.
        requeued_no_usable_path: u64,
        /// Commands that failed for want of an available path.
        failed_no_available_path: u64,
        /// Latency of requests.
        lat_ns: LatencyView = latency_ns,
        /// Its paths in order.
        paths: Vec<PathView>,
    }

    /// A path.
    PathView shows PathSnapshot {
        /// Another one when it comes back under the same name, and its counts begin anew.
        #[serde(default)]
        id: u64,
        /// `nvmeXcYnZ`.
        name: String,
        /// `nvmeN`.
        controller: String,
        /// ANA state, the kernel's word.
        ana_state: String,
        /// ANA group, 0 without ANA.
        ana_group: u32,
        /// May be chosen now.
        usable: bool,
        /// What keeps it from being chosen, a word.
        #[serde(default)]
        hindrance: Option<String>,
        /// Commands in flight on its controller.
        queue_depth: u32,
        /// Payload bytes in flight on its controller, under `service-time`.
        in_flight_bytes: u64 = charged.bytes,
        /// Weight of its controller under `service-time`.
        relative_throughput: u32,
        /// Weights for reads, writes and others under `latency`, when it was watched for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        latency_weights: Option<[u32; 3]>,
        /// Nodes that have it cached under `numa`.
        numa_nodes: Vec<u32>,
        /// Commands completed well: reads, writes, others.
        commands: [u64; 3],
        /// Bytes read, written.
        bytes: [u64; 2],
        /// Commands that ended with an error.
        errors: u64,
        /// Of them, those that the controller has answered with success.
        #[serde(default)]
        flawed: u64,
        /// Commands tried again on it.
        retries: u64,
        /// Commands that left it for another path.
        failovers: u64,
        /// Writes whose outcome was unknown when they were sent again elsewhere.
        uncertain_writes_resent: u64,
        /// Commands in flight.
        in_flight: u64,
        /// Probes sent under `finish-time`, counted nowhere else.
        probes: u64,
        /// Bytes that they asked for.
        probe_bytes: u64,
        /// Of them, those that failed.
        probe_errors: u64,
        /// Reads that were stuck on it while it was silent, and were sent again on another path.
        rescued: u64,
        /// Latency of its commands.
        lat_ns: LatencyView = latency_ns,
    }
}

/// An attribute and its text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttributeView {
    /// Its name.
    pub name: String,
    /// Whether it can be written.
    pub writable: bool,
    /// Its text, without newline.
    pub value: String,
}

/// A latency distribution in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyView {
    /// Samples.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: u64,
    /// Standard deviation.
    pub stdev: u64,
    /// Least.
    pub min: u64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Greatest.
    pub max: u64,
}

impl From<&Histogram> for LatencyView {
    fn from(from: &Histogram) -> Self {
        LatencyView {
            count: from.count(),
            mean: from.mean(),
            stdev: from.stdev(),
            min: from.min(),
            p50: from.percentile(50),
            p90: from.percentile(90),
            p99: from.percentile(99),
            p999: from.per_mille(999),
            max: from.max(),
        }
    }
}

impl From<host::ShownAttribute> for AttributeView {
    fn from(from: host::ShownAttribute) -> Self {
        AttributeView { name: from.name.to_owned(), writable: from.is_writable(), value: from.text }
    }
}

impl HostView {
    /// The controller that is asked about itself when somebody names a device: one that leads to
    /// it, a path that may be chosen before others, as Linux asks for the head of a namespace.
    #[must_use]
    pub fn controller_of(&self, device: &str) -> Option<&str> {
        let mut heads = self.subsystems.iter().flat_map(|subsystem| &subsystem.heads);
        let paths = &heads.find(|head| head.name == device)?.paths;
        let path = paths.iter().find(|path| path.usable).or(paths.first())?;
        Some(&path.controller)
    }

    /// What whoever names a device is told that is not there.
    #[must_use]
    pub fn no_device(&self, name: &str) -> String {
        let mut unborn = self.subsystems.iter().flat_map(|subsystem| &subsystem.unborn);
        match unborn.find(|head| head.is_called(name)) {
            Some(head) => host::no_device_yet(&head.name, head.paths.len()),
            None => format!(
                "there is no device '{}': 'anabranch list' shows those that exist",
                name.escape_debug()
            ),
        }
    }
}

impl SubsystemView {
    /// What is in flight on the controller of a path, where the policy in force counts it there.
    #[must_use]
    pub fn charged_bytes(&self, path: &PathView) -> Option<u64> {
        (self.iopolicy == "service-time").then_some(path.in_flight_bytes)
    }

    /// Its heads, also those without a device so far.
    pub fn namespaces(&self) -> impl Iterator<Item = &HeadView> {
        self.heads.iter().chain(&self.unborn)
    }
}

impl HeadView {
    /// Whether it is the device that somebody calls so: by its name, or by its `wwid`.
    #[must_use]
    pub fn is_called(&self, device: &str) -> bool {
        is_called(&self.name, &self.wwid, device)
    }
}

/// The one word that says most of a path that may not be chosen: the controller's state unless it
/// is live, the ANA state unless there could be I/O in it, else the hindrance.
#[must_use]
pub fn out_of_use(controller_state: &str, ana_state: &str, hindrance: Option<&str>) -> String {
    match (controller_state, ana_state) {
        ("live" | "", "optimized" | "non-optimized" | "") => {
            hindrance.map_or_else(|| "not usable".to_owned(), |word| word.replace('-', " "))
        }
        ("live" | "", state) | (state, _) => state.to_owned(),
    }
}

/// `quiesced` or `frozen`, the stronger one, of a device that is.
#[must_use]
pub fn stopped(quiesced: u32, frozen: u32) -> Option<&'static str> {
    match (quiesced, frozen) {
        (0, 0) => None,
        (_, 0) => Some("quiesced"),
        _ => Some("frozen"),
    }
}

/// What keeps a controller from being connected that is still to come.
pub const NO_ADDRESS: &str = "no address yet";

impl AwaitedView {
    /// The controller that it is: one that is being connected, as far as anybody can see.
    #[must_use]
    pub fn controller(&self) -> ControllerView {
        ControllerView {
            name: self.name.clone(),
            transport: "tcp".to_owned(),
            traddr: self.traddr.clone(),
            trsvcid: self.trsvcid.clone(),
            state: ControllerState::Connecting.to_string(),
            last_error: Some(NO_ADDRESS.to_owned()),
            ..ControllerView::default()
        }
    }
}

impl ControllerView {
    /// `traddr=…,trsvcid=…[,host_traddr=…][,host_iface=…][,src_addr=…]`, as in sysfs.
    #[must_use]
    pub fn address(&self) -> String {
        let mut text = format!("traddr={},trsvcid={}", self.traddr, self.trsvcid);
        for (key, value) in self.own_side() {
            text.push_str(&format!(",{key}={value}"));
        }
        text
    }

    /// What is known of our own side, with the kernel's words.
    pub fn own_side(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let known = [
            ("host_traddr", &self.host_traddr),
            ("host_iface", &self.host_iface),
            ("src_addr", &self.src_addr),
        ];
        known.into_iter().filter_map(|(key, value)| Some((key, value.as_deref()?)))
    }
}

/// An entry of a discovery log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoveryRecord {
    /// Transport type.
    pub trtype: String,
    /// Address family.
    pub adrfam: String,
    /// Subsystem type.
    pub subtype: String,
    /// Transport requirements.
    pub treq: String,
    /// Port identifier at the target.
    pub portid: u16,
    /// TCP port.
    pub trsvcid: String,
    /// Subsystem NQN.
    pub subnqn: String,
    /// Address.
    pub traddr: String,
    /// Flags.
    pub eflags: String,
    /// Security of the transport: what it says of TCP. Other transports have other things there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sectype: Option<String>,
}

/// A discovery log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoveryLog {
    /// Generation counter.
    pub genctr: u64,
    /// Its entries.
    pub records: Vec<DiscoveryRecord>,
    /// Why there are others that are not among them, as people are told.
    #[serde(default)]
    pub skipped: Vec<String>,
}
