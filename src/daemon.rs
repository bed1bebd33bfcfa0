//! What runs: the control socket, configuration, the host and the target as daemons.

pub mod attr_fs;
mod audit;
pub mod backing;
pub mod clients;
pub mod config;
pub mod control;
mod crew;
pub mod ending;
pub mod explain;
pub mod export;
pub mod files;
pub mod front;
pub mod host;
pub mod identity;
pub mod listen;
pub mod load;
pub mod log;
pub(crate) mod memory;
pub mod metrics;
pub mod names;
pub mod path;
pub mod rpc;
pub mod serve;
pub mod service;
pub mod socket;
pub mod target;
pub mod top;
pub mod view;
mod wording;

pub use log::log;
