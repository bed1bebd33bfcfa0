//! Simulate, load, measure, check, report.
#![forbid(unsafe_code)]
