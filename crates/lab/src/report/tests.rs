use super::overview::{STEPS, step};
use super::study::Study;
use super::svg::{Decades, path, round_up, shortened, spread};
use super::verdict::{Told, field_sentences};
use super::{Material, ScenarioText, render, words};
use crate::cell::Cell;
use crate::light;
use crate::result::{Ceiling, CellResult, Circumstances, CpuResult, Latency, Mode, PathSeries};
use crate::scenario::{Scenario, file};
use std::collections::BTreeMap;

const SMALL: &str = r#"
    title = "Small"
    source = "nobody"
    [run]
    ramp = "100ms"
    window = "300ms"
    [[path]]
    name = "fast"
    rate = "40mbit"
    weight = 4
    [[path]]
    name = "slow"
    rate = "10mbit"
    [[job]]
    rw = "randrw"
    bs = "4k"
    iodepth = 16
    [[change]]
    at = "100ms"
    path = "slow"
    state = "cut"
    [[published]]
    policy = "round-robin"
    mib_s = 3
"#;

fn scenario() -> Scenario {
    file::parse(SMALL, "small.toml").expect("a scenario").scenario
}

fn cell(scenario: &Scenario, variant: usize, seed: u64) -> CellResult {
    let cell = Cell { scenario, variant: &scenario.variants[variant], seed };
    let figures = light::run(cell).expect("a cell that can be run");
    CellResult::new(cell, &figures, &Circumstances::simulated(Mode::Light))
}

/// Three variants, so many runs of each.
fn material(runs: u64) -> Material {
    let scenario = scenario();
    let cells = (1..4).flat_map(|variant| (1..=runs).map(move |seed| (variant, seed)));
    Material {
        cells: cells.map(|(variant, seed)| cell(&scenario, variant, seed)).collect(),
        texts: vec![ScenarioText {
            file: "small.toml".to_owned(),
            text: SMALL.to_owned(),
            scenario: Some(scenario),
        }],
        ..Material::default()
    }
}

/// What is said when variants have these bytes per second, run by run.
fn said(variants: &[(&str, &[u64])]) -> String {
    let base = cell(&scenario(), 2, 1);
    let mut material = Material::default();
    for (name, runs) in variants {
        for (run, bytes_s) in runs.iter().enumerate() {
            let mut one = base.clone();
            one.variant = (*name).to_owned();
            one.run = run as u64 + 1;
            one.total.bytes_s = *bytes_s;
            one.limit.bytes_s = 1000 << 20;
            material.cells.push(one);
        }
    }
    let study = Study::new(&mut material);
    let subject = &study.subjects[0];
    field_sentences(subject, &subject.fields[0]).replace('\u{a0}', " ")
}

const MIB: u64 = 1 << 20;

#[test]
fn a_clear_winner_is_named_with_its_lead_and_interval() {
    let best = [980, 970, 990, 985, 975, 980].map(|n| n * MIB);
    let next = [490, 485, 495, 490, 490, 490].map(|n| n * MIB);
    let text = said(&[("one", &next), ("other", &best), ("third", &[MIB; 6])]);
    assert!(text.starts_with("other carries most: 980 MiB/s, 98.0 % of the limit, "), "{text}");
    assert!(text.contains("100.0 % more than one (95 % interval +99.0 to +101.0 %"), "{text}");
    assert!(text.contains("6 paired runs"), "{text}");
    assert!(!text.contains("No difference"), "{text}");
}

#[test]
fn of_equals_one_with_the_lowest_tail_is_taken_though_it_shares_it() {
    let mut material = material(6);
    for cell in &mut material.cells {
        let p99_ns = if cell.variant == "round-robin" { 2_000_000 } else { 1_000_000 };
        (cell.total.bytes_s, cell.total.latency.p99_ns) = (MIB, p99_ns);
        cell.total.latency.buckets = vec![(p99_ns, cell.total.requests)];
    }
    let page = render(material).replace('\u{a0}', " ");
    for part in [
        "For these links, take <strong>queue-depth</strong>",
        "Of these, queue-depth has a lower p99 latency: 1.00 ms against 2.00 ms of round-robin.",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn a_small_lead_is_called_small() {
    let text = said(&[("one", &[100 * MIB; 6]), ("other", &[101 * MIB; 6])]);
    assert!(text.contains("other carries most"), "{text}");
    assert!(text.contains("The difference is small: one is within 2 %."), "{text}");
}

#[test]
fn no_difference_is_called_that() {
    let one = [100, 101, 102, 100, 99, 100].map(|n| n * MIB);
    let other = [101, 100, 101, 102, 100, 99].map(|n| n * MIB);
    let text = said(&[("one", &one), ("other", &other), ("third", &[MIB; 6])]);
    assert!(text.starts_with("No difference can be shown: "), "{text}");
    assert!(text.contains(" is like it; its lead over "), "{text}");
    assert!(!text.contains("third"), "{text}");
    let text = said(&[("one", &[MIB; 6]), ("other", &[MIB; 6])]);
    assert!(text.contains("other is like it; 6 paired runs gave the same."), "{text}");
}

#[test]
fn too_few_runs_are_called_that() {
    let text = said(&[("one", &[200 * MIB; 3]), ("other", &[100 * MIB; 3])]);
    assert!(text.starts_with("one carried most: 200 MiB/s"), "{text}");
    assert!(text.contains("3 paired runs are too few to say how sure that is"), "{text}");
    let mut apart = material(1);
    apart.cells.retain_mut(|cell| {
        cell.run += u64::from(cell.variant == "round-robin");
        cell.variant != "service-time"
    });
    let page = render(apart);
    assert!(page.contains("It has no run in common with round-robin, the next one: by how much"));
    assert!(!page.contains("% more than"));
    let text = said(&[("one", &[MIB; 6])]);
    assert!(text.starts_with("Only one was run"), "{text}");
}

#[test]
fn where_nothing_was_carried_no_policy_is_praised() {
    let mut one = material(6);
    one.cells.iter_mut().for_each(|cell| (cell.total.bytes_s, cell.total.iops) = (0, 0));
    let page = render(one.clone());
    assert!(page.contains("Light simulation: no request ended: there is nothing to compare."));
    let mut failed = one.clone();
    failed.cells[0].errors = 7;
    assert!(
        render(failed).contains("compare. Requests failed, and are in no figure: 7 round-robin.")
    );
    assert!(!page.contains("For these links, take"));
    assert!(!page.contains(", best</span>"), "nor in the table of all");
    // Beside a scenario that says something it does not count.
    let mut two = two_scenarios();
    let counted = render(two.clone());
    for mut cell in one.cells {
        cell.scenario = "a third".to_owned();
        two.cells.push(cell);
    }
    let page = render(two);
    for part in [
        "Over 2 scenarios (light simulation), ",
        "round-robin in 2, less in 0, and no difference can be shown in 0.",
    ] {
        assert!(counted.contains(part) && page.contains(part), "{part}");
    }
}

#[test]
fn trims_alone_are_told_by_their_number() {
    let mut one = material(6);
    for cell in &mut one.cells {
        let per_second = if cell.variant == "round-robin" { 500 } else { 100 };
        (cell.total.bytes_s, cell.total.iops) = (0, per_second);
        (cell.limit.bytes_s, cell.limit.iops) = (0, 1000);
    }
    let page = render(one).replace('\u{a0}', " ");
    for part in [
        "For these links, take <strong>round-robin</strong>",
        "round-robin carries most: 500 requests/s, 50.0 % of the limit, 400.0 % more than",
        "round-robin</span> 500 requests/s, 50.0 % of the limit",
        "100 requests/s (20.0 %)",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn what_the_light_simulation_leaves_out_is_told_without_burners() {
    let page = render(material(1));
    assert!(page.contains("the cost of a policy itself does not show in it"));
    assert!(!page.contains("burners"), "they are simulated");
}

#[test]
fn weights_that_were_told_are_told() {
    let one = [100, 101, 102, 100, 99, 100].map(|n| n * MIB);
    let mut material = material(1);
    for (run, bytes_s) in one.iter().enumerate() {
        for (name, part) in [("service-time tuned", 100), ("queue-depth", 50)] {
            let mut cell = material.cells[0].clone();
            cell.variant = name.to_owned();
            cell.run = run as u64 + 10;
            cell.total.bytes_s = bytes_s * part / 100;
            material.cells.push(cell);
        }
    }
    material.cells.retain(|cell| cell.run >= 10);
    let study = Study::new(&mut material);
    let subject = &study.subjects[0];
    let text = field_sentences(subject, &subject.fields[0]).replace('\u{a0}', " ");
    assert!(text.contains("service-time tuned was told what each path is worth"), "{text}");
    assert!(text.contains("queue-depth does best, with 50.0 % of that throughput"), "{text}");
    let told = Told::of(&subject.fields[0]).expect("rows");
    assert_eq!(told.choice().name(), "service-time tuned");
}

/// Two scenarios, in which two of three variants give the same.
fn two_scenarios() -> Material {
    let mut material = material(6);
    for cell in &mut material.cells {
        cell.total.bytes_s = if cell.variant == "round-robin" { MIB } else { 2 * MIB };
    }
    let mut others = material.cells.clone();
    others.iter_mut().for_each(|cell| cell.scenario = "other".to_owned());
    material.cells.extend(others);
    material
}

#[test]
fn over_all_scenarios_equals_share_the_first_place() {
    let page = render(two_scenarios()).replace('\u{a0}', " ");
    for part in [
        "<h1>Policies on 2 scenarios</h1>",
        "Over 2 scenarios (light simulation), <strong>queue-depth and service-time</strong> serve \
         best: best or within 2 % of the best in 2 of 2.",
        "Next is round-robin: best or within 2 % in 0 of 2, 50.0 % on average. Run against run, \
         queue-depth carries more than round-robin in 2, less in 0",
        "no difference from service-time (6 runs)",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn over_all_scenarios_too_weights_that_were_told_are_told() {
    let mut material = two_scenarios();
    for cell in &mut material.cells {
        if cell.variant == "service-time" {
            cell.variant = "service-time tuned".to_owned();
            cell.total.bytes_s *= 2;
        }
    }
    let page = render(material).replace('\u{a0}', " ");
    let told = "service-time tuned was told what each path is worth; of those that need no \
                telling, queue-depth does best, within 2 % of the best in 0 of 2.";
    assert!(page.contains(told));
}

/// What a hostile file could hold wherever it may have a text.
const HOSTILE: &str = "</title><script>alert(1)</script>\"'&<img src=x onerror=alert(2)>\u{202e}";

#[test]
fn hostile_names_show_as_text() {
    let mut material = material(1);
    for cell in &mut material.cells {
        cell.scenario = HOSTILE.to_owned();
        cell.variant += HOSTILE;
        cell.notes.push(HOSTILE.to_owned());
        cell.limit.bound = HOSTILE.to_owned();
        for path in &mut cell.paths {
            path.name += HOSTILE;
        }
        for change in &mut cell.changes {
            (change.path, change.what) = (HOSTILE.to_owned(), HOSTILE.to_owned());
        }
        let (asked_bytes_s, bytes_s, asked_delay_ns, delay_ns) = (2, 1, 4, 3);
        let path = HOSTILE.to_owned();
        let ceiling = Ceiling { path, asked_bytes_s, bytes_s, asked_delay_ns, delay_ns };
        cell.ceilings.push(ceiling);
    }
    material.texts[0].text += HOSTILE;
    material.texts[0].file += HOSTILE;
    if let Some(scenario) = &mut material.texts[0].scenario {
        scenario.name = HOSTILE.to_owned();
        scenario.title = HOSTILE.to_owned();
        scenario.source = HOSTILE.to_owned();
        scenario.published[0].policy = HOSTILE.to_owned();
    }
    material.environment.sessions.push(Default::default());
    material.environment.sessions[0].command.push(HOSTILE.to_owned());
    material.environment.sessions[0].host = HOSTILE.to_owned();
    material.unread.push(HOSTILE.to_owned());
    let page = render(material);
    assert_eq!(page.matches("<script").count(), 1, "only our own");
    assert!(!page.contains("<img") && !page.contains('\u{202e}'));
    let shown = "&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;&lt;img src=x";
    assert!(page.matches(shown).count() > 30, "{}", page.matches(shown).count());
    // Whatever is between quotes ends where we end it.
    for tag in page.split('<').skip(1).filter_map(|rest| rest.split('>').next()) {
        if !tag.starts_with(['!', '/']) && !tag.starts_with("style") {
            assert_eq!(tag.matches('"').count() % 2, 0, "<{tag}>");
        }
    }
}

#[test]
fn nothing_is_fetched_from_anywhere() {
    let page = render(material(1));
    for word in ["://", "url(", "@import", " src=", "<link", "<iframe", "<object", "<image"] {
        assert!(!page.contains(word), "{word}");
    }
    assert!(page.contains("default-src &#39;none&#39;"));
    assert!(page.starts_with("<!DOCTYPE html>\n<html lang=\"en\">"));
}

#[test]
fn one_directory_gives_one_text_in_whatever_order_it_is_read() {
    let page = render(material(2));
    assert_eq!(page, render(material(2)));
    let mut turned = material(2);
    turned.cells.reverse();
    assert_eq!(page, render(turned));
}

#[test]
fn the_page_has_everything_in_its_order() {
    let page = render(material(6));
    let order = [
        "<h1>Small</h1>",
        ">Verdict</h2>",
        "Read this with care",
        ">Policies by scenario</h2>",
        "% of the limit</span></caption>",
        ">Scenarios</h2>",
        ">Published, simulated, live</h4>",
        "<h4>Light simulation</h4>",
        ">Latency distributions</h5>",
        ">Over time</h5>",
        "slow: cut",
        ">Circumstances</h2>",
        "title = &quot;Small&quot;",
    ];
    let mut from = 0;
    for part in order {
        let at = page[from..].find(part).unwrap_or_else(|| panic!("{part} is not behind {from}"));
        from += at + part.len();
    }
    let svgs = page.matches("<svg role=\"img\"").count();
    assert_eq!(svgs, 1 + 3 * 3, "one of latencies, three of each variant");
    assert_eq!(page.matches("<desc").count(), svgs);
    assert_eq!(page.matches("<table").count(), page.matches("<caption").count());
}

#[test]
fn live_runs_show_ceilings_processors_and_warnings() {
    let mut material = material(1);
    for cell in &mut material.cells {
        cell.mode = Mode::Live;
        cell.scale_permille = 250;
        cell.cpu = Some(CpuResult { user_ns: 30_000_000, system_ns: 60_000_000, idle_ppm: 90_000 });
        cell.cpu_bound = true;
        cell.errors = 3;
        cell.submission = Latency { p99_ns: 5_000, max_ns: 6_000, ..cell.total.latency.clone() };
        let path = "fast".to_owned();
        let (asked_bytes_s, bytes_s) = (100 << 20, 90 << 20);
        let (asked_delay_ns, delay_ns) = (200_000, 230_000);
        cell.ceilings = vec![Ceiling { path, asked_bytes_s, bytes_s, asked_delay_ns, delay_ns }];
    }
    let page = render(material).replace('\u{a0}', " ");
    for part in [
        "10.0 / 20.0 %",
        "Submission p99",
        "90.0 % of the rate",
        "One path was not what the scenario asks for, measured alone: small, fast",
        "carried most (live), but the machine was the limit, not the links.",
        "3 of 3 rows are CPU-bound (round-robin, queue-depth, service-time): in some run less",
        ", CPU-bound</summary>",
        "Rates were scaled (× 0.25)",
        "9 requests failed",
        "Live (rates × 0.25)",
        "fewer than 6 runs",
        "Short form: windows of 300 ms",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("Nothing here was run live"));
    assert!(!page.contains("For these links, take") && !page.contains(" % of the limit,"));
    assert_eq!(page.matches("–<abbr title=\"CPU-bound\">").count(), 9, "three tables, three rows");
}

#[test]
fn what_does_not_fit_together_is_left_out_and_told() {
    let mut material = material(1);
    let mut odd = material.cells[0].clone();
    odd.ramp_ns += 1;
    odd.run = 99;
    material.cells.push(odd);
    let page = render(material);
    assert!(page.contains("Not read: small, light, round-robin, run 99"), "no caution");
    // Results without their scenario still make a report.
    let page = render(Material { cells: vec![cell(&scenario(), 2, 1)], ..Material::default() });
    assert!(page.contains("<h1>small</h1>") && page.contains("The directory holds none."));
    assert!(render(Material::default()).contains("</html>"));
}

#[test]
fn absurd_figures_make_a_page_all_the_same() {
    let mut material = material(1);
    for cell in &mut material.cells {
        cell.total.bytes_s = u64::MAX;
        cell.total.iops = u64::MAX;
        cell.total.latency.max_ns = u64::MAX;
        cell.total.latency.buckets = vec![(0, 1), (u64::MAX, 1)];
        cell.ramp_ns = u64::MAX;
        cell.series.interval_ns = u64::MAX;
        for path in &mut cell.series.paths {
            path.bytes.fill(u64::MAX);
            path.in_flight_milli.fill(u64::MAX);
            path.mean_ns.fill(u64::MAX);
        }
        for change in &mut cell.changes {
            change.at_ns = u64::MAX;
        }
    }
    let page = render(material);
    assert!(!page.contains("NaN") && !page.contains("inf"), "not a number");
}

#[test]
fn an_hour_on_many_paths_stays_small() {
    let mut material = material(1);
    for cell in &mut material.cells {
        let list: Vec<u64> = (0..72_000u64).map(|n| n * 7919 % 1_000_003).collect();
        cell.series.requests.clone_from(&list);
        let one = PathSeries { bytes: list.clone(), in_flight_milli: list.clone(), mean_ns: list };
        cell.series.paths = vec![one; 64];
        cell.paths = vec![cell.paths[0].clone(); 64];
        let change = cell.changes[0].clone();
        cell.changes = (0..10_000u64)
            .map(|n| crate::result::ChangeResult { at_ns: n * 5_000_000, ..change.clone() })
            .collect();
    }
    let page = render(material);
    assert!(page.len() < 400_000, "{} bytes", page.len());
}

/// Custom properties of the style sheet: light, dark.
fn colours() -> [BTreeMap<String, [f64; 3]>; 2] {
    let style = include_str!("style.css");
    let mut blocks = style.split(":root {").skip(1);
    [(); 2].map(|()| {
        let block = blocks.next().and_then(|rest| rest.split('}').next()).expect("a block");
        let mut found = BTreeMap::new();
        for (name, value) in block.split(';').filter_map(|part| part.split_once(':')) {
            if let Some(hex) = value.trim().strip_prefix('#') {
                let part = |at: usize| {
                    let byte = u8::from_str_radix(&hex[at..at + 2], 16).expect("two digits");
                    f64::from(byte) / 255.0
                };
                let name = name.trim().trim_start_matches("--").to_owned();
                found.insert(name, [part(0), part(2), part(4)]);
            }
        }
        found
    })
}

/// Relative luminance by WCAG 2.
fn luminance(colour: &[f64; 3]) -> f64 {
    let linear = |c: f64| if c <= 0.040_45 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) };
    0.2126 * linear(colour[0]) + 0.7152 * linear(colour[1]) + 0.0722 * linear(colour[2])
}

#[test]
fn the_scale_is_monotone_and_every_text_can_be_read() {
    let mut last = 0;
    for tenth in 0..=1100 {
        let step = step(f64::from(tenth) / 1000.0);
        assert!(step >= last, "{tenth}");
        last = step;
    }
    assert_eq!(last, STEPS.len() - 1);
    assert_eq!(step(0.9799), STEPS.len() - 1, "98.0 has the colour of 98 and more");
    for (theme, falls) in colours().iter().zip([true, false]) {
        let of = |name: &str| luminance(theme.get(name).unwrap_or_else(|| panic!("no {name}")));
        let contrast = |a: &str, b: &str| {
            let (high, low) = (of(a).max(of(b)), of(a).min(of(b)));
            (high + 0.05) / (low + 0.05)
        };
        for at in 0..STEPS.len() {
            let (fill, text) = (format!("h{at}"), format!("h{at}t"));
            assert!(contrast(&fill, &text) >= 4.5, "{fill}: {}", contrast(&fill, &text));
            let before = format!("h{}", at.saturating_sub(1));
            assert!(at == 0 || (of(&fill) < of(&before)) == falls, "{fill}");
        }
        let curves = (0..super::svg::COLOURS).map(|at| format!("c{at}"));
        for name in curves.chain(["ink", "soft", "accent", "rule"].map(str::to_owned)) {
            for ground in ["page", "panel"] {
                let found = contrast(&name, ground);
                assert!(found >= 4.5, "{name} on {ground}: {found}");
            }
        }
        assert!(contrast("ink", "warn") >= 4.5);
    }
}

#[test]
fn labels_keep_apart_in_order_and_inside() {
    let spread_of = |wanted: &[i32]| spread(wanted, 20, 0, 200);
    assert_eq!(spread_of(&[50, 100]), [50, 100]);
    assert_eq!(spread_of(&[100, 100]), [90, 110]);
    assert_eq!(spread_of(&[100, 90, 100]), [96, 76, 116]);
    assert_eq!(spread_of(&[200, 200, 200]), [160, 180, 200]);
    assert_eq!(spread_of(&[0, 0]), [0, 20]);
    assert!(spread_of(&[]).is_empty());
    let many = spread_of(&[100; 9]);
    assert!(many.windows(2).all(|two| two[1] - two[0] == 20), "{many:?}");
}

#[test]
fn curves_are_written_shortly() {
    assert_eq!(path(&[vec![(0, 5), (2, 5), (4, 5), (6, 1), (6, 9)]]), "M0 5h4l2-4v8");
    assert_eq!(path(&[vec![(1, 1)], vec![(3, 3), (4, 4)]]), "M1 1h0M3 3l1 1");
    assert_eq!(path(&[]), "");
}

#[test]
fn axes_end_at_round_numbers() {
    for (value, top) in [(0.0, 1.0), (0.9, 1.0), (1.0, 1.0), (101.0, 200.0), (256.0, 500.0)] {
        assert!((round_up(value) - top).abs() < 1e-9, "{value}: {}", round_up(value));
    }
    let axis = Decades::around(200_000, 90_000_000);
    assert_eq!(axis.ticks(), [1_000_000, 10_000_000, 100_000_000]);
    assert_eq!(Decades::around(1_000_000, 1_000_000).ticks(), [300_000, 1_000_000, 3_000_000]);
    assert!(axis.part(200_000) > 0.0 && axis.part(90_000_000) < 1.0);
}

#[test]
fn numbers_are_written_as_readers_want_them() {
    let plain = |text: String| text.replace(['\u{a0}', '\u{202f}'], " ");
    let times: Vec<String> =
        [0, 999, 1_234, 56_780, 999_600, 33_209_000, 2_500_000_000].map(words::time).into();
    let times: Vec<String> = times.into_iter().map(plain).collect();
    assert_eq!(times, ["0 ns", "999 ns", "1.23 µs", "56.8 µs", "1.00 ms", "33.2 ms", "2.50 s"]);
    assert_eq!(plain(words::exact_time(200_000_000)), "200 ms");
    assert_eq!(plain(words::exact_time(1_500_000_000)), "1.5 s");
    assert_eq!(plain(words::count(1_234_567)), "1 234 567");
    assert_eq!(words::count(1234), "1234");
    assert_eq!(words::mib(276 << 20), "276");
    assert_eq!(words::list(["a", "b", "c"]), "a, b and c");
    assert_eq!(words::short_list(&["a", "b", "c"], 2), "a, b and 1 more");
    assert_eq!(shortened("a long name", 6), "a lon…");
}
