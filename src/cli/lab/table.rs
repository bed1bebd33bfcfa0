//! The table of one scenario.

use crate::columns::columns;
use anabranch_lab::result::Mode;
use anabranch_lab::result::stats::Difference;
use anabranch_lab::result::summary::{Row, Table};
use anabranch_lab::result::{tenths, times};
use anabranch_lab::scenario::Scenario;
use anabranch_lab::shown::Shown;

/// More paths are not listed side by side.
const SHARES: usize = 8;

/// The table, with what its reader should know, the verdict, and what others published.
pub(super) fn text(table: &Table, scenario: &Scenario) -> String {
    let mut text = head(table, scenario);
    for note in &table.notes {
        text.push_str(&format!("note: {}\n", Shown(note)));
    }
    for ceiling in &table.ceilings {
        text.push_str(&format!(
            "path {} alone: {} of {} MiB/s, {} of {} us\n",
            Shown(&ceiling.path),
            mib(ceiling.bytes_s),
            mib(ceiling.asked_bytes_s),
            us(ceiling.delay_ns),
            us(ceiling.asked_delay_ns)
        ));
    }
    for row in &table.rows {
        // The name itself says nothing of it.
        if let (Some(window), true) = (row.latency_window_ns, row.variant == row.policy) {
            text.push_str(&format!(
                "note: {} has a window of {}\n",
                Shown(&row.variant),
                span(window)
            ));
        }
    }
    let some = columns_of(table);
    let head: Vec<&str> = some.iter().map(|(name, _)| *name).collect();
    let rows: Vec<Vec<String>> =
        table.rows.iter().map(|row| some.iter().map(|(_, cell)| cell(row)).collect()).collect();
    text.push_str(&columns(&head, &rows));
    text.push_str(&format!("{}\n", Shown(&table.verdict.text)));
    if !scenario.published.is_empty() {
        let source = Shown(&scenario.source);
        text.push_str(&format!("published: {source}\n{}", published(scenario)));
    }
    text
}

fn head(table: &Table, scenario: &Scenario) -> String {
    let runs = table.rows.iter().map(|row| row.runs.len()).max().unwrap_or(0);
    let runs = if runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") };
    let how = match table.mode {
        Mode::Light => "light simulation",
        Mode::Sim => "engine simulation",
        Mode::Live => "live",
    };
    let scaled = match table.scale_permille {
        1000 => String::new(),
        permille => format!(" at {} of the rates", times(u64::from(permille) * 1000)),
    };
    format!(
        "{}: {}\n{how}, {runs} of {} ms after {} ms{scaled}: medians of throughput, latencies \
         of all runs; limit {} MiB/s ({})\n",
        Shown(&scenario.name),
        Shown(&scenario.title),
        table.window_ns / 1_000_000,
        table.ramp_ns / 1_000_000,
        mib(table.limit.bytes_s),
        Shown(&table.limit.bound),
    )
}

/// A column's name and how a row fills it.
type Column = (&'static str, Box<dyn Fn(&Row) -> String>);

fn columns_of(table: &Table) -> Vec<Column> {
    let mut all: Vec<Column> = Vec::new();
    let mut add = |name: &'static str, cell: fn(&Row) -> String| all.push((name, Box::new(cell)));
    add("Policy", |row| Shown(&row.variant).to_string());
    add("MiB/s", |row| mib(row.bytes_s));
    // What the processors bound says nothing of the links; nor does a limit of no byte a second.
    let bound = table.limit.bytes_s > 0;
    let of_limit: fn(&Row) -> String = match bound {
        true => |row| if row.cpu_bound { "-".to_owned() } else { percent(row.of_limit_ppm) },
        false => |_| "-".to_owned(),
    };
    add("% limit", of_limit);
    add("% best", |row| percent(row.of_best_ppm));
    if table.rows.iter().any(|row| row.to_best.interval.is_some()) {
        add("95 %", |row| match (row.to_best_is, row.to_best.interval) {
            (Difference::None, _) => "=".to_owned(),
            (_, Some(found)) => format!("{}-{}", percent(found.low_ppm), percent(found.high_ppm)),
            _ => "?".to_owned(),
        });
    }
    add("IOPS", |row| row.iops.to_string());
    add("mean us", |row| us(row.completion.mean_ns));
    add("stdev", |row| us(row.completion.stdev_ns));
    add("p50", |row| us(row.completion.p50_ns));
    add("p99", |row| us(row.completion.p99_ns));
    add("p99.9", |row| us(row.completion.p999_ns));
    add("max", |row| us(row.completion.max_ns));
    let paths = table.rows.iter().map(|row| row.shares.len()).max().unwrap_or(0);
    if (2..=SHARES).contains(&paths) {
        add("share %", shares);
    }
    if table.changes > 0 {
        add("adapt ms", |row| adapted(row, row.adapt_median_ns));
        add("worst", |row| adapted(row, row.adapt_worst_ns));
    }
    if table.hosts > 1 {
        add("Jain", |row| times(row.jain_ppm));
    }
    if table.rows.iter().any(|row| row.cpu.is_some()) {
        add("usr us/IO", |row| cpu(row, |cpu| decimal_us(cpu.user_ns_per_request)));
        add("sys us/IO", |row| cpu(row, |cpu| decimal_us(cpu.system_ns_per_request)));
        add("CPU %", |row| cpu(row, |cpu| percent(cpu.user_ppm.saturating_add(cpu.system_ppm))));
        add("idle %", |row| cpu(row, |cpu| percent(cpu.idle_ppm)));
    }
    if table.rows.iter().any(|row| row.errors > 0) {
        add("errors", |row| row.errors.to_string());
    }
    if table.rows.iter().any(|row| row.cpu_bound) {
        add("", |row| if row.cpu_bound { "CPU-bound".to_owned() } else { String::new() });
    }
    all
}

fn cpu(row: &Row, of: impl Fn(&anabranch_lab::result::summary::RowCpu) -> String) -> String {
    row.cpu.as_ref().map_or_else(|| "-".to_owned(), of)
}

/// As the report writes it: three digits, but never fewer than the whole part; to the nearest.
fn mib(bytes_s: u64) -> String {
    let times = |n: u64| (u128::from(bytes_s) * u128::from(n) + (1 << 19)) >> 20;
    match (times(100), times(10)) {
        (cents, _) if cents < 1000 => format!("{}.{:02}", cents / 100, cents % 100),
        (_, tenth) if tenth < 1000 => format!("{}.{}", tenth / 10, tenth % 10),
        _ => times(1).to_string(),
    }
}

fn us(ns: u64) -> String {
    (ns.saturating_add(500) / 1000).to_string()
}

fn decimal_us(ns: u64) -> String {
    tenths(ns.saturating_add(50) / 100)
}

/// Millionths in hundredths, with a decimal, to the nearest.
fn percent(ppm: u64) -> String {
    tenths(ppm.saturating_add(500) / 1000)
}

/// Rounded to whole hundredths.
fn shares(row: &Row) -> String {
    let parts: Vec<String> =
        row.shares.iter().map(|share| ((share.share_ppm + 5000) / 10_000).to_string()).collect();
    parts.join("/")
}

/// A time to adapt; one that never was is said.
fn adapted(row: &Row, took_ns: Option<u64>) -> String {
    match took_ns {
        Some(ns) => (ns / 1_000_000).to_string(),
        None if row.never_adapted > 0 => "never".to_owned(),
        None => "-".to_owned(),
    }
}

fn span(ns: u64) -> String {
    match ns {
        _ if ns.is_multiple_of(1_000_000_000) => format!("{}s", ns / 1_000_000_000),
        _ if ns.is_multiple_of(1_000_000) => format!("{}ms", ns / 1_000_000),
        _ => format!("{ns}ns"),
    }
}

/// What others measured.
fn published(scenario: &Scenario) -> String {
    let some = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |v| v.to_string());
    let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let mib = |value: Option<u64>| text(value.map(mib));
    let us = |value: Option<u64>| text(value.map(us));
    let head = ["Policy", "MiB/s", "read", "write", "IOPS", "mean us", "stdev"];
    let rows: Vec<Vec<String>> = scenario
        .published
        .iter()
        .map(|row| {
            vec![
                Shown(&row.policy).to_string(),
                mib(row.bytes_s),
                mib(row.read_bytes_s),
                mib(row.write_bytes_s),
                some(row.iops),
                us(row.mean_ns),
                us(row.stdev_ns),
            ]
        })
        .collect();
    columns(&head, &rows)
}
