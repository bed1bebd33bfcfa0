//! Workers that do nothing but place commands, by the true clock.
//!
//! As a host does it: every turn begins with one look at the clock, ends what has come back and
//! places as much anew. The tables of single commands count 20 µs and more for each: there, what
//! workers tell each other by time they tell with every command. Here they tell it as often as they
//! would if they had nothing else to do.

use crate::case::{Case, busy};
use crate::markdown::Table;
use crate::policies::shown;
use crate::rounds::{ROUNDS, Times};
use crate::{bars, threads, variants};
use anabranch_policy::{Parameters, Policy};
use std::sync::LazyLock;
use std::time::Instant;

/// Commands that a worker has in flight.
const IN_FLIGHT: usize = 256;

/// Commands of one turn.
const TURN: usize = 16;

/// Commands in a block: still below a time slice of the scheduler, and many beside those that are
/// told at once after a pause.
const COMMANDS: u32 = 8192;

/// All workers have the same clock.
static CLOCK: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Past all that a case was warmed up with, ns.
const BEGIN_NS: u64 = 60_000_000_000;

/// One block.
const FLOW: threads::Body = (COMMANDS, flow);

/// What time it is, ns.
fn now_ns() -> u64 {
    BEGIN_NS + CLOCK.elapsed().as_nanos() as u64
}

/// Ends the oldest commands and places new ones, [`COMMANDS`] in all; as many stay in flight.
#[inline(never)]
fn flow(case: &mut Case) {
    case.fill(IN_FLIGHT, now_ns());
    for turn in 0..COMMANDS as usize / TURN {
        let from = turn * TURN % IN_FLIGHT;
        case.turn(from..from + TURN, now_ns());
    }
}

/// One line of the table.
struct Line {
    name: String,
    policy: Policy,
    paths: usize,
    alone: Case,
    pair: [Case; 2],
    one: Times,
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
            alone: Case::new(parameters, &alone, 0),
            pair: [0, 1].map(|worker| Case::new(parameters, &together, worker)),
            one: Times::default(),
            two: Times::default(),
        }
    }

    fn round(&mut self) {
        self.one.round_of(COMMANDS, || flow(&mut self.alone));
        threads::round(&mut self.two, &mut self.pair, FLOW);
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
    for _ in 0..ROUNDS {
        lines.iter_mut().for_each(Line::round);
    }
    let mut table = Table::new(["policy", "paths", "one worker", "two workers", "ratio", "bar"]);
    for line in &lines {
        let (one, two) = (line.one.summary(), line.two.summary());
        let ratio = one.zip(two).map(|(one, two)| two.median / one.median);
        let bar = bars::of(line.policy, line.paths).two_workers;
        table.line([
            line.name.clone(),
            line.paths.to_string(),
            shown(one),
            shown(two),
            ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            bar.map_or_else(String::new, |bar| format!("<= {bar}")),
        ]);
    }
    table.print(&format!(
        "Nanoseconds per command in flow, {IN_FLIGHT} of each worker in flight: median of {ROUNDS} \
         rounds [least greatest]"
    ));
}
