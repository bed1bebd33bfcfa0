//! The embedded controller side: subsystems, namespaces, ANA groups and ports, as one engine.
//!
//! [`Target`] is a [`anabranch_proto::machine::Machine`]: give it a [`config::TargetConfig`] and a
//! driver, and hosts can connect. Everything else is asked for by [`TargetVerb`]s. The pieces:
//!
//! * a **port** has a listener, two links ([`link`]), the ANA states of all groups, and a fault
//!   that can be set: cut or stalled;
//! * a **subsystem** has namespaces, each in one ANA group, in memory or in a file;
//! * a **controller** is what a host gets from an admin Connect through one port; it dies with its
//!   admin connection or its keep-alive timer, and nothing of it is executed after that.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod aer;
mod ana_group;
mod backend;
pub mod config;
mod conn;
mod controller;
pub mod exponential;
pub mod fuzz;
mod io;
pub mod link;
mod namespace;
mod order;
mod port;
pub mod rng;
pub mod service;
mod shaper;
pub mod status;
mod subsystem;
mod target;
mod verb;

pub use config::{ConfigError, TargetConfig};
pub use link::Shape;
pub use namespace::{NamespaceCounters, derived_ids, derived_nguid, derived_serial};
pub use port::PortFault;
pub use service::{Brownout, Service};
pub use status::TargetStatus;
pub use target::{Target, TargetOutput};
pub use verb::{Asked, QueueOf, TargetError, TargetEvent, TargetReply, TargetVerb};
