//! What the load runs on: a device of the running host, or a host (and perhaps a target) of our
//! own.

use super::nbd::NbdStand;
use super::plan::Plan;
use crate::cli::args::{Global, bench::Bench};
use crate::cli::client::Client;
use crate::daemon::host::{Host, HostSetup};
use crate::daemon::identity::{Identity, Places};
use crate::daemon::load::JobSpec;
use crate::daemon::names::at_one_of;
use crate::daemon::path::{NamedPath, PathSpec, Service};
use crate::daemon::rpc::RpcError;
use crate::daemon::socket::Role;
use crate::daemon::target::{PortSpec, RunningTarget, SubsystemSpec, TargetSetup};
use crate::failure::Failure;
use anabranch_host::Event;
use anabranch_host::config::check_subsystem;
use anabranch_host::event::HostEvent;
use anabranch_lab::shown::Shown;
use anabranch_proto::machine::Endpoint;
use anabranch_rt::signal::Termination;
use serde_json::Value;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// Size of the embedded target's device.
pub(super) const DEVICE_BYTES: u64 = 256 << 20;
/// Its block size.
pub(super) const BLOCK_BYTES: u32 = 4096;
/// The head of a host of our own: its first.
const HEAD: &str = "nvme0n1";
/// How long a load may take to stop that a signal is to end.
const STOPS_WITHIN: Duration = Duration::from_secs(1);
/// How often to look for a signal while a load stops.
const LOOK: Duration = Duration::from_millis(50);

/// Where the load runs.
pub(super) enum Stand {
    /// On a host that runs already. A signal that is to end us ends the load there first.
    Running { socket: Option<PathBuf>, device: String, termination: Termination },
    /// On a host of our own, and an embedded target unless addresses were given.
    Own { host: Box<Host>, target: Option<Box<RunningTarget>>, connections: u32 },
    /// On an export of an NBD server.
    Nbd(Box<NbdStand>),
}

fn failed(error: RpcError) -> Failure {
    Failure::Failed(error.message)
}

impl Stand {
    pub(super) fn set_up(global: &Global, bench: &Bench, plan: &Plan) -> Result<Stand, Failure> {
        if let Some(device) = &bench.device {
            let termination = Termination::install()
                .map_err(|error| Failure::failed(format!("cannot take over signals: {error}")))?;
            let socket = global.socket.clone();
            return Ok(Stand::Running { socket, device: device.clone(), termination });
        }
        if let Some(uri) = &bench.nbd {
            return Ok(Stand::Nbd(Box::new(NbdStand::set_up(uri, bench, plan)?)));
        }
        let target = if bench.traddr.is_empty() { Some(embedded(bench, plan)?) } else { None };
        let (nqn, paths) = match &target {
            Some(target) => (target.nqns()[0].to_string(), embedded_paths(target)?),
            None => (remote_nqn(bench)?, remote_paths(bench)?),
        };
        let named = paths.iter().map(|path| path.named(&nqn, false));
        let named = named.collect::<Result<Vec<NamedPath>, String>>().map_err(Failure::Usage)?;
        for path in &named {
            check_subsystem(&path.subsystem_nqn).map_err(Failure::usage)?;
        }
        let identity = match &target {
            Some(_) => Identity::fresh()?,
            None => Identity::find(None, None, &Places::default())?,
        };
        let mut setup = HostSetup::new(identity);
        setup.name = "bench";
        setup.workers = bench.workers;
        setup.policy = bench.policy;
        setup.cpus.clone_from(&plan.placement.host);
        setup.pin = plan.placement.host.is_some();
        let refused = Arc::new(Mutex::new(None));
        let told = Arc::clone(&refused);
        let host = Host::start(&setup, move |event| {
            if let Event::Host(event @ HostEvent::NamespaceRefused { .. }) = event {
                told.lock().unwrap_or_else(PoisonError::into_inner).replace(event.to_string());
            }
        })?;
        for path in &named {
            let addresses = path.addresses().map_err(Failure::Failed)?;
            at_one_of(&addresses, |at| host.connect(path.request(at))).map_err(failed)?;
        }
        if host.await_head(HEAD).is_err() {
            let refused = refused.lock().unwrap_or_else(PoisonError::into_inner).take();
            return Err(no_device(&host, &nqn, refused));
        }
        // Paths are options of one command line.
        let connections = paths.len() as u32 * u32::from(bench.workers);
        Ok(Stand::Own { host: Box::new(host), target: target.map(Box::new), connections })
    }

    pub(super) fn device(&self) -> &str {
        match self {
            Stand::Running { device, .. } => device,
            Stand::Own { .. } => HEAD,
            Stand::Nbd(stand) => stand.uri(),
        }
    }

    /// I/O connections of a host of our own.
    pub(super) fn connections(&self) -> u32 {
        match self {
            Stand::Running { .. } | Stand::Nbd(_) => 0,
            Stand::Own { connections, .. } => *connections,
        }
    }

    /// What the load goes through.
    pub(super) fn transport(&self) -> &'static str {
        match self {
            Stand::Running { .. } | Stand::Own { .. } => "NVMe/TCP",
            Stand::Nbd(_) => "NBD",
        }
    }

    /// One run; its report.
    pub(super) fn run(&self, job: JobSpec, runtime: Duration) -> Result<Value, Failure> {
        match self {
            Stand::Running { socket, termination, .. } => {
                let job = serde_json::to_value(&job).map_err(wrong)?;
                // A connection for each: the host ends those that are silent for a while.
                let client = Client::connect(Role::Host, socket.as_deref())?;
                let begun = client.call("bench_start", job)?;
                drop(client);
                let ended = termination.wait_for(runtime);
                stop_there(socket.clone(), begun, termination, ended)
            }
            Stand::Own { host, .. } => {
                host.start_load(job.job()).map_err(failed)?;
                std::thread::sleep(runtime);
                Ok(super::load_json(&host.load_report(true).map_err(failed)?))
            }
            Stand::Nbd(stand) => stand.run(&job.job(), runtime),
        }
    }

    /// Ends in order.
    pub(super) fn strike(self) -> Result<(), Failure> {
        let (host, target) = match self {
            Stand::Running { .. } => return Ok(()),
            Stand::Nbd(stand) => return stand.strike(),
            Stand::Own { host, target, .. } => (host, target),
        };
        let unanswered = host.shut_down().map_err(failed)?;
        host.stop()?;
        if let Some(target) = target {
            target.stop()?;
        }
        if unanswered > 0 {
            return Err(Failure::failed(format!("{unanswered} I/Os were not answered at the end")));
        }
        Ok(())
    }
}

/// Ends the load on a running host that has answered so when it began; its report. Requests may
/// wait for a path there, perhaps for long: a signal ends us all the same, and they end without us.
fn stop_there(
    socket: Option<PathBuf>,
    begun: Value,
    termination: &Termination,
    ended: io::Result<bool>,
) -> Result<Value, Failure> {
    let (tell, told) = mpsc::channel();
    let ask = move || Client::connect(Role::Host, socket.as_deref())?.ask("bench_stop", begun);
    std::thread::spawn(move || tell.send(ask()));
    let cannot_wait = |error: io::Error| Failure::failed(format!("cannot wait: {error}"));
    let mut ended = ended.map_err(cannot_wait)?;
    loop {
        let limit = if ended { STOPS_WITHIN } else { LOOK };
        match told.recv_timeout(limit) {
            Ok(report) if ended => {
                report?.map_err(failed)?;
                return Err(Failure::failed("ended by a signal; the load was stopped"));
            }
            Ok(report) => return report?.map_err(not_stopped),
            Err(_) if ended => {
                return Err(Failure::failed(
                    "ended by a signal; the load ends when its last requests are answered",
                ));
            }
            Err(_) => ended = termination.wait_for(Duration::ZERO).map_err(cannot_wait)?,
        }
    }
}

/// A report that did not come in time: the last requests did not end.
fn not_stopped(error: RpcError) -> Failure {
    match error.code {
        RpcError::TIMEOUT => Failure::Failed(format!(
            "the load does not end, for its last requests are not answered ({}): 'anabranch \
             list-subsys' shows whether there is a path",
            error.message
        )),
        _ => failed(error),
    }
}

/// Why a host that has connected to every address has no device.
fn no_device(host: &Host, nqn: &str, refused: Option<String>) -> Failure {
    let view = match host.view() {
        Ok(view) => view,
        Err(error) => return failed(error),
    };
    let controllers = view.subsystems.iter().flat_map(|subsystem| &subsystem.controllers);
    let lost = controllers.filter(|controller| controller.state != "live").find_map(|controller| {
        let why = controller.last_error.as_deref()?;
        Some(format!("{}:{}: {why}", controller.traddr, controller.trsvcid))
    });
    let why = lost.or(refused).unwrap_or_else(|| "it has none for this host".to_owned());
    Failure::failed(format!("{nqn} offers no namespace to put a load on: {}", Shown(&why)))
}

fn wrong(error: serde_json::Error) -> Failure {
    Failure::failed(format!("the load cannot be written as JSON: {error}"))
}

fn embedded(bench: &Bench, plan: &Plan) -> Result<RunningTarget, Failure> {
    let port = || PortSpec { listen: "127.0.0.1:0".to_owned(), ..PortSpec::default() };
    let device = format!("mem:{DEVICE_BYTES},bs={BLOCK_BYTES}");
    let setup = TargetSetup {
        ports: (0..bench.paths).map(|_| port()).collect(),
        subsystems: vec![SubsystemSpec {
            namespaces: vec![device.parse().map_err(Failure::Failed)?],
            ..SubsystemSpec::named("nqn.2026-01.org.anabranch:bench")
        }],
        cpus: plan.placement.target.clone(),
    };
    RunningTarget::start(&setup, |_| {})
}

fn embedded_paths(target: &RunningTarget) -> Result<Vec<PathSpec>, Failure> {
    let listeners = target.listeners().map_err(failed)?;
    Ok(listeners
        .into_iter()
        .filter_map(|listener| match listener {
            Endpoint::Tcp(address) => Some(PathSpec {
                traddr: address.ip().to_string(),
                trsvcid: Some(Service(address.port())),
                ..PathSpec::default()
            }),
            Endpoint::Unix(_) => None,
        })
        .collect())
}

fn remote_nqn(bench: &Bench) -> Result<String, Failure> {
    if bench.transport != "tcp" {
        let text = format!("transport '{}' is not supported: only tcp is", bench.transport);
        return Err(Failure::Usage(text));
    }
    bench.nqn.clone().ok_or_else(|| Failure::usage("-a needs the subsystem's NQN with -n"))
}

/// One path per address; one port for all, or one each.
fn remote_paths(bench: &Bench) -> Result<Vec<PathSpec>, Failure> {
    let (addresses, ports) = (&bench.traddr, &bench.trsvcid);
    if ports.len() > 1 && addresses.len() > 1 && ports.len() != addresses.len() {
        return Err(Failure::usage(format!(
            "{} times -a and {} times -s: give one port for all addresses, or one each",
            addresses.len(),
            ports.len()
        )));
    }
    let count = addresses.len().max(ports.len());
    Ok((0..count)
        .map(|index| PathSpec {
            traddr: addresses[index.min(addresses.len() - 1)].clone(),
            trsvcid: ports.get(index.min(ports.len().saturating_sub(1))).map(|port| Service(*port)),
            ..PathSpec::default()
        })
        .collect())
}
