//! What one I/O of 4 KiB costs in the two engines, in instructions.
//!
//! ```text
//! cargo bench -p anabranch-lab --bench engine                 counts, and the gate of test.sh
//! cargo bench -p anabranch-lab --bench engine -- refresh      its new snapshot
//! ```
//!
//! A whole host (the user included, which does next to nothing) and a target talk in virtual time;
//! this program runs itself under callgrind, once per engine, and counts what happens inside it.
//! Payload memory, batches and allocations are those of the simulation: read the counts against
//! each other, not as those of a live host. They judge: a count does not depend on what else the
//! machine does.

mod case;
mod counted;
mod gate;
mod keeper;

use std::process::ExitCode;

/// The word that makes this program run the cases and nothing else.
const RUN: &str = "run";

fn main() -> ExitCode {
    // Cargo adds `--bench` to whatever the caller gave.
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    match (words.next().as_deref(), words.next()) {
        (None, _) => gate::run(),
        (Some("refresh"), None) => gate::refresh(),
        (Some(RUN), None) => {
            case::CASES.iter().for_each(case::Case::run);
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: engine [refresh]");
            ExitCode::from(2)
        }
    }
}
