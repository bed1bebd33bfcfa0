//! Paths: a device seen through one controller.

use super::super::exposition::{Family, Labels, Page, of};
use super::device::heads;
use super::distribution::distribution;
use super::{Count, by_op, by_state, seconds, seconds_by_op};
use anabranch_host::verb::{PathSnapshot, SubsystemSnapshot};
use anabranch_policy::{FinishTimeReport, Policy};
use anabranch_proto::nvme::ana::AnaState;
use std::fmt;

/// A path, what it is told by, and the policy of its subsystem.
type PathOf<'a> = (Labels<'a>, &'a str, &'a PathSnapshot);

fn paths(subsystems: &[SubsystemSnapshot]) -> impl Iterator<Item = PathOf<'_>> {
    heads(subsystems).flat_map(|(labels, subsystem, head)| {
        head.paths.iter().map(move |path| {
            let labels = labels.with("path", &path.name).with("controller", &path.controller);
            (labels, subsystem.iopolicy.as_str(), path)
        })
    })
}

pub(super) fn write(subsystems: &[SubsystemSnapshot], page: &mut Page<'_>) -> fmt::Result {
    let all = || paths(subsystems).map(|(labels, _, path)| (labels, path));
    let states = all().flat_map(|(labels, path)| by_state(&labels, AnaState::ALL, &path.ana_state));
    page.gauges(of("path_ana_state", "1 for the ANA state that a path is in, else 0."), states)?;
    let usable = of("path_usable", "Whether a path may be chosen now.");
    page.gauges(usable, all().map(|(labels, path)| (labels, u64::from(path.usable))))?;
    traffic(subsystems, page)?;
    counts(subsystems, page)?;
    weights(subsystems, page)?;
    estimates(subsystems, page)
}

fn traffic(subsystems: &[SubsystemSnapshot], page: &mut Page<'_>) -> fmt::Result {
    let all = || paths(subsystems).map(|(labels, _, path)| (labels, path));
    let ios = of("path_ios_completed", "Commands that ended well.");
    page.counters(ios, all().flat_map(|(labels, path)| by_op(&labels, path.commands)))?;
    let bytes = of("path", "Bytes that were read or written.").in_unit("bytes");
    page.counters(bytes, all().flat_map(|(labels, path)| by_op(&labels, path.bytes)))?;
    let time = of("path_io_time", "How long these commands took, summed.");
    page.sums(time, all().flat_map(|(labels, path)| seconds_by_op(&labels, path.latency_sums_ns)))?;
    let duration = of("path_io_duration", "How long commands took that ended well.");
    page.histograms(
        duration.in_unit("seconds"),
        all().map(|(labels, path)| (labels, distribution(&path.latency_ns))),
    )?;
    let in_flight = of("path_inflight_ios", "Commands in flight, without probes.");
    page.gauges(in_flight, all().map(|(labels, path)| (labels, path.in_flight)))?;
    let help = "Bytes in flight as service-time (per controller) or finish-time counts them.";
    let bytes = paths(subsystems).filter_map(|(labels, policy, path)| {
        let bytes = match policy {
            _ if policy == Policy::ServiceTime.name() => path.charged.bytes,
            _ => path.finish_time.as_ref()?.in_flight_bytes,
        };
        Some((labels, bytes))
    });
    page.gauges(of("path_inflight", help).in_unit("bytes"), bytes)
}

fn counts(subsystems: &[SubsystemSnapshot], page: &mut Page<'_>) -> fmt::Result {
    let all = || paths(subsystems).map(|(labels, _, path)| (labels, path));
    let counts: [Count<PathSnapshot>; 9] = [
        (of("path_errors", "Commands that ended with an error."), |path| path.errors),
        (
            of(
                "path_flawed_answers",
                "Answers of success with a wrong data digest, or without all of the data.",
            ),
            |path| path.flawed,
        ),
        (of("path_retries", "Commands that were tried again on the path."), |path| path.retries),
        (of("path_failovers", "Commands that left for another path."), |path| path.failovers),
        (
            of(
                "path_uncertain_writes_resent",
                "Writes of unknown outcome that were sent again elsewhere (fence=fast).",
            ),
            |path| path.uncertain_writes_resent,
        ),
        (
            of(
                "path_reads_rescued",
                "Reads that were stuck while the path was silent, and were sent again elsewhere.",
            ),
            |path| path.rescued,
        ),
        (of("path_probes", "Probes of finish-time, counted nowhere else."), |path| path.probes),
        (of("path_probe", "Bytes that probes asked for.").in_unit("bytes"), |path| {
            path.probe_bytes
        }),
        (of("path_probe_errors", "Probes that failed."), |path| path.probe_errors),
    ];
    counts.into_iter().try_for_each(|(family, count)| {
        page.counters(family, all().map(|(labels, path)| (labels, count(path))))
    })
}

/// What policies weigh paths with that have weights: `service-time` one for all operations.
fn weights(subsystems: &[SubsystemSnapshot], page: &mut Page<'_>) -> fmt::Result {
    let weights = paths(subsystems).flat_map(|(labels, policy, path)| {
        let weights = path.latency_weights.filter(|_| policy == Policy::Latency.name());
        let mut samples: Vec<(Labels<'_>, u64)> =
            weights.into_iter().flat_map(|all| by_op(&labels, all.map(u64::from))).collect();
        if policy == Policy::ServiceTime.name() {
            samples.push((labels.and("op", "all".into()), path.relative_throughput.into()));
        }
        samples
    });
    page.gauges(of("path_weight", "Weight of a path under service-time or latency."), weights)
}

/// What `finish-time` knows, as far as it does.
fn estimates(subsystems: &[SubsystemSnapshot], page: &mut Page<'_>) -> fmt::Result {
    let all = || {
        paths(subsystems)
            .filter_map(|(labels, _, path)| Some((labels, path.finish_time.as_deref()?)))
            .filter(|(_, known)| known.measured)
    };
    let rate = of("path_rate_estimate", "What finish-time takes a busy path to deliver.");
    let rates = || all().filter(|(_, known)| known.rate_bytes_per_s > 0);
    page.gauges(
        rate.in_unit("bytes_per_second"),
        rates().map(|(labels, known)| (labels, known.rate_bytes_per_s)),
    )?;
    let least = of("path_rate_estimate_is_least", "1: it may be more, there was no queue yet.");
    page.gauges(least, rates().map(|(labels, known)| (labels, u64::from(known.rate_is_least))))?;
    let base = of(
        "path_base_estimate",
        "Latency without a queue, of the smallest size for which finish-time knows it.",
    );
    let bases = all().flat_map(|(labels, known)| {
        let smallest = known.base_ns.map(|sizes| sizes.into_iter().find(|ns| *ns > 0));
        by_op(&labels, smallest).filter_map(|(labels, ns)| Some((labels, seconds(ns?))))
    });
    page.levels(base.in_unit("seconds"), bases)?;
    type Read = fn(&FinishTimeReport) -> Option<u64>;
    let times: [(Family, Read); 3] = [
        (
            of("path_finish_estimate", "How long a read of 4 KiB would take if it were sent now."),
            |known| Some(known.finish_ns).filter(|ns| *ns > 0),
        ),
        (of("path_standing_queue", "How long the queue takes that never empties."), |known| {
            Some(known.standing_ns)
        }),
        (
            of("path_silent", "For how long a path has not answered although it should have."),
            |known| Some(known.silent_ns),
        ),
    ];
    times.into_iter().try_for_each(|(family, read)| {
        let samples = all().filter_map(|(labels, known)| Some((labels, seconds(read(known)?))));
        page.levels(family.in_unit("seconds"), samples)
    })
}
