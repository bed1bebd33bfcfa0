//! The real hosts: their workers, their controllers, and what is set for a variant.

use super::LiveError;
use super::ports::SUBSYSTEM;
use crate::generator::{Generator, GeneratorReply, GeneratorVerb, HostFigures, PathSample, Plan};
use crate::scenario::{Alteration, PathState, Scenario, Variant};
use anabranch_host::Worker;
use anabranch_host::config::{ConnectRequest, ControllerOptions, DEFAULT_MAX_REQUESTS, HostConfig};
use anabranch_host::topology::ControllerState;
use anabranch_host::verb::{HeadSnapshot, HostSnapshot, Reply, Selection, Verb};
use anabranch_policy::{Parameters, Policy};
use anabranch_proto::machine::{Endpoint, SocketOptions, Time, WorkerId};
use anabranch_proto::nvme::AnaState as WireState;
use anabranch_proto::nvme::ids::Uuid;
use anabranch_proto::nvme::nqn::Nqn;
use anabranch_rt::{Config, Group};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Verbs that only look at what is there, or change a setting.
const LOOK: Duration = Duration::from_secs(10);
/// What is there already is given within this time.
const AT_HAND: Duration = Duration::from_millis(100);
/// Verbs that talk to a controller.
const TALK: Duration = Duration::from_secs(60);
/// How long a host may take to connect.
pub(super) const CONNECT: Duration = TALK;
/// How long paths may take to become what they should be.
const SETTLE: Duration = Duration::from_secs(30);
/// How long an orderly end may take.
const SHUTDOWN: Duration = Duration::from_secs(5);
/// Between two looks at something that is awaited.
const AGAIN: Duration = Duration::from_millis(2);
/// A path that is up again is used soon.
const RECONNECT: Duration = Duration::from_millis(10);
/// Socket buffers towards a shaped port: the link holds the queue, not the socket.
const BUFFER_BYTES: u32 = 256 << 10;
/// The control worker.
const CONTROL: WorkerId = WorkerId(0);
/// The only device.
pub(super) const DEVICE: &str = "nvme0n1";

/// A running host that is connected to every path.
pub(super) struct LiveHost {
    group: Group<Worker<Generator>>,
    /// Each path's controller, `nvmeN`, in the order of the paths.
    controllers: Vec<String>,
    /// What the scenario calls them.
    paths: Vec<String>,
    /// What the subsystem is called.
    subsystem: String,
    /// Queue pairs of each controller.
    queues: u32,
}

impl LiveHost {
    /// Starts host `index` and connects it to each address.
    pub(super) fn start(
        scenario: &Scenario,
        index: u32,
        thread: &str,
        pool_bytes: usize,
        addresses: &[SocketAddr],
    ) -> Result<LiveHost, LiveError> {
        let what = format!("start host {index}");
        let config = config(scenario, index).map_err(|why| LiveError::failed(&what, why))?;
        let runtime = Config { pool_bytes, ..Config::named(thread) };
        let workers = Worker::group(&config, |_| Generator::new());
        let group = Group::start(runtime, workers, Box::new(|_, _| {}))
            .map_err(|error| LiveError::failed(&what, error))?;
        let mut host = LiveHost {
            group,
            controllers: Vec::new(),
            paths: Vec::new(),
            subsystem: String::new(),
            queues: 0,
        };
        let queues = scenario.hosts.io_queues.unwrap_or(scenario.hosts.workers);
        host.connect_all(scenario, addresses, queues)?;
        Ok(host)
    }

    /// Connects to each address with so many queue pairs, if that is not how things are.
    pub(super) fn connect_all(
        &mut self,
        scenario: &Scenario,
        addresses: &[SocketAddr],
        queues: u32,
    ) -> Result<(), LiveError> {
        if self.queues == queues {
            return Ok(());
        }
        if self.queues > 0 {
            self.ask(Verb::Disconnect(Selection::All), TALK)?;
            // Until all are there again.
            self.queues = 0;
        }
        self.controllers.clear();
        self.paths.clear();
        for (address, path) in addresses.iter().zip(&scenario.paths) {
            let connected = self.connect(scenario, *address, queues);
            let name = connected.map_err(|error| {
                LiveError::failed(format!("path {:?} ({})", path.name, path.shape), error)
            })?;
            self.controllers.push(name);
            self.paths.push(path.name.clone());
        }
        self.queues = queues;
        Ok(())
    }

    fn connect(
        &self,
        scenario: &Scenario,
        to: SocketAddr,
        queues: u32,
    ) -> Result<String, LiveError> {
        let what = format!("connect to {to}");
        let nqn: Nqn = SUBSYSTEM.parse().map_err(|error| LiveError::failed(&what, error))?;
        let request = ConnectRequest {
            subsystem_nqn: nqn,
            to: Endpoint::Tcp(to),
            options: options(scenario, queues),
            keep_trying: false,
        };
        match self.ask(Verb::Connect(Box::new(request)), TALK)? {
            Reply::Connected(name, _) => Ok(name),
            other => Err(unexpected(&what, &other)),
        }
    }

    fn ask(
        &self,
        verb: Verb<GeneratorVerb>,
        limit: Duration,
    ) -> Result<Reply<GeneratorReply>, LiveError> {
        let text = format!("{verb:?}");
        let word: String = text.chars().take_while(|c| c.is_alphanumeric()).collect();
        match self.group.verb(CONTROL, verb, limit) {
            Ok(Reply::Error(error)) => Err(LiveError::failed(format!("host: {word}"), error)),
            Ok(reply) => Ok(reply),
            Err(error) => Err(LiveError::failed(format!("host: {word}"), error)),
        }
    }

    fn snapshot(&self) -> Result<HostSnapshot, LiveError> {
        match self.ask(Verb::Snapshot, LOOK)? {
            Reply::Snapshot(snapshot) => Ok(*snapshot),
            other => Err(unexpected("look at a host", &other)),
        }
    }

    /// Waits until every path is live, has this ANA state, and nothing is in flight.
    pub(super) fn settle(&mut self, ana: &[WireState]) -> Result<(), LiveError> {
        let until = Instant::now() + SETTLE;
        loop {
            let snapshot = self.snapshot()?;
            match self.unsettled(&snapshot, ana) {
                None => return Ok(()),
                Some(why) if Instant::now() >= until => {
                    let what = format!("wait {} s for the paths", SETTLE.as_secs());
                    return Err(LiveError::failed(what, why));
                }
                Some(_) => std::thread::sleep(AGAIN),
            }
        }
    }

    /// What is not yet as it should be.
    fn unsettled(&mut self, snapshot: &HostSnapshot, ana: &[WireState]) -> Option<String> {
        let Some(subsystem) = snapshot.subsystems.first() else {
            return Some("there is no subsystem".to_owned());
        };
        self.subsystem.clone_from(&subsystem.name);
        let waiting = subsystem.controllers.iter().find(|c| c.state != ControllerState::Live);
        if let Some(controller) = waiting {
            let (path, state) = (self.path_of(&controller.name), controller.state);
            let why = controller.last_error.as_deref().map(|why| format!(" ({why})"));
            return Some(format!("{path} is {state}{}", why.unwrap_or_default()));
        }
        let Some(head) = head(snapshot) else { return Some(format!("there is no {DEVICE}")) };
        if head.in_flight > 0 {
            return Some(format!("{} requests are in flight", head.in_flight));
        }
        for (controller, wanted) in self.controllers.iter().zip(ana) {
            let Some(path) = head.paths.iter().find(|path| path.controller == *controller) else {
                return Some(format!("{} does not lead to {DEVICE}", self.path_of(controller)));
            };
            if path.ana_state != *wanted {
                let name = self.path_of(controller);
                return Some(format!("{name} is {}, not {wanted}", path.ana_state));
            }
        }
        None
    }

    /// A controller's path as the scenario has it.
    fn path_of(&self, controller: &str) -> String {
        let mut both = self.controllers.iter().zip(&self.paths);
        let found = both.find(|(name, _)| *name == controller);
        found.map_or_else(|| controller.to_owned(), |(_, path)| format!("path {path:?}"))
    }

    fn set(&self, object: &str, attribute: &str, value: &str) -> Result<(), LiveError> {
        let verb = Verb::Set {
            object: object.to_owned(),
            attribute: attribute.to_owned(),
            value: value.to_owned(),
        };
        match self.ask(verb, LOOK)? {
            Reply::Done => Ok(()),
            other => Err(unexpected(&format!("set {attribute} of {object}"), &other)),
        }
    }

    /// Sets policy, parameters and weights; what policies remember of an earlier cell is dropped.
    pub(super) fn set_variant(&self, variant: &Variant) -> Result<(), LiveError> {
        let snapshot = self.snapshot()?;
        let Some(head) = head(&snapshot) else {
            return Err(LiveError::failed("set a policy", format!("there is no {DEVICE}")));
        };
        let Parameters { policy, kernel_exact, scope, latency, historical, finish_time } =
            variant.parameters;
        // Another policy in between: a switch is what drops statistics and choices.
        let other = Policy::ALL.into_iter().find(|other| *other != policy).unwrap_or(policy);
        let flag = |on: bool| u8::from(on).to_string();
        for (attribute, value) in [
            ("iopolicy", other.to_string()),
            ("kernel_exact", flag(kernel_exact)),
            ("queue_depth_scope", scope.to_string()),
            ("hst_base_weight", historical.base_weight.to_string()),
            ("hst_threshold_multiplier", historical.threshold_multiplier.to_string()),
            ("finish_time_tail", flag(finish_time.tail)),
            ("finish_time_compete", flag(finish_time.compete)),
            ("finish_time_probes", flag(finish_time.probes)),
        ] {
            self.set(&self.subsystem, attribute, &value)?;
        }
        for (attribute, value) in [
            ("latency_ewma_shift", latency.ewma_shift.to_string()),
            ("latency_batch_timeout", latency.batch_timeout.to_string()),
            ("latency_size_buckets", flag(latency.size_buckets)),
            ("latency_per_node", flag(latency.per_node)),
            ("latency_ignore_ana", flag(latency.compete)),
        ] {
            self.set(DEVICE, attribute, &value)?;
        }
        for (controller, weight) in self.controllers.iter().zip(&variant.weights) {
            let path = head.paths.iter().find(|path| path.controller == *controller);
            let Some(path) = path else {
                return Err(LiveError::failed("set a weight", format!("{controller} has no path")));
            };
            self.set(&path.name, "relative_throughput", &weight.to_string())?;
        }
        self.set(&self.subsystem, "iopolicy", &policy.to_string())
    }

    /// Hands the load over; it begins when the plan says.
    pub(super) fn start_load(&self, plan: Plan) -> Result<(), LiveError> {
        let verb = Verb::User(GeneratorVerb::Start(Box::new(plan)));
        match self.ask(verb, LOOK)? {
            Reply::User(GeneratorReply::Started) => Ok(()),
            Reply::User(GeneratorReply::Refused(why)) => {
                Err(LiveError::failed("start the load", why))
            }
            other => Err(unexpected("start the load", &other)),
        }
    }

    /// The load's figures, when it has come to its end and nothing of it is open any more. A host
    /// that has them is not refused for others having taken all of the time.
    pub(super) fn collect(&self, deadline: Time) -> Result<HostFigures, LiveError> {
        let limit = deadline.since(anabranch_rt::now()).max(AT_HAND);
        match self.ask(Verb::User(GeneratorVerb::Collect), limit)? {
            Reply::User(GeneratorReply::Figures(figures)) => Ok(*figures),
            Reply::User(GeneratorReply::Refused(why)) => {
                Err(LiveError::failed("collect the load's figures", why))
            }
            other => Err(unexpected("collect the load's figures", &other)),
        }
    }

    /// What each path has done so far, in the order of the paths.
    pub(super) fn sample(&self) -> Result<Vec<PathSample>, LiveError> {
        let snapshot = self.snapshot()?;
        let at = anabranch_rt::now();
        let nothing = PathSample { at, commands: 0, bytes: 0, latency_ns: 0, in_flight: 0 };
        let Some(head) = head(&snapshot) else {
            return Ok(vec![nothing; self.controllers.len()]);
        };
        let of = |controller: &String| {
            let path = head.paths.iter().find(|path| path.controller == *controller);
            path.map_or(nothing, |path| PathSample {
                at,
                commands: path.commands.iter().sum(),
                bytes: path.bytes.iter().sum(),
                latency_ns: path.latency_ns.sum() as u64,
                in_flight: path.in_flight,
            })
        };
        Ok(self.controllers.iter().map(of).collect())
    }

    /// Ends in order, then the threads. Nothing is left even after an error.
    pub(super) fn stop(self) -> Result<(), LiveError> {
        let ended = match self.ask(Verb::Shutdown, SHUTDOWN * 2 + LOOK) {
            Ok(Reply::ShutDown { unanswered: 0 }) => Ok(()),
            Ok(Reply::ShutDown { unanswered }) => {
                Err(LiveError::failed("end a host", format!("{unanswered} requests unanswered")))
            }
            Ok(other) => Err(unexpected("end a host", &other)),
            Err(error) => Err(error),
        };
        let stopped = self.group.stop().map_err(|error| LiveError::failed("end a host", error));
        ended.and(stopped)
    }
}

fn head(snapshot: &HostSnapshot) -> Option<&HeadSnapshot> {
    let heads = snapshot.subsystems.iter().flat_map(|subsystem| &subsystem.heads);
    heads.into_iter().find(|head| head.name == DEVICE)
}

fn unexpected(what: &str, reply: &Reply<GeneratorReply>) -> LiveError {
    let text = format!("{reply:?}");
    let name: String = text.chars().take_while(|c| c.is_alphanumeric()).collect();
    LiveError::failed(what, format!("an answer that does not fit: {name}"))
}

fn config(scenario: &Scenario, index: u32) -> Result<HostConfig, String> {
    let name = format!("nqn.2026-01.org.anabranch:lab-host-{index}");
    let mut id = *b"anabranch-lab\0\0\0";
    // Version 4, variant 1 of RFC 9562, and the host's number.
    (id[6], id[8]) = (0x40 | (id[6] & 0x0f), 0x80 | (id[8] & 0x3f));
    id[12..].copy_from_slice(&index.to_be_bytes());
    let hosts = &scenario.hosts;
    Ok(HostConfig {
        host_nqn: name.parse().map_err(|error| format!("{name}: {error}"))?,
        host_id: Uuid(id),
        data_workers: u16::try_from(hosts.workers).map_err(|_| "too many workers".to_owned())?,
        shared_queue: false,
        default_policy: Policy::default(),
        subsystems: Vec::new(),
        kernel_exact: false,
        max_requests: DEFAULT_MAX_REQUESTS.max(open_requests(scenario)),
        worker_nodes: hosts.nodes.clone(),
        // All links are loopback.
        distances: Vec::new(),
        shutdown_timeout: SHUTDOWN,
    })
}

/// Requests that closed loops of one host may have open on one worker.
pub(super) fn open_requests(scenario: &Scenario) -> u32 {
    let open = scenario.jobs.iter().map(|job| job.depth.saturating_mul(job.clones));
    open.fold(0, u32::saturating_add)
}

/// Whether a path ever falls silent, so that hosts must notice that in time.
pub(super) fn falls_silent(scenario: &Scenario) -> bool {
    let silent = Alteration::State(PathState::Silent);
    scenario.changes.iter().any(|change| change.what == silent)
}

/// How controllers are connected.
pub(super) fn options(scenario: &Scenario, queues: u32) -> ControllerOptions {
    let mut options = ControllerOptions {
        queue_size: u16::try_from(scenario.hosts.queue_depth).unwrap_or(u16::MAX),
        nr_io_queues: u16::try_from(queues).ok(),
        reconnect_delay: RECONNECT,
        ctrl_loss_tmo: None,
        // Deep queues on slow links are slow: only silence is a fault here.
        keep_alive_tmo: Duration::from_secs(60),
        socket: SocketOptions { buffer_bytes: Some(BUFFER_BYTES), ..SocketOptions::default() },
        ..ControllerOptions::default()
    };
    if falls_silent(scenario) {
        options.keep_alive_tmo = Duration::from_nanos(scenario.hosts.detect_ns.max(1_000_000));
    }
    options
}
