//! A grid of jobs × depth: a line per cell, the variants side by side.

use super::medians::Runs;
use crate::result::{CellResult, Mode};
use crate::scenario::{Published, Scenario};
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

/// What somebody else measured in a cell.
struct Theirs<'a> {
    row: &'a Published,
    /// Jobs: fio counts processor time in percent per job.
    clones: u32,
}

impl Theirs<'_> {
    /// CPU time per request, in nanoseconds.
    fn cpu_per_request(&self) -> Option<u64> {
        let ppm = self.row.cpu_user_ppm?.saturating_add(self.row.cpu_system_ppm?);
        ppm.saturating_mul(1000 * u64::from(self.clones)).checked_div(self.row.iops?)
    }

    fn cells(&self) -> String {
        let row = self.row;
        let text = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
        format!(
            "{} | {} | {} / {} / {} | {}",
            text(row.iops.map(|iops| iops.to_string())),
            text(self.cpu_per_request().map(|ns| us(ns + 50))),
            text(row.min_ns.map(exact_us)),
            text(row.mean_ns.map(exact_us)),
            text(row.max_ns.map(exact_us)),
            text(row.stdev_ns.map(exact_us)),
        )
    }

    /// This cell's IOPS and CPU time per request over another's, to the nearest hundredth.
    fn over(&self, other: &Theirs<'_>) -> [String; 2] {
        let ratio = |one: Option<u64>, other: Option<u64>| {
            let (one, other) = (u128::from(one?), u128::from(other?));
            let hundredths = (one * 100 + other / 2).checked_div(other)?;
            Some(format!("{}.{:02}", hundredths / 100, hundredths % 100))
        };
        let text = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
        [
            text(ratio(self.row.iops, other.row.iops)),
            text(ratio(self.cpu_per_request(), other.cpu_per_request())),
        ]
    }
}

/// As exactly as others say it.
fn exact_us(ns: u64) -> String {
    match ns % 1000 / 10 {
        0 => (ns / 1000).to_string(),
        hundredths => format!("{}.{hundredths:02}", ns / 1000),
    }
}

pub(super) fn table(scenarios: &[&Scenario], cells: &[CellResult], mode: Mode) -> String {
    let mut text = format!(
        "| jobs × depth | | published IOPS | user + system µs per I/O | latency min / mean / max \
         µs | stdev | {mode} IOPS | user + system µs per I/O | latency min / mean / max µs | stdev \
         |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut over = Vec::new();
    for scenario in scenarios {
        let all = Runs::of(cells, &scenario.name, mode);
        let shape: Vec<String> =
            scenario.jobs.iter().map(|job| format!("{} × {}", job.clones, job.depth)).collect();
        let shape = shape.join(" + ");
        let clones = scenario.jobs.iter().map(|job| job.clones).sum();
        let theirs = PAIR.map(|name| {
            let row = scenario.published.iter().find(|row| row.policy == name)?;
            Some(Theirs { row, clones })
        });
        for (name, theirs) in PAIR.iter().zip(&theirs) {
            let Some(runs) = all.iter().find(|runs| runs.variant == *name) else { continue };
            let latency = |of: fn(&CellResult) -> u64| us(runs.median(of));
            let _ = writeln!(
                text,
                "| {shape} | {name} | {} | {} | {} | {} / {} / {} | {} |",
                theirs.as_ref().map_or_else(|| "- | - | - | -".to_owned(), Theirs::cells),
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
            let [iops, cpu] = match &theirs {
                [Some(multi), Some(single)] => multi.over(single),
                _ => ["-", "-"].map(str::to_owned),
            };
            let ours = [
                ratio(&multi.against(single, |cell| cell.total.iops)),
                ratio(&multi.against(single, cpu_per_request)),
            ];
            over.push(format!("| {shape} | {iops} | {} | {cpu} | {} |\n", ours[0], ours[1]));
        }
    }
    text.push_str("\nMulti-queue over the other one; ours paired by run:\n\n");
    text.push_str(
        "| jobs × depth | published IOPS | IOPS | published CPU per I/O | CPU per I/O |\n",
    );
    text.push_str("|---|---|---|---|---|\n");
    over.iter().for_each(|line| text.push_str(line));
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
