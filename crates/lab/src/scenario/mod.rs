//! What an experiment is: links, target, load, and what is compared on them.
//!
//! [`Scenario`] and what it holds are plain, checked values, integers throughout: times are
//! nanoseconds, rates are bits per second, sizes are bytes.

pub mod file;
mod find;
pub mod fio;
pub mod fuzz;
mod job;
pub mod library;
mod limits;
mod mistake;
mod model;
mod path;
pub mod random;
mod stolen;
mod variant;

pub use file::Text;
pub use find::{Found, find};
pub use fio::Notice;
pub use job::{Arrival, BlockSize, Burner, BurnerMode, Job, Mix, Order, PerOp, Sizes};
pub use limits::*;
pub use mistake::Mistake;
pub use model::{Distribution, Hosts, Part, Problem, Published, Run, Scenario, Target};
pub use path::{Alteration, AnaState, Brownout, Change, Path, PathState};
pub use stolen::{MAX_STOLEN_PPM, MAX_STRETCH_NS, Stolen};
pub use variant::{SHORT_BATCH, Variant, standard_variants};
