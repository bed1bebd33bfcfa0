//! `list-subsys`: subsystems and their controllers.

use super::{address_details, details, heading, paths_of, subsystem_diag};
use crate::daemon::view::{ControllerView, HostView, NO_ADDRESS, SubsystemView};
use serde_json::{Map, Value, json};

/// The tree; `device` (a head or a controller) leaves only what leads to it.
#[must_use]
pub fn text(host: &HostView, device: Option<&str>, verbose: bool) -> String {
    let mut text = String::new();
    for subsystem in host.subsystems.iter().filter(|subsystem| leads_to(subsystem, device)) {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&heading(&host.host_nqn, subsystem, verbose));
        text.push_str("\\\n");
        for controller in shown(subsystem, device) {
            text.push_str(&format!(
                " +- {} {} {} {}",
                controller.name,
                controller.transport,
                controller.address(),
                controller.state
            ));
            if let Some(state) = ana_state(subsystem, controller, device) {
                text.push_str(&format!(" {state}"));
            }
            text.push('\n');
        }
        for controller in awaited(subsystem, device) {
            let (name, address) = (&controller.name, controller.address());
            let ControllerView { transport, state, .. } = &controller;
            text.push_str(&format!(" +- {name} {transport} {address} {state} ({NO_ADDRESS})\n"));
        }
    }
    text
}

/// nvme-cli's JSON: an array of hosts.
#[must_use]
pub fn json(host: &HostView, device: Option<&str>) -> Value {
    let subsystems: Vec<Value> = host
        .subsystems
        .iter()
        .filter(|subsystem| leads_to(subsystem, device))
        .map(|subsystem| {
            let mut paths: Vec<Value> =
                shown(subsystem, device).map(|c| path(subsystem, c, device)).collect();
            let to_come = awaited(subsystem, device);
            paths.extend(to_come.map(|controller| path(subsystem, &controller, device)));
            let mut object = Map::new();
            object.insert("Name".to_owned(), json!(subsystem.name));
            object.insert("NQN".to_owned(), json!(subsystem.nqn));
            object.extend(details(subsystem));
            object.insert("Paths".to_owned(), json!(paths));
            object.insert("Diag".to_owned(), subsystem_diag(subsystem));
            Value::Object(object)
        })
        .collect();
    json!([{ "HostNQN": host.host_nqn, "HostID": host.host_id, "Subsystems": subsystems }])
}

fn path(subsystem: &SubsystemView, controller: &ControllerView, device: Option<&str>) -> Value {
    let mut path = Map::new();
    path.insert("Name".to_owned(), json!(controller.name));
    path.insert("Transport".to_owned(), json!(controller.transport));
    path.insert("Address".to_owned(), json!(controller.address()));
    path.insert("AddressDetails".to_owned(), address_details(controller));
    path.insert("State".to_owned(), json!(controller.state));
    if let Some(state) = ana_state(subsystem, controller, device) {
        path.insert("ANAState".to_owned(), json!(state));
    }
    let options: Map<String, Value> =
        controller.options.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    let sum = |count: fn(&crate::daemon::view::PathView) -> u64| -> u64 {
        paths_of(subsystem, &controller.name).map(|(_, path)| count(path)).sum()
    };
    path.insert(
        "Diag".to_owned(),
        json!({
            "schema": super::SCHEMA,
            "cntlid": controller.cntlid,
            "io_queues": controller.io_queues,
            "queue_size": controller.queue_size,
            "reset_count": controller.resets,
            "reconnect_count": controller.reconnect_attempts,
            "last_error": controller.last_error,
            "ios": sum(|path| path.commands.iter().sum()),
            "bytes": sum(|path| path.bytes.iter().sum()),
            "command_error_count": sum(|path| path.errors),
            "command_retry_count": sum(|path| path.retries),
            "multipath_failover_count": sum(|path| path.failovers),
            "uncertain_writes_resent": sum(|path| path.uncertain_writes_resent),
            "in_flight": sum(|path| path.in_flight),
            "options": options,
        }),
    );
    Value::Object(path)
}

/// Whether `device` is this subsystem or one of its heads, controllers or paths.
pub(crate) fn leads_to(subsystem: &SubsystemView, device: Option<&str>) -> bool {
    let Some(device) = device else { return true };
    subsystem.name == device
        || subsystem.controllers.iter().any(|controller| controller.name == device)
        || subsystem.awaited.iter().any(|controller| controller.name == device)
        || subsystem
            .namespaces()
            .any(|head| head.name == device || head.paths.iter().any(|path| path.name == device))
}

/// The controllers that lead to `device`.
fn shown<'a>(
    subsystem: &'a SubsystemView,
    device: Option<&'a str>,
) -> impl Iterator<Item = &'a ControllerView> {
    subsystem.controllers.iter().filter(move |controller| match device {
        Some(device) if subsystem.controllers.iter().any(|other| other.name == device) => {
            controller.name == device
        }
        Some(device) if device != subsystem.name => paths_of(subsystem, &controller.name)
            .any(|(head, path)| head == device || path.name == device),
        _ => true,
    })
}

/// The controllers that are to come, unless `device` is something else of the subsystem.
fn awaited(
    subsystem: &SubsystemView,
    device: Option<&str>,
) -> impl Iterator<Item = ControllerView> {
    let chosen = move |name: &str| device.is_none_or(|it| it == subsystem.name || it == name);
    let all = subsystem.awaited.iter().filter(move |it| chosen(&it.name));
    all.map(|it| it.controller())
}

/// The ANA state through a controller: of `device`, or of all heads when they agree.
fn ana_state<'a>(
    subsystem: &'a SubsystemView,
    controller: &'a ControllerView,
    device: Option<&str>,
) -> Option<&'a str> {
    let of_device = device.is_some_and(|device| {
        paths_of(subsystem, &controller.name)
            .any(|(head, path)| head == device || path.name == device)
    });
    let mut states = paths_of(subsystem, &controller.name)
        .filter(|(head, path)| {
            !of_device || Some(*head) == device || Some(path.name.as_str()) == device
        })
        .map(|(_, path)| path.ana_state.as_str());
    let first = states.next()?;
    states.all(|state| state == first).then_some(first)
}
