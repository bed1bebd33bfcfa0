//! `show-topology`: heads, paths and controllers, ranked as asked.

use super::{address_details, details, heading, paths_of, subsystem_diag};
use crate::columns::columns;
use crate::daemon::view::{
    AwaitedView, ControllerView, HeadView, HostView, IgnoredView, NO_ADDRESS, PathView,
    SubsystemView, out_of_use, stopped,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What stands first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Ranking {
    /// Namespaces, then the controllers that lead to them.
    Namespace,
    /// Controllers, then the namespaces behind them.
    Ctrl,
    /// A table of heads and paths.
    Multipath,
}

/// The tree or table; `device` leaves only its subsystem.
#[must_use]
pub fn text(host: &HostView, device: Option<&str>, ranking: Ranking, verbose: bool) -> String {
    let mut text = String::new();
    for subsystem in
        host.subsystems.iter().filter(|subsystem| super::subsys::leads_to(subsystem, device))
    {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&heading(&host.host_nqn, subsystem, verbose));
        text.push_str(&match ranking {
            Ranking::Namespace => {
                by_namespace(subsystem) + &ignored_by_namespace(subsystem) + &to_come(subsystem)
            }
            Ranking::Ctrl => by_controller(subsystem) + &to_come(subsystem),
            Ranking::Multipath => format!("\n{}", by_path(subsystem)),
        });
    }
    text
}

fn controller_of<'a>(subsystem: &'a SubsystemView, path: &PathView) -> Option<&'a ControllerView> {
    subsystem.controllers.iter().find(|controller| controller.name == path.controller)
}

fn controller_line(controller: &ControllerView) -> String {
    format!("{} {} {}", controller.name, controller.transport, controller.address())
}

/// The controller's state and the ANA state, and what else keeps the path from being chosen.
fn states(controller: &ControllerView, path: &PathView) -> String {
    let states = format!("{} {}", controller.state, path.ana_state);
    match hindrance(&controller.state, path) {
        Some(word) => format!("{states} ({word})"),
        None => states,
    }
}

/// What keeps a path from being chosen that might be by its states.
fn hindrance(controller_state: &str, path: &PathView) -> Option<String> {
    let word = out_of_use(controller_state, &path.ana_state, path.hindrance.as_deref());
    (!path.usable && word != controller_state && word != path.ana_state).then_some(word)
}

/// A namespace, and what keeps its device from its work.
struct Shown<'a> {
    head: &'a HeadView,
    stop: String,
}

/// Also those without a device so far: whoever looks for one finds out why.
fn shown(subsystem: &SubsystemView) -> impl Iterator<Item = Shown<'_>> {
    let devices = subsystem.heads.iter().map(|head| {
        let stop = stopped(head.quiesced, head.frozen);
        Shown { head, stop: stop.map_or_else(String::new, |word| format!(" ({word})")) }
    });
    let unborn = subsystem.unborn.iter();
    devices.chain(unborn.map(|head| Shown { head, stop: " (no device yet)".to_owned() }))
}

/// The controller's state and what else keeps the path or its device from their work.
fn state(controller: &ControllerView, stop: &str, path: &PathView) -> String {
    match hindrance(&controller.state, path) {
        Some(word) => format!("{} ({word})", controller.state),
        None => controller.state.clone() + stop,
    }
}

fn by_namespace(subsystem: &SubsystemView) -> String {
    let mut text = "\\\n".to_owned();
    for Shown { head, stop } in shown(subsystem) {
        text.push_str(&format!(" +- ns {}{stop}\n \\\n", head.nsid));
        for path in &head.paths {
            if let Some(controller) = controller_of(subsystem, path) {
                let line = controller_line(controller);
                text.push_str(&format!("  +- {line} {}\n", states(controller, path)));
            }
        }
    }
    text
}

/// Namespaces that are no device's, each with the controllers that show it and why.
fn ignored(subsystem: &SubsystemView) -> BTreeMap<u32, Vec<(&ControllerView, &str)>> {
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for controller in &subsystem.controllers {
        for IgnoredView { nsid, why } in &controller.ignored {
            all.entry(*nsid).or_default().push((controller, why.as_str()));
        }
    }
    all
}

fn ignored_by_namespace(subsystem: &SubsystemView) -> String {
    let mut text = String::new();
    for (nsid, shown_by) in ignored(subsystem) {
        text.push_str(&format!(" +- ns {nsid} (ignored)\n \\\n"));
        for (controller, why) in shown_by {
            let line = controller_line(controller);
            text.push_str(&format!("  +- {line} {} ({why})\n", controller.state));
        }
    }
    text
}

/// Nothing leads through these yet.
fn to_come(subsystem: &SubsystemView) -> String {
    let controllers = subsystem.awaited.iter().map(AwaitedView::controller);
    let line =
        |it: ControllerView| format!(" +- {} {} ({NO_ADDRESS})\n", controller_line(&it), it.state);
    controllers.map(line).collect()
}

fn by_controller(subsystem: &SubsystemView) -> String {
    let mut text = "\\\n".to_owned();
    for controller in &subsystem.controllers {
        text.push_str(&format!(" +- {}\n \\\n", controller_line(controller)));
        for Shown { head, stop } in shown(subsystem) {
            for path in head.paths.iter().filter(|path| path.controller == controller.name) {
                let states = states(controller, path);
                text.push_str(&format!("  +- ns {}{stop} {states}\n", head.nsid));
            }
        }
        for IgnoredView { nsid, why } in &controller.ignored {
            text.push_str(&format!("  +- ns {nsid} (ignored: {why})\n"));
        }
    }
    text
}

const COLUMNS: [&str; 10] = [
    "NSHead",
    "NSID",
    "NSPath",
    "ANAState",
    "Nodes",
    "Qdepth",
    "Controller",
    "TrType",
    "Address",
    "State",
];

/// `-->` stands for a head that was named in a row above, as in nvme-cli.
fn by_path(subsystem: &SubsystemView) -> String {
    let mut rows = Vec::new();
    for Shown { head, stop } in shown(subsystem) {
        for (index, path) in head.paths.iter().enumerate() {
            let controller = controller_of(subsystem, path);
            let of = |field: fn(&ControllerView) -> String| controller.map(field);
            rows.push(vec![
                if index == 0 { head.name.clone() } else { "-->".to_owned() },
                head.nsid.to_string(),
                path.name.clone(),
                path.ana_state.clone(),
                nodes(path),
                queue_depth(subsystem, path),
                path.controller.clone(),
                of(|c| c.transport.clone()).unwrap_or_default(),
                of(ControllerView::address).unwrap_or_default(),
                controller.map(|c| state(c, &stop, path)).unwrap_or_default(),
            ]);
        }
        if head.paths.is_empty() {
            // It is there for as long as `delayed_removal_secs` says.
            let mut row = vec![head.name.clone(), head.nsid.to_string()];
            row.resize(COLUMNS.len() - 1, "-".to_owned());
            row.push(format!("no path{stop}"));
            rows.push(row);
        }
    }
    for (nsid, shown_by) in ignored(subsystem) {
        for (controller, why) in shown_by {
            rows.push(row_of_controller(Some(nsid), controller, &format!("ignored: {why}")));
        }
    }
    for controller in subsystem.awaited.iter().map(AwaitedView::controller) {
        rows.push(row_of_controller(None, &controller, NO_ADDRESS));
    }
    columns(&COLUMNS, &rows)
}

/// A controller that leads to no device, to this namespace or not yet to any.
fn row_of_controller(nsid: Option<u32>, controller: &ControllerView, why: &str) -> Vec<String> {
    let mut row = vec!["-".to_owned(); COLUMNS.len() - 4];
    row[1] = nsid.map_or_else(|| "-".to_owned(), |nsid| nsid.to_string());
    row.extend([controller.name.clone(), controller.transport.clone(), controller.address()]);
    row.push(format!("{} ({why})", controller.state));
    row
}

/// Only `queue-depth` counts it.
fn queue_depth(subsystem: &SubsystemView, path: &PathView) -> String {
    match subsystem.iopolicy.as_str() {
        "queue-depth" => path.queue_depth.to_string(),
        _ => "-".to_owned(),
    }
}

fn nodes(path: &PathView) -> String {
    let nodes: Vec<String> = path.numa_nodes.iter().map(u32::to_string).collect();
    if nodes.is_empty() { "-".to_owned() } else { nodes.join(",") }
}

/// nvme-cli's JSON: an array of hosts.
#[must_use]
pub fn json(host: &HostView, device: Option<&str>, ranking: Ranking) -> Value {
    let subsystems: Vec<Value> = host
        .subsystems
        .iter()
        .filter(|subsystem| super::subsys::leads_to(subsystem, device))
        .map(|subsystem| {
            let mut object = Map::new();
            object.insert("Name".to_owned(), json!(subsystem.name));
            object.insert("NQN".to_owned(), json!(subsystem.nqn));
            object.extend(details(subsystem));
            let mut diag = subsystem_diag(subsystem);
            // What looks for devices among the namespaces would take these for some.
            let unborn = subsystem.unborn.iter().map(|head| with_paths(subsystem, head));
            diag["without_device"] = unborn.collect();
            let to_come = subsystem.awaited.iter().map(AwaitedView::controller);
            diag["without_address"] =
                to_come.map(|controller| Value::Object(controller_json(&controller))).collect();
            diag["ignored"] = ignored_json(subsystem);
            object.insert("Diag".to_owned(), diag);
            // nvme-cli's JSON is the same whatever stands first.
            let heads = subsystem.heads.iter().map(|head| with_paths(subsystem, head));
            object.insert("Namespaces".to_owned(), heads.collect());
            if ranking == Ranking::Ctrl {
                let controllers = subsystem.controllers.iter();
                let controllers = controllers.map(|it| with_namespaces(subsystem, it));
                object.insert("Controllers".to_owned(), controllers.collect());
            }
            Value::Object(object)
        })
        .collect();
    json!([{ "HostNQN": host.host_nqn, "HostID": host.host_id, "Subsystems": subsystems }])
}

fn ignored_json(subsystem: &SubsystemView) -> Value {
    let all = ignored(subsystem).into_iter();
    let all = all.flat_map(|(nsid, by)| by.into_iter().map(move |(it, why)| (nsid, it, why)));
    all.map(|(nsid, it, why)| json!({ "NSID": nsid, "Controller": it.name, "why": why })).collect()
}

fn controller_json(controller: &ControllerView) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("Name".to_owned(), json!(controller.name));
    object.insert("Transport".to_owned(), json!(controller.transport));
    object.insert("Address".to_owned(), json!(controller.address()));
    object.insert("AddressDetails".to_owned(), address_details(controller));
    object.insert("State".to_owned(), json!(controller.state));
    object
}

fn with_namespaces(subsystem: &SubsystemView, controller: &ControllerView) -> Value {
    let namespaces: Vec<Value> = paths_of(subsystem, &controller.name)
        .filter_map(|(name, path)| {
            let head = subsystem.heads.iter().find(|head| head.name == name)?;
            Some(json!({
                "NSID": head.nsid,
                "Name": head.name,
                "Path": path.name,
                "ANAState": path.ana_state,
            }))
        })
        .collect();
    let mut object = controller_json(controller);
    object.insert("Namespaces".to_owned(), json!(namespaces));
    Value::Object(object)
}

fn with_paths(subsystem: &SubsystemView, head: &HeadView) -> Value {
    let paths: Vec<Value> = head.paths.iter().map(|path| path_json(subsystem, path)).collect();
    json!({ "NSID": head.nsid, "Name": head.name, "Paths": paths })
}

/// nvme-cli shows the attribute that the policy in force goes by.
fn path_json(subsystem: &SubsystemView, path: &PathView) -> Value {
    let mut object = Map::new();
    object.insert("Path".to_owned(), json!(path.name));
    object.insert("ANAState".to_owned(), json!(path.ana_state));
    match subsystem.iopolicy.as_str() {
        "numa" => {
            object.insert("NUMANodes".to_owned(), json!(nodes(path)));
        }
        "queue-depth" => {
            object.insert("Qdepth".to_owned(), json!(path.queue_depth));
        }
        _ => {}
    }
    let controller: Vec<Value> = controller_of(subsystem, path)
        .map(|controller| Value::Object(controller_json(controller)))
        .into_iter()
        .collect();
    object.insert("Controller".to_owned(), json!(controller));
    object.insert(
        "Diag".to_owned(),
        json!({
            "schema": super::SCHEMA,
            "usable": path.usable,
            "hindrance": path.hindrance,
            "ana_group": path.ana_group,
            "reads": path.commands[0],
            "writes": path.commands[1],
            "others": path.commands[2],
            "read_bytes": path.bytes[0],
            "written_bytes": path.bytes[1],
            "command_error_count": path.errors,
            "flawed_answer_count": path.flawed,
            "command_retry_count": path.retries,
            "multipath_failover_count": path.failovers,
            "uncertain_writes_resent": path.uncertain_writes_resent,
            "in_flight": path.in_flight,
            "in_flight_bytes": subsystem.charged_bytes(path),
            "probes": path.probes,
            "probe_bytes": path.probe_bytes,
            "probe_error_count": path.probe_errors,
            "rescued_reads": path.rescued,
            "relative_throughput": path.relative_throughput,
            "lat_ns": path.lat_ns,
        }),
    );
    Value::Object(object)
}
