//! What can go wrong with a group; every text says what to do where something can be done.

use std::io;
use std::time::Duration;

/// Errors of [`crate::Group`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refuses io_uring to this process.
    #[error(
        "io_uring is refused ({0}): set the sysctl kernel.io_uring_disabled to 0, and allow \
         io_uring_setup, io_uring_enter and io_uring_register in the container's seccomp profile \
         (docker: --security-opt seccomp=unconfined)"
    )]
    RingRefused(#[source] io::Error),
    /// The kernel counts a ring with what its user has locked, unless that is root.
    #[error(
        "there is not enough memory for io_uring ({0}): let the user lock more (ulimit -l, \
         LimitMEMLOCK= of a systemd unit; 128 KiB for each worker are enough), have fewer workers, \
         or free some"
    )]
    RingMemory(#[source] io::Error),
    /// io_uring exists but lacks something that this crate needs.
    #[error("io_uring lacks what is needed ({what}: {source}): Linux 6.1 or later is required")]
    RingTooOld {
        /// The missing piece.
        what: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The system refused something while a worker was set up.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A setting is out of range.
    #[error("{field} is {value}, allowed are {from} to {to}")]
    Config {
        /// The setting.
        field: &'static str,
        /// Its value.
        value: usize,
        /// Least value.
        from: usize,
        /// Greatest value.
        to: usize,
    },
    /// The number of receive buffers is no power of two.
    #[error("receive_buffers is {0}, a power of two is needed")]
    ReceiveBuffers(u16),
    /// A CPU that was asked for is not in the process's allowed set.
    #[error("CPU {cpu} is not allowed to this process (allowed: {allowed})")]
    Cpu {
        /// The CPU.
        cpu: usize,
        /// The allowed set as a CPU list.
        allowed: String,
    },
    /// There is no worker of that number.
    #[error("worker {0} does not exist")]
    NoWorker(u16),
    /// The worker has too many control requests waiting.
    #[error("worker is busy: {0} control requests are waiting")]
    Busy(usize),
    /// The engine did not answer in time. It may still carry the request out.
    #[error("no answer within {0:?}")]
    NoAnswer(Duration),
    /// The worker has ended.
    #[error("worker has stopped")]
    Stopped,
    /// A worker ended by a defect.
    #[error("worker {worker} failed: {message}")]
    Failed {
        /// The worker.
        worker: u16,
        /// What it said.
        message: String,
    },
    /// Workers did not end in time; their threads were left behind.
    #[error("{0} workers did not stop in time")]
    StopTimeout(usize),
}
