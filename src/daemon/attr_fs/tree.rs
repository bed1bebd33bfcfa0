//! What stands where. Nothing is kept: each directory is made from what the host says now.
//!
//! Objects have one real place each, as in sysfs; everything else that leads to them is a link.

use super::source::Source;
use anabranch_host::attribute::{Attribute, Dir, ObjectKind};
use anabranch_host::verb::Object;
use fuser::Errno;

/// Something in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// A directory that is always there, by its path.
    Fixed(&'static str),
    /// The directory of an object.
    Object(Box<Object>),
    /// A directory of some attributes of an object.
    Group(String, Dir),
    /// The links of a device to its paths.
    Multipath(Box<Object>),
    /// A symbolic link and where it leads.
    Link(String),
    /// An attribute.
    File(File),
}

/// An attribute as a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    pub(super) object: String,
    pub(super) attribute: &'static str,
    pub(super) mode: u16,
    pub(super) dir: Dir,
}

/// A directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Child {
    pub(super) name: String,
    pub(super) node: Node,
}

pub(super) const ROOT: Node = Node::Fixed("");

/// Directories that are always there, each with those below it.
const FIXED: &[(&str, &[&str])] = &[
    ("", &["block", "bus", "class", "devices", "kernel", "module"]),
    ("block", &[]),
    // There are no PCI devices here; nvme-cli complains when it cannot look for them.
    ("bus", &["pci"]),
    ("bus/pci", &["slots"]),
    ("bus/pci/slots", &[]),
    ("class", &["block", "nvme", "nvme-fabrics", "nvme-subsystem"]),
    ("class/block", &[]),
    ("class/nvme", &[]),
    ("class/nvme-fabrics", &[]),
    ("class/nvme-subsystem", &[]),
    ("devices", &["virtual"]),
    ("devices/virtual", &["nvme-fabrics", "nvme-subsystem"]),
    ("devices/virtual/nvme-fabrics", &["ctl"]),
    (CONTROLLERS, &[]),
    (SUBSYSTEMS, &[]),
    ("kernel", &["debug"]),
    ("kernel/debug", &["block"]),
    ("kernel/debug/block", &[]),
    ("module", &[]),
];

/// Those that hold objects, or links to them.
const HOLD_OBJECTS: &[&str] = &[
    "block",
    "class/block",
    "class/nvme",
    "class/nvme-subsystem",
    CONTROLLERS,
    SUBSYSTEMS,
    "kernel/debug/block",
    "module",
];

/// Where controllers and subsystems really are.
const CONTROLLERS: &str = "devices/virtual/nvme-fabrics/ctl";
const SUBSYSTEMS: &str = "devices/virtual/nvme-subsystem";

/// Everything in a directory.
pub(super) fn children(dir: &Node, source: &dyn Source) -> Result<Vec<Child>, Errno> {
    let mut children = own(dir, source)?;
    if holds_objects(dir) {
        let objects = source.objects()?;
        children.extend(objects.iter().filter_map(|object| entry(dir, object)));
    }
    Ok(children)
}

/// What has this name in a directory. Of objects only the one that is so called is asked for:
/// looking something up costs the same however many there are.
pub(super) fn child(dir: &Node, name: &str, source: &dyn Source) -> Result<Node, Errno> {
    let own = own(dir, source)?.into_iter().find(|child| child.name == name);
    if let Some(child) = own {
        return Ok(child.node);
    }
    if !holds_objects(dir) {
        return Err(Errno::ENOENT);
    }
    let (object, _) = source.describe(name)?;
    entry(dir, &object).map(|child| child.node).ok_or(Errno::ENOENT)
}

/// What a directory holds besides objects.
fn own(dir: &Node, source: &dyn Source) -> Result<Vec<Child>, Errno> {
    match dir {
        Node::Fixed(path) => Ok(fixed(path)),
        Node::Object(object) => of_object(object, source),
        Node::Group(name, dir) => Ok(files(name, *dir, &source.describe(name)?.1)),
        Node::Multipath(_) => Ok(Vec::new()),
        Node::Link(_) | Node::File(_) => Err(Errno::ENOTDIR),
    }
}

fn holds_objects(dir: &Node) -> bool {
    match dir {
        Node::Fixed(path) => HOLD_OBJECTS.contains(path),
        Node::Object(object) => {
            matches!(object.kind, ObjectKind::Subsystem | ObjectKind::Controller)
        }
        Node::Multipath(_) => true,
        Node::Group(..) | Node::Link(_) | Node::File(_) => false,
    }
}

/// How an object stands in a directory, if it does.
fn entry(dir: &Node, object: &Object) -> Option<Child> {
    use ObjectKind::{Controller, Head, Module, Path, Subsystem};
    let name = object.name.as_str();
    let linked = |from: &str| Some(link(name, from, &home(object)));
    let real = || Some(directory(name, Node::Object(Box::new(object.clone()))));
    match dir {
        Node::Fixed(path) => match (*path, object.kind) {
            ("block" | "class/block", Head | Path) => linked(path),
            ("class/nvme", Controller) | ("class/nvme-subsystem", Subsystem) => linked(path),
            (CONTROLLERS, Controller) | (SUBSYSTEMS, Subsystem) | ("module", Module) => real(),
            ("kernel/debug/block", Head | Path) => {
                Some(directory(name, Node::Group(name.to_owned(), Dir::Debug)))
            }
            _ => None,
        },
        Node::Object(this) => {
            let mine = |part: &Option<String>| part.as_ref() == Some(&this.name);
            match (this.kind, object.kind) {
                (Subsystem, Controller) if mine(&object.subsystem) => linked(&home(this)),
                (Subsystem, Head) if mine(&object.subsystem) => real(),
                (Controller, Path) if mine(&object.controller) => real(),
                _ => None,
            }
        }
        Node::Multipath(head)
            if object.kind == Path && object.head.as_ref() == Some(&head.name) =>
        {
            linked(&format!("{}/multipath", home(head)))
        }
        _ => None,
    }
}

/// Where an object really is.
fn home(object: &Object) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    let name = &object.name;
    match object.kind {
        ObjectKind::Module => format!("module/{name}"),
        ObjectKind::Subsystem => format!("{SUBSYSTEMS}/{name}"),
        ObjectKind::Controller => format!("{CONTROLLERS}/{name}"),
        ObjectKind::Head => format!("{SUBSYSTEMS}/{}/{name}", part(&object.subsystem)),
        ObjectKind::Path => format!("{CONTROLLERS}/{}/{name}", part(&object.controller)),
    }
}

/// A link in the directory `from` that leads to `to`, both seen from the root. As in sysfs it ends
/// in the name of what it leads to: scripts take that name.
fn link(name: &str, from: &str, to: &str) -> Child {
    let (from, to): (Vec<&str>, Vec<&str>) = (from.split('/').collect(), to.split('/').collect());
    let common = from.iter().zip(&to).take_while(|(from, to)| from == to).count().min(to.len() - 1);
    let up = std::iter::repeat_n("..", from.len() - common);
    let parts: Vec<&str> = up.chain(to[common..].iter().copied()).collect();
    Child { name: name.to_owned(), node: Node::Link(parts.join("/")) }
}

fn directory(name: &str, node: Node) -> Child {
    Child { name: name.to_owned(), node }
}

fn fixed(path: &str) -> Vec<Child> {
    let below = FIXED.iter().find(|(fixed, _)| *fixed == path).map_or(&[][..], |(_, below)| below);
    let whole = |name: &str| match path {
        "" => name.to_owned(),
        _ => format!("{path}/{name}"),
    };
    let known = |name: &str| FIXED.iter().find(|(fixed, _)| *fixed == whole(name));
    let mut children: Vec<Child> = below
        .iter()
        .filter_map(|name| Some(directory(name, Node::Fixed(known(name)?.0))))
        .collect();
    if path == "class/nvme-fabrics" {
        children.push(link("ctl", path, CONTROLLERS));
    }
    children
}

/// The attributes of an object that stand in one place.
fn files(name: &str, dir: Dir, shown: &[&'static Attribute]) -> Vec<Child> {
    let file = |attribute: &&'static Attribute| {
        let (attribute, mode) = (attribute.name, attribute.mode());
        let node = Node::File(File { object: name.to_owned(), attribute, mode, dir });
        Child { name: attribute.to_owned(), node }
    };
    shown.iter().filter(|attribute| attribute.dir == dir).map(file).collect()
}

/// Directories of an object that hold some of its attributes.
const GROUPS: &[(&str, Dir)] =
    &[("queue", Dir::Queue), ("diag", Dir::Diag), ("parameters", Dir::Parameters)];

/// Attributes, their groups, and links to what the object belongs to.
fn of_object(this: &Object, source: &dyn Source) -> Result<Vec<Child>, Errno> {
    let name = this.name.as_str();
    let (_, shown) = source.describe(name)?;
    let mut children = files(name, Dir::Device, &shown);
    for (group, dir) in GROUPS {
        if shown.iter().any(|attribute| attribute.dir == *dir) {
            children.push(directory(group, Node::Group(name.to_owned(), *dir)));
        }
    }
    let from = home(this);
    let mut to = |name: &str, to: &str| children.push(link(name, &from, to));
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    match this.kind {
        ObjectKind::Module => {}
        ObjectKind::Subsystem => to("subsystem", "class/nvme-subsystem"),
        ObjectKind::Controller => {
            to("device", CONTROLLERS);
            to("subsystem", "class/nvme");
        }
        ObjectKind::Head => {
            to("device", &format!("{SUBSYSTEMS}/{}", part(&this.subsystem)));
            to("subsystem", "class/block");
            children.push(directory("multipath", Node::Multipath(Box::new(this.clone()))));
        }
        ObjectKind::Path => {
            to("device", &format!("{CONTROLLERS}/{}", part(&this.controller)));
            to("subsystem", "class/block");
        }
    }
    Ok(children)
}
