//! Which engines burners keep from working, and until when.

use crate::scenario;

/// The stretches of all data workers. Control workers are spared: they carry no load.
#[derive(Debug, Default)]
pub(super) struct Stolen {
    /// Host by host.
    workers: Vec<scenario::Stolen>,
    /// Of one host, the control worker included.
    group: usize,
    /// What the stretches count from.
    begin_ns: u64,
}

impl Stolen {
    pub(super) fn new(workers: Vec<scenario::Stolen>, group: usize, begin_ns: u64) -> Stolen {
        Stolen { workers, group, begin_ns }
    }

    /// Whether anything is stolen at all.
    #[inline]
    pub(super) fn any(&self) -> bool {
        !self.workers.is_empty()
    }

    /// When an engine can work at the earliest, from `now_ns` on.
    #[inline]
    pub(super) fn free_at(&self, node: u32, now_ns: u64) -> u64 {
        if !self.any() || now_ns < self.begin_ns {
            return now_ns;
        }
        let (host, worker) = (node as usize / self.group, node as usize % self.group);
        let Some(worker) = worker.checked_sub(1) else { return now_ns };
        let stolen = self.workers.get(host * (self.group - 1) + worker);
        stolen.map_or(now_ns, |stolen| self.begin_ns + stolen.free_at(now_ns - self.begin_ns))
    }
}
