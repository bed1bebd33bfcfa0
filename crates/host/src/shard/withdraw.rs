//! Requests that nobody waits for any more.
//!
//! A user may lose whom it has submitted for, such as a client whose connection broke. That one may
//! be back at once, on another worker, and ask again for what it was not answered. What waits here
//! on its behalf must not be sent after that: a write could undo what the same client is answered
//! meanwhile. So nothing of a withdrawn request is sent, nor sent again, also if it has its tag
//! and stands behind a batch that does not leave; what a controller has is waited for, as for any
//! other, and counted ([`Leftovers`](crate::Leftovers)), so that nobody need begin before it has
//! ended. (A read that is stuck on a silent path ends as soon as it would be
//! rescued: its buffer is free then.)

use super::Shard;
use super::command::{Carried, Command, Origin, Place, Request};
use crate::mail::{CommandOutcome, Mail, PeerMail};
use crate::table::{Key, List, Table};
use crate::topology::HeadId;
use crate::user::IoError;
use alloc::sync::Arc;
use alloc::vec::Vec;
use anabranch_proto::host_queue::Attempt;
use anabranch_proto::machine::{Buffers, Output, Time, WorkerId};
use core::cmp::Reverse;

impl Shard {
    /// Marks requests; [`Shard::end_withdrawn`] does the rest, where buffers are at hand.
    pub(super) fn mark_withdrawn(&mut self, head: HeadId, theirs: &dyn Fn(u64) -> bool) {
        let leftovers = self.heads.get(head.0).map(|head| &head.view.leftovers);
        for request in self.requests.values_mut() {
            if request.head == head && theirs(request.tag) {
                let before = request.error.replace(IoError::Withdrawn);
                self.some_withdrawn = true;
                if before != Some(IoError::Withdrawn) {
                    let changes = request.op.changes();
                    leftovers.zip(changes.as_ref()).iter().for_each(|(it, all)| it.begin(all));
                }
            }
        }
    }

    /// Ends what waits of withdrawn requests.
    #[cold]
    pub(super) fn end_withdrawn(&mut self, now: Time, bufs: &mut dyn Buffers) {
        self.some_withdrawn = false;
        self.end_withdrawn_requests(now);
        let mut ended = Vec::new();
        let withdrawn = |command: &Command| is_withdrawn(command, &self.requests);
        for queue in self.queues.iter_mut().flatten() {
            queue.take_unsent(&mut self.commands, withdrawn, &mut ended);
            queue.scatter(&mut self.commands);
            take(&mut queue.waiting, &mut self.commands, withdrawn, &mut ended);
            take(&mut queue.set_aside, &mut self.commands, withdrawn, &mut ended);
        }
        for head in self.heads.values_mut() {
            take(&mut head.requeue, &mut self.commands, withdrawn, &mut ended);
        }
        let delayed = |command: &Command| {
            matches!(command.place, Place::Delayed { .. } | Place::Doubted { .. })
        };
        let commands = self.commands.keys().map(|key| (key, &self.commands[key]));
        let commands = commands.filter(|(_, it)| delayed(it) && withdrawn(it));
        ended.extend(commands.map(|(key, _)| key));
        for key in ended {
            let place = self.commands[key].place;
            let on_a_path = matches!(
                place,
                Place::Waiting { .. } | Place::Flying { .. } | Place::Doubted { .. }
            );
            if on_a_path {
                self.leave_path(key);
            }
            self.end_command(key, Err(IoError::Withdrawn), now, bufs);
        }
        // What does not wait any more needs no place among what is to be tried again.
        self.delayed.retain(|Reverse((_, key))| self.commands.get(*key).is_some());
        self.recall_carried();
    }

    /// What other workers are to carry may wait there for a tag.
    fn recall_carried(&mut self) {
        let carried = |key: &Key| {
            let command = &self.commands[*key];
            command.place == Place::Carried && self.was_withdrawn(command)
        };
        let tokens = self.commands.keys().filter(carried).map(Key::token);
        let mut tokens: Vec<u64> = tokens.collect();
        if tokens.is_empty() {
            return;
        }
        tokens.sort_unstable();
        let tokens: Arc<[u64]> = tokens.into();
        for to in (1..self.workers).map(WorkerId).filter(|&to| to != self.me.id) {
            let mail = Mail::Peer(PeerMail::Recall { tokens: Arc::clone(&tokens) });
            self.outputs.push_back(Output::Mail { to, mail });
        }
    }

    /// Another worker does not want those commands sent any more.
    pub(super) fn give_back(&mut self, to: WorkerId, tokens: &[u64]) {
        let theirs = |command: &Command| match command.origin {
            Origin::Peer(Carried { worker, token, .. }) => {
                worker == to && tokens.binary_search(&token).is_ok()
            }
            Origin::Own { .. } | Origin::Probe { .. } | Origin::LeftBehind => false,
        };
        let mut unsent = Vec::new();
        for queue in self.queues.iter_mut().flatten() {
            queue.take_unsent(&mut self.commands, theirs, &mut unsent);
            queue.scatter(&mut self.commands);
            take(&mut queue.waiting, &mut self.commands, theirs, &mut unsent);
            take(&mut queue.set_aside, &mut self.commands, theirs, &mut unsent);
        }
        for key in unsent {
            let Origin::Peer(Carried { token, .. }) = self.commands[key].origin else { continue };
            let outcome = CommandOutcome::Lost { attempt: Attempt::NeverSent, gone: None };
            self.answer_peer(key, to, token, outcome);
        }
    }

    /// No further command is made of them, and none of those that came while their head was frozen.
    fn end_withdrawn_requests(&mut self, now: Time) {
        let mut ended = Vec::new();
        let withdrawn = |request: &Request| request.error == Some(IoError::Withdrawn);
        for head in self.heads.values_mut() {
            take(&mut head.issue, &mut self.requests, withdrawn, &mut ended);
            take(&mut head.held, &mut self.requests, withdrawn, &mut ended);
        }
        for key in ended {
            let request = &mut self.requests[key];
            request.listed = false;
            if request.outstanding == 0 {
                self.finish_request(key, now);
            }
        }
    }

    /// Whether a command is part of a withdrawn request.
    #[inline]
    pub(super) fn was_withdrawn(&self, command: &Command) -> bool {
        is_withdrawn(command, &self.requests)
    }
}

fn is_withdrawn(command: &Command, requests: &Table<Request>) -> bool {
    let Origin::Own { request, .. } = command.origin else { return false };
    requests.get(request).is_some_and(|request| request.error == Some(IoError::Withdrawn))
}

/// Takes those entries off a list that fit; the others keep their order.
fn take<T>(list: &mut List, table: &mut Table<T>, fits: impl Fn(&T) -> bool, taken: &mut Vec<Key>) {
    for _ in 0..list.len() {
        let Some(key) = list.pop_front(table) else { return };
        if fits(&table[key]) {
            taken.push(key);
        } else {
            list.push_back(table, key);
        }
    }
}
