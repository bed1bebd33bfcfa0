//! Which namespaces a controller has named as changed, and since when.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Namespaces that have changed, as a controller says after an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Named {
    /// Those with these NSIDs.
    Some(Vec<u32>),
    /// More than the list has room for, or the controller does not say which.
    All,
}

impl Named {
    pub(in super::super) fn has(&self, nsid: u32) -> bool {
        match self {
            Named::Some(nsids) => nsids.contains(&nsid),
            Named::All => true,
        }
    }
}

/// Namespaces of which only what was read after a tick of the scan's clock counts.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    of_all: Option<u64>,
    of_some: BTreeMap<u32, u64>,
}

impl Doubts {
    /// What was read of these up to `tick` does not count any more.
    pub(super) fn add(&mut self, named: &Named, tick: u64) {
        match named {
            Named::All => self.of_all = self.of_all.max(Some(tick)),
            Named::Some(nsids) => {
                for nsid in nsids {
                    let since = self.of_some.entry(*nsid).or_default();
                    *since = tick.max(*since);
                }
            }
        }
    }

    /// The tick up to which nothing counts that was read of a namespace.
    pub(super) fn since(&self, nsid: u32) -> Option<u64> {
        self.of_all.max(self.of_some.get(&nsid).copied())
    }
}
