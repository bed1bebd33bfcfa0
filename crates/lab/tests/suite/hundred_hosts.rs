//! A hundred hosts on four ports that they share: whether they chase each other's queues.

use anabranch_lab::figures::SERIES_NS;
use anabranch_lab::light::{Cell, Figures, limit_of_window, run};
use anabranch_lab::scenario::{Run, Scenario, Variant, file};

/// Shares are looked at in windows of 100 ms.
const WINDOWS: usize = (100_000_000 / SERIES_NS) as usize;

fn scenario() -> Scenario {
    let read = file::read_library("hundred-hosts").unwrap_or_else(|mistake| panic!("{mistake}"));
    let mut scenario = read.scenario;
    scenario.set_run(Run { ramp_ns: 300_000_000, window_ns: 700_000_000, runs: 1 });
    scenario
}

fn variant(scenario: &Scenario, policy: &str) -> Variant {
    let found = scenario.variants.iter().find(|variant| variant.name == policy);
    found.expect("a standard one").clone()
}

fn figures(scenario: &Scenario, variant: &Variant) -> (Figures, u64) {
    let cell = Cell { scenario, variant, seed: 1 };
    let figures = run(cell).unwrap_or_else(|problem| panic!("{problem}"));
    (figures, limit_of_window(cell).bytes_per_second)
}

/// How far the share of a path in any window is from its mean, in thousandths of that.
fn swing_per_mille(scenario: &Scenario, figures: &Figures) -> u64 {
    let first = (scenario.run.ramp_ns / SERIES_NS) as usize;
    let mut worst = 0;
    let paths = scenario.paths.len();
    let mut shares: Vec<Vec<u64>> = vec![Vec::new(); paths];
    for window in (first..figures.series.len()).collect::<Vec<_>>().chunks_exact(WINDOWS) {
        let mut bytes = vec![0_u64; paths];
        for &part in window {
            for (sum, of_path) in bytes.iter_mut().zip(figures.series.bytes_of(part)) {
                *sum += of_path;
            }
        }
        let all: u64 = bytes.iter().sum();
        shares.iter_mut().zip(bytes).for_each(|(list, own)| list.push(own * 100_000 / all.max(1)));
    }
    for list in shares {
        let mean = list.iter().sum::<u64>() / list.len() as u64;
        let far = list.iter().map(|share| share.abs_diff(mean)).max().unwrap_or(0);
        worst = worst.max((far * 1000).div_ceil(mean));
    }
    worst
}

#[test]
fn shares_are_steady_and_all_ports_are_full_and_tails_can_be_preferred() {
    let scenario = scenario();
    let ours = variant(&scenario, "finish-time");
    let mut tail = ours.clone();
    tail.parameters.finish_time.tail = true;
    let (depth, _) = figures(&scenario, &variant(&scenario, "queue-depth"));
    let other = depth.latency.per_mille(990);
    // Ports serve their hosts by turns. A host that also fills the slower ports gets a little more
    // of them, and all wait a little longer there; none does so when tails are preferred.
    for (variant, tenths) in [(ours, 11), (tail, 6)] {
        let (figures, limit) = figures(&scenario, &variant);
        let swing = swing_per_mille(&scenario, &figures);
        let (bytes, own) = (figures.bytes_per_second(), figures.latency.per_mille(990));
        println!("{bytes} of {limit} bytes/s, p99 {own} against {other} ns, shares within {swing}");
        assert!(bytes * 100 >= limit * 99, "{bytes} of {limit}");
        assert!(swing <= 20, "{swing} thousandths");
        assert!(own * 10 <= other * tenths, "{own} against {other}");
    }
}
