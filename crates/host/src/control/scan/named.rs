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

/// So many namespaces are doubted one by one: a list of changed ones has no more.
const MOST: usize = 1024;

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
                if self.of_some.len() > MOST {
                    self.of_all = self.of_some.values().copied().max().max(self.of_all);
                    self.of_some.clear();
                }
            }
        }
    }

    /// The tick up to which nothing counts that was read of a namespace.
    pub(super) fn since(&self, nsid: u32) -> Option<u64> {
        self.of_all.max(self.of_some.get(&nsid).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn of_more_than_fit_all_are_doubted() {
        let mut doubts = Doubts::default();
        doubts.add(&Named::Some((1..=1024).collect()), 7);
        assert_eq!([doubts.since(1024), doubts.since(1025)], [Some(7), None]);
        doubts.add(&Named::Some(vec![1025]), 5);
        assert_eq!([1, 1025, 9999].map(|nsid| doubts.since(nsid)), [Some(7); 3]);
        assert!(doubts.of_some.is_empty(), "there is room for others");
    }
}
