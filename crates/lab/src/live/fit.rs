//! A scenario as this machine can run it: fewer workers, burners held in.
//!
//! Each step that changes the experiment leaves a sentence for its reader.

use super::host::falls_silent;
use crate::scenario::Scenario;

/// Of all CPUs together, burners take at most this much, in hundredths.
const BURNT_MOST: u64 = 40;
/// Bounds of `queue_size` at connect.
pub(super) const QUEUE_SIZES: (u32, u32) = (16, 1024);

/// A scenario that fits, and what was done to it.
#[derive(Clone, Debug)]
pub(super) struct Fitted {
    /// The scenario with the changes.
    pub(super) scenario: Scenario,
    /// What a reader of the figures must know.
    pub(super) notes: Vec<String>,
}

/// Fits workers, queues and burners to `cpus` CPUs. Rates stay.
pub(super) fn fit(asked: &Scenario, cpus: usize) -> Fitted {
    let mut fitted = Fitted { scenario: asked.clone(), notes: Vec::new() };
    fit_workers(&mut fitted, cpus);
    fit_queues(&mut fitted);
    fit_burners(&mut fitted, cpus);
    tell_what_is_left_out(&mut fitted);
    fitted
}

/// Data workers per host: at most one per CPU, and with many hosts no more than two per CPU in all.
fn most_workers(cpus: usize, hosts: u32) -> u32 {
    let cpus = u32::try_from(cpus.max(1)).unwrap_or(u32::MAX);
    (cpus.saturating_mul(2) / hosts.max(1)).clamp(1, cpus)
}

fn fit_workers(fitted: &mut Fitted, cpus: usize) {
    let hosts = &mut fitted.scenario.hosts;
    let (asked, most) = (hosts.workers, most_workers(cpus, hosts.count));
    if asked <= most {
        return;
    }
    let node = |worker: u32| hosts.nodes[(worker * asked / most) as usize];
    hosts.nodes = (0..most).map(node).collect();
    hosts.workers = most;
    let variants = &mut fitted.scenario.variants;
    if hosts.io_queues.is_none() && variants.iter().all(|variant| variant.io_queues.is_none()) {
        // As many tags per path as before.
        hosts.queue_depth = hosts.queue_depth.saturating_mul(asked) / most;
    }
    for queues in variants.iter_mut().map(|v| &mut v.io_queues).chain([&mut hosts.io_queues]) {
        *queues = queues.map(|queues| queues.min(most));
    }
    for job in &mut fitted.scenario.jobs {
        for worker in &mut job.workers {
            *worker %= most;
        }
        job.workers.sort_unstable();
        job.workers.dedup();
    }
    fitted.notes.push(format!(
        "{most} data {} per host instead of {asked}: this machine has {cpus} CPUs",
        if most == 1 { "worker" } else { "workers" }
    ));
}

fn fit_queues(fitted: &mut Fitted) {
    let depth = &mut fitted.scenario.hosts.queue_depth;
    let fits = (*depth).clamp(QUEUE_SIZES.0, QUEUE_SIZES.1);
    if fits != *depth {
        fitted.notes.push(format!("queue pairs of {fits} entries instead of {depth}"));
        *depth = fits;
    }
}

/// Every host has the burners; together they must leave the load its CPU time.
fn fit_burners(fitted: &mut Fitted, cpus: usize) {
    let (hosts, cpus) = (u64::from(fitted.scenario.hosts.count), cpus.max(1) as u64);
    let load = |scenario: &Scenario| -> u64 {
        let of = scenario.burners.iter().map(|b| u64::from(b.load_percent) * u64::from(b.clones));
        of.sum::<u64>().saturating_mul(hosts)
    };
    let (asked, most) = (load(&fitted.scenario), cpus * BURNT_MOST);
    if asked <= most {
        return;
    }
    let limit = u32::try_from(cpus).unwrap_or(u32::MAX);
    for burner in &mut fitted.scenario.burners {
        burner.clones = burner.clones.min(limit);
    }
    let left = load(&fitted.scenario).max(1);
    for burner in &mut fitted.scenario.burners {
        let share = u64::from(burner.load_percent) * most / left;
        burner.load_percent = u32::try_from(share.clamp(1, 100)).unwrap_or(100);
    }
    let got = load(&fitted.scenario);
    fitted.notes.push(format!(
        "burners take {got} % of one CPU instead of {asked} %: more would leave the load no CPU \
         time on this machine ({cpus} CPUs)"
    ));
}

fn tell_what_is_left_out(fitted: &mut Fitted) {
    let paths = &fitted.scenario.paths;
    if paths.iter().any(|path| path.node != paths[0].node) {
        let text = "NUMA nodes of paths are left out: all links are loopback, at the same distance";
        fitted.notes.push(text.to_owned());
    }
    if falls_silent(&fitted.scenario) {
        let text = "silence is noticed when a Keep Alive stays unanswered: after a half to the \
                    whole of the time that the scenario gives";
        fitted.notes.push(text.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Burner, BurnerMode, Hosts, Job, Path, Run, Target, Variant};
    use anabranch_policy::Policy;

    fn scenario() -> Scenario {
        let mut path = Path::new("a");
        path.shape.rate_out = Some(8_000_000_000);
        path.shape.delay = std::time::Duration::from_millis(3);
        Scenario {
            name: "fit".into(),
            title: "fit".into(),
            source: String::new(),
            run: Run::default(),
            hosts: Hosts { nodes: vec![0, 0, 1, 1], ..Hosts::default() },
            target: Target::default(),
            paths: vec![path],
            changes: Vec::new(),
            jobs: vec![Job { workers: vec![0, 2, 3], ..Job::default() }],
            burners: Vec::new(),
            variants: vec![Variant::plain(Policy::default(), 1)],
            published: Vec::new(),
        }
    }

    #[test]
    fn fewer_workers_keep_the_nodes_the_tags_and_a_place_for_every_job() {
        let fitted = fit(&scenario(), 2);
        let hosts = &fitted.scenario.hosts;
        assert_eq!((hosts.workers, hosts.nodes.as_slice()), (2, &[0, 1][..]));
        assert_eq!(hosts.queue_depth, 256);
        assert_eq!(fitted.scenario.jobs[0].workers, [0, 1]);
        assert_eq!(fitted.scenario.check(), Ok(()));
        assert_eq!(fitted.notes.len(), 1, "{:?}", fitted.notes);
        let mut shared = scenario();
        shared.variants[0].io_queues = Some(1);
        shared.hosts.io_queues = Some(4);
        let fitted = fit(&shared, 2).scenario;
        assert_eq!((fitted.hosts.queue_depth, fitted.hosts.io_queues), (128, Some(2)));
        assert_eq!(fitted.variants[0].io_queues, Some(1));
        assert!(fit(&scenario(), 4).notes.is_empty());
    }

    #[test]
    fn a_hundred_hosts_have_one_worker_each() {
        assert_eq!([1, 2, 3, 100].map(|hosts| most_workers(2, hosts)), [2, 2, 1, 1]);
    }

    #[test]
    fn burners_leave_the_load_its_cpu_time() {
        let mut asked = scenario();
        let name = "cpu".to_owned();
        let mode = BurnerMode::Noop;
        asked.burners =
            vec![Burner { name, load_percent: 85, chunk_ns: 50_000_000, mode, clones: 32 }];
        let fitted = fit(&asked, 4);
        let burner = &fitted.scenario.burners[0];
        assert_eq!((burner.clones, burner.load_percent), (4, 40));
        assert!(fitted.notes[0].contains("160 % of one CPU instead of 2720 %"));
    }
}
