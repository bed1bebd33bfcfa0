//! What hosts that have left know of a namespace's failed flushes.

use alloc::vec::Vec;
use anabranch_proto::nvme::Uuid;

/// Hosts that each namespace remembers.
const MAX_ABSENT: usize = 256;

/// By host identifier, how many failures each has heard of; who left longest ago comes first.
#[derive(Debug, Default)]
pub(crate) struct Absent(Vec<(Uuid, u64)>);

impl Absent {
    /// How many failures a host had heard of when it left; `None` when it never was here, or is
    /// forgotten.
    pub(crate) fn heard(&self, host: Uuid) -> Option<u64> {
        self.0.iter().find(|(id, _)| *id == host).map(|(_, heard)| *heard)
    }

    /// A host leaves that has heard of so many of all failures. Without room the one is forgotten
    /// that has heard of all of them, as it misses nothing but what fails from now on; when there
    /// is none, whoever left longest ago.
    pub(crate) fn leaves(&mut self, host: Uuid, heard: u64, all: u64) {
        let before = self.heard(host).unwrap_or(0);
        self.0.retain(|(id, _)| *id != host);
        if self.0.len() == MAX_ABSENT {
            let knows_all = self.0.iter().position(|(_, heard)| *heard >= all);
            self.0.remove(knows_all.unwrap_or(0));
        }
        self.0.push((host, heard.max(before)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: usize) -> Uuid {
        Uuid((number as u128).to_be_bytes())
    }

    #[test]
    fn who_knows_of_all_failures_is_forgotten_first() {
        let mut absent = Absent::default();
        for number in 0..MAX_ABSENT {
            absent.leaves(host(number), u64::from(number == 7), 1);
        }
        for (new, gone) in [(1000, 7), (1001, 0), (1002, 1)] {
            assert!(absent.heard(host(gone)).is_some(), "{gone}");
            absent.leaves(host(new), 0, 1);
            assert_eq!(absent.heard(host(gone)), None, "{gone}");
            assert_eq!(absent.0.len(), MAX_ABSENT);
        }
    }

    #[test]
    fn who_leaves_again_forgets_nothing() {
        let mut absent = Absent::default();
        for (heard, known) in [(1, 1), (0, 1), (2, 2)] {
            absent.leaves(host(1), heard, 2);
            assert_eq!((absent.heard(host(1)), absent.0.len()), (Some(known), 1));
        }
    }
}
