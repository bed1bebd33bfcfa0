//! A running host: its workers, and what the control socket may ask of it.

mod bench;
mod discovery;
mod exports;
mod paths;

pub use exports::{ExportState, nbd_uri};
pub use paths::talk;

use super::clients::Clients;
use super::config::may_be_a_head;
use super::control::Handler;
use super::explain::{DEFAULT_SAMPLES, ExplainView};
use super::export::refusal;
use super::front::{Front, FrontEvent, FrontReply, FrontVerb};
use super::identity::Identity;
use super::names::{Names, addresses, at_one_of};
use super::rpc::{Answer, Params, RpcError};
use super::top::TopView;
use super::view::{AttributeView, HeadView, HostView};
use crate::failure::Failure;
use anabranch_export::nbd::{Nbd, NbdConfig, NbdReply, NbdVerb};
use anabranch_host::config::{DEFAULT_MAX_REQUESTS, HostConfig, SubsystemSettings};
use anabranch_host::explain::ExplainReport;
use anabranch_host::verb::{HostSnapshot, Reply, Verb, VerbError};
use anabranch_host::{Event, Worker};
use anabranch_lab::load::{Job, Load, LoadReply, LoadReport, LoadVerb};
use anabranch_policy::Policy;
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::nqn::Nqn;
use anabranch_rt::signal::Termination;
use anabranch_rt::topology::{CpuSet, Topology};
use anabranch_rt::{Config, Group};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Verbs that only look at what is there.
const LOOK: Duration = Duration::from_secs(10);
/// Verbs that talk to a controller: beyond twice what one of its steps may take by default.
const TALK: Duration = Duration::from_secs(130);
/// How long an export's device may take to appear after its path was connected.
const APPEAR: Duration = Duration::from_secs(3);
/// The control worker.
const CONTROL: WorkerId = WorkerId(0);

/// What a host is started with.
#[derive(Clone, Debug)]
pub struct HostSetup {
    /// Name of its threads.
    pub name: &'static str,
    /// Who it is.
    pub identity: Identity,
    /// Data workers.
    pub workers: u16,
    /// CPUs that workers run on.
    pub cpus: Option<Vec<usize>>,
    /// Bind each worker to one CPU.
    pub pin: bool,
    /// How long a worker spins before it sleeps.
    pub spin: Duration,
    /// One queue pair per path for all workers.
    pub shared_queue: bool,
    /// Default policy: what subsystems have at first.
    pub policy: Policy,
    /// Choices exactly as the kernel makes them.
    pub kernel_exact: bool,
    /// What single subsystems have at first instead, by NQN.
    pub subsystems: Vec<(Nqn, SubsystemSettings)>,
    /// How long an orderly end may take.
    pub shutdown_timeout: Duration,
    /// Files that paths and exports are going to have.
    pub planned_files: usize,
}

impl HostSetup {
    /// The defaults.
    #[must_use]
    pub fn new(identity: Identity) -> HostSetup {
        HostSetup {
            name: "host",
            identity,
            workers: 1,
            cpus: None,
            pin: false,
            spin: Duration::ZERO,
            shared_queue: false,
            policy: Policy::default(),
            kernel_exact: false,
            subsystems: Vec::new(),
            shutdown_timeout: Duration::from_secs(5),
            planned_files: 0,
        }
    }
}

/// The default number of data workers: one per CPU that this process may use, by its set and by the
/// quota of its control group, but not more than there are in a list of CPUs.
#[must_use]
pub fn usual_workers(cpus: Option<&[usize]>) -> u16 {
    let usable = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let listed = cpus.map_or(usable, <[usize]>::len);
    u16::try_from(usable.min(listed).clamp(1, 128)).unwrap_or(1)
}

/// Whether this process may use these CPUs.
///
/// # Errors
/// One sentence that names the CPU and those that there are.
pub fn check_cpus(cpus: &[usize]) -> Result<(), String> {
    // Those that there are cannot be read on a machine with more than the type holds.
    if cpus.is_empty() {
        return Ok(());
    }
    let allowed =
        CpuSet::allowed().map_err(|why| format!("cannot read the allowed CPUs: {why}"))?;
    match cpus.iter().find(|cpu| !allowed.contains(**cpu)) {
        Some(&cpu) => {
            Err(anabranch_rt::Error::Cpu { cpu, allowed: allowed.to_string() }.to_string())
        }
        None => Ok(()),
    }
}

/// A running host.
#[derive(Debug)]
pub struct Host {
    group: Group<Worker<Front>>,
    identity: Identity,
    shutdown_timeout: Duration,
    started: Instant,
    start_time: SystemTime,
    /// Tells this run from those before and after it.
    instance: String,
    /// NBD clients.
    clients: Arc<Clients>,
    names: Names,
}

/// A verb to our kind of host.
type HostVerb = Verb<FrontVerb>;
/// Its answer.
type HostReply = Reply<FrontReply>;

impl Host {
    /// Starts the workers. `log` is called on their threads and must not block.
    ///
    /// # Errors
    /// What the system refuses, with the remedy.
    pub fn start(
        setup: &HostSetup,
        log: impl Fn(Event<FrontEvent>) + Send + Sync + 'static,
    ) -> Result<Host, Failure> {
        let runtime = Config {
            cpus: setup.cpus.clone(),
            pin: setup.pin,
            by_node: true,
            spin: setup.spin,
            pool_bytes: super::memory::of_each(setup.workers),
            starved: Some(super::ending::starved),
            ..Config::named(setup.name)
        };
        let refused = |error| Failure::failed(format!("cannot start the host: {error}"));
        // Worker 0 is the control worker.
        let topology = Topology::read(Path::new("/"));
        let nodes = runtime.nodes(usize::from(setup.workers) + 1, &topology);
        let nodes = nodes.map_err(refused)?.split_off(1);
        let config = HostConfig {
            host_nqn: setup.identity.nqn.clone(),
            host_id: setup.identity.id,
            data_workers: setup.workers,
            shared_queue: setup.shared_queue,
            default_policy: setup.policy,
            kernel_exact: setup.kernel_exact,
            subsystems: setup.subsystems.clone(),
            max_requests: DEFAULT_MAX_REQUESTS,
            worker_nodes: nodes.iter().map(|node| node.unwrap_or(0)).collect(),
            distances: nodes.iter().map(|node| topology.distances(*node)).collect(),
            shutdown_timeout: setup.shutdown_timeout,
        };
        let clients = Arc::<Clients>::default();
        let at_once = super::files::nbd_clients(setup.workers, setup.planned_files);
        let front = |_| {
            let nbd = Nbd::new(NbdConfig::default()).with_at_most(at_once);
            Front::new(nbd, Load::new(), Arc::clone(&clients))
        };
        let workers = Worker::group(&config, front);
        let group = Group::start(runtime, workers, Box::new(move |_, event| log(event)))
            .map_err(refused)?;
        Ok(Host {
            group,
            identity: setup.identity.clone(),
            shutdown_timeout: setup.shutdown_timeout,
            started: Instant::now(),
            start_time: SystemTime::now(),
            instance: format!("{:016x}", super::identity::random_seed()?),
            clients,
            names: Names::default(),
        })
    }

    /// Who it is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Asks for what is there, or changes an attribute.
    ///
    /// # Errors
    /// No answer in time, or the engine has stopped.
    pub(super) fn look(&self, verb: HostVerb) -> Result<HostReply, anabranch_rt::Error> {
        self.group.verb(CONTROL, verb, LOOK)
    }

    fn ask(&self, verb: HostVerb, limit: Duration) -> Result<HostReply, RpcError> {
        match self.group.verb(CONTROL, verb, limit) {
            Ok(Reply::Error(VerbError::Invalid(text) | VerbError::OutOfRange(text))) => {
                Err(RpcError::invalid(text))
            }
            Ok(Reply::Error(VerbError::Conflict(text))) => {
                Err(RpcError::new(RpcError::CONFLICT, text))
            }
            Ok(Reply::Error(VerbError::Connected(text))) => {
                Err(RpcError::new(RpcError::CONNECTED, text))
            }
            Ok(Reply::Error(VerbError::Failed(text))) => Err(RpcError::failed(text)),
            Ok(reply) => Ok(reply),
            Err(error @ anabranch_rt::Error::NoAnswer(_)) => {
                Err(RpcError::new(RpcError::TIMEOUT, error.to_string()))
            }
            Err(error @ anabranch_rt::Error::Busy(_)) => {
                Err(RpcError::new(RpcError::BUSY, error.to_string()))
            }
            Err(error) => Err(RpcError::failed(error.to_string())),
        }
    }

    /// Everything there is to see.
    ///
    /// # Errors
    /// The engine does not answer.
    pub fn view(&self) -> Result<HostView, RpcError> {
        match self.ask(Verb::Snapshot, LOOK)? {
            Reply::Snapshot(snapshot) => Ok(HostView::from(*snapshot)),
            other => Err(unexpected(&other)),
        }
    }

    /// Everything there is to watch.
    ///
    /// # Errors
    /// The engine does not answer within `limit`.
    pub fn watch(&self, limit: Duration) -> Result<Box<HostSnapshot>, RpcError> {
        match self.ask(Verb::Watch, limit)? {
            Reply::Snapshot(snapshot) => Ok(snapshot),
            other => Err(unexpected(&other)),
        }
    }

    /// The same as `top` takes it.
    ///
    /// # Errors
    /// The engine does not answer.
    pub fn top(&self) -> Result<TopView, RpcError> {
        let snapshot = self.watch(LOOK)?;
        Ok(TopView {
            instance: self.instance.clone(),
            uptime_ns: u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            clients: self.nbd_clients(),
            ..TopView::from(*snapshot)
        })
    }

    /// NBD clients now.
    #[must_use]
    pub fn nbd_clients(&self) -> usize {
        self.clients.connected()
    }

    /// When it was started.
    #[must_use]
    pub fn start_time(&self) -> SystemTime {
        self.start_time
    }

    /// Why a device's commands went where they went.
    ///
    /// # Errors
    /// There is no such device, or the engine does not answer.
    pub fn explain(&self, device: &str) -> Result<ExplainReport, RpcError> {
        match self.ask(Verb::Explain { device: device.to_owned() }, LOOK)? {
            Reply::Explain(report) => Ok(*report),
            other => Err(unexpected(&other)),
        }
    }

    fn value(&self, verb: HostVerb, limit: Duration) -> Result<Value, RpcError> {
        match self.ask(verb, limit)? {
            // An attribute that disconnects is answered as the verb is.
            Reply::Done | Reply::Disconnected(_) => Ok(json!({})),
            Reply::Value(text) => Ok(json!({ "value": text })),
            Reply::Raw(bytes) => Ok(json!({ "raw": hex(&bytes) })),
            other => Err(unexpected(&other)),
        }
    }

    fn nbd(&self, verb: NbdVerb, limit: Duration) -> Result<NbdReply, RpcError> {
        match self.ask(Verb::User(FrontVerb::Nbd(verb)), limit)? {
            Reply::User(FrontReply::Nbd(NbdReply::Error(error))) => Err(refusal(&error)),
            Reply::User(FrontReply::Nbd(reply)) => Ok(reply),
            other => Err(unexpected(&other)),
        }
    }

    fn load(&self, verb: LoadVerb, limit: Duration) -> Result<LoadReply, RpcError> {
        match self.ask(Verb::User(FrontVerb::Load(verb)), limit)? {
            Reply::User(FrontReply::Load(LoadReply::Refused(error))) => {
                Err(RpcError::failed(error.to_string()))
            }
            Reply::User(FrontReply::Load(reply)) => Ok(reply),
            other => Err(unexpected(&other)),
        }
    }

    /// Begins a load.
    ///
    /// # Errors
    /// One runs already.
    pub fn start_load(&self, job: Job) -> Result<(), RpcError> {
        self.load(LoadVerb::Start(Box::new(job)), LOOK).map(|_| ())
    }

    /// The load's figures so far; `stop` ends it first.
    ///
    /// # Errors
    /// None runs, or what is in flight does not end.
    pub fn load_report(&self, stop: bool) -> Result<LoadReport, RpcError> {
        let verb = if stop { LoadVerb::Stop } else { LoadVerb::Report };
        match self.load(verb, if stop { TALK } else { LOOK })? {
            LoadReply::Report(report) => Ok(*report),
            LoadReply::Started | LoadReply::Refused(_) => {
                Err(RpcError::failed("the load gave another answer than a report"))
            }
        }
    }

    /// Waits for a head of this name, or wwid, for a moment: paths find their namespaces after they
    /// connect. What no head is ever called is not waited for. Also tells how many data workers
    /// there are.
    ///
    /// # Errors
    /// It does not come.
    pub fn await_head(&self, name: &str) -> Result<(HeadView, u16), RpcError> {
        let until = Instant::now() + APPEAR;
        // A look has every worker report: those who wait for many look less and less often.
        let mut pause = Duration::from_millis(10);
        loop {
            let view = self.view()?;
            let mut heads = view.subsystems.iter().flat_map(|subsystem| &subsystem.heads);
            if let Some(head) = heads.find(|head| head.is_called(name)) {
                return Ok((head.clone(), view.data_workers));
            }
            if !may_be_a_head(name) || Instant::now() >= until {
                return Err(RpcError::invalid(view.no_device(name)));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(APPEAR / 10);
        }
    }

    /// Ends in order: exports first, then I/O, then controllers. The answer is the number of I/Os
    /// that were not answered in time.
    ///
    /// # Errors
    /// The engine does not answer.
    pub fn shut_down(&self) -> Result<u64, RpcError> {
        // Clients that do not finish are cut off by what follows.
        let within = self.shutdown_timeout / 2;
        let drained = self.nbd(NbdVerb::Drain(within), within);
        let limit = self.shutdown_timeout * 2 + LOOK;
        let unanswered = match self.ask(Verb::Shutdown, limit)? {
            Reply::ShutDown { unanswered } => unanswered,
            other => return Err(drained.err().unwrap_or_else(|| unexpected(&other))),
        };
        // Nothing is sent any more: others may serve the devices there now.
        let closed = self.nbd(NbdVerb::Close, LOOK);
        if unanswered > 0 { Ok(unanswered) } else { closed.map(|_| 0) }
    }

    /// Waits until a signal asks for an end.
    ///
    /// # Errors
    /// A worker failed: there is nothing left to end in order.
    pub fn wait(&self, termination: &Termination) -> Result<(), Failure> {
        super::ending::wait(termination, &self.group)
    }

    /// Ends the threads.
    ///
    /// # Errors
    /// A worker had failed, or does not end.
    pub fn stop(self) -> Result<(), Failure> {
        self.group.stop().map_err(|error| Failure::failed(error.to_string()))
    }
}

fn unexpected(reply: &HostReply) -> RpcError {
    let text = format!("{reply:?}");
    let name: String = text.chars().take_while(|c| c.is_alphanumeric()).collect();
    RpcError::failed(format!("the engine gave an answer that does not fit: {name}"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Attribute {
    object: String,
    attribute: Option<String>,
    value: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OneController {
    controller: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OneDevice {
    device: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExplainParams {
    device: String,
    samples: Option<u32>,
}

impl Host {
    fn call_attribute(&self, method: &str, params: Params<'_>) -> Result<Value, RpcError> {
        let Attribute { object, attribute, value } = params.read()?;
        match (method, attribute, value) {
            ("get", Some(attribute), None) => self.value(Verb::Get { object, attribute }, LOOK),
            ("get", None, None) => {
                let object = Some(object);
                match self.ask(Verb::Attributes { object }, LOOK)? {
                    Reply::Attributes(objects) => {
                        let shown = objects.into_iter().flat_map(|object| object.attributes);
                        let shown: Vec<AttributeView> = shown.map(AttributeView::from).collect();
                        Ok(json!({ "attributes": shown }))
                    }
                    other => Err(unexpected(&other)),
                }
            }
            ("set", Some(attribute), Some(value)) => {
                // Some do more than look: what is in flight ends, or a reset does.
                self.value(Verb::Set { object, attribute, value }, TALK)
            }
            ("get", _, Some(_)) => Err(RpcError::invalid("params: get takes no value")),
            _ => Err(RpcError::invalid("params: set needs an attribute and a value")),
        }
    }

    fn call_device(&self, method: &str, params: Params<'_>) -> Result<Value, RpcError> {
        let OneDevice { device } = params.read()?;
        let verb = match method {
            "id_ns" => Verb::IdNs { device },
            "quiesce" => Verb::Quiesce { device },
            "unquiesce" => Verb::Unquiesce { device },
            "freeze" => Verb::Freeze { device },
            _ => Verb::Unfreeze { device },
        };
        self.value(verb, TALK)
    }
}

impl Handler for Host {
    fn call(&self, method: &str, params: Params<'_>) -> Result<Answer, RpcError> {
        match method {
            "snapshot" => {
                params.none()?;
                Answer::of(&self.view()?)
            }
            "top" => {
                params.none()?;
                Answer::of(&self.top()?)
            }
            "discover" => {
                let path = self.asked(params, true)?;
                let addresses = addresses(&path).map_err(RpcError::failed)?;
                Answer::of(&at_one_of(&addresses, |at| self.discover(path.request(at)))?)
            }
            "explain" => {
                let ExplainParams { device, samples } = params.read()?;
                let samples = samples.unwrap_or(DEFAULT_SAMPLES) as usize;
                let report = self.explain(&device)?;
                Answer::of(&ExplainView {
                    instance: self.instance.clone(),
                    ..ExplainView::new(report, &self.view()?, samples)
                })
            }
            _ => Answer::of(&self.carry_out(method, params)?),
        }
    }
}

impl Host {
    fn carry_out(&self, method: &str, params: Params<'_>) -> Result<Value, RpcError> {
        match method {
            "connect" => self.call_connect(params),
            "disconnect" => self.call_disconnect(params),
            "get" | "set" => self.call_attribute(method, params),
            "ana_log" | "id_ctrl" | "reset" => {
                let OneController { controller } = params.read()?;
                let verb = match method {
                    "ana_log" => Verb::AnaLog { controller },
                    "id_ctrl" => Verb::IdCtrl { controller },
                    _ => Verb::Reset { controller },
                };
                self.value(verb, TALK)
            }
            "id_ns" | "quiesce" | "unquiesce" | "freeze" | "unfreeze" => {
                self.call_device(method, params)
            }
            _ if method.starts_with("export_") => self.call_export(method, params),
            _ => self.call_bench(method, params),
        }
    }
}
