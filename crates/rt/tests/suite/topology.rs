//! CPU lists and NUMA trees, live and made up.

use crate::support::Dir;
use anabranch_rt::Config;
use anabranch_rt::topology::{CpuSet, LOCAL_DISTANCE, Node, REMOTE_DISTANCE, Topology};
use std::path::Path;

#[test]
fn cpu_lists() {
    for (text, list) in [
        ("", vec![]),
        ("0", vec![0]),
        ("0-3,8,10-11\n", vec![0, 1, 2, 3, 8, 10, 11]),
        ("5,3,4,3", vec![3, 4, 5]),
    ] {
        let set = CpuSet::parse(text).expect(text);
        assert_eq!(set.iter().collect::<Vec<_>>(), list);
        assert_eq!(CpuSet::parse(&set.to_string()), Some(set));
    }
    for text in ["x", "1-", "3-1", "-1", "0-99999999999", "1,,2"] {
        assert_eq!(CpuSet::parse(text), None, "{text}");
    }
    assert_eq!(CpuSet::of([3, 1, 2, 7]).to_string(), "1-3,7");
}

#[test]
fn the_live_machine() {
    let allowed = CpuSet::allowed().expect("readable");
    assert!(!allowed.is_empty());
    let topology = Topology::read(Path::new("/"));
    let first = topology.nodes.first().expect("a node").id;
    assert_eq!(topology.distance(first, first), LOCAL_DISTANCE);
}

#[test]
fn a_machine_with_three_nodes() {
    let dir = Dir::new("topology");
    let write = |path: &str, text: &str| {
        let path = dir.0.join("sys/devices/system").join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    write("node/online", "0-1,4\n");
    write("node/node0/cpulist", "0-1\n");
    write("node/node1/cpulist", "2-3\n");
    write("node/node4/cpulist", "\n");
    write("node/node0/distance", "10 21 31\n");
    write("node/node1/distance", "21 10 31\n");
    let topology = Topology::read(&dir.0);
    assert_eq!(topology.nodes.len(), 3);
    assert_eq!(topology.node_of(3), Some(1));
    assert_eq!(topology.node_of(9), None);
    assert_eq!(topology.distance(0, 4), 31);
    assert_eq!(topology.distance(4, 0), REMOTE_DISTANCE, "not told");
    assert_eq!(topology.distance(4, 4), LOCAL_DISTANCE);
    let [near, far] = [LOCAL_DISTANCE, REMOTE_DISTANCE];
    assert_eq!(topology.distances(Some(1)), [21, near, far, far, 31], "by number");
    assert_eq!(topology.distances(None), []);
}

#[test]
fn a_machine_without_nodes() {
    let dir = Dir::new("topology-flat");
    let cpu = dir.0.join("sys/devices/system/cpu");
    std::fs::create_dir_all(&cpu).expect("made");
    std::fs::write(cpu.join("online"), "0-5\n").expect("written");
    let topology = Topology::read(&dir.0);
    assert_eq!(topology.node_of(5), Some(0));
    assert_eq!(topology.distance(0, 0), LOCAL_DISTANCE);
}

#[test]
fn a_worker_has_a_node_when_all_its_cpus_lie_in_one() {
    let allowed: Vec<usize> = CpuSet::allowed().expect("readable").iter().collect();
    let (first, others) = allowed.split_first().expect("a CPU");
    let node = |id, cpus: &[usize]| Node {
        id,
        cpus: CpuSet::of(cpus.iter().copied()),
        distances: Vec::new(),
    };
    let topology = Topology { nodes: vec![node(3, &[*first]), node(5, others)] };
    let free = Config::default();
    let anywhere = others.is_empty().then_some(3);
    assert_eq!(free.nodes(2, &topology).expect("allowed"), [anywhere; 2]);
    let one = Topology { nodes: vec![node(6, &allowed)] };
    assert_eq!(free.nodes(2, &one).expect("allowed"), [Some(6); 2], "nowhere else");
    let bound = Config { pin: true, ..Config::default() };
    let nodes = bound.nodes(allowed.len() + 1, &topology).expect("allowed");
    let expected = [3, 3].into_iter().chain(others.iter().map(|_| 5)).map(Some);
    assert_eq!(nodes, expected.collect::<Vec<_>>(), "one CPU each");
    let named = Config { cpus: Some(vec![*first]), ..Config::default() };
    assert_eq!(named.nodes(2, &topology).expect("allowed"), [Some(3); 2]);
    let everywhere = Config { cpus: Some(allowed.clone()), ..Config::default() };
    assert_eq!(everywhere.nodes(1, &topology).expect("allowed"), [anywhere]);
    let wrong = Config { cpus: Some(vec![99_999]), ..Config::default() };
    assert!(wrong.nodes(1, &topology).is_err());
}

/// A machine that has been told so: what is allowed to this process, in two nodes.
#[test]
fn workers_are_spread_over_the_nodes_and_each_keeps_to_its_own() {
    let allowed: Vec<usize> = CpuSet::allowed().expect("readable").iter().collect();
    let (left, right) = allowed.split_at(allowed.len() / 2);
    let node = |id, cpus: &[usize]| Node {
        id,
        cpus: CpuSet::of(cpus.iter().copied()),
        distances: Vec::new(),
    };
    let topology = Topology { nodes: vec![node(0, left), node(1, right)] };
    let config = Config { by_node: true, ..Config::default() };
    let nodes = |config: &Config, workers| config.nodes(workers, &topology).expect("allowed");
    let halves = |each: usize| [vec![Some(0); each], vec![Some(1); each]].concat();
    if left.is_empty() {
        assert_eq!(nodes(&config, 4), [Some(1); 4], "one CPU is of one node");
        return;
    }
    if left.len() == right.len() {
        assert_eq!(nodes(&config, 4), halves(2));
        assert_eq!(nodes(&config, 40), halves(20), "more than there are CPUs");
    }
    assert_eq!(nodes(&config, 2), [None; 2], "not so many that there is one for each node");
    let named = Config { cpus: Some(right.to_vec()), ..config.clone() };
    assert_eq!(nodes(&named, 3), [Some(1); 3]);
    let pinned = Config { pin: true, cpus: Some(vec![right[0], left[0]]), ..config };
    assert_eq!(nodes(&pinned, 3), [Some(1), Some(0), Some(1)], "in turn");
}
