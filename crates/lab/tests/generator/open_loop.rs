//! Open loops: Poisson arrivals, whatever is in flight; latency from the intended start.

use crate::fake::{Device, Fake, MS, SECOND, US};
use crate::{plan, reads, scenario};
use anabranch_lab::generator::{MAX_OPEN, Plan};
use anabranch_lab::pace::{self, Chains};
use anabranch_lab::scenario::{Arrival, Job, Scenario};

fn arrivals(iops: u64, clones: u32) -> Job {
    Job { arrival: Arrival::Poisson { iops }, ..reads(1, clones) }
}

/// Arrivals of the first job before an end, as the seed gives them.
fn intended(scenario: &Scenario, end: u64) -> Vec<u64> {
    let mut chain = Chains::new(1, scenario.paths.len()).load;
    let mut load = pace::load_of_host(&scenario.jobs, scenario.hosts.workers, &mut chain);
    let source = &mut load.sources[0];
    std::iter::repeat_with(|| source.next_ns()).take_while(|at| *at < end).collect()
}

#[test]
fn requests_start_when_the_seed_says_and_with_the_mean_asked_for() {
    let scenario = scenario(3, vec![arrivals(50_000, 2)]);
    let mut fake = Fake::new(3, Device::new(20 * MS));
    let figures = fake.run(plan(&scenario));
    let mut starts: Vec<u64> = fake.taken.iter().flatten().map(|taken| taken.at_ns).collect();
    starts.sort_unstable();
    assert_eq!(starts, intended(&scenario, SECOND));
    // The standard deviation of the number is 224.
    assert!(starts.len().abs_diff(50_000) < 1000, "{}", starts.len());
    // The two clones take turns on two workers.
    let of = |worker| fake.taken.iter().flatten().filter(|taken| taken.worker == worker).count();
    assert!(of(1).abs_diff(of(2)) <= 1 && of(3) == 0);
    let latency = &figures.jobs[0][0].latency;
    assert_eq!((latency.min(), latency.max()), (20 * MS, 20 * MS));
    assert_eq!(figures.waited, 0);
}

#[test]
fn latency_counts_from_the_intended_start() {
    // One request at a time, and more of them than one at a time can serve.
    let scenario = scenario(1, vec![arrivals(2200, 1)]);
    let device = Device { room: 1, ..Device::new(500 * US) };
    let figures = Fake::new(1, device).run(plan(&scenario));
    let (mut free, mut sums, mut counts, mut waited) = (0, [0; 2], [0; 2], 0);
    for at in intended(&scenario, SECOND) {
        let taken = at.max(free);
        waited += u64::from(taken > at);
        free = taken + 500 * US;
        for (index, (then, value)) in [(taken, taken - at), (free, free - at)].iter().enumerate() {
            if (100 * MS..SECOND).contains(then) {
                sums[index] += value;
                counts[index] += 1;
            }
        }
    }
    let latency = &figures.jobs[0][0].latency;
    assert_eq!((figures.submission.count(), latency.count()), (counts[0], counts[1]));
    assert_eq!((figures.submission.sum(), latency.sum()), (sums[0].into(), sums[1].into()));
    assert!(latency.max() > 50 * MS, "{}", latency.max());
    assert!(waited > 1000);
    assert_eq!(figures.waited, waited);
    assert!(figures.books.requests_open > 100);
}

#[test]
fn what_finds_the_table_full_is_refused_and_counted() {
    let scenario = scenario(1, vec![arrivals(200_000, 1)]);
    let device = Device { room: 1, ..Device::new(2 * SECOND) };
    let mut fake = Fake::new(1, device);
    let figures = fake.run(Plan { window_ns: 500 * MS, ..plan(&scenario) });
    let books = figures.books;
    assert_eq!(books.requests_open, MAX_OPEN as u64);
    let all = intended(&scenario, 600 * MS).len() as u64;
    assert_eq!(books.requests_refused, all - MAX_OPEN as u64);
}

#[test]
fn open_and_closed_loops_share_a_worker() {
    let jobs = vec![reads(4, 1), Job { name: "open".to_owned(), ..arrivals(5000, 1) }];
    let figures = Fake::new(1, Device::new(MS)).run(plan(&scenario(1, jobs)));
    assert_eq!(figures.jobs[0][0].requests(), 4 * 900);
    let open = figures.jobs[1][0].requests();
    assert!(open.abs_diff(4500) < 300, "{open}");
}
