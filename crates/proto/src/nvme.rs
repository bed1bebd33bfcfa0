//! NVMe and NVMe over Fabrics as values: commands, completions, data structures.
//!
//! Clauses are those of the NVM Express Base Specification 2.0 ("Base"), the NVM Command Set
//! Specification 1.0 ("NVM") and the TCP Transport Specification 1.0 ("TCP"). All multi-byte fields
//! are little-endian on the wire.
//!
//! Constructors of commands leave the command identifier and the data descriptor to the queue that
//! sends them. Readers of structures clamp or refuse what a peer says; a refusal names the field
//! and the limit. Readers of commands, on the controller's side, return the status to answer with.

pub mod aer;
pub mod ana;
mod check;
pub mod cqe;
pub mod fabrics;
pub mod feature;
pub mod identify;
pub mod ids;
pub mod io;
mod le;
pub mod log;
pub mod nqn;
pub mod opcode;
pub mod pretty;
pub mod property;
pub mod sgl;
pub mod sqe;
pub mod status;

pub use ana::AnaState;
pub use cqe::Cqe;
pub use ids::{Eui64, Nguid, Uuid};
pub use nqn::Nqn;
pub use sgl::{Sgl, SglKind};
pub use sqe::Sqe;
pub use status::{IoStatus, Status};

/// Discovery is a log page; this is where to look for it by its own name.
pub mod discovery {
    pub use super::log::{DiscoveryEntry, DiscoveryHeader, SubsystemKind, TransportAddress};
}
