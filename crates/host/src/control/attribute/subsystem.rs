//! Attributes of subsystems.

use super::ObjectKind::Subsystem as S;
use super::{Attribute, Figures, Refused, Target, number, ro, rw};
use crate::control::Control;
use crate::verb::PolicySource;
use alloc::string::{String, ToString};
use anabranch_policy::{BaseWeight, InvalidBaseWeight, Parameters, Policy, Scope};

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
    rw(
        S,
        "kernel_exact",
        "1: ties, charges and resets exactly as the kernel has them; 0: ours",
        |v| Some(u8::from(v.subsystem?.parameters.kernel_exact).to_string()),
        set_kernel_exact,
    ),
    rw(
        S,
        "queue_depth_scope",
        "whose commands queue-depth compares: controller, namespace, queue-pair, worker or sum",
        |v| Some(v.subsystem?.parameters.scope.to_string()),
        set_scope,
    ),
    rw(
        S,
        "hst_base_weight",
        "historical-service-time: how much of the history a short service time leaves, in 1/1024; \
         0 to 1023",
        |v| Some(v.subsystem?.parameters.historical.base_weight.to_string()),
        set_base_weight,
    ),
    rw(
        S,
        "hst_threshold_multiplier",
        "historical-service-time: paths whose histories differ by no more than this factor are \
         told apart by their commands in flight; 0: always by history",
        |v| Some(v.subsystem?.parameters.historical.threshold_multiplier.to_string()),
        |control, target, value, _| {
            let factor = number::parse_u32(value)?;
            let set = |parameters: &mut Parameters| {
                parameters.historical.threshold_multiplier = factor;
            };
            change(control, target, Remembered::Keep, set);
            Ok(())
        },
    ),
    ro(S, "subsysnqn", "NQN of the subsystem", |v| Some(v.subsystem?.identity.nqn.to_string())),
    ro(S, "subsystype", "always nvm: discovery subsystems are not kept", |_| {
        Some(String::from("nvm"))
    }),
    ro(S, "model", "model number", |v| Some(v.subsystem?.identity.model.clone())),
    ro(S, "serial", "serial number", |v| Some(v.subsystem?.identity.serial.clone())),
    ro(S, "firmware_rev", "firmware revision", |v| Some(v.subsystem?.firmware.clone())),
];

/// What a change of parameters means for what the shards remember.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Remembered {
    /// Choices and measurements were made under other rules: they are dropped.
    Drop,
    /// It is as good as before.
    Keep,
}

/// Changes parameters and tells the shards; writing what is there already changes nothing (M8).
/// Answers whether it was another.
pub(super) fn change(
    control: &mut Control,
    target: &Target,
    remembered: Remembered,
    change: impl FnOnce(&mut Parameters),
) -> bool {
    let Target::Subsystem(at) = *target else { return false };
    let subsystem = &mut control.subsystems[at];
    let before = subsystem.parameters;
    change(&mut subsystem.parameters);
    if subsystem.parameters == before {
        return false;
    }
    if remembered == Remembered::Drop {
        subsystem.policy_epoch = subsystem.policy_epoch.wrapping_add(1);
    }
    control.env.dirty = true;
    true
}

fn set_policy(
    control: &mut Control,
    target: &Target,
    value: &str,
    _figures: &Figures<'_>,
) -> Result<(), Refused> {
    let policy: Policy = value.parse().map_err(Refused::of)?;
    let set = |parameters: &mut Parameters| parameters.policy = policy;
    let changed = change(control, target, Remembered::Drop, set);
    if let (true, Target::Subsystem(at)) = (changed, target) {
        control.subsystems[*at].policy_source = PolicySource::Attribute;
    }
    Ok(())
}

fn set_kernel_exact(
    control: &mut Control,
    target: &Target,
    value: &str,
    _figures: &Figures<'_>,
) -> Result<(), Refused> {
    let exact = number::parse_bool(value)?;
    change(control, target, Remembered::Drop, |parameters| parameters.kernel_exact = exact);
    Ok(())
}

/// Each ledger is written only under its own scope: commands in flight return their charge to the
/// one that they were started in, and no path is remembered by how deep it was.
fn set_scope(
    control: &mut Control,
    target: &Target,
    value: &str,
    _figures: &Figures<'_>,
) -> Result<(), Refused> {
    let scope: Scope = value.parse().map_err(Refused::of)?;
    change(control, target, Remembered::Keep, |parameters| parameters.scope = scope);
    Ok(())
}

/// What was measured before stays: the next service times count by the new weight.
fn set_base_weight(
    control: &mut Control,
    target: &Target,
    value: &str,
    _figures: &Figures<'_>,
) -> Result<(), Refused> {
    let weight = u16::try_from(number::parse_u32(value)?).map_err(|_| InvalidBaseWeight);
    let weight = weight.and_then(BaseWeight::new).map_err(Refused::of)?;
    change(control, target, Remembered::Keep, |parameters| {
        parameters.historical.base_weight = weight;
    });
    Ok(())
}
