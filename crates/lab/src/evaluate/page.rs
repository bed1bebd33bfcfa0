//! The evaluation as a page of Markdown.

use super::{Column, Evaluation, Row, TAIL_PER_MILLE, THROUGHPUT_PPM, after, columns};
use std::fmt::{Error, Write};

/// Of 1000 rows, the throughput is to be held in so many …
const THROUGHPUT_GOAL: u64 = 970;
/// … and is never to be below so many millionths of the best …
const LOWEST_GOAL: u64 = 950_000;
/// … and the tail is to be held in so many.
const TAIL_GOAL: u64 = 950;
/// Of the sum of the links, so many millionths where they are the limit.
const FULL_GOAL: u64 = 970_000;

/// Summary, what the candidate misses, adaptation, all rows; without a heading of its own.
#[must_use]
pub fn page(evaluation: &Evaluation) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(evaluation, &mut text);
    text
}

fn write(evaluation: &Evaluation, to: &mut String) -> Result<(), Error> {
    verdict(evaluation, to)?;
    summary(evaluation, to)?;
    misses(evaluation, to)?;
    full(evaluation, to)?;
    after::write(evaluation, to)?;
    rows(evaluation, to)
}

/// Millionths as percent with a decimal, rounded down: what misses a bar is never shown on it.
fn percent(ppm: u64) -> String {
    format!("{}.{}", ppm / 10_000, ppm % 10_000 / 1000)
}

/// Thousandths as a ratio with two decimals, rounded up.
fn ratio(per_mille: u64) -> String {
    let hundredths = per_mille.div_ceil(10);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

fn us(ns: u64) -> String {
    match ns {
        0..100_000 => format!("{}.{}", ns / 1000, ns % 1000 / 100),
        _ => (ns / 1000).to_string(),
    }
}

fn mib_s(bytes_s: u64) -> String {
    match bytes_s >> 20 {
        0..100 => format!("{}.{}", bytes_s >> 20, ((bytes_s % (1 << 20)) * 10) >> 20),
        whole => whole.to_string(),
    }
}

fn bold(text: &str, bold: bool) -> String {
    if bold { format!("**{text}**") } else { text.to_owned() }
}

/// Whether the candidate reaches the goals.
fn verdict(evaluation: &Evaluation, to: &mut String) -> Result<(), Error> {
    let columns = columns(evaluation);
    let Some(column) = evaluation.candidate_place().map(|place| &columns[place]) else {
        return Ok(());
    };
    let lowest = column.lowest.map_or(1_000_000, |(ppm, _)| ppm);
    let share = |held| percent(column.per_mille(held) * 1000);
    let goals = [
        (
            column.per_mille(column.throughput_held) >= THROUGHPUT_GOAL,
            format!(
                "98 % of the best throughput in {} % of the rows",
                share(column.throughput_held)
            ),
            "97 %",
        ),
        (lowest >= LOWEST_GOAL, format!("never below {} % of it", percent(lowest)), "95 %"),
        (
            column.per_mille(column.tail_held) >= TAIL_GOAL,
            format!("at most 1.15 times the best p99 in {} % of the rows", share(column.tail_held)),
            "95 %",
        ),
    ];
    writeln!(to, "`{}` in {} rows:\n", evaluation.candidate, column.rows)?;
    for (reached, text, goal) in goals {
        let word = if reached { "reached" } else { "**missed**" };
        writeln!(to, "- {text} (goal: {goal}): {word}")?;
    }
    parts(evaluation, to)?;
    untold(evaluation, to)
}

/// The same for scenarios that somebody has written, and for those that were drawn.
fn parts(evaluation: &Evaluation, to: &mut String) -> Result<(), Error> {
    let drawn = |row: &Row| row.scenario.starts_with("random-");
    let part = |which: bool| Evaluation {
        rows: evaluation.rows.iter().filter(|row| drawn(row) == which).cloned().collect(),
        ..evaluation.clone()
    };
    let parts = [("scenarios written by hand", part(false)), ("random ones", part(true))];
    if parts.iter().any(|(_, part)| part.rows.is_empty()) {
        return Ok(());
    }
    writeln!(to)?;
    for (what, part) in parts {
        let columns = columns(&part);
        let Some(column) = part.candidate_place().map(|place| &columns[place]) else { continue };
        let share = |held| percent(column.per_mille(held) * 1000);
        writeln!(
            to,
            "Of {} {what}: throughput in {} %, at least {} %; p99 in {} %.",
            column.rows,
            share(column.throughput_held),
            percent(column.lowest.map_or(1_000_000, |(ppm, _)| ppm)),
            share(column.tail_held),
        )?;
    }
    Ok(())
}

/// The same beside those policies alone that know as little.
fn untold(evaluation: &Evaluation, to: &mut String) -> Result<(), Error> {
    let untold = evaluation.untold();
    let columns = columns(&untold);
    let Some(place) = untold.candidate_place() else { return Ok(()) };
    let others = columns.iter().filter(|column| column.policy != untold.candidate);
    let next = others.max_by_key(|column| column.both_held);
    let (Some(next), true) = (next, untold.policies.len() < evaluation.policies.len()) else {
        return Ok(());
    };
    let column = &columns[place];
    let share = |column: &Column, held| percent(column.per_mille(held) * 1000);
    writeln!(
        to,
        "\nBeside policies that nobody tells the weights: throughput in {} %, at least {} %;\n\
         p99 in {} %; both in {} %, next `{}` in {} %.",
        share(column, column.throughput_held),
        percent(column.lowest.map_or(1_000_000, |(ppm, _)| ppm)),
        share(column, column.tail_held),
        share(column, column.both_held),
        next.policy,
        share(next, next.both_held),
    )
}

fn summary(evaluation: &Evaluation, to: &mut String) -> Result<(), Error> {
    writeln!(to, "\n## Every policy over all rows\n")?;
    writeln!(
        to,
        "| policy | rows with ≥ 98 % of the best throughput | lowest | where | rows with p99 ≤ \
         1.15 × the best | highest | where | rows with both |\n|---|---|---|---|---|---|---|---|"
    )?;
    for column in columns(evaluation) {
        let Column { policy, throughput_held, lowest, tail_held, highest, both_held, .. } = column;
        let share = |held| format!("{} %", percent(column.per_mille(held) * 1000));
        let name = |worst: Option<(u64, &Row)>| {
            worst.map_or_else(String::new, |(_, row)| row.scenario.clone())
        };
        writeln!(
            to,
            "| {} | {} | {} % | {} | {} | {} | {} | {} |",
            bold(policy, policy == evaluation.candidate),
            share(throughput_held),
            percent(lowest.map_or(1_000_000, |(ppm, _)| ppm)),
            name(lowest),
            share(tail_held),
            ratio(highest.map_or(1000, |(ratio, _)| ratio)),
            name(highest),
            share(both_held),
        )?;
    }
    Ok(())
}

/// The rows that the candidate does not hold: throughput first, the worst first.
fn misses(evaluation: &Evaluation, to: &mut String) -> Result<(), Error> {
    let Some(place) = evaluation.candidate_place() else { return Ok(()) };
    let missed = |row: &&Row| row.holds(place) != (true, true);
    let mut rows: Vec<&Row> = evaluation.rows.iter().filter(missed).collect();
    writeln!(to, "\n## Rows that `{}` misses\n", evaluation.candidate)?;
    if rows.is_empty() {
        return writeln!(to, "None.");
    }
    rows.sort_by_key(|row| {
        let throughput = row.throughput_ppm(place);
        let short = throughput < THROUGHPUT_PPM;
        (!short, if short { throughput } else { u64::MAX - row.tail_per_mille(place) })
    });
    writeln!(to, "| row | what | throughput | best | p99 µs | best |\n|---|---|---|---|---|---|")?;
    for row in rows {
        let (own, best) = (&row.outcomes[place], &row.outcomes[row.best()]);
        let tail = &row.outcomes[row.best_tail()];
        let (throughput, ratio_of) = (row.throughput_ppm(place), row.tail_per_mille(place));
        writeln!(
            to,
            "| {} | {} | {} | {} MiB/s: {} | {} = {} | {}: {} |",
            row.scenario,
            row.title,
            bold(&format!("{} %", percent(throughput)), throughput < THROUGHPUT_PPM),
            mib_s(best.bytes_s),
            evaluation.policies[row.best()],
            us(own.p99_ns),
            bold(&format!("{} x", ratio(ratio_of)), ratio_of > TAIL_PER_MILLE),
            us(tail.p99_ns),
            evaluation.policies[row.best_tail()],
        )?;
    }
    Ok(())
}

/// Rows in which links are the limit.
fn full(evaluation: &Evaluation, to: &mut String) -> Result<(), Error> {
    let Some(place) = evaluation.candidate_place() else { return Ok(()) };
    let rows: Vec<&Row> = evaluation.rows.iter().filter(|row| row.full).collect();
    let mut short: Vec<&Row> = rows.clone();
    short.retain(|row| row.limit_ppm(place) < FULL_GOAL);
    short.sort_by_key(|row| row.limit_ppm(place));
    writeln!(
        to,
        "\n## Where links are the limit\n\n{} closed loops without changes are bound by the sum of \
         the links; `{}` has 97 % of it in {}.",
        rows.len(),
        evaluation.candidate,
        rows.len() - short.len()
    )?;
    if short.is_empty() {
        return Ok(());
    }
    writeln!(to, "\n| row | what | % of the sum | best | % |\n|---|---|---|---|---|")?;
    for row in short {
        writeln!(
            to,
            "| {} | {} | {} | {} | {} |",
            row.scenario,
            row.title,
            percent(row.limit_ppm(place)),
            evaluation.policies[row.best()],
            percent(row.limit_ppm(row.best())),
        )?;
    }
    Ok(())
}

pub(super) fn head(evaluation: &Evaluation, before: &[&str], to: &mut String) -> Result<(), Error> {
    let names = before.iter().copied().chain(evaluation.policies.iter().map(String::as_str));
    let names: Vec<&str> = names.collect();
    writeln!(to, "| {} |\n|{}", names.join(" | "), "---|".repeat(names.len()))
}

fn rows(evaluation: &Evaluation, to: &mut String) -> Result<(), Error> {
    writeln!(to, "\n## All rows\n")?;
    writeln!(
        to,
        "Throughput in percent of the best policy of the row / p99 over the best p99 among \
         policies within 2 % of the best throughput; bold: below 98 %, above 1.15. Below 1: paid \
         for with throughput. Of an open loop counts at most what was asked for. Limit and best in \
         MiB/s. `service-time tuned` knows the weights, the others find out.\n"
    )?;
    head(evaluation, &["row", "limit", "best"], to)?;
    for row in &evaluation.rows {
        let best = row.best();
        write!(
            to,
            "| {} | {} | {} {} |",
            row.scenario,
            mib_s(row.limit_bytes_s),
            mib_s(row.outcomes[best].bytes_s),
            evaluation.policies[best]
        )?;
        for place in 0..row.outcomes.len() {
            let (throughput, tail) = (row.throughput_ppm(place), row.tail_per_mille(place));
            write!(
                to,
                " {} / {} |",
                bold(&percent(throughput), throughput < THROUGHPUT_PPM),
                bold(&ratio(tail), tail > TAIL_PER_MILLE)
            )?;
        }
        writeln!(to)?;
    }
    Ok(())
}
