//! A picture of a running target: plain values for a human or a script.

use crate::link::Shape;
use crate::namespace::NamespaceCounters;
use crate::port::PortFault;
use alloc::vec::Vec;
use anabranch_proto::machine::{Endpoint, SystemError};
use anabranch_proto::nvme::{AnaState, Nguid, Nqn, Uuid};
use core::net::SocketAddr;

/// Everything a target can tell about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetStatus {
    /// In the order of the configuration.
    pub ports: Vec<PortStatus>,
    /// In the order of the configuration.
    pub subsystems: Vec<SubsystemStatus>,
    /// By controller identifier.
    pub controllers: Vec<ControllerStatus>,
    /// GENCTR of the discovery log.
    pub discovery_generation: u64,
    /// Commands that wait for a buffer.
    pub waiting_for_buffer: u32,
}

/// One port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// Its name in verbs.
    pub port: u16,
    /// The address, really bound once `listening`.
    pub at: Endpoint,
    /// What the discovery log says.
    pub advertised: Option<SocketAddr>,
    /// Whether the discovery log shows the port.
    pub visible: bool,
    /// Whether new connections are taken.
    pub listening: bool,
    /// Why listening failed.
    pub error: Option<SystemError>,
    /// What is wrong with it on purpose.
    pub fault: PortFault,
    /// Its links.
    pub shape: Shape,
    /// Groups with a state of their own here, or with namespaces.
    pub ana: Vec<(u32, AnaState)>,
    /// Open connections.
    pub connections: u32,
    /// Commands received.
    pub commands: u64,
    /// Commands whose data was damaged on its way: a data digest did not match.
    pub damaged_commands: u64,
    /// NVMe/TCP bytes of commands and their data.
    pub bytes_in: u64,
    /// NVMe/TCP bytes of completions and their data.
    pub bytes_out: u64,
}

/// One subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubsystemStatus {
    /// Its name.
    pub nqn: Nqn,
    /// Every host may connect.
    pub allow_any: bool,
    /// Hosts that may connect, unless `allow_any`.
    pub allowed_hosts: Vec<Nqn>,
    /// By NSID.
    pub namespaces: Vec<NamespaceStatus>,
}

/// One namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceStatus {
    /// Namespace identifier.
    pub nsid: u32,
    /// UUID.
    pub uuid: Uuid,
    /// NGUID.
    pub nguid: Nguid,
    /// Block size in bytes.
    pub block_bytes: u32,
    /// Size in blocks.
    pub blocks: u64,
    /// ANA group.
    pub ana_group: u32,
    /// Memory it takes; 0 for a file.
    pub resident_bytes: u64,
    /// What was done to it.
    pub counters: NamespaceCounters,
}

/// One controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerStatus {
    /// Controller identifier.
    pub cntlid: u16,
    /// The port its queues are on.
    pub port: u16,
    /// The subsystem (the discovery subsystem for discovery controllers).
    pub subsystem: Nqn,
    /// The host.
    pub host: Nqn,
    /// The host's identifier.
    pub host_id: Uuid,
    /// CSTS.RDY.
    pub ready: bool,
    /// Connected I/O queues.
    pub io_queues: u16,
    /// Keep-alive time-out in milliseconds; 0 when none runs.
    pub keep_alive_ms: u32,
    /// I/O commands received.
    pub ios: u64,
    /// Commands of all its queues whose data was damaged on its way.
    pub damaged_commands: u64,
}
