//! ANA states are followed while I/O runs.

use crate::rig::{MS, Rig, SECOND, Setup, reads, writes};
use crate::setup;
use crate::wire::Pdu;
use anabranch_policy::Policy;
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::opcode::{admin, io};
use anabranch_proto::nvme::{AnaState, Status};
use anabranch_target::TargetVerb;
use std::cell::Cell;

/// Identifier of the ANA log (Base, Get Log Page).
const LOG_ANA: u32 = 0x0c;

fn log_reads(rig: &Rig, port: u16) -> usize {
    let reads = rig.seen(|pdu| pdu.port == port && pdu.is_admin(admin::GET_LOG_PAGE));
    reads.iter().filter(|p| p.sqe.is_some_and(|sqe| sqe.cdw(10) & 0xff == LOG_ANA)).count()
}

#[test]
fn m11_all_paths_inaccessible_io_waits_and_goes_on() {
    let mut rig = Setup::new(2, 2).connect();
    rig.ana(0, AnaState::Inaccessible);
    rig.ana(1, AnaState::Inaccessible);
    rig.run(10 * MS);
    let names: Vec<u64> =
        (1..=2).flat_map(|worker| rig.submit_to(worker, "nvme0n1", writes(10, 7))).collect();
    rig.run(40 * SECOND);
    assert_eq!(rig.answered(&names), 0, "neither well nor with an error");
    assert_eq!((rig.sent(0), rig.sent(1)), (0, 0));
    assert_eq!(rig.head().requeued_no_usable_path, 20);
    rig.ana(1, AnaState::NonOptimized);
    rig.succeed(&names);
    assert_eq!((rig.sent(0), rig.sent(1)), (0, 20));
    rig.finish();
}

#[test]
fn m14_an_ana_status_takes_the_path_out_until_a_fresh_log() {
    for status in [Status::ANA_INACCESSIBLE, Status::ANA_PERSISTENT_LOSS, Status::ANA_TRANSITION] {
        let mut rig = Setup::new(2, 1).connect();
        let before = log_reads(&rig, 0);
        let once = Cell::new(true);
        rig.wire().rule(move |pdu| {
            if pdu.port == 0 && pdu.answers(io::WRITE) && once.replace(false) {
                pdu.answer(status);
            }
        });
        let admin = rig.world.stream(WorkerId(0), &setup::port(0)).expect("open");
        rig.world.stall_stream(admin, 500 * MS);
        rig.io(writes(2, 1));
        let sent = rig.sent(0);
        rig.run(10 * MS);
        rig.io(writes(10, 2));
        assert_eq!(rig.sent(0), sent, "{status}: the path is out");
        rig.run(SECOND);
        rig.io(reads(10));
        assert_eq!(rig.sent(0), sent + 5, "{status}: a fresh log has brought it back");
        assert_eq!(log_reads(&rig, 0), before + 1, "{status}: one log was read");
        assert_eq!(log_reads(&rig, 1), before, "{status}: and none from the other controller");
        assert_eq!(rig.path(0).failovers, 1);
        rig.finish();
    }
}

#[test]
fn m14_the_command_that_met_it_waits_for_the_log_too() {
    let mut rig = Setup::new(1, 1).connect();
    let once = Cell::new(true);
    rig.wire().rule(move |pdu| {
        if pdu.answers(io::WRITE) && once.replace(false) {
            pdu.answer(Status::ANA_TRANSITION);
        }
    });
    let admin = rig.world.stream(WorkerId(0), &setup::port(0)).expect("open");
    rig.world.stall_stream(admin, 500 * MS);
    let names = rig.submit(writes(1, 1));
    rig.run(400 * MS);
    assert_eq!((rig.sent(0), rig.answered(&names)), (1, 0), "not sent again before that");
    rig.succeed(&names);
    assert_eq!(rig.sent(0), 2);
    rig.finish();
}

#[test]
fn m15_a_change_that_lasts_resets_the_controller_and_io_goes_on() {
    let mut setup = Setup::new(2, 1);
    setup.target.limits.ana_transition_s = 2;
    let mut rig = setup.connect();
    let begin = rig.now();
    rig.ana(0, AnaState::Change);
    rig.wait(5 * SECOND, "time-out of the transition", |rig| {
        rig.io(writes(4, 1));
        rig.event(begin, "ANATT timeout").is_some()
    });
    let waited = rig.event(begin, "ANATT timeout").expect("just seen").since(begin);
    assert!(waited >= 4 * SECOND && waited < 4 * SECOND + 100 * MS, "twice ANATT: {waited:?}");
    assert!(rig.event(begin, "nvme0: live -> resetting").is_some());
    assert!(rig.event(begin, "nvme1: live").is_none(), "the other one is left alone");
    rig.ana(0, AnaState::Optimized);
    rig.wait_live(0);
    rig.finish();
}

#[test]
fn m15_a_change_that_ends_in_time_resets_nothing() {
    let mut setup = Setup::new(2, 1);
    setup.target.limits.ana_transition_s = 2;
    let mut rig = setup.connect();
    let begin = rig.now();
    rig.ana(0, AnaState::Change);
    rig.run(3 * SECOND);
    rig.ana(0, AnaState::Optimized);
    rig.run(30 * SECOND);
    assert_eq!(rig.event(begin, "ANATT timeout"), None);
    rig.io(writes(4, 1));
    assert_eq!((rig.sent(0), rig.sent(1)), (2, 2));
    rig.finish();
}

#[test]
fn m16_an_ana_event_is_followed_without_a_reconnect() {
    let mut rig = Setup::new(2, 2).connect();
    let before = log_reads(&rig, 0);
    for (count, state) in [AnaState::Inaccessible, AnaState::NonOptimized, AnaState::Optimized]
        .into_iter()
        .enumerate()
    {
        let begin = rig.now();
        rig.ana(0, state);
        rig.wait(10 * MS, "news of the state", |rig| rig.path(0).ana_state == state);
        assert!(rig.event(begin, &format!("-> {state}")).is_some());
        assert_eq!(log_reads(&rig, 0), before + count + 1, "one event, one log");
    }
    rig.run(MS);
    rig.io(writes(10, 1));
    assert_eq!((rig.sent(0), rig.sent(1)), (5, 5));
    assert_eq!(rig.get("nvme0", "reconnect_count"), "0");
    assert_eq!(rig.get("nvme0", "reset_count"), "0");
    rig.finish();
}

#[test]
fn groups_are_followed_each_for_itself() {
    let mut setup = Setup::new(2, 1);
    setup.namespaces().push(setup::namespace(2, 512));
    setup.namespaces()[1].ana_group = 2;
    let mut rig = setup.connect();
    rig.target(TargetVerb::Ana { port: 0, group: 2, state: AnaState::Inaccessible });
    rig.run(10 * MS);
    rig.io(writes(10, 1));
    assert_eq!((rig.sent(0), rig.sent(1)), (5, 5), "group 1 uses both");
    let names = rig.submit_to(1, "nvme0n2", writes(10, 1));
    rig.succeed(&names);
    assert_eq!((rig.sent(0), rig.sent(1)), (5, 15), "group 2 the other one only");
    // The second namespace moves to the first group.
    let (subsystem, nsid, group) = (setup::subsystem(), 2, 1);
    rig.target(TargetVerb::NamespaceGroup { subsystem, nsid, group });
    rig.run(SECOND);
    let names = rig.submit_to(1, "nvme0n2", writes(10, 1));
    rig.succeed(&names);
    assert_eq!((rig.sent(0), rig.sent(1)), (10, 20), "and is where that one is");
    rig.finish();
}

#[test]
fn m3_numa_fails_back_with_the_next_io() {
    for (kernel_exact, lost) in
        [(false, AnaState::NonOptimized), (true, AnaState::Inaccessible), (false, AnaState::Change)]
    {
        let mut setup = Setup::new(2, 1);
        setup.host.default_policy = Policy::Numa;
        setup.host.kernel_exact = kernel_exact;
        let mut rig = setup.connect();
        rig.io(writes(10, 1));
        assert_eq!((rig.sent(0), rig.sent(1)), (10, 0), "equally near: list order");
        rig.ana(0, lost);
        rig.run(10 * MS);
        rig.io(writes(10, 2));
        assert_eq!((rig.sent(0), rig.sent(1)), (10, 10), "{lost}");
        rig.ana(0, AnaState::Optimized);
        rig.run(10 * MS);
        rig.io(writes(10, 3));
        assert_eq!((rig.sent(0), rig.sent(1)), (20, 10), "back at once after {lost}");
        rig.finish();
    }
}

/// As Linux does when a path goes live: what it binds a node to is looked for anew.
#[test]
fn m3_numa_fails_back_when_the_controller_is_connected_again() {
    for kernel_exact in [false, true] {
        let mut setup = Setup::new(2, 1);
        setup.host.default_policy = Policy::Numa;
        setup.host.kernel_exact = kernel_exact;
        let mut rig = setup.connect();
        rig.target(TargetVerb::Cut { port: 0 });
        rig.wait(60 * SECOND, "loss", |rig| !rig.is_live(0));
        rig.io(writes(10, 1));
        assert_eq!((rig.sent(0), rig.sent(1)), (0, 10), "the only one");
        rig.target(TargetVerb::Restore { port: 0 });
        rig.wait_live(0);
        rig.run(MS);
        rig.io(writes(10, 2));
        assert_eq!((rig.sent(0), rig.sent(1)), (10, 10), "exact {kernel_exact}: back at once");
        rig.finish();
    }
}

/// A host with `numa` whose one write has met an error on the first path.
fn numa_after_an_error(status: Status) -> Rig {
    let mut setup = Setup::new(2, 1);
    setup.host.default_policy = Policy::Numa;
    let mut rig = setup.connect();
    let once = Cell::new(true);
    rig.wire().rule(move |pdu| {
        if pdu.port == 0 && pdu.answers(io::WRITE) && once.replace(false) {
            pdu.answer(status);
        }
    });
    rig.io(writes(1, 1));
    assert_eq!((rig.sent(0), rig.sent(1)), (1, 1), "it went on over the other one");
    rig
}

#[test]
fn m3_numa_fails_back_when_a_fresh_log_says_that_the_path_is_optimized_still() {
    let mut rig = numa_after_an_error(Status::ANA_TRANSITION);
    rig.run(SECOND);
    rig.io(writes(10, 2));
    assert_eq!((rig.sent(0), rig.sent(1)), (11, 1), "back at once");
    rig.finish();
}

#[test]
fn m3_numa_is_back_at_once_after_an_error_of_a_path_that_can_still_be_used() {
    let mut rig = numa_after_an_error(Status::INTERNAL_PATH_ERROR);
    rig.io(writes(10, 2));
    assert_eq!((rig.sent(0), rig.sent(1)), (11, 1), "those that follow have no reason to");
    rig.finish();
}

#[test]
fn m3_numa_stays_where_it_is_when_another_path_is_removed() {
    let mut setup = Setup::new(3, 1);
    setup.host.default_policy = Policy::Numa;
    let mut rig = setup.connect();
    rig.ana(0, AnaState::NonOptimized);
    rig.run(10 * MS);
    rig.io(writes(10, 1));
    assert_eq!([0, 1, 2].map(|port| rig.sent(port)), [0, 10, 0], "the first of the best");
    rig.done_disconnecting(0);
    rig.io(writes(10, 2));
    assert_eq!([0, 1, 2].map(|port| rig.sent(port)), [0, 20, 0], "and still");
    rig.finish();
}

#[test]
fn what_waits_for_a_tag_leaves_a_path_that_gives_no_access_any_more() {
    let mut setup = Setup::new(2, 1);
    setup.options.queue_size = 16;
    setup.host.max_requests = 512;
    setup.target.ports.iter_mut().for_each(|port| port.shape.delay = MS * 5);
    let mut rig = setup.connect();
    rig.run(SECOND);
    let begin = rig.now();
    let names = rig.submit(writes(400, 1));
    rig.run(MS * 2);
    rig.ana(0, AnaState::Inaccessible);
    rig.succeed(&names);
    let known = rig.event(begin, "inaccessible").expect("it is told").after(MS);
    let sent = |after| move |pdu: &Pdu| pdu.is_io() && pdu.port == 0 && pdu.at > after;
    assert!(!rig.seen(sent(begin)).is_empty(), "it had some");
    assert_eq!(rig.seen(sent(known)).len(), 0);
    rig.finish();
}
