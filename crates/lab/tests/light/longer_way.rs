//! A path that becomes longer under a full load, where no command ever finds it idle.

use super::rig::*;
use anabranch_lab::scenario::{Alteration, Scenario, Target};
use anabranch_policy::Policy;
use std::time::Duration;

/// 64 reads of 16 KiB are always in flight on two links of 4 Gbit/s, the second `delay` long.
fn full(delay: Duration) -> Scenario {
    let near = Duration::from_micros(100);
    let paths = vec![path("a", 4000 * MBIT, near), path("b", 4000 * MBIT, delay)];
    let mut scenario = scenario(paths, vec![reads(16_384, 16, 4)]);
    scenario.target = Target { read_ns: 40_000, ..Target::default() };
    scenario.run.window_ns = 3000 * MS;
    scenario
}

#[test]
fn with_a_path_that_has_become_longer_as_much_is_done_as_with_one_that_always_was() {
    for far_ms in [2, 4, 8] {
        let far = Duration::from_millis(far_ms);
        let always = run_policy(&full(far), Policy::FinishTime);
        let mut becomes = full(Duration::from_micros(100));
        let shape = full(far).paths[1].shape.clone();
        becomes.changes.push(change(200, 1, Alteration::Shape(shape)));
        let figures = run_policy(&becomes, Policy::FinishTime);
        let last = |figures: &anabranch_lab::light::Figures| {
            let windows = figures.series.bytes.chunks(2).rev().take(30);
            windows.flatten().sum::<u64>()
        };
        let [always, since] = [last(&always), last(&figures)];
        println!("{far_ms} ms: {since} bytes of late, {always} if it always was so");
        assert!(since * 100 >= always * 90, "{far_ms} ms: {since} against {always}");
    }
}
