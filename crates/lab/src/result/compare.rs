//! Two results side by side: is the second worse than the first?

use super::stats::{Difference, ONE_PPM, Paired};
use super::store::Store;
use super::summary::{Row, RunFigures, Summary, Table, paired, paired_tails};
use super::{Measure, Mode, PERCENTILE_PPM, SCHEMA};
use crate::scenario::Text;
use serde::{Deserialize, Serialize};

/// With fewer runs than an interval takes, only what differs by more than this in every pair is
/// called different, in millionths.
pub const COARSE_PPM: u64 = 50_000;
/// Of a line of a scenario so many characters are shown.
const LONGEST_LINE: usize = 60;

/// Everything that two results have in common, compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What does not count as a difference.
    pub tolerance_ppm: u64,
    /// By scenario, mode and variant.
    pub rows: Vec<ComparedRow>,
    /// What only one of them has, or what cannot be compared, and why.
    pub left_out: Vec<String>,
    /// Scenarios that were not the same in A and B under one name, in sentences: then what is
    /// compared is them, not what ran them. See [`Comparison::look_at_texts`].
    pub differing: Vec<String>,
    /// How many rows are worse in throughput, p99 or errors.
    pub worse: u32,
    /// How many rows are better in one of them, and worse in none.
    pub better: u32,
}

/// One variant of one scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComparedRow {
    /// The scenario's name.
    pub scenario: String,
    /// How both were run.
    pub mode: Mode,
    /// The variant's name.
    pub variant: String,
    /// What throughput is of in both.
    #[serde(default, skip_serializing_if = "Measure::is_payload")]
    pub throughput_of: Measure,
    /// Payload per second, or requests.
    pub throughput: Compared,
    /// The 99th percentile of latency, in nanoseconds, of the runs in which requests ended.
    pub p99: Compared,
    /// Requests that failed in A and in B, in the runs that both have; more of them are worse,
    /// fewer are better.
    pub errors: [u64; 2],
    /// Whether the machine was the limit in a run of A, and of B: then it is what was compared.
    pub cpu_bound: [bool; 2],
    /// All of it.
    pub is: Judgement,
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compared {
    /// In A.
    pub a: u64,
    /// In B.
    pub b: u64,
    /// B over A, run by run.
    pub ratio: Paired,
    /// What that says.
    pub is: Judgement,
}

/// What can be said of B.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judgement {
    /// It is better.
    Better,
    /// It is worse.
    Worse,
    /// They do not differ beyond interval and tolerance.
    NoDifference,
    /// Too few runs for an interval, and no difference that is plain without one.
    TooFewRuns,
    /// The machine was the limit in one of them: nothing is said of the policy.
    CpuBound,
}

impl Judgement {
    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Judgement::Better => "better",
            Judgement::Worse => "worse",
            Judgement::NoDifference => "no difference",
            Judgement::TooFewRuns => "too few runs",
            Judgement::CpuBound => "CPU-bound",
        }
    }
}

/// Compares B with A, row by row.
#[must_use]
pub fn compare(a: &Summary, b: &Summary, tolerance_ppm: u64) -> Comparison {
    let (mut rows, mut left_out) = (Vec::new(), Vec::new());
    for table in &a.tables {
        let same = |other: &&Table| (&other.scenario, other.mode) == (&table.scenario, table.mode);
        let name = format!("{} ({})", table.scenario, table.mode);
        match b.tables.iter().find(same) {
            None => left_out.push(format!("{name} is in A alone")),
            Some(other) => match hindrance(table, other) {
                Some(why) => left_out.push(format!("{name}: {why}")),
                None => pair_up(table, other, tolerance_ppm, &mut rows, &mut left_out),
            },
        }
    }
    for table in &b.tables {
        let same = |other: &Table| (&other.scenario, other.mode) == (&table.scenario, table.mode);
        if !a.tables.iter().any(same) {
            left_out.push(format!("{} ({}) is in B alone", table.scenario, table.mode));
        }
    }
    let count = |what| {
        let n = rows.iter().filter(|row: &&ComparedRow| row.is == what).count();
        u32::try_from(n).unwrap_or(u32::MAX)
    };
    let (worse, better) = (count(Judgement::Worse), count(Judgement::Better));
    let differing = Vec::new();
    Comparison { schema: SCHEMA, tolerance_ppm, rows, left_out, differing, worse, better }
}

impl Comparison {
    /// Compares the texts of the scenarios that both have, as far as the directories keep them.
    pub fn look_at_texts(&mut self, a: &Store, b: &Store) {
        let mut names: Vec<&str> = self.rows.iter().map(|row| row.scenario.as_str()).collect();
        names.dedup();
        let found = names.into_iter().filter_map(|name| {
            let where_they_part = parting(&a.scenario_texts(name), &b.scenario_texts(name))?;
            Some(format!("{name} is not the same scenario in A and B: {where_they_part}"))
        });
        self.differing = found.collect();
    }
}

/// Where the first of these files differs.
fn parting(a: &[Text], b: &[Text]) -> Option<String> {
    let (a, b) = a.iter().zip(b).find(|(a, b)| a.text != b.text)?;
    let (mut of_a, mut of_b) = (a.text.lines(), b.text.lines());
    for line in 1.. {
        match (of_a.next(), of_b.next()) {
            // Only the ends of lines differ.
            (None, None) => break,
            (one, other) if one != other => {
                let (one, other) = (quoted(one), quoted(other));
                return Some(format!("line {line} of {} is {one}, and {other} in B", a.name));
            }
            _ => {}
        }
    }
    Some(format!("{} has other ends of lines in B", a.name))
}

/// A line as a sentence has it.
fn quoted(line: Option<&str>) -> String {
    let Some(line) = line else { return "not there".to_owned() };
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    let short: String = line.trim().chars().take(LONGEST_LINE).map(shown).collect();
    format!("`{short}`")
}

/// Why two tables cannot be compared.
fn hindrance(a: &Table, b: &Table) -> Option<String> {
    let ms = |ns: u64| ns / 1_000_000;
    if (a.ramp_ns, a.window_ns) != (b.ramp_ns, b.window_ns) {
        return Some(format!(
            "A has {} ms after {} ms, B {} ms after {} ms",
            ms(a.window_ns),
            ms(a.ramp_ns),
            ms(b.window_ns),
            ms(b.ramp_ns)
        ));
    }
    if a.scale_permille != b.scale_permille {
        let (a, b) = (a.scale_permille, b.scale_permille);
        return Some(format!("A has {a}/1000 of the rates, B {b}/1000"));
    }
    if let (Some(a), Some(b)) = (a.open_permille, b.open_permille)
        && a != b
    {
        return Some(format!("A has {a}/1000 of the open requests, B {b}/1000"));
    }
    let shaper = |table: &Table| if table.kernel_shaping { "the kernel" } else { "the target" };
    let text = format!("{} shapes the links of A, {} those of B", shaper(a), shaper(b));
    (a.kernel_shaping != b.kernel_shaping).then_some(text)
}

fn pair_up(
    a: &Table,
    b: &Table,
    tolerance_ppm: u64,
    rows: &mut Vec<ComparedRow>,
    left_out: &mut Vec<String>,
) {
    let name = |row: &Row| format!("{} ({}), {}", a.scenario, a.mode, row.variant);
    let measure = Measure::of(a.rows.iter().chain(&b.rows));
    let mut alone = [0, 0];
    for row in &a.rows {
        match b.rows.iter().find(|other| other.variant == row.variant) {
            None => left_out.push(format!("{} is in A alone", name(row))),
            Some(other) => {
                let compared = compared(a, [row, other], measure, tolerance_ppm);
                let pairs = compared.throughput.ratio.pairs as usize;
                if pairs == 0 {
                    left_out.push(format!("{} has no run in common", name(row)));
                } else {
                    alone[0] += row.runs.len().saturating_sub(pairs);
                    alone[1] += other.runs.len().saturating_sub(pairs);
                    rows.push(compared);
                }
            }
        }
    }
    for row in &b.rows {
        if !a.rows.iter().any(|other| other.variant == row.variant) {
            left_out.push(format!("{} is in B alone", name(row)));
        }
    }
    // Cells that failed, or another number of runs: what is compared is less than there is.
    if alone != [0, 0] {
        let [of_a, of_b] = alone;
        left_out.push(format!(
            "{} ({}): {of_a} runs of A and {of_b} of B, which the other one has not",
            a.scenario, a.mode
        ));
    }
}

fn compared(table: &Table, [a, b]: [&Row; 2], measure: Measure, tolerance_ppm: u64) -> ComparedRow {
    let (more, less) = (Judgement::Better, Judgement::Worse);
    let ratio = paired(b, a, |run| measure.of_run(run));
    let cpu_bound = [a.cpu_bound, b.cpu_bound];
    let unless_bound = |is| if cpu_bound.contains(&true) { Judgement::CpuBound } else { is };
    let is = unless_bound(judge(&ratio, tolerance_ppm, more, less));
    let throughput = Compared { a: measure.of_row(a), b: measure.of_row(b), ratio, is };
    let ratio = paired_tails(b, a);
    let is = match ratio.pairs {
        0 => Judgement::NoDifference,
        // Histograms do not tell nearer values apart.
        _ => unless_bound(judge(&ratio, tolerance_ppm.max(PERCENTILE_PPM), less, more)),
    };
    let p99 = Compared { a: a.completion.p99_ns, b: b.completion.p99_ns, ratio, is };
    let both = [throughput.is, p99.is];
    let errors = [errors(a, b), errors(b, a)];
    let is = if both.contains(&Judgement::Worse) || errors[1] > errors[0] {
        Judgement::Worse
    } else if cpu_bound.contains(&true) {
        Judgement::CpuBound
    } else if both.contains(&Judgement::Better) || errors[1] < errors[0] {
        Judgement::Better
    } else if both.contains(&Judgement::TooFewRuns) {
        Judgement::TooFewRuns
    } else {
        Judgement::NoDifference
    };
    ComparedRow {
        scenario: table.scenario.clone(),
        mode: table.mode,
        variant: a.variant.clone(),
        throughput_of: measure,
        throughput,
        p99,
        errors,
        cpu_bound,
        is,
    }
}

/// Requests of a row that failed, in the runs that the other one has, too.
fn errors(row: &Row, other: &Row) -> u64 {
    let common = |run: &&RunFigures| other.runs.iter().any(|theirs| theirs.run == run.run);
    row.runs.iter().filter(common).fold(0, |sum, run| sum.saturating_add(run.errors))
}

fn judge(ratio: &Paired, tolerance_ppm: u64, more: Judgement, less: Judgement) -> Judgement {
    match ratio.beyond(tolerance_ppm) {
        Difference::More => more,
        Difference::Less => less,
        Difference::None => Judgement::NoDifference,
        Difference::Unknown => {
            let coarse = tolerance_ppm.max(COARSE_PPM);
            match (ratio.min_ppm, ratio.max_ppm) {
                (min, _) if min > ONE_PPM + coarse => more,
                (_, max) if max < ONE_PPM.saturating_sub(coarse) => less,
                _ => Judgement::TooFewRuns,
            }
        }
    }
}

#[cfg(test)]
mod tests;
