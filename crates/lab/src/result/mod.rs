//! What runs leave behind, as data that other programs read.

mod cell;
#[cfg(test)]
mod tests;

pub use cell::*;
