//! Two workers at once.

use crate::case::Case;
use crate::rounds::{BLOCKS_OF_TWO, COMMANDS, Times};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Both must have run together for this share of a block, or it says nothing about contention.
const TOGETHER: f64 = 0.8;

/// So many of those make a round.
const ENOUGH: usize = 12;

/// How often a round is tried. Each try starts a thread anew, so that the system may put it
/// elsewhere.
const TRIES: usize = 8;

/// What each worker does in a block, and how many commands that is.
pub(crate) type Body = (u32, fn(&mut Case));

/// Each command ended before the next.
pub(crate) const ONE_AT_A_TIME: Body = (COMMANDS, |case| case.commands(COMMANDS));

/// One round of two workers: the median over the blocks in which both ran at the same time. On a
/// machine whose processors are taken there may be none, then the round counts for nothing.
pub(crate) fn round(times: &mut Times, pair: &mut [Case; 2], body: Body) {
    let mut valid = Vec::new();
    for _ in 0..TRIES {
        valid.extend(valid_blocks(pair, body));
        if valid.len() >= ENOUGH {
            break;
        }
    }
    valid.sort_by(f64::total_cmp);
    if let Some(&median) = valid.get(valid.len() / 2) {
        times.push(median);
    }
}

/// What the blocks of one try say in which both ran together.
fn valid_blocks([one, two]: &mut [Case; 2], body: Body) -> Vec<f64> {
    let origin = Instant::now();
    let arrived = AtomicUsize::new(0);
    let (one, two) = std::thread::scope(|scope| {
        let other = scope.spawn(|| blocks(two, body, &arrived, origin));
        let mine = blocks(one, body, &arrived, origin);
        (mine, other.join().expect("the other worker ends"))
    });
    one.into_iter().zip(two).filter_map(|blocks| both(blocks, body.0)).collect()
}

/// When one worker's blocks began and ended, in nanoseconds since `origin`.
fn blocks(
    case: &mut Case,
    (_, body): Body,
    arrived: &AtomicUsize,
    origin: Instant,
) -> [(f64, f64); BLOCKS_OF_TWO] {
    std::array::from_fn(|block| {
        arrived.fetch_add(1, Ordering::SeqCst);
        let mut spins = 0_u32;
        while arrived.load(Ordering::SeqCst) < 2 * (block + 1) {
            spins += 1;
            if spins.is_multiple_of(1 << 14) {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        let begin = origin.elapsed();
        body(case);
        (begin.as_nanos() as f64, origin.elapsed().as_nanos() as f64)
    })
}

/// The mean of both workers' nanoseconds per command, if they ran together.
fn both((one, two): ((f64, f64), (f64, f64)), commands: u32) -> Option<f64> {
    let (a, b) = (one.1 - one.0, two.1 - two.0);
    let together = one.1.min(two.1) - one.0.max(two.0);
    (together >= TOGETHER * a.max(b)).then_some((a + b) / 2.0 / f64::from(commands))
}
