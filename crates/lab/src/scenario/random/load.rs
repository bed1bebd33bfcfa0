//! What is asked for.

use super::LARGEST;
use super::links::Hosts;
use super::series::{between, one_of, weighted};
use crate::rng::Rng;

/// Jobs that are alike.
pub(super) struct Load {
    pub(super) random: bool,
    pub(super) read_percent: u32,
    /// Bytes and percent; the latter add up to 100.
    pub(super) sizes: Vec<(u32, u32)>,
    /// Clones of a closed loop, or streams of arrivals.
    pub(super) clones: u32,
    pub(super) depth: u32,
    /// An open loop: so much of the limit.
    pub(super) open_percent: Option<u64>,
    /// Arrivals of each stream; set when the limit is known.
    pub(super) poisson_iops: u64,
}

/// Sizes with how often they are drawn.
const SIZES: [(u64, u32); 9] = [
    (1, 512),
    (5, 4 << 10),
    (2, 8 << 10),
    (2, 16 << 10),
    (2, 32 << 10),
    (2, 64 << 10),
    (2, 128 << 10),
    (1, 256 << 10),
    (1, LARGEST),
];

pub(super) fn draw(rng: &mut Rng, hosts: &Hosts) -> Load {
    let read_percent = match weighted(rng, &[(50, 100), (20, 0), (30, 1)]) {
        1 => one_of(rng, &[30, 50, 70, 90]),
        only => only,
    };
    let sizes = sizes(rng);
    let random = rng.percent(80);
    let open_percent = rng.percent(25).then(|| between(rng, 30, 95));
    let (clones, depth) = match open_percent {
        // Each stream is on a worker.
        Some(_) => (one_of(rng, &[1, 2, 4]).min(hosts.workers), 1),
        None => (between(rng, 1, 8) as u32, 1 << rng.below(9)),
    };
    // Until the limit is known: more than any.
    let poisson_iops = 10_000_000;
    Load { random, read_percent, sizes, clones, depth, open_percent, poisson_iops }
}

fn sizes(rng: &mut Rng) -> Vec<(u32, u32)> {
    if rng.percent(55) {
        return vec![(weighted(rng, &SIZES), 100)];
    }
    let mut sizes: Vec<u32> = (0..between(rng, 2, 4)).map(|_| weighted(rng, &SIZES)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut left = 100;
    let mut split = Vec::new();
    while let Some(bytes) = sizes.pop() {
        // At least 5 for each of the others.
        let others = sizes.len() as u32;
        let share =
            if others == 0 { left } else { between(rng, 5, (left - 5 * others).into()) as u32 };
        split.push((bytes, share));
        left -= share;
    }
    split.reverse();
    split
}

impl Load {
    /// Whether some size was below the largest.
    pub(super) fn double_sizes(&mut self) -> bool {
        if self.sizes.iter().all(|(bytes, _)| *bytes == LARGEST) {
            return false;
        }
        let mut merged: Vec<(u32, u32)> = Vec::new();
        for (bytes, percent) in &self.sizes {
            let bytes = (bytes * 2).min(LARGEST);
            match merged.last_mut() {
                Some((last, sum)) if *last == bytes => *sum += percent,
                _ => merged.push((bytes, *percent)),
            }
        }
        self.sizes = merged;
        true
    }

    /// fio's word for it.
    pub(super) fn rw(&self) -> String {
        let word = match self.read_percent {
            100 => "read",
            0 => "write",
            _ => "rw",
        };
        if self.random { format!("rand{word}") } else { word.to_owned() }
    }
}
