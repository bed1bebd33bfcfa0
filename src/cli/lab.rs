//! `lab list` and `lab run`.

use super::args::Global;
use super::args::lab::{Lab, LabVerb, Mode};
use crate::columns::columns;
use crate::failure::Failure;
use anabranch_lab::light::{self, Cell, Figures};
use anabranch_lab::scenario::file::{self, Loaded};
use anabranch_lab::scenario::{Mistake, Scenario, Variant};
use anabranch_policy::Histogram;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

pub(super) fn run(global: &Global, lab: &Lab) -> Result<(), Failure> {
    match &lab.verb {
        LabVerb::List { dir } => list(global, dir),
        LabVerb::Run { files, policies, runs, mode: Mode::Light } => {
            let mut results = Vec::new();
            for path in files {
                let mut loaded = read(path)?;
                loaded.scenario.run.runs = runs.unwrap_or(loaded.scenario.run.runs);
                results.push(simulate(global, &loaded, policies)?);
            }
            // Text was printed scenario by scenario.
            if global.json() {
                super::print(global, String::new, || results.into())
            } else {
                Ok(())
            }
        }
    }
}

fn read(path: &Path) -> Result<Loaded, Failure> {
    file::read(path).map_err(|mistake: Mistake| Failure::usage(mistake.to_string()))
}

fn list(global: &Global, dir: &Path) -> Result<(), Failure> {
    let unreadable = |error| Failure::failed(format!("{}: {error}", dir.display()));
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(unreadable)? {
        files.push(entry.map_err(unreadable)?.path());
    }
    files.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
    files.sort();
    let all = files.iter().map(|path| Ok(read(path)?.scenario)).collect::<Result<Vec<_>, _>>()?;
    let one = |s: &Scenario| json!({"name": s.name, "title": s.title, "source": s.source});
    let row = |s: &Scenario| vec![s.name.clone(), s.title.clone(), s.source.clone()];
    super::print(
        global,
        || columns(&["Scenario", "Title", "Source"], &all.iter().map(row).collect::<Vec<_>>()),
        || all.iter().map(one).collect::<Vec<_>>().into(),
    )
}

/// All runs of one variant together: medians of what is per second, latencies of all requests.
struct Row<'a> {
    variant: &'a Variant,
    bytes_s: u64,
    iops: u64,
    latency: Histogram,
}

fn simulate(global: &Global, loaded: &Loaded, names: &[String]) -> Result<Value, Failure> {
    let scenario = &loaded.scenario;
    // A list, or the word.
    let names = if names == ["all"] { &[] } else { names };
    if let Some(name) = names.iter().find(|n| scenario.variants.iter().all(|v| v.name != **n)) {
        let known: Vec<_> = scenario.variants.iter().map(|v| v.name.as_str()).collect();
        let known = known.join(", ");
        let text = format!("{}: no variant {name:?}; there are {known}", scenario.name);
        return Err(Failure::usage(text));
    }
    let chosen = |v: &&Variant| names.is_empty() || names.contains(&v.name);
    let variants: Vec<&Variant> = scenario.variants.iter().filter(chosen).collect();
    let runs = scenario.run.runs as usize;
    let cells: Vec<Cell<'_>> = variants
        .iter()
        .flat_map(|variant| (1..=u64::from(scenario.run.runs)).map(|seed| (*variant, seed)))
        .map(|(variant, seed)| Cell { scenario, variant, seed })
        .collect();
    let threads = available_parallelism().map_or(1, std::num::NonZero::get);
    let figures = light::run_all(&cells, threads, &|_, _| {})
        .map_err(|problem| Failure::usage(format!("{}: {problem}", scenario.name)))?;
    let rows: Vec<Row<'_>> = variants
        .iter()
        .zip(figures.chunks(runs.max(1)))
        .map(|(variant, runs)| sum(variant, runs))
        .collect();
    let limit = light::limit_of_window(cells[0]);
    if !global.json() {
        let text = || text(loaded, cells[0], &rows, limit.bytes_per_second);
        super::print(global, text, || Value::Null)?;
    }
    let one = |row: &Row<'_>| {
        json!({
            "name": row.variant.name,
            "bytes_per_second": row.bytes_s,
            "iops": row.iops,
            "mean_ns": row.latency.mean(),
            "stdev_ns": row.latency.stdev(),
            "p50_ns": row.latency.per_mille(500),
            "p99_ns": row.latency.per_mille(990),
            "p999_ns": row.latency.per_mille(999),
            "max_ns": row.latency.max(),
        })
    };
    Ok(json!({
        "scenario": scenario.name,
        "mode": "light",
        "runs": scenario.run.runs,
        "ramp_ns": scenario.run.ramp_ns,
        "window_ns": scenario.run.window_ns,
        "limit_bytes_per_second": limit.bytes_per_second,
        "variants": rows.iter().map(one).collect::<Vec<_>>(),
    }))
}

fn sum<'a>(variant: &'a Variant, runs: &[Figures]) -> Row<'a> {
    let mut latency = Histogram::new();
    runs.iter().for_each(|figures| latency.merge(&figures.latency));
    Row {
        variant,
        bytes_s: median(runs.iter().map(Figures::bytes_per_second).collect()),
        iops: median(runs.iter().map(Figures::iops).collect()),
        latency,
    }
}

/// The middle one; of an even number the lower of the two.
fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

fn text(loaded: &Loaded, cell: Cell<'_>, rows: &[Row<'_>], limit: u64) -> String {
    let scenario = &loaded.scenario;
    let run = scenario.run;
    let ms = |ns: u64| ns / 1_000_000;
    let mut text = format!(
        "{}: {}\nlight simulation, {} runs of {} ms after {} ms: medians of throughput, \
         latencies of all runs; limit {} MiB/s\n",
        scenario.name,
        scenario.title,
        run.runs,
        ms(run.window_ns),
        ms(run.ramp_ns),
        limit >> 20,
    );
    let notices = loaded.notices.iter().map(|n| format!("{}: {}", n.key, n.text));
    for notice in notices.chain(cell.left_out().into_iter().map(str::to_owned)) {
        text.push_str(&format!("note: {notice}\n"));
    }
    if let Some(latency) = rows.iter().find(|row| row.variant.name == "latency") {
        let window = latency.variant.parameters.latency.batch_timeout;
        text.push_str(&format!("note: latency has a window of {window}\n"));
    }
    let best = rows.iter().map(|row| row.bytes_s).max().unwrap_or(0);
    let percent = |part: u64, whole: u64| {
        u128::from(part)
            .saturating_mul(1000)
            .checked_div(u128::from(whole))
            .map_or_else(|| "-".to_owned(), |tenths| format!("{}.{}", tenths / 10, tenths % 10))
    };
    let us = |ns: u64| (ns / 1000).to_string();
    let cells = |row: &Row<'_>| {
        let l = &row.latency;
        vec![
            row.variant.name.clone(),
            (row.bytes_s >> 20).to_string(),
            percent(row.bytes_s, limit),
            percent(row.bytes_s, best),
            row.iops.to_string(),
            us(l.mean()),
            us(l.stdev()),
            us(l.per_mille(500)),
            us(l.per_mille(990)),
            us(l.per_mille(999)),
            us(l.max()),
        ]
    };
    let head = [
        "Policy", "MiB/s", "% limit", "% best", "IOPS", "mean us", "stdev", "p50", "p99", "p99.9",
        "max",
    ];
    text.push_str(&columns(&head, &rows.iter().map(cells).collect::<Vec<_>>()));
    if !scenario.published.is_empty() {
        text.push_str(&format!("published: {}\n{}", scenario.source, published(scenario)));
    }
    text
}

/// What others measured.
fn published(scenario: &Scenario) -> String {
    let some = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |v| v.to_string());
    // To the nearest, as the bytes were rounded from MiB.
    let mib = |value: Option<u64>| some(value.map(|bytes| (bytes + (1 << 19)) >> 20));
    let us = |value: Option<u64>| some(value.map(|ns| ns / 1000));
    let head = ["Policy", "MiB/s", "read", "write", "IOPS", "mean us", "stdev"];
    let rows: Vec<Vec<String>> = scenario
        .published
        .iter()
        .map(|row| {
            vec![
                row.policy.clone(),
                mib(row.bytes_s),
                mib(row.read_bytes_s),
                mib(row.write_bytes_s),
                some(row.iops),
                us(row.mean_ns),
                us(row.stdev_ns),
            ]
        })
        .collect();
    columns(&head, &rows)
}
