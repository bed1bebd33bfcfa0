//! The state of selection that belongs to one head on one worker.

use crate::{
    AsCandidate, Choice, OpClass, Parameters, Policy, finish_time, historical_service_time,
    io_affinity, latency, numa, queue_depth, queue_length, recency::Recency, round_robin,
    service_time,
};

/// What one worker remembers about one head between selections: the path it used last.
///
/// Linux keeps one such pointer per NUMA node and lets the CPUs of a node race on it, so that
/// `round-robin` alternates exactly only for a single submitter. Here it is per worker: nothing is
/// shared, nothing races.
///
/// Paths are named by their position in the head's list. A path that leaves needs
/// [`Selector::path_removed`], one that joins before others [`Selector::path_added`].
#[derive(Clone, Debug, Default)]
pub struct Selector {
    /// The path that the kernel would have in `current_path`; dropped by failover, policy switch, …
    pub(crate) cached: Option<u32>,
    /// Where the rotation stands, kept when the cache is dropped.
    pub(crate) last: Option<u32>,
    /// Where each group of `latency` stands.
    pub(crate) turns: latency::Turns,
    /// The order of use, of the policies that know it.
    pub(crate) recency: Recency,
    /// Selections of `io-affinity` while this worker had no path of its own.
    pub(crate) affinity_misses: u64,
    /// What `finish-time` knows of the load, and may spend on probes.
    pub(crate) recent: finish_time::Recent,
    /// Under which policy `cached` was written.
    policy: Option<Policy>,
}

impl Selector {
    /// Remembers nothing.
    #[must_use]
    pub const fn new() -> Self {
        Selector {
            cached: None,
            last: None,
            turns: latency::Turns::new(),
            recency: Recency::new(),
            affinity_misses: 0,
            recent: finish_time::Recent::new(),
            policy: None,
        }
    }

    /// The path that the next command should take, `None` when no path is usable (then the caller
    /// decides between requeue and fail).
    ///
    /// `op`, `bytes` (payload of the command) and `now_ns` (the caller's clock) reach every policy;
    /// few look at them. A policy other than last time drops the cache, as the kernel does when the
    /// policy of a subsystem is written; selecting under the same policy again has no effect.
    #[inline]
    pub fn select<P: AsCandidate>(
        &mut self,
        parameters: &Parameters,
        paths: &[P],
        op: OpClass,
        bytes: u32,
        now_ns: u64,
    ) -> Option<Choice> {
        let policy = parameters.policy;
        if self.policy != Some(policy) {
            self.begin(policy);
        }
        match policy {
            Policy::Numa => numa::select(self, paths),
            Policy::RoundRobin => round_robin::select(self, parameters.kernel_exact, paths),
            Policy::QueueDepth => queue_depth::select(self, parameters, paths),
            Policy::ServiceTime => service_time::select(self, parameters, paths, bytes),
            Policy::Latency => latency::select(self, parameters, paths, op, bytes),
            Policy::QueueLength => queue_length::select(self, paths),
            Policy::HistoricalServiceTime => {
                historical_service_time::select(self, parameters.historical, paths, now_ns)
            }
            Policy::IoAffinity => io_affinity::select(self, paths),
            Policy::FinishTime => {
                finish_time::select(self, parameters.finish_time, paths, op, bytes, now_ns)
            }
        }
    }

    /// Another policy is in force than the last time.
    #[cold]
    fn begin(&mut self, policy: Policy) {
        self.cached = None;
        self.turns.forget_all();
        self.recency = Recency::new();
        self.policy = Some(policy);
    }

    /// Another policy is in force, or was since, though nothing was selected under it.
    pub fn policy_changed(&mut self) {
        self.policy = None;
    }

    /// A path has become usable and optimized, which may be nearer than the one in use (this makes
    /// failback of `numa` immediate). Kernel-exact `round-robin` goes on behind the first optimized
    /// path then, as the kernel looks for the path of each node anew at that moment.
    pub fn path_live<P: AsCandidate>(&mut self, parameters: &Parameters, paths: &[P]) {
        let policy = parameters.policy;
        if self.policy != Some(policy) {
            self.begin(policy);
        }
        self.cached = match policy {
            // No head has 2^32 paths.
            Policy::RoundRobin if parameters.kernel_exact => {
                round_robin::first_from(0, paths).map(|index| index as u32)
            }
            _ => None,
        };
    }

    /// After a selection: the path that a probe is to be sent to beside the command that was just
    /// placed, if any. It was usable then.
    ///
    /// A probe is a read of the same blocks whose data nobody wants, charged with
    /// [`start_probe`](crate::start_probe); no user may wait for it. Who can not send it just does
    /// not: it is asked for again. Who never can turns
    /// [`probes`](crate::FinishTimeParameters::probes) off.
    #[inline]
    pub fn take_probe(&mut self) -> Option<usize> {
        self.recent.take().map(|path| path as usize)
    }

    /// A probe that was asked for beside a command of `bytes` was not sent, or was answered with an
    /// error: as it moved no data, others may be asked for in its place.
    #[cold]
    pub fn probe_moved_nothing(&mut self, bytes: u32) {
        self.recent.give_back(bytes);
    }

    /// A command failed over from this path, or the path lost its state: it is not remembered.
    pub fn forget_path(&mut self, index: usize) {
        if self.cached.is_some_and(|cached| cached as usize == index) {
            self.cached = None;
        }
        self.turns.forget(index);
    }

    /// The path used last is not remembered: a capacity changed, or it was chosen for one command
    /// alone.
    pub fn clear_cache(&mut self) {
        self.cached = None;
    }

    /// The path at `index` left the list and those behind it moved up by one.
    pub fn path_removed(&mut self, index: usize) {
        self.cached = match self.cached {
            Some(cached) if cached as usize == index => None,
            Some(cached) if cached as usize > index => Some(cached - 1),
            other => other,
        };
        self.recency.removed(index);
        // The rotation goes on with the path that took the place of the removed one.
        self.last = match self.last {
            Some(last) if last as usize >= index => last.checked_sub(1),
            other => other,
        };
        self.turns.path_removed(index);
        self.recent.forget();
    }

    /// A path joined the list at `index` and those from there on moved down by one. At the end of
    /// the list it need not be told.
    pub fn path_added(&mut self, index: usize) {
        let moved = |path: u32| if path as usize >= index { path + 1 } else { path };
        self.cached = self.cached.map(moved);
        self.recency.added(index);
        self.last = self.last.map(moved);
        self.turns.path_added(index);
        self.recent.forget();
    }

    /// The path that this worker is bound to under `numa` (for the attribute `numa_nodes`), `None`
    /// under other policies.
    #[must_use]
    pub fn numa_path(&self) -> Option<usize> {
        match self.policy {
            Some(Policy::Numa) => self.cached.map(|cached| cached as usize),
            _ => None,
        }
    }

    /// How many commands this worker placed under `io-affinity` (or found no path for) while no
    /// path of the head was assigned to it. Never goes back to 0.
    #[must_use]
    pub fn affinity_misses(&self) -> u64 {
        self.affinity_misses
    }

    /// The remembered path as a position in `paths`.
    #[inline]
    pub(crate) fn cached_in<P>(&self, paths: &[P]) -> Option<usize> {
        self.cached.map(|cached| cached as usize).filter(|&cached| cached < paths.len())
    }

    /// Remembers a choice.
    #[inline]
    pub(crate) fn remember(&mut self, index: usize) {
        // No head has 2^32 paths.
        let index = index as u32;
        self.cached = Some(index);
        self.last = Some(index);
    }

    /// Where a rotating scan starts: behind the path used last.
    #[inline]
    pub(crate) fn rotation_start<P>(&self, paths: &[P]) -> usize {
        match self.last {
            Some(last) if (last as usize) + 1 < paths.len() => last as usize + 1,
            _ => 0,
        }
    }
}
