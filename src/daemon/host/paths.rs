//! The verbs about paths: `connect`, `disconnect`, `discover`, and what goes on with paths of which
//! only the names are known.

use super::discovery::record;
use super::{Host, HostReply, LOOK, TALK, unexpected};
use crate::daemon::names::{Names, ToBe, addresses, at_one_free_of};
use crate::daemon::path::{NamedPath, PathSpec};
use crate::daemon::rpc::{Params, RpcError};
use crate::daemon::view::DiscoveryLog;
use crate::daemon::wording;
use anabranch_host::config::{ConnectRequest, check_subsystem};
use anabranch_host::topology::ControllerState;
use anabranch_host::verb::{AsideId, IgnoredSnapshot, Reply, Selection, Verb};
use anabranch_proto::machine::Endpoint;
use anabranch_proto::nvme::nqn::Nqn;
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

/// `connect` and `discover`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConnectParams {
    nqn: String,
    path: PathSpec,
    #[serde(default)]
    keep_trying: bool,
    hostnqn: Option<String>,
    hostid: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum Which {
    Nqn(String),
    Device(String),
    All(bool),
}

/// How long one that talks to a controller is waited for, when that may take so long over a step.
pub fn talk(admin_timeout: Duration) -> Duration {
    admin_timeout.saturating_mul(2).max(TALK)
}

impl Host {
    /// Adds a path. The answer is the controller's name.
    ///
    /// # Errors
    /// Refused, or the first attempt failed.
    pub fn connect(&self, request: ConnectRequest) -> Result<String, RpcError> {
        self.connected(self.ask_connect(request)?, None).map(|(it, _)| it)
    }

    /// The same where the name of a path has led; it goes with it when it leads elsewhere. What it
    /// has that became no path comes beside the name.
    ///
    /// # Errors
    /// As [`Host::connect`].
    pub(in crate::daemon) fn connect_path(
        &self,
        path: &NamedPath,
        at: SocketAddr,
    ) -> Result<(String, Vec<IgnoredSnapshot>), RpcError> {
        self.connected(self.ask_connect(path.request(at))?, Some(path))
    }

    /// One that takes its time over each step is waited for no longer than for one that is silent.
    fn ask_connect(&self, request: ConnectRequest) -> Result<HostReply, RpcError> {
        let limit = talk(request.options.admin_timeout);
        self.ask(Verb::Connect(Box::new(request)), limit).map_err(|mut error| {
            if error.code == RpcError::TIMEOUT {
                error.message += ": it is still being connected ('anabranch list-subsys' shows it, \
                                  'anabranch disconnect' gives it up)";
            }
            error
        })
    }

    fn connected(
        &self,
        reply: HostReply,
        path: Option<&NamedPath>,
    ) -> Result<(String, Vec<IgnoredSnapshot>), RpcError> {
        let Reply::Connected(name, ignored) = reply else { return Err(unexpected(&reply)) };
        self.names.connected(&name, path);
        Ok((name, ignored))
    }

    /// Tries a path that is not connected at another address from now on, once an attempt that is
    /// under way has failed.
    ///
    /// # Errors
    /// It is not there, is connected, or that would be another one's.
    pub(in crate::daemon) fn move_path(
        &self,
        path: &NamedPath,
        from: SocketAddr,
        to: SocketAddr,
    ) -> Result<(), String> {
        let request = Box::new(path.request(from));
        match self.ask(Verb::Move { request, to: Endpoint::Tcp(to) }, LOOK) {
            Ok(Reply::Done) => Ok(()),
            Ok(other) => Err(unexpected(&other).message),
            Err(error) => Err(error.message),
        }
    }

    /// Keeps the number of a controller that cannot be connected yet.
    ///
    /// # Errors
    /// There are too many.
    pub(in crate::daemon) fn set_aside(&self, path: &NamedPath) -> Result<ToBe, RpcError> {
        let nqn = path.subsystem_nqn.clone();
        let (traddr, trsvcid) = (path.traddr.clone(), path.port.to_string());
        match self.ask(Verb::SetAside { nqn, traddr, trsvcid }, TALK)? {
            Reply::SetAside(number, aside) => Ok(ToBe { number, aside }),
            other => Err(unexpected(&other)),
        }
    }

    /// Keeps it no more.
    ///
    /// # Errors
    /// It was kept no longer: the controller may have come.
    pub(in crate::daemon) fn give_up(&self, aside: AsideId) -> Result<(), RpcError> {
        self.ask(Verb::GiveUp(aside), LOOK).map(drop)
    }

    /// Paths of which only the names are known.
    pub(in crate::daemon) fn names(&self) -> &Names {
        &self.names
    }

    /// Adds a path with a number that was set aside; as [`Host::connect_path`].
    ///
    /// # Errors
    /// Refused.
    pub(in crate::daemon) fn connect_as(
        &self,
        aside: AsideId,
        path: &NamedPath,
        at: SocketAddr,
    ) -> Result<String, RpcError> {
        let request = Box::new(path.request(at));
        self.connected(self.ask(Verb::ConnectAs(aside, request), TALK)?, Some(path))
            .map(|(name, _)| name)
    }

    /// Removes controllers. The answer is how many.
    ///
    /// # Errors
    /// There are none, or it took too long.
    pub fn disconnect(&self, which: Selection) -> Result<u32, RpcError> {
        self.let_go(&which).map(|(count, _)| count)
    }

    /// The same, and how many are given up that have no address yet: what is still to come is not
    /// wanted any more, either.
    fn let_go(&self, which: &Selection) -> Result<(u32, usize), RpcError> {
        match self.ask(Verb::Disconnect(which.clone()), TALK) {
            Ok(Reply::Disconnected(count)) => Ok((count, self.names.give_up(which).len())),
            Ok(other) => Err(unexpected(&other)),
            // There is no such controller, but one may be to come.
            Err(why) => {
                let one = matches!(which, Selection::Controller(_));
                let to_come = if one { self.names.give_up(which) } else { Vec::new() };
                let (mut disconnected, mut given_up) = (0, 0);
                for to_be in to_come {
                    match self.give_up(to_be.aside) {
                        Ok(()) => given_up += 1,
                        // It has come in between.
                        Err(error) if error.code == RpcError::INVALID_PARAMS => {
                            let gone = self.ask(Verb::Disconnect(which.clone()), TALK);
                            if let Ok(Reply::Disconnected(count)) = gone {
                                disconnected += count;
                            }
                        }
                        Err(error) => return Err(error),
                    }
                }
                let some = given_up > 0 || disconnected > 0;
                if some { Ok((disconnected, given_up)) } else { Err(why) }
            }
        }
    }

    /// Reads a discovery log.
    ///
    /// # Errors
    /// The controller does not answer, or not well.
    pub fn discover(&self, request: ConnectRequest) -> Result<DiscoveryLog, RpcError> {
        let limit = talk(request.options.admin_timeout);
        match self.ask(Verb::Discover(Box::new(request)), limit)? {
            Reply::Discovered { generation, entries, skipped } => Ok(DiscoveryLog {
                genctr: generation,
                records: entries.iter().map(record).collect(),
                skipped,
            }),
            other => Err(unexpected(&other)),
        }
    }

    /// Whom `connect` or `discover` means.
    pub(super) fn asked(&self, params: Params<'_>, discovery: bool) -> Result<NamedPath, RpcError> {
        let params: ConnectParams = params.read()?;
        let ours = [
            ("hostnqn", params.hostnqn, self.identity.nqn.to_string()),
            ("hostid", params.hostid, self.identity.id.to_string()),
        ];
        for (name, asked, ours) in ours {
            if asked.is_some_and(|asked| !asked.eq_ignore_ascii_case(&ours)) {
                return Err(RpcError::invalid(format!(
                    "this host's {name} is {ours}, the same on every path: leave --{name} out, or \
                     start 'anabranch serve --{name}' with another"
                )));
            }
        }
        if !params.keep_trying {
            params.path.check_own_side().map_err(RpcError::invalid)?;
        }
        let named = match discovery {
            true => params.path.discovery(&params.nqn),
            false => params.path.named(&params.nqn, params.keep_trying),
        };
        named.map_err(RpcError::invalid)
    }

    pub(super) fn call_connect(&self, params: Params<'_>) -> Result<Value, RpcError> {
        let path = self.asked(params, false)?;
        self.names.check_new(&path)?;
        let pause = path.options.reconnect_delay.as_secs_f64();
        match addresses(&path) {
            Ok(all) => {
                if let Some((name, already)) = self.with(&path) {
                    let NamedPath { subsystem_nqn, traddr, port, .. } = &path;
                    return Err(RpcError::new(
                        RpcError::CONNECTED,
                        format!("{already}: {name} is {subsystem_nqn} at {traddr}, port {port}"),
                    ));
                }
                let (name, ignored) = at_one_free_of(&all, |at| self.connect_path(&path, at))?;
                Ok(json!({ "controller": name, "warnings": wording::of_ignored(&ignored) }))
            }
            Err(why) if path.keeps_trying() => {
                check_subsystem(&path.subsystem_nqn).map_err(RpcError::invalid)?;
                let name = self.names.keep_trying(path, why.clone())?;
                let waits_for = format!("{why}; it is looked up again every {pause} s");
                Ok(json!({ "controller": name, "waits_for": waits_for }))
            }
            Err(why) => Err(RpcError::failed(why)),
        }
    }

    /// The controller of a path of this name, and how far it is: a name with several addresses is
    /// one path, however often it is asked for, and wherever it is by now. One that is being
    /// removed is none.
    fn with(&self, path: &NamedPath) -> Option<(String, &'static str)> {
        use ControllerState::{Connecting, Deleting, Live};
        let [leaving, live] = [Deleting, Live].map(|state| state.to_string());
        self.names.of(path).into_iter().find_map(|object| {
            let (of, attribute) = (object.clone(), "state".to_owned());
            match self.look(Verb::Get { object: of, attribute }) {
                Ok(Reply::Value(state)) if state == live => Some((object, Live.already())),
                Ok(Reply::Value(state)) if state != leaving => Some((object, Connecting.already())),
                _ => None,
            }
        })
    }

    pub(super) fn call_disconnect(&self, params: Params<'_>) -> Result<Value, RpcError> {
        let which = match params.one_of("nqn, device or all")? {
            Which::Nqn(nqn) => Selection::Subsystem(Nqn::as_named(&nqn).map_err(|why| {
                RpcError::invalid(format!("nqn '{}': {why}", nqn.escape_debug()))
            })?),
            Which::Device(name) => Selection::Controller(name),
            Which::All(true) => Selection::All,
            Which::All(false) => return Err(RpcError::invalid("all must be true")),
        };
        let (disconnected, given_up) = self.let_go(&which)?;
        Ok(json!({ "disconnected": disconnected, "given_up": given_up }))
    }
}
