//! Policies by name.

use crate::UnknownPolicy;
use core::fmt;
use core::str::FromStr;

/// How a path is chosen. The value belongs to a subsystem and holds for all of its heads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The nearest path, and only that one.
    Numa,
    /// Each path in turn.
    RoundRobin,
    /// The path with the fewest commands in flight.
    #[default]
    QueueDepth,
    /// The path with the fewest bytes in flight for its weight.
    ServiceTime,
    /// Bursts by measured latency. First posted under the name *adaptive*.
    Latency,
    /// As `queue-depth`, per namespace, as device-mapper multipath has it.
    QueueLength,
    /// The path that is expected to be done first, as device-mapper multipath has it.
    HistoricalServiceTime,
    /// A fixed path per worker, as device-mapper multipath has it.
    IoAffinity,
    /// The path on which this command will be done first, by what was measured. Ours.
    FinishTime,
}

impl Policy {
    /// Every policy that exists, in the order in which texts list them.
    pub const ALL: [Policy; 9] = [
        Policy::Numa,
        Policy::RoundRobin,
        Policy::QueueDepth,
        Policy::ServiceTime,
        Policy::Latency,
        Policy::QueueLength,
        Policy::HistoricalServiceTime,
        Policy::IoAffinity,
        Policy::FinishTime,
    ];

    /// The kernel's name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Numa => "numa",
            Policy::RoundRobin => "round-robin",
            Policy::QueueDepth => "queue-depth",
            Policy::ServiceTime => "service-time",
            Policy::Latency => "latency",
            Policy::QueueLength => "queue-length",
            Policy::HistoricalServiceTime => "historical-service-time",
            Policy::IoAffinity => "io-affinity",
            Policy::FinishTime => "finish-time",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    /// Whole words only, as the subsystem's attribute does it: one newline may follow, nothing is
    /// abbreviated.
    fn from_str(text: &str) -> Result<Policy, UnknownPolicy> {
        let word = text.strip_suffix('\n').unwrap_or(text);
        Policy::ALL
            .into_iter()
            .find(|policy| policy.name() == word)
            .ok_or_else(|| UnknownPolicy::new(word))
    }
}
