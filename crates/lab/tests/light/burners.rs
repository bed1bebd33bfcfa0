//! Burners: what workers would handle or submit in a stretch that is stolen waits for its end.

use super::rig::*;
use anabranch_lab::light::{Cell, run};
use anabranch_lab::scenario::{Burner, BurnerMode, Hosts, Job, Path, Scenario, Target};
use anabranch_policy::Policy;

const US: u64 = 1000;

fn burner(load_percent: u32, chunk_ns: u64, clones: u32) -> Burner {
    Burner { name: "cpu".to_owned(), load_percent, chunk_ns, mode: BurnerMode::Noop, clones }
}

/// Reads of 100 us on one path, on so many workers.
fn quick(workers: u32, jobs: Vec<Job>, burners: Vec<Burner>) -> Scenario {
    let target = Target { read_ns: 100 * US, ..Target::default() };
    let hosts = Hosts { workers, nodes: vec![0; workers as usize], ..Hosts::default() };
    Scenario { target, hosts, burners, ..scenario(vec![Path::new("only")], jobs) }
}

#[test]
fn a_worker_that_has_half_of_its_time_does_half() {
    let quick = quick(1, vec![reads(4096, 1, 1)], vec![burner(50, MS, 1)]);
    let figures = run_policy(&quick, Policy::Numa);
    // 10 of 100 us begin in each free millisecond; the last one's reply waits for the next.
    assert!(figures.requests.abs_diff(4500) <= 10, "{} requests", figures.requests);
    assert_eq!(figures.latency.min(), 100 * US);
    assert_eq!(figures.latency.max(), 1100 * US);
}

#[test]
fn many_requests_in_flight_lose_only_time() {
    // What is in flight goes on in a stretch, and all of it is handled at its end.
    let quick = quick(1, vec![reads(4096, 100, 1)], vec![burner(50, 100 * US, 1)]);
    let figures = run_policy(&quick, Policy::Numa);
    // A period of 200 us has one round trip of 100 us and what is left of the stretch.
    assert!(figures.requests.abs_diff(450_000) <= 1000, "{} requests", figures.requests);
}

#[test]
fn a_burner_on_one_worker_leaves_the_others_alone() {
    let on = |worker| Job { workers: vec![worker], ..reads(4096, 1, 1) };
    let quick = quick(2, vec![on(0), on(1)], vec![burner(50, MS, 1)]);
    let figures = run_policy(&quick, Policy::Numa);
    let requests = [0, 1].map(|job: usize| figures.jobs[job][0].requests());
    assert!(requests[0].abs_diff(4500) <= 10, "{requests:?}");
    assert!(requests[1].abs_diff(9000) <= 1, "{requests:?}");
}

#[test]
fn an_open_loop_counts_the_time_without_a_cpu() {
    let quick = quick(1, vec![arrivals(10_000)], vec![burner(80, 2 * MS, 1)]);
    let figures = run_policy(&quick, Policy::QueueDepth);
    assert!(figures.requests > 8000);
    // Intended at the beginning of a stretch: submitted at its end, answered in the gap.
    assert!(figures.latency.max() <= 2 * MS + 100 * US + 2 * MS);
    assert!(figures.latency.max() > 2 * MS);
    // Of 2.5 ms, 2 are stolen, which makes the mean wait for the CPU 2 * 0.8 / 2 = 0.8 ms.
    let waits = figures.latency.mean() - 100 * US;
    assert!(waits.abs_diff(800 * US) < 300 * US, "{waits} ns");
}

#[test]
fn the_books_balance_with_burners_whatever_happens() {
    let scenario = Scenario { burners: vec![burner(85, 700 * US, 4)], ..super::books::eventful() };
    for policy in Policy::ALL {
        for variant in [plain(policy, 3), exact(policy, 3)] {
            let books = run_variant(&scenario, &variant, 1).books;
            assert!(books.commands_lost > 0 && books.requests_ended > 1000, "{books:?}");
        }
    }
}

#[test]
fn what_jobs_ask_for_is_the_same_with_burners() {
    let asked = |burners| {
        let scenario = quick(1, vec![arrivals(5000)], burners);
        run_policy(&scenario, Policy::Numa).books.requests_started
    };
    assert_eq!(asked(Vec::new()), asked(vec![burner(30, 100 * US, 1)]));
    let most = quick(2, vec![reads(4096, 1, 1)], vec![burner(85, 50 * MS, 32)]);
    let cell = Cell { scenario: &most, variant: &plain(Policy::Numa, 1), seed: 1 };
    assert!(cell.left_out()[0].starts_with("burners take less than they ask for"));
    assert!(run(cell).expect("it runs").requests > 0);
}
