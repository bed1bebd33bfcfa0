//! What submits on every worker of our host: the NBD server and the load, side by side.

#[cfg(test)]
mod tests;

use super::clients::Clients;
use anabranch_export::nbd::{Nbd, NbdEvent, NbdMail, NbdReply, NbdVerb};
use anabranch_host::topology::HeadView;
use anabranch_host::user::{Done, Refused, Request, Submit, User};
use anabranch_lab::load::{Load, LoadEvent, LoadMail, LoadReply, LoadVerb};
use anabranch_proto::machine::{Buffers, ConnId, Gather, Input, Output, Time, WorkerId};
use std::fmt;
use std::sync::Arc;

/// Two users on one worker. Accepted connections are the NBD server's; the load has none.
pub struct Front {
    nbd: Nbd,
    load: Load,
    /// NBD clients of all workers, for those who watch.
    clients: Arc<Clients>,
    /// How many of them are this worker's.
    own_clients: usize,
}

/// A control request to one of the two.
#[derive(Debug)]
pub enum FrontVerb {
    /// To the NBD server.
    Nbd(NbdVerb),
    /// To the load.
    Load(LoadVerb),
}

/// The answer of one of the two.
#[derive(Debug)]
pub enum FrontReply {
    /// Of the NBD server.
    Nbd(NbdReply),
    /// Of the load.
    Load(LoadReply),
}

/// Mail between instances of one of the two.
#[derive(Debug)]
pub enum FrontMail {
    /// Between NBD servers.
    Nbd(NbdMail),
    /// Between loads.
    Load(LoadMail),
}

/// An event of one of the two.
#[derive(Debug)]
pub enum FrontEvent {
    /// Of the NBD server.
    Nbd(NbdEvent),
    /// Of the load.
    Load(LoadEvent),
}

impl fmt::Display for FrontEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrontEvent::Nbd(event) => event.fmt(f),
            FrontEvent::Load(event) => event.fmt(f),
        }
    }
}

impl Front {
    /// Joins the two. Every worker adds its NBD clients to `clients`.
    #[must_use]
    pub fn new(nbd: Nbd, load: Load, clients: Arc<Clients>) -> Front {
        Front { nbd, load, clients, own_clients: 0 }
    }

    /// Clients may have come or gone.
    #[inline]
    fn count_clients(&mut self) {
        let now = self.nbd.clients();
        if now != self.own_clients {
            self.clients.count(self.own_clients, now);
            self.own_clients = now;
        }
    }
}

/// The bit of a request's tag that says "of the load"; neither user needs it for itself.
const OF_LOAD: u64 = 1 << 63;

/// A shard as the load sees it: its tags carry the mark.
struct Marked<'a>(&'a mut dyn Submit);

impl Submit for Marked<'_> {
    fn submit(&mut self, now: Time, request: Request) -> Result<(), Refused> {
        debug_assert!(request.tag & OF_LOAD == 0, "the load leaves the mark to us");
        self.0.submit(now, Request { tag: request.tag | OF_LOAD, ..request })
    }

    fn heads(&self) -> &[Arc<HeadView>] {
        self.0.heads()
    }

    fn worker(&self) -> WorkerId {
        self.0.worker()
    }

    fn workers(&self) -> u16 {
        self.0.workers()
    }
}

impl User for Front {
    type Mail = FrontMail;
    type Verb = FrontVerb;
    type Reply = FrontReply;
    type Event = FrontEvent;

    fn handle(
        &mut self,
        now: Time,
        input: Input<'_, FrontVerb, FrontMail>,
        host: &mut dyn Submit,
        bufs: &mut dyn Buffers,
    ) {
        match input {
            Input::Start => {
                self.nbd.handle(now, Input::Start, host, bufs);
                self.load.handle(now, Input::Start, &mut Marked(host), bufs);
            }
            Input::Timeout => {
                self.nbd.handle(now, Input::Timeout, host, bufs);
                self.load.handle(now, Input::Timeout, &mut Marked(host), bufs);
            }
            Input::Verb { id, verb: FrontVerb::Nbd(verb) } => {
                self.nbd.handle(now, Input::Verb { id, verb }, host, bufs);
            }
            Input::Verb { id, verb: FrontVerb::Load(verb) } => {
                self.load.handle(now, Input::Verb { id, verb }, &mut Marked(host), bufs);
            }
            Input::Mail { from, mail: FrontMail::Nbd(mail) } => {
                self.nbd.handle(now, Input::Mail { from, mail }, host, bufs);
            }
            Input::Mail { from, mail: FrontMail::Load(mail) } => {
                self.load.handle(now, Input::Mail { from, mail }, &mut Marked(host), bufs);
            }
            Input::Connected { conn, local, node } => {
                self.nbd.handle(now, Input::Connected { conn, local, node }, host, bufs);
            }
            Input::Accepted { listener, conn, peer } => {
                self.nbd.handle(now, Input::Accepted { listener, conn, peer }, host, bufs);
            }
            Input::Listening { listener, at } => {
                self.nbd.handle(now, Input::Listening { listener, at }, host, bufs);
            }
            Input::Unlistened { listener, error } => {
                self.nbd.handle(now, Input::Unlistened { listener, error }, host, bufs);
            }
            Input::Received { conn, bytes } => {
                self.nbd.handle(now, Input::Received { conn, bytes }, host, bufs);
            }
            Input::ReceivedInto { conn, len } => {
                self.nbd.handle(now, Input::ReceivedInto { conn, len }, host, bufs);
            }
            Input::Transmitted { conn } => {
                self.nbd.handle(now, Input::Transmitted { conn }, host, bufs);
            }
            Input::Looked { conn } => {
                self.nbd.handle(now, Input::Looked { conn }, host, bufs);
            }
            Input::Closed { conn, cause } => {
                self.nbd.handle(now, Input::Closed { conn, cause }, host, bufs);
            }
            Input::DiskDone { id, result } => {
                self.nbd.handle(now, Input::DiskDone { id, result }, host, bufs);
            }
        }
        self.count_clients();
    }

    fn completed(&mut self, now: Time, done: Done, host: &mut dyn Submit, bufs: &mut dyn Buffers) {
        // The place in the host goes to the other one first, if that waits for one: so neither
        // keeps all of them, however busy it is.
        if done.tag & OF_LOAD == 0 {
            self.load.room_made(now, &mut Marked(host), bufs);
            self.nbd.completed(now, done, host, bufs);
            self.count_clients();
        } else {
            let done = Done { tag: done.tag & !OF_LOAD, ..done };
            self.load.ended(now, done, bufs);
            self.nbd.room_made(now, host, bufs);
            self.load.room_made(now, &mut Marked(host), bufs);
        }
    }

    fn heads_changed(&mut self, now: Time, host: &mut dyn Submit, bufs: &mut dyn Buffers) {
        self.nbd.heads_changed(now, host, bufs);
        self.load.heads_changed(now, &mut Marked(host), bufs);
        self.count_clients();
    }

    fn poll_output(&mut self) -> Option<Output<FrontMail, FrontReply, FrontEvent>> {
        if let Some(output) = self.nbd.poll_output() {
            if let Output::Event(event) = &output {
                self.clients.see(event);
            }
            return Some(wrap(output, FrontMail::Nbd, FrontReply::Nbd, FrontEvent::Nbd));
        }
        let output = self.load.poll_output()?;
        Some(wrap(output, FrontMail::Load, FrontReply::Load, FrontEvent::Load))
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        conn: ConnId,
        batch: &mut dyn Gather,
        bufs: &mut dyn Buffers,
    ) {
        self.nbd.poll_transmit(now, conn, batch, bufs);
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        match (self.nbd.poll_timeout(), self.load.poll_timeout()) {
            (Some(nbd), Some(load)) => Some(nbd.min(load)),
            (nbd, load) => nbd.or(load),
        }
    }
}

/// The same output with mail, reply and event of the pair.
fn wrap<M, R, E>(
    output: Output<M, R, E>,
    mail_of: fn(M) -> FrontMail,
    reply_of: fn(R) -> FrontReply,
    event_of: fn(E) -> FrontEvent,
) -> Output<FrontMail, FrontReply, FrontEvent> {
    match output {
        Output::Mail { to, mail } => Output::Mail { to, mail: mail_of(mail) },
        Output::Reply { id, reply } => Output::Reply { id, reply: reply_of(reply) },
        Output::Event(event) => Output::Event(event_of(event)),
        Output::Connect { conn, to, options } => Output::Connect { conn, to, options },
        Output::Listen { listener, at, options } => Output::Listen { listener, at, options },
        Output::Unlisten { listener } => Output::Unlisten { listener },
        Output::Transmit { conn } => Output::Transmit { conn },
        Output::Acknowledge { conn } => Output::Acknowledge { conn },
        Output::ReceiveInto { conn, buf } => Output::ReceiveInto { conn, buf },
        Output::Pause { conn, watch } => Output::Pause { conn, watch },
        Output::Resume { conn } => Output::Resume { conn },
        Output::Look { conn } => Output::Look { conn },
        Output::Close { conn, how } => Output::Close { conn, how },
        Output::HandOver { conn, listener, to } => Output::HandOver { conn, listener, to },
        Output::Disk { id, file, op } => Output::Disk { id, file, op },
    }
}
