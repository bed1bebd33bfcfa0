//! Size and limits of a device over its paths.

use crate::fake::{Fake, Say, Space};
use crate::rig::{ANA_CHANGED, NAMESPACES_CHANGED, NQN, Rig};
use anabranch_host::verb::{Hindrance, Selection, Verb};

#[test]
fn m20_a_path_with_another_capacity_is_taken_out() {
    let mut rig = Rig::connected(1);
    let mut fake = Fake::new(NQN, 2);
    fake.spaces = [(1, Space::new(0x11, 1024))].into();
    rig.put(2, fake);
    rig.connect_ok(2, |_| ());
    let head = rig.head("nvme0n1").unwrap();
    assert_eq!(head.blocks, 2048, "the newcomer does not shrink the device");
    assert!(head.paths[0].ready && !head.paths[1].ready);
    let hindrances = |rig: &mut Rig| {
        let snapshot = rig.snapshot();
        let head = &snapshot.subsystems[0].heads[0];
        head.paths.iter().map(|path| path.hindrance).collect::<Vec<_>>()
    };
    assert_eq!(hindrances(&mut rig), [None, Some(Hindrance::Size)]);
    let idle = "nvme0c1n1: not used while it has 524288 bytes: nvme0n1 has 1048576";
    rig.raise(2, NAMESPACES_CHANGED);
    assert_eq!(rig.event_count(idle), 1, "a path that stands idle says why, once");
    rig.fake(2).spaces = [(1, Space::new(0x11, 2048))].into();
    rig.raise(2, NAMESPACES_CHANGED);
    assert!(rig.path("nvme0n1", 1).unwrap().ready);
    assert_eq!(hindrances(&mut rig), [None; 2]);
    assert_eq!(rig.event_count("not used while"), 1);
    assert_eq!(rig.event_count("nvme0c1n1: of use again: it has 1048576 bytes, as nvme0n1"), 1);
}

#[test]
fn a_resize_is_followed_and_asks_the_other_paths_too() {
    let mut rig = Rig::connected_twice(1);
    rig.fake(1).spaces = [(1, Space::new(0x11, 4096))].into();
    rig.raise(1, NAMESPACES_CHANGED);
    let head = rig.head("nvme0n1").unwrap();
    assert_eq!(head.blocks, 2048, "the other one has just said so");
    assert!(!head.paths[0].ready && head.paths[1].ready);
    rig.fake(2).spaces = [(1, Space::new(0x11, 4096))].into();
    rig.raise(2, NAMESPACES_CHANGED);
    assert!(rig.head("nvme0n1").unwrap().paths.iter().all(|path| path.ready));
    assert_eq!(rig.event_count("capacity change from 1048576 to 2097152 bytes"), 1);

    // Both have changed, only one event came: the other one is asked without an event.
    for port in [1, 2] {
        rig.fake(port).spaces = [(1, Space::new(0x11, 512))].into();
    }
    rig.raise(1, NAMESPACES_CHANGED);
    let head = rig.head("nvme0n1").unwrap();
    assert_eq!(head.blocks, 512);
    assert!(head.paths.iter().all(|path| path.ready));
}

#[test]
fn a_device_grows_with_what_agrees_with_it_and_everybody_is_asked() {
    let grown = || [(1, Space::new(0x11, 4096))].into();
    // One event came.
    let mut rig = Rig::connected_twice(1);
    for port in [1, 2] {
        rig.fake(port).spaces = grown();
    }
    rig.raise(2, NAMESPACES_CHANGED);
    let head = rig.head("nvme0n1").unwrap();
    assert_eq!(head.blocks, 4096);
    assert!(head.paths.iter().all(|path| path.ready), "{:?}", rig.events);
    // None came, but a path that is new knows.
    let mut rig = Rig::connected(1);
    rig.fake(1).spaces = grown();
    rig.put(2, Fake::new(NQN, 2));
    rig.fake(2).spaces = grown();
    rig.connect_ok(2, |_| ());
    let head = rig.head("nvme0n1").unwrap();
    assert_eq!(head.blocks, 4096);
    assert!(head.paths.iter().all(|path| path.ready), "{:?}", rig.events);
}

/// A controller that is mistaken does not make the device larger than the others have it.
#[test]
fn what_a_path_says_that_does_not_agree_is_not_what_the_device_grows_to() {
    let mut rig = Rig::connected(1);
    rig.put(2, Fake::new(NQN, 2));
    let mut say = |port: u16, blocks, ready: [bool; 2], expected| {
        rig.fake(port).spaces = [(1, Space::new(0x11, blocks))].into();
        if rig.state(1).is_none() {
            rig.connect_ok(port, |_| ());
        } else {
            rig.raise(port, NAMESPACES_CHANGED);
        }
        let head = rig.head("nvme0n1").unwrap();
        let found = [0, 1].map(|path| head.paths[path].ready);
        assert_eq!((head.blocks, found), (expected, ready), "{:?}", rig.events);
    };
    say(2, 8192, [true, false], 2048);
    say(2, 16384, [true, false], 2048);
    say(1, 4096, [true, false], 4096);
    say(2, 4096, [true, true], 4096);
}

#[test]
fn each_device_takes_the_size_of_its_own_namespace() {
    let mut rig = Rig::connected(1);
    let show = |rig: &mut Rig, second| {
        rig.fake(1).spaces = [(1, Space::new(0x11, 2048)), (2, Space::new(0x22, second))].into();
        rig.raise(1, NAMESPACES_CHANGED);
        let blocks: Vec<u64> = rig.heads().iter().map(|head| head.blocks).collect();
        assert_eq!(blocks, [2048, second]);
    };
    show(&mut rig, 4096);
    show(&mut rig, 8192);
    assert_eq!(rig.event_count("capacity change"), 1);
}

#[test]
fn one_path_alone_does_not_shrink_the_device() {
    let mut rig = Rig::connected_twice(1);
    let asked = rig.fake(1).count(|c| c.is_identify(0));
    rig.fake(2).spaces = [(1, Space::new(0x11, 1024))].into();
    rig.raise(2, NAMESPACES_CHANGED);
    let head = rig.head("nvme0n1").unwrap();
    assert_eq!(head.blocks, 2048, "the other path has just said so");
    assert!(head.paths[0].ready && !head.paths[1].ready);
    assert!(rig.fake(1).count(|c| c.is_identify(0)) > asked, "it was asked again");
    assert_eq!(rig.event_count("capacity change"), 0);

    // A path that was lost is no witness once it was waited for.
    rig.fake(1).refuse = true;
    rig.cut(1);
    assert_eq!(rig.head("nvme0n1").unwrap().blocks, 2048);
    rig.advance_s(20);
    let head = rig.head("nvme0n1").unwrap();
    assert_eq!(head.blocks, 1024, "nobody who is there says otherwise");
    assert!(!head.paths[0].ready && head.paths[1].ready);
    rig.raise(2, NAMESPACES_CHANGED);
    assert_eq!(rig.head("nvme0n1").unwrap().blocks, 1024);
    rig.fake(1).spaces = [(1, Space::new(0x11, 1024))].into();
    rig.fake(1).refuse = false;
    rig.advance_s(30);
    let head = rig.head("nvme0n1").unwrap();
    assert_eq!(head.blocks, 1024, "all say so now");
    assert!(head.paths.iter().all(|path| path.ready));
}

#[test]
fn a_path_that_made_the_device_grow_alone_does_not_shrink_it_below_what_others_say() {
    let mut rig = Rig::connected_twice(1);
    rig.fake(1).ana = Some([(1, 3)].into());
    rig.raise(1, ANA_CHANGED);
    rig.fake(2).spaces = [(1, Space::new(0x11, 4096))].into();
    rig.raise(2, NAMESPACES_CHANGED);
    assert_eq!(rig.head("nvme0n1").unwrap().blocks, 4096);
    rig.fake(1).ana = Some([(1, 1)].into());
    rig.raise(1, ANA_CHANGED);
    rig.fake(2).spaces = [(1, Space::new(0x11, 8))].into();
    rig.raise(2, NAMESPACES_CHANGED);
    let head = rig.head("nvme0n1").unwrap();
    assert_eq!(head.blocks, 2048, "the other path has said so all the time");
    assert!(head.paths[0].ready && !head.paths[1].ready);
    assert_eq!(rig.event_count("capacity change from 2097152 to 1048576 bytes"), 1);
}

#[test]
fn a_witness_that_is_lost_before_it_answers_leaves_no_path_idle() {
    let mut rig = Rig::connected_twice(1);
    rig.fake(1).hook = Some(Box::new(|c| c.is_identify(2).then_some(Say::Nothing)));
    rig.fake(2).spaces = [(1, Space::new(0x11, 1024))].into();
    rig.raise(2, NAMESPACES_CHANGED);
    assert_eq!(rig.head("nvme0n1").unwrap().blocks, 2048, "the other one has not answered yet");
    rig.fake(1).refuse = true;
    rig.cut(1);
    rig.advance_s(20);
    let head = rig.head("nvme0n1").unwrap();
    assert_eq!(head.blocks, 1024);
    assert!(head.paths[1].ready);
    assert_eq!(rig.event_count("capacity change from 1048576 to 524288 bytes"), 1);
}

#[test]
fn a_path_that_flaps_does_not_cost_the_device_its_size() {
    // Another live path upholds it.
    let mut rig = Rig::connected_twice(1);
    rig.put(3, Fake::new(NQN, 3));
    rig.fake(3).spaces = [(1, Space::new(0x11, 1024))].into();
    rig.connect_ok(3, |_| ());
    rig.fake(1).refuse = true;
    rig.cut(1);
    rig.raise(3, NAMESPACES_CHANGED);
    assert_eq!(rig.head("nvme0n1").unwrap().blocks, 2048);
    rig.fake(1).refuse = false;
    rig.advance_s(30);
    assert!(rig.path("nvme0n1", 1).unwrap().ready);
    assert_eq!(rig.event_count("capacity change"), 0);

    // Nobody does: the size comes back with the first who says it again.
    for port in [1, 2] {
        rig.fake(port).refuse = true;
        rig.cut(port);
    }
    rig.advance_s(19);
    assert_eq!(rig.head("nvme0n1").unwrap().blocks, 2048, "they are waited for");
    rig.advance_s(1);
    assert_eq!(rig.head("nvme0n1").unwrap().blocks, 1024);
    rig.fake(2).refuse = false;
    rig.advance_s(30);
    let head = rig.head("nvme0n1").unwrap();
    assert_eq!(head.blocks, 2048);
    assert!(head.paths[1].ready && !head.paths[2].ready);
}

#[test]
fn a_size_that_changed_while_no_path_was_there_is_taken_from_the_first_that_comes_back() {
    let mut rig = Rig::connected(1);
    rig.set("nvme0n1", "delayed_removal_secs", "30").unwrap();
    rig.verb(Verb::Disconnect(Selection::All));
    rig.advance_s(1);
    assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 0);
    rig.fake(1).spaces = [(1, Space::new(0x11, 4096))].into();
    rig.connect_ok(1, |_| ());
    let head = rig.head("nvme0n1").unwrap();
    assert_eq!(head.blocks, 4096);
    assert!(head.paths[0].ready);
    assert_eq!(rig.event_count("capacity change from 1048576 to 2097152 bytes"), 1);
}

/// Those that are there but away do not keep a newcomer from its work.
#[test]
fn a_size_that_changed_while_every_path_is_away_is_taken_from_a_path_that_comes_new() {
    let mut rig = Rig::connected(1);
    rig.fake(1).refuse = true;
    rig.cut(1);
    rig.put(2, Fake::new(NQN, 2));
    rig.fake(2).spaces = [(1, Space::new(0x11, 4096))].into();
    rig.connect_ok(2, |_| ());
    let head = rig.head("nvme0n1").unwrap();
    assert_eq!(head.blocks, 4096);
    assert!(head.paths[1].ready, "{:?}", rig.events);
    assert_eq!(rig.event_count("capacity change from 1048576 to 2097152 bytes"), 1);
}

#[test]
fn a_size_that_flips_between_two_paths_does_not_go_round_for_ever() {
    let mut rig = Rig::connected_twice(1);
    size_that_flips(&mut rig, |blocks| blocks + 1);
    rig.raise(1, NAMESPACES_CHANGED);
    assert!(rig.fake(1).count(|c| c.is_identify(2)) < 10);
    let mut rig = Rig::connected_twice(1);
    size_that_flips(&mut rig, |blocks| blocks - 1);
    rig.raise(1, NAMESPACES_CHANGED);
    rig.raise(1, NAMESPACES_CHANGED);
    assert!(rig.fake(1).count(|c| c.is_identify(2)) < 10);
    assert_eq!(rig.head("nvme0n1").unwrap().blocks, 2048);
}

/// Another size at every look.
fn size_that_flips(rig: &mut Rig, next: fn(u64) -> u64) {
    let mut blocks = 1000;
    rig.fake(1).hook = Some(Box::new(move |c| {
        if !c.is_identify(0) {
            return None;
        }
        blocks = next(blocks);
        let mut data = vec![0; 4096];
        for at in [0, 8, 16] {
            data[at..at + 8].copy_from_slice(&u64::to_le_bytes(blocks));
        }
        data[30] = 1;
        data[92] = 1;
        data[130] = 9;
        Some(Say::Data(data))
    }));
}

#[test]
fn limits_are_the_strictest_over_the_paths() {
    let mut rig = Rig::connected(1);
    let limits = rig.head("nvme0n1").unwrap().limits;
    assert_eq!(limits.max_transfer_bytes, 1 << 20);
    assert!(limits.volatile_write_cache && !limits.compare && !limits.read_only);
    assert_eq!((limits.max_write_zeroes_blocks, limits.max_discard_blocks), (65536, u32::MAX));

    let mut fake = Fake::new(NQN, 2);
    fake.mdts = 5;
    fake.oncs = 1 << 3;
    fake.vwc = 0;
    rig.put(2, fake);
    rig.connect_ok(2, |_| ());
    let limits = rig.head("nvme0n1").unwrap().limits;
    assert_eq!(limits.max_transfer_bytes, 128 << 10);
    assert_eq!(limits.max_write_zeroes_blocks, 256, "without WZSL as much as MDTS");
    assert_eq!(limits.max_discard_blocks, 0);
    assert!(limits.volatile_write_cache, "some path has one");

    // One that makes no zeroes is not asked to.
    let mut fake = Fake::new(NQN, 3);
    fake.oncs = 1 << 2;
    rig.put(3, fake);
    let third = rig.connect_ok(3, |_| ());
    assert_eq!(rig.head("nvme0n1").unwrap().limits.max_write_zeroes_blocks, 0);
    rig.verb(Verb::Disconnect(Selection::Controller(third)));
    rig.advance_s(1);

    // They stay while the controller is away, and go with it.
    rig.fake(2).refuse = true;
    rig.cut(2);
    assert_eq!(rig.head("nvme0n1").unwrap().limits, limits);
    rig.advance_s(700);
    assert_eq!(rig.head("nvme0n1").unwrap().limits.max_transfer_bytes, 1 << 20);
}

/// Nobody has to connect again for that, nor when it ends.
#[test]
fn a_namespace_that_becomes_write_protected_is_a_device_that_cannot_be_written() {
    let mut rig = Rig::connected_twice(1);
    for protected in [true, false] {
        for port in [1, 2] {
            let before = rig.head("nvme0n1").unwrap().limits.read_only;
            assert_eq!(before, !protected, "not before every path says so, and while one does not");
            rig.fake(port).spaces.get_mut(&1).unwrap().write_protected = protected;
            rig.raise(port, NAMESPACES_CHANGED);
            if !protected {
                break;
            }
        }
        assert_eq!(rig.head("nvme0n1").unwrap().limits.read_only, protected);
    }
}

#[test]
fn how_much_is_in_use_is_as_of_the_last_scan() {
    let mut rig = Rig::connected(1);
    rig.fake(1).spaces.get_mut(&1).unwrap().used = 7;
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(rig.get("nvme0n1", "nuse"), Ok("7".to_string()));
    assert_eq!(rig.snapshot().subsystems[0].heads[0].used_blocks, 7);
}

#[test]
fn blocks_that_are_as_long_as_a_transfer_may_be_are_sent_one_by_one() {
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    rig.fake(1).mdts = 4;
    rig.fake(1).vwc = 0;
    rig.fake(1).spaces.get_mut(&1).unwrap().lbads = 16;
    rig.connect_ok(1, |_| ());
    let limits = rig.head("nvme0n1").unwrap().limits;
    assert_eq!((limits.max_transfer_bytes, limits.volatile_write_cache), (65536, false));
}

#[test]
fn limits_of_the_nvm_command_set_are_taken() {
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    rig.fake(1).hook = Some(Box::new(|c| {
        let mut data = vec![0; 4096];
        (data[1], data[4]) = (3, 200);
        c.is_identify(6).then_some(Say::Data(data))
    }));
    rig.connect_ok(1, |_| ());
    let limits = rig.head("nvme0n1").unwrap().limits;
    assert_eq!(limits.max_write_zeroes_blocks, 64, "WZSL 3: 32 KiB");
    assert_eq!(limits.max_discard_blocks, 200, "DMRSL");
    // One block is more than it makes at once.
    rig.fake(1).hook = Some(Box::new(|c| {
        let mut data = vec![0; 4096];
        data[1] = 3;
        c.is_identify(6).then_some(Say::Data(data))
    }));
    rig.fake(1).spaces.get_mut(&1).unwrap().lbads = 16;
    rig.cut(1);
    rig.advance_s(11);
    assert_eq!(rig.heads()[0].limits.max_write_zeroes_blocks, 0);
    rig.fake(1).spaces.get_mut(&1).unwrap().lbads = 9;
    // A controller that comes back without them has none.
    rig.fake(1).hook = Some(Box::new(|c| c.is_identify(6).then_some(Say::Status(0x002))));
    rig.cut(1);
    rig.advance_s(11);
    let limits = rig.head("nvme0n1").unwrap().limits;
    assert_eq!((limits.max_write_zeroes_blocks, limits.max_discard_blocks), (65536, u32::MAX));
}

/// A command has one range, so both limits are limits of it.
#[test]
fn a_deallocation_keeps_to_what_one_command_may_cover() {
    for (dmrsl, dmsl, blocks) in [(200_u32, 100_u64, 100), (0, 100, 100), (200, 1 << 40, 200)] {
        let mut rig = Rig::new(1);
        rig.put(1, Fake::new(NQN, 1));
        rig.fake(1).hook = Some(Box::new(move |c| {
            let mut data = vec![0; 4096];
            data[4..8].copy_from_slice(&dmrsl.to_le_bytes());
            data[8..16].copy_from_slice(&dmsl.to_le_bytes());
            c.is_identify(6).then_some(Say::Data(data))
        }));
        rig.connect_ok(1, |_| ());
        let limits = rig.head("nvme0n1").unwrap().limits;
        assert_eq!(limits.max_discard_blocks, blocks, "DMRSL {dmrsl}, DMSL {dmsl}");
    }
}
