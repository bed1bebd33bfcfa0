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
//!     AnaRank, Candidate, ControllerLedger, OpClass, Policy, Selector, finish, start,
//! };
//!
//! let controllers = [ControllerLedger::new(), ControllerLedger::new()];
//! let paths = controllers.each_ref().map(|controller| Candidate {
//!     usable: true,
//!     rank: AnaRank::Optimized,
//!     numa_distance: anabranch_policy::LOCAL_DISTANCE,
//!     controller,
//! });
//! let mut selector = Selector::new();
//!
//! // Which path?
//! let chosen =
//!     selector.select(Policy::QueueDepth, false, &paths, OpClass::Read, 4096).expect("a path");
//! // Charge it; the charge travels in the command.
//! let charge = start(Policy::QueueDepth, paths[chosen].controller, 4096, 1_000);
//! assert_eq!(paths[chosen].controller.nr_active(), 1);
//! // The command ended, the policy may have been switched since: the charge knows what to undo.
//! finish(charge, paths[chosen].controller);
//! assert_eq!(paths[chosen].controller.nr_active(), 0);
//! ```
//!
//! # Default and kernel-exact
//!
//! The rules are those of Linux native multipath (`drivers/nvme/host/multipath.c`). Where the
//! kernel lets the first path in the list win a tie, our default rotates instead; the attribute
//! `kernel_exact` of a subsystem restores the kernel's choice. Each policy's page says where the
//! two differ; where it says nothing they are the same.
//!
//! | | default | `kernel_exact` |
//! | --- | --- | --- |
//! | `numa`, equal distance | first in list | first in list |
//! | `round-robin`, no path remembered | goes on behind the last path used | first in list |
//! | `queue-depth`, equal depth | rotates | first in list |
//! | when the charge is made (the caller's part) | at selection | when the request starts |
//!
//! A path that is not usable is never chosen, in either mode. (The kernel's `round-robin` does not
//! look at the ANA state when a head has a single path. That is not imitated: the I/O could only
//! fail there.)
#![no_std]
#![forbid(unsafe_code)]

mod charge;
mod error;
mod hist;
mod ledger;
mod name;
mod numa;
mod op;
mod path;
mod queue_depth;
mod round_robin;
mod selector;

pub use charge::{Charge, finish, start};
pub use error::UnknownPolicy;
pub use hist::Histogram;
pub use ledger::ControllerLedger;
pub use name::Policy;
pub use op::OpClass;
pub use path::{AnaRank, AsCandidate, Candidate, LOCAL_DISTANCE};
pub use selector::Selector;
