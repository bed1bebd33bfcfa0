//! Two namespaces of one controller that carry the same identifiers: only the first is the device.

use crate::fake::{Fake, Say, Space};
use crate::rig::{NAMESPACES_CHANGED, NQN, Rig};
use anabranch_host::topology::HeadId;

/// NSID 1 is the device, NSID 2 looks like it and has another size.
fn twins() -> (Rig, HeadId) {
    let mut rig = Rig::connected(1);
    rig.fake(1).spaces.insert(2, Space::new(0x11, 4096));
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(rig.heads().len(), 1);
    assert_eq!(rig.event_count("duplicate identifiers"), 1);
    assert_eq!(rig.event_count("nsid 2: as it was shown beside the namespace of a device"), 1);
    let id = rig.head("nvme0n1").unwrap().id;
    (rig, id)
}

/// NSID, size, and whether it is ready, of each path of the device.
fn paths(rig: &Rig, id: HeadId) -> Vec<(u32, bool)> {
    let heads = rig.heads();
    let head = heads.iter().find(|head| head.id == id);
    let paths = head.iter().flat_map(|head| &head.paths);
    paths.map(|path| (path.nsid, path.ready)).collect()
}

#[test]
fn a_device_does_not_move_to_a_twin_while_its_namespace_cannot_be_read() {
    // With "do not retry", and without.
    for status in [0x006 | 1 << 14, 0x006] {
        let (mut rig, id) = twins();
        rig.fake(1).hook = Some(Box::new(move |c| {
            (c.is_identify(0) && c.nsid == 1).then_some(Say::Status(status))
        }));
        rig.raise(1, NAMESPACES_CHANGED);
        rig.advance_s(30);
        assert_eq!(paths(&rig, id), [(1, false)], "{:?}", rig.events);
        rig.fake(1).hook = None;
        rig.advance_s(120);
        assert_eq!(paths(&rig, id), [(1, true)], "{:?}", rig.events);
        assert_eq!(rig.event_count("capacity change"), 0);
    }
}

#[test]
fn a_device_does_not_move_to_the_twin_that_another_controller_shows() {
    let (mut rig, id) = twins();
    rig.put(2, Fake::new(NQN, 2));
    rig.fake(2).spaces = [(2, Space::new(0x11, 4096))].into();
    rig.connect_ok(2, |_| ());
    rig.fake(1).refuse = true;
    rig.cut(1);
    rig.advance_s(5);
    assert_eq!(paths(&rig, id).len(), 1, "{:?}", rig.events);
    rig.fake(1).refuse = false;
    rig.advance_s(30);
    assert_eq!(paths(&rig, id), [(1, true)], "{:?}", rig.events);
}

/// Whoever knows the device by its name is not led to the other blocks.
#[test]
fn a_twin_that_is_left_over_is_another_device_of_another_name() {
    let (mut rig, id) = twins();
    rig.fake(1).spaces.remove(&1);
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(paths(&rig, id), []);
    assert!(rig.head("nvme0n1").is_none(), "{:?}", rig.events);
    let twin = rig.head("nvme0n2").expect("it has the identifiers alone now");
    assert_eq!((twin.blocks, twin.paths[0].nsid), (4096, 2));
    // The first is back: it is the one that looks like a device now.
    rig.fake(1).spaces.insert(1, Space::new(0x11, 2048));
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(rig.heads().len(), 1, "{:?}", rig.events);
    assert_eq!(rig.head("nvme0n2").unwrap().paths[0].nsid, 2);
}

/// What has been another namespace since is none.
#[test]
fn a_twin_that_has_got_other_identifiers_is_a_namespace_like_any_other() {
    let (mut rig, _) = twins();
    rig.fake(1).spaces.insert(2, Space::new(0x22, 4096));
    rig.raise(1, NAMESPACES_CHANGED);
    let id = rig.head("nvme0n2").expect("another device").id;
    // It moves like any other.
    rig.fake(1).spaces = [(1, Space::new(0x11, 2048)), (3, Space::new(0x22, 4096))].into();
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(paths(&rig, id), [(3, true)], "{:?}", rig.events);
}
