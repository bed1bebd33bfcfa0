//! On which CPUs workers run.

use crate::topology::{CpuSet, Topology};
use crate::{Config, Error};
use std::collections::BTreeSet;

impl Config {
    /// The NUMA node of each of so many workers, where all of its CPUs lie in one; `None` for those
    /// that may run on several: where they are changes all the time.
    ///
    /// # Errors
    /// A CPU is named that this process may not use.
    pub fn nodes(&self, workers: usize, topology: &Topology) -> Result<Vec<Option<u32>>, Error> {
        // Not readable on a machine with more CPUs than the set type holds: then they have none.
        let allowed = CpuSet::allowed().unwrap_or_default();
        let node = |cpus: &Option<CpuSet>| {
            let cpus = cpus.as_ref().unwrap_or(&allowed);
            let mut nodes = cpus.iter().map(|cpu| topology.node_of(cpu));
            let first = nodes.next().flatten()?;
            nodes.all(|other| other == Some(first)).then_some(first)
        };
        Ok(cpus(self, workers, topology)?.iter().map(node).collect())
    }
}

/// The CPU set of each worker; `None` leaves the thread's set alone.
pub(crate) fn cpus(
    config: &Config,
    workers: usize,
    topology: &Topology,
) -> Result<Vec<Option<CpuSet>>, Error> {
    let by_node = config.by_node && !config.pin && topology.nodes.len() > 1;
    if config.cpus.is_none() && !config.pin && !by_node {
        return Ok(vec![None; workers]);
    }
    let allowed = match CpuSet::allowed() {
        Ok(allowed) => allowed,
        // Nobody has asked for certain ones.
        Err(_) if config.cpus.is_none() && !config.pin => return Ok(vec![None; workers]),
        Err(source) => return Err(Error::System { what: "read the allowed CPUs", source }),
    };
    let listed = config.cpus.as_ref().filter(|list| !list.is_empty());
    if let Some(&cpu) = listed.into_iter().flatten().find(|cpu| !allowed.contains(**cpu)) {
        return Err(Error::Cpu { cpu, allowed: allowed.to_string() });
    }
    let wanted = listed.cloned().unwrap_or_else(|| allowed.iter().collect());
    Ok(placed(config, (wanted, listed.is_some()), workers, topology))
}

/// The same, where these CPUs are to be used, whether they were `listed` or are all that there are.
fn placed(
    config: &Config,
    (mut wanted, listed): (Vec<usize>, bool),
    workers: usize,
    topology: &Topology,
) -> Vec<Option<CpuSet>> {
    if config.pin && listed {
        let one = |worker: usize| Some(CpuSet::of([wanted[worker % wanted.len()]]));
        return (0..workers).map(one).collect();
    }
    // Nodes may have their numbers in turn.
    wanted.sort_by_key(|cpu| topology.node_of(*cpu));
    let nodes: BTreeSet<_> = wanted.iter().map(|cpu| topology.node_of(*cpu)).collect();
    let by_node = config.by_node && (2..workers).contains(&nodes.len());
    if !(listed || config.pin || by_node) {
        return vec![None; workers];
    }
    let node = |worker: usize| topology.node_of(wanted[worker * wanted.len() / workers]);
    let set = |worker: usize| {
        let of_node = wanted.iter().filter(|cpu| topology.node_of(**cpu) == node(worker));
        match () {
            // Of each node the first ones: those that follow may be their second threads.
            () if config.pin => {
                let before = (0..worker).filter(|&other| node(other) == node(worker)).count();
                CpuSet::of(of_node.copied().cycle().nth(before))
            }
            () if by_node => CpuSet::of(of_node.copied()),
            () => CpuSet::of(wanted.iter().copied()),
        }
    };
    (0..workers).map(|worker| Some(set(worker))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Node;

    /// Two nodes with the same number of CPUs, numbered in turn or one after the other, and one
    /// that has memory alone.
    fn machine(cpus: usize, in_turn: bool) -> Topology {
        let of = |id: usize| {
            let node = |cpu: usize| if in_turn { cpu % 2 } else { cpu * 2 / cpus };
            let cpus = CpuSet::of((0..cpus).filter(|cpu| node(*cpu) == id));
            Node { id: id as u32, cpus, distances: Vec::new() }
        };
        Topology { nodes: [0, 1, 2].map(of).into() }
    }

    fn sets(config: &Config, cpus: &[usize], workers: usize, machine: &Topology) -> Vec<String> {
        let placed = placed(config, (cpus.to_vec(), config.cpus.is_some()), workers, machine);
        let text = |set: Option<CpuSet>| set.map_or_else(String::new, |set| set.to_string());
        placed.into_iter().map(text).collect()
    }

    #[test]
    fn half_of_the_workers_are_on_each_node_however_cpus_are_numbered() {
        let config = Config { by_node: true, ..Config::default() };
        let all: Vec<usize> = (0..8).collect();
        for (in_turn, nodes) in [(true, ["0,2,4,6", "1,3,5,7"]), (false, ["0-3", "4-7"])] {
            for workers in [4, 8, 16] {
                let expected = nodes.map(|node| vec![node; workers / 2]).concat();
                assert_eq!(sets(&config, &all, workers, &machine(8, in_turn)), expected);
            }
        }
        assert_eq!(sets(&config, &[0, 2], 4, &machine(8, true)), [""; 4], "all on one node");
    }

    /// The second threads of a node's cores come last.
    #[test]
    fn pinned_workers_have_the_first_cpus_of_each_node() {
        let pin = Config { by_node: true, pin: true, ..Config::default() };
        let all: Vec<usize> = (0..8).collect();
        assert_eq!(sets(&pin, &all, 4, &machine(8, false)), ["0", "1", "4", "5"]);
        assert_eq!(sets(&pin, &all, 4, &machine(8, true)), ["0", "2", "1", "3"]);
        let more = sets(&pin, &all, 9, &machine(8, false));
        assert_eq!(more, ["0", "1", "2", "3", "0", "4", "5", "6", "7"]);
        let listed = Config { cpus: Some(vec![5, 0, 4]), ..pin };
        assert_eq!(sets(&listed, &[5, 0, 4], 4, &machine(8, true)), ["5", "0", "4", "5"]);
    }
}
