//! A grid of jobs × depth: a line per cell, the variants side by side.

use super::medians::Runs;
use crate::result::{CellResult, Mode};
use crate::scenario::Scenario;
use std::fmt::Write;

/// The variants that a grid compares.
pub(super) const PAIR: [&str; 2] = ["multi-queue", "single-queue"];

fn us(ns: u64) -> String {
    format!("{}.{}", ns / 1000, ns % 1000 / 100)
}

/// CPU time of the hosts per request, in nanoseconds.
fn cpu_per_request(cell: &CellResult) -> u64 {
    let time = cell.cpu.map_or(0, |cpu| cpu.user_ns.saturating_add(cpu.system_ns));
    time.checked_div(cell.total.requests).unwrap_or(0)
}

pub(super) fn table(scenarios: &[&Scenario], cells: &[CellResult], mode: Mode) -> String {
    let mut text = String::from(
        "| jobs × depth | published IOPS | | IOPS | user + system µs per I/O | latency min / \
         mean / max µs | stdev |\n|---|---|---|---|---|---|---|\n",
    );
    let mut worse = Vec::new();
    for scenario in scenarios {
        let all = Runs::of(cells, &scenario.name, mode);
        let shape: Vec<String> =
            scenario.jobs.iter().map(|job| format!("{} × {}", job.clones, job.depth)).collect();
        for name in PAIR {
            let Some(runs) = all.iter().find(|runs| runs.variant == name) else { continue };
            let published = scenario.published.iter().find(|row| row.policy == name);
            let published = published.and_then(|row| row.iops);
            let latency = |of: fn(&CellResult) -> u64| us(runs.median(of));
            let _ = writeln!(
                text,
                "| {} | {} | {name} | {} | {} | {} / {} / {} | {} |",
                shape.join(" + "),
                published.map_or_else(|| "-".to_owned(), |iops| iops.to_string()),
                runs.iops(),
                us(runs.median(cpu_per_request)),
                latency(|cell| cell.total.latency.min_ns),
                latency(|cell| cell.total.latency.mean_ns),
                latency(|cell| cell.total.latency.max_ns),
                latency(|cell| cell.total.latency.stdev_ns),
            );
        }
        if let [Some(multi), Some(single)] =
            PAIR.map(|name| all.iter().find(|runs| runs.variant == name))
        {
            let iops = multi.against(single, |cell| cell.total.iops);
            let cpu = multi.against(single, cpu_per_request);
            worse.push((shape.join(" + "), iops, cpu));
        }
    }
    text.push_str("\nMulti-queue over the single queue, paired by run:\n\n");
    text.push_str("| jobs × depth | IOPS | CPU per I/O |\n|---|---|---|\n");
    for (shape, iops, cpu) in worse {
        let _ = writeln!(text, "| {shape} | {} | {} |", ratio(&iops), ratio(&cpu));
    }
    text
}

/// A median of ratios with its interval, or its range when there are too few runs.
pub(super) fn ratio(paired: &crate::result::stats::Paired) -> String {
    let two = |ppm: u64| {
        let hundredths = (ppm + 5000) / 10_000;
        format!("{}.{:02}", hundredths / 100, hundredths % 100)
    };
    let (low, high) = match paired.interval {
        Some(interval) => (interval.low_ppm, interval.high_ppm),
        None => (paired.min_ppm, paired.max_ppm),
    };
    format!("{} [{} {}]", two(paired.median_ppm), two(low), two(high))
}
