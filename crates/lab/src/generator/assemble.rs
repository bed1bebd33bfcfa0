//! From what generators recorded and drivers sampled to the figures of a cell.

use super::figures::{HostFigures, PathSample};
use crate::cell::Cell;
use crate::figures::{Books, Cpu, Figures, PathFigures, SERIES_NS, Series};
use anabranch_proto::machine::Time;

/// The figures of one cell, from those of all its hosts and, of each host and path, the samples
/// from `begin` on, in the order of time: best one every [`SERIES_NS`]. Between two samples
/// everything is taken to be even.
///
/// In flight on a path is by Little's law: how much the sum of latencies grew per time. The books'
/// commands are those of the last samples; links and charges are not known here and stay zero.
/// Errors are those of the whole run.
#[must_use]
pub fn assemble(
    cell: Cell<'_>,
    begin: Time,
    hosts: &[HostFigures],
    samples: &[Vec<Vec<PathSample>>],
    cpu: Option<Cpu>,
) -> Figures {
    let mut sum = HostFigures::default();
    hosts.iter().for_each(|host| sum.merge(host));
    let run = &cell.scenario.run;
    let mut figures = Figures::of_jobs(run.window_ns, sum.jobs);
    (figures.errors, figures.first_error) = (sum.errors, sum.first_error);
    figures.submission = sum.submission;
    figures.waited = sum.waited;
    figures.hosts = hosts.iter().map(|host| host.bytes).collect();
    figures.cpu = cpu;
    figures.books = sum.books;
    let paths = cell.scenario.paths.len();
    let count = (cell.end_ns() / SERIES_NS) as usize;
    let mut series = Series::with_capacity(paths, count);
    for window in 0..count {
        let at = |index: usize| after(begin, SERIES_NS * index as u64);
        for path in 0..paths {
            let grown = grown(samples, path, at(window), at(window + 1));
            series.bytes.push(grown.bytes);
            series.in_flight_milli.push(milli(grown.latency_ns, SERIES_NS));
            series.path_mean_ns.push(grown.latency_ns.checked_div(grown.commands).unwrap_or(0));
        }
        let ended = sum.windows.get(window).copied().unwrap_or_default();
        series.requests.push(ended.requests);
        series.mean_ns.push(ended.latency_ns.checked_div(ended.requests).unwrap_or(0));
    }
    figures.series = series;
    let (ramp, end) = (after(begin, run.ramp_ns), after(begin, cell.end_ns()));
    for path in 0..paths {
        let measured = grown(samples, path, ramp, end);
        figures.paths.push(PathFigures {
            commands: measured.commands,
            bytes: measured.bytes,
            in_flight_milli: milli(measured.latency_ns, run.window_ns),
            ..PathFigures::default()
        });
        add_commands(&mut figures.books, samples, path, begin, end);
    }
    figures
}

fn after(begin: Time, ns: u64) -> Time {
    Time::from_ns(begin.ns().saturating_add(ns))
}

/// An amount over a time as a mean, in thousandths.
fn milli(amount: u64, time_ns: u64) -> u64 {
    let mean = u128::from(amount) * 1000 / u128::from(time_ns.max(1));
    u64::try_from(mean).unwrap_or(u64::MAX)
}

/// The three sums of a sample.
#[derive(Clone, Copy, Default)]
struct Sums {
    commands: u64,
    bytes: u64,
    latency_ns: u64,
}

/// What the sums of a path grew by, on all hosts.
fn grown(samples: &[Vec<Vec<PathSample>>], path: usize, from: Time, to: Time) -> Sums {
    let mut sum = Sums::default();
    for of_path in samples.iter().filter_map(|host| host.get(path)) {
        let (before, then) = (sums_at(of_path, from), sums_at(of_path, to));
        // A path that was made anew meanwhile counts from zero again.
        sum.commands += then.commands.saturating_sub(before.commands);
        sum.bytes += then.bytes.saturating_sub(before.bytes);
        sum.latency_ns += then.latency_ns.saturating_sub(before.latency_ns);
    }
    sum
}

/// The sums at a time: of the sample taken then, or on the straight line between the two around it.
fn sums_at(samples: &[PathSample], at: Time) -> Sums {
    let next = samples.partition_point(|sample| sample.at < at);
    let (Some(b), Some(a)) = (
        samples.get(next).or(samples.last()),
        samples.get(next.saturating_sub(1)).or(samples.last()),
    ) else {
        return Sums::default();
    };
    let sums =
        |s: &PathSample| Sums { commands: s.commands, bytes: s.bytes, latency_ns: s.latency_ns };
    if at >= b.at || at <= a.at {
        return sums(if at >= b.at { b } else { a });
    }
    let (part, whole) = (at.ns() - a.at.ns(), b.at.ns() - a.at.ns());
    // At most what it grows by over the whole stretch, which is not empty.
    let line = |a: u64, b: u64| {
        a + (u128::from(b.saturating_sub(a)) * u128::from(part) / u128::from(whole)) as u64
    };
    Sums {
        commands: line(a.commands, b.commands),
        bytes: line(a.bytes, b.bytes),
        latency_ns: line(a.latency_ns, b.latency_ns),
    }
}

/// Commands from the beginning to the last sample before the end.
fn add_commands(
    books: &mut Books,
    samples: &[Vec<Vec<PathSample>>],
    path: usize,
    begin: Time,
    end: Time,
) {
    for of_path in samples.iter().filter_map(|host| host.get(path)) {
        let known = of_path.partition_point(|sample| sample.at <= end);
        let Some(last) = known.checked_sub(1).map(|last| of_path[last]) else { continue };
        let ended = last.commands.saturating_sub(sums_at(of_path, begin).commands);
        books.commands_ended += ended;
        books.commands_open += last.in_flight;
        books.commands_started += ended + last.in_flight;
    }
}
