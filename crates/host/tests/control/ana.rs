//! ANA: the log, pending paths, ANATT.

use crate::fake::{Command, Fake, Say, Space};
use crate::rig::{ANA_CHANGED, NAMESPACES_CHANGED, NQN, Rig};
use anabranch_host::mail::ToControl;
use anabranch_host::topology::{Association, ControllerId, ControllerState};
use anabranch_host::verb::{Hindrance, Reply, Verb};
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::AnaState;
use anabranch_proto::nvme::status::Status;
use anabranch_proto::testing::MemoryBuffers;
use std::time::Duration;

const LIVE: Option<ControllerState> = Some(ControllerState::Live);

pub(crate) fn ana_error(rig: &mut Rig) {
    let head = rig.head("nvme0n1").unwrap().id;
    let mail = ToControl::AnaError {
        controller: ControllerId(0),
        association: Association(1),
        head,
        status: Status::ANA_INACCESSIBLE,
    };
    rig.post(WorkerId(1), mail);
}

fn log_reads(rig: &Rig) -> usize {
    rig.fake(1).count(|command| command.is_log(0x0c))
}

/// A controller may tell of changes as often as it likes.
#[test]
fn f22_a_log_that_says_what_was_known_is_no_work_for_the_workers() {
    let mut rig = Rig::connected(1);
    let (reads, epoch) = (log_reads(&rig), rig.topology.epoch);
    rig.raise(1, ANA_CHANGED);
    assert_eq!((log_reads(&rig), rig.topology.epoch), (reads + 1, epoch));
}

#[test]
fn m14_an_ana_status_takes_the_path_out_until_a_fresh_log_was_processed() {
    let mut rig = Rig::connected(1);
    let (reads, generation) = (log_reads(&rig), rig.controller(0).unwrap().ana_generation);
    // The log takes its time.
    rig.fake(1).hook = Some(Box::new(|c| c.is_log(0x0c).then_some(Say::Nothing)));
    ana_error(&mut rig);
    rig.run();
    assert!(rig.path("nvme0n1", 0).unwrap().ana_pending);
    assert_eq!(log_reads(&rig), reads + 1, "exactly one read");
    ana_error(&mut rig);
    rig.run();
    assert_eq!(log_reads(&rig), reads + 1, "one at a time");
    assert_eq!(rig.controller(0).unwrap().ana_generation, generation);
    assert_eq!(rig.event_count("nvme0c0n1: Asymmetric Access Inaccessible"), 1, "told once");
}

#[test]
fn m14_the_fresh_log_clears_it() {
    let mut rig = Rig::connected(1);
    let (reads, generation) = (log_reads(&rig), rig.controller(0).unwrap().ana_generation);
    ana_error(&mut rig);
    rig.run();
    assert!(!rig.path("nvme0n1", 0).unwrap().ana_pending);
    assert_eq!(log_reads(&rig), reads + 1);
    assert_eq!(rig.controller(0).unwrap().ana_generation, generation + 1);
}

/// The log says again and again that all is well. Then the path is tried once a second, as that of
/// a controller without a log.
#[test]
fn m14_a_log_that_is_contradicted_over_and_over_is_no_better_than_none() {
    let mut rig = Rig::connected(1);
    let pending = |rig: &Rig| rig.path("nvme0n1", 0).unwrap().ana_pending;
    let told = |rig: &Rig, text: &str| rig.event_count(text);
    for time in 1..=8 {
        ana_error(&mut rig);
        rig.run();
        assert!(!pending(&rig), "a log may be a moment late: {time}");
    }
    for second in 0..20 {
        let reads = log_reads(&rig);
        ana_error(&mut rig);
        rig.run();
        assert!(pending(&rig), "{second}");
        assert_eq!(log_reads(&rig), reads + 1);
        rig.advance(Duration::from_millis(900));
        assert!(pending(&rig));
        rig.advance(Duration::from_millis(101));
        assert!(!pending(&rig), "tried again");
    }
    assert_eq!(told(&rig, "nvme0c0n1: "), 2, "now and then: {:?}", rig.events);
    assert_eq!(told(&rig, "more before)"), 1, "with their number");

    // It meets none for a while.
    rig.advance_s(60);
    ana_error(&mut rig);
    rig.run();
    assert!(!pending(&rig), "from the start");
}

/// What the log says anew is believed.
#[test]
fn m14_a_log_that_has_changed_ends_the_pause_of_one_that_was_contradicted() {
    let mut rig = Rig::connected(1);
    for _ in 0..9 {
        ana_error(&mut rig);
        rig.run();
    }
    assert!(rig.path("nvme0n1", 0).unwrap().ana_pending);
    for (number, state) in [(3, AnaState::Inaccessible), (1, AnaState::Optimized)] {
        rig.fake(1).ana = Some([(1, number)].into());
        rig.raise(1, ANA_CHANGED);
        let path = rig.path("nvme0n1", 0).unwrap();
        assert_eq!((path.ana_pending, path.ana_state), (false, state));
    }
}

#[test]
fn m14_a_log_that_was_being_read_before_the_error_clears_nothing() {
    let mut rig = Rig::connected(1);
    let (reads, generation) = (log_reads(&rig), rig.controller(0).unwrap().ana_generation);
    // The error comes in while the answer to the event's read is on its way.
    rig.fake(1).raise(ANA_CHANGED);
    rig.deliver(1);
    ana_error(&mut rig);
    rig.run();
    assert_eq!(log_reads(&rig), reads + 2, "read once more");
    assert_eq!(rig.controller(0).unwrap().ana_generation, generation + 1, "only the second counts");
    assert!(!rig.path("nvme0n1", 0).unwrap().ana_pending);
}

#[test]
fn m15_a_group_in_change_for_twice_anatt_resets_the_controller() {
    let mut rig = Rig::connected(1);
    rig.fake(1).ana = Some([(1, 15)].into());
    rig.raise(1, ANA_CHANGED);
    rig.advance(Duration::from_millis(19_900));
    assert_eq!(rig.state(0), LIVE);
    rig.advance(Duration::from_millis(200));
    assert_eq!(rig.state(0), Some(ControllerState::Connecting));
    assert_eq!(rig.event_count("ANATT timeout"), 1);
}

#[test]
fn m15_another_change_does_not_prolong_and_leaving_change_ends_the_timer() {
    let changing_twice = || {
        let mut rig = Rig::connected(1);
        rig.fake(1).ana = Some([(1, 15), (2, 1)].into());
        rig.raise(1, ANA_CHANGED);
        rig.advance_s(15);
        rig.fake(1).ana = Some([(1, 15), (2, 15)].into());
        rig.raise(1, ANA_CHANGED);
        rig
    };
    let mut rig = changing_twice();
    rig.advance(Duration::from_millis(4_900));
    assert_eq!(rig.state(0), LIVE);
    rig.advance(Duration::from_millis(200));
    assert_eq!(rig.state(0), Some(ControllerState::Connecting), "20 s from the first one on");
    let mut rig = changing_twice();
    rig.advance_s(3);
    rig.fake(1).ana = Some([(1, 1), (2, 2)].into());
    rig.raise(1, ANA_CHANGED);
    rig.advance_s(100);
    assert_eq!(rig.state(0), LIVE);
    assert_eq!(rig.fake(1).connections, 1);
}

/// As when volumes are moved one by one: some group is changing for longer than any of them.
#[test]
fn m15_groups_that_change_one_after_the_other_each_have_their_time() {
    let mut rig = Rig::connected(1);
    for (one, other) in [(15, 1), (15, 15), (1, 15), (15, 15), (15, 1), (15, 15), (1, 15)] {
        rig.fake(1).ana = Some([(1, one), (2, other)].into());
        rig.raise(1, ANA_CHANGED);
        rig.advance_s(6);
        assert_eq!((rig.state(0), rig.event_count("ANATT timeout")), (LIVE, 0));
    }
    // The second one has been changing for 12 s.
    rig.advance(Duration::from_millis(7_900));
    assert_eq!(rig.state(0), LIVE);
    rig.advance(Duration::from_millis(200));
    assert_eq!(rig.state(0), Some(ControllerState::Connecting));
    assert_eq!(rig.event_count("ANATT timeout"), 1);
}

/// Who is back in the middle of a change has all of the time again.
#[test]
fn m15_a_new_connection_begins_a_new_timer() {
    let mut rig = Rig::connected(1);
    rig.fake(1).ana = Some([(1, 15)].into());
    rig.raise(1, ANA_CHANGED);
    rig.advance_s(15);
    rig.cut(1);
    rig.advance_s(15);
    assert_eq!((rig.state(0), rig.event_count("ANATT timeout")), (LIVE, 0));
    rig.advance_s(100);
    assert!(rig.event_count("ANATT timeout") > 0);
}

/// The log knows first: nobody need say that the namespace itself has changed.
#[test]
fn m16_a_namespace_that_the_log_shows_in_another_group_has_the_state_of_that_one() {
    let mut rig = Rig::connected(1);
    rig.fake(1).ana = Some([(1, 1), (2, 3)].into());
    rig.raise(1, ANA_CHANGED);
    assert_eq!(rig.path("nvme0n1", 0).unwrap().ana_state, AnaState::Optimized);
    rig.fake(1).spaces.get_mut(&1).unwrap().group = 2;
    rig.raise(1, ANA_CHANGED);
    assert_eq!(rig.path("nvme0n1", 0).unwrap().ana_state, AnaState::Inaccessible);
}

/// A target may tell that the namespace has changed, and no more.
#[test]
fn m16_a_namespace_that_says_that_it_is_in_another_group_has_the_log_read() {
    let mut rig = Rig::connected(1);
    rig.fake(1).ana = Some([(1, 3), (2, 1)].into());
    rig.raise(1, ANA_CHANGED);
    let state = |rig: &Rig| rig.path("nvme0n1", 0).unwrap().ana_state;
    assert_eq!(state(&rig), AnaState::Inaccessible);
    let reads = log_reads(&rig);
    rig.fake(1).spaces.get_mut(&1).unwrap().group = 2;
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!((state(&rig), log_reads(&rig)), (AnaState::Optimized, reads + 1));
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(log_reads(&rig), reads + 1, "the two agree now");

    // It moves while the log is being read: that one does not know.
    rig.fake(1).hook = Some(Box::new(|c| c.is_log(0x0c).then_some(Say::Nothing)));
    rig.raise(1, ANA_CHANGED);
    rig.fake(1).hook = None;
    let former = rig.fake(1).ana_log();
    let asked = *rig.fake(1).seen.iter().rfind(|command| command.is_log(0x0c)).unwrap();
    rig.fake(1).spaces.get_mut(&1).unwrap().group = 1;
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!((state(&rig), log_reads(&rig)), (AnaState::Optimized, reads + 2), "one at a time");
    rig.fake(1).say(&asked, Say::Data(former.clone()));
    rig.deliver(1);
    rig.run();
    assert_eq!((state(&rig), log_reads(&rig)), (AnaState::Inaccessible, reads + 3));

    // The two never agree: the log counts, and is read once after each look.
    rig.fake(1).hook = Some(Box::new(move |c| c.is_log(0x0c).then(|| Say::Data(former.clone()))));
    rig.raise(1, NAMESPACES_CHANGED);
    rig.raise(1, ANA_CHANGED);
    let reads = log_reads(&rig);
    rig.raise(1, NAMESPACES_CHANGED);
    rig.advance_s(100);
    assert_eq!((state(&rig), log_reads(&rig)), (AnaState::Optimized, reads + 1));
}

/// Its controller showed the namespace while a device was in its way, which goes with the last path
/// that another controller had for it.
#[test]
fn m16_a_path_that_comes_of_what_another_controller_shows_has_its_log_read() {
    let mut rig = Rig::connected_twice(1);
    rig.fake(1).ana = Some([(1, 3), (2, 1)].into());
    rig.raise(1, ANA_CHANGED);
    for port in [1, 2] {
        let other = Space { group: 2, ..Space::new(0x33, 4096) };
        rig.fake(port).spaces.insert(1, other);
    }
    rig.fake(2).ana = Some([(1, 1), (2, 1)].into());
    rig.raise(1, NAMESPACES_CHANGED);
    assert!(rig.head("nvme0n1").is_none(), "both show the other one by now");
    let states = [0, 1].map(|path| rig.path("nvme0n2", path).expect("a path").ana_state);
    assert_eq!(states, [AnaState::Optimized; 2]);
}

/// The log that is on its way may have been put together before there was the namespace.
#[test]
fn m17_a_group_that_comes_while_the_log_is_read_is_looked_up_at_once() {
    let mut rig = Rig::connected(1);
    rig.fake(1).hook = Some(Box::new(|c| c.is_log(0x0c).then_some(Say::Nothing)));
    rig.raise(1, ANA_CHANGED);
    rig.fake(1).hook = None;
    let former = rig.fake(1).ana_log();
    let asked = *rig.fake(1).seen.iter().rfind(|command| command.is_log(0x0c)).unwrap();
    rig.fake(1).ana = Some([(1, 1), (7, 1)].into());
    rig.fake(1).spaces.insert(2, Space { group: 7, ..Space::new(0x22, 4096) });
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(rig.heads().len(), 1, "nothing is known of its group");
    rig.fake(1).say(&asked, Say::Data(former));
    rig.deliver(1);
    rig.run();
    assert!(!rig.path("nvme0n2", 0).expect("the device appears").ana_pending);
}

/// No event need say what has become of the group of a namespace that is attached.
#[test]
fn the_log_is_read_again_when_a_controller_shows_a_namespace_anew() {
    for (before, then, state) in [(3, 1, AnaState::Optimized), (1, 3, AnaState::Inaccessible)] {
        let mut rig = Rig::new(1);
        let mut fake = Fake::new(NQN, 1);
        fake.ana = Some([(1, 1), (7, before)].into());
        let attached = Space { group: 7, ..Space::new(0x22, 4096) };
        fake.spaces.insert(2, attached.clone());
        rig.put(1, fake);
        rig.connect_ok(1, |_| ());
        assert_eq!(log_reads(&rig), 1, "it was read just before");
        rig.fake(1).spaces.remove(&2);
        rig.raise(1, NAMESPACES_CHANGED);
        assert!(rig.path("nvme0n2", 0).is_none());
        let reads = log_reads(&rig);
        rig.fake(1).ana = Some([(1, 1), (7, then)].into());
        rig.fake(1).spaces.insert(2, attached);
        rig.raise(1, NAMESPACES_CHANGED);
        assert_eq!(log_reads(&rig), reads + 1);
        let shown = rig.path("nvme0n2", 0).map(|path| path.ana_state);
        assert_eq!(shown, Some(state), "{:?}", rig.events);
        rig.raise(1, NAMESPACES_CHANGED);
        assert_eq!(log_reads(&rig), reads + 1, "nothing has come");
    }
}

#[test]
fn m17_a_group_that_the_log_does_not_list_blocks_the_path_until_it_does() {
    let mut rig = Rig::connected(1);
    rig.fake(1).ana = Some([(1, 1), (7, 1)].into());
    rig.fake(1).ana_unlisted = [7].into();
    rig.fake(1).spaces.insert(2, Space { group: 7, ..Space::new(0x22, 4096) });
    let reads = log_reads(&rig);
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(rig.heads().len(), 1, "no path of the new device can carry I/O");
    assert_eq!(log_reads(&rig), reads + 1, "the log was read again");
    let unborn = rig.snapshot().subsystems[0].unborn.clone();
    assert_eq!(unborn[0].paths[0].hindrance, Some(Hindrance::AnaGroup));
    assert_eq!(rig.event_count("nvme0: nsid 2: its ANA group 7 is not in the ANA log"), 1);
    rig.fake(1).ana_unlisted.clear();
    // F21: it heals without an event.
    rig.advance_s(2);
    assert!(!rig.path("nvme0n2", 0).expect("the device appears").ana_pending);
}

#[test]
fn m17_a_group_that_the_log_lists_no_more_blocks_the_path_until_it_does() {
    let mut rig = Rig::connected(1);
    rig.fake(1).ana_unlisted = [1].into();
    rig.raise(1, ANA_CHANGED);
    assert!(rig.path("nvme0n1", 0).unwrap().ana_pending);
    rig.fake(1).ana_unlisted.clear();
    rig.advance_s(2);
    assert!(!rig.path("nvme0n1", 0).unwrap().ana_pending);
}

/// Pauses grow while the trouble lasts, not from one trouble to the next.
#[test]
fn m17_trouble_that_lasted_makes_nobody_wait_longer_for_the_end_of_the_next() {
    let mut rig = Rig::connected(1);
    rig.fake(1).ana_unlisted = [1].into();
    rig.raise(1, ANA_CHANGED);
    rig.advance_s(90);
    rig.fake(1).ana_unlisted.clear();
    rig.advance_s(31);
    assert!(!rig.path("nvme0n1", 0).unwrap().ana_pending);
    rig.fake(1).ana_unlisted = [1].into();
    rig.raise(1, ANA_CHANGED);
    assert!(rig.path("nvme0n1", 0).unwrap().ana_pending);
    rig.fake(1).ana_unlisted.clear();
    rig.advance_s(2);
    assert!(!rig.path("nvme0n1", 0).unwrap().ana_pending);
    // A log that cannot be read for once.
    rig.fake(1).hook = Some(Box::new(|c| c.is_log(0x0c).then_some(Say::Status(0x006))));
    ana_error(&mut rig);
    rig.run();
    assert!(rig.path("nvme0n1", 0).unwrap().ana_pending);
    rig.fake(1).hook = None;
    rig.advance_s(2);
    assert!(!rig.path("nvme0n1", 0).unwrap().ana_pending);
}

#[test]
fn m18_a_log_larger_than_mdts_turns_ana_off_with_a_reason() {
    let mut rig = Rig::new(1);
    let mut fake = Fake::new(NQN, 1);
    // 16 + 64 * 32 + 2048 * 4 bytes, one transfer carries 8 KiB.
    fake.mdts = 1;
    fake.ana = Some([(1, 3)].into());
    rig.put(1, fake);
    rig.connect_ok(1, |_| ());
    assert_eq!(rig.event_count("ANA is not used: its log takes 10256 bytes"), 1);
    assert_eq!(rig.path("nvme0n1", 0).unwrap().ana_state.as_str(), "optimized");
    assert!(rig.get("nvme0c0n1", "ana_state").is_err(), "hidden without ANA");
    assert_eq!(log_reads(&rig), 0);
}

#[test]
fn without_ana_every_path_is_optimized_and_an_ana_status_only_pauses_it() {
    let mut rig = Rig::new(1);
    let mut fake = Fake::new(NQN, 1);
    fake.ana = None;
    rig.put(1, fake);
    rig.connect_ok(1, |_| ());
    assert_eq!(rig.path("nvme0n1", 0).unwrap().ana_state.as_str(), "optimized");
    let generation = rig.controller(0).unwrap().ana_generation;
    ana_error(&mut rig);
    rig.run();
    assert!(rig.path("nvme0n1", 0).unwrap().ana_pending);
    rig.advance(Duration::from_millis(1100));
    assert!(!rig.path("nvme0n1", 0).unwrap().ana_pending);
    assert!(rig.controller(0).unwrap().ana_generation > generation, "the shards forget it too");
}

/// A whole log of one group.
fn log_of(group: u32, state: u8, nsids: &[u32]) -> Vec<u8> {
    let mut log = vec![0; 48];
    log[8] = 1;
    log[16..20].copy_from_slice(&group.to_le_bytes());
    log[20..24].copy_from_slice(&(nsids.len() as u32).to_le_bytes());
    log[32] = state;
    log.extend(nsids.iter().flat_map(|nsid| nsid.to_le_bytes()));
    log
}

#[test]
fn c61_a_log_that_makes_no_sense_leaves_the_last_good_one_in_force() {
    let huge = {
        let mut log = log_of(1, 3, &[1]);
        log[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        log
    };
    let twice = {
        let mut log = log_of(1, 3, &[1]);
        log[8] = 2;
        log.extend(&log_of(2, 3, &[1])[16..]);
        log
    };
    let cases: [(&str, Vec<u8>); 7] = [
        ("group 0", log_of(0, 3, &[1])),
        ("group above ANAGRPMAX", log_of(65, 3, &[1])),
        ("more namespaces than fit", huge),
        ("NSID 0", log_of(1, 3, &[0, 1])),
        ("not ascending", log_of(1, 3, &[2, 1])),
        ("one namespace in two groups", twice),
        ("all ones", vec![0xff; 4096]),
    ];
    for (what, log) in cases {
        let mut rig = Rig::connected(1);
        let data = log.clone();
        rig.fake(1).hook = Some(Box::new(move |c| c.is_log(0x0c).then(|| Say::Data(data.clone()))));
        rig.raise(1, ANA_CHANGED);
        assert_eq!(rig.path("nvme0n1", 0).unwrap().ana_state.as_str(), "optimized", "{what}");
        assert_eq!(rig.state(0), LIVE, "{what}");
        // F21: it is read again, and works when the log does.
        rig.fake(1).hook = None;
        rig.fake(1).ana = Some([(1, 2)].into());
        rig.advance_s(2);
        assert_eq!(rig.path("nvme0n1", 0).unwrap().ana_state.as_str(), "non-optimized", "{what}");

        // At connect there is no last good one: the attempt fails, with the reason.
        let mut rig = Rig::new(1);
        rig.put(1, Fake::new(NQN, 1));
        rig.fake(1).hook = Some(Box::new(move |c| c.is_log(0x0c).then(|| Say::Data(log.clone()))));
        let why = rig.connect_fails(1, |_| ());
        assert!(why.contains("ANA log"), "{what}: {why}");
    }
}

#[test]
fn c61_an_unknown_state_gives_no_access() {
    let mut rig = Rig::connected(1);
    rig.fake(1).ana = Some([(1, 9)].into());
    rig.raise(1, ANA_CHANGED);
    assert_eq!(rig.path("nvme0n1", 0).unwrap().ana_state.as_str(), "inaccessible");
}

#[test]
fn c61_a_log_that_never_works_again_ends_in_a_reset() {
    let mut rig = Rig::connected(1);
    rig.fake(1).hook = Some(Box::new(|c| c.is_log(0x0c).then_some(Say::Status(0x006))));
    let reads = log_reads(&rig);
    rig.raise(1, ANA_CHANGED);
    while rig.state(0) == LIVE {
        rig.advance_s(1);
    }
    assert_eq!(log_reads(&rig), reads + 5);
    assert!(rig.event_count("live -> resetting (ANA log: Internal Error") == 1, "{:?}", rig.events);
}

/// With "do not retry", too, it is asked for again with the next attempt.
#[test]
fn c61_a_log_that_is_refused_when_a_controller_comes_back_is_told_with_its_step() {
    for status in [0x006, 0x006 | 1 << 14, 0x002 | 1 << 14] {
        let mut rig = Rig::connected(1);
        rig.fake(1).hook = Some(Box::new(move |c| c.is_log(0x0c).then_some(Say::Status(status))));
        rig.cut(1);
        rig.advance_s(11);
        let connecting = Some(ControllerState::Connecting);
        assert_eq!(rig.state(0), connecting, "{status:#x}: {:?}", rig.events);
        assert_eq!(rig.event_count("failed: Get Log Page (ANA): In"), 1, "{:?}", rig.events);
        rig.fake(1).hook = None;
        rig.advance_s(11);
        assert_eq!(rig.state(0), LIVE, "{status:#x}: {:?}", rig.events);
    }
}

/// There is memory for admin commands, or there will be.
#[test]
fn f21_a_log_that_no_buffer_is_free_for_is_read_a_moment_later() {
    let mut rig = Rig::connected(1);
    let all = std::mem::replace(&mut rig.bufs, MemoryBuffers::with_limit(0));
    rig.fake(1).ana = Some([(1, 2)].into());
    rig.raise(1, ANA_CHANGED);
    assert_eq!(rig.path("nvme0n1", 0).unwrap().ana_state, AnaState::Optimized);
    let Reply::Error(error) = rig.ask(Verb::AnaLog { controller: "nvme0".to_string() }) else {
        panic!("no buffer is free")
    };
    assert!(error.to_string().contains("nvme0: no buffer or tag is free"), "{error}");
    rig.bufs = all;
    rig.advance(Duration::from_millis(1_100));
    assert_eq!(rig.path("nvme0n1", 0).unwrap().ana_state, AnaState::NonOptimized);
    assert_eq!(rig.state(0), LIVE);
}

/// What was said of ANA before is worth nothing then: no log is asked for, no group is waited for,
/// no path stays out of use.
#[test]
fn a_controller_that_comes_back_without_ana_is_used_without() {
    // It says so, or its log has become too long.
    let ways: [fn(&mut Fake); 2] = [|fake| fake.ana = None, |fake| fake.mdts = 1];
    for change in ways {
        let mut rig = Rig::connected(1);
        rig.fake(1).ana = Some([(1, 15)].into());
        rig.raise(1, ANA_CHANGED);
        rig.fake(1).hook = Some(Box::new(|c| c.is_log(0x0c).then_some(Say::Nothing)));
        ana_error(&mut rig);
        rig.run();
        assert!(rig.path("nvme0n1", 0).unwrap().ana_pending);
        rig.fake(1).hook = None;
        change(&mut rig.fake(1));
        let reads = log_reads(&rig);
        rig.cut(1);
        rig.advance_s(100);
        let path = rig.path("nvme0n1", 0).unwrap();
        assert_eq!((path.ana_state, path.ana_pending), (AnaState::Optimized, false));
        assert_eq!((rig.state(0), rig.fake(1).connections), (LIVE, 2));
        assert_eq!(log_reads(&rig), reads);
    }
}

/// Identify Namespace has its group, then.
#[test]
fn a_namespace_that_the_log_lists_no_more_is_in_the_group_that_it_says_itself() {
    let mut rig = Rig::connected(1);
    let log = [log_of(1, 1, &[]), log_of(2, 3, &[])[16..].to_vec()].concat();
    rig.fake(1).hook = Some(Box::new(move |c| {
        let mut log = log.clone();
        log[8] = 2;
        c.is_log(0x0c).then_some(Say::Data(log))
    }));
    rig.raise(1, ANA_CHANGED);
    assert_eq!(rig.path("nvme0n1", 0).unwrap().ana_state, AnaState::Optimized);
    rig.fake(1).spaces.get_mut(&1).unwrap().group = 2;
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(rig.path("nvme0n1", 0).unwrap().ana_state, AnaState::Inaccessible);
}

#[test]
fn c61_logs_that_fail_once_in_a_while_reset_nothing() {
    let mut rig = Rig::connected(1);
    for seconds in [4, 12, 12, 12] {
        rig.fake(1).hook = Some(Box::new(|c| c.is_log(0x0c).then_some(Say::Status(0x006))));
        rig.raise(1, ANA_CHANGED);
        rig.advance_s(seconds);
        rig.fake(1).hook = None;
        rig.advance_s(40);
    }
    assert!(rig.event_count("ANA log: Internal Error") > 5, "{:?}", rig.events);
    assert_eq!((rig.state(0), rig.event_count("resetting")), (LIVE, 0), "a good one in between");
}

#[test]
fn m14_without_a_log_no_path_stays_out_for_longer_than_the_connection() {
    let mut rig = Rig::new(1);
    let mut fake = Fake::new(NQN, 1);
    fake.ana = None;
    rig.put(1, fake);
    rig.connect_ok(1, |_| {});
    let generation = rig.controller(0).unwrap().ana_generation;
    ana_error(&mut rig);
    rig.run();
    assert!(rig.path("nvme0n1", 0).unwrap().ana_pending, "for a second");
    // The connection is lost before that second is over, and with it the timer.
    rig.cut(1);
    rig.advance_s(15);
    assert_eq!(rig.state(0), LIVE);
    assert!(!rig.path("nvme0n1", 0).unwrap().ana_pending);
    assert!(rig.controller(0).unwrap().ana_generation > generation, "shards forgive it, too");
}

/// "Success" without its data is none, and not what the controller says.
#[test]
fn the_log_hears_what_was_wrong_with_an_answer_of_success() {
    let mut rig = Rig::connected(1);
    rig.fake(1).hook = Some(Box::new(|c| c.is_log(0x0c).then_some(Say::Result(0))));
    rig.raise(1, ANA_CHANGED);
    let what =
        "nvme0: ANA log: Transient Transport Error (sct 0h, sc 22h): not all of the data had";
    assert_eq!(rig.event_count(what), 1, "{:?}", rig.events);
}

/// A worker that has not heard of the new connection tells of a command of the former one.
#[test]
fn f21_an_ana_status_that_comes_while_a_controller_is_set_up_does_not_stay() {
    for log in [true, false] {
        let mut rig = Rig::connected(1);
        // Reading the log, and asking for queues behind it.
        let is_queues = |c: &Command| c.opcode == 0x09 && c.cdw10 & 0xff == 7;
        let step = move |c: &Command| if log { c.is_log(0x0c) } else { is_queues(c) };
        rig.fake(1).hook = Some(Box::new(move |c| step(c).then_some(Say::Nothing)));
        rig.cut(1);
        rig.advance_s(11);
        let held = *rig.fake(1).seen.iter().rfind(|c| step(c)).expect("it was asked");
        let head = rig.head("nvme0n1").unwrap().id;
        let (controller, association) = (ControllerId(0), Association(2));
        let status = Status::ANA_INACCESSIBLE;
        rig.post(WorkerId(1), ToControl::AnaError { controller, association, head, status });
        rig.run();
        rig.fake(1).hook = None;
        let log_data = rig.fake(1).ana_log();
        let said = if log { Say::Data(log_data) } else { Say::Result(0x7f_007f) };
        rig.fake(1).say(&held, said);
        rig.deliver(1);
        rig.run();
        rig.advance_s(1);
        assert_eq!(rig.state(0), LIVE, "{log}: {:?}", rig.events);
        assert!(!rig.path("nvme0n1", 0).unwrap().ana_pending, "{log}");
    }
}
