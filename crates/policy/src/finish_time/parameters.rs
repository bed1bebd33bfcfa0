//! What can be set about `finish-time`.

/// What can be set about `finish-time`. Nothing has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishTimeParameters {
    /// Prefers short tails over the last per cents of throughput: a far path is never used just to
    /// fill it.
    pub tail: bool,
    /// Non-optimized paths compete with optimized ones by predicted finish. Otherwise they are used
    /// when no optimized one can be.
    pub compete: bool,
    /// Paths that nobody uses are looked at with read probes.
    pub probes: bool,
}

impl Default for FinishTimeParameters {
    fn default() -> Self {
        FinishTimeParameters { tail: false, compete: false, probes: true }
    }
}
