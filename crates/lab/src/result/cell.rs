//! The file of one cell: a documented JSON object, the same for every way to run it.
//!
//! Times are nanoseconds, rates are bytes per second, shares are millionths. It holds nothing that
//! two runs of the same simulated cell would not share: no wall time, no host name.

use crate::adapt::{adaptations, jain_ppm};
use crate::cell::Cell;
use crate::figures::{Books, ClassFigures, Figures, SERIES_NS, per_second};
use crate::limit::{beyond, is_paced, limit_of_window};
use crate::scenario::{Alteration, Change, Scenario};
use anabranch_policy::{Histogram, Policy};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Of the requests that were open all the time, so many, in percent of the others, may be
/// unanswered without a note.
const UNANSWERED_PERCENT: u128 = 25;

/// The version of the schema: raised when a field changes its meaning or goes.
pub const SCHEMA: u32 = 1;

/// How a cell was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The policies' own code on a model of queue pairs and links, in virtual time.
    Light,
    /// The whole host, wire and target engines, in virtual time.
    Sim,
    /// Real hosts, sockets and targets.
    Live,
}

impl Mode {
    /// Its name, in files and on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Light => "light",
            Mode::Sim => "sim",
            Mode::Live => "live",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One run of one variant of one scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellResult {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The scenario's name.
    pub scenario: String,
    /// The variant's name.
    pub variant: String,
    /// Its policy.
    pub policy: String,
    /// How it was run.
    pub mode: Mode,
    /// The seed; live, the number of the turn in which all variants ran one after the other.
    pub run: u64,
    /// What was not counted at the beginning.
    pub ramp_ns: u64,
    /// What was counted.
    pub window_ns: u64,
    /// The part of the scenario's rates that was used, in thousandths: 1000 is all.
    pub scale_permille: u32,
    /// Live: the part of the scenario's open requests that was kept, in thousandths. Nothing in
    /// files from before this was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_permille: Option<u32>,
    /// Live: the kernel held the links to their rates, not the target.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kernel_shaping: bool,
    /// The window of the policy `latency`, for that policy.
    pub latency_window_ns: Option<u64>,
    /// What is physically possible.
    pub limit: LimitResult,
    /// Live: what each path gives alone.
    pub ceilings: Vec<Ceiling>,
    /// Live: less than a fifth of the machine's time was idle, so that the links did not bind.
    pub cpu_bound: bool,
    /// What was left out or done otherwise than the scenario says.
    pub notes: Vec<String>,
    /// Everything together.
    pub total: Flow,
    /// Requests that failed; they are in no other figure.
    pub errors: u64,
    /// From when requests were meant to start until the host had taken them.
    pub submission: Latency,
    /// By job, in the scenario's order.
    pub jobs: Vec<JobResult>,
    /// By path, in the scenario's order.
    pub paths: Vec<PathResult>,
    /// Payload of each host.
    pub hosts: Vec<u64>,
    /// How evenly the hosts shared: Jain's index, in millionths.
    pub jain_ppm: u64,
    /// Live: what the processors did.
    pub cpu: Option<CpuResult>,
    /// How soon the load flowed again after each change.
    pub adaptations: Vec<AdaptationResult>,
    /// What happened when.
    pub changes: Vec<ChangeResult>,
    /// Over time, ramp included.
    pub series: SeriesResult,
    /// What must balance.
    pub books: BooksResult,
    /// Stands for all figures: equal runs have equal ones.
    pub hash: String,
}

/// What is physically possible, and what sets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitResult {
    /// Requests per second.
    pub iops: u64,
    /// Payload per second.
    pub bytes_s: u64,
    /// In words.
    pub bound: String,
    /// The load asks for just this at any time of the window, and for no more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_all_asked_for: bool,
}

/// What a path gives alone, before the cells of a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ceiling {
    /// The path.
    pub path: String,
    /// Payload per second that the scenario's rates allow it with this load.
    pub asked_bytes_s: u64,
    /// What was measured.
    pub bytes_s: u64,
    /// How long a small request takes by the scenario when nothing else is there.
    pub asked_delay_ns: u64,
    /// What was measured: the median.
    pub delay_ns: u64,
}

/// Requests, payload and latency.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// Requests that ended well in the window.
    pub requests: u64,
    /// Their payload.
    pub bytes: u64,
    /// Requests per second, rounded down.
    pub iops: u64,
    /// Payload per second, rounded down.
    pub bytes_s: u64,
    /// From when they were meant to start to their end.
    pub latency: Latency,
}

/// A distribution of latencies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean_ns: u64,
    /// Standard deviation.
    pub stdev_ns: u64,
    /// Smallest.
    pub min_ns: u64,
    /// Median; percentiles are at most 3 % off.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Largest.
    pub max_ns: u64,
    /// The buckets that are not empty: the value that stands for one, and how many are in it.
    pub buckets: Vec<(u64, u64)>,
}

/// One job, all its clones on all hosts together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobResult {
    /// Its name.
    pub name: String,
    /// Its reads.
    pub read: Flow,
    /// Its writes.
    pub write: Flow,
    /// Its trims.
    pub trim: Flow,
}

/// One path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathResult {
    /// Its name.
    pub name: String,
    /// Commands that ended well in the window.
    pub commands: u64,
    /// Their payload.
    pub bytes: u64,
    /// Its part of all payload, in millionths.
    pub share_ppm: u64,
    /// Mean number of commands on it, in thousandths.
    pub in_flight_milli: u64,
}

/// What the processors did in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuResult {
    /// Time of the hosts' workers in user mode.
    pub user_ns: u64,
    /// Time of the hosts' workers in the kernel.
    pub system_ns: u64,
    /// The part of the whole machine's time that was idle, in millionths.
    pub idle_ppm: u64,
}

/// What became of one change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdaptationResult {
    /// When it was, from the start of the run.
    pub at_ns: u64,
    /// Payload per second that was possible from then on.
    pub limit_bytes_s: u64,
    /// From the change to the first window from which on each holds 85 % of that limit; nothing
    /// when there is no such window.
    pub took_ns: Option<u64>,
}

/// A change, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeResult {
    /// When, from the start of the run.
    pub at_ns: u64,
    /// The path's name.
    pub path: String,
    /// What.
    pub what: String,
}

/// Figures per window of `interval_ns` since the start of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeriesResult {
    /// The length of a window.
    pub interval_ns: u64,
    /// Requests that ended.
    pub requests: Vec<u64>,
    /// Their mean latency.
    pub mean_ns: Vec<u64>,
    /// Per path.
    pub paths: Vec<PathSeries>,
}

/// The series of one path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathSeries {
    /// Payload.
    pub bytes: Vec<u64>,
    /// Mean commands in flight, in thousandths.
    pub in_flight_milli: Vec<u64>,
    /// Mean latency of what ended.
    pub mean_ns: Vec<u64>,
}

/// What must balance, over the whole run: see [`Books`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BooksResult {
    /// Requests that began.
    pub requests_started: u64,
    /// Requests that ended.
    pub requests_ended: u64,
    /// Requests that were open at the end.
    pub requests_open: u64,
    /// Requests of an open loop that found the table full.
    pub requests_refused: u64,
    /// Commands that were given to paths.
    pub commands_started: u64,
    /// Commands that were lost with their path, and dispatched again.
    pub commands_lost: u64,
}

/// What the figures of a run do not say themselves.
#[derive(Clone, Debug)]
pub struct Circumstances {
    /// How it was run.
    pub mode: Mode,
    /// See [`CellResult::scale_permille`].
    pub scale_permille: u32,
    /// See [`CellResult::open_permille`].
    pub open_permille: Option<u32>,
    /// See [`CellResult::kernel_shaping`].
    pub kernel_shaping: bool,
    /// See [`CellResult::ceilings`].
    pub ceilings: Vec<Ceiling>,
    /// See [`CellResult::notes`].
    pub notes: Vec<String>,
}

impl Circumstances {
    /// Of a simulation.
    #[must_use]
    pub fn simulated(mode: Mode) -> Circumstances {
        Circumstances {
            mode,
            scale_permille: 1000,
            open_permille: None,
            kernel_shaping: false,
            ceilings: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// A machine with less idle time than this is called bound, in millionths.
const IDLE_PPM: u64 = 200_000;

impl CellResult {
    /// Of a run; live, the cell holds the scenario with scaled rates.
    #[must_use]
    pub fn new(cell: Cell<'_>, figures: &Figures, how: &Circumstances) -> CellResult {
        let Cell { scenario, variant, seed } = cell;
        let parameters = &variant.parameters;
        let limit = limit_of_window(cell);
        CellResult {
            schema: SCHEMA,
            scenario: scenario.name.clone(),
            variant: variant.name.clone(),
            policy: parameters.policy.name().to_owned(),
            mode: how.mode,
            run: seed,
            ramp_ns: scenario.run.ramp_ns,
            window_ns: figures.window_ns,
            scale_permille: how.scale_permille,
            open_permille: how.open_permille,
            kernel_shaping: how.kernel_shaping,
            latency_window_ns: (parameters.policy == Policy::Latency)
                .then(|| parameters.latency.batch_timeout.as_nanos()),
            limit: LimitResult {
                iops: limit.iops,
                bytes_s: limit.bytes_per_second,
                bound: limit.bound.to_string(),
                is_all_asked_for: beyond::is_all_asked_for(cell),
            },
            ceilings: how.ceilings.clone(),
            cpu_bound: figures.cpu.is_some_and(|cpu| cpu.idle_ppm < IDLE_PPM),
            notes: notes(cell, figures, how),
            total: flow(figures.window_ns, figures.bytes, &figures.latency),
            errors: figures.errors,
            submission: Latency::of(&figures.submission),
            jobs: jobs(scenario, figures),
            paths: paths(scenario, figures),
            hosts: figures.hosts.clone(),
            jain_ppm: jain_ppm(&figures.hosts),
            cpu: figures.cpu.map(|cpu| CpuResult {
                user_ns: cpu.user_ns,
                system_ns: cpu.system_ns,
                idle_ppm: cpu.idle_ppm,
            }),
            adaptations: adaptations(cell, figures)
                .into_iter()
                .map(|adaptation| AdaptationResult {
                    at_ns: adaptation.at_ns,
                    limit_bytes_s: adaptation.limit_bytes_per_second,
                    took_ns: adaptation.took_ns,
                })
                .collect(),
            changes: scenario.changes.iter().map(|one| change(scenario, one)).collect(),
            series: series(figures),
            books: BooksResult::of(&figures.books),
            hash: format!("{:016x}", figures.hash()),
        }
    }
}

impl Latency {
    /// Of a histogram.
    #[must_use]
    pub fn of(histogram: &Histogram) -> Latency {
        Latency {
            mean_ns: histogram.mean(),
            stdev_ns: histogram.stdev(),
            min_ns: histogram.min(),
            p50_ns: histogram.per_mille(500),
            p99_ns: histogram.per_mille(990),
            p999_ns: histogram.per_mille(999),
            max_ns: histogram.max(),
            buckets: histogram.buckets().collect(),
        }
    }
}

impl BooksResult {
    fn of(books: &Books) -> BooksResult {
        BooksResult {
            requests_started: books.requests_started,
            requests_ended: books.requests_ended,
            requests_open: books.requests_open,
            requests_refused: books.requests_refused,
            commands_started: books.commands_started,
            commands_lost: books.commands_lost,
        }
    }
}

/// What is said of the run, and of its limit; and of requests that failed, one.
fn notes(cell: Cell<'_>, figures: &Figures, how: &Circumstances) -> Vec<String> {
    let mut notes = how.notes.clone();
    let sorted = beyond::where_requests_are_sorted(cell);
    let beyond = [
        (
            beyond::where_jobs_differ(cell),
            "the jobs ask for different requests, and the limit takes them as one load in the \
             proportion of their open requests: more than 100 % of it is possible",
        ),
        (
            sorted,
            "some requests are nearest on one path and some on another, and the limit takes all as \
             the mean one: more than 100 % of it is possible",
        ),
        (
            !sorted && beyond::where_requests_take_unlike_room(cell),
            "some requests take more of the paths than others, and the limit takes all as the mean \
             one: more than 100 % of it is possible",
        ),
        (
            beyond::where_paths_drain(cell),
            "paths change so often that what they carry when they do is a part of all, and it \
             comes out beside what is sent from then on: more than 100 % of the limit is possible",
        ),
        (
            beyond::where_a_load_catches_up(cell),
            "the load asks for a rate that the paths cannot carry all the time, and what waited is \
             caught up: more than 100 % of the limit is possible",
        ),
    ];
    for (is_possible, how) in beyond {
        if is_possible {
            notes.push(how.to_owned());
        }
    }
    if is_longer_than_its_run(cell.scenario, figures, how) {
        notes.push(
            "in some runs many requests were not answered once in the window: what the table \
             says of latencies, and of shares, is of the others; ramp and window should be several \
             times as long as a request takes"
                .to_owned(),
        );
    }
    if figures.waited > 0 {
        notes.push(format!(
            "{}, run {}: {} requests waited in the load, because their host had no room for more: \
             until they were let in no policy knew of them",
            cell.variant.name, cell.seed, figures.waited
        ));
    }
    if figures.books.requests_refused > 0 {
        notes.push(format!(
            "{}, run {}: {} requests of open loops found no room among those already open, and \
             were not started: the load is more than the paths carry",
            cell.variant.name, cell.seed, figures.books.requests_refused
        ));
    }
    if let Some(first) = &figures.first_error {
        notes.push(format!(
            "{}, run {}: {} requests failed, one of them so: {first}",
            cell.variant.name, cell.seed, figures.errors
        ));
    }
    notes
}

/// Whether a closed loop had more open than its completions account for (Little's law: as many as
/// end in a time, times how long each took): the others were begun and not answered, by far.
fn is_longer_than_its_run(scenario: &Scenario, figures: &Figures, how: &Circumstances) -> bool {
    // While a path is silent its requests are not answered, however long the run is.
    if scenario.jobs.iter().any(is_paced) || !scenario.changes.is_empty() {
        return false;
    }
    let per_host = scenario.jobs.iter().map(|job| u128::from(job.depth) * u128::from(job.clones));
    // A clone that thinks has one request, and none while it does.
    let thought = scenario.jobs.iter().zip(&figures.jobs).map(|(job, classes)| {
        let ended: u64 = classes.iter().map(|class| class.latency.count()).sum();
        u128::from(ended) * u128::from(job.thinktime_ns)
    });
    let open = per_host.sum::<u128>() * u128::from(scenario.hosts.count);
    let open = open * u128::from(how.open_permille.unwrap_or(1000)) / 1000;
    let latencies = u128::from(figures.latency.count()) * u128::from(figures.latency.mean());
    let in_window = open * u128::from(figures.window_ns);
    let taken = latencies + thought.sum::<u128>();
    taken * (100 + UNANSWERED_PERCENT) < in_window * 100
}

fn flow(window_ns: u64, bytes: u64, latency: &Histogram) -> Flow {
    Flow {
        requests: latency.count(),
        bytes,
        iops: per_second(latency.count(), window_ns),
        bytes_s: per_second(bytes, window_ns),
        latency: Latency::of(latency),
    }
}

fn jobs(scenario: &Scenario, figures: &Figures) -> Vec<JobResult> {
    let of = |class: &ClassFigures| flow(figures.window_ns, class.bytes, &class.latency);
    let all = scenario.jobs.iter().zip(&figures.jobs);
    all.map(|(job, [read, write, other])| JobResult {
        name: job.name.clone(),
        read: of(read),
        write: of(write),
        trim: of(other),
    })
    .collect()
}

fn paths(scenario: &Scenario, figures: &Figures) -> Vec<PathResult> {
    let sum: u64 = figures.paths.iter().map(|path| path.bytes).sum();
    let share = |bytes: u64| {
        let ppm = (u128::from(bytes) * 1_000_000).checked_div(u128::from(sum)).unwrap_or(0);
        // Never more than a million.
        ppm as u64
    };
    let all = scenario.paths.iter().zip(&figures.paths);
    all.map(|(path, figures)| PathResult {
        name: path.name.clone(),
        commands: figures.commands,
        bytes: figures.bytes,
        share_ppm: share(figures.bytes),
        in_flight_milli: figures.in_flight_milli,
    })
    .collect()
}

fn series(figures: &Figures) -> SeriesResult {
    let series = &figures.series;
    let of = |list: &[u64], path: usize| {
        list.iter().skip(path).step_by(series.paths.max(1)).copied().collect()
    };
    SeriesResult {
        interval_ns: SERIES_NS,
        requests: series.requests.clone(),
        mean_ns: series.mean_ns.clone(),
        paths: (0..series.paths)
            .map(|path| PathSeries {
                bytes: of(&series.bytes, path),
                in_flight_milli: of(&series.in_flight_milli, path),
                mean_ns: of(&series.path_mean_ns, path),
            })
            .collect(),
    }
}

fn change(scenario: &Scenario, change: &Change) -> ChangeResult {
    let what = match &change.what {
        Alteration::Shape(_) => "its links change".to_owned(),
        Alteration::Brownout(Some(_)) => "a brownout begins".to_owned(),
        Alteration::Brownout(None) => "the brownout ends".to_owned(),
        Alteration::Ana(state) => state.name().to_owned(),
        Alteration::State(state) => state.name().to_owned(),
    };
    ChangeResult {
        at_ns: scenario.run.ramp_ns.saturating_add(change.at_ns),
        path: scenario.paths.get(change.path).map_or(String::new(), |path| path.name.clone()),
        what,
    }
}
