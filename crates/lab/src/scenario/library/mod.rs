//! The library of experiments, which is part of the program: it works where no file of the
//! repository is.

mod files;

/// The names of all scenarios, in order.
pub fn names() -> impl Iterator<Item = &'static str> {
    files::SCENARIOS.iter().map(|(name, _)| *name)
}

/// The text of a scenario.
#[must_use]
pub fn text(name: &str) -> Option<&'static str> {
    look_up(files::SCENARIOS, name)
}

/// The names of all job files, without their ending, in order: `jobs/mixed-read`.
pub fn job_files() -> impl Iterator<Item = &'static str> {
    files::JOB_FILES.iter().map(|(name, _)| *name)
}

/// The text of a job file, by the name that scenarios call it: `jobs/mixed-read.fio`.
#[must_use]
pub fn job_file(name: &str) -> Option<&'static str> {
    look_up(files::JOB_FILES, name.strip_suffix(".fio")?)
}

fn look_up(all: &'static [(&str, &str)], name: &str) -> Option<&'static str> {
    let index = all.binary_search_by_key(&name, |(name, _)| name).ok()?;
    Some(all[index].1)
}
