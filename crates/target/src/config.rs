//! What a target is made of: plain values, checked once by [`TargetConfig::check`].

use crate::link::{Shape, ShapeError};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use anabranch_proto::machine::{Endpoint, FileId};
use anabranch_proto::nvme::{AnaState, Nguid, Nqn, Uuid};
use core::fmt;
use core::net::SocketAddr;

/// The highest ANA group identifier (ANAGRPMAX). Identifiers start at 1.
pub const MAX_ANA_GROUP: u32 = 128;
/// The highest controller identifier (Base: FFF0h and above are reserved).
pub const MAX_CNTLID: u16 = 0xffef;
/// The highest namespace identifier (NN and MNAN). Identifiers start at 1.
pub const MAX_NSID: u32 = 1024;
/// The largest namespace in bytes.
pub const MAX_NAMESPACE_BYTES: u64 = 16 << 40;
/// The largest number of ports, and of subsystems.
pub const MAX_PORTS: usize = 256;

/// A whole target.
#[derive(Clone, Debug, Default)]
pub struct TargetConfig {
    /// The I/O subsystems; each is reachable through every port. The discovery subsystem is always
    /// there.
    pub subsystems: Vec<SubsystemConfig>,
    /// Where hosts connect. Verbs name ports by their place in this list.
    pub ports: Vec<PortConfig>,
    /// What the target grants.
    pub limits: Limits,
    /// The controller identifier that is given first, 1 to [`MAX_CNTLID`]; others follow it. 1 when
    /// `None`.
    pub first_cntlid: Option<u16>,
}

/// One NVM subsystem.
#[derive(Clone, Debug)]
pub struct SubsystemConfig {
    /// Its name.
    pub nqn: Nqn,
    /// Serial number: 1 to 20 printable ASCII characters.
    pub serial: String,
    /// Model number: 1 to 40 printable ASCII characters.
    pub model: String,
    /// Its namespaces, in any order.
    pub namespaces: Vec<NamespaceConfig>,
    /// Hosts that may connect; empty lets every host in.
    pub allowed_hosts: Vec<Nqn>,
}

/// One namespace.
#[derive(Clone, Debug)]
pub struct NamespaceConfig {
    /// 1 to [`MAX_NSID`].
    pub nsid: u32,
    /// Where its blocks are.
    pub backend: BackendConfig,
    /// 512 or 4096.
    pub block_bytes: u32,
    /// Derived from subsystem NQN and NSID when `None` ([`crate::derived_ids`]).
    pub uuid: Option<Uuid>,
    /// Derived from the UUID when `None` ([`crate::derived_nguid`]).
    pub nguid: Option<Nguid>,
    /// 1 to [`MAX_ANA_GROUP`].
    pub ana_group: u32,
}

/// Where a namespace's blocks are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendConfig {
    /// In memory, gone with the target; only what was written takes memory.
    Memory {
        /// Size; a multiple of the block size.
        bytes: u64,
    },
    /// In an open file or block device, from its start.
    File {
        /// Registered with the driver.
        file: FileId,
        /// Size; a multiple of the block size. Reads of blocks that a shorter file lacks fail.
        bytes: u64,
    },
}

impl BackendConfig {
    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            BackendConfig::Memory { bytes } | BackendConfig::File { bytes, .. } => *bytes,
        }
    }
}

/// One port: an address with a pair of links.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// Where to listen; TCP port 0 takes any free port.
    pub listen: Endpoint,
    /// What the discovery log names instead of the bound address (NAT); port 0 stands for
    /// the bound port.
    pub advertise: Option<SocketAddr>,
    /// The port's links.
    pub shape: Shape,
    /// ANA states through this port; a group that is not named is optimized.
    pub ana: BTreeMap<u32, AnaState>,
}

impl PortConfig {
    /// An unshaped port with every group optimized.
    #[must_use]
    pub fn new(listen: Endpoint) -> PortConfig {
        PortConfig { listen, advertise: None, shape: Shape::default(), ana: BTreeMap::new() }
    }
}

/// What the target grants to each host, and in total.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// I/O queues of one controller: 1 to 1024.
    pub io_queues: u16,
    /// Commands at once per queue: 16 to 1024 (CAP.MQES + 1, MAXCMD).
    pub queue_depth: u16,
    /// In-capsule data of I/O queues in bytes: 0 to 65536, a multiple of 16 (IOCCSZ).
    pub in_capsule_bytes: u32,
    /// Data of one command in bytes: a power of two, 16 KiB to 1 MiB (MDTS). The ANA log, at most
    /// 8208 bytes, must fit, or hosts do without ANA.
    pub max_transfer_bytes: u32,
    /// Data of one H2CData PDU in bytes: 4096 to 1 MiB, a multiple of 4 (MAXH2CDATA).
    pub max_h2c_data_bytes: u32,
    /// Connections of all ports together: 1 to 16384.
    pub connections: u32,
    /// The longest a group may be in the state `change`, in seconds: 1 to 255 (ANATT).
    pub ana_transition_s: u8,
    /// Let hosts switch header digests on.
    pub hdr_digest: bool,
    /// Let hosts switch data digests on.
    pub data_digest: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            io_queues: 64,
            queue_depth: 1024,
            in_capsule_bytes: 8192,
            max_transfer_bytes: 1 << 20,
            // As much as one R2T asks for: Linux hosts before 5.17 answer that with one PDU.
            max_h2c_data_bytes: 1 << 20,
            connections: 4096,
            ana_transition_s: 10,
            hdr_digest: true,
            data_digest: true,
        }
    }
}

/// Why a configuration is refused. The text names the field and its limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// What is at fault, for example `namespace 3: block_bytes`.
    pub field: String,
    /// What would be right.
    pub problem: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field.escape_debug(), self.problem.escape_debug())
    }
}

impl core::error::Error for ConfigError {}

fn refuse<T>(field: impl Into<String>, problem: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError { field: field.into(), problem: problem.into() })
}

fn within(field: &str, value: u64, low: u64, high: u64) -> Result<(), ConfigError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    refuse(field, alloc::format!("is {value}, must lie between {low} and {high}"))
}

impl TargetConfig {
    /// Checks every limit.
    ///
    /// # Errors
    /// Names the first field that is out of bounds, and its bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        within("number of ports", self.ports.len() as u64, 1, MAX_PORTS as u64)?;
        within("number of subsystems", self.subsystems.len() as u64, 0, MAX_PORTS as u64)?;
        self.limits.check()?;
        let first = self.first_cntlid.unwrap_or(1);
        within("first_cntlid", first.into(), 1, MAX_CNTLID.into())?;
        let mut chosen = BTreeMap::new();
        for (index, subsystem) in self.subsystems.iter().enumerate() {
            if subsystem.nqn.is_discovery() {
                return refuse(
                    "subsystem nqn",
                    "is that of the discovery subsystem, which is always there",
                );
            }
            if self.subsystems[..index].iter().any(|other| other.nqn == subsystem.nqn) {
                return refuse(alloc::format!("subsystem {}", subsystem.nqn), "is given twice");
            }
            subsystem.check()?;
            for namespace in &subsystem.namespaces {
                let Some(uuid) = namespace.uuid else { continue };
                let taken = chosen.insert(uuid.0, (&subsystem.nqn, namespace.nsid));
                if let Some((of, other)) = taken {
                    return Err(uuid_taken(namespace.nsid, other, Some(of)));
                }
            }
        }
        for (index, port) in self.ports.iter().enumerate() {
            port.check(index)?;
        }
        Ok(())
    }
}

impl Limits {
    fn check(&self) -> Result<(), ConfigError> {
        within("io_queues", self.io_queues.into(), 1, 1024)?;
        within("queue_depth", self.queue_depth.into(), 16, 1024)?;
        within("in_capsule_bytes", self.in_capsule_bytes.into(), 0, 65536)?;
        within("max_transfer_bytes", self.max_transfer_bytes.into(), 16 << 10, 1 << 20)?;
        within("max_h2c_data_bytes", self.max_h2c_data_bytes.into(), 4096, 1 << 20)?;
        within("connections", self.connections.into(), 1, 16384)?;
        within("ana_transition_s", self.ana_transition_s.into(), 1, 255)?;
        if !self.in_capsule_bytes.is_multiple_of(16) {
            return refuse("in_capsule_bytes", "must be a multiple of 16");
        }
        if !self.max_transfer_bytes.is_power_of_two() {
            return refuse("max_transfer_bytes", "must be a power of two");
        }
        if !self.max_h2c_data_bytes.is_multiple_of(4) {
            return refuse("max_h2c_data_bytes", "must be a multiple of 4");
        }
        Ok(())
    }
}

/// 1 to `max` printable ASCII characters that neither begin nor end with a space.
fn identify_text(field: &str, text: &str, max: usize) -> Result<(), ConfigError> {
    within(&alloc::format!("length of {field}"), text.len() as u64, 1, max as u64)?;
    if text.trim() != text || !text.bytes().all(|b| (0x20..0x7f).contains(&b)) {
        return refuse(field, "must be printable ASCII without space at its ends");
    }
    Ok(())
}

impl SubsystemConfig {
    fn check(&self) -> Result<(), ConfigError> {
        identify_text("serial", &self.serial, 20)?;
        identify_text("model", &self.model, 40)?;
        for (index, namespace) in self.namespaces.iter().enumerate() {
            namespace.check()?;
            if self.namespaces[..index].iter().any(|other| other.nsid == namespace.nsid) {
                return refuse(alloc::format!("namespace {}", namespace.nsid), "is given twice");
            }
            let chosen = || self.namespaces[..index].iter().filter(|other| other.uuid.is_some());
            if let Some(other) = chosen().find(|other| other.uuid == namespace.uuid) {
                return Err(uuid_taken(namespace.nsid, other.nsid, None));
            }
        }
        Ok(())
    }
}

impl NamespaceConfig {
    /// Checks every limit of one namespace.
    ///
    /// # Errors
    /// Names the first field that is out of bounds, and its bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        let name = |field: &str| alloc::format!("namespace {}: {field}", self.nsid);
        within("nsid", self.nsid.into(), 1, MAX_NSID.into())?;
        within(&name("ana_group"), self.ana_group.into(), 1, MAX_ANA_GROUP.into())?;
        if self.block_bytes != 512 && self.block_bytes != 4096 {
            return refuse(name("block_bytes"), "must be 512 or 4096");
        }
        check_size(self.nsid, self.backend.bytes(), self.block_bytes)?;
        if self.uuid.is_some_and(|uuid| uuid.is_zero()) {
            return refuse(name("uuid"), "must not be zero");
        }
        if self.nguid.is_some_and(|nguid| nguid.is_zero()) {
            return refuse(name("nguid"), "must not be zero");
        }
        Ok(())
    }
}

/// Hosts refuse the second of two namespaces that say they are the same, also when the other one is
/// of another subsystem, `elsewhere`.
pub(crate) fn uuid_taken(nsid: u32, other: u32, elsewhere: Option<&Nqn>) -> ConfigError {
    let of = elsewhere.map(|nqn| alloc::format!(" of {nqn}")).unwrap_or_default();
    let problem = alloc::format!("is that of namespace {other}{of}, must be another");
    ConfigError { field: alloc::format!("namespace {nsid}: uuid"), problem }
}

/// Whether a namespace of this block size may have `bytes` bytes.
pub(crate) fn check_size(nsid: u32, bytes: u64, block_bytes: u32) -> Result<(), ConfigError> {
    let name = alloc::format!("namespace {nsid}: bytes");
    within(&name, bytes, block_bytes.into(), MAX_NAMESPACE_BYTES)?;
    if !bytes.is_multiple_of(block_bytes.into()) {
        return refuse(name, alloc::format!("must be a multiple of {block_bytes}"));
    }
    Ok(())
}

impl PortConfig {
    fn check(&self, index: usize) -> Result<(), ConfigError> {
        let name = |field: &str| alloc::format!("port {index}: {field}");
        if let Err(ShapeError { key, problem }) = self.shape.check() {
            return refuse(name(&key), problem);
        }
        for group in self.ana.keys() {
            within(&name("ANA group"), (*group).into(), 1, MAX_ANA_GROUP.into())?;
        }
        Ok(())
    }
}
