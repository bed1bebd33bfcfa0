//! Instruction counts against their snapshot.

use crate::RUN;
use crate::case::{CASES, COUNTED, REQUESTS};
use crate::counted::{CountedHost, CountedTarget};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// A count may differ by this much, in percent of the snapshot's, either way.
const TOLERANCE_PERCENT: u64 = 15;

/// Instructions per I/O of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Count {
    name: String,
    host: u64,
    target: u64,
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/engine/instructions.txt")
}

/// Counts, prints, compares. 77 means "not run", as in the test scripts.
pub(crate) fn run() -> ExitCode {
    if !there_is_valgrind() {
        println!("instruction counts: NOT RUN: there is no valgrind");
        return ExitCode::from(77);
    }
    match compare() {
        Ok(table) => {
            println!("{table}\nwithin {TOLERANCE_PERCENT} % of the snapshot");
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the snapshot anew.
pub(crate) fn refresh() -> ExitCode {
    let written = count().and_then(|counts| {
        std::fs::write(path(), text(&counts)).map_err(|e| format!("{}: {e}", path().display()))
    });
    match written {
        Ok(()) => {
            println!("wrote {}", path().display());
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn there_is_valgrind() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok()
}

fn compare() -> Result<String, String> {
    let snapshot =
        std::fs::read_to_string(path()).map_err(|e| format!("{}: {e}", path().display()))?;
    let (then, now) = (parse(&snapshot)?, count()?);
    let table = text(&now);
    let mut differences = String::new();
    if then.len() != now.len() {
        differences.push_str("the snapshot has other cases\n");
    }
    for (then, now) in then.iter().zip(&now) {
        for (engine, a, b) in [("host", then.host, now.host), ("target", then.target, now.target)] {
            if then.name != now.name || a.abs_diff(b) > a * TOLERANCE_PERCENT / 100 {
                let name = &now.name;
                let _ = writeln!(differences, "{name}, {engine}: {b} instructions, were {a}");
            }
        }
    }
    if differences.is_empty() {
        return Ok(table);
    }
    Err(format!(
        "{table}\n{differences}If this is meant, refresh the snapshot and say why in the \
         commit:\n  cargo bench -p anabranch-lab --bench engine -- refresh"
    ))
}

fn text(counts: &[Count]) -> String {
    let mut text = String::from(
        "# Instructions per I/O of 4 KiB, 32 in flight, counted by callgrind in virtual time.\n\
         # Refresh deliberately, and say why:\n\
         #   cargo bench -p anabranch-lab --bench engine -- refresh\n\
         # case,policy,paths       host  target\n",
    );
    for Count { name, host, target } in counts {
        let _ = writeln!(text, "{name:24} {host:5} {target:7}");
    }
    text
}

fn parse(text: &str) -> Result<Vec<Count>, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, host, target] = words[..] else { return Err(format!("{line:?}")) };
            let number = |word: &str| word.parse().map_err(|e| format!("{line:?}: {e}"));
            Ok(Count { name: name.to_owned(), host: number(host)?, target: number(target)? })
        })
        .collect()
}

fn count() -> Result<Vec<Count>, String> {
    let dir = std::env::temp_dir().join(format!("anabranch-callgrind-{}", std::process::id()));
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let host = engine(&dir, &CountedHost::ENTRANCES);
    let target = engine(&dir, &CountedTarget::ENTRANCES);
    // What is left behind in a directory of temporary files does no harm.
    let _ = std::fs::remove_dir_all(&dir);
    let counts = CASES.iter().zip(host?.into_iter().zip(target?));
    Ok(counts
        .map(|(case, (host, target))| Count { name: case.name.to_owned(), host, target })
        .collect())
}

/// Instructions per I/O behind `entrances`, of every case.
fn engine(dir: &Path, entrances: &[&str]) -> Result<Vec<u64>, String> {
    let program = std::env::current_exe().map_err(|e| format!("where am I: {e}"))?;
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--quiet"]);
    // One string instruction that fills a page would count as 4096.
    valgrind.env("GLIBC_TUNABLES", "glibc.cpu.x86_rep_stosb_threshold=1048576");
    valgrind.arg(format!("--callgrind-out-file={}", dir.join("part").display()));
    valgrind.args([format!("--zero-before={COUNTED}"), format!("--dump-after={COUNTED}")]);
    valgrind.args(entrances.iter().map(|name| format!("--toggle-collect={name}")));
    let output = valgrind.arg(program).arg(RUN).output();
    let output = output.map_err(|e| format!("valgrind does not start: {e}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("valgrind: {}: {why}", output.status));
    }
    (1..=CASES.len()).map(|part| total(&dir.join(format!("part.{part}")))).collect()
}

fn total(part: &Path) -> Result<u64, String> {
    let text = std::fs::read_to_string(part).map_err(|e| format!("{}: {e}", part.display()))?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals:"));
    let total: Option<u64> = total.and_then(|total| total.trim().parse().ok());
    let total = total.filter(|&total| total > 0);
    total.map(|total| total / REQUESTS).ok_or_else(|| format!("{}: no total", part.display()))
}
