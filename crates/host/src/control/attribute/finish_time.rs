//! Attributes of the policy `finish-time`: its switches, which belong to the subsystem, and what it
//! knows of a path, which stands beside `latency_stat`.

use super::ObjectKind::Path as P;
use super::{Attribute, Dir, Refused, Remembered, View, number, parameter, ro};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use anabranch_policy::{FinishTimeParameters, FinishTimeReport, Parameters, SizeClass};

pub(super) const SUBSYSTEM: &[Attribute] = &[
    parameter(
        "finish_time_tail",
        "finish-time: 1: short tails come before the last per cents of throughput; 0: throughput",
        |v| switch(v, |finish_time| finish_time.tail),
        |parameters, value| set(parameters, value, |f, on| f.tail = on),
    ),
    parameter(
        "finish_time_compete",
        "finish-time: 1: non-optimized paths compete by merit; 0: they are used when no optimized \
         one can be",
        |v| switch(v, |finish_time| finish_time.compete),
        |parameters, value| set(parameters, value, |f, on| f.compete = on),
    ),
    parameter(
        "finish_time_probes",
        "finish-time: 1: reads that nobody waits for look at paths that nobody uses, at most 1 % \
         of the bytes, and reads that are stuck on a path that has fallen silent are sent again \
         elsewhere; 0: nothing is sent twice",
        |v| switch(v, |finish_time| finish_time.probes),
        |parameters, value| set(parameters, value, |f, on| f.probes = on),
    ),
];

pub(super) const PATH: &[Attribute] = &[ro(
    P,
    "finish_time_stat",
    "what finish-time has measured, a line each: rate, latency without a queue by operation and \
     size, in flight, predicted finish of a 4 KiB read, standing queue, toll, elasticity, \
     probes, silence",
    stat,
)
.at(Dir::Debug)];

fn switch(view: &View<'_>, of: fn(&FinishTimeParameters) -> bool) -> Option<String> {
    Some(u8::from(of(&view.subsystem?.parameters.finish_time)).to_string())
}

/// What was measured is as good under the new setting.
fn set(
    parameters: &mut Parameters,
    value: &str,
    set: fn(&mut FinishTimeParameters, bool),
) -> Result<Remembered, Refused> {
    set(&mut parameters.finish_time, number::parse_bool(value)?);
    Ok(Remembered::Keep)
}

/// What each data worker says about the path.
fn reports<'a>(view: &'a View<'_>) -> impl Iterator<Item = &'a FinishTimeReport> {
    view.path_figures().filter_map(|(_, path)| path.finish_time.as_deref())
}

/// Before any worker has said something.
const NOTHING: FinishTimeReport = FinishTimeReport {
    measured: false,
    rate_bytes_per_s: 0,
    rate_is_least: false,
    apart_bytes_per_s: None,
    in_flight_bytes: 0,
    base_ns: [[0; SizeClass::COUNT]; 2],
    finish_ns: 0,
    outliers_ns: 0,
    standing_ns: 0,
    toll_ns: 0,
    elasticity_percent: None,
    silent_ns: 0,
    probes: 0,
    probe_bytes: 0,
};

fn stat(view: &View<'_>) -> Option<String> {
    view.path?;
    // All workers share what is known: the first to say something says everything.
    let rescued = view.path_figures().map(|(_, path)| path.rescued).sum();
    Some(text(reports(view).next().unwrap_or(&NOTHING), rescued))
}

fn text(report: &FinishTimeReport, rescued: u64) -> String {
    let [reads, writes] = &report.base_ns;
    let known = |ns: u64| if report.measured { us(ns) } else { String::from("not known") };
    let lines = [
        format!("rate: {}{}", rate(report), apart(report)),
        format!("read latency without a queue: {}", bases(reads)),
        format!("write latency without a queue: {}", bases(writes)),
        format!("in flight: {} (4 KiB more for each command)", kib(report.in_flight_bytes)),
        format!("a read of 4 KiB would take: {}", known(report.finish_ns)),
        format!("outliers: {} on average of all commands", known(report.outliers_ns)),
        format!("standing queue: {}", known(report.standing_ns)),
        format!("toll: {}", known(report.toll_ns)),
        format!("elasticity: {}", elasticity(report)),
        format!("probes: {}, {}", report.probes, kib(report.probe_bytes)),
        format!("silent for: {}", us(report.silent_ns)),
        format!("reads sent again elsewhere: {rescued}"),
    ];
    lines.join("\n")
}

fn rate(report: &FinishTimeReport) -> String {
    match report.rate_bytes_per_s {
        _ if !report.measured => String::from("not measured"),
        0 => String::from("not known"),
        rate if report.rate_is_least => {
            format!("at least {} MiB/s (there was no queue yet)", tenths(rate, 1 << 20))
        }
        rate => format!("{} MiB/s", tenths(rate, 1 << 20)),
    }
}

/// Where reads and writes are predicted apart.
fn apart(report: &FinishTimeReport) -> String {
    let mib = |rate| tenths(rate, 1 << 20);
    let told = report.apart_bytes_per_s.map(|[reads, writes]| {
        format!("; apart: reads {} MiB/s, writes {} MiB/s", mib(reads), mib(writes))
    });
    told.unwrap_or_default()
}

fn elasticity(report: &FinishTimeReport) -> String {
    match report.elasticity_percent {
        None => String::from("not known"),
        Some(percent) => format!("{percent} % (100 %: more in flight only waits longer)"),
    }
}

/// The sizes that are known.
fn bases(of: &[u64; SizeClass::COUNT]) -> String {
    let known = SizeClass::all().zip(of).filter(|(_, ns)| **ns > 0);
    let known: Vec<String> =
        known.map(|(size, ns)| format!("{} {}", size.name(), us(*ns))).collect();
    if known.is_empty() { String::from("not known") } else { known.join(", ") }
}

fn us(ns: u64) -> String {
    format!("{} us", tenths(ns, 1000))
}

fn kib(bytes: u64) -> String {
    format!("{} KiB", bytes.div_ceil(1024))
}

/// In this unit, to one tenth.
fn tenths(value: u64, unit: u64) -> String {
    let tenths = u128::from(value) * 10 / u128::from(unit);
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_told_in_words_and_units() {
        let first = "rate: not measured\nread latency without a queue: not known\n";
        assert!(text(&NOTHING, 0).starts_with(first), "{}", text(&NOTHING, 0));
        let mut report = FinishTimeReport { measured: true, ..NOTHING };
        report.rate_bytes_per_s = 242_640_000;
        report.base_ns[0][0] = 95_260;
        report.base_ns[0][4] = 310_000;
        report.in_flight_bytes = 24 << 10;
        report.finish_ns = 640_120;
        report.outliers_ns = 62_340;
        report.standing_ns = 90;
        report.toll_ns = 1_250_000;
        report.elasticity_percent = Some(83);
        (report.probes, report.probe_bytes) = (12, 48 << 10);
        report.silent_ns = 2_500_000;
        let told = "rate: 231.3 MiB/s\n\
                    read latency without a queue: <=4k 95.2 us, 64k 310.0 us\n\
                    write latency without a queue: not known\n\
                    in flight: 24 KiB (4 KiB more for each command)\n\
                    a read of 4 KiB would take: 640.1 us\n\
                    outliers: 62.3 us on average of all commands\n\
                    standing queue: 0.0 us\n\
                    toll: 1250.0 us\n\
                    elasticity: 83 % (100 %: more in flight only waits longer)\n\
                    probes: 12, 48 KiB\n\
                    silent for: 2500.0 us\n\
                    reads sent again elsewhere: 3";
        assert_eq!(text(&report, 3), told);
        report.rate_is_least = true;
        let told = text(&report, 0);
        let first = "rate: at least 231.3 MiB/s (there was no queue yet)\n";
        assert!(told.starts_with(first), "{told}");
        report.rate_is_least = false;
        report.apart_bytes_per_s = Some([1 << 30, 100 << 20]);
        let told = text(&report, 0);
        let first = "rate: 231.3 MiB/s; apart: reads 1024.0 MiB/s, writes 100.0 MiB/s\n";
        assert!(told.starts_with(first), "{told}");
    }
}
