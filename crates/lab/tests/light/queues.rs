//! Open loops against queueing theory: mean times in the system, to 2 %. The runs have more than a
//! million arrivals, whose mean has a standard error below half a percent.

use super::rig::*;
use anabranch_lab::scenario::{Distribution, Path, Run, Target};
use anabranch_policy::Policy;
use anabranch_target::link::Shape;

const SERVICE_NS: u64 = 10_000;
/// So that a 4 KiB read, with 48 bytes of headers, takes the link for exactly [`SERVICE_NS`].
const LINK: u64 = (4096 + 48) * 8 * 1_000_000_000 / SERVICE_NS;

fn long() -> Run {
    Run { ramp_ns: 100 * MS, window_ns: 20_000 * MS, runs: 1 }
}

fn instant() -> Target {
    Target { servers: None, read_ns: 0, ..Target::default() }
}

fn assert_near(found_ns: u64, expected_ns: f64, what: &str) {
    let off = (found_ns as f64 - expected_ns).abs() / expected_ns;
    assert!(off < 0.02, "{what}: {found_ns} ns, theory says {expected_ns:.0}");
}

#[test]
fn a_link_under_poisson_arrivals_waits_as_m_d_1_says() {
    let shape = Shape { rate_out: Some(LINK), ..Shape::default() };
    let paths = vec![Path { shape, ..Path::new("only") }];
    for percent in [50, 70, 90] {
        let iops = percent * 1000;
        let scenario = anabranch_lab::scenario::Scenario {
            run: long(),
            target: instant(),
            ..scenario(paths.clone(), vec![arrivals(iops)])
        };
        let figures = run_policy(&scenario, Policy::QueueDepth);
        let (load, service) = (percent as f64 / 100.0, SERVICE_NS as f64);
        let wait = load * service / (2.0 * (1.0 - load));
        let of_wait = figures.latency.mean() - SERVICE_NS;
        // Close to full the mean of 20 s is less certain: 4 times the time to forget.
        let tolerance = if percent == 90 { 0.05 } else { 0.02 };
        let off = (of_wait as f64 - wait).abs() / wait;
        assert!(off < tolerance, "{percent} %: waits {of_wait} ns, theory says {wait:.0}");
    }
}

#[test]
fn a_server_with_exponential_times_answers_as_m_m_1_says() {
    for percent in [30, 70] {
        let target = Target {
            servers: Some(1),
            read_ns: SERVICE_NS,
            distribution: Distribution::Exponential,
            ..Target::default()
        };
        let base = scenario(vec![Path::new("only")], vec![arrivals(percent * 1000)]);
        let scenario = anabranch_lab::scenario::Scenario { run: long(), target, ..base };
        let figures = run_policy(&scenario, Policy::RoundRobin);
        let expected = SERVICE_NS as f64 / (1.0 - percent as f64 / 100.0);
        assert_near(figures.latency.mean(), expected, "mean");
        // The time in the system is exponential itself: its deviation is its mean, and half of it
        // is below ln 2 times that. (Histograms are 3 % off at most.)
        assert_near(figures.latency.stdev(), expected, "deviation");
        let median = figures.latency.percentile(50) as f64;
        let off = (median - expected * std::f64::consts::LN_2).abs() / median;
        assert!(off < 0.05, "median {median}");
    }
}

#[test]
fn four_servers_shared_by_two_paths_are_one_m_m_4() {
    let target = Target {
        servers: Some(4),
        read_ns: 4 * SERVICE_NS,
        distribution: Distribution::Exponential,
        ..Target::default()
    };
    let base = scenario(vec![Path::new("a"), Path::new("b")], vec![arrivals(70_000)]);
    let scenario = anabranch_lab::scenario::Scenario { run: long(), target, ..base };
    let figures = run_policy(&scenario, Policy::QueueDepth);
    // Erlang's C for an offered load of 2.8.
    let a: f64 = 2.8;
    let term = |n: i32| a.powi(n) / (1..=n).map(f64::from).product::<f64>();
    let full = term(4) / (1.0 - a / 4.0);
    let waits = full / ((0..4).map(term).sum::<f64>() + full);
    let service = 4.0 * SERVICE_NS as f64;
    assert_near(figures.latency.mean(), service + waits * service / (4.0 - a), "mean");
}

#[test]
fn latency_of_an_open_loop_counts_from_the_intended_start() {
    let shape = Shape { rate_out: Some(LINK), ..Shape::default() };
    let paths = vec![Path { shape, ..Path::new("only") }];
    let base = scenario(paths, vec![arrivals(110_000)]);
    let scenario = anabranch_lab::scenario::Scenario { target: instant(), ..base };
    let figures = run_policy(&scenario, Policy::QueueDepth);
    // A tenth too much for a second: 10,000 requests wait at the end, 0.1 s of work.
    let open = figures.books.requests_open;
    assert!((9_000..11_000).contains(&open), "{open} open");
    let longest = figures.latency.max();
    assert!((80 * MS..110 * MS).contains(&longest), "longest {longest} ns");
    assert_eq!(figures.books.requests_refused, 0);
}
