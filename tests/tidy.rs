//! Keeps the habits of the source tree true: what crates may know, how long a file may be, which
//! words stand for unfinished work, and that documents point at things that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Who may depend on whom. Arrows point down only, and nobody else's crate reaches `policy`.
const CRATE_GRAPH: &[(&str, &[&str])] = &[
    ("policy", &[]),
    ("proto", &[]),
    ("host", &["policy", "proto"]),
    ("target", &["proto"]),
    ("rt", &["proto"]),
    ("export", &["host", "rt", "proto"]),
    ("lab", &["policy", "proto", "host", "target", "rt", "export"]),
    ("anabranch", &["policy", "proto", "host", "target", "rt", "export", "lab"]),
];

/// Crates without I/O, clock, thread or unsafe code; the compiler helps through `no_std`.
const PURE: &[&str] = &["policy", "proto", "host", "target"];

/// Crates that may hold unsafe code, each block with its reason.
const MAY_BE_UNSAFE: &[&str] = &["crates/rt/", "tests/"];

const FILE_LINES: usize = 800;
const LINE_COLUMNS: usize = 100;

struct Source {
    /// Relative to the workspace's root, with `/`.
    path: String,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every text file of the tree that belongs to the project.
fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    let mut open = vec![root().to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).expect("the source tree is readable") {
            let entry = entry.expect("the source tree is readable");
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if name == "target" && dir == root() || name == ".git" {
                continue;
            }
            if entry.file_type().expect("an entry has a type").is_dir() {
                open.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                let path = path.strip_prefix(root()).expect("below the root");
                found.push(Source { path: path.to_string_lossy().into_owned(), text });
            }
        }
    }
    assert!(found.len() > 20, "only {} files found: is this the source tree?", found.len());
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Test code, which may use what the crate itself may not.
    fn is_test(&self) -> bool {
        self.path.split('/').any(|part| matches!(part, "tests" | "tests.rs" | "benches"))
    }

    /// The lines with their numbers, comments cut off.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(i, line)| (i + 1, line.split("//").next().unwrap_or("")))
    }
}

/// Where `word` stands by itself, not as a part of a longer name.
fn has_word(line: &str, word: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(part_of_name) && !line[at + word.len()..].starts_with(part_of_name)
    })
}

fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

#[test]
fn crates_depend_downwards_only() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let allowed: BTreeMap<&str, &[&str]> = CRATE_GRAPH.iter().copied().collect();
    let short = |name: &str| name.strip_prefix("anabranch-").unwrap_or(name).to_owned();
    let mut bad = Vec::new();
    let mut seen = BTreeSet::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let name = short(package["name"].as_str().expect("a name"));
        let Some(may) = allowed.get(name.as_str()) else {
            bad.push(format!("{name} is not in the house's plan"));
            continue;
        };
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let on = dependency["name"].as_str().expect("a name");
            if on.starts_with("anabranch") && !may.contains(&short(on).as_str()) {
                bad.push(format!("{name} -> {}", short(on)));
            }
            if name == "policy" && dependency["kind"].is_null() {
                bad.push(format!("policy -> {on}: it knows nothing"));
            }
        }
        seen.insert(name);
    }
    for (name, _) in CRATE_GRAPH {
        if !seen.contains(*name) {
            bad.push(format!("{name} is missing"));
        }
    }
    assert_none("arrows that do not point down", &bad);
}

#[test]
fn pure_crates_say_so_at_their_root() {
    for name in PURE {
        let path = root().join("crates").join(name).join("src/lib.rs");
        let text = fs::read_to_string(&path).expect("a crate has a root");
        for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
            assert!(text.lines().any(|l| l == attribute), "{}: no {attribute}", path.display());
        }
    }
    let lab = fs::read_to_string(root().join("crates/lab/src/lib.rs")).expect("lab's root");
    assert!(lab.lines().any(|l| l == "#![forbid(unsafe_code)]"), "lab does not forbid unsafe");
}

#[test]
fn pure_crates_know_no_clock_socket_or_thread() {
    let words =
        ["std::net", "std::thread", "std::time", "std::fs", "Instant", "SystemTime", "libc"];
    let mut bad = Vec::new();
    for source in sources().iter().filter(|s| s.is_rust() && !s.is_test()) {
        if !PURE.iter().any(|name| source.path.starts_with(&format!("crates/{name}/src/"))) {
            continue;
        }
        for (number, line) in source.code() {
            for word in words.iter().filter(|word| has_word(line, word)) {
                bad.push(format!("{}:{number}: {word}", source.path));
            }
        }
    }
    assert_none("pure crates that know the outside", &bad);
}

#[test]
fn unsafe_code_stays_where_it_may_be() {
    let mut bad = Vec::new();
    for source in sources().iter().filter(|s| s.is_rust() && s.path != "tests/tidy.rs") {
        let may = MAY_BE_UNSAFE.iter().any(|place| source.path.starts_with(place));
        let lines: Vec<&str> = source.text.lines().collect();
        for (number, line) in source.code() {
            let opens = line.contains("unsafe {") || line.contains("unsafe impl");
            if !may && has_word(line, "unsafe") {
                bad.push(format!("{}:{number}: no unsafe code here", source.path));
            } else if opens {
                let above = &lines[number.saturating_sub(9)..number];
                if !above.iter().any(|l| l.contains("SAFETY:")) {
                    bad.push(format!("{}:{number}: no SAFETY comment above", source.path));
                }
            }
        }
    }
    assert_none("unsafe code", &bad);
}

#[test]
fn files_and_lines_are_short() {
    let mut bad = Vec::new();
    for source in sources().iter().filter(|s| s.is_rust()) {
        let lines = source.text.lines().count();
        if lines > FILE_LINES {
            bad.push(format!("{}: {lines} lines", source.path));
        }
        for (i, line) in source.text.lines().enumerate() {
            if line.chars().count() > LINE_COLUMNS {
                bad.push(format!("{}:{}: over {LINE_COLUMNS} columns", source.path, i + 1));
            }
        }
    }
    assert_none("too long", &bad);
}

#[test]
fn nothing_is_left_unfinished() {
    let markers = [
        "todo!",
        "unimplemented!",
        "dbg!",
        "FIXME",
        "TODO",
        "XXX",
        "allow(dead_code)",
        "allow(unused",
        "#[ignore",
    ];
    let mut bad = Vec::new();
    for source in sources().iter().filter(|s| s.path != "tests/tidy.rs") {
        let script = source.path.ends_with(".sh") || source.path.ends_with(".py");
        if !source.is_rust() && !script {
            continue;
        }
        for (i, line) in source.text.lines().enumerate() {
            // A template for mktemp is the one place where three X mean something else.
            for marker in markers.iter().filter(|m| line.contains(**m) && !line.contains("mktemp"))
            {
                bad.push(format!("{}:{}: {marker}", source.path, i + 1));
            }
        }
    }
    assert_none("markers of unfinished work", &bad);
}

#[test]
fn tests_wait_for_events_and_never_sleep() {
    let mut bad = Vec::new();
    for source in sources().iter().filter(|s| s.is_rust() && s.is_test()) {
        for (number, line) in source.code() {
            if line.contains("thread::sleep") && source.path != "tests/tidy.rs" {
                bad.push(format!("{}:{number}", source.path));
            }
        }
    }
    assert_none("sleeps in tests", &bad);
}

#[test]
fn nothing_names_the_machine_it_was_written_on() {
    let words = ["/work/", "/root/", "../shared", "DESIGN.md", "DESIGN §", "reference/", "wt/h"];
    let mut bad = Vec::new();
    for source in sources().iter().filter(|s| s.path != "tests/tidy.rs" && s.path != "Cargo.lock") {
        for (i, line) in source.text.lines().enumerate() {
            for word in words.iter().filter(|word| line.contains(**word)) {
                bad.push(format!("{}:{}: {word}", source.path, i + 1));
            }
        }
    }
    assert_none("places that no reader has", &bad);
}

#[test]
fn links_in_documents_lead_somewhere() {
    let mut bad = Vec::new();
    let mut count = 0;
    for source in sources().iter().filter(|s| s.path.ends_with(".md")) {
        let dir = root().join(&source.path).parent().map(PathBuf::from).unwrap_or_default();
        for (i, line) in source.text.lines().enumerate() {
            for (at, _) in line.match_indices("](") {
                let link = line[at + 2..].split(')').next().unwrap_or("");
                let file = link.split('#').next().unwrap_or("");
                if link.contains("://") || link.starts_with("mailto:") || file.is_empty() {
                    continue;
                }
                count += 1;
                if !dir.join(file).exists() {
                    bad.push(format!("{}:{}: {link}", source.path, i + 1));
                }
            }
        }
    }
    assert_none("links that lead nowhere", &bad);
    assert!(count > 0, "no document links to another: are they still read?");
}

#[test]
fn scripts_are_strict_and_parse() {
    let mut bad = Vec::new();
    let mut count = 0;
    for source in sources().iter().filter(|s| s.text.starts_with("#!/usr/bin/env bash")) {
        count += 1;
        let path = root().join(&source.path);
        let parsed = Command::new("bash").arg("-n").arg(&path).output().expect("bash runs");
        if !parsed.status.success() {
            bad.push(format!("{}: {}", source.path, String::from_utf8_lossy(&parsed.stderr)));
        }
        // `.ci/run` has one line; the scripts that go on after a failure count it themselves.
        let ways = ["set -euo pipefail", "set -uo pipefail", "/lib.sh\"", "exec "];
        if !ways.iter().any(|way| source.text.contains(way)) {
            bad.push(format!("{}: neither strict nor on a library that is", source.path));
        }
        // `./test.sh` and people start them by their names.
        let mode = fs::metadata(&path).expect("it is there").permissions().mode();
        if mode & 0o100 == 0 {
            bad.push(format!("{}: not executable", source.path));
        }
    }
    assert_none("scripts", &bad);
    assert!(count > 5, "only {count} scripts found");
}
