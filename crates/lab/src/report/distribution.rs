//! Latency by percentile: all variants in one chart, tails stretched.

use super::page::Page;
use super::study::{Field, Row};
use super::svg::{Decades, Frame, shortened};
use super::words::{exact_time, list, mode_title, time};
use crate::result::stats::Merged;

/// Places at which a curve is looked at.
const STEPS: usize = 160;
/// The lowest percentile that the upright axis makes room for: single requests that found
/// everything idle are often far below all others.
const LOWEST: u32 = 20;
/// Letters of a name in the chart.
const LETTERS: usize = 28;
/// Room for a label of the lower axis.
const LABEL_WIDTH: i32 = 60;
/// The right end of the axis at most: one of a million.
const NINES: f64 = 6.0;

const FRAME: Frame = Frame { width: 1120, height: 600, left: 104, right: 330, top: 26, bottom: 56 };

/// The chart of a field.
pub(super) fn section(page: &mut Page, field: &Field) {
    let rows: Vec<&Row> = field.rows.iter().filter(|row| row.latency.count() > 0).collect();
    let (Some(low), Some(high)) = (
        rows.iter().map(|row| row.latency.per_mille(LOWEST)).min(),
        rows.iter().map(|row| row.latency.max()).max(),
    ) else {
        return;
    };
    let axis = Decades::around(low.max(100), high);
    let nines = rows.iter().map(|row| last_nine(&row.latency)).fold(2.0, f64::max);
    page.raw("<h5>").text("Latency distributions").raw("</h5>\n<p class=\"note\">");
    page.text(
        "All requests of all runs. Both axes are stretched: to the right, each nine takes as ",
    );
    page.text("much room as the one before it; lower is better.").raw("</p>\n");
    let id = page.fresh();
    page.raw("<div class=\"scroll chart\" role=\"region\" tabindex=\"0\" aria-labelledby=\"g");
    page.text(id).raw("\"><figure class=\"wide\"><figcaption id=\"g").text(id).raw("\">");
    page.text("Latency by percentile of requests").raw("</figcaption>");
    let title = format!("Latency by percentile, {}", mode_title(field.table.mode));
    FRAME.open(page, &title, &described(&rows));
    axes(page, axis, nines);
    let mut labels = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let curve = curve(&row.latency, axis, nines);
        if let Some((_, y)) = curve.last() {
            labels.push((index, *y, shortened(row.name(), LETTERS)));
        }
        FRAME.curve(page, index, &[curve]);
    }
    FRAME.labels(page, &labels);
    page.raw("</svg></figure></div>\n");
}

fn described(rows: &[&Row]) -> String {
    let one = |row: &&Row| {
        let part = |per_mille| time(row.latency.per_mille(per_mille));
        format!("{} {}, {} and {}", row.name(), part(500), part(990), part(999))
    };
    format!("Median, p99 and p99.9: {}.", list(rows.iter().map(one)))
}

/// Nines that so many requests can show.
fn last_nine(latency: &Merged) -> f64 {
    (latency.count().max(1) as f64).log10().clamp(0.0, NINES)
}

fn axes(page: &mut Page, axis: Decades, nines: f64) {
    for ns in axis.ticks() {
        FRAME.tick_y(page, axis.part(ns), &exact_time(ns));
    }
    let known = [
        (0.5, "50 %"),
        (0.9, "90 %"),
        (0.99, "99 %"),
        (0.999, "99.9 %"),
        (0.9999, "99.99 %"),
        (0.99999, "99.999 %"),
        (0.999_999, "99.9999 %"),
    ];
    let mut last = i32::MIN / 2;
    for (part, label) in known {
        let place = nines_of(part) / nines;
        // With few requests nines are far apart, with many the first ones are close.
        let near = FRAME.x(place) - last < LABEL_WIDTH;
        if place <= 1.001 && !near {
            FRAME.tick_x(page, place, label);
            last = FRAME.x(place);
        }
    }
}

fn nines_of(part: f64) -> f64 {
    -(1.0 - part).max(1e-9).log10()
}

/// From the left to where there is one request left: the largest.
fn curve(latency: &Merged, axis: Decades, nines: f64) -> Vec<(i32, i32)> {
    let total = latency.buckets().map(|(_, count)| count as f64).sum::<f64>();
    let end = last_nine(latency).min(nines);
    let mut buckets = latency.buckets().peekable();
    let mut seen = buckets.peek().map_or(0.0, |(_, count)| *count as f64);
    let mut points = Vec::with_capacity(STEPS + 1);
    for step in 0..=STEPS {
        let at = end * step as f64 / STEPS as f64;
        let rank = total * (1.0 - 10f64.powf(-at));
        while seen < rank {
            buckets.next();
            match buckets.peek() {
                Some((_, count)) => seen += *count as f64,
                None => break,
            }
        }
        let value = buckets.peek().map_or(latency.max(), |(value, _)| *value);
        points.push((FRAME.x(at / nines), FRAME.y(axis.part(value))));
    }
    if latency.count() as f64 <= 10f64.powf(NINES) {
        points.push((FRAME.x(end / nines), FRAME.y(axis.part(latency.max()))));
    }
    points
}
