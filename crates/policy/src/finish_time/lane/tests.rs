//! What is told adds up, whoever starts and ends what.

extern crate std;

use super::*;
use crate::random::Random;
use std::vec::Vec;

/// One path and its workers, with the books that lanes are held against.
struct Books {
    forecast: Forecast,
    lanes: Vec<Lane>,
    /// The commands of each worker in flight: op and units.
    flying: Vec<Vec<(OpClass, u64)>>,
    started: usize,
    /// Units, of reads, then of writes.
    delivered: [u32; 2],
    now_ns: u64,
}

impl Books {
    fn new(workers: usize) -> Books {
        Books {
            forecast: Forecast::new(),
            lanes: (0..workers).map(|_| Lane::new()).collect(),
            flying: (0..workers).map(|_| Vec::new()).collect(),
            started: 0,
            delivered: [0; 2],
            now_ns: 1_000_000,
        }
    }

    /// Every third command is a write.
    fn start(&mut self, worker: usize, units: u64) {
        self.started += 1;
        let op = if self.started.is_multiple_of(3) { OpClass::Write } else { OpClass::Read };
        self.flying[worker].push((op, units));
        self.lanes[worker].started(&self.forecast, op, units, self.now_ns);
    }

    /// Ends the oldest command; whether it was learned from.
    fn end(&mut self, worker: usize, well: bool) -> bool {
        let (op, units) = self.flying[worker].remove(0);
        self.lanes[worker].ended(&self.forecast, op, units);
        if !well {
            return false;
        }
        let units = units as u32;
        let delivered = &mut self.delivered[place(op)];
        *delivered = delivered.wrapping_add(units);
        self.lanes[worker].done(&self.forecast, op, units, false, self.now_ns).is_some()
    }

    /// Units that a worker has in flight, of reads, then of writes.
    fn own(&self, worker: usize) -> [u64; 2] {
        let mut sums = [0; 2];
        self.flying[worker].iter().for_each(|(op, units)| sums[place(*op)] += units);
        sums
    }

    fn told(&self) -> [u64; 2] {
        [0, 1].map(|at| self.forecast.in_flight(at, 0).units())
    }

    fn told_delivered(&self) -> [u32; 2] {
        [0, 1].map(|at| self.forecast.directions.delivered[at].load(Relaxed))
    }

    /// What is told and what is not is all there is, and of the latter there is little.
    fn check(&self) {
        let told = self.told_delivered();
        let delivered = [0, 1].map(|at| {
            let kept = self.lanes.iter().map(|lane| lane.delivered[at].load(Relaxed));
            kept.fold(told[at], u32::wrapping_add)
        });
        assert_eq!(delivered, self.delivered);
        for at in [0, 1] {
            let mut untold_work = 0_u64;
            for (worker, lane) in self.lanes.iter().enumerate() {
                let (untold, own) = (lane.untold[at].load(Relaxed), self.own(worker)[at]);
                assert!((untold as i64).unsigned_abs() * 4 <= own, "worker {worker}");
                assert_eq!(lane.own[at].load(Relaxed), own, "worker {worker}");
                untold_work = untold_work.wrapping_add(untold);
                let known = self.told()[at].wrapping_add(untold);
                assert_eq!(lane.in_flight(&self.forecast)[at].units(), known, "worker {worker}");
            }
            let all = (0..self.lanes.len()).map(|worker| self.own(worker)[at]);
            let workers = all.clone().filter(|own| *own > 0).count() as u64;
            assert_eq!(self.forecast.in_flight(at, 0).workers(), workers);
            let all: u64 = all.sum();
            assert_eq!(self.told()[at].wrapping_add(untold_work), all);
            assert_eq!(self.told()[at] == 0, all == 0, "what is idle looks idle");
        }
    }

    /// Everything is told.
    fn check_exact(&self) {
        self.check();
        let all = (0..self.lanes.len()).map(|worker| self.own(worker));
        let all = all.fold([0; 2], |sum, own| [sum[0] + own[0], sum[1] + own[1]]);
        assert_eq!(self.told(), all);
        assert_eq!(self.told_delivered(), self.delivered);
    }
}

#[test]
fn whatever_workers_do_in_whatever_order_the_books_balance() {
    const SEEDS: u64 = if cfg!(miri) { 2 } else { 200 };
    let (mut held, mut taught) = (0, 0);
    for seed in 0..SEEDS {
        std::println!("seed {seed}");
        let mut random = Random(seed);
        let workers = 2 + random.below(2);
        let mut books = Books::new(workers as usize);
        let most = 1 + random.below(64) as usize;
        // From 40 ns to 5 µs between what happens.
        let step_ns = 20 << random.below(8);
        for _ in 0..4000 {
            books.now_ns += random.below(2 * step_ns);
            match random.below(2000) {
                0 => books.now_ns += 1_000_000,
                // The clock goes back.
                1 => books.now_ns = books.now_ns.saturating_sub(random.below(1_000_000_000)),
                _ => {}
            }
            let worker = random.below(workers) as usize;
            let flying = books.flying[worker].len();
            // Now and then all that it has ends.
            let least = if random.below(300) == 0 { 0 } else { most };
            if flying == 0 || flying < most && random.below(2) == 0 {
                let units = 9 + random.below(2) * random.below(2000);
                books.start(worker, units);
            }
            while books.flying[worker].len() > least.min(flying) {
                let well = random.below(10) > 0;
                taught += u64::from(books.end(worker, well));
                held += u64::from(books.lanes[worker].held.load(Relaxed));
                books.check();
            }
            books.check();
        }
        for worker in 0..workers as usize {
            while !books.flying[worker].is_empty() {
                // The path has left, or failed: nothing is learned any more.
                books.end(worker, false);
                books.check();
            }
        }
        assert_eq!(books.told(), [0; 2]);
    }
    assert!(held > 1000 * SEEDS / 10 && taught > 1000 * SEEDS / 10, "{held} held, {taught} taught");
}

#[test]
fn when_there_is_time_everything_is_told_and_learned_at_once() {
    let mut books = Books::new(2);
    let mut random = Random(1);
    for worker in [0, 1] {
        (0..32).for_each(|_| books.start(worker, 16));
        books.check_exact();
    }
    for _ in 0..1_000 {
        // As many at one look at the clock as there has been time for.
        let count = 1 + random.below(BURST);
        books.now_ns += count * INTERVAL_NS;
        for _ in 0..count {
            for worker in [0, 1] {
                assert!(books.end(worker, true));
                books.check_exact();
                books.start(worker, 9 + random.below(256));
                books.check_exact();
            }
        }
    }
}

#[test]
fn beyond_that_it_is_learned_once_per_interval() {
    let mut books = Books::new(2);
    for worker in [0, 1] {
        (0..32).for_each(|_| books.start(worker, 16));
    }
    let mut taught = [0_u64; 2];
    const COMMANDS: u64 = 100_000;
    for _ in 0..COMMANDS {
        books.now_ns += 50;
        for worker in [0, 1] {
            taught[worker] += u64::from(books.end(worker, true));
            books.start(worker, 16);
        }
        books.check();
    }
    for taught in taught {
        let times = COMMANDS * 50 / INTERVAL_NS;
        assert!((times..=times + BURST + 1).contains(&taught), "{taught} of {times}");
    }
    // A pause, and all is told again.
    books.now_ns += 2 * INTERVAL_NS;
    for worker in [0, 1] {
        assert!(books.end(worker, true));
    }
    books.check_exact();
}

#[test]
fn a_clock_that_goes_back_holds_nobody_up() {
    let mut books = Books::new(1);
    (0..64).for_each(|_| books.start(0, 16));
    for _ in 0..2 * BURST {
        books.end(0, true);
        books.start(0, 16);
    }
    assert!(books.lanes[0].held.load(Relaxed));
    books.now_ns = 0;
    assert!(books.end(0, true));
    books.check_exact();
    // And at the end of the numbers.
    books.now_ns = u64::MAX;
    for _ in 0..2 * BURST {
        assert!(books.end(0, true));
        books.start(0, 16);
        books.check_exact();
    }
}

#[test]
fn an_end_may_be_told_before_the_start() {
    let forecast = Forecast::new();
    let told = |units: i64, workers: i64| {
        forecast.add_in_flight(1, units as u64, workers as u64);
        let after = forecast.in_flight(1, 0);
        (after.units(), after.workers())
    };
    assert_eq!(told(-9, 0), (0, 0));
    assert_eq!(forecast.in_flight(1, 20).units(), 11);
    assert_eq!(told(20, 1), (11, 1));
    assert_eq!(told(-12, -1), (0, 0));
    assert_eq!(told(5, 1), (4, 1));
}

#[test]
fn workers_that_really_run_at_once_lose_nothing() {
    const WORKERS: u64 = 3;
    const COMMANDS: u64 = if cfg!(miri) { 100 } else { 200_000 };
    let forecast = Forecast::new();
    let lanes: Vec<Lane> = (0..WORKERS).map(|_| Lane::new()).collect();
    let all_there = std::sync::Barrier::new(WORKERS as usize);
    let delivered = std::thread::scope(|scope| {
        let run = |worker: u64| {
            let (forecast, lane, all_there) = (&forecast, &lanes[worker as usize], &all_there);
            scope.spawn(move || {
                let mut random = Random(worker);
                let mut flying = [(OpClass::Read, 0_u64); 32];
                let mut delivered = [0_u32; 2];
                all_there.wait();
                for turn in 0..COMMANDS {
                    let now_ns = turn * 40;
                    let slot = &mut flying[(turn % 32) as usize];
                    let (op, units) = *slot;
                    if units != 0 {
                        lane.ended(forecast, op, units);
                        if random.below(8) > 0 {
                            let sum = &mut delivered[place(op)];
                            *sum = sum.wrapping_add(units as u32);
                            lane.done(forecast, op, units as u32, false, now_ns);
                        }
                    }
                    let op = [OpClass::Read, OpClass::Write][random.below(2) as usize];
                    *slot = (op, 9 + random.below(1000));
                    lane.started(forecast, op, slot.1, now_ns);
                    for found in lane.in_flight(forecast) {
                        assert!(found.units() < WORKERS * 2 * 33 * 1009, "{found:?}");
                        assert!(found.workers() <= WORKERS, "{found:?}");
                    }
                }
                for (op, units) in flying {
                    lane.ended(forecast, op, units);
                }
                delivered
            })
        };
        let workers: Vec<_> = (0..WORKERS).map(run).collect();
        let ended = workers.into_iter().map(|worker| worker.join().expect("it ends"));
        ended.fold([0; 2], |sum: [u32; 2], of| [0, 1].map(|at| sum[at].wrapping_add(of[at])))
    });
    let told = &forecast.directions;
    let kept = lanes.iter().map(|lane| &lane.delivered).chain([&told.delivered]);
    let sum = kept.fold([0; 2], |sum: [u32; 2], of| {
        [0, 1].map(|at| sum[at].wrapping_add(of[at].load(Relaxed)))
    });
    for at in [0, 1] {
        let in_flight = forecast.in_flight(at, 0);
        assert_eq!((in_flight.units(), in_flight.workers()), (0, 0));
    }
    assert_eq!(sum, delivered);
}
