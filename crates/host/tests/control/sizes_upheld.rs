//! Whose size a device has where paths that say different ones come and go.

use crate::ana::ana_error;
use crate::fake::{Fake, Say, Space};
use crate::rig::{ANA_CHANGED, NAMESPACES_CHANGED, NQN, Rig};
use anabranch_host::topology::ControllerState;
use anabranch_host::verb::{Selection, Verb};
use std::time::Duration;

const OPTIMIZED: u8 = 1;
const INACCESSIBLE: u8 = 3;

fn show(rig: &mut Rig, port: u16, blocks: u64) {
    rig.fake(port).spaces = [(1, Space::new(0x11, blocks))].into();
    rig.raise(port, NAMESPACES_CHANGED);
}

fn access(rig: &mut Rig, port: u16, state: u8) {
    rig.fake(port).ana = Some([(1, state)].into());
    rig.raise(port, ANA_CHANGED);
}

fn away(rig: &mut Rig, port: u16) {
    rig.fake(port).refuse = true;
    rig.cut(port);
}

/// The size, and which paths could be used.
fn device(rig: &Rig) -> (u64, Vec<bool>) {
    let head = rig.head("nvme0n1").unwrap();
    let used = head.paths.iter().map(|path| {
        let live = rig.state(path.controller.0) == Some(ControllerState::Live);
        live && path.ready && !path.ana_pending && path.ana_state.is_accessible()
    });
    (head.blocks, used.collect())
}

/// The first one has 2048 blocks; the other one was refused from the start, as it has 1024.
fn with_a_smaller_one(state: u8) -> Rig {
    let mut rig = Rig::connected(1);
    let mut fake = Fake::new(NQN, 2);
    fake.spaces = [(1, Space::new(0x11, 1024))].into();
    fake.ana = Some([(1, state)].into());
    rig.put(2, fake);
    rig.connect_ok(2, |_| ());
    assert_eq!(device(&rig), (2048, vec![true, false]));
    rig
}

/// The second one has grown alone, while the other was inaccessible.
fn grown() -> Rig {
    let mut rig = Rig::connected_twice(1);
    access(&mut rig, 1, INACCESSIBLE);
    show(&mut rig, 2, 4096);
    access(&mut rig, 1, OPTIMIZED);
    assert_eq!(device(&rig), (4096, vec![false, true]));
    rig
}

/// Both paths that are there say so, or it would cost the device the one that is right.
#[test]
fn a_path_that_says_more_than_another_upholds_is_out_of_use_alone() {
    let mut rig = Rig::connected_twice(1);
    let looks = rig.fake(1).count(|c| c.is_identify(0));
    show(&mut rig, 2, 4096);
    assert_eq!(device(&rig), (2048, vec![true, false]), "{:?}", rig.events);
    assert_eq!(rig.fake(1).count(|c| c.is_identify(0)), looks + 1, "it may have missed it");
    rig.advance_s(100);
    assert_eq!(device(&rig), (2048, vec![true, false]), "{:?}", rig.events);
    show(&mut rig, 1, 4096);
    assert_eq!(device(&rig), (4096, vec![true; 2]), "{:?}", rig.events);
    assert_eq!(rig.event_count("capacity change"), 1);
}

#[test]
fn one_path_that_has_missed_that_the_device_has_grown_is_outvoted() {
    let mut rig = Rig::connected_twice(1);
    rig.put(3, Fake::new(NQN, 3));
    rig.connect_ok(3, |_| ());
    show(&mut rig, 2, 4096);
    assert_eq!(device(&rig), (2048, vec![true, false, true]));
    show(&mut rig, 3, 4096);
    assert_eq!(device(&rig), (4096, vec![false, true, true]), "{:?}", rig.events);
    // That it was two is no matter any more.
    away(&mut rig, 3);
    rig.advance_s(30);
    assert_eq!(device(&rig), (4096, vec![false, true, false]), "{:?}", rig.events);
    show(&mut rig, 1, 4096);
    assert_eq!(device(&rig), (4096, vec![true, true, false]));
    assert_eq!(rig.event_count("capacity change"), 1);
}

/// One that is back in a moment has the last word; later users may have written behind its end.
#[test]
fn what_a_device_has_grown_to_is_kept_from_those_that_come_back_late() {
    for (gone_s, blocks) in [(2, 2048), (300, 4096)] {
        let mut rig = Rig::connected(1);
        away(&mut rig, 1);
        rig.put(2, Fake::new(NQN, 2));
        rig.fake(2).spaces = [(1, Space::new(0x11, 4096))].into();
        rig.connect_ok(2, |_| ());
        assert_eq!(device(&rig), (4096, vec![false, true]));
        rig.advance_s(gone_s);
        rig.fake(1).refuse = false;
        rig.advance_s(12);
        let used = vec![blocks == 2048, blocks == 4096];
        assert_eq!(device(&rig), (blocks, used.clone()), "{:?}", rig.events);
        rig.advance_s(300);
        assert_eq!(device(&rig), (blocks, used));
    }
}

#[test]
fn of_several_that_were_lost_each_that_is_back_brings_its_size() {
    let mut rig = Rig::connected(1);
    for (port, blocks) in [(2, 1024), (3, 512)] {
        rig.put(port, Fake::new(NQN, port));
        rig.fake(port).spaces = [(1, Space::new(0x11, blocks))].into();
        rig.connect_ok(port, |_| ());
    }
    for (port, blocks) in [(1, 1024), (2, 512)] {
        access(&mut rig, port, INACCESSIBLE);
        rig.advance_s(100);
        assert_eq!(device(&rig).0, blocks, "{:?}", rig.events);
    }
    access(&mut rig, 2, OPTIMIZED);
    assert_eq!(device(&rig), (1024, vec![false, true, false]), "{:?}", rig.events);
    access(&mut rig, 1, OPTIMIZED);
    rig.advance_s(1);
    assert_eq!(device(&rig), (2048, vec![true, false, false]), "{:?}", rig.events);
}

#[test]
fn a_larger_one_that_was_lost_is_used_when_it_is_back_whoever_was_lost_before() {
    let mut rig = Rig::connected(1);
    for (port, blocks) in [(2, 4096), (3, 1024)] {
        rig.put(port, Fake::new(NQN, port));
        rig.fake(port).spaces = [(1, Space::new(0x11, blocks))].into();
        rig.connect_ok(port, |_| ());
    }
    away(&mut rig, 1);
    rig.advance_s(100);
    assert_eq!(device(&rig).0, 4096, "{:?}", rig.events);
    access(&mut rig, 2, INACCESSIBLE);
    rig.advance_s(100);
    assert_eq!(device(&rig), (1024, vec![false, false, true]), "{:?}", rig.events);
    access(&mut rig, 2, OPTIMIZED);
    assert_eq!(device(&rig), (4096, vec![false, true, false]), "{:?}", rig.events);
}

/// Its event may be lost: it would be another size for nothing.
#[test]
fn who_would_take_the_size_over_is_asked_before_it_does() {
    let mut rig = with_a_smaller_one(OPTIMIZED);
    rig.fake(2).spaces = [(1, Space::new(0x11, 2048))].into();
    away(&mut rig, 1);
    rig.advance_s(1);
    assert_eq!(device(&rig), (2048, vec![false, true]), "{:?}", rig.events);
    assert_eq!(rig.event_count("capacity change"), 0);
}

#[test]
fn a_path_that_made_the_device_grow_and_cannot_be_used_does_not_keep_others_from_use() {
    let mut rig = grown();
    access(&mut rig, 2, INACCESSIBLE);
    rig.advance_s(19);
    assert_eq!(device(&rig), (4096, vec![false; 2]), "it may be back in a moment");
    rig.advance_s(1);
    assert_eq!(device(&rig), (2048, vec![true, false]), "{:?}", rig.events);
    assert_eq!(rig.event_count("capacity change from 2097152 to 1048576 bytes"), 1);
    // It is back, and so are its blocks.
    access(&mut rig, 2, OPTIMIZED);
    assert_eq!(device(&rig), (4096, vec![false, true]));
    // The same when it goes altogether.
    let mut rig = grown();
    away(&mut rig, 2);
    rig.advance_s(20);
    assert_eq!(device(&rig), (2048, vec![true, false]), "{:?}", rig.events);
}

#[test]
fn a_path_that_comes_and_goes_is_not_waited_for_longer_than_it_was_there() {
    let mut rig = grown();
    let mut served = 0;
    for _ in 0..600 {
        access(&mut rig, 2, INACCESSIBLE);
        rig.advance(Duration::from_millis(900));
        served += u32::from(device(&rig).1.contains(&true));
        access(&mut rig, 2, OPTIMIZED);
        rig.advance(Duration::from_millis(100));
        assert!(device(&rig).1.contains(&true), "{:?}", device(&rig));
    }
    assert!(served > 560, "{served} of 600");
    let changes = rig.event_count("capacity change");
    assert!((4..60).contains(&changes), "not with each of 600: {changes}");
}

#[test]
fn a_path_whose_log_is_contradicted_over_and_over_does_not_keep_others_from_use() {
    let mut rig = Rig::connected_twice(1);
    access(&mut rig, 2, INACCESSIBLE);
    show(&mut rig, 1, 4096);
    access(&mut rig, 2, OPTIMIZED);
    assert_eq!(device(&rig), (4096, vec![true, false]));
    let mut used = 0;
    for _ in 0..900 {
        if device(&rig).1[0] {
            ana_error(&mut rig);
            rig.run();
        }
        rig.advance(Duration::from_millis(100));
        used += u32::from(device(&rig).1[1]);
    }
    assert!(used > 620, "{used} of 900: {:?}", device(&rig));
    assert!(rig.event_count("capacity change") < 24, "{:?}", rig.events);
}

#[test]
fn a_size_that_an_inaccessible_path_reports_is_asked_of_the_others_and_no_more() {
    let mut rig = Rig::connected_twice(1);
    access(&mut rig, 2, INACCESSIBLE);
    let looks = rig.fake(1).count(|c| c.is_identify(0));
    show(&mut rig, 2, 4096);
    assert_eq!(device(&rig), (2048, vec![true, false]));
    assert_eq!(rig.fake(1).count(|c| c.is_identify(0)), looks + 1);
    // It was right: the other one has it too.
    show(&mut rig, 1, 4096);
    assert_eq!(device(&rig).0, 4096);
    access(&mut rig, 2, OPTIMIZED);
    assert_eq!(device(&rig), (4096, vec![true; 2]));
    assert_eq!(rig.event_count("capacity change"), 1);
}

#[test]
fn a_path_that_is_lost_for_a_moment_does_not_cost_the_device_its_size() {
    for state in [OPTIMIZED, INACCESSIBLE] {
        let mut rig = with_a_smaller_one(state);
        for _ in 0..5 {
            away(&mut rig, 1);
            rig.advance(Duration::from_millis(2500));
            assert_eq!(device(&rig), (2048, vec![false; 2]), "{:?}", rig.events);
            rig.fake(1).refuse = false;
            rig.advance_s(60);
            assert_eq!(device(&rig), (2048, vec![true, false]), "{:?}", rig.events);
        }
        assert_eq!(rig.event_count("capacity change"), 0);
    }
}

#[test]
fn an_inaccessible_path_never_takes_the_size_of_its_device_over() {
    let mut rig = with_a_smaller_one(INACCESSIBLE);
    away(&mut rig, 1);
    rig.advance_s(300);
    assert_eq!(device(&rig), (2048, vec![false; 2]), "{:?}", rig.events);
    // From when it can be used, those that are away have some time left to be back.
    access(&mut rig, 2, OPTIMIZED);
    rig.advance_s(19);
    assert_eq!(device(&rig), (2048, vec![false; 2]));
    rig.advance_s(1);
    assert_eq!(device(&rig), (1024, vec![false, true]), "{:?}", rig.events);
}

#[test]
fn a_path_for_which_io_does_not_wait_any_more_is_not_waited_for_by_its_size() {
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    rig.connect_ok(1, |it| it.options.fast_io_fail_tmo = Some(Duration::from_secs(3)));
    rig.put(2, Fake::new(NQN, 2));
    rig.fake(2).spaces = [(1, Space::new(0x11, 1024))].into();
    rig.connect_ok(2, |_| ());
    away(&mut rig, 1);
    rig.advance_s(2);
    assert_eq!(device(&rig), (2048, vec![false; 2]));
    rig.advance_s(1);
    assert_eq!(device(&rig), (1024, vec![false, true]), "{:?}", rig.events);
}

#[test]
fn a_controller_that_is_being_removed_changes_no_size() {
    let mut rig = with_a_smaller_one(OPTIMIZED);
    rig.verb(Verb::Disconnect(Selection::All));
    rig.advance_s(10);
    assert!(rig.head("nvme0n1").is_none());
    assert_eq!(rig.event_count("capacity change"), 0, "{:?}", rig.events);
    // Nor is anybody kept waiting for it.
    let mut rig = with_a_smaller_one(OPTIMIZED);
    rig.verb(Verb::Disconnect(Selection::Controller("nvme0".to_owned())));
    rig.advance_s(1);
    assert_eq!(device(&rig), (1024, vec![true]), "{:?}", rig.events);
}

#[test]
fn a_device_that_shrinks_does_not_take_what_an_inaccessible_path_says() {
    let mut rig = Rig::connected(1);
    let mut fake = Fake::new(NQN, 2);
    fake.spaces = [(1, Space::new(0x11, 8192))].into();
    fake.ana = Some([(1, INACCESSIBLE)].into());
    rig.put(2, fake);
    rig.connect_ok(2, |_| ());
    assert_eq!(device(&rig), (2048, vec![true, false]));
    show(&mut rig, 1, 1024);
    assert_eq!(device(&rig), (1024, vec![true, false]), "{:?}", rig.events);
    assert_eq!(rig.event_count("capacity change"), 1);
    access(&mut rig, 2, OPTIMIZED);
    assert_eq!(device(&rig), (1024, vec![true, false]), "{:?}", rig.events);
}

/// Whoever is waited for may have another size by the time that it is back.
#[test]
fn a_path_that_is_resized_while_it_is_missed_is_still_the_one_that_has_the_size() {
    for waits_s in [1, 30] {
        let mut rig = with_a_smaller_one(OPTIMIZED);
        access(&mut rig, 1, INACCESSIBLE);
        rig.advance_s(waits_s);
        let missed = device(&rig);
        assert_eq!(missed.0, if waits_s == 1 { 2048 } else { 1024 }, "{:?}", rig.events);
        show(&mut rig, 1, 4096);
        rig.advance_s(1);
        access(&mut rig, 1, OPTIMIZED);
        assert_eq!(device(&rig), (4096, vec![true, false]), "{:?}", rig.events);
    }
}

/// One that comes back with less than it had is one that is mistaken.
#[test]
fn a_path_that_is_missed_and_comes_back_smaller_takes_nothing_away() {
    let mut rig = with_a_smaller_one(OPTIMIZED);
    access(&mut rig, 1, INACCESSIBLE);
    rig.advance_s(30);
    assert_eq!(device(&rig), (1024, vec![false, true]), "{:?}", rig.events);
    show(&mut rig, 1, 512);
    access(&mut rig, 1, OPTIMIZED);
    assert_eq!(device(&rig), (1024, vec![false, true]), "{:?}", rig.events);
    rig.advance_s(100);
    assert_eq!(device(&rig), (1024, vec![false, true]), "{:?}", rig.events);
}

/// It may have changed as well, and its event be lost; but not each time that it comes and goes.
#[test]
fn who_is_missed_and_live_is_asked_whether_it_still_has_the_size() {
    let mut rig = with_a_smaller_one(OPTIMIZED);
    let looks = rig.fake(1).count(|c| c.is_identify(0));
    access(&mut rig, 1, INACCESSIBLE);
    rig.advance(Duration::from_millis(1));
    assert_eq!(rig.fake(1).count(|c| c.is_identify(0)), looks + 1);
    for _ in 0..20 {
        access(&mut rig, 1, OPTIMIZED);
        rig.advance(Duration::from_millis(100));
        access(&mut rig, 1, INACCESSIBLE);
        rig.advance(Duration::from_millis(100));
    }
    assert!((looks + 2..looks + 6).contains(&rig.fake(1).count(|c| c.is_identify(0))));
}

/// What it says by then nobody has asked for otherwise.
#[test]
fn who_was_not_to_be_asked_again_yet_is_asked_when_it_may_be() {
    let mut rig = with_a_smaller_one(OPTIMIZED);
    access(&mut rig, 1, INACCESSIBLE);
    access(&mut rig, 1, OPTIMIZED);
    rig.fake(1).spaces = [(1, Space::new(0x11, 1024))].into();
    access(&mut rig, 1, INACCESSIBLE);
    assert_eq!(device(&rig), (2048, vec![false; 2]), "{:?}", rig.events);
    rig.advance_s(2);
    assert_eq!(device(&rig), (1024, vec![false, true]), "{:?}", rig.events);
}

/// Its last answer, and that of a path which is not used, keep no other from growing.
#[test]
fn a_path_that_is_out_of_use_itself_upholds_no_size_against_a_larger_one() {
    let mut rig = Rig::connected_twice(1);
    rig.fake(2).hook = Some(Box::new(|c| {
        if c.is_log(4) {
            return Some(Say::Data(vec![1, 0, 0, 0]));
        }
        (c.is_identify(0) && c.nsid == 1).then_some(Say::Status(0x006))
    }));
    for port in [2, 1] {
        show(&mut rig, port, 4096);
    }
    rig.advance_s(1);
    assert_eq!(device(&rig), (4096, vec![true, false]), "{:?}", rig.events);
    // A group that its log does not have.
    let mut rig = Rig::connected_twice(1);
    rig.fake(2).ana = Some([(9, OPTIMIZED)].into());
    rig.raise(2, ANA_CHANGED);
    show(&mut rig, 1, 4096);
    assert_eq!(device(&rig), (4096, vec![true, false]), "{:?}", rig.events);
}

#[test]
fn a_path_that_cannot_be_read_any_more_is_not_waited_for_by_larger_ones() {
    let mut rig = Rig::connected_twice(1);
    show(&mut rig, 1, 4096);
    assert_eq!(device(&rig), (2048, vec![false, true]));
    rig.fake(2).hook = Some(Box::new(|c| {
        (c.is_identify(0) && c.nsid == 1).then_some(Say::Status(0x006 | 1 << 14))
    }));
    rig.raise(2, NAMESPACES_CHANGED);
    rig.advance_s(1);
    assert_eq!(device(&rig), (4096, vec![true, false]), "{:?}", rig.events);
}

/// It would be outvoted at once: users would see the size come and go.
#[test]
fn a_size_that_would_be_outvoted_is_not_returned_to() {
    for state in [None, Some(INACCESSIBLE)] {
        let mut rig = Rig::connected(1);
        rig.put(2, Fake::new(NQN, 2));
        rig.fake(2).spaces = [(1, Space::new(0x11, 4096))].into();
        rig.connect_ok(2, |_| ());
        match state {
            None => away(&mut rig, 1),
            Some(state) => {
                access(&mut rig, 1, state);
                rig.advance_s(21);
            }
        }
        assert_eq!(device(&rig).0, 4096, "{:?}", rig.events);
        rig.put(3, Fake::new(NQN, 3));
        rig.fake(3).spaces = [(1, Space::new(0x11, 4096))].into();
        rig.connect_ok(3, |_| ());
        rig.fake(1).refuse = false;
        access(&mut rig, 1, OPTIMIZED);
        rig.advance_s(12);
        assert_eq!(device(&rig), (4096, vec![false, true, true]), "{:?}", rig.events);
        assert_eq!(rig.event_count("capacity change"), 1, "{:?}", rig.events);
    }
}
