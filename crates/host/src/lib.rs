//! The multipath host engine, without I/O.
//!
//! A host is a group of [`Worker`]s. Worker 0 runs the **control** half: controllers' life cycles,
//! admin queues, keep-alive, ANA logs, namespace heads, attributes. Workers 1… each run a
//! **shard**: that worker's I/O queue pairs, its copy of the heads' path lists, its part of the
//! policy state. They exchange [`mail`]; what they share is the immutable [`topology::Topology`]
//! that control publishes, and the atomics in it.
//!
//! Every worker also carries a [`user::User`]: whatever submits requests there (an NBD front, a
//! load job) joins the shard by static dispatch, so that submit and completion are calls.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod block_stat;
pub mod config;
pub mod control;
pub mod event;
pub mod explain;
pub mod load;
pub mod mail;
pub mod topology;
pub mod user;
pub mod verb;

mod by_id;
mod failed_flushes;
mod leftovers;
mod shard;
mod table;
mod worker;
mod write_marks;

pub use control::attribute;
pub use failed_flushes::{FailedFlushes, Mark, Standing};
pub use leftovers::Leftovers;
pub use worker::{Event, Worker};
pub use write_marks::{WriteMarks, WrittenUnder};
