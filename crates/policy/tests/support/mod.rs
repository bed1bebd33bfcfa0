//! What the tests of this crate share: a table of paths to play with, and seeded randomness.
#![allow(dead_code, unreachable_pub)]

use anabranch_policy::{
    AnaRank, AsCandidate, Candidate, Charge, ControllerLedger, LOCAL_DISTANCE, OpClass, Policy,
    Selector, finish, start,
};

pub struct Path {
    pub usable: bool,
    pub rank: AnaRank,
    pub distance: u32,
    pub controller: ControllerLedger,
}

impl AsCandidate for Path {
    fn candidate(&self) -> Candidate<'_> {
        Candidate {
            usable: self.usable,
            rank: self.rank,
            numa_distance: self.distance,
            controller: &self.controller,
        }
    }
}

/// One path per letter: `o` optimized, `n` non-optimized, `-` not usable.
pub fn paths(letters: &str) -> Vec<Path> {
    let mut table = Vec::new();
    for letter in letters.chars() {
        let (usable, rank) = match letter {
            'o' => (true, AnaRank::Optimized),
            'n' => (true, AnaRank::NonOptimized),
            '-' => (false, AnaRank::Optimized),
            other => panic!("no such path: {other}"),
        };
        let controller = ControllerLedger::new();
        table.push(Path { usable, rank, distance: LOCAL_DISTANCE, controller });
    }
    table
}

/// Puts commands in flight on a path; they stay there.
pub fn load(path: &Path, commands: u32) {
    for _ in 0..commands {
        let _: Charge = start(Policy::QueueDepth, &path.controller, 4096, 0);
    }
}

pub fn read(
    selector: &mut Selector,
    policy: Policy,
    kernel_exact: bool,
    paths: &[Path],
) -> Option<usize> {
    selector.select(policy, kernel_exact, paths, OpClass::Read, 4096)
}

/// `count` selections in a row, each ended before the next.
pub fn one_at_a_time(
    selector: &mut Selector,
    policy: Policy,
    kernel_exact: bool,
    paths: &[Path],
    count: usize,
) -> Vec<usize> {
    (0..count)
        .map(|_| {
            let chosen = read(selector, policy, kernel_exact, paths).expect("a path");
            let charge = start(policy, &paths[chosen].controller, 4096, 0);
            finish(charge, &paths[chosen].controller);
            chosen
        })
        .collect()
}

/// SplitMix64.
pub struct Random(u64);

impl Random {
    /// A fixed seed unless the environment variable `SEED` gives one; printed, so that a failure
    /// can be repeated.
    pub fn seeded() -> Random {
        let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(2026);
        println!("SEED={seed}");
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// 1 to `most` paths in any state, at any distance, some of them busy.
    pub fn paths(&mut self, most: usize) -> Vec<Path> {
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
