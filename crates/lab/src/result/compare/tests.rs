use super::Judgement::NoDifference;
use super::{ComparedRow, Comparison, Judgement, compare};
use crate::result::Measure;
use crate::result::summary::{Builder, Summary};
use crate::result::{CellResult, tests};

/// One variant, so many runs, each with throughput, p99 and errors as `figures` has them.
fn summary(runs: u64, figures: &dyn Fn(u64) -> (u64, u64, u64)) -> Summary {
    let one = tests::result(&tests::scenario(), 1);
    let mut builder = Builder::default();
    for run in 1..=runs {
        let mut cell = CellResult { run, ..one.clone() };
        (cell.total.bytes_s, cell.total.latency.p99_ns, cell.errors) = figures(run);
        builder.add(&cell).expect("fits");
    }
    builder.finish()
}

fn of(a: &Summary, b: &Summary, tolerance_ppm: u64) -> (Judgement, Comparison) {
    let all = compare(a, b, tolerance_ppm);
    (all.rows[0].is, all)
}

#[test]
fn worse_is_less_throughput_a_higher_percentile_or_more_errors() {
    let a = summary(6, &|run| (1000 + run, 1000, 0));
    assert_eq!(of(&a, &a, 0).0, Judgement::NoDifference);
    let slower = summary(6, &|run| (980 + run, 1000, 0));
    let (is, all) = of(&a, &slower, 0);
    assert_eq!((is, all.worse, all.better), (Judgement::Worse, 1, 0));
    assert_eq!(of(&slower, &a, 0).0, Judgement::Better);
    assert_eq!(of(&a, &slower, 30_000).0, Judgement::NoDifference, "within the tolerance");
    let later = summary(6, &|run| (1000 + run, 1070, 0));
    assert_eq!(of(&a, &later, 0).0, Judgement::Worse);
    let nearly = summary(6, &|run| (1000 + run, 1050, 0));
    assert_eq!(of(&a, &nearly, 0).0, Judgement::NoDifference, "within a bucket");
    let faulty = summary(6, &|run| (2000 + run, 1000, 1));
    assert_eq!(of(&a, &faulty, 0).0, Judgement::Worse);
    let mended = summary(6, &|run| (2000 + run, 1000, 0));
    assert_eq!(of(&faulty, &mended, 0).0, Judgement::Better, "it fails no more");
    assert_eq!(of(&faulty, &a, 0).0, Judgement::Worse, "but at half the throughput");
    let mixed = summary(6, &|run| (if run == 3 { 2000 } else { 900 }, 1000, 0));
    assert_eq!(of(&a, &mixed, 0).0, Judgement::NoDifference, "the interval contains 1");
}

#[test]
fn trims_alone_are_judged_by_their_number() {
    let of_trims = |per_second: u64| {
        let mut summary = summary(6, &|_| (0, 1000, 0));
        let row = &mut summary.tables[0].rows[0];
        row.runs.iter_mut().for_each(|run| run.iops = per_second + run.run);
        row.iops = per_second + 3;
        summary
    };
    let (a, b) = (of_trims(2000), of_trims(1000));
    let (is, all) = of(&a, &b, 0);
    let ComparedRow { throughput_of, throughput, p99, .. } = &all.rows[0];
    assert_eq!((is, throughput.is, p99.is), (Judgement::Worse, Judgement::Worse, NoDifference));
    assert_eq!((*throughput_of, throughput.a, throughput.b), (Measure::Requests, 2003, 1003));
    assert_eq!(of(&b, &a, 0).0, Judgement::Better);
}

#[test]
fn few_runs_tell_only_what_is_plain() {
    let a = summary(2, &|run| (1000 + run, 1000, 0));
    assert_eq!(of(&a, &a, 0).0, Judgement::NoDifference, "they are the same");
    let slower = summary(2, &|run| (980 + run, 1000, 0));
    assert_eq!(of(&a, &slower, 0).0, Judgement::TooFewRuns);
    let half = summary(2, &|run| (500 + run, 1000, 0));
    let (is, all) = of(&a, &half, 0);
    assert_eq!((is, all.rows[0].throughput.ratio.interval), (Judgement::Worse, None));
}

#[test]
fn a_run_in_which_nothing_ended_has_no_percentile() {
    let dead = summary(6, &|_| (0, 0, 0));
    let alive = summary(6, &|run| (1000 + run, 1000, 0));
    let (is, all) = of(&dead, &alive, 0);
    assert_eq!((is, all.rows[0].p99.is), (Judgement::Better, Judgement::NoDifference));
    let (is, all) = of(&alive, &dead, 0);
    assert_eq!((is, all.rows[0].p99.is), (Judgement::Worse, Judgement::NoDifference));
    assert_eq!(of(&dead, &dead, 0).0, Judgement::NoDifference);
}

#[test]
fn failed_requests_are_counted_in_the_runs_that_both_have() {
    let few = summary(2, &|run| (1000 + run, 1000, 1));
    let many = summary(6, &|run| (1000 + run, 1000, 1));
    let (is, all) = of(&few, &many, 0);
    assert_eq!((is, all.rows[0].errors), (Judgement::NoDifference, [2, 2]));
    let worse = summary(6, &|run| (1000 + run, 1000, if run < 3 { 3 } else { 0 }));
    assert_eq!(of(&many, &worse, 0).0, Judgement::NoDifference, "6 and 6 in six runs");
    let (is, all) = of(&few, &worse, 0);
    assert_eq!(is, Judgement::Worse, "2 and 6 in the first two");
    let alone = "small (light): 0 runs of A and 4 of B, which the other one has not";
    assert_eq!(all.left_out, [alone], "nobody should believe that six were compared");
}

#[test]
fn what_has_no_counterpart_is_named() {
    let a = summary(6, &|run| (1000 + run, 1000, 0));
    let mut b = a.clone();
    b.tables[0].window_ns *= 2;
    let all = compare(&a, &b, 0);
    assert_eq!(all.rows, []);
    assert_eq!(all.left_out, ["small (light): A has 300 ms after 100 ms, B 600 ms after 100 ms"]);
    b = a.clone();
    b.tables[0].scenario = "other".to_owned();
    let all = compare(&a, &b, 0);
    assert_eq!(all.left_out, ["small (light) is in A alone", "other (light) is in B alone"]);
    b = a.clone();
    b.tables[0].rows[0].variant = "own".to_owned();
    assert_eq!(compare(&a, &b, 0).left_out.len(), 2);
    b = a.clone();
    b.tables[0].rows[0].runs.iter_mut().for_each(|run| run.run += 100);
    assert!(compare(&a, &b, 0).left_out[0].ends_with("has no run in common"));
}

#[test]
fn a_row_for_which_the_machine_was_the_limit_is_not_judged() {
    let a = summary(6, &|run| (1000 + run, 1000, 0));
    let mut slower = summary(6, &|run| (500 + run, 2000, 0));
    slower.tables[0].rows[0].cpu_bound = true;
    let (is, all) = of(&a, &slower, 0);
    assert_eq!((is, all.worse, all.rows[0].cpu_bound), (Judgement::CpuBound, 0, [false, true]));
    assert_eq!(of(&slower, &a, 0).0, Judgement::CpuBound);
    let mut faulty = summary(6, &|run| (500 + run, 2000, 1));
    faulty.tables[0].rows[0].cpu_bound = true;
    assert_eq!(of(&a, &faulty, 0).0, Judgement::Worse, "requests that fail are no matter of speed");
}
