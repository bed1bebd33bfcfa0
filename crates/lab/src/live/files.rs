//! Open files: hosts, paths and workers multiply, and the usual limit is low.

use super::LiveError;
use crate::scenario::Scenario;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files of a worker itself: its ring, its mailbox, and some to spare.
const PER_WORKER: u64 = 4;
/// Files of the process besides.
const BESIDES: u64 = 256;

/// Raises the process's own limit of open files as far as the scenario needs it.
pub(super) fn allow(scenario: &Scenario) -> Result<(), LiveError> {
    let limit = getrlimit(Resource::Nofile);
    let needed = needed(scenario);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        let most = limit.maximum.unwrap_or(needed);
        let why = format!("about {needed} are needed and {most} allowed: raise `ulimit -Hn`");
        return Err(LiveError::failed("open files", why));
    }
    let raised = Rlimit { current: Some(needed), maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).map_err(|error| LiveError::failed("open files", error))
}

/// Both ends of every connection are ours.
fn needed(scenario: &Scenario) -> u64 {
    let hosts = &scenario.hosts;
    let workers = u64::from(hosts.count) * (u64::from(hosts.workers) + 1) + 1;
    workers * PER_WORKER + connections(scenario) * 2 + BESIDES
}

/// An admin queue and a queue pair per worker, for each host and path.
pub(super) fn connections(scenario: &Scenario) -> u64 {
    let hosts = &scenario.hosts;
    let paths = scenario.paths.len() as u64;
    u64::from(hosts.count) * paths * (u64::from(hosts.workers) + 1)
}
