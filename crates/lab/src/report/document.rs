//! The page as a whole: head, contents, sections, circumstances.

use super::page::Page;
use super::places::{file_place, place};
use super::study::{Field, Row, Study, Subject};
use super::words::{self, exact_time, list, plural, short_list};
use super::{Material, distribution, figures, overview, series, verdict};
use crate::result::environment::Session;
use crate::result::stats::LEAST_PAIRS;
use crate::result::{Mode, cpu_bound_rows};
use std::collections::{BTreeMap, BTreeSet};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("comfort.js");
/// The hash of [`SCRIPT`] in the content security policy: no other script can run. A browser that
/// finds another one does not run it, which the browser test notices.
const POLICY: &str = include_str!("policy.txt");

/// With more scenarios, charts are closed at first.
const OPEN_SCENARIOS: usize = 3;
/// `latency` as its mail has it.
const LATENCY_WINDOW_NS: u64 = 15_000_000_000;
/// With fewer runs there is no interval.
const LEAST_RUNS: usize = LEAST_PAIRS;
/// Below this, a window is short.
const WINDOW_NS: u64 = 3_000_000_000;
/// Names in a sentence.
const NAMES: usize = 6;

pub(super) fn document(study: &Study, material: &Material) -> String {
    let mut page = Page::new();
    head(&mut page, study);
    page.raw("<body>\n<a class=\"skip\" href=\"#main\">").text("Skip to the verdict").raw("</a>\n");
    header(&mut page, study);
    page.raw("<main id=\"main\" tabindex=\"-1\">\n");
    verdict::section(&mut page, study, &cautions(study, material));
    overview::section(&mut page, study);
    scenarios(&mut page, study);
    circumstances(&mut page, material);
    page.raw("</main>\n<script>").raw(SCRIPT).raw("</script>\n</body>\n</html>\n");
    page.finish()
}

fn title(study: &Study) -> String {
    match study.subjects.as_slice() {
        [only] => only.title().to_owned(),
        all => format!("Policies on {}", plural(all.len(), "scenario", "scenarios")),
    }
}

fn head(page: &mut Page, study: &Study) {
    page.raw("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.raw("<meta http-equiv=\"Content-Security-Policy\" content=\"");
    page.text(POLICY.trim()).raw("\">\n");
    page.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    page.raw("<meta name=\"color-scheme\" content=\"light dark\">\n<title>");
    page.text(title(study)).raw(" – ").text("Anabranch lab").raw("</title>\n<style>\n");
    page.raw(STYLE).raw("</style>\n</head>\n");
}

fn header(page: &mut Page, study: &Study) {
    page.raw("<header>\n<p class=\"kicker\">").text("Anabranch lab report").raw("</p>\n");
    page.element("h1", title(study));
    let modes = list(study.modes().into_iter().map(words::mode));
    let cells = study.rows().map(|row| row.sum.runs.len()).sum::<usize>();
    page.raw("<p class=\"sub\">").text(format!(
        "{}, {}: {modes}",
        plural(study.subjects.len(), "scenario", "scenarios"),
        plural(cells, "run", "runs")
    ));
    page.raw("</p>\n<nav aria-label=\"Contents\"><ul>\n");
    for (place, name) in [
        ("#verdict", "Verdict"),
        ("#overview", "Policies by scenario"),
        ("#scenarios", "Scenarios"),
        ("#circumstances", "Circumstances"),
    ] {
        page.raw("<li><a href=\"").raw(place).raw("\">").raw(name).raw("</a></li>\n");
    }
    page.raw("</ul></nav>\n");
    page.raw("<p class=\"tools\" hidden><button type=\"button\" data-details=\"open\">");
    page.raw("Open all details</button> <button type=\"button\" data-details=\"close\">");
    page.raw("Close all details</button></p>\n</header>\n");
}

fn scenarios(page: &mut Page, study: &Study) {
    page.raw("<section id=\"scenarios\" aria-labelledby=\"h-scenarios\">\n");
    page.raw("<h2 id=\"h-scenarios\">Scenarios</h2>\n");
    let points = series::points(study);
    for (at, subject) in study.subjects.iter().enumerate() {
        page.raw("<section class=\"scenario\" id=\"").text(place(at));
        page.raw("\" aria-labelledby=\"h").text(place(at)).raw("\">\n<h3 id=\"h");
        page.text(place(at)).raw("\">").text(subject.title()).raw("</h3>\n");
        page.raw("<p class=\"sub\"><code>").text(&subject.name).raw("</code>");
        let source = subject.scenario.as_ref().map_or("", |scenario| &scenario.source);
        if !source.is_empty() {
            page.text(format!(" ({source})"));
        }
        page.raw("</p>\n");
        figures::side_by_side(page, subject);
        for field in subject.fields.iter().rev() {
            one_field(page, subject, field, points, study.subjects.len());
        }
        page.raw("</section>\n");
    }
    page.raw("</section>\n");
}

fn one_field(page: &mut Page, subject: &Subject, field: &Field, points: usize, all: usize) {
    let (alone, open) = (all == 1, all <= OPEN_SCENARIOS);
    page.element("h4", words::mode_title(field.table.mode));
    if !alone {
        // The verdict of a single scenario says it already.
        page.element("p", verdict::field_sentences(subject, field));
    }
    figures::table(page, field);
    figures::ceilings(page, field);
    for note in &field.table.notes {
        page.raw("<p class=\"note\">").text("Note: ").text(note).raw("</p>\n");
    }
    figures::shares(page, field);
    page.raw(if open { "<details class=\"more\" open>" } else { "<details class=\"more\">" });
    page.raw("<summary>").text("Charts: ").text(&subject.name).text(", ");
    page.text(words::mode(field.table.mode)).raw("</summary>\n");
    distribution::section(page, field);
    series::section(page, field, points, open);
    page.raw("</details>\n");
}

/// What a reader must know before the figures.
fn cautions(study: &Study, material: &Material) -> Vec<String> {
    let mut all = Vec::new();
    all.extend(about_modes(study));
    all.extend(about_runs(study));
    all.extend(about_processors(study));
    all.extend(about_windows(study));
    all.extend(about_ceilings(study));
    all.extend(about_losses(study));
    all.extend(material.unread.iter().map(|text| format!("Not read: {text}")));
    all
}

fn about_modes(study: &Study) -> Vec<String> {
    let mut all = Vec::new();
    let has = |mode| study.fields(mode).next().is_some();
    if !has(Mode::Live) {
        all.push(
            "Nothing here was run live: these are simulations of the links, the target and the \
             policies' own code."
                .to_owned(),
        );
    }
    if has(Mode::Light) {
        all.push(
            "The light simulation leaves out the hosts' own processor time, so the cost of a \
             policy itself does not show in it; latencies at low load lack that part."
                .to_owned(),
        );
    }
    let modes = study.modes();
    let counts: BTreeMap<Mode, usize> =
        modes.iter().map(|mode| (*mode, study.fields(*mode).count())).collect();
    if counts.values().collect::<BTreeSet<_>>().len() > 1 {
        let each = counts.iter().map(|(mode, n)| format!("{n} {}", words::mode(*mode)));
        all.push(format!("Not every scenario was run in every way: {}.", list(each)));
    }
    let scales: BTreeSet<u32> = study
        .all_fields()
        .map(|(_, f)| f.table.scale_permille)
        .filter(|scale| *scale != 1000)
        .collect();
    if !scales.is_empty() {
        let scales = list(scales.iter().map(|scale| format!("× {}", f64::from(*scale) / 1000.0)));
        all.push(format!(
            "Rates were scaled ({scales}), so that links and not processors bind: compare \
             percentages and ratios, not MiB/s, with what is not scaled alike."
        ));
    }
    all
}

fn about_runs(study: &Study) -> Vec<String> {
    let few = study.all_fields().filter(|(_, field)| field.runs().0 < LEAST_RUNS).count();
    let mut all = Vec::new();
    if few > 0 {
        all.push(format!(
            "{} fewer than {LEAST_RUNS} runs of some policy: no interval can be given, and a lead \
             may be chance.",
            match few {
                1 => "One table has".to_owned(),
                _ => format!("{few} tables have"),
            }
        ));
    }
    let windows: BTreeSet<u64> =
        study.all_fields().map(|(_, field)| field.table.window_ns).collect();
    if let Some(least) = windows.first().filter(|least| **least < WINDOW_NS) {
        all.push(format!(
            "Short form: windows of {}{}. What is slow to adapt is seen at its beginning.",
            exact_time(*least),
            if windows.len() > 1 { " and more" } else { "" }
        ));
    }
    all
}

fn about_processors(study: &Study) -> Option<String> {
    let all =
        || study.all_fields().filter(|(_, field)| field.rows.iter().any(|r| r.sum.cpu.is_some()));
    let rows: usize = all().map(|(_, field)| field.rows.len()).sum();
    let of = |field: &Field| field.rows.iter().filter(|row| row.sum.cpu_bound).count();
    let bound: usize = all().map(|(_, field)| of(field)).sum();
    let names: Vec<_> =
        all().filter(|(_, field)| of(field) > 0).map(|(subject, _)| &subject.name).collect();
    // The verdict on a single one has it with the names of its rows.
    (bound > 0 && study.all_fields().count() > 1)
        .then(|| words::sentence(&cpu_bound_rows(bound, rows, &short_list(&names, NAMES))))
}

fn about_windows(study: &Study) -> Option<String> {
    let scaled: BTreeSet<u64> = study
        .rows()
        .filter_map(|row| row.sum.latency_window_ns)
        .filter(|window| *window != LATENCY_WINDOW_NS)
        .collect();
    (!scaled.is_empty()).then(|| {
        format!(
            "The policy latency ran with a window of {} instead of its own 15\u{a0}s, which short \
             runs would never see end.",
            list(scaled.into_iter().map(exact_time))
        )
    })
}

fn about_ceilings(study: &Study) -> Option<String> {
    let mut failed = Vec::new();
    for (subject, field) in study.all_fields() {
        for ceiling in &field.table.ceilings {
            if let Some(why) = figures::failing(ceiling) {
                failed.push(format!("{}, {}: {why}", subject.name, ceiling.path));
            }
        }
    }
    (!failed.is_empty()).then(|| {
        format!(
            "{} not what the scenario asks for, measured alone: {}.",
            if failed.len() == 1 { "One path was" } else { "Some paths were" },
            short_list(&failed, NAMES)
        )
    })
}

fn about_losses(study: &Study) -> Vec<String> {
    let sum = |of: fn(&Row) -> u64| study.rows().map(of).fold(0, u64::saturating_add);
    let (errors, refused) = (sum(|row| row.sum.errors), sum(|row| row.refused));
    let mut all = Vec::new();
    if errors > 0 {
        all.push(format!("{} requests failed; no figure counts them.", words::count(errors)));
    }
    if refused > 0 {
        all.push(format!(
            "{} requests of open loops found no room among those already open, and were not \
             started: the load there is more than anything could carry.",
            words::count(refused)
        ));
    }
    all
}

fn circumstances(page: &mut Page, material: &Material) {
    page.raw("<section id=\"circumstances\" aria-labelledby=\"h-circumstances\">\n");
    page.raw("<h2 id=\"h-circumstances\">Circumstances</h2>\n<h3>Environment</h3>\n");
    if material.environment.sessions.is_empty() {
        page.element("p", "The directory does not say where and when it was made.");
    }
    for session in &material.environment.sessions {
        one_session(page, session);
    }
    page.raw("<h3>Scenario files, verbatim</h3>\n");
    if material.texts.is_empty() {
        page.element("p", "The directory holds none.");
    }
    for (at, one) in material.texts.iter().enumerate() {
        let id = file_place(at);
        page.raw("<details id=\"").text(&id).raw("\"><summary><code>").text(&one.file);
        page.raw("</code></summary>\n<pre tabindex=\"0\" role=\"region\" aria-label=\"");
        page.text(&one.file).raw("\"><code>").text(&one.text).raw("</code></pre></details>\n");
    }
    page.raw("</section>\n");
}

fn one_session(page: &mut Page, session: &Session) {
    page.raw("<dl>\n");
    let mut entry = |name: &'static str, value: String| {
        if !value.is_empty() {
            page.raw("<div><dt>").raw(name).raw("</dt><dd>").text(value).raw("</dd></div>\n");
        }
    };
    entry("Command", session.command.join(" "));
    entry("From, to", format!("{} – {}", session.started, session.ended));
    entry("Machine", session.host.clone());
    entry("Kernel", session.kernel.clone());
    let cpus = plural(session.cpus as usize, "processor", "processors");
    let gib = session.memory_bytes as f64 / f64::from(1 << 30);
    entry("Hardware", format!("{cpus} {}, {gib:.1} GiB", session.cpu_model));
    entry("Anabranch", session.version.clone());
    let kept = session.cells_kept;
    entry("Runs", format!("{} made, {kept} there already", session.cells_run));
    page.raw("</dl>\n");
}
