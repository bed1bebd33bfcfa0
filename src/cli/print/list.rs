//! `list`: the devices.

use crate::columns::columns;
use crate::daemon::view::{HeadView, HostView, SubsystemView};
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
            let bytes = head.blocks.saturating_mul(head.block_bytes.into());
            let (size, unit) = decimal_size(bytes);
            let usage = format!("{size:6.2}  {unit:>2} / {size:6.2}  {unit:>2}");
            let (block, unit) = if head.block_bytes >= 1024 {
                (head.block_bytes / 1024, "KiB")
            } else {
                (head.block_bytes, "B")
            };
            vec![
                head.name.clone(),
                subsystem.serial.clone(),
                subsystem.model.clone(),
                format!("{:#x}", head.nsid),
                usage,
                format!("{block:3} {unit:>3} +  0 B"),
                subsystem.firmware.clone(),
            ]
        })
        .collect();
    columns(&["Node", "SN", "Model", "Namespace", "Usage", "Format", "FW Rev"], &rows)
}

/// nvme-cli's JSON; `DevicePath` is the name that our verbs take.
#[must_use]
pub fn json(host: &HostView) -> Value {
    let devices: Vec<Value> = devices(host)
        .map(|(subsystem, head)| {
            let bytes = head.blocks.saturating_mul(head.block_bytes.into());
            json!({
                "NameSpace": head.nsid,
                "DevicePath": head.name,
                "Firmware": subsystem.firmware,
                "ModelNumber": subsystem.model,
                "SerialNumber": subsystem.serial,
                "UsedBytes": bytes,
                "MaximumLBA": head.blocks,
                "PhysicalSize": bytes,
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
                    "io_requeue_no_usable_path_count": head.requeued_no_usable_path,
                    "io_fail_no_available_path_count": head.failed_no_available_path,
                    "lat_ns": head.lat_ns,
                },
            })
        })
        .collect();
    json!({ "Devices": devices })
}
