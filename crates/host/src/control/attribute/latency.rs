//! Attributes of the policy `latency`, in debugfs as in the series that proposes it. They belong to
//! the device and can be set under any policy.

use super::ObjectKind::{Head as H, Path as P};
use super::{Attribute, Dir, Refused, Remembered, View, device, number, ro};
use crate::config::DeviceSettings;
use crate::control::subsystem::{Head, Path};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use anabranch_policy::{
    BatchTimeout, EwmaShift, InvalidShift, LatencyParameters, LatencyReport, LatencySummary,
    OpClass, SizeBucket,
};

pub(super) const HEAD: &[Attribute] = &[
    device(
        "latency_ewma_shift",
        "how slowly a smoothed latency follows: a batch counts 1/2^shift; 0 (only the newest) to 8",
        |v| Some(v.head?.settings.latency.ewma_shift.to_string()),
        set_shift,
    )
    .at(Dir::Debug),
    device(
        "latency_batch_timeout",
        "how long latencies are gathered before they are averaged: whole seconds, or with us, ms, \
         s; 0 averages at each completion",
        |v| Some(v.head?.settings.latency.batch_timeout.to_string()),
        set_batch_timeout,
    )
    .at(Dir::Debug),
    device(
        "latency_size_buckets",
        "1: latencies and weights per size of the command (7 sizes); 0: for all sizes",
        |v| switch(v, |latency| latency.size_buckets),
        |settings, value| {
            settings.latency.size_buckets = number::parse_bool(value)?;
            Ok(Remembered::Drop)
        },
    )
    .at(Dir::Debug),
    device(
        "latency_per_node",
        "1: latencies are averaged over the workers of a NUMA node; 0: each worker has its own",
        |v| switch(v, |latency| latency.per_node),
        |settings, value| {
            settings.latency.per_node = number::parse_bool(value)?;
            Ok(Remembered::Drop)
        },
    )
    .at(Dir::Debug),
    device(
        "latency_ignore_ana",
        "1: non-optimized paths compete by weight; 0: they are used when no optimized one can be",
        |v| switch(v, |latency| latency.compete),
        |settings, value| {
            settings.latency.compete = number::parse_bool(value)?;
            Ok(Remembered::Keep)
        },
    )
    .at(Dir::Debug),
    ro(
        H,
        "latency_stat",
        "per path a line with its name, then a line per data worker; for reads, writes and others: \
         weight credit score smoothed_ns selected samples ignored; with latency_size_buckets a \
         line per worker and size",
        stat_of_head,
    )
    .at(Dir::Debug),
];

pub(super) const PATH: &[Attribute] = &[ro(
    P,
    "latency_stat",
    "for reads, writes and others: weight (mean over the workers that have one) selected samples \
     ignored (sums over all workers); with latency_size_buckets a line per size",
    |v| Some(stat_of_path(v.head?, &reports(v, v.path?)?)),
)
.at(Dir::Debug)];

/// What each data worker knows about a path, in order.
fn reports(view: &View<'_>, path: &Path) -> Option<Vec<LatencyReport>> {
    let head = view.head?.id;
    let of_worker = |worker: u16| {
        let shards = view.figures.iter().filter(|(from, _)| from.0 == worker);
        let mut known = shards.flat_map(|(_, stats)| stats.of_path(head, path.controller));
        // A path that has left and come back stands there twice; one of the two is measured.
        known.find_map(|path| path.latency.as_deref().copied()).unwrap_or_default()
    };
    Some((1..=view.control.env.config.data_workers).map(of_worker).collect())
}

/// The size classes that are told apart, with what stands before the colon of their lines.
fn sizes(head: &Head) -> Vec<(SizeBucket, String)> {
    if head.settings.latency.size_buckets {
        SizeBucket::all().map(|bucket| (bucket, format!("{} ", bucket.name()))).collect()
    } else {
        alloc::vec![(SizeBucket::FIRST, String::new())]
    }
}

/// Reads, writes and others, with a space between.
fn columns<T: ToString>(of: impl Fn(OpClass) -> T) -> String {
    OpClass::ALL.map(|op| of(op).to_string()).join(" ")
}

fn stat_of_head(view: &View<'_>) -> Option<String> {
    let (subsystem, head) = (view.subsystem?, view.head?);
    let mut lines = Vec::new();
    for path in &head.paths {
        lines.push(format!("{}:", subsystem.path_name(head, path.controller_instance)));
        for (worker, report) in reports(view, path)?.iter().enumerate() {
            for (bucket, size) in sizes(head) {
                let columns = columns(|op| report.stat(op, bucket));
                lines.push(format!("cpu {worker} {size}: {columns}"));
            }
        }
    }
    Some(lines.join("\n"))
}

fn stat_of_path(head: &Head, reports: &[LatencyReport]) -> String {
    let line = |(bucket, size): (SizeBucket, String)| {
        let columns = columns(|op| -> LatencySummary {
            reports.iter().map(|report| report.stat(op, bucket)).collect()
        });
        if size.is_empty() { columns } else { format!("{size}: {columns}") }
    };
    sizes(head).into_iter().map(line).collect::<Vec<_>>().join("\n")
}

fn switch(view: &View<'_>, of: fn(&LatencyParameters) -> bool) -> Option<String> {
    Some(u8::from(of(&view.head?.settings.latency)).to_string())
}

fn set_shift(settings: &mut DeviceSettings, value: &str) -> Result<Remembered, Refused> {
    let shift = u8::try_from(number::parse_u32(value)?).map_err(|_| InvalidShift);
    settings.latency.ewma_shift = shift.and_then(EwmaShift::new).map_err(Refused::of)?;
    Ok(Remembered::Keep)
}

fn set_batch_timeout(settings: &mut DeviceSettings, value: &str) -> Result<Remembered, Refused> {
    let timeout: BatchTimeout = value.parse().map_err(|error| {
        let mut units = ["us", "ms", "s"].into_iter();
        let count = units.find_map(|unit| value.strip_suffix(unit)).unwrap_or(value);
        match number::parse_u32(count) {
            Err(too_large @ Refused::OutOfRange(_)) => too_large,
            _ => Refused::of(error),
        }
    })?;
    settings.latency.batch_timeout = timeout;
    Ok(Remembered::Keep)
}
