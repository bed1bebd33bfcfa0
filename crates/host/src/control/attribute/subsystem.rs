//! Attributes of subsystems.

use super::ObjectKind::Subsystem as S;
use super::{Attribute, Figures, Refused, Target, ro, rw};
use crate::control::Control;
use crate::event::HostEvent;
use alloc::string::ToString;
use anabranch_policy::Policy;

pub(super) const TABLE: &[Attribute] = &[
    rw(
        S,
        "iopolicy",
        "how a path is chosen",
        |v| Some(v.subsystem?.parameters.policy.to_string()),
        set_policy,
    ),
    rw(
        S,
        "kernel_exact",
        "1: ties, charges and resets exactly as the kernel has them; 0: ours",
        |v| Some(u8::from(v.subsystem?.parameters.kernel_exact).to_string()),
        set_kernel_exact,
    ),
    ro(S, "subsysnqn", "NQN of the subsystem", |v| Some(v.subsystem?.identity.nqn.to_string())),
    ro(S, "model", "model number", |v| Some(v.subsystem?.identity.model.clone())),
    ro(S, "serial", "serial number", |v| Some(v.subsystem?.identity.serial.clone())),
    ro(S, "firmware_rev", "firmware revision", |v| Some(v.subsystem?.firmware.clone())),
];

fn set_policy(
    control: &mut Control,
    target: &Target,
    value: &str,
    _figures: &Figures<'_>,
) -> Result<(), Refused> {
    let policy: Policy = value.parse().map_err(|error| alloc::format!("{error}"))?;
    let Target::Subsystem(at) = *target else { return Ok(()) };
    let subsystem = &mut control.subsystems[at];
    // Writing the policy that is in force changes nothing, as in the kernel (M8).
    if subsystem.parameters.policy == policy {
        return Ok(());
    }
    let from = core::mem::replace(&mut subsystem.parameters.policy, policy);
    subsystem.policy_epoch = subsystem.policy_epoch.wrapping_add(1);
    control.env.dirty = true;
    control.env.event(HostEvent::PolicyChanged {
        subsystem: control.subsystems[at].name(),
        from: from.to_string(),
        to: policy.to_string(),
    });
    Ok(())
}

fn set_kernel_exact(
    control: &mut Control,
    target: &Target,
    value: &str,
    _figures: &Figures<'_>,
) -> Result<(), Refused> {
    let exact = match value {
        "0" => false,
        "1" => true,
        _ => return Err("0 or 1".into()),
    };
    let Target::Subsystem(at) = *target else { return Ok(()) };
    let subsystem = &mut control.subsystems[at];
    if subsystem.parameters.kernel_exact != exact {
        subsystem.parameters.kernel_exact = exact;
        subsystem.policy_epoch = subsystem.policy_epoch.wrapping_add(1);
        control.env.dirty = true;
    }
    Ok(())
}
