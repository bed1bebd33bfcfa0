//! Attributes: every name, its object, who may see and write it, how it is read, written and
//! refused, in one table. Names and texts are the kernel's where it has them.

mod controller;
mod disk;
mod duration;
mod finish_time;
mod head;
mod latency;
mod listing;
mod mask;
mod module;
mod name;
mod number;
mod path;
mod setting;
mod subsystem;

use self::name::Name;
use self::setting::{Remembered, WriteDevice, WriteParameter, device, parameter};
use super::Control;
use super::controller::Controller;
use super::publish::Condition;
use super::subsystem::{Head, Path, Subsystem};
use crate::event::HostEvent;
use crate::mail::{PathStats, ShardStats};
use crate::topology::{ControllerId, HeadId};
use crate::verb::VerbError;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use anabranch_proto::machine::WorkerId;
use core::fmt;

/// The one object of kind [`ObjectKind::Module`].
pub const MODULE: &str = "nvme_core";

/// What an attribute belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectKind {
    /// `nvme_core`: what holds for the whole host.
    Module,
    /// `nvme-subsysN`.
    Subsystem,
    /// `nvmeN`.
    Controller,
    /// `nvmeXnY`.
    Head,
    /// `nvmeXcYnZ`.
    Path,
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = match self {
            ObjectKind::Module => "nvme_core",
            ObjectKind::Subsystem => "nvme-subsysN",
            ObjectKind::Controller => "nvmeN",
            ObjectKind::Head => "nvmeXnY",
            ObjectKind::Path => "nvmeXcYnZ",
        };
        write!(f, "{} ({form})", self.word())
    }
}

impl ObjectKind {
    fn word(self) -> &'static str {
        match self {
            ObjectKind::Module => "host",
            ObjectKind::Subsystem => "subsystem",
            ObjectKind::Controller => "controller",
            ObjectKind::Head => "device",
            ObjectKind::Path => "path",
        }
    }
}

/// Where an attribute stands in the tree, seen from its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dir {
    /// In the object's own directory in sysfs.
    Device,
    /// In `queue/` of a block device.
    Queue,
    /// In `diag/` of a block device: counters that can be reset.
    Diag,
    /// In `parameters/` of a module.
    Parameters,
    /// In the object's directory in debugfs.
    Debug,
}

/// What is done when an attribute is written that only does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Reset,
    Rescan,
    Delete,
}

/// Why a value was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The attribute takes no such value (`EINVAL`).
    Invalid(String),
    /// A number that the attribute's type cannot hold (`ERANGE`, as the kernel's `kstrto*`).
    OutOfRange(String),
}

impl From<String> for Refused {
    fn from(text: String) -> Refused {
        Refused::Invalid(text)
    }
}

impl From<&str> for Refused {
    fn from(text: &str) -> Refused {
        Refused::Invalid(String::from(text))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Refused::Invalid(why) | Refused::OutOfRange(why)) = self;
        f.write_str(why)
    }
}

impl Refused {
    /// What a parser has to say about a value.
    fn of(error: impl fmt::Display) -> Refused {
        Refused::Invalid(error.to_string())
    }

    /// As a caller is told.
    fn told(self, of: &str) -> VerbError {
        match self {
            Refused::Invalid(why) => VerbError::Invalid(format!("{of}: {why}")),
            Refused::OutOfRange(why) => VerbError::OutOfRange(format!("{of}: {why}")),
        }
    }
}

/// The text of an attribute; `None` when the object does not show it, whatever the figures are.
type Read = fn(&View<'_>) -> Option<String>;
type WriteObject = fn(&mut Control, &Target, &str, &Figures<'_>) -> Result<(), Refused>;
type Figures<'a> = [(WorkerId, ShardStats)];

/// What becomes of a value that is written.
#[derive(Clone, Copy)]
enum Write {
    /// Something is done with the object.
    Object(WriteObject),
    /// It is one of a subsystem's parameters, which it can also be given at first.
    Parameter(WriteParameter),
    /// The same of a device.
    Device(WriteDevice),
}

/// One attribute.
pub struct Attribute {
    /// Its name.
    pub name: &'static str,
    /// What it belongs to.
    pub object: ObjectKind,
    /// Where it stands.
    pub dir: Dir,
    /// One line for a human: meaning, unit, range.
    pub help: &'static str,
    read: Read,
    write: Option<Write>,
    /// It only does this, whatever is written.
    act: Option<Act>,
}

impl Attribute {
    /// Whether it can be written.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.write.is_some() || self.act.is_some()
    }

    /// Whether [`SubsystemSettings::set`](crate::config::SubsystemSettings::set) takes it.
    #[must_use]
    pub fn is_setting(&self) -> bool {
        matches!(self.write, Some(Write::Parameter(_) | Write::Device(_)))
    }

    /// Whether it has a text.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.act.is_none()
    }

    /// Permission bits of its file: everyone reads sysfs, only the owner debugfs.
    #[must_use]
    pub fn mode(&self) -> u16 {
        if !self.is_readable() {
            return 0o200;
        }
        match (self.dir == Dir::Debug, self.is_writable()) {
            (false, false) => 0o444,
            (false, true) => 0o644,
            (true, false) => 0o400,
            (true, true) => 0o600,
        }
    }

    /// The same in another place than the object's own directory.
    const fn at(mut self, dir: Dir) -> Attribute {
        self.dir = dir;
        self
    }
}

impl fmt::Debug for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attribute").field("name", &self.name).finish_non_exhaustive()
    }
}

const fn ro(object: ObjectKind, name: &'static str, help: &'static str, read: Read) -> Attribute {
    Attribute { name, object, dir: Dir::Device, help, read, write: None, act: None }
}

/// One that is only written.
const fn wo(object: ObjectKind, name: &'static str, help: &'static str, act: Act) -> Attribute {
    let read: Read = |_| Some(String::new());
    Attribute { name, object, dir: Dir::Device, help, read, write: None, act: Some(act) }
}

const fn rw(
    object: ObjectKind,
    name: &'static str,
    help: &'static str,
    read: Read,
    write: WriteObject,
) -> Attribute {
    let write = Some(Write::Object(write));
    Attribute { name, object, dir: Dir::Device, help, read, write, act: None }
}

/// Every attribute there is.
pub fn all() -> impl Iterator<Item = &'static Attribute> {
    let module = module::TABLE.iter().chain(subsystem::TABLE);
    let disks = disk::HEAD.iter().chain(head::TABLE).chain(disk::PATH).chain(path::TABLE);
    let measured = latency::HEAD.iter().chain(latency::PATH).chain(finish_time::PATH);
    let module = module.chain(finish_time::SUBSYSTEM);
    module.chain(controller::TABLE).chain(disks).chain(measured)
}

/// One newline may end a value, as in sysfs.
fn one_line(value: &str) -> Result<&str, Refused> {
    let value = value.strip_suffix('\n').unwrap_or(value);
    if value.contains('\n') { Err("more than one line".into()) } else { Ok(value) }
}

/// An object by its place in the tables.
enum Target {
    Module,
    Subsystem(usize),
    Controller(ControllerId),
    Head(usize, usize),
    Path(usize, usize, ControllerId),
}

impl Target {
    fn kind(&self) -> ObjectKind {
        match self {
            Target::Module => ObjectKind::Module,
            Target::Subsystem(_) => ObjectKind::Subsystem,
            Target::Controller(_) => ObjectKind::Controller,
            Target::Head(..) => ObjectKind::Head,
            Target::Path(..) => ObjectKind::Path,
        }
    }
}

/// What a reader sees: the object and what it belongs to.
struct View<'a> {
    control: &'a Control,
    figures: &'a Figures<'a>,
    subsystem: Option<&'a Subsystem>,
    controller: Option<&'a Controller>,
    head: Option<&'a Head>,
    path: Option<&'a Path>,
}

impl View<'_> {
    /// What the shards counted for this path.
    fn path_figures(&self) -> impl Iterator<Item = (WorkerId, &PathStats)> {
        let wanted = self.head.zip(self.path).map(|(head, path)| (head.id, path.controller));
        self.figures.iter().flat_map(move |(worker, stats)| {
            let found = wanted.map_or(&[][..], |(head, path)| stats.of_path(head, path));
            found.iter().map(move |path| (*worker, path))
        })
    }

    fn condition(&self) -> Option<Condition> {
        Some(Condition::of(self.head?, self.path?, &self.control.controllers))
    }
}

impl Control {
    pub(super) fn get_attribute(
        &self,
        object: &str,
        attribute: &str,
        figures: &Figures<'_>,
    ) -> Result<String, VerbError> {
        let target = self.target(object)?;
        let entry = find(&target, object, attribute)?;
        if !entry.is_readable() {
            return Err(VerbError::Invalid(format!("{attribute} of {object} is only written")));
        }
        let hidden = || VerbError::Invalid(format!("{object} does not show {attribute}"));
        (entry.read)(&self.view(&target, figures)).ok_or_else(hidden)
    }

    pub(super) fn set_attribute(
        &mut self,
        object: &str,
        attribute: &str,
        value: &str,
        figures: &Figures<'_>,
    ) -> Result<(), VerbError> {
        let target = self.target(object)?;
        let entry = find(&target, object, attribute)?;
        let write = entry
            .write
            .ok_or_else(|| VerbError::Invalid(format!("{attribute} of {object} is read-only")))?;
        let of = format!("{object} {attribute}");
        let value = one_line(value).map_err(|why| why.told(&of))?;
        let before = (entry.read)(&self.view(&target, figures));
        match write {
            Write::Object(write) => write(self, &target, value, figures),
            Write::Parameter(write) => {
                self.change_parameters(&target, |parameters| write(parameters, value)).map(drop)
            }
            Write::Device(write) => {
                self.change_device(&target, |settings| write(settings, value)).map(drop)
            }
        }
        .map_err(|why| why.told(&of))?;
        let now = (entry.read)(&self.view(&target, figures));
        // Counters are only reset.
        if entry.dir != Dir::Diag
            && let (Some(from), Some(to)) = (before, now)
        {
            // What has nothing to say under this policy was set all the same.
            let to = if to.is_empty() { value.to_string() } else { to };
            if from == to {
                return Ok(());
            }
            let (object, attribute) = (object.to_string(), entry.name);
            self.env.event(HostEvent::AttributeChanged { object, attribute, from, to });
        }
        Ok(())
    }

    /// The head that an object is, or is a path to: what these show may be counted by the shards.
    pub(super) fn head_of(&self, object: &str) -> Result<Option<HeadId>, VerbError> {
        Ok(match self.target(object)? {
            Target::Head(at, head) | Target::Path(at, head, _) => {
                Some(self.subsystems[at].heads[head].id)
            }
            Target::Module | Target::Subsystem(_) | Target::Controller(_) => None,
        })
    }

    /// What writing that attribute does instead of setting it.
    pub(super) fn act_of(&self, object: &str, attribute: &str) -> Option<Act> {
        let target = self.target(object).ok()?;
        find(&target, object, attribute).ok()?.act
    }

    /// The attributes of a controller that are options, as name and text.
    pub(super) fn option_texts(&self, id: ControllerId) -> Vec<(String, String)> {
        let view = self.view(&Target::Controller(id), &[]);
        let is_option = |entry: &&Attribute| entry.dir == Dir::Device && entry.write.is_some();
        let options = controller::TABLE.iter().filter(is_option);
        let constant = controller::TABLE.iter().filter(|entry| entry.name == "kato");
        options
            .chain(constant)
            .filter_map(|entry| Some((entry.name.to_string(), (entry.read)(&view)?)))
            .collect()
    }

    fn target(&self, object: &str) -> Result<Target, VerbError> {
        let Some(name) = Name::parse(object) else {
            let forms = "objects are nvme_core, nvme-subsysN, nvmeN, nvmeXnY and nvmeXcYnZ";
            return Err(VerbError::Invalid(format!("there is no {object} ({forms})")));
        };
        self.target_of(name).ok_or_else(|| match name {
            Name::Subsystem(instance) if self.is_awaited(instance) => VerbError::Invalid(format!(
                "{object} has no attributes before one of its paths has answered"
            )),
            _ => self.no_such(name.kind(), object),
        })
    }

    /// Whether a subsystem is listed by this number though none of its controllers has said who it
    /// is.
    fn is_awaited(&self, instance: u32) -> bool {
        let named = |controller: &&Controller| controller.instance == instance;
        self.controllers.values().filter(named).any(|controller| {
            let nqn = &controller.request.subsystem_nqn;
            !controller.is_discovery() && self.subsystems.iter().all(|s| s.identity.nqn != *nqn)
        })
    }

    fn target_of(&self, name: Name) -> Option<Target> {
        let subsystem = |instance: u32| {
            let at = self.subsystems.iter().position(|known| known.instance == instance)?;
            Some((at, &self.subsystems[at]))
        };
        let head = |instance: u32, namespace: u32| {
            let (at, of) = subsystem(instance)?;
            let is_it = |head: &Head| head.visible && head.instance == namespace;
            let index = of.heads.iter().position(is_it)?;
            Some((at, index, &of.heads[index]))
        };
        match name {
            Name::Module => Some(Target::Module),
            Name::Subsystem(instance) => Some(Target::Subsystem(subsystem(instance)?.0)),
            Name::Controller(instance) => {
                let mut known = self.controllers.values().filter(|c| !c.is_discovery());
                known.find(|c| c.instance == instance).map(|c| Target::Controller(c.id))
            }
            Name::Head(instance, namespace) => {
                head(instance, namespace).map(|(at, index, _)| Target::Head(at, index))
            }
            Name::Path(instance, controller, namespace) => {
                let (at, index, head) = head(instance, namespace)?;
                let path = head.paths.iter().find(|p| p.controller_instance == controller)?;
                Some(Target::Path(at, index, path.controller))
            }
        }
    }

    fn view<'a>(&'a self, target: &Target, figures: &'a Figures<'a>) -> View<'a> {
        let (subsystem, head, controller) = match *target {
            Target::Module => (None, None, None),
            Target::Subsystem(at) => (Some(at), None, None),
            Target::Controller(id) => (self.subsystem_of(id), None, Some(id)),
            Target::Head(at, head) => (Some(at), Some(head), None),
            Target::Path(at, head, controller) => (Some(at), Some(head), Some(controller)),
        };
        let subsystem = subsystem.map(|at| &self.subsystems[at]);
        let head = subsystem.zip(head).map(|(subsystem, at)| &subsystem.heads[at]);
        View {
            control: self,
            figures,
            subsystem,
            controller: controller.and_then(|id| self.controllers.get(&id)),
            head,
            path: head.zip(controller).and_then(|(head, id)| head.path(id)),
        }
    }
}

fn find(target: &Target, object: &str, name: &str) -> Result<&'static Attribute, VerbError> {
    let kind = target.kind();
    all().find(|entry| entry.object == kind && entry.name == name).ok_or_else(|| {
        let names: Vec<&str> =
            all().filter(|entry| entry.object == kind).map(|entry| entry.name).collect();
        let names = names.join(", ");
        let others = all().filter(|entry| entry.name == name).map(|entry| entry.object);
        let others: Vec<String> = others.map(|other| format!("a {other}")).collect();
        let elsewhere = match others.join(" or ") {
            others if others.is_empty() => others,
            others => format!(" ({others} has it)"),
        };
        VerbError::Invalid(format!(
            "{object} has no attribute {name}{elsewhere}; a {kind} has {names}"
        ))
    })
}
