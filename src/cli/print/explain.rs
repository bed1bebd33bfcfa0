//! `explain`: what each path got, and why, as text.

use crate::columns::columns;
use crate::daemon::explain::{Candidate, ExplainView, PathExplain, Sample, Seen};
use crate::daemon::view::{out_of_use, stopped};
use crate::units::latency_text;
use anabranch_policy::{Reason, SizeClass};
use serde_json::Value;

/// Everything; `asked` is how many samples the caller wanted.
#[must_use]
pub fn text(view: &ExplainView, asked: u32) -> String {
    let mut text = head(view);
    text.push('\n');
    text.push_str(&path_table(view));
    for path in view.paths.iter().filter(|path| path.left) {
        let is_back = view.paths.iter().any(|other| !other.left && other.path == path.path);
        let back = if is_back { "; shown is what it did since it came back" } else { "" };
        text.push_str(&format!("{} left in that time, and its counts with it{back}\n", path.path));
    }
    if view.commands > 0 {
        text.push('\n');
        text.push_str(&why_table(view));
    }
    if view.paths.iter().any(|path| path.estimates.is_some()) {
        text.push('\n');
        text.push_str(&estimates(view));
    }
    if asked > 0 {
        text.push('\n');
        text.push_str(&samples(view));
    }
    text
}

fn head(view: &ExplainView) -> String {
    let exact = if view.kernel_exact { ", kernel_exact" } else { "" };
    let set = match view.iopolicy_set_by.as_str() {
        "default" => "the default".to_owned(),
        by => format!("set by {by}, default {}", view.iopolicy_default),
    };
    let paths = view.paths.iter().filter(|path| !path.left);
    let (count, usable) = (paths.clone().count(), paths.filter(|path| path.usable).count());
    let s = if count == 1 { "" } else { "s" };
    let stopped = stopped(view.quiesced, view.frozen);
    let stopped = stopped.map_or_else(String::new, |word| format!(", {word}"));
    let commands = view.commands;
    let what = match view.interval_ns {
        _ if commands == 0 && view.interval_ns.is_none() => {
            "no command has been placed on these paths yet".to_owned()
        }
        None => format!("{commands} commands placed since the paths joined"),
        Some(ns) => {
            let rate = u128::from(commands) * 1_000_000_000 / u128::from(ns.max(1));
            format!("{commands} commands placed in {}: {rate} a second", latency_text(ns))
        }
    };
    format!(
        "{} of {}: iopolicy {} ({set}){exact}, {count} path{s}, {usable} usable{stopped}\n{what}\n",
        view.device, view.subsystem, view.iopolicy
    )
}

/// One row per path.
fn path_table(view: &ExplainView) -> String {
    let moved = |path: &PathExplain| path.read_bytes + path.written_bytes;
    let bytes: u64 = view.paths.iter().map(moved).sum();
    let paths = view.paths.iter().filter(|path| !path.left);
    let rows = paths.map(|path| {
        vec![
            path.path.clone(),
            state(path),
            path.commands.to_string(),
            percent(path.commands, view.commands),
            size_text(moved(path)),
            percent(moved(path), bytes),
            in_flight(&path.seen),
        ]
    });
    let rows = rightwards(&[2, 3, 4, 5], rows.collect());
    let head = ["Path", "State", "Commands", "Share", "Moved", "Share", "Mean in flight (samples)"];
    columns(&head, &rows)
}

/// The one word that says most, as `top` has it.
fn state(path: &PathExplain) -> String {
    if path.usable {
        return path.ana_state.clone();
    }
    out_of_use(&path.controller_state, &path.ana_state, path.hindrance.as_deref())
}

/// The mean over samples, in what the policies counted that were in force then.
fn in_flight(seen: &Seen) -> String {
    if seen.decisions == 0 {
        return "-".to_owned();
    }
    let mut parts = Vec::new();
    let tenths = u128::from(seen.commands) * 10;
    if let Some(tenths) = tenths.checked_div(u128::from(seen.counted_commands)) {
        parts.push(format!("{}.{} commands", tenths / 10, tenths % 10));
    }
    if let Some(mean) = seen.bytes.checked_div(seen.counted_bytes) {
        parts.push(size_text(mean));
    }
    if parts.is_empty() { "not counted".to_owned() } else { parts.join(", ") }
}

/// One row per size, path and reason that occurred.
fn why_table(view: &ExplainView) -> String {
    let mut rows = Vec::new();
    for size in SizeClass::all().map(SizeClass::name) {
        let of_size = |path: &PathExplain| -> u64 {
            let choices = path.choices.iter().filter(|choice| choice.size == size);
            choices.map(|choice| choice.commands).sum()
        };
        let total: u64 = view.paths.iter().map(of_size).sum();
        let mut named = false;
        for path in &view.paths {
            let here = of_size(path);
            let mut choices: Vec<_> = path.choices.iter().filter(|c| c.size == size).collect();
            choices.sort_by_key(|choice| std::cmp::Reverse(choice.commands));
            for (at, choice) in choices.into_iter().enumerate() {
                let first = |text: String| if at == 0 { text } else { String::new() };
                rows.push(vec![
                    if named { String::new() } else { size.to_owned() },
                    first(path.path.clone()),
                    first(here.to_string()),
                    first(percent(here, total)),
                    why(&choice.reason),
                    choice.commands.to_string(),
                    percent(choice.commands, here),
                ]);
                named = true;
            }
        }
    }
    let rows = rightwards(&[2, 3, 5, 6], rows);
    columns(&["Size", "Path", "Commands", "Of size", "Why", "Count", "Of path"], &rows)
}

/// What `finish-time` knows now: of each path, then of each operation and size without a queue.
fn estimates(view: &ExplainView) -> String {
    let known = || view.paths.iter().filter_map(|path| Some((path, path.estimates.as_ref()?)));
    let time = |ns: u64| if ns == 0 { "-".to_owned() } else { latency_text(ns) };
    let rows = known().map(|(path, of)| {
        let rate = match of.rate_bytes_per_s {
            0 => "not measured".to_owned(),
            rate if of.rate_is_least => format!("at least {}", mib_per_s(rate)),
            rate => mib_per_s(rate),
        };
        let apart = of.apart_bytes_per_s.map(|[reads, writes]| {
            format!(" (reads {}, writes {})", mib_per_s(reads), mib_per_s(writes))
        });
        vec![
            path.path.clone(),
            rate + &apart.unwrap_or_default(),
            size_text(of.in_flight_bytes),
            time(of.finish_ns),
            time(of.outliers_ns),
            time(of.standing_ns),
            time(of.toll_ns),
            of.elasticity_percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent} %")),
            time(of.silent_ns),
            format!("{}, {}", of.probes, size_text(of.probe_bytes)),
        ]
    });
    let head = [
        "Path",
        "Rate",
        "In flight",
        "4 KiB read",
        "Outliers",
        "Standing queue",
        "Toll",
        "Elasticity",
        "Silent",
        "Probes",
    ];
    let rows = rightwards(&[1, 2, 3, 4, 5, 6, 7], rows.collect());
    let mut text = columns(&head, &rows);
    let mut rows = Vec::new();
    for (path, of) in known() {
        for (at, op) in ["read", "write"].into_iter().enumerate() {
            let bases = of.bases.iter().filter(|base| base.op == op);
            let bases = bases.map(|base| format!("{} {}", base.size, latency_text(base.base_ns)));
            let bases: Vec<String> = bases.collect();
            rows.push(vec![
                if at == 0 { path.path.clone() } else { String::new() },
                op.to_owned(),
                if bases.is_empty() { "-".to_owned() } else { bases.join(", ") },
            ]);
        }
    }
    text.push('\n');
    text.push_str(&columns(&["Path", "Op", "Latency without a queue, by size"], &rows));
    text
}

fn mib_per_s(bytes_per_s: u64) -> String {
    let tenths = u128::from(bytes_per_s) * 10 / (1 << 20);
    format!("{}.{} MiB/s", tenths / 10, tenths % 10)
}

fn samples(view: &ExplainView) -> String {
    let every = match view.explain_sample {
        0 => format!("none is noted: 'anabranch set {} explain_sample 64'", view.device),
        1 => "every decision is noted".to_owned(),
        n => format!("1 in {n} is noted per worker"),
    };
    let mut text = match view.samples.len() {
        0 => format!("No decision to show ({every})\n"),
        1 => format!("The last decision ({every})\n"),
        count => format!("The last {count} decisions ({every})\n"),
    };
    for sample in &view.samples {
        text.push_str(&one_sample(sample));
    }
    text
}

fn one_sample(sample: &Sample) -> String {
    let Sample { before_ns, op, bytes, path, iopolicy, reason, worker, .. } = sample;
    let sentence = because(reason).1;
    // Without a policy: nothing was compared.
    let why = match reason.as_str() {
        "retry" | "flush" => sentence.to_owned(),
        _ => format!("{iopolicy}: {sentence}"),
    };
    let mut text = format!(
        "\n{} ago, worker {worker}: {op} of {} -> {path}\n  {why}\n",
        latency_text(*before_ns),
        size_text(u64::from(*bytes)),
    );
    let names = sample.candidates.iter().map(|candidate| candidate.path.chars().count());
    let width = names.max().unwrap_or(0);
    for candidate in &sample.candidates {
        let mark = if candidate.path == *path { '>' } else { ' ' };
        let line = format!("  {mark} {:width$}  {}", candidate.path, found(candidate));
        text.push_str(line.trim_end());
        text.push('\n');
    }
    let hidden = usize::from(sample.paths).saturating_sub(sample.candidates.len());
    if hidden > 0 {
        text.push_str(&format!("    and {hidden} more\n"));
    }
    text
}

/// A candidate's state and what the policy compared.
fn found(candidate: &Candidate) -> String {
    if !candidate.usable {
        return "not usable".to_owned();
    }
    let mut parts = vec![candidate.ana_state.clone()];
    parts.extend(candidate.inputs.iter().map(|(name, value)| input(name, value)));
    parts.join(", ")
}

fn input(name: &str, value: &Value) -> String {
    let number = value.as_u64().unwrap_or_default();
    match name {
        "in_flight_commands" => {
            format!("{number} command{} in flight", if number == 1 { "" } else { "s" })
        }
        "load_bytes" => format!("{} to carry", size_text(number)),
        "stale_ns" if number == 0 => "not stale".to_owned(),
        "unheard_ns" => format!("nothing heard of it for {}", latency_text(number)),
        "affinity" => format!("assigned to {}", value.as_str().unwrap_or_default()),
        "finish_ns" if number == 0 => "not measured".to_owned(),
        "finish_ns" => format!("done in {}", latency_text(number)),
        "base_ns" if number == 0 => "base latency not known".to_owned(),
        "base_ns" => format!("{} without a queue", latency_text(number)),
        "rate_bytes_per_s" if number == 0 => "rate not known".to_owned(),
        "rate_bytes_per_s" => format!("rate {}", mib_per_s(number)),
        _ => {
            let words = name.replace('_', " ");
            match words.strip_suffix(" ns") {
                Some(words) => format!("{words} {}", latency_text(number)),
                None => format!("{words} {value}"),
            }
        }
    }
}

/// A reason as a sentence, with the policy that it belongs to.
fn why(reason: &str) -> String {
    match because(reason) {
        ("", sentence) => sentence.to_owned(),
        (policy, sentence) => format!("{policy}: {sentence}"),
    }
}

/// The policy that alone gives this reason, if there is one, and the reason as a sentence.
fn because(reason: &str) -> (&'static str, &str) {
    let Some(known) = Reason::ALL.into_iter().find(|known| known.name() == reason) else {
        return ("", reason);
    };
    match known {
        Reason::Nearest => ("numa", "the nearest path"),
        Reason::Remembered => ("numa", "the path in use"),
        Reason::Turn => ("round-robin", "its turn"),
        Reason::FewestCommands => ("", "fewest commands in flight"),
        Reason::LeastServiceTime => ("service-time", "fewest bytes for its weight"),
        Reason::Standby => ("service-time", "only standby paths (weight 0) were usable"),
        Reason::Credit => ("latency", "it had credit left"),
        Reason::Unmeasured => ("", "nothing was known about it yet"),
        Reason::LeastHistoricalTime => ("historical-service-time", "expected to be done first"),
        Reason::Stale => ("historical-service-time", "not used for so long that it was tried"),
        Reason::OwnWorker => ("io-affinity", "the worker's own path"),
        Reason::SameNode => ("io-affinity", "a path of the worker's node"),
        Reason::OtherWorker => ("io-affinity", "a path of another node's workers"),
        Reason::EarliestFinish => ("finish-time", "expected to be done there first"),
        Reason::Spill => ("finish-time", "the first choice was busy, this one had room"),
        Reason::Overflow => {
            ("finish-time", "more came than the first choice does, this one had room")
        }
        Reason::WriteProbe => ("finish-time", "a probe was answered, now a write was tried"),
        Reason::NoOptimized => ("", "no optimized path was usable"),
        Reason::Retry => ("", "tried again on the path where it had failed"),
        Reason::Flush => ("", "a flush goes to each path that has acknowledged writes"),
    }
}

/// A share to a tenth of a percent; `-` of nothing.
fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    let whole = u128::from(whole);
    let tenths = (u128::from(part) * 1000 + whole / 2) / whole;
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// A size in binary units: exact when it is whole in one, else to a tenth.
fn size_text(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = (bytes.max(1).ilog2() / 10) as usize;
    let scale = 1u128 << (10 * unit);
    if u128::from(bytes) % scale == 0 {
        return format!("{} {}", u128::from(bytes) / scale, units[unit]);
    }
    let tenths = u128::from(bytes) * 10 / scale;
    format!("{}.{} {}", tenths / 10, tenths % 10, units[unit])
}

/// Puts the cells of these columns at the right of each.
fn rightwards(numbers: &[usize], mut rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    for &column in numbers {
        let width = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        for row in &mut rows {
            row[column] = format!("{:>width$}", row[column]);
        }
    }
    rows
}
