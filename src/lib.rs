//! The parts of the `anabranch` command, as a library so that tests reach them: the command line,
//! the daemon, the demo.
#![forbid(unsafe_code)]

pub mod bench;
pub mod cli;
pub mod columns;
pub mod daemon;
pub mod demo;
pub mod failure;
pub mod top;
pub mod units;
