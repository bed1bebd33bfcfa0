//! The embedded target: a shaped port per path, one namespace in memory.

use super::LiveError;
use super::files;
use super::wires::{self, Side, Wires};
use crate::scenario::{self, AnaState, Brownout, Distribution, PathState, Scenario};
use anabranch_proto::machine::{Endpoint, WorkerId};
use anabranch_proto::nvme::{AnaState as WireState, Nqn};
use anabranch_rt::{Config, Group};
use anabranch_target::config::{
    BackendConfig, NamespaceConfig, PortConfig, SubsystemConfig, TargetConfig,
};
use anabranch_target::link::Shape;
use anabranch_target::{Service, Target, TargetReply, TargetStatus, TargetVerb};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// How long a verb may take.
const VERB: Duration = Duration::from_secs(10);
/// How long all ports together may take until they listen.
const LISTEN: Duration = Duration::from_secs(5);
/// How long to wait before looking again.
const LOOK: Duration = Duration::from_millis(2);
/// The subsystem.
pub(super) const SUBSYSTEM: &str = "nqn.2026-01.org.anabranch:lab";
/// The ANA group of the namespace.
const ANA_GROUP: u32 = 1;

/// The state as the target has it.
pub(super) fn wire_state(state: AnaState) -> WireState {
    match state {
        AnaState::Optimized => WireState::Optimized,
        AnaState::NonOptimized => WireState::NonOptimized,
        AnaState::Inaccessible => WireState::Inaccessible,
    }
}

/// The target, and where its ports are.
pub(super) struct Ports {
    group: Group<Target>,
    addresses: Vec<SocketAddr>,
    /// Links of the kernel that the rates are given to.
    wires: Option<Wires>,
}

impl Ports {
    /// Starts it; every port listens. `pool_bytes` is what payload may take.
    pub(super) fn start(
        scenario: &Scenario,
        thread: &str,
        pool_bytes: usize,
        wires: Option<Wires>,
    ) -> Result<Ports, LiveError> {
        let what = || "start the target".to_owned();
        let target = Target::new(config(scenario, wires.is_some())?, 1);
        let target = target.map_err(|error| LiveError::failed(what(), error))?;
        let runtime = Config { pool_bytes, ..Config::named(thread) };
        let start = || {
            Group::start(runtime, vec![target], Box::new(|_, _| {}))
                .map_err(|error| LiveError::failed(what(), error))
        };
        let group = match &wires {
            Some(wires) => wires.inside(Side::Target, start)?,
            None => start()?,
        };
        let mut ports = Ports { group, addresses: Vec::new(), wires };
        ports.addresses = ports.listening()?;
        Ok(ports)
    }

    /// Waits until every port listens; where.
    fn listening(&self) -> Result<Vec<SocketAddr>, LiveError> {
        let until = Instant::now() + LISTEN;
        loop {
            let status = self.status()?;
            if let Some(port) = status.ports.iter().find(|port| port.error.is_some()) {
                let why = port.error.map_or_else(String::new, |error| error.to_string());
                return Err(LiveError::failed(format!("listen on {}", port.at), why));
            }
            if status.ports.iter().all(|port| port.listening) {
                let address = |at: &Endpoint| match at {
                    Endpoint::Tcp(address) => Some(*address),
                    Endpoint::Unix(_) => None,
                };
                return Ok(status.ports.iter().filter_map(|port| address(&port.at)).collect());
            }
            if Instant::now() >= until {
                return Err(LiveError::failed("listen", format!("not yet after {LISTEN:?}")));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Where each path's port listens.
    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Runs `work` where hosts can reach the ports; threads that it starts can, too.
    pub(super) fn among_hosts<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, LiveError> + Send,
    ) -> Result<T, LiveError> {
        match &self.wires {
            Some(wires) => wires.inside(Side::Hosts, work),
            None => work(),
        }
    }

    fn status(&self) -> Result<TargetStatus, LiveError> {
        match self.ask(TargetVerb::Status)? {
            TargetReply::Status(status) => Ok(*status),
            TargetReply::Done => Err(LiveError::failed("ask the target", "it told no status")),
        }
    }

    fn ask(&self, verb: TargetVerb) -> Result<TargetReply, LiveError> {
        let what = format!("tell the target: {verb:?}");
        match self.group.verb(WorkerId(0), verb, VERB) {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => Err(LiveError::failed(what, error)),
            Err(error) => Err(LiveError::failed(what, error)),
        }
    }

    pub(super) fn shape(&self, path: usize, shape: &Shape) -> Result<(), LiveError> {
        if let Some(wires) = &self.wires {
            wires.rates(path, shape.rate_in, shape.rate_out)?;
        }
        let shape = own_part(shape, self.wires.is_some());
        self.ask(TargetVerb::Shape { port: number(path), shape }).map(|_| ())
    }

    pub(super) fn ana(&self, path: usize, state: AnaState) -> Result<(), LiveError> {
        let (port, group, state) = (number(path), ANA_GROUP, wire_state(state));
        self.ask(TargetVerb::Ana { port, group, state }).map(|_| ())
    }

    pub(super) fn brownout(
        &self,
        path: usize,
        brownout: Option<Brownout>,
    ) -> Result<(), LiveError> {
        let brownout = brownout.map(|brownout| anabranch_target::Brownout {
            percent: brownout.percent,
            delay: brownout.delay,
        });
        self.ask(TargetVerb::Brownout { port: number(path), brownout }).map(|_| ())
    }

    /// Service times from now on, or none.
    pub(super) fn service(&self, target: Option<&scenario::Target>) -> Result<(), LiveError> {
        let service = target.map(|target| Service {
            servers: target.servers,
            read: Duration::from_nanos(target.read_ns),
            write: Duration::from_nanos(target.write_ns),
            other: Duration::from_nanos(target.other_ns),
            exponential: target.distribution == Distribution::Exponential,
            per_port: target.per_path,
        });
        self.ask(TargetVerb::Service(service)).map(|_| ())
    }

    pub(super) fn state(&self, path: usize, state: PathState) -> Result<(), LiveError> {
        let port = number(path);
        let verb = match state {
            PathState::Up => TargetVerb::Restore { port },
            PathState::Cut => TargetVerb::Cut { port },
            PathState::Silent => TargetVerb::Stall { port },
        };
        self.ask(verb).map(|_| ())
    }

    /// Ends its threads.
    pub(super) fn stop(self) -> Result<(), LiveError> {
        self.group.stop().map_err(|error| LiveError::failed("end the target", error))
    }
}

/// Scenarios have far fewer paths.
fn number(path: usize) -> u16 {
    u16::try_from(path).unwrap_or(u16::MAX)
}

/// What the target does of a shape.
fn own_part(shape: &Shape, wired: bool) -> Shape {
    let mut shape = shape.clone();
    if wired {
        (shape.rate_in, shape.rate_out) = (None, None);
    }
    shape
}

fn config(scenario: &Scenario, wired: bool) -> Result<TargetConfig, LiveError> {
    let nqn: Nqn =
        SUBSYSTEM.parse().map_err(|error| LiveError::failed("name the subsystem", error))?;
    let namespace = NamespaceConfig {
        nsid: 1,
        backend: BackendConfig::Memory { bytes: scenario.target.size_bytes },
        block_bytes: scenario.target.block_bytes,
        uuid: None,
        nguid: None,
        ana_group: ANA_GROUP,
    };
    let subsystem = SubsystemConfig {
        nqn,
        serial: "ANABRANCHLAB0001".to_owned(),
        model: "Anabranch lab".to_owned(),
        namespaces: vec![namespace],
        allowed_hosts: Vec::new(),
    };
    let port = |(at, path): (usize, &scenario::Path)| {
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let address = if wired { wires::address(at, Side::Target) } else { local };
        let mut port = PortConfig::new(Endpoint::Tcp(SocketAddr::new(address, 0)));
        port.shape = own_part(&path.shape, wired);
        port.ana = BTreeMap::from([(ANA_GROUP, wire_state(path.ana))]);
        port
    };
    let mut config = TargetConfig {
        subsystems: vec![subsystem],
        ports: scenario.paths.iter().enumerate().map(port).collect(),
        ..TargetConfig::default()
    };
    let queues = u16::try_from(scenario.hosts.workers).unwrap_or(u16::MAX);
    config.limits.io_queues = config.limits.io_queues.max(queues);
    // While a host connects anew, its old connections may still be closing.
    let connections = u32::try_from(files::connections(scenario) * 2).unwrap_or(u32::MAX);
    config.limits.connections = config.limits.connections.max(connections);
    Ok(config)
}
