//! The table of one scenario.

use crate::columns::columns;
use anabranch_lab::result::stats::{Difference, Interval};
use anabranch_lab::result::summary::{Row, Table};
use anabranch_lab::result::{Measure, Mode, tenths, times};
use anabranch_lab::scenario::{Published, Scenario};
use anabranch_lab::shown::Shown;
use std::iter;

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
    for said in iter::once(&table.verdict.text).chain(&table.verdict.remarks) {
        text.push_str(&format!("{}\n", Shown(said)));
    }
    if !scenario.published.is_empty() {
        let source = Shown(&scenario.source);
        text.push_str(&format!("published: {source}\n{}", published(&scenario.published)));
    }
    text
}

fn head(table: &Table, scenario: &Scenario) -> String {
    let counts = || table.rows.iter().map(|row| row.runs.len());
    let runs = match (counts().min().unwrap_or(0), counts().max().unwrap_or(0)) {
        (1, 1) => "1 run".to_owned(),
        (least, most) if least < most => format!("{least} to {most} runs"),
        (_, runs) => format!("{runs} runs"),
    };
    let how = match table.mode {
        Mode::Light => "light simulation",
        Mode::Sim => "engine simulation",
        Mode::Live => "live",
    };
    let scaled = match table.scale_permille {
        1000 => String::new(),
        permille => format!(" at {} of the rates", times(u64::from(permille) * 1000)),
    };
    let limit = match table.throughput_of {
        Measure::Payload => format!("{} MiB/s", mib(table.limit.bytes_s)),
        Measure::Requests => format!("{} IOPS", table.limit.iops),
    };
    format!(
        "{}: {}\n{how}, {runs} of {} ms after {} ms{scaled}: medians of throughput, latencies \
         of all runs; limit {limit} ({})\n",
        Shown(&scenario.name),
        Shown(&scenario.title),
        table.window_ns / 1_000_000,
        table.ramp_ns / 1_000_000,
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
    let bound = table.throughput_of.of_limit(&table.limit) > 0;
    let of_limit: fn(&Row) -> String = match bound {
        true => |row| if row.cpu_bound { "-".to_owned() } else { percent(row.of_limit_ppm) },
        false => |_| "-".to_owned(),
    };
    add("% limit", of_limit);
    add("% best", |row| percent(row.of_best_ppm));
    if table.rows.iter().any(|row| row.to_best.interval.is_some()) {
        add("95 %", |row| {
            let show = |i: Interval| format!("{}-{}", percent(i.low_ppm), percent(i.high_ppm));
            match row.to_best_is {
                Difference::None => "=".to_owned(),
                _ => row.to_best.sure(show).unwrap_or("?".to_owned()),
            }
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
    // Of payload, which trims have none of.
    if table.hosts > 1 && table.throughput_of.is_payload() {
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

/// What a row of somebody else's table has in one column.
type Figure = fn(&Published) -> Option<String>;

const PUBLISHED: &[(&str, Figure)] = &[
    ("MiB/s", |row| row.bytes_s.map(mib)),
    ("read", |row| row.read_bytes_s.map(mib)),
    ("write", |row| row.write_bytes_s.map(mib)),
    ("IOPS", |row| Some(row.iops?.to_string())),
    ("mean us", |row| row.mean_ns.map(exact_us)),
    ("stdev", |row| row.stdev_ns.map(exact_us)),
    ("min", |row| row.min_ns.map(exact_us)),
    ("max", |row| row.max_ns.map(exact_us)),
    ("submit us", |row| row.submission_mean_ns.map(exact_us)),
    ("submit stdev", |row| row.submission_stdev_ns.map(exact_us)),
    ("submit min", |row| row.submission_min_ns.map(exact_us)),
    ("submit max", |row| row.submission_max_ns.map(exact_us)),
    ("usr %", |row| row.cpu_user_ppm.map(exact_percent)),
    ("sys %", |row| row.cpu_system_ppm.map(exact_percent)),
    ("commands", |row| {
        let paths: Vec<String> = row.commands.iter().map(u64::to_string).collect();
        (!paths.is_empty()).then(|| paths.join("/"))
    }),
];

/// What others measured, as exactly as they say it: the columns in which some row has a figure.
fn published(rows: &[Published]) -> String {
    let has_some = |figure: &Figure| rows.iter().any(|row| figure(row).is_some());
    let some: Vec<_> = PUBLISHED.iter().filter(|(_, figure)| has_some(figure)).collect();
    let head: Vec<&str> = iter::once("Policy").chain(some.iter().map(|(name, _)| *name)).collect();
    let cells = |row: &Published| {
        let figures = some.iter().map(|(_, figure)| figure(row).unwrap_or_else(|| "-".to_owned()));
        iter::once(Shown(&row.policy).to_string()).chain(figures).collect()
    };
    columns(&head, &rows.iter().map(cells).collect::<Vec<_>>())
}

/// With two decimals where it is no whole number.
fn exact_us(ns: u64) -> String {
    match ns % 1000 / 10 {
        0 => (ns / 1000).to_string(),
        hundredths => format!("{}.{hundredths:02}", ns / 1000),
    }
}

fn exact_percent(ppm: u64) -> String {
    format!("{}.{:02}", ppm / 10_000, ppm / 100 % 100)
}

#[cfg(test)]
mod tests {
    use super::{published, text};
    use anabranch_lab::cell::Cell;
    use anabranch_lab::light;
    use anabranch_lab::report::{Material, render};
    use anabranch_lab::result::summary::Builder;
    use anabranch_lab::result::{CellResult, Circumstances, Mode};
    use anabranch_lab::scenario::file;
    use std::path::Path;

    /// The lines of a scenario's table, a space between columns.
    fn shown(name: &str) -> Vec<String> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        let loaded = file::read(&dir.join(name).with_extension("toml")).expect("it is read");
        let text = published(&loaded.scenario.published);
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    /// Who reads one of them should not learn less.
    #[test]
    fn what_the_verdict_remarks_stands_below_the_table_and_in_the_report() {
        let small = "title = \"t\"\nrun = { window = \"100ms\" }\n[[path]]\nname = \"a\"\n\
                     rate = \"100mbit\"\n[[job]]\nrw = \"randread\"\n";
        let scenario = file::parse(small, "t.toml").expect("a scenario").scenario;
        let (mut builder, mut material) = (Builder::default(), Material::default());
        for (variant, run) in (0..2).flat_map(|variant| (1..=6).map(move |run| (variant, run))) {
            let cell =
                Cell { scenario: &scenario, variant: &scenario.variants[variant], seed: run };
            let figures = light::run(cell).expect("a run");
            let how = Circumstances::simulated(Mode::Light);
            let mut cell = CellResult::new(cell, &figures, &how);
            cell.cpu_bound = variant == 0;
            // Half the throughput, and a tenth of the tail.
            let part = if variant == 0 { 1 } else { 10 };
            cell.total.bytes_s *= part.min(2);
            cell.total.latency.p99_ns *= part;
            cell.total.latency.buckets.iter_mut().for_each(|(ns, _)| *ns *= part);
            builder.add(&cell).expect("a row");
            material.cells.push(cell);
        }
        let table = &builder.finish().tables[0];
        let mut fewer = table.clone();
        fewer.rows[1].runs.truncate(4);
        assert!(text(&fewer, &scenario).contains("\nlight simulation, 4 to 6 runs of 100 ms"));
        let (shown, page) = (text(table, &scenario), render(material).replace('\u{a0}', " "));
        assert_eq!(table.verdict.remarks.len(), 2, "the tail, and the machine");
        for remark in &table.verdict.remarks {
            assert!(shown.contains(&format!("\n{remark}\n")), "{shown}");
            assert!(page.contains(&remark[1..]), "{remark}");
        }
    }

    #[test]
    fn what_counting_costs_is_shown_by_submission_latency_as_in_its_mail() {
        let lines = shown("accounting-512k");
        assert_eq!(
            lines[0],
            "Policy MiB/s IOPS mean us stdev min max submit us submit stdev submit min submit max \
             usr % sys %"
        );
        let sum = "queue-depth, sum of queues 245 490 2036.92 135.45 1739 2901 78.35 7.76 70 598 \
                   0.19 4.08";
        assert_eq!(lines[2], sum);
    }

    #[test]
    fn commands_by_path_are_shown() {
        let lines = shown("service-time-standby");
        assert_eq!((&*lines[0], &*lines[2]), ("Policy commands", "service-time standby 118052/0"));
    }

    #[test]
    fn the_cells_of_2013_have_processor_time_and_latencies_to_the_hundredth() {
        let lines = shown("grid-2013-1x1");
        assert_eq!(lines[0], "Policy IOPS mean us stdev min max usr % sys %");
        assert_eq!(lines[2], "multi-queue 81800 11.90 0.46 11 111 9.76 21.12");
    }
}
