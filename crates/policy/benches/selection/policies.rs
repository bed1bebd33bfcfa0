//! Every policy at 2, 8 and 64 paths, one worker and two.

use crate::case::{BYTES, Case, busy};
use crate::markdown::Table;
use crate::rounds::{COMMANDS, ROUNDS, Summary, Times};
use crate::{bars, threads, variants};
use anabranch_policy::{Parameters, Policy};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One line of the table.
struct Line {
    name: String,
    policy: Policy,
    paths: usize,
    case: Case,
    pair: [Case; 2],
    select: Times,
    command: Times,
    explained: Times,
    two: Times,
}

impl Line {
    fn new(name: String, parameters: Parameters, paths: usize) -> Line {
        let alone = busy(&parameters, paths, 2, 1);
        let together = busy(&parameters, paths, 2, 2);
        Line {
            name,
            policy: parameters.policy,
            paths,
            case: Case::new(parameters, &alone, 0),
            pair: [0, 1].map(|worker| Case::new(parameters, &together, worker)),
            select: Times::default(),
            command: Times::default(),
            explained: Times::default(),
            two: Times::default(),
        }
    }

    fn round(&mut self) {
        let case = &mut self.case;
        self.select.round(|| case.selections(COMMANDS));
        self.command.round(|| case.commands(COMMANDS));
        self.explained.round(|| case.explained(COMMANDS));
        threads::round(&mut self.two, &mut self.pair, threads::ONE_AT_A_TIME);
    }
}

/// The least that a choice by load can cost: look at each path's flag and counter, raise the
/// least one, lower it.
struct Bare {
    paths: Vec<(AtomicBool, Box<AtomicU64>)>,
    times: Times,
}

impl Bare {
    fn new(paths: usize) -> Bare {
        let path = |_| (AtomicBool::new(true), Box::new(AtomicU64::new(u64::from(BYTES))));
        Bare { paths: (0..paths).map(path).collect(), times: Times::default() }
    }

    #[inline(never)]
    fn commands(paths: &[(AtomicBool, Box<AtomicU64>)], count: u32) {
        for _ in 0..count {
            let paths = black_box(paths);
            let mut best = (u64::MAX, 0);
            for (index, (usable, load)) in paths.iter().enumerate() {
                let load = load.load(Ordering::Relaxed);
                if usable.load(Ordering::Relaxed) && load < best.0 {
                    best = (load, index);
                }
            }
            let load = &paths[black_box(best.1)].1;
            load.fetch_add(u64::from(BYTES), Ordering::Relaxed);
            load.fetch_sub(u64::from(BYTES), Ordering::Relaxed);
        }
    }

    fn round(&mut self) {
        let paths = &self.paths;
        self.times.round(|| Bare::commands(paths, COMMANDS));
    }
}

/// Measures and prints the table.
pub(crate) fn run() {
    let mut lines: Vec<Line> = variants::policies()
        .into_iter()
        .flat_map(|(name, parameters)| {
            bars::PATHS.map(|paths| Line::new(name.clone(), parameters, paths))
        })
        .collect();
    let mut bare = bars::PATHS.map(Bare::new);
    for _ in 0..ROUNDS {
        lines.iter_mut().for_each(Line::round);
        bare.iter_mut().for_each(Bare::round);
    }
    let mut table = Table::new([
        "policy",
        "paths",
        "select",
        "bar",
        "command",
        "with explain",
        "bar",
        "to bare",
        "two workers",
    ]);
    let mut missed = Vec::new();
    for (bare, paths) in bare.iter().zip(bars::PATHS) {
        let bare = shown(bare.times.summary());
        let cells = ["(bare)", &paths.to_string(), "", "", &bare, "", "", "1", ""];
        table.line(cells.map(str::to_owned));
    }
    for line in &lines {
        let at = bars::PATHS.iter().position(|&paths| paths == line.paths);
        let bare = at.and_then(|at| bare[at].times.summary());
        print(line, bare, &mut table, &mut missed);
    }
    table.print(&format!(
        "Nanoseconds per command: median of {ROUNDS} rounds [least greatest], {BYTES} bytes read"
    ));
    for line in &missed {
        println!("above its bar: {line}");
    }
    if missed.is_empty() {
        println!("\nEvery policy that has a bar is below it.");
    }
}

fn print(line: &Line, bare: Option<Summary>, table: &mut Table, missed: &mut Vec<String>) {
    let bars = bars::of(line.policy, line.paths);
    let (select, command) = (line.select.summary(), line.command.summary());
    let (explained, two) = (line.explained.summary(), line.two.summary());
    for (what, measured, bar) in
        [("select", select, bars.select_ns), ("command with explain", explained, bars.command_ns)]
    {
        if let Some((measured, bar)) = measured.zip(bar).filter(|(is, bar)| is.median > *bar) {
            let (name, paths) = (&line.name, line.paths);
            missed.push(format!("{name}, {paths} paths, {what}: {measured} > {bar:.0}"));
        }
    }
    let bar = |ns: Option<f64>| ns.map_or_else(String::new, |ns| format!("<= {ns}"));
    let ratio = command.zip(bare).map(|(command, bare)| command.median / bare.median);
    table.line([
        line.name.clone(),
        line.paths.to_string(),
        shown(select),
        bar(bars.select_ns),
        shown(command),
        shown(explained),
        bar(bars.command_ns),
        ratio.map_or_else(String::new, |ratio| format!("{ratio:.1}")),
        shown(two),
    ]);
}

/// A summary, or that no round was valid.
pub(crate) fn shown(summary: Option<Summary>) -> String {
    summary.map_or_else(|| "no valid round".to_owned(), |summary| summary.to_string())
}
