//! What is in flight on two paths: `service-time` holds bytes in the ratio of the weights.

use crate::stand::{SUBSYSTEM, Stand, WORKERS, reads};

const SMALL: u32 = 4 << 10;
const LARGE: u32 = 128 << 10;
/// Reads at once on each worker.
const DEPTH: u32 = 128;
/// How often it is looked, and how many reads end in between.
const LOOKS: u64 = 200;
const BETWEEN: u64 = 10;
const PATHS: [&str; 2] = ["nvme0c0n1", "nvme0c1n1"];

/// A size of reads, or a mix of two, and rates at which a run is short.
struct Load {
    sizes: &'static [u32],
    unequal: [&'static str; 2],
    equal: [&'static str; 2],
}

const LOADS: [Load; 2] = [
    Load {
        sizes: &[SMALL],
        unequal: ["rate=160mbit", "rate=40mbit"],
        equal: ["rate=100mbit", "rate=100mbit"],
    },
    Load {
        sizes: &[SMALL, LARGE],
        unequal: ["rate=1600mbit", "rate=400mbit"],
        equal: ["rate=1gbit", "rate=1gbit"],
    },
];

/// Bytes in flight on the first path over those on the second, their means.
fn ratio(policy: &str, shapes: [&str; 2], sizes: &[u32], weights: [u32; 2]) -> f64 {
    let stand = Stand::new(&shapes, 512);
    stand.set(SUBSYSTEM, "iopolicy", policy);
    for (path, weight) in PATHS.into_iter().zip(weights) {
        stand.set(path, "relative_throughput", &weight.to_string());
    }
    let filled = 2 * u64::from(DEPTH) * WORKERS;
    stand.start(&reads(sizes, DEPTH, None));
    stand.await_requests(filled);
    let mut sums = [0; 2];
    for look in 1..=LOOKS {
        stand.await_requests(filled + look * BETWEEN);
        for (sum, path) in sums.iter_mut().zip(PATHS) {
            let in_flight = stand.get(path, "in_flight_bytes");
            *sum += in_flight.parse::<u64>().expect("a number of bytes");
        }
    }
    stand.stop();
    stand.finish();
    sums[0] as f64 / sums[1] as f64
}

#[test]
fn t1_bytes_in_flight_stand_in_the_ratio_of_the_weights() {
    for load in LOADS {
        for shapes in [load.unequal, load.equal] {
            for (weights, wanted) in [([4, 1], 4.0), ([1, 1], 1.0)] {
                let ratio = ratio("service-time", shapes, load.sizes, weights);
                let within = (wanted * 0.95..wanted * 1.05).contains(&ratio);
                assert!(within, "{weights:?} on {shapes:?} with {:?}: {ratio}", load.sizes);
            }
        }
    }
}
