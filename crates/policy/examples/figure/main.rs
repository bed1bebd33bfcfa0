//! Prints the figures of the pages in `docs/policies/`, drawn from what the policies really do:
//! `cargo run -q -p anabranch-policy --example figure -- service-time`, without a name all of them.
//!
//! A figure is the same in each run. A test compares it with its page.

mod figures;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../../tests/suite/support/mod.rs"]
mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    let names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        for (name, figure) in figures::ALL {
            println!("== {name}\n\n{}", figure());
        }
        return ExitCode::SUCCESS;
    }
    for name in &names {
        let Some((_, figure)) = figures::ALL.iter().find(|(known, _)| known == name) else {
            let known: Vec<&str> = figures::ALL.iter().map(|(known, _)| *known).collect();
            eprintln!("no figure of {name:?}: there are {}", known.join(", "));
            return ExitCode::from(2);
        };
        print!("{}", figure());
    }
    ExitCode::SUCCESS
}
