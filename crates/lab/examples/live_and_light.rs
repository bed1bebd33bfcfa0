//! A scenario live and in the light simulation, side by side, both on the scaled links.
//!
//! `cargo run --release -p anabranch-lab --example live_and_light -- FILE [PERMILLE|auto] [RUNS]
//! [WINDOW_MS] [VARIANT…]`

use anabranch_lab::cell::Cell;
use anabranch_lab::light;
use anabranch_lab::limit::limit_of_window;
use anabranch_lab::live::{LiveOptions, Session, order};
use anabranch_lab::scenario::{Scenario, Variant, file};
use std::error::Error;
use std::path::Path;

/// Hundredths of a percent of the limit.
fn share(bytes_per_second: u64, limit: u64) -> f64 {
    bytes_per_second as f64 * 100.0 / limit.max(1) as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("name a scenario file")?;
    let mut scenario = file::read(Path::new(&path))?.scenario;
    let scale_permille = args.next().and_then(|text| text.parse().ok());
    let runs: u64 = args.next().map_or(Ok(1), |text| text.parse())?;
    if let Some(text) = args.next() {
        scenario.run.window_ns = text.parse::<u64>()? * 1_000_000;
        scenario.run.ramp_ns = scenario.run.ramp_ns.min(scenario.run.window_ns / 2);
        let window_ns = scenario.run.window_ns;
        scenario.changes.retain(|change| change.at_ns < window_ns);
    }
    let wanted: Vec<String> = args.collect();
    // An environment variable, so that the arguments stay few.
    let kernel_shaping = std::env::var_os("KERNEL_SHAPING").is_some();
    let options = LiveOptions { scale_permille, keep_depth: false, kernel_shaping };
    let mut session = Session::new(&scenario, &options)?;
    println!("scale {} permille", session.scale());
    for ceiling in session.ceilings()? {
        println!(
            "{}: {:.2} of {:.2} MiB/s, {} of {} us",
            ceiling.path,
            ceiling.bytes_s as f64 / 1_048_576.0,
            ceiling.asked_bytes_s as f64 / 1_048_576.0,
            ceiling.delay_ns / 1000,
            ceiling.asked_delay_ns / 1000
        );
    }
    session.notes().iter().for_each(|note| println!("note: {note}"));
    let variants: Vec<Variant> = scenario
        .variants
        .iter()
        .filter(|v| wanted.is_empty() || wanted.contains(&v.name))
        .cloned()
        .collect();
    compare(&mut session, &variants, runs)?;
    session.end()?;
    Ok(())
}

fn compare(session: &mut Session, variants: &[Variant], runs: u64) -> Result<(), Box<dyn Error>> {
    let scaled: Scenario = session.scenario().clone();
    let mut live = vec![Vec::new(); variants.len()];
    let mut idle = vec![u64::MAX; variants.len()];
    let mut last = vec![None; variants.len()];
    for run in 1..=runs {
        for index in order(variants.len(), run) {
            let variant = &variants[index];
            let cell = Cell { scenario: &scaled, variant, seed: run };
            let limit = limit_of_window(cell).bytes_per_second;
            let figures = session.run(variant, run)?;
            if figures.errors > 0 {
                println!("{}: {} errors", variant.name, figures.errors);
            }
            if let Err(text) = figures.books.check() {
                println!("{}: books: {text}", variant.name);
            }
            if std::env::var_os("SERIES").is_some() {
                println!("{} run {run}: {:?}", variant.name, figures.series.requests);
            }
            live[index].push(share(figures.bytes_per_second(), limit));
            idle[index] = idle[index].min(figures.cpu.map_or(0, |cpu| cpu.idle_ppm));
            last[index] = Some(figures);
        }
    }
    println!(
        "{:<28} {:>7} {:>7} {:>7} {:>9} {:>9} {:>6}  shares live/light",
        "variant", "live %", "light %", "diff", "mean us", "light us", "idle %"
    );
    for (index, variant) in variants.iter().enumerate() {
        let cell = Cell { scenario: &scaled, variant, seed: 1 };
        let limit = limit_of_window(cell).bytes_per_second;
        let light = light::run(cell)?;
        let Some(figures) = &last[index] else { continue };
        let (measured, simulated) =
            (median(&mut live[index]), share(light.bytes_per_second(), limit));
        let shares = |figures: &anabranch_lab::figures::Figures| -> Vec<u64> {
            let all: u64 = figures.paths.iter().map(|path| path.bytes).sum();
            figures.paths.iter().map(|path| path.bytes * 100 / all.max(1)).collect()
        };
        println!(
            "{:<28} {:>7.1} {:>7.1} {:>+7.1} {:>9} {:>9} {:>6}  {:?} {:?}",
            variant.name,
            measured,
            simulated,
            measured - simulated,
            figures.latency.mean() / 1000,
            light.latency.mean() / 1000,
            idle[index] / 10_000,
            shares(figures),
            shares(&light)
        );
    }
    Ok(())
}
