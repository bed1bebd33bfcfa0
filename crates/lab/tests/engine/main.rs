//! The engine simulation.

mod agreement;
mod load;
mod paths;
mod payload;
mod repeat;
mod rig;
