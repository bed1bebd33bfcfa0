//! Attributes of controllers.

use super::ObjectKind::Controller as C;
use super::head::reset;
use super::{Act, Attribute, Dir, Refused, Target, duration, ro, rw, wo};
use crate::config::{ControllerOptions, check_time};
use crate::control::Control;
use crate::control::controller::Controller;
use crate::control::verbs::address;
use alloc::format;
use alloc::string::{String, ToString};

pub(super) const TABLE: &[Attribute] = &[
    wo(C, "reset_controller", "whatever is written resets it", Act::Reset),
    wo(C, "rescan_controller", "whatever is written has its namespaces looked for", Act::Rescan),
    wo(C, "delete_controller", "whatever is written disconnects it", Act::Delete),
    ro(C, "state", "new, live, resetting, connecting, deleting, dead", |v| {
        Some(v.controller?.state.to_string())
    }),
    ro(C, "transport", "always tcp", |_| Some(String::from("tcp"))),
    ro(C, "address", "where it is", |v| {
        let controller = v.controller?;
        let (traddr, trsvcid) = address(&controller.request.to);
        let socket = &controller.request.options.socket;
        let mut text = format!("traddr={traddr},trsvcid={trsvcid}");
        if let Some(source) = &socket.source {
            text.push_str(&format!(",host_traddr={source}"));
        }
        if let Some(interface) = &socket.interface {
            text.push_str(&format!(",host_iface={interface}"));
        }
        if let Some(local) = controller.local.filter(|_| controller.is_live()) {
            text.push_str(&format!(",src_addr={}", local.ip()));
        }
        Some(text)
    }),
    ro(C, "subsysnqn", "NQN of its subsystem", |v| {
        Some(v.controller?.request.subsystem_nqn.to_string())
    }),
    ro(C, "hostnqn", "NQN of this host", |v| Some(v.control.env.config.host_nqn.to_string())),
    ro(C, "hostid", "identifier of this host", |v| Some(v.control.env.config.host_id.to_string())),
    ro(C, "model", "model number", |v| Some(v.controller?.identity.as_ref()?.model.clone())),
    ro(C, "serial", "serial number", |v| Some(v.controller?.identity.as_ref()?.serial.clone())),
    ro(C, "firmware_rev", "firmware revision", |v| {
        v.controller?.identity.as_ref()?;
        Some(v.controller?.proven.firmware.clone())
    }),
    ro(C, "cntlid", "controller identifier at the target", |v| {
        v.controller?.identity.as_ref()?;
        Some(v.controller?.proven.cntlid.to_string())
    }),
    ro(C, "cntrltype", "always io: discovery controllers are not kept", |_| {
        Some(String::from("io"))
    }),
    ro(C, "dctype", "always none: it is no discovery controller", |_| Some(String::from("none"))),
    ro(C, "queue_count", "queues, the admin queue included", |v| {
        Some((u32::from(v.controller?.queues.count()) + 1).to_string())
    }),
    ro(C, "sqsize", "entries of an I/O queue, less one", |v| {
        let controller = v.controller?;
        let entries = match controller.proven.queue_entries {
            0 => controller.request.options.queue_size,
            entries => entries,
        };
        Some((entries - 1).to_string())
    }),
    ro(C, "kato", "keep-alive time-out, seconds", |v| {
        Some(duration::print(v.controller?.request.options.keep_alive_tmo))
    }),
    ro(C, "numa_node", "NUMA node of the network device in use; -1 is not known", |v| {
        Some(v.controller?.node.map_or(String::from("-1"), |node| node.to_string()))
    }),
    rw(
        C,
        "reset_count",
        "resets, asked for or forced; writing 0 resets it",
        |v| Some(v.controller?.resets.to_string()),
        |control, target, value, _| reset_count(control, target, value, |of| of.resets = 0),
    )
    .at(Dir::Diag),
    rw(
        C,
        "reconnect_count",
        "attempts to reconnect after it was lost; writing 0 resets it",
        |v| Some(v.controller?.reconnect_attempts.to_string()),
        |control, target, value, _| {
            reset_count(control, target, value, |of| of.reconnect_attempts = 0)
        },
    )
    .at(Dir::Diag),
    rw(
        C,
        "command_error_count",
        "admin commands that it answered with an error; writing 0 resets it",
        |v| Some(v.controller?.admin_errors.to_string()),
        |control, target, value, _| reset_count(control, target, value, |of| of.admin_errors = 0),
    )
    .at(Dir::Diag),
    ro(C, "last_error", "why it was last lost or could not connect", |v| {
        Some(v.controller?.last_error.clone().unwrap_or_default())
    }),
    rw(
        C,
        "reconnect_delay",
        "pause before an attempt to reconnect, seconds, at least 1ms",
        |v| Some(duration::print(v.controller?.request.options.reconnect_delay)),
        |control, target, value, _| {
            let delay = duration::parse(value)?;
            check_time(delay)?;
            set_loss(control, target, |options| options.reconnect_delay = delay)
        },
    ),
    rw(
        C,
        "ctrl_loss_tmo",
        "how long to try to reconnect before it is removed, seconds, or off = for ever",
        |v| Some(duration::print_or_off(v.controller?.request.options.ctrl_loss_tmo)),
        |control, target, value, _| {
            let time = duration::parse_or_off(value)?;
            set_loss(control, target, |options| options.ctrl_loss_tmo = time)
        },
    ),
    rw(
        C,
        "fast_io_fail_tmo",
        "how long I/O waits for it while it is away, seconds, or off",
        |v| Some(duration::print_or_off(v.controller?.request.options.fast_io_fail_tmo)),
        |control, target, value, _| {
            let time = duration::parse_or_off(value)?;
            set_loss(control, target, |options| options.fast_io_fail_tmo = time)
        },
    ),
    rw(
        C,
        "io_timeout",
        "time limit of one I/O command, milliseconds, at least 1",
        |v| Some(duration::print_ms(v.controller?.request.options.io_timeout)),
        |control, target, value, _| {
            let time = duration::parse_ms(value)?;
            check_time(time)?;
            set(control, target, |options| options.io_timeout = time)
        },
    ),
    rw(
        C,
        "admin_timeout",
        "time limit of one admin command and of each step of connecting, milliseconds, at least 1",
        |v| Some(duration::print_ms(v.controller?.request.options.admin_timeout)),
        |control, target, value, _| {
            let time = duration::parse_ms(value)?;
            check_time(time)?;
            set(control, target, |options| options.admin_timeout = time)
        },
    ),
];

fn controller_of<'a>(control: &'a mut Control, target: &Target) -> Option<&'a mut Controller> {
    match target {
        Target::Controller(id) => control.controllers.get_mut(id),
        _ => None,
    }
}

fn set(
    control: &mut Control,
    target: &Target,
    change: impl FnOnce(&mut ControllerOptions),
) -> Result<(), Refused> {
    if let Some(controller) = controller_of(control, target) {
        change(&mut controller.request.options);
        control.env.dirty = true;
    }
    Ok(())
}

fn reset_count(
    control: &mut Control,
    target: &Target,
    value: &str,
    change: impl FnOnce(&mut Controller),
) -> Result<(), Refused> {
    reset(value)?;
    controller_of(control, target).map(change);
    Ok(())
}

/// As [`set`], of times that may contradict one another.
fn set_loss(
    control: &mut Control,
    target: &Target,
    change: impl FnOnce(&mut ControllerOptions),
) -> Result<(), Refused> {
    set(control, target, change)?;
    if let Target::Controller(id) = target
        && let Some(controller) = control.controllers.get(id)
    {
        Control::warn(&mut control.env, controller);
    }
    Ok(())
}
