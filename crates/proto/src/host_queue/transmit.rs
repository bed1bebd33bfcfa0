//! What a host sends: ICReq, command capsules, data that was asked for, a termination request.

use super::HostData;
use super::tags::{Cid, Stage, Tags};
use crate::digest::crc32c;
use crate::machine::{BufRef, Buffers, Gather};
use crate::pdu::{CapsuleCmd, Format, H2cData, Head, IcReq};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// One protocol unit to send.
#[derive(Clone, Copy)]
enum Unit {
    Capsule(Cid),
    /// The next H2CData PDU of the command's grant.
    Data(Cid),
}

/// Units in order, and which commands have payload in the batch under way.
pub(super) struct Outbox {
    /// Goes before everything else.
    ic_req: Option<IcReq>,
    units: VecDeque<Unit>,
    in_batch: Vec<Cid>,
    /// The termination request: the last thing ever sent.
    last_words: Option<Head>,
    silent: bool,
    pub(super) format: Format,
    pub(super) max_h2c_data: u32,
}

impl Outbox {
    pub(super) fn new(depth: u16) -> Outbox {
        // Per command one capsule or one grant; a stale grant may stay behind its command once.
        let most = 2 * usize::from(depth) + 2;
        Outbox {
            ic_req: None,
            units: VecDeque::with_capacity(most),
            in_batch: Vec::with_capacity(usize::from(depth) + 1),
            last_words: None,
            silent: false,
            format: Format::default(),
            max_h2c_data: 0,
        }
    }

    pub(super) fn begin(&mut self, ic_req: IcReq) {
        self.ic_req = Some(ic_req);
    }

    /// ICReq has not been put into a batch yet.
    pub(super) fn waits_to_begin(&self) -> bool {
        self.ic_req.is_some()
    }

    pub(super) fn capsule(&mut self, cid: Cid) {
        self.units.push_back(Unit::Capsule(cid));
    }

    /// Takes a capsule back that is not in a batch yet, if it is still to be sent.
    pub(super) fn recall(&mut self, cid: Cid) -> bool {
        let its = |unit: &Unit| matches!(unit, Unit::Capsule(other) if *other == cid);
        // Who takes several back begins with the oldest.
        let place = self.units.iter().position(its);
        place.is_some_and(|place| self.units.remove(place).is_some())
    }

    pub(super) fn data(&mut self, cid: Cid) {
        self.units.push_back(Unit::Data(cid));
    }

    /// Nothing more but this, or nothing at all.
    pub(super) fn end(&mut self, last_words: Option<Head>) {
        self.ic_req = None;
        self.units.clear();
        self.last_words = last_words;
        self.silent = true;
    }

    pub(super) fn has_transmit(&self) -> bool {
        self.ic_req.is_some() || self.last_words.is_some() || !self.units.is_empty()
    }

    /// Commands whose payload was in the batch that has left.
    pub(super) fn transmitted(&mut self) -> Option<Cid> {
        self.in_batch.pop()
    }

    pub(super) fn poll(&mut self, tags: &mut Tags, batch: &mut dyn Gather, bufs: &dyn Buffers) {
        if let Some(ic_req) = self.ic_req.take() {
            batch.copy(ic_req.emit().as_bytes());
        }
        if self.silent {
            if let Some(head) = self.last_words.take() {
                batch.copy(head.as_bytes());
            }
            return;
        }
        while batch.has_room() {
            match self.units.pop_front() {
                Some(Unit::Capsule(cid)) => self.put_capsule(cid, tags, batch, bufs),
                Some(Unit::Data(cid)) => self.put_data(cid, tags, batch, bufs),
                None => return,
            }
        }
    }

    fn put_capsule(
        &mut self,
        cid: Cid,
        tags: &mut Tags,
        batch: &mut dyn Gather,
        bufs: &dyn Buffers,
    ) {
        let Some(entry) = tags.get_mut(cid) else { return };
        let payload = match entry.data {
            HostData::Out(buf) if entry.in_capsule => Some(buf),
            _ => None,
        };
        let in_capsule_bytes = payload.map_or(0, BufRef::len);
        entry.stage = Stage::Sent;
        if payload.is_some() && !core::mem::replace(&mut entry.in_batch, true) {
            self.in_batch.push(cid);
        }
        if self.format.is_plain() {
            batch.copy(&CapsuleCmd::emit_plain(&entry.sqe, in_capsule_bytes));
        } else {
            let capsule = CapsuleCmd { sqe: entry.sqe, in_capsule_bytes };
            batch.copy(capsule.emit(self.format).as_bytes());
        }
        if let Some(buf) = payload {
            self.put_payload(buf, batch, bufs);
        }
    }

    /// One H2CData PDU; the rest of the grant lets other commands go first.
    fn put_data(&mut self, cid: Cid, tags: &mut Tags, batch: &mut dyn Gather, bufs: &dyn Buffers) {
        // A command that was answered meanwhile gets no more data.
        let Some(entry) = tags.get_mut(cid) else { return };
        if entry.stage == Stage::Answered {
            return;
        }
        let (HostData::Out(buf), Some(grant)) = (entry.data, &mut entry.grant) else { return };
        let length = grant.left.min(self.max_h2c_data);
        let last = length == grant.left;
        let pdu = H2cData { cid: cid.0, ttag: grant.ttag, offset: grant.offset, length, last };
        let piece = buf.slice(grant.offset, length);
        grant.offset += length;
        grant.left -= length;
        if last {
            entry.grant = None;
        } else {
            self.units.push_back(Unit::Data(cid));
        }
        if !core::mem::replace(&mut entry.in_batch, true) {
            self.in_batch.push(cid);
        }
        batch.copy(pdu.emit(self.format).as_bytes());
        self.put_payload(piece, batch, bufs);
    }

    fn put_payload(&self, buf: BufRef, batch: &mut dyn Gather, bufs: &dyn Buffers) {
        batch.payload(buf, bufs);
        if self.format.data_digest {
            batch.copy(&crc32c(bufs.bytes(buf)).to_le_bytes());
        }
    }
}
