//! `ana-log`: what each ANA group is worth through one controller.

use serde_json::{Value, json};

/// A group as the log describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// ANA group identifier.
    pub id: u32,
    /// The kernel's word for its state.
    pub state: String,
    /// Change count of the group.
    pub change_count: u64,
    /// Its namespaces.
    pub nsids: Vec<u32>,
}

/// The log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Change count of the log.
    pub change_count: u64,
    /// Its groups.
    pub groups: Vec<Group>,
}

/// nvme-cli's text.
#[must_use]
pub fn text(controller: &str, log: &Log) -> String {
    let mut text = format!(
        "Asymmetric Namespace Access Log for NVMe device: {controller}\n\
         ANA LOG HEADER :-\nchgcnt\t:\t{}\nngrps\t:\t{}\nANA Log Desc :-\n",
        log.change_count,
        log.groups.len()
    );
    for group in &log.groups {
        text.push_str(&format!(
            "grpid\t:\t{}\nnnsids\t:\t{}\nchgcnt\t:\t{}\nstate\t:\t{}\n",
            group.id,
            group.nsids.len(),
            group.change_count,
            group.state
        ));
        for nsid in &group.nsids {
            text.push_str(&format!("\tnsid\t:\t{nsid}\n"));
        }
        text.push('\n');
    }
    text
}

/// nvme-cli's JSON, its odd key names included.
#[must_use]
pub fn json(controller: &str, log: &Log) -> Value {
    let groups: Vec<Value> = log
        .groups
        .iter()
        .map(|group| {
            let nsids: Vec<Value> = group.nsids.iter().map(|nsid| json!({ "nsid": nsid })).collect();
            json!({
                "grpid": group.id,
                "nnsids": group.nsids.len(),
                "chgcnt": group.change_count,
                "state": group.state,
                "NSIDS": nsids,
            })
        })
        .collect();
    json!({
        "Asymmetric Namespace Access Log for NVMe device": controller,
        "chgcnt": log.change_count,
        "ngrps": log.groups.len(),
        "ANA DESC LIST ": groups,
    })
}
