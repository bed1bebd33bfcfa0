//! A target's status as JSON and as text.

use crate::columns::columns;
use anabranch_target::TargetStatus;
use anabranch_target::status::{ControllerStatus, NamespaceStatus, PortStatus, SubsystemStatus};
use serde_json::{Map, Value, json};

/// As JSON; ports are counted from 1, as on the command line.
#[must_use]
pub fn json(status: &TargetStatus) -> Value {
    let ports: Vec<Value> = status.ports.iter().map(port).collect();
    let subsystems: Vec<Value> = status.subsystems.iter().map(subsystem).collect();
    let controllers: Vec<Value> = status.controllers.iter().map(controller).collect();
    json!({
        "ports": ports,
        "subsystems": subsystems,
        "controllers": controllers,
        "discovery_generation": status.discovery_generation,
        "waiting_for_buffer": status.waiting_for_buffer,
    })
}

fn port(port: &PortStatus) -> Value {
    let ana: Map<String, Value> = port
        .ana
        .iter()
        .map(|(group, state)| (group.to_string(), json!(state.to_string())))
        .collect();
    json!({
        "port": port.port + 1,
        "listen": port.at.to_string(),
        "advertised": port.advertised.map(|address| address.to_string()),
        "visible": port.visible,
        "listening": port.listening,
        "error": port.error.map(|error| error.to_string()),
        "state": port.fault.to_string(),
        "shape": port.shape.to_string(),
        "ana": ana,
        "connections": port.connections,
        "commands": port.commands,
        "damaged_commands": port.damaged_commands,
        "bytes_in": port.bytes_in,
        "bytes_out": port.bytes_out,
    })
}

fn subsystem(subsystem: &SubsystemStatus) -> Value {
    let hosts: Vec<String> = subsystem.allowed_hosts.iter().map(ToString::to_string).collect();
    let namespaces: Vec<Value> = subsystem.namespaces.iter().map(namespace).collect();
    json!({
        "nqn": subsystem.nqn.to_string(),
        "allowed_hosts": hosts,
        "namespaces": namespaces,
    })
}

fn namespace(namespace: &NamespaceStatus) -> Value {
    let counters = &namespace.counters;
    json!({
        "nsid": namespace.nsid,
        "uuid": namespace.uuid.to_string(),
        "nguid": namespace.nguid.to_string(),
        "block_bytes": namespace.block_bytes,
        "blocks": namespace.blocks,
        "ana_group": namespace.ana_group,
        "resident_bytes": namespace.resident_bytes,
        "reads": counters.reads,
        "read_bytes": counters.read_bytes,
        "writes": counters.writes,
        "written_bytes": counters.written_bytes,
        "fua_writes": counters.fua_writes,
        "flushes": counters.flushes,
        "others": counters.others,
        "errors": counters.errors,
    })
}

fn controller(controller: &ControllerStatus) -> Value {
    json!({
        "cntlid": controller.cntlid,
        "port": controller.port + 1,
        "subsystem": controller.subsystem.to_string(),
        "host": controller.host.to_string(),
        "host_id": controller.host_id.to_string(),
        "ready": controller.ready,
        "io_queues": controller.io_queues,
        "keep_alive_ms": controller.keep_alive_ms,
        "ios": controller.ios,
        "damaged_commands": controller.damaged_commands,
    })
}

/// As tables, from what [`json()`] made (it comes over the control socket).
#[must_use]
pub fn text(status: &Value) -> String {
    let part = |head: &[&str], list: &Value, keys: &[&str]| {
        let rows: Vec<Vec<String>> = list
            .as_array()
            .map(|list| list.iter().map(|item| row(item, keys)).collect())
            .unwrap_or_default();
        columns(head, &rows)
    };
    let mut ports = status["ports"].clone();
    for port in ports.as_array_mut().into_iter().flatten() {
        // Nothing is wrong with it on purpose, but its address could not be had.
        if port["state"] == "up" && port["listening"] == false {
            port["state"] = json!("not listening");
        }
    }
    let mut text = part(
        &["Port", "Listen", "State", "Shape", "ANA", "Connections", "Commands", "Damaged"],
        &ports,
        &["port", "listen", "state", "shape", "ana", "connections", "commands", "damaged_commands"],
    );
    for subsystem in status["subsystems"].as_array().into_iter().flatten() {
        text.push_str(&format!("\nSubsystem {}\n", plain(&subsystem["nqn"])));
        text.push_str(&part(
            &["NSID", "Blocks", "Block", "ANA group", "Reads", "Writes", "Errors", "UUID"],
            &subsystem["namespaces"],
            &["nsid", "blocks", "block_bytes", "ana_group", "reads", "writes", "errors", "uuid"],
        ));
    }
    text.push('\n');
    text.push_str(&part(
        &["Controller", "Port", "Queues", "I/Os", "Damaged", "Subsystem", "Host"],
        &status["controllers"],
        &["cntlid", "port", "io_queues", "ios", "damaged_commands", "subsystem", "host"],
    ));
    text
}

fn row(item: &Value, keys: &[&str]) -> Vec<String> {
    keys.iter().map(|key| plain(&item[*key])).collect()
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Object(map) => {
            let parts: Vec<String> =
                map.iter().map(|(key, value)| format!("{key}={}", plain(value))).collect();
            if parts.is_empty() { "-".to_owned() } else { parts.join(",") }
        }
        other => other.to_string(),
    }
}
