//! Scenarios in both simulations, and by how much they differ, in points of percent of the physical
//! limit. `cargo run --release -p anabranch-lab --example light_against_engine [WINDOW [NAME…]]`
//!
//! WINDOW is the length of the window in milliseconds (the scenario's own when 0), with a ramp of a
//! third of it. Without names every scenario of the library is run.

use anabranch_lab::cell::Cell;
use anabranch_lab::figures::Figures;
use anabranch_lab::limit::limit_of_window;
use anabranch_lab::scenario::{Scenario, file};
use anabranch_lab::{engine, light};
use std::path::{Path, PathBuf};
use std::time::Instant;

fn names(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let files = paths.filter(|path| path.extension().is_some_and(|ext| ext == "toml"));
    let mut names: Vec<String> =
        files.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
    names.sort();
    names
}

fn percent(figures: &Figures, cell: Cell<'_>) -> f64 {
    let limit = limit_of_window(cell);
    if limit.bytes_per_second > 0 {
        figures.bytes_per_second() as f64 * 100.0 / limit.bytes_per_second as f64
    } else {
        figures.iops() as f64 * 100.0 / limit.iops.max(1) as f64
    }
}

/// So many milliseconds of window; what happens later than that is left out.
fn shorten(scenario: &mut Scenario, window_ms: u64) {
    scenario.run.window_ns = window_ms * 1_000_000;
    scenario.run.ramp_ns = window_ms * 1_000_000 / 3;
    let window_ns = scenario.run.window_ns;
    scenario.changes.retain(|change| change.at_ns < window_ns);
}

fn main() {
    let mut words = std::env::args().skip(1);
    let window_ms: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    let mut wanted: Vec<String> = words.collect();
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    if wanted.is_empty() {
        wanted = names(&root);
    }
    println!(
        "{:<26} {:<24} {:>7} {:>7} {:>7} {:>9} {:>9} {:>7}",
        "scenario", "variant", "light", "engine", "differ", "I/Os", "I/Os/s", "errors"
    );
    for name in wanted {
        let mut scenario = match file::read(&root.join(format!("{name}.toml"))) {
            Ok(loaded) => loaded.scenario,
            Err(mistake) => return eprintln!("{mistake}"),
        };
        if window_ms > 0 {
            shorten(&mut scenario, window_ms);
        }
        for variant in &scenario.variants {
            let cell = Cell { scenario: &scenario, variant, seed: 1 };
            let began = Instant::now();
            let (light, engine) = match (light::run(cell), engine::run(cell)) {
                (Ok(light), Ok(engine)) => (light, engine),
                (Err(problem), _) | (_, Err(problem)) => {
                    println!("{name:<26} {:<24} {problem}", variant.name);
                    continue;
                }
            };
            let took = began.elapsed().as_secs_f64();
            let (in_light, in_engine) = (percent(&light, cell), percent(&engine, cell));
            let ios = engine.books.requests_ended;
            println!(
                "{name:<26} {:<24} {in_light:>7.2} {in_engine:>7.2} {:>7.2} {ios:>9} {:>9.0} {:>7}",
                variant.name,
                in_engine - in_light,
                ios as f64 / took,
                engine.errors
            );
        }
    }
}
