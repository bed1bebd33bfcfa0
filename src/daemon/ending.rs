//! When a daemon ends: at a signal, or because a worker failed.

use super::log;
use crate::failure::Failure;
use anabranch_proto::machine::{Machine, SystemError};
use anabranch_rt::Group;
use anabranch_rt::signal::Termination;

/// Takes over the signals that end a daemon and the panics of its threads. To be called before any
/// thread is started.
///
/// # Errors
/// The system's answer.
pub fn prepare() -> Result<Termination, Failure> {
    let termination = Termination::install()
        .map_err(|error| Failure::failed(format!("cannot take over signals: {error}")))?;
    log::take_panics();
    Ok(termination)
}

/// Tells that nobody can connect any more: otherwise a client would hang without a word anywhere.
pub fn starved(error: SystemError) {
    let line = format!(
        "no connection can be accepted: {error}; whoever connects waits until others have left \
         (ulimit -n sets how many files and connections there may be)"
    );
    log::log_of(Some("starved".to_owned()), line);
}

/// Waits until a signal asks for an end in order.
///
/// # Errors
/// A worker failed. All workers then end by themselves and nothing more is answered, so the process
/// has to end, too: only a new one can serve.
pub fn wait<M: Machine>(termination: &Termination, workers: &Group<M>) -> Result<(), Failure> {
    let signal = termination
        .wait_or(workers.failed_fd())
        .map_err(|error| Failure::failed(format!("cannot wait for signals: {error}")))?;
    match workers.failure() {
        Some(failure) if !signal => Err(Failure::failed(format!("ended by a defect: {failure}"))),
        _ => Ok(()),
    }
}
