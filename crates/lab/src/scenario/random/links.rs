//! Paths, hosts and the target.

use super::series::{between, one_of, series, weighted};
use crate::rng::Rng;

/// A path; rates in MiB/s.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) rate_in: u64,
    pub(super) rate_out: u64,
    pub(super) delay_us: u64,
    pub(super) jitter_us: u64,
    /// From so many KiB on, so much longer.
    pub(super) large: Option<(u64, u64)>,
    /// So many of 100 commands, so much longer.
    pub(super) brownout: Option<(u64, u64)>,
    pub(super) optimized: bool,
    pub(super) weight: u64,
}

pub(super) struct Hosts {
    pub(super) count: u32,
    pub(super) workers: u32,
    pub(super) queue_depth: u32,
    pub(super) detect_ms: u32,
}

pub(super) struct Target {
    pub(super) read_us: u64,
    pub(super) write_us: u64,
    pub(super) exponential: bool,
    /// 0 is no limit.
    pub(super) servers: u64,
    pub(super) per_path: bool,
}

pub(super) fn paths(rng: &mut Rng) -> Vec<Link> {
    let count = match weighted(rng, &[(40, 2), (15, 3), (25, 4), (20, 5)]) {
        5 => between(rng, 5, 8),
        count => count,
    };
    let count = count as usize;
    let rates_out = rates(rng, count);
    let rates_in = if rng.percent(80) { rates_out.clone() } else { rates(rng, count) };
    let delays = delays(rng, count);
    let mut paths: Vec<Link> = (0..count)
        .map(|path| Link {
            rate_in: rates_in[path],
            rate_out: rates_out[path],
            delay_us: delays[path],
            jitter_us: 0,
            large: None,
            brownout: None,
            optimized: true,
            weight: 1,
        })
        .collect();
    if rng.percent(20) {
        let (percent, only) = (one_of(rng, &[10, 20, 50, 100]), any(rng, count));
        let all = rng.percent(50);
        for (place, path) in paths.iter_mut().enumerate() {
            if all || place == only {
                path.jitter_us = path.delay_us * percent / 100;
            }
        }
    }
    if rng.percent(12) {
        let large = (one_of(rng, &[16, 32, 64, 128]), series(rng, 1_000, 10_000));
        paths[any(rng, count)].large = Some(large);
    }
    if rng.percent(10) {
        let brownout = (between(rng, 1, 5), series(rng, 2_000, 30_000));
        paths[any(rng, count)].brownout = Some(brownout);
    }
    if rng.percent(8) {
        paths[any(rng, count)].optimized = false;
    }
    paths
}

fn any(rng: &mut Rng, count: usize) -> usize {
    rng.below(count as u64) as usize
}

/// MiB/s of each path, in one direction.
fn rates(rng: &mut Rng, count: usize) -> Vec<u64> {
    if rng.percent(35) {
        return vec![series(rng, 20, 2_400); count];
    }
    let (fastest, at) = (series(rng, 60, 2_400), any(rng, count));
    let rate = |place| {
        if place == at { fastest } else { (fastest * 10 / series(rng, 10, 200)).max(20) }
    };
    (0..count).map(rate).collect()
}

fn delays(rng: &mut Rng, count: usize) -> Vec<u64> {
    if rng.percent(45) {
        return vec![series(rng, 10, 30_000); count];
    }
    (0..count).map(|_| series(rng, 10, 30_000)).collect()
}

pub(super) fn hosts(rng: &mut Rng) -> Hosts {
    let count = match weighted(rng, &[(85, 1), (8, 2), (7, 3)]) {
        3 => between(rng, 3, 20) as u32,
        count => count,
    };
    Hosts {
        count,
        workers: one_of(rng, &[1, 2, 4, 8]),
        queue_depth: weighted(rng, &[(10, 32), (80, 128), (10, 1_024)]),
        detect_ms: one_of(rng, &[300, 1_000, 5_000]),
    }
}

pub(super) fn target(rng: &mut Rng) -> Target {
    let (servers, per_path) = match weighted(rng, &[(40, 0), (30, 1), (30, 2)]) {
        0 => (0, false),
        1 => (one_of(rng, &[8, 16, 32, 64, 128]), false),
        _ => (one_of(rng, &[2, 4, 8, 16, 32]), true),
    };
    Target {
        read_us: series(rng, 20, 200),
        write_us: series(rng, 10, 100),
        exponential: rng.percent(35),
        servers,
        per_path,
    }
}

/// What somebody would set who knew the rates: for reads those to the host, for writes those to the
/// target, for both the sum.
pub(super) fn set_weights(paths: &mut [Link], read_percent: u32) {
    let rate = |path: &Link| match read_percent {
        100 => path.rate_out,
        0 => path.rate_in,
        _ => path.rate_out + path.rate_in,
    };
    let fastest = paths.iter().map(rate).max().unwrap_or(1).max(1);
    for path in paths {
        path.weight = (rate(path) * 100 / fastest).max(1);
    }
}

impl Link {
    /// The word for its ANA state.
    pub(super) fn ana(&self) -> &'static str {
        if self.optimized { "optimized" } else { "non-optimized" }
    }
}
