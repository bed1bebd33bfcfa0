//! What one command costs in here: select, start, finish, in nanoseconds.
//!
//! `cargo bench -p anabranch-policy`. Several rounds are interleaved and the fastest is shown
//! beside the median, because other load on the machine only ever adds.

use anabranch_policy::{
    Affinity, AnaRank, AsCandidate, Candidate, ControllerLedger, Histogram, LOCAL_DISTANCE, Load,
    Local, NodeLatency, OpClass, Parameters, Policy, Selector, Shared, WorkerLedger, finish, start,
};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

/// A path table row as a host would have it: the ledger is shared and lies elsewhere.
struct Row {
    usable: bool,
    rank: AnaRank,
    controller: Arc<(ControllerLedger, [WorkerLedger; 1])>,
    path: Arc<(Shared, NodeLatency)>,
    local: Local,
}

impl Row {
    #[inline]
    fn load(&self) -> Load<'_> {
        Load {
            controller: &self.controller.0,
            workers: &self.controller.1,
            worker: 0,
            queue: 0,
            shared: &self.path.0,
            node: &self.path.1,
            local: &self.local,
        }
    }
}

impl AsCandidate for Row {
    #[inline]
    fn candidate(&self) -> Candidate<'_> {
        Candidate {
            usable: self.usable,
            rank: self.rank,
            numa_distance: LOCAL_DISTANCE,
            affinity: Affinity::Own,
            load: self.load(),
        }
    }
}

const ROUNDS: usize = 15;
const COMMANDS: u32 = 100_000;

fn ns_per_command(mut body: impl FnMut()) -> f64 {
    let begin = Instant::now();
    for _ in 0..COMMANDS {
        body();
    }
    begin.elapsed().as_nanos() as f64 / f64::from(COMMANDS)
}

fn table(paths: usize, busy: bool) -> Vec<Row> {
    (0..paths)
        .map(|_| {
            let row = Row {
                usable: true,
                rank: AnaRank::Optimized,
                controller: Arc::default(),
                path: Arc::default(),
                local: Local::new(),
            };
            if busy {
                // Never finished: no path is idle, so the scan looks at every one.
                for policy in Policy::ALL {
                    let _ = start(&Parameters::of(policy), row.load(), OpClass::Read, 4096, 0);
                }
            }
            row
        })
        .collect()
}

struct Case {
    name: String,
    selector: Selector,
    parameters: Parameters,
    rows: Vec<Row>,
    select_ns: Vec<f64>,
    whole_ns: Vec<f64>,
}

impl Case {
    fn round(&mut self) {
        let parameters = &black_box(self.parameters);
        let (selector, rows) = (&mut self.selector, &self.rows);
        self.select_ns.push(ns_per_command(|| {
            black_box(selector.select(parameters, black_box(rows), OpClass::Read, 4096, 1));
        }));
        self.whole_ns.push(ns_per_command(|| {
            let choice = selector.select(parameters, black_box(rows), OpClass::Read, 4096, 1);
            let load = rows[choice.expect("a path").index].load();
            let charge = black_box(start(parameters, load, OpClass::Read, 4096, 1));
            finish(charge, load);
        }));
    }
}

fn summary(samples: &mut [f64]) -> (f64, f64) {
    samples.sort_by(f64::total_cmp);
    (samples[0], samples[samples.len() / 2])
}

fn main() {
    let mut cases = Vec::new();
    for policy in Policy::ALL {
        for paths in [2, 8, 64] {
            cases.push(Case {
                name: format!("{policy}, {paths} paths"),
                selector: Selector::new(),
                parameters: Parameters::of(policy),
                rows: table(paths, true),
                select_ns: Vec::new(),
                whole_ns: Vec::new(),
            });
        }
    }
    for _ in 0..ROUNDS {
        cases.iter_mut().for_each(Case::round);
    }
    println!("{:28} {:>18} {:>18}", "ns per command", "select", "select+start+finish");
    println!("{:28} {:>9} {:>8} {:>9} {:>9}", "", "fastest", "median", "fastest", "median");
    for case in &mut cases {
        let (select, select_median) = summary(&mut case.select_ns);
        let (whole, whole_median) = summary(&mut case.whole_ns);
        println!(
            "{:28} {select:9.1} {select_median:8.1} {whole:9.1} {whole_median:9.1}",
            case.name
        );
    }
    let mut histogram = Histogram::new();
    let mut value = 1_u64;
    let record = (0..ROUNDS).map(|_| {
        ns_per_command(|| {
            value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            histogram.record(black_box(value >> 30));
        })
    });
    let mut record: Vec<f64> = record.collect();
    let (fastest, median) = summary(&mut record);
    println!("{:28} {fastest:9.1} {median:8.1}", "histogram record");
    black_box(&histogram);
}
