//! Which policy for these links, by how much, how sure: in words.

use super::page::{Kind, Page};
use super::places::place;
use super::study::{Field, Row, Study, Subject};
use super::words::{self, list, percent, plural, short_list, time};
use crate::result::Mode;
use crate::result::stats::{Difference, Interval, ONE_PPM, Paired};

/// What is as good as the best, for a reader who decides.
const CLOSE: f64 = 0.98;
/// Names in a sentence.
const NAMES: usize = 5;

/// What the runs of one field say, with the rows at hand.
pub(super) struct Told<'a> {
    /// The highest throughput.
    pub(super) best: &'a Row,
    /// The next, and the best against it; nothing when there is one variant alone.
    pub(super) next: Option<(&'a Row, &'a Paired)>,
    /// What that says.
    is: Difference,
    /// Those that cannot be told apart from the best, without it.
    pub(super) like: Vec<&'a Row>,
    /// Of those and the best, the one with the shortest tail, where it is sure that it is shorter.
    calmest: Option<&'a Row>,
    /// It is shorter than that of each of them.
    calmer: bool,
}

impl<'a> Told<'a> {
    pub(super) fn of(field: &'a Field) -> Option<Told<'a>> {
        let verdict = &field.table.verdict;
        let best = field.row(&verdict.best)?;
        let next = verdict.next.as_ref().and_then(|name| field.row(name));
        let others = verdict.equal.iter().filter(|name| **name != verdict.best);
        let calmer = verdict.calmest.as_ref().is_some_and(|one| one.is == Difference::Less);
        let choice = (calmer || verdict.choice != verdict.best).then_some(&verdict.choice);
        Some(Told {
            best,
            next: next.zip(verdict.ratio.as_ref()),
            is: verdict.is,
            like: others.filter_map(|name| field.row(name)).collect(),
            calmest: choice.and_then(|name| field.row(name)),
            calmer,
        })
    }

    /// Whether the best carries more than every other one, beyond doubt.
    fn is_clear(&self) -> bool {
        self.is == Difference::More && self.like.is_empty()
    }

    /// Whether nothing can be said for want of runs.
    fn is_unsure(&self) -> bool {
        self.next.is_none() || self.is == Difference::Unknown
    }

    /// Whether the machine was the limit of what is to be told apart: then it decides, and not the
    /// links.
    fn is_cpu_bound(&self) -> bool {
        let next = self.next.map(|(row, _)| row);
        next.into_iter().chain([self.best, self.choice()]).any(|row| row.sum.cpu_bound)
    }

    /// Whom to take: the shortest tail among equals, else the best.
    pub(super) fn choice(&self) -> &'a Row {
        self.calmest.unwrap_or(self.best)
    }

    /// Whom to take without some: of those like the best the shortest tail, else what carries most.
    fn without(&self, left_out: impl Fn(&Row) -> bool, field: &'a Field) -> Option<&'a Row> {
        let equals = self.like.iter().copied().chain([self.best]);
        let calmest = equals.filter(|row| !left_out(row)).min_by_key(|r| r.sum.completion.p99_ns);
        calmest.or_else(|| field.ranked().into_iter().find(|row| !left_out(row)))
    }

    /// By how much the best is ahead, as a cell of a table.
    fn lead(&self) -> String {
        let paired = self.next.map(|(_, paired)| paired).filter(|paired| paired.pairs > 0);
        paired.map_or(words::NOTHING.to_owned(), |paired| more(paired.median_ppm))
    }

    /// The interval of [`Told::lead`], as a cell of a table.
    fn lead_interval(&self) -> String {
        let show = |i: Interval| format!("{} to {}", signed(i.low_ppm), signed(i.high_ppm));
        let sure = self.next.and_then(|(_, paired)| paired.sure(show));
        sure.unwrap_or(words::NOTHING.to_owned())
    }

    /// How sure, as a cell of a table.
    fn certainty(&self) -> String {
        let runs = self.next.map_or(0, |(_, paired)| paired.pairs as usize);
        let runs = plural(runs, "run", "runs");
        match &self.next {
            None => "nothing to compare with".to_owned(),
            Some((_, paired)) if paired.pairs == 0 => "no run in common".to_owned(),
            Some(_) if self.is_unsure() => format!("too few runs ({runs})"),
            Some((_, paired)) if self.is_clear() && paired.alike => {
                format!("{runs} alike: no spread measured")
            }
            Some(_) if self.is_clear() => format!("sure ({runs})"),
            Some(_) => format!("no difference from {} ({runs})", short_list(&self.equals(), 1)),
        }
    }

    fn equals(&self) -> Vec<&'a str> {
        if self.like.is_empty() {
            return self.next.iter().map(|(row, _)| row.name()).collect();
        }
        self.like.iter().map(|row| row.name()).collect()
    }

    /// The sentences: throughput first, then the tail.
    pub(super) fn sentences(&self) -> Vec<String> {
        let mut all = vec![self.throughput()];
        all.extend(self.close());
        all.extend(self.tail());
        all
    }

    fn throughput(&self) -> String {
        let best = self.best.name();
        let rate = words::reached(self.best);
        let Some((next, paired)) = self.next else {
            return format!("Only {best} was run, and carries {rate}: nothing to compare with.");
        };
        let (next, lead) = (next.name(), more(paired.median_ppm));
        let runs = plural(paired.pairs as usize, "paired run", "paired runs");
        let interval = match paired.alike {
            true => "runs alike: no spread was measured".to_owned(),
            false => format!("95\u{a0}% interval {}\u{a0}%", self.lead_interval()),
        };
        if paired.pairs == 0 {
            return format!(
                "{best} carried most: {rate}. It has no run in common with {next}, the next one: \
                 by how much cannot be said."
            );
        }
        if self.is_unsure() {
            let verb = if paired.pairs == 1 { "is" } else { "are" };
            return format!(
                "{best} carried most: {rate}, {lead}\u{a0}% more than {next}. {runs} {verb} too \
                 few to say how sure that is; six give an interval."
            );
        }
        if self.is_clear() {
            return format!(
                "{best} carries most: {rate}, {lead}\u{a0}% more than {next} ({interval}, {runs})."
            );
        }
        let equals = self.equals();
        if self.is == Difference::More {
            return format!(
                "{best} carries most: {rate}, {lead}\u{a0}% more than {next} ({interval}, {runs}); \
                 no difference can be shown to {}.",
                short_list(&equals, NAMES)
            );
        }
        let verb = if equals.len() == 1 { "is" } else { "are" };
        let how = match paired.interval {
            Some(i) if i.low_ppm != i.high_ppm && !paired.alike => {
                format!("its lead over {next} is {lead}\u{a0}% ({interval}, {runs})")
            }
            _ => format!("{runs} gave the same"),
        };
        format!(
            "No difference can be shown: {best} carries {rate}, and {} {verb} like it; {how}.",
            short_list(&equals, NAMES)
        )
    }

    /// Who is less than 2 % behind, where the lead is sure.
    fn close(&self) -> Option<String> {
        let (next, paired) = self.next?;
        let close = paired.median_ppm as f64 * CLOSE <= ONE_PPM as f64;
        (self.is_clear() && close)
            .then(|| format!("The difference is small: {} is within 2\u{a0}%.", next.name()))
    }

    fn tail(&self) -> Option<String> {
        let p99 = |row: &Row| time(row.sum.completion.p99_ns);
        let (calmest, best) = (self.calmest?, self.best);
        let name = calmest.name();
        if name == best.name() {
            return Some(format!("Of these, {name} has the lowest p99 latency: {}.", p99(calmest)));
        }
        let lowest = if self.calmer { "the lowest" } else { "a lower" };
        Some(format!(
            "Of these, {name} has {lowest} p99 latency: {} against {} of {}.",
            p99(calmest),
            p99(best),
            best.name()
        ))
    }
}

/// Throughput of a row relative to another one.
fn relative(row: &Row, other: &Row) -> f64 {
    words::fraction(row.throughput(), other.throughput())
}

/// How much more than one, in percent.
fn more(ppm: u64) -> String {
    signed(ppm).trim_start_matches('+').to_owned()
}

fn signed(ppm: u64) -> String {
    let percent = (ppm as f64 - ONE_PPM as f64) / 1e4;
    let text = format!("{percent:+.1}");
    // No sign for what is rounded to nothing, and a true minus for the rest.
    match text.trim_start_matches(['+', '-']) {
        "0.0" => "0.0".to_owned(),
        _ => text.replace('-', "−"),
    }
}

/// A variant over all scenarios of a mode.
pub(super) struct Standing<'a> {
    pub(super) variant: &'a str,
    /// Scenarios it was run in, and in which anything was carried.
    pub(super) scenarios: usize,
    /// In which it carried most, or the same as what carried most.
    pub(super) wins: usize,
    /// In which it was within 2 % of the best, or could not be told apart from it.
    pub(super) close: usize,
    /// Its throughput relative to the best, where it was worst, and there.
    pub(super) worst: f64,
    pub(super) worst_at: &'a str,
    /// The mean of that over all scenarios.
    pub(super) mean: f64,
}

/// The standings of all variants that were run in every scenario, best first.
pub(super) fn standings(study: &Study, mode: Mode) -> Vec<Standing<'_>> {
    let all = study.fields(mode).count();
    let everywhere = study.variants(mode).into_iter().filter(|(_, count)| *count == all);
    let mut found: Vec<Standing<'_>> =
        everywhere.map(|(variant, _)| standing(study, mode, variant)).collect();
    // Stable: what is equal stays in the order of policies.
    found.retain(|one| one.scenarios > 0);
    found.sort_by(|a, b| b.close.cmp(&a.close).then(b.mean.total_cmp(&a.mean)));
    found
}

fn standing<'a>(study: &'a Study, mode: Mode, variant: &'a str) -> Standing<'a> {
    let mut standing = Standing {
        variant,
        scenarios: 0,
        wins: 0,
        close: 0,
        worst: f64::INFINITY,
        worst_at: "",
        mean: 0.0,
    };
    for (subject, field) in study.fields(mode) {
        let Some(row) = field.row(variant) else { continue };
        if field.table.verdict.best.is_empty() {
            continue;
        }
        let part = row.of_best();
        standing.scenarios += 1;
        standing.wins += usize::from(row.sum.of_best_ppm == ONE_PPM);
        standing.close += usize::from(part >= CLOSE || is_equal(field, row));
        standing.mean += part;
        if part < standing.worst {
            (standing.worst, standing.worst_at) = (part, &subject.name);
        }
    }
    standing.mean /= standing.scenarios.max(1) as f64;
    standing
}

/// Whether a row cannot be told apart from the best.
pub(super) fn is_equal(field: &Field, row: &Row) -> bool {
    field.table.verdict.equal.iter().any(|name| name == row.name())
}

/// In how many scenarios one variant is better than another, worse, and neither, of those in which
/// anything was carried.
fn tally(study: &Study, mode: Mode, one: &str, other: &str) -> [usize; 3] {
    let mut found = [0; 3];
    for (_, field) in study.fields(mode) {
        let (Some(one), Some(other)) = (field.row(one), field.row(other)) else { continue };
        if field.table.verdict.best.is_empty() {
            continue;
        }
        let place = match one.against(other, |run| one.counted.of_run(run)).difference() {
            Difference::More => 0,
            Difference::Less => 1,
            Difference::None | Difference::Unknown => 2,
        };
        found[place] += 1;
    }
    found
}

/// The section.
pub(super) fn section(page: &mut Page, study: &Study, cautions: &[String]) {
    page.raw("<section id=\"verdict\" aria-labelledby=\"h-verdict\">\n");
    page.raw("<h2 id=\"h-verdict\">Verdict</h2>\n");
    match study.subjects.as_slice() {
        [only] => for_one(page, only),
        _ => over_all(page, study),
    }
    if !cautions.is_empty() {
        page.raw("<div class=\"caution\"><h3>Read this with care</h3>\n<ul>\n");
        for caution in cautions {
            page.element("li", caution);
        }
        page.raw("</ul></div>\n");
    }
    if study.subjects.len() > 1 {
        standings_tables(page, study);
        per_scenario(page, study);
    }
    page.raw("</section>\n");
}

/// The most real of the modes with the most scenarios.
pub(super) fn leading_mode(study: &Study) -> Option<Mode> {
    study.modes().into_iter().max_by_key(|mode| (study.fields(*mode).count(), *mode))
}

fn for_one(page: &mut Page, subject: &Subject) {
    for field in subject.fields.iter().rev() {
        let Some(told) = Told::of(field) else {
            page.raw("<p class=\"lead\">").text(about_nothing(field)).raw("</p>\n");
            continue;
        };
        if told.is_cpu_bound() {
            page.raw("<p class=\"lead\">").text(told.best.name());
            page.text(format!(" carried most ({}), ", words::mode(field.table.mode)));
            page.text("but the machine was the limit, not the links.").raw("</p>\n");
        } else if !told.is_unsure() {
            page.raw("<p class=\"lead\">For these links, take <strong>");
            page.text(told.choice().name()).raw("</strong>");
            page.text(format!(" ({}).", words::mode(field.table.mode))).raw("</p>\n");
        } else {
            page.raw("<p class=\"lead\">").text(told.best.name());
            page.text(format!(" carried most ({}); ", words::mode(field.table.mode)));
            page.text("how sure that is, is not known.").raw("</p>\n");
        }
        page.element("p", field_sentences(subject, field));
    }
}

/// What is to say of a field in which no variant carried anything.
fn about_nothing(field: &Field) -> String {
    let verdict = &field.table.verdict;
    let said = format!("{}: {}.", words::mode_title(field.table.mode), verdict.text);
    let remarks = verdict.remarks.iter().map(|remark| words::sentence(remark));
    std::iter::once(said).chain(remarks).collect::<Vec<_>>().join(" ")
}

/// Everything that is to say of one field.
pub(super) fn field_sentences(subject: &Subject, field: &Field) -> String {
    let Some(told) = Told::of(field) else { return about_nothing(field) };
    let mut all = told.sentences();
    all.extend(field.table.verdict.remarks.iter().map(|remark| words::sentence(remark)));
    if subject.has_weights(told.choice().name()) {
        let free = told.without(|row| subject.has_weights(row.name()), field);
        all.push(match free {
            Some(row) => format!(
                "{} was told what each path is worth; of those that need no telling, {} does best, \
                 with {}\u{a0}% of that throughput and a p99 of {}.",
                told.choice().name(),
                row.name(),
                percent(relative(row, told.choice())),
                time(row.sum.completion.p99_ns)
            ),
            None => format!("{} was told what each path is worth.", told.choice().name()),
        });
    }
    all.join(" ")
}

fn over_all(page: &mut Page, study: &Study) {
    let Some(leading) = leading_mode(study) else { return };
    let mut modes = study.modes();
    modes.sort_by_key(|mode| (*mode != leading, std::cmp::Reverse(*mode)));
    for mode in modes {
        let standings = standings(study, mode);
        let Some(first) = standings.first() else { continue };
        let how = words::mode(mode);
        let among = plural(first.scenarios, "scenario", "scenarios");
        page.raw(if mode == leading { "<p class=\"lead\">" } else { "<p>" });
        let names = leaders(study, mode, &standings);
        page.text(format!("Over {among} ({how}), ")).raw("<strong>").text(list(&names));
        page.raw("</strong>").text(format!(
            " {} best: best or within 2\u{a0}% of the best in {} of {}.",
            if names.len() == 1 { "serves" } else { "serve" },
            first.close,
            first.scenarios
        ));
        page.raw("</p>\n");
        if mode == leading {
            page.element("p", worst_and_next(study, mode, &standings));
        }
    }
}

/// The first, and those that are as often among the best and nowhere told apart from it.
fn leaders<'a>(study: &Study, mode: Mode, standings: &[Standing<'a>]) -> Vec<&'a str> {
    let Some((first, others)) = standings.split_first() else { return Vec::new() };
    let like = |one: &&Standing<'a>| {
        let [more, less, _] = tally(study, mode, first.variant, one.variant);
        one.close == first.close && more == 0 && less == 0
    };
    let others = others.iter().filter(like).map(|one| one.variant);
    std::iter::once(first.variant).chain(others).collect()
}

fn worst_and_next(study: &Study, mode: Mode, standings: &[Standing<'_>]) -> String {
    let first = &standings[0];
    let leading = leaders(study, mode, standings);
    let one = if leading.len() == 1 { "it" } else { first.variant };
    let mut text = format!(
        "On average {one} reaches {}\u{a0}% of the best policy's throughput, and where it does \
         worst {}\u{a0}% ({}).",
        percent(first.mean),
        percent(first.worst),
        first.worst_at
    );
    let next = standings.iter().find(|other| !leading.contains(&other.variant));
    if let Some(next) = next {
        let [more, less, neither] = tally(study, mode, first.variant, next.variant);
        text += &format!(
            " Next is {}: best or within 2\u{a0}% in {} of {}, {}\u{a0}% on average. Run against \
             run, {} carries more than {} in {more}, less in {less}, and no difference can be \
             shown in {neither}.",
            next.variant,
            next.close,
            next.scenarios,
            percent(next.mean),
            first.variant,
            next.variant
        );
    }
    if let Some(told) = needs_telling(study, standings) {
        text += &told;
    }
    text
}

/// Where the first was told what each path is worth: which one needs no telling.
fn needs_telling(study: &Study, standings: &[Standing<'_>]) -> Option<String> {
    let told = |one: &&Standing<'_>| study.subjects.iter().any(|s| s.has_weights(one.variant));
    let first = standings.first().filter(told)?;
    let free = standings.iter().find(|one| !told(one))?;
    Some(format!(
        " {} was told what each path is worth; of those that need no telling, {} does best, \
         within 2\u{a0}% of the best in {} of {}.",
        first.variant, free.variant, free.close, free.scenarios
    ))
}

fn standings_tables(page: &mut Page, study: &Study) {
    page.raw("<h3>Over all scenarios</h3>\n<div class=\"pair\">\n");
    for mode in study.modes() {
        let standings = standings(study, mode);
        if standings.is_empty() {
            let text = "No variant was run in all, or nothing was carried";
            page.element("p", format!("{text}: {}.", words::mode(mode)));
            continue;
        }
        let among = plural(standings[0].scenarios, "scenario", "scenarios");
        let caption = format!("{}, {among}", words::mode_title(mode));
        page.open_table("plain", caption);
        page.head(["Policy", "Most", "Best or within 2 %", "% of best, mean", "% of best, worst"]);
        for one in &standings {
            page.row(one.variant).number(one.wins).number(one.close);
            page.number(percent(one.mean)).number(percent(one.worst)).end_row();
        }
        page.close_table();
    }
    page.raw("</div>\n<p class=\"note\">");
    page.text("“Most” counts the scenarios in which nothing carried more; the next column adds ");
    page.text("those within 2 % of that, and those in which no difference can be shown. Only ");
    page.text("variants that were run in every scenario are compared.").raw("</p>\n");
}

fn per_scenario(page: &mut Page, study: &Study) {
    page.raw("<h3>By scenario</h3>\n");
    page.open_table("plain verdicts", "Who carries most, and by how much over the next");
    let (text, number) = (Kind::Text, Kind::Number);
    page.head_of([
        ("Scenario", text),
        ("Mode", text),
        ("Most", text),
        ("Throughput", number),
        ("% of limit", number),
        ("Next", text),
        ("Lead, %", number),
        ("95 % interval", number),
        ("How sure", text),
    ]);
    for (at, subject) in study.subjects.iter().enumerate() {
        for field in &subject.fields {
            let Some(told) = Told::of(field) else { continue };
            page.raw("<tr><th scope=\"row\"><a href=\"#").text(place(at)).raw("\">");
            page.text(&subject.name)
                .raw("</a></th><td>")
                .text(field.table.mode)
                .raw("</td><td class=\"name\">");
            page.text(told.best.name()).raw("</td>").number(words::throughput(told.best));
            page.number(percent(told.best.of_limit())).raw("<td class=\"name\">");
            let next = told.next.map_or(words::NOTHING, |(row, _)| row.name());
            page.text(next).raw("</td>").number(told.lead()).number(told.lead_interval());
            page.raw("<td>").text(told.certainty()).raw("</td>").end_row();
        }
    }
    page.close_table();
}
