//! What went wrong, as a client is told: an error number and a sentence.

use super::wire::errno;
use anabranch_host::user::{IoError, Refused};
use anabranch_proto::nvme::status::Status;

/// An error number with its reason. Structured replies carry both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) errno: u32,
    pub(super) text: &'static str,
}

impl Fault {
    /// Stands in where a fault must be there.
    pub(super) const NONE: Fault = Fault { errno: errno::EIO, text: "" };

    /// A controller could not make durable what was written before, by whomever.
    pub(super) const FLUSH_OF_ANOTHER: Fault =
        Fault::new(errno::EIO, "a flush failed that another client had asked for");

    pub(super) const fn new(errno: u32, text: &'static str) -> Fault {
        Fault { errno, text }
    }

    /// Why a submitted request failed.
    pub(super) fn of_io(error: IoError, writes: bool) -> Fault {
        let status = match error {
            IoError::NoPath => return Fault::new(errno::EIO, "no available path"),
            IoError::Gone => return Fault::new(errno::ESHUTDOWN, "the device is gone"),
            IoError::Withdrawn => return Fault::new(errno::EIO, "it was withdrawn"),
            IoError::Status(status) => status,
        };
        let number = if status.is(Status::CAPACITY_EXCEEDED) {
            errno::ENOSPC
        } else if status.is(Status::LBA_OUT_OF_RANGE) {
            if writes { errno::ENOSPC } else { errno::EINVAL }
        } else if status.is(Status::WRITE_PROTECTED) || status.is(Status::WRITE_TO_READ_ONLY_RANGE)
        {
            errno::EPERM
        } else if status.is(Status::INVALID_FIELD) {
            errno::EINVAL
        } else {
            errno::EIO
        };
        Fault::new(number, status.io_name().unwrap_or("the controller reports an error"))
    }

    /// Why a flush failed. Whoever reads "invalid" there takes the device for one that needs none.
    pub(super) fn of_flush(error: IoError) -> Fault {
        let fault = Fault::of_io(error, true);
        match error {
            IoError::Status(status) if !status.is(Status::CAPACITY_EXCEEDED) => {
                Fault { errno: errno::EIO, ..fault }
            }
            _ => fault,
        }
    }

    /// Why a request was not taken. `Refused::Full` is a reason to wait, not a fault.
    pub(super) fn of_refusal(refused: Refused, writes: bool) -> Fault {
        match refused {
            Refused::UnknownHead => Fault::new(errno::ESHUTDOWN, "the device is gone"),
            Refused::OutOfRange => {
                let number = if writes { errno::ENOSPC } else { errno::EINVAL };
                Fault::new(number, "the range does not lie on the device")
            }
            // Zeroes are written instead and a trim is a hint: what is left are writes, which a
            // device takes unless it became write protected after the request was checked.
            Refused::NotSupported => Fault::new(errno::EPERM, "the device is read-only"),
            Refused::NotHere => Fault::new(errno::ESHUTDOWN, "the server is ending"),
            Refused::BufferLength | Refused::Full => {
                Fault::new(errno::EIO, "the request could not be submitted")
            }
        }
    }
}
