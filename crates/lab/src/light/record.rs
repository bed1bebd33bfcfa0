//! What is written down while a run goes on.

use super::port::Port;
use crate::cell::Cell;
use crate::figures::{Books, ClassFigures, Figures, PathFigures, SERIES_NS, Series};
use anabranch_policy::OpClass;

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) path: usize,
    pub(super) host: usize,
    pub(super) job: usize,
    pub(super) op: OpClass,
    pub(super) bytes: u32,
}

/// What ended on a path in the present window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    bytes: u64,
    requests: u64,
    latency_ns: u64,
}

#[derive(Debug)]
pub(super) struct Record {
    measuring: bool,
    began_ns: u64,
    jobs: Vec<[ClassFigures; 3]>,
    hosts: Vec<u64>,
    paths: Vec<PathFigures>,
    /// In-flight integrals when the measurement began.
    areas: Vec<u64>,
    series: Series,
    /// The same when the present window began.
    window_areas: Vec<u64>,
    window_began_ns: u64,
    /// Of the present window, per path.
    window: Vec<Window>,
}

impl Record {
    pub(super) fn new(cell: Cell<'_>) -> Record {
        let paths = cell.paths().len();
        let windows = (cell.end_ns() / SERIES_NS) as usize;
        Record {
            measuring: false,
            began_ns: 0,
            jobs: cell.scenario.jobs.iter().map(|_| Default::default()).collect(),
            hosts: vec![0; cell.scenario.hosts.count as usize],
            paths: vec![PathFigures::default(); paths],
            areas: vec![0; paths],
            series: Series::with_capacity(paths, windows),
            window_areas: vec![0; paths],
            window_began_ns: 0,
            window: vec![Window::default(); paths],
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
        let Ended { path, host, job, op, .. } = ended;
        let bytes = u64::from(ended.bytes);
        let window = &mut self.window[path];
        window.bytes += bytes;
        window.requests += 1;
        window.latency_ns += latency_ns;
        if self.measuring {
            let class = &mut self.jobs[job][op as usize];
            class.latency.record(latency_ns);
            class.bytes += bytes;
            self.hosts[host] += bytes;
            self.paths[path].commands += 1;
            self.paths[path].bytes += bytes;
        }
    }

    pub(super) fn end_window(&mut self, now: u64, ports: &[Port]) {
        let time = now - self.window_began_ns;
        let (mut requests, mut latency_ns) = (0, 0);
        for (path, port) in ports.iter().enumerate() {
            let area = port.in_flight.area(now);
            let before = std::mem::replace(&mut self.window_areas[path], area);
            self.series.in_flight_milli.push(milli(area - before, time));
            let window = std::mem::take(&mut self.window[path]);
            self.series.bytes.push(window.bytes);
            let mean = window.latency_ns.checked_div(window.requests).unwrap_or(0);
            self.series.path_mean_ns.push(mean);
            requests += window.requests;
            latency_ns += window.latency_ns;
        }
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
        let Record { jobs, paths, hosts, series, .. } = self;
        let window_ns = now - self.began_ns;
        Figures { paths, hosts, series, books, ..Figures::of_jobs(window_ns, jobs) }
    }
}

/// An integral over a time as a mean, in thousandths.
fn milli(area: u64, time_ns: u64) -> u64 {
    let mean = u128::from(area) * 1000 / u128::from(time_ns.max(1));
    u64::try_from(mean).unwrap_or(u64::MAX)
}
