//! What can be asked of a running target, and what it answers and tells.

use crate::config::NamespaceConfig;
use crate::link::Shape;
use crate::service::{Brownout, Service};
use crate::status::TargetStatus;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use anabranch_proto::machine::{Endpoint, Peer, SystemError};
use anabranch_proto::nvme::{AnaState, Nqn};
use core::fmt;

/// A request to a running target. Ports are named by their place in the configuration, from 0;
/// a namespace by its subsystem and NSID.
#[derive(Clone, Debug)]
pub enum TargetVerb {
    /// Set the state of an ANA group (1 to 128) through one port.
    Ana {
        /// The port.
        port: u16,
        /// The group.
        group: u32,
        /// Its new state there.
        state: AnaState,
    },
    /// Give a port's links another shape.
    Shape {
        /// The port.
        port: u16,
        /// The new shape.
        shape: Shape,
    },
    /// Let a share of a port's commands take longer, or no longer; what is on its way stays as it
    /// is.
    Brownout {
        /// The port.
        port: u16,
        /// Which share, and how much longer.
        brownout: Option<Brownout>,
    },
    /// Give commands of I/O queues times to execute, or none. What takes its time or waits for a
    /// server at this moment is executed at once.
    Service(Option<Service>),
    /// Reset a port's connections, refuse new ones, drop what was not yet executed.
    Cut {
        /// The port.
        port: u16,
    },
    /// Freeze a port: nothing is sent or executed, no connection ends. What it has by then is
    /// executed when it is restored, before the end of any connection is heard of.
    Stall {
        /// The port.
        port: u16,
    },
    /// End a cut or a stall.
    Restore {
        /// The port.
        port: u16,
    },
    /// Show a port in the discovery log, or hide it there.
    Advertise {
        /// The port.
        port: u16,
        /// Whether the log names it.
        visible: bool,
    },
    /// Let a host use a subsystem. The first one on an empty list shuts all others out.
    AllowHost {
        /// The subsystem.
        subsystem: Nqn,
        /// The host.
        host: Nqn,
    },
    /// Take a host off the list, and end its controllers.
    DenyHost {
        /// The subsystem.
        subsystem: Nqn,
        /// The host.
        host: Nqn,
    },
    /// Add a namespace.
    NamespaceAdd {
        /// The subsystem.
        subsystem: Nqn,
        /// The namespace.
        config: NamespaceConfig,
    },
    /// Remove a namespace; its memory is gone, a file stays.
    NamespaceRemove {
        /// The subsystem.
        subsystem: Nqn,
        /// The namespace.
        nsid: u32,
    },
    /// Change the size of a namespace.
    NamespaceResize {
        /// The subsystem.
        subsystem: Nqn,
        /// The namespace.
        nsid: u32,
        /// The new size; a multiple of the block size.
        bytes: u64,
    },
    /// Move a namespace to another ANA group (1 to 128).
    NamespaceGroup {
        /// The subsystem.
        subsystem: Nqn,
        /// The namespace.
        nsid: u32,
        /// The group.
        group: u32,
    },
    /// Damage one block on purpose, so that a verifying load can be shown to fail: in memory every
    /// byte is inverted, in a file the block is overwritten with a pattern.
    Corrupt {
        /// The subsystem.
        subsystem: Nqn,
        /// The namespace.
        nsid: u32,
        /// The block.
        lba: u64,
    },
    /// Tell everything.
    Status,
}

/// The answer to a [`TargetVerb`] that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetReply {
    /// It is done.
    Done,
    /// The answer to [`TargetVerb::Status`].
    Status(Box<TargetStatus>),
}

/// Why a verb was not carried out: the caller's misuse, unless it says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetError {
    /// There is no such port.
    NoSuchPort {
        /// The port asked for.
        port: u16,
        /// How many there are.
        ports: u16,
    },
    /// There is no such subsystem.
    NoSuchSubsystem(Nqn),
    /// There is no such namespace.
    NoSuchNamespace {
        /// The NSID asked for.
        nsid: u32,
    },
    /// The NSID is taken.
    NamespaceExists {
        /// The NSID.
        nsid: u32,
    },
    /// A value is out of bounds; the text names the value and its bounds.
    OutOfBounds(String),
    /// The system's fault: a disk operation failed.
    Disk(SystemError),
    /// The system's fault: no buffer or memory was free.
    NoMemory,
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetError::NoSuchPort { port, ports } => {
                write!(f, "no port {port}; there are {ports}, counted from 0")
            }
            TargetError::NoSuchSubsystem(nqn) => write!(f, "no subsystem {nqn}"),
            TargetError::NoSuchNamespace { nsid } => write!(f, "no namespace {nsid}"),
            TargetError::NamespaceExists { nsid } => write!(f, "namespace {nsid} exists"),
            TargetError::OutOfBounds(text) => f.write_str(text),
            TargetError::Disk(error) => write!(f, "disk: {error}"),
            TargetError::NoMemory => f.write_str("no memory is free"),
        }
    }
}

impl core::error::Error for TargetError {}

/// Something worth telling a human.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetEvent {
    /// A port takes connections.
    PortUp {
        /// The port.
        port: u16,
        /// The address really bound.
        at: Endpoint,
    },
    /// A port cannot listen.
    PortFailed {
        /// The port.
        port: u16,
        /// The address asked for.
        at: Endpoint,
        /// Why.
        error: SystemError,
    },
    /// A port's listener is gone because it was cut.
    PortCut {
        /// The port.
        port: u16,
    },
    /// A host has a controller.
    ControllerUp {
        /// Its identifier.
        cntlid: u16,
        /// The port it is on.
        port: u16,
        /// The host.
        host: Nqn,
        /// The subsystem.
        subsystem: Nqn,
    },
    /// A controller is gone.
    ControllerDown {
        /// Its identifier.
        cntlid: u16,
        /// Why, for a human.
        reason: &'static str,
    },
    /// A peer broke the protocol; its connection ends.
    ProtocolFault {
        /// The port.
        port: u16,
        /// Who it is, when the transport knows addresses.
        peer: Option<Peer>,
        /// What it did; bounded and escaped.
        fault: String,
    },
    /// Data from a host was damaged on its way: a data digest did not match. Its command is not
    /// carried out; the host has a status that lets it try again, and may tell nobody.
    DataDamaged {
        /// The port.
        port: u16,
        /// Who it is, when the transport knows addresses.
        peer: Option<Peer>,
        /// Whose queue it came on, once that is known.
        queue: Option<Box<QueueOf>>,
        /// How many commands' data, of what came at once.
        commands: u32,
    },
    /// A host's Connect was refused.
    ConnectRefused {
        /// The port.
        port: u16,
        /// From where it came, when the transport knows addresses.
        peer: Option<Peer>,
        /// Who wanted what, when that could be read.
        asked: Option<Box<Asked>>,
        /// Why.
        reason: &'static str,
    },
    /// Data that was acknowledged but not yet durable may be lost: making it so has failed.
    FlushFailed {
        /// The subsystem.
        subsystem: Nqn,
        /// The namespace.
        nsid: u32,
        /// The system's reason.
        error: SystemError,
    },
    /// A command failed because its namespace's file did. Of several of a namespace in a short time
    /// one is told.
    FileFailed {
        /// The subsystem.
        subsystem: Nqn,
        /// The namespace.
        nsid: u32,
        /// What was done to the file.
        work: &'static str,
        /// The system's reason; `None` when the file has become shorter than the namespace.
        error: Option<SystemError>,
        /// Commands that failed before it and were not told.
        untold: u32,
    },
}

/// A host, and what it asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its NQN.
    pub host: Nqn,
    /// The subsystem.
    pub subsystem: Nqn,
}

/// A queue of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueOf {
    /// The controller that it belongs to.
    pub cntlid: u16,
    /// Its identifier; 0 is the admin queue.
    pub qid: u16,
    /// The host's NQN.
    pub host: Nqn,
}

impl TargetEvent {
    /// What it is one of, when peers can make it happen as often as they like: a log should not
    /// write all of them. Events of one kind differ in what a peer can choose, not in what went
    /// wrong and where.
    #[must_use]
    pub fn kind(&self) -> Option<String> {
        match self {
            TargetEvent::PortUp { .. }
            | TargetEvent::PortFailed { .. }
            | TargetEvent::PortCut { .. }
            | TargetEvent::FlushFailed { .. }
            | TargetEvent::FileFailed { .. } => None,
            TargetEvent::ControllerUp { port, .. } => Some(format!("port {port} up")),
            TargetEvent::ControllerDown { reason, .. } => Some(format!("down {reason}")),
            TargetEvent::ProtocolFault { port, .. } => Some(format!("port {port} fault")),
            TargetEvent::DataDamaged { port, .. } => Some(format!("port {port} damage")),
            TargetEvent::ConnectRefused { port, reason, .. } => {
                Some(format!("port {port} refused {reason}"))
            }
        }
    }
}

impl fmt::Display for TargetEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetEvent::PortUp { port, at } => write!(f, "port {port} listens on {at}"),
            TargetEvent::PortFailed { port, at, error } => {
                write!(f, "port {port} cannot listen on {at}: {error}")
            }
            TargetEvent::PortCut { port } => write!(f, "port {port} is cut"),
            TargetEvent::ControllerUp { cntlid, port, host, subsystem } => {
                write!(f, "controller {cntlid} on port {port}: {host} uses {subsystem}")
            }
            TargetEvent::ControllerDown { cntlid, reason } => {
                write!(f, "controller {cntlid} is gone: {reason}")
            }
            TargetEvent::ProtocolFault { port, peer, fault } => {
                write!(f, "port {port}: a peer broke the protocol: {fault}")?;
                peer.map_or(Ok(()), |peer| write!(f, " (from {peer})"))
            }
            TargetEvent::DataDamaged { port, peer, queue, commands } => {
                write!(f, "port {port}: data was damaged on its way: a data digest did not match")?;
                if *commands > 1 {
                    write!(f, ", of {commands} commands")?;
                }
                if let Some(QueueOf { cntlid, qid, host }) = queue.as_deref() {
                    write!(f, " (controller {cntlid}, queue {qid}, host {host})")?;
                }
                peer.map_or(Ok(()), |peer| write!(f, " (from {peer})"))
            }
            TargetEvent::ConnectRefused { port, peer, asked, reason } => {
                write!(f, "port {port}: a connect was refused: {reason}")?;
                if let Some(asked) = asked {
                    write!(f, " (host {}, to {})", asked.host, asked.subsystem)?;
                }
                peer.map_or(Ok(()), |peer| write!(f, " (from {peer})"))
            }
            TargetEvent::FlushFailed { subsystem, nsid, error } => {
                write!(f, "{subsystem} namespace {nsid}: flush failed, data may be lost: {error}")
            }
            TargetEvent::FileFailed { subsystem, nsid, work, error, untold } => {
                write!(f, "{subsystem} namespace {nsid}: a {work} failed in its file: ")?;
                match error {
                    Some(error) => write!(f, "{error}")?,
                    None => f.write_str(
                        "it has become shorter than the namespace, which is not used until it is \
                         resized to what is left",
                    )?,
                }
                if *untold > 0 { write!(f, " ({untold} more before)") } else { Ok(()) }
            }
        }
    }
}
