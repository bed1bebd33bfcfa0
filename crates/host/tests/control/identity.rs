//! Who is of one subsystem, when controllers under one NQN call themselves different things.

use crate::fake::{Fake, Space};
use crate::rig::{NQN, Rig};
use anabranch_host::verb::{Reply, Selection, Verb};

fn leave(rig: &mut Rig, controller: &str) {
    let id = rig.verb(Verb::Disconnect(Selection::Controller(controller.to_string())));
    rig.advance_s(1);
    assert!(matches!(rig.reply(id), Some(Reply::Disconnected(1))));
}

/// As the nodes of a cluster that each draw their own: Linux looks at the NQN alone.
#[test]
fn a_further_path_under_another_serial_number_is_of_the_same_subsystem() {
    let mut rig = Rig::connected(1);
    rig.put(2, Fake::new(NQN, 2));
    rig.fake(2).serial = "OTHER".to_string();
    rig.fake(2).model = "Other".to_string();
    rig.fake(2).spaces.insert(2, Space::new(0x22, 64));
    rig.connect_ok(2, |_| ());
    assert_eq!(rig.heads().len(), 2, "{:?}", rig.events);
    assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 2);
    assert!([0, 1].iter().all(|path| rig.path("nvme0n1", *path).unwrap().ready));
    assert_eq!(rig.head("nvme0n2").unwrap().paths.len(), 1);
    let told = "nvme1: the target calls itself another one than nvme-subsys0 was so far: serial \
                \"OTHER\" (it was \"SER1\"), model \"Other\" (it was \"Fake\"); what is the same \
                namespace";
    assert_eq!(rig.event_count(told), 1, "{:?}", rig.events);
    assert_eq!(rig.get("nvme-subsys0", "serial"), Ok("SER1".to_string()), "the first one's");

    // It stays so, also when the first one is gone and comes back.
    rig.cut(2);
    rig.advance_s(11);
    assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 2);
    leave(&mut rig, "nvme0");
    rig.connect_ok(1, |_| ());
    assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 2);
    assert_eq!(rig.heads().len(), 2);
}

/// Two targets that carry one NQN by mistake: nothing of theirs is one device by its NSID.
#[test]
fn what_differs_under_one_nqn_is_never_merged() {
    let zero = |rig: &mut Rig, port| rig.fake(port).spaces.get_mut(&1).unwrap().uuid = [0; 16];
    for (first, second) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut rig = Rig::new(1);
        for (port, none, uuid) in [(1, first, 0x11), (2, second, 0x22)] {
            rig.put(port, Fake::new(NQN, port));
            rig.fake(port).serial = format!("SER{port}");
            rig.fake(port).spaces.insert(1, Space::new(uuid, 2048));
            if none {
                zero(&mut rig, port);
            }
            rig.connect_ok(port, |_| ());
        }
        assert_eq!(rig.heads().len(), 1, "{first} {second}: {:?}", rig.events);
        let head = rig.head("nvme0n1").unwrap();
        assert_eq!(head.paths.len(), 1, "{first} {second}");
        assert_eq!(rig.event_count("nvme1: ignoring nsid 1"), 1, "{:?}", rig.events);

        // The second one's is a device of its own, under a name of its own, once there is room.
        let wwid = head.wwid.clone();
        leave(&mut rig, "nvme0");
        assert_eq!(rig.heads().len(), 1);
        let head = rig.head("nvme0n2").unwrap();
        assert_ne!(head.wwid, wwid);
        assert_eq!(head.wwid.contains("53455232-"), second, "its serial number: {}", head.wwid);
    }
}

#[test]
fn another_one_under_the_same_nqn_is_refused_where_it_cannot_be_the_same_subsystem() {
    let mut rig = Rig::connected(1);
    rig.put(2, Fake::new(NQN, 1));
    rig.fake(2).serial = "OTHER".to_string();
    let why = rig.connect_fails(2, |_| ());
    assert!(why.contains("duplicate controller id 1 with nvme0"), "{why}");
    assert!(why.contains("are these two targets with one NQN?"), "{why}");

    const CMIC: usize = 76;
    rig.put(3, Fake::new(NQN, 3));
    rig.fake(3).patch_identify = Some(Box::new(|bytes| bytes[CMIC] &= !2));
    rig.fake(3).serial = "OTHER".to_string();
    let why = rig.connect_fails(3, |_| ());
    assert!(why.contains("one controller only (CMIC), and nvme0 is in nvme-subsys0"), "{why}");
    rig.fake(3).serial = "SER1".to_string();
    rig.connect_ok(3, |_| ());
    assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 2);
}
