//! `finish-time` in an open load that is more than the near path can do.

use super::rig::*;
use anabranch_lab::light::Figures;
use anabranch_lab::scenario::{Alteration, Distribution, Job, PerOp, Scenario, Sizes};
use anabranch_policy::Policy;
use std::time::Duration;

const FAR: Duration = Duration::from_millis(10);

/// Two paths of which one is far, and so many reads of 4 KiB a second; the near path does 30,000.
fn near_and_far(iops: u64) -> Scenario {
    let near = path("near", 1000 * MBIT, Duration::from_micros(50));
    scenario(vec![near, path("far", 1000 * MBIT, FAR)], vec![arrivals(iops)])
}

/// On the far path, of a thousand commands.
fn far(figures: &Figures) -> u64 {
    figures.paths[1].commands * 1000 / figures.requests
}

#[test]
fn what_the_near_path_can_not_do_goes_far_before_all_have_waited_as_long() {
    for (iops, least, most) in [(33_000, 90, 120), (36_000, 160, 190)] {
        let found = run_policy(&near_and_far(iops), Policy::FinishTime);
        let (mean, far) = (found.latency.mean(), far(&found));
        assert!((least..=most).contains(&far), "{iops}: {far} of 1000 on the far path");
        // If each went where it is done first, all would wait for as long as the far path is away.
        assert!(mean * 2 < FAR.as_nanos() as u64, "{iops}: {mean} ns on average");
        let last = found.latency.per_mille(990);
        assert!(last < FAR.as_nanos() as u64 * 2, "{iops}: {last} ns at the 99th percentile");
    }
}

#[test]
fn what_the_near_path_can_do_stays_there() {
    for iops in [300, 3_000, 15_000, 24_000, 27_000] {
        let found = run_policy(&near_and_far(iops), Policy::FinishTime);
        assert_eq!(far(&found), 0, "{iops}: {} commands", found.paths[1].commands);
    }
}

#[test]
fn when_the_near_path_can_do_all_again_nothing_goes_far_for_long() {
    let fast = near_and_far(24_000);
    let narrow = path("near", 500 * MBIT, Duration::from_micros(50)).shape;
    let shapes = vec![
        change(0, 0, Alteration::Shape(narrow)),
        change(300, 0, Alteration::Shape(fast.paths[0].shape.clone())),
    ];
    let found = run_policy(&Scenario { changes: shapes, ..fast }, Policy::FinishTime);
    // Of 24,000 a second it did 15,000, for 300 ms.
    let far = found.paths[1].commands;
    assert!((2400..=3000).contains(&far), "{far} commands on the far path");
}

#[test]
fn a_device_whose_latencies_scatter_is_not_a_queue() {
    // The near path takes 9 us for each, and the device 110 us, now a few and now hundreds.
    let delay = Duration::from_micros;
    let near = path("near", 14_193 * MBIT, delay(27));
    let aside = path("aside", 1_535 * MBIT, delay(47));
    let far = path("far", 6_149 * MBIT, delay(750));
    let job = Job { sizes: PerOp::all(Sizes::fixed(16_384)), ..arrivals(108_000) };
    let mut scenario = scenario(vec![near, far, aside], vec![job]);
    scenario.target.read_ns = 110_000;
    scenario.target.distribution = Distribution::Exponential;
    let found = run_policy(&scenario, Policy::FinishTime);
    let far = self::far(&found);
    assert!(far <= 20, "{far} of 1000 on the far path");
}
