//! The tables of statements in docs/HACKING.md and docs/PROMISES.md are honest: every statement is
//! there once, and each names tests that exist, or says why there is none yet.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn statements() -> BTreeSet<String> {
    let ids = |letter: char, numbers: Vec<u32>| {
        numbers.into_iter().map(move |number| format!("{letter}{number}"))
    };
    ids('B', (1..=15).collect())
        .chain(ids('M', (1..=22).collect()))
        .chain(ids('L', (1..=14).collect()))
        .chain(ids('T', (1..=5).collect()))
        .chain(ids('Q', (1..=4).collect()))
        .chain(ids('D', (1..=5).collect()))
        .chain(ids('C', (1..=73).collect()))
        .chain(ids('P', (1..=28).collect()))
        .chain(ids('F', (1..=47).collect()))
        .collect()
}

/// The names of all test functions below a directory.
fn test_names(dir: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).expect("the source tree is readable") {
        let path = entry.expect("the source tree is readable").path();
        if path.is_dir() {
            test_names(&path, names);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = fs::read_to_string(&path).expect("sources are UTF-8");
            let mut is_test = false;
            for line in text.lines().map(str::trim) {
                if line.starts_with("#[test]") {
                    is_test = true;
                } else if let Some(rest) = line.strip_prefix("fn ") {
                    if is_test {
                        names.insert(rest.split('(').next().unwrap_or(rest).to_owned());
                    }
                    is_test = false;
                }
            }
        }
    }
}

#[test]
fn every_statement_names_a_test_or_says_why_not() {
    let [hacking, promises] = ["docs/HACKING.md", "docs/PROMISES.md"]
        .map(|page| fs::read_to_string(root().join(page)).expect("the page is there"));
    let text = hacking + &promises;
    let mut names = BTreeSet::new();
    for dir in ["crates", "src", "tests"] {
        test_names(&root().join(dir), &mut names);
    }
    let all = statements();
    let mut left = all.clone();
    let mut bad = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let &[id, _, tests, not_yet] = cells.as_slice() else { continue };
        if !all.contains(id) {
            continue;
        }
        if !left.remove(id) {
            bad.push(format!("{id} stands there twice"));
        }
        if tests.is_empty() && not_yet.is_empty() {
            bad.push(format!("{id} has neither a test nor a reason"));
        }
        for test in tests.split('`').skip(1).step_by(2) {
            if !names.contains(test) && !root().join(test).is_file() {
                bad.push(format!("{id}: there is no test {test}"));
            }
        }
        if !tests.is_empty() && !tests.contains('`') {
            bad.push(format!("{id}: tests are named in backquotes"));
        }
    }
    bad.extend(left.iter().map(|id| format!("{id} is missing")));
    assert!(bad.is_empty(), "docs/HACKING.md, docs/PROMISES.md:\n  {}", bad.join("\n  "));
}
