//! What was left out because of another device is taken when that has gone: nothing else would make
//! anybody look again.

use crate::fake::{Fake, Say, Space};
use crate::rig::{NAMESPACES_CHANGED, NQN, Rig};
use anabranch_host::verb::{ControllerSnapshot, Reply, Selection, Verb};
use anabranch_proto::nvme::AnaState;

/// "Do not retry" of a status.
const DNR: u16 = 1 << 14;

const OTHER: &str = "nqn.2024-01.test:two";

/// Two subsystems show the same namespace: that of the first one is the device.
fn shown_twice() -> Rig {
    let mut rig = Rig::connected(1);
    rig.put(2, Fake::new(OTHER, 1));
    rig.connect_ok(2, |request| request.subsystem_nqn = OTHER.parse().unwrap());
    assert_eq!(rig.event_count("nvme1: ignoring nsid 1: duplicate identifiers"), 1);
    assert_eq!(names(&rig), ["nvme0n1"]);
    rig
}

fn names(rig: &Rig) -> Vec<String> {
    rig.heads().iter().map(|head| head.name.clone()).collect()
}

/// What the log has said once can be seen for as long as it is so.
#[test]
fn what_is_ignored_is_shown_with_its_reason() {
    let mut rig = shown_twice();
    // Blocks of 128 KiB are more than are used.
    rig.fake(1).spaces.insert(5, Space { lbads: 17, ..Space::new(0x55, 2048) });
    rig.raise(1, NAMESPACES_CHANGED);
    let ignored = |rig: &mut Rig| {
        let subsystems = rig.snapshot().subsystems;
        let all = subsystems.into_iter().flat_map(|subsystem| subsystem.controllers);
        let of_one = |it: &ControllerSnapshot| {
            let all = it.ignored.iter();
            all.map(|ignored| (it.name.clone(), ignored.nsid, ignored.why.clone())).collect()
        };
        all.flat_map(|it| -> Vec<_> { of_one(&it) }).collect::<Vec<_>>()
    };
    let seen = ignored(&mut rig);
    let [(first, 5, blocks), (second, 1, twice)] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!([first, second], ["nvme0", "nvme1"]);
    assert!(blocks.contains("LBADS is 17"), "{blocks}");
    assert!(twice.starts_with("duplicate identifiers"), "{twice}");
    rig.fake(1).spaces.clear();
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(ignored(&mut rig), []);
}

/// A device whose namespace cannot be read for a moment is one all the same.
#[test]
fn what_has_a_path_is_not_shown_as_ignored() {
    let mut rig = Rig::connected(1);
    rig.fake(1).hook = Some(Box::new(|c| c.is_identify(0).then_some(Say::Status(0x006 | DNR))));
    rig.raise(1, NAMESPACES_CHANGED);
    rig.advance_s(1);
    assert_eq!(rig.event_count("nvme0: ignoring nsid 1: it cannot be read"), 1);
    assert!(rig.path("nvme0n1", 0).is_some());
    assert_eq!(rig.snapshot().subsystems[0].controllers[0].ignored, []);
}

/// As when a volume moves from one subsystem to another.
#[test]
fn a_namespace_that_leaves_a_subsystem_is_the_device_of_the_other_one() {
    let mut rig = shown_twice();
    rig.fake(1).spaces.clear();
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(names(&rig), ["nvme1n1"]);
    assert!(rig.path("nvme1n1", 1).is_some_and(|path| path.ready));
}

#[test]
fn a_subsystem_that_is_disconnected_leaves_its_device_to_the_other_one() {
    let mut rig = shown_twice();
    let id = rig.verb(Verb::Disconnect(Selection::Subsystem(NQN.parse().unwrap())));
    rig.advance_s(1);
    assert!(matches!(rig.reply(id), Some(Reply::Disconnected(1))));
    assert_eq!(names(&rig), ["nvme1n1"]);
}

/// It was in another one when the log was read last.
#[test]
fn the_group_of_a_namespace_that_is_taken_is_looked_up() {
    let mut rig = Rig::connected(1);
    let mut fake = Fake::new(OTHER, 1);
    fake.ana = Some([(1, 3), (2, 1)].into());
    rig.put(2, fake);
    rig.connect_ok(2, |request| request.subsystem_nqn = OTHER.parse().unwrap());
    let moved = Space { group: 2, ..rig.fake(2).spaces[&1] };
    rig.fake(2).spaces.insert(1, moved);
    rig.raise(2, NAMESPACES_CHANGED);
    rig.fake(1).spaces.clear();
    rig.raise(1, NAMESPACES_CHANGED);
    let path = rig.path("nvme1n1", 1).expect("a path");
    assert_eq!(path.ana_state, AnaState::Optimized);
}

/// The device is kept for a while without a path, and cannot have its namespace back.
#[test]
fn what_waits_for_the_end_of_a_device_that_is_kept_is_taken_then() {
    let mut rig = Rig::connected(1);
    rig.set("nvme0n1", "delayed_removal_secs", "30").unwrap();
    let old = rig.head("nvme0n1").unwrap().id;
    rig.fake(1).spaces = [(1, Space { lbads: 12, ..Space::new(0x11, 2048) })].into();
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(rig.event_count("nvme0: ignoring nsid 1: block size"), 1);
    rig.advance_s(29);
    assert_eq!(rig.head("nvme0n1").map(|head| head.id), Some(old));
    rig.advance_s(2);
    let head = rig.head("nvme0n1").unwrap();
    assert_ne!(head.id, old);
    assert_eq!((head.block_bytes, head.paths.len()), (4096, 1));
}
