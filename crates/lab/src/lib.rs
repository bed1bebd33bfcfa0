//! Simulate, load, measure, check.
#![forbid(unsafe_code)]

pub mod adapt;
pub mod bare;
pub mod cell;
pub mod engine;
pub mod evaluate;
pub mod figures;
mod fnv;
pub mod generator;
pub mod light;
pub mod limit;
pub mod live;
pub mod load;
pub mod nbd;
pub mod pace;
pub mod report;
pub mod reproduction;
pub mod result;
pub mod rng;
pub mod scenario;
pub mod shown;
pub mod sim;
pub mod spread;
