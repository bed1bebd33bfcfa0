//! Share, commands in flight and latency of each path over time, as small charts side by side.

use super::page::Page;
use super::study::{Field, Row, Study};
use super::svg::{self, Decades, Frame, round_up, shortened};
use super::verdict::Told;
use super::words::{self, NOTHING, exact_time, list, time};
use crate::result::{CellResult, ChangeResult, PathSeries};

/// Points of all charts together: what keeps the page small.
const ALL_POINTS: usize = 700_000;
/// Points of a curve.
const POINTS: (usize, usize) = (24, 160);
/// Paths with curves of their own.
const PATHS: usize = 8;
/// Changes that are listed.
const LISTED: usize = 12;
/// Up to so many are named in the charts.
const NAMED: usize = 2;
/// Letters of a name in a chart.
const LETTERS: usize = 9;

const FRAME: Frame = Frame { width: 640, height: 300, left: 92, right: 128, top: 34, bottom: 42 };

/// How many points a curve may have in this report.
pub(super) fn points(study: &Study) -> usize {
    let curves = |field: &Field| {
        let paths = field.any().series.paths.len().min(PATHS);
        field.rows.len() * 3 * paths
    };
    let all: usize = study.all_fields().map(|(_, field)| curves(field)).sum();
    (ALL_POINTS / all.max(1)).clamp(POINTS.0, POINTS.1)
}

/// What all charts of a field have in common.
struct Common<'a> {
    /// Each path's name.
    names: Vec<String>,
    end_ns: u64,
    ramp_ns: u64,
    changes: Vec<(u64, Vec<&'a ChangeResult>)>,
    most_in_flight: f64,
    latencies: Decades,
    points: usize,
}

/// The charts of all variants of a field; `open` shows those that matter most at once.
pub(super) fn section(page: &mut Page, field: &Field, points: usize, open: bool) {
    let Some(common) = Common::of(field, points) else { return };
    page.raw("<h5>").text("Over time").raw("</h5>\n<p class=\"note\">");
    page.text(common.explanation(field)).raw("</p>\n");
    legend(page, &common.names);
    changes_list(page, &common);
    let interesting = interesting(field);
    for row in &field.rows {
        let cell = &row.shown;
        let shown = open && interesting.contains(&row.name());
        page.raw(if shown { "<details open>" } else { "<details>" });
        page.raw("<summary><span class=\"name\">").text(row.name()).raw("</span> ");
        page.text(words::reached(row));
        page.raw("</summary>\n<div class=\"charts\">\n");
        share(page, &common, cell, row.name());
        in_flight(page, &common, cell, row.name());
        latency(page, &common, cell, row.name());
        page.raw("</div></details>\n");
    }
}

/// The best, the next, and the last.
fn interesting(field: &Field) -> Vec<&str> {
    let Some(told) = Told::of(field) else { return Vec::new() };
    let next = told.next.map(|(row, _)| row);
    let last = field.ranked().last().copied();
    let all = [Some(told.choice()), next, last].into_iter().flatten();
    all.map(|row: &Row| row.name()).collect()
}

impl<'a> Common<'a> {
    fn of(field: &'a Field, points: usize) -> Option<Common<'a>> {
        let any = field.any();
        let windows = any.series.requests.len() as u64;
        if windows == 0 || any.series.paths.is_empty() || any.series.interval_ns == 0 {
            return None;
        }
        let shown = || field.rows.iter().flat_map(|row| &row.shown.series.paths);
        let milli = shown().flat_map(|path| &path.in_flight_milli).max().copied().unwrap_or(0);
        let latencies = || shown().flat_map(|p| &p.mean_ns).copied().filter(|ns| *ns > 0);
        let (low, high) = (latencies().min().unwrap_or(1_000), latencies().max().unwrap_or(10_000));
        let mut changes: Vec<(u64, Vec<&ChangeResult>)> = Vec::new();
        for change in &any.changes {
            match changes.last_mut() {
                Some((at, all)) if *at == change.at_ns => all.push(change),
                _ => changes.push((change.at_ns, vec![change])),
            }
        }
        let count = any.series.paths.len().min(PATHS);
        Some(Common {
            names: (0..count).map(|path| field.path(path)).collect(),
            end_ns: windows.saturating_mul(any.series.interval_ns),
            ramp_ns: any.ramp_ns,
            changes,
            most_in_flight: round_up(milli as f64 / 1e3),
            latencies: Decades::around(low, high),
            points,
        })
    }

    /// How many windows are one point.
    fn together(&self, windows: usize) -> usize {
        windows.div_ceil(self.points).max(1)
    }

    fn part(&self, ns: u64) -> f64 {
        ns as f64 / self.end_ns.max(1) as f64
    }

    fn explanation(&self, field: &Field) -> String {
        let any = field.any();
        let windows = any.series.requests.len();
        let each = any.series.interval_ns.saturating_mul(self.together(windows) as u64);
        let paths = any.series.paths.len();
        let some = if paths > self.names.len() {
            format!(" The first {} of {paths} paths.", self.names.len())
        } else {
            String::new()
        };
        format!(
            "Run {}, a point for every {}; all variants on the same scales, latency on a \
             logarithmic one. What is shaded is the ramp, which no figure counts.{some}",
            any.run,
            exact_time(each)
        )
    }
}

fn in_words(change: &ChangeResult) -> String {
    format!("{}: {}", change.path, change.what)
}

fn changes_list(page: &mut Page, common: &Common<'_>) {
    if common.changes.is_empty() {
        return;
    }
    page.raw("<p class=\"note\">")
        .text("Changes, the dashed lines:")
        .raw("</p>\n<ol class=\"changes\">\n");
    for (at, changes) in common.changes.iter().take(LISTED) {
        let what = changes.iter().take(LISTED).map(|change| in_words(change));
        page.element("li", format!("{}: {}", exact_time(*at), list(what)));
    }
    page.raw("</ol>\n");
    if common.changes.len() > LISTED {
        page.raw("<p class=\"note\">");
        page.text(format!("… and {} more times.", common.changes.len() - LISTED)).raw("</p>\n");
    }
}

/// The means of a list, so many windows at a time; zeros are gaps when `gaps`.
fn means(values: &[u64], together: usize, gaps: bool) -> Vec<Option<f64>> {
    let mean = |chunk: &[u64]| {
        let counted: Vec<f64> =
            chunk.iter().filter(|v| !gaps || **v > 0).map(|v| *v as f64).collect();
        (!counted.is_empty()).then(|| counted.iter().sum::<f64>() / counted.len() as f64)
    };
    values.chunks(together).map(mean).collect()
}

/// Curves of one chart, as parts of the way up; by path and time.
type Curves = Vec<Vec<Option<f64>>>;

fn share(page: &mut Page, common: &Common<'_>, cell: &CellResult, variant: &str) {
    let together = common.together(cell.series.requests.len());
    let sums = |values: &[u64]| -> Vec<f64> {
        values.chunks(together).map(|chunk| chunk.iter().map(|v| *v as f64).sum()).collect()
    };
    let of_paths: Vec<Vec<f64>> = cell.series.paths.iter().map(|path| sums(&path.bytes)).collect();
    let windows = of_paths.iter().map(Vec::len).max().unwrap_or(0);
    let total = |at: usize| of_paths.iter().filter_map(|path| path.get(at)).sum::<f64>();
    let totals: Vec<f64> = (0..windows).map(total).collect();
    let part = |(value, total): (&f64, &f64)| (*total > 0.0).then(|| value / total);
    let curves: Curves =
        of_paths.iter().map(|path| path.iter().zip(&totals).map(part).collect()).collect();
    let described = cell
        .paths
        .iter()
        .take(PATHS)
        .map(|path| format!("{} {:.1} %", path.name, path.share_ppm as f64 / 1e4));
    let described = format!("In the window: {}.", list(described));
    let ticks = [0.0, 0.25, 0.5, 0.75, 1.0].map(|at| (at, format!("{}", at * 100.0)));
    chart(
        page,
        common,
        Chart { title: "Share of payload, %", variant, described, curves, ticks: &ticks },
    );
}

fn in_flight(page: &mut Page, common: &Common<'_>, cell: &CellResult, variant: &str) {
    let together = common.together(cell.series.requests.len());
    let most = common.most_in_flight;
    let curve = |path: &PathSeries| -> Vec<Option<f64>> {
        let all = means(&path.in_flight_milli, together, false).into_iter();
        all.map(|value| value.map(|milli| milli / 1e3 / most)).collect()
    };
    let curves: Curves = cell.series.paths.iter().map(curve).collect();
    let described = cell
        .paths
        .iter()
        .take(PATHS)
        .map(|path| format!("{} {:.1}", path.name, path.in_flight_milli as f64 / 1e3));
    let described = format!("Mean in the window: {}.", list(described));
    let ticks = [0.0, 0.5, 1.0].map(|at| (at, short_number(at * most)));
    chart(
        page,
        common,
        Chart { title: "Commands in flight", variant, described, curves, ticks: &ticks },
    );
}

fn latency(page: &mut Page, common: &Common<'_>, cell: &CellResult, variant: &str) {
    let together = common.together(cell.series.requests.len());
    let axis = common.latencies;
    let curve = |path: &PathSeries| -> Vec<Option<f64>> {
        let all = means(&path.mean_ns, together, true).into_iter();
        all.map(|value| value.map(|ns| axis.part(ns as u64))).collect()
    };
    let curves: Curves = cell.series.paths.iter().map(curve).collect();
    let described = cell.series.paths.iter().zip(&common.names).map(|(path, name)| {
        let there = || path.mean_ns.iter().copied().filter(|ns| *ns > 0);
        match (there().min(), there().max()) {
            (Some(low), Some(high)) => format!("{name} {} to {}", time(low), time(high)),
            _ => format!("{name} {NOTHING}"),
        }
    });
    let described = format!("Means of windows: {}.", list(described));
    let ticks: Vec<(f64, String)> =
        axis.ticks().into_iter().map(|ns| (axis.part(ns), exact_time(ns))).collect();
    chart(page, common, Chart { title: "Mean latency", variant, described, curves, ticks: &ticks });
}

/// Without digits after the point, where that is exact.
fn short_number(value: f64) -> String {
    if value >= 1e6 {
        format!("{}M", value / 1e6)
    } else if value >= 1e4 {
        format!("{}k", value / 1e3)
    } else {
        format!("{value}")
    }
}

struct Chart<'a> {
    title: &'static str,
    variant: &'a str,
    described: String,
    curves: Curves,
    ticks: &'a [(f64, String)],
}

fn chart(page: &mut Page, common: &Common<'_>, chart: Chart<'_>) {
    page.raw("<figure><figcaption>").text(chart.title).raw("</figcaption>");
    let title = format!("{}, {}, over time", chart.variant, chart.title);
    FRAME.open(page, &title, &chart.described);
    ramp(page, common);
    for (part, label) in chart.ticks {
        FRAME.tick_y(page, *part, label);
    }
    time_axis(page, common);
    changes(page, common);
    let mut labels = Vec::new();
    for (index, (curve, name)) in chart.curves.iter().zip(&common.names).enumerate() {
        let pieces = pieces(curve);
        FRAME.curve(page, index, &pieces);
        if let Some((_, y)) = pieces.last().and_then(|piece| piece.last()) {
            labels.push((index, *y, shortened(name, LETTERS)));
        }
    }
    FRAME.labels(page, &labels);
    page.raw("</svg></figure>\n");
}

/// Each run of points without a gap.
fn pieces(curve: &[Option<f64>]) -> Vec<Vec<(i32, i32)>> {
    let mut pieces: Vec<Vec<(i32, i32)>> = vec![Vec::new()];
    for (at, value) in curve.iter().enumerate() {
        let x = FRAME.x((at as f64 + 0.5) / curve.len() as f64);
        match (value, pieces.last_mut()) {
            (Some(part), Some(piece)) => piece.push((x, FRAME.y(*part))),
            (None, Some(piece)) if !piece.is_empty() => pieces.push(Vec::new()),
            _ => {}
        }
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

fn ramp(page: &mut Page, common: &Common<'_>) {
    let (from, to) = (FRAME.x(0.0), FRAME.x(common.part(common.ramp_ns)));
    if to > from {
        page.raw("<rect class=\"ramp\" x=\"").text(from).raw("\" y=\"").text(FRAME.top);
        page.raw("\" width=\"").text(to - from).raw("\" height=\"");
        page.text(FRAME.y(0.0) - FRAME.top).raw("\"/>");
    }
}

fn time_axis(page: &mut Page, common: &Common<'_>) {
    // Four to eight steps.
    let step = round_up(common.end_ns as f64 / 8.0).max(1.0) as u64;
    let mut last = i32::MIN / 2;
    for ns in (0..=8u64).map_while(|n| n.checked_mul(step)) {
        let x = FRAME.x(common.part(ns));
        // A label needs some room.
        if ns <= common.end_ns && x - last >= 80 {
            let label = if ns == 0 { "0".to_owned() } else { exact_time(ns) };
            FRAME.tick_x(page, common.part(ns), &label);
            last = x;
        }
    }
}

fn changes(page: &mut Page, common: &Common<'_>) {
    let (mut last_line, mut last_label) = (-1, i32::MIN / 2);
    let named = common.changes.len() <= NAMED;
    for (number, (at, changes)) in common.changes.iter().enumerate() {
        let part = common.part(*at);
        let x = FRAME.x(part);
        if part > 1.0 || x == last_line {
            continue;
        }
        FRAME.rule_x(page, part);
        last_line = x;
        if named {
            let words = shortened(&changes.first().map_or(String::new(), |c| in_words(c)), 24);
            let open = if part > 0.5 { "<text class=\"end\"" } else { "<text" };
            svg::text(page, x, FRAME.top - 10, open, &words);
        } else if x - last_label >= 34 {
            svg::text(page, x, FRAME.top - 10, "<text class=\"mid\"", &(number + 1).to_string());
            last_label = x;
        }
    }
}

/// The paths' names with their strokes.
fn legend(page: &mut Page, names: &[String]) {
    page.raw("<ul class=\"legend lines\">\n");
    for (index, name) in names.iter().enumerate() {
        page.raw("<li><svg viewBox=\"0 0 60 12\" aria-hidden=\"true\"><path")
            .raw(svg::stroke(index));
        if !svg::dashes(index).is_empty() {
            page.raw(" stroke-dasharray=\"").raw(svg::dashes(index)).raw("\"");
        }
        page.raw(" d=\"M2 6h56\"/></svg>").text(name).raw("</li>\n");
    }
    page.raw("</ul>\n");
}
