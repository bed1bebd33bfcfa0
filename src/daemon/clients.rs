//! Who uses what is exported: how many NBD clients there are, and of which export.

use anabranch_export::nbd::NbdEvent;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// NBD clients of all workers.
#[derive(Debug, Default)]
pub struct Clients {
    connected: AtomicUsize,
    /// Of them, those that have opened an export, by its name. Only names that have some.
    opened: Mutex<BTreeMap<String, usize>>,
}

impl Clients {
    /// Those that are connected, also such as have not opened anything yet.
    #[must_use]
    pub fn connected(&self) -> usize {
        self.connected.load(Ordering::Relaxed)
    }

    /// Those that have opened this export, or one of its name that was withdrawn just before.
    #[must_use]
    pub fn of(&self, export: &str) -> usize {
        self.opened().get(export).copied().unwrap_or(0)
    }

    /// A worker had so many clients, and has so many now.
    pub(super) fn count(&self, before: usize, now: usize) {
        // Adding the difference, wrapping, is right in both directions.
        self.connected.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }

    /// A client may have opened an export, or left it. Both are rare, and nobody keeps the lock.
    pub(super) fn see(&self, event: &NbdEvent) {
        match event {
            NbdEvent::Opened { export, .. } => {
                *self.opened().entry(export.clone()).or_default() += 1;
            }
            NbdEvent::Left { export, .. } => {
                let mut opened = self.opened();
                let Some(count) = opened.get_mut(export) else { return };
                *count -= 1;
                if *count == 0 {
                    opened.remove(export);
                }
            }
            _ => {}
        }
    }

    fn opened(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
