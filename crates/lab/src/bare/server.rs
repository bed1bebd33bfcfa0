//! Answers each command-sized piece of a stream with an answer-sized one.

use super::{ANSWER_BYTES, Exchange};
use anabranch_proto::machine::{
    BufRef, Buffers, ConnId, Endpoint, Gather, Input, ListenerId, Machine, Output, SocketOptions,
    Time,
};
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;

struct Peer {
    /// Bytes of a command that is not complete.
    partial: u32,
    owed: u32,
    announced: bool,
}

/// The answering side.
pub struct BareServer {
    listen: Endpoint,
    exchange: Exchange,
    payload: Option<BufRef>,
    peers: BTreeMap<ConnId, Peer>,
    outputs: VecDeque<Output<Infallible, Infallible, Endpoint>>,
}

impl BareServer {
    /// Answers on `listen`; the address really bound is reported as an event.
    #[must_use]
    pub fn new(listen: Endpoint, exchange: Exchange) -> BareServer {
        BareServer {
            listen,
            exchange,
            payload: None,
            peers: BTreeMap::new(),
            outputs: VecDeque::with_capacity(64),
        }
    }

    fn received(&mut self, conn: ConnId, len: u32) {
        let Some(peer) = self.peers.get_mut(&conn) else { return };
        let have = peer.partial + len;
        peer.owed += have / self.exchange.up();
        peer.partial = have % self.exchange.up();
        self.announce(conn);
    }

    fn announce(&mut self, conn: ConnId) {
        let Some(peer) = self.peers.get_mut(&conn) else { return };
        if peer.owed > 0 && !peer.announced {
            peer.announced = true;
            self.outputs.push_back(Output::Transmit { conn });
        }
    }
}

impl Machine for BareServer {
    type Mail = Infallible;
    type Verb = Infallible;
    type Reply = Infallible;
    type Event = Endpoint;

    fn handle(
        &mut self,
        _now: Time,
        input: Input<'_, Infallible, Infallible>,
        bufs: &mut dyn Buffers,
    ) {
        match input {
            Input::Start => {
                if self.exchange.read {
                    self.payload = bufs.alloc(self.exchange.bytes);
                }
                let (listener, at) = (ListenerId(0), self.listen.clone());
                let options = SocketOptions::default();
                self.outputs.push_back(Output::Listen { listener, at, options });
            }
            Input::Listening { at, .. } => self.outputs.push_back(Output::Event(at)),
            Input::Accepted { conn, .. } => {
                self.peers.insert(conn, Peer { partial: 0, owed: 0, announced: false });
            }
            Input::Received { conn, bytes } => self.received(conn, bytes.len() as u32),
            Input::ReceivedInto { conn, len } => self.received(conn, len),
            Input::Transmitted { conn } => self.announce(conn),
            Input::Closed { conn, .. } => {
                self.peers.remove(&conn);
            }
            _ => {}
        }
    }

    fn poll_output(&mut self) -> Option<Output<Infallible, Infallible, Endpoint>> {
        self.outputs.pop_front()
    }

    fn poll_transmit(
        &mut self,
        _now: Time,
        conn: ConnId,
        batch: &mut dyn Gather,
        bufs: &mut dyn Buffers,
    ) {
        let Some(peer) = self.peers.get_mut(&conn) else { return };
        peer.announced = false;
        while peer.owed > 0 && batch.has_room() {
            peer.owed -= 1;
            batch.copy(&[0; ANSWER_BYTES as usize]);
            if let Some(payload) = self.payload {
                batch.payload(payload, bufs);
            }
        }
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        None
    }
}
