//! What runs leave behind, as data that other programs read.

mod cell;
pub mod environment;
mod slug;
pub mod stats;
pub mod store;
#[cfg(test)]
mod tests;

pub use cell::*;
