//! What is compared: policies and how they are set.

use super::model::{Hosts, Problem, Run, Scenario, check_name, fail};
use super::path::Path;
use anabranch_policy::{BatchTimeout, MAX_RELATIVE_THROUGHPUT, Parameters, Policy};

/// The window of `latency` in short cells, where its own 15 s would never end.
pub const SHORT_BATCH: &str = "200ms";

/// Cells below this length are short: one minute, four windows of 15 s.
const SHORT_NS: u64 = 60_000_000_000;

/// A policy, set in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Unique in the scenario; the standard ones have the policy's name.
    pub name: String,
    /// The policy and its parameters.
    pub parameters: Parameters,
    /// `relative_throughput` of each path, in the paths' order.
    pub weights: Vec<u32>,
    /// Queue pairs per path; `None` is what [`Hosts::io_queues`] says.
    pub io_queues: Option<u32>,
    /// The file names the window of `latency`: it stays, however long runs are.
    pub own_batch: bool,
}

impl Variant {
    /// A policy as it comes.
    #[must_use]
    pub fn plain(policy: Policy, paths: usize) -> Variant {
        let name = policy.name().to_owned();
        Variant {
            name,
            parameters: Parameters::of(policy),
            weights: vec![1; paths],
            io_queues: None,
            own_batch: false,
        }
    }

    /// How many queue pairs each host has on each path: 1 to the number of its workers.
    #[must_use]
    pub fn queues(&self, hosts: &Hosts) -> u32 {
        self.io_queues.or(hosts.io_queues).unwrap_or(hosts.workers).clamp(1, hosts.workers.max(1))
    }

    /// Checks the variant against the number of paths.
    ///
    /// # Errors
    /// Names the key and its limit.
    pub fn check(&self, paths: usize) -> Result<(), Problem> {
        check_name("name", &self.name)?;
        if self.weights.len() != paths {
            return fail("weights", "must list one weight per path");
        }
        if self.io_queues == Some(0) {
            return fail("io_queues", "must be at least 1");
        }
        if self.weights.iter().any(|w| *w > MAX_RELATIVE_THROUGHPUT) {
            return fail("weights", format!("each lies between 0 and {MAX_RELATIVE_THROUGHPUT}"));
        }
        Ok(())
    }
}

/// The window of `latency` in runs of this length, unless a variant says otherwise.
fn batch_timeout(run: &Run) -> BatchTimeout {
    let own = Parameters::of(Policy::Latency).latency.batch_timeout;
    let short = run.ramp_ns.saturating_add(run.window_ns) < SHORT_NS;
    if short { SHORT_BATCH.parse().unwrap_or(own) } else { own }
}

impl Scenario {
    /// Makes runs longer or shorter, as if the file said so: the window of `latency` follows, in
    /// all variants that have the one of the old length and do not name it. Changes keep their
    /// place in the window in proportion: half of the window, half of their time.
    pub fn set_run(&mut self, run: Run) {
        let (old, new) = (batch_timeout(&self.run), batch_timeout(&run));
        for variant in self.variants.iter_mut().filter(|variant| !variant.own_batch) {
            let batch = &mut variant.parameters.latency.batch_timeout;
            if *batch == old {
                *batch = new;
            }
        }
        if run.window_ns != self.run.window_ns {
            for change in &mut self.changes {
                let at = u128::from(change.at_ns) * u128::from(run.window_ns);
                let at = at.checked_div(u128::from(self.run.window_ns)).unwrap_or(0);
                // Below the new window, as it was below the old one.
                change.at_ns = u64::try_from(at).unwrap_or(u64::MAX);
            }
        }
        self.run = run;
    }
}

/// What every scenario compares: each policy as it comes (`latency` with a window of
/// [`SHORT_BATCH`] when the run is shorter than a minute), and `service-time tuned`, with the
/// weights of the paths.
#[must_use]
pub fn standard_variants(paths: &[Path], run: &Run) -> Vec<Variant> {
    let plain = |policy| {
        let mut variant = Variant::plain(policy, paths.len());
        variant.parameters.latency.batch_timeout = batch_timeout(run);
        variant
    };
    let mut variants: Vec<Variant> = Policy::ALL.into_iter().map(plain).collect();
    let mut tuned = plain(Policy::ServiceTime);
    tuned.name = "service-time tuned".to_owned();
    tuned.weights = paths.iter().map(|path| path.weight).collect();
    variants.push(tuned);
    variants
}
