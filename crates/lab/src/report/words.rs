//! Numbers and lists as a reader wants them.

use super::study::Row;
use crate::result::{Measure, Mode};
use std::fmt::Display;

/// What stands for a figure that there is not.
pub(super) const NOTHING: &str = "–";

/// Three significant digits, but never fewer than the whole part.
fn three(value: f64) -> String {
    let places = match value.abs() {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    grouped(&format!("{value:.places$}"))
}

/// Thousands apart, from five digits on.
fn grouped(digits: &str) -> String {
    let (whole, rest) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let count = whole.trim_start_matches('-').len();
    if count < 5 {
        return digits.to_owned();
    }
    let mut out = String::new();
    for (i, c) in whole.chars().enumerate() {
        let left = whole.len() - i;
        if i > 0 && left.is_multiple_of(3) && !out.ends_with('-') {
            out.push('\u{202f}');
        }
        out.push(c);
    }
    out + rest
}

/// A count.
pub(super) fn count(value: u64) -> String {
    grouped(&value.to_string())
}

/// Bytes per second in MiB/s, without the unit.
pub(super) fn mib(bytes_s: u64) -> String {
    three(bytes_s as f64 / 1_048_576.0)
}

/// The throughput of a row, with its unit.
pub(super) fn throughput(row: &Row) -> String {
    match row.counted.measure {
        Measure::Payload => format!("{}\u{a0}MiB/s", mib(row.sum.bytes_s)),
        Measure::Requests => format!("{}\u{a0}requests/s", count(row.sum.iops)),
    }
}

/// The throughput of a row, and of what is possible; where the machine was the limit, that it was.
pub(super) fn reached(row: &Row) -> String {
    let throughput = throughput(row);
    match row.of_limit() {
        _ if row.sum.cpu_bound => format!("{throughput}, CPU-bound"),
        part if part.is_finite() => {
            format!("{throughput}, {}\u{a0}% of the limit", percent(part))
        }
        _ => throughput,
    }
}

/// What the terminal writes on a line, as a sentence.
pub(super) fn sentence(line: &str) -> String {
    let mut letters = line.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    let rest = letters.as_str().replace(" %", "\u{a0}%");
    format!("{}{rest}.", first.map_or(String::new(), String::from))
}

/// A time with its unit.
pub(super) fn time(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns}\u{a0}ns"),
        1_000..999_500 => (ns as f64 / 1e3, "µs"),
        999_500..999_500_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    format!("{}\u{a0}{unit}", three(value))
}

/// A time that may be missing, or 0 for "nothing was measured".
pub(super) fn time_or_nothing(ns: u64) -> String {
    if ns == 0 { NOTHING.to_owned() } else { time(ns) }
}

/// A configured time, exactly: no digits that say nothing.
pub(super) fn exact_time(ns: u64) -> String {
    for (unit_ns, unit) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")] {
        if ns >= unit_ns && ns.is_multiple_of(unit_ns / 10) {
            let tenths = ns / (unit_ns / 10);
            let rest =
                if tenths.is_multiple_of(10) { String::new() } else { format!(".{}", tenths % 10) };
            return format!("{}{rest}\u{a0}{unit}", tenths / 10);
        }
    }
    time(ns)
}

/// Hundredths of a whole, with one decimal, without the sign.
pub(super) fn percent(fraction: f64) -> String {
    if fraction.is_finite() { format!("{:.1}", fraction * 100.0) } else { NOTHING.to_owned() }
}

/// A thousandth as a number with one decimal.
pub(super) fn milli(value: u64) -> String {
    three(value as f64 / 1e3)
}

/// What part `part` is of `whole`; not a number when there is no whole.
pub(super) fn fraction(part: u64, whole: u64) -> f64 {
    if whole == 0 { f64::NAN } else { part as f64 / whole as f64 }
}

/// "a", "a and b", "a, b and c".
pub(super) fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let mut items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    match items.pop() {
        None => String::new(),
        Some(last) if items.is_empty() => last,
        Some(last) => format!("{} and {last}", items.join(", ")),
    }
}

/// A list that stops after the first few.
pub(super) fn short_list<T: Display>(items: &[T], most: usize) -> String {
    if items.len() <= most {
        return list(items);
    }
    let first: Vec<String> = items[..most].iter().map(T::to_string).collect();
    format!("{} and {} more", first.join(", "), items.len() - most)
}

/// A number and its noun.
pub(super) fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// How a mode is called in sentences.
pub(super) fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Light => "light simulation",
        Mode::Sim => "engine simulation",
        Mode::Live => "live",
    }
}

/// The same at the beginning of a heading.
pub(super) fn mode_title(mode: Mode) -> &'static str {
    match mode {
        Mode::Light => "Light simulation",
        Mode::Sim => "Engine simulation",
        Mode::Live => "Live",
    }
}
