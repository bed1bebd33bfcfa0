//! `lab run --mode live`: one scenario after the other, its variants in turn.

use super::cells::Cells;
use super::plan::Planned;
use super::progress::Progress;
use crate::cli::args::lab::LabRun;
use crate::failure::Failure;
use anabranch_lab::cell::Cell;
use anabranch_lab::live::{LiveError, LiveOptions, Session, order};
use anabranch_lab::result::{CellResult, Circumstances};

/// So many cells of a scenario may fail one after the other before the rest of it is not tried.
const FAILURES: u32 = 3;

/// Runs what is not there yet. Returns how many cells failed; those of a scenario that does not
/// come about, or is given up, are among them, and the next scenario has its turn.
pub(super) fn run(all: &[Planned], cells: &Cells, options: &LabRun) -> Result<u64, Failure> {
    let length = |one: &Planned| {
        one.length_ms() * one.variants.len() as u64 * u64::from(one.scenario.run.runs)
    };
    let progress = Progress::new(all.iter().map(length).sum());
    let mut failed = 0;
    for planned in all {
        failed += scenario(planned, cells, options, &progress)?;
    }
    Ok(failed)
}

impl From<LiveError> for Failure {
    fn from(error: LiveError) -> Failure {
        match error {
            LiveError::Scenario(_) | LiveError::Option { .. } => Failure::usage(error.to_string()),
            _ => Failure::failed(error.to_string()),
        }
    }
}

fn scenario(
    planned: &Planned,
    cells: &Cells,
    options: &LabRun,
    progress: &Progress,
) -> Result<u64, Failure> {
    let name = &planned.scenario.name;
    let mut scale = options.scale;
    let mut open = Vec::new();
    for run in 1..=u64::from(planned.scenario.run.runs) {
        for turn in order(planned.variants.len(), run) {
            let variant = planned.variants[turn];
            match cells.find(planned, variant, run, scale)? {
                Some(cell) => {
                    // The rest is run as what is there was.
                    scale = Some(cell.scale_permille);
                    cells.keep();
                    progress.add(planned.length_ms());
                }
                None => open.push((variant, run)),
            }
        }
    }
    if open.is_empty() {
        return Ok(0);
    }
    progress.show(format!("{name}: each path alone"));
    let live = LiveOptions {
        scale_permille: scale,
        keep_depth: options.keep_depth,
        kernel_shaping: options.kernel_shaping,
    };
    let mut left = open.len() as u64;
    let (mut session, how) = match begin(planned, &live) {
        Ok(begun) => begun,
        Err(error @ (LiveError::Scenario(_) | LiveError::Option { .. })) => {
            return Err(error.into());
        }
        // The other scenarios may go well.
        Err(error) => {
            progress.say(&format!("anabranch: {name}: {error}; its cells are left out"));
            progress.add(planned.length_ms() * left);
            return Ok(left);
        }
    };
    let (mut failed, mut in_turn) = (0, 0);
    for (variant, run) in open {
        let variant = session.scenario().variants[variant].clone();
        progress.show(format!("{name}, {}, run {run}", variant.name));
        match one(&mut session, &variant, run, &how) {
            Ok(cell) => {
                cells.put(&cell)?;
                in_turn = 0;
            }
            Err(error) => {
                progress.say(&format!("anabranch: {error}"));
                (failed, in_turn) = (failed + 1, in_turn + 1);
            }
        }
        progress.add(planned.length_ms());
        left -= 1;
        if in_turn == FAILURES && left > 0 {
            progress.say(&format!(
                "anabranch: {name}: {FAILURES} cells failed one after the other; the {left} that \
                 are left are not tried"
            ));
            progress.add(planned.length_ms() * left);
            // Dropping the session ends it.
            return Ok(failed + left);
        }
    }
    session.end()?;
    Ok(failed)
}

/// Target and hosts, the ceilings of the paths, and what each cell says about all that.
fn begin(planned: &Planned, live: &LiveOptions) -> Result<(Session, Circumstances), LiveError> {
    let mut session = Session::new(&planned.scenario, live)?;
    let ceilings = session.ceilings()?;
    let mut how = session.circumstances(&ceilings);
    how.notes.splice(0..0, planned.notes.iter().cloned());
    Ok((session, how))
}

fn one(
    session: &mut Session,
    variant: &anabranch_lab::scenario::Variant,
    run: u64,
    how: &Circumstances,
) -> Result<CellResult, LiveError> {
    let figures = session.run(variant, run)?;
    let cell = Cell { scenario: session.scenario(), variant, seed: run };
    Ok(CellResult::new(cell, &figures, how))
}
