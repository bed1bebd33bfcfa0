//! Fuzz bodies: functions that take any bytes and must neither panic nor break what they promise.
//! Tests run them over valid input and seeded mutations of it; a fuzzer can call them as they are.

mod structures;
mod target_queue;

pub use structures::structures;
pub use target_queue::target_queue;
