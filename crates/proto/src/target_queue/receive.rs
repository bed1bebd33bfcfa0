//! What comes from the host.

use super::slots::Stage;
use super::transmit::Send;
use super::{HINT_BYTES, Slot, TargetEvent, TargetQueue};
use crate::error::{Fes, ProtocolError, Rule};
use crate::machine::{BufRef, Buffers};
use crate::nvme::opcode::Direction;
use crate::nvme::{SglKind, Sqe, Status};
use crate::pdu::data::{AT_CCCID, AT_DATAL, AT_DATAO, AT_TTAG};
use crate::pdu::{CapsuleCmd, Format, H2cData, IcReq, IcResp, Pdu, PduType, View};
use crate::stream::Step;

/// Where the data of the PDU that is being read belongs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Incoming {
    /// There is no data.
    Nothing,
    /// It belongs to a command that was refused.
    Drop,
    /// In-capsule data.
    Capsule { slot: Slot, buf: BufRef },
    /// Data that was asked for; `buf` is this PDU's part of it.
    Transfer { slot: Slot, buf: BufRef },
}

impl Incoming {
    const fn buf(&self) -> Option<BufRef> {
        match self {
            Incoming::Nothing | Incoming::Drop => None,
            Incoming::Capsule { buf, .. } | Incoming::Transfer { buf, .. } => Some(*buf),
        }
    }
}

impl TargetQueue {
    /// Bytes of the stream, in order.
    pub fn received(&mut self, bytes: &[u8], bufs: &mut dyn Buffers) {
        let mut input = bytes;
        self.pump(&mut input, bufs);
    }

    /// `len` bytes of the stream were put into the buffer of the last
    /// [`TargetQueue::receive_hint`], from its start.
    pub fn received_into(&mut self, len: u32, bufs: &mut dyn Buffers) {
        if self.fault.is_some() {
            return;
        }
        let Some(buf) = self.incoming.buf() else { return };
        let done = buf.len() - self.stream.data_remaining();
        self.stream.placed(bufs.bytes(buf.slice(done, len)));
        self.pump(&mut &[][..], bufs);
    }

    /// Where the next bytes of the stream may be received straight into: set when a good part of a
    /// data PDU is still to come. To be asked after each `received` and `received_into`.
    pub fn receive_hint(&mut self) -> Option<BufRef> {
        let remaining = self.stream.data_remaining();
        let buf = self.incoming.buf()?;
        (remaining >= HINT_BYTES).then(|| buf.slice(buf.len() - remaining, remaining))
    }

    fn pump(&mut self, input: &mut &[u8], bufs: &mut dyn Buffers) {
        while self.fault.is_none() {
            let outcome = match self.stream.usual_head(input) {
                Ok(Some(view)) => self.usual(&view, bufs),
                Ok(None) => match self.stream.next(input) {
                    Ok(Some(step)) => self.step(step, bufs),
                    Ok(None) => return,
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            };
            if let Err(error) = outcome {
                self.fail(error);
            }
        }
    }

    /// A PDU like one before.
    #[inline(always)]
    fn usual(&mut self, view: &View<'_>, bufs: &mut dyn Buffers) -> Result<(), ProtocolError> {
        match view.common().kind() {
            PduType::CapsuleCmd => {
                self.incoming = Incoming::Nothing;
                self.command(&CapsuleCmd::parse(view), bufs)
            }
            _ => self.pdu(Pdu::parse(view)?, bufs),
        }
    }

    /// Anything else than what is read all the time.
    #[inline(never)]
    fn step(&mut self, step: Step<'_>, bufs: &mut dyn Buffers) -> Result<(), ProtocolError> {
        match step {
            Step::Pdu(pdu) => self.pdu(pdu, bufs),
            Step::Data { position, bytes } => {
                if let Some(buf) = self.incoming.buf() {
                    // The stream yields no more than the PDU carries, which is the buffer.
                    let part = buf.slice(position, bytes.len() as u32);
                    bufs.bytes_mut(part).copy_from_slice(bytes);
                }
                Ok(())
            }
            Step::DataEnd { intact } => self.data_end(intact, bufs),
        }
    }

    fn pdu(&mut self, pdu: Pdu, bufs: &mut dyn Buffers) -> Result<(), ProtocolError> {
        self.incoming = Incoming::Nothing;
        match pdu {
            Pdu::IcReq(request) => {
                self.set_up(&request);
                Ok(())
            }
            Pdu::CapsuleCmd(capsule) => self.command(&capsule, bufs),
            Pdu::H2cData(data) => self.host_data(&data),
            Pdu::TermReq(request) => Err(request.as_error()),
            // The stream lets only PDUs through that a host may send.
            Pdu::IcResp(_) | Pdu::CapsuleResp(_) | Pdu::C2hData(_) | Pdu::R2t(_) => Ok(()),
        }
    }

    fn set_up(&mut self, request: &IcReq) {
        let header_digest = request.header_digest && self.config.allow_hdr_digest;
        let data_digest = request.data_digest && self.config.allow_data_digest;
        self.format = Format { header_digest, data_digest, alignment: request.hpda };
        self.stream.set_format(Format { header_digest, data_digest, alignment: 0 });
        self.sends.push_back(Send::IcResp(IcResp {
            cpda: 0,
            header_digest,
            data_digest,
            max_h2c_data: self.config.max_h2c_data,
        }));
    }

    fn command(
        &mut self,
        capsule: &CapsuleCmd,
        bufs: &mut dyn Buffers,
    ) -> Result<(), ProtocolError> {
        let (sqe, carried) = (&capsule.sqe, capsule.in_capsule_bytes);
        self.sqhd = (self.sqhd + 1) % self.config.depth;
        if self.slots.has_cid(sqe.cid()) {
            return self.refuse(sqe.cid(), Status::COMMAND_ID_CONFLICT.with_dnr());
        }
        if self.slots.in_use() >= self.config.depth {
            return Err(self.too_many());
        }
        if let Err(status) = check_descriptor(sqe, carried) {
            return self.refuse(sqe.cid(), status);
        }
        if carried == 0 {
            let slot = self.slots.take(sqe, Stage::WithEngine);
            let slot = slot.ok_or_else(|| self.too_many())?;
            self.events.push_back(TargetEvent::Command { slot });
            return Ok(());
        }
        let may = self.capsules < self.most_capsules;
        let Some(buf) = may.then(|| bufs.alloc(carried)).flatten() else {
            return self.refuse(sqe.cid(), Status::COMMAND_INTERRUPTED);
        };
        let Some(slot) = self.slots.take(sqe, Stage::Capsule) else {
            bufs.free(buf);
            return Err(self.too_many());
        };
        // Until the engine takes it, the slot owns the buffer.
        let state = self.slots.at(slot);
        state.buf = Some(buf);
        state.capsule = true;
        self.capsules += 1;
        self.incoming = Incoming::Capsule { slot, buf };
        Ok(())
    }

    fn too_many(&self) -> ProtocolError {
        let depth = self.config.depth.into();
        let value = u64::from(self.slots.in_use().max(self.refusals)) + 1;
        ProtocolError::new("CapsuleCmd", "commands in progress", value, Rule::AtMost, depth)
            .with_fes(Fes::SEQUENCE, 0)
    }

    /// Answers a command that never gets a slot; its data, if any, is dropped.
    fn refuse(&mut self, cid: u16, status: Status) -> Result<(), ProtocolError> {
        self.incoming = Incoming::Drop;
        if self.refusals >= self.config.depth {
            return Err(self.too_many());
        }
        self.refusals += 1;
        self.sends.push_back(Send::Refusal { cid, status });
        Ok(())
    }

    fn host_data(&mut self, data: &H2cData) -> Result<(), ProtocolError> {
        let error = |field, value: u32, rule, limit: u32, at| {
            ProtocolError::new("H2CData", field, value.into(), rule, limit.into()).at(at)
        };
        let Some(slot) = self.slots.by_ttag(data.ttag) else {
            let rule = Rule::Plain("no transfer with this tag is in progress");
            let error = error("TTAG", data.ttag.into(), rule, 0, AT_TTAG);
            let known = self.slots.has_cid(data.cid);
            return Err(if known { error.with_fes(Fes::SEQUENCE, 0) } else { error });
        };
        let state = self.slots.get(slot);
        if data.cid != state.cid {
            let (cid, right) = (data.cid.into(), state.cid.into());
            return Err(error("CCCID", cid, Rule::MustBe, right, AT_CCCID));
        }
        if data.offset != state.done {
            return Err(error("DATAO", data.offset, Rule::MustBe, state.done, AT_DATAO)
                .with_fes(Fes::OUT_OF_RANGE, 0));
        }
        let max = self.config.max_h2c_data;
        if data.length > max {
            return Err(error("DATAL", data.length, Rule::AtMost, max, AT_DATAL)
                .with_fes(Fes::LIMIT_EXCEEDED, 0));
        }
        let Some(whole) = state.buf else {
            // Unreachable by design: a transfer has a buffer.
            return Err(error("TTAG", data.ttag.into(), Rule::MustBe, 0, AT_TTAG));
        };
        let rest = whole.len() - state.done;
        if data.length > rest {
            return Err(error("DATAL", data.length, Rule::AtMost, rest, AT_DATAL)
                .with_fes(Fes::OUT_OF_RANGE, 0));
        }
        let ends = data.length == rest;
        if data.last != ends {
            return Err(error("LAST_PDU", data.last.into(), Rule::MustBe, ends.into(), 1));
        }
        if !ends && !data.length.is_multiple_of(4) {
            return Err(error("DATAL", data.length, Rule::MultipleOf, 4, AT_DATAL));
        }
        let buf = whole.slice(state.done, data.length);
        self.incoming = Incoming::Transfer { slot, buf };
        Ok(())
    }

    fn data_end(&mut self, intact: bool, bufs: &mut dyn Buffers) -> Result<(), ProtocolError> {
        match core::mem::replace(&mut self.incoming, Incoming::Nothing) {
            Incoming::Nothing => {}
            Incoming::Drop => self.damaged += u32::from(!intact),
            Incoming::Capsule { slot, .. } if intact => {
                self.slots.at(slot).stage = Stage::WithEngine;
                self.events.push_back(TargetEvent::Command { slot });
            }
            Incoming::Capsule { slot, buf } => {
                self.damaged += 1;
                bufs.free(buf);
                let cid = self.slots.get(slot).cid;
                self.capsules -= 1;
                self.slots.release(slot);
                return self.refuse_after_data(cid);
            }
            Incoming::Transfer { slot, buf } => self.transferred(slot, buf.len(), intact),
        }
        Ok(())
    }

    fn refuse_after_data(&mut self, cid: u16) -> Result<(), ProtocolError> {
        let outcome = self.refuse(cid, Status::TRANSIENT_TRANSPORT_ERROR);
        self.incoming = Incoming::Nothing;
        outcome
    }

    fn transferred(&mut self, slot: Slot, len: u32, intact: bool) {
        let state = self.slots.at(slot);
        state.done += len;
        if !intact && !state.damaged {
            state.damaged = true;
            self.damaged += 1;
        }
        if state.buf.is_some_and(|buf| state.done < buf.len()) {
            return;
        }
        self.transfers -= 1;
        state.stage = Stage::WithEngine;
        state.done = 0;
        if state.answered_early {
            state.stage = Stage::Answered;
            if let Some(buf) = state.buf.take() {
                self.released.push_back(buf);
            }
            self.sends.push_back(Send::Answer(slot));
        } else if state.damaged {
            self.events.push_back(TargetEvent::DataDigestError { slot });
        } else {
            self.events.push_back(TargetEvent::DataReady { slot });
        }
    }
}

/// Checks a command's data descriptor against what the capsule carries. The stream is in step
/// whatever the descriptor says, so a wrong one costs only its command.
fn check_descriptor(sqe: &Sqe, carried: u32) -> Result<(), Status> {
    let sgl = sqe.sgl();
    if !sqe.is_fabrics() && !matches!(sqe.psdt(), 1 | 2) {
        // PRPs, or a reserved value: NVMe over Fabrics knows only SGLs. Fabrics commands have SGLs
        // whatever they say; those that move no data say 00b (Base 4.1.2).
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    match sgl.kind() {
        SglKind::InCapsule => {
            // Data for a command that takes none would fill memory for as long as that lasts, and
            // an event request lasts for ever.
            let takes_none =
                matches!(sqe.direction(), Direction::ControllerToHost | Direction::None);
            if takes_none && sgl.length() != 0 {
                return Err(Status::INVALID_FIELD.with_dnr());
            }
            if sgl.address() != 0 {
                return Err(Status::SGL_OFFSET_INVALID.with_dnr());
            }
            check_carried(carried, sgl.length())
        }
        SglKind::Transport => check_carried(carried, 0),
        // A command that moves nothing may leave the field empty.
        SglKind::Address if sgl.length() == 0 => check_carried(carried, 0),
        _ => Err(Status::SGL_TYPE_INVALID.with_dnr()),
    }
}

fn check_carried(carried: u32, described: u32) -> Result<(), Status> {
    if carried == described { Ok(()) } else { Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr()) }
}
