//! Engines in virtual time: the same code as live, with a simulated network between them.
//!
//! A [`World`] holds one group of host workers and any number of targets, and implements the list
//! of [`proto::machine`](anabranch_proto::machine) for them. Everything that is left open there is
//! drawn from a seed: how long bytes and mail travel, into which pieces a stream falls, whether a
//! receive hint is followed, what a write cache has kept when the power was lost. The same seed
//! gives the same run, which [`World::trace_hash`] shows.

pub(crate) mod cast;
mod disk;
mod faults;
mod memory;
mod net;
mod suspend;
mod world;

pub use faults::{Passing, StreamId, Tap};
pub use memory::SimBuffers;
pub use net::{LinkTimes, NodeId};
pub use world::{Stuck, World};
