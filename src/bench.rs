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
    let mut runs = Vec::new();
    for number in 0..bench.runs {
        let load = stand.run(plan.job(stand.device(), number.into()), plan.runtime)?;
        let figures = Figures::of(&load)?;
        if let Some(depth @ 1..) = load["depth"].as_u64()
            && depth < u64::from(plan.depth())
            && number == 0
        {
            let asked = plan.depth();
            let text = "anabranch: there are buffers for";
            let _ = writeln!(std::io::stderr(), "{text} {depth} of {asked} requests at once");
        }
        let bare = match &plan.exchange {
            Some(exchange) => Some(bare::run(&plan, *exchange, stand.connections())?),
            None => None,
        };
        runs.push(Run { load: figures, bare, detail: load });
        if !global.json() {
            let line = runs[runs.len() - 1].line();
            // Whether anybody reads it does not matter.
            let _ = writeln!(std::io::stderr(), "run {} of {}: {line}", number + 1, bench.runs);
        }
    }
    let report = BenchReport::new(stand.transport(), plan.words(stand.device()), runs);
    stand.strike()?;
    crate::cli::print(global, || report.text(), || report.json())
}

/// A report of the load as the control socket and the printers know it.
pub(crate) fn load_json(report: &anabranch_lab::load::LoadReport) -> serde_json::Value {
    report_json(report)
}
