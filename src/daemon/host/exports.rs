//! The verbs about exports.

use super::{Host, LOOK, TALK};
use crate::daemon::export::{access, listen_endpoint};
use crate::daemon::log::log;
use crate::daemon::rpc::{Params, RpcError};
use crate::daemon::view::HostView;
use anabranch_export::nbd::{Access, Export, NbdReply, NbdVerb};
use anabranch_host::verb::HostSnapshot;
use anabranch_lab::nbd::{NbdUri, Server};
use anabranch_proto::machine::{Endpoint, Peer};
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

/// What is offered and at which address, and where we listen.
type Exports = (Vec<(Export, Endpoint)>, Vec<Endpoint>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportParams {
    device: String,
    nbd: String,
    name: Option<String>,
    #[serde(default)]
    description: String,
    #[serde(default)]
    read_only: bool,
    mode: Option<String>,
    group: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OneName {
    name: String,
}

/// An export at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportState {
    /// Its name.
    pub name: String,
    /// How many clients have opened it.
    pub clients: usize,
    /// Its device is there.
    pub present: bool,
}

impl Host {
    /// Offers a device over NBD at an address, beside what is offered there already.
    ///
    /// # Errors
    /// The address cannot be had, or the name is taken.
    pub fn export(
        &self,
        export: Export,
        at: &Endpoint,
        access: Access,
    ) -> Result<Endpoint, RpcError> {
        match self.nbd(NbdVerb::Add { export, at: at.clone(), access }, LOOK)? {
            NbdReply::Listening(at) => Ok(at),
            _ => Err(RpcError::failed("the NBD server gave another answer than an address")),
        }
    }

    pub(super) fn exports(&self, limit: Duration) -> Result<Exports, RpcError> {
        match self.nbd(NbdVerb::List, limit)? {
            NbdReply::Exports { exports, listening } => Ok((exports, listening)),
            _ => Err(RpcError::failed("the NBD server gave another answer than a list")),
        }
    }

    /// Each export, with what `of` says of the devices.
    ///
    /// # Errors
    /// The engine does not answer within `limit`.
    pub fn export_states(
        &self,
        of: &HostSnapshot,
        limit: Duration,
    ) -> Result<Vec<ExportState>, RpcError> {
        let (exports, _) = self.exports(limit)?;
        let heads = || of.subsystems.iter().flat_map(|subsystem| &subsystem.heads);
        let state = |(export, _): (Export, Endpoint)| ExportState {
            clients: self.clients.of(&export.name).len(),
            // Of two with the same identifier none is offered.
            present: heads().filter(|head| export.leads_to(&head.name, &head.wwid)).count() == 1,
            name: export.name,
        };
        Ok(exports.into_iter().map(state).collect())
    }

    pub(super) fn call_export(&self, method: &str, params: Params<'_>) -> Result<Value, RpcError> {
        match method {
            "export_add" => {
                let params: ExportParams = params.read()?;
                let at = listen_endpoint(&params.nbd).map_err(RpcError::invalid)?;
                let access = access(&at, params.mode.as_deref(), params.group.as_deref())
                    .map_err(RpcError::invalid)?;
                self.await_head(&params.device)?;
                let name = params.name.unwrap_or_else(|| params.device.clone());
                let device = params.device.clone();
                let export = Export {
                    name: name.clone(),
                    description: params.description,
                    device: params.device,
                    read_only: params.read_only,
                    ..Export::default()
                };
                let at = self.export(export, &at, access)?;
                log(format_args!("nbd: export \"{name}\" of {device} is offered at {at}"));
                Ok(json!({ "name": name, "listening": at.to_string(), "uri": nbd_uri(&at, &name) }))
            }
            "export_list" => {
                params.none()?;
                let (exports, listening) = self.exports(LOOK)?;
                let view = self.view()?;
                let shown = |(export, at): &(Export, Endpoint)| {
                    let uri = listening.contains(at).then(|| nbd_uri(at, &export.name));
                    listed(export, uri, &view, &self.clients.of(&export.name))
                };
                let exports: Vec<Value> = exports.iter().map(shown).collect();
                let listening: Vec<String> = listening.iter().map(Endpoint::to_string).collect();
                Ok(json!({ "exports": exports, "listening": listening }))
            }
            "export_rm" => {
                let OneName { name } = params.read()?;
                let (exports, _) = self.exports(LOOK)?;
                let exports = || exports.iter().map(|(export, _)| export);
                let of_device: Vec<&Export> =
                    exports().filter(|export| export.device == name).collect();
                let named = exports().any(|export| export.name == name);
                let name = match of_device[..] {
                    [only] if !named => only.name.clone(),
                    _ => name,
                };
                let text = format!("nbd: export \"{name}\" is offered no more");
                self.nbd(NbdVerb::Remove(name), TALK)?;
                log(text);
                Ok(json!({}))
            }
            _ => Err(RpcError::no_method(method)),
        }
    }
}

/// An export as it stands in the list: what its clients get.
fn listed(
    export: &Export,
    uri: Option<String>,
    host: &HostView,
    clients: &[Option<Peer>],
) -> Value {
    let heads = host.subsystems.iter().flat_map(|subsystem| &subsystem.heads);
    let mut called = heads.filter(|head| export.leads_to(&head.name, &head.wwid));
    // Of two with the same identifier none is offered.
    let head = called.next().filter(|_| called.next().is_none());
    json!({
        "name": export.name,
        "device": export.device,
        "present": head.is_some(),
        "read_only": export.read_only || head.is_some_and(|head| head.read_only),
        "description": export.description,
        "kind": "nbd",
        "clients": clients.len(),
        "used_by": clients.iter().flatten().copied().map(user).collect::<Vec<_>>(),
        "uris": Vec::from_iter(uri),
    })
}

/// A client: where it is, or which program of this machine it is.
fn user(client: Peer) -> Value {
    match client {
        Peer::Address(address) => json!({ "address": address.to_string() }),
        Peer::Process(pid) => {
            // It may be gone, or not be ours to see.
            let command = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok();
            json!({ "pid": pid, "command": command.as_deref().map(str::trim_end) })
        }
    }
}

/// How an NBD client names an export.
#[must_use]
pub fn nbd_uri(at: &Endpoint, name: &str) -> String {
    let server = match at {
        Endpoint::Unix(path) => Server::Unix(path.clone()),
        Endpoint::Tcp(SocketAddr::V6(at)) if at.scope_id() != 0 => {
            Server::Tcp { host: format!("{}%{}", at.ip(), at.scope_id()), port: at.port() }
        }
        Endpoint::Tcp(at) => Server::Tcp { host: at.ip().to_string(), port: at.port() },
    };
    NbdUri::new(server, name).to_string()
}
