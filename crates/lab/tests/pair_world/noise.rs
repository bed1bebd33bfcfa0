//! A bad line: controllers answer with errors although they have done the work, or twice, and bytes
//! change on the way, where a digest protects them or everywhere.

use anabranch_lab::rng::Rng;
use anabranch_lab::sim::{Passing, Tap};
use anabranch_proto::nvme::{Cqe, Status};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// PDU types (NVMe/TCP transport, PDU-Type).
const CAPSULE_CMD: u8 = 4;
const CAPSULE_RESP: u8 = 5;
const H2C_DATA: u8 = 6;
const C2H_DATA: u8 = 7;

/// What a command may be answered with without an error to the user: tried again, or elsewhere.
const ERRORS: [Status; 7] = [
    Status::COMMAND_INTERRUPTED,
    Status::NAMESPACE_NOT_READY,
    Status::TRANSIENT_TRANSPORT_ERROR,
    // Path errors: internal, ANA persistent loss, inaccessible, in transition.
    Status::new(3, 0),
    Status::new(3, 1),
    Status::new(3, 2),
    Status::new(3, 3),
];

/// What may go wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noise {
    /// Of a thousand answers on I/O queues so many say that something failed.
    pub(crate) errors: u64,
    /// Of a thousand PDUs so many lose a bit.
    pub(crate) flips: u64,
    /// Of a thousand answers on I/O queues so many come once more, before those that come next.
    pub(crate) echoes: u64,
    pub(crate) hdr_digest: bool,
    pub(crate) data_digest: bool,
    /// Bits flip also where no digest protects them.
    pub(crate) everywhere: bool,
}

impl Noise {
    /// Goes on until `over` is set.
    pub(crate) fn tap(self, mut rng: Rng, over: Rc<Cell<bool>>) -> Tap {
        let mut echoes = BTreeMap::new();
        Box::new(move |passing| {
            if !over.get() {
                self.echo(&mut rng, passing, &mut echoes);
                self.batch(&mut rng, passing);
            }
        })
    }

    /// An answer that has come on a stream comes again there.
    fn echo(self, rng: &mut Rng, passing: &mut Passing<'_>, echoes: &mut BTreeMap<u32, Vec<u8>>) {
        if passing.to_target || passing.worker.0 == 0 || self.echoes == 0 {
            return;
        }
        let earlier = echoes.remove(&passing.serial);
        let mut left = &passing.bytes[..];
        while !left.is_empty() {
            let len = u32::from_le_bytes(left[4..8].try_into().expect("four bytes")) as usize;
            let (pdu, rest) = left.split_at(len);
            left = rest;
            if pdu[0] == CAPSULE_RESP && rng.below(1000) < self.echoes {
                echoes.insert(passing.serial, pdu.to_vec());
            }
        }
        passing.bytes.splice(0..0, earlier.into_iter().flatten());
    }

    fn batch(self, rng: &mut Rng, passing: &mut Passing<'_>) {
        let mut at = 0;
        while at < passing.bytes.len() {
            let common = &passing.bytes[at..at + 8];
            let (kind, header, data) = (common[0], usize::from(common[2]), usize::from(common[3]));
            let len = u32::from_le_bytes(common[4..8].try_into().expect("four bytes")) as usize;
            let pdu = &mut passing.bytes[at..at + len];
            at += len;
            if kind == CAPSULE_RESP && passing.worker.0 > 0 && rng.below(1000) < self.errors {
                self.fail(rng, pdu);
            }
            let carries = matches!(kind, CAPSULE_CMD | H2C_DATA | C2H_DATA) && data > 0;
            let protected = match (self.hdr_digest, self.data_digest && carries) {
                _ if self.everywhere => 0..len,
                (true, false) if kind >= CAPSULE_CMD => 0..header + 4,
                (_, true) => data..len,
                _ => continue,
            };
            if rng.below(1000) < self.flips {
                let bit = rng.below(8 * protected.len() as u64) as usize;
                pdu[protected.start + bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    /// The answer says that it failed. (Its digest is made anew.)
    fn fail(self, rng: &mut Rng, pdu: &mut [u8]) {
        let status = ERRORS[rng.below(ERRORS.len() as u64) as usize];
        let bytes: &[u8; 16] = pdu[8..24].try_into().expect("a CQE has 16 bytes");
        let cqe = Cqe { status, ..Cqe::from_bytes(bytes) };
        pdu[8..24].copy_from_slice(&cqe.to_bytes());
        if self.hdr_digest {
            let digest = anabranch_proto::digest::crc32c(&pdu[..24]);
            pdu[24..28].copy_from_slice(&digest.to_le_bytes());
        }
    }
}
