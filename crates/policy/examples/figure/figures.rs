//! One figure per policy: a short scene, played with the real code.

use crate::support::{Path, begin, one_at_a_time, paths};
use anabranch_policy::{
    Affinity, AnaRank, AsCandidate, Charge, LatencyInputs, OpClass, Parameters, Policy, Sampled,
    Selector, compute_weights, finish, inputs, latency_inputs, sample, start,
};
use std::collections::VecDeque;
use std::fmt::Write as _;

/// Draws a scene.
type Figure = fn() -> String;

/// Every figure, by the name of its policy.
pub(crate) const ALL: &[(&str, Figure)] = &[
    ("numa", numa),
    ("round-robin", round_robin),
    ("queue-depth", queue_depth),
    ("service-time", service_time),
    ("latency", latency),
    ("queue-length", queue_length),
    ("historical-service-time", historical_service_time),
    ("io-affinity", io_affinity),
    ("finish-time", finish_time),
];

const NAMES: [char; 4] = ['A', 'B', 'C', 'D'];
const KIB: u64 = 1024;

/// Milliseconds to the nearest hundredth.
fn ms(ns: u64) -> String {
    let hundredths = (ns + 5_000) / 10_000;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// Adds a line without blanks at its end.
fn line(to: &mut String, text: &str) {
    to.push_str(text.trim_end());
    to.push('\n');
}

/// One row per path, a mark in the column of each command that it got.
fn lanes(to: &mut String, labels: &[&str], taken: &[usize]) {
    let mut head = format!("{:<18}", "command");
    for command in 1..=taken.len() {
        let _ = write!(head, "{command:>3}");
    }
    line(to, &head);
    for (path, label) in labels.iter().enumerate() {
        let mut row = format!("{label:<18}");
        for &index in taken {
            row.push_str(if index == path { "  ●" } else { "  ·" });
        }
        line(to, &row);
    }
}

fn select(
    selector: &mut Selector,
    parameters: &Parameters,
    paths: &[Path],
) -> Option<anabranch_policy::Choice> {
    selector.select(parameters, paths, OpClass::Read, 4096, 0)
}

fn numa() -> String {
    let parameters = Parameters::of(Policy::Numa);
    let mut table = paths("ooo");
    for (path, distance) in table.iter_mut().zip([20, 10, 10]) {
        path.distance = distance;
    }
    let mut selector = Selector::new();
    let mut out = String::new();
    line(&mut out, &row("what happens", &["A (20)", "B (10)", "C (10)"], "goes to", "why"));
    let state = |path: &Path| match (path.usable, path.rank) {
        (false, _) => "down",
        (true, AnaRank::Optimized) => "optimized",
        (true, AnaRank::NonOptimized) => "non-opt.",
    };
    let mut next = |event: &str, table: &[Path], selector: &mut Selector| {
        let states: Vec<&str> = table.iter().map(state).collect();
        let choice = select(selector, &parameters, table).expect("a path");
        let name = NAMES[choice.index].to_string();
        line(&mut out, &row(event, &states, &name, choice.reason.name()));
    };
    next("first command", &table, &mut selector);
    next("next command", &table, &mut selector);
    table[1].usable = false;
    selector.forget_path(1);
    next("B is lost", &table, &mut selector);
    next("next command", &table, &mut selector);
    table[2].rank = AnaRank::NonOptimized;
    next("C non-optimized", &table, &mut selector);
    table[1].usable = true;
    // A path became usable: the host drops what was remembered.
    selector.clear_cache();
    next("B is back", &table, &mut selector);
    table[0].usable = false;
    table[1].usable = false;
    next("A and B are lost", &table, &mut selector);
    table[1].usable = true;
    next("B is back", &table, &mut selector);
    out
}

fn row(event: &str, states: &[&str], goes_to: &str, why: &str) -> String {
    let mut text = format!("{event:<18}");
    for state in states {
        let _ = write!(text, "{state:<11}");
    }
    let _ = write!(text, "{goes_to:<9}{why}");
    text
}

fn round_robin() -> String {
    let mut out = String::new();
    let scenes: [(&str, [&str; 3]); 3] = [
        ("ooo", ["A optimized", "B optimized", "C optimized"]),
        ("onn", ["A optimized", "B non-optimized", "C non-optimized"]),
        ("nnn", ["A non-optimized", "B non-optimized", "C non-optimized"]),
    ];
    for (at, (letters, labels)) in scenes.iter().enumerate() {
        let table = paths(letters);
        let mut selector = Selector::new();
        let taken = one_at_a_time(&mut selector, Policy::RoundRobin, false, &table, 9);
        if at > 0 {
            out.push('\n');
        }
        lanes(&mut out, labels, &taken);
    }
    out
}

/// Two paths, six commands always in flight. Path A serves one per tick, path B one in four ticks.
fn queue_depth() -> String {
    const IN_FLIGHT: usize = 6;
    const TICKS: usize = 12;
    let parameters = Parameters::of(Policy::QueueDepth);
    let table = paths("oo");
    let mut selector = Selector::new();
    let mut queues: [VecDeque<Charge>; 2] = Default::default();
    let mut taken = Vec::new();
    let mut submit = |queues: &mut [VecDeque<Charge>; 2]| {
        let choice = select(&mut selector, &parameters, &table).expect("a path");
        let charge = start(&parameters, table[choice.index].load(), OpClass::Read, 4096, 0);
        queues[choice.index].push_back(charge);
        choice.index
    };
    for _ in 0..IN_FLIGHT {
        submit(&mut queues);
    }
    let mut rows = [
        format!("{:<18}", "tick"),
        format!("{:<18}", "in flight on A"),
        format!("{:<18}", "in flight on B"),
        format!("{:<18}", "new commands to"),
    ];
    for tick in 1..=TICKS {
        let _ = write!(rows[0], "{tick:>4}");
        let mut ended = 0;
        for (path, every) in [(0, 1), (1, 4)] {
            if tick % every == 0
                && let Some(charge) = queues[path].pop_front()
            {
                finish(charge, table[path].load());
                ended += 1;
            }
        }
        let _ = write!(rows[1], "{:>4}", table[0].controller.nr_active());
        let _ = write!(rows[2], "{:>4}", table[1].controller.nr_active());
        let mut went = String::new();
        for _ in 0..ended {
            let path = submit(&mut queues);
            taken.push(path);
            went.push(NAMES[path]);
        }
        let _ = write!(rows[3], "{went:>4}");
    }
    let mut out = String::new();
    for row in &rows {
        line(&mut out, row);
    }
    let to_a = taken.iter().filter(|&&path| path == 0).count();
    let _ = writeln!(out, "\n{to_a} of {} commands to A, {} to B", taken.len(), taken.len() - to_a);
    out.push_str("\none command at a time, default:\n");
    let mut alone = |exact: bool| {
        let table = paths("oo");
        let taken = one_at_a_time(&mut Selector::new(), Policy::QueueDepth, exact, &table, 8);
        lanes(&mut out, &["A", "B"], &taken);
        if !exact {
            out.push_str("\none command at a time, kernel_exact:\n");
        }
    };
    alone(false);
    alone(true);
    out
}

/// Reads of 4 KiB, none of which ends, on weights 4 and 1.
fn service_time() -> String {
    let mut out = String::new();
    for exact in [false, true] {
        let parameters = Parameters { kernel_exact: exact, ..Parameters::of(Policy::ServiceTime) };
        let table = paths("oo");
        table[0].controller.set_relative_throughput(4);
        let mut selector = Selector::new();
        let incoming = if exact { 0 } else { 4 * KIB };
        line(&mut out, if exact { "\nkernel_exact" } else { "default" });
        let own = if exact { "bytes" } else { "(bytes + 4 KiB)" };
        let (a, b) = (format!("A: {own} / 4"), format!("B: {own} / 1"));
        line(&mut out, &format!("{:<9}{a:<28}{b:<32}goes to", "command"));
        for command in 1..=10 {
            let mut text = format!("{command:<9}");
            for (path, width) in [(0, 28), (1, 32)] {
                let ledger = &table[path].controller;
                let bytes = ledger.in_flight_bytes() + incoming;
                let kib = bytes / u64::from(ledger.relative_throughput()) / KIB;
                let bar = "█".repeat(kib as usize);
                let measure = format!("{bar:<10}{kib:>2} KiB");
                let _ = write!(text, "{measure:<width$}");
            }
            let choice = select(&mut selector, &parameters, &table).expect("a path");
            let load = table[choice.index].load();
            let _: Charge = start(&parameters, load, OpClass::Read, 4096, 0);
            text.push(NAMES[choice.index]);
            line(&mut out, &text);
        }
        let bytes = [0, 1].map(|path: usize| table[path].controller.in_flight_bytes() / KIB);
        let _ = writeln!(out, "in flight: A {} KiB, B {} KiB", bytes[0], bytes[1]);
    }
    out
}

/// One worker with one read in flight on two paths whose latencies are known, in virtual time.
struct Latency {
    table: Vec<Path>,
    selector: Selector,
    now_ns: u64,
    taken: Vec<usize>,
}

impl Latency {
    /// Carries out one read. Whether that closed a batch of its path.
    fn step(&mut self, latency_ms: [u64; 2]) -> bool {
        let parameters = Parameters::of(Policy::Latency);
        let choice = select(&mut self.selector, &parameters, &self.table).expect("a path");
        let load = self.table[choice.index].load();
        let charge = start(&parameters, load, OpClass::Read, 4096, self.now_ns);
        self.now_ns += latency_ms[choice.index] * 1_000_000;
        let sampled = sample(&parameters, charge, load, self.table.len(), self.now_ns);
        finish(charge, load);
        self.taken.push(choice.index);
        let Sampled::BatchClosed(group) = sampled else { return false };
        compute_weights(&parameters, &self.table, group);
        true
    }

    fn weights(&self, to: &mut String, when: &str) {
        let mut text = format!("{when:<8}");
        for path in &self.table {
            let parameters = Parameters::of(Policy::Latency);
            let inputs = latency_inputs(&parameters, path.load(), OpClass::Read, 4096);
            let LatencyInputs { weight, smoothed_ns, .. } = inputs;
            let smoothed = format!("{} ms", ms(smoothed_ns));
            let bar = "█".repeat(weight.div_ceil(8) as usize);
            let _ = write!(text, "{smoothed:>8} {weight:>4} {bar:<20}");
        }
        line(to, &text);
    }
}

fn latency() -> String {
    const BATCHES: usize = 14;
    let mut run =
        Latency { table: paths("oo"), selector: Selector::new(), now_ns: 1, taken: Vec::new() };
    let mut out = String::new();
    let (before, after) = ([1, 3], [9, 3]);
    for _ in 0..640 {
        run.step(before);
    }
    let mut bursts = Vec::new();
    for burst in run.taken.chunk_by(|a, b| a == b) {
        bursts.push(format!("{} {}", NAMES[burst[0]], burst.len()));
    }
    // The last one goes on.
    bursts.pop();
    let _ = writeln!(out, "A takes 1 ms, B 3 ms; the first bursts: {}", bursts.join(", "));
    line(&mut out, &format!("\n{:<9}{:<8} {:<24}{:<8} {}", "batch", "A", "weight", "B", "weight"));
    run.weights(&mut out, "0");
    let _ = writeln!(out, "from now on A takes 9 ms");
    let mut closed = 0;
    while closed < BATCHES {
        if run.step(after) && run.taken.last() == Some(&0) {
            closed += 1;
            run.weights(&mut out, &closed.to_string());
        }
    }
    out
}

/// Two namespaces over the same two controllers; another one keeps A busy.
fn queue_length() -> String {
    let mut out = String::new();
    // The paths of the second namespace: same controllers, own counters.
    let table = paths("oo");
    for _ in 0..4 {
        // What the first namespace has in flight on A, as each policy counts it: in the
        // controller's ledger, which both namespaces share, and not on this namespace's path.
        let _: Charge = begin(&table[0], Policy::QueueDepth);
    }
    let head = format!("{:<18}{:<14}{:<14}", "", "A", "B");
    line(&mut out, &head);
    let depth = [0, 1].map(|path: usize| table[path].controller.nr_active());
    let own = [0, 1].map(|path: usize| table[path].shared.nr_active());
    line(&mut out, &format!("{:<18}{:<14}{:<14}", "controller", depth[0], depth[1]));
    line(&mut out, &format!("{:<18}{:<14}{:<14}", "this namespace", own[0], own[1]));
    out.push('\n');
    for policy in [Policy::QueueLength, Policy::QueueDepth] {
        let mut selector = Selector::new();
        let parameters = Parameters::of(policy);
        let taken: Vec<usize> = (0..6)
            .map(|_| {
                let choice = select(&mut selector, &parameters, &table).expect("a path");
                let _: Charge = begin(&table[choice.index], policy);
                choice.index
            })
            .collect();
        line(&mut out, &format!("{policy}, none ends:"));
        lanes(&mut out, &["A", "B"], &taken);
        if policy == Policy::QueueLength {
            out.push('\n');
        }
    }
    out
}

/// Six reads always in flight on two paths that do one thing at a time: A in 1 ms each, B in 4 ms.
fn historical_service_time() -> String {
    const IN_FLIGHT: usize = 6;
    const SERVICE_NS: [u64; 2] = [1_000_000, 4_000_000];
    /// Choices that are played before the first one shown, and those shown.
    const BEFORE: usize = 200;
    const SHOWN: usize = 10;
    let parameters = Parameters::of(Policy::HistoricalServiceTime);
    let table = paths("oo");
    let mut selector = Selector::new();
    // Commands in flight with the time at which each ends, and when each path is free.
    let mut queues: [VecDeque<(u64, Charge)>; 2] = Default::default();
    let mut free_ns = [0; 2];
    let mut now_ns = 1;
    let mut out = String::new();
    line(&mut out, &format!("{:<11}{:<28}{:<28}{:<9}why", "time", "A", "B", "goes to"));
    let mut taken = Vec::new();
    for command in 0..BEFORE + SHOWN {
        if command >= IN_FLIGHT {
            let end = |path: &usize| queues[*path].front().map_or(u64::MAX, |&(end, _)| end);
            let path = [0, 1].into_iter().min_by_key(end).expect("two paths");
            let (end, charge) = queues[path].pop_front().expect("a command in flight");
            now_ns = end;
            sample(&parameters, charge, table[path].load(), table.len(), now_ns);
            finish(charge, table[path].load());
        }
        let seen = [0, 1].map(|path: usize| expected(&parameters, &table[path], now_ns));
        let choice = selector.select(&parameters, &table, OpClass::Read, 4096, now_ns);
        let choice = choice.expect("a path");
        let load = table[choice.index].load();
        let charge = start(&parameters, load, OpClass::Read, 4096, now_ns);
        free_ns[choice.index] = free_ns[choice.index].max(now_ns) + SERVICE_NS[choice.index];
        queues[choice.index].push_back((free_ns[choice.index], charge));
        if command >= BEFORE {
            let time = format!("{} ms", now_ns / 1_000_000);
            let name = NAMES[choice.index];
            let reason = choice.reason;
            line(&mut out, &format!("{time:<11}{:<28}{:<28}{name:<9}{reason}", seen[0], seen[1]));
            taken.push(choice.index);
        }
    }
    let to_a = taken.iter().filter(|&&path| path == 0).count();
    let _ = writeln!(out, "\n{to_a} of {} to A, {} to B", taken.len(), taken.len() - to_a);
    out
}

/// What `historical-service-time` compares, as a formula with its result.
fn expected(parameters: &Parameters, path: &Path, now_ns: u64) -> String {
    let inputs = inputs(parameters, path.candidate(), OpClass::Read, 4096, now_ns);
    let (commands, history_ns) =
        inputs.commands.zip(inputs.latency_ns).expect("this policy compares both");
    let product = (1 + u64::from(commands)) * history_ns;
    format!("(1+{commands}) * {} = {} ms", ms(history_ns), ms(product))
}

/// Six reads of 64 KiB always in flight on two links of 4:1, the slow one of which slows down.
fn finish_time() -> String {
    const BYTES: u32 = 64 << 10;
    const IN_FLIGHT: usize = 6;
    /// What a read takes on the link, per path: 400 and 100 MiB/s.
    const SERVICE_NS: [u64; 2] = [156_250, 625_000];
    /// From this command on the first link has a quarter of its rate.
    const SLOWS_AT: usize = 400;
    const STRETCHES: [(usize, usize, &str); 3] = [
        (0, 8, "nothing is known"),
        (300, 10, "after 300 reads"),
        (SLOWS_AT, 12, "A slows to a quarter"),
    ];
    let parameters = Parameters::of(Policy::FinishTime);
    let table = paths("oo");
    let mut selector = Selector::new();
    let mut queues: [VecDeque<(u64, Charge)>; 2] = Default::default();
    let mut free_ns = [0; 2];
    let mut now_ns = 1;
    let mut out = String::new();
    let last = STRETCHES.iter().map(|stretch| stretch.0 + stretch.1).max().unwrap_or(0);
    for command in 0..last {
        if command >= IN_FLIGHT {
            let end = |path: &usize| queues[*path].front().map_or(u64::MAX, |&(end, _)| end);
            let path = [0, 1].into_iter().min_by_key(end).expect("two paths");
            let (end, charge) = queues[path].pop_front().expect("a command in flight");
            now_ns = end;
            finish(charge, table[path].load());
            sample(&parameters, charge, table[path].load(), table.len(), now_ns);
        }
        let seen = [0, 1].map(|path: usize| predicted(&parameters, &table[path], BYTES, now_ns));
        let choice = selector.select(&parameters, &table, OpClass::Read, BYTES, now_ns);
        let choice = choice.expect("a path");
        let to = choice.index;
        let charge = start(&parameters, table[to].load(), OpClass::Read, BYTES, now_ns);
        let slower = if to == 0 && command >= SLOWS_AT { 4 } else { 1 };
        free_ns[to] = free_ns[to].max(now_ns) + SERVICE_NS[to] * slower;
        queues[to].push_back((free_ns[to], charge));
        for (first, count, title) in STRETCHES {
            if command == first {
                let gap = if command == 0 { "" } else { "\n" };
                let _ = writeln!(out, "{gap}{title}");
                line(&mut out, &format!("{:<11}{:<30}{:<30}{:<9}why", "time", "A", "B", "goes to"));
            }
            if (first..first + count).contains(&command) {
                let time = format!("{}.{:02} ms", now_ns / 1_000_000, now_ns / 10_000 % 100);
                let (name, why) = (NAMES[to], choice.reason);
                line(&mut out, &format!("{time:<11}{:<30}{:<30}{name:<9}{why}", seen[0], seen[1]));
            }
        }
    }
    out
}

/// What `finish-time` compares, with what it comes from.
fn predicted(parameters: &Parameters, path: &Path, bytes: u32, now_ns: u64) -> String {
    let inputs = inputs(parameters, path.candidate(), OpClass::Read, bytes, now_ns);
    let finish_ns = inputs.finish_ns.expect("this policy predicts");
    let in_flight = inputs.bytes.expect("and counts bytes") >> 10;
    if finish_ns == 0 {
        return format!("? ({in_flight} KiB)");
    }
    let rate = inputs.rate_kib_per_s.expect("and knows a rate") >> 10;
    let ms = format!("{}.{:02}", finish_ns / 1_000_000, finish_ns / 10_000 % 100);
    format!("{ms} ms ({in_flight} KiB, {rate} MiB/s)")
}

/// Four workers on two nodes, a mask per path.
fn io_affinity() -> String {
    const NODE: [u8; 4] = [0, 0, 1, 1];
    const MASKS: [u8; 3] = [0b0011, 0b0100, 0];
    let mut out = String::new();
    let mask = |(mask, name): (&u8, char)| match mask {
        0 => format!("{name} none"),
        mask => format!("{name} {mask:x}"),
    };
    let masks: Vec<String> = MASKS.iter().zip(NAMES).map(mask).collect();
    let _ = writeln!(out, "masks: {}", masks.join(", "));
    out.push_str(
        "nodes: 0 has workers 0 and 1, 1 has workers 2 and 3

",
    );
    line(&mut out, &format!("{:<21}{:<18}{:<18}", "worker", "all usable", "B is lost"));
    let affinity = |mask: u8, worker: usize| match mask {
        0 => Affinity::Unmapped,
        _ if mask & (1 << worker) != 0 => Affinity::Own,
        _ if (0..4).any(|w| mask & (1 << w) != 0 && NODE[w] == NODE[worker]) => Affinity::Node,
        _ => Affinity::Mapped,
    };
    for (worker, node) in NODE.iter().enumerate() {
        let mut text = format!("{:<21}", format!("{worker} (node {node})"));
        for lost in [None, Some(1)] {
            let mut table = paths("ooo");
            for (index, path) in table.iter_mut().enumerate() {
                path.affinity = affinity(MASKS[index], worker);
                path.usable = lost != Some(index);
            }
            let parameters = Parameters::of(Policy::IoAffinity);
            let choice = select(&mut Selector::new(), &parameters, &table).expect("a path");
            let told = format!("{} {}", NAMES[choice.index], choice.reason);
            let _ = write!(text, "{told:<18}");
        }
        line(&mut out, &text);
    }
    out
}
