//! Turns: what one host sends at once does not keep the others waiting, and all of it is done.

use crate::common::*;
use anabranch_proto::machine::{CloseCause, ConnId, Input};
use anabranch_proto::nvme::io::{self, DsmRange};
use anabranch_proto::nvme::log::{GetLogPage, lid};
use anabranch_proto::nvme::{Sgl, Sqe, Status, aer};
use anabranch_target::{Service, TargetVerb};

/// As many as the queues of these tests take at once.
const DEPTH: u16 = 120;

/// Sends commands with one input. Their CIDs count from 1000.
fn send_at_once(rig: &mut Rig, conn: ConnId, count: u16, sqe: Sqe, data: &[u8]) {
    let bytes: Vec<u8> = (0..count).flat_map(|at| capsule(sqe.with_cid(1000 + at), data)).collect();
    rig.send(conn, &bytes);
}

/// Sends many commands that take long: each names 256 ranges.
fn flood(rig: &mut Rig, conn: ConnId) {
    let ranges = DsmRange { attributes: 0, blocks: 1, lba: 0 }.to_bytes().repeat(256);
    let sqe = io::deallocate(1, 256).with_sgl(Sgl::in_capsule(4096));
    send_at_once(rig, conn, DEPTH, sqe, &ranges);
}

fn answered(rig: &Rig, conn: ConnId) -> usize {
    rig.wires[&conn].done.len()
}

fn all_succeed(rig: &Rig, conn: ConnId, count: u16) {
    let done = &rig.wires[&conn].done;
    assert!(done.keys().copied().eq(1000..1000 + count), "{} answers", done.len());
    assert!(done.values().all(|done| done.status == Status::SUCCESS));
}

#[test]
fn other_hosts_are_answered_while_one_floods_its_queue() {
    let mut rig = Rig::new(config());
    let (admin, queue) = rig.controller_with(1, 1_000);
    let (_, first) = rig.controller(0);
    let (_, second) = rig.controller(0);
    rig.slow_timers = true;
    flood(&mut rig, first);
    flood(&mut rig, second);
    let before = [first, second].map(|conn| answered(&rig, conn));
    assert!(before.iter().all(|&done| done > 0 && done < DEPTH.into()), "{before:?}");
    assert_eq!(rig.run(admin, aer::keep_alive(), 0).status, Status::SUCCESS);
    assert_eq!(rig.run(queue, read(0, 1), 4096).status, Status::SUCCESS);
    assert_eq!(
        [first, second].map(|conn| answered(&rig, conn)),
        before,
        "they wait for their turn"
    );
    // What else they send waits behind that.
    let sqe = write(1, 1).with_sgl(Sgl::in_capsule(4096)).with_cid(1000 + DEPTH);
    rig.raw(first, sqe, &[1; 4096]);
    assert_eq!(answered(&rig, first), before[0]);
    assert!(rig.timer(), "the rest needs no further input");
    let after = [first, second].map(|conn| answered(&rig, conn));
    assert!(before.iter().zip(&after).all(|(before, after)| before < after), "each has a turn");
    let mut rounds = 1;
    while rig.timer() {
        rounds += 1;
        assert!(rounds < 100, "each does something");
    }
    all_succeed(&rig, first, DEPTH + 1);
    all_succeed(&rig, second, DEPTH);
    assert_eq!(rig.run(queue, read(1, 1), 4096).data, vec![1; 4096]);
    rig.assert_no_leak();
}

/// However many connections have something left, a round ends before all had a turn.
#[test]
fn a_long_line_goes_on_in_rounds() {
    let mut rig = Rig::new(config());
    let queues: Vec<ConnId> = (0..12).map(|_| rig.controller(0).1).collect();
    rig.slow_timers = true;
    queues.iter().for_each(|&queue| flood(&mut rig, queue));
    let counts = |rig: &Rig| -> Vec<usize> { queues.iter().map(|q| answered(rig, *q)).collect() };
    let before = counts(&rig);
    assert!(rig.timer());
    let (first, after) = (before[0], counts(&rig));
    let advanced = after.iter().filter(|&&done| done > first).count();
    assert!((1..queues.len()).contains(&advanced), "{advanced}");
    assert!(after.is_sorted_by(|a, b| a >= b), "those who wait longest come first: {after:?}");
    for _ in 0..queues.len() {
        assert!(rig.timer());
        let (least, most) = (*counts(&rig).iter().min().unwrap(), *after.iter().max().unwrap());
        if least >= most {
            break;
        }
    }
    assert!(counts(&rig).iter().all(|done| *done > first), "everybody's turn has come");
    rig.slow_timers = false;
    assert!(rig.timer());
    queues.iter().for_each(|&queue| all_succeed(&rig, queue, DEPTH));
    assert!(rig.target_timeout().is_none_or(|at| at > rig.now), "nothing is left");
    rig.assert_no_leak();
}

#[test]
fn a_full_queue_of_plain_commands_is_one_turn() {
    let mut rig = Rig::new(config());
    let (_, queue) = rig.controller(0);
    rig.slow_timers = true;
    let sqe = write(3, 1).with_sgl(Sgl::in_capsule(4096));
    send_at_once(&mut rig, queue, 127, sqe, &[1; 4096]);
    all_succeed(&rig, queue, 127);
    assert!(!rig.timer());
}

#[test]
fn a_flood_of_long_log_pages_is_done_in_turns() {
    let mut rig = Rig::new(config());
    let (admin, _) = rig.controller(0);
    rig.slow_timers = true;
    // Parts that are short: the page is put together for each.
    let sqe = GetLogPage::new(lid::ANA, 0, 4).sqe().with_sgl(Sgl::transport(4));
    send_at_once(&mut rig, admin, 31, sqe, &[]);
    assert!((1..31).contains(&answered(&rig, admin)), "{}", answered(&rig, admin));
    while rig.timer() {}
    all_succeed(&rig, admin, 31);
}

#[test]
fn what_a_link_lets_go_of_at_once_is_done_in_rounds() {
    let shape = "delay=5ms".parse().unwrap();
    is_done_in_rounds_after_5_ms(TargetVerb::Shape { port: 0, shape });
}

#[test]
fn what_a_server_has_done_at_once_is_answered_in_rounds() {
    let service = Service {
        servers: None,
        read: ms(5),
        write: ms(5),
        other: ms(5),
        exponential: false,
        per_port: false,
    };
    is_done_in_rounds_after_5_ms(TargetVerb::Service(Some(service)));
}

fn is_done_in_rounds_after_5_ms(held_by: TargetVerb) {
    let mut rig = Rig::new(config());
    let (admin, _) = rig.controller_with(1, 1_000);
    let (_, queue) = rig.controller(0);
    rig.ok(held_by);
    flood(&mut rig, queue);
    assert_eq!(answered(&rig, queue), 0);
    rig.slow_timers = true;
    rig.now = rig.now.after(ms(5));
    assert!(rig.timer());
    assert!((1..DEPTH.into()).contains(&answered(&rig, queue)), "{}", answered(&rig, queue));
    assert_eq!(rig.run(admin, aer::keep_alive(), 0).status, Status::SUCCESS);
    while rig.timer() {}
    all_succeed(&rig, queue, DEPTH);
    rig.assert_no_leak();
}

#[test]
fn who_leaves_the_line_leaves_nothing_behind() {
    let mut rig = Rig::new(config());
    let (_, gone) = rig.controller(0);
    let (_, stays) = rig.controller(0);
    rig.slow_timers = true;
    flood(&mut rig, gone);
    flood(&mut rig, stays);
    rig.input(Input::Closed { conn: gone, cause: CloseCause::PeerClosed });
    // One that takes its place has a turn of its own at once.
    let (_, next) = rig.controller(0);
    flood(&mut rig, next);
    assert!(answered(&rig, next) > 0);
    while rig.timer() {}
    all_succeed(&rig, stays, DEPTH);
    all_succeed(&rig, next, DEPTH);
    assert!(answered(&rig, gone) < DEPTH.into(), "nobody is there to be answered");
    rig.assert_no_leak();
}

/// What waits for its turn when its namespace goes is not done in the one that takes its number.
#[test]
fn who_waits_for_a_turn_finds_the_namespace_that_was_meant_or_none() {
    let mut rig = Rig::new(config());
    let (_, queue) = rig.controller(0);
    let (_, other) = rig.controller(1);
    rig.slow_timers = true;
    flood(&mut rig, queue);
    let sqe = write(0, 1).with_sgl(Sgl::in_capsule(4096)).with_cid(1000 + DEPTH);
    rig.raw(queue, sqe, &[1; 4096]);
    rig.ok(TargetVerb::NamespaceRemove { subsystem: nqn(SUBSYSTEM), nsid: 1 });
    let config = memory_namespace(1, 16 * MIB);
    rig.ok(TargetVerb::NamespaceAdd { subsystem: nqn(SUBSYSTEM), config });
    while rig.timer() {}
    let done = rig.poll(queue, 1000 + DEPTH).expect("an answer");
    assert!(done.status.is(Status::INVALID_NAMESPACE), "{}", done.status);
    assert_eq!(answered(&rig, queue), DEPTH.into());
    assert_eq!(rig.run(other, read(0, 1), 4096).data, vec![0; 4096]);
}
