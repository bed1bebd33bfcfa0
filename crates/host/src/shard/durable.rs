//! What an error says of data that is to be durable.
//!
//! A system that has failed to write its cache back tells it once, to whoever syncs next, and
//! forgets it with the data: asked again it has nothing left to fail with. So a flush that was
//! answered so has failed, also where the controller would allow another try. A write that is
//! durable by itself may be tried again: it brings its data along. Either way everybody hears of it
//! ([`FailedFlushes`](crate::FailedFlushes)).

use super::command::Work;
use anabranch_proto::nvme::status::Status;

/// The controller has not begun: nothing was tried that could have failed.
const NOT_BEGUN: [Status; 11] = [
    Status::COMMAND_ID_CONFLICT,
    Status::DATA_TRANSFER_ERROR,
    Status::ABORTED_POWER_LOSS,
    Status::ABORT_REQUESTED,
    Status::ABORTED_SQ_DELETION,
    Status::SANITIZE_IN_PROGRESS,
    Status::COMMAND_SEQUENCE_ERROR,
    Status::COMMAND_INTERRUPTED,
    Status::TRANSIENT_TRANSPORT_ERROR,
    Status::NAMESPACE_NOT_READY,
    Status::FORMAT_IN_PROGRESS,
];

/// It never will: something is wrong with the command.
const REFUSED: [Status; 12] = [
    Status::INVALID_OPCODE,
    Status::INVALID_FIELD,
    Status::INVALID_NAMESPACE,
    Status::OPERATION_DENIED,
    Status::WRITE_PROTECTED,
    Status::PROHIBITED_BY_LOCKDOWN,
    Status::LBA_OUT_OF_RANGE,
    Status::RESERVATION_CONFLICT,
    Status::INVALID_PROTECTION_INFORMATION,
    Status::WRITE_TO_READ_ONLY_RANGE,
    Status::CONFLICTING_ATTRIBUTES,
    Status::COMMAND_SIZE_LIMIT_EXCEEDED,
];

/// Whether data that any user has written, and was answered for, may be lost. `within`: it is "LBA
/// Out of Range", of a command that names no block beyond the end of its device. Linux's target
/// answers so when its disk has failed (BLK_STS_TARGET).
pub(super) fn may_tell_of_a_loss(work: &Work, status: Status, within: bool) -> bool {
    let syncs = match *work {
        Work::Flush { .. } => true,
        Work::Write { fua, .. } => fua,
        Work::Read { .. }
        | Work::Compare { .. }
        | Work::WriteZeroes { .. }
        | Work::Discard { .. } => false,
    };
    let nothing_tried = NOT_BEGUN.into_iter().chain(REFUSED).any(|it| status.is(it));
    syncs && (!nothing_tried || within) && !status.is_path_error()
}
