//! The controller's side of one NVMe/TCP connection, admin or I/O.
//!
//! Bytes in, events out; answers in, bytes out. What a command means is the engine's business;
//! this queue keeps the stream in step, checks what the transport asks to be checked, moves data,
//! and gives every buffer back exactly once.
//!
//! # Buffers
//!
//! * In-capsule data is collected in a buffer from
//!   [`Buffers::alloc`](crate::machine::Buffers::alloc). It belongs to the engine from
//!   [`TargetQueue::take_data`] on, which follows [`TargetEvent::Command`].
//! * A buffer given to [`TargetQueue::request_data`] is the queue's until `DataReady` or
//!   `DataDigestError` for that slot is polled.
//! * A buffer given to [`TargetQueue::send_data`] comes back through
//!   [`TargetQueue::poll_released`] after the batch that carries its last byte was transmitted.
//! * After the connection's `Closed`, [`TargetQueue::drain`] gives back whatever is left.
//!
//! # Bounds
//!
//! Commands in progress are bounded by the depth (more end the connection), refusals that wait to
//! be sent by the same number. Data in capsules comes unasked: how many commands bring some, the
//! engine limits when memory is short ([`TargetQueue::limit_capsules`]). All tables are sized by
//! [`TargetQueue::new`] and [`TargetQueue::set_limits`]; nothing allocates afterwards, and no
//! length on the wire is believed.

mod receive;
mod slots;
#[cfg(test)]
mod tests;
mod transmit;

use crate::error::ProtocolError;
use crate::machine::BufRef;
use crate::nvme::{Sqe, Status};
use crate::pdu::{Format, Role, TermReq};
use crate::stream::Stream;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use receive::Incoming;
use slots::{Slots, Stage};
use transmit::Send;

/// The most commands in progress on one connection: transfer tags hold 12 bits of slot number.
pub const MAX_DEPTH: u16 = 4096;

/// From this many bytes of a data PDU still to come, a receive straight into the buffer pays.
pub const HINT_BYTES: u32 = 16 << 10;

/// What a connection is set up with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetQueueConfig {
    /// Commands in progress at once, 1 to [`MAX_DEPTH`]. Also the entries of the submission queue
    /// that SQHD counts in.
    pub depth: u16,
    /// The most data in a command capsule, in bytes; 8192 before Connect and on admin queues.
    pub in_capsule_bytes: u32,
    /// MAXH2CDATA: the most data in one H2CData PDU, in bytes; at least 4096, whole dwords.
    pub max_h2c_data: u32,
    /// Grant header digests to hosts that ask for them.
    pub allow_hdr_digest: bool,
    /// Grant data digests to hosts that ask for them.
    pub allow_data_digest: bool,
    /// The longest buffer that the engine hands in, in bytes.
    pub max_transfer_bytes: u32,
}

/// Names a command in progress on one connection. Used again after the command's response has been
/// pulled into a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u16);

impl Slot {
    /// Number of the slot, below the depth.
    #[must_use]
    pub const fn index(self) -> u16 {
        self.0
    }
}

/// What the engine has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetEvent {
    /// A command came: [`TargetQueue::sqe`] of its slot, and [`TargetQueue::take_data`] if data was
    /// in its capsule.
    Command {
        /// Its name until it is answered.
        slot: Slot,
    },
    /// Everything asked for with [`TargetQueue::request_data`] is in the buffer.
    DataReady {
        /// The command.
        slot: Slot,
    },
    /// As `DataReady`, but a data digest was wrong: the buffer's content is no good, the command
    /// must not be carried out and ends with Transient Transport Error.
    DataDigestError {
        /// The command.
        slot: Slot,
    },
}

impl TargetEvent {
    fn ends_transfer_of(&self, of: Slot) -> bool {
        match *self {
            TargetEvent::Command { .. } => false,
            TargetEvent::DataReady { slot } | TargetEvent::DataDigestError { slot } => slot == of,
        }
    }
}

/// Something that comes back from a connection that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainedSlot {
    /// The command that was in progress; `None` for a buffer whose command has been answered.
    pub slot: Option<Slot>,
    /// A buffer that the queue still held.
    pub buf: Option<BufRef>,
}

/// The controller's side of one connection. See the module documentation.
#[derive(Debug)]
pub struct TargetQueue {
    config: TargetQueueConfig,
    stream: Stream,
    /// Of PDUs towards the host; `alignment` is its HPDA.
    format: Format,
    incoming: Incoming,
    slots: Slots,
    events: VecDeque<TargetEvent>,
    sends: VecDeque<Send>,
    /// Refusals in `sends`.
    refusals: u16,
    /// Commands in progress whose data came in the capsule, or is coming.
    capsules: u16,
    /// With so many of those, the next one is refused.
    most_capsules: u16,
    /// Commands whose data was asked for and is not all there.
    transfers: u16,
    /// Commands whose data failed its digest, and nobody has asked for since.
    damaged: u32,
    /// Buffers whose last byte is in the batch that is being sent.
    in_batch: Vec<BufRef>,
    released: VecDeque<BufRef>,
    /// Bytes of reads' data that have not left yet.
    unsent: u64,
    sqhd: u16,
    sq_flow_control: bool,
    fault: Option<ProtocolError>,
    /// To be sent as the last thing.
    farewell: Option<TermReq>,
}

impl TargetQueue {
    /// A connection that was just accepted.
    ///
    /// # Panics
    /// When the depth is not 1 to [`MAX_DEPTH`], or MAXH2CDATA is one that ICResp cannot hold: the
    /// caller's mistake.
    #[must_use]
    pub fn new(config: TargetQueueConfig) -> TargetQueue {
        let max = config.max_h2c_data;
        assert!(max >= 4096 && max.is_multiple_of(4), "MAXH2CDATA: 4096 or more, whole dwords");
        let mut queue = TargetQueue {
            config,
            stream: Stream::new(Role::Controller),
            format: Format::default(),
            incoming: Incoming::Nothing,
            slots: Slots::default(),
            events: VecDeque::new(),
            sends: VecDeque::new(),
            refusals: 0,
            capsules: 0,
            most_capsules: u16::MAX,
            transfers: 0,
            damaged: 0,
            in_batch: Vec::new(),
            released: VecDeque::new(),
            unsent: 0,
            sqhd: 0,
            sq_flow_control: true,
            fault: None,
            farewell: None,
        };
        queue.size(config.depth, config.in_capsule_bytes);
        queue
    }

    /// What Fabrics Connect settled: commands at once (entries of the submission queue), and the
    /// most data in a capsule. Tables only grow. The submission queue begins with that Connect: it
    /// has taken the first entry.
    ///
    /// # Panics
    /// When the depth is not 1 to [`MAX_DEPTH`]: the caller's mistake.
    pub fn set_limits(&mut self, depth: u16, in_capsule_bytes: u32) {
        self.size(depth, in_capsule_bytes);
        self.sqhd = 1 % depth;
    }

    fn size(&mut self, depth: u16, in_capsule_bytes: u32) {
        assert!((1..=MAX_DEPTH).contains(&depth), "depth 1 to {MAX_DEPTH}");
        self.config.depth = depth;
        self.config.in_capsule_bytes = in_capsule_bytes;
        self.stream.set_capsule_data_limit(in_capsule_bytes);
        self.slots.grow(depth);
        let room = usize::from(depth);
        // A slot has at most one event waiting.
        self.events.reserve(room.saturating_sub(self.events.len()));
        // A slot has at most one thing to send; refusals come on top, and ICResp.
        self.sends.reserve((2 * room + 1).saturating_sub(self.sends.len()));
        self.in_batch.reserve(room.saturating_sub(self.in_batch.len()));
        // What one batch released, and what ended without being sent.
        self.released.reserve((2 * room).saturating_sub(self.released.len()));
    }

    /// Whether the host uses submission queue flow control; it says so in Connect. Without it, SQHD
    /// is FFFFh and reads may end with the SUCCESS flag instead of a response.
    pub fn set_sq_flow_control(&mut self, on: bool) {
        self.sq_flow_control = on;
    }

    /// Commands in progress whose data came in the capsule, or is coming: each has a buffer that
    /// the queue or the engine holds, at most.
    #[must_use]
    pub fn capsules(&self) -> u16 {
        self.capsules
    }

    /// From now on a command with data in its capsule is refused with Command Interrupted while
    /// there are so many, or more: for when memory is nearly out, since this data comes unasked.
    pub fn limit_capsules(&mut self, most: u16) {
        self.most_capsules = most;
    }

    /// Commands whose data was asked for, or is about to be, and is not all there: they end only
    /// when more is read.
    #[must_use]
    pub fn transfers(&self) -> u16 {
        self.transfers
    }

    /// Commands whose data has failed its digest since this was asked last, each once: also those
    /// that the queue has answered by itself, of which no event tells.
    pub fn take_damaged(&mut self) -> u32 {
        core::mem::take(&mut self.damaged)
    }

    /// Whether [`TargetQueue::poll_event`] has something to tell.
    #[must_use]
    pub fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<TargetEvent> {
        let event = self.events.pop_front()?;
        if let TargetEvent::DataReady { slot } | TargetEvent::DataDigestError { slot } = event {
            // The buffer changes hands.
            self.slots.at(slot).buf = None;
        }
        Some(event)
    }

    /// The command in a slot, as it came.
    ///
    /// # Panics
    /// When there is no such slot.
    #[must_use]
    pub fn sqe(&self, slot: Slot) -> &Sqe {
        self.slots.sqe(slot)
    }

    /// Marks the commands of which the engine has not been told yet, and which `names` means: they
    /// wait for [`TargetQueue::poll_event`], or their in-capsule data is still coming.
    pub fn mark_untold(&mut self, names: impl Fn(&Sqe) -> bool) {
        let TargetQueue { slots, events, incoming, .. } = self;
        let whole = events.iter().filter_map(|event| match *event {
            TargetEvent::Command { slot } => Some(slot),
            TargetEvent::DataReady { .. } | TargetEvent::DataDigestError { .. } => None,
        });
        let part = match *incoming {
            Incoming::Capsule { slot, .. } => Some(slot),
            Incoming::Nothing | Incoming::Drop | Incoming::Transfer { .. } => None,
        };
        for slot in whole.chain(part) {
            let named = names(slots.sqe(slot));
            slots.at(slot).marked |= named;
        }
    }

    /// Whether a command was marked before the engine was told of it.
    ///
    /// # Panics
    /// When there is no such slot.
    #[must_use]
    pub fn is_marked(&self, slot: Slot) -> bool {
        self.slots.get(slot).marked
    }

    /// The data that came in a command's capsule, in a buffer from
    /// [`crate::machine::Buffers::alloc`]: the engine's from now on, to be freed by it. To be taken
    /// before anything else is done with the command.
    ///
    /// # Panics
    /// When there is no such slot.
    pub fn take_data(&mut self, slot: Slot) -> Option<BufRef> {
        self.slots.at(slot).buf.take()
    }

    /// Asks the host for the data of a write: as many bytes as `buf` has, from the start of the
    /// command's data. One R2T names them all, so no host's MAXR2T is exceeded. Ends in `DataReady`
    /// or `DataDigestError`.
    ///
    /// # Panics
    /// When the slot does not hold a command that waits for the engine.
    pub fn request_data(&mut self, slot: Slot, buf: BufRef) {
        debug_assert!(buf.len() <= self.config.max_transfer_bytes, "longer than any transfer");
        let state = self.slots.at(slot);
        assert!(state.stage == Stage::WithEngine && state.buf.is_none(), "a command to be served");
        state.buf = Some(buf);
        if self.fault.is_some() {
            return;
        }
        if buf.is_empty() {
            self.events.push_back(TargetEvent::DataReady { slot });
            return;
        }
        self.transfers += 1;
        state.stage = Stage::Asking;
        state.generation = state.generation.wrapping_add(1) & 0xf;
        self.sends.push_back(Send::R2t(slot));
    }

    /// The whole data of a read. It leaves when [`TargetQueue::complete`] tells that the command
    /// succeeded.
    ///
    /// # Panics
    /// When the slot does not hold a command that waits for the engine, or has data already.
    pub fn send_data(&mut self, slot: Slot, buf: BufRef) {
        debug_assert!(buf.len() <= self.config.max_transfer_bytes, "longer than any transfer");
        let state = self.slots.at(slot);
        assert!(state.stage == Stage::WithEngine && state.buf.is_none(), "a command to be served");
        state.buf = Some(buf);
        state.outgoing = true;
        self.unsent += u64::from(buf.len());
    }

    /// Bytes of data that were handed in with [`TargetQueue::send_data`] and have not left yet.
    #[must_use]
    pub fn data_unsent(&self) -> u64 {
        self.unsent
    }

    /// Ends a command; the response follows the data. When the host is still sending data that was
    /// asked for, the response waits until that has come (the stream stays in step), and the
    /// buffer comes back as a released one instead of by an event.
    ///
    /// # Panics
    /// When the slot does not hold a command that waits for an answer.
    pub fn complete(&mut self, slot: Slot, status: Status, result: u64) {
        let at_fault = self.fault.is_some();
        let state = self.slots.at(slot);
        self.capsules -= u16::from(core::mem::take(&mut state.capsule));
        state.status = status;
        state.result = result;
        match state.stage {
            Stage::WithEngine if at_fault => {}
            Stage::WithEngine => {
                state.stage = Stage::Answered;
                if !state.outgoing
                    && let Some(buf) = state.buf.take()
                {
                    // The data has come, and nobody was told: now nobody needs to be.
                    self.events.retain(|event| !event.ends_transfer_of(slot));
                    self.released.push_back(buf);
                }
                self.sends.push_back(Send::Answer(slot));
            }
            Stage::Asking | Stage::Receiving => state.answered_early = true,
            Stage::Free | Stage::Capsule | Stage::Answered => panic!("a command to be answered"),
        }
    }

    /// The next buffer of [`TargetQueue::send_data`] that nobody outside names any more.
    pub fn poll_released(&mut self) -> Option<BufRef> {
        self.released.pop_front()
    }

    /// Commands in progress.
    #[must_use]
    pub fn in_flight(&self) -> u16 {
        self.slots.in_use()
    }

    /// Buffers of answered commands that the batch under way still names.
    #[must_use]
    pub fn buffers_in_batch(&self) -> usize {
        self.in_batch.len()
    }

    /// Why the connection has to end; set once. The engine closes it gracefully, with a guard.
    #[must_use]
    pub const fn fault(&self) -> Option<&ProtocolError> {
        self.fault.as_ref()
    }

    /// After the connection's `Closed`: every command in progress and every buffer, once.
    pub fn drain(&mut self) -> Option<DrainedSlot> {
        while let Some(event) = self.events.pop_front() {
            if let TargetEvent::Command { slot } = event {
                let buf = self.take_data(slot);
                self.slots.release(slot);
                return Some(DrainedSlot { slot: Some(slot), buf });
            }
        }
        let loose = self.in_batch.pop().or_else(|| self.released.pop_front());
        if let Some(buf) = loose {
            return Some(DrainedSlot { slot: None, buf: Some(buf) });
        }
        let slot = self.slots.any_in_use()?;
        let buf = self.slots.at(slot).buf.take();
        self.slots.release(slot);
        Some(DrainedSlot { slot: Some(slot), buf })
    }

    /// Ends the connection: nothing that comes is looked at any more, nothing but the farewell is
    /// sent.
    fn fail(&mut self, error: ProtocolError) {
        if self.fault.is_some() {
            return;
        }
        if error.answered {
            self.farewell = Some(TermReq::new(Role::Controller, &error, self.stream.header()));
        }
        self.stream.end();
        self.incoming = Incoming::Nothing;
        self.sends.clear();
        self.refusals = 0;
        self.fault = Some(error);
    }
}
