//! Counts instructions: this program runs itself under callgrind.
//!
//! Plain callgrind instead of a harness crate: one package of the distribution, nothing to install
//! in the right version beside the crate, and the same cases as the timed tables.
//!
//! The counters are zeroed where [`selections`] and [`commands`] begin and dumped where they end,
//! so part k of the output is the count of call k.

use crate::case::{Case, busy};
use crate::snapshot::Count;
use crate::{bars, variants};
use anabranch_policy::Parameters;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;

/// The word that makes this program run the counted cases and nothing else.
pub(crate) const COUNTED: &str = "counted";

/// Commands per count; many, so that what comes once does not show, and a multiple of every number
/// of paths, so that rotations come round.
const COMMANDS: u32 = 1024;

/// Queue pairs of a controller: the number must not show, but where they are added up.
const QUEUES: usize = 8;

/// The counted functions, as callgrind knows them. Free functions: the names of others differ
/// between the compiler's ways to mangle them.
const FUNCTIONS: [&str; 2] =
    [concat!(module_path!(), "::selections"), concat!(module_path!(), "::commands")];

#[inline(never)]
fn selections(case: &mut Case) {
    case.selections(COMMANDS);
    // Something to do behind the call, or it becomes a jump and callgrind sees no end of it.
    black_box(case);
}

#[inline(never)]
fn commands(case: &mut Case) {
    case.commands(COMMANDS);
    // Something to do behind the call, or it becomes a jump and callgrind sees no end of it.
    black_box(case);
}

/// What is counted: one count of selections and one of commands for each.
fn cases() -> Vec<(String, Parameters, usize)> {
    let variants = variants::policies().into_iter().chain(variants::scopes());
    let paths = |(name, parameters): (String, Parameters)| {
        bars::PATHS.map(|paths| (name.clone(), parameters, paths))
    };
    variants.flat_map(paths).collect()
}

/// Runs the cases, in the order of [`cases`].
pub(crate) fn counted() {
    for (_, parameters, paths) in cases() {
        let commons = busy(&parameters, paths, QUEUES, 1);
        let mut case = Case::new(parameters, &commons, 0);
        selections(&mut case);
        commands(&mut case);
    }
}

/// Why there is no count.
pub(crate) enum NoCount {
    /// This machine cannot.
    NotHere(String),
    /// It should have worked.
    Failed(String),
}

/// Counts every case.
pub(crate) fn count() -> Result<Vec<Count>, NoCount> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return Err(NoCount::NotHere("there is no valgrind".to_owned()));
    }
    let failed = |what: String| NoCount::Failed(what);
    let dir = std::env::temp_dir().join(format!("anabranch-callgrind-{}", std::process::id()));
    std::fs::create_dir_all(&dir).map_err(|e| failed(format!("{}: {e}", dir.display())))?;
    let counts = run(&dir).and_then(|()| collect(&dir)).map_err(failed);
    // What is left behind in a directory of temporary files does no harm.
    let _ = std::fs::remove_dir_all(&dir);
    counts
}

fn run(dir: &Path) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|e| format!("where am I: {e}"))?;
    let mut valgrind = Command::new("valgrind");
    valgrind.arg("--tool=callgrind").arg("--quiet");
    valgrind.arg(format!("--callgrind-out-file={}", dir.join("part").display()));
    for function in FUNCTIONS {
        valgrind.arg(format!("--zero-before={function}"));
        valgrind.arg(format!("--dump-after={function}"));
    }
    let output = valgrind.arg(program).arg(COUNTED).output();
    let output = output.map_err(|e| format!("valgrind does not start: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("valgrind: {}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
}

fn collect(dir: &Path) -> Result<Vec<Count>, String> {
    let mut part = 0;
    let mut next = || {
        part += 1;
        total(&dir.join(format!("part.{part}"))).map(per_command)
    };
    let mut counts = Vec::new();
    for (name, _, paths) in cases() {
        let (select, command) = (next()?, next()?);
        counts.push(Count { name, paths, select, command });
    }
    Ok(counts)
}

fn total(part: &Path) -> Result<u64, String> {
    let text = std::fs::read_to_string(part).map_err(|e| format!("{}: {e}", part.display()))?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals:"));
    let total = total.and_then(|total| total.trim().parse().ok());
    total.filter(|&total| total > 0).ok_or_else(|| format!("{}: no total", part.display()))
}

fn per_command(total: u64) -> u64 {
    (total + u64::from(COMMANDS) / 2) / u64::from(COMMANDS)
}
