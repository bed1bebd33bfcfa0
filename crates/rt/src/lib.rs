//! Workers: one thread, one io_uring, one engine.
//!
//! A [`Group`] runs several engines ([`anabranch_proto::machine::Machine`]), each on a worker of
//! its own: a thread with a ring, a buffer pool and a mailbox. The worker's loop is generic; what
//! differs between operating system interfaces stands behind the `driver` module.
//!
//! Engines of one group send each other mail, hand connections over and share files and payload
//! memory ([`anabranch_proto::machine::BufRef`] names the same bytes on every worker of a group).
//! Threads outside the group talk to an engine with [`Group::verb`].
//!
//! All `unsafe` code of the live system is in this crate (and in the language bindings): memory
//! maps, ring submissions, and nothing else.

mod accounts;
mod clock;
mod config;
mod credentials;
mod driver;
mod error;
mod files;
mod group;
pub mod heap;
pub mod interface;
mod mailbox;
mod memory;
mod placement;
pub mod signal;
mod socket_lock;
mod stats;
pub mod thread;
pub mod topology;
mod worker;

pub use accounts::group_id;
pub use clock::now;
pub use config::Config;
pub use credentials::{Credentials, credentials};
pub use error::Error;
pub use files::Files;
pub use group::Group;
pub use socket_lock::SocketLock;
pub use stats::Stats;
