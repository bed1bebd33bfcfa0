//! Attributes of paths.

use super::ObjectKind::Path as P;
use super::head::reset;
use super::{Attribute, Dir, Figures, Refused, Target, View, mask, number, ro, rw};
use crate::control::Control;
use crate::control::affinity::workers_of;
use crate::control::subsystem::Path;
use crate::mail::PathStats;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use anabranch_policy::{MAX_RELATIVE_THROUGHPUT, Policy};

pub(super) const TABLE: &[Attribute] = &[
    ro(P, "ana_state", "ANA state; shown when its controller uses ANA", |v| {
        let used = v.controller?.ana.is_used();
        used.then_some(v.condition()?.ana_state.to_string())
    }),
    ro(P, "ana_grpid", "ANA group; shown when its controller uses ANA", |v| {
        let used = v.controller?.ana.is_used();
        used.then_some(v.condition()?.ana_group.to_string())
    }),
    ro(P, "usable", "1 when it may be chosen now", |v| {
        Some(u8::from(v.condition()?.usable()).to_string())
    }),
    ro(
        P,
        "queue_depth",
        "commands in flight in the ledger of queue_depth_scope, all workers; empty unless iopolicy \
         is queue-depth",
        |v| {
            let depth = || Some(queue_depth(v)?.to_string());
            under(v, Policy::QueueDepth, depth)
        },
    ),
    ro(
        P,
        "in_flight_bytes",
        "payload bytes in flight on its controller; empty unless iopolicy is service-time",
        |v| {
            let bytes = || Some(v.controller?.load.ledger.in_flight_bytes().to_string());
            under(v, Policy::ServiceTime, bytes)
        },
    ),
    rw(
        P,
        "relative_throughput",
        "weight of its controller under service-time, 0 (standby) to 100; empty unless iopolicy is \
         service-time, can be written under any",
        |v| {
            let weight = || Some(v.controller?.load.ledger.relative_throughput().to_string());
            under(v, Policy::ServiceTime, weight)
        },
        set_relative_throughput,
    ),
    ro(P, "numa_nodes", "nodes that use it; empty unless iopolicy is numa", |v| {
        under(v, Policy::Numa, || Some(print_nodes(&nodes(v))))
    }),
    rw(
        P,
        "io_affinity",
        "data workers that it belongs to under io-affinity, a hexadecimal bitmap; until one is \
         written the workers have the paths in turn, after that a path without belongs to nobody",
        |v| {
            let (head, path, config) = (v.head?, v.path?, &v.control.env.config);
            let index = head.paths.iter().position(|other| core::ptr::eq(other, path))?;
            Some(mask::print(&workers_of(head, index, config), config.data_workers))
        },
        set_affinity,
    ),
    rw(
        P,
        "multipath_failover_count",
        "commands that left it for another path; writing 0 resets it",
        |v| Some(sum(v, FAILOVERS).saturating_sub(v.path?.failovers_base).to_string()),
        |control, target, value, figures| {
            reset_count(control, target, value, figures, FAILOVERS, |path| &mut path.failovers_base)
        },
    )
    .at(Dir::Diag),
    rw(
        P,
        "command_error_count",
        "times that a command on it ended with an error, whoever found it; writing 0 resets it",
        |v| Some(sum(v, ERRORS).saturating_sub(v.path?.errors_base).to_string()),
        |control, target, value, figures| {
            reset_count(control, target, value, figures, ERRORS, |path| &mut path.errors_base)
        },
    )
    .at(Dir::Diag),
    // Linux 7.3 has the one name, nvme-cli asks for the other.
    retries("command_retries_count"),
    retries("command_retry_count"),
];

const fn retries(name: &'static str) -> Attribute {
    rw(
        P,
        name,
        "times that a command was tried again on it; writing 0 resets it",
        |v| Some(sum(v, RETRIES).saturating_sub(v.path?.retries_base).to_string()),
        |control, target, value, figures| {
            reset_count(control, target, value, figures, RETRIES, |path| &mut path.retries_base)
        },
    )
    .at(Dir::Diag)
}

const FAILOVERS: fn(&PathStats) -> u64 = |path| path.failovers;
const ERRORS: fn(&PathStats) -> u64 = |path| path.errors;
const RETRIES: fn(&PathStats) -> u64 = |path| path.retries;

/// What is shown under one policy and is an empty text under the others.
fn under(view: &View<'_>, policy: Policy, text: impl FnOnce() -> Option<String>) -> Option<String> {
    if view.subsystem?.parameters.policy == policy { text() } else { Some(String::new()) }
}

fn queue_depth(view: &View<'_>) -> Option<u32> {
    let scope = view.subsystem?.parameters.scope;
    Some(view.controller?.load.queue_depth(scope, &view.path?.load))
}

/// The weight belongs to the controller: all of its namespaces have it, over reconnects. Selection
/// reads it with every command, so nothing needs to be told.
fn set_relative_throughput(
    control: &mut Control,
    target: &Target,
    value: &str,
    _figures: &Figures<'_>,
) -> Result<(), Refused> {
    let weight = number::parse_u32(value)?;
    if weight > MAX_RELATIVE_THROUGHPUT {
        return Err(format!("{weight} is not between 0 and {MAX_RELATIVE_THROUGHPUT}").into());
    }
    if let Target::Path(_, _, controller) = target
        && let Some(controller) = control.controllers.get(controller)
    {
        controller.load.ledger.set_relative_throughput(weight);
    }
    Ok(())
}

/// Belongs to the path, as in device-mapper: it is set anew for one that was removed and added.
fn set_affinity(
    control: &mut Control,
    target: &Target,
    value: &str,
    _figures: &Figures<'_>,
) -> Result<(), Refused> {
    let workers = mask::parse(value, control.env.config.data_workers)?;
    if let Target::Path(at, head, controller) = *target
        && let Some(path) = control.subsystems[at].heads[head].path_mut(controller)
        && path.io_affinity.as_ref() != Some(&workers)
    {
        path.io_affinity = Some(workers);
        control.env.dirty = true;
    }
    Ok(())
}

fn sum(view: &View<'_>, of: fn(&PathStats) -> u64) -> u64 {
    view.path_figures().map(|(_, path)| of(path)).sum()
}

/// From now on a counter starts from what it is.
fn reset_count(
    control: &mut Control,
    target: &Target,
    value: &str,
    figures: &Figures<'_>,
    of: fn(&PathStats) -> u64,
    base: fn(&mut Path) -> &mut u64,
) -> Result<(), Refused> {
    reset(value)?;
    let from = sum(&control.view(target, figures), of);
    if let Target::Path(at, head, controller) = *target
        && let Some(path) = control.subsystems[at].heads[head].path_mut(controller)
    {
        *base(path) = from;
    }
    Ok(())
}

/// Nodes whose workers have the path cached, ascending.
fn nodes(view: &View<'_>) -> Vec<u32> {
    let cached = view.path_figures().filter(|(_, path)| path.numa_cached);
    let mut nodes: Vec<u32> = cached.map(|(worker, _)| view.control.node_of(worker)).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// As the kernel prints a node list: `0-1,3`.
fn print_nodes(nodes: &[u32]) -> String {
    let mut text = String::new();
    let mut at = 0;
    while at < nodes.len() {
        let start = nodes[at];
        while at + 1 < nodes.len() && nodes[at + 1] == nodes[at] + 1 {
            at += 1;
        }
        let comma = if text.is_empty() { "" } else { "," };
        if nodes[at] == start {
            text.push_str(&format!("{comma}{start}"));
        } else {
            text.push_str(&format!("{comma}{start}-{}", nodes[at]));
        }
        at += 1;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::print_nodes;

    #[test]
    fn node_lists_look_like_the_kernels() {
        for (nodes, text) in [
            (&[][..], ""),
            (&[0], "0"),
            (&[0, 1], "0-1"),
            (&[0, 1, 3], "0-1,3"),
            (&[0, 2, 3, 4, 7], "0,2-4,7"),
        ] {
            assert_eq!(print_nodes(nodes), text);
        }
    }
}
