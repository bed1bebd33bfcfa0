//! Payload memory: anonymous maps known to a whole group ([`region`]) and the allocator of one
//! worker over its own ([`pool`]).

mod pool;
mod region;

pub(crate) use pool::Pool;
pub(crate) use region::{Map, Regions};

#[cfg(test)]
mod tests;
