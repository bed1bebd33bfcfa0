//! Status codes of completions.

use core::fmt;

/// The status field of a completion without the phase tag (Base "Status Field Definition"):
/// status code in bits 0 to 7, type in 8 to 10, retry delay (CRD) in 11 and 12, More in 13, DNR in
/// 14. The same layout as the kernel's status values, so `{:#x}` compares with its logs.
///
/// Compare with constants through [`Status::is`], which leaves CRD, More and DNR aside.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(u16);

const MORE: u16 = 1 << 13;
const DNR: u16 = 1 << 14;
const CODE: u16 = 0x7ff;

/// Status code types.
pub mod sct {
    /// Generic command status.
    pub const GENERIC: u8 = 0;
    /// Command specific status.
    pub const COMMAND: u8 = 1;
    /// Media and data integrity errors.
    pub const MEDIA: u8 = 2;
    /// Path related status.
    pub const PATH: u8 = 3;
    /// Vendor specific.
    pub const VENDOR: u8 = 7;
}

impl Status {
    /// A status of this type (3 bits) and code, without flags.
    #[must_use]
    pub const fn new(sct: u8, sc: u8) -> Status {
        Status((sct as u16 & 7) << 8 | sc as u16)
    }

    /// From the 15 bits of the completion; a 16th is dropped.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Status {
        Status(bits & 0x7fff)
    }

    /// The 15 bits.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Status code type.
    #[must_use]
    pub const fn sct(self) -> u8 {
        (self.0 >> 8 & 7) as u8
    }

    /// Status code.
    #[must_use]
    pub const fn sc(self) -> u8 {
        (self.0 & 0xff) as u8
    }

    /// Command retry delay: 0 none, 1 to 3 name CRDT1 to CRDT3 of Identify Controller.
    #[must_use]
    pub const fn crd(self) -> u8 {
        (self.0 >> 11 & 3) as u8
    }

    /// More information is in the error log.
    #[must_use]
    pub const fn more(self) -> bool {
        self.0 & MORE != 0
    }

    /// Do not retry.
    #[must_use]
    pub const fn dnr(self) -> bool {
        self.0 & DNR != 0
    }

    /// Type and code alone.
    #[must_use]
    pub const fn code(self) -> Status {
        Status(self.0 & CODE)
    }

    /// Whether type and code are those of `other`.
    #[must_use]
    pub const fn is(self, other: Status) -> bool {
        self.0 & CODE == other.0 & CODE
    }

    /// Whether the command succeeded.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 & CODE == 0
    }

    /// Whether the path, not the command or the media, is to blame (type 3h).
    #[must_use]
    pub const fn is_path_error(self) -> bool {
        self.sct() == sct::PATH
    }

    /// Whether it says that the namespace's ANA state forbids the command: persistent loss (301h),
    /// inaccessible (302h), transition (303h).
    #[must_use]
    pub const fn is_ana_error(self) -> bool {
        self.sct() == 3 && matches!(self.sc(), 1..=3)
    }

    /// The same status with DNR set.
    #[must_use]
    pub const fn with_dnr(self) -> Status {
        Status(self.0 | DNR)
    }

    /// The same status with this retry delay index (0 to 3).
    #[must_use]
    pub const fn with_crd(self, crd: u8) -> Status {
        Status(self.0 & !(3 << 11) | (crd as u16 & 3) << 11)
    }

    /// The same status with More set.
    #[must_use]
    pub const fn with_more(self) -> Status {
        Status(self.0 | MORE)
    }

    /// Whether an I/O command was refused for what it is: the namespace has no such command,
    /// although its controller may have said so. Linux's target answers 183h when the file system
    /// below has no way to do it.
    #[must_use]
    pub const fn is_unknown_io(self) -> bool {
        self.is(Status::INVALID_OPCODE) || self.is(Status::COMMAND_SIZE_LIMIT_EXCEEDED)
    }

    /// Whether an I/O command was refused for what it is or asks for: the same in another way may
    /// well work. Linux's host takes these four for "not supported".
    #[must_use]
    pub const fn is_unsupported_io(self) -> bool {
        self.is_unknown_io()
            || self.is(Status::INVALID_FIELD)
            || self.is(Status::CONFLICTING_ATTRIBUTES)
    }

    /// The specification's words for type and code; `None` when it has none.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        named(NAMES, self)
    }

    /// As [`Status::name`], for the answer to an I/O command: from 180h on the codes of Fabrics
    /// commands mean something else there.
    #[must_use]
    pub fn io_name(self) -> Option<&'static str> {
        let of_fabrics = self.sct() == sct::COMMAND && self.sc() >= 0x80;
        named(if of_fabrics { IO_NAMES } else { NAMES }, self)
    }
}

fn named(names: &[(Status, &'static str)], status: Status) -> Option<&'static str> {
    names.iter().find(|(found, _)| *found == status.code()).map(|(_, name)| *name)
}

/// The answer to an I/O command, for people: see [`Status::io_name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoStatus(pub Status);

macro_rules! statuses {
    ($names:ident: $($name:ident = $sct:literal / $sc:literal, $words:literal;)*) => {
        impl Status {
            $(#[doc = $words] pub const $name: Status = Status::new($sct, $sc);)*
        }

        const $names: &[(Status, &str)] = &[$((Status::$name, $words),)*];
    };
}

statuses! {
    IO_NAMES:
    CONFLICTING_ATTRIBUTES = 1 / 0x80, "Conflicting Attributes";
    INVALID_PROTECTION_INFORMATION = 1 / 0x81, "Invalid Protection Information";
    WRITE_TO_READ_ONLY_RANGE = 1 / 0x82, "Attempted Write to Read Only Range";
    COMMAND_SIZE_LIMIT_EXCEEDED = 1 / 0x83, "Command Size Limit Exceeded";
}

statuses! {
    NAMES:
    SUCCESS = 0 / 0x00, "Successful Completion";
    INVALID_OPCODE = 0 / 0x01, "Invalid Command Opcode";
    INVALID_FIELD = 0 / 0x02, "Invalid Field in Command";
    COMMAND_ID_CONFLICT = 0 / 0x03, "Command ID Conflict";
    DATA_TRANSFER_ERROR = 0 / 0x04, "Data Transfer Error";
    ABORTED_POWER_LOSS = 0 / 0x05, "Commands Aborted due to Power Loss Notification";
    INTERNAL_ERROR = 0 / 0x06, "Internal Error";
    ABORT_REQUESTED = 0 / 0x07, "Command Abort Requested";
    ABORTED_SQ_DELETION = 0 / 0x08, "Command Aborted due to SQ Deletion";
    ABORTED_FAILED_FUSED = 0 / 0x09, "Command Aborted due to Failed Fused Command";
    ABORTED_MISSING_FUSED = 0 / 0x0a, "Command Aborted due to Missing Fused Command";
    INVALID_NAMESPACE = 0 / 0x0b, "Invalid Namespace or Format";
    COMMAND_SEQUENCE_ERROR = 0 / 0x0c, "Command Sequence Error";
    INVALID_SGL_SEGMENT = 0 / 0x0d, "Invalid SGL Segment Descriptor";
    INVALID_SGL_COUNT = 0 / 0x0e, "Invalid Number of SGL Descriptors";
    DATA_SGL_LENGTH_INVALID = 0 / 0x0f, "Data SGL Length Invalid";
    METADATA_SGL_LENGTH_INVALID = 0 / 0x10, "Metadata SGL Length Invalid";
    SGL_TYPE_INVALID = 0 / 0x11, "SGL Descriptor Type Invalid";
    INVALID_CMB_USE = 0 / 0x12, "Invalid Use of Controller Memory Buffer";
    PRP_OFFSET_INVALID = 0 / 0x13, "PRP Offset Invalid";
    ATOMIC_WRITE_UNIT_EXCEEDED = 0 / 0x14, "Atomic Write Unit Exceeded";
    OPERATION_DENIED = 0 / 0x15, "Operation Denied";
    SGL_OFFSET_INVALID = 0 / 0x16, "SGL Offset Invalid";
    HOST_ID_INCONSISTENT = 0 / 0x18, "Host Identifier Inconsistent Format";
    KEEP_ALIVE_EXPIRED = 0 / 0x19, "Keep Alive Timer Expired";
    KEEP_ALIVE_INVALID = 0 / 0x1a, "Keep Alive Timeout Invalid";
    ABORTED_PREEMPT = 0 / 0x1b, "Command Aborted due to Preempt and Abort";
    SANITIZE_FAILED = 0 / 0x1c, "Sanitize Failed";
    SANITIZE_IN_PROGRESS = 0 / 0x1d, "Sanitize In Progress";
    SGL_GRANULARITY_INVALID = 0 / 0x1e, "SGL Data Block Granularity Invalid";
    NOT_SUPPORTED_IN_CMB = 0 / 0x1f, "Command Not Supported for Queue in CMB";
    WRITE_PROTECTED = 0 / 0x20, "Namespace is Write Protected";
    COMMAND_INTERRUPTED = 0 / 0x21, "Command Interrupted";
    TRANSIENT_TRANSPORT_ERROR = 0 / 0x22, "Transient Transport Error";
    PROHIBITED_BY_LOCKDOWN = 0 / 0x23, "Command Prohibited by Command and Feature Lockdown";
    ADMIN_MEDIA_NOT_READY = 0 / 0x24, "Admin Command Media Not Ready";
    LBA_OUT_OF_RANGE = 0 / 0x80, "LBA Out of Range";
    CAPACITY_EXCEEDED = 0 / 0x81, "Capacity Exceeded";
    NAMESPACE_NOT_READY = 0 / 0x82, "Namespace Not Ready";
    RESERVATION_CONFLICT = 0 / 0x83, "Reservation Conflict";
    FORMAT_IN_PROGRESS = 0 / 0x84, "Format In Progress";

    COMPLETION_QUEUE_INVALID = 1 / 0x00, "Completion Queue Invalid";
    INVALID_QUEUE_ID = 1 / 0x01, "Invalid Queue Identifier";
    INVALID_QUEUE_SIZE = 1 / 0x02, "Invalid Queue Size";
    ABORT_LIMIT_EXCEEDED = 1 / 0x03, "Abort Command Limit Exceeded";
    AER_LIMIT_EXCEEDED = 1 / 0x05, "Asynchronous Event Request Limit Exceeded";
    INVALID_FIRMWARE_SLOT = 1 / 0x06, "Invalid Firmware Slot";
    INVALID_FIRMWARE_IMAGE = 1 / 0x07, "Invalid Firmware Image";
    INVALID_INTERRUPT_VECTOR = 1 / 0x08, "Invalid Interrupt Vector";
    INVALID_LOG_PAGE = 1 / 0x09, "Invalid Log Page";
    INVALID_FORMAT = 1 / 0x0a, "Invalid Format";
    INVALID_QUEUE_DELETION = 1 / 0x0c, "Invalid Queue Deletion";
    FEATURE_NOT_SAVEABLE = 1 / 0x0d, "Feature Identifier Not Saveable";
    FEATURE_NOT_CHANGEABLE = 1 / 0x0e, "Feature Not Changeable";
    FEATURE_NOT_PER_NAMESPACE = 1 / 0x0f, "Feature Not Namespace Specific";
    OVERLAPPING_RANGE = 1 / 0x14, "Overlapping Range";
    NAMESPACE_ATTACHED = 1 / 0x18, "Namespace Already Attached";
    NAMESPACE_PRIVATE = 1 / 0x19, "Namespace Is Private";
    NAMESPACE_NOT_ATTACHED = 1 / 0x1a, "Namespace Not Attached";
    INVALID_CONTROLLER_ID = 1 / 0x1f, "Invalid Controller Identifier";
    ANA_GROUP_INVALID = 1 / 0x24, "ANA Group Identifier Invalid";
    ANA_ATTACH_FAILED = 1 / 0x25, "ANA Attach Failed";
    CONNECT_INCOMPATIBLE_FORMAT = 1 / 0x80, "Connect Incompatible Format";
    CONNECT_CONTROLLER_BUSY = 1 / 0x81, "Connect Controller Busy";
    CONNECT_INVALID_PARAMETERS = 1 / 0x82, "Connect Invalid Parameters";
    CONNECT_RESTART_DISCOVERY = 1 / 0x83, "Connect Restart Discovery";
    CONNECT_INVALID_HOST = 1 / 0x84, "Connect Invalid Host";
    DISCONNECT_INVALID_QUEUE_TYPE = 1 / 0x85, "Disconnect Invalid Queue Type";
    DISCOVER_RESTART = 1 / 0x90, "Discover Restart";
    AUTHENTICATION_REQUIRED = 1 / 0x91, "Authentication Required";

    WRITE_FAULT = 2 / 0x80, "Write Fault";
    UNRECOVERED_READ_ERROR = 2 / 0x81, "Unrecovered Read Error";
    GUARD_CHECK_ERROR = 2 / 0x82, "End-to-end Guard Check Error";
    APPLICATION_TAG_CHECK_ERROR = 2 / 0x83, "End-to-end Application Tag Check Error";
    REFERENCE_TAG_CHECK_ERROR = 2 / 0x84, "End-to-end Reference Tag Check Error";
    COMPARE_FAILURE = 2 / 0x85, "Compare Failure";
    ACCESS_DENIED = 2 / 0x86, "Access Denied";
    UNWRITTEN_BLOCK = 2 / 0x87, "Deallocated or Unwritten Logical Block";
    STORAGE_TAG_CHECK_ERROR = 2 / 0x88, "End-to-end Storage Tag Check Error";

    INTERNAL_PATH_ERROR = 3 / 0x00, "Internal Path Error";
    ANA_PERSISTENT_LOSS = 3 / 0x01, "Asymmetric Access Persistent Loss";
    ANA_INACCESSIBLE = 3 / 0x02, "Asymmetric Access Inaccessible";
    ANA_TRANSITION = 3 / 0x03, "Asymmetric Access Transition";
    CONTROLLER_PATH_ERROR = 3 / 0x60, "Controller Pathing Error";
    HOST_PATH_ERROR = 3 / 0x70, "Host Pathing Error";
    HOST_ABORTED = 3 / 0x71, "Command Aborted By Host";
}

/// The specification's words, then type and code, then the flags that are set.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, self.name())
    }
}

impl fmt::Display for IoStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, self.0.io_name())
    }
}

impl Status {
    fn write(self, f: &mut fmt::Formatter<'_>, name: Option<&str>) -> fmt::Result {
        let unknown = match self.sct() {
            sct::GENERIC => "Unknown Generic Status",
            sct::COMMAND => "Unknown Command Specific Status",
            sct::MEDIA => "Unknown Media Error",
            sct::PATH => "Unknown Path Error",
            sct::VENDOR => "Vendor Specific Status",
            _ => "Reserved Status Type",
        };
        let name = name.unwrap_or(unknown);
        write!(f, "{name} (sct {:x}h, sc {:02x}h)", self.sct(), self.sc())?;
        if self.crd() != 0 {
            write!(f, " CRD {}", self.crd())?;
        }
        if self.more() {
            f.write_str(" MORE")?;
        }
        if self.dnr() {
            f.write_str(" DNR")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
