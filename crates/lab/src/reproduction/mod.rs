//! The page that sets published figures beside ours: simulated and live.
//!
//! It is made from a results directory and a [`Plan`]: nothing on it is typed in by hand except
//! the remarks of the plan.

mod agreement;
mod grid;
mod medians;
mod page;
mod plan;
mod predicted;
mod published;
#[cfg(test)]
mod tests;

pub use page::page;
pub use plan::{Plan, Section};
pub use predicted::predicted;
