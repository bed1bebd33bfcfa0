//! The comparison that settled how `queue-depth` counts, rebuilt.
//!
//! Source: "block: introduce blk_queue_nr_active()" (Uday Shankar, 2023). One command at a time
//! over 64 queues; a selection took 46.1 µs when it added up the counters of all queues and 0.456
//! µs with one atomic per controller; starting a request took 0.20 µs, ending it 0.52 to 0.53 µs.

use crate::case::{Case, PHASE, busy};
use crate::markdown::Table;
use crate::policies::shown;
use crate::rounds::{BLOCKS, COMMANDS, ROUNDS, Times};
use crate::threads;
use anabranch_policy::{Parameters, Policy, Scope};
use std::time::Instant;

/// Queue pairs of a controller.
const QUEUES: [usize; 4] = [1, 8, 64, 128];

/// Paths of the head.
const PATHS: usize = 2;

struct Line {
    scope: Scope,
    queues: usize,
    case: Case,
    pair: [Case; 2],
    select: Times,
    start: Times,
    finish: Times,
    command: Times,
    two: Times,
}

impl Line {
    fn new(scope: Scope, queues: usize) -> Line {
        let parameters = Parameters { scope, ..Parameters::of(Policy::QueueDepth) };
        let alone = busy(&parameters, PATHS, queues, 1);
        let together = busy(&parameters, PATHS, queues, 2);
        Line {
            scope,
            queues,
            case: Case::new(parameters, &alone, 0),
            pair: [0, 1].map(|worker| Case::new(parameters, &together, worker)),
            select: Times::default(),
            start: Times::default(),
            finish: Times::default(),
            command: Times::default(),
            two: Times::default(),
        }
    }

    fn round(&mut self) {
        let case = &mut self.case;
        self.select.round(|| case.selections(COMMANDS));
        self.command.round(|| case.commands(COMMANDS));
        let (mut start, mut finish) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..BLOCKS {
            case.choose_phase();
            start = start.min(phase_ns(|| case.starts()));
            finish = finish.min(phase_ns(|| case.finishes()));
        }
        self.start.push(start);
        self.finish.push(finish);
        threads::round(&mut self.two, &mut self.pair, threads::ONE_AT_A_TIME);
    }
}

fn phase_ns(body: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    body();
    begin.elapsed().as_nanos() as f64 / PHASE as f64
}

/// Measures and prints both tables.
pub(crate) fn run() {
    let mut lines: Vec<Line> = Scope::ALL
        .into_iter()
        .flat_map(|scope| QUEUES.map(|queues| Line::new(scope, queues)))
        .collect();
    for _ in 0..ROUNDS {
        lines.iter_mut().for_each(Line::round);
    }
    let select = |scope, queues| median(&lines, scope, queues, |line| &line.select);
    let mut table = Table::new([
        "scope",
        "queue pairs",
        "select",
        "to controller",
        "start",
        "finish",
        "command",
        "two workers",
    ]);
    for line in &lines {
        let ratio = select(line.scope, line.queues)
            .zip(select(Scope::Controller, line.queues))
            .map(|(this, controller)| this / controller);
        table.line([
            line.scope.to_string(),
            line.queues.to_string(),
            shown(line.select.summary()),
            ratio.map_or_else(String::new, |ratio| format!("{ratio:.1}")),
            shown(line.start.summary()),
            shown(line.finish.summary()),
            shown(line.command.summary()),
            shown(line.two.summary()),
        ]);
    }
    table.print(&format!(
        "queue-depth by scope, {PATHS} paths, nanoseconds: median of {ROUNDS} rounds [least \
         greatest]"
    ));
    println!("\nper further queue pair a selection takes, nanoseconds:");
    for scope in Scope::ALL {
        let (few, many) = (QUEUES[0], QUEUES[QUEUES.len() - 1]);
        if let Some((few_ns, many_ns)) = select(scope, few).zip(select(scope, many)) {
            let hundredths = (100.0 * (many_ns - few_ns) / (many - few) as f64).round();
            // Plus zero: no minus before a zero.
            println!("  {:11} {:5.2}", scope.name(), hundredths / 100.0 + 0.0);
        }
    }
    published(&lines);
}

type Column = fn(&Line) -> &Times;

/// The median of one column of one line.
fn median(lines: &[Line], scope: Scope, queues: usize, times: Column) -> Option<f64> {
    let line = lines.iter().find(|line| line.scope == scope && line.queues == queues)?;
    times(line).summary().map(|summary| summary.median)
}

/// The mail's figures beside ours.
fn published(lines: &[Line]) {
    const MAIL_QUEUES: usize = 64;
    let mut table = Table::new([
        "64 queues, 1 submitter",
        "2023, sum",
        "2023, atomic",
        "ratio",
        "sum",
        "controller",
        "ratio",
    ]);
    let rows: [(&str, f64, f64, Column); 3] = [
        ("path selection", 46_146.8, 456.3, |line| &line.select),
        ("start of a request", 203.4, 207.6, |line| &line.start),
        ("end of a request", 528.3, 517.3, |line| &line.finish),
    ];
    for (what, sum, atomic, times) in rows {
        let [sum_ns, atomic_ns] =
            [Scope::Sum, Scope::Controller].map(|scope| median(lines, scope, MAIL_QUEUES, times));
        let ours = sum_ns.zip(atomic_ns);
        let [our_sum, our_atomic, our_ratio] = match ours {
            Some((sum, atomic)) => [sum, atomic, sum / atomic].map(|ns| format!("{ns:.1}")),
            None => [const { String::new() }; 3],
        };
        table.line([
            what.to_owned(),
            format!("{sum:.0}"),
            format!("{atomic:.0}"),
            format!("{:.1}", sum / atomic),
            our_sum,
            our_atomic,
            our_ratio,
        ]);
    }
    table.print("The mail's figures (a kernel function under ftrace) beside ours, nanoseconds");
}
