//! Which scenarios, and how long they run.

use crate::scenario::{Mistake, Run, Scenario, file, find, library as files, random as drawn};
use std::ops::RangeInclusive;
use std::path::Path;

/// How long scenarios of the library and of files run. Random ones have the length that they need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// As they are, without the long forms of cells that are there twice.
    Own,
    /// Those without changes with a ramp of at most 300 ms and a window of at most 1 s.
    Short,
}

/// The ramp of a short form.
const SHORT_RAMP_NS: u64 = 300_000_000;
/// The window of a short form.
const SHORT_WINDOW_NS: u64 = 1_000_000_000;
/// What ends so is a cell of the library that is there a second time, minutes long.
const LONG_FORM: &str = "-full";

/// The library, without scenarios of a single path: there is nothing to choose.
///
/// # Errors
/// The first mistake in it.
pub fn library(length: Length) -> Result<Vec<Scenario>, Mistake> {
    let names = files::names().filter(|name| !name.ends_with(LONG_FORM));
    let all = names.map(|name| Ok(cut(file::read_library(name)?.scenario, length)));
    all.filter(|read| read.as_ref().is_ok_and(|one| one.paths.len() > 1) || read.is_err()).collect()
}

/// Scenarios by name, of the library or of files.
///
/// # Errors
/// There is none of a name, or a mistake in it.
pub fn named(names: &[String], length: Length) -> Result<Vec<Scenario>, Mistake> {
    let read = |name: &String| {
        let found = find(name, &[Path::new("scenarios")])?;
        Ok(cut(found.read()?.scenario, length))
    };
    names.iter().map(read).collect()
}

/// One per seed.
///
/// # Errors
/// None that a seed is known to lead to.
pub fn random(seeds: RangeInclusive<u64>) -> Result<Vec<Scenario>, Mistake> {
    seeds.map(|seed| Ok(drawn::scenario(seed)?.scenario)).collect()
}

fn cut(mut scenario: Scenario, length: Length) -> Scenario {
    if length == Length::Short && scenario.changes.is_empty() {
        let Run { ramp_ns, window_ns, runs } = scenario.run;
        let (ramp_ns, window_ns) = (ramp_ns.min(SHORT_RAMP_NS), window_ns.min(SHORT_WINDOW_NS));
        scenario.set_run(Run { ramp_ns, window_ns, runs });
    }
    scenario
}
