//! When a daemon ends: at a signal, or because a worker failed.

use super::log;
use crate::failure::Failure;
use anabranch_proto::machine::{Machine, SystemError};
use anabranch_rt::Group;
use anabranch_rt::signal::Termination;
use rustix::io::Errno;

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
    log::log_of(Some(format!("starved {}", error.0)), without_connections(error));
}

/// Why nobody can connect, and what helps.
fn without_connections(error: SystemError) -> String {
    let what_helps = match Errno::from_raw_os_error(error.0) {
        Errno::MFILE => {
            "whoever connects waits until others have left (ulimit -n sets how many files and \
             connections there may be)"
        }
        Errno::NFILE => {
            "whoever connects waits until somebody on this machine closes some (the sysctl \
             fs.file-max sets how many there may be)"
        }
        Errno::NOBUFS | Errno::NOMEM => "whoever connects waits until the system has memory again",
        Errno::PERM | Errno::ACCESS => {
            "a firewall or a security module forbids it; it is tried again ten times a second"
        }
        _ => "it is tried again ten times a second",
    };
    format!("no connection can be accepted: {error}; {what_helps}")
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

#[cfg(test)]
mod tests {
    use super::{Errno, SystemError, without_connections};

    #[test]
    fn only_who_lacks_descriptors_is_told_of_their_limit() {
        let told = |errno: Errno| without_connections(SystemError(errno.raw_os_error()));
        let begin = "no connection can be accepted: ";
        assert_eq!(
            told(Errno::MFILE),
            "no connection can be accepted: too many open files (errno 24); whoever connects \
             waits until others have left (ulimit -n sets how many files and connections there \
             may be)"
        );
        for (errno, error, helps) in [
            (Errno::NFILE, "too many open files in system (errno 23)", "fs.file-max"),
            (Errno::NOBUFS, "no buffer space available (errno 105)", "memory"),
            (Errno::NOMEM, "cannot allocate memory (errno 12)", "memory"),
            (Errno::PERM, "operation not permitted (errno 1)", "firewall"),
            (Errno::NETDOWN, "network is down (errno 100)", "ten times a second"),
        ] {
            let line = told(errno);
            assert!(line.starts_with(&format!("{begin}{error}; ")), "{line}");
            assert!(line.contains(helps) && !line.contains("ulimit"), "{line}");
        }
    }
}
