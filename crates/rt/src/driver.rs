//! The boundary between the loop and the operating system's interface.
//!
//! [`Driver`] is what the loop in `worker` needs: start things, hear how they went, and wait.
//! `uring` implements it over io_uring; an epoll driver would stand beside it. Nothing here or in
//! the loop knows which one runs.

mod batch;
mod socket;
mod uring;

pub(crate) use batch::Batch;
pub(crate) use uring::Uring;

use anabranch_proto::machine::{
    BufRef, CloseCause, CloseHow, ConnId, DiskId, DiskOp, Endpoint, FileId, ListenerId, Peer,
    SocketOptions, SystemError, Time,
};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// What happened. The loop turns it into an input of the engine.
#[derive(Debug)]
pub(crate) enum Event {
    Connected {
        conn: ConnId,
        local: Option<SocketAddr>,
        node: Option<u32>,
    },
    Accepted {
        listener: ListenerId,
        conn: ConnId,
        peer: Option<Peer>,
    },
    Listening {
        listener: ListenerId,
        at: Endpoint,
    },
    Unlistened {
        listener: ListenerId,
        error: Option<SystemError>,
    },
    Received {
        conn: ConnId,
        bytes: Received,
    },
    ReceivedInto {
        conn: ConnId,
        len: u32,
    },
    Transmitted {
        conn: ConnId,
    },
    Looked {
        conn: ConnId,
    },
    Closed {
        conn: ConnId,
        cause: CloseCause,
    },
    DiskDone {
        id: DiskId,
        result: Result<u32, SystemError>,
    },
    /// A connection is ready to leave for the worker that [`Driver::hand_over`] named.
    Leaving {
        conn: ConnId,
        handed: Handed,
        to: u16,
    },
}

/// Bytes in a receive buffer, valid until [`Driver::delivered`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    pub(crate) buffer: u16,
    pub(crate) len: u32,
}

/// Bytes that were read before a connection was handed over; nearly always none.
pub(crate) type Early = Option<Vec<u8>>;

/// An accepted connection on its way to another worker.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) listener: ListenerId,
    pub(crate) peer: Option<Peer>,
    pub(crate) fd: OwnedFd,
    pub(crate) early: Early,
}

/// Why the loop cannot go on.
#[derive(Debug)]
pub(crate) struct WaitError(pub(crate) std::io::Error);

/// Sockets, files and time for one worker. Identifiers are checked by the implementation; outputs
/// for connections that are over are ignored (their `Closed` is on its way).
pub(crate) trait Driver {
    fn connect(&mut self, conn: ConnId, to: &Endpoint, options: &SocketOptions);
    fn listen(&mut self, listener: ListenerId, at: &Endpoint, options: &SocketOptions);
    fn unlisten(&mut self, listener: ListenerId);
    /// The engine has bytes for this connection.
    fn transmit(&mut self, conn: ConnId);
    /// What has come is to be acknowledged at once.
    fn acknowledge(&mut self, conn: ConnId);
    fn receive_into(&mut self, conn: ConnId, buf: BufRef);
    /// Stops reading; with `watch` the peer's end is noticed all the same.
    fn pause(&mut self, conn: ConnId, watch: bool);
    fn resume(&mut self, conn: ConnId);
    /// Looks whether the peer is there: an event says that it is.
    fn look(&mut self, conn: ConnId);
    fn close(&mut self, conn: ConnId, how: CloseHow);
    fn hand_over(&mut self, conn: ConnId, listener: ListenerId, to: u16);
    /// Takes a connection that another worker handed over.
    fn adopt(&mut self, handed: Handed);
    /// What was read before a connection was handed over, if it is open still. To be asked for when
    /// the engine knows the connection; the hint where the next bytes belong is used up by that.
    fn take_early(&mut self, conn: ConnId) -> Early;
    fn disk(&mut self, id: DiskId, file: FileId, op: DiskOp);

    /// The next event of those that were there when [`Driver::wait`] returned, and those that
    /// failed at once.
    fn next_event(&mut self) -> Option<Event>;
    fn received(&self, bytes: Received) -> &[u8];
    /// The engine has seen the bytes and its outputs are carried out: reading goes on.
    fn delivered(&mut self, conn: ConnId, bytes: Option<Received>);

    /// The next connection that may send now, with an empty batch to fill. Every batch comes back
    /// with [`Driver::send`].
    fn next_sender(&mut self) -> Option<(ConnId, Box<Batch>)>;
    /// Sends a batch; an empty one says that nothing is left to send.
    fn send(&mut self, conn: ConnId, batch: Box<Batch>);

    /// Starts what was asked for and waits for events, not longer than until `deadline` (for ever
    /// when `None`, not at all when it has passed). `idle` is asked right before sleeping and may
    /// forbid it; `awake` is called after.
    fn wait(
        &mut self,
        deadline: Option<Time>,
        spin: Duration,
        sleeper: &dyn Sleeper,
    ) -> Result<(), WaitError>;

    /// Ends everything: connections are reset, listeners removed, disk operations finished. Returns
    /// how many operations are still with the system at `deadline`.
    fn shutdown(&mut self, deadline: Time, sleeper: &dyn Sleeper) -> usize;
}

/// Who sleeps in [`Driver::wait`].
pub(crate) trait Sleeper {
    /// Whether there is something to do that the driver does not know of.
    fn is_pending(&self) -> bool;
    /// About to sleep; false forbids it.
    fn may_sleep(&self) -> bool;
    /// Awake again.
    fn awake(&self);
}
