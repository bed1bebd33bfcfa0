//! Probes: reads that nobody waits for, of paths that nobody uses, sent to see how long they take.
//!
//! `finish-time` asks for one when it has placed a user's command; the probe reads the same blocks
//! on another path, whatever the user's command does with them. It is a command of its own, no part
//! of any request. It goes out behind everything that users want sent, on a tag that others can
//! spare, or not at all. It is sent once; what it brings is checked as it comes and kept nowhere;
//! and whatever becomes of it, that is its end. Nobody waits for that: a head comes to rest, leaves
//! or takes other parameters while a probe of it is in flight. Its tag is taken until it is
//! answered, or until its connection has closed.

use super::Shard;
use super::command::{Command, Origin, Place, Work};
use super::head::{Carrier, HeadState};
use super::issue::NLB_BLOCKS_MAX;
use super::queue::{Phase, Queue};
use crate::mail::{Mail, PeerMail};
use crate::table::{Key, Table};
use crate::topology::HeadId;
use anabranch_policy::{Charge, Policy, probe_failed, start_probe};
use anabranch_proto::host_queue::{Attempt, HostData};
use anabranch_proto::machine::{Output, Time};
use anabranch_proto::nvme::io;
use anabranch_proto::nvme::sqe::Sqe;
use anabranch_proto::nvme::status::Status;

/// Probes of a worker at once: tables of commands have room for so many beside all others.
pub(super) const PROBES_MAX: u32 = 64;

/// One tag in so many of a queue pair is never taken by a probe.
const SPARED: u16 = 8;

/// A probe that is wanted on a queue pair, until that has been given all its commands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    head: HeadId,
    /// The statistics entry of the path.
    stats: u32,
    lba: u64,
    blocks: u32,
}

impl Queue {
    /// Whether a probe would take nothing from anybody.
    pub(super) fn can_spare(&self) -> bool {
        let spared = (self.open.queue_size / SPARED).max(1);
        self.phase == Phase::Open && !self.has_waiting() && self.link.free_tags() > spared
    }

    /// Takes a probe at once, or not at all.
    fn take_probe(
        &mut self,
        (key, slot): (Key, u16),
        (sqe, data): (Sqe, HostData),
        commands: &mut Table<Command>,
    ) -> bool {
        if !self.can_spare() {
            return false;
        }
        let Ok(cid) = self.link.submit(sqe, data, key.token()) else { return false };
        commands[key].place = Place::Flying { slot, cid };
        self.fly(commands, key);
        true
    }
}

impl HeadState {
    /// Whether probes of it may be sent. Of a head at rest nothing is.
    fn takes_probes(&self) -> bool {
        let parameters = &self.view.parameters;
        let wanted = parameters.policy == Policy::FinishTime && parameters.finish_time.probes;
        wanted && !self.gone && self.view.quiesced == 0 && self.view.frozen == 0
    }
}

impl Shard {
    /// The policy has placed this command and wants to know about the path at `index`.
    #[cold]
    pub(super) fn want_probe(&mut self, key: Key, index: usize, now: Time) {
        let command = &self.commands[key];
        let Origin::Own { work, .. } = &command.origin else { return };
        let (Work::Read { lba, blocks, .. } | Work::Write { lba, blocks, .. }) = *work else {
            return;
        };
        let Some(head) = self.heads.get(command.head.0) else { return };
        let Some(path) = head.paths.get(index) else { return };
        let wanted = Wanted { head: command.head, stats: path.stats, lba, blocks };
        match path.carriers.reads {
            Carrier::Own { slot } => {
                let queue = self.queues[usize::from(slot)].as_mut();
                if let Some(queue) = queue.filter(|queue| queue.probe.is_none()) {
                    queue.probe = Some(wanted);
                    self.probe_wanted = true;
                } else {
                    self.moved_nothing(wanted.head, blocks);
                }
            }
            Carrier::Peer { .. } => self.send_probe(wanted, now),
            Carrier::None => self.moved_nothing(wanted.head, blocks),
        }
    }

    /// Sends the probes that are wanted of this worker's own queue pairs: all of these have been
    /// given what users want by now.
    #[inline]
    pub(super) fn send_wanted(&mut self, now: Time) {
        if !self.probe_wanted {
            return;
        }
        self.probe_wanted = false;
        for slot in 0..self.queues.len() {
            if let Some(wanted) = self.queues[slot].as_mut().and_then(|queue| queue.probe.take()) {
                self.send_probe(wanted, now);
                self.announce(slot as u16);
            }
        }
    }

    /// Sends a probe, if it is still in place and takes nothing from anybody.
    #[cold]
    fn send_probe(&mut self, wanted: Wanted, now: Time) {
        let Some(key) = self.make_probe(wanted, now) else {
            return self.moved_nothing(wanted.head, wanted.blocks);
        };
        let command = &mut self.commands[key];
        let Some(head) = self.heads.get_mut(wanted.head.0) else { return };
        let path = &head.paths[usize::from(command.path)];
        let Origin::Probe { lba, blocks } = command.origin else { return };
        let bytes = blocks * head.view.block_bytes;
        let (sqe, data) = (io::read(path.view.nsid, lba, blocks), HostData::Sink(bytes));
        let sent = match path.carriers.reads {
            Carrier::Own { slot } => {
                let queue = self.queues[usize::from(slot)].as_mut();
                queue.is_some_and(|queue| {
                    queue.take_probe((key, slot), (sqe, data), &mut self.commands)
                })
            }
            Carrier::Peer { worker } => {
                command.place = Place::Carried;
                let controller = command.controller;
                let entry = self.controllers.get(controller.0);
                entry.is_some_and(|entry| {
                    let (association, token) = (entry.view.association, key.token());
                    let (head, epoch) = (wanted.head, self.topology.epoch);
                    let mail =
                        PeerMail::Carry { controller, association, head, epoch, sqe, data, token };
                    self.outputs.push_back(Output::Mail { to: worker, mail: Mail::Peer(mail) });
                    true
                })
            }
            Carrier::None => false,
        };
        if !sent {
            self.commands.remove(key);
            return self.moved_nothing(wanted.head, wanted.blocks);
        }
        let charge = start_probe(path.load(), bytes, now.ns());
        self.commands[key].charge = Some(charge.in_epoch(head.view.policy_epoch as u16));
        let entry = &mut self.stats.paths[wanted.stats as usize];
        entry.probing = true;
        entry.probes += 1;
        entry.probe_bytes += u64::from(bytes);
        self.probes += 1;
    }

    /// The command, when a probe may go out now. It is on no list and charged nothing.
    fn make_probe(&mut self, wanted: Wanted, now: Time) -> Option<Key> {
        let head = self.heads.get(wanted.head.0)?;
        let index = head.paths.iter().position(|path| path.stats == wanted.stats)?;
        let path = &head.paths[index];
        let alone = !self.stats.paths[wanted.stats as usize].probing;
        let room = self.probes < PROBES_MAX && self.has_spare_room();
        if !(head.takes_probes() && path.usable && alone && room) {
            return None;
        }
        // Its size is that of a command; limits that have shrunk since hold for it already.
        let most = head.view.limits.max_transfer_bytes / head.view.block_bytes;
        let blocks = wanted.blocks.min(most.clamp(1, NLB_BLOCKS_MAX));
        let origin = Origin::Probe { lba: wanted.lba, blocks };
        let (controller, stats, path) = (path.view.controller, wanted.stats, index as u16);
        let new = Command::new(origin, wanted.head, now);
        self.commands.insert_with(|| Command { controller, stats, path, ..new })
    }

    /// The controller has answered a probe. A status says about the path what it would say on a
    /// user's command.
    #[cold]
    pub(super) fn probe_answered(&mut self, key: Key, status: Status, now: Time) {
        let Some((command, charge)) = self.end_probe(key) else { return };
        if status.is_success() {
            return self.learn_from(&command, charge, now);
        }
        self.stats.paths[command.stats as usize].probe_errors += 1;
        let head = self.heads.get(command.head.0);
        if let Some((path, charge)) = head.and_then(|head| head.path_of(&command)).zip(charge) {
            probe_failed(path.load(), charge);
        }
        if let Origin::Probe { blocks, .. } = command.origin {
            self.moved_nothing(command.head, blocks);
        }
        self.heed(&command, status);
    }

    /// A probe of so many blocks was not sent, or brought no data: others may be.
    fn moved_nothing(&mut self, head: HeadId, blocks: u32) {
        if let Some(head) = self.heads.get_mut(head.0) {
            head.selector.probe_moved_nothing(blocks * head.view.block_bytes);
        }
    }

    /// A command of nobody's has ended well.
    pub(super) fn learn_from(&mut self, command: &Command, charge: Option<Charge>, now: Time) {
        let head = self.heads.get_mut(command.head.0);
        let due = head.zip(charge).and_then(|(head, charge)| {
            // Among what this head has: the path may have left it.
            head.measure(command, charge, now)
        });
        if let Some(head) = due {
            self.weights_due(head, now);
        }
    }

    /// A command of nobody's was answered with an error: what that says about its path.
    pub(super) fn heed(&mut self, command: &Command, status: Status) {
        if status.is(Status::INVALID_NAMESPACE) {
            self.suspect_namespace(command.controller, command.head);
        } else if status.is_path_error() && !status.dnr() {
            self.path_failed(command.controller, command.head, Some(status));
        }
    }

    /// The queue pair of a probe is gone, or the worker that has it could not take the probe.
    #[cold]
    pub(super) fn probe_lost(&mut self, key: Key, attempt: Attempt) {
        let Some((command, _)) = self.end_probe(key) else { return };
        if attempt == Attempt::Uncertain {
            self.stats.paths[command.stats as usize].probe_errors += 1;
        } else if let Origin::Probe { blocks, .. } = command.origin {
            self.moved_nothing(command.head, blocks);
        }
    }

    /// A probe is over: its charge goes back.
    fn end_probe(&mut self, key: Key) -> Option<(Command, Option<Charge>)> {
        let mut command = self.commands.remove(key)?;
        let charge = command.charge.take();
        let entry = &mut self.stats.paths[command.stats as usize];
        entry.probing = false;
        if let Some(charge) = charge {
            anabranch_policy::finish(charge, entry.ledgers(self.me.index()));
        }
        self.probes -= 1;
        Some((command, charge))
    }
}

#[cfg(test)]
mod tests;
