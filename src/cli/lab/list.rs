//! `lab list`.

use crate::cli::args::Global;
use crate::cli::aside;
use crate::columns::columns;
use crate::failure::Failure;
use anabranch_lab::scenario::{Found, file, find, library};
use anabranch_lab::shown::Shown;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where scenarios are looked for by name.
pub(super) const DIR: &str = "scenarios";

/// Those that were named.
fn named(places: &[String]) -> Result<Vec<Found>, Failure> {
    let mut all = Vec::new();
    for place in places {
        let path = Path::new(place);
        if path.is_dir() {
            all.extend(files(path).map_err(Failure::Usage)?.into_iter().map(Found::File));
        } else {
            let found = find(place, &[Path::new(DIR)]);
            all.push(found.map_err(|mistake| Failure::usage(mistake.to_string()))?);
        }
    }
    Ok(all)
}

/// Everything that has a name here.
fn known() -> Result<Vec<Found>, Failure> {
    let mut names: BTreeMap<String, Found> =
        library::names().map(|name| (name.to_owned(), Found::Library(name))).collect();
    if Path::new(DIR).is_dir() {
        let stem = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into());
        let found = files(Path::new(DIR)).map_err(Failure::Failed)?.into_iter();
        // Files go before the library, as in `lab run`.
        names.extend(found.filter_map(|path| Some((stem(&path)?, Found::File(path)))));
    }
    Ok(names.into_values().collect())
}

pub(super) fn run(global: &Global, places: &[String]) -> Result<(), Failure> {
    let all = if places.is_empty() { known()? } else { named(places)? };
    // A broken one does not hide the others.
    let (mut scenarios, mut mistakes) = (Vec::new(), Vec::new());
    for found in &all {
        let loaded = match found {
            Found::File(path) => file::read(path),
            Found::Library(name) => file::read_library(name),
        };
        match loaded {
            Ok(loaded) => scenarios.push((loaded.scenario, found)),
            Err(mistake) => mistakes.push(mistake.to_string()),
        }
    }
    let place = |found: &Found| match found {
        Found::File(path) => json!(path.to_string_lossy()),
        Found::Library(_) => json!(null),
    };
    crate::cli::print(
        global,
        || {
            let row = |s: &anabranch_lab::scenario::Scenario| {
                [&s.name, &s.title, &s.source].map(|it| Shown(it).to_string()).to_vec()
            };
            let rows: Vec<_> = scenarios.iter().map(|(scenario, _)| row(scenario)).collect();
            columns(&["Scenario", "Title", "Source"], &rows)
        },
        || {
            let one = |(scenario, found): &(anabranch_lab::scenario::Scenario, &Found)| {
                json!({
                    "name": scenario.name,
                    "title": scenario.title,
                    "source": scenario.source,
                    "file": place(found),
                })
            };
            scenarios.iter().map(one).collect::<Vec<_>>().into()
        },
    )?;
    if mistakes.is_empty() {
        return Ok(());
    }
    for mistake in &mistakes {
        aside(&format!("anabranch: {mistake}"));
    }
    let (wrong, all) = (mistakes.len(), all.len());
    Err(Failure::usage(format!("{wrong} of {all} scenarios cannot be used")))
}

/// The scenario files of a directory, in order.
fn files(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let unreadable = |error| format!("{}: {error}", dir.display());
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(unreadable)? {
        files.push(entry.map_err(unreadable)?.path());
    }
    files.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
    files.sort();
    Ok(files)
}
