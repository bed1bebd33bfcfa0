//! NVMe and NVMe over Fabrics as values: commands, completions, data structures.
//!
//! Clauses are those of the NVM Express Base Specification 2.0 ("Base"), the NVM Command Set
//! Specification 1.0 ("NVM") and the TCP Transport Specification 1.0 ("TCP"). All multi-byte fields
//! are little-endian on the wire.

pub mod ana;
pub mod cqe;
pub mod ids;
mod le;
pub mod nqn;
pub mod opcode;
pub mod sgl;
pub mod sqe;
pub mod status;

pub use ana::AnaState;
pub use cqe::Cqe;
pub use ids::{Eui64, Nguid, Uuid};
pub use nqn::Nqn;
pub use sgl::{Sgl, SglKind};
pub use sqe::Sqe;
pub use status::Status;
