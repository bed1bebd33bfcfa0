//! Namespaces become devices: merged by identity, never by NSID.

use crate::fake::{Fake, Hook, Say, Space};
use crate::rig::{NAMESPACES_CHANGED, NQN, Rig};
use anabranch_host::mail::ToControl;
use anabranch_host::topology::{Association, ControllerId, ControllerState, HeadId};
use anabranch_proto::machine::WorkerId;
use std::time::Duration;

#[test]
fn p16_two_controllers_show_one_device_when_the_identifiers_agree() {
    let rig = Rig::connected_twice(1);
    assert_eq!(rig.heads().len(), 1);
    let paths: Vec<u32> =
        rig.head("nvme0n1").unwrap().paths.iter().map(|path| path.controller.0).collect();
    assert_eq!(paths, [0, 1], "in the order of addition");
}

#[test]
fn paths_are_in_the_order_of_the_requests_whichever_answers_first() {
    let mut rig = Rig::new(1);
    let ports = [1, 2, 3, 4];
    for port in ports {
        let mut fake = Fake::new(NQN, port);
        fake.refuse = true;
        rig.put(port, fake);
        rig.connect(port, |request| request.keep_trying = true);
    }
    let mut told: Vec<Vec<u32>> = Vec::new();
    for port in [3, 1, 4, 2] {
        rig.fake(port).refuse = false;
        rig.advance_s(30);
        let head = rig.head("nvme0n1").unwrap();
        told.push(head.paths.iter().map(|path| path.controller.0).collect());
    }
    assert_eq!(told, [vec![2], vec![0, 2], vec![0, 2, 3], vec![0, 1, 2, 3]]);
}

/// Many a controller gives its namespaces no UUID.
#[test]
fn p16_one_identifier_of_any_kind_is_enough_to_recognise_a_namespace() {
    for (kind, length) in [(3, 16), (2, 16), (1, 8)] {
        let mut rig = Rig::new(1);
        for port in [1, 2] {
            let mut fake = Fake::new(NQN, port);
            fake.spaces = (1..=2).map(|nsid| (nsid, Space::new(0, 2048))).collect();
            fake.hook = Some(Box::new(move |c| {
                let mut data = vec![kind, length, 0, 0];
                data.resize(4 + usize::from(length), c.nsid as u8);
                c.is_identify(3).then_some(Say::Data(data))
            }));
            rig.put(port, fake);
            rig.connect_ok(port, |_| ());
        }
        let paths: Vec<usize> = rig.heads().iter().map(|head| head.paths.len()).collect();
        assert_eq!(paths, [2, 2], "descriptor type {kind}: {:#?}", rig.events);
        let wwid = rig.head("nvme0n1").unwrap().wwid.clone();
        let expected = match kind {
            3 => "uuid.01010101-0101-0101-0101-010101010101",
            2 => "eui.01010101010101010101010101010101",
            _ => "eui.0101010101010101",
        };
        assert_eq!(wwid, expected);
    }
}

/// NVMe 1.2 has no descriptors, and later ones may refuse them: Identify Namespace has identifiers.
#[test]
fn p16_namespaces_without_descriptors_are_recognised_by_identify_namespace() {
    // By its NGUID, or by its EUI64. Limits of a command set exist from 2.0 on.
    let cases = [
        (0x0001_0200, 0, 0, 104..120),
        (0x0001_0300, 2, 0, 104..120),
        (0x0002_0000, 2, 1, 104..120),
        (0x0001_0200, 0, 0, 120..128),
        (0x0002_0000, 2, 1, 120..128),
    ];
    for ((version, asked, limits, place), refusal) in
        cases.into_iter().zip([0x002, 0x002 | 1 << 14, 0x001 | 1 << 14].into_iter().cycle())
    {
        let mut rig = Rig::new(1);
        for port in [1, 2] {
            let mut fake = Fake::new(NQN, port);
            fake.spaces = (1..=2).map(|nsid| (nsid, Space::new(0, 2048))).collect();
            let place = place.clone();
            fake.hook = Some(Box::new(move |c| {
                let mut data = vec![0; 4096];
                let blocks = 2048_u64.to_le_bytes();
                data[..16].copy_from_slice(&[blocks, blocks].concat());
                (data[30], data[92], data[130]) = (1, 1, 9);
                data[place.clone()].fill(c.nsid as u8);
                match () {
                    () if c.is_property_get(8) => Some(Say::Result(version)),
                    () if c.is_identify(3) => Some(Say::Status(refusal)),
                    () if c.is_identify(0) => Some(Say::Data(data)),
                    () => None,
                }
            }));
            rig.put(port, fake);
            rig.connect_ok(port, |_| ());
        }
        let paths: Vec<usize> = rig.heads().iter().map(|head| head.paths.len()).collect();
        assert_eq!(paths, [2, 2], "{version:#x}: {:#?}", rig.events);
        assert_eq!(rig.fake(1).count(|command| command.is_identify(3)), asked);
        assert_eq!(rig.fake(1).count(|command| command.is_identify(6)), limits);
    }
}

#[test]
fn p16_the_same_nsid_in_two_subsystems_is_two_devices() {
    let mut rig = Rig::connected(1);
    let other = "nqn.2024-01.test:two";
    let mut fake = Fake::new(other, 1);
    fake.spaces = [(1, Space::new(0x33, 100))].into();
    rig.put(2, fake);
    rig.connect_ok(2, |request| request.subsystem_nqn = other.parse().unwrap());
    let names: Vec<String> = rig.heads().iter().map(|head| head.name.clone()).collect();
    assert_eq!(names, ["nvme0n1", "nvme1n1"]);
}

#[test]
fn the_same_identifiers_in_two_subsystems_are_refused_in_the_second() {
    let mut rig = Rig::connected(1);
    let other = "nqn.2024-01.test:two";
    rig.put(2, Fake::new(other, 1));
    rig.connect_ok(2, |request| request.subsystem_nqn = other.parse().unwrap());
    assert_eq!(rig.heads().len(), 1);
    assert_eq!(rig.event_count("ignoring nsid 1: duplicate identifiers"), 1);
}

/// What the second controller shows as NSID 1, and why it is no path.
#[test]
fn p16_c63_a_namespace_that_is_not_the_same_is_refused_as_a_path() {
    let same = Space::new(0x11, 2048);
    let cases: [(&str, Space, &str); 5] = [
        ("another UUID", Space::new(0x12, 2048), "identifiers do not match"),
        ("an NGUID more", Space { nguid: [9; 16], ..same.clone() }, "nguid 09090909-0909"),
        ("no identifier", Space { uuid: [0; 16], ..same.clone() }, "has no identifier"),
        ("another block size", Space { lbads: 12, ..same.clone() }, "block size 4096"),
        ("not shared", Space { shared: false, ..same.clone() }, "may not be shared"),
    ];
    for (what, space, why) in cases {
        let mut rig = Rig::connected(1);
        let mut fake = Fake::new(NQN, 2);
        fake.spaces = [(1, space)].into();
        rig.put(2, fake);
        let (_, told) = rig.connect_told(2, |_| ());
        assert_eq!(told.len(), 1, "who connects it is told: {told:?}");
        assert!(told[0].starts_with("nsid 1: ") && told[0].contains(why), "{told:?}");
        assert!(!told[0].contains("eui64"), "none has one: {told:?}");
        assert_eq!(rig.heads().len(), 1, "{what}");
        assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 1, "{what}");
        assert_eq!(rig.event_count(why), 1, "{what}: {:?}", rig.events);
        // Told once, however often it is looked at.
        rig.raise(2, NAMESPACES_CHANGED);
        assert_eq!(rig.event_count(why), 1, "{what}");
        // Once it is the same, it is a path.
        rig.fake(2).spaces = [(1, same.clone())].into();
        rig.raise(2, NAMESPACES_CHANGED);
        assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 2, "{what}");
    }
    let mut rig = Rig::connected(1);
    let fake = Fake::new(NQN, 2);
    rig.put(2, fake);
    let all_is_well = (String::from("nvme1"), Vec::new());
    assert_eq!(rig.connect_told(2, |_| ()), all_is_well);
}

/// SPDK says "invalid field" of a namespace that was taken away after its list was read. When it is
/// back by the next command, what that one shows is not all there is to know it by.
#[test]
fn a_namespace_is_left_out_while_its_descriptors_cannot_be_read() {
    let mut rig = Rig::connected(1);
    rig.fake(1).spaces.insert(2, Space { nguid: [9; 16], ..Space::new(0x22, 64) });
    let refuse: Hook = Box::new(|command| {
        (command.is_identify(3) && command.nsid == 2).then_some(Say::Status(0x002))
    });
    rig.fake(1).hook = Some(refuse);
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(rig.heads().len(), 1, "{:?}", rig.events);
    assert_eq!(
        rig.event_count("ignoring nsid 2: it has just gone, or hides its identifiers: Invalid"),
        1
    );
    rig.fake(1).hook = None;
    rig.raise(1, NAMESPACES_CHANGED);
    let wwid = rig.head("nvme0n2").map(|head| head.wwid.clone());
    assert_eq!(wwid.as_deref(), Some("uuid.22222222-2222-2222-2222-222222222222"));
}

/// As of a gateway whose back end is not there yet: it is no other device for that.
#[test]
fn a_device_outlasts_a_reconnect_after_which_its_descriptors_are_refused_for_a_while() {
    let mut rig = Rig::connected(1);
    rig.fake(1).spaces = [(1, Space { nguid: [9; 16], ..Space::new(0x22, 2048) })].into();
    rig.raise(1, NAMESPACES_CHANGED);
    let device = rig.heads().pop().expect("there is one");
    for status in [0x4002, 0x002] {
        let refuse: Hook =
            Box::new(move |command| command.is_identify(3).then_some(Say::Status(status)));
        rig.fake(1).hook = Some(refuse);
        rig.cut(1);
        rig.advance_s(11);
        assert_eq!(rig.state(0), Some(ControllerState::Live));
        assert!(!rig.path(&device.name, 0).expect("kept").ready, "{status:#x}: not looked at");
        rig.fake(1).hook = None;
        rig.advance_s(11);
        let same = rig.heads();
        assert_eq!(same.iter().map(|head| &head.wwid).collect::<Vec<_>>(), [&device.wwid]);
        assert!(rig.path(&device.name, 0).expect("kept").ready, "{status:#x}");
    }
}

/// Whoever has written blocks of 512 bytes must not write them to blocks of 4096.
#[test]
fn a_path_whose_block_size_changes_is_none_any_more() {
    let same = Space::new(0x11, 2048);
    let mut rig = Rig::connected(1);
    let mut fake = Fake::new(NQN, 2);
    fake.spaces = [(1, same.clone())].into();
    rig.put(2, fake);
    rig.connect_ok(2, |_| ());
    assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 2);
    rig.fake(2).spaces = [(1, Space { lbads: 12, ..same.clone() })].into();
    rig.raise(2, NAMESPACES_CHANGED);
    assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 1);
    assert_eq!(rig.event_count("block size 4096 differs from 512"), 1);
    rig.fake(2).spaces = [(1, same)].into();
    rig.raise(2, NAMESPACES_CHANGED);
    assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 2);
}

/// Whatever is sent there would be more than the controller takes, and cost its connections.
#[test]
fn a_path_whose_controller_cannot_transfer_a_block_is_none() {
    let wide = Space { lbads: 14, ..Space::new(0x22, 2048) };
    let mut rig = Rig::new(1);
    for (port, mdts) in [(1, 1), (2, 2)] {
        let mut fake = Fake::new(NQN, port);
        fake.mdts = mdts;
        fake.spaces.insert(2, wide.clone());
        rig.put(port, fake);
        rig.connect_ok(port, |_| ());
    }
    let paths = |rig: &Rig, head: &str| rig.head(head).map_or(0, |head| head.paths.len());
    assert_eq!((paths(&rig, "nvme0n1"), paths(&rig, "nvme0n2")), (2, 1));
    let why = "nvme0: ignoring nsid 2: its blocks have 16384 bytes, and the controller transfers \
               8192 at once (MDTS)";
    assert_eq!(rig.event_count(why), 1);
    assert_eq!(rig.head("nvme0n2").unwrap().limits.max_transfer_bytes, 16384);

    // It comes back with another limit, each time.
    for (mdts, there) in [(2, 2), (1, 1), (0, 2)] {
        rig.fake(1).mdts = mdts;
        rig.cut(1);
        rig.advance_s(11);
        assert_eq!(paths(&rig, "nvme0n2"), there, "MDTS {mdts}");
    }
}

#[test]
fn a_refusal_is_forgotten_with_the_namespace() {
    let mut rig = Rig::connected(1);
    for round in 1..4 {
        rig.fake(1).spaces.insert(2, Space::new(0x11, 2048));
        rig.raise(1, NAMESPACES_CHANGED);
        assert_eq!(rig.event_count("ignoring nsid 2: duplicate identifiers"), round);
        rig.fake(1).spaces.remove(&2);
        rig.raise(1, NAMESPACES_CHANGED);
    }
}

#[test]
fn c63_the_same_identifier_under_two_nsids_is_refused() {
    let mut rig = Rig::connected(1);
    rig.fake(1).spaces.insert(2, Space::new(0x11, 2048));
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(rig.heads().len(), 1);
    assert_eq!(rig.event_count("ignoring nsid 2: duplicate identifiers in the subsystem"), 1);
}

#[test]
fn a_namespace_without_identifiers_is_a_device_of_one_path() {
    let mut rig = Rig::new(1);
    for port in [1, 2] {
        let mut fake = Fake::new(NQN, port);
        fake.spaces = [(1, Space::new(0, 2048))].into();
        rig.put(port, fake);
        rig.connect_ok(port, |_| ());
    }
    assert_eq!(rig.heads().len(), 1);
    assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 1);
    assert_eq!(rig.event_count("cannot be told apart"), 1);
    // It survives its own reconnect.
    rig.cut(1);
    rig.advance_s(11);
    assert!(rig.path("nvme0n1", 0).unwrap().ready);
}

/// As those of a target that has started anew and made its namespaces in another order: nobody who
/// uses them is to meet an error.
#[test]
fn devices_follow_their_namespaces_to_other_nsids() {
    let mut rig = Rig::new(1);
    for port in [1, 2] {
        rig.put(port, Fake::new(NQN, port));
        rig.fake(port).spaces.insert(2, Space::new(0x22, 64));
        rig.connect_ok(port, |_| ());
    }
    let ids = |rig: &Rig| ["nvme0n1", "nvme0n2"].map(|name| rig.head(name).unwrap().id);
    let nsids = |rig: &Rig, name| {
        let head = rig.head(name).unwrap();
        head.paths.iter().map(|path| path.nsid).collect::<Vec<_>>()
    };
    let before = ids(&rig);
    for port in [1, 2] {
        let mut fake = rig.fake(port);
        let (one, two) = (Space::new(0x11, 2048), Space::new(0x22, 64));
        fake.spaces = [(1, two), (2, one)].into();
    }
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(ids(&rig), before, "{:?}", rig.events);
    assert_eq!(nsids(&rig, "nvme0n1"), [2, 2], "{:?}", rig.events);
    assert_eq!(nsids(&rig, "nvme0n2"), [1, 1]);
    assert!([0, 1].iter().all(|path| rig.path("nvme0n1", *path).unwrap().ready));
    assert_eq!(rig.event_count(": removed"), 0, "{:?}", rig.events);
    assert_eq!(rig.event_count("nvme0n1 has nsid 2 there now (it was 1)"), 1, "{:?}", rig.events);

    // While its namespace is away, too, if it is kept; not where it cannot be told which it is.
    rig.set("nvme0n1", "delayed_removal_secs", "60").unwrap();
    for spaces in [vec![], vec![(5, 0x11), (6, 0x11)], vec![(7, 0x11)]] {
        for port in [1, 2] {
            let spaces = spaces.iter().map(|&(nsid, uuid)| (nsid, Space::new(uuid, 2048)));
            rig.fake(port).spaces = spaces.collect();
            rig.raise(port, NAMESPACES_CHANGED);
        }
        assert_eq!(rig.head("nvme0n1").unwrap().id, before[0]);
        let there = if spaces.len() == 1 { vec![7, 7] } else { vec![] };
        assert_eq!(nsids(&rig, "nvme0n1"), there, "{:?}", rig.events);
    }
}

/// As people look for them: one that has come back stands where it stood.
#[test]
fn devices_are_listed_by_their_numbers_whenever_they_came() {
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    let three = [1, 2, 3].map(|nsid| (nsid, Space::new(nsid as u8, 2048)));
    rig.fake(1).spaces = three.clone().into();
    rig.connect_ok(1, |_| ());
    let listed = |rig: &mut Rig| -> Vec<String> {
        rig.snapshot().subsystems[0].heads.iter().map(|head| head.name.clone()).collect()
    };
    assert_eq!(listed(&mut rig), ["nvme0n1", "nvme0n2", "nvme0n3"]);
    rig.fake(1).spaces.remove(&2);
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(listed(&mut rig), ["nvme0n1", "nvme0n3"]);
    rig.fake(1).spaces.insert(4, Space::new(4, 2048));
    rig.raise(1, NAMESPACES_CHANGED);
    rig.fake(1).spaces = three.into();
    rig.raise(1, NAMESPACES_CHANGED);
    let again = listed(&mut rig);
    assert!(again.is_sorted() && again.len() == 3, "{again:?}");
}

/// What a path is sent goes by the NSID of its device.
#[test]
fn a_device_with_a_path_does_not_follow_what_another_controller_says() {
    let mut rig = Rig::connected(1);
    rig.put(2, Fake::new(NQN, 2));
    rig.fake(2).spaces = [(2, Space::new(0x11, 2048))].into();
    rig.connect_ok(2, |_| ());
    let head = rig.head("nvme0n1").unwrap();
    assert_eq!(head.paths.iter().map(|path| path.nsid).collect::<Vec<_>>(), [1]);
    assert_eq!(rig.event_count("nvme1: ignoring nsid 2: duplicate identifiers"), 1);
    assert_eq!(rig.heads().len(), 1);
}

/// It has no path, and its namespace turns up where another device has one.
#[test]
fn a_device_does_not_follow_its_namespace_to_the_nsid_of_another() {
    let mut rig = Rig::connected_twice(1);
    rig.set("nvme0n1", "delayed_removal_secs", "60").unwrap();
    for port in [1, 2] {
        rig.fake(port).spaces = [(2, Space::new(0x22, 64))].into();
        rig.raise(port, NAMESPACES_CHANGED);
    }
    assert_eq!(rig.head("nvme0n2").unwrap().paths.len(), 2);
    // One of two controllers that do not agree.
    rig.fake(1).spaces = [(2, Space::new(0x11, 2048))].into();
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 0, "{:?}", rig.events);
    let head = rig.head("nvme0n2").unwrap();
    assert_eq!(head.paths.iter().map(|path| path.controller.0).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_device_that_cannot_take_its_namespace_back_follows_it_nowhere() {
    let mut rig = Rig::connected(1);
    let id = rig.head("nvme0n1").unwrap().id;
    rig.set("nvme0n1", "delayed_removal_secs", "60").unwrap();
    // It was formatted anew.
    rig.fake(1).spaces = [(2, Space { lbads: 12, ..Space::new(0x11, 2048) })].into();
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 0);
    assert_eq!(rig.event_count("there now"), 0, "{:?}", rig.events);
    assert_eq!(rig.event_count("ignoring nsid 2: duplicate identifiers"), 1, "{:?}", rig.events);
    rig.fake(1).spaces = [(1, Space::new(0x11, 2048))].into();
    rig.raise(1, NAMESPACES_CHANGED);
    let head = rig.head("nvme0n1").unwrap();
    assert_eq!((head.id, head.paths.len(), head.paths[0].nsid), (id, 1, 1));
    assert_eq!(rig.event_count("there now"), 0, "it is where it was");
}

/// There is nothing to know them by but their NSIDs.
#[test]
fn namespaces_without_identifiers_are_devices_of_their_own_that_follow_nobody() {
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    let unnamed = |nsids: &[u32]| nsids.iter().map(|&nsid| (nsid, Space::new(0, 2048))).collect();
    rig.fake(1).spaces = unnamed(&[1, 2]);
    rig.connect_ok(1, |_| ());
    assert_eq!(rig.heads().len(), 2, "{:?}", rig.events);
    rig.set("nvme0n1", "delayed_removal_secs", "60").unwrap();
    rig.fake(1).spaces = unnamed(&[2, 3]);
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 0, "{:?}", rig.events);
    assert_eq!(rig.path("nvme0n3", 0).map(|path| path.nsid), Some(3));
    // Whether it is the same that is back cannot be told, either.
    rig.fake(1).spaces = unnamed(&[1, 2, 3]);
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 0, "{:?}", rig.events);
    assert_eq!(rig.path("nvme0n4", 0).map(|path| path.nsid), Some(1));
    // Nor when it is the only one.
    rig.fake(1).spaces = unnamed(&[9]);
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 0, "{:?}", rig.events);
    assert_eq!(rig.path("nvme0n5", 0).map(|path| path.nsid), Some(9));
}

/// The device that waits for its own namespace keeps nobody away, and whoever reads the log learns
/// which is which.
#[test]
fn another_namespace_under_the_nsid_of_a_device_that_waits_is_a_new_device() {
    let mut rig = Rig::connected(1);
    rig.set("nvme0n1", "delayed_removal_secs", "60").unwrap();
    for uuid in [0x22, 0] {
        rig.fake(1).spaces = [(1, Space::new(uuid, 64))].into();
        rig.raise(1, NAMESPACES_CHANGED);
        assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 0);
        let name = if uuid == 0 { "nvme0n3" } else { "nvme0n2" };
        assert!(rig.path(name, 0).is_some_and(|path| path.ready), "{:?}", rig.events);
    }
    let told = "nvme0n2: nsid 1 is another namespace than nvme0n1 was";
    assert_eq!(rig.event_count(told), 1, "{:?}", rig.events);
}

/// A namespace that went and is back under another NSID has its device again: nobody waits for it.
#[test]
fn a_device_that_is_back_under_another_nsid_is_not_told_to_be_waited_for() {
    let mut rig = Rig::connected(1);
    for spaces in [vec![], vec![(2, 0x11)], vec![(1, 0x22), (2, 0x11)]] {
        let spaces = spaces.into_iter().map(|(nsid, uuid)| (nsid, Space::new(uuid, 2048)));
        rig.fake(1).spaces = spaces.collect();
        rig.raise(1, NAMESPACES_CHANGED);
    }
    assert_eq!(rig.path("nvme0n1", 0).map(|path| path.nsid), Some(2), "{:?}", rig.events);
    assert_eq!(rig.path("nvme0n2", 0).map(|path| path.nsid), Some(1), "{:?}", rig.events);
    assert_eq!(rig.event_count("another namespace than"), 0, "{:?}", rig.events);
}

/// Of private namespaces each controller has its own, under whatever NSID.
#[test]
fn private_namespaces_with_one_nsid_cast_no_doubt_on_each_other() {
    let private = |uuid| Space { shared: false, ..Space::new(uuid, 2048) };
    let shared = |uuid| Space::new(uuid, 2048);
    let cases = [
        (private(0x11), private(0x22), false),
        (private(0x11), shared(0x22), true),
        (shared(0x11), private(0x22), true),
    ];
    for (first, second, asked) in cases {
        let mut rig = Rig::new(1);
        for (port, space) in [(1, first), (2, second)] {
            rig.put(port, Fake::new(NQN, port));
            rig.fake(port).spaces = [(1, space)].into();
            let before = rig.fake(1).count(|c| c.is_identify(2));
            rig.connect_ok(port, |_| ());
            let again = rig.fake(1).count(|c| c.is_identify(2)) - before;
            assert_eq!(again, usize::from(port == 1 || asked));
        }
        assert!(rig.path("nvme0n1", 0).is_some_and(|path| path.ready));
        assert_eq!(rig.event_count("nvme1: ignoring nsid 1: identifiers do not match"), 1);
    }
    // One that only the second calls shared is no second path.
    let mut rig = Rig::new(1);
    for (port, space) in [(1, private(0x11)), (2, shared(0x11))] {
        rig.put(port, Fake::new(NQN, port));
        rig.fake(port).spaces = [(1, space)].into();
        rig.connect_ok(port, |_| ());
    }
    assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 1);
    assert_eq!(rig.event_count("nvme1: ignoring nsid 1: it may not be shared"), 1);
}

/// The others of the same controllers are known to be what they are.
#[test]
fn doubt_is_cast_on_the_namespace_that_it_is_about() {
    let mut rig = Rig::new(1);
    for port in [1, 2] {
        rig.put(port, Fake::new(NQN, port));
        rig.fake(port).spaces.insert(2, Space::new(0x22, 64));
        rig.connect_ok(port, |_| ());
    }
    rig.advance_s(5);
    let ready = |rig: &Rig, port| {
        ["nvme0n1", "nvme0n2"].map(|head| rig.path(head, port).is_some_and(|path| path.ready))
    };
    // A command for the second one was told that there is no such namespace.
    let silent =
        || -> Option<Hook> { Some(Box::new(|c| c.is_identify(2).then_some(Say::Nothing))) };
    rig.fake(2).hook = silent();
    let head = rig.head("nvme0n2").unwrap().id;
    suspect_of(&mut rig, 1, head);
    assert_eq!(ready(&rig, 1), [true, false]);
    // The second controller shows something else as NSID 2: that of the first one is looked at.
    let mut rig = Rig::new(1);
    for (port, uuid) in [(1, 0x22), (2, 0x33)] {
        rig.put(port, Fake::new(NQN, port));
        rig.fake(port).spaces.insert(2, Space::new(uuid, 64));
        let connect = rig.connect(port, |_| ());
        rig.advance(Duration::from_millis(100));
        assert!(rig.reply(connect).is_some());
        rig.fake(port).hook = silent();
    }
    assert_eq!(ready(&rig, 0), [true, false], "{:?}", rig.events);
}

fn suspect_of(rig: &mut Rig, controller: u32, head: HeadId) {
    let (controller, association) = (ControllerId(controller), Association(1));
    rig.post(WorkerId(1), ToControl::NamespaceSuspect { controller, association, head });
    rig.run();
}

/// As often as it comes anew, not as often as it is looked at.
#[test]
fn a_refusal_is_told_again_when_it_was_over() {
    let mut rig = Rig::connected_twice(1);
    for round in 1..4 {
        let lists = |rig: &Rig| rig.fake(1).count(|c| c.is_identify(2));
        let before = lists(&rig);
        rig.fake(2).spaces = [(1, Space { lbads: 12, ..Space::new(0x11, 2048) })].into();
        rig.raise(2, NAMESPACES_CHANGED);
        assert_eq!(lists(&rig), before, "it casts no doubt on the same one elsewhere");
        rig.raise(2, NAMESPACES_CHANGED);
        rig.raise(1, NAMESPACES_CHANGED);
        assert_eq!(rig.event_count("nvme1: ignoring nsid 1: block size"), round);
        assert_eq!(rig.event_count("nvme0n1: path nvme0c1n1 removed"), round);
        rig.fake(2).spaces = [(1, Space::new(0x11, 2048))].into();
        rig.raise(2, NAMESPACES_CHANGED);
        assert_eq!(rig.event_count("nvme0n1: path nvme0c1n1 added"), round + 1);
    }
}

#[test]
fn a_remapped_nsid_is_a_new_device_never_the_old_one() {
    let mut rig = Rig::connected(1);
    let old = rig.head("nvme0n1").unwrap().id;
    for uuid in 0x50..0x60 {
        rig.fake(1).spaces = [(1, Space::new(uuid, 2048))].into();
        rig.raise(1, NAMESPACES_CHANGED);
        let heads = rig.heads();
        assert_eq!(heads.len(), 1);
        assert_ne!(heads[0].id, old, "its id is not used again");
        assert_ne!(heads[0].name, "nvme0n1", "nor is its name: an export may bear it");
    }
    rig.fake(1).spaces = [(1, Space::new(0x52, 2048))].into();
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(rig.heads()[0].name, "nvme0n4", "what was there before has its name again");
    // Whoever has set something up for a name is told.
    assert_eq!(rig.event_count("another namespace than"), 17);
    assert_eq!(rig.event_count("nvme0n2: nsid 1 is another namespace than nvme0n1 was"), 1);
    assert_eq!(rig.event_count("nvme0n4: nsid 1 is another namespace than nvme0n17 was"), 1);
    rig.fake(1).spaces.clear();
    rig.raise(1, NAMESPACES_CHANGED);
    rig.fake(1).spaces = [(1, Space::new(0x52, 2048))].into();
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(rig.event_count("another namespace than"), 17, "it is the same");
}

#[test]
fn a_remapped_nsid_over_two_paths_becomes_a_new_device_once_both_agree() {
    let mut rig = Rig::connected_twice(1);
    let old = rig.head("nvme0n1").unwrap().id;
    rig.fake(1).spaces = [(1, Space::new(0x66, 2048))].into();
    rig.fake(2).spaces = [(1, Space::new(0x66, 2048))].into();
    // The second controller's event is lost, and it is slow to answer.
    rig.fake(2).hook = Some(Box::new(|c| c.is_identify(2).then_some(Say::Nothing)));
    rig.raise(1, NAMESPACES_CHANGED);
    let heads = rig.heads();
    assert_eq!((heads.len(), heads[0].id, heads[0].paths.len()), (1, old, 1));
    assert!(!heads[0].paths[0].ready, "there may be another namespace behind it by now");
    rig.fake(2).hook = None;
    rig.cut(2);
    rig.advance_s(11);
    let heads = rig.heads();
    assert_eq!((heads.len(), heads[0].paths.len()), (1, 2));
    assert_ne!(heads[0].id, old);
}

#[test]
fn a_controller_that_has_missed_a_remapped_nsid_is_asked() {
    let mut rig = Rig::connected_twice(1);
    let old = rig.head("nvme0n1").unwrap().id;
    rig.fake(1).spaces = [(1, Space::new(0x66, 2048))].into();
    rig.fake(2).spaces = [(1, Space::new(0x66, 2048))].into();
    rig.raise(1, NAMESPACES_CHANGED);
    let heads = rig.heads();
    assert_eq!((heads.len(), heads[0].paths.len()), (1, 2));
    assert_ne!(heads[0].id, old);
    assert!(heads[0].paths.iter().all(|path| path.ready));
}

/// Who upholds what the device is goes on with it; the two are not asked in turns for ever.
#[test]
fn a_controller_that_upholds_its_namespace_is_doubted_once() {
    let mut rig = Rig::connected_twice(1);
    let old = rig.head("nvme0n1").unwrap().id;
    rig.fake(1).spaces = [(1, Space::new(0x66, 2048))].into();
    let scans = |rig: &Rig| [1, 2].map(|at| rig.fake(at).count(|c| c.is_identify(2)));
    let before = scans(&rig);
    rig.raise(1, NAMESPACES_CHANGED);
    let heads = rig.heads();
    assert_eq!((heads.len(), heads[0].id, heads[0].paths.len()), (1, old, 1));
    assert!(heads[0].paths[0].ready);
    rig.advance_s(5);
    assert_eq!(scans(&rig), before.map(|scans| scans + 1));
    // A path that comes new is not held back by what was.
    rig.fake(1).spaces = rig.fake(2).spaces.clone();
    rig.raise(1, NAMESPACES_CHANGED);
    let heads = rig.heads();
    assert_eq!((heads[0].id, heads[0].paths.len()), (old, 2));
    assert!(heads[0].paths.iter().all(|path| path.ready));
}

#[test]
fn f13_a_namespace_changed_while_away_is_not_used_before_it_was_looked_at() {
    let mut rig = Rig::connected_twice(1);
    rig.fake(1).spaces = [(1, Space::new(0x77, 2048))].into();
    // The list is not answered at first: the controller is live, its path must not be used.
    rig.fake(1).hook = Some(Box::new(|c| c.is_identify(2).then_some(Say::Nothing)));
    rig.cut(1);
    rig.advance_s(11);
    assert_eq!(rig.state(0), Some(ControllerState::Live));
    assert!(!rig.path("nvme0n1", 0).unwrap().ready);
    rig.fake(1).hook = None;
    rig.cut(1);
    rig.advance_s(11);
    assert_eq!(rig.path("nvme0n1", 0).map(|path| path.ready), None, "it is no path any more");
    assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 1);
}

#[test]
fn what_write_zeroes_may_do_is_as_of_the_last_scan() {
    let mut rig = Rig::connected(1);
    assert!(!rig.path("nvme0n1", 0).unwrap().zeroes_may_deallocate);
    rig.fake(1).hook = Some(Box::new(|c| {
        let mut data = vec![0; 4096];
        data[..16].copy_from_slice(&[2048_u64.to_le_bytes(); 2].concat());
        (data[30], data[33], data[92], data[130]) = (1, 9, 1, 9);
        c.is_identify(0).then_some(Say::Data(data))
    }));
    rig.raise(1, NAMESPACES_CHANGED);
    assert!(rig.path("nvme0n1", 0).unwrap().zeroes_may_deallocate);
    rig.fake(1).hook = None;
    rig.raise(1, NAMESPACES_CHANGED);
    assert!(!rig.path("nvme0n1", 0).unwrap().zeroes_may_deallocate);
}

#[test]
fn the_device_appears_at_the_first_path_that_can_carry_io() {
    let mut rig = Rig::new(1);
    let mut fake = Fake::new(NQN, 1);
    fake.ana = Some([(1, 3)].into());
    rig.put(1, fake);
    rig.connect_ok(1, |_| ());
    assert_eq!(rig.heads().len(), 0, "inaccessible everywhere");
    let mut fake = Fake::new(NQN, 2);
    fake.ana = Some([(1, 2)].into());
    rig.put(2, fake);
    rig.connect_ok(2, |_| ());
    assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 2);
    // Once there, it stays.
    rig.fake(2).ana = Some([(1, 3)].into());
    rig.raise(2, crate::rig::ANA_CHANGED);
    assert_eq!(rig.heads().len(), 1);
}

#[test]
fn a_namespace_suspect_leads_to_one_scan_per_second_at_most() {
    let mut rig = Rig::connected(1);
    rig.advance_s(5);
    rig.fake(1).spaces.clear();
    let head = rig.head("nvme0n1").unwrap().id;
    let scans = |rig: &Rig| rig.fake(1).count(|command| command.is_identify(2));
    let before = scans(&rig);
    for _ in 0..100 {
        let (controller, association) = (ControllerId(0), Association(1));
        let suspect = ToControl::NamespaceSuspect { controller, association, head };
        rig.post(WorkerId(1), suspect);
        rig.run();
    }
    assert_eq!(scans(&rig), before + 1);
    assert_eq!(rig.heads().len(), 0);
    rig.advance_s(2);
    assert_eq!(scans(&rig), before + 2);
}

/// A controller may say so once while a namespace is being enabled again.
#[test]
fn a_path_whose_namespace_is_there_after_all_comes_back_by_itself() {
    let mut rig = Rig::connected(1);
    rig.advance_s(5);
    let ready = |rig: &Rig| rig.path("nvme0n1", 0).unwrap().ready;
    for _ in 0..3 {
        suspect(&mut rig, 1);
        assert!(ready(&rig), "it was looked at");
        suspect(&mut rig, 1);
        assert!(!ready(&rig), "the next look has to wait");
        rig.advance_s(2);
        assert!(ready(&rig));
    }
}

/// What is known in the present association was read in it: there is nobody to take a doubt of an
/// earlier one back.
#[test]
fn a_namespace_suspect_of_an_earlier_association_changes_nothing() {
    let mut rig = Rig::connected(1);
    rig.cut(1);
    rig.advance_s(30);
    assert_eq!(rig.controller(0).unwrap().association.0, 2);
    let scans = |rig: &Rig| rig.fake(1).count(|command| command.is_identify(2));
    let before = scans(&rig);
    suspect(&mut rig, 1);
    assert!(rig.path("nvme0n1", 0).unwrap().ready);
    assert_eq!(scans(&rig), before);
}

/// A controller that is slow with one answer has failed the scan with another; the next scan has
/// begun when the slow answer comes. What that says was true before.
#[test]
fn an_answer_to_a_scan_that_was_given_up_is_no_answer_to_the_next_one() {
    let mut rig = Rig::connected(1);
    rig.fake(1).spaces.insert(2, Space::new(0x22, 2048));
    rig.fake(1).hook = Some(Box::new(|c| match (c.is_identify(0), c.nsid) {
        (true, 1) => Some(Say::Status(0x006)),
        (true, _) => Some(Say::Nothing),
        _ => None,
    }));
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(rig.event_count("namespace scan: identify nsid 1"), 1);
    rig.fake(1).hook =
        Some(Box::new(|c| (c.is_identify(0) && c.nsid == 2).then_some(Say::Nothing)));
    rig.advance_s(1);
    let asked: Vec<_> = {
        let fake = rig.fake(1);
        fake.seen.iter().filter(|c| c.is_identify(0) && c.nsid == 2).copied().collect()
    };
    let [former, present] = asked[..] else { panic!("{asked:?}") };
    rig.fake(1).say(&former, Say::Status(0x00b));
    rig.deliver(1);
    rig.run();
    rig.fake(1).hook = None;
    let mut identify = vec![0; 4096];
    let blocks = 4096_u64.to_le_bytes();
    identify[..16].copy_from_slice(&[blocks, blocks].concat());
    (identify[30], identify[92], identify[130]) = (1, 1, 9);
    rig.fake(1).say(&present, Say::Data(identify));
    rig.deliver(1);
    rig.run();
    assert_eq!(rig.head("nvme0n2").map(|head| head.blocks), Some(4096));
}

fn suspect(rig: &mut Rig, association: u32) {
    let head = rig.head("nvme0n1").unwrap().id;
    let (controller, association) = (ControllerId(0), Association(association));
    let suspect = ToControl::NamespaceSuspect { controller, association, head };
    rig.post(WorkerId(1), suspect);
    rig.run();
}
