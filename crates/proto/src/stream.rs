//! From a stream of bytes to PDUs, either role.
//!
//! A [`Stream`] is pulled: give it what has arrived, and call [`Stream::next`] until it returns
//! `None`; every byte of the input has been used by then.
//!
//! ```
//! # use anabranch_proto::{pdu::Role, stream::{Step, Stream}};
//! # let (mut stream, received) = (Stream::new(Role::Host), &[][..]);
//! let mut input: &[u8] = received;
//! while let Some(step) = stream.next(&mut input)? {
//!     match step {
//!         Step::Pdu(pdu) => { /* check it against what is going on; data may follow */ }
//!         Step::Data { position, bytes } => { /* copy to where the PDU's data belongs */ }
//!         Step::DataEnd { intact } => { /* the data digest has been compared */ }
//!     }
//! }
//! # Ok::<(), anabranch_proto::error::ProtocolError>(())
//! ```
//!
//! It can stop and go on at every byte, gives the same steps however the bytes are cut (data comes
//! in other pieces, of course), keeps at most one head (256 bytes), and allocates nothing but the
//! last PDU of a connection, a Terminate Connection Request: lengths on the wire are compared, not
//! believed. A head that lies in the input in one piece is parsed there.

use crate::digest::{Crc32c, DIGEST_BYTES};
use crate::error::{Fes, ProtocolError, Rule};
use crate::pdu::{COMMON_HEADER_BYTES, CommonHeader, Format, HEAD_MAX, Pdu, PduType, Role, View};

/// What comes next in the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// The head of a PDU. When it carries data, `Data` steps and one `DataEnd` follow before the
    /// next `Pdu`.
    Pdu(Pdu),
    /// The next piece of the PDU's data.
    Data {
        /// Where the piece starts in this PDU's data.
        position: u32,
        /// The piece, not empty.
        bytes: &'a [u8],
    },
    /// All data of the PDU has come.
    DataEnd {
        /// The data digest was right, or there is none.
        intact: bool,
    },
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// A PDU begins here.
    Between,
    /// Collecting a head; `common` is known once eight bytes are there.
    Head { have: usize, common: Option<CommonHeader> },
    /// Data of a PDU.
    Data { done: u32, len: u32 },
    /// The digest behind the data.
    Digest { have: usize, bytes: [u8; DIGEST_BYTES] },
    /// Data has come, and has not been reported as ended.
    DataEnd,
    /// An error or a Terminate Connection Request: nothing after it means anything.
    Ended,
}

impl State {
    /// What follows the head of a PDU.
    #[inline]
    fn after(common: CommonHeader) -> State {
        match (common.kind(), common.data_bytes()) {
            (PduType::H2cTermReq | PduType::C2hTermReq, _) => State::Ended,
            (_, 0) => State::Between,
            (_, len) => State::Data { done: 0, len },
        }
    }
}

/// One direction of a connection, as its receiver sees it.
#[derive(Debug)]
pub struct Stream {
    receiver: Role,
    format: Format,
    capsule_data_limit: u32,
    /// The peer's ICReq or ICResp has come.
    set_up: bool,
    state: State,
    head: [u8; HEAD_MAX],
    /// How much of `head` is the header of the PDU that is being read.
    header_bytes: u8,
    digest: Crc32c,
    accepted: Accepted,
}

/// The common header accepted last, for each type that is not about the connection itself. Most of
/// the next ones are the same eight bytes, and what was right about them is right again as long as
/// what was negotiated stays.
#[derive(Clone, Copy, Debug, Default)]
struct Accepted([Option<([u8; COMMON_HEADER_BYTES], CommonHeader)>; 4]);

impl Accepted {
    /// The types that one receiver gets lie apart: 4 and 6, or 5, 7 and 9.
    #[inline]
    const fn place(first: [u8; COMMON_HEADER_BYTES]) -> usize {
        (first[0] >> 1) as usize & 3
    }

    #[inline]
    fn get(&self, first: [u8; COMMON_HEADER_BYTES]) -> Option<CommonHeader> {
        let (bytes, common) = self.0[Self::place(first)]?;
        (bytes == first).then_some(common)
    }

    fn keep(&mut self, first: [u8; COMMON_HEADER_BYTES], common: CommonHeader) {
        self.0[Self::place(first)] = Some((first, common));
    }
}

impl Stream {
    /// The in-capsule data that an admin queue takes, and any queue before it is connected: 8 KiB
    /// (Base, Fabrics Connect).
    pub const CAPSULE_DATA_DEFAULT: u32 = 8192;

    /// What `receiver` reads, from the start of a connection.
    #[must_use]
    pub fn new(receiver: Role) -> Stream {
        Stream {
            receiver,
            format: Format::default(),
            capsule_data_limit: Self::CAPSULE_DATA_DEFAULT,
            set_up: false,
            state: State::Between,
            head: [0; HEAD_MAX],
            header_bytes: 0,
            digest: Crc32c::new(),
            accepted: Accepted::default(),
        }
    }

    /// What was negotiated; holds from the next PDU on. `format.alignment` is the one of received
    /// PDUs (HPDA at the host, CPDA at the controller).
    pub fn set_format(&mut self, format: Format) {
        self.format = format;
        self.accepted = Accepted::default();
    }

    /// The most data that a command capsule may carry, in bytes. A longer one ends the stream: its
    /// bytes would have to be read for nothing.
    pub fn set_capsule_data_limit(&mut self, bytes: u32) {
        self.capsule_data_limit = bytes;
        self.accepted = Accepted::default();
    }

    /// The header of the PDU read last, for a Terminate Connection Request. After an error in the
    /// common header, only that.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.head[..usize::from(self.header_bytes)]
    }

    /// How many bytes of data of the current PDU are still to come.
    #[must_use]
    pub fn data_remaining(&self) -> u32 {
        match self.state {
            State::Data { done, len } => len - done,
            _ => 0,
        }
    }

    /// The next step, or `None` when all input is used up.
    ///
    /// # Errors
    /// Once, at the first thing that is wrong; all further input is swallowed.
    #[inline]
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Step<'a>>, ProtocolError> {
        let result = match self.state {
            State::Between => self.next_head(input),
            State::Head { have, common } => self.collect(have, common, input),
            State::Data { done, len } => {
                let data = self.next_data(done, len, input);
                Ok(data.map(|(position, bytes)| Step::Data { position, bytes }))
            }
            State::Digest { have, bytes } => Ok(self.next_digest(have, bytes, input)),
            State::DataEnd => {
                self.state = State::Between;
                Ok(Some(Step::DataEnd { intact: true }))
            }
            State::Ended => {
                *input = &[];
                Ok(None)
            }
        };
        if result.is_err() {
            self.state = State::Ended;
        }
        result
    }

    /// The head of a PDU, if that comes next, lies in the input in one piece and has a common
    /// header that was accepted before: most of what a queue reads. Never of a PDU that sets up or
    /// ends a connection. Stands for the [`Step::Pdu`] that would be the next step; the caller
    /// parses it, and ends the stream when that goes wrong.
    ///
    /// A [`Pdu`] has its kind's fields behind a tag. Put together in memory from parts of different
    /// widths and moved on in one piece, it waits until all that was written before has left for
    /// the cache: the data of the PDU before. A view travels in registers.
    ///
    /// # Errors
    /// The header digest is wrong.
    #[inline(always)]
    pub(crate) fn usual_head<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<View<'a>>, ProtocolError> {
        if !matches!(self.state, State::Between) {
            return Ok(None);
        }
        let first = input.first_chunk();
        let Some(common) = first.and_then(|first| self.accepted.get(*first)) else {
            return Ok(None);
        };
        let Some((head, rest)) = input.split_at_checked(common.head_bytes() as usize) else {
            return Ok(None);
        };
        *input = rest;
        self.keep(common.kind(), head);
        let view = View::new(common, head, self.format).inspect_err(|_| self.end())?;
        self.state = State::after(common);
        Ok(Some(view))
    }

    /// The next piece of the current PDU's data, and where in that data it starts, if data comes
    /// next. Stands for the [`Step::Data`] that would be the next step.
    #[inline(always)]
    pub(crate) fn usual_data<'a>(&mut self, input: &mut &'a [u8]) -> Option<(u32, &'a [u8])> {
        let State::Data { done, len } = self.state else { return None };
        self.next_data(done, len, input)
    }

    /// Whether the data of the current PDU is complete and has no digest. If so, this stands for
    /// the [`Step::DataEnd`] that would be the next step: it does not come.
    #[inline]
    pub fn data_has_ended(&mut self) -> bool {
        let ended = matches!(self.state, State::DataEnd);
        if ended {
            self.state = State::Between;
        }
        ended
    }

    /// The next `bytes.len()` bytes of data were received elsewhere and look like this.
    ///
    /// # Panics
    /// When that is more than [`Stream::data_remaining`]: the driver's mistake.
    pub fn placed(&mut self, bytes: &[u8]) {
        let State::Data { done, len } = self.state else {
            assert!(bytes.is_empty() || matches!(self.state, State::Ended), "data is expected");
            return;
        };
        assert!(bytes.len() <= (len - done) as usize, "no more than the rest of the data");
        self.advance(done, len, bytes);
    }

    /// Ends the stream: the consumer has found something wrong, or wants nothing more.
    pub fn end(&mut self) {
        self.state = State::Ended;
    }

    #[inline]
    fn next_head<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Step<'a>>, ProtocolError> {
        if input.is_empty() {
            // Still between two PDUs: the next bytes may hold a head in one piece.
            return Ok(None);
        }
        if let Some(first) = input.first_chunk() {
            let common = match self.accepted.get(*first) {
                Some(common) => common,
                None => self.start(first)?,
            };
            if let Some((head, rest)) = input.split_at_checked(common.head_bytes() as usize) {
                *input = rest;
                self.keep(common.kind(), head);
                let view = View::new(common, head, self.format)?;
                let pdu = Pdu::parse(&view)?;
                return Ok(Some(self.begin(common, pdu)));
            }
        }
        self.collect(0, None, input)
    }

    /// Keeps the header at the start of `head`. Known lengths are copied without a call.
    #[inline]
    fn keep(&mut self, kind: PduType, head: &[u8]) {
        self.header_bytes = kind.header_bytes();
        let header = usize::from(self.header_bytes);
        let (to, from) = (&mut self.head, head);
        match header {
            24 => to[..24].copy_from_slice(&from[..24]),
            72 => to[..72].copy_from_slice(&from[..72]),
            _ => to[..header].copy_from_slice(&from[..header]),
        }
    }

    /// The slow way: a head that comes in several pieces.
    #[cold]
    fn collect<'a>(
        &mut self,
        mut have: usize,
        mut common: Option<CommonHeader>,
        input: &mut &'a [u8],
    ) -> Result<Option<Step<'a>>, ProtocolError> {
        loop {
            let want = common.map_or(COMMON_HEADER_BYTES, |common| common.head_bytes() as usize);
            let take = input.len().min(want - have);
            let (now, rest) = input.split_at(take);
            self.head[have..have + take].copy_from_slice(now);
            *input = rest;
            have += take;
            if have < want {
                self.state = State::Head { have, common };
                return Ok(None);
            }
            let Some(known) = common else {
                let mut first = [0; COMMON_HEADER_BYTES];
                first.copy_from_slice(&self.head[..COMMON_HEADER_BYTES]);
                common = Some(self.start(&first)?);
                continue;
            };
            let view = View::new(known, &self.head, self.format)?;
            let pdu = Pdu::parse(&view)?;
            return Ok(Some(self.begin(known, pdu)));
        }
    }

    /// Checks a common header as far as it can be without the rest of the PDU.
    #[inline(never)]
    fn start(&mut self, first: &[u8; COMMON_HEADER_BYTES]) -> Result<CommonHeader, ProtocolError> {
        self.head[..COMMON_HEADER_BYTES].copy_from_slice(first);
        self.header_bytes = COMMON_HEADER_BYTES as u8;
        let common = CommonHeader::parse(first, self.receiver, self.format)
            .map_err(|error| self.at_the_beginning(first, error))?;
        let kind = common.kind();
        let sets_up = matches!(kind, PduType::IcReq | PduType::IcResp);
        let sequence = |sentence| {
            ProtocolError::new(kind.name(), "type", first[0].into(), Rule::Plain(sentence), 0)
                .with_fes(Fes::SEQUENCE, 0)
        };
        if sets_up && self.set_up {
            return Err(sequence("the connection is already initialized"));
        }
        if !self.set_up && !kind.is_connection_control() {
            return Err(sequence("the connection is not initialized"));
        }
        if kind == PduType::CapsuleCmd && common.data_bytes() > self.capsule_data_limit {
            let most =
                u64::from(common.plen() - common.data_bytes()) + u64::from(self.capsule_data_limit);
            let plen = common.plen().into();
            return Err(ProtocolError::new(kind.name(), "PLEN", plen, Rule::AtMost, most).at(4));
        }
        self.header_bytes = kind.header_bytes();
        if !kind.is_connection_control() {
            self.accepted.keep(*first, common);
        }
        Ok(common)
    }

    /// Whoever begins with no PDU type at all is no NVMe/TCP port, or no host: a web server, say.
    #[cold]
    fn at_the_beginning(
        &self,
        first: &[u8; COMMON_HEADER_BYTES],
        error: ProtocolError,
    ) -> ProtocolError {
        if self.set_up || PduType::from_code(first[0]).is_some() {
            return error;
        }
        ProtocolError { rule: Rule::FirstBytes(*first), ..error }
    }

    #[inline]
    fn begin(&mut self, common: CommonHeader, pdu: Pdu) -> Step<'static> {
        self.state = State::after(common);
        self.set_up |= matches!(pdu, Pdu::IcReq(_) | Pdu::IcResp(_));
        Step::Pdu(pdu)
    }

    #[inline]
    fn advance(&mut self, done: u32, len: u32, bytes: &[u8]) {
        if self.format.data_digest {
            self.digest.update(bytes);
        }
        let done = done + bytes.len() as u32;
        self.state = if done < len {
            State::Data { done, len }
        } else if self.format.data_digest {
            State::Digest { have: 0, bytes: [0; DIGEST_BYTES] }
        } else {
            State::DataEnd
        };
    }

    #[inline]
    fn next_data<'a>(
        &mut self,
        done: u32,
        len: u32,
        input: &mut &'a [u8],
    ) -> Option<(u32, &'a [u8])> {
        if input.is_empty() {
            return None;
        }
        let take = input.len().min((len - done) as usize);
        let (bytes, rest) = input.split_at(take);
        *input = rest;
        self.advance(done, len, bytes);
        Some((done, bytes))
    }

    fn next_digest<'a>(
        &mut self,
        have: usize,
        mut bytes: [u8; DIGEST_BYTES],
        input: &mut &'a [u8],
    ) -> Option<Step<'a>> {
        let take = input.len().min(DIGEST_BYTES - have);
        let (now, rest) = input.split_at(take);
        *input = rest;
        bytes[have..have + take].copy_from_slice(now);
        let have = have + take;
        if have < DIGEST_BYTES {
            self.state = State::Digest { have, bytes };
            return None;
        }
        self.state = State::Between;
        let intact = self.digest.take() == u32::from_le_bytes(bytes);
        Some(Step::DataEnd { intact })
    }
}
