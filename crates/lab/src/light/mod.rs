//! The light simulation: the policies, as they run in production, on a model of queue pairs and
//! links.
//!
//! Real here is `policy`: one [`Selector`](anabranch_policy::Selector) per worker of each host,
//! charges, samples and weights, in the tables that the host allocates. Real is
//! [`Link`](anabranch_target::link::Link), the target's own model of its links, and what commands
//! and replies take of them. The rest is a model:
//!
//! - A request is one command. It takes a tag of its worker's queue pair on the path, or waits for
//!   one in that queue pair's list; workers may share queue pairs. Hosts take no time,
//!   but burners take stretches of a worker's: what it would handle or submit then, it does at the
//!   end of the stretch.
//! - The inbound link carries commands with what they write. Delay, jitter, delay by size and
//!   brownouts follow, for each command by itself. The queue pairs of all hosts take turns on it,
//!   as connections do in the target's shaper ([`Turns`](anabranch_target::link::Turns)); those of
//!   one queue pair keep their order.
//! - The target's servers execute: first come, first served, shared or per path.
//! - The outbound link carries replies with what was read, likewise.
//! - *Cut*: what is on the path is lost and at once dispatched again, the path is out until it is
//!   up. *Silent*: nothing comes through until the hosts notice, which is a cut then. A silence
//!   that ends before that goes unnoticed: what was held goes on. Under `finish-time` reads are
//!   sent again on another path before; what answers later finds nobody.
//! - An ANA state that changes is known to all hosts at once. What waits for a tag of a path that
//!   is inaccessible now, and what reaches the target there, is dispatched again at once; what has
//!   reached it before ends well.
//! - Weights of `latency` are computed right after the completion that makes them due.
//!
//! Everything is an integer, chance comes from the seed, what happens at the same nanosecond
//! happens in the order in which it was planned: the same [`Cell`] gives the same
//! [`Figures::hash`] on every machine. Each run keeps [`Books`]. Nothing is allocated per request
//! (an open loop allocates when more requests are open than ever before).
//!
//! Not in the model: the CPU time of hosts, splitting of requests, flushes,
//! several namespaces.

mod change;
mod draw;
mod events;
mod ledgers;
mod level;
mod links;
mod port;
mod record;
mod rescue;
mod sim;
mod slots;
mod station;

pub use crate::adapt::{Adaptation, adaptations, jain_ppm};
pub use crate::cell::Cell;
pub use crate::figures::{
    Books, ClassFigures, Cpu, Figures, LinkFigures, PathFigures, SERIES_NS, Series,
};
pub use crate::limit::{Bound, Limit, base_delay, limit_of_window, limits};
pub use crate::pace::{FRACTION, exponential, exponential_ns};
use crate::scenario::Problem;
pub(crate) use draw::kinds;
pub(crate) use ledgers::node_distance;
pub use port::{COMMAND_BYTES, DATA_HEADER_BYTES, RESPONSE_BYTES, bytes_in, bytes_out};

/// Runs one cell.
///
/// # Errors
/// It can not be run: see [`Cell::check`].
pub fn run(cell: Cell<'_>) -> Result<Figures, Problem> {
    cell.check()?;
    let ledgers = ledgers::Ledgers::new(cell);
    Ok(sim::Sim::new(cell, &ledgers).run(&ledgers))
}

/// Runs cells, on so many threads at a time; `done` is told the place of each as it ends, on the
/// thread that ran it. What comes back is in the order of the cells, however many threads there
/// are.
///
/// # Errors
/// The first cell in that order that can not be run.
pub fn run_all(
    cells: &[Cell<'_>],
    threads: usize,
    done: &(dyn Fn(usize, &Figures) + Sync),
) -> Result<Vec<Figures>, Problem> {
    crate::spread::spread(cells.len(), threads, &|place| {
        let figures = run(cells[place])?;
        done(place, &figures);
        Ok(figures)
    })
}
