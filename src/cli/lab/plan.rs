//! What is to be run: scenarios, how long, which variants.

use super::list::DIR;
use crate::cli::args::lab::LabRun;
use crate::failure::Failure;
use anabranch_lab::cell::Cell;
use anabranch_lab::result::Mode;
use anabranch_lab::scenario::file::Places;
use anabranch_lab::scenario::{Notice, Problem, Scenario, find};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The short form: a window of at most this length.
const SHORT_WINDOW: Duration = Duration::from_secs(1);
/// The same with changes, which take their time.
const SHORT_WINDOW_OF_CHANGES: Duration = Duration::from_secs(3);
/// The short form: a ramp of at most this length.
const SHORT_RAMP: Duration = Duration::from_millis(300);

/// A scenario that is to be run.
pub(super) struct Planned {
    /// With the run's length as it was asked for.
    pub(super) scenario: Scenario,
    /// Which of its variants.
    pub(super) variants: Vec<usize>,
    /// What its reader should know.
    pub(super) notes: Vec<String>,
    /// The file's text.
    pub(super) text: String,
    /// Where its parts stand there.
    places: Places,
    /// The job file that it names, by that name, and its text.
    pub(super) job: Option<(PathBuf, String)>,
}

impl Planned {
    /// The cell of a variant, by its place in the scenario.
    pub(super) fn cell(&self, variant: usize, seed: u64) -> Cell<'_> {
        Cell { scenario: &self.scenario, variant: &self.scenario.variants[variant], seed }
    }

    /// Why it cannot be run so: with its place in the file, or, where that is none of a part alone,
    /// with who it is about.
    pub(super) fn refuse(&self, whose: &str, problem: &Problem) -> Failure {
        Failure::usage(match self.places.mistake(problem) {
            Some(mistake) => mistake.to_string(),
            None => format!("{whose}: {problem}"),
        })
    }

    /// Ramp and window of a cell, in milliseconds.
    pub(super) fn length_ms(&self) -> u64 {
        let run = &self.scenario.run;
        run.ramp_ns.saturating_add(run.window_ns) / 1_000_000
    }
}

/// Reads the scenarios and applies the options.
///
/// # Errors
/// What cannot be read, or cannot be run in this way.
pub(super) fn plan(options: &LabRun) -> Result<Vec<Planned>, Failure> {
    let mut all: Vec<Planned> = Vec::new();
    for name in &options.scenarios {
        let planned = read(name, options)?;
        let name = &planned.scenario.name;
        if all.iter().any(|other| other.scenario.name == *name) {
            return Err(Failure::usage(format!(
                "two scenarios are called {name}: results are kept by name; rename one file"
            )));
        }
        all.push(planned);
    }
    choose(&mut all, &options.policies)?;
    for planned in &all {
        for variant in &planned.variants {
            let checked = planned.cell(*variant, 1).check();
            checked.map_err(|problem| planned.refuse(&planned.scenario.name, &problem))?;
        }
    }
    Ok(all)
}

fn read(name: &str, options: &LabRun) -> Result<Planned, Failure> {
    let found = find(name, &[Path::new(DIR)]);
    let found = found.map_err(|mistake| Failure::usage(mistake.to_string()))?;
    let loaded = found.read().map_err(|mistake| Failure::usage(mistake.to_string()))?;
    let mut texts = loaded.texts.into_iter();
    let text = texts.next().map(|file| file.text).unwrap_or_default();
    let job = texts.next().map(|file| (PathBuf::from(file.name), file.text));
    let mut scenario = loaded.scenario;
    let mut notes: Vec<String> = loaded.notices.iter().map(note).collect();
    notes.extend(set_length(&mut scenario, options));
    if Mode::from(options.mode) != Mode::Live
        && let Some(variant) = scenario.variants.first()
    {
        let cell = Cell { scenario: &scenario, variant, seed: 1 };
        notes.extend(cell.left_out().into_iter().map(str::to_owned));
    }
    let places = loaded.places;
    Ok(Planned { scenario, variants: Vec::new(), notes, text, places, job })
}

/// A notice as results keep it: with the file, without the directory that it is in here.
fn note(notice: &Notice) -> String {
    let file = Path::new(&notice.file).file_name().unwrap_or_default().to_string_lossy();
    format!("{file}:{}: {}: {}", notice.line, notice.key, notice.text)
}

/// Sets ramp, window and runs. Returns what its reader should know about changes.
fn set_length(scenario: &mut Scenario, options: &LabRun) -> Option<String> {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let own = scenario.run;
    let mut run = own;
    if options.short {
        let changes = !scenario.changes.is_empty();
        let window = if changes { SHORT_WINDOW_OF_CHANGES } else { SHORT_WINDOW };
        run.window_ns = run.window_ns.min(ns(window));
        run.ramp_ns = run.ramp_ns.min(ns(SHORT_RAMP));
        run.runs = 1;
    }
    run.ramp_ns = options.ramp.map_or(run.ramp_ns, ns);
    run.window_ns = options.window.map_or(run.window_ns, ns);
    run.runs = options.runs.unwrap_or(run.runs);
    scenario.set_run(run);
    if scenario.changes.is_empty() || run.window_ns == own.window_ns {
        return None;
    }
    let ms = |ns: u64| ns / 1_000_000;
    let (now, own) = (ms(run.window_ns), ms(own.window_ns));
    Some(format!(
        "the window is {now} ms instead of {own} ms, and changes come in proportion sooner or later"
    ))
}

/// Names as they were meant: the command line is split at commas, which a name may hold, too.
fn whole_names(all: &[Planned], mut parts: &[String]) -> Vec<String> {
    let known = |name: &String| {
        all.iter().flat_map(|one| &one.scenario.variants).any(|variant| variant.name == *name)
    };
    let mut names = Vec::new();
    while let Some(first) = parts.first() {
        let longest = (1..=parts.len()).rev().map(|n| (n, parts[..n].join(",").trim().to_owned()));
        let found = longest.into_iter().find(|(_, name)| known(name));
        let (taken, name) = found.unwrap_or_else(|| (1, first.clone()));
        names.push(name);
        parts = &parts[taken..];
    }
    names
}

/// Chooses variants by their names.
fn choose(all: &mut [Planned], names: &[String]) -> Result<(), Failure> {
    // A list, or the word.
    let names = if names == ["all"] { Vec::new() } else { whole_names(all, names) };
    let known = |name: &String, planned: &Planned| {
        planned.scenario.variants.iter().any(|variant| variant.name == *name)
    };
    for planned in all.iter() {
        let missing = names.iter().find(|name| all.iter().all(|one| !known(name, one)));
        let none = !names.is_empty() && names.iter().all(|name| !known(name, planned));
        let Some(name) = missing.or(names.first().filter(|_| none)) else { continue };
        let names = planned.scenario.variants.iter().map(|variant| format!("{:?}", variant.name));
        let names: Vec<_> = names.collect();
        let (scenario, names) = (&planned.scenario.name, names.join(", "));
        return Err(Failure::usage(format!("{scenario}: no variant {name:?}; there are {names}")));
    }
    for planned in all {
        let chosen = planned.scenario.variants.iter().enumerate();
        let chosen = chosen.filter(|(_, v)| names.is_empty() || names.contains(&v.name));
        planned.variants = chosen.map(|(place, _)| place).collect();
    }
    Ok(())
}
