//! `bench`: load with fio's words on a device or through an NBD server, and the bare exchange of
//! the same bytes beside it.

pub mod report;

mod bare;
mod job_file;
mod nbd;
mod plan;
mod stand;

use crate::cli::args::{Global, bench::Bench};
use crate::daemon::load::report_json;
use crate::failure::Failure;
use plan::Plan;
use report::{BenchReport, Figures, Run};
use stand::Stand;
use std::io::Write;

/// Runs it.
///
/// # Errors
/// Options that do not go together, a device that is not there, an I/O that failed.
pub fn run(global: &Global, bench: &Bench) -> Result<(), Failure> {
    let bench = &job_file::applied(bench)?;
    let plan = Plan::new(bench)?;
    let stand = Stand::set_up(global, bench, &plan)?;
    let (mut runs, mut ended) = (Vec::new(), Ok(()));
    for number in 0..bench.runs {
        ended = run_once(&stand, &plan, number, &mut runs);
        if ended.is_err() {
            break;
        }
        if let Some(run) = runs.last().filter(|_| !global.json()) {
            // Whether anybody reads it does not matter.
            let line = run.line();
            let _ = writeln!(std::io::stderr(), "run {} of {}: {line}", number + 1, bench.runs);
        }
    }
    let report = BenchReport::new(stand.transport(), plan.words(stand.device()), runs);
    if let Err(failure) = ended.and_then(|()| stand.strike()) {
        if global.json() && !report.is_empty() {
            // The failure is what is told.
            let _ = crate::cli::print(global, String::new, || report.json());
        }
        return Err(failure);
    }
    crate::cli::print(global, || report.text(), || report.json())
}

/// One run, and the bare exchange beside it. A load that went wrong is among the runs, too.
fn run_once(stand: &Stand, plan: &Plan, number: u32, runs: &mut Vec<Run>) -> Result<(), Failure> {
    let load = stand.run(plan.job(stand.device(), number.into()), plan.runtime)?;
    let (figures, depth) = (Figures::of(&load), load["depth"].as_u64());
    runs.push(Run { load: figures.as_ref().ok().copied(), bare: None, detail: load });
    figures?;
    if let Some(depth @ 1..) = depth
        && depth < u64::from(plan.depth())
        && number == 0
    {
        let asked = plan.depth();
        let text = "anabranch: there are buffers for";
        let _ = writeln!(std::io::stderr(), "{text} {depth} of {asked} requests at once");
    }
    if let (Some(exchange), Some(run)) = (plan.exchange, runs.last_mut()) {
        run.bare = Some(bare::run(plan, exchange, stand.connections())?);
    }
    Ok(())
}

/// A report of the load as the control socket and the printers know it.
pub(crate) fn load_json(report: &anabranch_lab::load::LoadReport) -> serde_json::Value {
    report_json(report)
}
