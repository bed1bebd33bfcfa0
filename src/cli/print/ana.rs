//! `ana-log`: what each ANA group is worth through one controller.

use anabranch_proto::nvme::log::{Ana, AnaLimits};
use serde_json::{Value, json};

/// Reads the log as a controller sent it.
///
/// # Errors
/// When it is not whole or contradicts itself.
pub fn parse(raw: &[u8]) -> Result<Ana, String> {
    let limits = AnaLimits { group_id: u32::MAX, groups: u16::MAX.into() };
    Ana::parse(raw, limits).map_err(|error| error.to_string())
}

/// nvme-cli's text.
#[must_use]
pub fn text(controller: &str, log: &Ana) -> String {
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
pub fn json(controller: &str, log: &Ana) -> Value {
    let groups: Vec<Value> = log
        .groups
        .iter()
        .map(|group| {
            let nsids: Vec<Value> =
                group.nsids.iter().map(|nsid| json!({ "nsid": nsid })).collect();
            json!({
                "grpid": group.id,
                "nnsids": group.nsids.len(),
                "chgcnt": group.change_count,
                "state": group.state.to_string(),
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
