//! Instruction counts against their snapshot. This one does judge: a count does not depend on what
//! else the machine does.

use crate::callgrind::{self, NoCount};
use crate::markdown::Table;
use crate::snapshot::{Snapshot, TOLERANCE_PERCENT};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// What a machine without valgrind means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Nothing: it was one of several things to do.
    Passes,
    /// The exit status that test scripts have for "not run".
    NotRun,
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/selection/instructions.txt")
}

/// Counts, prints, compares.
pub(crate) fn run(missing: Missing) -> ExitCode {
    let counts = match callgrind::count() {
        Ok(counts) => counts,
        Err(NoCount::NotHere(why)) => {
            println!("\ninstruction counts: NOT RUN: {why}");
            return if missing == Missing::Passes { ExitCode::SUCCESS } else { ExitCode::from(77) };
        }
        Err(NoCount::Failed(why)) => return fail(&why),
    };
    let mut table = Table::new(["policy", "paths", "select", "command"]);
    for count in &counts {
        let numbers = [count.paths as u64, count.select, count.command].map(|n| n.to_string());
        let [paths, select, command] = numbers;
        table.line([count.name.clone(), paths, select, command]);
    }
    table.print("Instructions per command");
    let snapshot = std::fs::read_to_string(path()).map_err(|e| e.to_string());
    let snapshot = match snapshot.and_then(|text| Snapshot::parse(&text)) {
        Ok(snapshot) => snapshot,
        Err(why) => return fail(&format!("{}: {why}", path().display())),
    };
    let differences = snapshot.differences(&counts);
    if differences.is_empty() {
        println!("\nwithin {TOLERANCE_PERCENT} % of the snapshot");
        return ExitCode::SUCCESS;
    }
    let now = compiler();
    println!();
    for difference in &differences {
        println!("{difference}");
    }
    if now != snapshot.compiler {
        println!("the snapshot is of {}, this is {now}: that may be all", snapshot.compiler);
    }
    fail(
        "If this is meant, refresh the snapshot and say why in the commit:\n  \
         cargo bench -p anabranch-policy --bench selection -- refresh",
    )
}

/// Writes the snapshot anew.
pub(crate) fn refresh() -> ExitCode {
    let counts = match callgrind::count() {
        Ok(counts) => counts,
        Err(NoCount::NotHere(why) | NoCount::Failed(why)) => return fail(&why),
    };
    let text = Snapshot { compiler: compiler(), counts }.text();
    match std::fs::write(path(), text) {
        Ok(()) => {
            println!("wrote {}", path().display());
            ExitCode::SUCCESS
        }
        Err(why) => fail(&format!("{}: {why}", path().display())),
    }
}

fn fail(why: &str) -> ExitCode {
    println!("{why}");
    ExitCode::FAILURE
}

fn compiler() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output();
    let version = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let version = version.unwrap_or_else(|_| "an unknown compiler".to_owned());
    format!("{version}, {}", std::env::consts::ARCH)
}
