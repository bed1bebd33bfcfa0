use super::{Builder, Row, Summary, Table};
use crate::cell::Cell;
use crate::light;
use crate::result::Measure::{Payload, Requests};
use crate::result::stats::Difference;
use crate::result::verdict::Verdict;
use crate::result::{AdaptationResult, CellResult, Circumstances, CpuResult, Mode, tests};
use crate::scenario::Scenario;

fn cells(scenario: &Scenario, runs: u64) -> Vec<CellResult> {
    let all =
        scenario.variants.iter().flat_map(|variant| (1..=runs).map(move |run| (variant, run)));
    all.map(|(variant, seed)| {
        let cell = Cell { scenario, variant, seed };
        let figures = light::run(cell).expect("a cell that can be run");
        CellResult::new(cell, &figures, &Circumstances::simulated(Mode::Light))
    })
    .collect()
}

fn summary(cells: &[CellResult]) -> Summary {
    let mut builder = Builder::default();
    cells.iter().for_each(|cell| builder.add(cell).expect("fits"));
    builder.finish()
}

fn row<'a>(table: &'a Table, name: &str) -> &'a Row {
    table.rows.iter().find(|row| row.variant == name).expect("a row")
}

#[test]
fn a_table_says_the_same_in_whatever_order_cells_come() {
    let scenario = tests::scenario();
    let mut cells = cells(&scenario, 6);
    let first = summary(&cells);
    cells.reverse();
    assert_eq!(summary(&cells), first);
    let text = serde_json::to_string(&first).expect("plain data");
    assert_eq!(serde_json::from_str::<Summary>(&text).expect("its own text"), first);
    let [table] = first.tables.as_slice() else { panic!("one table") };
    assert_eq!((table.rows.len(), table.hosts, table.changes), (scenario.variants.len(), 1, 1));
    let names: Vec<_> = table.rows.iter().map(|row| row.variant.as_str()).collect();
    let tuned = names.iter().position(|name| *name == "service-time tuned").expect("a row");
    assert_eq!(names[tuned - 1], "service-time", "beside its policy");
    let best = row(table, &table.verdict.best);
    assert!(table.rows.iter().all(|row| row.bytes_s <= best.bytes_s));
    assert_eq!((best.of_best_ppm, best.to_best_is), (1_000_000, Difference::None));
    // A path of 400 and one of 100 Mbit/s: round-robin keeps the fast one waiting.
    let turns = row(table, "round-robin");
    assert_eq!(turns.to_best_is, Difference::Less);
    assert_eq!(turns.to_best.interval.expect("six runs").confidence_ppm, 968_750);
    assert_eq!(turns.shares.iter().map(|share| share.share_ppm).sum::<u64>().div_ceil(10), 100_000);
}

#[test]
fn the_figures_of_a_row_are_those_of_its_runs() {
    let scenario = tests::scenario();
    let mut cells = cells(&scenario, 3);
    cells.retain(|cell| cell.variant == "numa");
    for (cell, (bytes_s, took)) in cells.iter_mut().zip([(70, Some(5)), (50, None), (90, Some(8))])
    {
        cell.total.bytes_s = bytes_s;
        cell.limit.bytes_s = 100;
        cell.total.requests = 10;
        cell.cpu = Some(CpuResult { user_ns: 3000, system_ns: 6000, idle_ppm: 100 * bytes_s });
        cell.cpu_bound = cell.run == 2;
        cell.errors = cell.run;
        cell.adaptations = vec![AdaptationResult { at_ns: 0, limit_bytes_s: 1, took_ns: took }];
    }
    let all = summary(&cells);
    let row = row(&all.tables[0], "numa");
    assert_eq!((row.bytes_s, row.of_limit_ppm), (70, 700_000));
    let cpu = row.cpu.expect("figures of processors");
    assert_eq!((cpu.user_ns_per_request, cpu.system_ns_per_request), (300, 600));
    assert_eq!((cpu.user_ppm, cpu.system_ppm, cpu.idle_ppm), (10, 20, 5000));
    assert_eq!((row.adapt_median_ns, row.adapt_worst_ns, row.never_adapted), (Some(8), None, 1));
    assert_eq!((row.errors, row.cpu_bound), (6, true));
    assert_eq!(all.tables[0].verdict.text, "only numa was run: there is nothing to compare");
}

#[test]
fn the_verdict_claims_no_more_than_the_interval() {
    let scenario = tests::scenario();
    let cells = cells(&scenario, 6);
    let verdict = |figures: &dyn Fn(&CellResult) -> (u64, u64), runs: u64| {
        let mut cells = cells.clone();
        cells.retain(|cell| {
            ["numa", "round-robin", "queue-depth"].contains(&cell.variant.as_str())
                && cell.run <= runs
        });
        for cell in &mut cells {
            let (bytes_s, p99_ns) = figures(cell);
            (cell.total.bytes_s, cell.total.latency.p99_ns) = (bytes_s, p99_ns);
            cell.total.latency.buckets = vec![(p99_ns, cell.total.requests)];
        }
        summary(&cells).tables[0].verdict.clone()
    };
    let clear = |cell: &CellResult| match cell.variant.as_str() {
        "queue-depth" => (1100 + cell.run, 10),
        "numa" => (1000, 10),
        _ => (500, 10),
    };
    assert_eq!(
        verdict(&clear, 6).text,
        "best: queue-depth, 1.104 x numa in throughput (95 % interval 1.101 to 1.106)"
    );
    assert_eq!(
        verdict(&clear, 1).text,
        "best: queue-depth, 1.101 x numa in throughput (1 run: no interval)"
    );
    let wide = |cell: &CellResult| match (cell.variant.as_str(), cell.run) {
        ("round-robin", 1..=3) => (500, 10),
        ("round-robin", _) => (1300, 10),
        _ => clear(cell),
    };
    assert_eq!(
        verdict(&wide, 6).text,
        "best: queue-depth, 1.104 x numa in throughput (95 % interval 1.101 to 1.106); no \
         difference can be shown to round-robin"
    );
    let calm = |cell: &CellResult| match cell.variant.as_str() {
        "round-robin" => (wide(cell).0, 4),
        _ => wide(cell),
    };
    let tail = "; no difference can be shown to round-robin; of these round-robin has the lowest \
                p99, 0.400 x queue-depth (95 % interval 0.400 to 0.400)";
    let text = verdict(&calm, 6).text;
    assert!(text.ends_with(tail), "{text}");
    let near = |cell: &CellResult| match cell.variant.as_str() {
        "queue-depth" => (1000, 10),
        "numa" => (995, 5),
        _ => (500, 1),
    };
    assert_eq!(
        verdict(&near, 1).text,
        "within 1 % in throughput: queue-depth, numa (1 run: no interval); of these numa had the \
         lowest p99, 0.500 x queue-depth"
    );
    let equal = |cell: &CellResult| match (cell.variant.as_str(), cell.run) {
        ("queue-depth", 1) => (999, 100),
        ("queue-depth", _) => (1001, 100),
        ("numa", _) => (1000, 50),
        _ => (500, 10),
    };
    let found = verdict(&equal, 6);
    assert_eq!(
        (found.is, found.equal),
        (Difference::None, vec!["queue-depth".into(), "numa".into()])
    );
    let calmest = found.calmest.expect("two equal rows");
    assert_eq!(calmest.ratio.pairs, 6);
    assert!(found.text.starts_with("no difference in throughput between queue-depth, numa; "));
}

#[test]
fn a_lead_that_nobody_would_notice_is_none() {
    let scenario = tests::scenario();
    let verdict = |lead: u64, runs: u64| {
        let mut cells = cells(&scenario, runs);
        cells.retain(|cell| ["numa", "queue-depth"].contains(&cell.variant.as_str()));
        for cell in &mut cells {
            let figures = if cell.variant == "numa" { (1_000_000, 50) } else { (lead, 100) };
            (cell.total.bytes_s, cell.total.latency.p99_ns) = figures;
        }
        summary(&cells).tables[0].verdict.clone()
    };
    let found = verdict(1_000_400, 6);
    assert_eq!((found.is, found.equal.len()), (Difference::None, 2));
    assert_eq!(found.calmest.expect("of two").variant, "numa");
    assert!(found.text.starts_with("no difference in throughput between all of them; of these"));
    let Verdict { text, remarks, .. } = verdict(1_000_600, 6);
    assert!(text.starts_with("best: queue-depth, 1.001 x numa"), "{text}");
    let tail = "if the tail matters more: numa has a lower p99, 0.500 x queue-depth (95 % interval \
                0.500 to 0.500), at 99.9 % of its throughput";
    assert_eq!(remarks, [tail], "who chooses may look at that");
    assert_eq!(verdict(1_000_600, 1).remarks, [""; 0], "one run tells nothing");
    assert_eq!(verdict(1_000_400, 1).is, Difference::Unknown, "one run tells nothing");
}

/// Policies that do the same on some links have the same tail.
#[test]
fn of_equals_one_with_the_lowest_tail_is_taken_though_it_shares_it() {
    let scenario = tests::scenario();
    let mut cells = cells(&scenario, 6);
    cells.retain(|cell| ["numa", "queue-depth", "latency"].contains(&cell.variant.as_str()));
    for cell in &mut cells {
        let p99_ns = if cell.variant == "numa" { 1000 } else { 500 };
        (cell.total.bytes_s, cell.total.latency.p99_ns) = (1000, p99_ns);
        cell.total.latency.buckets = vec![(p99_ns, cell.total.requests)];
    }
    let Verdict { best, choice, text, remarks, .. } = summary(&cells).tables[0].verdict.clone();
    assert_eq!((best.as_str(), choice.as_str(), remarks), ("numa", "queue-depth", vec![]));
    let wanted = "; nor in p99 between queue-depth and latency, the lowest of these; queue-depth \
                  has a lower p99, 0.500 x numa (95 % interval 0.500 to 0.500)";
    assert!(text.ends_with(wanted), "{text}");
    cells.iter_mut().for_each(|cell| cell.total.latency.p99_ns = 1000);
    assert_eq!(summary(&cells).tables[0].verdict.choice, "numa", "they are all the same");
}

/// Where nothing is drawn, runs differ in their seeds alone.
#[test]
fn runs_that_are_alike_have_no_interval_to_speak_of() {
    let one = tests::result(&tests::scenario(), 1);
    let cell = |variant: &str, run: u64, bytes_s: u64, mean_ns: u64| {
        let mut cell = CellResult { variant: variant.to_owned(), run, ..one.clone() };
        (cell.total.bytes_s, cell.total.latency.mean_ns) = (bytes_s, mean_ns);
        cell
    };
    let verdict = |spread: u64| {
        let runs = (1..=6)
            .flat_map(|run| [cell("a", run, 1000, 50), cell("b", run, 900, 60 + run * spread)]);
        summary(&runs.collect::<Vec<_>>()).tables[0].verdict.clone()
    };
    let Verdict { is, text, ratio, .. } = verdict(0);
    assert_eq!(text, "best: a, 1.111 x b in throughput (6 runs alike: no spread was measured)");
    assert_eq!((is, ratio.expect("of two").alike), (Difference::More, true));
    let Verdict { text, .. } = verdict(1);
    assert_eq!(text, "best: a, 1.111 x b in throughput (95 % interval 1.111 to 1.111)");
}

/// It asked for that before the window, and waited.
#[test]
fn no_row_is_the_best_for_more_than_the_load_asks_for() {
    let scenario = tests::scenario();
    let mut cells = cells(&scenario, 6);
    cells.retain(|cell| ["numa", "queue-depth", "latency"].contains(&cell.variant.as_str()));
    for cell in &mut cells {
        // Arrivals of a run are more or less than their mean.
        let arrived = 99_700 + 100 * cell.run;
        let (bytes_s, p99_ns) = match cell.variant.as_str() {
            "queue-depth" => (arrived, 500),
            "numa" => (arrived * 3 / 4, 5000),
            _ => (arrived + 2000, 2000),
        };
        (cell.total.bytes_s, cell.total.latency.p99_ns) = (bytes_s, p99_ns);
        cell.total.latency.buckets = vec![(p99_ns, cell.total.requests)];
        cell.limit.bytes_s = 100_000;
    }
    let most = summary(&cells).tables[0].clone();
    assert_eq!((most.verdict.choice.as_str(), most.notes), ("latency", vec![]));
    cells.iter_mut().for_each(|cell| cell.limit.is_all_asked_for = true);
    let table = summary(&cells).tables[0].clone();
    let Verdict { choice, equal, text, .. } = &table.verdict;
    assert_eq!((choice.as_str(), equal.len()), ("queue-depth", 2), "{text}");
    let latency = row(&table, "latency");
    assert_eq!((latency.of_limit_ppm, latency.of_best_ppm), (1_020_500, 1_000_000));
    assert_eq!(row(&table, "numa").of_best_ppm, 750_370);
    let [note] = table.notes.as_slice() else { panic!("{:?}", table.notes) };
    assert!(note.contains("the window: latency worked off"), "{note}");
}

/// One that costs next to nothing, and one that costs more and is worth it for some.
#[test]
fn shorter_tails_than_that_of_the_best_are_told() {
    let scenario = tests::scenario();
    let all = cells(&scenario, 6);
    let remarks = |near: u64, far: u64| {
        let mut cells = all.clone();
        cells.retain(|cell| ["numa", "queue-depth", "latency"].contains(&cell.variant.as_str()));
        for cell in &mut cells {
            let figures = match cell.variant.as_str() {
                "queue-depth" => (1_000_000, 1000),
                "numa" => (995_000, near),
                _ => (600_000, far),
            };
            (cell.total.bytes_s, cell.total.latency.p99_ns) = figures;
            cell.total.latency.buckets = vec![(figures.1, cell.total.requests)];
        }
        let found = summary(&cells).tables[0].verdict.remarks.clone();
        found.iter().map(|one| one.split(" (95").next().unwrap_or(one).to_owned()).collect()
    };
    let near = "if the tail matters more: numa has a lower p99, 0.900 x queue-depth";
    let far = "if the tail matters more: latency has a lower p99, 0.700 x queue-depth";
    let found: [Vec<String>; 5] =
        [(900, 700), (900, 800), (1000, 700), (1000, 850), (950, 1000)].map(|(n, f)| remarks(n, f));
    assert_eq!(found, [vec![near, far], vec![near], vec![far], vec![], vec![]]);
}

#[test]
fn whose_requests_failed_is_told() {
    let one = tests::result(&tests::scenario(), 1);
    let cell = |variant: &str, errors, bytes_s| {
        let mut cell = CellResult { variant: variant.to_owned(), errors, ..one.clone() };
        (cell.total.bytes_s, cell.total.iops) = (bytes_s, bytes_s);
        cell
    };
    let told = |bytes_s| {
        let cells = [cell("a", 5, bytes_s), cell("b", 0, bytes_s), cell("c, d", 7, bytes_s)];
        summary(&cells).tables[0].verdict.remarks.clone()
    };
    let wanted = "requests failed, and are in no figure: 5 a, 7 \"c, d\"";
    assert_eq!([told(1000), told(0)], [[wanted], [wanted]], "also where all of them did");
}

#[test]
fn where_the_machine_was_the_limit_the_verdict_says_so() {
    let scenario = tests::scenario();
    let mut cells = cells(&scenario, 6);
    cells.retain(|cell| ["numa", "queue-depth"].contains(&cell.variant.as_str()));
    for cell in &mut cells {
        cell.total.bytes_s = if cell.variant == "numa" { 1000 } else { 2000 };
        cell.total.latency.p99_ns = 10;
        cell.cpu_bound = cell.variant == "numa" && cell.run == 3;
    }
    let Verdict { text, remarks, .. } = summary(&cells).tables[0].verdict.clone();
    assert!(text.starts_with("most, but CPU-bound: queue-depth, 2.000 x numa"), "{text}");
    let [said] = remarks.as_slice() else { panic!("{remarks:?}") };
    assert!(said.starts_with("1 of 2 rows are CPU-bound (numa): in some run less than"), "{said}");
}

#[test]
fn where_nothing_was_carried_no_policy_is_praised() {
    let scenario = tests::scenario();
    let verdict = |carrying: u64| {
        let mut cells = cells(&scenario, 3);
        for cell in &mut cells {
            let carries = u64::from(cell.run <= carrying);
            cell.total.bytes_s *= carries;
            cell.total.iops *= carries;
        }
        summary(&cells).tables[0].verdict.clone()
    };
    assert_eq!(verdict(0).text, "no request ended: there is nothing to compare");
    assert_eq!(verdict(1).text, "in most runs no request ended: there is nothing to compare");
    for Verdict { best, equal, calmest, .. } in [verdict(0), verdict(1)] {
        assert_eq!((best.as_str(), equal.len(), calmest), ("", 0, None));
    }
}

#[test]
fn trims_alone_have_no_payload_and_are_ranked_by_their_number() {
    let scenario = tests::scenario();
    let mut cells = cells(&scenario, 6);
    for cell in &mut cells {
        let per_second = if cell.variant == "queue-depth" { 2000 } else { 1000 };
        (cell.total.iops, cell.total.bytes_s) = (per_second + cell.run, 0);
        (cell.limit.iops, cell.limit.bytes_s) = (4000, 0);
        for (path, commands) in cell.paths.iter_mut().zip([300, 100]) {
            (path.bytes, path.commands) = (0, commands);
        }
    }
    let found = summary(&cells);
    let table = &found.tables[0];
    assert_eq!((table.throughput_of, table.verdict.best.as_str()), (Requests, "queue-depth"));
    let text = &table.verdict.text;
    assert!(
        text.starts_with("best: queue-depth, 1.99") && text.contains("in requests per"),
        "{text}"
    );
    let numa = row(table, "numa");
    assert_eq!((numa.of_limit_ppm, numa.of_best_ppm / 1000), (250_750, 500));
    let shares: Vec<_> = numa.shares.iter().map(|share| share.share_ppm).collect();
    assert_eq!((numa.to_best_is, shares), (Difference::Less, vec![750_000, 250_000]));
    // One run of them all that moves payload: that is what counts.
    cells[0].total.bytes_s = 1;
    assert_eq!(summary(&cells).tables[0].throughput_of, Payload);
}

#[test]
fn cells_of_another_length_or_twice_are_refused() {
    let scenario = tests::scenario();
    let one = tests::result(&scenario, 1);
    let mut builder = Builder::default();
    builder.add(&one).expect("the first");
    assert_eq!(builder.add(&one), Err("is there twice".to_owned()));
    let mut other = tests::result(&scenario, 2);
    other.window_ns += 1;
    assert!(builder.add(&other).expect_err("another window").contains("window"));
    assert_eq!(Builder::default().finish().tables, []);
}

#[test]
fn rows_with_different_runs_are_ranked_by_those_that_they_share() {
    let one = tests::result(&tests::scenario(), 1);
    let cell = |variant: &str, run: u64, bytes_s: u64| {
        let mut cell = CellResult { variant: variant.to_owned(), run, ..one.clone() };
        cell.total.bytes_s = bytes_s;
        cell
    };
    // In each run that both have `a` is ahead; what `b` has beside them are easier seeds.
    let mut all: Vec<CellResult> = (1..=6).map(|run| cell("a", run, 1000 + run)).collect();
    all.extend((1..=6).map(|run| cell("b", run, 900 + run)));
    all.extend((7..=15).map(|run| cell("b", run, 2000 + run)));
    let found = summary(&all);
    let table = &found.tables[0];
    let Verdict { best, next, is, text, .. } = &table.verdict;
    assert_eq!((best.as_str(), next.as_deref(), *is), ("a", Some("b"), Difference::More), "{text}");
    assert_eq!(row(table, "a").of_best_ppm, 1_000_000);
    assert!((890_000..910_000).contains(&row(table, "b").of_best_ppm));
    assert!(table.notes[0].contains("6 to 15 runs"), "{:?}", table.notes);
}

/// Cells that failed may leave no run that both have.
#[test]
fn of_rows_without_a_run_in_common_no_ratio_is_told() {
    let one = tests::result(&tests::scenario(), 1);
    let cell = |variant: &str, run: u64, bytes_s: u64| {
        let mut cell = CellResult { variant: variant.to_owned(), run, ..one.clone() };
        (cell.total.bytes_s, cell.total.iops) = (bytes_s, bytes_s);
        cell
    };
    let found = summary(&[cell("a", 1, 1000), cell("b", 2, 500)]);
    let table = &found.tables[0];
    assert_eq!((row(table, "a").of_best_ppm, row(table, "b").of_best_ppm), (1_000_000, 500_000));
    let wanted = "most: a in throughput; it has no run in common with b, the next one: by how much \
                  cannot be said";
    assert_eq!(table.verdict.text, wanted);
    let dead = summary(&[cell("a", 1, 0), cell("b", 1, 0)]);
    assert_eq!(row(&dead.tables[0], "b").of_best_ppm, 0, "none is as good as the best");
}

#[test]
fn a_run_in_which_nothing_ended_has_no_tail() {
    let one = tests::result(&tests::scenario(), 1);
    let mut all = Vec::new();
    for (variant, run) in ["a", "b"].into_iter().flat_map(|one| (1..=9).map(move |run| (one, run)))
    {
        let mut cell = CellResult { variant: variant.to_owned(), run, ..one.clone() };
        if variant == "b" && run == 5 {
            (cell.total.bytes_s, cell.total.latency.p99_ns) = (0, 0);
        }
        all.push(cell);
    }
    let calmest = summary(&all).tables[0].verdict.calmest.clone().expect("of two");
    assert_eq!((calmest.ratio.pairs, calmest.ratio.max_ppm), (8, 1_000_000));
}

#[test]
fn pairs_decide_where_medians_say_otherwise() {
    let one = tests::result(&tests::scenario(), 1);
    let mut all = Vec::new();
    // `b` is ahead of `a` in eight runs of nine, and the median of `a` is higher.
    let a = [100, 200, 300, 350, 500, 510, 520, 530, 540];
    let b = [110, 220, 330, 380, 400, 520, 530, 540, 550];
    for (run, (a, b)) in (1..).zip(a.into_iter().zip(b)) {
        for (variant, bytes_s) in [("a", a), ("b", b)] {
            let mut cell = CellResult { variant: variant.to_owned(), run, ..one.clone() };
            cell.total.bytes_s = bytes_s;
            all.push(cell);
        }
    }
    let verdict = &summary(&all).tables[0].verdict;
    assert_eq!((verdict.best.as_str(), verdict.is), ("b", Difference::More), "{}", verdict.text);
}
