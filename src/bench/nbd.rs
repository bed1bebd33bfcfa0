//! The load through an NBD server: one connection per job, spread over threads.

use super::plan::Plan;
use crate::cli::args::bench::Bench;
use crate::failure::Failure;
use anabranch_lab::load::{Job, LoadReport};
use anabranch_lab::nbd::{
    CLOSE_TIMEOUT, NEGOTIATION_TIMEOUT, NbdLoad, NbdLoadEvent, NbdLoadReply, NbdLoadVerb, NbdUri,
    SILENCE_TIMEOUT, Server,
};
use anabranch_proto::machine::{Endpoint, WorkerId};
use anabranch_rt::{Config, Group};
use serde_json::Value;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// What an answer may take beyond what the engine itself waits for.
const MARGIN: Duration = Duration::from_secs(5);
/// Payload memory of one thread beyond what its requests need.
const POOL_MARGIN_BYTES: u64 = 8 << 20;
/// Payload memory of one thread at most.
const POOL_MAX_BYTES: u64 = 4 << 30;

/// Open connections to an export.
pub(super) struct NbdStand {
    uri: String,
    group: Group<NbdLoad>,
    /// Connections of each thread.
    shares: Vec<u16>,
    lost: Receiver<NbdLoadEvent>,
}

impl NbdStand {
    pub(super) fn set_up(uri: &NbdUri, bench: &Bench, plan: &Plan) -> Result<NbdStand, Failure> {
        // At most 1024, as the command line checks.
        let jobs = bench.numjobs as u16;
        let threads = bench.workers.min(jobs);
        let shares: Vec<u16> = (0..threads)
            .map(|thread| jobs / threads + u16::from(thread < jobs % threads))
            .collect();
        let (tell, lost) = channel();
        let tell = Mutex::new(tell);
        let events = Box::new(move |_, event| {
            if let Ok(tell) = tell.lock() {
                // Nobody listens any more at the end.
                let _ = tell.send(event);
            }
        });
        let config = Config {
            cpus: plan.placement.host.clone(),
            pin: plan.placement.host.is_some(),
            pool_bytes: pool_bytes(plan, bench.iodepth, shares[0])?,
            ..Config::named("bench-nbd")
        };
        let engines = shares.iter().map(|_| NbdLoad::new()).collect();
        let group = Group::start(config, engines, events)
            .map_err(|error| Failure::failed(format!("{uri}: {error}")))?;
        let stand = NbdStand { uri: uri.to_string(), group, shares, lost };
        stand.open(uri)?;
        Ok(stand)
    }

    /// Opens all connections; every thread must find the same export.
    fn open(&self, uri: &NbdUri) -> Result<(), Failure> {
        let to = match &uri.server {
            Server::Unix(path) => Endpoint::Unix(path.clone()),
            Server::Tcp { host, port } => Endpoint::Tcp(self.resolve(host, *port)?),
        };
        let mut first = None;
        for (worker, &connections) in self.workers() {
            let (to, export) = (to.clone(), uri.export.clone());
            let verb = NbdLoadVerb::Open { to, export, connections };
            match self.ask(worker, verb, NEGOTIATION_TIMEOUT)? {
                NbdLoadReply::Opened(export) if first.is_none_or(|first| first == export) => {
                    first = Some(export);
                }
                NbdLoadReply::Opened(_) => {
                    return Err(self.failed("it describes the export differently each time"));
                }
                other => return Err(self.unexpected(other)),
            }
        }
        Ok(())
    }

    /// The address of a name; of several, the first that takes connections.
    fn resolve(&self, host: &str, port: u16) -> Result<SocketAddr, Failure> {
        let addresses: Vec<SocketAddr> = (host, port)
            .to_socket_addrs()
            .map_err(|error| self.failed(format!("cannot resolve '{host}': {error}")))?
            .collect();
        if let [only] = addresses[..] {
            return Ok(only);
        }
        let takes = |at: &&SocketAddr| TcpStream::connect_timeout(at, NEGOTIATION_TIMEOUT).is_ok();
        let found = addresses.iter().find(takes).copied();
        found.ok_or_else(|| self.failed(format!("nobody listens at {host}:{port}")))
    }

    pub(super) fn uri(&self) -> &str {
        &self.uri
    }

    /// One run; its report.
    pub(super) fn run(&self, job: &Job, runtime: Duration) -> Result<Value, Failure> {
        let of = self.shares.iter().sum();
        let mut first = 0;
        for (worker, connections) in self.workers() {
            let verb = NbdLoadVerb::Start { job: Box::new(job.clone()), first, of };
            match self.ask(worker, verb, Duration::ZERO)? {
                NbdLoadReply::Started => first += connections,
                other => return Err(self.unexpected(other)),
            }
        }
        match self.lost.recv_timeout(runtime) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(event) => return Err(self.failed(event)),
            Err(RecvTimeoutError::Disconnected) => return Err(self.failed("a thread has ended")),
        }
        // All at once, so that none goes on while another one drains.
        let (group, wait) = (&self.group, SILENCE_TIMEOUT * 2);
        let answers: Vec<_> = thread::scope(|scope| {
            let stop = |worker| move || group.verb(worker, NbdLoadVerb::Stop, wait);
            let asked: Vec<_> =
                self.workers().map(|(worker, _)| scope.spawn(stop(worker))).collect();
            asked.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });
        let mut sum = LoadReport::default();
        for answer in answers {
            let answer = answer.map_err(|_| self.failed("a thread has ended"))?;
            match answer.map_err(|error| self.failed(error))? {
                NbdLoadReply::Report(report) => sum.merge(&report),
                other => return Err(self.unexpected(other)),
            }
        }
        Ok(super::load_json(&sum))
    }

    /// Leaves in order.
    pub(super) fn strike(self) -> Result<(), Failure> {
        for (worker, _) in self.workers() {
            match self.ask(worker, NbdLoadVerb::Close, CLOSE_TIMEOUT * 2)? {
                NbdLoadReply::Closed => {}
                other => return Err(self.unexpected(other)),
            }
        }
        let uri = self.uri;
        self.group.stop().map_err(|error| Failure::failed(format!("{uri}: {error}")))
    }

    fn workers(&self) -> impl Iterator<Item = (WorkerId, &u16)> {
        (0..).map(WorkerId).zip(&self.shares)
    }

    fn ask(
        &self,
        worker: WorkerId,
        verb: NbdLoadVerb,
        wait: Duration,
    ) -> Result<NbdLoadReply, Failure> {
        self.group.verb(worker, verb, wait + MARGIN).map_err(|error| self.failed(error))
    }

    fn unexpected(&self, reply: NbdLoadReply) -> Failure {
        match reply {
            NbdLoadReply::Failed(why) => self.failed(why),
            other => self.failed(format!("an answer out of order: {other:?}")),
        }
    }

    fn failed(&self, why: impl std::fmt::Display) -> Failure {
        Failure::failed(format!("{}: {why}", self.uri))
    }
}

/// Payload memory for one thread: every request at once, buffers rounded up as the pool does.
fn pool_bytes(plan: &Plan, iodepth: u32, connections: u16) -> Result<usize, Failure> {
    let buffer = u64::from(plan.largest().next_power_of_two().max(4096));
    let bytes = u64::from(iodepth) * u64::from(connections) * buffer + POOL_MARGIN_BYTES;
    if bytes > POOL_MAX_BYTES {
        return Err(Failure::usage(format!(
            "iodepth times numjobs times bs needs {bytes} bytes of memory in one thread, at most \
             {POOL_MAX_BYTES}: take more --workers or less depth"
        )));
    }
    // Fits, see the limit.
    Ok(bytes as usize)
}
