//! What a job draws, as shares.

use crate::scenario::{Job, Sizes};
use anabranch_policy::OpClass;

/// Every class and size that [`request`](crate::pace::request) draws for a job, with its share in
/// millionths.
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
            sizes @ Sizes::Range { .. } => {
                // All are equally often: as good as always their mean, but for delays by size.
                all.push((op, (sizes.mean_milli() / 1000) as u32, share));
            }
        }
    }
    all
}
