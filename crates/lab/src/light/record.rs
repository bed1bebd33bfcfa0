//! What is written down while a run goes on.

use super::cell::Cell;
use super::figures::{Books, ClassFigures, Figures, PathFigures, SERIES_NS, Series};
use super::port::Port;
use anabranch_policy::{Histogram, OpClass};

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) path: usize,
    pub(super) host: usize,
    pub(super) op: OpClass,
    pub(super) bytes: u32,
}

#[derive(Debug)]
pub(super) struct Record {
    measuring: bool,
    began_ns: u64,
    classes: [ClassFigures; 3],
    hosts: Vec<u64>,
    paths: Vec<PathFigures>,
    /// In-flight integrals when the measurement began.
    areas: Vec<u64>,
    series: Series,
    /// The same when the present window began.
    window_areas: Vec<u64>,
    window_began_ns: u64,
    /// Of the present window: bytes per path, requests, the sum of their latencies.
    window_bytes: Vec<u64>,
    window_requests: u64,
    window_latency_ns: u64,
}

impl Record {
    pub(super) fn new(cell: Cell<'_>) -> Record {
        let paths = cell.paths().len();
        let windows = (cell.end_ns() / SERIES_NS) as usize;
        Record {
            measuring: false,
            began_ns: 0,
            classes: Default::default(),
            hosts: vec![0; cell.scenario.hosts.count as usize],
            paths: vec![PathFigures::default(); paths],
            areas: vec![0; paths],
            series: Series::with_capacity(paths, windows),
            window_areas: vec![0; paths],
            window_began_ns: 0,
            window_bytes: vec![0; paths],
            window_requests: 0,
            window_latency_ns: 0,
        }
    }

    /// The ramp is over.
    pub(super) fn begin(&mut self, now: u64, ports: &[Port]) {
        self.measuring = true;
        self.began_ns = now;
        for (area, port) in self.areas.iter_mut().zip(ports) {
            *area = port.in_flight.area(now);
        }
    }

    /// A request has ended.
    #[inline]
    pub(super) fn ended(&mut self, ended: Ended, latency_ns: u64) {
        let Ended { path, host, op, .. } = ended;
        let bytes = u64::from(ended.bytes);
        self.window_bytes[path] += bytes;
        self.window_requests += 1;
        self.window_latency_ns += latency_ns;
        if self.measuring {
            let class = &mut self.classes[op as usize];
            class.latency.record(latency_ns);
            class.bytes += bytes;
            self.hosts[host] += bytes;
            self.paths[path].commands += 1;
            self.paths[path].bytes += bytes;
        }
    }

    pub(super) fn end_window(&mut self, now: u64, ports: &[Port]) {
        let time = now - self.window_began_ns;
        for (path, port) in ports.iter().enumerate() {
            let area = port.in_flight.area(now);
            let before = std::mem::replace(&mut self.window_areas[path], area);
            self.series.in_flight_milli.push(milli(area - before, time));
            self.series.bytes.push(std::mem::take(&mut self.window_bytes[path]));
        }
        let requests = std::mem::take(&mut self.window_requests);
        let latency_ns = std::mem::take(&mut self.window_latency_ns);
        self.series.requests.push(requests);
        self.series.mean_ns.push(latency_ns.checked_div(requests).unwrap_or(0));
        self.window_began_ns = now;
    }

    /// The window is over.
    pub(super) fn end(mut self, now: u64, ports: &[Port], books: Books) -> Figures {
        if now - self.window_began_ns == SERIES_NS {
            self.end_window(now, ports);
        }
        for (path, port) in ports.iter().enumerate() {
            let figures = &mut self.paths[path];
            let area = port.in_flight.area(now) - self.areas[path];
            figures.in_flight_milli = milli(area, now - self.began_ns);
            for (link, direction) in figures.links.iter_mut().zip([&port.inbound, &port.outbound]) {
                (link.bytes, link.busy_ns) = (direction.bytes, direction.busy_ns);
            }
        }
        let mut latency = Histogram::new();
        for class in &self.classes {
            latency.merge(&class.latency);
        }
        Figures {
            window_ns: now - self.began_ns,
            requests: latency.count(),
            bytes: self.classes.iter().map(|class| class.bytes).sum(),
            latency,
            classes: self.classes,
            paths: self.paths,
            hosts: self.hosts,
            series: self.series,
            books,
        }
    }
}

/// An integral over a time as a mean, in thousandths.
fn milli(area: u64, time_ns: u64) -> u64 {
    let mean = u128::from(area) * 1000 / u128::from(time_ns.max(1));
    u64::try_from(mean).unwrap_or(u64::MAX)
}
