//! One client: the stream in, back-pressure, ending.

use super::exports::{Catalog, Missing};
use super::handshake::{Handshake, Outcome};
use super::request::Header;
use super::transfer::{Seat, Transfer, Wait};
use super::waiting::Want;
use super::{NbdEvent, NbdMail, NbdReply, RECEIVE_INTO_BYTES, wire};
use anabranch_host::topology::HeadId;
use anabranch_host::user::IoError;
use anabranch_proto::machine::{
    Buffers, CloseCause, CloseHow, ConnId, Gather, ListenerId, Output, Peer,
};
use std::collections::VecDeque;

/// What an NBD server wants done.
pub(super) type Out = Output<NbdMail, NbdReply, NbdEvent>;
pub(super) type Outputs = VecDeque<Out>;

/// How far a connection is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// Reads and answers.
    Open,
    /// Takes in no further request; closes when everything is answered.
    Ending,
    /// `Close` was said.
    Closing,
    /// The driver has closed it; what its client has asked for before it said that it leaves is
    /// still done.
    Left,
    /// The driver has closed it.
    Dead,
}

/// What the next bytes of the stream are, after the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// A request header, of which this many bytes are there.
    Header { have: usize },
    /// Nothing until a request without payload could be started.
    Start { slot: u16 },
    /// Payload of a write, for which there is no piece yet.
    Piece { slot: u16, left: u32 },
    /// Payload for a piece; behind it `left` more bytes of the same request.
    Payload { slot: u16, piece: u16, filled: u32, missing: u32, left: u32 },
    /// Payload to throw away.
    Skip { slot: u16, left: u32 },
}

pub(super) struct Connection {
    pub(super) conn: ConnId,
    /// Where it came in: that decides what it may open.
    listener: ListenerId,
    key: u32,
    peer: Option<Peer>,
    life: Life,
    handshake: Option<Box<Handshake>>,
    transfer: Option<Box<Transfer>>,
    export: String,
    /// Whose clients are to be looked at before it may have its export.
    look: Option<HeadId>,
    /// Whose are being looked at.
    asked: Option<HeadId>,
    /// So many answers are still to come that it has given up to wait for.
    stale_looks: u32,
    /// Whose have been, since it asked for the export.
    heard: Option<HeadId>,
    next: Next,
    header: [u8; wire::REQUEST_BYTES],
    /// Received bytes that could not be worked on yet: at most what two receives bring.
    stash: Vec<u8>,
    /// So many bytes came in just now, behind what was stashed.
    fresh: usize,
    wait: Option<Wait>,
    paused: bool,
    /// The driver tells of its end while it is paused.
    watched: bool,
    /// The driver was given a buffer for the next receive.
    aimed: bool,
    sending: bool,
    /// The driver knows that there is something to send.
    announced: bool,
}

/// Whether parsing can go on.
enum Step {
    Again,
    NeedBytes,
    Blocked(Wait),
    /// The client said good-bye.
    Leave,
    Violation(&'static str),
}

impl Connection {
    /// A client has connected: the greeting is ready to be sent.
    pub(super) fn new(
        conn: ConnId,
        listener: ListenerId,
        key: u32,
        peer: Option<Peer>,
    ) -> Connection {
        Connection {
            conn,
            listener,
            key,
            peer,
            life: Life::Open,
            handshake: Some(Box::new(Handshake::new())),
            transfer: None,
            export: String::new(),
            look: None,
            asked: None,
            stale_looks: 0,
            heard: None,
            next: Next::Header { have: 0 },
            header: [0; wire::REQUEST_BYTES],
            stash: Vec::new(),
            fresh: 0,
            wait: None,
            paused: false,
            watched: false,
            aimed: false,
            sending: false,
            announced: false,
        }
    }

    pub(super) fn life(&self) -> Life {
        self.life
    }

    /// Who it is, when the system names it.
    pub(super) fn peer(&self) -> Option<Peer> {
        self.peer
    }

    pub(super) fn is_negotiating(&self) -> bool {
        self.transfer.is_none()
    }

    /// How many options it has sent.
    pub(super) fn options(&self) -> u32 {
        self.handshake.as_ref().map_or(0, |it| it.options())
    }

    /// What it waits for and shares with others.
    pub(super) fn wants(&self) -> Option<Want> {
        let waits = self.wait.filter(|_| self.has_work());
        match (waits?, &self.transfer) {
            (Wait::Memory, _) => Some(Want::Memory),
            (Wait::Share, Some(transfer)) => Some(Want::Share(transfer.device.head)),
            (Wait::Room, Some(transfer)) => Some(Want::Room(transfer.device.head)),
            (Wait::Share | Wait::Room, None) => None,
            (Wait::Own | Wait::Device | Wait::Look | Wait::Rest | Wait::End, _) => None,
        }
    }

    /// The device that it asks for is not there, or not to be had yet.
    pub(super) fn awaits_device(&self) -> bool {
        let waits = matches!(self.wait, Some(Wait::Device | Wait::Look | Wait::Rest));
        waits && self.life == Life::Open && self.is_negotiating()
    }

    /// It is to be found out whether clients of this head have left.
    pub(super) fn wants_look(&mut self) -> Option<HeadId> {
        self.look.take()
    }

    /// That is known: all that had left have been heard of.
    pub(super) fn looked(&mut self, seat: &mut Seat<'_>, out: &mut Outputs) {
        // Should one of them come after what it waits for, that tells as much.
        if self.stale_looks > 0 {
            self.stale_looks -= 1;
            return;
        }
        let head = self.asked.take();
        // Too late for one that was told so: it asks anew.
        if self.awaits_look() {
            self.heard = head;
            self.resume(seat, out);
        }
    }

    /// It waits to hear that.
    pub(super) fn awaits_look(&self) -> bool {
        self.wait == Some(Wait::Look)
    }

    /// It is a client of this head, or of what was left there when it closed: one that is being
    /// closed leaves nothing but what the host has of it.
    pub(super) fn is_of(&self, head: HeadId) -> bool {
        let theirs = self.transfer.as_ref().filter(|it| it.device.head == head);
        theirs.is_some_and(|it| match self.life {
            Life::Open | Life::Ending => true,
            Life::Closing => it.at_host() > 0,
            // What it has to do counts as left behind.
            Life::Left | Life::Dead => false,
        })
    }

    /// What one that has left was not answered has not ended.
    pub(super) fn awaits_rest(&self) -> bool {
        self.wait == Some(Wait::Rest) && self.has_work()
    }

    /// What waits is still to be done.
    fn has_work(&self) -> bool {
        matches!(self.life, Life::Open | Life::Ending | Life::Left)
    }

    /// What it calls the export for which it waits.
    pub(super) fn awaited(&self) -> Option<&[u8]> {
        match &self.handshake {
            Some(handshake) if self.is_negotiating() => handshake.awaited(),
            _ => Some(self.export.as_bytes()),
        }
    }

    /// It has waited for its device long enough.
    pub(super) fn lose_patience(&mut self, seat: &mut Seat<'_>, out: &mut Outputs) {
        let given_up = self.awaits_look();
        if let Some(handshake) = &mut self.handshake {
            handshake.lose_patience(given_up);
        }
        self.resume(seat, out);
    }

    /// Grows with each thing that it gets of what it shares.
    pub(super) fn granted(&self) -> u64 {
        self.transfer.as_ref().map_or(0, |it| it.granted())
    }

    /// Nothing of it is left anywhere.
    pub(super) fn is_forgotten(&self) -> bool {
        self.life == Life::Dead && self.transfer.as_ref().is_none_or(|it| it.at_host() == 0)
    }

    /// Part of a request is in: its header, not all of its payload, or it could not be started.
    fn is_amid_request(&self) -> bool {
        !matches!(self.next, Next::Header { .. })
    }

    /// What comes is worked on. An end in order waits for the request that has begun.
    fn reads(&self) -> bool {
        match self.life {
            Life::Open => true,
            Life::Ending => self.is_amid_request(),
            Life::Closing | Life::Left | Life::Dead => false,
        }
    }

    /// Bytes came in.
    pub(super) fn received(&mut self, bytes: &[u8], seat: &mut Seat<'_>, out: &mut Outputs) {
        self.aimed = false;
        if self.reads() {
            self.advance(bytes, seat, out);
        }
    }

    /// Bytes came straight into the buffer of a piece.
    pub(super) fn received_into(&mut self, len: u32, seat: &mut Seat<'_>, out: &mut Outputs) {
        self.aimed = false;
        if !self.reads() {
            return;
        }
        if let Next::Payload { slot, piece, filled, missing, left } = self.next {
            debug_assert!(len <= missing, "a receive stays in its buffer");
            let len = len.min(missing);
            let (filled, missing) = (filled + len, missing - len);
            self.next = Next::Payload { slot, piece, filled, missing, left };
        }
        self.advance(&[], seat, out);
    }

    /// Something ended that it may have waited for.
    pub(super) fn resume(&mut self, seat: &mut Seat<'_>, out: &mut Outputs) {
        if self.reads() && self.wait.is_some() {
            self.advance(&[], seat, out);
        } else {
            self.wait = None;
            self.settle(seat, out);
        }
    }

    /// The host has finished a piece.
    pub(super) fn completed(
        &mut self,
        piece: u16,
        result: Result<(), IoError>,
        seat: &mut Seat<'_>,
    ) {
        if let Some(transfer) = &mut self.transfer {
            transfer.completed(piece, result, seat);
        }
    }

    /// The last batch has left.
    pub(super) fn transmitted(&mut self, seat: &mut Seat<'_>) {
        self.sending = false;
        if let Some(transfer) = &mut self.transfer {
            transfer.transmitted(seat);
        }
    }

    /// Works on what was stashed and on fresh bytes, as far as it goes.
    fn advance(&mut self, fresh: &[u8], seat: &mut Seat<'_>, out: &mut Outputs) {
        self.fresh = fresh.len();
        let mut stash = std::mem::take(&mut self.stash);
        if stash.is_empty() {
            let mut bytes = fresh;
            self.consume(&mut bytes, seat, out);
            stash.extend_from_slice(bytes);
        } else {
            stash.extend_from_slice(fresh);
            let mut bytes = &stash[..];
            self.consume(&mut bytes, seat, out);
            let used = stash.len() - bytes.len();
            stash.drain(..used);
        }
        if !self.reads() {
            stash.clear();
        }
        self.stash = stash;
        self.settle(seat, out);
    }

    fn consume(&mut self, bytes: &mut &[u8], seat: &mut Seat<'_>, out: &mut Outputs) {
        self.wait = None;
        while self.reads() {
            let step = match self.transfer {
                Some(_) => self.transmission(bytes, seat),
                None => self.negotiation(bytes, seat, out),
            };
            match step {
                Step::Again => {}
                Step::NeedBytes => return,
                Step::Blocked(wait) => {
                    self.wait = Some(wait);
                    return;
                }
                Step::Leave => {
                    self.life = Life::Ending;
                    if let Some(transfer) = &mut self.transfer {
                        transfer.bid_farewell(seat.host);
                    }
                    return;
                }
                Step::Violation(what) => {
                    out.push_back(Output::Event(NbdEvent::Violation { what }));
                    self.close(CloseHow::Graceful, seat, out);
                    return;
                }
            }
        }
    }

    fn negotiation(&mut self, bytes: &mut &[u8], seat: &mut Seat<'_>, out: &mut Outputs) -> Step {
        let Some(handshake) = &mut self.handshake else { return Step::NeedBytes };
        let catalog = Catalog { heard: self.heard, ..seat.catalog(self.listener) };
        let outcome = handshake.received(bytes, &catalog);
        if !matches!(outcome, Outcome::Await(_)) {
            // Whoever was refused, and asks again, may have left elsewhere meanwhile.
            self.heard = None;
            if self.asked.take().is_some() && self.look.take().is_none() {
                self.stale_looks += 1;
            }
        }
        match outcome {
            // What was not taken waits until something was sent.
            Outcome::More if !bytes.is_empty() => Step::Blocked(Wait::Own),
            Outcome::More => Step::NeedBytes,
            Outcome::Await(Missing::Look(head)) => {
                if self.asked.is_none() {
                    (self.look, self.asked) = (Some(head), Some(head));
                }
                Step::Blocked(Wait::Look)
            }
            Outcome::Await(Missing::Rest) => Step::Blocked(Wait::Rest),
            Outcome::Await(_) => Step::Blocked(Wait::Device),
            Outcome::Leave => Step::Leave,
            Outcome::Violation(what) => Step::Violation(what),
            Outcome::Open { name, device, structured } => {
                out.push_back(Output::Event(NbdEvent::Opened {
                    export: name.clone(),
                    worker: seat.host.worker(),
                    peer: self.peer,
                }));
                self.export = name;
                let transfer = Transfer::new(self.key, device, structured, seat.host);
                self.transfer = Some(Box::new(transfer));
                Step::Again
            }
        }
    }

    /// One step after the negotiation.
    fn transmission(&mut self, bytes: &mut &[u8], seat: &mut Seat<'_>) -> Step {
        let Some(transfer) = &mut self.transfer else { return Step::NeedBytes };
        match self.next {
            Next::Header { have } => {
                // A request that came in after an answer had left.
                if have == 0 && (1..=self.fresh).contains(&bytes.len()) {
                    transfer.failures.goes_on();
                }
                let now = bytes.len().min(self.header.len() - have);
                self.header[have..have + now].copy_from_slice(&bytes[..now]);
                *bytes = &bytes[now..];
                self.next = Next::Header { have: have + now };
                if have + now < self.header.len() {
                    return Step::NeedBytes;
                }
                self.header_complete(seat)
            }
            Next::Start { slot } => match transfer.start(slot, seat) {
                Ok(()) => {
                    self.next = Next::Header { have: 0 };
                    Step::Again
                }
                Err(wait) => Step::Blocked(wait),
            },
            Next::Piece { slot, left } if transfer.is_failed(slot) => {
                self.next = Next::Skip { slot, left };
                Step::Again
            }
            Next::Piece { slot, left } => match transfer.payload_piece(slot, seat) {
                Ok((piece, missing)) => {
                    let left = left - missing;
                    self.next = Next::Payload { slot, piece, filled: 0, missing, left };
                    Step::Again
                }
                Err(wait) => Step::Blocked(wait),
            },
            Next::Payload { .. } => self.payload(bytes, seat),
            Next::Skip { slot, left } => {
                let now = bytes.len().min(left as usize);
                *bytes = &bytes[now..];
                // `now` is at most `left`.
                let now = now as u32;
                transfer.skipped(slot, now);
                if now < left {
                    self.next = Next::Skip { slot, left: left - now };
                    return Step::NeedBytes;
                }
                self.next = Next::Header { have: 0 };
                Step::Again
            }
        }
    }

    /// Before the next request: what waits is submitted, or must wait on.
    fn make_room(&mut self, seat: &mut Seat<'_>) -> Step {
        let Some(transfer) = &mut self.transfer else { return Step::NeedBytes };
        match transfer.submit(seat) {
            Err(wait) => Step::Blocked(wait),
            Ok(()) if transfer.has_room() => Step::Again,
            Ok(()) => Step::Blocked(Wait::Own),
        }
    }

    /// A whole request header is there. It waits until there is room for the request; a good-bye
    /// needs none.
    fn header_complete(&mut self, seat: &mut Seat<'_>) -> Step {
        let Some(transfer) = &mut self.transfer else { return Step::NeedBytes };
        let Some(header) = Header::parse(&self.header) else {
            return Step::Violation("a request without its magic number");
        };
        if header.command == wire::command::DISC {
            return Step::Leave;
        }
        if !transfer.has_room() {
            return self.make_room(seat);
        }
        let Some((slot, checked)) = transfer.open(&header) else {
            return Step::Blocked(Wait::Own);
        };
        let left = header.payload_bytes();
        self.next = match checked {
            _ if left == 0 => Next::Start { slot },
            Ok(_) => Next::Piece { slot, left },
            Err(_) => Next::Skip { slot, left },
        };
        Step::Again
    }

    /// Payload for a piece.
    fn payload(&mut self, bytes: &mut &[u8], seat: &mut Seat<'_>) -> Step {
        let Next::Payload { slot, piece, filled, missing, left } = self.next else {
            return Step::Again;
        };
        let Some(transfer) = &mut self.transfer else { return Step::NeedBytes };
        let now = bytes.len().min(missing as usize);
        // `now` is at most `missing`.
        let len = now as u32;
        if len > 0 {
            let target = transfer.payload_buffer(piece, filled).slice(0, len);
            seat.memory.bufs.bytes_mut(target).copy_from_slice(&bytes[..now]);
            *bytes = &bytes[now..];
        }
        let (filled, missing) = (filled + len, missing - len);
        if missing > 0 {
            self.next = Next::Payload { slot, piece, filled, missing, left };
            return Step::NeedBytes;
        }
        transfer.payload_complete(piece, &mut seat.memory);
        self.next = match left {
            0 => Next::Header { have: 0 },
            left => Next::Piece { slot, left },
        };
        match transfer.submit(seat) {
            Ok(()) => Step::Again,
            Err(wait) => Step::Blocked(wait),
        }
    }

    /// Brings everything in line with what has happened: submits, tells the driver what to send,
    /// whether to read, and where to; closes when it is time.
    pub(super) fn settle(&mut self, seat: &mut Seat<'_>, out: &mut Outputs) {
        match self.life {
            Life::Left => return self.finish(seat),
            Life::Dead => return,
            Life::Open | Life::Ending | Life::Closing => {}
        }
        if let Some(transfer) = &mut self.transfer {
            if let Err(wait) = transfer.submit(seat) {
                self.wait = Some(wait);
            }
            if transfer.is_broken() && self.life != Life::Closing {
                let event = NbdEvent::BrokenReply { export: self.export.clone() };
                out.push_back(Output::Event(event));
                self.close(CloseHow::Abort, seat, out);
            }
        }
        if self.wait == Some(Wait::End) && self.life != Life::Closing {
            // An error would reach a guest. One that is told nothing asks the next server again.
            self.close(CloseHow::Graceful, seat, out);
        }
        let speaks = matches!(self.life, Life::Open | Life::Ending);
        if speaks && self.has_transmit() && !self.announced && !self.sending {
            self.announced = true;
            out.push_back(Output::Transmit { conn: self.conn });
        }
        match self.life {
            Life::Open => {
                self.steer(self.is_held_up(), out);
                self.aim(out);
            }
            Life::Ending if self.is_quiet() => {
                self.close(CloseHow::Graceful, seat, out);
            }
            Life::Ending => {
                self.steer(self.is_held_up() || !self.reads(), out);
                self.aim(out);
            }
            Life::Closing | Life::Left | Life::Dead => {}
        }
    }

    /// Its client has left in order: what is left to do is submitted, until all has ended.
    fn finish(&mut self, seat: &mut Seat<'_>) {
        let Some(transfer) = &mut self.transfer else { return };
        match transfer.submit(seat) {
            Ok(()) => {}
            Err(Wait::End) => transfer.give_up_on_it(&mut seat.memory),
            Err(wait) => self.wait = Some(wait),
        }
        if transfer.is_done() {
            self.life = Life::Dead;
        }
    }

    /// Nothing more can be taken in for now. A payload for which there is a buffer always can, and
    /// must: what waits may wait for that buffer.
    fn is_held_up(&self) -> bool {
        self.wait.is_some() && !matches!(self.next, Next::Payload { .. })
    }

    fn steer(&mut self, pause: bool, out: &mut Outputs) {
        // Who has said good-bye may leave: what is asked for is done all the same. Who has not, and
        // is gone, may be back and ask again: what waits must not follow then.
        let watch = pause && self.life == Life::Open;
        if (self.paused, self.watched) == (pause, watch) {
            return;
        }
        (self.paused, self.watched) = (pause, watch);
        let conn = self.conn;
        out.push_back(if pause { Output::Pause { conn, watch } } else { Output::Resume { conn } });
    }

    /// Lets the next receive go straight to where a longer payload belongs.
    fn aim(&mut self, out: &mut Outputs) {
        let Next::Payload { piece, filled, missing, .. } = self.next else { return };
        if self.paused || self.aimed || missing < RECEIVE_INTO_BYTES {
            return;
        }
        if let Some(transfer) = &self.transfer {
            self.aimed = true;
            let buf = transfer.payload_buffer(piece, filled);
            out.push_back(Output::ReceiveInto { conn: self.conn, buf });
        }
    }

    fn has_transmit(&self) -> bool {
        let greeting = self.handshake.as_ref().is_some_and(|it| !it.output.is_empty());
        greeting || self.transfer.as_ref().is_some_and(|it| it.has_transmit())
    }

    fn is_quiet(&self) -> bool {
        !self.sending
            && !self.is_amid_request()
            && !self.has_transmit()
            && self.transfer.as_ref().is_none_or(|it| it.is_quiet())
    }

    /// Fills a batch.
    pub(super) fn poll_transmit(&mut self, batch: &mut dyn Gather, bufs: &dyn Buffers) {
        self.announced = false;
        if let Some(handshake) = &mut self.handshake {
            let mut used = 0;
            for unit in handshake.output.chunks(HANDSHAKE_UNIT_BYTES) {
                if !batch.has_room() {
                    break;
                }
                batch.copy(unit);
                used += unit.len();
            }
            handshake.output.drain(..used);
            self.sending |= used > 0;
            if !handshake.output.is_empty() {
                return;
            }
            if self.transfer.is_some() {
                self.handshake = None;
            }
        }
        if let Some(transfer) = &mut self.transfer {
            self.sending |= transfer.has_transmit();
            transfer.poll_transmit(batch, bufs);
        }
    }

    /// Finish what was asked for, take in no further request, then close.
    pub(super) fn end(&mut self, seat: &mut Seat<'_>, out: &mut Outputs) {
        if self.life == Life::Open {
            self.life = Life::Ending;
            if !self.reads() {
                self.wait = None;
                self.stash.clear();
            }
            self.settle(seat, out);
        }
    }

    /// Its end has taken long enough: what is not done by now is not done any more.
    pub(super) fn cut_off(&mut self, seat: &mut Seat<'_>, out: &mut Outputs) {
        if let Some(transfer) = &mut self.transfer {
            transfer.give_up_on_it(&mut seat.memory);
            if self.life == Life::Left {
                self.life = Life::Dead;
                withdraw(transfer, seat);
            }
        }
        self.close(CloseHow::Abort, seat, out);
    }

    /// Closes now.
    pub(super) fn close(&mut self, how: CloseHow, seat: &mut Seat<'_>, out: &mut Outputs) {
        if matches!(self.life, Life::Left | Life::Dead) {
            return;
        }
        self.life = Life::Closing;
        self.stash.clear();
        if let Some(transfer) = &mut self.transfer {
            transfer.mute(&mut seat.memory);
            // It may be let in again before it is closed.
            if seat.may_return {
                transfer.failures.leave();
            }
        }
        out.push_back(Output::Close { conn: self.conn, how });
    }

    /// The driver has closed it: nobody outside names its buffers any more. A client that may
    /// return asks again for what it was not answered, so what waits of that must not follow. One
    /// that has said that it leaves may have gone before it was answered: all of that is done.
    pub(super) fn closed(&mut self, cause: CloseCause, seat: &mut Seat<'_>, out: &mut Outputs) {
        self.life = Life::Dead;
        self.handshake = None;
        self.stash = Vec::new();
        if let Some(transfer) = &mut self.transfer {
            let unanswered = transfer.unanswered();
            transfer.closed(&mut seat.memory);
            if cause == CloseCause::PeerClosed {
                transfer.failures.hears();
            }
            if seat.may_return {
                transfer.failures.leave();
            }
            if transfer.leaves() {
                self.life = Life::Left;
            } else {
                withdraw(transfer, seat);
            }
            let export = self.export.clone();
            out.push_back(Output::Event(NbdEvent::Left { export, peer: self.peer, unanswered }));
        }
        self.settle(seat, out);
    }

    /// The heads or exports have changed: follow the device, or end when it is no longer offered.
    pub(super) fn follow(&mut self, seat: &mut Seat<'_>, out: &mut Outputs) {
        let Some(transfer) = &mut self.transfer else {
            if self.awaits_device() {
                self.resume(seat, out);
            }
            return;
        };
        let catalog = seat.catalog(self.listener);
        let (old, new) = (transfer.device, catalog.named(&self.export));
        match new {
            Some(new) if new.head == old.head && new.block_bytes == old.block_bytes => {
                transfer.follow(new);
            }
            _ => self.end(seat, out),
        }
    }
}

/// Whatever no controller has of what a client has asked for that may return.
fn withdraw(transfer: &Transfer, seat: &mut Seat<'_>) {
    if seat.may_return {
        transfer.withdraw(seat.host);
    }
}

/// What one unit of a batch may copy.
const HANDSHAKE_UNIT_BYTES: usize = 256;
