//! What all cells together say: a table per scenario and mode, a row per variant.

use super::stats::{Difference, Merged, Paired, median, ratio_ppm};
use super::verdict::{Verdict, worked_off};
use super::{Ceiling, CellResult, Counted, Flow, Latency, LimitResult, Measure, Mode, SCHEMA};
use anabranch_policy::Policy;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `summary.json`: made from the cells alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// [`SCHEMA`].
    pub schema: u32,
    /// By scenario and mode.
    pub tables: Vec<Table>,
}

/// One scenario, run in one way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// The scenario's name.
    pub scenario: String,
    /// How it was run.
    pub mode: Mode,
    /// What was not counted.
    pub ramp_ns: u64,
    /// What was counted.
    pub window_ns: u64,
    /// See [`CellResult::scale_permille`].
    pub scale_permille: u32,
    /// See [`CellResult::open_permille`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_permille: Option<u32>,
    /// See [`CellResult::kernel_shaping`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kernel_shaping: bool,
    /// Hosts that shared the target.
    pub hosts: u32,
    /// Changes that are followed by whole windows of the series, so that the time to adapt has a
    /// meaning.
    pub changes: u32,
    /// What rows are ranked and compared by.
    #[serde(default, skip_serializing_if = "Measure::is_payload")]
    pub throughput_of: Measure,
    /// What is physically possible.
    pub limit: LimitResult,
    /// Live: what each path gives alone.
    pub ceilings: Vec<Ceiling>,
    /// What was left out or done otherwise, each once.
    pub notes: Vec<String>,
    /// Which variant is best, and how sure that is.
    pub verdict: Verdict,
    /// By policy, in the order of [`Policy::ALL`]; the policy as it comes first.
    pub rows: Vec<Row>,
}

/// One variant, all its runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The variant's name.
    pub variant: String,
    /// Its policy.
    pub policy: String,
    /// The window of the policy `latency`, for that policy.
    pub latency_window_ns: Option<u64>,
    /// The runs.
    pub runs: Vec<RunFigures>,
    /// Payload per second: the median of the runs.
    pub bytes_s: u64,
    /// Requests per second: the median of the runs.
    pub iops: u64,
    /// Throughput ([`Table::throughput_of`]) over the limit, in millionths.
    pub of_limit_ppm: u64,
    /// Throughput over that of the best row, in millionths. Here and below, what exceeds all that
    /// the load asks for ([`LimitResult::is_all_asked_for`]) does not count.
    pub of_best_ppm: u64,
    /// Throughput over that of the best row, run by run.
    pub to_best: Paired,
    /// What [`Row::to_best`] says.
    pub to_best_is: Difference,
    /// Latency from the intended start to the end: all requests of all runs.
    pub completion: Quantiles,
    /// Latency until the host had taken the request.
    pub submission: Quantiles,
    /// Live: the processors.
    pub cpu: Option<RowCpu>,
    /// What each path carried of all runs' payload, in the scenario's order; of their commands
    /// where there is no payload.
    pub shares: Vec<Share>,
    /// The median time to adapt, of all changes of all runs; one that never was counts as endless.
    pub adapt_median_ns: Option<u64>,
    /// The longest time to adapt; nothing when one never was, or there were no changes.
    pub adapt_worst_ns: Option<u64>,
    /// Changes after which the load never flowed again as it could have, of all runs.
    pub never_adapted: u64,
    /// How evenly the hosts shared: the median of the runs.
    pub jain_ppm: u64,
    /// Requests that failed, of all runs.
    pub errors: u64,
    /// In one of the runs the processors were the limit.
    pub cpu_bound: bool,
}

/// What other programs pair by run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunFigures {
    /// The seed, or the number of the turn.
    pub run: u64,
    /// Payload per second.
    pub bytes_s: u64,
    /// Requests per second.
    pub iops: u64,
    /// Mean latency.
    pub mean_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Requests that failed.
    pub errors: u64,
}

/// A distribution, without its buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantiles {
    /// Arithmetic mean.
    pub mean_ns: u64,
    /// Standard deviation.
    pub stdev_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Largest.
    pub max_ns: u64,
}

/// What the processors did, over all runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowCpu {
    /// User time of the hosts per request.
    pub user_ns_per_request: u64,
    /// Kernel time of the hosts per request.
    pub system_ns_per_request: u64,
    /// User time over the windows' time: a million is one processor.
    pub user_ppm: u64,
    /// Kernel time over the windows' time.
    pub system_ppm: u64,
    /// The least idle part of the whole machine of any run.
    pub idle_ppm: u64,
}

/// A path's part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// The path.
    pub path: String,
    /// In millionths.
    pub share_ppm: u64,
}

impl From<&Merged> for Quantiles {
    fn from(merged: &Merged) -> Quantiles {
        Quantiles {
            mean_ns: merged.mean(),
            stdev_ns: merged.stdev(),
            p50_ns: merged.per_mille(500),
            p99_ns: merged.per_mille(990),
            p999_ns: merged.per_mille(999),
            max_ns: merged.max(),
        }
    }
}

/// Adds up cells, in whatever order they come; it keeps distributions and a line per cell, not the
/// cells.
#[derive(Debug, Default)]
pub struct Builder {
    tables: BTreeMap<(String, Mode), Open>,
}

/// A table that grows.
#[derive(Debug)]
struct Open {
    ramp_ns: u64,
    window_ns: u64,
    scale_permille: u32,
    open_permille: Option<u32>,
    kernel_shaping: bool,
    hosts: u32,
    changes: u32,
    /// Of the lowest run of the first variant: live, ceilings are measured again each time.
    first: (String, u64),
    limit: LimitResult,
    ceilings: Vec<Ceiling>,
    notes: Vec<String>,
    rows: BTreeMap<Rank, Sum>,
}

/// The place of a variant in a table.
type Rank = (usize, bool, String);

/// A row that grows.
#[derive(Debug, Default)]
struct Sum {
    policy: String,
    latency_window_ns: Option<u64>,
    runs: BTreeMap<u64, RunFigures>,
    completion: Merged,
    submission: Merged,
    cpu: Option<[u128; 2]>,
    idle_ppm: u64,
    requests: u128,
    window_ns: u128,
    paths: Vec<Carried>,
    adapted: Vec<Option<u64>>,
    jain: Vec<u64>,
    errors: u64,
    cpu_bound: bool,
}

/// What a path carried.
#[derive(Debug)]
struct Carried {
    path: String,
    bytes: u128,
    commands: u128,
}

impl Builder {
    /// Adds a cell.
    ///
    /// # Errors
    /// Another cell of the table was run otherwise, or this one is there already.
    pub fn add(&mut self, cell: &CellResult) -> Result<(), String> {
        let table = self.tables.entry((cell.scenario.clone(), cell.mode));
        let table = table.or_insert_with(|| Open::new(cell));
        let theirs = (table.ramp_ns, table.window_ns, table.scale_permille, table.kernel_shaping);
        let own = (cell.ramp_ns, cell.window_ns, cell.scale_permille, cell.kernel_shaping);
        let open = table.open_permille.or(cell.open_permille);
        if theirs != own || cell.open_permille.is_some() && cell.open_permille != open {
            return Err("was run with another ramp, window, scale, part of the open requests or \
                        shaper of the links than others of its scenario"
                .to_owned());
        }
        table.open_permille = open;
        if (&cell.variant, cell.run) < (&table.first.0, table.first.1) {
            table.first = (cell.variant.clone(), cell.run);
            (table.limit, table.ceilings) = (cell.limit.clone(), cell.ceilings.clone());
        }
        for note in &cell.notes {
            if !table.notes.contains(note) {
                table.notes.push(note.clone());
            }
        }
        let place = Policy::ALL.iter().position(|policy| policy.name() == cell.policy);
        let rank = (place.unwrap_or(usize::MAX), cell.variant != cell.policy, cell.variant.clone());
        table.rows.entry(rank).or_default().add(cell)
    }

    /// The tables.
    #[must_use]
    pub fn finish(self) -> Summary {
        let tables =
            self.tables.into_iter().map(|((scenario, mode), open)| open.close(scenario, mode));
        Summary { schema: SCHEMA, tables: tables.collect() }
    }
}

impl Open {
    fn new(cell: &CellResult) -> Open {
        Open {
            ramp_ns: cell.ramp_ns,
            window_ns: cell.window_ns,
            scale_permille: cell.scale_permille,
            open_permille: cell.open_permille,
            kernel_shaping: cell.kernel_shaping,
            hosts: u32::try_from(cell.hosts.len()).unwrap_or(u32::MAX),
            changes: u32::try_from(cell.adaptations.len()).unwrap_or(u32::MAX),
            first: (cell.variant.clone(), cell.run),
            limit: cell.limit.clone(),
            ceilings: cell.ceilings.clone(),
            notes: Vec::new(),
            rows: BTreeMap::new(),
        }
    }

    fn close(mut self, scenario: String, mode: Mode) -> Table {
        self.notes.sort();
        let mut rows: Vec<Row> =
            self.rows.into_iter().map(|((_, _, variant), sum)| sum.close(variant)).collect();
        self.notes.extend(unequal(&rows));
        let measure = Measure::of(&rows);
        for row in &mut rows {
            row.of_limit_ppm = ratio_ppm(measure.of_row(row), measure.of_limit(&self.limit));
        }
        let counted = Counted::of(measure, &self.limit);
        self.notes.extend(worked_off(&rows, &self.limit, measure));
        let best = ranked(&rows, counted).first().map(|best| (*best).clone());
        if let Some(best) = &best {
            for row in &mut rows {
                row.to_best = paired(row, best, |run| counted.of_run(run));
                row.of_best_ppm = match (row.to_best.pairs, counted.of_row(best)) {
                    // Of nothing.
                    (_, 0) => 0,
                    (0, whole) => ratio_ppm(counted.of_row(row), whole),
                    _ => ratio_ppm(common(row, &[best], counted), common(best, &[row], counted)),
                };
                row.to_best_is = row.to_best.difference();
            }
        }
        Table {
            scenario,
            mode,
            ramp_ns: self.ramp_ns,
            window_ns: self.window_ns,
            scale_permille: self.scale_permille,
            open_permille: self.open_permille,
            kernel_shaping: self.kernel_shaping,
            hosts: self.hosts,
            changes: self.changes,
            throughput_of: measure,
            limit: self.limit,
            ceilings: self.ceilings,
            notes: self.notes,
            verdict: Verdict::of(&rows, counted),
            rows,
        }
    }
}

/// That rows have different numbers of runs, and what follows from it.
fn unequal(rows: &[Row]) -> Option<String> {
    let counts = || rows.iter().map(|row| row.runs.len());
    let (least, most) = (counts().min()?, counts().max()?);
    (least < most).then(|| {
        format!(
            "rows have {least} to {most} runs: each one's own figures are of all its runs, and \
             rows are compared by those that they have in common"
        )
    })
}

/// The median throughput of a row in the runs that these others have, too; 0 without any.
fn common(row: &Row, others: &[&Row], counted: Counted) -> u64 {
    let has = |other: &&Row, run: u64| other.runs.iter().any(|theirs| theirs.run == run);
    let runs = row.runs.iter().filter(|run| others.iter().all(|other| has(other, run.run)));
    median(&runs.map(|run| counted.of_run(run)).collect::<Vec<_>>())
}

/// The rows, the one with most throughput first; of equal ones the first.
///
/// Rows may have different runs, and then medians over all of them are of different seeds: those
/// over what all have decide. Where pairs say otherwise of the first, they are right.
pub(super) fn ranked(rows: &[Row], counted: Counted) -> Vec<&Row> {
    let mut sorted: Vec<&Row> = rows.iter().collect();
    let all = sorted.clone();
    let shared = rows.first().is_some_and(|row| {
        row.runs.iter().any(|run| {
            rows.iter().all(|other| other.runs.iter().any(|theirs| theirs.run == run.run))
        })
    });
    sorted.sort_by_cached_key(|row| {
        std::cmp::Reverse(match shared {
            true => common(row, &all, counted),
            false => counted.of_row(row),
        })
    });
    for at in 1..sorted.len() {
        let ratio = paired(sorted[at], sorted[0], |run| counted.of_run(run));
        if ratio.difference() == Difference::More {
            sorted[..=at].rotate_right(1);
        }
    }
    sorted
}

/// The figures of one row over those of another, by the runs that both have.
#[must_use]
pub fn paired(row: &Row, base: &Row, figure: impl Fn(&RunFigures) -> u64) -> Paired {
    of_pairs(row, base, &pairs(row, base, figure).collect::<Vec<_>>())
}

/// The 99th percentiles of one row over those of another. A run in which no request ended has none,
/// which is no low one.
#[must_use]
pub fn paired_tails(row: &Row, base: &Row) -> Paired {
    let both = pairs(row, base, |run| run.p99_ns).filter(|(own, other)| *own > 0 && *other > 0);
    of_pairs(row, base, &both.collect::<Vec<_>>())
}

fn of_pairs(row: &Row, base: &Row, pairs: &[(u64, u64)]) -> Paired {
    let same = |two: &[RunFigures]| RunFigures { run: two[1].run, ..two[0].clone() } == two[1];
    let alike = [row, base].iter().all(|row| row.runs.windows(2).all(same));
    let paired = Paired::new(pairs);
    Paired { alike: alike && paired.interval.is_some(), ..paired }
}

fn pairs(
    row: &Row,
    base: &Row,
    figure: impl Fn(&RunFigures) -> u64,
) -> impl Iterator<Item = (u64, u64)> {
    row.runs.iter().filter_map(move |run| {
        let other = base.runs.iter().find(|other| other.run == run.run)?;
        Some((figure(run), figure(other)))
    })
}

impl Sum {
    fn add(&mut self, cell: &CellResult) -> Result<(), String> {
        let Flow { requests, iops, bytes_s, latency: Latency { mean_ns, p99_ns, .. }, .. } =
            cell.total;
        let errors = cell.errors;
        let run = RunFigures { run: cell.run, bytes_s, iops, mean_ns, p99_ns, errors };
        if self.runs.insert(cell.run, run).is_some() {
            return Err("is there twice".to_owned());
        }
        self.policy.clone_from(&cell.policy);
        self.latency_window_ns = cell.latency_window_ns;
        self.completion.add(requests, &cell.total.latency);
        // A latency has as many values as its buckets, where it has no other count.
        let submitted = cell.submission.buckets.iter().map(|(_, count)| count).sum();
        self.submission.add(submitted, &cell.submission);
        if let Some(cpu) = cell.cpu {
            let [user, system] = self.cpu.unwrap_or_default();
            self.idle_ppm =
                if self.cpu.is_none() { cpu.idle_ppm } else { self.idle_ppm.min(cpu.idle_ppm) };
            self.cpu = Some([user + u128::from(cpu.user_ns), system + u128::from(cpu.system_ns)]);
        }
        self.requests += u128::from(requests);
        self.window_ns += u128::from(cell.window_ns);
        if self.paths.is_empty() {
            let none = |path: &str| Carried { path: path.to_owned(), bytes: 0, commands: 0 };
            self.paths = cell.paths.iter().map(|path| none(&path.name)).collect();
        }
        for (sum, path) in self.paths.iter_mut().zip(&cell.paths) {
            sum.bytes += u128::from(path.bytes);
            sum.commands += u128::from(path.commands);
        }
        self.adapted.extend(cell.adaptations.iter().map(|one| one.took_ns));
        self.jain.push(cell.jain_ppm);
        self.errors = self.errors.saturating_add(cell.errors);
        self.cpu_bound |= cell.cpu_bound;
        Ok(())
    }

    fn close(mut self, variant: String) -> Row {
        let all =
            |figure: fn(&RunFigures) -> u64| self.runs.values().map(figure).collect::<Vec<_>>();
        let bytes_s = median(&all(|run| run.bytes_s));
        let iops = median(&all(|run| run.iops));
        let narrow = |value: Option<u128>| u64::try_from(value.unwrap_or(0)).unwrap_or(u64::MAX);
        // Trims have no payload.
        let payload = self.paths.iter().any(|one| one.bytes > 0);
        let part = |one: &Carried| if payload { one.bytes } else { one.commands };
        let carried: u128 = self.paths.iter().map(part).sum();
        let share = |one: &Carried| Share {
            path: one.path.clone(),
            share_ppm: narrow((part(one) * 1_000_000).checked_div(carried)),
        };
        let cpu = self.cpu.map(|[user, system]| RowCpu {
            user_ns_per_request: narrow(user.checked_div(self.requests)),
            system_ns_per_request: narrow(system.checked_div(self.requests)),
            user_ppm: narrow((user * 1_000_000).checked_div(self.window_ns)),
            system_ppm: narrow((system * 1_000_000).checked_div(self.window_ns)),
            idle_ppm: self.idle_ppm,
        });
        let never = self.adapted.iter().filter(|took| took.is_none()).count() as u64;
        // Endless times last.
        self.adapted.sort_by_key(|took| took.unwrap_or(u64::MAX));
        let middle = self.adapted.len() / 2;
        Row {
            variant,
            policy: self.policy,
            latency_window_ns: self.latency_window_ns,
            bytes_s,
            iops,
            of_limit_ppm: 0,
            of_best_ppm: 0,
            to_best: Paired::new(&[]),
            to_best_is: Difference::Unknown,
            completion: Quantiles::from(&self.completion),
            submission: Quantiles::from(&self.submission),
            cpu,
            shares: self.paths.iter().map(share).collect(),
            adapt_median_ns: self.adapted.get(middle).copied().flatten(),
            adapt_worst_ns: self.adapted.last().copied().flatten(),
            never_adapted: never,
            jain_ppm: median(&self.jain),
            errors: self.errors,
            cpu_bound: self.cpu_bound,
            runs: self.runs.into_values().collect(),
        }
    }
}

#[cfg(test)]
mod tests;
