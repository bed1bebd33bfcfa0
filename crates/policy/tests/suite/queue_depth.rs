//! The statements Q1 to Q4, as far as a test without a clock can tell, and the five scopes.

use crate::support::{Path, Random, load, paths, read};
use anabranch_policy::{
    Affinity, AnaRank, AsCandidate, Candidate, Charge, ControllerLedger, LOCAL_DISTANCE, Lane,
    Load, Local, NodeLatency, OpClass, Parameters, Policy, Scope, Selector, Shared, UnknownScope,
    WorkerLedger, finish, start,
};
use std::cell::Cell;

const MODES: [bool; 2] = [false, true];

fn scoped(scope: Scope, kernel_exact: bool) -> Parameters {
    Parameters { scope, kernel_exact, ..Parameters::of(Policy::QueueDepth) }
}

/// Two controllers with two namespaces each, seen by two workers.
struct World {
    controllers: [ControllerLedger; 2],
    workers: [[WorkerLedger; 2]; 2],
    paths: [[(Shared, NodeLatency); 2]; 2],
    lanes: [Lane; 2],
    local: [Local; 2],
}

impl World {
    fn new() -> World {
        World {
            controllers: Default::default(),
            workers: Default::default(),
            paths: Default::default(),
            lanes: Default::default(),
            local: Default::default(),
        }
    }

    /// A namespace's paths as a worker sees them that submits through the queue pairs of `queue`.
    fn head(&self, namespace: usize, worker: u16, queue: u16) -> [Candidate<'_>; 2] {
        [0, 1].map(|at| Candidate {
            usable: true,
            rank: AnaRank::Optimized,
            numa_distance: LOCAL_DISTANCE,
            affinity: Affinity::Own,
            load: Load {
                controller: &self.controllers[at],
                workers: &self.workers[at],
                worker,
                queue,
                tags: 0,
                shared: &self.paths[namespace][at].0,
                lane: &self.lanes[at],
                node: Some(&self.paths[namespace][at].1),
                local: Some(&self.local[at]),
            },
        })
    }
}

/// Which path is chosen while one command is in flight on the first path: 1 when it is seen.
fn sees(scope: Scope, from: (usize, u16, u16), seen_by: (usize, u16, u16)) -> bool {
    let world = World::new();
    let mut seen = Vec::new();
    for exact in MODES {
        let parameters = scoped(scope, exact);
        let busy = world.head(from.0, from.1, from.2)[0].load;
        let charge = start(&parameters, busy, OpClass::Read, 4096, 0);
        let paths = world.head(seen_by.0, seen_by.1, seen_by.2);
        let choice = Selector::new().select(&parameters, &paths, OpClass::Read, 4096, 0);
        seen.push(choice.expect("two paths").index == 1);
        finish(charge, busy);
        let choice = Selector::new().select(&parameters, &paths, OpClass::Read, 4096, 0);
        assert_eq!(choice.expect("two paths").index, 0, "given back");
    }
    assert_eq!(seen[0], seen[1], "ties are all that kernel-exact changes");
    seen[0]
}

#[test]
fn each_scope_sees_the_commands_that_it_names() {
    // (namespace, worker, the worker whose queue pair is used)
    let me = (0, 0, 0);
    let others = [
        // The same namespace: another worker with its own queue pair, or through mine.
        (0, 1, 1),
        (0, 1, 0),
        // Another namespace: by me, and by another worker with its own queue pair.
        (1, 0, 0),
        (1, 1, 1),
        // By me, through another worker's queue pair.
        (0, 0, 1),
    ];
    for (scope, expected) in [
        (Scope::Controller, [true, true, true, true, true]),
        (Scope::Namespace, [true, true, false, false, true]),
        (Scope::QueuePair, [false, true, true, false, false]),
        (Scope::Worker, [false, false, true, false, true]),
        (Scope::Sum, [true, true, true, true, true]),
    ] {
        assert!(sees(scope, me, me), "{scope}: its own");
        assert_eq!(others.map(|other| sees(scope, other, me)), expected, "{scope}");
    }
}

#[test]
fn a_worker_without_a_queue_pair_of_its_own_compares_those_that_it_uses() {
    // I submit through the queue pair of another worker.
    let me = (0, 0, 1);
    for (scope, owner, mine) in [(Scope::QueuePair, true, false), (Scope::Worker, false, true)] {
        // The owner of that queue pair, and I when I still had one of my own.
        assert_eq!(sees(scope, (0, 1, 1), me), owner, "{scope}");
        assert_eq!(sees(scope, (0, 0, 0), me), mine, "{scope}");
    }
}

#[test]
fn a_scope_changed_under_load_returns_what_it_took() {
    let mut random = Random::seeded();
    let rounds = if cfg!(miri) { 5 } else { 200 };
    for _ in 0..rounds {
        let path = &paths("o")[0];
        let mut charges: Vec<Charge> = Vec::new();
        for _ in 0..50 {
            let parameters = scoped(Scope::ALL[random.below(5)], false);
            charges.push(start(&parameters, path.load(), OpClass::Read, 4096, 0));
            if random.below(2) == 0 {
                finish(charges.swap_remove(random.below(charges.len())), path.load());
            }
        }
        assert_eq!(charges.is_empty(), path.is_idle());
        charges.into_iter().for_each(|charge| finish(charge, path.load()));
        assert!(path.is_idle());
    }
}

#[test]
fn the_sum_adds_up_all_queues_of_a_controller() {
    let mut table = paths("oo");
    for path in &mut table {
        path.workers = (0..128).map(|_| WorkerLedger::new()).collect();
    }
    let parameters = scoped(Scope::Sum, true);
    // One on each of three queues against two on one.
    for (at, queue) in [(0, 5), (0, 77), (0, 127), (1, 0), (1, 0)] {
        table[at].queue = queue;
        let _: Charge = start(&parameters, table[at].load(), OpClass::Read, 4096, 0);
    }
    let choice = Selector::new().select(&parameters, &table, OpClass::Read, 4096, 0);
    assert_eq!(choice.expect("two paths").index, 1);
}

/// Counts how often selection looks at a path.
struct Watched<'a> {
    path: &'a Path,
    looks: &'a Cell<u32>,
}

impl AsCandidate for Watched<'_> {
    fn candidate(&self) -> Candidate<'_> {
        self.looks.set(self.looks.get() + 1);
        self.path.candidate()
    }
}

#[test]
fn q1_a_selection_looks_at_each_path_once_however_many_queues_there_are() {
    for queues in [1, 8, 64, 128] {
        let mut table = paths("oooooooo");
        for path in &mut table {
            path.workers = (0..queues).map(|_| WorkerLedger::new()).collect();
            load(path, 3);
        }
        for policy in Policy::ALL {
            for exact in MODES {
                let looks = Cell::new(0);
                let watched: Vec<Watched<'_>> =
                    table.iter().map(|path| Watched { path, looks: &looks }).collect();
                let parameters = Parameters { kernel_exact: exact, ..Parameters::of(policy) };
                let mut selector = Selector::new();
                for _ in 0..2 {
                    looks.set(0);
                    selector.select(&parameters, &watched, OpClass::Read, 4096, 0);
                    // Once each, and the chosen one again by those that ask for its class.
                    assert!(looks.get() <= 9, "{policy}: {} looks", looks.get());
                }
            }
        }
        // An idle optimized path ends the scan of the kernel's queue-depth.
        let idle = paths("oooo");
        let looks = Cell::new(0);
        let watched: Vec<Watched<'_>> =
            idle.iter().map(|path| Watched { path, looks: &looks }).collect();
        let parameters = scoped(Scope::Controller, true);
        Selector::new().select(&parameters, &watched, OpClass::Read, 4096, 0);
        assert_eq!(looks.get(), 1);
    }
}

#[test]
fn q1_per_controller_no_queue_is_read() {
    // What the queues count does not matter, so it is not read: they say the opposite.
    for exact in MODES {
        let table = paths("oo");
        for _ in 0..9 {
            let sum = scoped(Scope::Sum, exact);
            let _: Charge = start(&sum, table[1].load(), OpClass::Read, 4096, 0);
        }
        load(&table[0], 1);
        assert_eq!(read(&mut Selector::new(), Policy::QueueDepth, exact, &table), Some(1));
    }
}

#[test]
fn q3_shared_and_per_worker_counters_can_be_compared_by_name() {
    let names = ["controller", "namespace", "queue-pair", "worker", "sum"];
    for (scope, name) in Scope::ALL.into_iter().zip(names) {
        assert_eq!(scope.to_string(), name);
        assert_eq!(name.parse(), Ok(scope));
        assert_eq!(format!("{name} ").parse::<Scope>(), Err(UnknownScope));
    }
    assert_eq!(Scope::default(), Scope::Controller);
    let text = UnknownScope.to_string();
    assert!(names.iter().all(|name| text.contains(name)), "{text}");
}

#[test]
fn q4_a_slow_path_gets_the_commands_it_can_do_and_round_robin_waits_for_it() {
    // One path ends a command per tick, the other one in ten ticks; 32 in flight. Ticks, not time.
    let done = |policy: Policy, exact: bool| {
        let table = paths("oo");
        let parameters = Parameters { kernel_exact: exact, ..Parameters::of(policy) };
        let mut selector = Selector::new();
        let mut queues = [const { Vec::new() }; 2];
        let mut done = 0;
        for tick in 0..2000 {
            while queues.iter().map(Vec::len).sum::<usize>() < 32 {
                let choice = selector.select(&parameters, &table, OpClass::Read, 4096, 0);
                let at = choice.expect("two paths").index;
                queues[at].push(start(&parameters, table[at].load(), OpClass::Read, 4096, 0));
            }
            for (at, every) in [(0, 1), (1, 10)] {
                if tick % every == 0
                    && let Some(charge) = queues[at].pop()
                {
                    finish(charge, table[at].load());
                    done += 1;
                }
            }
        }
        done
    };
    for exact in MODES {
        let (depth, turn) = (done(Policy::QueueDepth, exact), done(Policy::RoundRobin, exact));
        assert!(depth > 2 * turn, "queue-depth {depth}, round-robin {turn}");
    }
}
