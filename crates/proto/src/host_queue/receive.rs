//! What a controller sends: ICResp, answers, data, requests for data.

use super::tags::{Cid, Grant, Stage};
use super::{HostData, HostQueue, Phase};
use crate::error::{Fes, ProtocolError, Rule};
use crate::machine::{BufRef, Buffers};
use crate::nvme::status::Status;
use crate::pdu::data::{AT_CCCID, AT_DATAO};
use crate::pdu::r2t::AT_R2TO;
use crate::pdu::{C2hData, CapsuleResp, Format, IcResp, Pdu, PduType, R2t, Role, TermReq, View};
use crate::stream::Step;

/// Byte offset of CID in a response capsule: dword 3 of the completion.
const AT_RESPONSE_CID: u32 = 8 + 12;

/// A C2HData PDU under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inbound {
    cid: Cid,
    /// Where its data belongs; `None` when nobody wants it.
    into: Option<BufRef>,
    /// Bytes of its data.
    length: u32,
    last: bool,
    success: bool,
}

impl Inbound {
    /// Whose data it is.
    pub(super) fn cid(&self) -> Cid {
        self.cid
    }

    /// Nobody wants the rest.
    pub(super) fn keep_nothing(&mut self) {
        self.into = None;
    }
}

/// Bytes of a H2CData PDU without a digest at most, whatever the controller takes: between two of
/// them other commands have their turn. With a digest all that was asked for is one PDU, if the
/// controller takes that: Linux's target (`nvmet_tcp_calc_ddgst`, 6.1 to 7.3 at least) takes it
/// over the data of the whole command, however little has come, and ends the connection.
const DATA_PDU_BYTES: u32 = 128 * 1024;

/// A receive is aimed at the caller's buffer from so many bytes of a PDU's data that are to come.
const RECEIVE_INTO_MIN: u32 = 16 * 1024;

impl HostQueue {
    /// Bytes of the stream have come.
    pub fn received(&mut self, mut bytes: &[u8], bufs: &mut dyn Buffers) {
        self.aimed = false;
        while self.fault.is_none() {
            if let Some((at, piece)) = self.stream.usual_data(&mut bytes) {
                self.on_data(at, piece, bufs);
                continue;
            }
            let checked = match self.stream.usual_head(&mut bytes) {
                Ok(Some(view)) => self.on_usual(&view),
                Ok(None) => match self.stream.next(&mut bytes) {
                    Ok(Some(step)) => self.on_step(step, bufs),
                    Ok(None) => return,
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            };
            if let Err(error) = checked {
                self.fail(error);
            }
        }
    }

    /// A PDU like one before. So the connection is ready, or that one would have been at fault.
    #[inline(always)]
    fn on_usual(&mut self, view: &View<'_>) -> Result<(), ProtocolError> {
        match view.common().kind() {
            PduType::C2hData => self.on_c2h_data(&C2hData::parse(view)?),
            PduType::CapsuleResp => self.on_response(&CapsuleResp::parse(view)),
            _ => self.on_pdu(&Pdu::parse(view)?),
        }
    }

    /// Anything else than what is read all the time.
    #[inline(never)]
    fn on_step(&mut self, step: Step<'_>, bufs: &mut dyn Buffers) -> Result<(), ProtocolError> {
        match step {
            Step::Pdu(pdu) => return self.on_pdu(&pdu),
            Step::Data { position, bytes } => self.on_data(position, bytes, bufs),
            Step::DataEnd { intact } => self.on_data_end(intact),
        }
        Ok(())
    }

    /// Bytes were put straight into the buffer of the last [`HostQueue::receive_hint`].
    pub fn received_into(&mut self, len: u32, bufs: &mut dyn Buffers) {
        if let Some(rest) = self.inbound_rest() {
            self.stream.placed(bufs.bytes(rest.slice(0, len)));
            self.received(&[], bufs);
        }
    }

    /// Where the next bytes of the stream belong, when a good part of a data PDU is to come. The
    /// driver has that buffer then, until the next bytes have been received.
    pub fn receive_hint(&mut self) -> Option<BufRef> {
        if self.stream.data_remaining() < RECEIVE_INTO_MIN {
            return None;
        }
        let rest = self.inbound_rest();
        self.aimed |= rest.is_some();
        rest
    }

    /// The peer broke the protocol: it is told, unless it told us first, and that is the end.
    fn fail(&mut self, error: ProtocolError) {
        let last_words =
            error.answered.then(|| TermReq::new(Role::Host, &error, self.stream.header()).emit());
        self.stream.end();
        self.inbound = None;
        self.outbox.end(last_words);
        self.phase = Phase::Faulted;
        self.fault = Some(error);
    }

    /// A PDU's header is complete.
    fn on_pdu(&mut self, pdu: &Pdu) -> Result<(), ProtocolError> {
        match (self.phase, pdu) {
            (_, Pdu::TermReq(term)) => Err(term.as_error()),
            (Phase::Initializing, Pdu::IcResp(resp)) => self.on_ic_resp(resp),
            (Phase::Ready, Pdu::CapsuleResp(resp)) => self.on_response(resp),
            (Phase::Ready, Pdu::C2hData(data)) => self.on_c2h_data(data),
            (Phase::Ready, Pdu::R2t(r2t)) => self.on_r2t(r2t),
            _ => {
                let rule = Rule::Plain("not now: ICResp comes first and once");
                Err(ProtocolError::new("PDU", "type", 0, rule, 0).with_fes(Fes::SEQUENCE, 0))
            }
        }
    }

    fn on_ic_resp(&mut self, resp: &IcResp) -> Result<(), ProtocolError> {
        if self.outbox.waits_to_begin() {
            let rule = Rule::Plain("ICReq has not been sent");
            let error = ProtocolError::new("ICResp", "type", 1, rule, 0);
            return Err(error.with_fes(Fes::SEQUENCE, 0));
        }
        resp.check_against(&self.ic_req())?;
        let (header_digest, data_digest) = (resp.header_digest, resp.data_digest);
        let inward = Format { header_digest, data_digest, alignment: 0 };
        self.stream.set_format(inward);
        self.outbox.format = Format { alignment: resp.cpda, ..inward };
        let most = if data_digest { u32::MAX } else { DATA_PDU_BYTES };
        self.outbox.max_h2c_data = resp.max_h2c_data.min(most);
        self.phase = Phase::Ready;
        Ok(())
    }

    fn on_response(&mut self, resp: &CapsuleResp) -> Result<(), ProtocolError> {
        let cid = Cid(resp.cqe.cid);
        self.sent_command("CapsuleResp", "CID", AT_RESPONSE_CID, cid)?;
        if self.unanswered == Some(cid) {
            self.unanswered = None;
        }
        self.answered(cid, resp.cqe.status, resp.cqe.result);
        Ok(())
    }

    #[inline(always)]
    fn on_c2h_data(&mut self, data: &C2hData) -> Result<(), ProtocolError> {
        let cid = Cid(data.cid);
        let entry = self.sent_command("C2HData", "CCCID", AT_CCCID, cid)?;
        if !matches!(entry.data, HostData::In(_) | HostData::Sink(_)) {
            let sentence = "this command reads nothing";
            return Err(plain("C2HData", "CCCID", data.cid, sentence, AT_CCCID));
        }
        if entry.last_seen {
            let sentence = "the last data of this command has come already";
            return Err(plain("C2HData", "CCCID", data.cid, sentence, AT_CCCID));
        }
        if data.offset != entry.received {
            let (found, limit) = (data.offset.into(), entry.received.into());
            return Err(ProtocolError::new("C2HData", "DATAO", found, Rule::MustBe, limit)
                .with_fes(Fes::OUT_OF_RANGE, AT_DATAO));
        }
        let room = entry.data.bytes() - entry.received;
        if data.length > room {
            let (found, limit) = (data.length.into(), room.into());
            return Err(ProtocolError::new("C2HData", "DATAL", found, Rule::AtMost, limit)
                .with_fes(Fes::OUT_OF_RANGE, 0));
        }
        entry.last_seen = data.last;
        let into = match entry.data {
            HostData::In(buf) => Some(buf.slice(data.offset, data.length)),
            _ => None,
        };
        let (length, last, success) = (data.length, data.last, data.success);
        self.inbound = Some(Inbound { cid, into, length, last, success });
        Ok(())
    }

    fn on_r2t(&mut self, r2t: &R2t) -> Result<(), ProtocolError> {
        let cid = Cid(r2t.cid);
        let entry = self.sent_command("R2T", "CCCID", AT_CCCID, cid)?;
        let HostData::Out(buf) = entry.data else {
            return Err(plain("R2T", "CCCID", r2t.cid, "this command writes nothing", AT_CCCID));
        };
        if entry.in_capsule {
            let sentence = "all data of this command was in its capsule";
            return Err(plain("R2T", "CCCID", r2t.cid, sentence, AT_CCCID));
        }
        if entry.grant.is_some() {
            let sentence = "one R2T at a time was granted (MAXR2T 0)";
            return Err(ProtocolError::new(
                "R2T",
                "CCCID",
                r2t.cid.into(),
                Rule::Plain(sentence),
                0,
            )
            .with_fes(Fes::LIMIT_EXCEEDED, 0));
        }
        if r2t.offset != entry.asked {
            let (found, limit) = (r2t.offset.into(), entry.asked.into());
            return Err(ProtocolError::new("R2T", "R2TO", found, Rule::MustBe, limit)
                .with_fes(Fes::OUT_OF_RANGE, AT_R2TO));
        }
        let room = buf.len() - entry.asked;
        if r2t.length > room {
            let (found, limit) = (r2t.length.into(), room.into());
            return Err(ProtocolError::new("R2T", "R2TL", found, Rule::AtMost, limit)
                .with_fes(Fes::OUT_OF_RANGE, 0));
        }
        entry.asked += r2t.length;
        entry.grant = Some(Grant { ttag: r2t.ttag, offset: r2t.offset, left: r2t.length });
        self.outbox.data(cid);
        Ok(())
    }

    /// The command that a PDU is about: it must have been sent and not been answered.
    fn sent_command(
        &mut self,
        what: &'static str,
        field: &'static str,
        offset: u32,
        cid: Cid,
    ) -> Result<&mut super::tags::Entry, ProtocolError> {
        match self.tags.get_mut(cid) {
            Some(entry) if entry.stage == Stage::Sent => Ok(entry),
            _ => Err(plain(what, field, cid.0, "no command with this identifier is open", offset)),
        }
    }

    /// Data of the C2HData PDU under way, `at` bytes into it.
    fn on_data(&mut self, at: u32, bytes: &[u8], bufs: &mut dyn Buffers) {
        if let Some(into) = self.inbound.as_ref().and_then(|inbound| inbound.into) {
            let piece = into.slice(at, bytes.len() as u32);
            bufs.bytes_mut(piece).copy_from_slice(bytes);
        }
        if self.stream.data_has_ended() {
            self.on_data_end(true);
        }
    }

    /// Where the rest of the data of the PDU under way belongs, if anybody wants it.
    fn inbound_rest(&self) -> Option<BufRef> {
        let into = self.inbound.as_ref()?.into?;
        let left = self.stream.data_remaining();
        Some(into.slice(into.len() - left, left))
    }

    /// The data of the C2HData PDU under way is complete.
    fn on_data_end(&mut self, digest_ok: bool) {
        let Some(inbound) = self.inbound.take() else { return };
        let Some(entry) = self.tags.get_mut(inbound.cid) else { return };
        entry.received += inbound.length;
        entry.damaged |= !digest_ok;
        if inbound.last && inbound.success {
            self.answered(inbound.cid, Status::SUCCESS, 0);
        } else if inbound.last {
            self.unanswered = Some(inbound.cid);
        }
    }

    /// The controller has answered a command. It ends now, unless a batch still names its payload.
    #[inline]
    fn answered(&mut self, cid: Cid, status: Status, result: u64) {
        let Some(entry) = self.tags.get_mut(cid) else { return };
        if let Some(grant) = entry.grant.take() {
            entry.asked -= grant.left;
        }
        if entry.in_batch {
            entry.stage = Stage::Answered;
            (entry.status, entry.result) = (status, result);
        } else {
            self.complete(cid, status, result);
        }
    }
}

fn plain(
    what: &'static str,
    field: &'static str,
    value: u16,
    sentence: &'static str,
    offset: u32,
) -> ProtocolError {
    ProtocolError::new(what, field, value.into(), Rule::Plain(sentence), 0).at(offset)
}
