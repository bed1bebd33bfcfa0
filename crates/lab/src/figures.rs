//! What a run gives: integers only, the same on every machine.

use crate::fnv::Fnv;
use anabranch_policy::Histogram;

/// The length of a window of the time series.
pub const SERIES_NS: u64 = 50_000_000;

/// The figures of one cell, however it was run. Without other mention they are of the measured
/// window: what ended from its start on and before its end.
#[derive(Clone, Debug)]
pub struct Figures {
    /// How long the window was.
    pub window_ns: u64,
    /// Requests that ended.
    pub requests: u64,
    /// Their payload.
    pub bytes: u64,
    /// Requests that failed; they are in no other figure.
    pub errors: u64,
    /// One of them, in words.
    pub first_error: Option<String>,
    /// Requests that waited in the load because their host had no room for more, of the whole run;
    /// none in the light simulation.
    pub waited: u64,
    /// How long they took, from when they were meant to start.
    pub latency: Histogram,
    /// From when they were meant to start until the host had taken them. Empty in the light
    /// simulation, where hosts take no time.
    pub submission: Histogram,
    /// The same of reads, writes and others.
    pub classes: [ClassFigures; 3],
    /// The same for each job of the scenario, all its clones on all hosts together.
    pub jobs: Vec<[ClassFigures; 3]>,
    /// In the order of the scenario.
    pub paths: Vec<PathFigures>,
    /// Payload of each host.
    pub hosts: Vec<u64>,
    /// Of the whole run, ramp included.
    pub series: Series,
    /// Of live runs.
    pub cpu: Option<Cpu>,
    /// Of the whole run, ramp included.
    pub books: Books,
}

/// What the processors did in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Time of the hosts' workers in user mode.
    pub user_ns: u64,
    /// Time of the hosts' workers in the kernel.
    pub system_ns: u64,
    /// The part of the whole machine's time that was idle, in millionths.
    pub idle_ppm: u64,
}

/// The figures of reads, of writes, or of others.
#[derive(Clone, Debug, Default)]
pub struct ClassFigures {
    /// Payload of those that ended; their number is that of the latencies.
    pub bytes: u64,
    /// How long they took.
    pub latency: Histogram,
}

impl ClassFigures {
    /// How many ended.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.latency.count()
    }
}

/// The figures of one path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathFigures {
    /// Commands that ended well.
    pub commands: u64,
    /// Their payload.
    pub bytes: u64,
    /// Mean number of commands on it, with those that wait for a tag, in thousandths.
    pub in_flight_milli: u64,
    /// To the target, to the host; of the whole run.
    pub links: [LinkFigures; 2],
}

/// What a link did, over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkFigures {
    /// Bytes given to it, headers included.
    pub bytes: u64,
    /// For how long it carries them: since the run began, and beyond its end what waits then.
    pub busy_ns: u64,
}

/// Whole windows of [`SERIES_NS`] since the run began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// Paths per window in the three lists that have an entry for each.
    pub paths: usize,
    /// Payload per window and path.
    pub bytes: Vec<u64>,
    /// Mean commands in flight per window and path, in thousandths.
    pub in_flight_milli: Vec<u64>,
    /// Mean latency of what ended, per window and path; 0 when there was nothing.
    pub path_mean_ns: Vec<u64>,
    /// Requests that ended, per window.
    pub requests: Vec<u64>,
    /// Their mean latency, per window; 0 when there were none.
    pub mean_ns: Vec<u64>,
}

impl Series {
    pub(crate) fn with_capacity(paths: usize, windows: usize) -> Series {
        Series {
            paths,
            bytes: Vec::with_capacity(paths * windows),
            in_flight_milli: Vec::with_capacity(paths * windows),
            path_mean_ns: Vec::with_capacity(paths * windows),
            requests: Vec::with_capacity(windows),
            mean_ns: Vec::with_capacity(windows),
        }
    }

    /// How many windows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether the run was shorter than one window.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Payload per path in one window.
    #[must_use]
    pub fn bytes_of(&self, window: usize) -> &[u64] {
        &self.bytes[window * self.paths..][..self.paths]
    }
}

/// What must balance, over the whole run. [`Books::check`] says whether it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Requests that began, and their payload.
    pub requests_started: u64,
    /// Payload of those.
    pub bytes_started: u64,
    /// Requests that ended.
    pub requests_ended: u64,
    /// Payload of those.
    pub bytes_ended: u64,
    /// Requests that were open when the run ended.
    pub requests_open: u64,
    /// Payload of those.
    pub bytes_open: u64,
    /// Requests of an open loop that found the table of open ones full (light: two million; else
    /// 65,536 of a worker); they are not started.
    pub requests_refused: u64,
    /// Commands given to paths.
    pub commands_started: u64,
    /// Commands that ended well.
    pub commands_ended: u64,
    /// Commands that were lost with their path, or given up there for others elsewhere.
    pub commands_lost: u64,
    /// Commands on a path when the run ended.
    pub commands_open: u64,
    /// The integral of the number of open requests over the run.
    pub in_flight_ns: u64,
    /// The sum of the latencies of the requests that ended.
    pub latency_ns: u64,
    /// The sum of the ages of the open ones.
    pub open_ns: u64,
    /// What the load counters of the policy still hold after every charge was returned.
    pub charged_commands: u64,
    /// The same in bytes.
    pub charged_bytes: u64,
}

impl Books {
    /// Nothing got lost or was counted twice, Little's law holds to the nanosecond, and every
    /// charge came back.
    ///
    /// # Errors
    /// The first balance that does not hold.
    pub fn check(&self) -> Result<(), String> {
        let balances = [
            ("requests", self.requests_started, self.requests_ended + self.requests_open),
            ("bytes", self.bytes_started, self.bytes_ended + self.bytes_open),
            (
                "commands",
                self.commands_started,
                self.commands_ended + self.commands_lost + self.commands_open,
            ),
            ("Little's law", self.in_flight_ns, self.latency_ns + self.open_ns),
            ("charged commands", self.charged_commands, 0),
            ("charged bytes", self.charged_bytes, 0),
        ];
        match balances.iter().find(|(_, left, right)| left != right) {
            Some((what, left, right)) => Err(format!("{what}: {left} is not {right}")),
            None => Ok(()),
        }
    }
}

/// A hash over 64-bit words.
struct Hash(Fnv);

impl Hash {
    fn add(&mut self, values: &[u64]) {
        for value in values {
            self.0.add(&value.to_le_bytes());
        }
    }

    fn add_latency(&mut self, latency: &Histogram) {
        let sum = latency.sum() as u64;
        self.add(&[latency.count(), sum, latency.stdev(), latency.min(), latency.max()]);
        self.add(&[10, 100, 250, 500, 750, 900, 990, 999].map(|part| latency.per_mille(part)));
    }
}

impl Figures {
    /// What the jobs' figures say of the whole; paths, hosts, series and books are still empty.
    #[must_use]
    pub fn of_jobs(window_ns: u64, jobs: Vec<[ClassFigures; 3]>) -> Figures {
        let mut classes: [ClassFigures; 3] = Default::default();
        let mut latency = Histogram::new();
        for job in &jobs {
            for (sum, class) in classes.iter_mut().zip(job) {
                sum.bytes += class.bytes;
                sum.latency.merge(&class.latency);
                latency.merge(&class.latency);
            }
        }
        Figures {
            window_ns,
            requests: latency.count(),
            bytes: classes.iter().map(|class| class.bytes).sum(),
            errors: 0,
            first_error: None,
            waited: 0,
            latency,
            submission: Histogram::new(),
            classes,
            jobs,
            paths: Vec::new(),
            hosts: Vec::new(),
            series: Series::default(),
            cpu: None,
            books: Books::default(),
        }
    }

    /// A number that stands for all figures: equal runs have equal ones, on every machine.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let mut hash = Hash(Fnv::new());
        hash.add(&[self.window_ns, self.requests, self.bytes]);
        hash.add(&[self.paths.len() as u64, self.hosts.len() as u64]);
        hash.add_latency(&self.latency);
        for class in &self.classes {
            hash.add(&[class.bytes]);
            hash.add_latency(&class.latency);
        }
        for path in &self.paths {
            hash.add(&[path.commands, path.bytes, path.in_flight_milli]);
            hash.add(&path.links.map(|link| link.bytes));
            hash.add(&path.links.map(|link| link.busy_ns));
        }
        hash.add(&self.hosts);
        let series = &self.series;
        for list in [&series.bytes, &series.in_flight_milli, &series.requests, &series.mean_ns] {
            hash.add(&[list.len() as u64]);
            hash.add(list);
        }
        let books = &self.books;
        hash.add(&[books.requests_started, books.bytes_started, books.requests_ended]);
        hash.add(&[books.bytes_ended, books.requests_open, books.bytes_open]);
        hash.add(&[books.requests_refused, books.commands_started, books.commands_ended]);
        hash.add(&[books.commands_lost, books.commands_open, books.in_flight_ns]);
        hash.add(&[books.latency_ns, books.open_ns]);
        hash.0.get()
    }

    /// Requests per second, rounded down.
    #[must_use]
    pub fn iops(&self) -> u64 {
        per_second(self.requests, self.window_ns)
    }

    /// Payload per second, rounded down.
    #[must_use]
    pub fn bytes_per_second(&self) -> u64 {
        per_second(self.bytes, self.window_ns)
    }
}

/// A rate, rounded down.
pub(crate) fn per_second(count: u64, time_ns: u64) -> u64 {
    let rate = u128::from(count) * 1_000_000_000 / u128::from(time_ns.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}
