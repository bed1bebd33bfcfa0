//! `finish-time` in a closed load that is more than the near path holds.

use super::rig::*;
use anabranch_policy::Policy;
use std::time::Duration;

/// What waits tells so only when it ends: were all sent far until then, and none afterwards, either
/// path would have nothing to do for a part of the time.
#[test]
fn a_near_path_stays_full_while_the_rest_goes_far() {
    // Rate in Mbit/s and delay in microseconds of both; bytes and open reads of two workers.
    let cases = [
        ((12_000, 1_800), (19_000, 4_300), 131_072, 28),
        ((12_000, 1_800), (12_000, 4_300), 131_072, 32),
        ((6_000, 1_800), (19_000, 4_300), 131_072, 24),
        ((3_000, 1_800), (9_000, 6_000), 32_768, 48),
        ((276, 4_700), (3_600, 10_000), 4_096, 40),
        // The wait is less than half of the way, and always the same.
        ((276, 4_700), (3_600, 10_000), 4_096, 28),
    ];
    for (near, far, bytes, depth) in cases {
        let [one, other] = [("near", near), ("far", far)]
            .map(|(name, (rate, us))| path(name, rate * MBIT, Duration::from_micros(us)));
        let cell = scenario(vec![one, other], vec![reads(bytes, depth, 2)]);
        let found = run_policy(&cell, Policy::FinishTime);
        let [here, there] = [0, 1].map(|path| found.paths[path].commands * u64::from(bytes));
        let most = near.0 * MBIT / 8 * cell.run.window_ns / 1_000_000_000;
        assert!(
            here * 100 >= most * 97,
            "{near:?} {far:?}: {here} of {most} bytes on the near path"
        );
        assert!(there > 0, "{near:?} {far:?}: nothing goes far");
    }
}

/// A far way whose latencies scatter by as much as they are long: its base latency is that of the
/// quickest, and what all others take longer is no queue, for it differs from one to the next. Were
/// it held to be one, the far path would be full with a few commands.
#[test]
fn a_far_path_that_scatters_has_room() {
    // Rate in Mbit/s and delay in microseconds of both; bytes and open reads.
    let cases =
        [((1_000, 50), (1_000, 5_000), 16_384, 64), ((2_200, 60), (2_200, 2_400), 4_096, 128)];
    for (near, far, bytes, depth) in cases {
        let [one, mut other] = [("near", near), ("far", far)]
            .map(|(name, (rate, us))| path(name, rate * MBIT, Duration::from_micros(us)));
        other.shape.jitter = Duration::from_micros(far.1);
        let cell = scenario(vec![one, other], vec![reads(bytes, depth, 1)]);
        let [ours, theirs] =
            [Policy::FinishTime, Policy::QueueDepth].map(|policy| run_policy(&cell, policy).bytes);
        println!("{near:?} {far:?}: {ours} bytes, {theirs} with queue-depth");
        assert!(ours * 100 >= theirs * 98, "{near:?} {far:?}: {ours} against {theirs}");
    }
}
