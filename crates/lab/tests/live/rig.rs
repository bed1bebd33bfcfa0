//! Small scenarios, one session at a time.

use anabranch_lab::live::{LiveOptions, Session};
use anabranch_lab::scenario::{
    Hosts, Job, Mix, Order, Path, PerOp, Run, Scenario, Sizes, Target, Variant,
};
use anabranch_policy::Policy;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Milliseconds in nanoseconds.
pub(crate) const MS: u64 = 1_000_000;

/// Sessions share the CPUs, and their threads are counted: one after the other.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two links of 80 and 20 Mbit/s, 4 KiB reads and writes, some open requests.
pub(crate) fn scenario() -> Scenario {
    let path = |name: &str, rate: u64| {
        let mut path = Path::new(name);
        (path.shape.rate_in, path.shape.rate_out) = (Some(rate), Some(rate));
        path
    };
    Scenario {
        name: "small".to_owned(),
        title: "Two paths of 4:1".to_owned(),
        source: String::new(),
        run: Run { ramp_ns: 100 * MS, window_ns: 300 * MS, runs: 1 },
        hosts: Hosts { workers: 2, nodes: vec![0, 0], ..Hosts::default() },
        target: Target { size_bytes: 16 << 20, ..Target::default() },
        paths: vec![path("fast", 80_000_000), path("slow", 20_000_000)],
        changes: Vec::new(),
        jobs: vec![Job {
            mix: Mix { read: 70, write: 30, trim: 0 },
            order: Order::Random,
            sizes: PerOp::all(Sizes::fixed(4096)),
            depth: 16,
            clones: 2,
            ..Job::default()
        }],
        burners: Vec::new(),
        variants: [Policy::RoundRobin, Policy::QueueDepth]
            .into_iter()
            .map(|policy| Variant::plain(policy, 2))
            .collect(),
        published: Vec::new(),
    }
}

/// A session at the scenario's own rates.
pub(crate) fn session(scenario: &Scenario) -> Session {
    let options = LiveOptions { scale_permille: Some(1000), ..LiveOptions::default() };
    Session::new(scenario, &options).unwrap_or_else(|error| panic!("{error}"))
}

/// Threads of sessions that live now: `lab0h1-2` and the like.
pub(crate) fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("our threads");
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    let ours = |name: &String| {
        let rest = name.strip_prefix("lab").unwrap_or_default();
        rest.starts_with(|c: char| c.is_ascii_digit())
    };
    names.filter(ours).collect()
}

/// Waits until there are no such threads: the kernel tells who joins one of its end a moment before
/// it takes it from the list.
#[track_caller]
pub(crate) fn no_threads() {
    let until = Instant::now() + Duration::from_secs(10);
    while !threads().is_empty() && Instant::now() < until {
        std::thread::yield_now();
    }
    assert_eq!(threads(), Vec::<String>::new(), "threads of a session that has ended");
}
