//! A worker with nothing to do makes no system calls, however long it has nothing to do.

use crate::support::{Piece, Rig, Seen, loopback};
use anabranch_proto::machine::{ConnId, WorkerId};
use anabranch_rt::Config;
use std::time::Duration;

#[test]
fn no_system_calls_without_work() {
    let mut rig = Rig::new(3);
    let (idle, busy) = (ConnId::opened(1), ConnId::opened(2));
    // Worker 2 listens and has an idle connection from worker 1; workers 0 and 1 play ball.
    let at = rig.listen(2, loopback());
    rig.connect(1, idle, at);
    rig.accepted(2);
    for worker in [0, 1] {
        rig.ask(worker, |engine, _| {
            engine.rules.echo = true;
            engine.rules.quiet = true;
        });
    }
    let at = rig.listen(0, loopback());
    rig.connect(1, busy, at);
    // The first sleep after the last request is counted before the measurement begins.
    rig.ask(2, |_, _| ());
    let stats = |rig: &Rig, worker| rig.group.stats(WorkerId(worker)).expect("stats");
    rig.ask(1, move |engine, _| engine.send(busy, Piece::Copy(vec![1; 64])));
    let played = |rig: &mut Rig| {
        let ball = stats(rig, 1).receives;
        for turn in 0.. {
            rig.ask(1, |engine, _| engine.timer = Some(engine.now.after(Duration::from_millis(1))));
            rig.expect(1, &Seen::Timeout);
            // On a busy machine they may hardly get to play.
            if turn >= 20 && stats(rig, 1).receives > ball + 20 {
                break;
            }
            assert!(turn < 10_000, "the others do work");
        }
    };
    played(&mut rig);
    let before = stats(&rig, 2);
    played(&mut rig);
    assert_eq!(stats(&rig, 2), before, "the idle worker sleeps");
    rig.stop();
}

/// Tasks of the machine that wait for a disk, as the system counts them.
fn waiting_for_disks() -> u32 {
    let stat = std::fs::read_to_string("/proc/stat").expect("readable");
    let line = stat.lines().find_map(|line| line.strip_prefix("procs_blocked "));
    line.expect("such a line").parse().expect("a number")
}

/// Whether the system can be told that an operation is not waited for as for a disk.
fn system_can_tell() -> bool {
    let ring = io_uring::IoUring::new(1).expect("a ring");
    ring.params().is_feature_no_iowait()
}

/// They have an operation with the system all the time, which says that there is mail.
#[test]
fn workers_without_work_are_not_counted_as_waiting_for_disks() {
    const WORKERS: u16 = 32;
    if !system_can_tell() {
        return println!("NOT RUN: the system is older than Linux 6.15, and counts them");
    }
    let config = Config { pool_bytes: 4 << 20, receive_buffers: 2, ..Config::named("idle") };
    let rig = Rig::with(config, usize::from(WORKERS));
    (0..WORKERS).for_each(|worker| rig.ask(worker, |_, _| ()));
    // Some others of the machine may be waiting at any moment, but hardly so many at each.
    let least = (0..1000).map(|_| waiting_for_disks()).min().expect("looked at");
    assert!(least < u32::from(WORKERS) / 2, "{least} wait for disks");
    rig.stop();
}
