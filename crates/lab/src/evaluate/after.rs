//! What the page says about changes.

use super::page::head;
use super::{Adapted, Evaluation, Kind, Row};
use std::fmt::{Error, Write};

/// More changes than these are summed up.
const MOST_CHANGES: usize = 4;

pub(super) fn write(evaluation: &Evaluation, to: &mut String) -> Result<(), Error> {
    let changing = |row: &&Row| row.steady && !row.kinds.is_empty();
    let rows: Vec<&Row> = evaluation.rows.iter().filter(changing).collect();
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(to, "\n## After a change\n")?;
    writeln!(
        to,
        "The time from a change until every later window of 50 ms, up to the next change, holds \
         85 % of what is possible then, where such a window has enough requests for that to mean \
         something. Goals are for single changes; requests that hang on a silent path are missing \
         elsewhere, so that with few open ones nobody can reach it.\n"
    )?;
    by_kind(evaluation, &rows, to)?;
    writeln!(
        to,
        "\nIn milliseconds, and in brackets the least that a window held, in percent. Beyond \
         {MOST_CHANGES} changes: how many never got there, the longest time of the others, and \
         the least of all windows.\n"
    )?;
    head(evaluation, &["row", "changes at ms"], to)?;
    for row in rows {
        let at = row.outcomes.first().map_or(&[][..], |outcome| &outcome.changes);
        let times = match at.len() {
            0..=MOST_CHANGES => {
                let each = at.iter().zip(&row.kinds);
                let each = each.map(|(change, kind)| format!("{} {kind}", change.at_ms));
                each.collect::<Vec<_>>().join(", ")
            }
            many => format!("{many} changes"),
        };
        write!(to, "| {} | {times} |", row.scenario)?;
        for outcome in &row.outcomes {
            write!(to, " {} |", adapted(&outcome.changes))?;
        }
        writeln!(to)?;
    }
    Ok(())
}

/// How many changes of each kind the candidate has followed in time, and how many anybody has.
fn by_kind(evaluation: &Evaluation, rows: &[&Row], to: &mut String) -> Result<(), Error> {
    let Some(place) = evaluation.candidate_place() else { return Ok(()) };
    writeln!(
        to,
        "| a path is, or has | changes | goal | `{0}` | any policy | not `{0}`, but another |\n\
         |---|---|---|---|---|---|",
        evaluation.candidate
    )?;
    for kind in Kind::ALL {
        let Some(goal) = kind.goal() else { continue };
        let (mut changes, mut own, mut any, mut missed) = (0, 0, 0, Vec::new());
        for row in rows {
            for at in (0..row.kinds.len()).filter(|at| row.kinds[*at] == kind) {
                let reached = |policy: usize| {
                    row.outcomes[policy].changes.get(at).is_some_and(|one| one.reaches(goal))
                };
                let by_any = (0..row.outcomes.len()).any(reached);
                changes += 1;
                own += usize::from(reached(place));
                any += usize::from(by_any);
                if by_any && !reached(place) {
                    missed.push(row.scenario.as_str());
                }
            }
        }
        let (ms, lowest) = goal;
        let least = if lowest > 0 { format!(", ≥ {} %", lowest / 10) } else { String::new() };
        let missed = missed.join(", ");
        writeln!(to, "| {kind} | {changes} | {ms} ms{least} | {own} | {any} | {missed} |")?;
    }
    Ok(())
}

fn adapted(changes: &[Adapted]) -> String {
    let lowest = |change: &Adapted| change.lowest_per_mille / 10;
    if changes.len() <= MOST_CHANGES {
        let one = |change: &Adapted| {
            let took = change.took_ms.map_or_else(|| "never".to_owned(), |ms| ms.to_string());
            format!("{took} ({})", lowest(change))
        };
        return changes.iter().map(one).collect::<Vec<_>>().join(", ");
    }
    let never = changes.iter().filter(|change| change.took_ms.is_none()).count();
    let longest = changes.iter().filter_map(|change| change.took_ms).max().unwrap_or(0);
    let least = changes.iter().map(lowest).min().unwrap_or(0);
    format!("{never} never, {longest} ({least})")
}
