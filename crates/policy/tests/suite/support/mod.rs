//! What the tests of this crate share: a table of paths to play with, and seeded randomness.

use anabranch_policy::{
    Affinity, AnaRank, AsCandidate, Candidate, Charge, ControllerLedger, LOCAL_DISTANCE, Lane,
    Load, Local, NodeLatency, OpClass, Parameters, Policy, Selector, Shared, WorkerLedger, finish,
    start,
};

pub(crate) struct Path {
    pub(crate) usable: bool,
    pub(crate) rank: AnaRank,
    pub(crate) distance: u32,
    pub(crate) affinity: Affinity,
    pub(crate) controller: ControllerLedger,
    /// One per worker of the controller.
    pub(crate) workers: Vec<WorkerLedger>,
    pub(crate) worker: u16,
    pub(crate) queue: u16,
    pub(crate) tags: u16,
    pub(crate) shared: Shared,
    /// One per worker.
    pub(crate) lanes: [Lane; 2],
    pub(crate) node: NodeLatency,
    pub(crate) local: Local,
}

impl Path {
    pub(crate) fn new(usable: bool, rank: AnaRank) -> Path {
        Path {
            usable,
            rank,
            distance: LOCAL_DISTANCE,
            affinity: Affinity::Own,
            controller: ControllerLedger::new(),
            workers: (0..2).map(|_| WorkerLedger::new()).collect(),
            worker: 0,
            queue: 0,
            tags: 0,
            shared: Shared::new(),
            lanes: Default::default(),
            node: NodeLatency::new(),
            local: Local::new(),
        }
    }

    pub(crate) fn load(&self) -> Load<'_> {
        Load {
            controller: &self.controller,
            workers: &self.workers,
            worker: self.worker,
            queue: self.queue,
            tags: self.tags,
            shared: &self.shared,
            lane: &self.lanes[usize::from(self.worker)],
            node: Some(&self.node),
            local: Some(&self.local),
        }
    }

    /// Whether every counter of the path is back at zero.
    pub(crate) fn is_idle(&self) -> bool {
        let worker = |ledger: &WorkerLedger| (ledger.queue_active(), ledger.worker_active());
        self.controller.nr_active() == 0
            && self.controller.in_flight_bytes() == 0
            && self.shared.nr_active() == 0
            && self.shared.in_flight_work() == 0
            && self.workers.iter().all(|ledger| worker(ledger) == (0, 0))
    }
}

impl AsCandidate for Path {
    fn candidate(&self) -> Candidate<'_> {
        Candidate {
            usable: self.usable,
            rank: self.rank,
            numa_distance: self.distance,
            affinity: self.affinity,
            load: self.load(),
        }
    }
}

/// A policy with the defaults of everything else.
pub(crate) fn parameters(policy: Policy, kernel_exact: bool) -> Parameters {
    Parameters { kernel_exact, ..Parameters::of(policy) }
}

/// One path per letter: `o` optimized, `n` non-optimized, `-` not usable.
pub(crate) fn paths(letters: &str) -> Vec<Path> {
    let mut table = Vec::new();
    for letter in letters.chars() {
        let (usable, rank) = match letter {
            'o' => (true, AnaRank::Optimized),
            'n' => (true, AnaRank::NonOptimized),
            '-' => (false, AnaRank::Optimized),
            other => panic!("no such path: {other}"),
        };
        table.push(Path::new(usable, rank));
    }
    table
}

/// Puts commands of 4 KiB in flight on a path, as `queue-depth`, `queue-length` and `service-time`
/// count them; they stay there.
pub(crate) fn load(path: &Path, commands: u32) {
    for _ in 0..commands {
        for policy in [Policy::QueueDepth, Policy::QueueLength, Policy::ServiceTime] {
            let _: Charge = begin(path, policy);
        }
    }
}

/// Starts a read of 4 KiB.
pub(crate) fn begin(path: &Path, policy: Policy) -> Charge {
    start(&Parameters::of(policy), path.load(), OpClass::Read, 4096, 0)
}

pub(crate) fn read(
    selector: &mut Selector,
    policy: Policy,
    kernel_exact: bool,
    paths: &[Path],
) -> Option<usize> {
    let parameters = parameters(policy, kernel_exact);
    let choice = selector.select(&parameters, paths, OpClass::Read, 4096, 0)?;
    Some(choice.index)
}

/// `count` selections in a row, each ended before the next.
pub(crate) fn one_at_a_time(
    selector: &mut Selector,
    policy: Policy,
    kernel_exact: bool,
    paths: &[Path],
    count: usize,
) -> Vec<usize> {
    (0..count)
        .map(|_| {
            let chosen = read(selector, policy, kernel_exact, paths).expect("a path");
            finish(begin(&paths[chosen], policy), paths[chosen].load());
            chosen
        })
        .collect()
}

/// SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    /// A fixed seed unless the environment variable `SEED` gives one; printed, so that a failure
    /// can be repeated.
    pub(crate) fn seeded() -> Random {
        let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(2026);
        println!("SEED={seed}");
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// 1 to `most` paths in any state, at any distance, some of them busy.
    pub(crate) fn paths(&mut self, most: usize) -> Vec<Path> {
        let count = 1 + self.below(most);
        let letters: String = (0..count).map(|_| ['o', 'n', '-'][self.below(3)]).collect();
        let mut table = paths(&letters);
        for path in &mut table {
            path.distance = 10 + self.below(3) as u32;
            load(path, self.below(4) as u32);
        }
        table
    }
}
