//! What a controller that has come back shows is used as it is seen, not at the end of the scan.

use crate::fake::{Command, Say, Space};
use crate::rig::{NAMESPACES_CHANGED, Rig};
use std::time::Duration;

/// Three namespaces through two controllers. The first has come back, and Identify Namespace of the
/// last is not answered.
fn slow() -> Rig {
    let mut rig = Rig::connected_twice(1);
    for port in [1, 2] {
        for nsid in [2, 3] {
            rig.fake(port).spaces.insert(nsid, Space::new(nsid as u8, 2048));
        }
        rig.raise(port, NAMESPACES_CHANGED);
    }
    rig.fake(1).hook = Some(Box::new(|c| is_last(c).then_some(Say::Nothing)));
    rig
}

fn is_last(command: &Command) -> bool {
    command.is_identify(0) && command.nsid == 3
}

/// It is lost, and back after 10 s; then so many milliseconds pass.
fn come_back(rig: &mut Rig, ms: u64) {
    rig.cut(1);
    rig.advance_s(10);
    rig.advance(Duration::from_millis(ms));
}

fn ready(rig: &Rig) -> [bool; 3] {
    ["nvme0n1", "nvme0n2", "nvme0n3"].map(|head| rig.path(head, 0).is_some_and(|path| path.ready))
}

#[test]
fn namespaces_that_are_what_they_were_do_not_wait_for_one_that_is_slow() {
    let mut rig = slow();
    come_back(&mut rig, 50);
    assert_eq!(ready(&rig), [false; 3], "most scans have ended by then");
    rig.advance_s(1);
    assert_eq!(ready(&rig), [true, true, false], "{:?}", rig.events);
    // It has proven itself: what goes wrong with the third costs it no attempt.
    for _ in 0..3 {
        rig.advance_s(600);
        assert_eq!(rig.path("nvme0n1", 0).map(|path| path.controller.0), Some(0));
    }
    rig.fake(1).hook = None;
    rig.advance_s(120);
    assert_eq!(ready(&rig), [true; 3], "{:?}", rig.events);
}

/// What is known of those is what was read now.
#[test]
fn what_has_changed_meanwhile_is_taken_in_early_or_waits_for_the_end() {
    let mut rig = slow();
    rig.fake(1).spaces.get_mut(&1).unwrap().blocks = 1024;
    rig.fake(1).spaces.insert(2, Space::new(0x99, 2048));
    come_back(&mut rig, 1000);
    assert_eq!(ready(&rig), [false; 3], "another size than by the other path; another namespace");
    assert_eq!(rig.event_count("nvme0c0n1: not used while it has 524288 bytes"), 1);
    assert!(rig.path("nvme0n2", 0).is_some(), "it is not known before the end");
    rig.fake(1).hook = None;
    come_back(&mut rig, 1000);
    assert_eq!(ready(&rig), [false, false, true]);
    assert!(rig.path("nvme0n2", 0).is_none());
}

/// Any of them may be what has changed, whatever the scan has read of it.
#[test]
fn f13_after_an_event_nothing_is_used_before_the_controller_has_said_what_has_changed() {
    for (before_ms, seen) in [(50, false), (1000, true)] {
        let mut rig = slow();
        come_back(&mut rig, before_ms);
        assert_eq!(ready(&rig), [seen, seen, false], "{:?}", rig.events);
        let silent = |c: &Command| is_last(c) || c.is_log(4);
        rig.fake(1).hook = Some(Box::new(move |c| silent(c).then_some(Say::Nothing)));
        rig.raise(1, NAMESPACES_CHANGED);
        rig.advance_s(20);
        assert_eq!(ready(&rig), [false; 3], "{:?}", rig.events);
    }
}

/// Nothing of a controller in use that it names as changed is used before it was looked at, but
/// each goes on as it has been.
#[test]
fn namespaces_that_have_changed_do_not_wait_for_one_that_is_slow() {
    for named in [vec![1, 2, 3], vec![u32::MAX]] {
        let mut rig = slow();
        let mut log = vec![0; 4096];
        for (at, nsid) in named.iter().enumerate() {
            log[4 * at..4 * at + 4].copy_from_slice(&u32::to_le_bytes(*nsid));
        }
        rig.fake(1).hook = Some(Box::new(move |c| match c {
            c if c.is_log(4) => Some(Say::Data(log.clone())),
            c => is_last(c).then_some(Say::Nothing),
        }));
        assert_eq!(ready(&rig), [true; 3]);
        rig.raise(1, NAMESPACES_CHANGED);
        assert_eq!(ready(&rig), [false; 3], "{named:?}");
        rig.advance_s(1);
        assert_eq!(ready(&rig), [true, true, false], "{named:?}: {:?}", rig.events);
        // The next scan begins because the third cannot be read, and the first is slow then.
        let waiting = rig.fake(1).seen.iter().rfind(|c| is_last(c)).copied().unwrap();
        let slow = |c: &Command| c.is_identify(0) && c.nsid != 2;
        rig.fake(1).hook = Some(Box::new(move |c| slow(c).then_some(Say::Nothing)));
        rig.fake(1).say(&waiting, Say::Status(0x006));
        rig.deliver(1);
        rig.advance_s(3);
        assert_eq!(rig.event_count("will try again"), 1, "{:?}", rig.events);
        assert_eq!(ready(&rig), [true, true, false], "{named:?}: {:?}", rig.events);
    }
}

/// What a slow scan has read that is not what it was is not used until its end, whether anybody has
/// said that something has changed or not.
#[test]
fn what_a_slow_scan_finds_changed_is_out_of_use_at_once() {
    for gone in [false, true] {
        let mut rig = slow();
        // Nothing has come of the event.
        rig.fake(1).spaces.remove(&2);
        if !gone {
            rig.fake(1).spaces.insert(2, Space::new(0x99, 2048));
        }
        rig.set("nvme0", "rescan_controller", "1").unwrap();
        assert_eq!(ready(&rig), [true; 3]);
        rig.advance(Duration::from_millis(250));
        assert_eq!(ready(&rig), [true, false, true], "{:?}", rig.events);
        assert!(rig.path("nvme0n2", 0).is_some(), "it is not known before the end");
    }
}

/// What one scan has seen is not forgotten when another begins because one cannot be read.
#[test]
fn what_was_seen_stays_so_while_a_scan_is_tried_again() {
    let mut rig = slow();
    come_back(&mut rig, 1000);
    assert_eq!(ready(&rig), [true, true, false]);
    let waiting = rig.fake(1).seen.iter().rfind(|c| is_last(c)).copied().unwrap();
    let first_slow = |c: &Command| c.is_identify(0) && c.nsid == 1;
    let slow = move |c: &Command| first_slow(c) || is_last(c);
    rig.fake(1).hook = Some(Box::new(move |c| slow(c).then_some(Say::Nothing)));
    rig.fake(1).say(&waiting, Say::Status(0x006));
    rig.deliver(1);
    rig.advance_s(3);
    assert_eq!(rig.event_count("will try again"), 1, "{:?}", rig.events);
    assert_eq!(ready(&rig), [true, true, false], "{:?}", rig.events);
}

/// Those that people look after may stand idle for it.
#[test]
fn a_scan_that_takes_long_is_told_of() {
    let mut rig = slow();
    come_back(&mut rig, 4900);
    assert_eq!(rig.event_count("takes long"), 0);
    rig.advance_s(1);
    let told = "nvme0: looking at its namespaces takes long: 2 of 3 so far";
    assert_eq!(rig.event_count(told), 1, "{:?}", rig.events);
    let waiting = rig.fake(1).seen.iter().rfind(|c| is_last(c)).copied().unwrap();
    rig.fake(1).say(&waiting, Say::namespace(2048));
    rig.deliver(1);
    rig.run();
    assert_eq!(ready(&rig), [true; 3], "{:?}", rig.events);
    assert_eq!(rig.event_count("nvme0: has shown its namespaces: 3"), 1);
    assert_eq!(rig.event_count("takes long"), 1);
}

/// Many work off one admin command after the other: Keep Alive is not to stand behind eight.
#[test]
fn a_controller_that_answers_late_is_asked_for_one_namespace_at_a_time() {
    for (late_ms, asked) in [(10, 8), (1000, 1)] {
        let mut rig = Rig::connected(1);
        rig.fake(1).spaces.extend((2..30).map(|nsid| (nsid, Space::new(nsid as u8, 2048))));
        let scans = |c: &Command| c.is_identify(2) || c.is_identify(3);
        rig.fake(1).hook = Some(Box::new(move |c| scans(c).then_some(Say::Nothing)));
        rig.raise(1, NAMESPACES_CHANGED);
        let list = rig.fake(1).seen.iter().rfind(|c| scans(c)).copied().unwrap();
        assert!(list.is_identify(2));
        rig.advance(Duration::from_millis(late_ms));
        rig.fake(1).seen.clear();
        let nsids: Vec<u8> = (1_u32..30).flat_map(u32::to_le_bytes).collect();
        rig.fake(1).say(&list, Say::Data(nsids));
        rig.deliver(1);
        rig.run();
        assert_eq!(rig.fake(1).count(|c| c.is_identify(3)), asked, "{late_ms} ms");
    }
}

/// They are looked at anew with each connection.
#[test]
fn f13_what_was_seen_is_forgotten_with_the_connection() {
    let mut rig = slow();
    come_back(&mut rig, 1000);
    assert_eq!(ready(&rig), [true, true, false]);
    rig.fake(1).hook = Some(Box::new(|c| c.is_identify(2).then_some(Say::Nothing)));
    rig.fake(1).spaces.insert(1, Space::new(0x99, 2048));
    come_back(&mut rig, 1000);
    assert_eq!(ready(&rig), [false; 3], "{:?}", rig.events);
}

/// Those that users wait for are looked at before those that are new.
#[test]
fn known_namespaces_come_first() {
    let mut rig = Rig::connected(1);
    let show = |nsid| (nsid, Space::new(nsid as u8, 2048));
    rig.fake(1).spaces.extend((100..140).map(show));
    rig.raise(1, NAMESPACES_CHANGED);
    rig.fake(1).spaces.extend((2..40).map(show));
    rig.fake(1).seen.clear();
    rig.cut(1);
    rig.advance_s(11);
    let fake = rig.fake(1);
    let order = fake.seen.iter().filter(|c| c.is_identify(0)).map(|c| c.nsid);
    let order: Vec<u32> = order.collect();
    assert_eq!(order[1..41], (100..140).collect::<Vec<_>>(), "{order:?}");
    assert_eq!(order.len(), 79);
}
