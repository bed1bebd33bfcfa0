//! `lab run`.

use super::cells::Cells;
use super::plan::{Planned, plan};
use super::progress::Progress;
use super::{live, table};
use crate::cli::args::Global;
use crate::cli::args::lab::LabRun;
use crate::cli::aside;
use crate::failure::Failure;
use anabranch_lab::cell::Cell;
use anabranch_lab::figures::Figures;
use anabranch_lab::result::store::Terms;
use anabranch_lab::result::summary::{Summary, Table};
use anabranch_lab::result::{CellResult, Circumstances, Mode};
use anabranch_lab::scenario::Problem;
use anabranch_lab::spread::spread;
use anabranch_lab::{engine, light};
use serde_json::{Value, json};
use std::thread::available_parallelism;

/// Runs a cell in virtual time.
type Simulation = fn(Cell<'_>) -> Result<Figures, Problem>;

pub(super) fn run(global: &Global, options: &LabRun) -> Result<(), Failure> {
    let mode = Mode::from(options.mode);
    let live_only = options.scale.is_some() || options.keep_depth || options.kernel_shaping;
    if mode != Mode::Live && live_only {
        let text = "--scale, --keep-depth and --kernel-shaping are of live runs; add --mode live";
        return Err(Failure::usage(text));
    }
    let all = plan(options)?;
    let cells = Cells::open(options.out.as_deref(), mode, &all)?;
    let failed = match mode {
        Mode::Light => simulate(&all, &cells, mode, light::run).map(|()| 0)?,
        Mode::Sim => simulate(&all, &cells, mode, engine::run).map(|()| 0)?,
        Mode::Live => live::run(&all, &cells, options)?,
    };
    if let (Some(dir), (ran, kept @ 1..)) = (&options.out, cells.counts()) {
        let dir = dir.display();
        aside(&format!("{dir}: {kept} cells were there already, {ran} were run"));
    }
    let summary = cells.finish()?;
    let chosen = chosen(summary, &all, mode);
    let text = || {
        let texts: Vec<String> = chosen.tables.iter().map(|one| text(one, &all)).collect();
        texts.join("\n")
    };
    crate::cli::print(global, text, || to_json(&chosen))?;
    let rows = chosen.tables.iter().flat_map(|table| &table.rows);
    let wrong = rows.fold(0u64, |sum, row| sum.saturating_add(row.errors));
    match (failed, wrong) {
        (0, 0) => Ok(()),
        (0, n) => Err(Failure::failed(format!(
            "{n} requests failed or brought wrong blocks; the notes of their cells have the first"
        ))),
        (n, _) => {
            Err(Failure::failed(format!("{n} cells failed; the same command tries them again")))
        }
    }
}

/// The tables of what was asked for: a directory may hold more.
fn chosen(mut summary: Summary, all: &[Planned], mode: Mode) -> Summary {
    let place = |table: &Table| all.iter().position(|one| one.scenario.name == table.scenario);
    summary.tables.retain(|table| table.mode == mode && place(table).is_some());
    // In the order in which they were asked for.
    summary.tables.sort_by_key(place);
    summary
}

fn text(table: &Table, all: &[Planned]) -> String {
    match all.iter().find(|one| one.scenario.name == table.scenario) {
        Some(planned) => table::text(table, &planned.scenario),
        None => String::new(),
    }
}

fn to_json(summary: &Summary) -> Value {
    // Plain data: this does not fail.
    serde_json::to_value(summary).unwrap_or_else(|error| json!({ "error": error.to_string() }))
}

/// What simulated cells have in common.
fn terms(planned: &Planned) -> Terms {
    let run = &planned.scenario.run;
    Terms {
        ramp_ns: run.ramp_ns,
        window_ns: run.window_ns,
        scale_permille: Some(1000),
        open_permille: None,
        kernel_shaping: false,
    }
}

/// All cells of all scenarios over all cores, run 1 of everything first.
fn simulate(
    all: &[Planned],
    cells: &Cells,
    mode: Mode,
    simulation: Simulation,
) -> Result<(), Failure> {
    let most = all.iter().map(|one| one.scenario.run.runs).max().unwrap_or(0);
    let mut open = Vec::new();
    for run in 1..=u64::from(most) {
        for planned in all.iter().filter(|one| run <= u64::from(one.scenario.run.runs)) {
            open.extend(planned.variants.iter().map(|variant| (planned, *variant, run)));
        }
    }
    for planned in all {
        cells.agree(planned, &terms(planned))?;
    }
    let progress = Progress::new(open.iter().map(|(planned, ..)| planned.length_ms()).sum());
    let threads = available_parallelism().map_or(1, std::num::NonZero::get);
    spread(open.len(), threads, &|place| {
        let (planned, variant, run) = open[place];
        if cells.find(planned, variant, run, &terms(planned))?.is_some() {
            cells.keep();
        } else {
            let cell = planned.cell(variant, run);
            progress.show(format!("{}, {}", cell.scenario.name, cell.variant.name));
            let figures = simulation(cell).map_err(|problem| {
                let whose = format!("{}, {}", cell.scenario.name, cell.variant.name);
                planned.refuse(&whose, &problem)
            })?;
            let how =
                Circumstances { notes: planned.notes.clone(), ..Circumstances::simulated(mode) };
            cells.put(&CellResult::new(cell, &figures, &how))?;
        }
        progress.add(planned.length_ms());
        Ok(())
    })
    .map(drop)
}
