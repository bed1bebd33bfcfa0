//! Subsystems, and the controllers through which they are reached. As in `list-subsys`, and as
//! node_exporter has it, a controller is a path of its subsystem: also one that was never
//! connected, and has no device yet.

use super::super::exposition::{Labels, Page, of};
use super::by_state;
use anabranch_host::topology::ControllerState;
use anabranch_host::verb::{ControllerSnapshot, SubsystemSnapshot};
use std::fmt;

const STATES: [ControllerState; 6] = [
    ControllerState::New,
    ControllerState::Live,
    ControllerState::Resetting,
    ControllerState::Connecting,
    ControllerState::Deleting,
    ControllerState::Dead,
];

pub(super) fn labels(subsystem: &SubsystemSnapshot) -> Labels<'_> {
    Labels::default().with("subsystem", &subsystem.name)
}

pub(super) fn write(subsystems: &[SubsystemSnapshot], page: &mut Page<'_>) -> fmt::Result {
    let info = subsystems.iter().map(|subsystem| {
        labels(subsystem)
            .with("nqn", &subsystem.nqn)
            .with("model", &subsystem.model)
            .with("serial", &subsystem.serial)
            .with("firmware", &subsystem.firmware)
            .with("iopolicy", &subsystem.iopolicy)
    });
    page.infos(of("subsystem", "What a subsystem says of itself, and its I/O policy."), info)?;
    let policy = subsystems.iter().map(|subsystem| {
        labels(subsystem)
            .with("policy", &subsystem.iopolicy)
            .and("set_by", subsystem.iopolicy_source.to_string().into())
            .and("kernel_exact", u8::from(subsystem.kernel_exact).to_string().into())
    });
    page.infos(of("policy", "The I/O policy in force, and where it was set."), policy)?;
    let paths = |live_only: bool| {
        subsystems.iter().map(move |subsystem| {
            let counts = |controller: &&ControllerSnapshot| {
                !live_only || controller.state == ControllerState::Live
            };
            let count = subsystem.controllers.iter().filter(counts).count();
            (labels(subsystem), count as u64)
        })
    };
    let all = of("subsystem_paths", "Controllers through which a subsystem is, or was, reached.");
    page.gauges(all, paths(false))?;
    page.gauges(of("subsystem_paths_live", "Of these, those that are live."), paths(true))?;
    let awaited = subsystems.iter().map(|it| (labels(it), it.awaited.len() as u64));
    let text = "Paths that are still to come: their names have no address yet.";
    page.gauges(of("subsystem_paths_without_address", text), awaited)?;
    controllers(subsystems, page)
}

fn controllers(subsystems: &[SubsystemSnapshot], page: &mut Page<'_>) -> fmt::Result {
    let all = || {
        subsystems.iter().flat_map(|subsystem| {
            subsystem.controllers.iter().map(move |controller| (labels(subsystem), controller))
        })
    };
    let named = || {
        all().map(|(labels, controller)| (labels.with("controller", &controller.name), controller))
    };
    let info = named().map(|(labels, controller)| {
        labels
            .with("transport", &controller.transport)
            .with("traddr", &controller.traddr)
            .with("trsvcid", &controller.trsvcid)
            .with("host_traddr", controller.host_traddr.as_deref().unwrap_or_default())
    });
    page.infos(of("controller", "Where a controller is."), info)?;
    let states = all().flat_map(|(labels, controller)| {
        let labels =
            labels.with("controller", &controller.name).with("transport", &controller.transport);
        by_state(&labels, STATES, &controller.state)
    });
    page.gauges(of("path_state", "1 for the state in which a controller is, else 0."), states)?;
    let queues = of("controller_io_queues", "I/O queues of a controller in use.");
    page.gauges(queues, named().map(|(labels, of)| (labels, u64::from(of.io_queues))))?;
    let reconnects = of("path_reconnects", "Times a controller came back to live.");
    page.counters(reconnects, named().map(|(labels, of)| (labels, of.reconnects)))?;
    let resets = of("path_resets", "Times a controller was reset, on request or after a fault.");
    page.counters(resets, named().map(|(labels, of)| (labels, of.resets)))
}
