//! A controller: what one host's association with a subsystem through one port has come to.

use crate::aer::{self, Events};
use alloc::vec::Vec;
use anabranch_proto::machine::Time;
use anabranch_proto::nvme::{Nqn, Uuid};
use core::time::Duration;

/// Keep-alive granularity in milliseconds: KAS 1.
pub(crate) const KEEP_ALIVE_UNIT_MS: u32 = 100;
/// A discovery controller whose host asks for no keep-alive is ended after this long without a
/// command, as the kernel's target does; nothing lives for ever.
const DISCOVERY_IDLE: Duration = Duration::from_secs(120);
/// Entries of the changed namespace list; one more and it says "too many".
const MAX_CHANGED: usize = 1024;

/// A host that still sends commands so long after an answer has it. An answer may be lost with its
/// connection; whoever waits for it gives up after an I/O time-out, 30 s by default, and ends the
/// controller.
const HEARD_AFTER: Duration = Duration::from_secs(30);

/// Which subsystem a controller belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Discovery,
    /// By its place.
    Subsystem(usize),
}

#[derive(Debug)]
pub(crate) struct Controller {
    pub(crate) cntlid: u16,
    pub(crate) of: Of,
    pub(crate) port: usize,
    pub(crate) host: Nqn,
    pub(crate) host_id: Uuid,
    /// 0 is off.
    pub(crate) kato_ms: u32,
    /// When the host was last heard: any command counts (traffic-based keep-alive, TBKAS).
    pub(crate) last_seen: Time,
    /// When the keep-alive timer was started last.
    timer_from: Time,
    pub(crate) configuration: u32,
    pub(crate) ready: bool,
    pub(crate) fatal: bool,
    pub(crate) shut_down: bool,
    pub(crate) events: Events,
    /// NSIDs, sorted; what the changed namespace list will say.
    changed: Vec<u32>,
    pub(crate) changed_overflow: bool,
    /// I/O queues that the host may connect.
    pub(crate) granted_queues: u16,
    /// The admin queue's connection.
    pub(crate) admin: u32,
    /// I/O queues: queue identifier and connection.
    pub(crate) io_queues: Vec<(u16, u32)>,
    /// By namespace generation; without an entry none was reported.
    reported: Vec<Reported>,
    pub(crate) ios: u64,
    pub(crate) damaged_commands: u64,
    pub(crate) admin_commands: u64,
}

/// What the host of a controller was told of the failed flushes of one namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reported {
    /// The namespace's generation.
    pub(crate) generation: u64,
    /// So many failures were reported here.
    told: u64,
    /// When, the last time.
    at: Time,
    /// So many the host had certainly heard of by then.
    heard: u64,
}

impl Reported {
    /// What a new controller starts with: its host has heard of so many.
    pub(crate) fn before(generation: u64, heard: u64) -> Reported {
        Reported { generation, told: heard, at: Time::ZERO, heard }
    }

    fn heard(&self, last_seen: Time) -> u64 {
        if last_seen >= self.at.after(HEARD_AFTER) { self.told } else { self.heard }
    }
}

/// What a new controller starts from.
pub(crate) struct NewController {
    pub(crate) cntlid: u16,
    pub(crate) of: Of,
    pub(crate) port: usize,
    pub(crate) host: Nqn,
    pub(crate) host_id: Uuid,
    pub(crate) kato_ms: u32,
    pub(crate) max_queues: u16,
    pub(crate) admin: u32,
    pub(crate) reported: Vec<Reported>,
}

/// Rounds up to the granularity; a time-out that would not fit is the longest that does.
pub(crate) fn round_keep_alive(ms: u32) -> u32 {
    let longest = u32::MAX - u32::MAX % KEEP_ALIVE_UNIT_MS;
    ms.checked_next_multiple_of(KEEP_ALIVE_UNIT_MS).unwrap_or(longest)
}

impl Controller {
    pub(crate) fn new(new: NewController, now: Time) -> Controller {
        Controller {
            cntlid: new.cntlid,
            of: new.of,
            port: new.port,
            host: new.host,
            host_id: new.host_id,
            kato_ms: round_keep_alive(new.kato_ms),
            last_seen: now,
            timer_from: now,
            configuration: 0,
            ready: false,
            fatal: false,
            shut_down: false,
            events: Events::new(aer::enabled_first(new.of == Of::Discovery, new.kato_ms)),
            changed: Vec::new(),
            changed_overflow: false,
            granted_queues: new.max_queues,
            admin: new.admin,
            io_queues: Vec::new(),
            reported: new.reported,
            ios: 0,
            damaged_commands: 0,
            admin_commands: 0,
        }
    }

    /// Whether commands other than Fabrics ones, and I/O queues, are taken: not after a shutdown
    /// either (Base 3.6.2).
    pub(crate) fn takes_commands(&self) -> bool {
        self.ready && !self.shut_down
    }

    pub(crate) fn is_discovery(&self) -> bool {
        self.of == Of::Discovery
    }

    /// Starts the keep-alive timer anew: the host has sent Keep Alive, or set another time-out.
    pub(crate) fn restart_timer(&mut self, now: Time) {
        self.timer_from = now;
    }

    /// When the keep-alive timer runs out.
    pub(crate) fn timer_ends(&self) -> Option<Time> {
        if self.kato_ms > 0 {
            return Some(self.timer_from.after(Duration::from_millis(self.kato_ms.into())));
        }
        self.is_discovery().then(|| self.timer_from.after(DISCOVERY_IDLE))
    }

    /// Whether the host counts as gone: the timer has run out, and nothing was heard since it was
    /// started. Otherwise it is started anew when it runs out (Base 3.9, "Traffic Based Keep
    /// Alive"): a host may leave Keep Alive out for as long as that gives it.
    pub(crate) fn has_expired(&mut self, now: Time) -> bool {
        if self.timer_ends().is_none_or(|end| now < end) {
            return false;
        }
        let heard = self.last_seen > self.timer_from;
        self.timer_from = now;
        !heard
    }

    pub(crate) fn io_queue(&self, qid: u16) -> Option<u32> {
        self.io_queues.iter().find(|(id, _)| *id == qid).map(|(_, conn)| *conn)
    }

    /// Notes a namespace for the changed namespace list.
    pub(crate) fn namespace_changed(&mut self, nsid: u32) {
        if let Err(at) = self.changed.binary_search(&nsid) {
            if self.changed.len() < MAX_CHANGED {
                self.changed.insert(at, nsid);
            } else {
                self.changed_overflow = true;
            }
        }
    }

    /// The changed namespace list.
    pub(crate) fn changed(&self) -> &[u32] {
        &self.changed
    }

    /// The changed namespace list was read.
    pub(crate) fn clear_changed(&mut self) {
        self.changed.clear();
        self.changed_overflow = false;
    }

    /// Whether a flush failure of this namespace generation is still to be reported here; it
    /// counts as reported now.
    pub(crate) fn take_lost_write(&mut self, now: Time, generation: u64, lost_writes: u64) -> bool {
        let heard = self.heard(generation);
        let known = self.reported.iter_mut().find(|known| known.generation == generation);
        if known.as_ref().map_or(0, |known| known.told) >= lost_writes {
            return false;
        }
        let reported = Reported { generation, told: lost_writes, at: now, heard };
        match known {
            Some(known) => *known = reported,
            None => self.reported.push(reported),
        }
        true
    }

    /// How many flush failures of this namespace generation the host has certainly heard of here.
    pub(crate) fn heard(&self, generation: u64) -> u64 {
        let known = self.reported.iter().find(|known| known.generation == generation);
        known.map_or(0, |known| known.heard(self.last_seen))
    }
}
