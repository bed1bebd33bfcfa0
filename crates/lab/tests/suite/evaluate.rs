//! Every policy on twenty random scenarios.

use anabranch_lab::evaluate::{Baseline, Evaluation, Options, columns, evaluate, random, variants};

/// The first of those that the evidence is made with; nothing was tuned with them.
const SEEDS: std::ops::RangeInclusive<u64> = 56988..=57007;

fn run(candidate: &str, policies: &[String], baseline: &mut Baseline) -> Evaluation {
    let scenarios = random(SEEDS).unwrap_or_else(|mistake| panic!("{mistake}"));
    let options = Options {
        candidate: candidate.to_owned(),
        policies: policies.to_vec(),
        runs: 1,
        threads: 2,
    };
    evaluate(&scenarios, &options, baseline).unwrap_or_else(|problem| panic!("{problem}"))
}

#[test]
fn finish_time_holds_more_rows_than_any_other_policy() {
    let mut baseline = Baseline::default();
    let all = run("finish-time", &variants(), &mut baseline);
    assert_eq!(all.rows.len(), 20);
    for row in &all.rows {
        for (policy, outcome) in all.policies.iter().zip(&row.outcomes) {
            let name = (&row.scenario, policy);
            assert!(outcome.requests > 0, "{name:?}: nothing was done");
            // Draws differ a little from their means, requests of the ramp end in the window, and
            // what a few open requests reach is estimated from the mean of their sizes.
            let most = row.limit_bytes_s / 100 * 150;
            assert!(outcome.bytes_s <= most, "{name:?}: {} of {most}", outcome.bytes_s);
        }
        assert_eq!(row.throughput_ppm(row.best()), 1_000_000);
    }
    let columns = columns(&all);
    let of = |name: &str| columns.iter().find(|column| column.policy == name).expect("a policy");
    let ours = of("finish-time");
    // One knows the weights.
    let others = ["finish-time", "service-time tuned"];
    for other in columns.iter().filter(|column| !others.contains(&column.policy)) {
        assert!(ours.throughput_held >= other.throughput_held, "{ours:#?} {other:#?}");
        assert!(ours.both_held > other.both_held, "{ours:#?} {other:#?}");
    }
    assert!(ours.per_mille(ours.throughput_held) >= 800, "{ours:#?}");
    let (depth, turns) = (of("queue-depth"), of("round-robin"));
    assert!(depth.throughput_held > turns.throughput_held, "{depth:#?} {turns:#?}");

    // What is known need not run again, and is the same; the candidate runs always.
    let kept = baseline.clone();
    assert_eq!(kept.len(), 20 * (all.policies.len() - 1));
    assert_eq!(run("finish-time", &variants(), &mut baseline), all);
    assert_eq!(baseline, kept);
}

#[test]
fn a_policy_that_is_not_there_is_named() {
    let options =
        Options { candidate: "fastest".to_owned(), policies: Vec::new(), runs: 1, threads: 1 };
    let found = evaluate(&[], &options, &mut Baseline::default()).expect_err("no such policy");
    assert!(found.to_string().contains("\"fastest\"; there are numa, "), "{found}");
}
