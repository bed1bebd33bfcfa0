//! Asynchronous events of one controller: what has happened, what the host wants to hear, what it
//! was told and has not looked at yet.

use crate::conn::SlotId;
use anabranch_proto::nvme::aer::AsyncEvent;
use anabranch_proto::nvme::feature::AsyncEventConfig;

/// AERL + 1: requests at once.
pub(crate) const LIMIT: usize = 4;

/// A notice that this target gives (Base "Asynchronous Event Information - Notice").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    Namespaces,
    Ana,
    Discovery,
}

impl Notice {
    const ALL: [Notice; 3] = [Notice::Namespaces, Notice::Ana, Notice::Discovery];

    const fn bit(self) -> u8 {
        1 << self as u8
    }

    /// The bit of the asynchronous event configuration that lets it through.
    const fn enable(self) -> u32 {
        match self {
            Notice::Namespaces => AsyncEventConfig::NAMESPACE_ATTRIBUTE,
            Notice::Ana => AsyncEventConfig::ANA_CHANGE,
            Notice::Discovery => AsyncEventConfig::DISCOVERY_CHANGE,
        }
    }

    /// What the host is told. Reading the log page that it names (without RAE) lets the next
    /// notice through.
    const fn event(self) -> AsyncEvent {
        match self {
            Notice::Namespaces => AsyncEvent::NAMESPACES,
            Notice::Ana => AsyncEvent::ANA,
            Notice::Discovery => AsyncEvent::DISCOVERY,
        }
    }
}

/// What is enabled before a host says anything. Whoever gives a discovery controller a keep-alive
/// time-out wants to stay and hear of changes (Base 3.1.3.3.1).
pub(crate) const fn enabled_first(discovery: bool, kato_ms: u32) -> u32 {
    if discovery && kato_ms > 0 { supported(true) } else { 0 }
}

/// What the configuration may enable on an I/O controller, and on a discovery controller (OAES).
pub(crate) const fn supported(discovery: bool) -> u32 {
    if discovery {
        Notice::Discovery.enable()
    } else {
        Notice::Namespaces.enable() | Notice::Ana.enable()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Events {
    /// Feature 0Bh as the host set it.
    pub(crate) config: u32,
    /// Its default, which a reset brings back.
    pub(crate) default: u32,
    requests: [Option<SlotId>; LIMIT],
    pending: u8,
    /// Told, and the log page not read since.
    masked: u8,
}

impl Events {
    pub(crate) fn new(default: u32) -> Events {
        Events { config: default, default, ..Events::default() }
    }

    /// Parks a request; false when there are [`LIMIT`] already.
    pub(crate) fn park(&mut self, slot: SlotId) -> bool {
        match self.requests.iter_mut().find(|request| request.is_none()) {
            Some(free) => {
                *free = Some(slot);
                true
            }
            None => false,
        }
    }

    /// So many requests are parked.
    pub(crate) fn parked(&self) -> usize {
        self.requests.iter().flatten().count()
    }

    /// Takes a parked request away, for Abort.
    pub(crate) fn unpark(&mut self, wanted: SlotId) -> bool {
        match self.requests.iter_mut().find(|request| **request == Some(wanted)) {
            Some(found) => {
                *found = None;
                true
            }
            None => false,
        }
    }

    /// Something happened.
    pub(crate) fn raise(&mut self, notice: Notice) {
        if self.config & notice.enable() != 0 {
            self.pending |= notice.bit();
        }
    }

    /// The host has read a log page without RAE.
    pub(crate) fn log_read(&mut self, page: u8) {
        for notice in Notice::ALL {
            if notice.event().log_page == page {
                self.masked &= !notice.bit();
            }
        }
    }

    /// A request to complete now, and its result.
    pub(crate) fn next(&mut self) -> Option<(SlotId, u64)> {
        let ready = self.pending & !self.masked;
        let notice = Notice::ALL.into_iter().find(|notice| ready & notice.bit() != 0)?;
        let slot = self.requests.iter_mut().find_map(Option::take)?;
        self.pending &= !notice.bit();
        self.masked |= notice.bit();
        Some((slot, notice.event().result()))
    }

    /// A controller reset: everything is forgotten; the caller answers what was parked.
    pub(crate) fn reset(&mut self) -> [Option<SlotId>; LIMIT] {
        let fresh = Events::new(self.default);
        core::mem::replace(self, fresh).requests
    }
}
