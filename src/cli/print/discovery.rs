//! `discover`: a discovery log.

use crate::daemon::view::DiscoveryLog;
use serde_json::{Value, json};

/// nvme-cli's text.
#[must_use]
pub fn text(log: &DiscoveryLog) -> String {
    let mut text = format!(
        "\nDiscovery Log Number of Records {}, Generation counter {}\n",
        log.records.len(),
        log.genctr
    );
    for (index, record) in log.records.iter().enumerate() {
        text.push_str(&format!("=====Discovery Log Entry {index}======\n"));
        let fields = [
            ("trtype", record.trtype.as_str()),
            ("adrfam", &record.adrfam),
            ("subtype", &record.subtype),
            ("treq", &record.treq),
            ("portid", &record.portid.to_string()),
            ("trsvcid", &record.trsvcid),
            ("subnqn", &record.subnqn),
            ("traddr", &record.traddr),
            ("eflags", &record.eflags),
        ];
        let sectype = record.sectype.as_deref().map(|sectype| ("sectype", sectype));
        for (name, value) in fields.into_iter().chain(sectype) {
            text.push_str(&format!("{:<8} {value}\n", format!("{name}:")));
        }
    }
    text
}

/// nvme-cli's JSON.
#[must_use]
pub fn json(log: &DiscoveryLog) -> Value {
    json!({ "genctr": log.genctr, "records": log.records })
}
