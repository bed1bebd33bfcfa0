//! Choose a path; account for what was chosen.
#![no_std]
#![forbid(unsafe_code)]
