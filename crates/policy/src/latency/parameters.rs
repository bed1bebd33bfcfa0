//! What can be set about `latency`.

use super::BatchTimeout;
use crate::EwmaShift;

/// What can be set about `latency`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyParameters {
    /// Samples are averaged when this much time has passed since the last time.
    pub batch_timeout: BatchTimeout,
    /// How slowly the smoothed latency follows the averages.
    pub ewma_shift: EwmaShift,
    /// Statistics and weights per [`SizeBucket`](crate::SizeBucket). Reset the statistics when this
    /// changes: bucket 0 has another meaning then.
    pub size_buckets: bool,
    /// Latencies are averaged over the workers of a NUMA node. Reset the statistics when this
    /// changes: weights are found in another place then.
    pub per_node: bool,
    /// Non-optimized paths compete with optimized ones by weight. Always so when kernel-exact.
    pub compete: bool,
}
