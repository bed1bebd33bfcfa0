//! A port: a listener, its links, its ANA states and its fault.

use crate::ana_group::AnaGroups;
use crate::config::PortConfig;
use crate::service::Brownout;
use crate::shaper::Shaper;
use alloc::vec::Vec;
use anabranch_proto::machine::{Endpoint, ListenerId, SystemError, Time};
use core::net::SocketAddr;

/// What is wrong with a port, on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortFault {
    /// Nothing.
    None,
    /// Connections are reset, new ones refused; what was not yet executed is dropped.
    Cut,
    /// Silence: nothing is sent or executed, and no connection ends as long as there are others.
    Stalled,
}

impl core::fmt::Display for PortFault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(match self {
            PortFault::None => "up",
            PortFault::Cut => "cut",
            PortFault::Stalled => "stalled",
        })
    }
}

/// Where the listener of a port stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listener {
    Idle,
    Starting(ListenerId),
    Up(ListenerId),
    Stopping(ListenerId),
    Failed(SystemError),
}

#[derive(Debug)]
pub(crate) struct Port {
    /// Where to listen; the address really bound once that is known.
    pub(crate) at: Endpoint,
    pub(crate) advertise: Option<SocketAddr>,
    /// Whether the discovery log shows it.
    pub(crate) visible: bool,
    pub(crate) listener: Listener,
    pub(crate) fault: PortFault,
    pub(crate) shaper: Shaper,
    pub(crate) brownout: Option<Brownout>,
    pub(crate) ana: AnaGroups,
    /// Commands that a stall caught between arrival and execution: connection, its generation,
    /// slot.
    pub(crate) held: Vec<(u32, u32, u16)>,
    /// The links were given something since they were last served.
    pub(crate) touched: bool,
    pub(crate) connections: u32,
    pub(crate) commands: u64,
    pub(crate) damaged_commands: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

impl Port {
    pub(crate) fn new(config: PortConfig, now: Time) -> Port {
        Port {
            at: config.listen,
            advertise: config.advertise,
            visible: true,
            listener: Listener::Idle,
            fault: PortFault::None,
            shaper: Shaper::new(config.shape, now),
            brownout: None,
            ana: AnaGroups::new(&config.ana),
            held: Vec::new(),
            touched: false,
            connections: 0,
            commands: 0,
            damaged_commands: 0,
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.fault == PortFault::Stalled
    }

    /// What the discovery log says: the advertised address, else the bound one.
    pub(crate) fn reachable_at(&self) -> Option<SocketAddr> {
        let Endpoint::Tcp(bound) = self.at else { return self.advertise };
        Some(match self.advertise {
            None => bound,
            Some(mut shown) => {
                if shown.port() == 0 {
                    shown.set_port(bound.port());
                }
                shown
            }
        })
    }
}
