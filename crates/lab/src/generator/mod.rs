//! The load generator: runs a scenario's jobs on a head, and records.
//!
//! A [`Generator`] sits on every worker of a host as a [`User`](anabranch_host::user::User), in
//! the engine simulation as in live runs. It asks for the same requests, in the same order per
//! thread, as the light simulation does with the same seed: both use [`pace`](crate::pace), which
//! has the one exception. Only addresses are drawn here alone, from chains of their own.
//!
//! Everything is sized before the first request: in steady state nothing is allocated per request.

mod assemble;
mod figures;
mod front;
mod lanes;
mod plan;
mod record;
mod runner;
mod slots;
mod stamp;

pub use assemble::assemble;
pub use figures::{HostFigures, PathSample, Window};
pub use front::{Generator, GeneratorEvent, GeneratorMail, GeneratorReply, GeneratorVerb};
pub use plan::{Payload, Plan};
pub use slots::MAX_OPEN;
