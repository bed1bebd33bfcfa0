//! Attributes of devices (heads).

use super::ObjectKind::Head as H;
use super::{Attribute, Dir, Figures, Refused, Remembered, Target, device, number, ro, rw};
use crate::config::DeviceSettings;
use crate::control::Control;
use crate::mail::HeadStats;
use crate::topology::HeadId;
use alloc::string::ToString;

pub(super) const TABLE: &[Attribute] = &[
    device(
        "delayed_removal_secs",
        "how long it stays, with I/O waiting, when its last path is gone; seconds",
        |v| Some(v.head?.settings.delayed_removal_secs.to_string()),
        set_delayed_removal,
    ),
    rw(
        H,
        "io_requeue_no_usable_path_count",
        "commands that waited for a usable path; writing 0 resets it",
        |v| {
            let count = sum(v.head?.id, v.figures, |head| head.requeued_no_usable_path);
            Some(count.saturating_sub(v.head?.requeues_base).to_string())
        },
        |control, target, value, figures| {
            reset(value)?;
            if let Some(head) = head_of(control, target) {
                head.requeues_base = sum(head.id, figures, |head| head.requeued_no_usable_path);
            }
            Ok(())
        },
    )
    .at(Dir::Diag),
    rw(
        H,
        "io_fail_no_available_path_count",
        "commands that failed for want of an available path; writing 0 resets it",
        |v| {
            let count = sum(v.head?.id, v.figures, |head| head.failed_no_available_path);
            Some(count.saturating_sub(v.head?.no_path_base).to_string())
        },
        |control, target, value, figures| {
            reset(value)?;
            if let Some(head) = head_of(control, target) {
                head.no_path_base = sum(head.id, figures, |head| head.failed_no_available_path);
            }
            Ok(())
        },
    )
    .at(Dir::Diag),
    device(
        "explain_sample",
        "one in so many choices of a worker is noted in full, for explain; 1: all, 0: none",
        |v| Some(v.head?.settings.explain_sample.to_string()),
        set_explain_sample,
    )
    .at(Dir::Debug),
    ro(
        H,
        "io_affinity_map_misses",
        "choices under io-affinity by workers that no path belonged to",
        |v| Some(sum(v.head?.id, v.figures, |head| head.affinity_misses).to_string()),
    )
    .at(Dir::Diag),
];

fn set_explain_sample(settings: &mut DeviceSettings, value: &str) -> Result<Remembered, Refused> {
    settings.explain_sample = number::parse_u32(value)?;
    Ok(Remembered::Keep)
}

fn set_delayed_removal(settings: &mut DeviceSettings, value: &str) -> Result<Remembered, Refused> {
    settings.delayed_removal_secs = number::parse_u32(value)?;
    Ok(Remembered::Keep)
}

/// Counters take nothing but 0.
pub(super) fn reset(value: &str) -> Result<(), Refused> {
    match number::parse_u32(value)? {
        0 => Ok(()),
        _ => Err("only 0 can be written: it resets".into()),
    }
}

fn sum(id: HeadId, figures: &Figures<'_>, of: fn(&HeadStats) -> u64) -> u64 {
    figures.iter().flat_map(|(_, stats)| stats.of_head(id)).map(of).sum()
}

fn head_of<'a>(
    control: &'a mut Control,
    target: &Target,
) -> Option<&'a mut crate::control::subsystem::Head> {
    match *target {
        Target::Head(at, head) => Some(&mut control.subsystems[at].heads[head]),
        _ => None,
    }
}
