//! The whole library of experiments, each variant for a short time: the books balance (which
//! [`run_variant`] checks), and nobody gets past what is physically possible.

use super::rig::*;
use anabranch_lab::light::{Cell, limit_of_window};
use anabranch_lab::scenario::{Run, file};
use std::path::{Path, PathBuf};

fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let entries = std::fs::read_dir(root).expect("the library is readable");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    assert!(files.len() > 30, "only {} scenarios found", files.len());
    files
}

#[test]
fn every_experiment_runs_and_nobody_gets_past_its_limit() {
    for path in files() {
        let mut scenario = file::read(&path).unwrap_or_else(|mistake| panic!("{mistake}")).scenario;
        let (ramp_ns, window_ns) = (100 * MS, 100 * MS);
        scenario.run = Run { ramp_ns, window_ns, runs: 1 };
        scenario.changes.retain(|change| change.at_ns < window_ns);
        for variant in &scenario.variants {
            let cell = Cell { scenario: &scenario, variant, seed: 1 };
            let limit = limit_of_window(cell);
            let figures = run_variant(&scenario, variant, 1);
            let name = (&scenario.name, &variant.name);
            // What came to the window from the ramp ends in it, at most as much as is open; and in
            // so short a time draws differ from their means.
            let largest = scenario.jobs.iter().map(|job| job.sizes.read.largest());
            let open = figures.books.requests_open * u64::from(largest.max().unwrap_or(0));
            let most = limit.bytes_per_second / 100 * 115 + open * 10;
            let found = figures.bytes_per_second();
            assert!(found <= most, "{name:?}: {found} of {limit}");
        }
    }
}
