//! `target` and `target ctl`.

use super::args::Global;
use super::args::target::{Ctl, Ns, Run, Target, TargetVerb};
use super::client::Client;
use super::shown;
use crate::daemon::backing::{Backend, NamespaceSpec};
use crate::daemon::control::{ControlServer, Limits};
use crate::daemon::ending;
use crate::daemon::log::{log, log_of};
use crate::daemon::memory;
use crate::daemon::service;
use crate::daemon::socket::{BoundSocket, Role, default_path};
use crate::daemon::target::{RunningTarget, TargetSetup, status_text};
use crate::failure::Failure;
use anabranch_proto::nvme::AnaState;
use anabranch_target::{Shape, TargetEvent};
use serde_json::{Value, json};
use std::sync::Arc;

/// Runs or controls a target.
pub(super) fn run(global: &Global, target: &Target) -> Result<(), Failure> {
    match &target.verb {
        // Options of every verb stand anywhere.
        Some(TargetVerb::Ctl { .. }) if target.run != Run::default() => Err(Failure::usage(
            "'target ctl' controls a target that runs: what says how to run one does not go \
             with it",
        )),
        Some(TargetVerb::Ctl { verb }) => control(global, verb),
        None => serve(global, &target.run),
    }
}

fn serve(global: &Global, run: &Run) -> Result<(), Failure> {
    // While a pipe that stands for the file has nothing to say, signals still end the process.
    let setup = match &run.config {
        Some(path) => TargetSetup::load(path)?,
        None => TargetSetup::from_options(run)?,
    };
    let termination = ending::prepare()?;
    crate::daemon::files::raise();
    let path = global.socket.clone().unwrap_or_else(|| default_path(Role::Target));
    let socket = BoundSocket::bind(&path)?;
    let target = Arc::new(RunningTarget::start(&setup, |event| tell(counted_from_one(event)))?);
    memory::wording(1).into_iter().for_each(log);
    let server = ControlServer::serve(socket, Arc::clone(&target) as _, Limits::default())?;
    let listeners = target.listeners().map_err(|error| Failure::failed(error.message))?;
    unreachable_ports(&target)?;
    let listeners: Vec<String> = listeners.iter().map(ToString::to_string).collect();
    let nqns: Vec<String> = target.nqns().iter().map(ToString::to_string).collect();
    super::announce(super::output(
        global,
        || {
            let mut text: String = nqns.iter().map(|nqn| format!("nqn {nqn}\n")).collect();
            for (place, listener) in listeners.iter().enumerate() {
                text.push_str(&format!("port {} {listener}\n", place + 1));
            }
            text.push_str(&format!("control socket {}\n", server.path().display()));
            text
        },
        || {
            let nqn = nqns.first();
            json!({ "nqn": nqn, "nqns": nqns, "listeners": listeners, "socket": server.path() })
        },
    ));
    service::ready();
    target.wait(&termination)?;
    service::stopping();
    drop(server);
    // Clients of the control socket may hold it for a moment longer: the process ends all the same.
    match Arc::try_unwrap(target) {
        Ok(target) => target.stop(),
        Err(_) => Ok(()),
    }
}

/// Says which ports the discovery log cannot name: it has one address per port, and "all" is none.
fn unreachable_ports(target: &RunningTarget) -> Result<(), Failure> {
    let advertised = target.advertised().map_err(|error| Failure::failed(error.message))?;
    for (place, at) in advertised.into_iter().enumerate() {
        let Some(at) = at.filter(|at| at.ip().is_unspecified()) else { continue };
        log(format!(
            "port {}: the discovery log names {}, which no other machine can connect to: name one \
             of its addresses with --advertise",
            place + 1,
            at.ip()
        ));
    }
    Ok(())
}

fn control(global: &Global, verb: &Ctl) -> Result<(), Failure> {
    let (method, params) = request(verb)?;
    let client = Client::connect(Role::Target, global.socket.as_deref())?;
    let mut answer = client.call(method, params)?;
    if !global.json() {
        shown::tame(&mut answer);
    }
    super::print(
        global,
        || match verb {
            Ctl::Status => status_text(&answer),
            Ctl::Ns { verb: Ns::Add { .. } } => format!("namespace {}\n", answer["nsid"]),
            _ => String::new(),
        },
        || answer.clone(),
    )
}

fn request(verb: &Ctl) -> Result<(&'static str, Value), Failure> {
    Ok(match verb {
        Ctl::Ana { port, group, state } => {
            let known = state.parse::<AnaState>();
            known.map_err(|why| Failure::usage(format!("state '{state}': {why}")))?;
            ("ana", json!({ "port": port, "group": group, "state": state }))
        }
        Ctl::Shape { port, shape } => {
            shape.parse::<Shape>().map_err(|why| Failure::usage(why.to_string()))?;
            ("shape", json!({ "port": port, "shape": shape }))
        }
        Ctl::Cut { port } => ("cut", json!({ "port": port })),
        Ctl::Stall { port } => ("stall", json!({ "port": port })),
        Ctl::Restore { port } => ("restore", json!({ "port": port })),
        Ctl::Status => ("status", json!({})),
        Ctl::Ns { verb } => match verb {
            Ns::Add { spec, nqn } => {
                let mut spec: NamespaceSpec = spec.parse().map_err(Failure::Usage)?;
                spec.check().map_err(Failure::Usage)?;
                // A relative path is relative to where the user is.
                if let Backend::File(path) = &mut spec.backend {
                    *path = std::path::absolute(&*path)
                        .map_err(|why| Failure::usage(format!("{}: {why}", path.display())))?;
                }
                ("ns_add", json!({ "namespace": spec, "nqn": nqn }))
            }
            Ns::Rm { nsid, nqn } => ("ns_rm", json!({ "nsid": nsid, "nqn": nqn })),
            Ns::Resize { nsid, size, nqn } => {
                ("ns_resize", json!({ "nsid": nsid, "size": size, "nqn": nqn }))
            }
            Ns::Group { nsid, group, nqn } => {
                ("ns_group", json!({ "nsid": nsid, "group": group, "nqn": nqn }))
            }
            Ns::Corrupt { nsid, lba, nqn } => {
                ("ns_corrupt", json!({ "nsid": nsid, "lba": lba, "nqn": nqn }))
            }
        },
    })
}

fn tell(event: TargetEvent) {
    log_of(event.kind(), event);
}

/// The engine counts ports from 0, people (and our command line) from 1.
fn counted_from_one(mut event: TargetEvent) -> TargetEvent {
    match &mut event {
        TargetEvent::PortUp { port, .. }
        | TargetEvent::PortFailed { port, .. }
        | TargetEvent::PortCut { port }
        | TargetEvent::ControllerUp { port, .. }
        | TargetEvent::ProtocolFault { port, .. }
        | TargetEvent::DataDamaged { port, .. }
        | TargetEvent::ConnectRefused { port, .. } => *port += 1,
        TargetEvent::ControllerDown { .. }
        | TargetEvent::FlushFailed { .. }
        | TargetEvent::FileFailed { .. } => {}
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_may_stand_before_ctl_and_nothing_that_says_how_to_run() {
        use crate::cli::args::Cli;
        use clap::Parser;
        let run = |line: &str| {
            let cli = Cli::try_parse_from(line.split(' ')).expect("a command line");
            super::super::run(cli).expect_err("nobody is there").to_string()
        };
        let told = run("anabranch target --socket /nowhere/t.sock ctl status");
        assert!(told.contains("no target is running on /nowhere/t.sock"), "{told}");
        let told = run("anabranch target --listen 127.0.0.1:0 ctl status");
        assert!(told.contains("what says how to run one does not go with it"), "{told}");
    }

    /// Whatever runs or not: the command line is wrong.
    #[test]
    fn a_state_or_a_shape_that_does_not_exist_is_misuse() {
        let port = || "1".to_owned();
        let ana = |state: &str| Ctl::Ana { port: port(), group: 1, state: state.to_owned() };
        let shape = |shape: &str| Ctl::Shape { port: port(), shape: shape.to_owned() };
        for (verb, why) in [
            (ana("best"), "state 'best': unknown ANA state; one of optimized"),
            (shape("rate=0"), "rate: must lie between 1kbit and 1000gbit"),
            (shape("fast"), "expected KEY=VALUE"),
        ] {
            let told = request(&verb).expect_err("misuse");
            assert!(matches!(&told, Failure::Usage(text) if text.contains(why)), "{told}");
        }
        request(&ana("non-optimized")).expect("a state");
        request(&shape("none")).expect("no shape");
    }
}
