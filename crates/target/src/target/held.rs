//! How many commands of each host, and of each network address, hold payload memory, and how many
//! of those have brought their data in capsules.
//!
//! To count that takes a look at every connection, and there may be thousands that all wait for
//! memory and are tried again and again. So it is counted once, what is granted since is added, and
//! it is counted anew when some were refused by it: who is in vain asked for gives memory back now
//! and then, and does not say so here. At once for those who got some since it was counted: they
//! may hold less than it says.

use super::Target;
use crate::conn::{Conn, Role};
use alloc::collections::BTreeMap;
use anabranch_proto::nvme::Uuid;
use core::net::IpAddr;

/// It is counted anew after one refusal for so many connections: with less than that many, after
/// each.
const CONNECTIONS_PER_REFUSAL: usize = 16;

/// What is held.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    commands: usize,
    capsules: usize,
    /// Some of it came since it was counted, and may be over by now.
    since: bool,
}

/// Of what there may be so many.
#[derive(Clone, Copy, Debug)]
pub(super) enum Most {
    /// Commands, with the one that asks.
    Commands(usize),
    /// Those with data in capsules, before more come.
    Capsules(usize),
}

#[derive(Debug, Default)]
pub(super) struct Held {
    hosts: BTreeMap<Uuid, Count>,
    addresses: BTreeMap<IpAddr, Count>,
    counted: bool,
    /// Since it was counted.
    refusals: usize,
}

/// Who a connection belongs to.
#[derive(Clone, Copy)]
struct Owner {
    host: Option<Uuid>,
    address: Option<IpAddr>,
    /// It is an I/O queue: what its commands hold is counted, of others only data in capsules.
    is_io: bool,
}

impl Held {
    /// There is enough for all: what was counted is not kept up to date.
    pub(super) fn forget(&mut self) {
        self.counted = false;
    }

    fn add(&mut self, owner: Owner, more: Count) {
        let commands = if owner.is_io { more.commands } else { 0 };
        let host = owner.host.map(|host| self.hosts.entry(host).or_default());
        let address = owner.address.map(|from| self.addresses.entry(from).or_default());
        for count in [host, address].into_iter().flatten() {
            count.commands += commands;
            count.capsules += more.capsules;
            count.since |= more.since;
        }
    }

    /// Whether the owner, or somebody at its address, got something since it was counted.
    fn has_changed(&self, owner: Owner) -> bool {
        let host = owner.host.and_then(|host| self.hosts.get(&host));
        let address = owner.address.and_then(|from| self.addresses.get(&from));
        host.into_iter().chain(address).any(|count| count.since)
    }

    /// Whether the owner holds at most so much on all its queues; so does everybody at its
    /// address, if that counts, too.
    fn is_within(&self, owner: Owner, most: Most, at_address: bool) -> bool {
        let within = |count: Option<&Count>| {
            let held = count.copied().unwrap_or_default();
            match most {
                Most::Commands(most) => held.commands + usize::from(owner.is_io) <= most,
                Most::Capsules(most) => held.capsules <= most,
            }
        };
        let host = owner.host.is_none_or(|host| within(self.hosts.get(&host)));
        let address = || owner.address.is_none_or(|from| within(self.addresses.get(&from)));
        host && (!at_address || address())
    }
}

impl Target {
    /// Whether the host of a connection, and everybody at its address if that counts, too, hold
    /// so much payload memory at most.
    pub(super) fn holds_at_most(&mut self, place: u32, most: Most, at_address: bool) -> bool {
        let Some(owner) = self.conns.get(place).map(|conn| self.owner(conn)) else { return true };
        let asking = matches!(most, Most::Commands(_));
        if !self.held.counted {
            self.count_held(owner, asking);
        }
        if self.held.is_within(owner, most, at_address) {
            return true;
        }
        self.held.refusals += 1;
        if !self.held.has_changed(owner)
            && self.held.refusals <= self.conns.len() / CONNECTIONS_PER_REFUSAL
        {
            return false;
        }
        self.count_held(owner, asking);
        self.held.is_within(owner, most, at_address)
    }

    /// A command of the connection has memory now.
    pub(super) fn granted(&mut self, place: u32) {
        self.add_held(place, Count { commands: 1, capsules: 0, since: true });
    }

    /// So many commands of the connection have come with data in their capsules.
    pub(super) fn capsules_came(&mut self, place: u32, capsules: u16) {
        let capsules = capsules.into();
        self.add_held(place, Count { commands: capsules, capsules, since: true });
    }

    fn add_held(&mut self, place: u32, more: Count) {
        if self.held.counted
            && let Some(owner) = self.conns.get(place).map(|conn| self.owner(conn))
        {
            self.held.add(owner, more);
        }
    }

    /// Counts anew; a command of this owner that is asked about is left out.
    fn count_held(&mut self, owner: Owner, asking: bool) {
        let mut held = core::mem::take(&mut self.held);
        held.hosts.clear();
        held.addresses.clear();
        for (_, conn) in self.conns.iter() {
            let capsules = conn.queue.capsules().into();
            held.add(self.owner(conn), Count { commands: conn.holding(), capsules, since: false });
        }
        let counts = [
            owner.host.and_then(|host| held.hosts.get_mut(&host)),
            owner.address.and_then(|address| held.addresses.get_mut(&address)),
        ];
        for count in counts.into_iter().flatten().filter(|_| asking && owner.is_io) {
            count.commands = count.commands.saturating_sub(1);
        }
        self.held = Held { counted: true, refusals: 0, ..held };
    }

    fn owner(&self, conn: &Conn) -> Owner {
        let controller = conn.controller().and_then(|at| self.controllers.get(at)?.as_ref());
        Owner {
            host: controller.map(|controller| controller.host_id),
            address: conn.from,
            is_io: matches!(conn.role, Role::Io(_)),
        }
    }
}
