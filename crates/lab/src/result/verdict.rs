//! One sentence: which variant is best, by how much, and how sure that is.

use super::stats::{Difference, ONE_PPM, Paired};
use super::summary::{Row, paired, paired_tails, ranked};
use super::{Counted, LimitResult, Measure};
use serde::{Deserialize, Serialize};

/// Ratios of percentiles are not told apart within this: two buckets of a histogram.
pub const PERCENTILE_PPM: u64 = 60_000;

/// Where there is no interval, rows this near to the best one are named with it, in millionths.
const NEAR_PPM: u64 = 10_000;

/// Throughputs that are nearer than this to each other in every run are called equal, however sure
/// it is that one of them is higher, in millionths: nobody chooses a policy for that.
const TRIFLE_PPM: u64 = 500;

/// A tail that is so much shorter is worth a word, whatever it costs in throughput: in millionths.
const SHORTER_PPM: u64 = 800_000;

/// Which variant is best.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// The row with the highest median of throughput, as far as the load asks for it; empty when
    /// none carried anything.
    pub best: String,
    /// The next one; nothing with one row.
    pub next: Option<String>,
    /// Throughput of the best over that of the next, run by run.
    pub ratio: Option<Paired>,
    /// What that ratio says.
    pub is: Difference,
    /// The rows whose throughput does not differ from the best one's, or never by more than 0.05 %,
    /// that one included; with too few runs to tell, those within 1 % of it.
    pub equal: Vec<String>,
    /// Of those, where there are several, the row with the lowest 99th percentile of latency.
    pub calmest: Option<Calmest>,
    /// The row to take: the calmest, where its tail is lower than that of the next or of the best
    /// beyond doubt, else the best.
    #[serde(default)]
    pub choice: String,
    /// All this as a sentence.
    pub text: String,
    /// What else is to say of these rows, in sentences without a capital and a full stop: who has a
    /// shorter tail, for whom the machine was the limit, and whose requests failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// The row with the lowest 99th percentile, among rows of equal throughput.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calmest {
    /// The variant.
    pub variant: String,
    /// The next lowest of those rows.
    pub next: String,
    /// Its percentile over the next one's, run by run.
    pub ratio: Paired,
    /// What that ratio says beyond [`PERCENTILE_PPM`].
    pub is: Difference,
}

impl Verdict {
    pub(super) fn of(rows: &[Row], counted: Counted) -> Verdict {
        let sorted = ranked(rows, counted);
        let carries = |row: &Row| counted.of_row(row) > 0;
        let Some((best, others)) = sorted.split_first().filter(|(best, _)| carries(best)) else {
            return Verdict::about_nothing(rows);
        };
        let next = others.first();
        let ratio = next.map(|next| paired(best, next, |run| counted.of_run(run)));
        let is = match &ratio {
            Some(ratio) if trifling(ratio) => Difference::None,
            Some(ratio) => ratio.difference(),
            None => Difference::Unknown,
        };
        let near = |row: &Row| row.to_best.min_ppm >= ONE_PPM - NEAR_PPM;
        let same = |row: &&&Row| match row.to_best_is {
            _ if row.variant == best.variant || trifling(&row.to_best) => true,
            Difference::None => true,
            Difference::Unknown => row.to_best.pairs > 0 && near(row),
            Difference::More | Difference::Less => false,
        };
        let equal: Vec<&Row> = sorted.iter().filter(same).copied().collect();
        let calmest = calmest(&equal);
        let mut verdict = Verdict {
            best: best.variant.clone(),
            next: next.map(|next| next.variant.clone()),
            ratio,
            is,
            equal: equal.iter().map(|row| row.variant.clone()).collect(),
            calmest,
            choice: String::new(),
            text: String::new(),
            remarks: Vec::new(),
        };
        let bound = best.cpu_bound || next.is_some_and(|next| next.cpu_bound);
        verdict.text = verdict.sentence(rows.len(), counted.measure.name(), bound);
        let chosen = verdict.choose(best, &equal);
        verdict.choice.clone_from(&chosen.variant);
        let others = sorted.iter().copied().filter(|row| row.variant != chosen.variant);
        verdict.remarks = shorter_tails(others.filter(|row| carries(row)), chosen, counted);
        verdict.remarks.extend(cpu_bound(rows).into_iter().chain(failed(rows)));
        verdict
    }

    /// Whom to take of rows that carry the same. Of several with the same low tail none is calmer
    /// than the next, and each than the best: that is said.
    fn choose<'a>(&mut self, best: &'a Row, equal: &[&'a Row]) -> &'a Row {
        let Some(calmest) = &self.calmest else { return best };
        let row = equal.iter().find(|row| row.variant == calmest.variant).copied();
        let row = row.unwrap_or(best);
        if calmest.is == Difference::Less || row.variant == best.variant {
            return row;
        }
        let ratio = paired_tails(row, best);
        if ratio.beyond(PERCENTILE_PPM) != Difference::Less {
            return best;
        }
        let (by, name, best) = (times(ratio.median_ppm), shown(&row.variant), shown(&best.variant));
        let sure = sure(&ratio);
        self.text.push_str(&format!("; {name} has a lower p99, {by} x {best} ({sure})"));
        row
    }

    /// Of rows that carried nothing: none of them is the best.
    fn about_nothing(rows: &[Row]) -> Verdict {
        let text = if rows.is_empty() {
            "there is nothing to compare"
        } else if rows.iter().flat_map(|row| &row.runs).all(|run| run.iops == 0) {
            "no request ended: there is nothing to compare"
        } else {
            "in most runs no request ended: there is nothing to compare"
        };
        Verdict {
            best: String::new(),
            next: None,
            ratio: None,
            is: Difference::Unknown,
            equal: Vec::new(),
            calmest: None,
            choice: String::new(),
            text: text.to_owned(),
            remarks: cpu_bound(rows).into_iter().chain(failed(rows)).collect(),
        }
    }

    /// `of` is what rows are compared by; `bound` is whether the machine was the limit of the first
    /// ones.
    fn sentence(&self, rows: usize, of: &str, bound: bool) -> String {
        let (Some(next), Some(ratio)) = (&self.next, &self.ratio) else {
            return format!("only {} was run: there is nothing to compare", self.best);
        };
        let best = &self.best;
        if ratio.pairs == 0 {
            let (best, next) = (shown(best), shown(next));
            return format!(
                "most: {best} in {of}; it has no run in common with {next}, the next one: by how \
                 much cannot be said"
            );
        }
        // Without an interval nothing is claimed of rows that are near to each other.
        let near = ratio.interval.is_none() && self.equal.len() > 1;
        if self.is != Difference::None && !near {
            let like: Vec<String> =
                self.equal.iter().filter(|name| *name != best).map(|name| shown(name)).collect();
            let (by, best, next) = (times(ratio.median_ppm), shown(best), shown(next));
            let is = if bound { "most, but CPU-bound" } else { "best" };
            let mut text = format!("{is}: {best}, {by} x {next} in {of} ({})", sure(ratio));
            // Rows behind the next one whose runs differ so much that nothing can be said.
            if !like.is_empty() {
                text.push_str(&format!("; no difference can be shown to {}", like.join(", ")));
                if self.calmest.as_ref().is_some_and(|one| one.is == Difference::Less) {
                    text.push_str(&self.about_tails(near));
                }
            }
            return text;
        }
        let all = self.equal.len() == rows;
        let names: Vec<String> = self.equal.iter().map(|name| shown(name)).collect();
        let names = if all { "all of them".to_owned() } else { names.join(", ") };
        let mut text = match near {
            true => format!("within 1 % in {of}: {names} ({})", sure(ratio)),
            false => format!("no difference in {of} between {names}"),
        };
        text.push_str(&self.about_tails(near));
        text
    }

    /// Who of those that are equal has the lowest tail.
    fn about_tails(&self, near: bool) -> String {
        let Some(Calmest { variant, next, ratio, is }) = &self.calmest else {
            return String::new();
        };
        let (by, variant, next) = (times(ratio.median_ppm), shown(variant), shown(next));
        match (is, near) {
            (Difference::Less, _) => {
                format!("; of these {variant} has the lowest p99, {by} x {next} ({})", sure(ratio))
            }
            (Difference::Unknown, _) => {
                format!("; of these {variant} had the lowest p99, {by} x {next}")
            }
            (_, true) => {
                format!("; the lowest p99 of these, {variant} and {next}, differ by less than 6 %")
            }
            (_, false) => format!("; nor in p99 between {variant} and {next}, the lowest of these"),
        }
    }
}

/// Who leaves fewer to wait: one that carries nearly as much, and one whose tail is much shorter
/// still.
fn shorter_tails<'a>(
    others: impl Iterator<Item = &'a Row>,
    chosen: &Row,
    counted: Counted,
) -> Vec<String> {
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for row in others {
        let tail = paired_tails(row, chosen);
        let rate = paired(row, chosen, |run| counted.of_run(run));
        if tail.beyond(PERCENTILE_PPM) != Difference::Less {
            continue;
        }
        let is_near = rate.min_ppm >= ONE_PPM - NEAR_PPM;
        if is_near { &mut near } else { &mut far }.push((row, tail, rate));
    }
    let shortest = |rows: Vec<(&'a Row, Paired, Paired)>| {
        rows.into_iter().min_by_key(|(row, ..)| row.completion.p99_ns)
    };
    let near = shortest(near);
    let least = near.as_ref().map_or(chosen, |(row, ..)| *row).completion.p99_ns;
    let of_least = u128::from(least) * u128::from(SHORTER_PPM);
    let much = |ns: u64| u128::from(ns) * u128::from(ONE_PPM) < of_least;
    let far = shortest(far).filter(|(row, ..)| much(row.completion.p99_ns));
    let said = |(row, tail, rate): (&Row, Paired, Paired)| {
        format!(
            "if the tail matters more: {} has a lower p99, {} x {} ({}), at {} % of its {}",
            shown(&row.variant),
            times(tail.median_ppm),
            shown(&chosen.variant),
            sure(&tail),
            tenths(rate.median_ppm.saturating_add(500) / 1000),
            counted.measure.name()
        )
    };
    near.into_iter().chain(far).map(said).collect()
}

/// Who carried more than all that the load asks for, and more than what left least to wait: the
/// arrivals of a run may be more than their mean, but then they are for all.
pub(super) fn worked_off(rows: &[Row], limit: &LimitResult, measure: Measure) -> Option<String> {
    let ended = rows.iter().filter(|row| measure.of_row(row) > 0);
    let calm = ended.min_by_key(|row| row.completion.p99_ns)?;
    let more = |row: &&Row| {
        let ratio = paired(row, calm, |run| measure.of_run(run));
        row.of_limit_ppm > ONE_PPM && ratio.pairs > 0 && ratio.min_ppm > ONE_PPM + TRIFLE_PPM
    };
    let some: Vec<String> = rows.iter().filter(more).map(|row| shown(&row.variant)).collect();
    (limit.is_all_asked_for && !some.is_empty()).then(|| {
        format!(
            "more than the load asks for is what was left from before the window: {} worked off \
             what it had fallen behind, and rows are compared by no more than what is asked for",
            some.join(", ")
        )
    })
}

/// Whose requests have failed: what is slow and fails makes a short tail.
fn failed(rows: &[Row]) -> Option<String> {
    let some = rows.iter().filter(|row| row.errors > 0);
    let some: Vec<String> =
        some.map(|row| format!("{} {}", row.errors, shown(&row.variant))).collect();
    (!some.is_empty())
        .then(|| format!("requests failed, and are in no figure: {}", some.join(", ")))
}

/// What to say where the machine was the limit.
fn cpu_bound(rows: &[Row]) -> Option<String> {
    let bound: Vec<String> =
        rows.iter().filter(|row| row.cpu_bound).map(|row| shown(&row.variant)).collect();
    (!bound.is_empty()).then(|| cpu_bound_rows(bound.len(), rows.len(), &bound.join(", ")))
}

/// That so many rows of all, which are these, say nothing of the links.
#[must_use]
pub fn cpu_bound_rows(bound: usize, all: usize, these: &str) -> String {
    format!(
        "{bound} of {all} rows are CPU-bound ({these}): in some run less than 20 % of the machine \
         was idle, and it was the limit, not the links; compare ratios only"
    )
}

fn trifling(ratio: &Paired) -> bool {
    let near = ONE_PPM - TRIFLE_PPM..=ONE_PPM + TRIFLE_PPM;
    ratio.interval.is_some() && near.contains(&ratio.min_ppm) && near.contains(&ratio.max_ppm)
}

/// Of rows of equal throughput the one whose 99th percentile is lowest.
fn calmest(equal: &[&Row]) -> Option<Calmest> {
    let mut sorted = equal.to_vec();
    sorted.sort_by_key(|row| row.completion.p99_ns);
    let [first, second, ..] = sorted.as_slice() else { return None };
    let ratio = paired_tails(first, second);
    let is = ratio.beyond(PERCENTILE_PPM);
    Some(Calmest { variant: first.variant.clone(), next: second.variant.clone(), ratio, is })
}

/// A name in a list.
fn shown(name: &str) -> String {
    if name.contains(',') { format!("\"{name}\"") } else { name.to_owned() }
}

/// How sure a median is, in words.
#[must_use]
pub fn sure(paired: &Paired) -> String {
    match (paired.interval, paired.pairs) {
        (Some(_), runs) if paired.alike => format!("{runs} runs alike: no spread was measured"),
        (Some(interval), _) => {
            format!("95 % interval {} to {}", times(interval.low_ppm), times(interval.high_ppm))
        }
        (None, 0) => "no run in common".to_owned(),
        (None, 1) => "1 run: no interval".to_owned(),
        (None, pairs) => format!("{pairs} runs, fewer than 6: no interval"),
    }
}

/// Tenths as a number with one decimal.
#[must_use]
pub fn tenths(value: u64) -> String {
    format!("{}.{}", value / 10, value % 10)
}

/// A ratio with three decimals, rounded.
#[must_use]
pub fn times(ppm: u64) -> String {
    let milli = ppm.saturating_add(500) / 1000;
    format!("{}.{:03}", milli / 1000, milli % 1000)
}
