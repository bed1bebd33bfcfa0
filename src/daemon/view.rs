//! What a running host shows, as it travels over the control socket. Printers work from this.

use anabranch_host::verb as host;
use anabranch_policy::Histogram;
use serde::{Deserialize, Serialize};

/// Everything there is to see.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostView {
    /// Host NQN.
    pub host_nqn: String,
    /// Host identifier.
    pub host_id: String,
    /// Subsystems by instance.
    pub subsystems: Vec<SubsystemView>,
}

/// A subsystem.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SubsystemView {
    /// `nvme-subsysN`.
    pub name: String,
    /// Its NQN.
    pub nqn: String,
    /// Model number.
    pub model: String,
    /// Serial number.
    pub serial: String,
    /// Firmware revision.
    pub firmware: String,
    /// The policy in force.
    pub iopolicy: String,
    /// The default policy now.
    pub iopolicy_default: String,
    /// Where the policy in force was set: default, configuration or attribute.
    pub iopolicy_set_by: String,
    /// Whether it behaves kernel-exact.
    pub kernel_exact: bool,
    /// Whose commands `queue-depth` compares.
    pub queue_depth_scope: String,
    /// Controllers by instance.
    pub controllers: Vec<ControllerView>,
    /// Namespace heads.
    pub heads: Vec<HeadView>,
}

/// A controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ControllerView {
    /// `nvmeN`.
    pub name: String,
    /// `tcp`.
    pub transport: String,
    /// Address.
    pub traddr: String,
    /// Port.
    pub trsvcid: String,
    /// The host address asked for.
    pub host_traddr: Option<String>,
    /// The host address in use.
    pub src_addr: Option<String>,
    /// Its state, the kernel's word.
    pub state: String,
    /// Controller identifier.
    pub cntlid: Option<u16>,
    /// I/O queues in use.
    pub io_queues: u16,
    /// Commands at once per I/O queue.
    pub queue_size: u16,
    /// Times it came back to live.
    pub reconnects: u64,
    /// Resets.
    pub resets: u64,
    /// Why it was last lost or could not connect.
    pub last_error: Option<String>,
    /// Options in force, as attribute name and text.
    pub options: Vec<(String, String)>,
}

/// A namespace head.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeadView {
    /// `nvmeXnY`.
    pub name: String,
    /// NSID of its first path.
    pub nsid: u32,
    /// UUID.
    pub uuid: Option<String>,
    /// NGUID.
    pub nguid: Option<String>,
    /// EUI64.
    pub eui64: Option<String>,
    /// Blocks.
    pub blocks: u64,
    /// Bytes per block.
    pub block_bytes: u32,
    /// Requests completed well: reads, writes, others.
    pub requests: [u64; 3],
    /// Bytes read, written.
    pub bytes: [u64; 2],
    /// Requests that failed to the user.
    pub errors: u64,
    /// Requests in flight or waiting.
    pub in_flight: u64,
    /// Commands that waited for a usable path.
    pub requeued_no_usable_path: u64,
    /// Commands that failed for want of an available path.
    pub failed_no_available_path: u64,
    /// Latency of requests.
    pub lat_ns: LatencyView,
    /// Its paths in order.
    pub paths: Vec<PathView>,
}

/// A path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathView {
    /// `nvmeXcYnZ`.
    pub name: String,
    /// `nvmeN`.
    pub controller: String,
    /// ANA state, the kernel's word.
    pub ana_state: String,
    /// ANA group, 0 without ANA.
    pub ana_group: u32,
    /// May be chosen now.
    pub usable: bool,
    /// Commands in flight on its controller.
    pub queue_depth: u32,
    /// Payload bytes in flight on its controller, under `service-time`.
    pub in_flight_bytes: u64,
    /// Weight of its controller under `service-time`.
    pub relative_throughput: u32,
    /// Nodes that have it cached under `numa`.
    pub numa_nodes: Vec<u32>,
    /// Commands completed well: reads, writes, others.
    pub commands: [u64; 3],
    /// Bytes read, written.
    pub bytes: [u64; 2],
    /// Commands that ended with an error.
    pub errors: u64,
    /// Commands tried again on it.
    pub retries: u64,
    /// Commands that left it for another path.
    pub failovers: u64,
    /// Writes whose outcome was unknown when they were sent again elsewhere.
    pub uncertain_writes_resent: u64,
    /// Commands in flight.
    pub in_flight: u64,
    /// Latency of its commands.
    pub lat_ns: LatencyView,
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

impl From<host::HostSnapshot> for HostView {
    fn from(from: host::HostSnapshot) -> Self {
        HostView {
            host_nqn: from.host_nqn,
            host_id: from.host_id,
            subsystems: from.subsystems.into_iter().map(SubsystemView::from).collect(),
        }
    }
}

impl From<host::SubsystemSnapshot> for SubsystemView {
    fn from(from: host::SubsystemSnapshot) -> Self {
        SubsystemView {
            name: from.name,
            nqn: from.nqn,
            model: from.model,
            serial: from.serial,
            firmware: from.firmware,
            iopolicy: from.iopolicy,
            iopolicy_default: from.iopolicy_default,
            iopolicy_set_by: from.iopolicy_source.to_string(),
            kernel_exact: from.kernel_exact,
            queue_depth_scope: from.queue_depth_scope,
            controllers: from.controllers.into_iter().map(ControllerView::from).collect(),
            heads: from.heads.into_iter().map(HeadView::from).collect(),
        }
    }
}

impl From<host::ControllerSnapshot> for ControllerView {
    fn from(from: host::ControllerSnapshot) -> Self {
        ControllerView {
            name: from.name,
            transport: from.transport,
            traddr: from.traddr,
            trsvcid: from.trsvcid,
            host_traddr: from.host_traddr,
            src_addr: from.src_addr,
            state: from.state.to_string(),
            cntlid: from.cntlid,
            io_queues: from.io_queues,
            queue_size: from.queue_size,
            reconnects: from.reconnects,
            resets: from.resets,
            last_error: from.last_error,
            options: from.options,
        }
    }
}

impl From<host::HeadSnapshot> for HeadView {
    fn from(from: host::HeadSnapshot) -> Self {
        HeadView {
            name: from.name,
            nsid: from.nsid,
            uuid: from.uuid,
            nguid: from.nguid,
            eui64: from.eui64,
            blocks: from.blocks,
            block_bytes: from.block_bytes,
            requests: from.requests,
            bytes: from.bytes,
            errors: from.errors,
            in_flight: from.in_flight,
            requeued_no_usable_path: from.requeued_no_usable_path,
            failed_no_available_path: from.failed_no_available_path,
            lat_ns: LatencyView::from(&*from.latency_ns),
            paths: from.paths.into_iter().map(PathView::from).collect(),
        }
    }
}

impl From<host::PathSnapshot> for PathView {
    fn from(from: host::PathSnapshot) -> Self {
        PathView {
            name: from.name,
            controller: from.controller,
            ana_state: from.ana_state.to_string(),
            ana_group: from.ana_group,
            usable: from.usable,
            queue_depth: from.queue_depth,
            in_flight_bytes: from.in_flight_bytes,
            relative_throughput: from.relative_throughput,
            numa_nodes: from.numa_nodes,
            commands: from.commands,
            bytes: from.bytes,
            errors: from.errors,
            retries: from.retries,
            failovers: from.failovers,
            uncertain_writes_resent: from.uncertain_writes_resent,
            in_flight: from.in_flight,
            lat_ns: LatencyView::from(&*from.latency_ns),
        }
    }
}

impl From<host::ShownAttribute> for AttributeView {
    fn from(from: host::ShownAttribute) -> Self {
        AttributeView { name: from.name.to_owned(), writable: from.is_writable(), value: from.text }
    }
}

impl ControllerView {
    /// `traddr=…,trsvcid=…[,host_traddr=…][,src_addr=…]`, as in sysfs.
    #[must_use]
    pub fn address(&self) -> String {
        let mut text = format!("traddr={},trsvcid={}", self.traddr, self.trsvcid);
        for (key, value) in [("host_traddr", &self.host_traddr), ("src_addr", &self.src_addr)] {
            if let Some(value) = value {
                text.push_str(&format!(",{key}={value}"));
            }
        }
        text
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
    /// Security of the transport.
    pub sectype: String,
}

/// A discovery log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoveryLog {
    /// Generation counter.
    pub genctr: u64,
    /// Its entries.
    pub records: Vec<DiscoveryRecord>,
}
