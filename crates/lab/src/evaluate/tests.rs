use super::*;

fn outcome(mib_s: u64, p99_us: u64) -> Outcome {
    Outcome { bytes_s: mib_s << 20, p99_ns: p99_us * 1000, requests: 1, ..Outcome::default() }
}

fn row(name: &str, outcomes: Vec<Outcome>) -> Row {
    Row {
        scenario: name.to_owned(),
        title: format!("the title of {name}"),
        limit_bytes_s: 1000 << 20,
        bound: String::new(),
        full: true,
        steady: true,
        kinds: outcomes
            .iter()
            .map(|one| one.changes.len())
            .max()
            .map_or(Vec::new(), |changes| vec![Kind::Rate; changes]),
        outcomes,
    }
}

fn evaluation(rows: Vec<Row>) -> Evaluation {
    let policies = ["fast", "even", "late"].map(str::to_owned).to_vec();
    Evaluation { candidate: "even".to_owned(), policies, runs: 1, rows }
}

#[test]
fn a_row_is_compared_with_its_best_and_tails_with_those_near_it() {
    // The shortest tail is paid for with throughput: it is no measure for the others.
    let one = row("one", vec![outcome(1000, 300), outcome(981, 100), outcome(500, 10)]);
    assert_eq!((one.best(), one.best_tail()), (0, 1));
    assert_eq!([0, 1, 2].map(|policy| one.throughput_ppm(policy)), [1_000_000, 981_000, 500_000]);
    assert_eq!([0, 1, 2].map(|policy| one.tail_per_mille(policy)), [3000, 1000, 100]);
    assert_eq!(
        [0, 1, 2].map(|policy| one.holds(policy)),
        [(true, false), (true, true), (false, true)]
    );
    // On the bars.
    let bars = row("bars", vec![outcome(1000, 1000), outcome(980, 1150), outcome(980, 1151)]);
    assert_eq!([1, 2].map(|policy| bars.holds(policy)), [(true, true), (true, false)]);
    // Where nobody gets anything, nobody is worse.
    let none = row("none", vec![outcome(0, 0), outcome(0, 0)]);
    assert_eq!((none.best(), none.holds(1)), (0, (true, true)));
}

#[test]
fn columns_count_rows_and_keep_the_worst() {
    let all = evaluation(vec![
        row("a", vec![outcome(100, 10), outcome(99, 11), outcome(10, 5)]),
        row("b", vec![outcome(100, 10), outcome(90, 10), outcome(100, 90)]),
        row("c", vec![outcome(50, 30), outcome(100, 20), outcome(99, 21)]),
    ]);
    let columns = columns(&all);
    let even = &columns[1];
    assert_eq!((even.throughput_held, even.tail_held, even.both_held), (2, 3, 2));
    assert_eq!(even.per_mille(even.throughput_held), 666);
    assert_eq!(even.lowest.map(|(ppm, row)| (ppm, row.scenario.as_str())), Some((900_000, "b")));
    let late = columns[2].highest.map(|(ratio, row)| (ratio, row.scenario.as_str()));
    assert_eq!(late, Some((9000, "b")));
}

#[test]
fn the_page_says_what_is_missed_and_rounds_against_the_policy() {
    let with = |mut outcome: Outcome, took_ms: [Option<u64>; 2]| {
        let change = |place: usize, lowest_per_mille| Adapted {
            at_ms: [500, 800][place],
            took_ms: took_ms[place],
            lowest_per_mille,
        };
        outcome.changes = vec![change(0, 912), change(1, 0)];
        outcome
    };
    let all = evaluation(vec![
        row(
            "a",
            vec![
                with(outcome(1000, 1000), [Some(50), Some(51)]),
                with(outcome(979, 1000), [Some(35), None]),
                with(outcome(999, 1151), [None, Some(0)]),
            ],
        ),
        row("random-1", vec![outcome(1000, 1000), outcome(1000, 1200), outcome(999, 900)]),
    ]);
    let page = page(&all);
    for line in [
        "- 98 % of the best throughput in 50.0 % of the rows (goal: 97 %): **missed**",
        "Of 1 scenarios written by hand: throughput in 0.0 %, at least 97.9 %; p99 in 100.0 %.",
        "Of 1 random ones: throughput in 100.0 %, at least 100.0 %; p99 in 0.0 %.",
        "- never below 97.9 % of it (goal: 95 %): reached",
        "| a | the title of a | **97.9 %** | 1000 MiB/s: fast | 1000 = 1.00 x | 1000: fast |",
        "| random-1 | the title of random-1 | 100.0 % | 1000 MiB/s: fast | 1200 = **1.34 x** \
         | 900: late |",
        "| another rate | 2 | 50 ms | 1 | 2 | a |",
        "| a | 500 another rate, 800 another rate | 50 (91), 51 (0) | 35 (91), never (0) | \
         never (91), 0 (0) |",
        "2 closed loops without changes are bound by the sum of the links; `even` has 97 % of it \
         in 2.",
        "| a | 1000 | 1000 fast | 100.0 / 1.00 | **97.9** / 1.00 | 99.9 / **1.16** |",
    ] {
        assert!(page.lines().any(|one| one == line), "no line {line:?} in\n{page}");
    }
}

#[test]
fn the_page_says_how_it_is_without_those_that_are_told_the_weights() {
    let told = |name: &str| Evaluation {
        policies: ["fast", "even", name].map(str::to_owned).to_vec(),
        ..evaluation(vec![
            row("a", vec![outcome(950, 11), outcome(960, 9), outcome(1000, 20)]),
            row("b", vec![outcome(1000, 10), outcome(910, 10), outcome(1000, 5)]),
            row("c", vec![outcome(500, 20), outcome(1000, 10), outcome(1000, 5)]),
        ])
    };
    let lines = "\nBeside policies that nobody tells the weights: throughput in 66.6 %, \
                 at least 91.0 %;\np99 in 100.0 %; both in 66.6 %, next `fast` in 33.3 %.\n";
    let page = |name| page(&told(name));
    assert!(page("fast tuned").contains(lines), "{}", page("fast tuned"));
    assert!(!page("late").contains("nobody tells the weights"), "nobody is told: {}", page("late"));
}

#[test]
fn medians_are_figure_by_figure() {
    let runs = [outcome(10, 5), outcome(30, 1), outcome(20, 9)].map(|mut outcome| {
        let took_ms = (outcome.p99_ns > 1000).then_some(outcome.p99_ns / 1000);
        outcome.changes = vec![Adapted { at_ms: 7, took_ms, lowest_per_mille: 900 }];
        outcome
    });
    let median = Outcome::median(&runs);
    assert_eq!((median.bytes_s, median.p99_ns), (20 << 20, 5000));
    assert_eq!(median.changes[0].took_ms, Some(9), "never is the longest time");
    assert_eq!(Outcome::median(&[]), Outcome::default());
}
