//! Simulate, load, measure, check.
#![forbid(unsafe_code)]

pub mod bare;
pub mod light;
pub mod load;
pub mod rng;
pub mod scenario;
pub mod sim;
