//! Probes of `finish-time`: reads that nobody waits for, of a path that nobody uses. Whatever
//! becomes of one, no user's request notices.

use crate::rig::{MS, Rig, SECOND, Setup};
use crate::script::Op;
use crate::setup;
use crate::wire::{Pdu, kind};
use anabranch_host::explain::ExplainReport;
use anabranch_host::verb::{Reply, Selection, Verb};
use anabranch_policy::Policy;
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::opcode::{admin, io};
use anabranch_proto::nvme::{AnaState, Status};
use anabranch_target::TargetVerb;
use anabranch_target::config::NamespaceConfig;
use std::time::Duration;

const BLOCKS: u32 = 8;
const BYTES: u64 = 4096;
const WRITE: Op = Op::Write { lba: 0, blocks: BLOCKS, fill: 7 };
const READ: Op = Op::Read { lba: 0, blocks: BLOCKS };

/// Two ports under `finish-time`; everything takes 20 ms longer on the second.
fn far_with(change: impl FnOnce(&mut Setup)) -> Rig {
    let mut setup = Setup::new(2, 1);
    setup.host.default_policy = Policy::FinishTime;
    change(&mut setup);
    let mut rig = setup.connect();
    slow_down(&mut rig, 20 * MS);
    // Both paths are measured, for both classes.
    load(&mut rig, WRITE, 20);
    load(&mut rig, READ, 20);
    rig.run(SECOND);
    rig
}

fn far() -> Rig {
    far_with(|_| ())
}

fn slow_down(rig: &mut Rig, by: Duration) {
    let stream = rig.world.stream(WorkerId(1), &setup::port(1)).expect("open");
    rig.world.slow_stream(stream, by);
}

/// So many of them, four at once; everything succeeds.
fn load(rig: &mut Rig, op: Op, count: usize) {
    for _ in 0..count / 4 {
        rig.io([op; 4]);
    }
}

fn explain(rig: &mut Rig) -> ExplainReport {
    match rig.ask(Verb::Explain { device: "nvme0n1".into() }) {
        Reply::Explain(report) => *report,
        other => panic!("{other:?}"),
    }
}

fn probes(rig: &mut Rig) -> u64 {
    (0..2).map(|port| rig.path(port).probes).sum()
}

/// I/O commands with this opcode that were sent to a port so far.
fn sent(rig: &Rig, port: u16, opcode: u8) -> u64 {
    let fits = |pdu: &Pdu| {
        pdu.is_io() && pdu.port == port && pdu.sqe.is_some_and(|sqe| sqe.opcode() == opcode)
    };
    rig.seen(fits).len() as u64
}

/// Nothing that is said about a read of the second port gets through.
fn silence_reads(rig: &Rig) {
    rig.wire().rule(|pdu| {
        let of_read = pdu.sqe.is_some_and(|sqe| sqe.opcode() == io::READ && !sqe.is_fabrics());
        if pdu.port == 1 && pdu.worker > 0 && !pdu.to_target && of_read {
            pdu.bytes.clear();
        }
    });
}

/// Writes until a probe is on its way that is not answered.
fn one_in_flight(rig: &mut Rig) {
    silence_reads(rig);
    let before = probes(rig);
    let mut rounds = 0;
    while probes(rig) == before {
        rounds += 1;
        assert!(rounds < 200, "a probe is sent some time");
        load(rig, WRITE, 64);
        rig.run(10 * MS);
    }
}

#[test]
fn under_a_load_of_writes_probes_are_reads_of_the_same_size_and_few() {
    let mut rig = far();
    let before = [0, 1].map(|port| (sent(&rig, port, io::READ), sent(&rig, port, io::WRITE)));
    let (reads, choices) = (rig.head().requests[0], explain(&mut rig));
    let commands = (rig.path(0).commands, rig.path(1).commands);
    let (all, probe_bytes) = (20_000, rig.path(1).probe_bytes);
    let first = probes(&mut rig);
    load(&mut rig, WRITE, all);
    rig.run(SECOND);
    let found = probes(&mut rig) - first;
    assert!(found > 1, "an unused path is looked at: {found}");
    let after = [0, 1].map(|port| (sent(&rig, port, io::READ), sent(&rig, port, io::WRITE)));
    let read =
        after.map(|(r, _)| r).iter().sum::<u64>() - before.map(|(r, _)| r).iter().sum::<u64>();
    let written =
        after.map(|(_, w)| w).iter().sum::<u64>() - before.map(|(_, w)| w).iter().sum::<u64>();
    assert_eq!((read, written), (found, all as u64), "no write goes out twice");
    let probed = rig.path(0).probe_bytes + rig.path(1).probe_bytes - probe_bytes;
    assert_eq!(probed, found * BYTES);
    assert!(probed * 100 <= all as u64 * BYTES, "{probed} bytes of probes");
    // Nowhere among the users' commands.
    assert_eq!(rig.head().requests[0], reads);
    let now = (rig.path(0).commands, rig.path(1).commands);
    assert_eq!((now.0[0], now.1[0]), (commands.0[0], commands.1[0]));
    let chosen =
        |report: &ExplainReport| report.paths.iter().map(|p| p.choices.total()).sum::<u64>();
    assert_eq!(chosen(&explain(&mut rig)) - chosen(&choices), all as u64);
    assert_eq!((rig.path(0).probe_errors, rig.path(1).probe_errors), (0, 0));
    rig.finish();
}

#[test]
fn a_read_load_is_answered_once_each_and_rightly_beside_its_probes() {
    let mut rig = far();
    let (before, reads) = (probes(&mut rig), rig.head().requests[0]);
    for _ in 0..2000 {
        for outcome in rig.io([READ; 4]) {
            assert!(outcome.data.iter().all(|&byte| byte == 7));
        }
    }
    assert!(probes(&mut rig) > before);
    assert_eq!(rig.head().requests[0] - reads, 8000);
    rig.run(SECOND);
    rig.finish();
}

#[test]
fn without_probes_nothing_is_sent_but_what_users_want() {
    let mut rig = far();
    rig.set("nvme-subsys0", "finish_time_probes", "0");
    let (before, reads) = (probes(&mut rig), sent(&rig, 0, io::READ) + sent(&rig, 1, io::READ));
    load(&mut rig, WRITE, 8000);
    assert_eq!(probes(&mut rig), before);
    assert_eq!(sent(&rig, 0, io::READ) + sent(&rig, 1, io::READ), reads);
    rig.finish();
}

#[test]
fn other_policies_never_probe() {
    let mut rig = far();
    for policy in Policy::ALL.into_iter().filter(|policy| *policy != Policy::FinishTime) {
        rig.set("nvme-subsys0", "iopolicy", policy.name());
        let before = probes(&mut rig);
        load(&mut rig, WRITE, 600);
        assert_eq!(probes(&mut rig), before, "{policy}");
    }
    rig.finish();
}

/// How long the slowest of so many writes took, one by one.
fn slowest(rig: &mut Rig, count: usize) -> Duration {
    let one = |rig: &mut Rig| {
        let began = rig.now();
        rig.io([WRITE])[0].at.since(began)
    };
    (0..count).map(|_| one(rig)).max().expect("some")
}

#[test]
fn a_probe_that_is_never_answered_holds_nobody_up_and_stays_alone() {
    let mut rig = far();
    one_in_flight(&mut rig);
    let (before, reads) = (probes(&mut rig), sent(&rig, 1, io::READ));
    let slowest = slowest(&mut rig, 2000);
    assert!(slowest < 20 * MS, "none of them waited for the far path: {slowest:?}");
    assert_eq!((probes(&mut rig), sent(&rig, 1, io::READ)), (before, reads), "one at a time");
    assert_eq!(rig.head().errors, 0);
    assert_eq!(rig.path(1).in_flight, 0, "it is none of the users' commands");
    // Like any command it has its time limit, and the path is given up with it.
    let begin = rig.now();
    rig.run(SECOND * 31);
    assert!(rig.event(begin, "nvme1: live -> resetting").is_some());
    assert_eq!(rig.path(1).probe_errors, 1);
    assert_eq!((rig.path(1).failovers, rig.path(1).retries, rig.path(1).errors), (0, 0, 0));
    rig.wire().clear_rules();
    rig.wait_live(1);
    rig.finish();
}

#[test]
fn a_probe_whose_connection_breaks_is_not_sent_again() {
    let mut rig = far();
    one_in_flight(&mut rig);
    let before = sent(&rig, 0, io::READ) + sent(&rig, 1, io::READ);
    let stream = rig.world.stream(WorkerId(1), &setup::port(1)).expect("open");
    rig.world.break_stream(stream);
    rig.run(MS * 10);
    let path = rig.path(1);
    assert_eq!((path.probe_errors, path.failovers, path.errors), (1, 0, 0));
    assert_eq!(sent(&rig, 0, io::READ) + sent(&rig, 1, io::READ), before);
    rig.wire().clear_rules();
    rig.wait_live(1);
    load(&mut rig, WRITE, 400);
    rig.run(SECOND);
    rig.finish();
}

/// Every read of the second port is answered with this; how many of the probes were.
fn answered_with(rig: &mut Rig, status: Status) -> u64 {
    rig.wire().rule(move |pdu| {
        if pdu.port == 1 && pdu.answers(io::READ) {
            pdu.answer(status);
        }
    });
    let before = rig.path(1).probe_errors;
    let reads = sent(rig, 0, io::READ) + sent(rig, 1, io::READ);
    let first = probes(rig);
    let mut rounds = 0;
    while rig.path(1).probe_errors == before {
        rounds += 1;
        assert!(rounds < 200, "a probe is answered some time");
        load(rig, WRITE, 64);
        rig.run(50 * MS);
    }
    let more = probes(rig) - first;
    assert_eq!(sent(rig, 0, io::READ) + sent(rig, 1, io::READ) - reads, more, "none twice");
    let path = rig.path(1);
    assert_eq!((path.errors, path.retries, path.failovers), (0, 0, 0));
    assert_eq!(rig.head().errors, 0);
    path.probe_errors - before
}

#[test]
fn a_probe_that_fails_is_counted_and_that_is_all() {
    for status in [Status::INTERNAL_ERROR, Status::LBA_OUT_OF_RANGE, Status::NAMESPACE_NOT_READY] {
        let mut rig = far();
        assert!(answered_with(&mut rig, status) > 0);
        assert!(rig.path(1).usable);
        rig.wire().clear_rules();
        rig.run(SECOND);
        rig.finish();
    }
}

#[test]
fn an_ana_status_of_a_probe_makes_the_host_read_the_log() {
    let mut rig = far();
    let logs = |rig: &Rig| rig.seen(|pdu| pdu.port == 1 && pdu.is_admin(admin::GET_LOG_PAGE)).len();
    let before = logs(&rig);
    answered_with(&mut rig, Status::new(3, 2));
    assert!(logs(&rig) > before, "as after a user's command");
    rig.wire().clear_rules();
    rig.run(SECOND);
    assert!(rig.path(1).usable, "the log says that it is");
    rig.finish();
}

/// Another namespace may be under its NSID by the next command, a user's.
#[test]
fn a_probe_that_finds_no_namespace_has_the_path_looked_at() {
    let mut rig = far();
    let looks = |rig: &Rig| rig.seen(|pdu| pdu.port == 1 && pdu.is_admin(admin::IDENTIFY)).len();
    let before = looks(&rig);
    assert!(answered_with(&mut rig, Status::INVALID_NAMESPACE) > 0);
    assert!(looks(&rig) > before, "as after a user's command");
    rig.wire().clear_rules();
    rig.run(2 * SECOND);
    assert!(rig.path(1).usable, "it is there after all");
    rig.finish();
}

/// As of a user's command: with "do not retry" it is no matter of the path.
#[test]
fn an_ana_status_of_a_probe_that_forbids_to_try_again_says_nothing_about_the_path() {
    let mut rig = far();
    let logs = |rig: &Rig| rig.seen(|pdu| pdu.is_admin(admin::GET_LOG_PAGE)).len();
    let before = logs(&rig);
    assert!(answered_with(&mut rig, Status::ANA_INACCESSIBLE.with_dnr()) > 0);
    assert_eq!(logs(&rig), before);
    assert!(rig.path(1).usable);
    rig.wire().clear_rules();
    rig.run(SECOND);
    rig.finish();
}

#[test]
fn damaged_data_of_a_probe_costs_the_probe_alone() {
    let mut rig = far_with(|setup| {
        setup.options.hdr_digest = true;
        setup.options.data_digest = true;
    });
    rig.wire().rule(|pdu| {
        if pdu.worker > 0 && pdu.port == 1 && pdu.kind == kind::C2H_DATA {
            let at = pdu.bytes.len() - 100;
            pdu.bytes[at] ^= 0x40;
        }
    });
    let begin = rig.now();
    let mut rounds = 0;
    while rig.path(1).probe_errors == 0 {
        rounds += 1;
        assert!(rounds < 200, "a probe is answered some time");
        load(&mut rig, WRITE, 64);
        rig.run(50 * MS);
    }
    assert!(rig.event(begin, "resetting").is_none(), "the connection goes on");
    assert_eq!((rig.path(1).errors, rig.path(1).retries, rig.head().errors), (0, 0, 0));
    rig.wire().clear_rules();
    rig.run(SECOND);
    rig.finish();
}

#[test]
fn a_path_that_becomes_near_is_found_by_probes() {
    for op in [READ, WRITE] {
        let mut rig = far();
        load(&mut rig, op, 4000);
        slow_down(&mut rig, Duration::ZERO);
        let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
        rig.world.slow_stream(stream, 5 * MS);
        let mut rounds = 0;
        let mut before = rig.sent(1);
        loop {
            // So many that a write of the user's can be afforded now and then, too.
            (0..16).for_each(|_| drop(rig.io([op; 64])));
            let now = rig.sent(1);
            if now - before > 512 {
                break;
            }
            before = now;
            rounds += 1;
            assert!(rounds < 200, "{op:?}: the near path carries most");
        }
        rig.run(SECOND);
        rig.finish();
    }
}

#[test]
fn another_policy_takes_over_while_a_probe_is_in_flight() {
    let mut rig = far_with(|setup| setup.options.queue_size = 16);
    slow_down(&mut rig, 500 * MS);
    let before = probes(&mut rig);
    while probes(&mut rig) == before {
        load(&mut rig, WRITE, 64);
        rig.run(10 * MS);
    }
    for policy in Policy::ALL {
        rig.set("nvme-subsys0", "iopolicy", policy.name());
    }
    rig.run(2 * SECOND);
    assert_eq!((rig.path(0).probe_errors, rig.path(1).probe_errors), (0, 0));
    rig.finish();
}

#[test]
fn a_namespace_goes_while_a_probe_of_it_is_in_flight() {
    let mut rig = far();
    one_in_flight(&mut rig);
    let (subsystem, begin) = (setup::subsystem(), rig.now());
    rig.target(TargetVerb::NamespaceRemove { subsystem, nsid: 1 });
    rig.run(SECOND);
    assert!(rig.snapshot().subsystems[0].heads.is_empty(), "it does not wait for the probe");
    assert!(rig.now().since(begin) < 2 * SECOND);
    rig.finish();
}

#[test]
fn a_path_is_removed_while_a_probe_is_in_flight() {
    let mut rig = far();
    one_in_flight(&mut rig);
    let begin = rig.now();
    let reply = rig.ask(Verb::Disconnect(Selection::Controller("nvme1".into())));
    assert!(matches!(reply, Reply::Disconnected(1)), "{reply:?}");
    assert!(rig.now().since(begin) < SECOND, "nobody waits for it");
    load(&mut rig, WRITE, 400);
    rig.finish();
}

#[test]
fn a_shutdown_does_not_wait_for_a_probe() {
    let mut rig = far();
    one_in_flight(&mut rig);
    let begin = rig.now();
    let reply = rig.ask(Verb::Shutdown);
    assert!(matches!(reply, Reply::ShutDown { unanswered: 0 }), "{reply:?}");
    assert!(rig.now().since(begin) < SECOND);
    rig.run(SECOND);
    assert_eq!(rig.world.host_buffers(), 0);
}

#[test]
fn a_device_comes_to_rest_without_its_probe_and_gets_none() {
    let mut rig = far();
    one_in_flight(&mut rig);
    let device = || "nvme0n1".to_owned();
    let begin = rig.now();
    rig.done(Verb::Freeze { device: device() });
    rig.done(Verb::Quiesce { device: device() });
    assert!(rig.now().since(begin) < 10 * MS, "nobody waits for it");
    let (waiting, now) = (rig.submit([WRITE; 8]), probes(&mut rig));
    rig.run(SECOND);
    assert_eq!((rig.answered(&waiting), probes(&mut rig)), (0, now));
    rig.done(Verb::Unquiesce { device: device() });
    rig.done(Verb::Unfreeze { device: device() });
    rig.succeed(&waiting);
    // It ends with its time limit at the latest.
    rig.wire().clear_rules();
    rig.run(SECOND * 31);
    rig.wait_live(1);
    assert_eq!(rig.path(1).probe_errors, 1);
    rig.finish();
}

#[test]
fn where_probes_fail_no_read_of_the_users_is_tried() {
    let mut rig = far();
    rig.wire().rule(|pdu| {
        if pdu.port == 1 && pdu.answers(io::READ) {
            pdu.answer(Status::INTERNAL_ERROR);
        }
    });
    // Nothing is known of it any more.
    rig.ask(Verb::Reset { controller: "nvme1".into() });
    rig.wait_live(1);
    for _ in 0..400 {
        load(&mut rig, READ, 64);
        rig.run(10 * MS);
    }
    let path = rig.path(1);
    assert!(path.probe_errors > 8, "it is looked at: {}", path.probe_errors);
    assert_eq!((path.errors, path.retries, rig.head().errors), (0, 0, 0));
    rig.wire().clear_rules();
    for _ in 0..40 {
        load(&mut rig, READ, 64);
        rig.run(10 * MS);
    }
    assert!(!rig.get("nvme0c1n1", "finish_time_stat").contains("not measured"));
    rig.finish();
}

#[test]
fn probes_of_a_worker_without_a_queue_pair_are_carried_while_tags_are_to_spare() {
    let mut setup = Setup::new(2, 2);
    setup.host.default_policy = Policy::FinishTime;
    setup.host.shared_queue = true;
    setup.options.queue_size = 16;
    let mut rig = setup.connect();
    slow_down(&mut rig, 20 * MS);
    for _ in 0..1000 {
        let names = rig.submit_to(2, "nvme0n1", [WRITE; 4]);
        rig.succeed(&names);
    }
    let sent_at_first = probes(&mut rig);
    assert!(sent_at_first > 1);
    assert!(rig.path(1).commands[1] > 0, "what a probe has measured is used");
    rig.run(SECOND);
    assert_eq!(rig.path(0).probe_errors + rig.path(1).probe_errors, 0);
    rig.finish();
}

#[test]
fn a_path_in_a_new_association_is_measured_anew() {
    let mut rig = far();
    let stat = |rig: &mut Rig| rig.get("nvme0c1n1", "finish_time_stat");
    assert!(!stat(&mut rig).contains("not measured"));
    rig.ask(Verb::Reset { controller: "nvme1".into() });
    rig.wait_live(1);
    assert!(stat(&mut rig).contains("not measured"));
    assert!(!rig.get("nvme0c0n1", "finish_time_stat").contains("not measured"));
    load(&mut rig, READ, 8);
    rig.run(SECOND);
    assert!(!stat(&mut rig).contains("not measured"));
    rig.finish();
}

#[test]
fn no_probe_is_sent_where_no_io_may_go() {
    let mut rig = far();
    rig.ana(1, AnaState::Inaccessible);
    rig.run(10 * MS);
    let before = probes(&mut rig);
    load(&mut rig, WRITE, 4000);
    assert_eq!(probes(&mut rig), before);
    rig.finish();
}

#[test]
fn a_queue_pair_that_is_full_carries_no_probe() {
    let mut rig = far_with(|setup| {
        setup.options.queue_size = 16;
        let namespace = setup::namespace(2, 512);
        setup.namespaces().push(NamespaceConfig { ana_group: 2, ..namespace });
    });
    // The second device has the far path alone, and far more commands than that has tags.
    rig.target(TargetVerb::Ana { port: 0, group: 2, state: AnaState::Inaccessible });
    rig.run(10 * MS);
    let mut busy = rig.submit_to(1, "nvme0n2", [WRITE; 64]);
    rig.run(MS);
    let before = probes(&mut rig);
    for _ in 0..2000 {
        load(&mut rig, WRITE, 4);
        if rig.answered(&busy) + 40 > busy.len() {
            busy.extend(rig.submit_to(1, "nvme0n2", [WRITE; 32]));
        }
    }
    assert_eq!(probes(&mut rig), before, "every tag is wanted by somebody");
    rig.succeed(&busy);
    rig.run(SECOND);
    load(&mut rig, WRITE, 4000);
    assert!(probes(&mut rig) > before, "now there are tags to spare");
    rig.run(SECOND);
    rig.finish();
}

/// An eighth of the tags of a queue pair is never taken by a probe.
#[test]
fn a_probe_leaves_some_tags_to_others() {
    for (busy, spare) in [(56, false), (55, true)] {
        let mut rig = far_with(|setup| {
            // 63 tags, of which 7 are spared.
            setup.options.queue_size = 64;
            setup.host.max_requests = 512;
            let namespace = setup::namespace(2, 512);
            setup.namespaces().push(NamespaceConfig { ana_group: 2, ..namespace });
        });
        // The second device has the far path alone, and what it sends there is not answered.
        rig.target(TargetVerb::Ana { port: 0, group: 2, state: AnaState::Inaccessible });
        rig.wire().rule(|pdu| {
            if pdu.answers(io::WRITE) && pdu.sqe.is_some_and(|sqe| sqe.nsid() == 2) {
                pdu.bytes.clear();
            }
        });
        rig.run(10 * MS);
        let busy = rig.submit_to(1, "nvme0n2", vec![WRITE; busy]);
        rig.run(10 * MS);
        let before = probes(&mut rig);
        for _ in 0..400 {
            load(&mut rig, WRITE, 64);
            rig.run(10 * MS);
        }
        assert_eq!(probes(&mut rig) > before, spare, "{} are in flight", busy.len());
        assert_eq!(rig.answered(&busy), 0);
        rig.wire().clear_rules();
        rig.run(31 * SECOND);
        rig.wait_live(1);
        rig.succeed(&busy);
        rig.run(SECOND);
        rig.finish();
    }
}

#[test]
fn explain_tells_what_is_believed_while_the_policy_is_in_force() {
    let mut rig = far();
    load(&mut rig, WRITE, 4000);
    rig.run(SECOND);
    let probes = rig.path(1).probes;
    let told = explain(&mut rig).paths[1].finish_time.expect("it is in force");
    assert!(told.measured && told.finish_ns > 20_000_000, "{told:?}");
    assert_eq!((told.probes, told.in_flight_bytes), (probes, 0));
    rig.set("nvme-subsys0", "iopolicy", "numa");
    assert!(explain(&mut rig).paths.iter().all(|path| path.finish_time.is_none()));
    rig.finish();
}
