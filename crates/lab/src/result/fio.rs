//! A cell in the shape of fio's `--output-format=json+` (as fio 3.33 writes it), so that what reads
//! and plots that reads this too.
//!
//! `clat_ns` is our latency, from when a request was meant to start to its end, and `slat_ns` the
//! part of it until the host had taken the request (fio counts its `clat` from there; here that
//! cannot be told apart per operation). Bins bear the values of fio's own: 64 to each doubling,
//! each named by its middle, up to 17112760320 ns; fio's `fio_jsonplus_clat2csv` never ends on a
//! larger one. What a class of operations did not do has no `bins`, as in fio. Figures that only
//! fio can have (context switches, page faults) are left out rather than invented.

use super::{CellResult, Flow, JobResult, Latency};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The percentiles that fio lists, in millionths.
const PERCENTILES: [u64; 17] = [
    10_000, 50_000, 100_000, 200_000, 300_000, 400_000, 500_000, 600_000, 700_000, 800_000,
    900_000, 950_000, 990_000, 995_000, 999_000, 999_500, 999_900,
];

/// Bins of a doubling, as a power of two.
const BITS: u32 = 6;
/// The last doubling begins at this power of two.
const LAST_OCTAVE: u32 = 33;

/// The value of the bin in which fio would count this one.
#[must_use]
pub fn bin_of(value_ns: u64) -> u64 {
    let value = value_ns.min((1 << (LAST_OCTAVE + 1)) - 1);
    match value.checked_ilog2() {
        Some(octave) if octave > BITS => {
            let width = 1u64 << (octave - BITS);
            value / width * width + width / 2
        }
        // Each value by itself.
        _ => value,
    }
}

/// The text of the file.
#[must_use]
pub fn text(cell: &CellResult) -> String {
    let jobs: Vec<Value> = cell.jobs.iter().enumerate().map(|(i, one)| job(cell, i, one)).collect();
    let all = json!({
        "fio version": concat!("anabranch-", env!("CARGO_PKG_VERSION"), " (shape of fio-3.33)"),
        "global options": {
            "scenario": cell.scenario,
            "variant": cell.variant,
            "mode": cell.mode.name(),
            "run": cell.run.to_string(),
        },
        "jobs": jobs,
    });
    format!("{all}\n")
}

fn job(cell: &CellResult, index: usize, job: &JobResult) -> Value {
    // The host's processors serve all jobs: the first has the figures of all.
    let cpu = |part: u64| match index {
        0 => per_ten_thousand(part, cell.window_ns),
        _ => json!(0),
    };
    json!({
        "jobname": job.name,
        "groupid": 0,
        "error": 0,
        "eta": 0,
        "elapsed": (cell.ramp_ns.saturating_add(cell.window_ns)).div_ceil(1_000_000_000),
        "job options": { "name": job.name },
        "read": direction(cell, &job.read),
        "write": direction(cell, &job.write),
        "trim": direction(cell, &job.trim),
        "sync": { "total_ios": 0, "lat_ns": figures(&Latency::default(), 0) },
        "job_runtime": cell.window_ns / 1_000_000,
        "usr_cpu": cpu(cell.cpu.map_or(0, |cpu| cpu.user_ns)),
        "sys_cpu": cpu(cell.cpu.map_or(0, |cpu| cpu.system_ns)),
    })
}

/// In hundredths of the window, with two decimals.
fn per_ten_thousand(part: u64, whole: u64) -> Value {
    let parts = (u128::from(part) * 10_000).checked_div(u128::from(whole)).unwrap_or(0);
    json!(u32::try_from(parts).map_or(f64::MAX, f64::from) / 100.0)
}

fn direction(cell: &CellResult, flow: &Flow) -> Value {
    let runtime = if flow.requests == 0 { 0 } else { cell.window_ns / 1_000_000 };
    json!({
        "io_bytes": flow.bytes,
        "io_kbytes": flow.bytes / 1024,
        "bw_bytes": flow.bytes_s,
        "bw": flow.bytes_s / 1024,
        "iops": flow.iops,
        "runtime": runtime,
        "total_ios": flow.requests,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": slat(cell, flow),
        "clat_ns": distribution(&flow.latency, flow.requests),
        "lat_ns": figures(&flow.latency, flow.requests),
    })
}

/// Submission latencies are kept for all operations together: they are stated where all of them are
/// of this kind.
fn slat(cell: &CellResult, flow: &Flow) -> Value {
    if flow.requests > 0 && flow.requests == cell.total.requests {
        return figures(&cell.submission, flow.requests);
    }
    figures(&Latency::default(), 0)
}

fn figures(latency: &Latency, requests: u64) -> Value {
    json!({
        "min": latency.min_ns,
        "max": latency.max_ns,
        "mean": latency.mean_ns,
        "stddev": latency.stdev_ns,
        "N": requests,
    })
}

fn distribution(latency: &Latency, requests: u64) -> Value {
    let mut value = figures(latency, requests);
    let mut bins: BTreeMap<u64, u64> = BTreeMap::new();
    for (middle, count) in &latency.buckets {
        let sum = bins.entry(bin_of(*middle)).or_default();
        *sum = sum.saturating_add(*count);
    }
    if let (Some(object), false) = (value.as_object_mut(), bins.is_empty()) {
        object.insert("percentile".to_owned(), Value::Object(percentiles(&bins)));
        let bins = bins.into_iter().map(|(bin, count)| (bin.to_string(), json!(count)));
        object.insert("bins".to_owned(), Value::Object(bins.collect()));
    }
    value
}

fn percentiles(bins: &BTreeMap<u64, u64>) -> Map<String, Value> {
    let total: u128 = bins.values().map(|count| u128::from(*count)).sum();
    let of = |ppm: u64| {
        let rank = (total * u128::from(ppm)).div_ceil(1_000_000);
        let mut seen = 0;
        let found = bins.iter().find(|(_, count)| {
            seen += u128::from(**count);
            seen >= rank
        });
        let value = found.map_or(0, |(bin, _)| *bin);
        (format!("{}.{:06}", ppm / 10_000, ppm % 10_000 * 100), json!(value))
    };
    PERCENTILES.map(of).into_iter().collect()
}

#[cfg(test)]
mod tests;
