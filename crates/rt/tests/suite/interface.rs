//! The NUMA nodes of network devices, in made-up trees; and what a connection is told.

use crate::support::Dir;
use anabranch_rt::interface::node_of_interface;
use std::fs::{create_dir_all, write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A device on a bus; `virtio` is one more in between.
fn card(root: &Path, name: &str, slot: &str, node: &str) {
    let bus = root.join("sys/devices/pci0000:00").join(slot);
    let device = bus.join("virtio0");
    create_dir_all(&device).expect("made");
    write(bus.join("numa_node"), node).expect("written");
    let net = net(root, name);
    symlink(device, net.join("device")).expect("linked");
}

fn net(root: &Path, name: &str) -> PathBuf {
    let net = root.join("sys/class/net").join(name);
    create_dir_all(&net).expect("made");
    net
}

fn over(root: &Path, name: &str, lower: &[&str]) {
    let upper = net(root, name);
    for name in lower {
        let to = root.join("sys/class/net").join(name);
        symlink(to, upper.join(format!("lower_{name}"))).expect("linked");
    }
}

#[test]
fn the_node_of_a_network_device() {
    let dir = Dir::new("interface");
    let root = &dir.0;
    card(root, "eth0", "0000:00:01.0", "0\n");
    card(root, "eth1", "0000:80:01.0", "1\n");
    card(root, "eth2", "0000:80:02.0", "1\n");
    card(root, "usb0", "0000:00:09.0", "-1\n");
    over(root, "bond0", &["eth1", "eth2"]);
    over(root, "bond0.7", &["bond0"]);
    over(root, "bond1", &["eth0", "eth1"]);
    over(root, "br0", &["eth1", "veth0"]);
    over(root, "veth0", &[]);
    over(root, "loop", &["loop"]);
    for (name, node) in [
        ("eth0", Some(0)),
        ("eth1", Some(1)),
        ("usb0", None),
        ("bond0", Some(1)),
        ("bond0.7", Some(1)),
        ("bond1", None),
        ("br0", Some(1)),
        ("veth0", None),
        ("loop", None),
        ("nowhere", None),
    ] {
        assert_eq!(node_of_interface(root, name), node, "{name}");
    }
}
