//! Keeps a number of exchanges under way on each connection, and measures them.

use super::{COMMAND_BYTES, Exchange};
use anabranch_policy::Histogram;
use anabranch_proto::machine::{
    BufRef, Buffers, CloseHow, ConnId, Endpoint, Gather, Input, Machine, Output, SocketOptions,
    Time, VerbId,
};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

/// What to exchange with whom.
#[derive(Clone, Debug)]
pub struct BareJob {
    /// One connection to each.
    pub to: Vec<Endpoint>,
    /// Exchanges at once, on all connections together.
    pub depth: u32,
    /// What one exchange carries.
    pub exchange: Exchange,
}

/// What can be asked.
#[derive(Clone, Debug)]
pub enum BareVerb {
    /// Connect and begin.
    Start(Box<BareJob>),
    /// Set all figures to zero (the end of the ramp).
    Reset,
    /// Report the figures and end.
    Stop,
}

/// The answer.
#[derive(Clone, Debug)]
pub enum BareReply {
    /// Done.
    Done,
    /// The figures.
    Report(Box<BareReport>),
}

/// Figures since the start or the last reset.
#[derive(Clone, Debug, Default)]
pub struct BareReport {
    /// Exchanges that have ended.
    pub exchanges: u64,
    /// Their latency, ns.
    pub latency_ns: Box<Histogram>,
    /// From the start or the reset to the last exchange.
    pub elapsed: Duration,
    /// Connections that were refused or lost.
    pub lost: u32,
}

impl BareReport {
    /// Adds what another client has done beside this one.
    pub fn merge(&mut self, other: &BareReport) {
        self.exchanges += other.exchanges;
        self.latency_ns.merge(&other.latency_ns);
        self.elapsed = self.elapsed.max(other.elapsed);
        self.lost += other.lost;
    }
}

struct Peer {
    conn: ConnId,
    depth: u32,
    to_send: u32,
    partial: u32,
    started: VecDeque<Time>,
    announced: bool,
}

/// The asking side.
#[derive(Default)]
pub struct BareClient {
    exchange: Option<Exchange>,
    payload: Option<BufRef>,
    peers: Vec<Peer>,
    outputs: VecDeque<Output<Infallible, BareReply, Infallible>>,
    report: BareReport,
    began: Time,
    last: Time,
}

impl BareClient {
    /// A client that waits for its job.
    #[must_use]
    pub fn new() -> BareClient {
        BareClient::default()
    }

    fn verb(&mut self, now: Time, id: VerbId, verb: BareVerb, bufs: &mut dyn Buffers) {
        let reply = match verb {
            BareVerb::Start(job) => {
                self.start(now, &job, bufs);
                BareReply::Done
            }
            BareVerb::Reset => {
                self.report = BareReport::default();
                self.began = now;
                self.last = now;
                BareReply::Done
            }
            BareVerb::Stop => {
                for peer in &self.peers {
                    let (conn, how) = (peer.conn, CloseHow::Abort);
                    self.outputs.push_back(Output::Close { conn, how });
                }
                self.report.elapsed = self.last.since(self.began);
                BareReply::Report(Box::new(std::mem::take(&mut self.report)))
            }
        };
        self.outputs.push_back(Output::Reply { id, reply });
    }

    fn start(&mut self, now: Time, job: &BareJob, bufs: &mut dyn Buffers) {
        self.exchange = Some(job.exchange);
        if !job.exchange.read {
            self.payload = bufs.alloc(job.exchange.bytes);
        }
        let count = job.to.len().max(1) as u32;
        for (index, to) in job.to.iter().enumerate() {
            let conn = ConnId::opened(index as u32);
            let depth = job.depth / count + u32::from((index as u32) < job.depth % count);
            self.peers.push(Peer {
                conn,
                depth,
                to_send: 0,
                partial: 0,
                started: VecDeque::with_capacity(depth as usize),
                announced: false,
            });
            let options = SocketOptions::default();
            self.outputs.push_back(Output::Connect { conn, to: to.clone(), options });
        }
        (self.began, self.last) = (now, now);
    }

    fn received(&mut self, now: Time, conn: ConnId, len: u32) {
        let Some(exchange) = self.exchange else { return };
        let Some(peer) = self.peers.get_mut(conn.index() as usize) else { return };
        let have = peer.partial + len;
        let ended = have / exchange.down();
        peer.partial = have % exchange.down();
        for _ in 0..ended {
            if let Some(started) = peer.started.pop_front() {
                self.report.exchanges += 1;
                self.report.latency_ns.record(now.since(started).as_nanos() as u64);
                peer.started.push_back(now);
                peer.to_send += 1;
            }
        }
        self.last = now;
        self.announce(conn);
    }

    fn announce(&mut self, conn: ConnId) {
        let Some(peer) = self.peers.get_mut(conn.index() as usize) else { return };
        if peer.to_send > 0 && !peer.announced {
            peer.announced = true;
            self.outputs.push_back(Output::Transmit { conn });
        }
    }
}

impl Machine for BareClient {
    type Mail = Infallible;
    type Verb = BareVerb;
    type Reply = BareReply;
    type Event = Infallible;

    fn handle(
        &mut self,
        now: Time,
        input: Input<'_, BareVerb, Infallible>,
        bufs: &mut dyn Buffers,
    ) {
        match input {
            Input::Verb { id, verb } => self.verb(now, id, verb, bufs),
            Input::Connected { conn, .. } => {
                if let Some(peer) = self.peers.get_mut(conn.index() as usize) {
                    peer.to_send = peer.depth;
                    peer.started.extend((0..peer.depth).map(|_| now));
                }
                self.announce(conn);
            }
            Input::Received { conn, bytes } => self.received(now, conn, bytes.len() as u32),
            Input::ReceivedInto { conn, len } => self.received(now, conn, len),
            Input::Transmitted { conn } => self.announce(conn),
            Input::Closed { .. } => self.report.lost += 1,
            _ => {}
        }
    }

    fn poll_output(&mut self) -> Option<Output<Infallible, BareReply, Infallible>> {
        self.outputs.pop_front()
    }

    fn poll_transmit(
        &mut self,
        _now: Time,
        conn: ConnId,
        batch: &mut dyn Gather,
        bufs: &mut dyn Buffers,
    ) {
        let Some(peer) = self.peers.get_mut(conn.index() as usize) else { return };
        peer.announced = false;
        while peer.to_send > 0 && batch.has_room() {
            peer.to_send -= 1;
            batch.copy(&[0; COMMAND_BYTES as usize]);
            if let Some(payload) = self.payload {
                batch.payload(payload, bufs);
            }
        }
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        None
    }
}
