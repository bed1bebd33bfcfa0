//! The engine simulation: whole hosts, real NVMe/TCP and the whole target in virtual time.
//!
//! Real here is everything between a request and its answer: `host` with one control worker and the
//! data workers of each host, their policies, queue pairs and PDUs; `target` with a shaped port per
//! path, its servers and its ANA groups. The load is the live one's generator. The rest is a model:
//!
//! - Everything travels for [`TRAVEL_NS`] from engine to engine: batches of PDUs, ends of
//!   connections, mail between workers. Sockets take whole batches, one at a time per direction.
//!   Engines take no time, except what a scenario's CPU load steals from workers.
//! - Payload is not moved. Of each block its first 16 bytes are: the block's address, and which
//!   write it was. Every read is checked against what was acknowledged; one that brings anything
//!   else counts in [`Figures::errors`].
//! - Hosts connect before the run begins, while nothing is shaped yet.
//! - A path that was cut returns when its hosts have connected again: they try every
//!   [`RECONNECT_DELAY`], and connecting takes a few round trips of the shaped port. Silence is
//!   noticed by Keep Alive: on the first path that falls silent exactly after the scenario's
//!   `detect`, on others after `detect` to twice that. In scenarios without silence Keep Alive has
//!   the hosts' default (5 s), so that a link which is congested for a while is not given up.
//! - All paths are equally near to every NUMA node, as TCP is to the host engine.
//!
//! One thread, integers only, chance from the seed: the same [`Cell`] gives the same
//! [`Figures::hash`] on every machine.

mod checked;
mod core;
mod memory;
mod net;
mod run;
mod setup;
mod stamp;
mod stolen;
mod store;
mod world;

pub use self::core::TRAVEL_NS;
use crate::cell::Cell;
use crate::figures::Figures;
use crate::scenario::Problem;
pub use run::Engine;
pub use setup::RECONNECT_DELAY;

/// Runs one cell.
///
/// # Errors
/// It can not be run: see [`Engine::new`].
pub fn run(cell: Cell<'_>) -> Result<Figures, Problem> {
    Engine::new(cell)?.run()
}
