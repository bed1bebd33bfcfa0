//! Commands as submission queue entries.

use super::command::Work;
use crate::topology::PathView;
use anabranch_proto::host_queue::HostData;
use anabranch_proto::nvme::io;
use anabranch_proto::nvme::sqe::Sqe;

/// One Dataset Management range descriptor.
pub(super) const DISCARD_RANGE_BYTES: u32 = 16;

/// Fills the one range descriptor of a deallocate command.
pub(super) fn write_discard_range(bytes: &mut [u8], lba: u64, blocks: u32) {
    let range = io::DsmRange { attributes: 0, blocks, lba };
    bytes[..DISCARD_RANGE_BYTES as usize].copy_from_slice(&range.to_bytes());
}

/// The entry (without CID and SGL) and the payload, for this path.
#[inline]
pub(super) fn form(work: &Work, path: &PathView) -> (Sqe, HostData) {
    let nsid = path.nsid;
    match *work {
        Work::Read { lba, blocks, buf } => (io::read(nsid, lba, blocks), HostData::In(buf)),
        Work::Write { lba, blocks, buf, fua } => {
            (io::write(nsid, lba, blocks, fua), HostData::Out(buf))
        }
        Work::Compare { lba, blocks, buf } => (io::compare(nsid, lba, blocks), HostData::Out(buf)),
        Work::Flush { .. } => (io::flush(nsid), HostData::None),
        Work::WriteZeroes { lba, blocks, deallocate } => {
            // That the space may be given back is a wish. Who cannot take it refuses the command.
            let deallocate = deallocate && path.zeroes_may_deallocate;
            (io::write_zeroes(nsid, lba, blocks, deallocate, false), HostData::None)
        }
        Work::Discard { range, .. } => (io::deallocate(nsid, 1), HostData::Out(range)),
    }
}
