//! `lab run --mode live`: one scenario after the other, its variants in turn.

use super::cells::Cells;
use super::plan::Planned;
use super::progress::Progress;
use crate::cli::args::lab::LabRun;
use crate::cli::aside;
use crate::failure::Failure;
use anabranch_lab::cell::Cell;
use anabranch_lab::live::{LiveError, LiveOptions, Session, clean_up, open_part, order};
use anabranch_lab::result::store::Terms;
use anabranch_lab::result::{CellResult, Circumstances};
use anabranch_rt::signal::Termination;
use std::thread::Builder;

/// So many cells of a scenario may fail one after the other before the rest of it is not tried.
const FAILURES: u32 = 3;

/// Runs what is not there yet. Returns how many cells failed; those of a scenario that does not
/// come about, or is given up, are among them, and the next scenario has its turn.
pub(super) fn run(all: &[Planned], cells: &Cells, options: &LabRun) -> Result<u64, Failure> {
    let length = |one: &Planned| {
        one.length_ms() * one.variants.len() as u64 * u64::from(one.scenario.run.runs)
    };
    if options.kernel_shaping {
        clean_up_on_signals()?;
    }
    // Before the first one begins: what does not fit together is refused at once.
    let terms = all.iter().map(|planned| terms(planned, cells, options));
    let terms = terms.collect::<Result<Vec<Terms>, Failure>>()?;
    let progress = Progress::new(all.iter().map(length).sum());
    let mut failed = 0;
    for (planned, terms) in all.iter().zip(&terms) {
        failed += scenario(planned, cells, terms, options.keep_depth, &progress)?;
    }
    Ok(failed)
}

/// Namespaces are outside of this process: they would be there after its end.
fn clean_up_on_signals() -> Result<(), Failure> {
    let failed = |error| Failure::failed(format!("cannot take over signals: {error}"));
    // No other thread has been started yet.
    let termination = Termination::install().map_err(failed)?;
    let wait = move || {
        // Should waiting fail, there is nothing better to do either.
        let _ = termination.wait();
        // First: the run may notice that its links go, and end by itself.
        aside("anabranch: ended by a signal; with --out the same command goes on from there");
        clean_up();
        std::process::exit(1);
    };
    Builder::new().name("lab-signals".to_owned()).spawn(wait).map(drop).map_err(failed)
}

/// As what is there was run; the scale is open when nothing is.
fn terms(planned: &Planned, cells: &Cells, options: &LabRun) -> Result<Terms, Failure> {
    let scale = match options.scale {
        None => cells.any(planned)?.map(|cell| cell.scale_permille),
        asked => asked,
    };
    let run = &planned.scenario.run;
    let terms = Terms {
        ramp_ns: run.ramp_ns,
        window_ns: run.window_ns,
        scale_permille: scale,
        open_permille: scale.map(|part| open_part(&planned.scenario, part, options.keep_depth)),
        kernel_shaping: options.kernel_shaping,
    };
    cells.agree(planned, &terms)?;
    Ok(terms)
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
    terms: &Terms,
    keep_depth: bool,
    progress: &Progress,
) -> Result<u64, Failure> {
    let name = &planned.scenario.name;
    let mut open = Vec::new();
    for run in 1..=u64::from(planned.scenario.run.runs) {
        for turn in order(planned.variants.len(), run) {
            let variant = planned.variants[turn];
            match cells.find(planned, variant, run, terms)? {
                Some(_) => {
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
        scale_permille: terms.scale_permille,
        keep_depth,
        kernel_shaping: terms.kernel_shaping,
    };
    let mut left = open.len() as u64;
    let (mut session, how) = match begin(planned, &live) {
        Ok(begun) => begun,
        Err(LiveError::Scenario(problem)) => return Err(planned.refuse(name, &problem)),
        Err(error @ LiveError::Option { .. }) => return Err(error.into()),
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
