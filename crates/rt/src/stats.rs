//! What a worker has done, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A worker's counters since its start. Read with [`crate::Group::stats`]; the values of
        /// one reading may be some events apart.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats { $($(#[$doc])* pub $name: u64,)* }

        /// Counted by one worker, read by anyone. On cache lines of its own.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct Counters { $(pub(crate) $name: Counter,)* }

        impl Counters {
            pub(crate) fn read(&self) -> Stats {
                Stats { $($name: self.$name.0.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// System calls made by the loop, all kinds.
    system_calls,
    /// Of those, `io_uring_enter`.
    enters,
    /// How often the worker went to sleep (entered the ring with nothing at hand).
    sleeps,
    /// Send operations submitted, continuations included.
    sends,
    /// Bytes that sockets took.
    sent_bytes,
    /// Receive operations that brought bytes.
    receives,
    /// Bytes that sockets gave.
    received_bytes,
    /// Of those, straight into the buffer of a `ReceiveInto`.
    received_into_bytes,
    /// Receives that found no free receive buffer.
    receive_starved,
    /// Connections accepted.
    accepts,
    /// Accepts that failed for want of descriptors or memory.
    accept_failures,
    /// Disk operations finished.
    disk_ops,
    /// How often one of them was put off because the system had no thread for it.
    disk_put_off,
    /// Time-outs given to the engine.
    timeouts,
    /// Mail received from other workers.
    mail,
    /// Control requests received.
    verbs,
    /// Wake-ups sent to other workers.
    wakes_sent,
}

/// One counter with one writer.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds; only the owning worker calls this, so no locked instruction is needed.
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }
}
