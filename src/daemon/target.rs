//! A running target: from options or a file to workers, and what the control socket may ask of it.

mod files;
mod setup;
mod status;
#[cfg(test)]
mod tests;

pub use setup::{PortSpec, SubsystemSpec, TargetSetup};
pub use status::{json as status_json, text as status_text};

use super::backing::NamespaceSpec;
use super::control::Handler;
use super::listen::socket_address;
use super::rpc::{Answer, Params, RpcError};
use crate::failure::Failure;
use crate::units::Bytes;
use anabranch_proto::machine::{Endpoint, WorkerId};
use anabranch_proto::nvme::{AnaState, Nqn};
use anabranch_rt::signal::Termination;
use anabranch_rt::{Config, Group};
use anabranch_target::config::{MAX_CNTLID, MAX_NSID, NamespaceConfig};
use anabranch_target::status::PortStatus;
use anabranch_target::{
    PortFault, Shape, Target, TargetError, TargetEvent, TargetReply, TargetStatus, TargetVerb,
};
use files::{FileTable, RELEASE};
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a verb may take.
const VERB: Duration = Duration::from_secs(10);
/// How long all ports together may take until they listen.
const LISTEN: Duration = Duration::from_secs(5);

/// A running target.
#[derive(Debug)]
pub struct RunningTarget {
    group: Group<Target>,
    files: FileTable,
    nqns: Vec<Nqn>,
}

/// Where a start begins to number controllers: elsewhere than the one before it. Linux takes no
/// path whose number another path to the subsystem has, also when that one is only being connected
/// again and has its number from the target as it was before.
fn first_cntlid(seed: u64) -> u16 {
    u16::try_from(seed % u64::from(MAX_CNTLID)).unwrap_or(0) + 1
}

/// A namespace as the engine takes it.
fn namespace(
    files: &FileTable,
    spec: &NamespaceSpec,
    subsystem: &Nqn,
    nsid: u32,
) -> Result<NamespaceConfig, Failure> {
    let backend = files.backend(spec, subsystem, nsid)?;
    let ids = spec.identifiers(subsystem, nsid);
    let (uuid, nguid) = ids.inspect_err(|_| files.refused(&backend)).map_err(Failure::Usage)?;
    Ok(NamespaceConfig {
        nsid,
        backend,
        block_bytes: spec.bs,
        uuid: Some(uuid),
        nguid: Some(nguid),
        ana_group: spec.anagrp,
    })
}

impl RunningTarget {
    /// Starts it and waits until every port listens.
    ///
    /// # Errors
    /// A setting that makes no sense, a file that cannot be had, an address in use.
    pub fn start(
        setup: &TargetSetup,
        log: impl Fn(TargetEvent) + Send + Sync + 'static,
    ) -> Result<RunningTarget, Failure> {
        let files = FileTable::new();
        let visited = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&visited);
        let log = move |event| {
            if matches!(event, TargetEvent::ControllerUp { .. }) {
                seen.store(true, Ordering::SeqCst);
            }
            log(event);
        };
        let (group, nqns) = Self::launch(setup, &files, log).inspect_err(|_| files.unmake())?;
        let target = RunningTarget { group, files, nqns };
        if let Err(failure) = target.await_ports() {
            let RunningTarget { group, files, .. } = target;
            // A host that was let in through a port that did listen may have written already.
            if group.stop().is_ok() && !visited.load(Ordering::SeqCst) {
                files.unmake();
            }
            return Err(failure);
        }
        target.files.all_taken();
        Ok(target)
    }

    fn launch(
        setup: &TargetSetup,
        files: &FileTable,
        log: impl Fn(TargetEvent) + Send + Sync + 'static,
    ) -> Result<(Group<Target>, Vec<Nqn>), Failure> {
        let mut config = setup.config(files)?;
        let nqns = config.subsystems.iter().map(|subsystem| subsystem.nqn.clone()).collect();
        let seed = super::identity::random_seed()?;
        config.first_cntlid = Some(first_cntlid(seed));
        let engine =
            Target::new(config, seed).map_err(|error| Failure::usage(error.to_string()))?;
        let runtime = Config {
            files: files.files().clone(),
            cpus: setup.cpus.clone(),
            pin: setup.cpus.is_some(),
            pool_bytes: super::memory::of_each(1),
            starved: Some(super::ending::starved),
            ..Config::named("target")
        };
        let group = Group::start(runtime, vec![engine], Box::new(move |_, event| log(event)))
            .map_err(|error| Failure::failed(format!("cannot start the target: {error}")))?;
        Ok((group, nqns))
    }

    fn await_ports(&self) -> Result<(), Failure> {
        self.await_listeners(|_| true).map_err(|error| Failure::failed(error.message))
    }

    /// Waits until the ports that `wanted` picks listen; one that was cut meanwhile shall not.
    fn await_listeners(&self, wanted: impl Fn(&PortStatus) -> bool) -> Result<(), RpcError> {
        let until = Instant::now() + LISTEN;
        loop {
            let status = self.status()?;
            let mut waits = false;
            let shall = |port: &&PortStatus| wanted(port) && port.fault != PortFault::Cut;
            for port in status.ports.iter().filter(shall) {
                if let Some(error) = port.error {
                    let text = format!("cannot listen on {}: {error}", port.at);
                    return Err(RpcError::failed(text));
                }
                waits |= !port.listening;
            }
            if !waits {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(RpcError::failed("the target's ports do not listen after 5 s"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn ask(&self, verb: TargetVerb) -> Result<TargetReply, RpcError> {
        match self.group.verb(WorkerId(0), verb, VERB) {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error @ (TargetError::Disk(_) | TargetError::NoMemory))) => {
                Err(RpcError::failed(error.to_string()))
            }
            Ok(Err(error @ TargetError::NamespaceExists { .. })) => {
                Err(RpcError::new(RpcError::CONFLICT, error.to_string()))
            }
            Ok(Err(TargetError::NoSuchNamespace { nsid })) => Err(RpcError::invalid(format!(
                "there is no namespace {nsid}: 'anabranch target ctl status' shows those that exist"
            ))),
            Ok(Err(error)) => Err(RpcError::invalid(error.to_string())),
            Err(error @ anabranch_rt::Error::NoAnswer(_)) => {
                Err(RpcError::new(RpcError::TIMEOUT, error.to_string()))
            }
            Err(error @ anabranch_rt::Error::Busy(_)) => {
                Err(RpcError::new(RpcError::BUSY, error.to_string()))
            }
            Err(error) => Err(RpcError::failed(error.to_string())),
        }
    }

    fn done(&self, verb: TargetVerb) -> Result<Value, RpcError> {
        self.ask(verb).map(|_| json!({}))
    }

    /// Everything there is to see.
    ///
    /// # Errors
    /// The engine does not answer.
    pub fn status(&self) -> Result<TargetStatus, RpcError> {
        match self.ask(TargetVerb::Status)? {
            TargetReply::Status(status) => Ok(*status),
            TargetReply::Done => Err(RpcError::failed("the target did not tell its status")),
        }
    }

    /// The addresses that ports listen on, in order.
    ///
    /// # Errors
    /// The engine does not answer.
    pub fn listeners(&self) -> Result<Vec<Endpoint>, RpcError> {
        Ok(self.status()?.ports.into_iter().map(|port| port.at).collect())
    }

    /// The addresses that the discovery log names, in the order of the ports.
    ///
    /// # Errors
    /// The engine does not answer.
    pub fn advertised(&self) -> Result<Vec<Option<SocketAddr>>, RpcError> {
        Ok(self.status()?.ports.into_iter().map(|port| port.advertised).collect())
    }

    /// The NQNs of its I/O subsystems.
    #[must_use]
    pub fn nqns(&self) -> &[Nqn] {
        &self.nqns
    }

    /// Resets a port's connections and refuses new ones.
    ///
    /// # Errors
    /// There is no such port.
    pub fn cut(&self, port: u16) -> Result<(), RpcError> {
        self.ask(TargetVerb::Cut { port }).map(|_| ())
    }

    /// Ends a cut or a stall, and waits until the port listens.
    ///
    /// # Errors
    /// There is no such port, or its address was taken meanwhile.
    pub fn restore(&self, port: u16) -> Result<(), RpcError> {
        self.ask(TargetVerb::Restore { port })?;
        self.await_listeners(|status| status.port == port).map_err(|error| RpcError {
            message: format!("{}: mend that, then restore it again", error.message),
            ..error
        })
    }

    /// Waits until a signal asks for an end.
    ///
    /// # Errors
    /// Its worker failed.
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

    fn port(&self, text: &str) -> Result<u16, RpcError> {
        find_port(text, &self.listeners()?).map_err(RpcError::invalid)
    }

    /// The subsystem that is meant: the only one, or the one that is named.
    fn subsystem(&self, nqn: Option<&str>) -> Result<Nqn, RpcError> {
        match (nqn, &self.nqns[..]) {
            (None, [only]) => Ok(only.clone()),
            (None, all) => {
                let text = format!("there are {} subsystems: name one with --nqn", all.len());
                Err(RpcError::invalid(text))
            }
            (Some(nqn), all) => {
                all.iter().find(|known| known.as_str() == nqn).cloned().ok_or_else(|| {
                    let known: Vec<&str> = all.iter().map(Nqn::as_str).collect();
                    let (nqn, known) = (nqn.escape_debug(), known.join(", "));
                    let are = if all.len() == 1 { "the only one is" } else { "there are" };
                    RpcError::invalid(format!("there is no subsystem '{nqn}': {are} {known}"))
                })
            }
        }
    }
}

/// A port by its TCP port number, its address or its place in the list, from 1.
///
/// # Errors
/// One sentence that lists the ports.
pub fn find_port(text: &str, listeners: &[Endpoint]) -> Result<u16, String> {
    let tcp = |at: &Endpoint| match at {
        Endpoint::Tcp(address) => Some(*address),
        Endpoint::Unix(_) => None,
    };
    let number = text.parse::<u16>().ok();
    let place = number
        .filter(|number| *number != 0)
        .and_then(|number| {
            listeners.iter().position(|at| tcp(at).is_some_and(|tcp| tcp.port() == number))
        })
        .or_else(|| {
            let named = socket_address(text).ok().flatten()?;
            listeners.iter().position(|at| tcp(at) == Some(named))
        })
        .or_else(|| {
            number.and_then(|n| usize::from(n).checked_sub(1)).filter(|n| *n < listeners.len())
        });
    place.and_then(|place| u16::try_from(place).ok()).ok_or_else(|| {
        let known: Vec<String> = listeners
            .iter()
            .enumerate()
            .map(|(place, at)| format!("{} ({at})", place + 1))
            .collect();
        let (text, known) = (text.escape_debug(), known.join(", "));
        let are = if listeners.len() == 1 { "the only one is" } else { "there are" };
        format!("there is no port '{text}': {are} {known}")
    })
}

/// How a request names a port: also with the number that `status` has for it.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a port: its place from 1, its TCP port, or its address as text")]
enum PortName {
    Number(u16),
    Text(String),
}

impl PortName {
    fn text(self) -> String {
        match self {
            PortName::Number(number) => number.to_string(),
            PortName::Text(text) => text,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OnePort {
    port: PortName,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnaParams {
    port: PortName,
    group: u32,
    state: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShapeParams {
    port: PortName,
    shape: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NsAdd {
    namespace: NamespaceSpec,
    nqn: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NsChange {
    nsid: u32,
    nqn: Option<String>,
    size: Option<Bytes>,
    group: Option<u32>,
    lba: Option<u64>,
}

impl RunningTarget {
    fn add_namespace(&self, params: NsAdd) -> Result<Value, RpcError> {
        let subsystem = self.subsystem(params.nqn.as_deref())?;
        let status = self.status()?;
        let taken: Vec<u32> = status
            .subsystems
            .iter()
            .filter(|known| known.nqn == subsystem)
            .flat_map(|known| known.namespaces.iter().map(|namespace| namespace.nsid))
            .collect();
        let nsid = match params.namespace.nsid {
            Some(nsid) if taken.contains(&nsid) => {
                return Err(RpcError::new(RpcError::CONFLICT, format!("namespace {nsid} exists")));
            }
            Some(nsid) => nsid,
            None => (1..=MAX_NSID)
                .find(|nsid| !taken.contains(nsid))
                .ok_or_else(|| RpcError::new(RpcError::CONFLICT, "every namespace is taken"))?,
        };
        let _claim = self.files.claim(&subsystem, nsid, Some(&params.namespace))?;
        let config = namespace(&self.files, &params.namespace, &subsystem, nsid).map_err(
            |why| match why {
                Failure::Usage(text) => RpcError::invalid(text),
                Failure::Failed(text) => RpcError::failed(text),
            },
        )?;
        let backend = config.backend.clone();
        let added = self.ask(TargetVerb::NamespaceAdd { subsystem, config });
        self.files.settle(&backend, added.as_ref().err());
        added.map(|_| json!({ "nsid": nsid }))
    }

    /// How many bytes a namespace has, if it is there.
    fn size(&self, subsystem: &Nqn, nsid: u32) -> Result<Option<u64>, RpcError> {
        let status = self.status()?;
        let found = status.subsystems.iter().filter(|known| known.nqn == *subsystem);
        let mut found = found.flat_map(|known| &known.namespaces);
        let namespace = found.find(|namespace| namespace.nsid == nsid);
        Ok(namespace.map(|it| it.blocks * u64::from(it.block_bytes)))
    }

    fn remove_namespace(&self, subsystem: Nqn, nsid: u32) -> Result<Value, RpcError> {
        // Not those of a namespace that somebody adds in its place meanwhile.
        let claim = self.files.claim(&subsystem, nsid, None)?;
        let mut files = self.files.behind(&subsystem, nsid);
        let removed = self.ask(TargetVerb::NamespaceRemove { subsystem, nsid });
        if let Err(error) = removed {
            if error.code == RpcError::TIMEOUT {
                self.files.doubt(&files);
            }
            // It may have gone after we stopped waiting for an earlier answer.
            files = match error.code {
                RpcError::INVALID_PARAMS => self.files.doubtful(files),
                _ => Vec::new(),
            };
            if files.is_empty() {
                return Err(error);
            }
        }
        drop(claim);
        self.files.release(&files, RELEASE);
        Ok(json!({}))
    }

    fn change_namespace(&self, method: &str, params: Params<'_>) -> Result<Value, RpcError> {
        let NsChange { nsid, nqn, size, group, lba } = params.read()?;
        let subsystem = self.subsystem(nqn.as_deref())?;
        match (method, size, group, lba) {
            ("ns_rm", None, None, None) => self.remove_namespace(subsystem, nsid),
            ("ns_resize", Some(Bytes(bytes)), None, None) => {
                let of = subsystem.clone();
                let size = || self.size(&of, nsid);
                self.files.resize(&of, nsid, bytes, size, || {
                    self.done(TargetVerb::NamespaceResize { subsystem, nsid, bytes })
                })
            }
            ("ns_group", None, Some(group), None) => {
                self.done(TargetVerb::NamespaceGroup { subsystem, nsid, group })
            }
            ("ns_corrupt", None, None, Some(lba)) => {
                self.done(TargetVerb::Corrupt { subsystem, nsid, lba })
            }
            _ => Err(RpcError::invalid(format!("params: {method} takes other fields"))),
        }
    }
}

impl Handler for RunningTarget {
    fn call(&self, method: &str, params: Params<'_>) -> Result<Answer, RpcError> {
        self.carry_out(method, params).and_then(|value| Answer::of(&value))
    }
}

impl RunningTarget {
    fn carry_out(&self, method: &str, params: Params<'_>) -> Result<Value, RpcError> {
        match method {
            "status" => {
                params.none()?;
                Ok(status_json(&self.status()?))
            }
            "ana" => {
                let AnaParams { port, group, state } = params.read()?;
                let port = self.port(&port.text())?;
                let state: AnaState =
                    state.parse().map_err(|error| RpcError::invalid(format!("state: {error}")))?;
                self.done(TargetVerb::Ana { port, group, state })
            }
            "shape" => {
                let ShapeParams { port, shape } = params.read()?;
                let port = self.port(&port.text())?;
                let shape: Shape =
                    shape.parse().map_err(|error| RpcError::invalid(format!("{error}")))?;
                self.done(TargetVerb::Shape { port, shape })
            }
            "cut" | "stall" | "restore" => {
                let OnePort { port } = params.read()?;
                let port = self.port(&port.text())?;
                match method {
                    "cut" => self.done(TargetVerb::Cut { port }),
                    "stall" => self.done(TargetVerb::Stall { port }),
                    _ => self.restore(port).map(|()| json!({})),
                }
            }
            "ns_add" => self.add_namespace(params.read()?),
            "ns_rm" | "ns_resize" | "ns_group" | "ns_corrupt" => {
                self.change_namespace(method, params)
            }
            _ => Err(RpcError::no_method(method)),
        }
    }
}
