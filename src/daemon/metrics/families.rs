//! Which families there are, and what of a look each is read from.

mod device;
mod distribution;
mod host;
mod path;
mod subsystem;

use super::exposition::{Family, Labels, Page};
use super::look::Look;
use std::borrow::Cow;
use std::fmt;

/// Writes everything.
pub(super) fn write(look: &Look, page: &mut Page<'_>) -> fmt::Result {
    let subsystems = &look.snapshot.subsystems;
    host::write(look, page)?;
    subsystem::write(subsystems, page)?;
    device::write(subsystems, page)?;
    path::write(subsystems, page)
}

/// A family of counters, and where each is read.
type Count<T> = (Family, fn(&T) -> u64);

/// What `op` says: flushes, discards, zeroes and compares are others.
const OPS: [&str; 3] = ["read", "write", "other"];

/// A sample for each of some operations.
fn by_op<'a, T, const N: usize>(
    labels: &Labels<'a>,
    values: [T; N],
) -> impl Iterator<Item = (Labels<'a>, T)> + use<'a, T, N> {
    let labels = labels.clone();
    OPS.into_iter().zip(values).map(move |(op, value)| (labels.and("op", Cow::Borrowed(op)), value))
}

/// A sample for each state that there is: 1 for the one it is in, else 0.
fn by_state<'a, S: ToString + PartialEq, const N: usize>(
    labels: &Labels<'a>,
    states: [S; N],
    in_state: &S,
) -> Vec<(Labels<'a>, u64)> {
    let sample = |state: &S| {
        let name = Cow::Owned(state.to_string());
        (labels.and("state", name), u64::from(state == in_state))
    };
    states.iter().map(sample).collect()
}

/// The same of times.
fn seconds_by_op<'a>(
    labels: &Labels<'a>,
    ns: [u64; 3],
) -> impl Iterator<Item = (Labels<'a>, f64)> + use<'a> {
    by_op(labels, ns.map(seconds))
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
