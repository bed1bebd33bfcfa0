//! Places for clients, of which no network address takes more than it leaves.

use anabranch_proto::machine::network;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Who has a place now.
pub(super) struct Places {
    limit: usize,
    taken: Mutex<Vec<IpAddr>>,
}

/// A place that somebody has; it is free again with the end of this.
pub(super) struct Place {
    of: Arc<Places>,
    who: IpAddr,
}

impl Places {
    pub(super) fn new(limit: usize) -> Arc<Places> {
        Arc::new(Places { limit, taken: Mutex::new(Vec::new()) })
    }

    /// A place, if there are more left than this address has: one that takes all it can get, and
    /// keeps them, does not keep another from being served.
    pub(super) fn take(self: &Arc<Places>, from: IpAddr) -> Option<Place> {
        let who = network(from);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.iter().filter(|other| **other == who).count();
        (own < self.limit - taken.len()).then(|| {
            taken.push(who);
            Place { of: Arc::clone(self), who }
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.of.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = taken.iter().position(|who| *who == self.who) {
            taken.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(places: &Arc<Places>, from: &str) -> Vec<Place> {
        let from: IpAddr = from.parse().expect("an address");
        std::iter::from_fn(|| places.take(from)).collect()
    }

    #[test]
    fn an_address_leaves_as_many_places_as_it_has() {
        let places = Places::new(16);
        let first = taken(&places, "192.0.2.1");
        assert_eq!(first.len(), 8);
        assert!(taken(&places, "::ffff:192.0.2.1").is_empty(), "the same one");
        let second = taken(&places, "2001:db8::1");
        assert_eq!(second.len(), 4);
        assert!(taken(&places, "2001:db8::1:0:0:2").is_empty(), "of the same network");
        let rest = ["192.0.2.2", "192.0.2.3", "192.0.2.4"].map(|from| taken(&places, from));
        assert_eq!(rest.each_ref().map(Vec::len), [2, 1, 1]);
        assert!(taken(&places, "192.0.2.5").is_empty(), "none is left");
        drop(second);
        assert_eq!(taken(&places, "192.0.2.5").len(), 2, "given back");
    }
}
