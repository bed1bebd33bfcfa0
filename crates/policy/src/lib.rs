//! Choose a path; account for what was chosen.
//!
//! A head has several paths, each command needs one. This crate holds the rules by which one is
//! chosen (a [`Policy`]), the small state that those rules keep ([`Selector`] per head and worker,
//! [`ControllerLedger`] per controller), and the record of what a choice added to that state
//! ([`Charge`]).
//!
//! It is pure: no heap, no clock, no floating point, no unsafe code, no dependency. The same code
//! runs live, in the simulator and behind the C interface.
//!
//! # One command
//!
//! ```
//! use anabranch_policy::{
//!     Affinity, AnaRank, Candidate, ControllerLedger, LOCAL_DISTANCE, Lane, Load, Local,
//!     NodeLatency, OpClass, Parameters, Policy, Selector, Shared, WorkerLedger, finish, start,
//! };
//!
//! // Two paths of one namespace, each through a controller of its own.
//! let controllers = [ControllerLedger::new(), ControllerLedger::new()];
//! let workers = [[WorkerLedger::new()], [WorkerLedger::new()]];
//! let shared = [Shared::new(), Shared::new()];
//! let lanes = [Lane::new(), Lane::new()];
//! let nodes = [NodeLatency::new(), NodeLatency::new()];
//! let local = [Local::new(), Local::new()];
//! let paths = [0, 1].map(|i| Candidate {
//!     usable: true,
//!     rank: AnaRank::Optimized,
//!     numa_distance: LOCAL_DISTANCE,
//!     affinity: Affinity::Own,
//!     load: Load {
//!         controller: &controllers[i],
//!         workers: &workers[i],
//!         worker: 0,
//!         queue: 0,
//!         tags: 0,
//!         shared: &shared[i],
//!         lane: &lanes[i],
//!         node: Some(&nodes[i]),
//!         local: Some(&local[i]),
//!     },
//! });
//! let parameters = Parameters::of(Policy::QueueDepth);
//! let mut selector = Selector::new();
//!
//! // Which path?
//! let now_ns = 1_000;
//! let choice =
//!     selector.select(&parameters, &paths, OpClass::Read, 4096, now_ns).expect("a path");
//! // Charge it; the charge travels in the command.
//! let load = paths[choice.index].load;
//! let charge = start(&parameters, load, OpClass::Read, 4096, now_ns);
//! assert_eq!(load.controller.nr_active(), 1);
//! // The command ended, the policy may have been switched since: the charge knows what to undo.
//! finish(charge, load);
//! assert_eq!(load.controller.nr_active(), 0);
//! ```
//!
//! # Default and kernel-exact
//!
//! The rules are those of Linux native multipath (`drivers/nvme/host/multipath.c`), and of
//! device-mapper's selectors (`drivers/md/dm-ps-*.c`) for `queue-length`,
//! `historical-service-time` and `io-affinity`, which are the same in both modes. Where the kernel
//! lets the first path in the list win a tie, our default rotates instead; the attribute
//! `kernel_exact` of a subsystem restores the kernel's choice. Each policy's page says where the
//! two differ; where it says nothing they are the same.
//!
//! | | default | `kernel_exact` |
//! | --- | --- | --- |
//! | `numa`, equal distance | first in list | first in list |
//! | `round-robin`, no path remembered | goes on behind the last path used | first in list |
//! | `queue-depth`, equal | goes on behind the last path used | first in list |
//! | `service-time`, equal | least recently used | first in list |
//! | `service-time`, the command's own bytes | count | do not count |
//! | `service-time`, standby paths | compared by bytes | first in list |
//! | `latency`, sum of the weights | 128 | 64 |
//! | `latency`, path without a weight | rotates | used until it has one |
//! | `latency`, turns of reads and writes | apart | together |
//! | `latency`, after a failover or another policy | goes on where it was | first in list |
//! | `latency`, ANA | optimized first | by weight alone |
//! | when it is charged (the caller's part: [`Parameters::charged_at_start`]) | chosen | started |
//!
//! A path that is not usable is never chosen, in either mode. (The kernel's `round-robin` does not
//! look at the ANA state when a head has a single path. That is not imitated: the I/O could only
//! fail there.)
#![no_std]
#![forbid(unsafe_code)]

mod charge;
mod error;
mod ewma;
mod finish_time;
mod hist;
mod historical;
mod historical_service_time;
mod inputs;
mod io_affinity;
mod latency;
mod least;
mod ledger;
mod load;
mod name;
mod numa;
mod number;
mod op;
mod parameters;
mod path;
mod queue_depth;
mod queue_length;
#[cfg(test)]
mod random;
mod reason;
mod recency;
mod round_robin;
mod sample;
mod scope;
mod selector;
mod service_time;
mod size;
mod weights;

pub use charge::{Charge, finish, start, start_on_disk};
pub use error::UnknownPolicy;
pub use ewma::{EwmaShift, InvalidShift};
pub use finish_time::{
    FinishTimeParameters, FinishTimeReport, Lane, finish_time_report, overdue_at_ns, probe_failed,
    start_probe,
};
pub use hist::Histogram;
pub use historical::{BaseWeight, HistoricalParameters, InvalidBaseWeight};
pub use inputs::{Inputs, inputs};
pub use latency::{
    BatchTimeout, Group, Groups, InvalidBatchTimeout, LatencyInputs, LatencyParameters,
    LatencyReport, LatencyStat, LatencySummary, Local, NodeLatency, SizeBucket, latency_inputs,
    latency_report,
};
pub use ledger::{
    ControllerLedger, DEFAULT_RELATIVE_THROUGHPUT, MAX_RELATIVE_THROUGHPUT, Shared, WorkerLedger,
};
pub use load::{Ledgers, Load};
pub use name::Policy;
pub use number::{NoNumber, parse_number};
pub use op::OpClass;
pub use parameters::Parameters;
pub use path::{Affinity, AnaRank, AsCandidate, Candidate, LOCAL_DISTANCE};
pub use reason::{Choice, Reason};
pub use sample::{Sampled, compute_weights, failed_over, rejoined, reset_statistics, sample};
pub use scope::{Scope, UnknownScope};
pub use selector::Selector;
pub use size::SizeClass;
