//! The part of a server that lives on the control worker: listeners, and what is offered.

use super::connection::Outputs;
use super::{Export, MAX_EXPORTS, NbdError, NbdEvent, NbdMail, NbdReply, NbdVerb};
use anabranch_proto::machine::{
    ConnId, Endpoint, ListenerId, Output, SocketOptions, SystemError, VerbId, WorkerId,
};
use std::sync::Arc;

pub(super) struct Control {
    /// Data workers are 1 to this.
    data_workers: u16,
    /// The data worker that got the last connection.
    last_worker: u16,
    listeners: Vec<Listener>,
    next_listener: u32,
    exports: Vec<Export>,
    epoch: u64,
    /// Verbs that wait for data workers: offers by epoch, a drain.
    offers: Vec<Pending>,
    drain: Option<Pending>,
    draining: bool,
}

struct Listener {
    id: ListenerId,
    at: Endpoint,
    bound: bool,
    verb: Option<VerbId>,
    /// Being given up, for the verb of this epoch.
    leaving: Option<u64>,
}

struct Pending {
    verb: VerbId,
    epoch: u64,
    /// Workers that have not answered, and listeners that have not ended.
    missing: usize,
}

impl Control {
    pub(super) fn new(data_workers: u16, exports: Vec<Export>) -> Control {
        Control {
            data_workers,
            last_worker: 0,
            listeners: Vec::new(),
            next_listener: 0,
            exports,
            epoch: 0,
            offers: Vec::new(),
            drain: None,
            draining: false,
        }
    }

    pub(super) fn listen(&mut self, at: Endpoint, verb: Option<VerbId>, out: &mut Outputs) {
        let id = ListenerId(self.next_listener);
        self.next_listener += 1;
        self.listeners.push(Listener { id, at: at.clone(), bound: false, verb, leaving: None });
        let options = SocketOptions::default();
        out.push_back(Output::Listen { listener: id, at, options });
    }

    pub(super) fn listening(&mut self, id: ListenerId, at: Endpoint, out: &mut Outputs) {
        let Some(listener) = self.listeners.iter_mut().find(|it| it.id == id) else { return };
        listener.bound = true;
        listener.at = at.clone();
        if let Some(verb) = listener.verb.take() {
            out.push_back(Output::Reply { id: verb, reply: NbdReply::Listening(at.clone()) });
        }
        out.push_back(Output::Event(NbdEvent::Listening(at)));
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
        let Some(error) = error else { return };
        if let Some(verb) = listener.verb {
            let error = NbdError::Listen(listener.at.clone(), error);
            out.push_back(Output::Reply { id: verb, reply: NbdReply::Error(error) });
        }
        out.push_back(Output::Event(NbdEvent::ListenFailed(listener.at, error)));
    }

    /// A client has connected: the next data worker serves it.
    pub(super) fn accepted(&mut self, listener: ListenerId, conn: ConnId, out: &mut Outputs) {
        self.last_worker = self.last_worker % self.data_workers + 1;
        let to = WorkerId(self.last_worker);
        out.push_back(Output::HandOver { conn, listener, to });
    }

    pub(super) fn verb(&mut self, id: VerbId, verb: NbdVerb, out: &mut Outputs) {
        let error = match verb {
            NbdVerb::List => {
                let bound = self.listeners.iter().filter(|it| it.bound && it.leaving.is_none());
                let listening = bound.map(|it| it.at.clone()).collect();
                let reply = NbdReply::Exports { exports: self.exports.clone(), listening };
                out.push_back(Output::Reply { id, reply });
                return;
            }
            _ if self.draining => NbdError::Draining,
            NbdVerb::Add(export) => match self.may_add(&export) {
                Ok(()) => {
                    self.exports.push(export);
                    return self.offer(id, out);
                }
                Err(error) => error,
            },
            NbdVerb::Remove(name) => {
                match self.exports.iter().position(|export| export.name == name) {
                    Some(index) => {
                        self.exports.remove(index);
                        self.offer(id, out);
                        return self.leave_when_empty(out);
                    }
                    None => NbdError::Unknown(name),
                }
            }
            NbdVerb::Listen(at) => return self.listen(at, Some(id), out),
            NbdVerb::Drain => return self.start_drain(id, out),
        };
        out.push_back(Output::Reply { id, reply: NbdReply::Error(error) });
    }

    fn may_add(&self, export: &Export) -> Result<(), NbdError> {
        export.check()?;
        if self.exports.iter().any(|other| other.name == export.name) {
            return Err(NbdError::Exists(export.name.clone()));
        }
        if self.exports.len() >= MAX_EXPORTS {
            return Err(NbdError::TooMany);
        }
        Ok(())
    }

    /// Tells every data worker what is offered now; the verb is answered when all have heard.
    fn offer(&mut self, verb: VerbId, out: &mut Outputs) {
        self.epoch += 1;
        let exports = Arc::new(self.exports.clone());
        for worker in 1..=self.data_workers {
            let mail = NbdMail::Offer { epoch: self.epoch, exports: Arc::clone(&exports) };
            out.push_back(Output::Mail { to: WorkerId(worker), mail });
        }
        let missing = self.data_workers.into();
        self.offers.push(Pending { verb, epoch: self.epoch, missing });
    }

    /// With the last export everybody who listens for clients goes, too; the verb that removed it
    /// is answered when their addresses are free.
    fn leave_when_empty(&mut self, out: &mut Outputs) {
        let Some(pending) = self.offers.last_mut().filter(|_| self.exports.is_empty()) else {
            return;
        };
        for listener in self.listeners.iter_mut().filter(|it| it.bound && it.leaving.is_none()) {
            listener.leaving = Some(pending.epoch);
            pending.missing += 1;
            out.push_back(Output::Unlisten { listener: listener.id });
        }
    }

    /// Somebody whom an offer waits for is done with it.
    fn heard(&mut self, epoch: u64, out: &mut Outputs) {
        let Some(index) = self.offers.iter().position(|it| it.epoch == epoch) else { return };
        let pending = &mut self.offers[index];
        pending.missing = pending.missing.saturating_sub(1);
        if pending.missing == 0 {
            let id = self.offers.remove(index).verb;
            out.push_back(Output::Reply { id, reply: NbdReply::Done });
        }
    }

    fn start_drain(&mut self, verb: VerbId, out: &mut Outputs) {
        self.draining = true;
        for listener in self.listeners.iter().filter(|it| it.leaving.is_none()) {
            out.push_back(Output::Unlisten { listener: listener.id });
        }
        for worker in 1..=self.data_workers {
            out.push_back(Output::Mail { to: WorkerId(worker), mail: NbdMail::Drain });
        }
        self.drain = Some(Pending { verb, epoch: 0, missing: self.data_workers.into() });
    }

    pub(super) fn mail(&mut self, mail: &NbdMail, out: &mut Outputs) {
        match mail {
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
            NbdMail::Offer { .. } | NbdMail::Drain => {}
        }
    }
}
