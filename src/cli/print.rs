//! What verbs print: pure functions from what the host shows to nvme-cli's text and JSON.

pub mod ana;
pub mod attributes;
pub mod discovery;
pub mod explain;
pub mod exports;
pub mod identify;
pub mod list;
pub mod subsys;
pub mod topology;

use crate::daemon::view::{ControllerView, PathView, SubsystemView};
use serde_json::{Map, Value, json};

/// The version of our additions to nvme-cli's JSON (`Diag` objects).
pub const SCHEMA: u32 = 1;

/// `"AddressDetails"`: the parts of an address.
fn address_details(controller: &ControllerView) -> Value {
    let mut details = Map::new();
    details.insert("traddr".to_owned(), json!(controller.traddr));
    details.insert("trsvcid".to_owned(), json!(controller.trsvcid));
    for (key, value) in controller.own_side() {
        details.insert(key.to_owned(), json!(value));
    }
    Value::Object(details)
}

/// The paths through a controller, with the name of their head.
fn paths_of<'a>(
    subsystem: &'a SubsystemView,
    controller: &'a str,
) -> impl Iterator<Item = (&'a str, &'a PathView)> {
    subsystem.namespaces().flat_map(move |head| {
        head.paths
            .iter()
            .filter(move |path| path.controller == controller)
            .map(|path| (head.name.as_str(), path))
    })
}

/// The lines that introduce a subsystem: nvme-cli's, and what the policy would be by default and
/// where it was set.
fn heading(host_nqn: &str, subsystem: &SubsystemView, verbose: bool) -> String {
    let SubsystemView { name, nqn, iopolicy, iopolicy_default, iopolicy_set_by, .. } = subsystem;
    let indent = " ".repeat(name.len() + 3);
    let mut text = format!(
        "{name} - NQN={nqn}\n{indent}hostnqn={host_nqn}\n{indent}iopolicy={iopolicy}\n\
         {indent}iopolicy_default={iopolicy_default} iopolicy_set_by={iopolicy_set_by}\n"
    );
    if verbose {
        let SubsystemView { model, serial, firmware, .. } = subsystem;
        for (key, value) in [
            ("model", model.as_str()),
            ("serial", serial),
            ("firmware", firmware),
            ("type", SUBSYSTEM_TYPE),
        ] {
            text.push_str(&format!("{indent}{key}={value}\n"));
        }
    }
    text
}

/// Discovery subsystems do not stay.
const SUBSYSTEM_TYPE: &str = "nvm";

/// What nvme-cli's JSON says of a subsystem with `-v`, and ours always.
fn details(subsystem: &SubsystemView) -> impl Iterator<Item = (String, Value)> {
    let SubsystemView { model, serial, firmware, iopolicy, .. } = subsystem;
    [
        ("Model", model.as_str()),
        ("Serial", serial),
        ("Firmware", firmware),
        ("IOPolicy", iopolicy),
        ("Type", SUBSYSTEM_TYPE),
    ]
    .map(|(key, value)| (key.to_owned(), json!(value)))
    .into_iter()
}

/// Our additions about a subsystem.
fn subsystem_diag(subsystem: &SubsystemView) -> Value {
    json!({
        "schema": SCHEMA,
        "iopolicy_default": subsystem.iopolicy_default,
        "iopolicy_set_by": subsystem.iopolicy_set_by,
        "kernel_exact": subsystem.kernel_exact,
        "queue_depth_scope": subsystem.queue_depth_scope,
    })
}
