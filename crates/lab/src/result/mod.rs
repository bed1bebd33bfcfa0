//! What runs leave behind, as data that other programs read.

mod cell;
pub mod compare;
pub mod csv;
pub mod environment;
pub mod fio;
mod measure;
pub(crate) mod slug;
pub mod stats;
pub mod store;
pub mod summary;
#[cfg(test)]
mod tests;
mod verdict;
pub mod whole;

pub use cell::*;
pub(crate) use measure::Counted;
pub use measure::Measure;
pub use verdict::{Calmest, PERCENTILE_PPM, Verdict, cpu_bound_rows, sure, tenths, times};
