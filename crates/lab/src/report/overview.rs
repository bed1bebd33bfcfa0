//! The table of all: scenarios by variants, coloured by the part of the limit that was reached.

use super::page::{Kind, Page};
use super::places::place;
use super::study::{Field, Row, Study};
use super::verdict::is_equal;
use super::words::{self, percent};
use crate::result::Mode;

/// From which part of the limit on each colour holds; the style sheet has one for each.
pub(super) const STEPS: [(f64, &str); 7] = [
    (0.0, "below 50 %"),
    (0.5, "50 to 70 %"),
    (0.7, "70 to 80 %"),
    (0.8, "80 to 90 %"),
    (0.9, "90 to 95 %"),
    (0.95, "95 to 98 %"),
    (0.98, "98 % and more"),
];

/// Variants that too few scenarios have get no column of their own.
const LEAST_SHARE: usize = 4;

/// The number of the colour of a part of the limit.
pub(super) fn step(part: f64) -> usize {
    // A cell shows one decimal; its colour goes by what it shows.
    let shown = (part * 1000.0).round() / 1000.0;
    STEPS.iter().rposition(|(from, _)| shown >= *from).unwrap_or(0)
}

/// The class of a part of the limit.
pub(super) fn class(part: f64) -> &'static str {
    const CLASSES: [&str; 7] = [
        "<td class=\"n h0",
        "<td class=\"n h1",
        "<td class=\"n h2",
        "<td class=\"n h3",
        "<td class=\"n h4",
        "<td class=\"n h5",
        "<td class=\"n h6",
    ];
    if part.is_finite() { CLASSES[step(part)] } else { "<td class=\"n none" }
}

/// The section.
pub(super) fn section(page: &mut Page, study: &Study) {
    page.raw("<section id=\"overview\" aria-labelledby=\"h-overview\">\n");
    page.raw("<h2 id=\"h-overview\">Policies by scenario</h2>\n<p>");
    page.text("Throughput in % of what links, target and load allow: the median of the runs.");
    page.raw("</p>\n");
    legend(page);
    for mode in study.modes() {
        table(page, study, mode);
    }
    page.raw("</section>\n");
}

fn legend(page: &mut Page) {
    const SWATCHES: [&str; 7] = [
        "<li class=\"h0\">",
        "<li class=\"h1\">",
        "<li class=\"h2\">",
        "<li class=\"h3\">",
        "<li class=\"h4\">",
        "<li class=\"h5\">",
        "<li class=\"h6\">",
    ];
    page.raw("<ul class=\"legend\" aria-label=\"Colours, in % of the limit\">\n");
    for (swatch, (_, text)) in SWATCHES.into_iter().zip(STEPS) {
        page.raw(swatch).text(text).raw("</li>\n");
    }
    page.raw("<li class=\"best\">").text("best").raw("</li>\n<li class=\"like\">");
    page.text("no difference from the best").raw("</li>\n<li>");
    page.text("† CPU-bound").raw("</li>\n</ul>\n");
}

fn table(page: &mut Page, study: &Study, mode: Mode) {
    let count = study.fields(mode).count();
    let least = count.div_ceil(LEAST_SHARE);
    let all = study.variants(mode);
    let columns: Vec<&str> =
        all.iter().filter(|(_, n)| *n >= least).map(|(name, _)| *name).collect();
    page.open_table("heat", format!("{}, % of the limit", words::mode_title(mode)));
    let heads = columns.iter().map(|column| (*column, Kind::Number));
    let (first, last) = (("Scenario", Kind::Text), ("Best", Kind::Text));
    page.head_of([first].into_iter().chain(heads).chain([last]));
    for (at, subject) in study.subjects.iter().enumerate() {
        let Some(field) = subject.field(mode) else { continue };
        page.raw("<tr><th scope=\"row\"><a href=\"#").text(place(at)).raw("\">");
        page.text(&subject.name).raw("</a></th>");
        for column in &columns {
            cell(page, field, field.row(column));
        }
        page.raw("<td class=\"name\">").text(&field.table.verdict.best).raw("</td>").end_row();
    }
    page.close_table();
    if columns.len() < all.len() {
        page.raw("<p class=\"note\">");
        page.text("Variants that few scenarios have are in the scenarios' own tables.");
        page.raw("</p>\n");
    }
}

/// A cell with its colour, and whether it is the best or like it.
fn cell(page: &mut Page, field: &Field, row: Option<&Row>) {
    let Some(row) = row else {
        page.raw("<td class=\"n none\">").text(words::NOTHING).raw("</td>");
        return;
    };
    let part = row.of_limit();
    page.raw(class(part));
    let mark = if row.name() == field.table.verdict.best {
        page.raw(" best\">");
        ", best"
    } else if is_equal(field, row) {
        page.raw(" like\">");
        ", no difference from the best"
    } else {
        page.raw("\">");
        ""
    };
    page.text(percent(part));
    if row.sum.cpu_bound {
        page.raw("<abbr title=\"CPU-bound\">†</abbr>");
    }
    if !mark.is_empty() {
        page.raw("<span class=\"sr\">").text(mark).raw("</span>");
    }
    page.raw("</td>");
}

/// Whether any cell of a field was bound by the processors.
pub(super) fn any_cpu_bound(field: &Field) -> bool {
    field.rows.iter().any(|row| row.sum.cpu_bound)
}
