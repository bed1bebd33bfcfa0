//! The NUMA node of the network device that a connection goes through.

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;
use rustix::net::netdevice::name_to_index;
use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::BorrowedFd;
use std::path::Path;

/// How many devices may stand on top of each other: a VLAN on a bond is two.
const MAX_LAYERS: u32 = 8;

/// The node of a network device, as the tree below `root` says (`/` live, a fixture in tests);
/// `None` when it says none. A device that others carry (a bond, a VLAN, a bridge) is where they
/// are, when they are all on one node.
#[must_use]
pub fn node_of_interface(root: &Path, name: &str) -> Option<u32> {
    let mut nodes = BTreeSet::new();
    collect(&root.join("sys/class/net"), name, MAX_LAYERS, &mut nodes);
    only(&nodes)
}

/// The node of what a connected socket is bound to, else of whose address it has.
pub(crate) fn node_of_connection(fd: BorrowedFd<'_>, local: Option<SocketAddr>) -> Option<u32> {
    let root = Path::new("/");
    let bound = socket2::SockRef::from(&fd).device().ok().flatten();
    let bound = bound.and_then(|name| String::from_utf8(name).ok());
    let names = match bound {
        Some(name) => BTreeSet::from([name.trim_end_matches('\0').to_owned()]),
        None => interfaces_of(&local?),
    };
    let ours = names.iter().filter(|name| is_shown(root, name, fd));
    only(&ours.filter_map(|name| node_of_interface(root, name)).collect())
}

/// Whether the tree shows the devices of our network namespace: it may be that of another one,
/// where the name is somebody else's.
fn is_shown(root: &Path, name: &str, fd: BorrowedFd<'_>) -> bool {
    let shown = fs::read_to_string(root.join("sys/class/net").join(name).join("ifindex"));
    let shown = shown.ok().and_then(|text| text.trim().parse::<u32>().ok());
    shown.is_some() && shown == name_to_index(fd, name).ok()
}

/// The devices that have an address: one, but for mistakes.
fn interfaces_of(local: &SocketAddr) -> BTreeSet<String> {
    let Ok(all) = getifaddrs() else { return BTreeSet::new() };
    let with_it = all.filter(|one| one.address.as_ref().is_some_and(|at| is_at(at, local)));
    // An address with a label has the name `eth0:label`.
    let name = |label: String| label.split(':').next().unwrap_or_default().to_owned();
    with_it.map(|one| name(one.interface_name)).collect()
}

fn is_at(address: &SockaddrStorage, local: &SocketAddr) -> bool {
    match local.ip().to_canonical() {
        IpAddr::V4(ip) => address.as_sockaddr_in().is_some_and(|at| at.ip() == ip),
        IpAddr::V6(ip) => address.as_sockaddr_in6().is_some_and(|at| {
            let scope = if let SocketAddr::V6(v6) = local { v6.scope_id() } else { 0 };
            let at = SocketAddrV6::from(*at);
            *at.ip() == ip && (scope == 0 || at.scope_id() == scope)
        }),
    }
}

fn collect(net: &Path, name: &str, layers: u32, nodes: &mut BTreeSet<u32>) {
    let device = net.join(name);
    if let Ok(own) = fs::canonicalize(device.join("device")) {
        // What hangs on a bus is where the bus's device is: virtio's on PCI says nothing itself.
        let told = own.ancestors().find_map(|at| fs::read_to_string(at.join("numa_node")).ok());
        // -1: there is none.
        nodes.extend(told.and_then(|text| text.trim().parse::<u32>().ok()));
        return;
    }
    let Ok(entries) = fs::read_dir(&device) else { return };
    for entry in entries.flatten().filter(|_| layers > 0) {
        if let Some(lower) = entry.file_name().to_str().and_then(|name| name.strip_prefix("lower_"))
        {
            collect(net, lower, layers - 1, nodes);
        }
    }
}

fn only(nodes: &BTreeSet<u32>) -> Option<u32> {
    nodes.first().copied().filter(|_| nodes.len() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn a_tree_of_another_network_namespace_says_nothing_of_ours() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let ours = name_to_index(socket.as_fd(), "lo").expect("there is one everywhere");
        let root = std::env::temp_dir().join(format!("anabranch-ifindex-{}", std::process::id()));
        let lo = root.join("sys/class/net/lo");
        fs::create_dir_all(&lo).expect("made");
        let shown = [ours, ours + 1].map(|index| {
            fs::write(lo.join("ifindex"), format!("{index}\n")).expect("written");
            is_shown(&root, "lo", socket.as_fd())
        });
        let gone = is_shown(&root, "nosuch0", socket.as_fd());
        fs::remove_dir_all(&root).expect("removed");
        assert_eq!((shown, gone), ([true, false], false));
    }
}
