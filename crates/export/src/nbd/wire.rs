//! The numbers of the NBD protocol. All fields are big-endian.

/// First eight bytes of a server.
pub const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`: in the greeting and before each option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Before each reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Before each request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Before each simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Before each chunk of a structured reply.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Bytes of a request header.
pub const REQUEST_BYTES: usize = 28;
/// Bytes before an option's payload.
pub const OPTION_BYTES: usize = 16;

/// Flags of the greeting, and of the client's answer to it.
pub mod greeting {
    /// Fixed newstyle.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// The 124 zeroes after `NBD_OPT_EXPORT_NAME` are left out.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Options.
pub mod option {
    /// Take this export, without a way to say no.
    pub const EXPORT_NAME: u32 = 1;
    /// Leave.
    pub const ABORT: u32 = 2;
    /// Name all exports.
    pub const LIST: u32 = 3;
    /// Start TLS.
    pub const STARTTLS: u32 = 5;
    /// Tell about an export.
    pub const INFO: u32 = 6;
    /// Tell about an export and take it.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
}

/// Types of replies to options.
pub mod option_reply {
    /// Done.
    pub const ACK: u32 = 1;
    /// An export's name.
    pub const SERVER: u32 = 2;
    /// Information about an export.
    pub const INFO: u32 = 3;
    /// The option is not supported.
    pub const ERR_UNSUP: u32 = (1 << 31) + 1;
    /// The server's policy forbids it.
    pub const ERR_POLICY: u32 = (1 << 31) + 2;
    /// The option's payload is wrong.
    pub const ERR_INVALID: u32 = (1 << 31) + 3;
    /// Only after TLS was started.
    pub const ERR_TLS_REQD: u32 = (1 << 31) + 5;
    /// No such export.
    pub const ERR_UNKNOWN: u32 = (1 << 31) + 6;
    /// The server is ending.
    pub const ERR_SHUTDOWN: u32 = (1 << 31) + 7;
    /// The option's payload is too long.
    pub const ERR_TOO_BIG: u32 = (1 << 31) + 9;
}

/// Types of information.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// Canonical name.
    pub const NAME: u16 = 1;
    /// Description.
    pub const DESCRIPTION: u16 = 2;
    /// Block sizes.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags of an export.
pub mod export_flag {
    /// The other flags mean something.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Read-only.
    pub const READ_ONLY: u16 = 1 << 1;
    /// Flush is supported.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// FUA is supported.
    pub const SEND_FUA: u16 = 1 << 3;
    /// Trim is supported.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// Write zeroes is supported.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The "don't fragment" flag is supported.
    pub const SEND_DF: u16 = 1 << 7;
    /// Several connections see one consistent device.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
}

/// Commands.
pub mod command {
    /// Read.
    pub const READ: u16 = 0;
    /// Write.
    pub const WRITE: u16 = 1;
    /// Disconnect.
    pub const DISC: u16 = 2;
    /// Flush.
    pub const FLUSH: u16 = 3;
    /// Trim.
    pub const TRIM: u16 = 4;
    /// Write zeroes.
    pub const WRITE_ZEROES: u16 = 6;
    /// Those that a read-only export refuses.
    pub const CHANGING: [u16; 3] = [WRITE, TRIM, WRITE_ZEROES];
}

/// Flags of commands.
pub mod command_flag {
    /// Force unit access.
    pub const FUA: u16 = 1 << 0;
    /// Write zeroes must leave the space allocated.
    pub const NO_HOLE: u16 = 1 << 1;
    /// Answer a read in one chunk.
    pub const DF: u16 = 1 << 2;
}

/// Types of chunks.
pub mod chunk {
    /// Flag: the last chunk of the reply.
    pub const DONE: u16 = 1 << 0;
    /// Data and its offset.
    pub const OFFSET_DATA: u16 = 1;
    /// An error with a text.
    pub const ERROR: u16 = (1 << 15) + 1;
}

/// Error numbers that may travel (Linux values).
pub mod errno {
    /// Operation not permitted.
    pub const EPERM: u32 = 1;
    /// Input/output error.
    pub const EIO: u32 = 5;
    /// Invalid argument.
    pub const EINVAL: u32 = 22;
    /// No space left on device.
    pub const ENOSPC: u32 = 28;
    /// Value too large.
    pub const EOVERFLOW: u32 = 75;
    /// Operation not supported.
    pub const ENOTSUP: u32 = 95;
    /// The server is shutting down.
    pub const ESHUTDOWN: u32 = 108;
}
