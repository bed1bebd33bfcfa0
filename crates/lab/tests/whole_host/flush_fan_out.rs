//! A flush reaches every controller that has acknowledged writes.

use crate::namespace_changes::renumbered;
use crate::rig::{MS, Rig, SECOND, Setup, reads, writes};
use crate::script::Batch;
use crate::script::Op;
use crate::setup;
use crate::wire::kind;
use anabranch_host::topology::ControllerState;
use anabranch_host::verb::{Selection, Verb};
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::opcode::{admin, io};
use anabranch_proto::nvme::{AnaState, Sqe, Status};
use anabranch_target::TargetVerb;

/// Flushes that were sent to each port so far.
fn flushes(rig: &Rig) -> [usize; 2] {
    let sent = rig.seen(|pdu| pdu.is_io() && pdu.sqe.is_some_and(|s| s.opcode() == io::FLUSH));
    [0, 1].map(|port| sent.iter().filter(|pdu| pdu.port == port).count())
}

fn flush(rig: &mut Rig) -> [usize; 2] {
    let before = flushes(rig);
    rig.io([Op::Flush]);
    let after = flushes(rig);
    [after[0] - before[0], after[1] - before[1]]
}

#[test]
fn a_flush_goes_to_each_controller_that_has_acknowledged_a_write_since() {
    let mut rig = Setup::new(2, 1).connect();
    rig.io(writes(4, 1));
    assert_eq!(flush(&mut rig), [1, 1]);
    let [first, second] = flush(&mut rig);
    assert_eq!(first + second, 1, "nothing is owed: one, as it was asked for");
    rig.io(writes(1, 2));
    assert_eq!(flush(&mut rig).iter().sum::<usize>(), 1, "one write, one controller");
    rig.io((0..4).map(|lba| Op::WriteFua { lba, blocks: 1, fill: 3 }));
    assert_eq!(flush(&mut rig).iter().sum::<usize>(), 1, "durable writes owe nothing");
    rig.io((0..4).map(|lba| Op::Zero { lba, blocks: 1 }));
    assert_eq!(flush(&mut rig), [1, 1], "zeroes are writes, too");
    rig.io((0..4).map(|lba| Op::Discard { lba, blocks: 1 }));
    assert_eq!(flush(&mut rig), [1, 1], "and what was discarded must not come back");
    rig.finish();
}

#[test]
fn the_first_flush_covers_what_was_written_before_the_path_joined() {
    let mut rig = Setup::new(2, 1).connect();
    assert_eq!(flush(&mut rig), [1, 1], "by this host in an earlier life, perhaps");
    assert_eq!(flush(&mut rig).iter().sum::<usize>(), 1);
    rig.done_disconnecting(1);
    rig.connect(1);
    assert_eq!(flush(&mut rig), [0, 1], "and by this one");
    rig.finish();
}

#[test]
fn a_flush_covers_the_writes_of_other_workers() {
    let mut rig = Setup::new(2, 2).connect();
    let names = rig.submit_to(2, "nvme0n1", writes(4, 1));
    rig.succeed(&names);
    assert_eq!(flush(&mut rig), [1, 1], "asked for on the first worker");
    let names = rig.submit_to(2, "nvme0n1", [Op::Flush]);
    let before: usize = flushes(&rig).iter().sum();
    rig.succeed(&names);
    assert_eq!(flushes(&rig).iter().sum::<usize>(), before + 1, "and known on the second");
    rig.finish();
}

#[test]
fn what_is_written_while_other_paths_go_is_flushed_where_it_was_written() {
    let mut rig = Setup::new(3, 1).connect();
    rig.io([Op::Flush]);
    [0, 2].into_iter().for_each(|port| rig.ana(port, AnaState::Inaccessible));
    rig.run(10 * MS);
    let stream = rig.world.stream(WorkerId(1), &setup::port(1)).expect("open");
    rig.world.stall_stream(stream, 500 * MS);
    let names = rig.submit(writes(1, 1));
    rig.run(MS);
    rig.done_disconnecting(0);
    rig.succeed(&names);
    rig.ana(2, AnaState::Optimized);
    rig.run(10 * MS);
    let before = rig.seen(|pdu| pdu.is_io()).len();
    rig.io([Op::Flush]);
    let flushed = rig.seen(|pdu| pdu.is_io()).split_off(before);
    assert_eq!(flushed.iter().map(|pdu| pdu.port).collect::<Vec<_>>(), [1]);
    rig.finish();
}

/// It has been connected to anew since, and does not tell of a cache any more.
#[test]
fn what_is_owed_stays_so_when_a_controller_tells_of_no_cache_any_more() {
    let mut rig = Setup::new(1, 1).connect();
    rig.io(writes(4, 1));
    rig.wire().rule(|pdu| {
        let controller = |sqe: anabranch_proto::nvme::Sqe| {
            sqe.opcode() == admin::IDENTIFY && sqe.cdw(10) & 0xff == 1
        };
        if pdu.kind == kind::C2H_DATA && pdu.worker == 0 && pdu.sqe.is_some_and(controller) {
            // VWC.
            pdu.bytes[24 + 525] = 0;
        }
    });
    rig.done(Verb::Reset { controller: "nvme0".into() });
    rig.wait_live(0);
    assert_eq!(flush(&mut rig), [1, 0], "what it has acknowledged is made durable");
    rig.io(writes(4, 2));
    assert_eq!(flush(&mut rig), [0, 0], "and nothing more is owed");
    rig.finish();
}

#[test]
fn a_flush_that_failed_is_still_owed() {
    let mut rig = Setup::new(2, 1).connect();
    rig.io(writes(4, 1));
    rig.wire().rule(|pdu| {
        if pdu.port == 1 && pdu.answers(io::FLUSH) {
            pdu.answer(Status::INTERNAL_ERROR.with_dnr());
        }
    });
    let names = rig.submit([Op::Flush]);
    assert!(rig.answers(&names)[0].result.is_err(), "one failed, so the flush failed");
    let failed = rig.world.host(WorkerId(1)).user().failed_flushes.clone().expect("asked of it");
    assert_eq!(failed.count(), 1, "others can find out");
    rig.wire().clear_rules();
    assert_eq!(flush(&mut rig), [0, 1], "the controller that failed is asked again");
    rig.finish();
}

/// How often controllers have told of data that may be lost.
fn told(rig: &Rig) -> u64 {
    let user = rig.world.host(WorkerId(1)).user();
    user.failed_flushes.as_ref().expect("a device").count()
}

/// The next answer to such a command.
fn answer_once(rig: &Rig, opcode: u8, status: Status) {
    let mut once = true;
    rig.wire().rule(move |pdu| {
        if pdu.answers(opcode) && std::mem::take(&mut once) {
            pdu.answer(status);
        }
    });
}

/// The controller would let it be tried again, and the second one has nothing left to fail with.
#[test]
fn a_flush_that_failed_is_not_tried_again_until_it_succeeds() {
    for (status, fails) in [
        (Status::INTERNAL_ERROR, true),
        (Status::WRITE_FAULT, true),
        (Status::LBA_OUT_OF_RANGE.with_dnr(), true),
        (Status::CAPACITY_EXCEEDED, true),
        // Nothing was tried.
        (Status::COMMAND_INTERRUPTED, false),
        (Status::TRANSIENT_TRANSPORT_ERROR, false),
    ] {
        let mut rig = Setup::new(1, 1).connect();
        rig.io(writes(4, 1));
        rig.io([Op::Flush]);
        rig.io(writes(4, 2));
        answer_once(&rig, io::FLUSH, status);
        let before = flushes(&rig)[0];
        let names = rig.submit([Op::Flush]);
        assert_eq!(rig.answers(&names)[0].result.is_err(), fails, "{status}");
        assert_eq!(flushes(&rig)[0] - before, if fails { 1 } else { 2 }, "{status}");
        assert_eq!(told(&rig), u64::from(fails), "{status}");
        rig.finish();
    }
}

/// It is tried again, or not; what others have written before it may be lost either way.
#[test]
fn a_write_that_was_to_be_durable_and_failed_is_told_to_everybody() {
    for (ports, status, well, losses) in [
        (1, Status::WRITE_FAULT.with_dnr(), false, 1),
        (1, Status::INTERNAL_ERROR, true, 1),
        (1, Status::COMMAND_INTERRUPTED, true, 0),
        // It says something of the way there, nothing of media.
        (1, Status::DATA_TRANSFER_ERROR, true, 0),
        (1, Status::WRITE_PROTECTED.with_dnr(), false, 0),
        (1, Status::COMMAND_SIZE_LIMIT_EXCEEDED.with_dnr(), false, 0),
        // The block is there: Linux's target says so of a disk that has failed.
        (1, Status::LBA_OUT_OF_RANGE.with_dnr(), false, 1),
        (2, Status::LBA_OUT_OF_RANGE.with_dnr(), true, 1),
    ] {
        let mut rig = Setup::new(ports, 1).connect();
        let start = rig.now();
        answer_once(&rig, io::WRITE, status);
        let names = rig.submit([Op::WriteFua { lba: 0, blocks: 1, fill: 1 }]);
        assert_eq!(rig.answers(&names)[0].result.is_ok(), well, "{status}");
        assert_eq!(told(&rig), losses, "{status}");
        rig.run(MS);
        let line = rig.event(start, "a write with FUA failed");
        assert_eq!(line.is_some(), losses > 0, "{status}");
        rig.finish();
    }
}

#[test]
fn a_controller_out_of_reach_is_replaced_by_one_that_serves_the_namespace() {
    let mut rig = Setup::new(2, 1).connect();
    rig.io(writes(4, 1));
    rig.ana(0, AnaState::Inaccessible);
    rig.run(10 * MS);
    let failed = rig.world.host(WorkerId(1)).user().failed_flushes.clone().expect("asked of it");
    failed.leave(0);
    // Whether one that has left, and knew of all, is still to be told of what fails from now on.
    let flush_for_all = |rig: &mut Rig| {
        let mark = failed.begin();
        let asked = flush(rig);
        failed.end(mark, true);
        failed.note();
        let newcomer = failed.join();
        failed.told(newcomer, newcomer.count);
        failed.leave(newcomer.count);
        (asked, newcomer.known < newcomer.count)
    };
    assert_eq!(flush_for_all(&mut rig), ([0, 1], true), "a loss may show later");
    assert_eq!(flush_for_all(&mut rig), ([0, 1], true), "and later still");
    rig.ana(0, AnaState::Optimized);
    rig.run(SECOND);
    let owed = "what it acknowledged is owed once it can be asked";
    assert_eq!(flush_for_all(&mut rig), ([1, 0], false), "{owed}");
    rig.finish();
}

/// The first controller says that the device grows, and the second does not get to: until it does,
/// no data goes to the first.
fn grows_at_the_first(rig: &mut Rig) {
    let admin = rig.world.stream(WorkerId(0), &setup::port(1)).expect("open");
    rig.world.stall_stream(admin, 500 * MS);
    let (subsystem, bytes) = (setup::subsystem(), 2 << 20);
    rig.target(TargetVerb::NamespaceResize { subsystem, nsid: 1, bytes });
    rig.run(10 * MS);
}

/// Out of use for data is not out of reach: it may be so for a moment only, as when a device grows
/// and not every controller has said so yet.
#[test]
fn a_path_that_is_out_of_use_while_its_controller_can_be_asked_is_flushed() {
    for worker in [1, 2] {
        let mut setup = Setup::new(2, 2);
        setup.options.nr_io_queues = Some(1);
        let mut rig = setup.connect();
        rig.io(writes(4, 1));
        grows_at_the_first(&mut rig);
        let before = rig.sent(0);
        rig.io(writes(4, 2));
        assert_eq!(rig.sent(0), before, "it does not agree about the size");
        let before = flushes(&rig);
        let names = rig.submit_to(worker, "nvme0n1", [Op::Flush]);
        rig.succeed(&names);
        let [first, second] = flushes(&rig);
        assert_eq!([first - before[0], second - before[1]], [1, 1], "worker {worker}");
        rig.finish();
    }
}

/// One that is being reset or removed takes nothing new, and finishes what it has: while it does,
/// it can be asked, and need not be there any more when it is done.
#[test]
fn a_controller_that_finishes_what_it_has_is_flushed() {
    let device = || String::from("nvme0");
    let ways: [fn(String) -> Verb<Batch>; 2] = [
        |controller| Verb::Reset { controller },
        |controller| Verb::Disconnect(Selection::Controller(controller)),
    ];
    for way in ways {
        for shared_queue in [false, true] {
            let mut setup = Setup::new(2, 2);
            setup.host.shared_queue = shared_queue;
            let mut rig = setup.connect();
            rig.io([Op::Flush]);
            rig.io(writes(4, 1));
            rig.wire().rule(|pdu| {
                let read = pdu.answers(io::READ) || pdu.worker != 0 && pdu.kind == kind::C2H_DATA;
                if pdu.port == 0 && read {
                    pdu.bytes.clear();
                }
            });
            let stuck = rig.submit(reads(2));
            rig.run(MS);
            rig.start(way(device()));
            rig.run(MS);
            assert_eq!(rig.controller(0).map(|it| it.state == ControllerState::Live), Some(false));
            assert_eq!(flush(&mut rig), [1, 1]);
            rig.wire().clear_rules();
            rig.succeed(&stuck);
            rig.finish();
        }
    }
}

/// And when it says that it does not have the namespace, it is like one that has left; so is one
/// that is never ready, however often it is asked.
#[test]
fn a_path_that_is_out_of_use_and_has_no_such_namespace_costs_no_flush() {
    for (status, asked) in
        [(Status::INVALID_NAMESPACE.with_dnr(), 1), (Status::NAMESPACE_NOT_READY, 6)]
    {
        let mut rig = Setup::new(3, 1).connect();
        rig.io(writes(6, 1));
        // The others say that the device has grown, and the first does not get to.
        let admin = rig.world.stream(WorkerId(0), &setup::port(0)).expect("open");
        rig.world.stall_stream(admin, 500 * MS);
        let (subsystem, bytes) = (setup::subsystem(), 2 << 20);
        rig.target(TargetVerb::NamespaceResize { subsystem, nsid: 1, bytes });
        rig.run(10 * MS);
        rig.wire().rule(move |pdu| {
            if pdu.port == 0 && pdu.answers(io::FLUSH) {
                pdu.answer(status);
            }
        });
        let [first, second] = flush(&mut rig);
        assert_eq!(first, asked, "{status}");
        assert!((1..=2).contains(&second), "{status}: its own, and perhaps that of the first");
        for port in [1, 2] {
            rig.ana(port, AnaState::Inaccessible);
        }
        rig.run(10 * MS);
        let names = rig.submit([Op::Flush]);
        rig.run(10 * MS);
        assert_eq!(rig.answered(&names), 0, "{status}: it waits for a path like everything else");
        for port in [1, 2] {
            rig.ana(port, AnaState::Optimized);
        }
        rig.succeed(&names);
        rig.wire().clear_rules();
        rig.run(SECOND);
        assert_eq!(flush(&mut rig), [1, 0], "{status}: it is still owed one");
        rig.finish();
    }
}

/// Nor is what the other one is owed itself settled by that: it has flushed for somebody else.
#[test]
fn a_flush_that_is_carried_out_elsewhere_settles_nothing_of_what_comes_after_it_there() {
    let mut rig = Setup::new(2, 1).connect();
    assert_eq!(flush(&mut rig), [1, 1]);
    rig.ana(0, AnaState::Inaccessible);
    rig.run(10 * MS);
    rig.io(writes(4, 1));
    // The connection that carries the flush is lost while there is no other path.
    rig.target(TargetVerb::Stall { port: 1 });
    let names = rig.submit([Op::Flush]);
    rig.run(MS);
    rig.target(TargetVerb::Cut { port: 1 });
    rig.run(10 * MS);
    assert_eq!(rig.answered(&names), 0);
    rig.ana(0, AnaState::Optimized);
    rig.succeed(&names);
    rig.io(writes(1, 2));
    rig.target(TargetVerb::Restore { port: 1 });
    rig.wait_live(1);
    assert_eq!(flush(&mut rig), [1, 1], "the later write to one, the earlier ones to the other");
    rig.finish();
}

/// Nor when it is carried out there because the one that was asked does not have the namespace.
#[test]
fn a_flush_that_meets_no_such_namespace_settles_nothing_of_what_comes_after_it_elsewhere() {
    let mut rig = Setup::new(2, 1).connect();
    rig.io(writes(4, 1));
    rig.wire().rule(|pdu| {
        if pdu.port == 1 && pdu.answers(io::FLUSH) {
            pdu.answer(Status::INVALID_NAMESPACE.with_dnr());
        }
    });
    assert_eq!(flush(&mut rig), [2, 1], "the first has answered for the second");
    rig.wire().clear_rules();
    rig.run(SECOND);
    rig.io(writes(4, 2));
    assert_eq!(flush(&mut rig), [1, 1], "each has acknowledged writes since");
    rig.finish();
}

/// The one that was asked first has not made durable what it has acknowledged, though the flush has
/// ended well: who has left is still to be told of a loss that shows later.
#[test]
fn a_flush_that_is_carried_out_elsewhere_makes_no_debt_void() {
    let mut rig = Setup::new(2, 1).connect();
    rig.io(writes(4, 1));
    rig.wire().rule(|pdu| {
        if pdu.port == 1 && pdu.answers(io::FLUSH) {
            pdu.answer(Status::INTERNAL_PATH_ERROR);
        }
    });
    let failed = rig.world.host(WorkerId(1)).user().failed_flushes.clone().expect("asked of it");
    failed.leave(0);
    let mark = failed.begin();
    assert_eq!(flush(&mut rig), [2, 1]);
    failed.end(mark, true);
    failed.note();
    let newcomer = failed.join();
    assert_eq!((newcomer.known, newcomer.count), (0, 1));
    rig.wire().clear_rules();
    rig.finish();
}

/// A controller that cannot reach the namespace cannot flush it either: the flush would never end.
#[test]
fn a_flush_ends_although_one_controller_answers_path_errors_for_ever() {
    for status in [Status::INTERNAL_PATH_ERROR, Status::new(3, 0x60), Status::new(3, 0x70)] {
        let mut rig = Setup::new(2, 1).connect();
        rig.io(writes(4, 1));
        rig.wire().rule(move |pdu| {
            if pdu.port == 1 && pdu.answers(io::FLUSH) {
                pdu.answer(status);
            }
        });
        assert_eq!(flush(&mut rig), [2, 1], "{status}: like one whose connection is lost");
        rig.wire().clear_rules();
        assert_eq!(flush(&mut rig), [0, 1], "{status}: it is still owed one");
        rig.finish();
    }
}

/// Nor does a controller answer for another that can be reached and says no, however it says so.
#[test]
fn a_flush_that_one_controller_refuses_is_not_answered_by_another() {
    for (status, tries) in [(Status::TRANSIENT_TRANSPORT_ERROR, 6), (Status::INTERNAL_ERROR, 1)] {
        let mut rig = Setup::new(2, 1).connect();
        rig.io(writes(4, 1));
        let before = flushes(&rig);
        rig.wire().rule(move |pdu| {
            if pdu.port == 1 && pdu.answers(io::FLUSH) {
                pdu.answer(status);
            }
        });
        let names = rig.submit([Op::Flush]);
        assert!(rig.answers(&names)[0].result.is_err(), "{status}");
        let [first, second] = flushes(&rig);
        assert_eq!([first - before[0], second - before[1]], [1, tries], "{status}");
        rig.wire().clear_rules();
        assert_eq!(flush(&mut rig), [0, 1], "{status}: it is still owed one");
        rig.finish();
    }
}

/// With no other path there is nothing to do but to ask again.
#[test]
fn a_flush_waits_for_the_only_path() {
    let mut rig = Setup::new(1, 1).connect();
    rig.io(writes(4, 1));
    rig.wire().rule(|pdu| {
        if pdu.answers(io::FLUSH) {
            pdu.answer(Status::INTERNAL_PATH_ERROR);
        }
    });
    let names = rig.submit([Op::Flush]);
    rig.run(5 * SECOND);
    assert_eq!(rig.answered(&names), 0);
    rig.wire().clear_rules();
    rig.succeed(&names);
    rig.finish();
}

/// It is live, and what it has acknowledged may be in its cache, whatever the log says of data.
#[test]
fn a_flush_asks_a_controller_whose_ana_log_is_being_read() {
    let mut rig = Setup::new(2, 1).connect();
    rig.io([Op::Flush]);
    rig.io(writes(4, 1));
    answer_once(&rig, io::WRITE, Status::ANA_TRANSITION);
    let admin = rig.world.stream(WorkerId(0), &setup::port(0)).expect("open");
    let other = rig.world.stream(WorkerId(0), &setup::port(1)).expect("open");
    [admin, other].into_iter().for_each(|stream| rig.world.stall_stream(stream, 20 * MS));
    rig.io(writes(2, 2));
    let begin = rig.now();
    assert_eq!(flush(&mut rig), [1, 1]);
    assert!(rig.now().since(begin) < 10 * MS, "it waits for no log");
    rig.run(100 * MS);
    assert_eq!(flush(&mut rig).iter().sum::<usize>(), 1, "nothing is owed");
    rig.finish();
}

/// The only controller says so of a flush, too, until its log says that it gives access.
#[test]
fn a_flush_is_asked_again_until_the_ana_log_has_been_read() {
    let mut rig = Setup::new(1, 1).connect();
    rig.io([Op::Flush]);
    rig.io(writes(4, 1));
    let mut times = 3;
    rig.wire().rule(move |pdu| {
        if pdu.answers(io::FLUSH) && times > 0 {
            times -= 1;
            pdu.answer(Status::ANA_TRANSITION);
        }
    });
    assert!(flush(&mut rig)[0] >= 4);
    rig.wire().clear_rules();
    assert_eq!(flush(&mut rig), [1, 0]);
    rig.finish();
}

/// One worker has said that it has nothing in flight there. By the time the other has said so, too,
/// a flush was asked for. It has shut down by then, so that what it had in a cache is safe.
/// Its state is not known, and nothing says that it gives no access: it would answer.
#[test]
fn a_flush_asks_a_controller_whose_log_does_not_list_the_group_any_more() {
    let mut rig = Setup::new(2, 1).connect();
    rig.io([Op::Flush]);
    rig.io(writes(4, 1));
    rig.wire().rule(|pdu| {
        let log = |sqe: Sqe| sqe.opcode() == admin::GET_LOG_PAGE && sqe.cdw(10) & 0xff == 0x0c;
        let is_it = pdu.kind == kind::C2H_DATA && pdu.port == 0 && pdu.worker == 0;
        if is_it && pdu.sqe.is_some_and(log) {
            // Another group, without namespaces.
            pdu.bytes[24 + 16] = 2;
            pdu.bytes[24 + 20] = 0;
        }
    });
    rig.ana(0, AnaState::NonOptimized);
    rig.run(20 * MS);
    assert_eq!(flush(&mut rig), [1, 1]);
}

#[test]
fn a_controller_that_is_reset_answers_the_flush_that_it_was_asked_for() {
    let mut rig = Setup::new(2, 2).connect();
    rig.io([Op::Flush]);
    rig.io(writes(4, 1));
    rig.world.suspend(WorkerId(2), 20 * MS);
    rig.start(Verb::Reset { controller: "nvme0".into() });
    rig.run(5 * MS);
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.stall_stream(stream, 40 * MS);
    let before = flushes(&rig);
    let names = rig.submit([Op::Flush]);
    rig.run(30 * MS);
    assert_eq!(rig.answered(&names), 0, "the first controller has not answered");
    rig.succeed(&names);
    assert_eq!(flushes(&rig)[0], before[0] + 1, "it was asked once");
    rig.wait_live(0);
    rig.finish();
}

#[test]
fn a_controller_that_is_removed_answers_the_flush_that_it_was_asked_for() {
    let mut rig = Setup::new(2, 2).connect();
    rig.io([Op::Flush]);
    rig.io(writes(4, 1));
    rig.world.suspend(WorkerId(2), 20 * MS);
    rig.start(Verb::Disconnect(Selection::Controller("nvme0".into())));
    rig.run(5 * MS);
    for worker in [1, 0] {
        let stream = rig.world.stream(WorkerId(worker), &setup::port(0)).expect("open");
        rig.world.stall_stream(stream, 40 * MS);
    }
    let before = flushes(&rig);
    let names = rig.submit([Op::Flush]);
    rig.run(30 * MS);
    assert_eq!(rig.answered(&names), 0, "the first controller has not answered, nor shut down");
    rig.succeed(&names);
    assert_eq!(flushes(&rig)[0], before[0] + 1, "it was asked once");
    rig.finish();
}

/// The first controller is back, and was not looked at yet.
fn live_at_once(rig: &mut Rig) {
    while !rig.is_live(0) {
        rig.run(MS / 20);
    }
}

/// A device has followed its namespace to another NSID. A controller that is back has the path
/// under the former one until it has been looked at; another device's namespace is there by now.
#[test]
fn a_flush_is_sent_to_no_namespace_of_another_device() {
    let mut rig = renumbered(|rig| _ = rig.io(writes(8, 1)));
    rig.target(TargetVerb::Restore { port: 0 });
    live_at_once(&mut rig);
    let admin = rig.world.stream(WorkerId(0), &setup::port(0)).expect("open");
    rig.world.stall_stream(admin, 500 * MS);
    let before = flushes(&rig);
    let names = rig.submit([Op::Flush]);
    rig.succeed(&names);
    assert_eq!(flushes(&rig), [before[0], before[1] + 1]);
    rig.finish();
}

/// It is back, and takes long to show its namespaces.
#[test]
fn a_controller_that_is_back_and_not_looked_at_holds_up_one_flush() {
    let mut rig = Setup::new(2, 1).connect();
    rig.io([Op::Flush]);
    rig.io(writes(8, 1));
    rig.target(TargetVerb::Cut { port: 0 });
    rig.run(SECOND);
    rig.target(TargetVerb::Restore { port: 0 });
    live_at_once(&mut rig);
    let admin = rig.world.stream(WorkerId(0), &setup::port(0)).expect("open");
    rig.world.slow_stream(admin, 2500 * MS);
    let took = |rig: &mut Rig| {
        let begin = rig.now();
        let asked = flush(rig);
        (asked, rig.now().since(begin))
    };
    let (asked, first) = took(&mut rig);
    assert_eq!(asked[0], 1, "it may say so in time");
    assert!(first >= SECOND, "the look ends later: {first:?}");
    let ([first, _], next) = took(&mut rig);
    assert!(first == 0 && next < 10 * MS, "{next:?}");
    rig.run(20 * SECOND);
    assert_eq!(took(&mut rig).0[0], 1, "it is owed still, and was looked at");
    assert_eq!(flush(&mut rig).iter().sum::<usize>(), 1);
    rig.finish();
}
