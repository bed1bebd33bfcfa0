//! Attributes of the host as a whole: parameters of the kernel's module.

use super::ObjectKind::Module as M;
use super::{Attribute, Dir, ro};
use alloc::string::String;

pub(super) const TABLE: &[Attribute] =
    &[ro(M, "multipath", "always Y: every namespace is a device of all its paths", |_| {
        Some(String::from("Y"))
    })
    .at(Dir::Parameters)];
