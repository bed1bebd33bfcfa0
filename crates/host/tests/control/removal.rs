//! Orderly removal: disconnect, delayed removal of a device, shutdown.

use crate::fake::{Fake, Say};
use crate::rig::{NAMESPACES_CHANGED, NQN, Rig, Shards};
use anabranch_host::block_stat::BlockStat;
use anabranch_host::mail::{Detail, HeadStats, PathStats, ShardStats, ToControl};
use anabranch_host::topology::{Association, ControllerId, ControllerState, HeadId};
use anabranch_host::verb::{Reply, Selection, Verb};
use anabranch_proto::machine::WorkerId;
use std::sync::Arc;
use std::time::Duration;

fn disconnect(rig: &mut Rig, name: &str) -> u64 {
    rig.verb(Verb::Disconnect(Selection::Controller(name.to_string())))
}

/// What a worker has counted for a device: so many requests.
pub(crate) fn head_stats(head: HeadId, requests: [u64; 3]) -> HeadStats {
    HeadStats {
        head,
        requests,
        bytes: [4, 5],
        latency_sums_ns: [0; 3],
        errors: 0,
        in_flight: 0,
        requeued_no_usable_path: 0,
        failed_no_available_path: 0,
        affinity_misses: 0,
        stat: BlockStat::default(),
        latency_ns: None,
    }
}

fn path_in_flight(rig: &Rig, in_flight: u32) -> ShardStats {
    let head = rig.head("nvme0n1").unwrap().id;
    let path = PathStats {
        head,
        controller: ControllerId(0),
        commands: [5, 6, 7],
        bytes: [8, 9],
        latency_sums_ns: [0; 3],
        errors: 1,
        flawed: 0,
        retries: 2,
        failovers: 3,
        uncertain_writes_resent: 4,
        in_flight,
        numa_cached: true,
        stat: BlockStat::default(),
        latency_ns: None,
        latency: None,
        finish_time: None,
        probes: 5,
        probe_bytes: 6,
        probe_errors: 7,
        rescued: 0,
    };
    let of_head = HeadStats {
        in_flight,
        requeued_no_usable_path: 10,
        failed_no_available_path: 20,
        affinity_misses: 4,
        ..head_stats(head, [1, 2, 3])
    };
    ShardStats { paths: vec![path], heads: vec![of_head], explain: None }
}

/// It asks again and again, and there may be thousands of other paths.
#[test]
fn a_removal_asks_shards_for_nothing_but_what_its_controller_has_in_flight() {
    let mut rig = Rig::connected_twice(2);
    let stats = path_in_flight(&rig, 3);
    rig.stats.insert(2, stats);
    rig.details.clear();
    disconnect(&mut rig, "nvme0");
    rig.advance(Duration::from_millis(500));
    let of_it = Detail::InFlight(ControllerId(0));
    assert!(!rig.details.is_empty() && rig.details.iter().all(|detail| *detail == of_it));
}

/// To whoever asks for it anew it must not seem to be there already.
#[test]
fn a_path_can_be_connected_again_while_its_controller_is_being_removed() {
    let mut rig = Rig::connected(1);
    let stats = path_in_flight(&rig, 3);
    rig.stats.insert(1, stats);
    disconnect(&mut rig, "nvme0");
    rig.advance(Duration::from_millis(100));
    rig.fake(1).cntlid = 2;
    assert_eq!(rig.connect_ok(1, |_| ()), "nvme1");
    let states = [0, 1].map(|id| rig.state(id));
    assert_eq!(states, [ControllerState::Deleting, ControllerState::Live].map(Some));
}

#[test]
fn a_disconnect_drains_stops_shuts_down_and_is_answered_at_the_end() {
    let mut rig = Rig::connected_twice(2);
    let stats = path_in_flight(&rig, 3);
    rig.stats.insert(2, stats);
    let id = disconnect(&mut rig, "nvme0");
    rig.advance(Duration::from_millis(500));
    assert!(rig.reply(id).is_none(), "commands are in flight");
    assert_eq!(rig.state(0), Some(ControllerState::Deleting));
    assert!(!rig.path("nvme0n1", 0).unwrap().ready, "nothing new is sent there");
    assert_eq!(rig.mail_count("StopQueue"), 0);
    rig.stats.clear();
    rig.advance(Duration::from_millis(100));
    assert!(matches!(rig.reply(id), Some(Reply::Disconnected(1))));
    assert_eq!(rig.mail_count("StopQueue"), 2);
    let cc = rig.fake(1).seen.iter().rev().find(|c| c.is_property_set()).unwrap().cdw12;
    assert_eq!(cc >> 14 & 3, 1, "normal shutdown");
    assert_eq!(rig.state(0), None);
    assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 1);
    assert_eq!(rig.open_connections(), 1);
}

#[test]
fn a_disconnect_is_bounded_whatever_hangs() {
    // Commands that never end.
    let mut rig = Rig::connected(1);
    let stats = path_in_flight(&rig, 1);
    rig.stats.insert(1, stats);
    let id = disconnect(&mut rig, "nvme0");
    rig.advance(Duration::from_millis(10_100));
    assert!(matches!(rig.reply(id), Some(Reply::Disconnected(1))));
    assert_eq!(rig.event_count("nvme0: it has shut down, and not answered all that it had"), 1);

    // A controller that does not answer.
    let mut rig = Rig::connected(1);
    rig.fake(1).silent = true;
    let id = disconnect(&mut rig, "nvme0");
    rig.advance(Duration::from_millis(5_100));
    assert!(matches!(rig.reply(id), Some(Reply::Disconnected(1))));

    // Shards that do not answer.
    let mut rig = Rig::connected(1);
    rig.shards = Shards::Hang;
    let id = disconnect(&mut rig, "nvme0");
    rig.advance_s(80);
    assert!(matches!(rig.reply(id), Some(Reply::Disconnected(1))));
    assert_eq!(rig.bufs.in_use_bytes(), 0);
}

/// There is nobody left to be told: what is in flight is known to end with the connection.
#[test]
fn a_controller_that_is_lost_while_it_is_drained_is_gone_at_once() {
    let mut rig = Rig::connected_twice(1);
    let stats = path_in_flight(&rig, 3);
    rig.stats.insert(1, stats);
    let id = disconnect(&mut rig, "nvme0");
    rig.advance(Duration::from_millis(500));
    assert!(rig.reply(id).is_none(), "commands are in flight");
    rig.cut(1);
    assert!(matches!(rig.reply(id), Some(Reply::Disconnected(1))));
    assert_eq!((rig.state(0), rig.mail_count("StopQueue")), (None, 1));
    assert_eq!(rig.event_count("nvme0: removed"), 0, "it was asked for");
}

/// A reset that has to shut the controller down first, as something in flight does not end.
#[test]
fn a_controller_that_is_removed_while_it_is_reset_does_not_come_back() {
    let mut rig = Rig::connected_twice(1);
    let stats = path_in_flight(&rig, 3);
    rig.stats.insert(1, stats);
    // The controller never says that it has shut down.
    rig.fake(1).hook = Some(Box::new(|c| c.is_property_get(0x1c).then_some(Say::Result(1))));
    let reset = rig.verb(Verb::Reset { controller: "nvme0".to_string() });
    rig.advance(Duration::from_millis(1_500));
    assert_eq!(rig.state(0), Some(ControllerState::Resetting));
    let id = disconnect(&mut rig, "nvme0");
    assert_eq!(rig.state(0), Some(ControllerState::Deleting));
    rig.advance_s(1);
    assert!(matches!(rig.reply(id), Some(Reply::Disconnected(1))));
    assert!(matches!(rig.reply(reset), Some(Reply::Error(_))));
    assert_eq!((rig.state(0), rig.fake(1).connections), (None, 1));
    assert_eq!(rig.event_count("nvme0: removed"), 0, "it was asked for");
    assert_eq!(
        rig.event_count(
            "nvme0: it has not said that it has shut down (CSTS.SHST): it took too long"
        ),
        1
    );
}

/// It ends in order all the same; whoever reads the log knows that it may not have.
#[test]
fn a_controller_that_does_not_answer_its_shutdown_is_named() {
    let mut rig = Rig::connected(1);
    rig.fake(1).hook = Some(Box::new(|c| c.is_property_set().then_some(Say::Nothing)));
    let id = disconnect(&mut rig, "nvme0");
    rig.advance_s(6);
    assert!(matches!(rig.reply(id), Some(Reply::Disconnected(1))));
    let told = "nvme0: it has not said that it has shut down (CSTS.SHST): no answer to a step \
                of the orderly shutdown in time";
    assert_eq!(rig.event_count(told), 1);
    assert_eq!(rig.event_count("nvme0: removed"), 0, "it was asked for");
}

/// Linux' target says at once that it has shut down, and goes on with what it had begun. SPDK's
/// closes each queue pair that has nothing in flight before it says so.
#[test]
fn what_is_in_flight_is_awaited_although_its_controller_shuts_down() {
    let ways: [fn(&mut Rig) -> u64; 2] = [
        |rig| disconnect(rig, "nvme0"),
        |rig| rig.verb(Verb::Reset { controller: "nvme0".to_string() }),
    ];
    for (way, patience) in ways.into_iter().zip([5_000, 1_000]) {
        for other_queue_closes in [false, true] {
            let mut rig = Rig::connected_twice(2);
            let stats = path_in_flight(&rig, 3);
            rig.stats.insert(1, stats);
            let asked = way(&mut rig);
            rig.advance(Duration::from_millis(patience - 100));
            if other_queue_closes {
                rig.fake(1).hook =
                    Some(Box::new(|c| c.is_property_get(0x1c).then_some(Say::Result(1 | 1 << 2))));
            }
            let told = rig.fake(1).count(|c| c.is_property_set());
            rig.advance(Duration::from_millis(200));
            assert_eq!(rig.fake(1).count(|c| c.is_property_set()), told + 1, "SHN");
            if other_queue_closes {
                let why = "closed by the peer".to_string();
                let (controller, association) = (ControllerId(0), Association(1));
                let lost = ToControl::QueueLost { controller, association, qid: 2, why };
                rig.post(WorkerId(2), lost);
                rig.advance(Duration::from_millis(200));
                assert_eq!(rig.mail_count("StopQueue"), 0, "it has not shut down");
                rig.fake(1).hook = None;
            }
            rig.advance(Duration::from_millis(patience - 500));
            assert_eq!(rig.mail_count("StopQueue"), 0, "three are in flight");
            rig.stats.clear();
            rig.advance(Duration::from_millis(100));
            assert_eq!(rig.mail_count("StopQueue"), 2);
            assert!(matches!(rig.reply(asked), Some(Reply::Disconnected(1) | Reply::Done)));
            assert_eq!(rig.event_count("has not said that it has shut down"), 0);
        }
    }
}

/// It still ends what it has, and is told so.
#[test]
fn a_late_admin_command_does_not_cut_what_a_controller_that_is_removed_still_has() {
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    rig.connect_ok(1, |request| request.options.admin_timeout = Duration::from_secs(2));
    let stats = path_in_flight(&rig, 3);
    rig.stats.insert(1, stats);
    rig.advance_s(1);
    rig.fake(1).hook = Some(Box::new(|c| c.is_identify(0).then_some(Say::Nothing)));
    rig.verb(Verb::IdNs { device: "nvme0n1".to_string() });
    let id = disconnect(&mut rig, "nvme0");
    let told = rig.fake(1).count(|c| c.is_property_set());
    // A Keep Alive is answered meanwhile.
    rig.advance(Duration::from_millis(2050));
    assert_eq!(rig.fake(1).count(|c| c.is_property_set()), told + 1, "SHN");
    assert_eq!(rig.mail_count("StopQueue"), 0, "three are in flight");
    rig.stats.clear();
    rig.advance(Duration::from_millis(100));
    assert_eq!(rig.mail_count("StopQueue"), 1);
    assert!(matches!(rig.reply(id), Some(Reply::Disconnected(1))));
}

/// A flush may still come while it shuts down, and be answered.
#[test]
fn a_controller_is_told_to_shut_down_before_its_queues_are_closed() {
    let mut rig = Rig::connected_twice(1);
    // What is in flight elsewhere is nothing to it.
    let mut stats = path_in_flight(&rig, 3);
    stats.paths[0].controller = ControllerId(1);
    rig.stats.insert(1, stats);
    rig.shards = Shards::KeepQueues;
    let told = |rig: &Rig| rig.fake(1).count(|c| c.is_property_set()) - 1;
    // It shuts down in its time.
    rig.fake(1).hook =
        Some(Box::new(|c| c.is_property_get(0x1c).then_some(Say::Result(1 | 1 << 2))));
    let id = disconnect(&mut rig, "nvme0");
    rig.advance_s(2);
    assert_eq!((rig.mail_count("StopQueue"), told(&rig)), (0, 1));
    assert_eq!(rig.open_connections(), 2, "it has not said that it is done");
    rig.fake(1).hook = None;
    rig.advance_s(1);
    assert_eq!((rig.mail_count("StopQueue"), told(&rig)), (1, 1));
    rig.advance_s(58);
    assert!(rig.reply(id).is_none(), "a worker hangs");
    rig.advance_s(3);
    assert!(matches!(rig.reply(id), Some(Reply::Disconnected(1))), "and is waited for no longer");
}

#[test]
fn a_controller_can_be_removed_in_every_state() {
    type Prepare = fn(&mut Rig);
    let states: [(&str, Prepare); 6] = [
        ("waiting", |rig| rig.cut(1)),
        ("opening", |rig| {
            rig.fake(1).black_hole = true;
            rig.cut(1);
            rig.advance_s(11);
        }),
        ("setup", |rig| {
            rig.fake(1).silent = true;
            rig.cut(1);
            rig.advance_s(11);
        }),
        ("queues", |rig| {
            rig.cut(1);
            rig.shards = Shards::Hang;
            rig.advance_s(11);
        }),
        ("stopping", |rig| {
            rig.shards = Shards::Hang;
            rig.cut(1);
        }),
        ("deleting", |rig| {
            disconnect(rig, "nvme0");
        }),
    ];
    for (what, prepare) in states {
        let mut rig = Rig::connected(1);
        prepare(&mut rig);
        if rig.state(0).is_none() {
            continue;
        }
        let id = disconnect(&mut rig, "nvme0");
        assert!(matches!(rig.state(0), None | Some(ControllerState::Deleting)), "{what}");
        rig.shards = Shards::Obey;
        rig.advance_s(70);
        // What was lost for good is told so, and why; this was asked for.
        assert_eq!(rig.event_count("nvme0: removed"), 0, "{what}: {:?}", rig.events);
        assert!(matches!(rig.reply(id), Some(Reply::Disconnected(1))), "{what}");
        assert_eq!(rig.topology.controllers.len(), 0, "{what}");
        assert_eq!(rig.open_connections(), 0, "{what}");
        assert_eq!(rig.bufs.in_use_bytes(), 0, "{what}");
    }
}

#[test]
fn a_connect_that_is_removed_while_it_is_made_is_answered() {
    let mut rig = Rig::new(1);
    let mut fake = Fake::new(NQN, 1);
    fake.black_hole = true;
    rig.put(1, fake);
    let connect = rig.connect(1, |_| ());
    let all = rig.verb(Verb::Disconnect(Selection::All));
    assert!(matches!(rig.reply(all), Some(Reply::Disconnected(1))));
    assert!(matches!(rig.reply(connect), Some(Reply::Error(_))));
}

#[test]
fn disconnect_by_subsystem_and_of_nothing() {
    let mut rig = Rig::connected_twice(1);
    let other: anabranch_proto::nvme::nqn::Nqn = "nqn.2024-01.test:other".parse().unwrap();
    let none = rig.ask(Verb::Disconnect(Selection::Subsystem(other)));
    assert!(matches!(none, Reply::Disconnected(0)));
    let id = rig.verb(Verb::Disconnect(Selection::Subsystem(NQN.parse().unwrap())));
    rig.advance_s(1);
    assert!(matches!(rig.reply(id), Some(Reply::Disconnected(2))));
    assert_eq!(rig.heads().len(), 0);
    assert_eq!(rig.snapshot().subsystems.len(), 0);
    assert!(matches!(
        rig.ask(Verb::Disconnect(Selection::Controller("nvme7".to_string()))),
        Reply::Error(_)
    ));
}

#[test]
fn m19_a_device_without_a_path_stays_for_its_delay() {
    let mut rig = Rig::connected(1);
    rig.set("nvme0n1", "delayed_removal_secs", "30").unwrap();
    assert!(rig.head("nvme0n1").unwrap().queue_if_no_path);
    let old = rig.head("nvme0n1").unwrap().id;
    disconnect(&mut rig, "nvme0");
    rig.advance_s(29);
    assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 0);
    // A path that comes back keeps the device.
    rig.connect_ok(1, |_| ());
    assert_eq!(rig.head("nvme0n1").map(|head| head.id), Some(old));
    assert_eq!(rig.event_count("there now"), 0, "it has gone nowhere");
    rig.advance_s(100);
    assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 1);
    // Otherwise it goes, and everything that waits fails.
    disconnect(&mut rig, "nvme1");
    rig.advance_s(29);
    assert_eq!(rig.heads().len(), 1);
    rig.advance_s(2);
    assert_eq!(rig.heads().len(), 0);
    assert_eq!(rig.event_count("nvme0n1: removed"), 1);
    assert!(rig.get("nvme-subsys0", "iopolicy").is_err(), "and its subsystem with it");
}

#[test]
fn m19_without_a_delay_it_goes_at_once() {
    let mut rig = Rig::connected(1);
    // Whoever waits for it to rest is told.
    let freeze = rig.verb(Verb::Freeze { device: "nvme0n1".to_string() });
    disconnect(&mut rig, "nvme0");
    rig.advance(Duration::from_millis(100));
    assert_eq!(rig.heads().len(), 0);
    assert_eq!(rig.event_count("nvme0n1: path nvme0c0n1 removed"), 1);
    assert_eq!(rig.event_count("no path left"), 0);
    let told = rig.reply(freeze);
    let Some(Reply::Error(error)) = told else { panic!("{told:?}") };
    assert!(error.to_string().contains("the device was removed"), "{error}");
}

#[test]
fn shutdown_drains_removes_everything_and_counts_what_was_left() {
    let mut rig = Rig::connected_twice(2);
    let id = rig.verb(Verb::Shutdown);
    rig.advance(Duration::from_millis(200));
    assert!(matches!(rig.reply(id), Some(Reply::ShutDown { unanswered: 0 })));
    assert_eq!(rig.topology.controllers.len(), 0);
    let request = Box::new(Rig::request(1));
    assert!(matches!(rig.ask(Verb::Connect(request)), Reply::Error(_)), "nothing new begins");
    assert!(matches!(rig.ask(Verb::Shutdown), Reply::Error(_)));
}

#[test]
fn shutdown_waits_for_requests_no_longer_than_its_limit() {
    let mut rig = Rig::connected(2);
    let stats = path_in_flight(&rig, 7);
    rig.stats.insert(2, stats);
    rig.drain_never_ends = true;
    let id = rig.verb(Verb::Shutdown);
    rig.advance(Duration::from_millis(4_900));
    assert!(rig.reply(id).is_none());
    assert_eq!(rig.state(0), Some(ControllerState::Live), "they are served meanwhile");
    rig.advance_s(12);
    assert!(matches!(rig.reply(id), Some(Reply::ShutDown { unanswered: 7 })));
}

/// Whoever stops the process after a while knows for how long to wait: its controllers have as long
/// to shut down as what was in flight had before.
#[test]
fn a_shutdown_does_not_drain_again_what_was_not_answered_in_its_time() {
    let mut rig = Rig::connected(2);
    let stats = path_in_flight(&rig, 7);
    rig.stats.insert(2, stats);
    rig.drain_never_ends = true;
    let id = rig.verb(Verb::Shutdown);
    rig.advance(Duration::from_millis(10_100));
    assert!(matches!(rig.reply(id), Some(Reply::ShutDown { unanswered: 7 })));
}

/// One that hangs does not say what it has: it counts as one request.
#[test]
fn a_shutdown_counts_what_a_worker_that_hangs_may_have() {
    let mut rig = Rig::connected(2);
    let stats = Box::new(path_in_flight(&rig, 7));
    rig.shards = Shards::Hang;
    let id = rig.verb(Verb::Shutdown);
    rig.advance_s(5);
    rig.post(WorkerId(2), ToControl::Stats { id: 0, stats });
    // It does not let go of its queue pair either.
    rig.advance_s(75);
    assert!(matches!(rig.reply(id), Some(Reply::ShutDown { unanswered: 8 })));
}

#[test]
fn names_are_given_again_once_they_are_free() {
    let mut rig = Rig::connected_twice(1);
    let id = disconnect(&mut rig, "nvme0");
    rig.advance_s(1);
    assert!(matches!(rig.reply(id), Some(Reply::Disconnected(1))));
    // The subsystem still bears the number 0, so a new controller gets another one.
    rig.put(3, Fake::new(NQN, 3));
    rig.connect_ok(3, |_| ());
    let names = |rig: &mut Rig| -> Vec<String> {
        let subsystems = rig.snapshot().subsystems;
        subsystems.iter().flat_map(|s| &s.controllers).map(|c| c.name.clone()).collect()
    };
    assert_eq!(names(&mut rig), ["nvme1", "nvme2"]);
    for name in ["nvme1", "nvme2"] {
        let id = disconnect(&mut rig, name);
        rig.advance_s(1);
        assert!(matches!(rig.reply(id), Some(Reply::Disconnected(1))));
    }
    // All is gone: the device comes back under its first name.
    rig.connect_ok(1, |_| ());
    assert_eq!(names(&mut rig), ["nvme0"]);
    assert!(rig.head("nvme0n1").is_some());
}

#[test]
fn a_controller_that_never_answered_stands_with_the_others_of_its_nqn() {
    let mut rig = Rig::connected(1);
    let mut request = Rig::request(9);
    request.keep_trying = true;
    rig.verb(Verb::Connect(Box::new(request)));
    let subsystems = rig.snapshot().subsystems;
    assert_eq!(subsystems.len(), 1);
    let names: Vec<&str> = subsystems[0].controllers.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["nvme0", "nvme1"]);
}

/// What a worker acknowledges that has not heard of it yet is owed to the controller all the same.
#[test]
fn a_path_that_has_left_and_is_back_has_the_marks_that_late_workers_write_to() {
    let mut rig = Rig::connected_twice(1);
    let former = rig.path("nvme0n1", 1).unwrap();
    let space = rig.fake(2).spaces.remove(&1).unwrap();
    rig.raise(2, NAMESPACES_CHANGED);
    assert!(rig.path("nvme0n1", 1).is_none(), "{:?}", rig.events);
    rig.fake(2).spaces.insert(1, space);
    rig.raise(2, NAMESPACES_CHANGED);
    let back = rig.path("nvme0n1", 1).unwrap();
    assert_ne!(back.id, former.id);
    assert!(Arc::ptr_eq(&back.writes, &former.writes), "a worker may still have the former");
    let other = rig.path("nvme0n1", 0).unwrap();
    assert!(!Arc::ptr_eq(&back.writes, &other.writes));

    drop(former);
    let former = Arc::downgrade(&back.writes);
    drop(back);
    let space = rig.fake(2).spaces.remove(&1).unwrap();
    rig.raise(2, NAMESPACES_CHANGED);
    assert_eq!(former.strong_count(), 0, "nobody has them");
    rig.fake(2).spaces.insert(1, space);
    rig.raise(2, NAMESPACES_CHANGED);
    assert!(rig.path("nvme0n1", 1).is_some());
}
