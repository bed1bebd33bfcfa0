//! What every part of control writes to: outputs, mail, and notices to the parts above.

use super::controller::Controller;
use crate::config::HostConfig;
use crate::event::HostEvent;
use crate::mail::ToShard;
use crate::topology::ControllerId;
use crate::verb::{Reply, VerbError};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use anabranch_proto::machine::{ConnId, Output, Time, VerbId, WorkerId};
use core::convert::Infallible;

/// What control wants done. User verbs never reach it, so neither do their replies.
pub type ControlOutput = Output<ToShard, Reply<Infallible>, HostEvent>;

/// Something that happened inside one controller and concerns the parts above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// Identify Controller was read; the connect sequence waits for admission to a subsystem.
    Identified,
    /// Its namespaces have changed, it has not said yet which.
    Unheard { unused: bool },
    /// It has named the namespaces that have changed.
    Named,
    /// Some namespaces whose users wait for a look were seen to be what they were.
    Seen,
    /// The namespace list was read.
    Scanned,
    /// An ANA log was processed.
    AnaRead,
    /// It was live and is so no more.
    Lost,
    /// It is being removed: what do the shards have in flight on it?
    Draining,
    /// The controller is gone; nothing of it is left outside.
    Gone,
}

/// Room for so many outputs is kept.
const OUTPUTS_KEPT: usize = 64;

/// The writing end of control.
pub(super) struct Env {
    /// The time of the input being handled.
    pub(super) now: Time,
    pub(super) config: HostConfig,
    /// The topology has changed and must be published at the end of this input.
    pub(super) dirty: bool,
    outputs: VecDeque<ControlOutput>,
    mail: Vec<(WorkerId, ToShard)>,
    notices: VecDeque<(ControllerId, Notice)>,
    pub(super) conns: Conns,
}

/// The names of connections.
#[derive(Default)]
pub(super) struct Conns {
    next: u32,
    /// Those that are not over yet.
    open: BTreeSet<ConnId>,
}

impl Conns {
    /// A name for a connection. It comes again after 2^31 others, when the former has ended: a few
    /// weeks, where a thousand ports are dead and each is tried every second.
    pub(super) fn open(&mut self) -> ConnId {
        loop {
            let conn = ConnId::opened(self.next);
            self.next = (self.next + 1) & 0x7fff_ffff;
            if self.open.insert(conn) {
                return conn;
            }
        }
    }

    pub(super) fn closed(&mut self, conn: ConnId) {
        self.open.remove(&conn);
    }
}

impl Env {
    pub(super) fn new(config: HostConfig) -> Env {
        Env {
            now: Time::ZERO,
            config,
            dirty: false,
            outputs: VecDeque::new(),
            mail: Vec::new(),
            notices: VecDeque::new(),
            conns: Conns::default(),
        }
    }

    pub(super) fn output(&mut self, output: ControlOutput) {
        self.outputs.push_back(output);
    }

    pub(super) fn event(&mut self, event: HostEvent) {
        self.output(Output::Event(event));
    }

    pub(super) fn reply(&mut self, id: VerbId, reply: Reply<Infallible>) {
        self.output(Output::Reply { id, reply });
    }

    pub(super) fn refuse(&mut self, id: VerbId, error: VerbError) {
        self.reply(id, Reply::Error(error));
    }

    /// Mail leaves behind the topology of the same input, so that a shard told to stop a queue
    /// pair already knows why.
    pub(super) fn mail(&mut self, to: WorkerId, mail: ToShard) {
        self.mail.push((to, mail));
    }

    pub(super) fn mail_all(&mut self, mut mail: impl FnMut() -> ToShard) {
        for worker in 1..=self.config.data_workers {
            self.mail(WorkerId(worker), mail());
        }
    }

    /// A new picture for everybody, ahead of all mail of this input.
    pub(super) fn mail_first(&mut self, mut mail: impl FnMut() -> ToShard) {
        for worker in 1..=self.config.data_workers {
            self.output(Output::Mail { to: WorkerId(worker), mail: mail() });
        }
    }

    /// Whether there is something to send.
    pub(super) fn has_mail(&self) -> bool {
        !self.mail.is_empty()
    }

    pub(super) fn post(&mut self) {
        for (to, mail) in self.mail.drain(..) {
            self.outputs.push_back(Output::Mail { to, mail });
        }
    }

    pub(super) fn notice(&mut self, controller: &Controller, notice: Notice) {
        self.notices.push_back((controller.id, notice));
    }

    pub(super) fn next_notice(&mut self) -> Option<(ControllerId, Notice)> {
        self.notices.pop_front()
    }

    pub(super) fn next_output(&mut self) -> Option<ControlOutput> {
        let output = self.outputs.pop_front();
        // Thousands of namespaces that come at once tell as many events, once.
        if self.outputs.is_empty() && self.outputs.capacity() > OUTPUTS_KEPT {
            self.outputs.shrink_to(OUTPUTS_KEPT);
        }
        output
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_its_name_alone() {
        let mut conns = Conns::default();
        let (first, second) = (conns.open(), conns.open());
        conns.next = 0x7fff_ffff;
        assert_eq!(conns.open().index(), 0x7fff_ffff);
        conns.closed(second);
        assert_eq!((first.index(), conns.open()), (0, second));
    }
}
