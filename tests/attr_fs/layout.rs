//! The tree stands as sysfs does: real places, links, and nothing that is not known.

use crate::stand::{OBJECTS, Stand, errno};
use anabranch_host::attribute::{self, Attribute, Dir, ObjectKind};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs;

fn names(stand: &Stand, dir: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(stand.at(dir)).unwrap_or_else(|error| panic!("{dir}: {error}"));
    entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn directories_of_objects_hold_their_attributes_and_what_belongs_to_them() {
    let Some(stand) = Stand::new() else { return };
    for (kind, object) in OBJECTS {
        let (dir, more): (_, &[&str]) = match kind {
            ObjectKind::Module => ("module", &["parameters"]),
            ObjectKind::Subsystem => {
                ("class/nvme-subsystem", &["nvme0", "nvme1", "nvme0n1", "nvme0n2", "subsystem"])
            }
            ObjectKind::Controller => {
                ("class/nvme", &["nvme0c0n1", "nvme0c0n2", "diag", "device", "subsystem"])
            }
            ObjectKind::Head => ("block", &["queue", "diag", "multipath", "device", "subsystem"]),
            ObjectKind::Path => ("block", &["queue", "diag", "device", "subsystem"]),
        };
        let dir = format!("{dir}/{object}");
        let shown = attribute::all().filter(|entry| entry.object == kind);
        let is_there =
            |entry: &&_| !Attribute::is_readable(entry) || stand.get(object, entry.name).is_some();
        let shown: Vec<_> = shown.filter(is_there).collect();
        let in_dir = |dir: Dir| shown.iter().filter(move |entry| entry.dir == dir);
        let own: BTreeSet<String> = in_dir(Dir::Device).map(|e| e.name.to_owned()).collect();
        assert_eq!(names(&stand, &dir), own.union(&set(more)).cloned().collect(), "{object}");
        for (group, place) in
            [("queue", Dir::Queue), ("diag", Dir::Diag), ("parameters", Dir::Parameters)]
        {
            let wanted: BTreeSet<String> = in_dir(place).map(|e| e.name.to_owned()).collect();
            if wanted.is_empty() {
                assert!(!more.contains(&group), "{object} has no {group}");
            } else {
                assert_eq!(names(&stand, &format!("{dir}/{group}")), wanted, "{object}");
            }
        }
    }
    stand.finish();
}

#[test]
fn links_lead_where_sysfs_has_them() {
    let Some(stand) = Stand::new() else { return };
    let ctl = "devices/virtual/nvme-fabrics/ctl";
    let subsystem = "devices/virtual/nvme-subsystem/nvme-subsys0";
    for (link, text, real) in [
        ("class/nvme/nvme1", "../../devices/virtual/nvme-fabrics/ctl/nvme1", "CTL/nvme1"),
        (
            "class/nvme-subsystem/nvme-subsys0",
            "../../devices/virtual/nvme-subsystem/nvme-subsys0",
            "SUB",
        ),
        ("class/nvme-fabrics/ctl", "../../devices/virtual/nvme-fabrics/ctl", "CTL"),
        ("block/nvme0n1", "../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1", "SUB/nvme0n1"),
        (
            "class/block/nvme0c1n2",
            "../../devices/virtual/nvme-fabrics/ctl/nvme1/nvme0c1n2",
            "CTL/nvme1/nvme0c1n2",
        ),
        ("SUB/nvme0", "../../nvme-fabrics/ctl/nvme0", "CTL/nvme0"),
        ("SUB/nvme0n1/device", "../../nvme-subsys0", "SUB"),
        (
            "SUB/nvme0n1/multipath/nvme0c1n1",
            "../../../../nvme-fabrics/ctl/nvme1/nvme0c1n1",
            "CTL/nvme1/nvme0c1n1",
        ),
        ("CTL/nvme0/nvme0c0n1/device", "../../nvme0", "CTL/nvme0"),
        ("CTL/nvme0/subsystem", "../../../../../class/nvme", "class/nvme"),
    ] {
        let whole = |path: &str| stand.at(&path.replace("CTL", ctl).replace("SUB", subsystem));
        let to = fs::read_link(whole(link)).unwrap_or_else(|error| panic!("{link}: {error}"));
        assert_eq!(to.to_str(), Some(text), "{link}");
        let target = fs::canonicalize(whole(link)).expect("it leads somewhere");
        assert_eq!(target, fs::canonicalize(whole(real)).expect("a real place"), "{link}");
    }
    stand.finish();
}

#[test]
fn disks_are_listed_with_their_paths_and_the_rest_is_not_there() {
    let Some(stand) = Stand::new() else { return };
    let disks = ["nvme0c0n1", "nvme0c0n2", "nvme0c1n1", "nvme0c1n2", "nvme0n1", "nvme0n2"];
    for dir in ["block", "class/block", "kernel/debug/block"] {
        assert_eq!(names(&stand, dir), set(&disks), "{dir}");
    }
    assert_eq!(names(&stand, "class/nvme"), set(&["nvme0", "nvme1"]));
    assert_eq!(stand.read("block/nvme0n1/size"), "16384\n");
    assert_eq!(stand.read("block/nvme0n2/queue/logical_block_size"), "4096\n");
    assert_eq!(stand.read("block/nvme0n1/hidden"), "0\n");
    assert_eq!(stand.read("block/nvme0c1n1/hidden"), "1\n");
    assert_eq!(stand.read("block/nvme0c1n1/wwid"), stand.read("block/nvme0n1/wwid"));
    for gone in ["block/nvme0n3", "block/sda", "class/nvme/nvme2", "block/nvme0n1/dev", "fs"] {
        assert_eq!(errno(fs::symlink_metadata(stand.at(gone))), Errno::NOENT.raw_os_error());
    }
    stand.finish();
}

#[test]
fn devices_and_paths_come_and_go() {
    let Some(stand) = Stand::new() else { return };
    stand.disconnect("nvme1");
    assert_eq!(names(&stand, "class/nvme"), set(&["nvme0"]));
    assert_eq!(names(&stand, "block/nvme0n1/multipath"), set(&["nvme0c0n1"]));
    stand.disconnect("nvme0");
    for dir in ["class/nvme", "class/nvme-subsystem", "block", "kernel/debug/block"] {
        assert_eq!(names(&stand, dir), set(&[]), "{dir}");
    }
    assert_eq!(stand.connect(1), "nvme0");
    assert_eq!(names(&stand, "block/nvme0n1/multipath"), set(&["nvme0c0n1"]));
    stand.finish();
}
