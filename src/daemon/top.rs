//! What `top` shows, as it travels over the control socket: figures that only grow, so that whoever
//! watches takes the difference of two looks and the host keeps nothing for them.

use super::view::HostView;
use anabranch_host::verb::HostSnapshot;
use anabranch_policy::{FinishTimeReport, Histogram};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One look at a running host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TopView {
    /// Another text: another run of the host, and all figures began anew.
    pub instance: String,
    /// How long it has been running.
    pub uptime_ns: u64,
    /// NBD clients.
    pub clients: usize,
    /// Subsystems, controllers, heads, paths.
    pub host: HostView,
    /// Latencies by the names of paths and heads.
    pub latencies: BTreeMap<String, Latencies>,
    /// What `finish-time` knows, by the names of paths, while it is in force.
    #[serde(default)]
    pub estimates: BTreeMap<String, Estimates>,
}

/// How many commands (of a path) or requests (of a head) that ended well took how long: position in
/// the histogram and count, by position. [`Histogram::value_at`] is the time in nanoseconds.
pub type Latencies = Vec<(u16, u64)>;

/// What `finish-time` knows about a path. 0 where something is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimates {
    /// What it delivers when it is busy, 4 KiB per command counted with the payload.
    pub rate_bytes_per_s: u64,
    /// There never was a queue at that rate: it delivers at least so much.
    #[serde(default)]
    pub rate_is_least: bool,
    /// What is in flight on it, counted alike.
    pub in_flight_bytes: u64,
    /// Unqueued latency of reads by size class.
    pub read_base_ns: Vec<u64>,
    /// Unqueued latency of writes by size class.
    pub write_base_ns: Vec<u64>,
    /// How long a read of 4 KiB would take if it were sent now.
    pub finish_ns: u64,
    /// How long the work takes that was always in flight of late.
    pub standing_ns: u64,
    /// For how long it has not answered although it should have.
    pub silent_ns: u64,
}

impl From<&FinishTimeReport> for Estimates {
    fn from(from: &FinishTimeReport) -> Estimates {
        let [reads, writes] = from.base_ns.map(Vec::from);
        Estimates {
            rate_bytes_per_s: from.rate_bytes_per_s,
            rate_is_least: from.rate_is_least,
            in_flight_bytes: from.in_flight_bytes,
            read_base_ns: reads,
            write_base_ns: writes,
            finish_ns: from.finish_ns,
            standing_ns: from.standing_ns,
            silent_ns: from.silent_ns,
        }
    }
}

impl From<HostSnapshot> for TopView {
    fn from(from: HostSnapshot) -> TopView {
        let mut latencies = BTreeMap::new();
        let mut add = |name: &str, histogram: &Histogram| {
            latencies.insert(name.to_owned(), histogram.positions().collect());
        };
        for head in from.subsystems.iter().flat_map(|subsystem| &subsystem.heads) {
            add(&head.name, &head.latency_ns);
            for path in &head.paths {
                add(&path.name, &path.latency_ns);
            }
        }
        let paths = from.subsystems.iter().flat_map(|s| &s.heads).flat_map(|head| &head.paths);
        let estimates = paths.filter_map(|path| {
            Some((path.name.clone(), Estimates::from(path.finish_time.as_deref()?)))
        });
        TopView {
            estimates: estimates.collect(),
            latencies,
            host: HostView::from(from),
            ..TopView::default()
        }
    }
}
