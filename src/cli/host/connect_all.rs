//! `connect-all`: everything that a discovery service names, and those that it refers to.

use super::{RpcError, check, client, note, note_skipped, note_warnings, read, request};
use crate::cli::args::Global;
use crate::cli::args::fabrics::{ConnectAll, Fabrics};
use crate::cli::client::Client;
use crate::daemon::path::Service;
use crate::daemon::view::{DiscoveryLog, DiscoveryRecord};
use crate::failure::Failure;
use anabranch_lab::shown::Shown;
use serde_json::json;
use std::net::Ipv6Addr;

/// How many referrals are followed: services may refer to each other, and name ever new ones.
const REFERRALS_MAX: usize = 16;

/// `connect-all`.
pub(in crate::cli) fn connect_all(global: &Global, all: &ConnectAll) -> Result<(), Failure> {
    let named = all.path.path().discovery(&all.nqn).map_err(Failure::Usage)?;
    check(&all.path)?;
    let client = client(global)?.patient(named.options.admin_timeout);
    // Where its name leads from here is enough to know it when another one refers to it.
    let addresses = named.addresses().unwrap_or_default();
    let place = |ip: std::net::IpAddr| (all.nqn.clone(), ip.to_string(), named.port.to_string());
    let asked: Vec<_> = addresses.iter().map(|to| place(to.ip())).collect();
    let mut at = asked.len();
    let mut round = Round {
        client: &client,
        options: &all.path,
        zone: all.path.path().zone().map(str::to_owned),
        services: asked,
        offered: false,
        names: Vec::new(),
        failures: Vec::new(),
    };
    let start = request(&all.nqn, &all.path, false);
    round.connect(&read(client.call("discover", start)?)?);
    while let Some((nqn, traddr, trsvcid)) = round.services.get(at).cloned() {
        round.follow(&nqn, &traddr, &trsvcid);
        at += 1;
    }
    let Round { offered, names, failures, .. } = round;
    if !offered && failures.is_empty() {
        note("nothing but discovery is offered to this host: no path is connected");
    }
    crate::cli::print(
        global,
        || {
            let line = |name| format!("connecting to device: {}\n", Shown(name));
            names.iter().map(|name| line(name.as_str())).collect()
        },
        || json!(names.iter().map(|name| json!({ "device": name })).collect::<Vec<_>>()),
    )?;
    if failures.is_empty() { Ok(()) } else { Err(Failure::failed(failures.join("; "))) }
}

/// One `connect-all`.
struct Round<'a> {
    client: &'a Client,
    /// Options of every path.
    options: &'a Fabrics,
    /// The interface in the address that was asked: what is listed of that link is there.
    zone: Option<String>,
    /// NQN, address and port of the discovery services: those that were asked, then those that are
    /// still to be.
    services: Vec<(String, String, String)>,
    /// Somebody has listed a subsystem with namespaces.
    offered: bool,
    /// Controllers that are connected now.
    names: Vec<String>,
    failures: Vec<String>,
}

impl Round<'_> {
    /// Connects what a log lists, and notes whom it refers to.
    fn connect(&mut self, log: &DiscoveryLog) {
        note_skipped(log);
        for record in &log.records {
            let refers = match record.subtype.as_str() {
                "nvme subsystem" => false,
                "discovery subsystem referral" => true,
                _ => continue,
            };
            self.offered |= !refers;
            if record.trtype != "tcp" {
                note(&format!("{} is skipped: only tcp is supported", place(record)));
            } else if refers {
                self.refer(record);
            } else {
                self.path(record);
            }
        }
    }

    fn refer(&mut self, to: &DiscoveryRecord) {
        let service = (to.subnqn.clone(), to.traddr.clone(), to.trsvcid.clone());
        if self.services.contains(&service) {
            return;
        }
        if self.services.len() > REFERRALS_MAX {
            note(&format!("{} is skipped: there are too many referrals", place(to)));
            return;
        }
        self.services.push(service);
    }

    fn path(&mut self, record: &DiscoveryRecord) {
        let path = self.options_to(&record.traddr, &record.trsvcid);
        match self.client.ask("connect", request(&record.subnqn, &path, false)) {
            Ok(Ok(answer)) => {
                let name = answer["controller"].as_str().unwrap_or_default().to_owned();
                note_warnings(&name, &answer);
                self.names.push(name);
            }
            // It is asked for again and again, as by nvme-cli's boot scripts.
            Ok(Err(error)) if error.code == RpcError::CONNECTED => note(&error.message),
            Ok(Err(error)) => self.failed(&place(record), &error.message),
            Err(failure) => self.failed(&place(record), &failure.to_string()),
        }
    }

    fn follow(&mut self, nqn: &str, traddr: &str, trsvcid: &str) {
        let path = self.options_to(traddr, trsvcid);
        let log = self.client.call("discover", request(nqn, &path, false));
        match log.and_then(read::<DiscoveryLog>) {
            Ok(log) => self.connect(&log),
            Err(failure) => {
                self.failed(&at(nqn, traddr, trsvcid), &failure.to_string());
            }
        }
    }

    fn options_to(&self, traddr: &str, trsvcid: &str) -> Fabrics {
        let mut path = self.options.clone();
        path.traddr = match &self.zone {
            Some(zone) if is_of_a_link(traddr) => format!("{traddr}%{zone}"),
            _ => traddr.to_owned(),
        };
        path.trsvcid = trsvcid.parse().ok().map(Service);
        path
    }

    fn failed(&mut self, place: &str, why: &str) {
        self.failures.push(format!("{}: {why}", Shown(place)));
    }
}

fn place(record: &DiscoveryRecord) -> String {
    at(&record.subnqn, &record.traddr, &record.trsvcid)
}

fn at(nqn: &str, traddr: &str, trsvcid: &str) -> String {
    match traddr.contains(':') {
        true => format!("{nqn} at [{traddr}]:{trsvcid}"),
        false => format!("{nqn} at {traddr}:{trsvcid}"),
    }
}

/// Whether an address says nothing without an interface, and has none.
fn is_of_a_link(traddr: &str) -> bool {
    traddr.parse().is_ok_and(|address: Ipv6Addr| address.is_unicast_link_local())
}
