//! Hand a head to its users.
//!
//! * [`nbd`]: an NBD server as a pure engine, one instance on every worker of a host.
#![forbid(unsafe_code)]

pub mod fuzz;
pub mod nbd;
