//! `latency`: weights from measured latencies.
//!
//! Source: "nvme-multipath: introduce latency I/O policy" (Nilay Shroff, v6, May 2026), which was
//! called *adaptive* up to v5; size buckets and averaging per node from the review of v5 (Sagi
//! Grimberg, Nilay Shroff, December 2025 to February 2026).
//!
//! # State
//!
//! Per worker, path and [`Group`]: op class (read, write, other) and, with `size_buckets`, one of
//! seven sizes. Reads never change the weights of writes, nor the other way round. [`Local`] keeps
//! what one worker knows; [`NodeLatency`] takes the place of its averages with `per_node`. Which
//! path each group used last is noted per worker and head, in the [`Selector`](crate::Selector).
//!
//! # Samples (`sample`, `batch`)
//!
//! 1. A head with one path measures nothing. A command counts on the worker that submitted it.
//! 2. Its latency is its completion time less the start noted in its charge. No time at all: not
//!    counted. Over a second: `ignored` counts it, nothing else.
//! 3. Other samples go into the open batch. The first sample ever closes it at once; later a
//!    batch is closed by the first sample that comes `latency_batch_timeout` or more after the last
//!    closing. With 0 each sample does. There is no timer: what is idle keeps its numbers.
//! 4. A closed batch gives `average = sum / count`, and the smoothed latency becomes
//!    `(old * (2^shift - 1) + average) >> shift`, or the average itself when there was none.
//!
//! # Weights (`compute`), off the I/O path
//!
//! 5. `score = 10^9 / smoothed`, 0 for a path not measured; `total` is the sum over all paths of
//!    the head, usable or not. Nothing happens when it is 0.
//! 6. `weight = score * 128 / total`, at least 1. So a slow path is still tried, and a path that
//!    was never measured gets 1 as soon as another one was.
//!
//! # Selection (`select`)
//!
//! 7. Starting at the path that the group used last, paths that can not be used are skipped.
//! 8. Credit left: it is spent, the path is used. So commands go in bursts of `weight`, and within
//!    one credit cycle, the sum of the weights, each path gets exactly its weight.
//! 9. No credit and no weight: the path is used, to be measured.
//! 10. No credit, but a weight: its credit becomes its weight, and the next path has its turn.
//!
//! By then every path has credit or no weight, so the second round ends at the first usable path,
//! whatever the state was before.
//!
//! # Where integers end
//!
//! All divisions round down. Scores tell latencies apart by 1 % up to 10 ms and by 10 % up to
//! 100 ms; everything from just over half a second to a second scores 1. Weights have steps of
//! 1/128 of the whole, so two measured paths are never used more unequally than 127:1 (the weights
//! 127 and 1; 128 and 1 while one was not measured), nor n equally slow ones beside a fast one less
//! than n in 128 + n. The smoothed latency settles up to `2^shift - 1` ns below a latency that has
//! grown.
//!
//! # Default and kernel-exact
//!
//! Kernel-exact is the policy as posted. What the default does otherwise, and why:
//!
//! - **Scale** of the weights: 128, the range that the series names; as posted 64, the number in
//!   its code.
//! - **No weight yet** (9): paths rotate, the next command looks at the next path. As posted the
//!   path is used until it has a weight: at depth 32 a first burst goes to one path whole, the
//!   slowest as likely as any, and so does everything when a path joins.
//! - **The path used last** (7): one per group; as posted one for all groups, and none after that
//!   path has failed a command or another policy was in force. Groups that share it move each other
//!   on before their bursts are done, or back to where they came from: small and large reads in
//!   turn, with weights of 9 : 1 and 1 : 9, both end up near half and half.
//! - **ANA**: optimized paths first, others only when none of them is usable: the rule of every
//!   other policy and of the kernel's documentation. As posted, and with `compete`, classes do not
//!   count.
//! - **A failover** does not reset the statistics of its path (the caller's part: [`failed_over`]
//!   and [`reset_statistics`]): one failed command says nothing about latencies. As posted it does.
//!
//! `per_node` and `size_buckets` can be set in both.
//!
//! [`failed_over`]: crate::failed_over
//! [`reset_statistics`]: crate::reset_statistics

mod batch;
mod batch_timeout;
mod compute;
mod group;
mod local;
mod node;
mod parameters;
mod sample;
mod select;
mod stat;

pub use batch_timeout::{BatchTimeout, InvalidBatchTimeout};
pub(crate) use compute::compute;
pub(crate) use group::Turns;
pub use group::{Group, Groups, SizeBucket};
pub use local::Local;
pub use node::NodeLatency;
pub use parameters::LatencyParameters;
pub(crate) use sample::sample;
pub(crate) use select::select;
pub use select::{LatencyInputs, latency_inputs};
pub use stat::{LatencyReport, LatencyStat, LatencySummary, latency_report};

pub(crate) fn reset(load: crate::Load<'_>) {
    if let Some(local) = load.local {
        local.reset();
    }
    if let Some(node) = load.node {
        node.reset();
    }
}
