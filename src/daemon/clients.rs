//! Who uses what is exported: the NBD clients of each export.

use anabranch_export::nbd::NbdEvent;
use anabranch_proto::machine::Peer;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Who they are, as far as the system says.
type Peers = Vec<Option<Peer>>;

/// NBD clients of all workers.
#[derive(Debug, Default)]
pub struct Clients {
    connected: AtomicUsize,
    /// Of them, those that have opened an export, by its name, in the order in which they have.
    /// Only names that have some.
    opened: Mutex<BTreeMap<String, Peers>>,
}

impl Clients {
    /// Those that are connected, also such as have not opened anything yet.
    #[must_use]
    pub fn connected(&self) -> usize {
        self.connected.load(Ordering::Relaxed)
    }

    /// Those that have opened this export, or one of its name that was withdrawn just before.
    #[must_use]
    pub fn of(&self, export: &str) -> Peers {
        self.opened().get(export).cloned().unwrap_or_default()
    }

    /// A worker had so many clients, and has so many now.
    pub(super) fn count(&self, before: usize, now: usize) {
        // Adding the difference, wrapping, is right in both directions.
        self.connected.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }

    /// A client may have opened an export, or left it. Both are rare, and nobody keeps the lock.
    pub(super) fn see(&self, event: &NbdEvent) {
        match event {
            NbdEvent::Opened { export, peer, .. } => {
                self.opened().entry(export.clone()).or_default().push(*peer);
            }
            NbdEvent::Left { export, peer, .. } => {
                let mut opened = self.opened();
                let Some(peers) = opened.get_mut(export) else { return };
                if let Some(place) = peers.iter().position(|other| other == peer) {
                    peers.remove(place);
                }
                if peers.is_empty() {
                    opened.remove(export);
                }
            }
            _ => {}
        }
    }

    fn opened(&self) -> MutexGuard<'_, BTreeMap<String, Peers>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
