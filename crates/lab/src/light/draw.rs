//! What a job draws, as shares.

use crate::scenario::{Job, Sizes};
use anabranch_policy::OpClass;

/// Every class and size that [`Thread::next`](crate::pace::Thread::next) draws for a job, with its
/// share in millionths.
pub(crate) fn kinds(job: &Job) -> Vec<(OpClass, u32, u64)> {
    let mut all = Vec::new();
    for op in OpClass::ALL {
        // Of 100; ten thousand times that are millionths.
        let share = u64::from(*job.mix.of(op)) * 10_000;
        match job.sizes.of(op) {
            _ if share == 0 => {}
            _ if op == OpClass::Other => all.push((op, 0, share)),
            Sizes::Split(sizes) => {
                let total: u64 = sizes.iter().map(|size| u64::from(size.weight)).sum();
                for size in sizes {
                    all.push((op, size.bytes, share * u64::from(size.weight) / total.max(1)));
                }
            }
            Sizes::Range { min, max } => {
                let of_range = range(*min, *max, share);
                all.extend(of_range.map(|(bytes, share)| (op, bytes, share)));
            }
        }
    }
    all
}

/// So many kinds stand for the multiples in a range. Where there are more, each stands for some
/// that follow one another, with their mean.
const OF_RANGE: u64 = 64;

fn range(min: u32, max: u32, share: u64) -> impl Iterator<Item = (u32, u64)> {
    let steps = u64::from((max / min).max(1));
    let groups = steps.min(OF_RANGE);
    // The largest, where it is no multiple.
    let last = share * u64::from(max % min) / u64::from(max);
    let share = share - last;
    let multiples = (0..groups).map(move |group| {
        let (from, until) = (group * steps / groups, (group + 1) * steps / groups);
        // The sizes are `from + 1` to `until` steps: at most `max`.
        let bytes = u64::from(min) * (from + 1 + until) / 2;
        (bytes as u32, share * until / steps - share * from / steps)
    });
    multiples.chain((last > 0).then_some((max, last)))
}
