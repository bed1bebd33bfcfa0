//! What completions teach: for the policies that measure.

use crate::finish_time;
use crate::historical_service_time;
use crate::latency::{self, Group};
use crate::{AsCandidate, Charge, Load, Parameters, Policy};

/// What became of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampled {
    /// There was nothing to learn: the policy does not measure, the head has a single path, or no
    /// time had passed.
    Nothing,
    /// It is taken into account.
    Taken,
    /// It took so long that it is not averaged: `latency` counts it as ignored, and `finish-time`
    /// measures the path anew.
    TooLong,
    /// It is taken into account, and it closed a batch: call [`compute_weights`] for this group,
    /// soon, but not on the I/O path.
    BatchClosed(Group),
}

impl Policy {
    /// Whether it learns from completions: for others [`sample`] has nothing to do.
    #[inline]
    #[must_use]
    pub const fn measures(self) -> bool {
        matches!(self, Policy::Latency | Policy::HistoricalServiceTime | Policy::FinishTime)
    }
}

/// Tells the policy how long a command took.
///
/// For each command that ended well and whose charge is of the present policy epoch
/// ([`Charge::epoch`]). `load` is that of the worker that submitted it, wherever the completion
/// came in; `paths` is how many paths the head has, usable or not.
#[inline(always)]
pub fn sample(
    parameters: &Parameters,
    charge: Charge,
    load: Load<'_>,
    paths: usize,
    now_ns: u64,
) -> Sampled {
    match parameters.policy {
        Policy::Latency => latency::sample(&parameters.latency, charge, load, paths, now_ns),
        Policy::HistoricalServiceTime => {
            historical_service_time::sample(parameters.historical, charge, load, now_ns)
        }
        Policy::FinishTime => finish_time::sample(charge, load, now_ns),
        _ => Sampled::Nothing,
    }
}

/// Computes the weights of all paths of a head for one group, as [`Sampled::BatchClosed`] asks:
/// from a time-out, never on the I/O path. `paths` is the whole list, as selection gets it, on the
/// worker that sampled.
///
/// Weights that were asked for under an earlier policy may still be computed; they come from what
/// is known now, so nothing happens when that was forgotten.
pub fn compute_weights<P: AsCandidate>(parameters: &Parameters, paths: &[P], group: Group) {
    latency::compute(parameters, paths, group);
}

/// Forgets what was measured about a path, on this worker and as far as it is shared.
///
/// To be called when the policy changes and, for all paths of a head, when a capacity is
/// revalidated. Each worker calls it when it learns of the change.
pub fn reset_statistics(load: Load<'_>) {
    latency::reset(load);
    load.shared.history().reset();
    load.shared.forecast().reset();
}

/// A path is usable again through a new association: `finish-time` measures it anew. (The kernel's
/// policies go on with what they know.) Each worker calls it when it learns of it.
pub fn rejoined(parameters: &Parameters, load: Load<'_>) {
    if parameters.policy == Policy::FinishTime {
        load.shared.forecast().reset();
    }
}

/// A command failed over from this path: kernel-exact, `latency` forgets what it measured there.
/// (Device-mapper's selectors forget nothing when a path fails.)
pub fn failed_over(parameters: &Parameters, load: Load<'_>) {
    if parameters.kernel_exact && parameters.policy == Policy::Latency {
        latency::reset(load);
    }
}
