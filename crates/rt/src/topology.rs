//! The machine's CPUs and NUMA nodes, as the system shows them.

use rustix::thread::{CpuSet as RawSet, sched_getaffinity, sched_setaffinity};
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

/// A set of CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSet(Vec<usize>);

impl CpuSet {
    /// The CPUs that this thread may run on.
    ///
    /// # Errors
    /// The system's answer (a machine with more CPUs than the system's set type holds).
    pub fn allowed() -> io::Result<CpuSet> {
        let raw = sched_getaffinity(None)?;
        Ok(CpuSet((0..RawSet::MAX_CPU).filter(|cpu| raw.is_set(*cpu)).collect()))
    }

    /// The set of these CPUs.
    pub fn of(cpus: impl IntoIterator<Item = usize>) -> CpuSet {
        let mut list: Vec<usize> = cpus.into_iter().collect();
        list.sort_unstable();
        list.dedup();
        CpuSet(list)
    }

    /// Parses the kernel's list format: `0-3,8,10-11`. `None` when it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<CpuSet> {
        let text = text.trim();
        if text.is_empty() {
            return Some(CpuSet::default());
        }
        let mut list = Vec::new();
        for part in text.split(',') {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let (from, to): (usize, usize) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
            if from > to || to >= MAX_CPU {
                return None;
            }
            list.extend(from..=to);
        }
        Some(CpuSet::of(list))
    }

    /// Whether `cpu` is in the set.
    #[must_use]
    pub fn contains(&self, cpu: usize) -> bool {
        self.0.binary_search(&cpu).is_ok()
    }

    /// The CPUs in rising order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().copied()
    }

    /// How many CPUs are in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no CPU is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Binds the calling thread to the set.
    pub(crate) fn apply(&self) -> io::Result<()> {
        let mut raw = RawSet::new();
        for cpu in self.iter().filter(|cpu| *cpu < RawSet::MAX_CPU) {
            raw.set(cpu);
        }
        Ok(sched_setaffinity(None, &raw)?)
    }
}

/// Greatest CPU number that a list may name.
const MAX_CPU: usize = 1 << 16;

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = &self.0[..];
        let mut comma = "";
        while let Some(&first) = rest.first() {
            let run = rest.iter().enumerate().take_while(|(i, cpu)| **cpu == first + i).count();
            match run {
                1 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{}", first + run - 1)?,
            }
            comma = ",";
            rest = &rest[run..];
        }
        Ok(())
    }
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub id: u32,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Distance to each node, in the order of [`Topology::nodes`]; 10 is local.
    pub distances: Vec<u32>,
}

/// The NUMA nodes of a machine, by rising number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// At least one node.
    pub nodes: Vec<Node>,
}

/// The system's distance of a node to itself.
pub const LOCAL_DISTANCE: u32 = 10;
/// The distance between nodes for which the system names none.
pub const REMOTE_DISTANCE: u32 = 20;

impl Topology {
    /// Reads the tree below `root` (`/` live, a fixture in tests). A system without NUMA, and a
    /// tree that cannot be read, is one node with all CPUs online.
    #[must_use]
    pub fn read(root: &Path) -> Topology {
        let system = root.join("sys/devices/system");
        let list = |path: &Path| fs::read_to_string(path).ok().and_then(|t| CpuSet::parse(&t));
        let ids = list(&system.join("node/online")).unwrap_or_default();
        let nodes: Vec<Node> = ids
            .iter()
            .map(|id| {
                let node = system.join(format!("node/node{id}"));
                let distance = fs::read_to_string(node.join("distance")).unwrap_or_default();
                let distances = distance.split_whitespace().flat_map(str::parse).collect();
                let cpus = list(&node.join("cpulist")).unwrap_or_default();
                Node { id: id as u32, cpus, distances }
            })
            .collect();
        if nodes.is_empty() {
            let cpus = list(&system.join("cpu/online")).unwrap_or_else(|| CpuSet::of([0]));
            return Topology { nodes: vec![Node { id: 0, cpus, distances: vec![LOCAL_DISTANCE] }] };
        }
        Topology { nodes }
    }

    /// The node that a CPU belongs to.
    #[must_use]
    pub fn node_of(&self, cpu: usize) -> Option<u32> {
        self.nodes.iter().find(|node| node.cpus.contains(cpu)).map(|node| node.id)
    }

    /// The distances from a node to each by its number; none from a place that is no node.
    #[must_use]
    pub fn distances(&self, from: Option<u32>) -> Vec<u32> {
        let nodes = self.nodes.iter().map(|node| node.id + 1).max().unwrap_or(0);
        let to = |from| (0..nodes).map(|to| self.distance(from, to)).collect();
        from.map_or_else(Vec::new, to)
    }

    /// The distance between two nodes.
    #[must_use]
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        let place = |id| self.nodes.iter().position(|node| node.id == id);
        let known = place(from)
            .zip(place(to))
            .and_then(|(from, to)| self.nodes[from].distances.get(to).copied());
        known.unwrap_or(if from == to { LOCAL_DISTANCE } else { REMOTE_DISTANCE })
    }
}
