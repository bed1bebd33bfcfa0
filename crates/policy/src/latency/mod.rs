//! `latency`: weights from measured latencies.

/// What can be set about `latency`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyParameters {
    /// A batch of samples is averaged when this much time has passed since the last; ns.
    pub batch_timeout_ns: u64,
    /// How slowly the smoothed latency follows: a batch counts 1/2^shift. 0 to 8.
    pub ewma_shift: u8,
    /// Statistics and weights per size of the command.
    pub size_buckets: bool,
    /// Latencies are averaged over the workers of a NUMA node.
    pub per_node: bool,
    /// Non-optimized paths compete with optimized ones by weight.
    pub compete: bool,
}

impl Default for LatencyParameters {
    fn default() -> Self {
        LatencyParameters {
            batch_timeout_ns: 15_000_000_000,
            ewma_shift: 3,
            size_buckets: false,
            per_node: false,
            compete: false,
        }
    }
}

/// What one worker measures and remembers about one path.
#[derive(Debug, Default)]
pub struct Local {}

impl Local {
    /// Nothing measured.
    #[must_use]
    pub const fn new() -> Self {
        Local {}
    }
}

/// What the workers of one NUMA node measure together about one path.
#[derive(Debug, Default)]
pub struct NodeLatency {}

impl NodeLatency {
    /// Nothing measured.
    #[must_use]
    pub const fn new() -> Self {
        NodeLatency {}
    }
}
