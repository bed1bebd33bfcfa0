//! To which workers a path belongs, for `io-affinity`.

use super::subsystem::Head;
use crate::config::HostConfig;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use anabranch_policy::Affinity;
use anabranch_proto::machine::WorkerId;

/// How each data worker, in order, stands to each path of a head.
///
/// As long as no path of the head has a set of its own, worker *w* has path *w mod paths*, and when
/// that one fails it may use every other. Once some path has one, the others belong to nobody.
pub(super) fn of_paths(head: &Head, config: &HostConfig) -> Vec<Arc<[Affinity]>> {
    let unset = is_unset(head);
    let paths = 0..head.paths.len();
    paths.map(|index| to_workers(&workers_of(head, index, config), unset, config)).collect()
}

fn is_unset(head: &Head) -> bool {
    head.paths.iter().all(|path| path.io_affinity.is_none())
}

/// The data workers, from 0, that a path of a head belongs to.
pub(super) fn workers_of(head: &Head, index: usize, config: &HostConfig) -> BTreeSet<u16> {
    let paths = head.paths.len();
    match &head.paths[index].io_affinity {
        Some(workers) => workers.iter().copied().filter(|&w| w < config.data_workers).collect(),
        None if is_unset(head) => {
            (0..config.data_workers).filter(|&w| usize::from(w) % paths == index).collect()
        }
        None => BTreeSet::new(),
    }
}

/// How each data worker stands to a path that belongs to `workers`.
fn to_workers(workers: &BTreeSet<u16>, unset: bool, config: &HostConfig) -> Arc<[Affinity]> {
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
