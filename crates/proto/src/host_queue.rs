//! The host side of one NVMe/TCP connection: an admin queue or an I/O queue.
//!
//! Bytes in, bytes out; time, sockets and retries are the engine's business. All tables are sized
//! by [`HostQueue::new`]; nothing is allocated afterwards.
//!
//! A command goes through [`HostQueue::submit`], one or several batches, and comes back once by
//! [`HostQueue::poll_completion`], or by [`HostQueue::drain`] after the connection has closed. A
//! peer that breaks the protocol sets [`HostQueue::fault`]: a Terminate Connection Request becomes
//! the last thing to send, and all further bytes are ignored.

mod receive;
mod tags;
mod transmit;

pub use tags::Cid;

use crate::error::ProtocolError;
use crate::machine::{BufRef, Buffers, Gather};
use crate::nvme::sgl::Sgl;
use crate::nvme::sqe::Sqe;
use crate::nvme::status::Status;
use crate::pdu::{IcReq, Role};
use crate::stream::Stream;
use alloc::collections::VecDeque;
use core::fmt;
use receive::Inbound;
use tags::{Entry, Stage, Tags};
use transmit::Outbox;

/// The most commands that a queue can have at once: tags have 12 bits, one is kept for events, and
/// the last would make the reserved identifier FFFFh.
pub const DEPTH_MAX: u16 = (1 << 12) - 2;

/// Data bytes that always may travel in the capsule of a Fabrics command.
const FABRICS_IN_CAPSULE_BYTES: u32 = 8192;

/// How a queue is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostQueueConfig {
    /// Queue identifier; 0 is the admin queue.
    pub qid: u16,
    /// Commands at once, 1 to [`DEPTH_MAX`].
    pub depth: u16,
    /// Ask for header digests.
    pub hdr_digest: bool,
    /// Ask for data digests.
    pub data_digest: bool,
    /// Data bytes that may travel in a command capsule; 8192 for admin queues.
    pub in_capsule_bytes: u32,
}

/// A command's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostData {
    /// None.
    None,
    /// From the controller into this buffer.
    In(BufRef),
    /// From this buffer to the controller.
    Out(BufRef),
    /// From the controller, so many bytes: checked like any, and kept nowhere.
    Sink(u32),
}

impl HostData {
    /// Payload bytes, whichever way they go.
    #[must_use]
    #[inline]
    pub const fn bytes(self) -> u32 {
        match self {
            HostData::None => 0,
            HostData::In(buf) | HostData::Out(buf) => buf.len(),
            HostData::Sink(bytes) => bytes,
        }
    }
}

/// A command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// As submitted.
    pub user: u64,
    /// The command's identifier.
    pub cid: Cid,
    /// How.
    pub status: Status,
    /// Dwords 0 and 1 of the completion.
    pub result: u64,
    /// Payload bytes that came (reads) or went (writes).
    pub bytes: u32,
    /// What makes the status one of ours: the controller has said "success".
    pub flaw: Option<Flaw>,
}

/// Why a command has not succeeded although its controller says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A data digest did not match.
    DataDigest,
    /// Not all the data of a read came, or was asked for of a write.
    Short,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Flaw::DataDigest => "a data digest did not match",
            Flaw::Short => "not all of the data had moved",
        })
    }
}

/// Whether a command that was not answered may have reached the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Not one byte of it was put into a batch.
    NeverSent,
    /// It may have been carried out, or may still be.
    Uncertain,
}

/// A command that a closed connection has left unanswered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abandoned {
    /// As submitted.
    pub user: u64,
    /// The command's identifier.
    pub cid: Cid,
    /// Whether it was sent.
    pub attempt: Attempt,
}

/// The queue takes no command now: every tag is in use, or the connection is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

/// See the module documentation.
pub struct HostQueue {
    config: HostQueueConfig,
    phase: Phase,
    stream: Stream,
    inbound: Option<Inbound>,
    /// Whose data has ended last, until its status comes or [`HostQueue::awaits_status`] was asked.
    unanswered: Option<Cid>,
    /// The next receive may be aimed at the buffer of the command whose data is under way.
    aimed: bool,
    tags: Tags,
    outbox: Outbox,
    completions: VecDeque<Completion>,
    fault: Option<ProtocolError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not connected yet.
    Idle,
    /// ICReq is on its way.
    Initializing,
    /// Commands may flow.
    Ready,
    /// The peer broke the protocol.
    Faulted,
}

impl HostQueue {
    /// A queue that waits to be connected.
    ///
    /// # Panics
    /// When `depth` is out of range: the caller's mistake.
    #[must_use]
    pub fn new(config: HostQueueConfig) -> HostQueue {
        assert!((1..=DEPTH_MAX).contains(&config.depth), "depth lies between 1 and {DEPTH_MAX}");
        HostQueue {
            phase: Phase::Idle,
            stream: Stream::new(Role::Host),
            inbound: None,
            unanswered: None,
            aimed: false,
            tags: Tags::new(config.depth),
            outbox: Outbox::new(config.depth),
            completions: VecDeque::with_capacity(usize::from(config.depth) + 1),
            fault: None,
            config,
        }
    }

    /// The connection is up: ICReq becomes ready to send.
    pub fn connected(&mut self) {
        if self.phase == Phase::Idle {
            self.phase = Phase::Initializing;
            self.outbox.begin(self.ic_req());
        }
    }

    /// One R2T at a time (MAXR2T is counted from zero), data at any dword.
    fn ic_req(&self) -> IcReq {
        IcReq {
            hpda: 0,
            header_digest: self.config.hdr_digest,
            data_digest: self.config.data_digest,
            maxr2t: 0,
        }
    }

    /// Whether ICResp has come and commands may be submitted.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// The controller's limit of in-capsule data has become known.
    pub fn set_in_capsule_bytes(&mut self, bytes: u32) {
        self.config.in_capsule_bytes = bytes;
    }

    /// Takes a command; CID and SGL are filled in here. Write data that fits travels in the
    /// capsule.
    ///
    /// # Errors
    /// [`QueueFull`]; nothing was done.
    pub fn submit(&mut self, sqe: Sqe, data: HostData, user: u64) -> Result<Cid, QueueFull> {
        if self.phase != Phase::Ready {
            return Err(QueueFull);
        }
        let cid = self.tags.take().ok_or(QueueFull)?;
        self.start(cid, sqe, data, user);
        Ok(cid)
    }

    /// Takes an Asynchronous Event Request, which has a tag outside the depth. One at a time.
    ///
    /// # Errors
    /// [`QueueFull`] when one is outstanding or the connection is not ready.
    pub fn submit_event_request(&mut self, user: u64) -> Result<Cid, QueueFull> {
        if self.phase != Phase::Ready {
            return Err(QueueFull);
        }
        let cid = self.tags.take_event_tag().ok_or(QueueFull)?;
        let sqe = Sqe::new(crate::nvme::opcode::admin::ASYNC_EVENT_REQUEST);
        self.start(cid, sqe, HostData::None, user);
        Ok(cid)
    }

    fn start(&mut self, cid: Cid, sqe: Sqe, data: HostData, user: u64) {
        let limit = match sqe.is_fabrics() {
            true => self.config.in_capsule_bytes.max(FABRICS_IN_CAPSULE_BYTES),
            false => self.config.in_capsule_bytes,
        };
        let in_capsule =
            matches!(data, HostData::Out(buf) if !buf.is_empty() && buf.len() <= limit);
        let sgl = match in_capsule {
            true => Sgl::in_capsule(data.bytes()),
            false => Sgl::transport(data.bytes()),
        };
        self.tags.put(Entry {
            cid,
            user,
            sqe: sqe.with_cid(cid.0).with_sgl(sgl),
            data,
            in_capsule,
            stage: Stage::Queued,
            in_batch: false,
            received: 0,
            last_seen: false,
            damaged: false,
            asked: 0,
            grant: None,
            status: Status::SUCCESS,
            result: 0,
        });
        self.outbox.capsule(cid);
    }

    /// Whether there is something to send.
    #[must_use]
    pub fn has_transmit(&self) -> bool {
        self.outbox.has_transmit()
    }

    /// Whether all data of a command has come since the last call, but not its status. SPDK's
    /// zero-copy target sends that in a PDU of its own, and only when the data is acknowledged: it
    /// is worth an acknowledgement ahead of time.
    pub fn awaits_status(&mut self) -> bool {
        self.unanswered.take().is_some() && self.phase == Phase::Ready
    }

    /// Fills a batch.
    pub fn poll_transmit(&mut self, batch: &mut dyn Gather, bufs: &mut dyn Buffers) {
        self.outbox.poll(&mut self.tags, batch, bufs);
    }

    /// The batch has left: payload buffers that were in it are free of it.
    pub fn transmitted(&mut self) {
        while let Some(cid) = self.outbox.transmitted() {
            let Some(entry) = self.tags.get_mut(cid) else { continue };
            entry.in_batch = false;
            if entry.stage == Stage::Answered {
                let (status, result) = (entry.status, entry.result);
                self.complete(cid, status, result);
            }
        }
    }

    fn complete(&mut self, cid: Cid, mut status: Status, result: u64) {
        let Some(entry) = self.tags.get(cid) else { return };
        let bytes = match entry.data {
            HostData::None => 0,
            HostData::In(_) | HostData::Sink(_) => entry.received,
            HostData::Out(buf) if entry.in_capsule => buf.len(),
            HostData::Out(_) => entry.asked,
        };
        // Success without all the data, in either direction, is none. Like damage on the way it is
        // of this controller: another one may have the data.
        let flaw = match status.is_success() {
            true if entry.damaged => Some(Flaw::DataDigest),
            true if bytes < entry.data.bytes() => Some(Flaw::Short),
            _ => None,
        };
        if flaw.is_some() {
            status = Status::TRANSIENT_TRANSPORT_ERROR;
        }
        let completion = Completion { user: entry.user, cid, status, result, bytes, flaw };
        self.tags.release(cid);
        self.completions.push_back(completion);
    }

    /// Whether the data of a command went with its capsule and has left: nothing will read the
    /// buffer any more, although the command has not ended.
    #[must_use]
    pub fn has_left(&self, cid: Cid) -> bool {
        let entry = self.tags.get(cid);
        entry.is_some_and(|it| it.in_capsule && it.stage != Stage::Queued && !it.in_batch)
    }

    /// Takes the buffer of a read back before the read has ended: whether it is the caller's again
    /// from now on, never to be written here. The command goes on; what comes for it is checked as
    /// before and kept nowhere, and it completes or is drained like any.
    ///
    /// Refused (nothing has changed) when that is no read with a buffer, when the driver may be
    /// receiving into the buffer at this moment, and when the connection is at fault.
    pub fn release_buffer(&mut self, cid: Cid) -> bool {
        if self.phase != Phase::Ready {
            return false;
        }
        let Some(entry) = self.tags.get_mut(cid) else { return false };
        let HostData::In(buf) = entry.data else { return false };
        if let Some(inbound) = self.inbound.as_mut().filter(|inbound| inbound.cid() == cid) {
            if self.aimed {
                return false;
            }
            inbound.keep_nothing();
        }
        entry.data = HostData::Sink(buf.len());
        true
    }

    /// Whether not one byte of a command was put into a batch yet. When the peer does not read, the
    /// batch before it may not leave for long.
    #[must_use]
    pub fn is_unsent(&self, cid: Cid) -> bool {
        self.tags.get(cid).is_some_and(|entry| entry.stage == Stage::Queued)
    }

    /// Takes such a command back: whether it is over here. The controller never hears of it.
    pub fn recall(&mut self, cid: Cid) -> bool {
        let recalled = self.is_unsent(cid) && self.outbox.recall(cid);
        if recalled {
            self.tags.release(cid);
        }
        recalled
    }

    /// The next command that has ended.
    #[inline]
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// What the peer has done wrong, or says that we have.
    #[must_use]
    pub fn fault(&self) -> Option<&ProtocolError> {
        self.fault.as_ref()
    }

    /// Tags that are free.
    #[must_use]
    pub fn free_tags(&self) -> u16 {
        self.tags.free()
    }

    /// Commands that have not ended, the event request included.
    #[must_use]
    pub fn in_flight(&self) -> u16 {
        self.tags.len()
    }

    /// After the connection has closed: every command that has not ended, once each. Answers that
    /// had come but waited for their payload are completions, not abandoned: poll those first.
    pub fn drain(&mut self) -> Option<Abandoned> {
        loop {
            let cid = self.tags.any()?;
            let entry = self.tags.get(cid)?;
            if entry.stage == Stage::Answered {
                let (status, result) = (entry.status, entry.result);
                self.complete(cid, status, result);
                continue;
            }
            let attempt = match entry.stage {
                Stage::Queued => Attempt::NeverSent,
                _ => Attempt::Uncertain,
            };
            let abandoned = Abandoned { user: entry.user, cid, attempt };
            self.tags.release(cid);
            return Some(abandoned);
        }
    }
}
