//! Draws in integers: the same on every machine.

use crate::rng::Rng;
use crate::scenario::{Job, Sizes};
use anabranch_policy::OpClass;
pub use anabranch_target::exponential::FRACTION;

/// A draw from the exponential distribution with mean 1, with [`FRACTION`] fraction bits: at most
/// 45.
#[must_use]
pub fn exponential(rng: &mut Rng) -> u64 {
    anabranch_target::exponential::exponential(rng.next_u64())
}

/// An exponential draw with this mean, in nanoseconds.
#[must_use]
pub fn exponential_ns(rng: &mut Rng, mean_ns: u64) -> u64 {
    anabranch_target::exponential::exponential_ns(rng.next_u64(), mean_ns)
}

/// A request of this job: its class and its payload. Trims move no data.
#[inline]
pub(super) fn request(job: &Job, rng: &mut Rng) -> (OpClass, u32) {
    let op = job.mix.draw(rng);
    match op {
        OpClass::Other => (op, 0),
        OpClass::Read | OpClass::Write => (op, job.sizes.of(op).draw(rng)),
    }
}

/// Every class and size that [`request`] draws for a job, with its share in millionths.
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
