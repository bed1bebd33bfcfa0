//! A Network Block Device server over namespace heads, without I/O.
//!
//! Source: the NBD protocol document (`doc/proto.md` of the NetworkBlockDevice project): fixed
//! newstyle negotiation, structured replies, block size information.
//!
//! [`Nbd`] is a [`User`](anabranch_host::user::User): it lives on every worker of a host, owns the
//! accepted connections of that worker and submits to the shard beside it. The instance on the
//! control worker listens and hands each connection to the data worker that has the fewest, in turn
//! where several have, so that the connections of one client (`CAN_MULTI_CONN`) spread over as many
//! workers as others leave room on, and clients that stay do so whoever comes and goes.
//!
//! Each export has one address, which others may share. Who may reach which address is the
//! administrator's decision (a socket's mode, a firewall), so the clients of an address see, list
//! and open its exports only.
//!
//! | file | what |
//! | --- | --- |
//! | `wire` | the numbers of the protocol |
//! | `errno` | error numbers and what leads to them |
//! | `bound` | which namespace the device of an export is |
//! | `exports` | what is offered under which name; verbs, replies, mail, events |
//! | `handshake` | option haggling of one connection |
//! | `request` | a request header, checked against the device |
//! | `reply` | what answers are made of, and in which order they leave |
//! | `slab` | fixed tables |
//! | `transfer` | requests in progress and the pieces that they are carried in |
//! | `connection` | one client: the stream in, back-pressure, ending |
//! | `looks` | who has left and was not heard of yet |
//! | `memory` | how the devices share the payload memory |
//! | `waiting` | clients that wait for what they share |
//! | `control` | the control worker: listeners, verbs |
//! | `front` | all clients of a worker |
//!
//! # Bounds
//!
//! A client can make us hold: one option of [`MAX_OPTION_BYTES`], [`MAX_REQUESTS`] requests,
//! [`MAX_BUFFER_BYTES`] of pool memory, and what two receives delivered beyond that. When any of
//! them is used up the connection is not read until something ends; should the client leave
//! meanwhile, that is heard of all the same. A request of any length moves in pieces of at most
//! [`PIECE_BYTES`]; each request that was let in owns at least one piece until it ends, so large
//! requests can not lock each other up.
//!
//! The clients of one device have at most 3/8 of the worker's pool beside what is set apart for
//! each device (1/1024 of the pool, for as many as may be exported), and never more than they
//! leave to the clients of others: a device without a path, whose requests may wait for ever, does
//! not keep theirs waiting. Nor does a client that does not read its answers, or leaves a write
//! half sent, keep the others of its device waiting: it never has more than it leaves to them, and
//! one that has nothing gets a buffer, if only a short one ([`LEAST_PIECE_BYTES`]).
//!
//! # What a client may rely on
//!
//! * An answered write is as durable as NVMe makes it: after FUA or a later flush, on *any*
//!   connection, it is on stable storage. That is what `CAN_MULTI_CONN` promises.
//! * The flags FLUSH and FUA are always offered, because every controller takes them, and a path
//!   that joins later may have a volatile cache where the first had none.
//! * Who wants to take an export whose device is not there (yet) waits for it, for
//!   [`DEVICE_TIMEOUT`]; the connection is not read meanwhile. So does who wants one while a
//!   controller has writes of a client that has left, which could undo what is written then.
//! * Requests that are not aligned to the device's blocks are answered with `EINVAL`; the block
//!   size is announced. A trim is rounded to the whole blocks in its range.

mod bound;
mod connection;
mod control;
mod errno;
mod exports;
mod failures;
mod front;
mod handshake;
mod looks;
mod memory;
mod pieces;
mod reply;
mod request;
mod slab;
mod transfer;
mod waiting;
pub mod wire;

pub use bound::Bound;
pub use exports::{Access, Export, NbdConfig, NbdError, NbdEvent, NbdMail, NbdReply, NbdVerb};
pub use front::Nbd;

use core::time::Duration;

/// Connections per worker; further ones are closed at once, or take the place of the one that has
/// been negotiating for longest, if for more than [`NEGOTIATION_TIME`].
pub const MAX_CONNECTIONS: usize = 256;
/// So many parts, of so many, of a worker's connections may come from one network address. (A
/// process of this machine may open a Unix socket only if its mode says so.)
pub const ADDRESS_SHARE: (usize, usize) = (3, 4);
/// Requests of one connection in progress, answered ones included until the answer has left.
pub const MAX_REQUESTS: usize = 128;
/// Pieces of one connection in progress. More than requests, so that each can have one.
pub const MAX_PIECES: usize = 2 * MAX_REQUESTS;
/// Payload bytes that one piece carries at most.
pub const PIECE_BYTES: u32 = 1 << 20;
/// What each client can have of the payload memory in any case, in one piece or in several small
/// ones: where less is left than a piece needs, pieces are cut down to this.
pub const LEAST_PIECE_BYTES: u32 = 64 << 10;
/// Pieces of one structured read in progress at once.
pub const READ_WINDOW: u32 = 4;
/// Pool memory that one connection holds at most.
pub const MAX_BUFFER_BYTES: u32 = 16 << 20;
/// The longest read or write that is announced and accepted.
pub const MAX_REQUEST_BYTES: u32 = 32 << 20;
/// The block size that is announced as preferred (unless the device's own is larger).
pub const PREFERRED_BLOCK_BYTES: u32 = 4096;
/// The longest read that a client may ask to be answered in one chunk.
pub const MAX_UNFRAGMENTED_BYTES: u32 = PIECE_BYTES;
/// The longest option payload that is kept; a longer one is skipped and refused.
pub const MAX_OPTION_BYTES: u32 = 8 << 10;
/// The longest option payload that is skipped; a longer one ends the connection.
pub const MAX_SKIPPED_OPTION_BYTES: u32 = 1 << 20;
/// Options in one negotiation: enough to ask about each export all there is to ask. The protocol
/// sets no limit, and qemu and libnbd list exports and their contexts on one connection.
pub const MAX_OPTIONS: u32 = 8 * (MAX_EXPORTS as u32 + 1);
/// Unsent negotiation bytes beyond which no further option is read.
pub const MAX_HANDSHAKE_BACKLOG_BYTES: usize = 64 << 10;
/// The longest export name or description.
pub const MAX_NAME_BYTES: usize = 256;
/// Exports offered at once.
pub const MAX_EXPORTS: usize = 256;
/// How long a client that negotiates may take for another option; it is looked at no more often, so
/// it may have twice as long.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// For how long a client negotiates in any case before it makes room for another one.
pub const NEGOTIATION_TIME: Duration = Duration::from_secs(1);
/// How long a client that wants to take an export whose device is not there waits for it, once: so
/// that what starts beside us does not fail because a path needs a second attempt to connect, which
/// comes after 10 s by default.
pub const DEVICE_TIMEOUT: Duration = Duration::from_secs(15);
/// How long an orderly close may take before the connection is reset.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long until something that was refused for want of memory is tried again, when nothing of
/// ours ends before that: the pool is not ours alone.
pub const RETRY_DELAY: Duration = Duration::from_millis(5);
/// Payload from here on is received straight into its buffer.
pub const RECEIVE_INTO_BYTES: u32 = 16 << 10;
