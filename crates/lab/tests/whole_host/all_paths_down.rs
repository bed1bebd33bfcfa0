//! No path is left: what waits, for how long, and what fails.

use crate::rig::{MS, Rig, SECOND, Setup, reads, writes};
use crate::script::{Failure, Op};
use crate::wire::{Pdu, kind};
use anabranch_host::user::{IoError, Refused};
use anabranch_proto::machine::{Time, WorkerId};
use anabranch_target::TargetVerb;
use std::time::Duration;

fn cut(rig: &mut Rig, ports: u16) -> Time {
    let at = rig.now();
    (0..ports).for_each(|port| rig.target(TargetVerb::Cut { port }));
    rig.run(10 * MS);
    at
}

fn restore(rig: &mut Rig, ports: u16) {
    (0..ports).for_each(|port| rig.target(TargetVerb::Restore { port }));
}

fn assert_no_path(rig: &mut Rig, names: &[u64]) -> Vec<Time> {
    let outcomes = rig.answers(names);
    for outcome in &outcomes {
        assert_eq!(outcome.result, Err(Failure::Io(IoError::NoPath)));
    }
    outcomes.iter().map(|outcome| outcome.at).collect()
}

#[test]
fn m10_io_waits_while_all_controllers_reconnect() {
    let mut rig = Setup::new(2, 2).connect();
    // Some are in flight when the paths go, some come when there is none.
    let mut names = rig.submit(writes(30, 1));
    rig.run(MS / 50);
    cut(&mut rig, 2);
    names.extend(rig.submit_to(2, "nvme0n1", writes(30, 1)));
    let waiting = rig.answered(&names);
    rig.run(60 * SECOND);
    assert_eq!(rig.answered(&names), waiting, "what waits goes on waiting");
    assert!(waiting < 60);
    restore(&mut rig, 2);
    rig.succeed(&names);
    let reads = rig.io(reads(30));
    assert!(reads.iter().all(|read| read.data.iter().all(|&byte| byte == 1)));
    assert_eq!(rig.head().errors, 0);
    rig.finish();
}

/// Every port is lost, requests wait, and nothing is left in the pool: all of it comes back.
/// How long that took.
fn all_come_back_with_an_exhausted_pool(setup: Setup) -> Duration {
    let ports = setup.ports;
    let mut rig = setup.connect();
    cut(&mut rig, ports);
    rig.run(SECOND);
    let names = rig.submit(writes(30, 1));
    rig.run(MS);
    rig.world.exhaust_pool(Some(WorkerId(1)));
    rig.run(SECOND);
    assert_eq!(rig.answered(&names), 0);
    let begin = rig.now();
    restore(&mut rig, ports);
    (0..ports).for_each(|port| rig.wait_live(port));
    let took = rig.now().since(begin);
    rig.succeed(&names);
    rig.world.exhaust_pool(None);
    assert_eq!(rig.head().errors, 0);
    rig.finish();
    took
}

/// Requests that wait for a path keep their payload; a path needs none of it to come back.
#[test]
fn a_path_comes_back_while_what_waits_for_it_holds_the_whole_pool() {
    let took = all_come_back_with_an_exhausted_pool(Setup::new(1, 1));
    assert!(took < SECOND, "at the first attempt: {took:?}");
}

/// Far more Connects at once than the memory that is set apart for them.
#[test]
fn paths_that_come_back_together_wait_for_memory_in_turn() {
    let mut setup = Setup::new(40, 1);
    setup.times.travel = (SECOND / 2, SECOND / 2);
    let tmo = setup.options.admin_timeout;
    let took = all_come_back_with_an_exhausted_pool(setup);
    assert!(took < tmo / 2, "nobody waits until opening has taken too long: {took:?}");
}

/// Controllers that never answer Connect do not keep the memory that others need for theirs.
#[test]
fn a_path_comes_back_while_controllers_are_silent_at_connect_and_the_pool_is_empty() {
    const SILENT: u16 = 40;
    let mut rig = Setup::new(SILENT + 1, 1).connect();
    cut(&mut rig, SILENT + 1);
    let names = rig.submit(writes(30, 1));
    rig.run(MS);
    let silent = |pdu: &Pdu| {
        pdu.kind == kind::CAPSULE_CMD
            && pdu.worker > 0
            && pdu.port < SILENT
            && pdu.sqe.is_some_and(|sqe| sqe.is_fabrics())
    };
    let before = rig.seen(silent).len();
    rig.wire().rule(move |pdu| {
        if silent(pdu) {
            pdu.bytes.clear();
        }
    });
    rig.world.exhaust_pool(Some(WorkerId(1)));
    restore(&mut rig, SILENT);
    rig.wait(SECOND * 5, "Connect of each silent controller", |rig| {
        rig.seen(silent).len() - before == usize::from(SILENT)
    });
    rig.target(TargetVerb::Restore { port: SILENT });
    let begin = rig.now();
    rig.wait_live(SILENT);
    rig.succeed(&names);
    let took = rig.now().since(begin);
    assert!(took < SECOND, "nothing waited for those that are silent: {took:?}");
    rig.wire().clear_rules();
    rig.world.exhaust_pool(None);
    rig.finish();
}

#[test]
fn m10_b12_when_fast_io_fail_is_over_everywhere_io_fails_and_the_reconnect_goes_on() {
    let mut setup = Setup::new(2, 1);
    setup.options.fast_io_fail_tmo = Some(2 * SECOND);
    let mut rig = setup.connect();
    let begin = cut(&mut rig, 2);
    let names = rig.submit(writes(10, 1));
    rig.run(1900 * MS);
    assert_eq!(rig.answered(&names), 0, "in time it waits");
    let failed = assert_no_path(&mut rig, &names);
    for at in failed {
        let after = at.since(begin);
        assert!(after >= 2 * SECOND && after < 2100 * MS, "failed after {after:?}");
    }
    let late = rig.submit(writes(9, 1).chain([Op::Flush]));
    let submitted = rig.now();
    let failed = assert_no_path(&mut rig, &late);
    assert!(failed.iter().all(|at| at.since(submitted) < MS), "new requests fail at once");
    assert_eq!(rig.head().failed_no_available_path, 20);
    let attempts = |rig: &Rig| rig.events().iter().filter(|(_, t)| t.contains("attempt")).count();
    let tried = attempts(&rig);
    rig.run(SECOND);
    assert!(attempts(&rig) >= tried + 10, "both go on trying");
    restore(&mut rig, 2);
    rig.wait_live(0);
    rig.wait_live(1);
    rig.io(writes(10, 2));
    rig.finish();
}

#[test]
fn b12_io_waits_while_one_controller_is_still_in_time() {
    let mut rig = Setup::new(2, 1).connect();
    rig.set("nvme0", "fast_io_fail_tmo", "1");
    let begin = cut(&mut rig, 2);
    let names = rig.submit(writes(10, 1));
    rig.run(30 * SECOND);
    assert!(rig.event(begin, "nvme0: fast_io_fail_tmo has passed").is_some());
    assert_eq!(rig.answered(&names), 0, "nvme1 may still come back");
    rig.target(TargetVerb::Restore { port: 1 });
    rig.succeed(&names);
    restore(&mut rig, 2);
    rig.wait_live(0);
    rig.finish();
}

/// One path that is lost for good a second after the cut.
fn one_path(delayed_removal: &str) -> (Rig, Time) {
    let mut setup = Setup::new(1, 1);
    setup.options.ctrl_loss_tmo = Some(SECOND);
    let mut rig = setup.connect();
    rig.set("nvme0n1", "delayed_removal_secs", delayed_removal);
    let begin = cut(&mut rig, 1);
    (rig, begin)
}

fn wait_orphaned(rig: &mut Rig, begin: Time) -> Time {
    let text = "no path left";
    rig.wait(5 * SECOND, "orphaned device", |rig| rig.event(begin, text).is_some());
    rig.event(begin, text).expect("just seen")
}

#[test]
fn m19_the_last_path_is_lost_io_waits_for_the_delay_then_fails() {
    let (mut rig, begin) = one_path("5");
    let names = rig.submit(writes(10, 1));
    let orphaned = wait_orphaned(&mut rig, begin);
    rig.run(4900 * MS - rig.now().since(orphaned));
    assert_eq!(rig.answered(&names), 0);
    for outcome in rig.answers(&names) {
        assert!(matches!(outcome.result, Err(Failure::Io(IoError::NoPath | IoError::Gone))));
        let waited = outcome.at.since(orphaned);
        assert!(waited >= 5 * SECOND && waited < 5100 * MS, "{waited:?}");
    }
    let late = rig.submit(writes(1, 1));
    let unknown = Err(Failure::Refused(Refused::UnknownHead));
    assert_eq!(rig.answers(&late)[0].result, unknown, "the device is gone");
    rig.finish();
}

#[test]
fn m19_a_path_that_is_back_in_time_makes_no_error_and_keeps_the_device() {
    let (mut rig, begin) = one_path("5");
    let names = rig.submit(writes(10, 1));
    wait_orphaned(&mut rig, begin);
    let before = rig.get("nvme0n1", "wwid");
    rig.run(3 * SECOND);
    restore(&mut rig, 1);
    rig.connect(0);
    rig.succeed(&names);
    assert_eq!(rig.get("nvme0n1", "wwid"), before);
    rig.run(20 * SECOND);
    rig.io(reads(10));
    assert_eq!(rig.head().errors, 0);
    rig.finish();
}

#[test]
fn m19_without_a_delay_io_fails_with_the_last_controller() {
    let (mut rig, begin) = one_path("0");
    let names = rig.submit(writes(10, 1));
    for outcome in rig.answers(&names) {
        assert!(outcome.result.is_err());
        let waited: Duration = outcome.at.since(begin);
        assert!(waited > 900 * MS && waited < 1500 * MS, "ctrl_loss_tmo of 1 s: {waited:?}");
    }
    rig.finish();
}
