//! The page, in Markdown.

use super::agreement;
use super::grid;
use super::medians::{Runs, per_mille, percent};
use super::plan::{Plan, Section};
use super::published::{self, figure};
use crate::result::{CellResult, Mode};
use crate::scenario::{Published, Scenario};
use std::fmt::Write;

const MODES: [Mode; 3] = [Mode::Light, Mode::Sim, Mode::Live];

const HEAD: &str = "# Reproduction\n\n\
    *Made by `tests/reproduction.sh` from its results; do not edit.*\n\n\
    For each table of the mails: what was published, what the light simulation of it gives, and \
    what live runs on shaped loopback links give, these scaled to what the machine carries. Each \
    scenario in `scenarios/` says where its links and load are from, and what the mail does not \
    tell. *% limit* is throughput as a part of what links, target and load allow; *% best* as a \
    part of the best row. Published rows stand beside the variant of the same name.\n\n";

/// Makes the page of cells of all modes; `predicted` are the light ones of what ran live.
#[must_use]
pub fn page(
    plan: &Plan,
    scenarios: &[Scenario],
    cells: &[CellResult],
    predicted: &[CellResult],
) -> String {
    let mut text = HEAD.to_owned();
    text.push_str(
        "## Simulated against live\n\n\
         The light simulation of the very scenarios that ran live: with the workers, burners, \
         rates and open requests that fit the machine, by the same seeds, for the same time.\n\n",
    );
    // Grids are about processor time, which simulations do not have.
    let grids: Vec<&String> =
        plan.sections.iter().filter(|one| one.grid).flat_map(|one| &one.scenarios).collect();
    let live =
        cells.iter().filter(|cell| cell.mode == Mode::Live && !grids.contains(&&cell.scenario));
    let pairs: Vec<CellResult> = live.chain(predicted).cloned().collect();
    text.push_str(&agreement::table(&pairs, [Mode::Light, Mode::Live]));
    let _ = writeln!(text, "\n{}", plan.differences.trim());
    text.push_str("\n## Light against engine simulation\n\n");
    text.push_str(&agreement::table(cells, [Mode::Light, Mode::Sim]));
    for section in &plan.sections {
        let named: Vec<&Scenario> = section
            .scenarios
            .iter()
            .filter_map(|name| scenarios.iter().find(|scenario| scenario.name == *name))
            .collect();
        let _ = write!(text, "\n## {}\n\nPublished in: {}.\n\n", section.title, section.source);
        if section.grid {
            text.push_str(&grid::table(&named, cells, Mode::Live));
        } else {
            for scenario in named {
                text.push_str(&one(plan, scenario, cells));
            }
        }
        let _ = writeln!(text, "\n{}", section.remark.trim());
    }
    text
}

/// One scenario: every variant in every mode, and the published rows beside them.
fn one(plan: &Plan, scenario: &Scenario, cells: &[CellResult]) -> String {
    let by_mode: Vec<(Mode, Vec<Runs<'_>>)> = MODES
        .into_iter()
        .map(|mode| (mode, Runs::of(cells, &scenario.name, mode)))
        .filter(|(_, runs)| !runs.is_empty())
        .collect();
    let mut text = format!("### {}: {}\n\n", scenario.name, scenario.title);
    text.push_str(&circumstances(&by_mode));
    text.push_str("| variant | published MiB/s | % best |");
    for (mode, _) in &by_mode {
        let _ = write!(text, " {mode} % limit | % best | mean µs | p99 µs |");
    }
    text.push_str("\n|---|---|---|");
    text.push_str(&"---|---|---|---|".repeat(by_mode.len()));
    text.push('\n');
    let best = scenario.published.iter().filter_map(figure).max();
    for variant in &scenario.variants {
        let published = scenario.published.iter().find(|row| row.policy == variant.name);
        text.push_str(&line(&variant.name, published, best, &by_mode));
    }
    let unmatched = |row: &&Published| scenario.variants.iter().all(|v| v.name != row.policy);
    for row in scenario.published.iter().filter(unmatched) {
        text.push_str(&line(&row.policy, Some(row), best, &by_mode));
    }
    text.push('\n');
    for (mode, runs) in &by_mode {
        text.push_str(&verdict(plan, scenario, *mode, runs));
    }
    text
}

/// How often, how long, and how the rates were scaled.
fn circumstances(by_mode: &[(Mode, Vec<Runs<'_>>)]) -> String {
    let mut text = String::new();
    for (mode, runs) in by_mode {
        let Some(cell) = runs.first().and_then(Runs::first) else { continue };
        let bound = runs.iter().filter(|runs| runs.cpu_bound()).count();
        let _ = write!(
            text,
            "{mode}: {} runs of {} ms, limit {} MiB/s ({})",
            runs.iter().map(Runs::count).max().unwrap_or(0),
            cell.window_ns / 1_000_000,
            cell.limit.bytes_s >> 20,
            cell.limit.bound,
        );
        if cell.scale_permille != 1000 {
            let _ = write!(text, ", rates times {}/1000", cell.scale_permille);
        }
        for ceiling in &cell.ceilings {
            let _ = write!(
                text,
                "; {} alone {} MiB/s of {}",
                ceiling.path,
                ceiling.bytes_s >> 20,
                ceiling.asked_bytes_s >> 20
            );
        }
        if bound > 0 {
            let _ = write!(text, "; {bound} variants CPU-bound");
        }
        text.push_str(".\n\n");
    }
    text
}

fn line(
    name: &str,
    published: Option<&Published>,
    best: Option<u64>,
    by_mode: &[(Mode, Vec<Runs<'_>>)],
) -> String {
    let value = published.and_then(figure);
    let shown = published.map_or_else(
        || "-".to_owned(),
        |row| match (row.bytes_s, row.read_bytes_s, row.write_bytes_s, row.iops) {
            (Some(bytes), ..) => mib(bytes),
            (None, Some(read), Some(write), _) => format!("{} + {}", mib(read), mib(write)),
            (None, Some(one), None, _) | (None, None, Some(one), _) => mib(one),
            (None, None, None, Some(iops)) => format!("{iops} IOPS"),
            (None, None, None, None) => "-".to_owned(),
        },
    );
    let part = value.zip(best).and_then(|(value, best)| per_mille(value, best));
    let mut text = format!("| {name} | {shown} | {} |", percent(part));
    for (_, all) in by_mode {
        let best = all.iter().map(Runs::bytes_s).max().unwrap_or(0);
        match all.iter().find(|runs| runs.variant == name) {
            Some(runs) => {
                let _ = write!(
                    text,
                    " {} | {} | {} | {} |",
                    percent(runs.of_limit()),
                    percent(per_mille(runs.bytes_s(), best)),
                    runs.median(|cell| cell.total.latency.mean_ns) / 1000,
                    runs.median(|cell| cell.total.latency.p99_ns) / 1000,
                );
            }
            None => text.push_str(" - | - | - | - |"),
        }
    }
    text.push('\n');
    text
}

/// Mebibytes, to the nearest, as tables have them.
fn mib(bytes: u64) -> String {
    (bytes.saturating_add(1 << 19) >> 20).to_string()
}

/// Whether the order and the ratios of the published rows are ours, too.
fn verdict(plan: &Plan, scenario: &Scenario, mode: Mode, runs: &[Runs<'_>]) -> String {
    let pairs = published::pairs(&scenario.published, runs);
    if pairs.len() < 2 {
        return String::new();
    }
    let found = published::agreement(&pairs);
    let mut text = match found.ordered {
        0 => format!("{mode}: no two published rows differ by more than 3 %"),
        n => format!("{mode}: order of {} of {n} pairs as published", found.same),
    };
    if let Some((name, factor)) = found.worst {
        let within = if factor <= u64::from(plan.factor_percent) { "agree" } else { "differ" };
        let _ = write!(
            text,
            "; ratios to the best published row {within} (largest factor {}.{:02}, {name})",
            factor / 100,
            factor % 100
        );
    }
    text.push_str(".\n\n");
    text
}

impl Section {
    /// Names of scenarios that are not there.
    #[must_use]
    pub fn missing<'a>(&'a self, scenarios: &[Scenario]) -> Vec<&'a str> {
        let known = |name: &&String| scenarios.iter().all(|scenario| scenario.name != **name);
        self.scenarios.iter().filter(known).map(String::as_str).collect()
    }
}
