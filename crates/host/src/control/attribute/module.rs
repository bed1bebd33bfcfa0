//! Attributes of the host as a whole: parameters of the kernel's module.

use super::ObjectKind::Module as M;
use super::{Attribute, Dir, Figures, Refused, Target, ro, rw};
use crate::control::Control;
use alloc::string::{String, ToString};

pub(super) const TABLE: &[Attribute] = &[
    ro(M, "multipath", "always Y: every namespace is a device of all its paths", |_| {
        Some(String::from("Y"))
    })
    .at(Dir::Parameters),
    rw(
        M,
        "iopolicy",
        "default policy: what subsystems have that come from now on; exact names only, where the \
         kernel's parameter takes any text that begins like one",
        |v| Some(v.control.env.config.default_policy.to_string()),
        set_default_policy,
    )
    .at(Dir::Parameters),
];

/// Subsystems that are there keep what they have.
fn set_default_policy(
    control: &mut Control,
    _target: &Target,
    value: &str,
    _figures: &Figures<'_>,
) -> Result<(), Refused> {
    let policy = value.parse().map_err(Refused::of)?;
    control.env.config.default_policy = policy;
    Ok(())
}
