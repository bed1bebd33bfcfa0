//! What is in flight on two paths, on average over all selections: `service-time` holds bytes in
//! the ratio of the weights, `queue-depth` holds commands level.

use crate::stand::{HEAD, SUBSYSTEM, Stand, WORKERS, reads};
use anabranch_host::explain::Seen;

const SMALL: u32 = 4 << 10;
const LARGE: u32 = 128 << 10;
/// Selections of a run that count, at least.
const COUNTED: u64 = 3000;
const PATHS: [&str; 2] = ["nvme0c0n1", "nvme0c1n1"];

/// A size of reads, or a mix of two; rates at which a run is short; and so many reads at once on
/// each worker that the ones which end together are few among them.
struct Load {
    sizes: &'static [u32],
    depth: u32,
    unequal: [&'static str; 2],
    equal: [&'static str; 2],
}

const LOADS: [Load; 2] = [
    Load {
        sizes: &[SMALL],
        depth: 512,
        unequal: ["rate=80mbit", "rate=20mbit"],
        equal: ["rate=50mbit", "rate=50mbit"],
    },
    Load {
        sizes: &[SMALL, LARGE],
        depth: 256,
        unequal: ["rate=800mbit", "rate=200mbit"],
        equal: ["rate=500mbit", "rate=500mbit"],
    },
];

/// What the two paths had in flight, added up over all selections of a run.
struct Course {
    commands: [u64; 2],
    bytes: [u64; 2],
}

impl Course {
    /// A run under a policy, with these weights of the two paths. The reads that fill the paths at
    /// first, and those that leave them empty in the end, do not count.
    fn run(policy: &str, shapes: [&str; 2], load: &Load, weights: [u32; 2]) -> Course {
        let stand = Stand::new(&shapes, 1024);
        stand.set(SUBSYSTEM, "iopolicy", policy);
        stand.set(HEAD, "explain_sample", "1");
        for (path, weight) in PATHS.into_iter().zip(weights) {
            stand.set(path, "relative_throughput", &weight.to_string());
        }
        stand.start(&reads(load.sizes, load.depth, None));
        stand.await_requests(2 * u64::from(load.depth) * WORKERS);
        let seen = stand.seen();
        let after = stand.wait("so many selections", |stand| {
            let after = stand.seen();
            (after[0].decisions >= seen[0].decisions + COUNTED).then_some(after)
        });
        stand.stop();
        stand.finish();
        let more = |of: fn(&Seen) -> u64| [0, 1].map(|path| of(&after[path]) - of(&seen[path]));
        Course { commands: more(|seen| seen.commands), bytes: more(|seen| seen.bytes) }
    }
}

fn ratio([a, b]: [u64; 2]) -> f64 {
    a as f64 / b as f64
}

fn assert_near(ratio: f64, wanted: f64, what: &str) {
    println!("{what}: {ratio:.3}");
    assert!((wanted * 0.95..wanted * 1.05).contains(&ratio), "{what}: {ratio}, not {wanted}");
}

#[test]
fn t1_bytes_in_flight_stand_in_the_ratio_of_the_weights() {
    for load in LOADS {
        for shapes in [load.unequal, load.equal] {
            for (weights, wanted) in [([4, 1], 4.0), ([1, 1], 1.0)] {
                let course = Course::run("service-time", shapes, &load, weights);
                let what = format!("{weights:?} on {shapes:?} with {:?} bytes", load.sizes);
                assert_near(ratio(course.bytes), wanted, &what);
            }
        }
    }
}

#[test]
fn t1_equal_weights_and_sizes_are_as_queue_depth() {
    let load = &LOADS[0];
    for shapes in [load.unequal, load.equal] {
        let by_commands = Course::run("queue-depth", shapes, load, [1, 1]);
        let by_bytes = Course::run("service-time", shapes, load, [1, 1]);
        assert_near(ratio(by_commands.commands), 1.0, &format!("commands on {shapes:?}"));
        assert_near(ratio(by_bytes.bytes), 1.0, &format!("bytes on {shapes:?}"));
    }
}
