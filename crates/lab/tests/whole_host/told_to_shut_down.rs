//! Controllers that take no command any more, while their queue pairs are open still. One is told
//! to shut down, as it is reset on request and does not become quiet; another is about to close.

use crate::rig::{MS, Rig, SECOND, Setup, reads, writes};
use crate::script::Op;
use crate::setup;
use crate::wire::kind;
use anabranch_host::verb::{Selection, Verb};
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::opcode::admin;
use anabranch_proto::nvme::{Sqe, Status};
use std::cell::Cell;
use std::rc::Rc;

/// Our target's word, and that of Linux's and SPDK's.
const SAYS: [Status; 2] = [Status::ABORTED_SQ_DELETION, Status::COMMAND_SEQUENCE_ERROR.with_dnr()];

/// Says so of whatever comes too late, and counts that.
fn saying(rig: &Rig, says: Status) -> Rc<Cell<u32>> {
    let aborted = Rc::new(Cell::new(0));
    let count = Rc::clone(&aborted);
    rig.wire().rule(move |pdu| {
        if pdu.is_io_answer() && pdu.status().is(Status::ABORTED_SQ_DELETION) {
            count.set(count.get() + 1);
            pdu.answer(says);
        }
    });
    aborted
}

fn stall(rig: &mut Rig, worker: u16, ms: u32) {
    let stream = rig.world.stream(WorkerId(worker), &setup::port(0)).expect("open");
    rig.world.stall_stream(stream, MS * ms);
}

/// It is told after a second, and answers so long after that.
fn reset(rig: &mut Rig, each_way_ms: u32) {
    let admin = rig.world.stream(WorkerId(0), &setup::port(0)).expect("open");
    rig.world.slow_stream(admin, MS * each_way_ms);
    rig.start(Verb::Reset { controller: "nvme0".into() });
}

#[test]
fn a_flush_that_comes_too_late_is_done_by_whoever_serves_the_namespace_next() {
    for (ports, says) in SAYS.into_iter().flat_map(|says| [(1, says), (2, says)]) {
        let mut rig = Setup::new(ports, 2).connect();
        let aborted = saying(&rig, says);
        rig.io(writes(4, 1));
        stall(&mut rig, 2, 3000);
        let stuck = rig.submit_to(2, "nvme0n1", writes(4, 2));
        reset(&mut rig, 100);
        rig.run(SECOND + 150 * MS);
        let names = rig.submit([Op::Flush]);
        rig.succeed(&names);
        assert_eq!(aborted.get(), 1, "it was asked, and no second time");
        rig.succeed(&stuck);
        rig.run(5 * SECOND);
        rig.finish();
    }
}

#[test]
fn writes_and_reads_that_come_too_late_are_done_elsewhere_or_when_it_is_back() {
    for (ports, says) in SAYS.into_iter().flat_map(|says| [(1, says), (2, says)]) {
        let mut rig = Setup::new(ports, 1).connect();
        rig.io(writes(8, 1));
        let aborted = saying(&rig, says);
        // They are on their way for longer than it takes to tell the controller.
        stall(&mut rig, 1, 1400);
        let names = rig.submit(writes(8, 2).chain(reads(8)));
        reset(&mut rig, 300);
        let answers = rig.succeed(&names);
        assert_eq!(answers.len(), 16);
        assert!(aborted.get() > 0, "some came too late");
        let read = rig.io([Op::Read { lba: 0, blocks: 8 }]);
        assert!(read[0].data.iter().all(|&byte| byte == 2));
        assert_eq!(rig.path(0).uncertain_writes_resent, 0, "what was refused has not been done");
        rig.run(5 * SECOND);
        rig.finish();
    }
}

/// One that is removed has so long to finish what it has, then it is told.
#[test]
fn what_a_controller_that_is_removed_refuses_is_done_elsewhere() {
    for says in SAYS {
        let mut setup = Setup::new(2, 1);
        setup.host.shutdown_timeout = SECOND;
        let mut rig = setup.connect();
        rig.io(writes(8, 1));
        let aborted = saying(&rig, says);
        stall(&mut rig, 1, 1400);
        let names = rig.submit(writes(8, 2).chain(reads(8)).chain([Op::Flush]));
        let admin = rig.world.stream(WorkerId(0), &setup::port(0)).expect("open");
        rig.world.slow_stream(admin, 300 * MS);
        rig.start(Verb::Disconnect(Selection::Controller("nvme0".into())));
        rig.succeed(&names);
        assert!(aborted.get() > 0, "some came too late");
        rig.run(5 * SECOND);
        rig.finish();
    }
}

/// A target closes the connection of a queue pair a while after it has stopped to take commands.
#[test]
fn what_a_queue_pair_that_is_about_to_be_closed_refuses_is_no_error() {
    for (ports, says) in [(1, Status::ABORTED_SQ_DELETION), (2, Status::COMMAND_SEQUENCE_ERROR)] {
        let mut rig = Setup::new(ports, 1).connect();
        rig.io(writes(8, 1).chain([Op::Flush]));
        let stops = Rc::new(Cell::new(true));
        let stopped = Rc::clone(&stops);
        rig.wire().rule(move |pdu| {
            if pdu.port == 0 && pdu.is_io_answer() && stopped.get() {
                pdu.answer(says);
            }
        });
        let names = rig.submit(writes(8, 2).chain(reads(8)).chain([Op::Flush]));
        rig.run(300 * MS);
        stops.set(false);
        let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
        rig.world.break_stream(stream);
        rig.succeed(&names);
        rig.run(5 * SECOND);
        rig.finish();
    }
}

/// Whom the host lets go on its own account is told at once: then the workers hear of it later than
/// the controller does.
#[test]
fn what_reaches_a_controller_that_was_told_before_the_workers_were_is_done_elsewhere() {
    let mut setup = Setup::new(2, 1);
    setup.times.mail = (MS, MS);
    let mut rig = setup.connect();
    rig.run(SECOND);
    rig.io(writes(8, 1));
    let refused = saying(&rig, Status::COMMAND_SEQUENCE_ERROR.with_dnr());
    rig.wire().rule(|pdu| {
        let keep_alive = |sqe: Sqe| !sqe.is_fabrics() && sqe.opcode() == admin::KEEP_ALIVE;
        let is_answer = pdu.kind == kind::CAPSULE_RESP && pdu.worker == 0;
        if is_answer && pdu.port == 0 && pdu.sqe.is_some_and(keep_alive) {
            pdu.answer(Status::INTERNAL_ERROR);
        }
    });
    let begin = rig.now();
    let mut names = Vec::new();
    while rig.event(begin, "resetting").is_none() {
        assert!(rig.now() < begin.after(SECOND * 10), "Keep Alive was refused");
        names.extend(rig.submit(writes(4, 2)));
        rig.run(MS / 10);
    }
    for _ in 0..20 {
        names.extend(rig.submit(writes(4, 2)));
        rig.run(MS / 10);
    }
    rig.succeed(&names);
    assert!(refused.get() > 0, "some came too late");
    rig.wire().clear_rules();
    rig.run(20 * SECOND);
    rig.finish();
}
