//! Do two ways to run the same scenarios agree?

use super::medians::{Runs, percent};
use crate::result::stats::Difference;
use crate::result::{CellResult, Mode, tenths};
use anabranch_policy::Policy;
use std::fmt::Write;

/// Two modes, for one scenario.
pub(super) struct Compared {
    /// Variants that both have.
    variants: usize,
    /// The largest difference of throughput in % of the limit, in tenths of points, and where: of
    /// all variants but those of `latency`, and of those.
    worst: [(u64, String); 2],
    /// Pairs of variants that differ in both modes.
    ordered: usize,
    /// Those that differ in the same direction.
    same: usize,
    /// The live machine was bound by its processors.
    cpu_bound: bool,
    /// The factor on rates of the second one.
    scale_permille: u32,
}

fn throughput(cell: &CellResult) -> u64 {
    cell.total.bytes_s
}

pub(super) fn compare(cells: &[CellResult], scenario: &str, modes: [Mode; 2]) -> Option<Compared> {
    let [first, second] = modes.map(|mode| Runs::of(cells, scenario, mode));
    let both: Vec<(&Runs<'_>, &Runs<'_>)> = first
        .iter()
        .filter_map(|a| Some((a, second.iter().find(|b| b.variant == a.variant)?)))
        .collect();
    let scale_permille = both.first()?.1.first()?.scale_permille;
    let mut found = Compared {
        variants: both.len(),
        worst: [(0, "-".to_owned()), (0, "-".to_owned())],
        ordered: 0,
        same: 0,
        cpu_bound: both.iter().any(|(_, b)| b.cpu_bound()),
        scale_permille,
    };
    for (index, (a, b)) in both.iter().enumerate() {
        let worst = &mut found.worst[usize::from(a.is_of(Policy::Latency))];
        if let (Some(one), Some(other)) = (a.of_limit(), b.of_limit())
            && one.abs_diff(other) > worst.0
        {
            *worst = (one.abs_diff(other), a.variant.to_owned());
        }
        for (other_a, other_b) in &both[index + 1..] {
            let pair = [a.against(other_a, throughput), b.against(other_b, throughput)];
            match pair.map(|paired| paired.difference()) {
                [Difference::More, Difference::More] | [Difference::Less, Difference::Less] => {
                    found.ordered += 1;
                    found.same += 1;
                }
                [Difference::More, Difference::Less] | [Difference::Less, Difference::More] => {
                    found.ordered += 1;
                }
                _ => {}
            }
        }
    }
    Some(found)
}

/// A table with a row per scenario.
pub(super) fn table(cells: &[CellResult], modes: [Mode; 2]) -> String {
    let mut names: Vec<&str> = cells.iter().map(|cell| cell.scenario.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let compared: Vec<(&str, Compared)> =
        names.into_iter().filter_map(|name| Some((name, compare(cells, name, modes)?))).collect();
    let mut text = String::new();
    let [first, second] = modes;
    if compared.is_empty() {
        let _ = writeln!(text, "No scenario was run both {first} and {second}.");
        return text;
    }
    let within = |of: usize| compared.iter().filter(|(_, one)| one.worst[of].0 <= 50).count();
    let sound = compared.iter().filter(|(_, one)| one.same == one.ordered).count();
    let _ = writeln!(
        text,
        "{} scenarios. % of limit differs by at most 5 points: in {} for every variant but those \
         of `latency`, whose windows follow from one another and part for good at the first \
         difference; in {} for those, too. In {sound} no two variants that differ in both change \
         their order.\n",
        compared.len(),
        within(0),
        within(1),
    );
    text.push_str(
        "| scenario | rates | variants | largest difference, points | at | of `latency` | pairs \
         that differ in both | of them in the same order | remark |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for (name, one) in &compared {
        let _ = writeln!(
            text,
            "| {name} | {} % | {} | {} | {} | {} | {} | {} | {} |",
            tenths(one.scale_permille.into()),
            one.variants,
            percent(Some(one.worst[0].0)),
            one.worst[0].1,
            percent(Some(one.worst[1].0)),
            one.ordered,
            one.same,
            if one.cpu_bound { "CPU-bound" } else { "" },
        );
    }
    text
}
