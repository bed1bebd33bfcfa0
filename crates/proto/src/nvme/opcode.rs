//! Opcodes and Fabrics command types.

/// Admin commands (Base figure "Opcodes for Admin Commands").
pub mod admin {
    /// Get Log Page.
    pub const GET_LOG_PAGE: u8 = 0x02;
    /// Identify.
    pub const IDENTIFY: u8 = 0x06;
    /// Abort.
    pub const ABORT: u8 = 0x08;
    /// Set Features.
    pub const SET_FEATURES: u8 = 0x09;
    /// Get Features.
    pub const GET_FEATURES: u8 = 0x0a;
    /// Asynchronous Event Request.
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0c;
    /// Keep Alive.
    pub const KEEP_ALIVE: u8 = 0x18;
}

/// I/O commands (Base and NVM, "Opcodes for NVM Commands").
pub mod io {
    /// Flush.
    pub const FLUSH: u8 = 0x00;
    /// Write.
    pub const WRITE: u8 = 0x01;
    /// Read.
    pub const READ: u8 = 0x02;
    /// Compare.
    pub const COMPARE: u8 = 0x05;
    /// Write Zeroes.
    pub const WRITE_ZEROES: u8 = 0x08;
    /// Dataset Management.
    pub const DATASET_MANAGEMENT: u8 = 0x09;
}

/// Fabrics commands: one opcode, told apart by type (Base "Fabrics Commands").
pub mod fabrics {
    /// The opcode of all of them, on admin and on I/O queues.
    pub const FABRICS: u8 = 0x7f;
    /// Type: Property Set.
    pub const PROPERTY_SET: u8 = 0x00;
    /// Type: Connect.
    pub const CONNECT: u8 = 0x01;
    /// Type: Property Get.
    pub const PROPERTY_GET: u8 = 0x04;
    /// Type: Authentication Send.
    pub const AUTHENTICATION_SEND: u8 = 0x05;
    /// Type: Authentication Receive.
    pub const AUTHENTICATION_RECEIVE: u8 = 0x06;
    /// Type: Disconnect.
    pub const DISCONNECT: u8 = 0x08;
}

/// Which way an opcode (or a Fabrics type) moves data: its low two bits (Base, "Opcodes").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// No data.
    None,
    /// Host to controller.
    HostToController,
    /// Controller to host.
    ControllerToHost,
    /// Both; no command of ours does that.
    Both,
}

impl Direction {
    /// The direction that the low two bits of `code` say.
    #[must_use]
    pub const fn of(code: u8) -> Direction {
        match code & 3 {
            0 => Direction::None,
            1 => Direction::HostToController,
            2 => Direction::ControllerToHost,
            _ => Direction::Both,
        }
    }
}
