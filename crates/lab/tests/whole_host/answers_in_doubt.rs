//! What a path in doubt answers well: whether it counts, and when.

use crate::rig::{MS, Rig, SECOND, Setup, writes};
use crate::script::{Batch, Op};
use crate::setup;
use crate::wire::Pdu;
use anabranch_host::verb::{Selection, Verb};
use anabranch_proto::machine::{Time, WorkerId};
use anabranch_proto::nvme::opcode::{admin, io};
use anabranch_proto::nvme::{Sqe, Status, Uuid};
use anabranch_target::TargetVerb;
use anabranch_target::config::NamespaceConfig;
use std::cell::Cell;
use std::time::Duration;

fn namespace(nsid: u32, uuid: u8) -> NamespaceConfig {
    NamespaceConfig { uuid: Some(Uuid([uuid; 16])), ..setup::namespace(nsid, 512) }
}

fn resize(rig: &mut Rig, mib: u64) {
    let (subsystem, bytes) = (setup::subsystem(), mib << 20);
    rig.target(TargetVerb::NamespaceResize { subsystem, nsid: 1, bytes });
}

/// NSID 1 is another namespace from now on.
fn swap(rig: &mut Rig, uuid: u8) {
    let subsystem = setup::subsystem();
    rig.target(TargetVerb::NamespaceRemove { subsystem: subsystem.clone(), nsid: 1 });
    rig.target(TargetVerb::NamespaceAdd { subsystem, config: namespace(1, uuid) });
}

/// A host that has been connected to a namespace with a UUID for a while.
fn with_identified_namespace() -> Rig {
    let mut setup = Setup::new(1, 1);
    *setup.namespaces() = vec![namespace(1, 1)];
    let mut rig = setup.connect();
    rig.run(2 * SECOND);
    rig
}

/// A write that comes after 300 ms, and is answered after as many. What control and the port send
/// each other takes 100 ms, each way.
fn slow_write(rig: &mut Rig) -> (Time, Vec<u64>) {
    slow(rig, 0, 0, 100 * MS);
    slow(rig, 1, 0, 300 * MS);
    let start = rig.now();
    let names = rig.submit(block_7(1));
    until(rig, start, 250);
    (start, names)
}

/// What a worker (0: control) and a port send each other takes so long, each way.
fn slow(rig: &mut Rig, worker: u16, port: u16, each_way: Duration) {
    let stream = rig.world.stream(WorkerId(worker), &setup::port(port)).expect("open");
    rig.world.slow_stream(stream, each_way);
}

fn until(rig: &mut Rig, start: Time, ms: u32) {
    let at = start.after(MS * ms);
    while rig.now() < at {
        rig.run(MS / 2);
    }
}

fn block_7(fill: u8) -> [Op; 1] {
    [Op::Write { lba: 7, blocks: 1, fill }]
}

fn writes_block_7(pdu: &Pdu) -> bool {
    let is_it = |sqe: Sqe| sqe.opcode() == io::WRITE && sqe.cdw_pair(10) == 7;
    pdu.is_io() && pdu.sqe.is_some_and(is_it)
}

/// The device has grown as the others say, and the first path is looked at for that when it answers
/// a write. Behind that write another one has been answered elsewhere.
fn written_while_looked_at(look_ends: bool, answer_stands_for: Duration) -> (Rig, Vec<u64>) {
    let mut rig = Setup::new(3, 2).connect();
    rig.run(2 * SECOND);
    rig.io([Op::Flush]);
    slow(&mut rig, 0, 0, 200 * MS);
    slow(&mut rig, 0, 1, 60 * MS);
    slow(&mut rig, 0, 2, 60 * MS);
    slow(&mut rig, 1, 0, 200 * MS);
    if !look_ends {
        rig.wire().rule(|pdu| {
            if pdu.port == 0 && pdu.is_admin(admin::IDENTIFY) {
                pdu.bytes.clear();
            }
        });
    }
    let start = rig.now();
    resize(&mut rig, 2);
    // The others are being looked at by then, the first has not said anything yet.
    until(&mut rig, start, 190);
    let first = rig.submit_to(1, "nvme0n1", block_7(1));
    // It is there at 390.
    until(&mut rig, start, 350);
    let io = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.stall_stream(io, answer_stands_for);
    until(&mut rig, start, 650);
    assert_eq!(rig.seen(writes_block_7).iter().map(|pdu| pdu.port).collect::<Vec<_>>(), [0]);
    let names = rig.submit_to(2, "nvme0n1", block_7(2));
    rig.succeed(&names);
    until(&mut rig, start, 800);
    assert_eq!(rig.answered(&first), 0, "what has answered by now may be another one");
    (rig, first)
}

/// Nor is one whose answer comes when the look has ended.
#[test]
fn a_write_that_was_answered_while_its_path_was_looked_at_for_its_size_is_not_sent_again() {
    for late in [false, true] {
        let stands_for = if late { 3 * SECOND } else { Duration::ZERO };
        let (mut rig, first) = written_while_looked_at(true, stands_for);
        rig.run(2 * SECOND);
        assert!(rig.path(0).usable, "it was looked at");
        assert_eq!(rig.answered(&first), usize::from(!late));
        rig.succeed(&first);
        assert_eq!(rig.seen(writes_block_7).len(), 2, "each write once");
        let read = rig.io([Op::Read { lba: 7, blocks: 1 }]);
        assert!(read[0].data.iter().all(|&byte| byte == 2), "nothing undoes what came behind it");
        let path = rig.path(0);
        assert_eq!((path.failovers, path.uncertain_writes_resent), (0, 0));
        rig.finish();
    }
}

/// Somebody may have read it: what its controller has in a cache is flushed like what was answered.
#[test]
fn a_write_that_was_withdrawn_while_its_answer_was_in_doubt_is_flushed_where_it_is() {
    let (mut rig, first) = written_while_looked_at(false, Duration::ZERO);
    rig.submit_to(1, "nvme0n1", [Op::Withdraw]);
    let withdrawn = rig.answers(&first);
    assert!(withdrawn[0].result.is_err(), "{:?}", withdrawn[0].result);
    let flushes = |pdu: &Pdu| {
        pdu.port == 0 && pdu.is_io() && pdu.sqe.is_some_and(|sqe| sqe.opcode() == io::FLUSH)
    };
    let before = rig.seen(flushes).len();
    rig.io([Op::Flush]);
    assert_eq!(rig.seen(flushes).len(), before + 1, "its controller has it");
    rig.wire().clear_rules();
    rig.run(300 * SECOND);
    rig.finish();
}

#[test]
fn a_write_whose_path_nobody_says_anything_of_is_sent_again() {
    let (mut rig, first) = written_while_looked_at(false, Duration::ZERO);
    rig.succeed(&first);
    assert_eq!(rig.path(0).uncertain_writes_resent, 1, "nobody knows whose it was");
    rig.wire().clear_rules();
    rig.run(300 * SECOND);
    rig.finish();
}

/// A namespace that is named as changed faster than anybody can look at it keeps nothing from
/// ending.
#[test]
fn a_look_that_never_ends_holds_up_nothing_for_good() {
    let mut setup = Setup::new(1, 1);
    setup.options.io_timeout = 2 * SECOND;
    let mut rig = setup.connect();
    rig.run(2 * SECOND);
    let admin = rig.world.stream(WorkerId(0), &setup::port(0)).expect("open");
    rig.world.slow_stream(admin, 50 * MS);
    let io = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.stall_stream(io, 500 * MS);
    let names = rig.submit(writes(4, 1));
    let mut changes = 0;
    while rig.answered(&names) < 4 {
        changes += 1;
        assert!(changes < 2000, "it is looked at for ever");
        let bytes = (1 << 20) + ((changes % 2) << 20);
        rig.target(TargetVerb::NamespaceResize { subsystem: setup::subsystem(), nsid: 1, bytes });
        rig.run(20 * MS);
    }
    rig.succeed(&names);
    rig.run(5 * SECOND);
    rig.finish();
}

/// Control has heard of another change when its look ends that says that all is as before.
#[test]
fn a_look_that_something_has_changed_behind_says_nothing() {
    let mut setup = Setup::new(1, 1);
    *setup.namespaces() = (1..=24).map(|nsid| namespace(nsid, nsid as u8)).collect();
    let mut rig = setup.connect();
    rig.run(2 * SECOND);
    slow(&mut rig, 0, 0, 100 * MS);
    slow(&mut rig, 1, 0, 600 * MS);
    let start = rig.now();
    resize(&mut rig, 2);
    until(&mut rig, start, 290);
    let names = rig.submit(block_7(1));
    until(&mut rig, start, 850);
    swap(&mut rig, 99);
    let written = rig.answers(&names);
    assert!(written[0].result.is_err(), "it went to another namespace, and is a success");
    rig.run(5 * SECOND);
    rig.finish();
}

#[test]
fn a_namespace_that_was_another_one_in_between_is_written_again() {
    let mut rig = with_identified_namespace();
    let (start, names) = slow_write(&mut rig);
    // It is there when the write comes, and gone before anybody asks which one it is.
    swap(&mut rig, 9);
    until(&mut rig, start, 575);
    swap(&mut rig, 1);
    rig.succeed(&names);
    let read = rig.io([Op::Read { lba: 7, blocks: 1 }]);
    assert!(read[0].data.iter().all(|&byte| byte == 1), "acknowledged, and not there");
    rig.finish();
}

/// A write that comes while its NSID is another namespace's, and whose answer is on its way for
/// three seconds.
fn late_write(back: bool) -> (Rig, Vec<u64>) {
    let mut rig = with_identified_namespace();
    slow(&mut rig, 0, 0, 100 * MS);
    slow(&mut rig, 1, 0, 500 * MS);
    let start = rig.now();
    let names = rig.submit(block_7(1));
    until(&mut rig, start, 250);
    swap(&mut rig, 9);
    // It is there at 500.
    until(&mut rig, start, 450);
    let io = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.stall_stream(io, 3 * SECOND);
    until(&mut rig, start, 575);
    if back {
        swap(&mut rig, 1);
    }
    until(&mut rig, start, 3400);
    assert_eq!(rig.answered(&names), 0, "its answer is on its way");
    (rig, names)
}

/// The look has ended before the answer comes, and says that all is as it was.
#[test]
fn what_a_namespace_that_was_another_one_answers_late_is_written_again() {
    let (mut rig, names) = late_write(true);
    assert!(rig.path(0).usable, "it was looked at");
    rig.succeed(&names);
    let read = rig.io([Op::Read { lba: 7, blocks: 1 }]);
    assert!(read[0].data.iter().all(|&byte| byte == 1), "acknowledged, and not there");
    assert_eq!(rig.path(0).uncertain_writes_resent, 1);
    rig.finish();
}

#[test]
fn what_another_namespace_answers_when_the_device_has_gone_is_no_success() {
    let (mut rig, names) = late_write(false);
    let written = rig.answers(&names);
    assert!(written[0].result.is_err(), "it went to another namespace, and is a success");
    rig.finish();
}

/// A path that only has to agree with its device is put in doubt as well.
#[test]
fn a_path_that_waits_for_its_size_is_looked_at_when_there_is_no_such_namespace() {
    let mut rig = Setup::new(2, 1).connect();
    rig.run(2 * SECOND);
    slow(&mut rig, 1, 1, 200 * MS);
    let names = rig.submit(writes(4, 1));
    rig.run(50 * MS);
    assert_eq!((rig.sent(0), rig.sent(1)), (2, 2));
    // The first does not get to say so, too.
    let admin_stream = rig.world.stream(WorkerId(0), &setup::port(0)).expect("open");
    rig.world.stall_stream(admin_stream, 3 * SECOND);
    resize(&mut rig, 2);
    rig.run(50 * MS);
    assert!(!rig.path(1).usable, "its size is not the device's");
    let once = Cell::new(true);
    rig.wire().rule(move |pdu| {
        if pdu.port == 1 && pdu.answers(io::WRITE) && once.replace(false) {
            pdu.answer(Status::INVALID_NAMESPACE.with_dnr());
        }
    });
    rig.succeed(&names);
    assert!(rig.path(1).uncertain_writes_resent > 0, "believed, and nobody has looked");
    rig.run(5 * SECOND);
    rig.finish();
}

/// A controller that goes on request finishes what it has, for whatever namespace.
#[test]
fn what_a_path_in_doubt_answers_while_its_controller_goes_is_no_success() {
    let verbs: [fn() -> Verb<Batch>; 2] = [
        || Verb::Reset { controller: "nvme0".into() },
        || Verb::Disconnect(Selection::Controller("nvme0".into())),
    ];
    for verb in verbs {
        let mut rig = with_identified_namespace();
        let (start, names) = slow_write(&mut rig);
        swap(&mut rig, 9);
        // It was named as changed at 550, and the answer comes at 600.
        until(&mut rig, start, 575);
        rig.start(verb());
        let written = rig.answers(&names);
        assert!(written[0].result.is_err(), "it went to another namespace, and is a success");
        rig.run(8 * SECOND);
        rig.finish();
    }
}

/// Everything at once: whatever happens to the namespace, every request ends once.
#[test]
fn every_request_ends_whatever_becomes_of_its_namespace() {
    for seed in 0..20 {
        println!("seed {seed}");
        storm(seed);
    }
}

fn storm(seed: u64) {
    let mut random = anabranch_lab::rng::Rng::new(seed);
    let mut setup = Setup::new(2, 2);
    setup.host.shared_queue = seed.is_multiple_of(3);
    setup.options.queue_size = 16;
    setup.options.io_timeout = if seed.is_multiple_of(5) { 300 * MS } else { 30 * SECOND };
    *setup.namespaces() = vec![namespace(1, 1), namespace(2, 2)];
    let mut rig = setup.connect();
    rig.run(2 * SECOND);
    let policies = ["round-robin", "queue-depth", "finish-time", "latency", "numa"];
    rig.set("nvme-subsys0", "iopolicy", policies[(seed % 5) as usize]);
    let micros =
        |random: &mut anabranch_lab::rng::Rng, most| Duration::from_micros(random.below(most));
    for port in 0..2 {
        slow(&mut rig, 0, port, micros(&mut random, 20_000));
        slow(&mut rig, 1, port, micros(&mut random, 40_000));
    }
    let device = || "nvme0n1".to_owned();
    let (mut names, mut uuid) = (Vec::new(), 1);
    for _ in 0..25 {
        let worker = 1 + random.below(2) as u16;
        let fill = random.below(200) as u8;
        names.extend(rig.submit_to(worker, "nvme0n1", writes(12, fill)));
        let long = Op::Write { lba: 20, blocks: 40, fill };
        let ops = [long, Op::Discard { lba: 70, blocks: 10 }, Op::Flush];
        names.extend(rig.submit_to(worker, "nvme0n1", ops));
        rig.run(micros(&mut random, 30_000));
        match random.below(8) {
            0 => drop(rig.submit_to(worker, "nvme0n1", [Op::Withdraw])),
            1 => {
                rig.start(Verb::Reset { controller: format!("nvme{}", random.below(2)) });
            }
            2 => {
                rig.start(Verb::Freeze { device: device() });
                rig.run(micros(&mut random, 40_000));
                rig.start(Verb::Unfreeze { device: device() });
            }
            3 => {
                rig.start(Verb::Quiesce { device: device() });
                rig.run(micros(&mut random, 40_000));
                rig.start(Verb::Unquiesce { device: device() });
            }
            4 => {
                let (worker, port) = (random.below(3) as u16, random.below(2) as u16);
                let stream = rig.world.stream(WorkerId(worker), &setup::port(port));
                stream.into_iter().for_each(|stream| rig.world.break_stream(stream));
            }
            _ => {}
        }
        if random.below(4) == 0 {
            uuid = if random.below(2) == 0 { 10 - uuid } else { uuid };
            swap(&mut rig, uuid);
        } else {
            resize(&mut rig, 1 + random.below(3));
        }
        rig.run(micros(&mut random, 60_000));
    }
    rig.run(90 * SECOND);
    assert_eq!(rig.answered(&names), names.len());
    rig.finish();
}

/// Ours has another NSID by the time the flush is done, under which it was never asked to.
#[test]
fn a_flush_that_another_namespace_has_answered_is_done_again() {
    for written in [true, false] {
        let mut rig = with_identified_namespace();
        rig.io([Op::Flush]);
        if written {
            rig.io([Op::Write { lba: 7, blocks: 1, fill: 1 }]);
        }
        slow(&mut rig, 0, 0, 50 * MS);
        slow(&mut rig, 1, 0, 800 * MS);
        let start = rig.now();
        let names = rig.submit([Op::Flush]);
        until(&mut rig, start, 750);
        swap(&mut rig, 9);
        let (subsystem, config) = (setup::subsystem(), namespace(2, 1));
        rig.target(TargetVerb::NamespaceAdd { subsystem, config });
        rig.succeed(&names);
        let flushes = |pdu: &Pdu| {
            pdu.at >= start && pdu.is_io() && pdu.sqe.is_some_and(|sqe| sqe.opcode() == io::FLUSH)
        };
        let nsids = rig.seen(flushes).into_iter().filter_map(|pdu| pdu.sqe).map(|sqe| sqe.nsid());
        assert_eq!(nsids.collect::<Vec<_>>(), [1, 2], "written before: {written}");
        rig.run(5 * SECOND);
        rig.finish();
    }
}
