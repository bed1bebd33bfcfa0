//! NVMe, Fabrics and NVMe/TCP as values and state machines, both roles.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod digest;
pub mod error;
pub mod fuzz;
pub mod host_queue;
pub mod machine;
pub mod nvme;
pub mod pdu;
pub mod pretty;
pub mod stream;
pub mod target_queue;
pub mod testing;
