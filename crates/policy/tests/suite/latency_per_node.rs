//! Averaging per NUMA node, with workers on threads of their own.

use crate::measured;

use crate::measured::{READ, SECOND, mode};
use anabranch_policy::{
    BatchTimeout, ControllerLedger, EwmaShift, Lane, LatencyParameters, Load, Local, NodeLatency,
    OpClass, Parameters, Sampled, Shared, SizeBucket, WorkerLedger, compute_weights,
    latency_report, reset_statistics, sample, start,
};
use std::sync::atomic::{AtomicU64, Ordering};

const WORKERS: u64 = 4;
const COMMANDS: u64 = if cfg!(miri) { 60 } else { 50_000 };

/// What all workers see of one path.
#[derive(Default)]
struct Common {
    controller: ControllerLedger,
    workers: [WorkerLedger; WORKERS as usize],
    shared: Shared,
    lanes: [Lane; WORKERS as usize],
    node: NodeLatency,
}

impl Common {
    fn load<'a>(&'a self, worker: u64, local: &'a Local) -> Load<'a> {
        Load {
            controller: &self.controller,
            workers: &self.workers,
            worker: worker as u16,
            queue: worker as u16,
            tags: 0,
            shared: &self.shared,
            lane: &self.lanes[worker as usize],
            node: Some(&self.node),
            local: Some(local),
        }
    }
}

fn parameters(timeout: BatchTimeout) -> Parameters {
    let latency = LatencyParameters {
        per_node: true,
        batch_timeout: timeout,
        ewma_shift: EwmaShift::new(0).unwrap(),
        ..LatencyParameters::default()
    };
    Parameters { latency, ..mode(false) }
}

fn ended(parameters: &Parameters, load: Load<'_>, latency_ns: u64, now_ns: u64) -> Sampled {
    let charge = start(parameters, load, READ, 4096, now_ns - latency_ns);
    sample(parameters, charge, load, 2, now_ns)
}

fn smoothed_ns(parameters: &Parameters, load: Load<'_>) -> u32 {
    latency_report(parameters, load).stat(READ, SizeBucket::FIRST).smoothed_ns
}

/// Runs a body once per worker, each on a thread of its own with a `Local` of its own.
fn on_workers(body: impl Fn(u64, &Local) + Sync) {
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let body = &body;
            scope.spawn(move || body(worker, &Local::new()));
        }
    });
}

#[test]
fn exactly_one_worker_closes_each_batch() {
    // All workers live through the same times. Batches are closed at most once per time: more often
    // than that is what two workers that close the same batch would show.
    let common = Common::default();
    let parameters = parameters("1us".parse().unwrap());
    let closed = AtomicU64::new(0);
    on_workers(|worker, local| {
        for time in 1..=COMMANDS {
            let load = common.load(worker, local);
            let now_ns = SECOND + time * 1_000;
            match ended(&parameters, load, 500, now_ns) {
                Sampled::BatchClosed(_) => _ = closed.fetch_add(1, Ordering::Relaxed),
                sampled => assert_eq!(sampled, Sampled::Taken),
            }
        }
    });
    let closed = closed.into_inner();
    assert!((1..=COMMANDS).contains(&closed), "{closed} closings in {COMMANDS} windows");
}

#[test]
fn an_average_is_never_torn() {
    // Each sample takes 777 ns, so every average must: a sum without its count would show.
    let common = Common::default();
    let parameters = parameters(BatchTimeout::from_secs(0));
    on_workers(|worker, local| {
        for time in 1..=COMMANDS {
            let load = common.load(worker, local);
            ended(&parameters, load, 777, SECOND + time);
            let smoothed_ns = smoothed_ns(&parameters, load);
            // 0: nobody has closed the first batch yet.
            assert!(smoothed_ns == 777 || smoothed_ns == 0, "{smoothed_ns}");
        }
    });
}

#[test]
fn no_sample_is_lost_when_workers_meet() {
    // Nothing closes until the end. Worker w's samples all take w + 1 us; whoever finds another
    // worker at it brings its samples along with its last one, which meets nobody.
    let common = Common::default();
    let parameters = parameters(BatchTimeout::from_secs(1));
    let locals: Vec<Local> = (0..WORKERS).map(|_| Local::new()).collect();
    // Opens the windows: the first sample ever closes at once.
    ended(&parameters, common.load(0, &locals[0]), 1, SECOND);
    let locals: Vec<Local> = std::thread::scope(|scope| {
        let run = |(worker, local): (u64, Local)| {
            let (common, parameters) = (&common, &parameters);
            scope.spawn(move || {
                for _ in 0..COMMANDS {
                    let load = common.load(worker, &local);
                    let sampled = ended(parameters, load, (worker + 1) * 1_000, SECOND + 9_000);
                    assert_eq!(sampled, Sampled::Taken);
                }
                local
            })
        };
        let workers: Vec<_> = (0..).zip(locals).map(run).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker")).collect()
    });
    for (worker, local) in (0..).zip(&locals) {
        let now_ns = if worker == WORKERS - 1 { 2 * SECOND } else { SECOND + 9_000 };
        let sampled = ended(&parameters, common.load(worker, local), (worker + 1) * 1_000, now_ns);
        assert_eq!(matches!(sampled, Sampled::BatchClosed(_)), worker == WORKERS - 1);
    }
    // The same number from each: the mean of 1 to 4 us, exactly.
    assert_eq!(smoothed_ns(&parameters, common.load(0, &locals[0])), 2_500);
}

#[test]
fn all_workers_of_a_node_follow_the_weights_that_one_computed() {
    let commons = [Common::default(), Common::default()];
    let parameters = parameters(BatchTimeout::from_secs(0));
    let first = [Local::new(), Local::new()];
    for (path, latency_ns) in [(0, 1_000_000), (1, 3_000_000)] {
        let load = commons[path].load(0, &first[path]);
        assert!(matches!(ended(&parameters, load, latency_ns, SECOND), Sampled::BatchClosed(_)));
    }
    let candidates = [0, 1].map(|path| candidate(commons[path].load(0, &first[path])));
    compute_weights(&parameters, &candidates, measured::reads_group());
    std::thread::scope(|scope| {
        for worker in 1..WORKERS {
            let (commons, parameters) = (&commons, &parameters);
            scope.spawn(move || {
                let locals = [Local::new(), Local::new()];
                let load = |path: usize| commons[path].load(worker, &locals[path]);
                let table = [0, 1].map(|path| candidate(load(path)));
                let mut selector = anabranch_policy::Selector::new();
                let mut used = [0; 2];
                for _ in 0..127 {
                    let choice = selector.select(parameters, &table, READ, 4096, SECOND);
                    used[choice.expect("a path").index] += 1;
                }
                // 1000 : 333, of 128, rounded down.
                assert_eq!(used, [96, 31]);
            });
        }
    });
}

fn candidate(load: Load<'_>) -> anabranch_policy::Candidate<'_> {
    anabranch_policy::Candidate {
        usable: true,
        rank: anabranch_policy::AnaRank::Optimized,
        numa_distance: anabranch_policy::LOCAL_DISTANCE,
        affinity: anabranch_policy::Affinity::Own,
        load,
    }
}

#[test]
fn resets_among_samples_leave_a_whole_state_and_the_last_one_a_clean_one() {
    let common = Common::default();
    let parameters = parameters(BatchTimeout::from_secs(0));
    on_workers(|worker, local| {
        for time in 1..=COMMANDS {
            let load = common.load(worker, local);
            if (time + worker * 7) % 13 == 0 {
                reset_statistics(load);
            } else {
                ended(&parameters, load, 777, SECOND + time);
            }
            let smoothed_ns = smoothed_ns(&parameters, load);
            assert!(smoothed_ns == 777 || smoothed_ns == 0, "{smoothed_ns}");
        }
    });
    let local = Local::new();
    let load = common.load(0, &local);
    reset_statistics(load);
    for op in OpClass::ALL {
        for bucket in SizeBucket::all() {
            assert_eq!(latency_report(&parameters, load).stat(op, bucket), Default::default());
        }
    }
    // Nobody holds anything: the next sample is the first.
    assert!(matches!(ended(&parameters, load, 5, SECOND), Sampled::BatchClosed(_)));
    assert_eq!(smoothed_ns(&parameters, load), 5);
}

#[test]
fn local_state_can_move_to_another_thread_and_node_state_be_shared() {
    fn sent<T: Send>() {}
    fn shared<T: Send + Sync>() {}
    sent::<Local>();
    shared::<NodeLatency>();
}
