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
    show(&mut rig, 1, &[(1, 0x11), (2, 0x22)]);
    assert_eq!(paths(&rig, "nvme0n2"), [(2, true)], "{:?}", rig.events);
}
