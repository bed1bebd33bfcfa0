//! `list`: the devices; with `-v` subsystems and controllers, too.

use super::{address_details, paths_of};
use crate::columns::columns;
use crate::daemon::view::{ControllerView, HeadView, HostView, SubsystemView};
use crate::units::decimal_size;
use serde_json::{Value, json};

fn devices(host: &HostView) -> impl Iterator<Item = (&SubsystemView, &HeadView)> {
    host.subsystems
        .iter()
        .flat_map(|subsystem| subsystem.heads.iter().map(move |head| (subsystem, head)))
}

/// nvme-cli's table, without the `/dev` nodes that a host in user space does not have.
#[must_use]
pub fn text(host: &HostView) -> String {
    let rows: Vec<Vec<String>> = devices(host)
        .map(|(subsystem, head)| {
            vec![
                head.name.clone(),
                subsystem.serial.clone(),
                subsystem.model.clone(),
                format!("{:#x}", head.nsid),
                usage(head),
                format(head),
                subsystem.firmware.clone(),
            ]
        })
        .collect();
    columns(&["Node", "SN", "Model", "Namespace", "Usage", "Format", "FW Rev"], &rows)
}

/// In use and in all: NUSE and NSZE.
fn usage(head: &HeadView) -> String {
    let [used, all] = [head.used_blocks, head.blocks].map(|blocks| {
        let (size, unit) = decimal_size(blocks.saturating_mul(head.block_bytes.into()));
        format!("{size:6.2}  {unit:>2}")
    });
    format!("{used} / {all}")
}

fn format(head: &HeadView) -> String {
    let (block, unit) = if head.block_bytes >= 1024 {
        (head.block_bytes / 1024, "KiB")
    } else {
        (head.block_bytes, "B")
    };
    format!("{block:3} {unit:>3} +  0 B")
}

fn cntlid(controller: &ControllerView) -> String {
    controller.cntlid.map(|id| id.to_string()).unwrap_or_default()
}

/// nvme-cli's three tables, without what a host in user space does not have.
#[must_use]
pub fn detailed(host: &HostView) -> String {
    let names = |names: Vec<&str>| names.join(", ");
    let mut subsystems = Vec::new();
    let mut controllers = Vec::new();
    let mut namespaces = Vec::new();
    for subsystem in &host.subsystems {
        let all = subsystem.controllers.iter().map(|controller| controller.name.as_str());
        subsystems.push(vec![subsystem.name.clone(), subsystem.nqn.clone(), names(all.collect())]);
        for controller in &subsystem.controllers {
            let heads = paths_of(subsystem, &controller.name).map(|(head, _)| head);
            controllers.push(vec![
                controller.name.clone(),
                cntlid(controller),
                controller.serial.clone(),
                controller.model.clone(),
                controller.firmware.clone(),
                controller.transport.clone(),
                controller.address(),
                subsystem.name.clone(),
                names(heads.collect()),
            ]);
        }
        for head in &subsystem.heads {
            let controllers = head.paths.iter().map(|path| path.controller.as_str());
            namespaces.push(vec![
                head.name.clone(),
                format!("{:#x}", head.nsid),
                usage(head),
                format(head),
                names(controllers.collect()),
            ]);
        }
    }
    let of_controllers =
        ["Device", "Cntlid", "SN", "MN", "FR", "TxPort", "Address", "Subsystem", "Namespaces"];
    [
        columns(&["Subsystem", "Subsystem-NQN", "Controllers"], &subsystems),
        columns(&of_controllers, &controllers),
        columns(&["Device", "NSID", "Usage", "Format", "Controllers"], &namespaces),
    ]
    .join("\n")
}

/// nvme-cli's JSON of `list -v`.
#[must_use]
pub fn detailed_json(host: &HostView) -> Value {
    let subsystem = |subsystem: &SubsystemView| {
        let controllers = subsystem.controllers.iter();
        let controllers: Vec<Value> =
            controllers.map(|it| controller_json(subsystem, it)).collect();
        let namespaces: Vec<Value> = subsystem.heads.iter().map(namespace_json).collect();
        json!({
            "Subsystem": subsystem.name,
            "SubsystemNQN": subsystem.nqn,
            "Controllers": controllers,
            "Namespaces": namespaces,
        })
    };
    let subsystems: Vec<Value> = host.subsystems.iter().map(subsystem).collect();
    json!({ "Devices": [
        { "HostNQN": host.host_nqn, "HostID": host.host_id, "Subsystems": subsystems }
    ] })
}

fn controller_json(subsystem: &SubsystemView, controller: &ControllerView) -> Value {
    let paths = paths_of(subsystem, &controller.name);
    let paths: Vec<Value> =
        paths.map(|(_, path)| json!({ "Path": path.name, "ANAState": path.ana_state })).collect();
    json!({
        "Controller": controller.name,
        "Cntlid": cntlid(controller),
        "SerialNumber": controller.serial,
        "ModelNumber": controller.model,
        "Firmware": controller.firmware,
        "Transport": controller.transport,
        "Address": controller.address(),
        "AddressDetails": address_details(controller),
        // Of a device that all its controllers share they have paths instead.
        "Namespaces": [],
        "Paths": paths,
    })
}

fn namespace_json(head: &HeadView) -> Value {
    let bytes = |blocks: u64| blocks.saturating_mul(head.block_bytes.into());
    json!({
        "NameSpace": head.name,
        "NSID": head.nsid,
        "UsedBytes": bytes(head.used_blocks),
        "MaximumLBA": head.blocks,
        "PhysicalSize": bytes(head.blocks),
        "SectorSize": head.block_bytes,
    })
}

/// nvme-cli's JSON; `DevicePath` is the name that our verbs take.
#[must_use]
pub fn json(host: &HostView) -> Value {
    let devices: Vec<Value> = devices(host)
        .map(|(subsystem, head)| {
            let bytes = |blocks: u64| blocks.saturating_mul(head.block_bytes.into());
            json!({
                "NameSpace": head.nsid,
                "DevicePath": head.name,
                "Firmware": subsystem.firmware,
                "ModelNumber": subsystem.model,
                "SerialNumber": subsystem.serial,
                "UsedBytes": bytes(head.used_blocks),
                "MaximumLBA": head.blocks,
                "PhysicalSize": bytes(head.blocks),
                "SectorSize": head.block_bytes,
                "SubsystemNQN": subsystem.nqn,
                "UUID": head.uuid,
                "NGUID": head.nguid,
                "EUI64": head.eui64,
                "Diag": {
                    "schema": super::SCHEMA,
                    "reads": head.requests[0],
                    "writes": head.requests[1],
                    "others": head.requests[2],
                    "read_bytes": head.bytes[0],
                    "written_bytes": head.bytes[1],
                    "errors": head.errors,
                    "in_flight": head.in_flight,
                    "quiesced": head.quiesced,
                    "frozen": head.frozen,
                    "io_requeue_no_usable_path_count": head.requeued_no_usable_path,
                    "io_fail_no_available_path_count": head.failed_no_available_path,
                    "lat_ns": head.lat_ns,
                },
            })
        })
        .collect();
    json!({ "Devices": devices })
}
