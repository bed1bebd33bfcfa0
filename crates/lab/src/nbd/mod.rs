//! Load through an NBD server: the client's side of the protocol, with a job on each connection.
//!
//! Source: the NBD protocol document (`doc/proto.md` of the NetworkBlockDevice project). Fixed
//! newstyle negotiation with `NBD_OPT_GO`, block sizes asked for, simple replies.
//!
//! [`NbdLoad`] is an engine of its own, without a host: it connects, keeps `iodepth` requests under
//! way on each connection and measures them exactly as [`crate::load`] does on a head.
//!
//! | file | what |
//! | --- | --- |
//! | `uri` | where the server is, as fio and libnbd write it |
//! | `negotiation` | from the greeting to an open export |
//! | `connection` | requests out, replies in, of one connection |
//! | `engine` | all connections of a worker; verbs |
//! | `fuzz` | a server that says anything |
//!
//! # Bounds
//!
//! A server makes us hold [`MAX_REPLY_BYTES`] during the negotiation and nothing afterwards: what a
//! reply carries goes to the buffer of the request that it answers. Nothing is waited for without a
//! limit: [`NEGOTIATION_TIMEOUT`] until all exports are open, [`SILENCE_TIMEOUT`] for the next
//! reply. A server that breaks the protocol loses that connection, and the load ends with a
//! sentence that says what it did.

mod connection;
mod engine;
pub mod fuzz;
mod negotiation;
mod uri;

pub use engine::{NbdLoad, NbdLoadEvent, NbdLoadReply, NbdLoadVerb};
pub use negotiation::Opened;
pub use uri::{NbdUri, Server};

use std::time::Duration;

/// The port of NBD servers (IANA).
pub const DEFAULT_PORT: u16 = 10809;
/// The longest export name (protocol: the longest string).
pub const MAX_NAME_BYTES: usize = 4096;
/// The longest payload of a reply to an option: a string and something before it.
pub const MAX_REPLY_BYTES: u32 = 8 << 10;
/// Replies to our one option, until which the server must have said yes or no.
pub const MAX_REPLIES: u32 = 64;
/// How long connecting and negotiating may take.
pub const NEGOTIATION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may go without a reply while requests are under way.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an orderly close may take.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Connections of one worker.
pub const MAX_CONNECTIONS: u16 = 1024;
/// Requests at once on one connection.
pub const MAX_DEPTH: u32 = 4096;
/// The block size that is assumed when the server names none, and the least that is used: what a
/// verified block needs.
pub const LEAST_BLOCK_BYTES: u32 = 512;
/// The longest request when the server names no limit (protocol).
pub const DEFAULT_MAX_REQUEST_BYTES: u32 = 32 << 20;
/// Payload from here on is received straight into its buffer.
const RECEIVE_INTO_BYTES: u32 = 16 << 10;
