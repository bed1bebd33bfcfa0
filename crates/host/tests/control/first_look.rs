//! What a controller shows that is looked at for the first time, or that is new there, is there as
//! it is seen: one namespace that hangs keeps none of the others from their users.

use crate::fake::{Command, Fake, Say, Space};
use crate::rig::{NAMESPACES_CHANGED, NQN, Rig};
use anabranch_host::topology::ControllerState;
use std::time::Duration;

/// A controller with five namespaces that is being connected, the third of which is not answered
/// for.
fn connecting() -> (Rig, u64) {
    let mut rig = Rig::new(1);
    let mut fake = Fake::new(NQN, 1);
    fake.spaces.extend((2..=5).map(|nsid| (nsid, Space::new(nsid as u8, 2048))));
    fake.hook = Some(Box::new(|c| is_third(c).then_some(Say::Nothing)));
    rig.put(1, fake);
    let asked = rig.connect(1, |_| ());
    rig.advance(Duration::from_millis(400));
    assert_eq!(rig.state(0), Some(ControllerState::Live));
    (rig, asked)
}

fn is_third(command: &Command) -> bool {
    command.is_identify(0) && command.nsid == 3
}

/// The devices that may be used, in their order.
fn used(rig: &Rig) -> Vec<(String, u32)> {
    let usable = rig.heads().into_iter().filter(|head| head.paths.iter().any(|path| path.ready));
    usable.map(|head| (head.name.clone(), head.paths[0].nsid)).collect()
}

fn names(of: &[(&str, u32)]) -> Vec<(String, u32)> {
    of.iter().map(|(name, nsid)| ((*name).to_owned(), *nsid)).collect()
}

#[test]
fn a_namespace_that_hangs_keeps_no_other_one_from_its_users() {
    let (mut rig, asked) = connecting();
    let four = names(&[("nvme0n1", 1), ("nvme0n2", 2), ("nvme0n3", 4), ("nvme0n4", 5)]);
    assert_eq!(used(&rig), four, "{:?}", rig.events);
    assert!(rig.reply(asked).is_none(), "it is not all that it has");
    // It is reset for the one that is not answered, and the others are back each time.
    for _ in 0..3 {
        rig.advance_s(71);
        rig.advance(Duration::from_millis(400));
        assert_eq!(used(&rig), four, "{:?}", rig.events);
    }
    rig.fake(1).hook = None;
    rig.advance_s(75);
    assert!(rig.reply(asked).is_some(), "{:?}", rig.events);
    let mut all = four;
    all.extend(names(&[("nvme0n5", 3)]));
    assert_eq!(used(&rig), all);
    assert_eq!(rig.event_count("path nvme0c0n1 removed"), 0);
}

/// Whoever is there already has its devices through the second path as soon.
#[test]
fn a_second_path_joins_what_there_is_as_it_is_seen() {
    let mut rig = Rig::connected(1);
    rig.fake(1).spaces.extend((2..=3).map(|nsid| (nsid, Space::new(nsid as u8, 2048))));
    rig.raise(1, NAMESPACES_CHANGED);
    let mut fake = Fake::new(NQN, 2);
    fake.spaces = rig.fake(1).spaces.clone();
    fake.hook = Some(Box::new(|c| is_third(c).then_some(Say::Nothing)));
    rig.put(2, fake);
    rig.connect(2, |_| ());
    rig.advance(Duration::from_millis(400));
    let second = |rig: &Rig, head: &str| rig.path(head, 1).is_some_and(|path| path.ready);
    assert!(second(&rig, "nvme0n1") && second(&rig, "nvme0n2"), "{:?}", rig.events);
    assert!(rig.path("nvme0n3", 1).is_none());
    rig.cut(1);
    assert_eq!(rig.heads().len(), 3);
}

/// So it is with what comes later, and with what came while the controller was away.
#[test]
fn a_namespace_that_is_new_waits_for_none_that_hangs() {
    let mut rig = Rig::connected(1);
    rig.fake(1).hook = Some(Box::new(|c| is_third(c).then_some(Say::Nothing)));
    rig.fake(1).spaces.extend((2..=5).map(|nsid| (nsid, Space::new(nsid as u8, 2048))));
    rig.raise(1, NAMESPACES_CHANGED);
    rig.advance(Duration::from_millis(400));
    let four = names(&[("nvme0n1", 1), ("nvme0n2", 2), ("nvme0n3", 4), ("nvme0n4", 5)]);
    assert_eq!(used(&rig), four, "{:?}", rig.events);
    rig.cut(1);
    rig.fake(1).spaces.insert(9, Space::new(9, 2048));
    rig.advance_s(11);
    let mut five = four;
    five.extend(names(&[("nvme0n5", 9)]));
    assert_eq!(used(&rig), five, "{:?}", rig.events);
    // They are not forgotten with the scan that has seen them.
    for _ in 0..3 {
        rig.advance_s(71);
        rig.advance(Duration::from_millis(400));
        assert_eq!(used(&rig), five, "{:?}", rig.events);
    }
    rig.fake(1).spaces.remove(&3);
    rig.fake(1).hook = None;
    rig.advance_s(75);
    assert_eq!(used(&rig), five, "{:?}", rig.events);
    assert_eq!(rig.event_count("removed"), 0, "{:?}", rig.events);
}

/// What looks new may be what was there under another NSID: that takes the whole scan.
#[test]
fn a_namespace_that_has_moved_is_not_taken_for_a_new_one() {
    let mut rig = Rig::connected(1);
    rig.fake(1).spaces.insert(2, Space::new(2, 2048));
    rig.raise(1, NAMESPACES_CHANGED);
    rig.advance_s(1);
    let asked = rig.fake(1).seen.len();
    rig.fake(1).hook = Some(Box::new(|c| is_third(c).then_some(Say::Nothing)));
    let moved = rig.fake(1).spaces.remove(&2).unwrap();
    rig.fake(1).spaces.extend([(3, Space::new(3, 2048)), (4, Space::new(4, 2048)), (5, moved)]);
    rig.raise(1, NAMESPACES_CHANGED);
    rig.advance_s(1);
    let while_it_hangs = names(&[("nvme0n1", 1), ("nvme0n3", 4)]);
    assert_eq!(used(&rig), while_it_hangs, "{:?}", rig.events);
    assert_eq!(rig.event_count("ignoring"), 0, "{:?}", rig.events);
    let third = rig.fake(1).seen[asked..].iter().rfind(|c| is_third(c)).copied().expect("asked");
    rig.fake(1).hook = None;
    rig.fake(1).say(&third, Say::namespace(2048));
    rig.deliver(1);
    rig.advance_s(1);
    let all = [("nvme0n1", 1), ("nvme0n2", 5), ("nvme0n3", 4), ("nvme0n4", 3)];
    assert_eq!(used(&rig), names(&all), "{:?}", rig.events);
    assert_eq!(rig.event_count("ignoring"), 0, "{:?}", rig.events);
}

/// What has changed is not used before it was looked at again, whatever had been seen.
#[test]
fn f13_what_changes_during_the_first_look_is_not_used() {
    let (mut rig, _) = connecting();
    rig.fake(1).spaces.insert(2, Space::new(0x99, 2048));
    let silent = |c: &Command| is_third(c) || c.is_log(4);
    rig.fake(1).hook = Some(Box::new(move |c| silent(c).then_some(Say::Nothing)));
    rig.raise(1, NAMESPACES_CHANGED);
    rig.advance_s(1);
    assert_eq!(used(&rig), [], "which of them has changed was not said yet");
    let asked = rig.fake(1).seen.iter().rfind(|c| c.is_log(4)).copied().expect("it was asked");
    rig.fake(1).say(&asked, Say::Data(vec![2, 0, 0, 0]));
    rig.deliver(1);
    rig.advance_s(1);
    let three = names(&[("nvme0n1", 1), ("nvme0n3", 4), ("nvme0n4", 5)]);
    assert_eq!(used(&rig), three, "{:?}", rig.events);
    let third = rig.fake(1).seen.iter().rfind(|c| is_third(c)).copied().expect("it was asked");
    rig.fake(1).hook = None;
    rig.fake(1).say(&third, Say::namespace(2048));
    rig.deliver(1);
    rig.advance_s(1);
    let mut found = used(&rig);
    found.sort_by_key(|(_, nsid)| *nsid);
    assert_eq!(found.iter().map(|(_, nsid)| *nsid).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_ne!(found[1].0, "nvme0n2", "it is another device");
    assert_eq!(rig.event_count("nvme0n2: path nvme0c0n2 removed"), 1, "{:?}", rig.events);
}

/// As of a gateway that has lost a part of what is behind it: what hung comes last the next time.
#[test]
fn as_many_that_hang_as_are_looked_at_at_once_keep_no_other_one_from_its_users_for_long() {
    let mut rig = Rig::new(1);
    let mut fake = Fake::new(NQN, 1);
    fake.spaces = (1..=20).map(|nsid| (nsid, Space::new(nsid as u8, 2048))).collect();
    let hangs = |c: &Command| c.is_identify(0) && c.nsid <= 8;
    fake.hook = Some(Box::new(move |c| hangs(c).then_some(Say::Nothing)));
    rig.put(1, fake);
    rig.connect(1, |request| request.keep_trying = true);
    rig.advance_s(50);
    assert!(used(&rig).is_empty());
    rig.advance_s(25);
    assert_eq!(used(&rig).len(), 12, "{:?}", rig.events);
}

/// Events beside a look that hangs: each is asked for, and what it does not name goes on.
#[test]
fn events_beside_a_look_that_hangs_cost_the_others_no_more_than_a_moment() {
    let (mut rig, _) = connecting();
    for _ in 0..15 {
        rig.raise(1, NAMESPACES_CHANGED);
        rig.advance_s(3);
        assert_eq!(used(&rig).len(), 4, "{:?}", rig.events);
    }
}

/// What was read as something else is not used, though the scan that has read it fails at once.
#[test]
fn f13_what_a_scan_has_seen_to_be_another_one_is_not_used_when_that_scan_fails() {
    for first in [false, true] {
        let (mut rig, _) = connecting();
        let third = rig.fake(1).seen.iter().rfind(|c| is_third(c)).copied().expect("asked");
        let passes = |c: &Command| is_third(c).then_some(Say::Status(0x006));
        if !first {
            rig.fake(1).hook = None;
            rig.fake(1).say(&third, Say::namespace(2048));
            rig.deliver(1);
            rig.advance_s(1);
        }
        rig.fake(1).spaces.insert(2, Space::new(0x99, 2048));
        rig.fake(1).hook = Some(Box::new(passes));
        if first {
            // The next scan, which this one makes begin, reads it.
            rig.fake(1).say(&third, Say::Status(0x006));
            rig.deliver(1);
            rig.advance_s(1);
        } else {
            rig.set("nvme0", "rescan_controller", "1").unwrap();
        }
        rig.run();
        let reads = rig.fake(1).count(|c| c.is_identify(3) && c.nsid == 2);
        assert!(reads >= 2, "it was read");
        let of_old = |(name, nsid): &(String, u32)| name == "nvme0n2" && *nsid == 2;
        assert!(!used(&rig).iter().any(of_old), "first: {first}: {:?}", rig.events);
    }
}

/// One that shows something else than others do is told of when it has shown all, once.
#[test]
fn what_is_odd_about_a_first_look_is_told_at_its_end() {
    let mut rig = Rig::connected(1);
    rig.fake(1).spaces.extend((2..=5).map(|nsid| (nsid, Space::new(nsid as u8, 2048))));
    rig.raise(1, NAMESPACES_CHANGED);
    rig.advance_s(1);
    let mut fake = Fake::new(NQN, 2);
    fake.spaces = rig.fake(1).spaces.clone();
    fake.spaces.insert(2, Space::new(0x99, 2048));
    fake.hook = Some(Box::new(|c| is_third(c).then_some(Say::Nothing)));
    rig.put(2, fake);
    rig.connect(2, |request| request.keep_trying = true);
    let lists = rig.fake(1).count(|c| c.is_identify(2));
    for _ in 0..3 {
        rig.advance_s(11);
        let first = |head: &str| rig.path(head, 0).is_some_and(|path| path.ready);
        assert!(["nvme0n1", "nvme0n2", "nvme0n3"].iter().all(|head| first(head)));
        rig.cut(2);
    }
    assert_eq!(rig.event_count("ignoring"), 0, "{:?}", rig.events);
    assert_eq!(rig.fake(1).count(|c| c.is_identify(2)), lists, "nobody is asked for it");
    rig.fake(2).hook = None;
    rig.cut(2);
    rig.advance_s(12);
    assert_eq!(rig.event_count("nvme1: ignoring nsid 2"), 1, "{:?}", rig.events);
    assert!(rig.fake(1).count(|c| c.is_identify(2)) > lists);
}

/// One that is lost before it has shown all, and shows others each time, has no more of them known
/// than one that has shown all.
#[test]
fn c62_a_controller_that_never_shows_all_has_no_endless_stream_of_devices() {
    let mut rig = Rig::new(1);
    let mut fake = Fake::new(NQN, 1);
    let mut base = 0_u32;
    fake.hook = Some(Box::new(move |c| match c {
        c if c.is_connect() && c.cdw11 >> 16 == 0 => {
            base += 1000;
            None
        }
        c if c.is_identify(2) => {
            let all = (base..base + 600).filter(|nsid| *nsid > c.nsid);
            Some(Say::Data(all.flat_map(u32::to_le_bytes).collect()))
        }
        c if c.is_identify(3) => {
            let mut data = vec![3, 16, 0, 0];
            data.extend([[0; 12].as_slice(), &c.nsid.to_be_bytes()].concat());
            Some(Say::Data(data))
        }
        c if c.is_identify(0) && c.nsid % 1000 == 599 => Some(Say::Nothing),
        c if c.is_identify(0) => Some(Say::namespace(8)),
        _ => None,
    }));
    rig.put(1, fake);
    rig.connect(1, |request| request.keep_trying = true);
    for _ in 0..6 {
        rig.advance_s(12);
        rig.cut(1);
    }
    rig.advance_s(12);
    assert!((600..=1024).contains(&rig.heads().len()), "{}", rig.heads().len());
}
