//! The one contract between an engine and the outside.
//!
//! An engine is a pure state machine. It never reads a clock, opens a socket, sleeps or spawns a
//! thread; everything that happens to it is an [`Input`], everything it wants done is an
//! [`Output`]. A driver (the `rt` crate live, the simulator in tests) runs it like this:
//!
//! 1. give **one** input to [`Machine::handle`] together with the time;
//! 2. drain [`Machine::poll_output`] until it returns `None`;
//! 3. for every connection that has asked to [`Output::Transmit`] and has no send in flight, pull
//!    a batch with [`Machine::poll_transmit`];
//! 4. ask [`Machine::poll_timeout`] when to come back at the latest;
//! 5. wait for the next event, go to 1.
//!
//! # Rules that both sides keep
//!
//! * Every output that starts something has an input that ends it, failures included:
//!   `Connect` ends in `Connected` or `Closed`; a connection that was `Connected` or `Accepted`
//!   ends in exactly one `Closed`; `Listen` ends in `Listening` or `Unlistened`; a pulled batch
//!   ends in `Transmitted` or `Closed`; `Disk` ends in `DiskDone`.
//! * Per connection at most one receive and one send are in flight. While a send is in flight,
//!   whatever becomes ready is collected by the engine and leaves in the next batch.
//! * A [`BufRef`] that an engine has put into a batch, a `ReceiveInto` or a `Disk` operation
//!   belongs to the driver until the input that ends it (`Transmitted`, `ReceivedInto`, `DiskDone`,
//!   or `Closed` of that connection). The driver gives `Closed` only when every operation that
//!   names a buffer of that connection has been reaped, so **after `Closed` nobody outside touches
//!   them any more**. An engine must not reuse, free or complete such a buffer earlier.
//! * `ReceiveInto` is a hint for the *next* receive. The driver may ignore it and deliver
//!   `Received` bytes instead; it never delivers both for the same bytes.
//! * After `Output::Close` the engine may still be given inputs of that connection (they were on
//!   their way) until `Closed`; it ignores them.
//! * Identifiers are chosen by the engine for what it starts, and by the driver for accepted
//!   connections ([`ConnId::is_accepted`]). An identifier may be used again after `Closed`.

mod buffer;
mod id;
mod time;

pub use buffer::{BufRef, Buffers, Gather};
pub use id::{ConnId, DiskId, FileId, ListenerId, VerbId, WorkerId};
pub use time::Time;

use alloc::string::String;
use core::net::{IpAddr, SocketAddr};

/// A sans-I/O engine. See the module documentation for the contract.
pub trait Machine {
    /// What engines of one group send each other.
    type Mail;
    /// A control request from outside the group of workers (command line, control socket).
    type Verb;
    /// The answer to a [`Machine::Verb`].
    type Reply;
    /// Something worth telling a human or a log.
    type Event;

    /// Takes one input. Never blocks, never fails: a bad input changes state or is ignored.
    fn handle(
        &mut self,
        now: Time,
        input: Input<'_, Self::Verb, Self::Mail>,
        bufs: &mut dyn Buffers,
    );

    /// The next thing that the engine wants done, until `None`.
    fn poll_output(&mut self) -> Option<Output<Self::Mail, Self::Reply, Self::Event>>;

    /// Fills one batch for `conn`: headers are copied, payload is named. Called only when no send
    /// is in flight on `conn`. Putting nothing into the batch means that nothing is left to send.
    fn poll_transmit(
        &mut self,
        now: Time,
        conn: ConnId,
        batch: &mut dyn Gather,
        bufs: &mut dyn Buffers,
    );

    /// When [`Input::Timeout`] must come at the latest; `None` when no timer runs.
    fn poll_timeout(&mut self) -> Option<Time>;
}

/// What happened. `'a` is the life of received bytes: they are gone after `handle` returns.
#[derive(Debug)]
pub enum Input<'a, V, M> {
    /// The first input that an engine gets.
    Start,
    /// The time that `poll_timeout` named has been reached.
    Timeout,
    /// A [`Output::Connect`] succeeded.
    Connected {
        /// The connection.
        conn: ConnId,
        /// Our own address on it, when the transport has one.
        local: Option<SocketAddr>,
        /// The NUMA node of the network device that it goes through, where
        /// [`SocketOptions::tell_node`] asked for it and the system knows.
        node: Option<u32>,
    },
    /// A peer connected to one of our listeners. `conn.is_accepted()` holds. Also given to the
    /// worker that a connection was handed over to ([`Output::HandOver`]).
    Accepted {
        /// The listener that took the connection.
        listener: ListenerId,
        /// The connection.
        conn: ConnId,
        /// Who that is, as far as the system says.
        peer: Option<Peer>,
    },
    /// A [`Output::Listen`] succeeded.
    Listening {
        /// The listener.
        listener: ListenerId,
        /// The address really bound (port 0 resolved).
        at: Endpoint,
    },
    /// A listener is no more: [`Output::Unlisten`] was carried out (`error` is `None`) or listening
    /// failed.
    Unlistened {
        /// The listener.
        listener: ListenerId,
        /// Why listening failed.
        error: Option<SystemError>,
    },
    /// Bytes of the stream, in order.
    Received {
        /// The connection.
        conn: ConnId,
        /// At least one byte.
        bytes: &'a [u8],
    },
    /// Bytes of the stream were put straight into the buffer of the last [`Output::ReceiveInto`],
    /// from its start.
    ReceivedInto {
        /// The connection.
        conn: ConnId,
        /// How many bytes, at least one, at most the buffer's length.
        len: u32,
    },
    /// The batch last pulled for this connection has left; its payload buffers are the engine's
    /// again.
    Transmitted {
        /// The connection.
        conn: ConnId,
    },
    /// A [`Output::Look`] has found the peer there. One comes for each, in order, unless `Closed`
    /// comes first.
    Looked {
        /// The connection.
        conn: ConnId,
    },
    /// The connection is over, for whatever reason, and nothing outside names its buffers.
    Closed {
        /// The connection.
        conn: ConnId,
        /// Why.
        cause: CloseCause,
    },
    /// A [`Output::Disk`] operation ended. For reads and writes the value is the number of bytes,
    /// which is the whole length or an error: the driver continues short transfers. Only where
    /// the file ends has a read fewer, and the rest of its buffer means nothing. Turning a range
    /// into zeroes may take long: 0 says that all of it is done, more that only so many bytes from
    /// its start are; the rest is to be asked for again.
    DiskDone {
        /// The operation.
        id: DiskId,
        /// Bytes moved, or why not.
        result: Result<u32, SystemError>,
    },
    /// Mail from an engine of the same group. Mail between two workers keeps its order.
    Mail {
        /// The sender.
        from: WorkerId,
        /// What it says.
        mail: M,
    },
    /// A control request; it ends with exactly one [`Output::Reply`].
    Verb {
        /// Names the request in the reply.
        id: VerbId,
        /// What is asked.
        verb: V,
    },
}

/// What the engine wants done.
#[derive(Debug)]
pub enum Output<M, R, E> {
    /// Open a stream. The engine sets its own time limit and ends a slow attempt with `Close`.
    Connect {
        /// A name chosen by the engine; not accepted, not in use.
        conn: ConnId,
        /// The peer.
        to: Endpoint,
        /// Socket options.
        options: SocketOptions,
    },
    /// Accept streams.
    Listen {
        /// A name chosen by the engine.
        listener: ListenerId,
        /// Where. TCP port 0 takes any free port.
        at: Endpoint,
        /// Socket options of accepted connections.
        options: SocketOptions,
    },
    /// Stop accepting. Connections that were accepted live on.
    Unlisten {
        /// The listener.
        listener: ListenerId,
    },
    /// There are bytes to send: pull them with `poll_transmit` as soon as no send is in flight.
    Transmit {
        /// The connection.
        conn: ConnId,
    },
    /// Acknowledge what has come at once (TCP): the peer waits for that, and nothing is to be sent
    /// that would carry it. No more than a hint.
    Acknowledge {
        /// The connection.
        conn: ConnId,
    },
    /// Aim the next receive at this buffer, at most its length.
    ReceiveInto {
        /// The connection.
        conn: ConnId,
        /// Where the next bytes of the stream belong.
        buf: BufRef,
    },
    /// Stop reading this connection (back-pressure). A receive in flight may still deliver once.
    Pause {
        /// The connection.
        conn: ConnId,
        /// Whether `Closed` comes all the same once the peer has ended the connection: what it sent
        /// before that and was not read is lost then. Otherwise its end is noticed where it is
        /// read, after `Resume`.
        watch: bool,
    },
    /// Read this connection again.
    Resume {
        /// The connection.
        conn: ConnId,
    },
    /// Look whether the peer has ended this connection: its end may be there although it was not
    /// read yet. `Looked` says that it has not; otherwise `Closed` follows, when what it sent
    /// before has been read, or without that where a pause is watched.
    Look {
        /// The connection.
        conn: ConnId,
    },
    /// End a connection (or an attempt to connect). Ends in `Closed`.
    Close {
        /// The connection.
        conn: ConnId,
        /// In which way.
        how: CloseHow,
    },
    /// Give an accepted connection, from which nothing was read yet, to another worker of the
    /// group: that one gets `Accepted` with the same listener and a connection identifier of its
    /// own. This worker hears no more of it, unless it is over already: then it is closed here.
    HandOver {
        /// The connection.
        conn: ConnId,
        /// The listener to name there.
        listener: ListenerId,
        /// The new owner.
        to: WorkerId,
    },
    /// Work on a file.
    Disk {
        /// A name chosen by the engine, not in use.
        id: DiskId,
        /// An open file, registered with the driver beforehand.
        file: FileId,
        /// What to do.
        op: DiskOp,
    },
    /// Send mail to an engine of the same group (not to oneself).
    Mail {
        /// The receiver.
        to: WorkerId,
        /// What to say.
        mail: M,
    },
    /// Answer a control request.
    Reply {
        /// The request.
        id: VerbId,
        /// The answer.
        reply: R,
    },
    /// Tell a human.
    Event(E),
}

impl<M, R, E> Output<M, R, E> {
    /// The same output in the terms of an engine that nests the one it came from.
    pub fn map<M2, R2, E2>(
        self,
        mail: impl FnOnce(M) -> M2,
        reply: impl FnOnce(R) -> R2,
        event: impl FnOnce(E) -> E2,
    ) -> Output<M2, R2, E2> {
        match self {
            Output::Connect { conn, to, options } => Output::Connect { conn, to, options },
            Output::Listen { listener, at, options } => Output::Listen { listener, at, options },
            Output::Unlisten { listener } => Output::Unlisten { listener },
            Output::Transmit { conn } => Output::Transmit { conn },
            Output::Acknowledge { conn } => Output::Acknowledge { conn },
            Output::ReceiveInto { conn, buf } => Output::ReceiveInto { conn, buf },
            Output::Pause { conn, watch } => Output::Pause { conn, watch },
            Output::Resume { conn } => Output::Resume { conn },
            Output::Look { conn } => Output::Look { conn },
            Output::Close { conn, how } => Output::Close { conn, how },
            Output::HandOver { conn, listener, to } => Output::HandOver { conn, listener, to },
            Output::Disk { id, file, op } => Output::Disk { id, file, op },
            Output::Mail { to, mail: inner } => Output::Mail { to, mail: mail(inner) },
            Output::Reply { id, reply: inner } => Output::Reply { id, reply: reply(inner) },
            Output::Event(inner) => Output::Event(event(inner)),
        }
    }
}

/// Where a stream leads to, or is accepted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// TCP, IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A Unix stream socket at this path.
    Unix(String),
}

impl core::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Endpoint::Tcp(addr) => write!(f, "{addr}"),
            Endpoint::Unix(path) => write!(f, "unix:{path}"),
        }
    }
}

/// Who is at the other end of an accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// Somebody at this address.
    Address(SocketAddr),
    /// The process of this machine that has connected to a Unix socket.
    Process(u32),
}

/// What an address has in common with all that whoever has it can choose: of IPv6 the first half,
/// as the other 2^64 are theirs, too; of an IPv4 one, whichever way it is written, all of it.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => IpAddr::V6((six.to_bits() >> 64 << 64).into()),
        four @ IpAddr::V4(_) => four,
    }
}

impl core::fmt::Display for Peer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Peer::Address(address) => address.fmt(f),
            Peer::Process(pid) => write!(f, "process {pid}"),
        }
    }
}

/// Socket options. TCP_NODELAY is always on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// Bind to this address before connecting (`host_traddr`).
    pub source: Option<IpAddr>,
    /// Bind to this interface before connecting (`host_iface`).
    pub interface: Option<String>,
    /// Say with [`Input::Connected`] which NUMA node it goes through: that takes a look at all of
    /// the machine's interfaces.
    pub tell_node: bool,
    /// Type of service.
    pub tos: Option<u8>,
    /// SO_SNDBUF and SO_RCVBUF in bytes; the system's own choice when `None`.
    pub buffer_bytes: Option<u32>,
    /// Who may connect to a Unix socket that listens.
    pub access: SocketAccess,
}

/// Who may connect to a Unix socket, as its file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketAccess {
    /// The file's permission bits.
    pub mode: u16,
    /// The file's group; that of whoever runs us when `None`.
    pub group: Option<u32>,
}

impl Default for SocketAccess {
    /// Whoever runs us, and nobody else.
    fn default() -> SocketAccess {
        SocketAccess { mode: 0o600, group: None }
    }
}

/// How to end a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseHow {
    /// Send what the engine still has (`poll_transmit` until it is empty), then end our direction
    /// and discard what comes until the peer ends its own, or has sent more than it can mean well
    /// with. The engine sets a guard timer and aborts when that takes too long.
    Graceful,
    /// Reset the connection: nothing is sent any more (linger 0).
    Abort,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseCause {
    /// The engine asked for it.
    Requested,
    /// The peer ended the stream in an orderly way.
    PeerClosed,
    /// The system reported an error: refused, reset, unreachable, timed out, …
    Failed(SystemError),
}

impl core::fmt::Display for CloseCause {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            CloseCause::Requested => f.write_str("closed by us"),
            CloseCause::PeerClosed => f.write_str("closed by the peer"),
            CloseCause::Failed(error) => write!(f, "{error}"),
        }
    }
}

/// Work on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskOp {
    /// Fill the buffer from `offset` (bytes), as far as the file goes.
    Read {
        /// Byte offset in the file.
        offset: u64,
        /// Destination.
        buf: BufRef,
    },
    /// Write the buffer at `offset` (bytes).
    Write {
        /// Byte offset in the file.
        offset: u64,
        /// Source.
        buf: BufRef,
    },
    /// Make all finished writes durable. A system may tell of data that it has lost once only:
    /// when one fails, its error comes before the success of any other (or `Sync`) of the file
    /// that ran beside it.
    Flush,
    /// Make finished writes of a range durable. Its error may be that of other data in the file.
    Sync {
        /// Byte offset in the file.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Turn a range into zeroes; with `deallocate`, give its space back where the file system can.
    Zero {
        /// Byte offset in the file.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// The space may be given back.
        deallocate: bool,
    },
    /// Give the space of a range back, which reads as zeroes then. Where the file system cannot,
    /// the range stays as it is, and that is a success: nothing is written in its place.
    Deallocate {
        /// Byte offset in the file.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
}

/// An error number of the operating system (`errno`). Zero does not occur.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SystemError(pub i32);

impl SystemError {
    /// Connection refused.
    pub const REFUSED: SystemError = SystemError(111);
    /// Connection reset by peer.
    pub const RESET: SystemError = SystemError(104);
    /// Broken pipe.
    pub const BROKEN_PIPE: SystemError = SystemError(32);
    /// No space left on device.
    pub const NO_SPACE: SystemError = SystemError(28);
    /// Try again. A flush that ends so was never begun: the system had no thread for it. The
    /// system itself answers none so.
    pub const AGAIN: SystemError = SystemError(11);
    /// Input/output error.
    pub const IO: SystemError = SystemError(5);

    /// The message of `strerror` for the errors that a network or a disk gives.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self.0 {
            1 => "operation not permitted",
            2 => "no such file or directory",
            5 => "input/output error",
            9 => "bad file descriptor",
            11 => "resource temporarily unavailable",
            12 => "cannot allocate memory",
            13 => "permission denied",
            19 => "no such device",
            22 => "invalid argument",
            23 => "too many open files in system",
            24 => "too many open files",
            27 => "file too large",
            28 => "no space left on device",
            30 => "read-only file system",
            32 => "broken pipe",
            36 => "file name too long",
            97 => "address family not supported",
            98 => "address already in use",
            99 => "cannot assign requested address",
            100 => "network is down",
            101 => "network is unreachable",
            103 => "connection aborted",
            104 => "connection reset by peer",
            105 => "no buffer space available",
            110 => "connection timed out",
            111 => "connection refused",
            112 => "host is down",
            113 => "no route to host",
            125 => "operation canceled",
            _ => "system error",
        }
    }
}

impl core::fmt::Display for SystemError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} (errno {})", self.message(), self.0)
    }
}

impl core::fmt::Debug for SystemError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::network;

    #[test]
    fn an_address_is_told_by_what_its_owner_cannot_choose() {
        let of = |text: &str| network(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1:2"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
