//! Namespace heads: the devices that users see. Requests are theirs; a request is one command of a
//! path, or several.

use super::super::exposition::{Labels, Page, of};
use super::distribution::distribution;
use super::{Count, by_op, seconds_by_op, subsystem};
use anabranch_host::verb::{HeadSnapshot, SubsystemSnapshot};
use std::fmt;

/// A head, and what it is told by.
pub(super) fn heads(
    subsystems: &[SubsystemSnapshot],
) -> impl Iterator<Item = (Labels<'_>, &SubsystemSnapshot, &HeadSnapshot)> {
    subsystems.iter().flat_map(|subsystem| {
        subsystem.heads.iter().map(move |head| {
            (subsystem::labels(subsystem).with("device", &head.name), subsystem, head)
        })
    })
}

pub(super) fn write(subsystems: &[SubsystemSnapshot], page: &mut Page<'_>) -> fmt::Result {
    let all = || heads(subsystems).map(|(labels, _, head)| (labels, head));
    let info = all().map(|(labels, head)| {
        let read_only = u8::from(head.read_only).to_string();
        labels
            .and("nsid", head.nsid.to_string().into())
            .with("wwid", &head.wwid)
            .and("read_only", read_only.into())
    });
    page.infos(of("device", "A device, and what its namespace says of itself."), info)?;
    let size = of("device_size", "How large a device is.").in_unit("bytes");
    let bytes = |head: &HeadSnapshot| head.blocks.saturating_mul(head.block_bytes.into());
    page.gauges(size, all().map(|(labels, head)| (labels, bytes(head))))?;
    let paths = of("device_paths", "Paths to a device.");
    page.gauges(paths, all().map(|(labels, head)| (labels, head.paths.len() as u64)))?;
    let usable = |head: &HeadSnapshot| head.paths.iter().filter(|path| path.usable).count();
    let family = of("device_paths_usable", "Of these, those that may be chosen now.");
    page.gauges(family, all().map(|(labels, head)| (labels, usable(head) as u64)))?;
    let stops: [Count<HeadSnapshot>; 2] = [
        (of("device_quiesced", "How often it is quiesced: while not 0, its I/O waits."), |head| {
            head.quiesced.into()
        }),
        (of("device_frozen", "How often it is frozen: while not 0, it takes in no I/O."), |head| {
            head.frozen.into()
        }),
    ];
    for (family, count) in stops {
        page.gauges(family, all().map(|(labels, head)| (labels, count(head))))?;
    }
    requests(subsystems, page)
}

fn requests(subsystems: &[SubsystemSnapshot], page: &mut Page<'_>) -> fmt::Result {
    let all = || heads(subsystems).map(|(labels, _, head)| (labels, head));
    let requests = of("device_requests_completed", "Requests that ended well.");
    page.counters(requests, all().flat_map(|(labels, head)| by_op(&labels, head.requests)))?;
    let bytes = of("device", "Bytes that were read or written.").in_unit("bytes");
    page.counters(bytes, all().flat_map(|(labels, head)| by_op(&labels, head.bytes)))?;
    let time = of("device_request_time", "How long these requests took, summed.");
    page.sums(time, all().flat_map(|(labels, head)| seconds_by_op(&labels, head.latency_sums_ns)))?;
    let duration = of("device_request_duration", "How long requests took that ended well.");
    let duration = duration.in_unit("seconds");
    page.histograms(
        duration,
        all().map(|(labels, head)| (labels, distribution(&head.latency_ns))),
    )?;
    let in_flight = of("device_inflight_requests", "Requests in flight, or waiting for a path.");
    page.gauges(in_flight, all().map(|(labels, head)| (labels, head.in_flight)))?;
    let counts: [Count<HeadSnapshot>; 3] = [
        (of("device_request_errors", "Requests that failed to the user."), |head| head.errors),
        (of("io_requeued_no_path", "Commands that waited for a usable path."), |head| {
            head.requeued_no_usable_path
        }),
        (
            of("io_failed_no_path", "Commands that failed because no path might come back."),
            |head| head.failed_no_available_path,
        ),
    ];
    counts.into_iter().try_for_each(|(family, count)| {
        page.counters(family, all().map(|(labels, head)| (labels, count(head))))
    })
}
