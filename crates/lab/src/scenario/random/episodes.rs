//! What happens in between.

use super::links::Link;
use super::series::{between, one_of, series, weighted};
use crate::rng::Rng;

/// Something happens to a path.
pub(super) struct Change {
    /// When, in hundredths of the window.
    pub(super) at_percent: u64,
    pub(super) path: usize,
    pub(super) what: What,
}

pub(super) enum What {
    /// MiB/s to the target and to the host.
    Rates(u64, u64),
    Delay {
        us: u64,
    },
    State(&'static str),
    /// On, off; nothing is not at all.
    Congestion(Option<(u64, u64)>),
    Ana(&'static str),
}

#[derive(Clone, Copy)]
enum Kind {
    Slower,
    Faster,
    Farther,
    Cut,
    Silent,
    Congested,
    NonOptimized,
}

pub(super) fn draw(rng: &mut Rng, paths: &[Link]) -> Vec<Change> {
    if !rng.percent(35) {
        return Vec::new();
    }
    let path = rng.below(paths.len() as u64) as usize;
    let kinds = [
        (30, Kind::Slower),
        (8, Kind::Faster),
        (20, Kind::Farther),
        (14, Kind::Cut),
        (12, Kind::Silent),
        (12, Kind::Congested),
        (4, Kind::NonOptimized),
    ];
    let kind = weighted(rng, &kinds);
    let (begin, end) = (between(rng, 25, 40), between(rng, 60, 75));
    let stays = !matches!(kind, Kind::Cut | Kind::Silent) && rng.percent(30);
    let mut changes =
        vec![Change { at_percent: begin, path, what: begins(rng, kind, &paths[path]) }];
    if rng.percent(30) {
        let other = (path + 1 + rng.below(paths.len() as u64 - 1) as usize) % paths.len();
        let kind = one_of(rng, &[Kind::Slower, Kind::Faster, Kind::Farther]);
        let what = begins(rng, kind, &paths[other]);
        changes.push(Change { at_percent: between(rng, 45, 55), path: other, what });
    }
    if !stays {
        changes.push(Change { at_percent: end, path, what: ends(kind, &paths[path]) });
    }
    changes
}

fn begins(rng: &mut Rng, kind: Kind, path: &Link) -> What {
    match kind {
        Kind::Slower => {
            let tenths = series(rng, 15, 100);
            let slower = |rate: u64| (rate * 10 / tenths).max(2);
            What::Rates(slower(path.rate_in), slower(path.rate_out))
        }
        Kind::Faster => {
            let times = between(rng, 2, 4);
            What::Rates(path.rate_in * times, path.rate_out * times)
        }
        Kind::Farther => What::Delay { us: path.delay_us + series(rng, 500, 20_000) },
        Kind::Cut => What::State("cut"),
        Kind::Silent => What::State("silent"),
        Kind::Congested => {
            let on = series(rng, 10, 200);
            What::Congestion(Some((on, (on * one_of(rng, &[25, 50, 100]) / 100).max(1))))
        }
        Kind::NonOptimized => What::Ana("non-optimized"),
    }
}

fn ends(kind: Kind, path: &Link) -> What {
    match kind {
        Kind::Slower | Kind::Faster => What::Rates(path.rate_in, path.rate_out),
        Kind::Farther => What::Delay { us: path.delay_us },
        Kind::Cut | Kind::Silent => What::State("up"),
        Kind::Congested => What::Congestion(None),
        Kind::NonOptimized => What::Ana(path.ana()),
    }
}
