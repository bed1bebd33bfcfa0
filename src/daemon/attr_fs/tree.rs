//! What stands where. Nothing is kept: each directory is made from what the host says now.
//!
//! Objects have one real place each, as in sysfs; everything else that leads to them is a link.

use super::source::Source;
use anabranch_host::attribute::{Dir, MODULE, ObjectKind};
use anabranch_host::verb::Object;
use fuser::Errno;

/// Something in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// A directory that is always there, by its path.
    Fixed(&'static str),
    /// The directory of an object.
    Object(String, ObjectKind),
    /// A directory of some attributes of an object.
    Group(String, Dir),
    /// The links of a device to its paths.
    Multipath(String),
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

/// Where controllers and subsystems really are.
const CONTROLLERS: &str = "devices/virtual/nvme-fabrics/ctl";
const SUBSYSTEMS: &str = "devices/virtual/nvme-subsystem";

/// Everything in a directory.
pub(super) fn children(node: &Node, source: &dyn Source) -> Result<Vec<Child>, Errno> {
    match node {
        Node::Fixed(path) => fixed(path, source),
        Node::Object(name, kind) => object(name, *kind, source),
        Node::Group(name, dir) => files(name, *dir, source),
        Node::Multipath(head) => {
            let from = format!("{}/multipath", home(&find(&source.objects()?, head)?));
            let objects = source.objects()?;
            let paths = objects.iter().filter(|o| is_path(o) && o.head.as_ref() == Some(head));
            Ok(paths.map(|path| link(&path.name, &from, &home(path))).collect())
        }
        Node::Link(_) | Node::File(_) => Err(Errno::ENOTDIR),
    }
}

/// What has this name in a directory.
pub(super) fn child(node: &Node, name: &str, source: &dyn Source) -> Result<Node, Errno> {
    let child = children(node, source)?.into_iter().find(|child| child.name == name);
    child.map(|child| child.node).ok_or(Errno::ENOENT)
}

fn is_path(object: &Object) -> bool {
    object.kind == ObjectKind::Path
}

fn is_block(object: &Object) -> bool {
    matches!(object.kind, ObjectKind::Head | ObjectKind::Path)
}

fn find(objects: &[Object], name: &str) -> Result<Object, Errno> {
    objects.iter().find(|object| object.name == name).cloned().ok_or(Errno::ENOENT)
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

fn fixed(path: &'static str, source: &dyn Source) -> Result<Vec<Child>, Errno> {
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
    let of_kind = |kind: ObjectKind| move |object: &Object| object.kind == kind;
    let links = |wanted: &dyn Fn(&Object) -> bool| -> Result<Vec<Child>, Errno> {
        let objects = source.objects()?;
        let wanted = objects.iter().filter(|object| wanted(object));
        Ok(wanted.map(|object| link(&object.name, path, &home(object))).collect())
    };
    let directories = |kind: ObjectKind| -> Result<Vec<Child>, Errno> {
        let objects = source.objects()?.into_iter().filter(of_kind(kind));
        let node = |object: Object| Child {
            name: object.name.clone(),
            node: Node::Object(object.name, object.kind),
        };
        Ok(objects.map(node).collect())
    };
    children.extend(match path {
        "block" | "class/block" => links(&is_block)?,
        "class/nvme" => links(&of_kind(ObjectKind::Controller))?,
        "class/nvme-fabrics" => vec![link("ctl", path, CONTROLLERS)],
        "class/nvme-subsystem" => links(&of_kind(ObjectKind::Subsystem))?,
        CONTROLLERS => directories(ObjectKind::Controller)?,
        SUBSYSTEMS => directories(ObjectKind::Subsystem)?,
        "kernel/debug/block" => {
            let disks = source.objects()?.into_iter().filter(is_block);
            disks
                .map(|disk| directory(&disk.name, Node::Group(disk.name.clone(), Dir::Debug)))
                .collect()
        }
        "module" => vec![directory(MODULE, Node::Object(MODULE.to_owned(), ObjectKind::Module))],
        _ => Vec::new(),
    });
    Ok(children)
}

/// The attributes of an object that stand in one place.
fn files(name: &str, dir: Dir, source: &dyn Source) -> Result<Vec<Child>, Errno> {
    let shown = source.describe(name)?.into_iter().filter(|attribute| attribute.dir == dir);
    let file = |attribute: &'static anabranch_host::attribute::Attribute| {
        let (mode, dir) = (attribute.mode(), attribute.dir);
        let node =
            Node::File(File { object: name.to_owned(), attribute: attribute.name, mode, dir });
        Child { name: attribute.name.to_owned(), node }
    };
    Ok(shown.map(file).collect())
}

/// Directories of an object that hold some of its attributes.
const GROUPS: &[(&str, Dir)] =
    &[("queue", Dir::Queue), ("diag", Dir::Diag), ("parameters", Dir::Parameters)];

fn object(name: &str, kind: ObjectKind, source: &dyn Source) -> Result<Vec<Child>, Errno> {
    let mut children = files(name, Dir::Device, source)?;
    let shown = source.describe(name)?;
    for (group, dir) in GROUPS {
        if shown.iter().any(|attribute| attribute.dir == *dir) {
            children.push(directory(group, Node::Group(name.to_owned(), *dir)));
        }
    }
    if kind == ObjectKind::Module {
        return Ok(children);
    }
    let objects = source.objects()?;
    let this = find(&objects, name)?;
    let from = home(&this);
    let to = |name: &str, to: &str| link(name, &from, to);
    let below =
        |object: &Object| directory(&object.name, Node::Object(object.name.clone(), object.kind));
    let mine = Some(name);
    let of_subsystem = |o: &&Object| o.subsystem.as_deref() == mine;
    match kind {
        ObjectKind::Module => {}
        ObjectKind::Subsystem => {
            let of_it = objects.iter().filter(of_subsystem);
            children.extend(of_it.filter_map(|o| match o.kind {
                ObjectKind::Controller => Some(to(&o.name, &home(o))),
                ObjectKind::Head => Some(below(o)),
                _ => None,
            }));
            children.push(to("subsystem", "class/nvme-subsystem"));
        }
        ObjectKind::Controller => {
            let paths = objects.iter().filter(|o| is_path(o) && o.controller.as_deref() == mine);
            children.extend(paths.map(below));
            children.push(to("device", CONTROLLERS));
            children.push(to("subsystem", "class/nvme"));
        }
        ObjectKind::Head => {
            children.push(directory("multipath", Node::Multipath(name.to_owned())));
            let subsystem = this.subsystem.as_deref().unwrap_or_default();
            children.push(to("device", &format!("{SUBSYSTEMS}/{subsystem}")));
            children.push(to("subsystem", "class/block"));
        }
        ObjectKind::Path => {
            let controller = this.controller.as_deref().unwrap_or_default();
            children.push(to("device", &format!("{CONTROLLERS}/{controller}")));
            children.push(to("subsystem", "class/block"));
        }
    }
    Ok(children)
}
