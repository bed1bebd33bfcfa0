//! `lab compare`.

use super::cells;
use crate::cli::args::Global;
use crate::cli::args::lab::LabCompare;
use crate::cli::aside;
use crate::columns::columns;
use crate::failure::Failure;
use anabranch_lab::result::compare::{Compared, ComparedRow, Comparison, Judgement, compare};
use anabranch_lab::result::store::{Store, StoreError, read_json};
use anabranch_lab::result::summary::Summary;
use anabranch_lab::result::{Measure, times};
use anabranch_lab::shown::Shown;
use serde_json::json;
use std::path::Path;

pub(super) fn run(global: &Global, options: &LabCompare) -> Result<(), Failure> {
    let (a, b) = (summary(&options.a)?, summary(&options.b)?);
    let mut all = compare(&a, &b, options.tolerance);
    if let (Some(a), Some(b)) = (store(&options.a), store(&options.b)) {
        all.look_at_texts(&a, &b);
    }
    for what in &all.differing {
        aside(&format!("beware: {what}"));
    }
    for why in &all.left_out {
        aside(&format!("not compared: {why}"));
    }
    if all.rows.is_empty() {
        return Err(Failure::usage(format!(
            "{} and {} have nothing in common that can be compared: run the same scenarios, in the \
             same mode and for the same time",
            options.a.display(),
            options.b.display()
        )));
    }
    let json = || serde_json::to_value(&all).unwrap_or_else(|error| json!(error.to_string()));
    crate::cli::print(global, || text(&all), json)?;
    match all.worse {
        0 => Ok(()),
        n => {
            let rows = all.rows.len();
            let b = options.b.display();
            Err(Failure::failed(format!("{b} is worse in {n} of {rows} rows")))
        }
    }
}

/// Where the scenarios are that were run: in the directory, or beside the file.
fn store(path: &Path) -> Option<Store> {
    let dir = if path.is_file() { path.parent()? } else { path };
    Store::open(dir).ok()
}

/// Of a directory, made anew from its cells; or from a file.
fn summary(path: &Path) -> Result<Summary, Failure> {
    let missing = |error: StoreError| match error {
        // What is not there was not meant.
        StoreError::System { .. } => Failure::usage(error.to_string()),
        other => other.into(),
    };
    if path.is_file() {
        return read_json(path).map_err(|error| match error {
            StoreError::Damaged { path, text } => {
                Failure::usage(format!("{}: is no summary.json: {text}", path.display()))
            }
            other => missing(other),
        });
    }
    Ok(cells::read(&Store::open(path).map_err(missing)?)?.0)
}

fn text(all: &Comparison) -> String {
    let ratio = |one: &Compared| {
        let ratio = &one.ratio;
        if ratio.pairs == 0 {
            return ["-", "-", "no figure"].map(str::to_owned);
        }
        let sure = ratio.sure(|i| format!("{} to {}", times(i.low_ppm), times(i.high_ppm)));
        let few = || format!("{} run{}", ratio.pairs, if ratio.pairs == 1 { "" } else { "s" });
        let sure = sure.unwrap_or_else(few);
        [times(ratio.median_ppm), sure, one.is.name().to_owned()]
    };
    let rows: Vec<Vec<String>> = all
        .rows
        .iter()
        .map(|row| {
            let [scenario, variant] = [&row.scenario, &row.variant].map(|it| Shown(it).to_string());
            let mut cells = vec![scenario, row.mode.to_string(), variant];
            cells.extend(ratio(&row.throughput));
            cells.extend(ratio(&row.p99));
            cells.push(format!("{}/{}", row.errors[0], row.errors[1]));
            cells.push(row.is.name().to_owned());
            cells
        })
        .collect();
    let by_requests = |row: &ComparedRow| row.throughput_of == Measure::Requests;
    let rate = match (all.rows.iter().any(by_requests), all.rows.iter().all(by_requests)) {
        (false, _) => "MiB/s B/A",
        (_, true) => "IOPS B/A",
        // Trims have no payload.
        _ => "MiB/s or IOPS B/A",
    };
    let head = [
        "Scenario", "Mode", "Policy", rate, "interval", "", "p99 B/A", "interval", "", "errors",
        "B is",
    ];
    let mut text = columns(&head, &rows);
    let of = |what: Judgement| all.rows.iter().filter(|row| row.is == what).count();
    let (better, worse) = (of(Judgement::Better), of(Judgement::Worse));
    let (same, few) = (of(Judgement::NoDifference), of(Judgement::TooFewRuns));
    text.push_str(&format!("{worse} worse, {better} better, {same} no difference"));
    if few > 0 {
        text.push_str(&format!(
            ", {few} with fewer than 6 runs in common: no interval, only plain differences count"
        ));
    }
    let bound = of(Judgement::CpuBound);
    if bound > 0 {
        text.push_str(&format!(", {bound} CPU-bound in A or B: not judged"));
    }
    text.push('\n');
    text
}
