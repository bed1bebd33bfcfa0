//! What is set about subsystems and devices and nothing else: by whoever writes the attribute, and
//! for those that come by whoever starts the host.

use super::{Attribute, Dir, ObjectKind, Read, Refused, Target, Write, all, one_line};
use crate::config::{DeviceSettings, SubsystemSettings};
use crate::control::Control;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use anabranch_policy::Parameters;

/// Reads a value into the parameters; what is refused leaves them as they are.
pub(super) type WriteParameter = fn(&mut Parameters, &str) -> Result<Remembered, Refused>;
/// Reads a value into the settings; what is refused leaves them as they are.
pub(super) type WriteDevice = fn(&mut DeviceSettings, &str) -> Result<Remembered, Refused>;

/// What a change means for what the shards remember.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Remembered {
    /// Choices and measurements were made under other rules, or stand in another place: they are
    /// dropped.
    Drop,
    /// It is as good as before.
    Keep,
}

/// One of the parameters of a subsystem.
pub(super) const fn parameter(
    name: &'static str,
    help: &'static str,
    read: Read,
    write: WriteParameter,
) -> Attribute {
    let (object, write) = (ObjectKind::Subsystem, Some(Write::Parameter(write)));
    Attribute { name, object, dir: Dir::Device, help, read, write, act: None }
}

/// One of the settings of a device.
pub(super) const fn device(
    name: &'static str,
    help: &'static str,
    read: Read,
    write: WriteDevice,
) -> Attribute {
    let (object, write) = (ObjectKind::Head, Some(Write::Device(write)));
    Attribute { name, object, dir: Dir::Device, help, read, write, act: None }
}

impl Control {
    /// Changes the parameters of a subsystem and tells the shards; writing what is there already
    /// changes nothing (M8). Answers whether it was another.
    pub(super) fn change_parameters(
        &mut self,
        target: &Target,
        write: impl FnOnce(&mut Parameters) -> Result<Remembered, Refused>,
    ) -> Result<bool, Refused> {
        let Target::Subsystem(at) = *target else { return Ok(false) };
        let subsystem = &mut self.subsystems[at];
        let before = subsystem.parameters;
        let remembered = write(&mut subsystem.parameters)?;
        if subsystem.parameters == before {
            return Ok(false);
        }
        if remembered == Remembered::Drop {
            subsystem.policy_epoch = subsystem.policy_epoch.wrapping_add(1);
        }
        self.env.dirty = true;
        Ok(true)
    }

    /// The same of a device.
    pub(super) fn change_device(
        &mut self,
        target: &Target,
        write: impl FnOnce(&mut DeviceSettings) -> Result<Remembered, Refused>,
    ) -> Result<bool, Refused> {
        let Target::Head(at, head) = *target else { return Ok(false) };
        let head = &mut self.subsystems[at].heads[head];
        let before = head.settings;
        let remembered = write(&mut head.settings)?;
        if head.settings == before {
            return Ok(false);
        }
        if remembered == Remembered::Drop {
            head.policy_epoch = head.policy_epoch.wrapping_add(1);
        }
        self.env.dirty = true;
        Ok(true)
    }
}

impl SubsystemSettings {
    /// Sets an attribute of the subsystem, or of each of its devices, to what writing this value
    /// would set it to.
    ///
    /// # Errors
    /// It takes no such value, or is none that can be set so; nothing has changed then.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Refused> {
        let found = all().find(|entry| entry.name == name && entry.is_setting());
        match found.and_then(|entry| entry.write) {
            Some(Write::Parameter(write)) => write(&mut self.parameters, one_line(value)?),
            Some(Write::Device(write)) => write(&mut self.devices, one_line(value)?),
            Some(Write::Object(_)) | None => Err(no_setting(name)),
        }
        .map(drop)
    }
}

/// Why an attribute cannot be set before its object is there.
fn no_setting(name: &str) -> Refused {
    let ours =
        |entry: &&Attribute| matches!(entry.object, ObjectKind::Subsystem | ObjectKind::Head);
    let named = || all().filter(|entry| entry.name == name);
    let what = match named().find(ours).or_else(|| named().next()) {
        None => String::from("is no attribute"),
        Some(entry) if !ours(&entry) => format!("is an attribute of a {}", entry.object),
        Some(entry) if !entry.is_writable() => String::from("is read-only"),
        Some(entry) if entry.dir == Dir::Diag => String::from("is a counter"),
        Some(_) => return Refused::from("stands beside these, as a key of the subsystem itself"),
    };
    let names: Vec<&str> =
        all().filter(|entry| entry.is_setting()).map(|entry| entry.name).collect();
    let names = names.join(", ");
    Refused::Invalid(format!("{what}; what a subsystem and its devices can be given is {names}"))
}
