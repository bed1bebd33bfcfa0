//! Every policy on twenty random scenarios.

use anabranch_lab::evaluate::{Baseline, Evaluation, Options, columns, evaluate, random, variants};

/// Not seeds that anything was tuned with.
const SEEDS: std::ops::RangeInclusive<u64> = 1_001..=1_020;

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
fn policies_that_look_at_what_is_in_flight_hold_more_rows_than_turns() {
    let mut baseline = Baseline::default();
    let all = run("queue-depth", &variants(), &mut baseline);
    assert_eq!(all.rows.len(), 20);
    for row in &all.rows {
        for (policy, outcome) in all.policies.iter().zip(&row.outcomes) {
            let name = (&row.scenario, policy);
            assert!(outcome.requests > 0, "{name:?}: nothing was done");
            // Draws differ a little from their means, and requests of the ramp end in the window.
            let most = row.limit_bytes_s / 100 * 125;
            assert!(outcome.bytes_s <= most, "{name:?}: {} of {most}", outcome.bytes_s);
        }
        assert_eq!(row.throughput_ppm(row.best()), 1_000_000);
    }
    let columns = columns(&all);
    let of = |name: &str| columns.iter().find(|column| column.policy == name).expect("a policy");
    let (depth, turns) = (of("queue-depth"), of("round-robin"));
    assert!(depth.throughput_held > turns.throughput_held, "{depth:#?} {turns:#?}");
    assert!(depth.per_mille(depth.throughput_held) >= 500, "{depth:#?}");

    // What is known need not run again, and is the same; the candidate runs always.
    let kept = baseline.clone();
    assert_eq!(kept.len(), 20 * (all.policies.len() - 1));
    assert_eq!(run("queue-depth", &variants(), &mut baseline), all);
    assert_eq!(baseline, kept);
}

#[test]
fn a_policy_that_is_not_there_is_named() {
    let options =
        Options { candidate: "fastest".to_owned(), policies: Vec::new(), runs: 1, threads: 1 };
    let found = evaluate(&[], &options, &mut Baseline::default()).expect_err("no such policy");
    assert!(found.to_string().contains("\"fastest\"; there are numa, "), "{found}");
}
