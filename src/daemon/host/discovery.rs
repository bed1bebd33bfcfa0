//! What an entry of a discovery log says, in nvme-cli's words.

use crate::daemon::view::DiscoveryRecord;
use anabranch_proto::nvme::log::{DiscoveryEntry, SubsystemKind};

/// TRTYPE.
const TCP: u8 = 3;

pub(super) fn record(entry: &DiscoveryEntry) -> DiscoveryRecord {
    let (trtype, adrfam, traddr, trsvcid) = entry.address_fields();
    // Other transports have other things there.
    let sectype = (trtype == TCP).then(|| match entry.sectype {
        0 => "none".to_owned(),
        1 => "tls".to_owned(),
        2 => "tls13".to_owned(),
        other => format!("unrecognized ({other})"),
    });
    let trtype = match trtype {
        1 => "rdma".to_owned(),
        2 => "fc".to_owned(),
        TCP => "tcp".to_owned(),
        254 => "loop".to_owned(),
        other => format!("unrecognized ({other})"),
    };
    let adrfam = match adrfam {
        0 => "pci".to_owned(),
        1 => "ipv4".to_owned(),
        2 => "ipv6".to_owned(),
        3 => "infiniband".to_owned(),
        4 => "fibre-channel".to_owned(),
        254 => "loop".to_owned(),
        other => format!("unrecognized ({other})"),
    };
    let subtype = match entry.kind {
        SubsystemKind::Referral => "discovery subsystem referral",
        SubsystemKind::Nvm => "nvme subsystem",
        SubsystemKind::CurrentDiscovery => "current discovery subsystem",
    };
    let secure = match entry.treq & 3 {
        0 => "not specified",
        1 => "required",
        2 => "not required",
        _ => "reserved",
    };
    let flow = if entry.treq & 4 != 0 { ", sq flow control disable supported" } else { "" };
    let eflags: Vec<&str> = [
        (2, "explicit discovery connections"),
        (1, "duplicate discovery information"),
        (4, "no cdc connectivity"),
    ]
    .into_iter()
    .filter_map(|(bit, text)| (entry.eflags & bit != 0).then_some(text))
    .collect();
    DiscoveryRecord {
        trtype,
        adrfam,
        subtype: subtype.to_owned(),
        treq: format!("{secure}{flow}"),
        portid: entry.portid,
        trsvcid,
        subnqn: entry.subnqn.to_string(),
        traddr,
        eflags: if eflags.is_empty() { "none".to_owned() } else { eflags.join(", ") },
        sectype,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_proto::nvme::log::TransportAddress;
    use anabranch_proto::nvme::nqn::Nqn;

    fn entry() -> DiscoveryEntry {
        let nqn = Nqn::DISCOVERY.parse().unwrap();
        let at = "192.0.2.1:4420".parse().unwrap();
        DiscoveryEntry::tcp(SubsystemKind::Nvm, at, 1, nqn)
    }

    #[test]
    fn flags_are_told_in_the_order_of_nvme_cli() {
        let told = |eflags: u16| record(&DiscoveryEntry { eflags, ..entry() }).eflags;
        assert_eq!(told(0), "none");
        assert_eq!(told(3), "explicit discovery connections, duplicate discovery information");
        assert_eq!(told(5), "duplicate discovery information, no cdc connectivity");
    }

    /// RDMA has its queue pair type at the place where TCP has its security.
    #[test]
    fn only_tcp_has_a_security_type() {
        assert_eq!(record(&entry()).sectype.as_deref(), Some("none"));
        let (traddr, trsvcid) = ("192.0.2.1".to_owned(), "4420".to_owned());
        let address = TransportAddress::Other { trtype: 1, adrfam: 1, traddr, trsvcid };
        assert_eq!(record(&DiscoveryEntry { address, sectype: 1, ..entry() }).sectype, None);
    }
}
