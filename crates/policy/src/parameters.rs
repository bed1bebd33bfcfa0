//! What can be set about selection.

use crate::{FinishTimeParameters, HistoricalParameters, LatencyParameters, Policy, Scope};

/// How a head's paths are chosen: the policy of its subsystem, and what the policies let one set.
/// A small value that travels with the head; selection gets it by reference with every command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// The policy.
    pub policy: Policy,
    /// Ties, charges and resets as the kernel (or the posted series) has them.
    pub kernel_exact: bool,
    /// Whose commands `queue-depth` compares.
    pub scope: Scope,
    /// Of `latency`.
    pub latency: LatencyParameters,
    /// Of `historical-service-time`.
    pub historical: HistoricalParameters,
    /// Of `finish-time`.
    pub finish_time: FinishTimeParameters,
}

impl Parameters {
    /// A policy with the defaults of everything else.
    #[must_use]
    pub fn of(policy: Policy) -> Parameters {
        Parameters { policy, ..Parameters::default() }
    }

    /// The same, kernel-exact.
    #[must_use]
    pub fn exact(policy: Policy) -> Parameters {
        Parameters { policy, kernel_exact: true, ..Parameters::default() }
    }

    /// Whether a command is charged when it starts on its path, with its tag, and not where the
    /// path is chosen: kernel-exact, as Linux's multipath does it. Device-mapper's selectors count
    /// what they have chosen before they choose again, and so do ours in either mode.
    #[inline]
    #[must_use]
    pub const fn charged_at_start(&self) -> bool {
        let chosen = matches!(self.policy, Policy::QueueLength | Policy::HistoricalServiceTime);
        self.kernel_exact && !chosen
    }
}
