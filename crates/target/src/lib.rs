//! The embedded controller side.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod link;
pub mod rng;

