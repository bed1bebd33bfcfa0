//! The verbs of a running host.

mod connect_all;

use super::args::fabrics::{Connect, Disconnect, Discover, Fabrics};
use super::args::{Device, Explain, ExportVerb, Get, Global, List, Set, ShowTopology};
use super::client::Client;
use super::print::{
    ana, attributes, discovery, explain, exports, identify, list, subsys, topology,
};
use super::shown;
use crate::daemon::explain::ExplainView;
use crate::daemon::host::{Host, HostSetup};
use crate::daemon::identity::{Identity, Places};
use crate::daemon::names::{addresses, at_one_of};
use crate::daemon::path::NamedPath;
use crate::daemon::rpc::RpcError;
use crate::daemon::socket::Role;
use crate::daemon::view::{AttributeView, DiscoveryLog, HostView};
use crate::failure::Failure;
use anabranch_export::nbd::Export;
use anabranch_host::config::check_subsystem;
use anabranch_lab::shown::Shown;
use anabranch_proto::nvme::ids::Uuid;
use anabranch_proto::nvme::nqn::Nqn;
pub(super) use connect_all::connect_all;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::io::Write;

fn client(global: &Global) -> Result<Client, Failure> {
    Client::connect(Role::Host, global.socket.as_deref())
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, Failure> {
    serde_json::from_value(value).map_err(|error| {
        Failure::failed(format!(
            "the host's answer is not understood ({error}): is it as new as this?"
        ))
    })
}

/// Asks the running host.
fn ask(global: &Global, method: &str, params: Value) -> Result<Value, Failure> {
    ask_by(&client(global)?, global, method, params)
}

/// Where the answer is shown as text, nothing in it controls a terminal.
fn ask_by(client: &Client, global: &Global, method: &str, params: Value) -> Result<Value, Failure> {
    let mut answer = client.call(method, params)?;
    if !global.json() {
        shown::tame(&mut answer);
    }
    Ok(answer)
}

fn view(global: &Global) -> Result<HostView, Failure> {
    read(ask(global, "snapshot", json!({}))?)
}

/// What is wrong whoever answers.
fn check(path: &Fabrics) -> Result<(), Failure> {
    if let Some(Err(why)) = path.hostnqn.as_deref().map(str::parse::<Nqn>) {
        let given = path.hostnqn.as_deref().unwrap_or_default().escape_debug();
        return Err(Failure::usage(format!("hostnqn '{given}': {why}")));
    }
    if let Some(Err(why)) = path.hostid.as_deref().map(str::parse::<Uuid>) {
        let given = path.hostid.as_deref().unwrap_or_default().escape_debug();
        return Err(Failure::usage(format!("hostid '{given}': {why}")));
    }
    Ok(())
}

/// What `connect` and `discover` ask for. Only the host can say where a name leads from where it
/// is, and which interface is meant by `fe80::1%eth0`.
fn request(nqn: &str, path: &Fabrics, keep_trying: bool) -> Value {
    json!({
        "nqn": nqn,
        "path": path.path(),
        "keep_trying": keep_trying,
        "hostnqn": path.hostnqn,
        "hostid": path.hostid,
    })
}

/// `connect`.
pub(super) fn connect(global: &Global, connect: &Connect) -> Result<(), Failure> {
    let named = connect.path.path().named(&connect.nqn, false).map_err(Failure::Usage)?;
    check(&connect.path)?;
    check_subsystem(&named.subsystem_nqn).map_err(Failure::usage)?;
    let request = request(&connect.nqn, &connect.path, connect.keep_trying);
    let client = client(global)?.patient(named.options.admin_timeout);
    let answer = ask_by(&client, global, "connect", request)?;
    let name = answer["controller"].as_str().unwrap_or_default().to_owned();
    // There is no address yet.
    answer["waits_for"].as_str().into_iter().for_each(note);
    note_warnings(&name, &answer);
    let json = || match &answer["warnings"] {
        Value::Array(warnings) if !warnings.is_empty() => {
            json!({ "device": name, "warnings": warnings })
        }
        _ => json!({ "device": name }),
    };
    super::print(global, || format!("connecting to device: {name}\n"), json)
}

/// What of a controller is of no use although it is connected.
fn note_warnings(name: &str, answer: &Value) {
    let warnings = answer["warnings"].as_array().into_iter().flatten();
    warnings.filter_map(Value::as_str).for_each(|why| note(&format!("{name}: {why}")));
}

/// What goes on beside the result; whether anybody reads it does not matter.
fn note(what: &str) {
    let _ = writeln!(std::io::stderr(), "anabranch: {}", Shown(what));
}

/// Who gets a log without some of its entries hears of those.
fn note_skipped(log: &DiscoveryLog) {
    log.skipped.iter().for_each(|why| note(why));
}

/// `disconnect`: each that is named, also when another one can not be.
pub(super) fn disconnect(global: &Global, disconnect: &Disconnect) -> Result<(), Failure> {
    for nqn in &disconnect.nqn {
        Nqn::as_named(nqn)
            .map_err(|why| Failure::usage(format!("nqn '{}': {why}", nqn.escape_debug())))?;
    }
    let subsystem = |nqn: &String| (json!({ "nqn": nqn }), format!("NQN:{nqn}"));
    let controller = |device: &String| (json!({ "device": device }), device.clone());
    let named = disconnect.nqn.iter().map(subsystem);
    let mut wanted: Vec<_> = named.chain(disconnect.device.iter().map(controller)).collect();
    if disconnect.all {
        wanted.push((json!({ "all": true }), "all subsystems".to_owned()));
    }
    let (mut text, mut total, mut failed) = (String::new(), [0; 2], Vec::new());
    for (request, what) in wanted {
        match client(global)?.call("disconnect", request) {
            Ok(answer) => {
                let count = |key: &str| answer[key].as_u64().unwrap_or(0);
                let counts = [count("disconnected"), count("given_up")];
                text += &format!("{what} disconnected {} controller(s)", counts[0]);
                text += &match counts[1] {
                    0 => "\n".to_owned(),
                    paths => {
                        format!(" and gave up {paths} path(s) whose names have no address\n")
                    }
                };
                total = [total[0] + counts[0], total[1] + counts[1]];
            }
            Err(failure) => failed.push(failure),
        }
    }
    if failed.is_empty() || !text.is_empty() {
        super::print(
            global,
            || text,
            || json!({ "disconnected": total[0], "given_up": total[1] }),
        )?;
    }
    let texts = failed.iter().map(ToString::to_string);
    match failed.len() {
        0 => Ok(()),
        1 => Err(failed.remove(0)),
        _ => Err(Failure::failed(texts.collect::<Vec<_>>().join("; "))),
    }
}

/// `discover`: by the running host, else by one of our own.
pub(super) fn discover(global: &Global, discover: &Discover) -> Result<(), Failure> {
    let named = discover.path.path().discovery(&discover.nqn).map_err(Failure::Usage)?;
    check(&discover.path)?;
    let log: DiscoveryLog = match client(global) {
        Ok(client) => {
            let request = request(&discover.nqn, &discover.path, false);
            let client = client.patient(named.options.admin_timeout);
            read(ask_by(&client, global, "discover", request)?)?
        }
        Err(failure) if global.socket.is_some() => return Err(failure),
        Err(_) => discover_alone(discover, &named)?,
    };
    note_skipped(&log);
    super::print(global, || discovery::text(&log), || discovery::json(&log))
}

fn discover_alone(discover: &Discover, named: &NamedPath) -> Result<DiscoveryLog, Failure> {
    discover.path.path().check_own_side().map_err(Failure::Failed)?;
    let addresses = addresses(named).map_err(Failure::Failed)?;
    let (nqn, id) = (discover.path.hostnqn.as_deref(), discover.path.hostid.as_deref());
    let identity = match Identity::find(nqn, id, &Places::default()) {
        Ok(identity) => identity,
        Err(failure @ Failure::Usage(_)) => return Err(failure),
        // Nothing can be kept here: a pair for this one question will do.
        Err(Failure::Failed(_)) => Identity::fresh()?,
    };
    let host = Host::start(&HostSetup::new(identity), |_| ())?;
    let log = at_one_of(&addresses, |at| host.discover(named.request(at)));
    let log = log.map_err(|error| Failure::failed(Shown(&error.message).to_string()));
    host.stop()?;
    log
}

/// `list`.
pub(super) fn list(global: &Global, args: List) -> Result<(), Failure> {
    let view = view(global)?;
    if args.verbose > 0 {
        return super::print(global, || list::detailed(&view), || list::detailed_json(&view));
    }
    super::print(global, || list::text(&view), || list::json(&view))
}

/// Refuses a device that nothing leads to.
fn known(view: &HostView, device: Option<&str>) -> Result<(), Failure> {
    if device.is_none() || view.subsystems.iter().any(|s| subsys::leads_to(s, device)) {
        return Ok(());
    }
    let device = device.unwrap_or_default().escape_debug();
    Err(Failure::failed(format!("there is no '{device}': 'anabranch list-subsys' shows what is")))
}

/// `list-subsys`.
pub(super) fn list_subsys(global: &Global, args: &Device) -> Result<(), Failure> {
    let view = view(global)?;
    let (device, verbose) = (args.device.as_deref(), args.verbose > 0);
    known(&view, device)?;
    super::print(global, || subsys::text(&view, device, verbose), || subsys::json(&view, device))
}

/// `show-topology`.
pub(super) fn show_topology(global: &Global, args: &ShowTopology) -> Result<(), Failure> {
    let view = view(global)?;
    let (device, ranking) = (args.device.as_deref(), args.ranking);
    known(&view, device)?;
    super::print(
        global,
        || topology::text(&view, device, ranking, args.verbose > 0),
        || topology::json(&view, device, ranking),
    )
}

/// The raw bytes in an answer.
fn raw(answer: &Value) -> Result<Vec<u8>, Failure> {
    let text = answer["raw"].as_str().unwrap_or_default();
    let wrong = || Failure::failed("the host's answer holds no bytes: is it as new as this?");
    if text.is_empty() || !text.is_ascii() || !text.len().is_multiple_of(2) {
        return Err(wrong());
    }
    (0..text.len() / 2)
        .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| wrong()))
        .collect()
}

/// `ana-log`.
pub(super) fn ana_log(global: &Global, controller: &str) -> Result<(), Failure> {
    let client = client(global)?;
    let view: HostView = read(client.call("snapshot", json!({}))?)?;
    let controller = view.controller_of(controller).unwrap_or(controller);
    let answer = client.call("ana_log", json!({ "controller": controller }))?;
    let log = ana::parse(&raw(&answer)?).map_err(Failure::Failed)?;
    super::print(global, || ana::text(controller, &log), || ana::json(controller, &log))
}

/// `id-ctrl`.
pub(super) fn id_ctrl(global: &Global, controller: &str) -> Result<(), Failure> {
    let client = client(global)?;
    let view: HostView = read(client.call("snapshot", json!({}))?)?;
    let controller = view.controller_of(controller).unwrap_or(controller);
    let answer = client.call("id_ctrl", json!({ "controller": controller }))?;
    let raw = raw(&answer)?;
    let text = identify::controller_text(&raw).map_err(Failure::Failed)?;
    let json = identify::controller_json(&raw).map_err(Failure::Failed)?;
    super::print(global, || text, || json)
}

/// `id-ns`.
pub(super) fn id_ns(global: &Global, device: &str) -> Result<(), Failure> {
    let client = client(global)?;
    let answer = client.call("id_ns", json!({ "device": device }))?;
    let raw = raw(&answer)?;
    let view: HostView = read(client.call("snapshot", json!({}))?)?;
    let mut heads = view.subsystems.iter().flat_map(|subsystem| &subsystem.heads);
    let nsid = heads.find(|head| head.name == device).map_or(0, |head| head.nsid);
    let text = identify::namespace_text(nsid, &raw).map_err(Failure::Failed)?;
    let json = identify::namespace_json(&raw).map_err(Failure::Failed)?;
    super::print(global, || text, || json)
}

/// `get`.
pub(super) fn get(global: &Global, get: &Get) -> Result<(), Failure> {
    let request = json!({ "object": get.object, "attribute": get.attribute });
    let mut answer = client(global)?.call("get", request)?;
    if !global.json() {
        shown::tame_lines(&mut answer);
    }
    if get.attribute.is_none() {
        let shown: Vec<AttributeView> = read(answer["attributes"].take())?;
        return super::print(
            global,
            || attributes::text(&shown),
            || attributes::json(&get.object, &shown),
        );
    }
    let value = answer["value"].as_str().unwrap_or_default().to_owned();
    super::print(
        global,
        || format!("{value}\n"),
        || json!({ "object": get.object, "attribute": get.attribute, "value": value }),
    )
}

/// `set`.
pub(super) fn set(global: &Global, set: &Set) -> Result<(), Failure> {
    let request = json!({ "object": set.object, "attribute": set.attribute, "value": set.value });
    client(global)?.call("set", request.clone())?;
    super::print(global, String::new, || request)
}

/// `reset` and `ns-rescan`: what is done to a controller by writing to an attribute of it.
pub(super) fn have(global: &Global, verb: &str, controller: &str) -> Result<(), Failure> {
    if !may_be_a_controller(controller) {
        let given = controller.escape_debug();
        return Err(Failure::usage(format!("{verb} takes a controller, nvmeN: '{given}' is none")));
    }
    let attribute = if verb == "reset" { "reset_controller" } else { "rescan_controller" };
    let request = json!({ "object": controller, "attribute": attribute, "value": "1" });
    client(global)?.call("set", request)?;
    super::print(global, String::new, || json!({ "device": controller }))
}

/// Whether a controller may be called so.
fn may_be_a_controller(name: &str) -> bool {
    let number = name.strip_prefix("nvme").unwrap_or_default();
    !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
}

/// `explain`: since the paths joined, or for an interval from now on.
pub(super) fn explain(global: &Global, args: &Explain) -> Result<(), Failure> {
    // A connection for each look: the control socket does not wait for silent clients.
    let look = |samples: u32| -> Result<ExplainView, Failure> {
        let request = json!({ "device": args.device, "samples": samples });
        read(ask(global, "explain", request)?)
    };
    let view = match args.interval {
        None => look(args.samples)?,
        Some(interval) => {
            let before = look(0)?;
            std::thread::sleep(interval);
            look(args.samples)?.since(&before).ok_or_else(|| {
                Failure::failed(
                    "the host was restarted in that time, and counts began anew: there is no \
                     difference to show",
                )
            })?
        }
    };
    super::print(global, || explain::text(&view, args.samples), || json!(view))
}

/// `export add`, `list`, `rm`.
pub(super) fn export(global: &Global, verb: ExportVerb) -> Result<(), Failure> {
    match verb {
        ExportVerb::Add {
            device,
            nbd,
            name,
            description,
            read_only,
            mode,
            group,
            fuse,
            ublk,
            vhost_user,
        } => {
            for (kind, given) in [
                ("fuse", fuse.is_some()),
                ("ublk", ublk.is_some()),
                ("vhost-user", vhost_user.is_some()),
            ] {
                if given {
                    let text =
                        format!("--{kind} is not there yet: --nbd is the only export so far");
                    return Err(Failure::Usage(text));
                }
            }
            let Some(nbd) = nbd else {
                let text = "export add needs --nbd SOCKET or --nbd ADDR:PORT";
                return Err(Failure::usage(text));
            };
            // Without a name it has the device's, which is known to the host or is none.
            let texts = Export {
                name: name.clone().unwrap_or_default(),
                description: description.clone(),
                ..Export::default()
            };
            texts.check().map_err(|why| Failure::usage(why.to_string()))?;
            // A relative path is relative to where the user is, not to where the host runs.
            let at = crate::daemon::export::listen_endpoint(&nbd).map_err(Failure::Usage)?;
            crate::daemon::export::socket_mode(&at, mode.as_deref(), group.as_deref())
                .map_err(Failure::Usage)?;
            let nbd = match at {
                anabranch_proto::machine::Endpoint::Unix(path) => path,
                anabranch_proto::machine::Endpoint::Tcp(address) => address.to_string(),
            };
            let request = json!({
                "device": device, "nbd": nbd, "name": name, "description": description,
                "read_only": read_only, "mode": mode, "group": group,
            });
            let answer = ask(global, "export_add", request)?;
            let uri = answer["uri"].as_str().unwrap_or_default().to_owned();
            super::print(global, || format!("{uri}\n"), || answer)
        }
        ExportVerb::List => {
            let answer = ask(global, "export_list", json!({}))?;
            super::print(global, || exports::text(&answer), || answer.clone())
        }
        ExportVerb::Rm { name } => {
            client(global)?.call("export_rm", json!({ "name": name }))?;
            super::print(global, String::new, || json!({ "removed": name }))
        }
    }
}
