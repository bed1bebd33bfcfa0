//! The tables of one scenario: every figure, ceilings, shares of paths, and side by side what was
//! published, simulated and run live.

use super::overview::{any_cpu_bound, class};
use super::page::{Kind, Page};
use super::study::{Field, Row, Subject};
use super::words::{
    self, NOTHING, count, exact_time, fraction, mib, milli, percent, plural, time, time_or_nothing,
};
use crate::result::stats::Paired;
use crate::result::summary::Quantiles;
use crate::result::{Ceiling, LimitResult, Measure};
use crate::scenario::Published;

/// How far a measured rate may be from what was asked for.
const RATE_TOLERANCE: f64 = 0.03;
/// The same for delays.
const DELAY_TOLERANCE_NS: u64 = 1_000_000;
/// Paths that get columns of their own.
const PATHS: usize = 16;

/// Every figure of a field.
pub(super) fn table(page: &mut Page, field: &Field) {
    let table = &field.table;
    let (least, most) = field.runs();
    let runs = match least == most {
        true => plural(most, "run", "runs"),
        false => format!("{least} to {most} runs"),
    };
    let LimitResult { iops, bytes_s, bound, .. } = &table.limit;
    let caption = format!(
        "{}: {runs} of {} after {}; limit {} MiB/s, {} requests/s, set by {bound}",
        words::mode_title(field.table.mode),
        exact_time(table.window_ns),
        exact_time(table.ramp_ns),
        mib(*bytes_s),
        count(*iops),
    );
    page.open_table("figures", caption);
    heads(page, field);
    for row in &field.rows {
        page.row(row.name());
        throughput(page, field, row);
        latencies(page, field, row);
        rest(page, field, row);
        page.end_row();
    }
    page.close_table();
    notes(page, field);
}

fn has_cpu(field: &Field) -> bool {
    field.rows.iter().any(|row| row.sum.cpu.is_some())
}

fn has_submission(field: &Field) -> bool {
    field.rows.iter().any(|row| row.sum.submission.max_ns > 0)
}

fn has_adaptations(field: &Field) -> bool {
    field.table.changes > 0
}

fn has_hosts(field: &Field) -> bool {
    // Of payload, which trims have none of.
    field.table.hosts > 1 && field.table.throughput_of.is_payload()
}

fn has_errors(field: &Field) -> bool {
    field.rows.iter().any(|row| row.sum.errors > 0)
}

fn heads(page: &mut Page, field: &Field) {
    let optional = [
        ("Submission p99", has_submission(field)),
        ("CPU user / system", has_cpu(field)),
        ("CPU per request", has_cpu(field)),
        ("Idle", has_cpu(field)),
        ("Adapts in, median", has_adaptations(field)),
        ("Worst", has_adaptations(field)),
        ("Jain", has_hosts(field)),
        ("Errors", has_errors(field)),
    ];
    let fixed = [
        "Policy",
        "MiB/s",
        "% of limit",
        "% of best",
        "95 % interval",
        "Requests/s",
        "Mean",
        "Stdev",
        "p50",
        "p99",
        "p99.9",
        "Max",
    ];
    let more = optional.into_iter().filter(|(_, is)| *is).map(|(name, _)| name);
    page.head(fixed.into_iter().chain(more));
}

fn throughput(page: &mut Page, field: &Field, row: &Row) {
    page.number(mib(row.sum.bytes_s));
    limit(page, row);
    page.number(percent(row.of_best()));
    if row.name() == field.table.verdict.best {
        page.number("best");
    } else {
        page.number(interval(&row.sum.to_best));
    }
    page.number(count(row.sum.iops));
}

/// % of the limit, with its colour.
fn limit(page: &mut Page, row: &Row) {
    page.raw(class(row.of_limit())).raw("\">").text(percent(row.of_limit()));
    if row.sum.cpu_bound {
        page.raw("<abbr title=\"CPU-bound\">†</abbr>");
    }
    page.raw("</td>");
}

fn ppm(value: u64) -> String {
    format!("{:.1}", value as f64 / 1e4)
}

fn interval(paired: &Paired) -> String {
    let sure = paired.sure(|found| format!("{} to {}", ppm(found.low_ppm), ppm(found.high_ppm)));
    sure.unwrap_or(NOTHING.to_owned())
}

fn latencies(page: &mut Page, field: &Field, row: &Row) {
    let Quantiles { mean_ns, stdev_ns, p50_ns, p99_ns, p999_ns, max_ns } = row.sum.completion;
    for ns in [mean_ns, stdev_ns, p50_ns, p99_ns, p999_ns, max_ns] {
        page.number(if max_ns == 0 { NOTHING.to_owned() } else { time(ns) });
    }
    if has_submission(field) {
        page.number(time_or_nothing(row.sum.submission.p99_ns));
    }
}

fn rest(page: &mut Page, field: &Field, row: &Row) {
    let sum = &row.sum;
    match sum.cpu {
        Some(cpu) => {
            page.number(format!("{} / {}\u{a0}%", ppm(cpu.user_ppm), ppm(cpu.system_ppm)));
            let each = cpu.user_ns_per_request.saturating_add(cpu.system_ns_per_request);
            page.number(time(each)).number(format!("{}\u{a0}%", ppm(cpu.idle_ppm)));
        }
        None if has_cpu(field) => {
            page.number(NOTHING).number(NOTHING).number(NOTHING);
        }
        None => {}
    }
    if has_adaptations(field) {
        let nothing = "not".to_owned();
        page.number(sum.adapt_median_ns.map_or(nothing.clone(), exact_time));
        page.number(match (sum.never_adapted, sum.adapt_worst_ns) {
            (0, Some(ns)) => exact_time(ns),
            (0, None) => nothing,
            (never, _) => format!("{never} × not"),
        });
    }
    if has_hosts(field) {
        page.number(format!("{:.3}", sum.jain_ppm as f64 / 1e6));
    }
    if has_errors(field) {
        page.number(count(sum.errors));
    }
}

fn notes(page: &mut Page, field: &Field) {
    let mut notes = vec![
        "Throughput: median of the runs, against the best run by run. Latencies: all runs \
         together, from the intended start of a request to its end.",
    ];
    if has_cpu(field) {
        notes.push(
            "CPU: of the hosts, 100 % is one processor; idle: of the whole machine, the least of \
             a run.",
        );
    }
    if any_cpu_bound(field) {
        notes.push("† CPU-bound, less than 20 % idle: compare ratios only.");
    }
    if has_adaptations(field) {
        notes.push(
            "Adapts: from a change until every later window of 50 ms holds 85 % of the new limit; \
             “not”: there was no such window before the next change.",
        );
    }
    if has_hosts(field) {
        notes.push("Jain: how evenly the hosts share, 1 is even.");
    }
    page.raw("<p class=\"note\">").text(notes.join(" ")).raw("</p>\n");
}

/// Which part of the payload each path carried, and what was in flight on it.
pub(super) fn shares(page: &mut Page, field: &Field) {
    let paths = field.any().paths.len();
    if paths < 2 {
        return;
    }
    let shown = paths.min(PATHS);
    let more =
        if shown < paths { format!(" (the first {shown} of {paths})") } else { String::new() };
    page.open_table("plain", format!("Paths{more}: share of payload / mean commands in flight"));
    let names = (0..shown).map(|path| field.path(path));
    page.head(std::iter::once("Policy".to_owned()).chain(names));
    for row in &field.rows {
        page.row(row.name());
        for path in 0..shown {
            let share = row.sum.shares.get(path).map_or(0, |one| one.share_ppm);
            let in_flight = row.in_flight_milli.get(path).copied().unwrap_or(0);
            page.number(format!("{}\u{a0}% / {}", ppm(share), milli(in_flight)));
        }
        page.end_row();
    }
    page.close_table();
}

/// Why a path is not what the scenario asks for.
pub(super) fn failing(ceiling: &Ceiling) -> Option<String> {
    let rate = fraction(ceiling.bytes_s, ceiling.asked_bytes_s);
    if rate.is_finite() && (rate - 1.0).abs() > RATE_TOLERANCE {
        return Some(format!("{}\u{a0}% of the rate", percent(rate)));
    }
    let off = ceiling.delay_ns.abs_diff(ceiling.asked_delay_ns);
    (off > DELAY_TOLERANCE_NS).then(|| format!("delay {} off", time(off)))
}

/// What each path gave alone.
pub(super) fn ceilings(page: &mut Page, field: &Field) {
    if field.table.ceilings.is_empty() {
        return;
    }
    page.open_table("plain", "What each path gave alone, before the runs");
    let numbers = ["MiB/s asked", "MiB/s measured", "Delay asked", "Delay measured"];
    let numbers = numbers.map(|name| (name, Kind::Number));
    let (first, last) = (("Path", Kind::Text), ("Check", Kind::Text));
    page.head_of([first].into_iter().chain(numbers).chain([last]));
    for one in &field.table.ceilings {
        page.row(&one.path).number(mib(one.asked_bytes_s)).number(mib(one.bytes_s));
        page.number(time(one.asked_delay_ns)).number(time(one.delay_ns));
        page.raw("<td>").text(failing(one).unwrap_or_else(|| "as asked".to_owned()));
        page.raw("</td>").end_row();
    }
    page.close_table();
}

/// Published, simulated and live figures of the same thing.
pub(super) fn side_by_side(page: &mut Page, subject: &Subject) {
    let none = Vec::new();
    let published = subject.scenario.as_ref().map_or(&none, |scenario| &scenario.published);
    if published.is_empty() && subject.fields.len() < 2 {
        return;
    }
    page.raw("<h4>").text("Published, simulated, live").raw("</h4>\n");
    let source = subject.scenario.as_ref().map_or("", |scenario| &scenario.source);
    let caption = match published.is_empty() {
        true => "MiB/s, and in % of the best of the column".to_owned(),
        false => format!("MiB/s, and in % of the best of the column; published: {source}"),
    };
    page.open_table("plain", caption);
    let mut heads = vec!["Policy".to_owned()];
    if !published.is_empty() {
        heads.extend(["Published".to_owned(), "requests/s".to_owned(), "mean".to_owned()]);
    }
    for field in &subject.fields {
        let scale = field.table.scale_permille;
        let name = words::mode_title(field.table.mode);
        heads.push(match scale {
            1000 => name.to_owned(),
            _ => format!("{name} (rates × {})", f64::from(scale) / 1000.0),
        });
        heads.push("% of limit".to_owned());
    }
    page.head(heads);
    let best = published.iter().filter_map(rate).max().unwrap_or(0);
    for name in row_names(subject, published) {
        page.row(&name);
        if !published.is_empty() {
            published_cells(page, published.iter().find(|row| row.policy == name), best);
        }
        for field in &subject.fields {
            measured_cells(page, field, &name);
        }
        page.end_row();
    }
    page.close_table();
}

/// Published rows in the source's order, then the other variants.
fn row_names(subject: &Subject, published: &[Published]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let variants = subject.fields.iter().flat_map(|field| &field.rows).map(|row| &row.sum.variant);
    for name in published.iter().map(|row| &row.policy).chain(variants) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// Bytes per second, both directions together.
fn rate(row: &Published) -> Option<u64> {
    row.bytes_s.or_else(|| match (row.read_bytes_s, row.write_bytes_s) {
        (None, None) => None,
        (read, write) => Some(read.unwrap_or(0).saturating_add(write.unwrap_or(0))),
    })
}

fn with_part(bytes_s: u64, part: f64) -> String {
    format!("{} ({}\u{a0}%)", mib(bytes_s), percent(part))
}

fn published_cells(page: &mut Page, row: Option<&Published>, best: u64) {
    let nothing = || NOTHING.to_owned();
    let bytes_s = row.and_then(rate);
    page.number(bytes_s.map_or_else(nothing, |b| with_part(b, fraction(b, best))));
    page.number(row.and_then(|row| row.iops).map_or_else(nothing, count));
    page.number(row.and_then(|row| row.mean_ns).map_or_else(nothing, time));
}

fn measured_cells(page: &mut Page, field: &Field, name: &str) {
    let Some(row) = field.row(name) else {
        page.number(NOTHING).number(NOTHING);
        return;
    };
    page.number(match row.counted.measure {
        Measure::Payload => with_part(row.sum.bytes_s, row.of_best()),
        Measure::Requests => {
            format!("{} ({}\u{a0}%)", words::throughput(row), percent(row.of_best()))
        }
    });
    limit(page, row);
}
