//! To which workers a path belongs, for `io-affinity`.

use super::subsystem::Head;
use crate::config::HostConfig;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use anabranch_policy::Affinity;
use anabranch_proto::machine::WorkerId;

/// How each data worker, in order, stands to each path of a head.
///
/// As long as no path of the head has a set of its own, worker *w* has path *w mod paths*, and when
/// that one fails it may use every other. Once some path has one, the others belong to nobody.
pub(super) fn of_paths(head: &Head, config: &HostConfig) -> Vec<Vec<Affinity>> {
    let paths = head.paths.len();
    let unset = head.paths.iter().all(|path| path.io_affinity.is_none());
    let of_path = |index: usize| {
        let path = &head.paths[index];
        let default = || (0..config.data_workers).filter(|&w| usize::from(w) % paths == index);
        let workers: BTreeSet<u16> = match &path.io_affinity {
            Some(workers) => workers.iter().copied().filter(|&w| w < config.data_workers).collect(),
            None if unset => default().collect(),
            None => BTreeSet::new(),
        };
        to_workers(&workers, unset, config)
    };
    (0..paths).map(of_path).collect()
}

/// How each data worker stands to a path that belongs to `workers`.
fn to_workers(workers: &BTreeSet<u16>, unset: bool, config: &HostConfig) -> Vec<Affinity> {
    let node = |worker: u16| config.node_of(WorkerId(worker + 1));
    let nodes: BTreeSet<u32> = workers.iter().copied().map(node).collect();
    let to = |worker: u16| {
        if workers.contains(&worker) {
            Affinity::Own
        } else if nodes.contains(&node(worker)) {
            Affinity::Node
        } else if unset || !workers.is_empty() {
            Affinity::Mapped
        } else {
            Affinity::Unmapped
        }
    };
    (0..config.data_workers).map(to).collect()
}
