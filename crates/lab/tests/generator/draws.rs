//! The same seed asks for the same as the light simulation does.

use crate::fake::{BEGIN, Device, Fake, SECOND, Taken, US};
use crate::{mixed, plan, reads, scenario};
use anabranch_host::user::RequestOp;
use anabranch_lab::cell::Cell;
use anabranch_lab::generator::{HostFigures, Plan};
use anabranch_lab::light;
use anabranch_lab::pace::{self, Chains};
use anabranch_lab::scenario::{Arrival, Job, Mix, Order, PerOp, Scenario};
use anabranch_policy::OpClass;

/// Class and payload.
fn kind(taken: &Taken) -> (OpClass, u32) {
    match taken.op {
        RequestOp::Read { buf, .. } => (OpClass::Read, buf.len()),
        RequestOp::Write { buf, .. } => (OpClass::Write, buf.len()),
        _ => (OpClass::Other, 0),
    }
}

fn address(taken: &Taken) -> (u64, u64) {
    match taken.op {
        RequestOp::Read { lba, blocks, .. } | RequestOp::Write { lba, blocks, .. } => {
            (lba, blocks.into())
        }
        RequestOp::Discard { lba, blocks } => (lba, blocks),
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_thread_draws_the_chain_that_the_seed_gives_it() {
    // One thread per worker, so that the device sees the threads apart.
    let scenario = scenario(3, vec![mixed(4, 2), Job { name: "b".to_owned(), ..mixed(2, 1) }]);
    for host in [0, 5] {
        let mut fake = Fake::new(3, Device::new(100 * US));
        fake.run(Plan { host, ..plan(&scenario) });
        let mut chain = Chains::new(1, scenario.paths.len()).load;
        for _ in 0..host {
            pace::load_of_host(&scenario.jobs, 3, &mut chain);
        }
        let load = pace::load_of_host(&scenario.jobs, 3, &mut chain);
        for (worker, mut thread) in load.threads.into_iter().enumerate() {
            assert_eq!(thread.worker as usize, worker);
            let job = &scenario.jobs[thread.job as usize];
            let taken = fake.taken.iter().flatten().filter(|taken| taken.worker == worker + 1);
            let found: Vec<_> = taken.map(kind).collect();
            assert!(found.len() > 10_000);
            for (place, found) in found.into_iter().enumerate() {
                let asked = thread.next(job, 0);
                assert_eq!(found, (asked.op, asked.bytes), "worker {worker}, request {place}");
            }
        }
    }
}

/// What the generators of all hosts of a scenario write down together.
fn generated(scenario: &Scenario, seed: u64) -> HostFigures {
    let mut sum = HostFigures::default();
    let cell = Cell { scenario, variant: &scenario.variants[0], seed };
    for host in 0..scenario.hosts.count {
        let mut fake = Fake::new(scenario.hosts.workers as u16, Device::new(50 * US));
        sum.merge(&fake.run(Plan::of(cell, host, "nvme0n1", BEGIN)));
    }
    sum
}

#[test]
fn paced_and_open_loops_begin_what_the_light_simulation_begins() {
    let open = Job { arrival: Arrival::Poisson { iops: 20_000 }, ..mixed(1, 3) };
    let rate_iops = PerOp { read: Some(700), write: Some(300), trim: Some(90) };
    let reads = Job { rate_iops, mix: Mix { read: 100, write: 0, trim: 0 }, ..mixed(16, 3) };
    let both = Job { rate_iops, ..mixed(16, 3) };
    // Which of reads and writes has the turn depends on what is due, and so on completions.
    for (paced, exact) in [(reads, true), (both, false)] {
        let mut scenario = scenario(4, vec![paced, open.clone()]);
        scenario.hosts.count = 3;
        for seed in [1, 77] {
            let cell = Cell { scenario: &scenario, variant: &scenario.variants[0], seed };
            let light = light::run(cell).expect("a valid cell").books;
            let books = generated(&scenario, seed).books;
            assert!(books.requests_started > 60_000);
            assert_eq!(books.requests_started, light.requests_started);
            let differ = books.bytes_started.abs_diff(light.bytes_started);
            assert!(differ <= if exact { 0 } else { light.bytes_started / 1000 }, "{differ}");
        }
    }
}

#[test]
fn random_addresses_lie_in_the_region_and_sequential_ones_follow_each_other() {
    let place = Job { offset: 64 * 4096, size: Some(100 * 4096), ..mixed(1, 1) };
    let in_order = Job { order: Order::Sequential, ..place.clone() };
    for job in [place, in_order] {
        let mut fake = Fake::new(1, Device::new(100 * US));
        fake.run(plan(&scenario(1, vec![job.clone()])));
        let taken: Vec<_> = fake.taken.iter().flatten().map(address).collect();
        assert!(taken.len() > 9_000);
        assert!(taken.iter().all(|(lba, blocks)| *lba >= 64 && lba + blocks <= 164));
        let follows = taken.windows(2).filter(|two| two[0].0 + two[0].1 == two[1].0).count();
        let starts_again = taken.iter().filter(|(lba, _)| *lba == 64).count();
        match job.order {
            Order::Sequential => assert_eq!(follows + starts_again, taken.len()),
            Order::Random => assert!(follows < taken.len() / 5, "{follows}"),
        }
    }
}

#[test]
fn clones_stay_on_the_workers_that_their_job_names() {
    let job = Job { workers: vec![0, 2], ..reads(1, 4) };
    let mut fake = Fake::new(3, Device::new(100 * US));
    fake.run(plan(&scenario(3, vec![job])));
    let of = |worker| fake.taken.iter().flatten().filter(|taken| taken.worker == worker).count();
    // Two clones on each of two workers, 10,000 requests each.
    assert_eq!([of(1), of(2), of(3)], [20_000, 0, 20_000]);
    assert_eq!(fake.now.since(BEGIN).as_nanos() as u64, SECOND);
}
