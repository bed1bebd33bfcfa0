//! What one run is made of.

use crate::scenario::{Alteration, Arrival, Part, Path, Problem, Scenario, Stolen, Variant};
use anabranch_policy::OpClass;
use anabranch_target::link::Shape;

/// One run: an experiment, how one policy is set, and the seed of every draw.
#[derive(Clone, Copy, Debug)]
pub struct Cell<'a> {
    /// The experiment.
    pub scenario: &'a Scenario,
    /// The policy and what is set about it.
    pub variant: &'a Variant,
    /// Decides every draw. What jobs ask for depends on it and not on the policy.
    pub seed: u64,
}

/// The shortest time that a command may take: closed loops would not get on with virtual time.
const SHORTEST_NS: u64 = 100;
/// Links up to this rate take time for the smallest command; bits per second.
const FASTEST: u64 = 1_000_000_000_000;

impl Cell<'_> {
    /// The end of the run: ramp and window.
    #[must_use]
    pub fn end_ns(&self) -> u64 {
        self.scenario.run.ramp_ns.saturating_add(self.scenario.run.window_ns)
    }

    /// How many workers a host has.
    pub(crate) fn workers(&self) -> usize {
        self.scenario.hosts.nodes.len()
    }

    /// The mean service time of a class.
    pub(crate) fn service_ns(&self, op: OpClass) -> u64 {
        let target = &self.scenario.target;
        match op {
            OpClass::Read => target.read_ns,
            OpClass::Write => target.write_ns,
            OpClass::Other => target.other_ns,
        }
    }

    /// When the change of this number happens, from the start of the run.
    pub(crate) fn change_ns(&self, index: usize) -> u64 {
        self.scenario.run.ramp_ns.saturating_add(self.scenario.changes[index].at_ns)
    }

    /// Whether it can be run here.
    ///
    /// # Errors
    /// What [`Scenario::check`] finds, and commands that take no time at all, so that a closed loop
    /// would keep virtual time where it is.
    pub fn check(&self) -> Result<(), Problem> {
        self.scenario.check()?;
        self.variant.check(self.scenario.paths.len())?;
        let jobs = &self.scenario.jobs;
        let served = OpClass::ALL.into_iter().all(|op| {
            self.service_ns(op) >= SHORTEST_NS || jobs.iter().all(|job| *job.mix.of(op) == 0)
        });
        let slow = |shape: &Shape| {
            let rates = [shape.rate_in, shape.rate_out].into_iter().flatten();
            rates.min().is_some_and(|rate| rate <= FASTEST)
                || shape.delay.as_nanos() > shape.jitter.as_nanos() + u128::from(SHORTEST_NS)
        };
        let changes = self.scenario.changes.iter().enumerate();
        let changed = changes.filter_map(|(number, change)| match &change.what {
            Alteration::Shape(shape) => Some((Part::Change(number), shape)),
            _ => None,
        });
        let closed = jobs.iter().any(|job| job.arrival == Arrival::Closed);
        let paths = self.scenario.paths.iter().enumerate();
        let paths = paths.map(|(number, path)| (Part::Path(number), &path.shape));
        let fast = paths.chain(changed).find(|(_, shape)| !slow(shape));
        let Some((part, _)) = fast.filter(|_| !served && closed) else { return Ok(()) };
        let text = "commands would take no time on a path: give it a rate (up to 1 Tbit/s) or a \
                    delay, or give the target service times of 100 ns or more";
        Err(Problem::of(part, "rate", text))
    }

    /// What the scenario asks for and simulations do otherwise, in sentences for its reader.
    #[must_use]
    pub fn left_out(&self) -> Vec<&'static str> {
        let mut found = Vec::new();
        if Stolen::is_less_than_asked(self.scenario) {
            found.push(
                "burners take less than they ask for: at most 95 % of a worker's time, and 3 ms at \
                 a stretch",
            );
        }
        found
    }

    /// The paths as they are at the start.
    pub(crate) fn paths(&self) -> &[Path] {
        &self.scenario.paths
    }
}
