//! One controller: what it is, and which parts work on it.
//!
//! A controller knows nothing of heads and of other controllers. It drives its admin connection,
//! tells shards to open and stop queue pairs, keeps what the peer said, and leaves a
//! [`Notice`](super::env::Notice) when the parts above have to look.

use super::ana::AnaBook;
use super::async_event::EventRequests;
use super::discovery::DiscoveryRead;
use super::facts::{Facts, Identity};
use super::lifecycle::Phase;
use super::link::Link;
use super::queues::QueueSet;
use super::scan::Scan;
use crate::config::ConnectRequest;
use crate::load::ControllerLoad;
use crate::topology::{Association, ControllerId, ControllerState};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use anabranch_proto::machine::{Endpoint, Time, VerbId};
use core::net::SocketAddr;
use core::time::Duration;

/// What a controller is for.
pub(super) enum Kind {
    /// It carries I/O: one path of each of its namespaces.
    Io,
    /// Its discovery log is read once, for this caller, then it goes.
    Discovery(VerbId, DiscoveryRead),
}

/// Callers who wait for something to become of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiter {
    /// Until it is live and its namespaces are known.
    Connect(VerbId),
    /// Until it is live again or the attempt has failed.
    Reset(VerbId),
}

/// One controller.
pub(super) struct Controller {
    pub(super) id: ControllerId,
    /// The N of `nvmeN`: the lowest number that was free, as in Linux.
    pub(super) instance: u32,
    pub(super) request: ConnectRequest,
    /// Where the next attempt goes instead, if the one that is under way fails.
    pub(super) noted: Option<Endpoint>,
    pub(super) kind: Kind,
    pub(super) state: ControllerState,
    pub(super) association: Association,
    pub(super) phase: Phase,
    pub(super) link: Option<Link>,
    /// Attempts to connect that have failed since the namespaces were last verified.
    pub(super) attempts: u32,
    /// When the controller began to be without a connection.
    pub(super) lost_at: Option<Time>,
    /// `fast_io_fail_tmo` has passed since then.
    pub(super) fast_io_failed: bool,
    /// It was live at least once.
    pub(super) was_live: bool,
    /// Who it said it was when it was first admitted.
    pub(super) identity: Option<Arc<Identity>>,
    /// The last association in which it has shown a namespace that is of use.
    pub(super) proven_in: Option<Association>,
    /// The association in which it was admitted last.
    pub(super) admitted: Option<Association>,
    /// It has another identity than when it was admitted last.
    pub(super) renamed: bool,
    /// What the peer has said so far in this association.
    pub(super) facts: Facts,
    /// What it had said when it last went live.
    pub(super) proven: Facts,
    pub(super) ana: AnaBook,
    pub(super) events: EventRequests,
    /// When the next Keep Alive is due.
    pub(super) keep_alive_at: Option<Time>,
    pub(super) scan: Scan,
    pub(super) queues: QueueSet,
    pub(super) waiters: Vec<Waiter>,
    pub(super) load: Arc<ControllerLoad>,
    pub(super) local: Option<SocketAddr>,
    /// The NUMA node of the network device that the admin connection goes through, if known.
    pub(super) node: Option<u32>,
    /// How far each data worker is from it; `None` while it is not known: all are equally near.
    pub(super) distances: Option<Arc<[u32]>>,
    /// Times it came back to live.
    pub(super) reconnects: u64,
    /// Attempts to come back, of those that waited for `reconnect_delay`.
    pub(super) reconnect_attempts: u64,
    /// Resets, asked for or forced.
    pub(super) resets: u64,
    /// Admin commands that were answered with an error.
    pub(super) admin_errors: u64,
    /// Why it was last lost or could not connect.
    pub(super) last_error: Option<String>,
    /// Attempts that failed for the same reason, one after the other, before the last one.
    pub(super) alike: u32,
}

impl Controller {
    pub(super) fn new(
        (id, instance): (ControllerId, u32),
        request: ConnectRequest,
        kind: Kind,
        data_workers: u16,
    ) -> Controller {
        let load = ControllerLoad::new(data_workers);
        load.ledger.set_relative_throughput(request.options.relative_throughput);
        Controller {
            id,
            instance,
            request,
            noted: None,
            kind,
            state: ControllerState::New,
            association: Association(0),
            proven_in: None,
            phase: Phase::Gone,
            link: None,
            attempts: 0,
            lost_at: None,
            fast_io_failed: false,
            was_live: false,
            identity: None,
            admitted: None,
            renamed: false,
            facts: Facts::default(),
            proven: Facts::default(),
            ana: AnaBook::default(),
            events: EventRequests::default(),
            keep_alive_at: None,
            scan: Scan::default(),
            queues: QueueSet::default(),
            waiters: Vec::new(),
            load: Arc::new(load),
            local: None,
            node: None,
            distances: None,
            reconnects: 0,
            reconnect_attempts: 0,
            resets: 0,
            admin_errors: 0,
            last_error: None,
            alike: 0,
        }
    }

    /// `nvmeN`.
    pub(super) fn name(&self) -> String {
        format!("nvme{}", self.instance)
    }

    /// Where it is, for a human.
    pub(super) fn address(&self) -> String {
        self.request.to.to_string()
    }

    /// What of our own side was asked for: where it is not there, the system names no more than a
    /// device or an address.
    pub(super) fn own_side(&self) -> String {
        let socket = &self.request.options.socket;
        let source = socket.source.map(|source| format!("from {source}"));
        let interface = socket.interface.as_ref().map(|name| format!("through interface {name}"));
        match (source, interface) {
            (Some(source), Some(interface)) => format!(" ({source}, {interface})"),
            (Some(one), None) | (None, Some(one)) => format!(" ({one})"),
            (None, None) => String::new(),
        }
    }

    pub(super) fn is_discovery(&self) -> bool {
        matches!(self.kind, Kind::Discovery(..))
    }

    pub(super) fn is_live(&self) -> bool {
        self.state == ControllerState::Live
    }

    /// It was admitted, and is still on its way to be live.
    pub(super) fn was_admitted(&self) -> bool {
        matches!(self.phase, Phase::Setup { .. } | Phase::Queues { .. })
            && self.admitted == Some(self.association)
    }

    /// A deadline for one admin command that starts now.
    pub(super) fn admin_deadline(&self, now: Time) -> Time {
        now.after(self.request.options.admin_timeout)
    }

    /// Pause between two Keep Alive commands, and how long one may take when nothing comes: a
    /// silent peer is noticed within KATO.
    pub(super) fn keep_alive_interval(&self) -> Option<Duration> {
        let kato = self.request.options.keep_alive_tmo;
        (!kato.is_zero() && !self.is_discovery()).then(|| kato / 2)
    }

    /// Attempts to reconnect that are allowed; `None` = no limit (B11).
    pub(super) fn max_attempts(&self) -> Option<u32> {
        let options = &self.request.options;
        let delay = options.reconnect_delay.as_nanos().max(1);
        let limit = options.ctrl_loss_tmo?.as_nanos().div_ceil(delay);
        Some(u32::try_from(limit).unwrap_or(u32::MAX))
    }

    /// Whether the namespaces that it shows were confirmed in the present association.
    pub(super) fn is_verified(&self) -> bool {
        self.scan.is_verified(self.association)
    }

    /// Whether what it showed last still counts: it is live, and all that was read since it is.
    pub(super) fn vouches(&self) -> bool {
        self.is_live() && self.is_verified()
    }

    /// Whether that goes for what it has under this NSID.
    pub(super) fn vouches_for(&self, nsid: u32) -> bool {
        self.is_live() && self.has_read(nsid)
    }

    /// Whether what it has under this NSID was read in the present association.
    pub(super) fn has_read(&self, nsid: u32) -> bool {
        self.is_verified() || self.scan.has_seen(nsid)
    }
}
