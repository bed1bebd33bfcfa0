//! A worker with nothing to do takes little memory, and a group gives back all of it. Alone in its
//! process: the figures are the process's.

#[path = "suite/support/mod.rs"]
mod support;

use support::Rig;

/// A memory figure of this process in KiB.
fn figure(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("readable");
    let line = text.lines().find(|line| line.starts_with(name)).expect("a line");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number")
}

#[test]
fn a_fresh_worker_is_small() {
    // The first group brings in code and the thread library.
    Rig::new(1).stop();
    let (before, mapped_before) = (figure("VmRSS"), figure("VmSize"));
    let rig = Rig::new(16);
    for worker in 0..16 {
        rig.ask(worker, |_, _| ());
    }
    let each = (figure("VmRSS") - before) / 16;
    println!("{each} KiB per worker");
    assert!(each < 1024, "{each} KiB per worker");
    rig.stop();
    // Heap arenas and stacks of ended threads may stay (64 MiB and some are reserved for each);
    // pools, which are 256 MiB each, must not.
    let left = figure("VmSize").saturating_sub(mapped_before) / 16;
    assert!(left < 100 << 10, "{left} KiB stay mapped per worker");
}
