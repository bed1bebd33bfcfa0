//! The part of a server that lives on the control worker: listeners, and what is offered.

use super::connection::{Out, Outputs};
use super::exports::FIRST_LISTENER;
use super::{Access, Export, MAX_EXPORTS, NbdError, NbdEvent, NbdMail, NbdReply, NbdVerb};
use anabranch_proto::machine::{
    ConnId, Endpoint, ListenerId, Output, SocketAccess, SocketOptions, SystemError, VerbId,
    WorkerId,
};
use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;

pub(super) struct Control {
    /// Data workers are 1 to this.
    data_workers: u16,
    /// How many clients each of them has: those that were handed over and are not known to be gone.
    clients: Vec<usize>,
    /// The data worker that got the last connection.
    last_worker: u16,
    /// Who got which connection, until its name is used again: one that is over by then stays ours.
    handed: HashMap<ConnId, WorkerId>,
    listeners: Vec<Listener>,
    next_listener: u32,
    /// What is offered, and to the clients of which listener.
    exports: Vec<(ListenerId, Export)>,
    epoch: u64,
    /// Verbs that wait for data workers and listeners: offers by epoch, a drain.
    offers: Vec<Pending>,
    drain: Option<Pending>,
    draining: bool,
}

struct Listener {
    id: ListenerId,
    at: Endpoint,
    access: SocketAccess,
    bound: bool,
    /// It begins when this one, which has its address, has ended.
    waits: Option<ListenerId>,
    /// Being given up, for the verb of this epoch.
    leaving: Option<u64>,
}

struct Pending {
    verb: VerbId,
    epoch: u64,
    /// Workers that have not answered, and listeners that have not begun or ended.
    missing: usize,
    /// What is said then.
    outcome: Outcome,
}

enum Outcome {
    Done,
    Added { listener: ListenerId, at: Endpoint },
    Failed(NbdError),
}

impl Listener {
    fn begin(&self) -> Out {
        let options = SocketOptions { access: self.access, ..SocketOptions::default() };
        Output::Listen { listener: self.id, at: self.at.clone(), options }
    }
}

impl Outcome {
    fn is_added_at(&self, id: ListenerId) -> bool {
        matches!(self, Outcome::Added { listener, .. } if *listener == id)
    }
}

impl Control {
    pub(super) fn new(data_workers: u16, exports: &[(ListenerId, Export)]) -> Control {
        Control {
            data_workers,
            clients: vec![0; data_workers.into()],
            last_worker: 0,
            handed: HashMap::new(),
            listeners: Vec::new(),
            next_listener: FIRST_LISTENER.0 + 1,
            exports: exports.to_vec(),
            epoch: 0,
            offers: Vec::new(),
            drain: None,
            draining: false,
        }
    }

    pub(super) fn listen(
        &mut self,
        id: ListenerId,
        at: Endpoint,
        access: SocketAccess,
        out: &mut Outputs,
    ) {
        let same = |it: &&Listener| it.leaving.is_some() && is_shared(&at) && it.at == at;
        let waits = self.listeners.iter().rev().find(same).map(|it| it.id);
        let listener = Listener { id, at, access, bound: false, waits, leaving: None };
        if waits.is_none() {
            out.push_back(listener.begin());
        }
        self.listeners.push(listener);
    }

    pub(super) fn listening(&mut self, id: ListenerId, real: Endpoint, out: &mut Outputs) {
        let Some(listener) = self.listeners.iter_mut().find(|it| it.id == id) else { return };
        listener.bound = true;
        listener.at = real.clone();
        let mut waiting = Vec::new();
        for pending in &mut self.offers {
            if let Outcome::Added { listener, at } = &mut pending.outcome
                && *listener == id
            {
                *at = real.clone();
                waiting.push(pending.epoch);
            }
        }
        for epoch in waiting {
            self.heard(epoch, out);
        }
        out.push_back(Output::Event(NbdEvent::Listening(real)));
    }

    pub(super) fn unlistened(
        &mut self,
        id: ListenerId,
        error: Option<SystemError>,
        out: &mut Outputs,
    ) {
        let Some(index) = self.listeners.iter().position(|it| it.id == id) else { return };
        let listener = self.listeners.remove(index);
        if let Some(epoch) = listener.leaving {
            self.heard(epoch, out);
        }
        if let Some(next) = self.listeners.iter_mut().find(|it| it.waits == Some(id)) {
            next.waits = None;
            out.push_back(next.begin());
            if next.leaving.is_some() {
                out.push_back(Output::Unlisten { listener: next.id });
            }
        }
        let Some(error) = error else { return };
        // Nobody can use what was offered there: as if it had never been asked for.
        let failed = NbdError::Listen(listener.at.clone(), error);
        self.exports.retain(|(at, _)| *at != id);
        for pending in
            self.offers.extract_if(.., |it| it.outcome.is_added_at(id)).collect::<Vec<_>>()
        {
            self.offer(pending.verb, Outcome::Failed(failed.clone()), out);
        }
        out.push_back(Output::Event(NbdEvent::ListenFailed(listener.at, error)));
    }

    /// A client has connected: the data worker with the fewest serves it, of several the next one.
    pub(super) fn accepted(&mut self, listener: ListenerId, conn: ConnId, out: &mut Outputs) {
        let next = self.last_worker % self.data_workers;
        let workers = (next..self.data_workers).chain(0..next);
        let chosen = workers.min_by_key(|&at| self.clients[usize::from(at)]).unwrap_or(next);
        self.clients[usize::from(chosen)] += 1;
        self.last_worker = chosen + 1;
        let to = WorkerId(self.last_worker);
        self.handed.insert(conn, to);
        out.push_back(Output::HandOver { conn, listener, to });
    }

    /// A connection was over before it could be handed over.
    pub(super) fn closed(&mut self, conn: ConnId) {
        if let Some(to) = self.handed.remove(&conn) {
            self.gone(to);
        }
    }

    /// A client of a data worker is gone.
    fn gone(&mut self, worker: WorkerId) {
        if let Some(clients) = self.clients.get_mut(usize::from(worker.0).wrapping_sub(1)) {
            *clients = clients.saturating_sub(1);
        }
    }

    pub(super) fn verb(&mut self, id: VerbId, verb: NbdVerb, out: &mut Outputs) {
        let error = match verb {
            NbdVerb::List => {
                let bound = self.listeners.iter().filter(|it| it.bound && it.leaving.is_none());
                let listening = bound.map(|it| it.at.clone()).collect();
                let at = |id: ListenerId| self.listeners.iter().find(|it| it.id == id);
                let exports = self.exports.iter().filter_map(|(listener, export)| {
                    Some((export.clone(), at(*listener)?.at.clone()))
                });
                let reply = NbdReply::Exports { exports: exports.collect(), listening };
                out.push_back(Output::Reply { id, reply });
                return;
            }
            NbdVerb::Close => return self.close(id, out),
            _ if self.draining => NbdError::Draining,
            NbdVerb::Add { export, at, access } => match self.may_add(&export, &at, access) {
                Ok(()) => return self.add(id, export, at, access, out),
                Err(error) => error,
            },
            NbdVerb::Remove(name) => {
                match self.exports.iter().position(|(_, export)| export.name == name) {
                    Some(index) => {
                        let (listener, _) = self.exports.remove(index);
                        self.offer(id, Outcome::Done, out);
                        return self.leave_when_empty(listener, out);
                    }
                    None => NbdError::Unknown(name),
                }
            }
            NbdVerb::Drain(within) => return self.start_drain(id, within, out),
        };
        out.push_back(Output::Reply { id, reply: NbdReply::Error(error) });
    }

    fn may_add(&self, export: &Export, at: &Endpoint, access: Access) -> Result<(), NbdError> {
        export.check()?;
        if self.exports.iter().any(|(_, other)| other.name == export.name) {
            return Err(NbdError::Exists(export.name.clone()));
        }
        if self.exports.len() >= MAX_EXPORTS {
            return Err(NbdError::TooMany);
        }
        match self.shared(at) {
            Some(there) if !access.agrees_with(there.access) => {
                Err(NbdError::OtherAccess(at.clone(), there.access))
            }
            _ => Ok(()),
        }
    }

    /// The listener of this address, if exports share it.
    fn shared(&self, at: &Endpoint) -> Option<&Listener> {
        self.listeners.iter().find(|it| is_shared(at) && it.at == *at && it.leaving.is_none())
    }

    /// Offers an export to the clients of one address. The workers hear of it before any client
    /// that comes there is handed to them.
    fn add(
        &mut self,
        verb: VerbId,
        export: Export,
        at: Endpoint,
        access: Access,
        out: &mut Outputs,
    ) {
        let known = self.shared(&at).map(|it| (it.id, it.bound));
        let (listener, bound) = known.unwrap_or((ListenerId(self.next_listener), false));
        self.exports.push((listener, export));
        self.offer(verb, Outcome::Added { listener, at: at.clone() }, out);
        if !bound && let Some(pending) = self.offers.last_mut() {
            pending.missing += 1;
        }
        if known.is_none() {
            self.next_listener += 1;
            self.listen(listener, at, access.granted(), out);
        }
    }

    /// Tells every data worker what is offered now; the verb is answered when all have heard.
    fn offer(&mut self, verb: VerbId, outcome: Outcome, out: &mut Outputs) {
        self.epoch += 1;
        let exports = Arc::new(self.exports.clone());
        for worker in 1..=self.data_workers {
            let mail = NbdMail::Offer { epoch: self.epoch, exports: Arc::clone(&exports) };
            out.push_back(Output::Mail { to: WorkerId(worker), mail });
        }
        let missing = self.data_workers.into();
        self.offers.push(Pending { verb, epoch: self.epoch, missing, outcome });
    }

    /// With the last export of an address listening there ends, too; the verb that removed it is
    /// answered when the address is free.
    fn leave_when_empty(&mut self, id: ListenerId, out: &mut Outputs) {
        if self.exports.iter().any(|(listener, _)| *listener == id) {
            return;
        }
        let leaving = self.listeners.iter_mut().find(|it| it.id == id && it.leaving.is_none());
        if let (Some(listener), Some(pending)) = (leaving, self.offers.last_mut()) {
            listener.leaving = Some(pending.epoch);
            pending.missing += 1;
            if listener.waits.is_none() {
                out.push_back(Output::Unlisten { listener: id });
            }
        }
    }

    /// Somebody whom an offer waits for is done with it.
    fn heard(&mut self, epoch: u64, out: &mut Outputs) {
        let Some(index) = self.offers.iter().position(|it| it.epoch == epoch) else { return };
        let pending = &mut self.offers[index];
        pending.missing = pending.missing.saturating_sub(1);
        if pending.missing == 0 {
            let Pending { verb: id, outcome, .. } = self.offers.remove(index);
            let reply = match outcome {
                Outcome::Done => NbdReply::Done,
                Outcome::Added { at, .. } => NbdReply::Listening(at),
                Outcome::Failed(error) => NbdReply::Error(error),
            };
            out.push_back(Output::Reply { id, reply });
        }
    }

    fn start_drain(&mut self, verb: VerbId, within: Duration, out: &mut Outputs) {
        self.begin_no_more(out);
        for worker in 1..=self.data_workers {
            out.push_back(Output::Mail { to: WorkerId(worker), mail: NbdMail::Drain(within) });
        }
        let missing = self.data_workers.into();
        self.drain = Some(Pending { verb, epoch: 0, missing, outcome: Outcome::Done });
    }

    /// Workers have nothing to say to that: one that hangs keeps nobody from it.
    fn close(&mut self, verb: VerbId, out: &mut Outputs) {
        self.begin_no_more(out);
        self.exports.clear();
        self.epoch += 1;
        // One that is counted for the verb itself.
        let mut missing = 1;
        for listener in self.listeners.iter_mut().filter(|it| it.leaving.is_none()) {
            listener.leaving = Some(self.epoch);
            out.push_back(Output::Unlisten { listener: listener.id });
            missing += 1;
        }
        self.offers.push(Pending { verb, epoch: self.epoch, missing, outcome: Outcome::Done });
        self.heard(self.epoch, out);
    }

    /// From now on. Listeners that wait for an address: what was to be offered there is refused.
    fn begin_no_more(&mut self, out: &mut Outputs) {
        self.draining = true;
        let waiting: Vec<_> = self.listeners.extract_if(.., |it| it.waits.is_some()).collect();
        for Listener { id, leaving, .. } in waiting {
            self.exports.retain(|(at, _)| *at != id);
            for Pending { verb: id, .. } in
                self.offers.extract_if(.., |it| it.outcome.is_added_at(id))
            {
                let reply = NbdReply::Error(NbdError::Draining);
                out.push_back(Output::Reply { id, reply });
            }
            if let Some(epoch) = leaving {
                self.heard(epoch, out);
            }
        }
    }

    pub(super) fn mail(&mut self, from: WorkerId, mail: &NbdMail, out: &mut Outputs) {
        match mail {
            NbdMail::Gone => self.gone(from),
            NbdMail::Offered { epoch } => self.heard(*epoch, out),
            NbdMail::Drained => {
                let Some(pending) = &mut self.drain else { return };
                pending.missing = pending.missing.saturating_sub(1);
                if pending.missing == 0 {
                    let id = pending.verb;
                    self.drain = None;
                    out.push_back(Output::Reply { id, reply: NbdReply::Done });
                }
            }
            NbdMail::Offer { .. }
            | NbdMail::Drain(_)
            | NbdMail::Look { .. }
            | NbdMail::Looked { .. } => {}
        }
    }
}

/// Port 0 is another port each time.
fn is_shared(at: &Endpoint) -> bool {
    !matches!(at, Endpoint::Tcp(address) if address.port() == 0)
}
