//! Fuzz bodies: functions that take any bytes and must neither panic nor break what they promise.
//! Tests run them over valid input and seeded mutations of it; a fuzzer can call them as they are.

mod host_queue;
mod stream;
mod structures;
mod target_queue;

pub use host_queue::host_queue;
pub use stream::{pdu, stream};
pub use structures::structures;
pub use target_queue::target_queue;
