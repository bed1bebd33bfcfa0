//! Live runs: the scenario's load on real hosts, over real sockets, against embedded targets with
//! shaped ports, all in this process.
//!
//! - A [`Session`] sets one scenario up: a target on a worker of its own, a port per path with the
//!   path's shape, and the scenario's hosts, each with its data workers and connected to every
//!   port. What does not fit this machine is fitted (fewer workers, scaled rates, burners held in),
//!   and said in [`Session::notes`].
//! - [`Session::ceilings`] measures each path alone and compares with what the file asks for.
//! - [`Session::run`] is one cell. Policies and their attributes are set as a user would set them,
//!   statistics begin anew, changes happen when the scenario says, burners are threads.
//!
//! What hosts make of it is recorded by the [generator](crate::generator), as in the engine
//! simulation; every block carries its address, and a block that is read and carries another one
//! is an error. Per path the host's own counters are read every 50 ms. CPU time is that of the
//! hosts' threads; the idle time is that of the whole machine.
//!
//! Not in live runs: distances of paths to NUMA nodes (everything is loopback), and silence is
//! noticed between a half and the whole of `detect`, when a Keep Alive remains unanswered.

mod burn;
mod ceiling;
mod cpu;
mod error;
mod files;
mod fit;
mod host;
mod ports;
mod propose;
mod reach;
mod scale;
mod session;
mod stand;
mod wires;

pub use error::LiveError;
pub use session::{LiveOptions, Session, as_run, open_part, order};
pub use wires::clean_up;
