//! What is offered under which name, and how that is changed.

use super::wire::export_flag;
use super::{Bound, MAX_NAME_BYTES, PREFERRED_BLOCK_BYTES};
use anabranch_host::topology::{HeadId, HeadView, is_called};
use anabranch_proto::machine::{Endpoint, ListenerId, Peer, SocketAccess, SystemError, WorkerId};
use core::time::Duration;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// A head under a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Export {
    /// What clients ask for. Empty: the one who asks for no name in particular. A client that asks
    /// for no name also gets the only export of the address that it came to, when there is just
    /// one.
    pub name: String,
    /// A sentence for humans; may be empty.
    pub description: String,
    /// The head's name, `nvme0n1`, or its world wide identifier. It may come later and it may go:
    /// without it the export is unknown to clients, also while another device has that name.
    pub device: String,
    /// Clients may not change it, whatever the device would take.
    pub read_only: bool,
    /// What the device says of itself.
    pub bound: Bound,
}

impl Export {
    /// Whether it may be offered.
    ///
    /// # Errors
    /// A name or description is longer than [`MAX_NAME_BYTES`], or holds control characters.
    pub fn check(&self) -> Result<(), NbdError> {
        for (what, text) in [("name", &self.name), ("description", &self.description)] {
            if text.len() > MAX_NAME_BYTES {
                return Err(NbdError::TooLong { what, bytes: text.len() });
            }
            if text.chars().any(char::is_control) {
                return Err(NbdError::ControlCharacter { what });
            }
        }
        Ok(())
    }

    /// Whether it leads to this head: the device that it names, and has named from the start.
    #[must_use]
    pub fn leads_to(&self, name: &str, wwid: &str) -> bool {
        is_called(name, wwid, &self.device) && self.bound.is(wwid)
    }
}

/// How a server starts. Every worker's instance gets the same.
#[derive(Clone, Debug, Default)]
pub struct NbdConfig {
    /// Where to listen from the start: the first listener.
    pub listen: Option<Endpoint>,
    /// What is offered there from the start.
    pub exports: Vec<Export>,
}

/// Who may connect to a Unix socket. What is left out is as it is where there are exports already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The mode of its file; 0600, or 0660 where there is a group.
    pub mode: Option<u16>,
    /// The group of its file.
    pub group: Option<u32>,
}

impl Access {
    /// What a new socket gets.
    #[must_use]
    pub fn granted(self) -> SocketAccess {
        let usual = if self.group.is_some() { 0o660 } else { 0o600 };
        SocketAccess { mode: self.mode.unwrap_or(usual), group: self.group }
    }

    /// Whether a socket that is there already is as it should be.
    #[must_use]
    pub fn agrees_with(self, there: SocketAccess) -> bool {
        self.mode.is_none_or(|mode| mode == there.mode)
            && (self.group.is_none() || self.group == there.group)
    }
}

/// The listener that [`NbdConfig`] asks for.
pub(super) const FIRST_LISTENER: ListenerId = ListenerId(0);

/// A control request, for the instance on the control worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdVerb {
    /// Offer a head at an address and at no other; several exports may share one. Answered
    /// `Listening` when every worker offers it there. When the address can not be had nothing is
    /// offered.
    Add {
        /// What.
        export: Export,
        /// Where.
        at: Endpoint,
        /// Who may connect there.
        access: Access,
    },
    /// Withdraw an export by name. Its clients' requests are finished, also one whose payload is
    /// still coming or that waits for memory, then they are disconnected, after
    /// [`super::CLOSE_TIMEOUT`] in any case. Answered `Done` when every worker has withdrawn it.
    /// With the last export of an address listening there ends.
    Remove(String),
    /// What is offered, and where.
    List,
    /// Let nobody in, finish what clients have asked for, disconnect them: who needs longer than
    /// this, or [`super::CLOSE_TIMEOUT`] if that is more, is cut off. Answered `Done` when no
    /// client is left. Addresses are kept: as long as the host may still send what was not
    /// answered, the next server must not begin there.
    Drain(Duration),
    /// Give up all addresses; nothing is offered any more. Answered `Done` when they are free.
    Close,
}

/// The answer to an [`NbdVerb`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdReply {
    /// Carried out.
    Done,
    /// To `List`.
    Exports {
        /// What is offered, in order of addition, and the address of each.
        exports: Vec<(Export, Endpoint)>,
        /// Where we listen, with real port numbers.
        listening: Vec<Endpoint>,
    },
    /// Offered here; port 0 is resolved.
    Listening(Endpoint),
    /// Not carried out.
    Error(NbdError),
}

/// Why a verb was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdError {
    /// A text is longer than [`MAX_NAME_BYTES`].
    TooLong {
        /// Which.
        what: &'static str,
        /// How long.
        bytes: usize,
    },
    /// A text holds a control character.
    ControlCharacter {
        /// Which.
        what: &'static str,
    },
    /// There is an export of this name.
    Exists(String),
    /// There is no export of this name.
    Unknown(String),
    /// [`super::MAX_EXPORTS`] exports exist.
    TooMany,
    /// The system does not let us listen there.
    Listen(Endpoint, SystemError),
    /// Others are offered there, to other people.
    OtherAccess(Endpoint, SocketAccess),
    /// The server is ending.
    Draining,
    /// Another worker than the control worker was asked.
    NotControl,
}

impl fmt::Display for NbdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NbdError::TooLong { what, bytes } => {
                write!(f, "the export's {what} has {bytes} bytes, at most {MAX_NAME_BYTES} fit")
            }
            NbdError::ControlCharacter { what } => {
                write!(f, "the export's {what} holds a control character")
            }
            NbdError::Exists(name) => {
                write!(f, "an export named \"{name}\" exists already: give this one another name")
            }
            NbdError::Unknown(name) => write!(f, "there is no export named \"{name}\""),
            NbdError::TooMany => write!(f, "{} exports exist, no more fit", super::MAX_EXPORTS),
            NbdError::Listen(at, error) => write!(f, "cannot listen on {at}: {error}"),
            NbdError::OtherAccess(at, access) => {
                write!(f, "{at} serves other exports with mode {:04o}", access.mode)?;
                access.group.map_or(Ok(()), |group| write!(f, " and group {group}"))?;
                f.write_str(": give the same, or none")
            }
            NbdError::Draining => f.write_str("the NBD server is ending"),
            NbdError::NotControl => f.write_str("only the control worker takes NBD verbs"),
        }
    }
}

impl std::error::Error for NbdError {}

/// What the instances of different workers tell each other.
#[derive(Clone, Debug)]
pub enum NbdMail {
    /// Control to data worker: offer these from now on; withdraw all others.
    Offer {
        /// Grows with each change.
        epoch: u64,
        /// All exports, each with the listener whose clients may have it.
        exports: Arc<Vec<(ListenerId, Export)>>,
    },
    /// Data worker to control: done.
    Offered {
        /// Of the offer.
        epoch: u64,
    },
    /// Control to data worker: finish and disconnect all clients, within this time.
    Drain(Duration),
    /// Data worker to control: no client is left.
    Drained,
    /// Data worker to control: one of the clients that were handed to it has a place there no more,
    /// or got none.
    Gone,
    /// Between data workers: whoever of this head's clients has ended its connection by now is to
    /// be heard of.
    Look {
        /// Names the question.
        round: u64,
        /// Whose clients.
        head: HeadId,
    },
    /// Between data workers: all that has been heard of.
    Looked {
        /// Of the question.
        round: u64,
    },
}

/// Worth telling a human.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdEvent {
    /// Listening.
    Listening(Endpoint),
    /// Can not listen (any more).
    ListenFailed(Endpoint, SystemError),
    /// A client has opened an export.
    Opened {
        /// The export's name.
        export: String,
        /// Where the client's connection is served.
        worker: WorkerId,
        /// The client, when the system names it.
        peer: Option<Peer>,
    },
    /// A client waits for an export whose device is not there.
    Waits {
        /// What it calls the export; empty: the only one.
        export: String,
    },
    /// A client waits for what one that has left was not answered.
    WaitsForRest {
        /// What it calls the export; empty: the only one.
        export: String,
    },
    /// A client that had opened an export is gone.
    Left {
        /// The export's name.
        export: String,
        /// The client, as when it opened it.
        peer: Option<Peer>,
        /// Requests that it will not be answered.
        unanswered: usize,
    },
    /// A client broke the protocol and was disconnected.
    Violation {
        /// How.
        what: &'static str,
    },
    /// A read failed when its reply was already on the way: that client had to be disconnected.
    BrokenReply {
        /// The export's name.
        export: String,
    },
    /// No more clients fit on a worker, or none from this network address.
    Crowded {
        /// The worker.
        worker: WorkerId,
        /// How many clients it has, from there.
        clients: usize,
        /// What has its share, unless all places are taken: an IPv4 address, or the first half of
        /// an IPv6 one.
        network: Option<IpAddr>,
    },
}

impl NbdEvent {
    /// What it is one of, when clients can make it happen as often as they like: a log should not
    /// write all of them.
    #[must_use]
    pub fn kind(&self) -> Option<String> {
        match self {
            NbdEvent::Listening(_) | NbdEvent::ListenFailed(..) => None,
            NbdEvent::Opened { export, .. } => Some(format!("opened {export}")),
            NbdEvent::Waits { export } => Some(format!("waits {export}")),
            NbdEvent::WaitsForRest { export } => Some(format!("waits for the rest {export}")),
            NbdEvent::Left { export, .. } => Some(format!("left {export}")),
            NbdEvent::Violation { what } => Some(format!("violation {what}")),
            NbdEvent::BrokenReply { export } => Some(format!("broken {export}")),
            NbdEvent::Crowded { worker, .. } => Some(format!("crowded {}", worker.0)),
        }
    }
}

impl fmt::Display for NbdEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NbdEvent::Listening(at) => {
                write!(f, "nbd: listening on {at}")?;
                match at {
                    Endpoint::Tcp(at) if !at.ip().to_canonical().is_loopback() => f.write_str(
                        ", where everybody who reaches it may use what is offered: there is no \
                         authentication",
                    ),
                    Endpoint::Tcp(_) | Endpoint::Unix(_) => Ok(()),
                }
            }
            NbdEvent::ListenFailed(at, error) => write!(f, "nbd: cannot listen on {at}: {error}"),
            NbdEvent::Opened { export, worker, peer } => {
                write!(f, "nbd: export \"{export}\" opened on worker {}", worker.0)?;
                peer.map_or(Ok(()), |peer| write!(f, " by {peer}"))
            }
            NbdEvent::Waits { export } => write!(
                f,
                "nbd: a client waits for the device of export \"{export}\", which is not there \
                 (or is another namespace now)"
            ),
            NbdEvent::WaitsForRest { export } => write!(
                f,
                "nbd: a client of export \"{export}\" waits until a controller has ended what one \
                 that has left was not answered"
            ),
            NbdEvent::Left { export, unanswered: 0, .. } => {
                write!(f, "nbd: a client of export \"{export}\" left")
            }
            NbdEvent::Left { export, unanswered, .. } => {
                let plural = if *unanswered == 1 { "" } else { "s" };
                write!(f, "nbd: a client of export \"{export}\" left with ")?;
                write!(f, "{unanswered} request{plural} unanswered")
            }
            NbdEvent::Violation { what } => write!(f, "nbd: client disconnected: {what}"),
            NbdEvent::BrokenReply { export } => write!(
                f,
                "nbd: a read of export \"{export}\" failed after its reply had begun; \
                 the client was disconnected"
            ),
            NbdEvent::Crowded { worker, clients, network } => {
                write!(f, "nbd: worker {} has {clients} clients", worker.0)?;
                match network {
                    Some(IpAddr::V6(network)) => write!(f, " from {network}/64")?,
                    Some(IpAddr::V4(address)) => write!(f, " from {address}")?,
                    None => {}
                }
                f.write_str(", another one was turned away")
            }
        }
    }
}

/// What a connection needs to know of the head behind its export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) head: HeadId,
    pub(super) bytes: u64,
    pub(super) block_bytes: u32,
    pub(super) read_only: bool,
    pub(super) trim: bool,
    pub(super) write_zeroes: bool,
}

impl Device {
    pub(super) fn of(head: &HeadView) -> Device {
        Device {
            head: head.id,
            bytes: head.blocks.saturating_mul(u64::from(head.block_bytes)),
            block_bytes: head.block_bytes,
            read_only: head.limits.read_only,
            trim: head.limits.max_discard_blocks > 0,
            write_zeroes: head.limits.max_write_zeroes_blocks > 0,
        }
    }

    fn for_clients_of(self, export: &Export) -> Device {
        Device { read_only: self.read_only || export.read_only, ..self }
    }

    /// The transmission flags. "Don't fragment" exists only with structured replies.
    pub(super) fn flags(&self, structured: bool) -> u16 {
        let mut flags = export_flag::HAS_FLAGS
            | export_flag::SEND_FLUSH
            | export_flag::SEND_FUA
            | export_flag::CAN_MULTI_CONN;
        if structured {
            flags |= export_flag::SEND_DF;
        }
        if self.read_only {
            return flags | export_flag::READ_ONLY;
        }
        if self.trim {
            flags |= export_flag::SEND_TRIM;
        }
        if self.write_zeroes {
            flags |= export_flag::SEND_WRITE_ZEROES;
        }
        flags
    }

    /// Minimum, preferred and maximum block size.
    pub(super) fn block_sizes(&self) -> [u32; 3] {
        let preferred = PREFERRED_BLOCK_BYTES.max(self.block_bytes);
        [self.block_bytes, preferred, super::MAX_REQUEST_BYTES]
    }
}

/// Why a client cannot have what it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// It is not offered here.
    Export,
    /// It names none, and there are several.
    Name,
    /// It is offered, but its device is not there.
    Device,
    /// Nothing, but what an earlier client has left behind may still be carried out.
    Rest,
    /// Nothing, but whether a client of this head has just left was not asked yet.
    Look(HeadId),
}

impl Missing {
    pub(super) fn text(self) -> &'static str {
        match self {
            Missing::Export => "no such export",
            Missing::Name => "several exports are here: name the one that is meant",
            Missing::Device => {
                "the export's device is not there: no path to it has been live, it is gone, or \
                 another one has its name"
            }
            Missing::Look(_) => {
                "it is not known yet whether clients have left with writes that could undo yours"
            }
            Missing::Rest => {
                "a controller still has writes of a client that has left: they could undo yours"
            }
        }
    }
}

/// What the clients of one listener can open at this moment: its exports, seen over the heads that
/// exist. An address may be open to more people than another, so what is offered at the one is
/// unknown at the other.
pub(super) struct Catalog<'a> {
    pub(super) listener: ListenerId,
    /// Of all listeners.
    pub(super) exports: &'a [(ListenerId, Export)],
    pub(super) heads: &'a [Arc<HeadView>],
    /// Of this head all clients have been heard of that had left when this one asked for it.
    pub(super) heard: Option<HeadId>,
}

impl<'a> Catalog<'a> {
    /// The export a client means, and its device.
    pub(super) fn find(&self, name: &[u8]) -> Result<(&'a Export, Device), Missing> {
        let mut all = self.here();
        let export = match (all.next(), all.next()) {
            (Some(only), None) if name.is_empty() => only,
            (_, several) => {
                let none = match several {
                    Some(_) if name.is_empty() => Missing::Name,
                    _ => Missing::Export,
                };
                self.here().find(|export| export.name.as_bytes() == name).ok_or(none)?
            }
        };
        Ok((export, self.device(export).ok_or(Missing::Device)?))
    }

    /// The same for a client that takes it. What another one is not answered any more, as its
    /// connection broke, and a controller still has must end before: the client may be the same
    /// one, and ask again. Who cannot write has nothing to lose by it.
    pub(super) fn take(&self, name: &[u8]) -> Result<(&'a Export, Device), Missing> {
        let (export, device) = self.find(name)?;
        if device.read_only {
            return Ok((export, device));
        }
        if self.heard != Some(device.head) {
            return Err(Missing::Look(device.head));
        }
        let rest = self.head(export).is_some_and(|head| head.leftovers.any());
        if rest { Err(Missing::Rest) } else { Ok((export, device)) }
    }

    /// The device of the export of exactly this name.
    pub(super) fn named(&self, name: &str) -> Option<Device> {
        self.device(self.here().find(|export| export.name == name)?)
    }

    /// The exports whose devices exist.
    pub(super) fn present(&self) -> impl Iterator<Item = &'a Export> + '_ {
        self.here().filter(|export| self.device(export).is_some())
    }

    fn here(&self) -> impl Iterator<Item = &'a Export> + use<'a> {
        let here = self.listener;
        let exports = self.exports.iter().filter(move |(listener, _)| *listener == here);
        exports.map(|(_, export)| export)
    }

    /// What each export leads to is settled when its device is seen first.
    pub(super) fn bind(&self) {
        for (_, export) in self.exports.iter().filter(|(_, export)| !export.bound.is_known()) {
            if let Some(head) = self.head(export) {
                export.bound.see(&head.wwid);
            }
        }
    }

    fn device(&self, export: &Export) -> Option<Device> {
        Some(Device::of(self.head(export)?).for_clients_of(export))
    }

    fn head(&self, export: &Export) -> Option<&HeadView> {
        let mut called = self.heads.iter().filter(|head| export.leads_to(&head.name, &head.wwid));
        // Of two with the same identifier none is the one that was meant.
        match (called.find(|head| !head.gone), called.find(|head| !head.gone)) {
            (Some(only), None) => Some(only),
            _ => None,
        }
    }
}
