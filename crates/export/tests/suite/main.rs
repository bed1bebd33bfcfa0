//! Tests of the NBD server, in one program: each further one would have to be built and linked.

mod absent_device;
mod bounds;
mod control;
mod farewell;
mod flushes;
mod fuzz;
mod leftovers;
mod negotiation;
mod sharing;
mod support;
mod transmission;
