//! What one command costs in this crate, in nanoseconds and in instructions.
//!
//! ```text
//! cargo bench -p anabranch-policy                                        everything
//! cargo bench -p anabranch-policy --bench selection -- policies          one of the tables
//! cargo bench -p anabranch-policy --bench selection -- flow
//! cargo bench -p anabranch-policy --bench selection -- queues
//! cargo bench -p anabranch-policy --bench selection -- instructions      the gate of test.sh
//! cargo bench -p anabranch-policy --bench selection -- refresh           its new snapshot
//! ```
//!
//! Tables are printed as Markdown, ready for `docs/PERFORMANCE.md`. Times are shown and never
//! judged; the instruction counts are compared with `instructions.txt` beside this file.

mod bars;
mod callgrind;
mod case;
mod explain;
mod flow;
mod gate;
mod markdown;
mod policies;
mod queues;
mod rounds;
mod row;
mod snapshot;
mod threads;
mod variants;

use std::process::ExitCode;

fn main() -> ExitCode {
    // Cargo adds `--bench` to whatever the caller gave.
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    match (words.next().as_deref(), words.next()) {
        (None, _) => {
            policies::run();
            flow::run();
            queues::run();
            gate::run(gate::Missing::Passes)
        }
        (Some("policies"), None) => {
            policies::run();
            ExitCode::SUCCESS
        }
        (Some("flow"), None) => {
            flow::run();
            ExitCode::SUCCESS
        }
        (Some("queues"), None) => {
            queues::run();
            ExitCode::SUCCESS
        }
        (Some("instructions"), None) => gate::run(gate::Missing::NotRun),
        (Some("refresh"), None) => gate::refresh(),
        (Some(callgrind::COUNTED), None) => {
            callgrind::counted();
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: selection [policies | flow | queues | instructions | refresh]");
            ExitCode::from(2)
        }
    }
}
