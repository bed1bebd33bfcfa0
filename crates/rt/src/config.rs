//! What a group of workers is started with.

use crate::{Error, Files};
use anabranch_proto::machine::SystemError;
use std::time::Duration;

/// Settings of a [`crate::Group`].
#[derive(Clone, Debug)]
pub struct Config {
    /// Threads are called `name-0`, `name-1`, …; the kernel shows 15 characters.
    pub name: String,
    /// CPUs to use, worker `i` taking the `i`-th, round and round; they must be allowed to this
    /// process. `None` means all allowed CPUs.
    pub cpus: Option<Vec<usize>>,
    /// Bind each worker to its one CPU; otherwise workers may run on any of `cpus`.
    pub pin: bool,
    /// Without `pin`, where `cpus` are of several NUMA nodes: spread workers over them, and bind
    /// each to those of one node, if there are more workers than nodes (the first one of a group
    /// often has less to do than the others).
    pub by_node: bool,
    /// Spin this long for the next event before sleeping. Zero (the default) never spins.
    pub spin: Duration,
    /// Payload memory per worker in bytes, touched only as far as it is used. At least 4 MiB,
    /// rounded up to whole MiB.
    pub pool_bytes: usize,
    /// Receive buffers per worker (a power of two), touched only when traffic needs them. Idle
    /// connections hold none.
    pub receive_buffers: u16,
    /// Size of one receive buffer in bytes, 4 KiB to 1 MiB: so much a connection brings at once.
    /// With many small commands in flight this decides how many system calls each costs; what
    /// goes straight to engines' buffers does not depend on it.
    pub receive_buffer_bytes: u32,
    /// Messages that a worker's mailbox holds. A sender keeps what does not fit, up to
    /// [`Config::MAIL_OVERFLOW`] messages per receiver.
    pub mailbox: usize,
    /// Files that engines may name; share it to register files before the group exists.
    pub files: Files,
    /// Called on the worker when connections cannot be accepted, most often because the system has
    /// no descriptor or no memory for them: once per listener, until one is accepted again. They
    /// wait meanwhile, and accepting is tried ten times a second. It must not block.
    pub starved: Option<fn(SystemError)>,
}

impl Config {
    /// Mail that a worker holds back for one receiver whose mailbox is full. Beyond that the group
    /// has lost its balance for good (an engine mails without end), and the worker gives up.
    pub const MAIL_OVERFLOW: usize = 1 << 18;

    /// Workers of one group.
    pub const MAX_WORKERS: usize = 256;

    /// The defaults with this name.
    #[must_use]
    pub fn named(name: &str) -> Config {
        Config { name: name.to_owned(), ..Config::default() }
    }

    pub(crate) fn check(&self, engines: usize) -> Result<(), Error> {
        let limit = |field, value: usize, from, to| {
            if value < from || value > to {
                return Err(Error::Config { field, value, from, to });
            }
            Ok(())
        };
        limit("engines", engines, 1, Config::MAX_WORKERS)?;
        limit("pool_bytes", self.pool_bytes, 4 << 20, 1 << 40)?;
        limit("receive_buffers", usize::from(self.receive_buffers), 2, 1 << 14)?;
        limit("receive_buffer_bytes", self.receive_buffer_bytes as usize, 4096, 1 << 20)?;
        limit("mailbox", self.mailbox, 1, 1 << 20)?;
        if !self.receive_buffers.is_power_of_two() {
            return Err(Error::ReceiveBuffers(self.receive_buffers));
        }
        Ok(())
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            name: "worker".to_owned(),
            cpus: None,
            pin: false,
            by_node: false,
            spin: Duration::ZERO,
            pool_bytes: 256 << 20,
            receive_buffers: 64,
            receive_buffer_bytes: 128 << 10,
            mailbox: 4096,
            files: Files::new(),
            starved: None,
        }
    }
}
