//! How many commands of each host, and of each network address, hold payload memory.
//!
//! To count that takes a look at every connection, and there may be thousands that all wait for
//! memory and are tried again and again. So it is counted once, what is granted since is added, and
//! it is counted anew when some were refused by it: who is in vain asked for gives memory back now
//! and then, and does not say so here.

use super::Target;
use crate::conn::{Conn, Role};
use alloc::collections::BTreeMap;
use anabranch_proto::nvme::Uuid;
use core::net::IpAddr;

/// It is counted anew after one refusal for so many connections: with less than that many, after
/// each.
const CONNECTIONS_PER_REFUSAL: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Held {
    hosts: BTreeMap<Uuid, usize>,
    addresses: BTreeMap<IpAddr, usize>,
    counted: bool,
    /// Since it was counted.
    refusals: usize,
}

/// Who a connection belongs to.
#[derive(Clone, Copy)]
struct Owner {
    host: Option<Uuid>,
    address: Option<IpAddr>,
    /// It is an I/O queue: what it holds is counted.
    is_io: bool,
}

impl Held {
    /// There is enough for all: what was counted is not kept up to date.
    pub(super) fn forget(&mut self) {
        self.counted = false;
    }

    fn add(&mut self, owner: Owner, commands: usize) {
        if !owner.is_io {
            return;
        }
        if let Some(host) = owner.host {
            *self.hosts.entry(host).or_default() += commands;
        }
        if let Some(address) = owner.address {
            *self.addresses.entry(address).or_default() += commands;
        }
    }

    /// Whether the owner, with the command that asks, holds at most so much on all its I/O queues;
    /// so does everybody at its address, if that counts, too.
    fn is_within(&self, owner: Owner, most: usize, at_address: bool) -> bool {
        let asking = usize::from(owner.is_io);
        let held = |count: Option<&usize>| count.map_or(0, |count| *count) + asking;
        let host = owner.host.is_none_or(|host| held(self.hosts.get(&host)) <= most);
        let address = || owner.address.is_none_or(|from| held(self.addresses.get(&from)) <= most);
        host && (!at_address || address())
    }
}

impl Target {
    /// Whether the host of a connection, and everybody at its address if that counts, too, hold
    /// payload memory for so many commands at most, with the one that is asked about.
    pub(super) fn holds_at_most(&mut self, place: u32, most: usize, at_address: bool) -> bool {
        let Some(owner) = self.conns.get(place).map(|conn| self.owner(conn)) else { return true };
        if !self.held.counted {
            self.count_held(owner);
        }
        if self.held.is_within(owner, most, at_address) {
            return true;
        }
        self.held.refusals += 1;
        if self.held.refusals <= self.conns.len() / CONNECTIONS_PER_REFUSAL {
            return false;
        }
        self.count_held(owner);
        self.held.is_within(owner, most, at_address)
    }

    /// A command of the connection has memory now.
    pub(super) fn granted(&mut self, place: u32) {
        if self.held.counted
            && let Some(owner) = self.conns.get(place).map(|conn| self.owner(conn))
        {
            self.held.add(owner, 1);
        }
    }

    /// Counts anew; the command that is asked about, of this owner, is left out.
    fn count_held(&mut self, asking: Owner) {
        let mut held = core::mem::take(&mut self.held);
        held.hosts.clear();
        held.addresses.clear();
        for (_, conn) in self.conns.iter() {
            held.add(self.owner(conn), conn.holding());
        }
        let counts = [
            asking.host.and_then(|host| held.hosts.get_mut(&host)),
            asking.address.and_then(|address| held.addresses.get_mut(&address)),
        ];
        for count in counts.into_iter().flatten().filter(|_| asking.is_io) {
            *count = count.saturating_sub(1);
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
