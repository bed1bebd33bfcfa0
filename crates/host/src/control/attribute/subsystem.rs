//! Attributes of subsystems.

use super::ObjectKind::Subsystem as S;
use super::{Attribute, Figures, Refused, Remembered, Target, number, parameter, ro, rw};
use crate::control::Control;
use crate::verb::PolicySource;
use alloc::string::{String, ToString};
use anabranch_policy::{BaseWeight, InvalidBaseWeight, Parameters, Policy};

pub(super) const TABLE: &[Attribute] = &[
    rw(
        S,
        "iopolicy",
        "how a path is chosen",
        |v| Some(v.subsystem?.parameters.policy.to_string()),
        set_policy,
    ),
    ro(S, "iopolicy_default", "the default policy now, for subsystems that come", |v| {
        Some(v.control.env.config.default_policy.to_string())
    }),
    ro(
        S,
        "iopolicy_set_by",
        "where iopolicy was set: default (as it was when the subsystem came), configuration or \
         attribute",
        |v| Some(v.subsystem?.policy_source.to_string()),
    ),
    parameter(
        "kernel_exact",
        "1: ties, charges and resets exactly as the kernel has them; 0: ours",
        |v| Some(u8::from(v.subsystem?.parameters.kernel_exact).to_string()),
        set_kernel_exact,
    ),
    parameter(
        "queue_depth_scope",
        "whose commands queue-depth compares: controller, namespace, queue-pair, worker or sum",
        |v| Some(v.subsystem?.parameters.scope.to_string()),
        set_scope,
    ),
    parameter(
        "hst_base_weight",
        "historical-service-time: how much of the history a short service time leaves, in 1/1024; \
         0 to 1023",
        |v| Some(v.subsystem?.parameters.historical.base_weight.to_string()),
        set_base_weight,
    ),
    parameter(
        "hst_threshold_multiplier",
        "historical-service-time: paths whose histories differ by no more than this factor are \
         told apart by their commands in flight; 0: always by history",
        |v| Some(v.subsystem?.parameters.historical.threshold_multiplier.to_string()),
        set_threshold,
    ),
    ro(S, "subsysnqn", "NQN of the subsystem", |v| Some(v.subsystem?.identity.nqn.to_string())),
    ro(S, "subsystype", "always nvm: discovery subsystems are not kept", |_| {
        Some(String::from("nvm"))
    }),
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
    let policy: Policy = value.parse().map_err(Refused::of)?;
    let changed = control.change_parameters(target, |parameters| {
        parameters.policy = policy;
        Ok(Remembered::Drop)
    })?;
    if let (true, Target::Subsystem(at)) = (changed, target) {
        control.subsystems[*at].policy_source = PolicySource::Attribute;
    }
    Ok(())
}

fn set_kernel_exact(parameters: &mut Parameters, value: &str) -> Result<Remembered, Refused> {
    parameters.kernel_exact = number::parse_bool(value)?;
    Ok(Remembered::Drop)
}

/// Each ledger is written only under its own scope: commands in flight return their charge to the
/// one that they were started in, and no path is remembered by how deep it was.
fn set_scope(parameters: &mut Parameters, value: &str) -> Result<Remembered, Refused> {
    parameters.scope = value.parse().map_err(Refused::of)?;
    Ok(Remembered::Keep)
}

/// What was measured before stays: the next service times count by the new weight.
fn set_base_weight(parameters: &mut Parameters, value: &str) -> Result<Remembered, Refused> {
    let weight = u16::try_from(number::parse_u32(value)?).map_err(|_| InvalidBaseWeight);
    let weight = weight.and_then(BaseWeight::new).map_err(Refused::of)?;
    parameters.historical.base_weight = weight;
    Ok(Remembered::Keep)
}

fn set_threshold(parameters: &mut Parameters, value: &str) -> Result<Remembered, Refused> {
    parameters.historical.threshold_multiplier = number::parse_u32(value)?;
    Ok(Remembered::Keep)
}
