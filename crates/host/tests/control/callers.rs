//! Answers that control waits for: each caller has its own, when it is complete, or when its time
//! is over.

use crate::fake::{Fake, Space};
use crate::many::spaces;
use crate::removal::head_stats;
use crate::rig::{NAMESPACES_CHANGED, NQN, Rig, Shards};
use anabranch_host::config::SubsystemSettings;
use anabranch_host::mail::{RequestFailed, Rescued, ShardStats, ToControl};
use anabranch_host::topology::{Association, ControllerId, HeadId};
use anabranch_host::user::{IoError, RequestOp};
use anabranch_host::verb::{Reply, Selection, Verb, VerbError};
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::status::Status;
use std::time::Duration;

/// One controller with two devices.
fn with_two_devices(data_workers: u16) -> (Rig, [HeadId; 2]) {
    let mut rig = Rig::connected(data_workers);
    rig.fake(1).spaces.insert(2, Space::new(0x22, 64));
    rig.raise(1, NAMESPACES_CHANGED);
    let heads = ["nvme0n1", "nvme0n2"].map(|name| rig.head(name).unwrap().id);
    (rig, heads)
}

/// One controller with 300 devices; of each the first of two workers has counted as many reads as
/// its number, and the second a thousand.
fn with_many_devices() -> (Rig, Vec<HeadId>) {
    let mut rig = Rig::connected(2);
    rig.fake(1).spaces.extend(spaces(2..=300));
    rig.raise(1, NAMESPACES_CHANGED);
    let ids: Vec<HeadId> = rig.topology.heads.iter().map(|head| head.id).collect();
    for worker in [1, 2] {
        let reads = |id: HeadId| if worker == 1 { id.0.into() } else { 1000 };
        let heads = ids.iter().map(|&id| head_stats(id, [reads(id), 0, 0])).collect();
        rig.stats.insert(worker, ShardStats { heads, ..ShardStats::default() });
    }
    (rig, ids)
}

fn is_done(rig: &mut Rig, id: u64) -> bool {
    match rig.reply(id) {
        Some(Reply::Done) => true,
        None => false,
        Some(other) => panic!("{other:?}"),
    }
}

#[test]
fn each_stop_is_answered_when_its_own_device_has_come_to_rest_in_its_own_way() {
    let (mut rig, heads) = with_two_devices(1);
    let freeze =
        ["nvme0n1", "nvme0n2"].map(|device| rig.verb(Verb::Freeze { device: device.to_string() }));
    let quiesce = rig.verb(Verb::Quiesce { device: "nvme0n1".to_string() });
    assert!(is_done(&mut rig, quiesce), "workers say so at once");
    let epoch = rig.topology.epoch;
    assert_eq!(freeze.map(|id| is_done(&mut rig, id)), [false, false]);
    rig.post(WorkerId(1), ToControl::Frozen { head: heads[0], epoch });
    rig.run();
    assert_eq!(freeze.map(|id| is_done(&mut rig, id)), [true, false]);
    // A device that goes takes along who waits for it.
    let again = rig.verb(Verb::Freeze { device: "nvme0n1".to_string() });
    rig.fake(1).spaces.remove(&1);
    rig.raise(1, NAMESPACES_CHANGED);
    assert!(matches!(rig.reply(again), Some(Reply::Error(_))));
    assert!(!is_done(&mut rig, freeze[1]));
    rig.post(WorkerId(1), ToControl::Frozen { head: heads[1], epoch });
    rig.run();
    assert!(is_done(&mut rig, freeze[1]));
}

/// Other time-outs come and go meanwhile: keep-alive.
#[test]
fn whoever_waits_waits_for_all_of_the_time() {
    let mut rig = Rig::connected(1);
    let freeze = rig.verb(Verb::Freeze { device: "nvme0n1".to_string() });
    rig.advance(Duration::from_millis(59_900));
    assert!(rig.reply(freeze).is_none());
    rig.advance(Duration::from_millis(200));
    assert!(matches!(rig.reply(freeze), Some(Reply::Error(_))));

    let mut rig = Rig::connected(1);
    rig.shards = Shards::Hang;
    // To just before a keep-alive.
    rig.advance(Duration::from_millis(2_100));
    let snapshot = rig.verb(Verb::Snapshot);
    rig.advance(Duration::from_millis(900));
    assert!(rig.reply(snapshot).is_none());
    rig.advance(Duration::from_millis(200));
    assert!(matches!(rig.reply(snapshot), Some(Reply::Snapshot(_))), "without those figures");
}

/// Workers answer one after the other, each in its own time, and each counts once.
#[test]
fn figures_are_those_of_whoever_asked_for_them() {
    let mut rig = Rig::connected(2);
    rig.shards = Shards::Hang;
    let asked = [rig.verb(Verb::Snapshot), rig.verb(Verb::Snapshot)];
    let mut answer = |worker, id| {
        rig.post(WorkerId(worker), ToControl::Stats { id, stats: Box::default() });
        rig.run();
        asked.map(|id| rig.reply(id).is_some())
    };
    assert_eq!(answer(1, 1), [false, false]);
    assert_eq!(answer(1, 1), [false, false], "the second worker has yet to say");
    assert_eq!(answer(2, 1), [false, true]);
    assert_eq!(answer(2, 0), [false, false]);
    assert_eq!(answer(1, 0), [true, false]);
}

/// All of them at once would keep a worker from its I/O for milliseconds.
#[test]
fn a_worker_tells_the_figures_of_many_devices_in_portions() {
    let (mut rig, ids) = with_many_devices();
    rig.asked_of.clear();
    let Reply::Snapshot(snapshot) = rig.ask(Verb::Snapshot) else { panic!("no snapshot") };
    let counted = snapshot.subsystems[0].heads.iter().map(|head| head.requests[0]);
    let by_both = ids.iter().map(|id| u64::from(id.0) + 1000);
    assert_eq!(counted.collect::<Vec<u64>>(), by_both.collect::<Vec<u64>>());
    let portions: Vec<_> = rig.asked_of.iter().step_by(2).cloned().collect();
    assert_eq!(portions, rig.asked_of.iter().skip(1).step_by(2).cloned().collect::<Vec<_>>());
    // With one path each.
    for portion in &portions {
        assert!((1..=128).contains(&ids.iter().filter(|id| portion.contains(id)).count()));
    }
    // Whatever number a device has, it lies in one of them.
    assert_eq!((portions[0].start().0, portions[2].end().0), (0, u32::MAX));
    assert!(portions.windows(2).all(|two| two[0].end().0 + 1 == two[1].start().0));
}

/// It is asked for its next portion when it has told one, and what others have told is there.
#[test]
fn a_worker_that_hangs_keeps_no_others_from_telling_their_figures() {
    let (mut rig, ids) = with_many_devices();
    rig.shards = Shards::Hang;
    rig.asked_of.clear();
    let asked = rig.verb(Verb::Snapshot);
    for told in 0..3 {
        // Both were asked for the first, one for the others.
        assert_eq!(rig.asked_of.len(), 2 + told);
        let of = rig.asked_of.last().expect("it was asked").clone();
        // The time that a worker has is that for a portion.
        rig.advance(Duration::from_millis(900));
        assert!(rig.reply(asked).is_none());
        let mut stats = Box::new(rig.stats[&1].clone());
        stats.heads.retain(|head| of.contains(&head.head));
        rig.post(WorkerId(1), ToControl::Stats { id: 0, stats });
        rig.run();
    }
    assert_eq!(rig.asked_of.len(), 4);
    rig.advance(Duration::from_millis(1100));
    let Some(Reply::Snapshot(snapshot)) = rig.reply(asked) else { panic!("no snapshot") };
    let counted = snapshot.subsystems[0].heads.iter().map(|head| head.requests[0]);
    assert!(counted.eq(ids.iter().map(|id| u64::from(id.0))));
}

/// While a worker hangs they may come faster than they are answered: those beyond the limit are
/// told so at once.
#[test]
fn no_more_wait_for_figures_than_there_is_room_for() {
    let mut rig = Rig::connected(1);
    rig.shards = Shards::Hang;
    let asked: Vec<u64> = (0..1024).map(|_| rig.verb(Verb::Snapshot)).collect();
    let list = Verb::Attributes { object: None };
    let beyond = [rig.verb(Verb::Snapshot), rig.verb(list)].map(|id| rig.reply(id));
    for reply in beyond {
        assert!(matches!(reply, Some(Reply::Error(VerbError::Conflict(_)))), "{reply:?}");
    }
    rig.advance_s(2);
    assert!(asked.into_iter().all(|id| matches!(rig.reply(id), Some(Reply::Snapshot(_)))));
    let later = rig.verb(Verb::Snapshot);
    rig.shards = Shards::Obey;
    rig.advance_s(2);
    assert!(matches!(rig.reply(later), Some(Reply::Snapshot(_))));
}

#[test]
fn a_shutdown_goes_on_when_every_worker_has_drained() {
    let mut rig = Rig::connected(2);
    rig.drain_never_ends = true;
    let id = rig.verb(Verb::Shutdown);
    rig.post(WorkerId(2), ToControl::Drained);
    rig.advance_s(1);
    assert!(rig.reply(id).is_none() && rig.state(0).is_some(), "the first one still has requests");
    rig.post(WorkerId(1), ToControl::Drained);
    rig.advance_s(20);
    assert!(matches!(rig.reply(id), Some(Reply::ShutDown { unanswered: 0 })));
}

#[test]
fn a_disconnect_of_several_is_answered_when_the_last_is_gone() {
    let mut rig = Rig::connected_twice(1);
    // It does not say that it has shut down.
    rig.fake(2).silent = true;
    let id = rig.verb(Verb::Disconnect(Selection::All));
    rig.advance_s(1);
    assert_eq!((rig.state(0), rig.reply(id).is_none()), (None, true));
    rig.advance_s(5);
    assert!(matches!(rig.reply(id), Some(Reply::Disconnected(2))));
}

#[test]
fn what_workers_tell_of_a_device_is_told_of_that_one() {
    let (mut rig, heads) = with_two_devices(1);
    let (controller, association, head) = (ControllerId(0), Association(1), heads[1]);
    let status = Status::ANA_TRANSITION;
    rig.fake(1).hook = Some(Box::new(|c| c.is_log(0x0c).then_some(crate::fake::Say::Nothing)));
    rig.post(WorkerId(1), ToControl::AnaError { controller, association, head, status });
    rig.run();
    let pending = ["nvme0n1", "nvme0n2"].map(|name| rig.path(name, 0).unwrap().ana_pending);
    assert_eq!(pending, [false, true]);
    assert_eq!(rig.event_count("nvme0c0n2: Asymmetric Access Transition"), 1);
    let heads = rig.snapshot().subsystems[0].heads.clone();
    let usable: Vec<bool> = heads.iter().map(|head| head.paths[0].usable).collect();
    assert_eq!(usable, [true, false], "as it is shown");

    let (op, error, controller) = (RequestOp::Flush, IoError::NoPath, Some(ControllerId(0)));
    let failed = RequestFailed { head, controller, op, error, flaw: None, untold: 0 };
    rig.post(WorkerId(1), ToControl::RequestFailed(Box::new(failed)));
    let rescued =
        Rescued { head, controller: ControllerId(0), silent_ns: 9_000_000, reads: 3, unsent: 1 };
    rig.post(WorkerId(1), ToControl::Rescued(Box::new(rescued)));
    let controller = ControllerId(0);
    for _ in 0..2 {
        let status = Status::INVALID_OPCODE;
        rig.post(WorkerId(1), ToControl::ZeroesRefused { head, controller, status });
    }
    rig.run();
    assert_eq!(rig.event_count("nvme0n2: flush failed: "), 1);
    assert_eq!(rig.event_count("nvme0c0n2: silent for 9 ms: 3 reads"), 1);
    assert_eq!(rig.event_count("nvme0n2: it does not make zeroes after all"), 1, "told once");
    let refused: Vec<bool> = rig.heads().iter().map(|head| head.zeroes_refused).collect();
    assert_eq!(refused, [false, true]);
}

/// Workers may not have the present picture yet.
#[test]
fn an_ana_status_of_an_earlier_association_changes_nothing() {
    let mut rig = Rig::connected(1);
    let head = rig.head("nvme0n1").unwrap().id;
    rig.cut(1);
    rig.advance_s(11);
    let logs = rig.fake(1).count(|c| c.is_log(0x0c));
    for association in [1, 2] {
        let (controller, association) = (ControllerId(0), Association(association));
        let status = Status::ANA_INACCESSIBLE;
        rig.post(WorkerId(1), ToControl::AnaError { controller, association, head, status });
        rig.run();
        let again = rig.fake(1).count(|c| c.is_log(0x0c)) - logs;
        assert_eq!(again, usize::from(association.0 == 2));
    }
}

/// A caller who wants to see something raw sees what the controller says of it, its errors too.
#[test]
fn a_raw_structure_that_the_controller_refuses_is_an_error() {
    let mut rig = Rig::connected(1);
    rig.fake(1).hook = Some(Box::new(|_| Some(crate::fake::Say::Status(0x006))));
    let reply = rig.ask(Verb::IdCtrl { controller: "nvme0".to_string() });
    let Reply::Error(error) = reply else { panic!("{reply:?}") };
    assert!(error.to_string().contains("nvme0: Internal Error"), "{error}");
    // Not while it is being connected, either: nobody knows what it is, then.
    rig.fake(1).hook = Some(Box::new(|c| c.is_identify(1).then_some(crate::fake::Say::Nothing)));
    rig.cut(1);
    rig.advance_s(11);
    for verb in [
        Verb::IdCtrl { controller: "nvme0".to_string() },
        Verb::AnaLog { controller: "nvme0".to_string() },
    ] {
        let reply = rig.ask(verb);
        let Reply::Error(error) = reply else { panic!("{reply:?}") };
        assert!(error.to_string().contains("nvme0 is connecting"), "{error}");
    }
}

/// Of one that was never connected nobody knows what it has: that it has no ANA would be a guess.
#[test]
fn one_that_was_never_connected_is_said_to_be_connecting_not_to_lack_anything() {
    let mut rig = Rig::new(1);
    let mut fake = Fake::new(NQN, 1);
    fake.refuse = true;
    rig.put(1, fake);
    rig.connect(1, |request| request.keep_trying = true);
    let reply = rig.ask(Verb::AnaLog { controller: "nvme0".to_string() });
    let Reply::Error(error) = reply else { panic!("{reply:?}") };
    assert!(error.to_string().contains("nvme0 is connecting"), "{error}");
    // Nor is it connected already to whoever asks for it once more.
    let why = rig.connect_fails(1, |_| ());
    assert!(why.contains("already being connected: nvme0 is"), "{why}");
}

/// What has been decided for one subsystem is nothing to another.
#[test]
fn subsystems_are_told_apart_by_their_names() {
    let other = "nqn.2024-01.test:two";
    let mut config = crate::rig::config(1);
    let of = |policy| SubsystemSettings::new(Some(policy), false);
    config.subsystems = vec![
        (NQN.parse().unwrap(), of(anabranch_policy::Policy::RoundRobin)),
        (other.parse().unwrap(), of(anabranch_policy::Policy::Numa)),
    ];
    let mut rig = Rig::with(config);
    // The first is not there yet.
    let mut fake = Fake::new(NQN, 1);
    fake.refuse = true;
    rig.put(1, fake);
    rig.connect(1, |request| request.keep_trying = true);
    rig.put(2, Fake::new(other, 1));
    rig.fake(2).spaces = [(1, Space::new(0x33, 100))].into();
    rig.connect_ok(2, |request| request.subsystem_nqn = other.parse().unwrap());
    assert!(rig.head("nvme1n1").is_some(), "{:?}", rig.heads());
    rig.fake(1).refuse = false;
    rig.advance_s(11);
    // One more of the second, then of the first: in the order of their coming.
    for (port, uuid) in [(2, 0x44), (1, 0x55)] {
        rig.fake(port).spaces.insert(2, Space::new(uuid, 100));
        rig.raise(port, NAMESPACES_CHANGED);
    }
    let names: Vec<String> = rig.heads().iter().map(|head| head.name.clone()).collect();
    assert_eq!(names, ["nvme1n1", "nvme0n1", "nvme1n2", "nvme0n2"]);
    assert!(rig.heads().is_sorted_by_key(|head| head.id), "workers look for them by that");
    assert_eq!(rig.get("nvme-subsys0", "iopolicy"), Ok("round-robin".to_string()));
    assert_eq!(rig.get("nvme-subsys1", "iopolicy"), Ok("numa".to_string()));
}

/// Namespaces may come later.
#[test]
fn a_subsystem_without_a_namespace_stays_as_long_as_a_controller_of_it() {
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    rig.fake(1).spaces.clear();
    rig.connect_ok(1, |_| ());
    rig.advance_s(100);
    rig.fake(1).spaces.insert(1, Space::new(0x11, 2048));
    rig.raise(1, NAMESPACES_CHANGED);
    assert!(rig.path("nvme0n1", 0).is_some_and(|path| path.ready));
    assert_eq!(rig.snapshot().subsystems.len(), 1);
}
