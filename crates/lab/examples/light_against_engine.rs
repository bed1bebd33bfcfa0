//! Scenarios in both simulations, and by how much they differ, in points of percent of the physical
//! limit.
//! `cargo run --release -p anabranch-lab --example light_against_engine [WINDOW [SEEDS [NAME…]]]`
//!
//! WINDOW is the length of the window in milliseconds (the scenario's own when 0), with a ramp of a
//! third of it; SEEDS how many runs the means are of (1). Without names every scenario of the
//! library is run; a word with an equals sign (`=latency`) picks variants that begin so. Behind the
//! means stands the standard deviation of one run.

use anabranch_lab::cell::Cell;
use anabranch_lab::figures::Figures;
use anabranch_lab::limit::limit_of_window;
use anabranch_lab::scenario::{Problem, Scenario, Variant, file};
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

/// Mean and standard deviation.
fn spread(of: &[f64]) -> (f64, f64) {
    let mean = of.iter().sum::<f64>() / of.len() as f64;
    let squares: f64 = of.iter().map(|one| (one - mean) * (one - mean)).sum();
    (mean, (squares / (of.len().max(2) - 1) as f64).sqrt())
}

/// One row of the table.
fn compare(scenario: &Scenario, variant: &Variant, seeds: u64) -> Result<(), Problem> {
    let (mut in_light, mut in_engine) = (Vec::new(), Vec::new());
    let (mut ios, mut errors, mut took) = (0, 0, 0.0);
    for seed in 1..=seeds {
        let cell = Cell { scenario, variant, seed };
        in_light.push(percent(&light::run(cell)?, cell));
        let began = Instant::now();
        let engine = engine::run(cell)?;
        took += began.elapsed().as_secs_f64();
        in_engine.push(percent(&engine, cell));
        ios += engine.books.requests_ended;
        errors += engine.errors;
    }
    let ((light, light_dev), (engine, engine_dev)) = (spread(&in_light), spread(&in_engine));
    println!(
        "{:<25} {:<30} {light:>7.2} {light_dev:>5.2} {engine:>7.2} {engine_dev:>5.2} {:>7.2} \
         {ios:>8} {:>7.0} {errors:>3}",
        scenario.name,
        variant.name,
        engine - light,
        ios as f64 / took,
    );
    Ok(())
}

fn main() {
    let mut words = std::env::args().skip(1);
    let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
    let (window_ms, seeds) = (number().unwrap_or(0), number().unwrap_or(1).max(1));
    let (picks, mut wanted): (Vec<String>, Vec<String>) =
        words.partition(|word| word.starts_with('='));
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    if wanted.is_empty() {
        wanted = names(&root);
    }
    println!(
        "{:<25} {:<30} {:>7} {:>5} {:>7} {:>5} {:>7} {:>8} {:>7} {:>3}",
        "scenario", "variant", "light", "dev", "engine", "dev", "differ", "I/Os", "I/Os/s", "bad"
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
            let picked = |pick: &String| variant.name.starts_with(pick.trim_start_matches('='));
            if !picks.is_empty() && !picks.iter().any(picked) {
                continue;
            }
            if let Err(problem) = compare(&scenario, variant, seeds) {
                println!("{name:<25} {:<30} {problem}", variant.name);
            }
        }
    }
}
