//! The host does not run for a while, as when its process is stopped or its virtual machine is
//! moved: when it runs again, all of its times may be over and its controllers gone.

use crate::rig::{MS, Rig, SECOND, Setup, reads, writes};
use crate::setup;
use anabranch_proto::machine::WorkerId;
use std::time::Duration;

const WORKERS: u16 = 2;

/// Two ports, two data workers; on the first one 20 reads are under way for long.
fn busy(mut setup: Setup) -> (Rig, Vec<u64>) {
    setup.options.keep_alive_tmo = 5 * SECOND;
    setup.options.io_timeout = 30 * SECOND;
    let mut rig = setup.connect();
    rig.io(writes(20, 7));
    for port in 0..2 {
        let stream = rig.world.stream(WorkerId(1), &setup::port(port)).expect("open");
        rig.world.slow_stream(stream, 100 * MS);
    }
    let names = rig.submit(reads(20));
    rig.run(10 * MS);
    assert_eq!(rig.answered(&names), 0);
    (rig, names)
}

fn suspend_all(rig: &mut Rig, stretch: Duration) {
    (0..=WORKERS).for_each(|worker| rig.world.suspend(WorkerId(worker), stretch));
    rig.run(stretch);
}

fn every_byte_is(rig: &mut Rig, names: &[u64], fill: u8) {
    for outcome in rig.succeed(names) {
        assert!(outcome.data.iter().all(|&byte| byte == fill), "{:?}", outcome.data);
    }
}

#[test]
fn f5_a_host_that_was_suspended_for_less_than_keep_alive_keeps_its_controllers() {
    let (mut rig, names) = busy(Setup::new(2, WORKERS));
    let begin = rig.now();
    suspend_all(&mut rig, 2 * SECOND);
    every_byte_is(&mut rig, &names, 7);
    rig.run(10 * SECOND);
    assert_eq!(rig.event(begin, "resetting"), None);
    rig.finish();
}

#[test]
fn f26_a_host_that_was_suspended_beyond_every_time_limit_goes_on() {
    let mut setup = Setup::new(2, WORKERS);
    setup.options.ctrl_loss_tmo = Some(10 * SECOND);
    setup.options.fast_io_fail_tmo = Some(5 * SECOND);
    let (mut rig, names) = busy(setup);
    let begin = rig.now();
    suspend_all(&mut rig, 60 * SECOND);
    every_byte_is(&mut rig, &names, 7);
    assert!(rig.event(begin, "nvme0: live -> resetting").is_some(), "the target let it go");
    rig.wait_live(0);
    rig.wait_live(1);
    assert_eq!(rig.event(begin, "removed"), None, "it has all of its time to come back");
    rig.io(writes(20, 8));
    rig.finish();
}

#[test]
fn f26_what_came_while_the_host_was_suspended_is_not_late() {
    let mut setup = Setup::new(2, WORKERS);
    setup.options.keep_alive_tmo = 100 * SECOND;
    setup.options.io_timeout = 30 * SECOND;
    let mut rig = setup.connect();
    rig.io(writes(20, 7));
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.slow_stream(stream, 100 * MS);
    let begin = rig.now();
    let names = rig.submit(reads(20));
    rig.run(10 * MS);
    suspend_all(&mut rig, 60 * SECOND);
    every_byte_is(&mut rig, &names, 7);
    assert_eq!(rig.event(begin, "resetting"), None, "the answers were there when it looked");
    rig.finish();
}

#[test]
fn f26_a_worker_that_does_not_run_while_its_controllers_are_reset_loses_nothing() {
    let (mut rig, names) = busy(Setup::new(2, WORKERS));
    let begin = rig.now();
    rig.world.suspend(WorkerId(1), 90 * SECOND);
    for port in 0..2 {
        let admin = rig.world.stream(WorkerId(0), &setup::port(port)).expect("open");
        rig.world.break_stream(admin);
    }
    rig.run(SECOND);
    let others = rig.submit_to(2, "nvme0n1", reads(20));
    rig.run(89 * SECOND);
    every_byte_is(&mut rig, &names, 7);
    every_byte_is(&mut rig, &others, 7);
    assert!(rig.event(begin, "nvme1: live -> resetting").is_some());
    rig.wait_live(0);
    rig.wait_live(1);
    rig.io(writes(20, 8));
    rig.finish();
}

#[test]
fn f26_a_control_worker_that_does_not_run_holds_no_io_up() {
    let (mut rig, names) = busy(Setup::new(2, WORKERS));
    rig.world.suspend(WorkerId(0), 4 * SECOND);
    rig.run(SECOND);
    every_byte_is(&mut rig, &names, 7);
    rig.run(10 * SECOND);
    assert!(rig.is_live(0) && rig.is_live(1));
    rig.finish();
}
