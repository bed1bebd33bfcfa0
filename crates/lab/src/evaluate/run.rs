//! Runs what is not known yet.

use super::{Baseline, Evaluation, Kind, Outcome, Row, baseline, kind};
use crate::cell::Cell;
use crate::light;
use crate::limit::{Bound, limit_of_window};
use crate::scenario::{Arrival, Part, Problem, Scenario, Variant, standard_variants};
use crate::spread::spread;
use anabranch_policy::{FinishTimeParameters, Policy};

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The policy that the page is about: it runs always, whatever the baseline has.
    pub candidate: String,
    /// The variants that are compared, [`ablations`] with them; empty is all standard ones. The
    /// candidate is always one.
    pub policies: Vec<String>,
    /// Runs of each cell, with the seeds 1, 2 …
    pub runs: u32,
    /// Threads.
    pub threads: usize,
}

/// The names of the variants that every scenario compares.
#[must_use]
pub fn variants() -> Vec<String> {
    let names = Policy::ALL.map(|policy| policy.name().to_owned());
    names.into_iter().chain(["service-time tuned".to_owned()]).collect()
}

/// `finish-time` without one of its parts: what is the part worth? To be asked for by name.
const ABLATIONS: [(&str, FinishTimeParameters); 3] = {
    let whole = FinishTimeParameters { tail: false, compete: false, probes: true };
    [
        ("finish-time/no-spill", FinishTimeParameters { tail: true, ..whole }),
        ("finish-time/no-probes", FinishTimeParameters { probes: false, ..whole }),
        ("finish-time/neither", FinishTimeParameters { tail: true, probes: false, ..whole }),
    ]
};

/// The names of what else can be compared: `finish-time` without a part of it.
#[must_use]
pub fn ablations() -> Vec<String> {
    ABLATIONS.map(|(name, _)| name.to_owned()).to_vec()
}

/// Runs every chosen policy in every scenario, except what the baseline has, and adds to the
/// baseline what it has run of others than the candidate.
///
/// # Errors
/// A policy that is unknown, a scenario that cannot be run.
pub fn evaluate(
    scenarios: &[Scenario],
    options: &Options,
    baseline: &mut Baseline,
) -> Result<Evaluation, Problem> {
    let policies = chosen(options)?;
    let compared: Vec<Vec<Variant>> =
        scenarios.iter().map(|scenario| of_names(scenario, &policies)).collect();
    let mut cells: Vec<(Cell<'_>, String)> = Vec::new();
    for (scenario, variants) in scenarios.iter().zip(&compared) {
        for variant in variants {
            for seed in 1..=u64::from(options.runs.max(1)) {
                let cell = Cell { scenario, variant, seed };
                cells.push((cell, baseline::key(cell)));
            }
        }
    }
    let outcomes = spread(cells.len(), options.threads, &|place| {
        let (cell, key) = &cells[place];
        match baseline.get(key).filter(|_| cell.variant.name != options.candidate) {
            Some(outcome) => Ok(outcome.clone()),
            None => light::run(*cell).map(|figures| Outcome::of(*cell, &figures)),
        }
    })?;
    let runs = options.runs.max(1) as usize;
    let mut medians = outcomes.chunks(runs).map(Outcome::median);
    let rows = scenarios.iter().zip(&compared).map(|(scenario, variants)| {
        let outcomes: Vec<Outcome> = medians.by_ref().take(variants.len()).collect();
        row(scenario, &variants[0], outcomes)
    });
    let rows = rows.collect();
    for ((cell, key), outcome) in cells.into_iter().zip(&outcomes) {
        if cell.variant.name != options.candidate {
            baseline.put(key, outcome.clone());
        }
    }
    let candidate = options.candidate.clone();
    Ok(Evaluation { candidate, policies, runs: options.runs.max(1), rows })
}

fn row(scenario: &Scenario, variant: &Variant, outcomes: Vec<Outcome>) -> Row {
    let cell = Cell { scenario, variant, seed: 1 };
    let limit = limit_of_window(cell);
    let closed = scenario.jobs.iter().all(|job| job.arrival == Arrival::Closed);
    let links = matches!(limit.bound, Bound::LinksIn | Bound::LinksOut);
    // Those that a window of the series follows.
    let measured = outcomes.first().map_or(&[][..], |outcome| &outcome.changes);
    let all = kind::kinds(scenario);
    let kind = |at_ms: u64| all.iter().find(|(at_ns, _)| at_ns / 1_000_000 == at_ms);
    let kinds = measured.iter().map(|one| kind(one.at_ms).map_or(Kind::Other, |(_, kind)| *kind));
    Row {
        scenario: scenario.name.clone(),
        title: scenario.title.clone(),
        limit_bytes_s: limit.bytes_per_second,
        bound: limit.bound.to_string(),
        full: closed && links && scenario.changes.is_empty(),
        steady: kind::is_steady(cell),
        kinds: kinds.collect(),
        outcomes,
    }
}

/// The names of the policies that are compared, the candidate among them.
fn chosen(options: &Options) -> Result<Vec<String>, Problem> {
    let mut known = variants();
    let mut asked = options.policies.clone();
    if asked.is_empty() {
        asked.clone_from(&known);
    }
    known.extend(ablations());
    if !asked.contains(&options.candidate) {
        asked.push(options.candidate.clone());
    }
    match asked.iter().find(|name| !known.contains(name)) {
        Some(name) => {
            let text = format!("there is no {name:?}; there are {}", known.join(", "));
            Err(Problem::of(Part::Whole, "policy", text))
        }
        None => Ok(asked),
    }
}

/// Standard variants of these names, with the length that the scenario has.
fn of_names(scenario: &Scenario, names: &[String]) -> Vec<Variant> {
    let mut all = standard_variants(&scenario.paths, &scenario.run);
    all.extend(ABLATIONS.map(|(name, finish_time)| {
        let mut variant = Variant::plain(Policy::FinishTime, scenario.paths.len());
        name.clone_into(&mut variant.name);
        variant.parameters.finish_time = finish_time;
        variant
    }));
    let place = |variant: &Variant| names.iter().position(|name| *name == variant.name);
    all.retain(|variant| place(variant).is_some());
    all.sort_by_key(place);
    all
}
