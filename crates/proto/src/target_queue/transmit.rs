//! What goes to the host.

use super::slots::Stage;
use super::{Slot, TargetQueue};
use crate::digest::crc32c;
use crate::machine::{BufRef, Buffers, Gather};
use crate::nvme::{Cqe, Status};
use crate::pdu::{C2hData, CapsuleResp, IcResp, R2t};

/// SQHD when the host disabled submission queue flow control.
const SQHD_DISABLED: u16 = 0xffff;

/// Something that waits to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Send {
    /// The answer to ICReq.
    IcResp(IcResp),
    /// The response to a command that never got a slot.
    Refusal { cid: u16, status: Status },
    /// A request for the data of a write.
    R2t(Slot),
    /// The data and the response of a command.
    Answer(Slot),
}

/// Whether a thing to send has been put into the batch whole.
enum Progress {
    More,
    Done,
}

impl TargetQueue {
    /// Whether something can be sent now.
    #[must_use]
    pub fn has_transmit(&self) -> bool {
        self.farewell.is_some() || !self.sends.is_empty()
    }

    /// Puts what is ready into a batch, in order. Called when no batch is under way.
    pub fn poll_transmit(&mut self, batch: &mut dyn Gather, bufs: &mut dyn Buffers) {
        if let Some(farewell) = self.farewell.take_if(|_| batch.has_room()) {
            batch.copy(farewell.emit().as_bytes());
        }
        while batch.has_room()
            && let Some(send) = self.sends.front().copied()
        {
            match self.put(send, batch, bufs) {
                Progress::More => {}
                Progress::Done => {
                    self.sends.pop_front();
                }
            }
        }
    }

    /// The batch pulled last has left.
    pub fn transmitted(&mut self) {
        for buf in self.in_batch.drain(..) {
            self.unsent -= u64::from(buf.len());
            self.released.push_back(buf);
        }
    }

    /// Puts one PDU into the batch.
    fn put(&mut self, send: Send, batch: &mut dyn Gather, bufs: &mut dyn Buffers) -> Progress {
        match send {
            Send::IcResp(response) => batch.copy(response.emit().as_bytes()),
            Send::Refusal { cid, status } => {
                self.refusals -= 1;
                self.respond(cid, status, 0, batch);
            }
            Send::R2t(slot) => {
                let ttag = self.slots.ttag(slot);
                let state = self.slots.at(slot);
                if state.answered_early {
                    // The engine did not wait: nothing needs to be asked for any more.
                    self.transfers -= 1;
                    state.stage = Stage::Answered;
                    self.released.extend(state.buf.take());
                    return self.answer(slot, batch, bufs);
                }
                state.stage = Stage::Receiving;
                let length = state.buf.map_or(0, BufRef::len);
                let r2t = R2t { cid: state.cid, ttag, offset: 0, length };
                batch.copy(r2t.emit(self.format).as_bytes());
            }
            Send::Answer(slot) => return self.answer(slot, batch, bufs),
        }
        Progress::Done
    }

    fn answer(&mut self, slot: Slot, batch: &mut dyn Gather, bufs: &mut dyn Buffers) -> Progress {
        let sq_flow_control = self.sq_flow_control;
        let state = self.slots.at(slot);
        let (cid, status, result) = (state.cid, state.status, state.result);
        if let Some(buf) = state.buf.take() {
            if status.is_success() && !buf.is_empty() {
                // All data of a read goes in one PDU, as from other targets: SPDK's initiator ends
                // the connection at a second one when the read's memory is scattered.
                // The flag stands for a completion of zeroes.
                let success = !sq_flow_control && status.bits() == 0 && result == 0;
                let pdu = C2hData { cid, offset: 0, length: buf.len(), last: true, success };
                self.in_batch.push(buf);
                self.put_data(&pdu, buf, batch, bufs);
                if success {
                    self.slots.release(slot);
                    return Progress::Done;
                }
                return Progress::More;
            }
            // A command that failed has no data; nobody outside ever saw the buffer.
            self.unsent -= u64::from(buf.len());
            self.released.push_back(buf);
        }
        self.slots.release(slot);
        self.respond(cid, status, result, batch);
        Progress::Done
    }

    fn put_data(
        &self,
        pdu: &C2hData,
        data: BufRef,
        batch: &mut dyn Gather,
        bufs: &mut dyn Buffers,
    ) {
        if self.format.is_plain() {
            batch.copy(&pdu.emit_plain());
        } else {
            batch.copy(pdu.emit(self.format).as_bytes());
        }
        batch.payload(data, bufs);
        if self.format.data_digest {
            batch.copy(&crc32c(bufs.bytes(data)).to_le_bytes());
        }
    }

    fn respond(&self, cid: u16, status: Status, result: u64, batch: &mut dyn Gather) {
        let sqhd = if self.sq_flow_control { self.sqhd } else { SQHD_DISABLED };
        let cqe = Cqe { result, sqhd, sqid: 0, cid, status };
        let response = CapsuleResp { cqe };
        if self.format.is_plain() {
            batch.copy(&response.emit_plain());
        } else {
            batch.copy(response.emit(self.format).as_bytes());
        }
    }
}
