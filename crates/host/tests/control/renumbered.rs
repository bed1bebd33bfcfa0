//! Namespaces under other NSIDs, and other namespaces under theirs, while a controller is away.

use crate::fake::{Command, Fake, Say, Space};
use crate::rig::{NAMESPACES_CHANGED, NQN, Rig};
use anabranch_host::topology::ControllerState;
use anabranch_host::verb::{Selection, Verb};
use std::collections::BTreeMap;

/// A host with two controllers, of which the first is away, and NSIDs 1 and 2 are known.
fn first_away() -> Rig {
    let mut rig = Rig::new(1);
    for port in [1, 2] {
        rig.put(port, Fake::new(NQN, port));
        rig.fake(port).spaces = spaces(&[(1, 0x11), (2, 0x22)]);
        rig.connect_ok(port, |_| ());
    }
    rig.fake(1).refuse = true;
    rig.cut(1);
    rig
}

fn spaces(shown: &[(u32, u8)]) -> BTreeMap<u32, Space> {
    shown.iter().map(|&(nsid, uuid)| (nsid, Space::new(uuid, 2048))).collect()
}

fn show(rig: &mut Rig, port: u16, shown: &[(u32, u8)]) {
    rig.fake(port).spaces = spaces(shown);
    rig.raise(port, NAMESPACES_CHANGED);
}

fn come_back(rig: &mut Rig, shown: &[(u32, u8)]) {
    rig.fake(1).spaces = spaces(shown);
    rig.fake(1).refuse = false;
    rig.advance_s(30);
}

/// NSID and whether it is ready, of each path of a device.
fn paths(rig: &Rig, head: &str) -> Vec<(u32, bool)> {
    let head = rig.head(head);
    let paths = head.iter().flat_map(|head| &head.paths);
    paths.map(|path| (path.nsid, path.ready)).collect()
}

/// As of a target that has started anew with fewer namespaces, and of which one port is not up yet.
#[test]
fn a_device_follows_its_namespace_while_another_controller_is_away() {
    let mut rig = first_away();
    let id = rig.head("nvme0n2").unwrap().id;
    show(&mut rig, 2, &[(1, 0x22)]);
    assert_eq!(paths(&rig, "nvme0n2")[1], (1, true), "{:?}", rig.events);
    assert_eq!(rig.event_count("nvme0n2 has nsid 1 there now (it was 2)"), 1);
    // What the other one knows is of before it went.
    rig.raise(2, NAMESPACES_CHANGED);
    assert_eq!(paths(&rig, "nvme0n2"), [(2, false), (1, true)], "{:?}", rig.events);
    // It comes back, and it takes long until it is known what is where there: nobody asks it for a
    // flush of what the device has left with it.
    rig.fake(1).hook = Some(Box::new(|c| c.is_identify(2).then_some(Say::Nothing)));
    come_back(&mut rig, &[(1, 0x22)]);
    assert_eq!(rig.state(0), Some(ControllerState::Live));
    let away = rig.path("nvme0n2", 0).unwrap();
    assert!(!away.ready && away.ana_pending && away.nsid == 2);
    rig.fake(1).hook = None;
    rig.cut(1);
    let path = rig.path("nvme0n2", 0).map(|path| path.id);
    come_back(&mut rig, &[(1, 0x22)]);
    let now = rig.path("nvme0n2", 0).map(|path| path.id);
    assert_ne!(now, path, "what was meant for the former NSID does not take it");
    assert_eq!(rig.head("nvme0n2").map(|head| head.id), Some(id));
    assert_eq!(paths(&rig, "nvme0n2"), [(1, true); 2], "{:?}", rig.events);
    assert!(rig.head("nvme0n1").is_none(), "nobody shows it any more");
    assert_eq!(rig.event_count("ignoring"), 0, "{:?}", rig.events);
    assert_eq!(rig.event_count("nvme0n2: removed"), 0, "{:?}", rig.events);
}

#[test]
fn devices_change_places_while_another_controller_is_away() {
    let mut rig = first_away();
    show(&mut rig, 2, &[(1, 0x22), (2, 0x11)]);
    assert_eq!(paths(&rig, "nvme0n1")[1], (2, true), "{:?}", rig.events);
    assert_eq!(paths(&rig, "nvme0n2")[1], (1, true), "{:?}", rig.events);
    // The other one has not changed: what lives goes before it.
    come_back(&mut rig, &[(1, 0x11), (2, 0x22)]);
    assert_eq!(paths(&rig, "nvme0n1"), [(2, true)], "{:?}", rig.events);
    assert_eq!(paths(&rig, "nvme0n2"), [(1, true)], "{:?}", rig.events);
    assert_eq!(rig.event_count("nvme0: ignoring nsid 1: duplicate identifiers"), 1);
    come_back(&mut rig, &[(1, 0x22), (2, 0x11)]);
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(paths(&rig, "nvme0n1"), [(2, true); 2], "{:?}", rig.events);
    assert_eq!(paths(&rig, "nvme0n2"), [(1, true); 2], "{:?}", rig.events);
}

/// It was refused while the first one stood against it.
#[test]
fn what_was_refused_is_taken_when_nobody_stands_against_it_any_more() {
    for (shown, taken) in [((3, 0x11), "nvme0n1"), ((1, 0x33), "nvme0n3")] {
        let mut rig = first_away();
        come_back(&mut rig, &[(1, 0x11), (2, 0x22)]);
        show(&mut rig, 2, &[shown, (2, 0x22)]);
        assert_eq!(rig.event_count("nvme1: ignoring nsid"), 1, "{:?}", rig.events);
        assert_eq!(paths(&rig, "nvme0n1"), [(1, true)]);
        rig.fake(1).refuse = true;
        rig.cut(1);
        let there = (shown.0, true);
        assert!(paths(&rig, taken).contains(&there), "{taken}: {:?}", rig.events);
        assert!(rig.head("nvme0n1").is_some(), "it may come back");
    }
}

/// What a controller that is being removed still does, it does under the NSID that it has shown.
#[test]
fn a_controller_that_leaves_keeps_the_nsids_that_it_has_shown() {
    let mut rig = first_away();
    come_back(&mut rig, &[(1, 0x11), (2, 0x22)]);
    show(&mut rig, 2, &[(3, 0x11), (2, 0x22)]);
    assert_eq!(paths(&rig, "nvme0n1"), [(1, true)]);
    rig.fake(1).hook = Some(Box::new(|_| Some(Say::Nothing)));
    rig.verb(Verb::Disconnect(Selection::Controller("nvme0".to_owned())));
    assert_eq!(rig.state(0), Some(ControllerState::Deleting));
    assert_eq!(paths(&rig, "nvme0n1"), [(1, false), (3, true)], "{:?}", rig.events);
}

/// Its only live path goes on with the size that its controller shows.
#[test]
fn a_device_follows_its_namespace_to_another_size_too() {
    let mut rig = first_away();
    rig.fake(2).spaces = [(1, Space::new(0x22, 4096))].into();
    rig.raise(2, NAMESPACES_CHANGED);
    assert_eq!(paths(&rig, "nvme0n2"), [(2, false), (1, true)], "{:?}", rig.events);
    assert_eq!(rig.head("nvme0n2").unwrap().blocks, 4096);
}

/// One of the two may have missed a change, whoever it is: both are asked again, once.
#[test]
fn controllers_that_show_different_devices_under_one_nsid_are_asked_again() {
    let mut rig = first_away();
    show(&mut rig, 2, &[(1, 0x33), (2, 0x22)]);
    assert_eq!(paths(&rig, "nvme0n3"), [(1, true)], "{:?}", rig.events);
    assert_eq!(rig.event_count("nvme0n3: nsid 1 is another namespace than nvme0n1 was"), 1);
    let scans = |rig: &Rig| [1, 2].map(|at| rig.fake(at).count(|c| c.is_identify(2)));
    let before = scans(&rig);
    come_back(&mut rig, &[(1, 0x11), (2, 0x22)]);
    assert_eq!(scans(&rig), [before[0] + 2, before[1] + 1], "{:?}", rig.events);
    assert_eq!(paths(&rig, "nvme0n1"), [(1, true)], "{:?}", rig.events);
    assert_eq!(paths(&rig, "nvme0n3"), [(1, true)], "{:?}", rig.events);
    rig.advance_s(30);
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(scans(&rig), [before[0] + 3, before[1] + 1], "not in turns for ever");
    assert_eq!(rig.event_count("nsid 1: it is another namespace through other"), 2);

    // Each time that it comes back: it may be right this time.
    rig.cut(1);
    rig.fake(2).spaces = spaces(&[(1, 0x11), (2, 0x22)]);
    rig.advance_s(30);
    assert_eq!(paths(&rig, "nvme0n1"), [(1, true); 2], "{:?}", rig.events);
    assert!(rig.head("nvme0n3").is_none());
    assert_eq!(rig.event_count("nsid 1: it is another namespace through other"), 3);

    // The second one had missed that it was taken back.
    let mut rig = first_away();
    show(&mut rig, 2, &[(1, 0x33), (2, 0x22)]);
    rig.fake(2).spaces = spaces(&[(1, 0x11), (2, 0x22)]);
    come_back(&mut rig, &[(1, 0x11), (2, 0x22)]);
    assert_eq!(paths(&rig, "nvme0n1"), [(1, true); 2], "{:?}", rig.events);
    assert!(rig.head("nvme0n3").is_none());
}

/// A controller that shows a namespace under a new NSID and can no longer read the former one has
/// one path to it, which counts anew.
#[test]
fn a_path_follows_its_namespace_from_an_nsid_that_cannot_be_read_any_more() {
    let mut rig = Rig::connected(1);
    show(&mut rig, 1, &[(1, 0x11), (2, 0x22)]);
    let id = rig.head("nvme0n2").unwrap().paths[0].id;
    let fails = |c: &Command| c.is_identify(0) && c.nsid == 2;
    rig.fake(1).hook = Some(Box::new(move |c| fails(c).then_some(Say::Status(0x006 | 1 << 14))));
    show(&mut rig, 1, &[(1, 0x11), (2, 0x22), (5, 0x22)]);
    assert_eq!(paths(&rig, "nvme0n2"), [(5, true)], "{:?}", rig.events);
    assert_ne!(rig.head("nvme0n2").unwrap().paths[0].id, id);
    // Nor has it two once it can be read again.
    rig.fake(1).hook = None;
    rig.advance_s(30);
    assert_eq!(paths(&rig, "nvme0n2"), [(5, true)], "{:?}", rig.events);
    // And what was shown beside it is not what the device was.
    show(&mut rig, 1, &[(1, 0x11), (2, 0x22)]);
    assert_eq!(paths(&rig, "nvme0n2"), [], "{:?}", rig.events);
    assert_eq!(paths(&rig, "nvme0n3"), [(2, true)], "{:?}", rig.events);
}

/// A controller that shows NSIDs 1 to `last` and can no longer read these.
fn unreadable(rig: &mut Rig, port: u16, last: u32, nsids: &'static [u32]) {
    let known: Vec<_> = (1..=last).map(|nsid| (nsid, 0x11 * nsid as u8)).collect();
    show(rig, port, &known);
    rig.advance_s(5);
    let fails = |c: &Command| c.is_identify(0) && nsids.contains(&c.nsid);
    rig.fake(port).hook = Some(Box::new(move |c| fails(c).then_some(Say::Status(0x006 | 1 << 14))));
    rig.raise(port, NAMESPACES_CHANGED);
    rig.advance_s(5);
}

#[test]
fn a_device_does_not_go_to_and_fro_between_nsids_that_cannot_be_read() {
    let mut rig = Rig::connected(1);
    unreadable(&mut rig, 1, 2, &[2]);
    show(&mut rig, 1, &[(1, 0x11), (2, 0x22), (5, 0x22)]);
    assert_eq!(paths(&rig, "nvme0n2"), [(5, true)], "{:?}", rig.events);
    let fails = |c: &Command| c.is_identify(0) && c.nsid > 1;
    rig.fake(1).hook = Some(Box::new(move |c| fails(c).then_some(Say::Status(0x006 | 1 << 14))));
    rig.raise(1, NAMESPACES_CHANGED);
    rig.advance_s(120);
    assert_eq!(rig.event_count("there now"), 1, "{:?}", rig.events);
}

#[test]
fn a_device_does_not_follow_its_identifiers_to_other_blocks() {
    let mut rig = Rig::connected(1);
    unreadable(&mut rig, 1, 2, &[2]);
    rig.fake(1).spaces.insert(5, Space { lbads: 12, ..Space::new(0x22, 2048) });
    rig.raise(1, NAMESPACES_CHANGED);
    rig.advance_s(120);
    assert_eq!(paths(&rig, "nvme0n2"), [(2, false)], "{:?}", rig.events);
    assert_eq!(rig.event_count("there now"), 0, "{:?}", rig.events);
    assert_eq!(rig.event_count("nvme0: ignoring nsid 5: duplicate identifiers"), 1);
}

/// Two controllers show different ones under the new NSID, and who knew better is lost.
#[test]
fn two_devices_do_not_follow_to_the_same_nsid() {
    let mut rig = Rig::connected_twice(1);
    rig.put(3, Fake::new(NQN, 3));
    rig.connect_ok(3, |_| ());
    show(&mut rig, 3, &[(1, 0x11), (2, 0x22), (3, 0x33)]);
    for (port, at_5) in [(1, 0x22), (2, 0x33)] {
        unreadable(&mut rig, port, 3, &[2, 3]);
        show(&mut rig, port, &[(1, 0x11), (2, 0x22), (3, 0x33), (5, at_5)]);
    }
    rig.advance_s(15);
    rig.fake(3).refuse = true;
    rig.cut(3);
    let follow = |rig: &Rig| {
        let at_5 = |head: &&str| paths(rig, head).iter().any(|(nsid, _)| *nsid == 5);
        ["nvme0n2", "nvme0n3"].iter().filter(|head| at_5(head)).count()
    };
    assert_eq!(follow(&rig), 1, "{:?}", rig.events);
    rig.advance_s(60);
    assert_eq!(follow(&rig), 1, "{:?}", rig.events);
}

/// What has changed since it was read under the new NSID is not used before it was looked at.
#[test]
fn f13_a_path_that_follows_waits_for_what_its_controller_has_named() {
    for named in [true, false] {
        let mut rig = Rig::connected_twice(1);
        for port in [1, 2] {
            show(&mut rig, port, &[(1, 0x11), (2, 0x22)]);
        }
        unreadable(&mut rig, 1, 2, &[2]);
        show(&mut rig, 1, &[(1, 0x11), (2, 0x22), (5, 0x22)]);
        rig.advance_s(5);
        assert_eq!(paths(&rig, "nvme0n2"), [(2, false), (2, true)], "the second shows it there");
        let hangs = move |c: &Command| {
            c.is_identify(2) || c.is_identify(3) && c.nsid == 5 || !named && c.is_log(4)
        };
        rig.fake(1).hook = Some(Box::new(move |c| match c {
            c if hangs(c) => Some(Say::Nothing),
            c if c.is_log(4) => Some(Say::Data(vec![5, 0, 0, 0])),
            c if c.is_identify(0) && c.nsid == 2 => Some(Say::Status(0x006 | 1 << 14)),
            _ => None,
        }));
        rig.fake(1).spaces = spaces(&[(1, 0x11), (2, 0x22), (5, 0x99)]);
        rig.raise(1, NAMESPACES_CHANGED);
        rig.advance_s(1);
        rig.fake(2).refuse = true;
        rig.cut(2);
        assert!(!paths(&rig, "nvme0n2").contains(&(5, true)), "{named}: {:?}", rig.events);
    }
}

#[test]
fn a_path_does_not_follow_to_what_may_not_be_shared_while_there_is_another() {
    let mut rig = Rig::connected_twice(1);
    for port in [1, 2] {
        show(&mut rig, port, &[(1, 0x11), (2, 0x22)]);
    }
    rig.fake(2).refuse = true;
    rig.cut(2);
    unreadable(&mut rig, 1, 2, &[2]);
    let private = || Space { shared: false, ..Space::new(0x22, 2048) };
    rig.fake(1).spaces.insert(5, private());
    rig.raise(1, NAMESPACES_CHANGED);
    rig.advance_s(5);
    rig.fake(2).spaces = spaces(&[(1, 0x11)]);
    rig.fake(2).spaces.insert(5, private());
    rig.fake(2).refuse = false;
    rig.advance_s(60);
    let ready = paths(&rig, "nvme0n2").iter().filter(|(_, ready)| *ready).count();
    assert!(ready <= 1, "{:?}", rig.events);
}

#[test]
fn a_namespace_that_does_not_fit_keeps_the_device_from_none_that_does() {
    let mut rig = Rig::connected_twice(1);
    for port in [1, 2] {
        unreadable(&mut rig, port, 2, &[2]);
    }
    rig.fake(1).spaces.insert(5, Space { lbads: 12, ..Space::new(0x22, 2048) });
    rig.fake(2).spaces.insert(5, Space::new(0x22, 2048));
    for port in [1, 2] {
        rig.raise(port, NAMESPACES_CHANGED);
    }
    rig.advance_s(30);
    assert_eq!(paths(&rig, "nvme0n2"), [(5, true)], "{:?}", rig.events);
}
