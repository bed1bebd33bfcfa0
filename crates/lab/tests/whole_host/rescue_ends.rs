//! What a rescued read leaves behind on its silent path is nobody's: whatever happens to the path,
//! the head, the policy or the user meanwhile does not wait for it, and it ends without a trace.

use crate::rescue::{measured, places, read, silence, stall, two_ports, write};
use crate::rig::{MS, Rig, SECOND, Setup};
use crate::script::{Failure, Op};
use crate::setup;
use anabranch_host::load::Charged;
use anabranch_host::user::IoError;
use anabranch_host::verb::{Reply, Selection, Verb};
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::opcode::io;
use anabranch_proto::nvme::{AnaState, Status};
use anabranch_target::TargetVerb;

fn device() -> String {
    "nvme0n1".into()
}

/// Reads were rescued from the second port, which is silent still; all are answered.
fn left_behind_with(change: impl FnOnce(&mut Setup), quiet: impl FnOnce(&mut Rig)) -> Rig {
    let mut rig = measured(change);
    quiet(&mut rig);
    let names = rig.submit(places(64, read));
    rig.run(SECOND / 2);
    assert_eq!(rig.answered(&names), names.len());
    rig.succeed(&names);
    let path = rig.path(1);
    assert!(path.rescued > 0);
    assert_eq!(path.in_flight, 0, "they are none of the users' commands");
    assert_ne!(path.charged, Charged::default(), "the policy counts them as before");
    rig
}

/// The second port answers again after ten seconds.
fn left_behind() -> Rig {
    left_behind_with(|_| (), |rig| stall(rig, 1, 10 * SECOND))
}

fn all_right(mut rig: Rig) {
    rig.io(places(64, write));
    rig.io(places(64, read));
    rig.run(40 * SECOND);
    rig.io(places(64, read));
    assert_eq!(rig.head().errors, 0);
    rig.finish();
}

#[test]
fn the_path_answers_again() {
    let mut rig = left_behind();
    let rescued = rig.path(1).rescued;
    rig.run(10 * SECOND);
    assert_eq!(rig.path(1).charged, Charged::default());
    let before = rig.path(1).commands[0];
    let end = rig.now().after(200 * MS);
    while rig.path(1).commands[0] == before && rig.now() < end {
        rig.io(places(64, read));
    }
    assert!(rig.path(1).commands[0] > before, "it is used again");
    assert_eq!(rig.path(1).rescued, rescued);
    let stat = rig.get("nvme0c1n1", "finish_time_stat");
    assert!(stat.contains(&format!("reads sent again elsewhere: {rescued}")), "{stat}");
    all_right(rig);
}

#[test]
fn another_policy_comes_and_goes() {
    for policy in ["numa", "queue-depth", "latency"] {
        let mut rig = left_behind();
        rig.set("nvme-subsys0", "iopolicy", policy);
        rig.io(places(1, write));
        rig.set("nvme-subsys0", "iopolicy", "finish-time");
        rig.run(10 * SECOND);
        all_right(rig);
    }
}

#[test]
fn the_controller_is_reset() {
    let mut rig = left_behind();
    rig.ask(Verb::Reset { controller: "nvme1".into() });
    rig.wait_live(1);
    assert_eq!((rig.path(1).charged, rig.path(1).failovers), (Charged::default(), 0));
    all_right(rig);
}

#[test]
fn the_connection_breaks() {
    let mut rig = left_behind();
    let stream = rig.world.stream(WorkerId(1), &setup::port(1)).expect("open");
    rig.world.break_stream(stream);
    rig.run(10 * MS);
    assert_eq!((rig.path(1).charged, rig.path(1).failovers), (Charged::default(), 0));
    rig.wait_live(1);
    all_right(rig);
}

#[test]
fn the_controller_is_removed() {
    let mut rig = left_behind();
    rig.ask(Verb::Disconnect(Selection::Controller("nvme1".into())));
    assert!(rig.controller(1).is_none());
    all_right(rig);
}

#[test]
fn the_namespace_is_removed() {
    let mut rig = left_behind();
    rig.target(TargetVerb::NamespaceRemove { subsystem: setup::subsystem(), nsid: 1 });
    rig.wait(SECOND * 5, "end of the device", |rig| {
        rig.snapshot().subsystems.iter().all(|subsystem| subsystem.heads.is_empty())
    });
    rig.run(20 * SECOND);
    rig.finish();
}

#[test]
fn the_path_becomes_inaccessible() {
    let mut rig = left_behind();
    rig.ana(1, AnaState::Inaccessible);
    rig.run(11 * SECOND);
    rig.ana(1, AnaState::Optimized);
    rig.run(SECOND);
    all_right(rig);
}

#[test]
fn the_head_comes_to_rest_without_them() {
    let mut rig = left_behind();
    let begin = rig.now();
    rig.done(Verb::Freeze { device: device() });
    rig.done(Verb::Unfreeze { device: device() });
    rig.done(Verb::Quiesce { device: device() });
    rig.done(Verb::Unquiesce { device: device() });
    assert!(rig.now().since(begin) < SECOND);
    all_right(rig);
}

#[test]
fn an_orderly_end_does_not_wait_for_them() {
    let mut rig = left_behind();
    let reply = rig.ask(Verb::Shutdown);
    assert!(matches!(reply, Reply::ShutDown { unanswered: 0 }), "{reply:?}");
    rig.run(SECOND * 20);
    assert_eq!(rig.world.host_buffers(), 0);
}

/// Errors of late answers are not the users'; what they say about the path is heeded.
#[test]
fn they_are_answered_with_errors() {
    for (status, out) in [
        (Status::INTERNAL_ERROR, false),
        (Status::UNRECOVERED_READ_ERROR.with_dnr(), false),
        (Status::INVALID_NAMESPACE, true),
        (Status::ANA_INACCESSIBLE, true),
    ] {
        let mut rig = measured(|_| ());
        rig.wire().rule(move |pdu| {
            if pdu.port == 1 && pdu.answers(io::READ) {
                pdu.answer(status);
            }
        });
        stall(&mut rig, 1, 2 * SECOND);
        let begin = rig.now();
        let names = rig.submit(places(64, read));
        rig.run(SECOND);
        rig.succeed(&names);
        assert!(rig.path(1).rescued > 0);
        rig.run(SECOND + 200 * MS);
        rig.wire().clear_rules();
        rig.run(SECOND);
        assert_eq!((rig.head().errors, rig.path(1).errors, rig.path(1).retries), (0, 0, 0));
        assert_eq!(rig.path(1).charged, Charged::default());
        let heeded = rig.event(begin, "nvme0c1n1: ANA").is_some()
            || !rig.seen(|pdu| pdu.at >= begin && pdu.is_admin(6)).is_empty()
            || !rig.seen(|pdu| pdu.at >= begin && pdu.is_admin(2)).is_empty();
        assert_eq!(heeded, out, "{status}");
        all_right(rig);
    }
}

#[test]
fn nobody_rescues_what_was_withdrawn() {
    let mut rig = measured(|_| ());
    silence(&rig, 1);
    let ops = places(32, read).into_iter().zip(places(32, |lba| write(400 + lba)));
    let names = rig.submit(ops.flat_map(|(read, write)| [read, write]));
    rig.run(20 * MS);
    let stuck: Vec<u64> =
        names.iter().copied().filter(|&name| rig.outcome(name).is_none()).collect();
    rig.submit([Op::Withdraw]);
    let sent = rig.sent(0);
    rig.run(SECOND);
    assert_eq!(rig.sent(0), sent, "nothing of it is sent again");
    let withdrawn = Err(Failure::Io(IoError::Withdrawn));
    let (mut reads, mut writes) = (0, 0);
    for &name in &stuck {
        match rig.outcome(name) {
            // A read's buffer is nobody's any more; a write may still be read from.
            Some(outcome) => {
                assert_eq!(outcome.result, withdrawn);
                reads += 1;
            }
            None => writes += 1,
        }
    }
    assert!(reads > 0 && writes > 0, "{reads} reads, {writes} writes");
    rig.run(31 * SECOND);
    rig.wire().clear_rules();
    assert_eq!(rig.answered(&names), names.len());
    rig.wait_live(1);
    all_right(rig);
}

#[test]
fn a_worker_that_carries_for_others_rescues_its_own() {
    let mut setup = Setup::new(2, 2);
    setup.host.default_policy = anabranch_policy::Policy::FinishTime;
    setup.host.shared_queue = true;
    let mut rig = setup.connect();
    for _ in 0..20 {
        for worker in 1..=2 {
            let names = rig.submit_to(worker, "nvme0n1", places(32, write));
            rig.succeed(&names);
            let names = rig.submit_to(worker, "nvme0n1", places(32, read));
            rig.succeed(&names);
        }
    }
    // Of each controller one worker has the queue pair.
    let owner =
        (1..=2).find(|&worker| rig.world.stream(WorkerId(worker), &setup::port(1)).is_some());
    let owner = owner.expect("somebody has it");
    let stream = rig.world.stream(WorkerId(owner), &setup::port(1)).expect("open");
    rig.world.stall_stream(stream, 5 * SECOND);
    let own = rig.submit_to(owner, "nvme0n1", places(64, read));
    let others = rig.submit_to(3 - owner, "nvme0n1", places(64, read));
    rig.run(SECOND);
    assert_eq!(rig.answered(&own), own.len());
    assert!(rig.path(1).rescued > 0);
    rig.succeed(&others);
    rig.run(5 * SECOND);
    rig.finish();
}

#[test]
fn the_silence_that_is_told_is_that_of_this_time() {
    let mut rig = measured(|_| {});
    // Writes only: nothing of that is taken anywhere.
    stall(&mut rig, 0, 2 * SECOND);
    let names = rig.submit(places(30, write));
    rig.succeed(&names);
    rig.run(3600 * SECOND);
    let names = rig.submit(places(64, read));
    rig.succeed(&names);
    stall(&mut rig, 0, 300 * MS);
    let names = rig.submit(places(40, read));
    let begin = rig.now();
    rig.succeed(&names);
    let lines = rig.events();
    let told = lines.iter().find(|(at, line)| *at >= begin && line.contains(": silent for "));
    let line = &told.expect("some were sent again").1;
    let ms = line.split("silent for ").nth(1).and_then(|rest| rest.split(' ').next());
    let ms: u32 = ms.expect("a number").parse().expect("a number");
    assert!((1..300).contains(&ms), "{line}");
    rig.run(5 * SECOND);
    rig.finish();
}

/// What is waited for long on one path does not keep a worker from looking at another one that gets
/// a command meanwhile.
#[test]
fn a_path_that_was_idle_at_the_last_look_is_looked_at_in_time() {
    let mut rig = two_ports(|_| ());
    let far = rig.world.stream(WorkerId(1), &setup::port(1)).expect("open");
    rig.world.slow_stream(far, 60 * MS);
    for usable in [1, 0] {
        rig.ana(1 - usable, AnaState::Inaccessible);
        rig.run(100 * MS);
        for _ in 0..20 {
            rig.io([write(0), read(0)]);
        }
        rig.ana(1 - usable, AnaState::Optimized);
        rig.run(SECOND);
    }
    rig.ana(0, AnaState::Inaccessible);
    rig.run(SECOND);
    let written = rig.submit([write(0)]);
    rig.ana(0, AnaState::Optimized);
    rig.run(55 * MS);
    assert_eq!(rig.path(1).in_flight, 1, "its patience is 480 ms");
    silence(&rig, 0);
    let asked = rig.now();
    let reads = rig.submit([read(1)]);
    rig.run(MS);
    assert_eq!(rig.path(0).in_flight, 1);
    rig.succeed(&reads);
    let took = rig.outcome(reads[0]).expect("it was answered").at.since(asked);
    assert!(took < 350 * MS, "{took:?}");
    rig.succeed(&written);
    rig.wire().clear_rules();
    all_right(rig);
}
