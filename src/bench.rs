//! bench
use crate::cli::args::{Global, bench::Bench};
use crate::failure::Failure;
/// x
pub fn run(_: &Global, _: &Bench) -> Result<(), Failure> {
    Ok(())
}
