//! The scenario: plain values and their limits.

use super::job::{Arrival, Burner, Job};
use super::limits::{
    MAX_CHANGES, MAX_DELAY_NS, MAX_HOSTS, MAX_JOBS, MAX_LANES, MAX_NAME, MAX_NAMESPACE_BYTES,
    MAX_NODES, MAX_PATHS, MAX_PUBLISHED, MAX_QUEUE_DEPTH, MAX_REQUESTS, MAX_RUNS, MAX_RUNTIME_NS,
    MAX_SERVERS, MAX_VARIANTS, MAX_WORKERS, MIN_WINDOW_NS,
};
use super::path::{Alteration, AnaState, Change, Path, PathState, check_shape};
use super::variant::Variant;
use std::fmt;

/// An experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The file's name without `.toml`.
    pub name: String,
    /// One line.
    pub title: String,
    /// Where the experiment comes from; may be empty.
    pub source: String,
    /// How long, how often.
    pub run: Run,
    /// Who makes load.
    pub hosts: Hosts,
    /// What serves it.
    pub target: Target,
    /// At least one; at most [`MAX_PATHS`].
    pub paths: Vec<Path>,
    /// By time; what happens at the same time is in the file's order.
    pub changes: Vec<Change>,
    /// At least one. Every host runs all of them.
    pub jobs: Vec<Job>,
    /// CPU load beside the jobs, on every host.
    pub burners: Vec<Burner>,
    /// What is compared: first the [standard ones](super::standard_variants), then the file's own.
    pub variants: Vec<Variant>,
    /// Figures that others measured.
    pub published: Vec<Published>,
}

/// How long a run takes, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Before the window; nothing is counted.
    pub ramp_ns: u64,
    /// What is counted.
    pub window_ns: u64,
    /// Runs, with the seeds 1 to `runs`.
    pub runs: u32,
}

impl Default for Run {
    /// 1 s of ramp, 3 s of window, 6 runs.
    fn default() -> Run {
        Run { ramp_ns: 1_000_000_000, window_ns: 3_000_000_000, runs: 6 }
    }
}

impl Run {
    /// Checks the limits.
    ///
    /// # Errors
    /// Names the key and its limit.
    pub fn check(&self) -> Result<(), Problem> {
        if self.window_ns < MIN_WINDOW_NS {
            return fail("window", "must be at least 1ms");
        }
        if self.ramp_ns > MAX_RUNTIME_NS {
            return fail("ramp", "must not exceed 1h together with window");
        }
        if self.ramp_ns.saturating_add(self.window_ns) > MAX_RUNTIME_NS {
            return fail("window", "must not exceed 1h together with ramp");
        }
        within("runs", self.runs, 1, MAX_RUNS)
    }
}

/// The hosts; all alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// Number of hosts, each with a controller per path.
    pub count: u32,
    /// Data workers per host.
    pub workers: u32,
    /// The NUMA node of each worker.
    pub nodes: Vec<u32>,
    /// Queue pairs per path, at most one per worker; `None` is one per worker. With fewer, workers
    /// share: worker `w` uses queue pair `w` modulo their number.
    pub io_queues: Option<u32>,
    /// Entries of a queue pair, the kernel's `queue_size`: one stays free ([`Hosts::tags`]).
    pub queue_depth: u32,
    /// How long a path is silent until its host gives it up.
    pub detect_ns: u64,
}

impl Default for Hosts {
    /// One host with 4 workers on one node, 128 entries, 1 s until silence is noticed.
    fn default() -> Hosts {
        Hosts {
            count: 1,
            workers: 4,
            nodes: vec![0; 4],
            io_queues: None,
            queue_depth: 128,
            detect_ns: 1_000_000_000,
        }
    }
}

impl Hosts {
    /// Commands that a queue pair carries at once; further ones wait. A queue with all entries used
    /// could not be told from an empty one.
    #[must_use]
    pub fn tags(&self) -> u32 {
        self.queue_depth.saturating_sub(1)
    }

    /// Checks the limits.
    ///
    /// # Errors
    /// Names the key and its limit.
    pub fn check(&self) -> Result<(), Problem> {
        within("count", self.count, 1, MAX_HOSTS)?;
        within("workers", self.workers, 1, MAX_WORKERS)?;
        if self.nodes.len() != self.workers as usize {
            let (nodes, workers) = (self.nodes.len(), self.workers);
            let text = format!("lists {nodes} nodes for {workers} workers; list one per worker");
            return fail("nodes", text);
        }
        if self.nodes.iter().any(|node| *node >= MAX_NODES) {
            return fail("nodes", format!("each must be below {MAX_NODES}"));
        }
        if let Some(queues) = self.io_queues {
            within("io_queues", queues, 1, self.workers)?;
        }
        within("queue_depth", self.queue_depth, 2, MAX_QUEUE_DEPTH)?;
        if self.detect_ns > MAX_RUNTIME_NS {
            return fail("detect", "must not exceed 1h");
        }
        Ok(())
    }
}

/// How a service time varies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// Not at all.
    #[default]
    Constant,
    /// Exponentially, with the given mean.
    Exponential,
}

/// The target behind all paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Commands that are served at once, others wait in order; no limit when `None`.
    pub servers: Option<u32>,
    /// Mean service time of a read.
    pub read_ns: u64,
    /// Mean service time of a write.
    pub write_ns: u64,
    /// Mean service time of anything else.
    pub other_ns: u64,
    /// How service times vary.
    pub distribution: Distribution,
    /// Each path has `servers` servers of its own, instead of all paths together.
    pub per_path: bool,
    /// Logical block size: 512 or 4096.
    pub block_bytes: u32,
    /// Size of the namespace.
    pub size_bytes: u64,
}

impl Default for Target {
    /// No limit of servers; 80, 30 and 10 µs, constant; 1 GiB in blocks of 4096.
    fn default() -> Target {
        Target {
            servers: None,
            read_ns: 80_000,
            write_ns: 30_000,
            other_ns: 10_000,
            distribution: Distribution::Constant,
            per_path: false,
            block_bytes: 4096,
            size_bytes: 1 << 30,
        }
    }
}

impl Target {
    /// Checks the limits.
    ///
    /// # Errors
    /// Names the key and its limit.
    pub fn check(&self) -> Result<(), Problem> {
        if let Some(servers) = self.servers {
            within("servers", servers, 1, MAX_SERVERS)?;
        }
        for (key, time) in
            [("read", self.read_ns), ("write", self.write_ns), ("other", self.other_ns)]
        {
            if time > MAX_DELAY_NS {
                return fail(key, "must not exceed 60s");
            }
        }
        if ![512, 4096].contains(&self.block_bytes) {
            return fail("block", "must be 512 or 4096");
        }
        if self.size_bytes == 0 || self.size_bytes > MAX_NAMESPACE_BYTES {
            return fail("size", "must lie between one block and 1024t");
        }
        if !self.size_bytes.is_multiple_of(u64::from(self.block_bytes)) {
            return fail("size", format!("must be a multiple of {} bytes", self.block_bytes));
        }
        Ok(())
    }
}

/// A row of somebody else's table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// The row's name: a variant's, with `, host 2` behind it where the source has a row per host.
    pub policy: String,
    /// Requests per second.
    pub iops: Option<u64>,
    /// Bytes per second, both directions together.
    pub bytes_s: Option<u64>,
    /// Bytes per second read, where the source tells them apart.
    pub read_bytes_s: Option<u64>,
    /// Bytes per second written, where the source tells them apart.
    pub write_bytes_s: Option<u64>,
    /// Mean latency.
    pub mean_ns: Option<u64>,
    /// Standard deviation of the latency.
    pub stdev_ns: Option<u64>,
    /// Lowest latency.
    pub min_ns: Option<u64>,
    /// Highest latency.
    pub max_ns: Option<u64>,
    /// Mean time until a request is submitted.
    pub submission_mean_ns: Option<u64>,
    /// Its standard deviation.
    pub submission_stdev_ns: Option<u64>,
    /// The shortest one.
    pub submission_min_ns: Option<u64>,
    /// The longest one.
    pub submission_max_ns: Option<u64>,
    /// Commands of each path; empty where the source has none.
    pub commands: Vec<u64>,
    /// CPU time in user space, in millionths of one CPU per thread, as fio counts it.
    pub cpu_user_ppm: Option<u64>,
    /// CPU time in the kernel, likewise.
    pub cpu_system_ppm: Option<u64>,
}

impl Published {
    /// The variant that the row is about.
    #[must_use]
    pub fn variant(&self) -> &str {
        self.policy.split_once(", host ").map_or(&self.policy, |(variant, _)| variant)
    }

    /// The host that the row is about, counted from 1; all of them when `None`.
    #[must_use]
    pub fn host(&self) -> Option<u32> {
        self.policy.split_once(", host ").and_then(|(_, host)| host.parse().ok())
    }
}

/// A part of a scenario, as it stands in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// None, or several together.
    #[default]
    Whole,
    /// `[host]`.
    Host,
    /// `[target]`.
    Target,
    /// The path of this number, from 0.
    Path(usize),
    /// The change of this number, from 0, by time and after `repeat` was written out.
    Change(usize),
}

/// Why a value cannot be: the key at fault, and a sentence with the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The part that the key is of, where that is needed to find it again.
    pub part: Part,
    /// The key, as scenario files spell it.
    pub key: &'static str,
    /// What is wrong, and what would be right.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.text)
    }
}

impl std::error::Error for Problem {}

impl Problem {
    /// About a key of a part.
    pub(crate) fn of(part: Part, key: &'static str, text: impl Into<String>) -> Problem {
        Problem { part, key, text: text.into() }
    }
}

pub(super) fn fail<T>(key: &'static str, text: impl Into<String>) -> Result<T, Problem> {
    Err(Problem::of(Part::Whole, key, text))
}

pub(super) fn within(key: &'static str, value: u32, least: u32, most: u32) -> Result<(), Problem> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    fail(key, format!("{value} is out of range; use {least} to {most}"))
}

/// Names appear in tables, file names and on command lines.
pub(super) fn check_name(key: &'static str, name: &str) -> Result<(), Problem> {
    if name.is_empty() || name.chars().count() > MAX_NAME || name.chars().any(char::is_control) {
        return fail(key, format!("must have 1 to {MAX_NAME} characters, all of them printable"));
    }
    Ok(())
}

impl Scenario {
    /// Checks everything, as a file is checked: for scenarios that were built otherwise.
    ///
    /// # Errors
    /// The first problem found.
    pub fn check(&self) -> Result<(), Problem> {
        self.run.check()?;
        self.hosts.check()?;
        self.target.check()?;
        count("path", self.paths.len(), 1, MAX_PATHS)?;
        for (index, path) in self.paths.iter().enumerate() {
            path.check()?;
            if self.paths[..index].iter().any(|other| other.name == path.name) {
                return fail("name", format!("two paths are called {:?}", path.name));
            }
        }
        self.check_lanes()?;
        count("change", self.changes.len(), 0, MAX_CHANGES)?;
        self.check_changes()?;
        count("job", self.jobs.len(), 1, MAX_JOBS)?;
        count("job", self.jobs.len() + self.burners.len(), 1, MAX_JOBS)?;
        for job in &self.jobs {
            job.check(&self.target, &self.hosts)?;
        }
        for burner in &self.burners {
            burner.check()?;
        }
        self.check_requests()?;
        count("published", self.published.len(), 0, MAX_PUBLISHED)?;
        let standard = super::standard_variants(&self.paths, &self.run).len();
        count("variant", self.variants.len(), 1, MAX_VARIANTS + standard)?;
        for (index, variant) in self.variants.iter().enumerate() {
            variant.check(self.paths.len())?;
            if variant.io_queues.is_some_and(|queues| queues > self.hosts.workers) {
                let text = format!("must not exceed the {} workers", self.hosts.workers);
                return fail("io_queues", text);
            }
            if self.variants[..index].iter().any(|other| other.name == variant.name) {
                return fail("name", format!("two variants are called {:?}", variant.name));
            }
        }
        Ok(())
    }

    /// A real host has a device as soon as it has seen one path to it that gives access; a model of
    /// a host has it from the beginning.
    ///
    /// # Errors
    /// Every path begins inaccessible.
    pub(crate) fn check_device(&self) -> Result<(), Problem> {
        if self.paths.iter().any(|path| path.ana != AnaState::Inaccessible) {
            return Ok(());
        }
        let text = "every path begins inaccessible, so that a real host finds no device; let one \
                    begin otherwise, and change it at = \"0s\"";
        Err(Problem::of(Part::Path(0), "ana", text))
    }

    /// What each worker knows of each path must fit.
    fn check_lanes(&self) -> Result<(), Problem> {
        let Hosts { count, workers, .. } = self.hosts;
        let lanes = u64::from(count) * u64::from(workers) * self.paths.len() as u64;
        if lanes <= MAX_LANES {
            return Ok(());
        }
        let text = format!("{lanes} in all (hosts x workers x paths); at most {MAX_LANES}");
        let key = if workers > count { "workers" } else { "count" };
        Err(Problem::of(Part::Host, key, text))
    }

    fn check_changes(&self) -> Result<(), Problem> {
        let mut last = 0;
        let mut cut = vec![false; self.paths.len()];
        for (number, change) in self.changes.iter().enumerate() {
            if change.at_ns >= self.run.window_ns {
                return fail("at", "lies after the end of the window");
            }
            if change.at_ns < last {
                return fail("at", "changes must be in the order of time");
            }
            last = change.at_ns;
            if change.path >= self.paths.len() {
                return fail("path", "there is no such path");
            }
            match &change.what {
                Alteration::Shape(shape) => check_shape(shape)?,
                Alteration::Brownout(Some(brownout)) => brownout.check()?,
                // A port that is down has no connection that could fall silent.
                Alteration::State(PathState::Silent) if cut[change.path] => {
                    let text = "the path is cut by then and cannot fall silent; let it be up first";
                    return Err(Problem::of(Part::Change(number), "state", text));
                }
                Alteration::State(state) => cut[change.path] = *state == PathState::Cut,
                _ => {}
            }
        }
        Ok(())
    }

    /// All requests that exist at once must fit.
    pub(super) fn check_requests(&self) -> Result<(), Problem> {
        let per_host: u64 = self
            .jobs
            .iter()
            .filter(|job| job.arrival == Arrival::Closed)
            .map(|job| u64::from(job.depth) * u64::from(job.clones))
            .sum();
        let total = per_host * u64::from(self.hosts.count);
        if total > MAX_REQUESTS {
            let text = format!(
                "{total} requests at once (iodepth x numjobs x hosts); at most {MAX_REQUESTS}"
            );
            return fail("iodepth", text);
        }
        Ok(())
    }
}

pub(super) fn count(key: &'static str, n: usize, least: usize, most: usize) -> Result<(), Problem> {
    if (least..=most).contains(&n) {
        return Ok(());
    }
    fail(key, format!("there are {n}; a scenario has {least} to {most}"))
}
