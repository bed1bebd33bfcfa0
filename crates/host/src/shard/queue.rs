//! One queue pair of this worker: its connection, its life, the commands on it.

use super::command::{Command, Place};
use super::connect_data::{ConnectData, Loan};
use super::crowd::{Crowd, enough};
use super::probe::Wanted;
use crate::mail::{OpenQueue, Takes};
use crate::table::{Key, List, Table};
use crate::topology::{Association, ControllerId};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use anabranch_policy::OpClass;
use anabranch_proto::host_queue::{Cid, Completion, HostData, HostQueue, HostQueueConfig};
use anabranch_proto::machine::{Buffers, CloseCause, ConnId, Time};
use anabranch_proto::nvme::fabrics::ConnectResponse;
use anabranch_proto::nvme::sqe::Sqe;
use core::time::Duration;

/// The token of the Fabrics Connect command; command tokens have 60 bits.
const CONNECT_TOKEN: u64 = 1 << 60;

/// Where a queue pair is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// TCP, ICReq and Fabrics Connect are under way.
    Opening,
    /// Carries commands.
    Open,
    /// Given up: its connection is being aborted, `Closed` is awaited.
    Closing,
}

/// What the shard has to do after bytes came in.
pub(super) enum Progress {
    Nothing,
    /// The queue pair has just opened.
    Opened,
    /// It must be given up.
    GiveUp(String),
}

/// One queue pair of this worker.
pub(super) struct Queue {
    pub(super) open: Box<OpenQueue>,
    pub(super) conn: ConnId,
    pub(super) phase: Phase,
    /// When the present step of opening must have ended.
    pub(super) deadline: Time,
    /// When all of it must have.
    opened_by: Time,
    pub(super) link: HostQueue,
    /// Commands without a tag, in order; where there is a crowd, those that have come since.
    pub(super) waiting: List,
    /// While nearly all tags are taken, if several devices share them.
    crowd: Option<Box<Crowd>>,
    /// So many are free otherwise; 0: one device has them alone.
    enough: u16,
    /// Commands of quiesced heads that were waiting for a tag.
    pub(super) set_aside: List,
    /// Commands with a tag, oldest first.
    pub(super) flying: List,
    /// A probe to send when nothing waits.
    pub(super) probe: Option<Wanted>,
    /// Time limit of a command.
    pub(super) io_timeout: Duration,
    /// The driver has been told that there are bytes to send.
    pub(super) announced: bool,
    /// Control has asked to stop and waits for the answer.
    pub(super) stop_asked: bool,
    /// When an orderly end (a termination request was sent) must be over.
    pub(super) close_guard: Option<Time>,
    /// Why it was given up, until control has been told.
    pub(super) failure: Option<String>,
    /// It has been open.
    pub(super) was_open: bool,
    connect_data: Option<Loan>,
    /// The Connect that was submitted.
    connect: Option<Cid>,
}

impl Queue {
    pub(super) fn new(open: Box<OpenQueue>, conn: ConnId, now: Time) -> Queue {
        let config = HostQueueConfig {
            qid: open.qid,
            depth: open.queue_size,
            hdr_digest: open.hdr_digest,
            data_digest: open.data_digest,
            in_capsule_bytes: open.in_capsule_bytes,
        };
        Queue {
            conn,
            phase: Phase::Opening,
            deadline: now.after(open.tcp_limit.min(open.timeout)),
            opened_by: now.after(open.timeout),
            link: HostQueue::new(config),
            waiting: List::default(),
            crowd: None,
            enough: 0,
            set_aside: List::default(),
            flying: List::default(),
            probe: None,
            io_timeout: open.io_timeout,
            announced: false,
            stop_asked: false,
            close_guard: None,
            failure: None,
            was_open: false,
            connect_data: None,
            connect: None,
            open,
        }
    }

    /// What it is a queue pair of.
    pub(super) fn of(&self) -> (ControllerId, Association) {
        (self.open.controller, self.open.association)
    }

    /// Whether it is for such commands.
    pub(super) fn takes(&self, class: OpClass) -> bool {
        match self.open.takes {
            Takes::All => true,
            Takes::Reads => class == OpClass::Read,
            Takes::Others => class != OpClass::Read,
        }
    }

    /// TCP is up.
    pub(super) fn is_connected(&mut self, now: Time) {
        self.link.connected();
        self.deadline = now.after(self.open.icresp_limit).min(self.opened_by);
    }

    /// Looks at what the bytes that came in have changed, apart from commands' completions.
    pub(super) fn progress(
        &mut self,
        memory: &mut ConnectData,
        bufs: &mut dyn Buffers,
    ) -> Progress {
        if self.phase == Phase::Closing {
            return Progress::Nothing;
        }
        if let Some(fault) = self.link.fault() {
            return Progress::GiveUp(fault.to_string());
        }
        if self.phase == Phase::Opening && self.connect.is_none() && self.link.is_ready() {
            self.deadline = self.opened_by;
            return self.send_connect(memory, bufs);
        }
        Progress::Nothing
    }

    /// Sends Connect, unless its data must wait for room: then the shard asks again.
    fn send_connect(&mut self, memory: &mut ConnectData, bufs: &mut dyn Buffers) -> Progress {
        let Some(loan) = memory.lend(&self.open.connect_data, bufs) else {
            return Progress::Nothing;
        };
        let data = loan.buf;
        self.connect_data = Some(loan);
        let sqe = self.open.connect.sqe();
        match self.link.submit(sqe, HostData::Out(data), CONNECT_TOKEN) {
            Ok(cid) => {
                self.connect = Some(cid);
                Progress::Nothing
            }
            Err(_) => Progress::GiveUp("no tag for Connect".to_string()),
        }
    }

    /// A batch has left. Connect's data is not needed any more once it was in one: a controller
    /// that never answers holds no room that others wait for.
    pub(super) fn transmitted(&mut self, memory: &mut ConnectData, bufs: &mut dyn Buffers) {
        self.link.transmitted();
        if self.connect_data.is_some() && self.connect.is_some_and(|cid| self.link.has_left(cid)) {
            self.free_connect_data(memory, bufs);
        }
    }

    /// Takes the answer to Fabrics Connect.
    fn connected(
        &mut self,
        done: &Completion,
        memory: &mut ConnectData,
        bufs: &mut dyn Buffers,
    ) -> Progress {
        self.free_connect_data(memory, bufs);
        if self.phase == Phase::Closing {
            // Too late: it was given up before it could open.
            return Progress::Nothing;
        }
        if !done.status.is_success() {
            let why = format!("Connect refused: {}", done.status);
            return Progress::GiveUp(why);
        }
        let answer = ConnectResponse::from_result(done.result);
        if answer.authentication_required() {
            // As on the admin queue: it may be asked for no more at the next attempt.
            let why = "the controller requires authentication".to_string();
            return Progress::GiveUp(why);
        }
        // Linux's target before 5.15 says 0 here, whichever it is. Our data has named it, and hosts
        // of Linux and SPDK look at no number but that of the admin queue.
        if answer.cntlid() != 0 && answer.cntlid() != self.cntlid_asked_for() {
            let why = "it belongs to another controller".to_string();
            return Progress::GiveUp(why);
        }
        self.phase = Phase::Open;
        self.was_open = true;
        Progress::Opened
    }

    /// The controller identifier in the Connect data (bytes 16 and 17).
    fn cntlid_asked_for(&self) -> u16 {
        u16::from_le_bytes([self.open.connect_data[16], self.open.connect_data[17]])
    }

    /// The next completion of a command; that of Connect is taken out here.
    #[inline]
    pub(super) fn poll_completion(
        &mut self,
        memory: &mut ConnectData,
        bufs: &mut dyn Buffers,
    ) -> Option<Result<(Key, Completion), Progress>> {
        let done = self.link.poll_completion()?;
        if done.user == CONNECT_TOKEN {
            return Some(Err(self.connected(&done, memory, bufs)));
        }
        Some(Ok((Key::from_token(done.user), done)))
    }

    /// Whether a command that comes now gets a tag without waiting.
    #[inline]
    pub(super) fn takes_at_once(&self) -> bool {
        self.waiting.is_empty()
            && self.crowd.is_none()
            && self.phase == Phase::Open
            && self.link.free_tags() > self.enough
    }

    /// Whether commands wait for a tag.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty() || self.crowd.as_ref().is_some_and(|crowd| !crowd.is_served())
    }

    /// Whether commands wait for a tag, or those of several devices did a moment ago.
    #[inline]
    pub(super) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty() || self.crowd.is_some()
    }

    /// So many devices use it.
    pub(super) fn is_used_by(&mut self, devices: u32) {
        self.enough = if devices > 1 { enough(self.tags()) } else { 0 };
    }

    fn tags(&self) -> u16 {
        self.open.queue_size
    }

    /// Gives a command its tag. Tags were free a moment ago; a queue pair that refuses all the same
    /// has faulted: the command waits, and goes elsewhere when it closes.
    #[inline]
    pub(super) fn submit(
        &mut self,
        (key, slot): (Key, u16),
        (sqe, data): (Sqe, HostData),
        now: Time,
        commands: &mut Table<Command>,
    ) -> bool {
        let taken = self.link.submit(sqe, data, key.token());
        let command = &mut commands[key];
        if let Ok(cid) = taken {
            command.place = Place::Flying { slot, cid };
            command.tagged = now;
            self.fly(commands, key);
        } else {
            command.place = Place::Waiting { slot };
            self.waiting.push_back(commands, key);
        }
        taken.is_ok()
    }

    /// A command has got a tag.
    #[inline]
    pub(super) fn fly(&mut self, commands: &mut Table<Command>, key: Key) {
        self.flying.push_back(commands, key);
        if let Some(crowd) = &mut self.crowd {
            crowd.took(commands[key].head);
        }
    }

    /// It has none any more.
    #[inline]
    pub(super) fn land(&mut self, commands: &mut Table<Command>, key: Key) {
        self.flying.unlink(commands, key);
        if let Some(crowd) = &mut self.crowd {
            crowd.gave(commands[key].head);
        }
    }

    /// All that waits for a tag is on the list again. A crowd goes on with what stays there.
    pub(super) fn scatter(&mut self, commands: &mut Table<Command>) {
        let Some(crowd) = &mut self.crowd else { return };
        let mut all = crowd.scatter(commands);
        while let Some(key) = self.waiting.pop_front(commands) {
            all.push_back(commands, key);
        }
        self.waiting = all;
    }

    /// Takes the command off that gets a tag now.
    #[inline]
    fn next_waiting(&mut self, commands: &mut Table<Command>) -> Option<Key> {
        let free = self.link.free_tags();
        if self.phase != Phase::Open || free == 0 {
            return None;
        }
        if free > self.enough && self.crowd.is_none() {
            return self.waiting.pop_front(commands);
        }
        self.next_of_crowd(free, commands)
    }

    /// The same where several devices want what is left.
    #[inline(never)]
    fn next_of_crowd(&mut self, free: u16, commands: &mut Table<Command>) -> Option<Key> {
        if self.enough == 0 || self.is_half_free() {
            self.scatter(commands);
            self.crowd = None;
            return self.waiting.pop_front(commands);
        }
        if self.crowd.is_none() && self.waiting.is_empty() {
            return None;
        }
        let tags = self.tags();
        let new = || Box::new(Crowd::of(&self.flying, tags, commands));
        let crowd = self.crowd.get_or_insert_with(new);
        while let Some(key) = self.waiting.pop_front(commands) {
            crowd.wait(commands, key);
        }
        crowd.next(free, commands)
    }

    fn is_half_free(&self) -> bool {
        !self.has_waiting() && self.link.free_tags() > self.link.in_flight()
    }

    /// Hands waiting commands to the queue pair while it has tags.
    pub(super) fn submit_waiting(
        &mut self,
        now: Time,
        commands: &mut Table<Command>,
        slot: u16,
        mut make: impl FnMut(&mut Command) -> (Sqe, HostData),
    ) {
        while let Some(key) = self.next_waiting(commands) {
            let form = make(&mut commands[key]);
            if !self.submit((key, slot), form, now, commands) {
                return;
            }
        }
    }

    /// Takes those commands back that fit and of which nothing was sent, though they have a tag: a
    /// batch may not leave for long, when the controller does not read.
    pub(super) fn take_unsent(
        &mut self,
        commands: &mut Table<Command>,
        fits: impl Fn(&Command) -> bool,
        taken: &mut Vec<Key>,
    ) {
        // What was given up waits for its connection to be closed.
        let mut next = self.flying.front(commands).filter(|_| self.phase == Phase::Open);
        while let Some(key) = next {
            next = self.flying.after(commands, key);
            let command = &commands[key];
            if let Place::Flying { cid, .. } = command.place
                && fits(command)
                && self.link.recall(cid)
            {
                self.land(commands, key);
                taken.push(key);
            }
        }
    }

    /// When the oldest command (or the opening) is late.
    pub(super) fn next_deadline(&self, commands: &Table<Command>) -> Option<Time> {
        match self.phase {
            Phase::Opening => Some(self.deadline),
            Phase::Closing => self.close_guard,
            Phase::Open => {
                let oldest = self.flying.front(commands)?;
                Some(commands[oldest].tagged.after(self.io_timeout))
            }
        }
    }

    /// Why a closed connection ended, in words.
    pub(super) fn close_reason(&self, cause: CloseCause) -> String {
        match self.phase {
            Phase::Opening => format!("connecting: {cause}"),
            _ => cause.to_string(),
        }
    }

    /// Gives back the Connect data, once nobody outside can name it.
    pub(super) fn free_connect_data(&mut self, memory: &mut ConnectData, bufs: &mut dyn Buffers) {
        if let Some(loan) = self.connect_data.take() {
            memory.take_back(&loan, bufs);
        }
    }
}
