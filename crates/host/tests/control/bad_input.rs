//! Bad input at connect, table-driven: Identify Controller (C60), namespace lists and identifiers
//! (C62, C63), Connect responses (C64), statuses (C67).

use crate::fake::{Command, Fake, Say, Space};
use crate::rig::{ANA_CHANGED, NAMESPACES_CHANGED, NQN, Rig};
use anabranch_host::mail::ToControl;
use anabranch_host::topology::{Association, ControllerId, ControllerState, HeadView};
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::status::Status;
use std::time::Duration;

const LIVE: Option<ControllerState> = Some(ControllerState::Live);

type Patch = fn(&mut Vec<u8>);

fn with_identify(patch: Patch) -> Rig {
    let mut rig = Rig::new(1);
    let mut fake = Fake::new(NQN, 1);
    fake.patch_identify = Some(Box::new(patch));
    rig.put(1, fake);
    rig
}

#[test]
fn c60_an_identify_that_cannot_be_used_is_refused_with_its_field() {
    let cases: [(Patch, &str); 14] = [
        (|d| d[78] = 9, "controller id"),
        (|d| d[78..80].fill(0xff), "CNTLID"),
        (|d| d[320..322].fill(0), "KAS"),
        (|d| d[540..544].fill(0), "MNAN"),
        (|d| d[348..352].fill(0), "NANAGRPID"),
        (|d| d[1792..1796].copy_from_slice(&3_u32.to_le_bytes()), "IOCCSZ"),
        (|d| d[1800] = 4, "ICDOFF"),
        (|d| d[536..540].fill(0), "SGLS"),
        (|d| d[780] = b'X', "another subsystem"),
        (|d| d[111] = 2, "it is a discovery controller"),
        (|d| d[111] = 3, "it is an administrative controller"),
        (|d| d[512] = 0x77, "SQES: the controller has no entries of 64 bytes"),
        (|d| d[513] = 0x55, "CQES: the controller has no entries of 16 bytes"),
        (|d| d[513] = 0x32, "CQES: the controller has no entries of 16 bytes"),
    ];
    for (patch, field) in cases {
        let mut rig = with_identify(patch);
        let why = rig.connect_fails(1, |_| ());
        assert!(why.contains(field), "{field}: {why}");
        assert_eq!(rig.bufs.in_use_bytes(), 0);
    }
}

#[test]
fn c60_an_identify_that_is_only_odd_is_lived_with() {
    let cases: [(&str, Patch); 12] = [
        ("CNTRLTYPE not reported", |d| d[111] = 0),
        ("SQES and CQES not reported", |d| d[512..514].fill(0)),
        ("no greatest SQES and CQES", |d| d[512..514].copy_from_slice(&[0x06, 0x04])),
        ("wide SQES and CQES", |d| d[512..514].copy_from_slice(&[0x76, 0x54])),
        ("MDTS 255", |d| d[77] = 255),
        ("NN all ones", |d| d[516..520].fill(0xff)),
        ("text that is no ASCII", |d| d[4..72].fill(0xfe)),
        ("MAXCMD 1", |d| d[514] = 1),
        ("ANATT 0", |d| d[342] = 0),
        ("IOCCSZ all ones", |d| d[1792..1796].fill(0xff)),
        ("no SUBNQN", |d| d[768..1024].fill(0)),
        ("CRDT all ones", |d| d[128..134].fill(0xff)),
    ];
    for (what, patch) in cases {
        let mut rig = with_identify(patch);
        assert_eq!(rig.connect_ok(1, |_| ()), "nvme0", "{what}");
        let most = if what == "MAXCMD 1" { 1 } else { 127 };
        assert_eq!(rig.opened[0].queue_size, most, "{what}");
    }
    // The host has no more in flight than the controller takes.
    let mut rig = with_identify(|d| d[514] = 16);
    rig.connect_ok(1, |_| ());
    assert_eq!(rig.opened[0].queue_size, 15);
}

/// By the time it is looked at it is gone. That is nothing to tell.
#[test]
fn a_namespace_that_is_listed_and_is_not_active_is_left_out() {
    let mut rig = Rig::connected(1);
    rig.fake(1).hook = Some(Box::new(|c| {
        let list = [1_u32, 5].map(u32::to_le_bytes).concat();
        match () {
            () if c.is_identify(2) => Some(Say::Data(list)),
            () if c.is_identify(3) && c.nsid == 5 => Some(Say::Data(Vec::new())),
            () => None,
        }
    }));
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!((rig.heads().len(), rig.event_count("ignoring nsid")), (1, 0), "{:?}", rig.events);
    assert!(rig.path("nvme0n1", 0).unwrap().ready);
}

/// So many times, a second apart, and then a new connection may help.
#[test]
fn a_list_that_cannot_be_read_is_tried_five_times() {
    let mut rig = Rig::connected(1);
    let lists = rig.fake(1).count(|c| c.is_identify(2));
    rig.fake(1).hook = Some(Box::new(|c| c.is_identify(2).then_some(Say::Status(0x006))));
    rig.raise(1, NAMESPACES_CHANGED);
    rig.advance(Duration::from_millis(3_500));
    assert_eq!(rig.state(0), Some(ControllerState::Live));
    rig.advance_s(1);
    assert_eq!(rig.state(0), Some(ControllerState::Connecting));
    assert_eq!(rig.fake(1).count(|c| c.is_identify(2)) - lists, 5);
}

#[test]
fn c60_a_namespace_that_cannot_be_used_is_left_out() {
    let cases: [(&str, u64, u8, bool); 6] = [
        ("LBADS 0", 2048, 0, false),
        ("LBADS 8", 2048, 8, false),
        ("LBADS 31", 2048, 31, false),
        ("LBADS 255", 2048, 255, false),
        ("NSZE 0", 0, 9, false),
        ("NSZE all ones", u64::MAX, 9, false),
    ];
    for (what, blocks, lbads, appears) in cases {
        let mut rig = Rig::new(1);
        let mut fake = Fake::new(NQN, 1);
        fake.spaces.insert(2, crate::fake::Space { lbads, ..crate::fake::Space::new(2, blocks) });
        rig.put(1, fake);
        rig.connect_ok(1, |_| ());
        assert_eq!(rig.heads().len(), 1 + usize::from(appears), "{what}");
    }
}

/// A controller that has such namespaces and often changes others fills no log.
#[test]
fn a_namespace_that_cannot_be_used_is_told_once_and_again_when_that_changes() {
    let mut rig = Rig::connected(1);
    let odd = |lbads| crate::fake::Space { lbads, ..crate::fake::Space::new(2, 64) };
    let changes = [(Some(8), 1), (Some(8), 1), (Some(31), 2), (None, 2), (Some(31), 3)];
    for (lbads, told) in changes {
        rig.fake(1).spaces.remove(&2);
        if let Some(lbads) = lbads {
            rig.fake(1).spaces.insert(2, odd(lbads));
        }
        rig.raise(1, NAMESPACES_CHANGED);
        assert_eq!(rig.event_count("ignoring nsid 2"), told, "{lbads:?}: {:?}", rig.events);
        assert_eq!(rig.heads().len(), 1);
    }
}

#[test]
fn c62_a_namespace_list_that_makes_no_sense_changes_nothing() {
    let cases: [(&str, Vec<u32>); 4] = [
        ("unsorted", vec![3, 2]),
        ("twice", vec![1, 1]),
        ("all ones", vec![u32::MAX; 1024]),
        ("never ends", (1..=1024).collect()),
    ];
    for (what, list) in cases {
        let mut rig = Rig::connected(1);
        let data: Vec<u8> = list.iter().flat_map(|nsid| nsid.to_le_bytes()).collect();
        rig.fake(1).hook =
            Some(Box::new(move |c| c.is_identify(2).then(|| Say::Data(data.clone()))));
        rig.raise(1, NAMESPACES_CHANGED);
        assert_eq!(rig.heads().len(), 1, "{what}");
        assert_eq!(rig.state(0), Some(ControllerState::Live), "{what}");
        assert_eq!(rig.event_count("namespace scan"), 1, "{what}: {:?}", rig.events);
        rig.fake(1).hook = None;
        rig.fake(1).spaces.insert(2, crate::fake::Space::new(2, 64));
        rig.advance_s(2);
        assert_eq!(rig.heads().len(), 2, "{what}: it heals");
    }
}

/// An error tells nothing about a namespace. It fails the scan, which begins again; five in a row
/// would be too many.
#[test]
fn errors_while_namespaces_are_read_take_nothing_away() {
    for cns in [2, 3, 0] {
        let mut rig = Rig::connected_twice(1);
        let fail = |rig: &mut Rig| {
            rig.fake(1).hook =
                Some(Box::new(move |c| c.is_identify(cns).then_some(Say::Status(0x006))));
        };
        let ready = |rig: &Rig| rig.path("nvme0n1", 0).map(|path| path.ready);
        for round in 1..=2 {
            fail(&mut rig);
            rig.raise(1, NAMESPACES_CHANGED);
            rig.advance(Duration::from_millis(2_500));
            assert_eq!(rig.event_count("nvme0: namespace scan: "), 3 * round, "CNS {cns}");
            assert_eq!(ready(&rig), Some(true));
            rig.fake(1).hook = None;
            rig.advance_s(1);
        }
        assert_eq!(rig.controller(0).unwrap().association.0, 1, "not five in a row");
        fail(&mut rig);
        rig.cut(1);
        rig.advance(Duration::from_millis(10_500));
        assert_eq!(ready(&rig), Some(false), "there is such a path, nobody has looked at it yet");
        rig.fake(1).hook = None;
        rig.advance_s(1);
        assert_eq!(ready(&rig), Some(true));
        assert_eq!((rig.heads().len(), rig.event_count("ignoring nsid")), (1, 0));
    }
}

/// A volume that is broken behind a controller costs nobody the others.
#[test]
fn a_namespace_that_can_never_be_read_takes_nothing_else_away() {
    let ready =
        |rig: &Rig| ["nvme0n1", "nvme0n2"].map(|name| rig.path(name, 0).map(|path| path.ready));
    // Internal Error and Invalid Field, the same with "do not retry", Namespace Not Ready: how
    // often it is looked at in 4.5 s, and in 60 s more. What may pass is tried five times, once a
    // second; then it is so after 1, 2, 4, 8 s, and each 10.
    const DNR: u16 = 1 << 14;
    let for_good = [0x006 | DNR, 0x002 | DNR].map(|status| (status, 3, 6));
    let may_pass = [0x006, 0x002, 0x082].map(|status| (status, 5, 8));
    for (status, tries, later) in may_pass.into_iter().chain(for_good) {
        for cns in [3, 0] {
            let mut rig = Rig::connected_twice(1);
            for port in [1, 2] {
                rig.fake(port).spaces.insert(2, Space::new(0x22, 2048));
                rig.raise(port, NAMESPACES_CHANGED);
            }
            assert_eq!(ready(&rig), [Some(true); 2]);
            let breaks = |rig: &mut Rig| {
                rig.fake(1).hook = Some(Box::new(move |c| {
                    (c.is_identify(cns) && c.nsid == 2).then_some(Say::Status(status))
                }));
            };
            let lists = |rig: &Rig| rig.fake(1).count(|c| c.is_identify(2));
            for lost in [false, true] {
                breaks(&mut rig);
                let before = lists(&rig);
                if lost {
                    rig.cut(1);
                    rig.advance_s(10);
                } else {
                    rig.raise(1, NAMESPACES_CHANGED);
                }
                rig.advance(Duration::from_millis(4_500));
                assert_eq!(ready(&rig), [Some(true), Some(false)], "{:#?}", rig.events);
                assert_eq!(lists(&rig) - before, tries);
                rig.advance_s(60);
                assert_eq!(lists(&rig) - before, tries + later);
                assert_eq!(rig.state(0), LIVE);
                rig.fake(1).hook = None;
                rig.advance_s(11);
                assert_eq!(ready(&rig), [Some(true); 2]);
                let after = lists(&rig);
                rig.advance_s(60);
                assert_eq!(lists(&rig), after, "all is well");
            }
            assert_eq!((rig.fake(1).connections, rig.heads().len()), (2, 2));
            let told = "nvme0: ignoring nsid 2: it cannot be read: ";
            assert_eq!(rig.event_count(told), 2, "{:#?}", rig.events);
            assert_eq!(rig.event_count("path nvme0c0n2 removed"), 0);
        }
    }
}

/// It is left out until it can be read, and nobody has to say when that is so.
#[test]
fn a_namespace_that_is_new_and_cannot_be_read_is_looked_at_again() {
    const DNR: u16 = 1 << 14;
    let ready =
        |rig: &Rig| ["nvme0n1", "nvme0n2"].map(|name| rig.path(name, 0).map(|path| path.ready));
    for (cns, status) in [(0, 0x082), (3, 0x082), (3, 0x002), (3, 0x006 | DNR), (3, 0x002 | DNR)] {
        let mut rig = Rig::connected(1);
        rig.fake(1).spaces.insert(2, Space::new(0x22, 2048));
        rig.fake(1).hook = Some(Box::new(move |c| {
            (c.is_identify(cns) && c.nsid == 2).then_some(Say::Status(status))
        }));
        rig.raise(1, NAMESPACES_CHANGED);
        rig.advance_s(30);
        assert_eq!(ready(&rig), [Some(true), None]);
        assert!(rig.event_count("ignoring nsid 2") <= 1, "{:?}", rig.events);
        rig.fake(1).hook = None;
        rig.advance_s(11);
        assert_eq!(ready(&rig), [Some(true); 2], "{cns} {status:#x}: {:?}", rig.events);
    }
}

/// CRD names one of CRDT1 to 3. It may be 109 minutes: not so long.
#[test]
fn what_cannot_be_read_is_looked_at_again_when_the_controller_asks_for_it() {
    for (tenths, seconds) in [(35, [0.0, 3.5, 7.0]), (u16::MAX, [0.0, 10.0, 20.0])] {
        let mut fake = Fake::new(NQN, 1);
        fake.patch_identify =
            Some(Box::new(move |data| data[130..132].copy_from_slice(&tenths.to_le_bytes())));
        let mut rig = Rig::new(1);
        rig.put(1, fake);
        rig.connect_ok(1, |_| ());
        // A new one: Namespace Not Ready, CRDT2.
        rig.fake(1).spaces.insert(2, Space::new(0x22, 2048));
        rig.fake(1).hook = Some(Box::new(|c| {
            (c.is_identify(0) && c.nsid == 2).then_some(Say::Status(0x082 | 2 << 11))
        }));
        let lists = |rig: &Rig| rig.fake(1).count(|c| c.is_identify(2));
        let (begin, before) = (rig.now, lists(&rig));
        rig.raise(1, NAMESPACES_CHANGED);
        for (nth, at) in seconds.into_iter().enumerate() {
            let at = begin.after(Duration::from_secs_f64(at));
            rig.advance(at.since(rig.now).saturating_sub(Duration::from_millis(10)));
            assert_eq!(lists(&rig) - before, nth.max(1), "{tenths}: not earlier");
            rig.advance(Duration::from_millis(20));
            assert_eq!(lists(&rig) - before, nth + 1, "{tenths}");
        }
    }
}

/// Who asks for a long pause with one namespace has no such with the others.
#[test]
fn a_namespace_that_is_not_ready_for_long_keeps_no_other_one_waiting() {
    let mut fake = Fake::new(NQN, 1);
    fake.patch_identify = Some(Box::new(|data| data[128] = 100));
    fake.spaces.extend((2..=20).map(|nsid: u32| (nsid, Space::new(0x20 + nsid as u8, 2048))));
    // Namespace Not Ready, CRDT1: ten seconds.
    let not_ready =
        |c: &Command| (c.is_identify(0) && c.nsid == 1).then_some(Say::Status(0x082 | 1 << 11));
    fake.hook = Some(Box::new(not_ready));
    let mut rig = Rig::new(1);
    rig.put(1, fake);
    rig.connect_ok(1, |_| ());
    let ready = |rig: &Rig| {
        let paths = |head: &HeadView| head.paths.iter().filter(|path| path.ready).count();
        rig.heads().iter().map(|head| paths(head)).sum::<usize>()
    };
    assert_eq!(ready(&rig), 19);
    rig.fake(1).hook = None;
    rig.advance_s(11);
    assert_eq!(ready(&rig), 20);
    rig.fake(1).hook = Some(Box::new(not_ready));
    rig.cut(1);
    rig.advance(Duration::from_millis(10_100));
    assert_eq!(ready(&rig), 19);
}

/// It is in use, nothing says that it has changed, and its controller is busy for a moment: the
/// other paths may be, too.
#[test]
fn what_is_in_use_stays_so_while_its_controller_asks_to_wait_with_a_look_at_it() {
    for (mends, named) in [(true, false), (false, false), (true, true)] {
        let mut fake = Fake::new(NQN, 1);
        fake.patch_identify = Some(Box::new(|data| data[128] = 50));
        let mut rig = Rig::new(1);
        rig.put(1, fake);
        rig.connect_ok(1, |_| ());
        let ready = |rig: &Rig| rig.path("nvme0n1", 0).map(|path| path.ready);
        // Namespace Not Ready, CRDT1: five seconds.
        rig.fake(1).hook = Some(Box::new(move |c| match c {
            c if c.is_identify(0) => Some(Say::Status(0x082 | 1 << 11)),
            c if c.is_log(4) && named => Some(Say::Data(vec![1, 0, 0, 0])),
            _ => None,
        }));
        rig.raise(1, NAMESPACES_CHANGED);
        rig.advance(Duration::from_millis(3_500));
        assert_eq!(ready(&rig), Some(!named), "what is named as changed is not used unread");
        if mends {
            rig.fake(1).hook = None;
        }
        rig.advance_s(1);
        assert_eq!(ready(&rig), Some(mends), "it was asked five times");
        rig.fake(1).hook = None;
        rig.advance_s(11);
        assert_eq!(ready(&rig), Some(true));
    }
}

/// A command has found it to be none.
#[test]
fn what_a_command_has_doubted_is_not_used_before_it_was_read() {
    let mut fake = Fake::new(NQN, 1);
    fake.patch_identify = Some(Box::new(|data| data[128] = 50));
    let mut rig = Rig::new(1);
    rig.put(1, fake);
    rig.connect_ok(1, |_| ());
    rig.advance_s(2);
    rig.fake(1).hook = Some(Box::new(|c| c.is_identify(0).then_some(Say::Status(0x082 | 1 << 11))));
    let head = rig.head("nvme0n1").unwrap().id;
    let (controller, association) = (ControllerId(0), Association(1));
    rig.post(WorkerId(1), ToControl::NamespaceSuspect { controller, association, head });
    rig.run();
    let ready = |rig: &Rig| rig.path("nvme0n1", 0).map(|path| path.ready);
    for _ in 0..12 {
        assert_eq!(ready(&rig), Some(false));
        rig.advance_s(1);
    }
    rig.fake(1).hook = None;
    rig.advance_s(11);
    assert_eq!(ready(&rig), Some(true));
}

/// The end of a scan has the ANA log read where a namespace says that it is in another group than
/// the log has it in, and each log says something else: that does not begin the next scan at once.
#[test]
fn what_cannot_be_read_does_not_make_a_host_scan_without_end() {
    let mut fake = Fake::new(NQN, 1);
    fake.spaces.insert(2, Space::new(0x22, 2048));
    let mut flips = false;
    fake.hook = Some(Box::new(move |c: &Command| {
        if c.is_identify(0) && c.nsid == 2 {
            return Some(Say::Status(0x006 | 1 << 14));
        }
        c.is_log(0x0c).then(|| {
            flips = !flips;
            // Group 1 has nothing, and group 2 namespace 1.
            let group = |id: u8, members: u8, state: u8| {
                let mut group = [0; 32];
                (group[0], group[4], group[16]) = (id, members, state);
                group
            };
            let mut log = vec![0; 16];
            log[8] = 2;
            log.extend(group(1, 0, 1));
            log.extend(group(2, 1, 1 + u8::from(flips)));
            log.extend(1_u32.to_le_bytes());
            Say::Data(log)
        })
    }));
    let mut rig = Rig::new(1);
    rig.put(1, fake);
    rig.connect_ok(1, |_| ());
    rig.advance_s(30);
    rig.fake(1).raise(NAMESPACES_CHANGED);
    rig.deliver(1);
    let head = rig.head("nvme0n1").unwrap().id;
    let status = Status::ANA_INACCESSIBLE;
    let (controller, association) = (ControllerId(0), Association(1));
    rig.post(WorkerId(1), ToControl::AnaError { controller, association, head, status });
    rig.run();
    let lists = |rig: &Rig| rig.fake(1).count(|c| c.is_identify(2));
    let before = lists(&rig);
    rig.advance_s(60);
    assert!((6..=62).contains(&(lists(&rig) - before)), "{}", lists(&rig) - before);
}

/// As of a gateway that has what is behind it again. Not more often than once a second.
#[test]
fn what_could_not_be_read_is_looked_at_again_when_its_ana_state_changes() {
    let mut rig = Rig::connected(1);
    rig.fake(1).hook = Some(Box::new(|c| c.is_identify(0).then_some(Say::Status(0x006))));
    rig.raise(1, NAMESPACES_CHANGED);
    rig.advance_s(60);
    let ready = |rig: &Rig| rig.path("nvme0n1", 0).map(|path| path.ready);
    let lists = |rig: &Rig| rig.fake(1).count(|c| c.is_identify(2));
    assert_eq!(ready(&rig), Some(false));
    let before = lists(&rig);
    for state in [2, 1, 2, 1, 2, 1, 2] {
        rig.fake(1).ana = Some([(1, state)].into());
        rig.raise(1, ANA_CHANGED);
        rig.advance(Duration::from_millis(100));
    }
    rig.advance_s(2);
    assert!((2..=3).contains(&(lists(&rig) - before)), "{}", lists(&rig) - before);
    rig.fake(1).hook = None;
    rig.fake(1).ana = Some([(1, 1)].into());
    rig.raise(1, ANA_CHANGED);
    rig.advance_s(1);
    assert_eq!(ready(&rig), Some(true));
    // All is well: nothing is looked at.
    let after = lists(&rig);
    rig.fake(1).ana = Some([(1, 2)].into());
    rig.raise(1, ANA_CHANGED);
    rig.advance_s(30);
    assert_eq!(lists(&rig), after);
}

/// As of a gateway that has lost what is behind it.
#[test]
fn a_controller_of_which_no_namespace_can_be_read_is_kept_for_however_long() {
    for status in [0x006, 0x082] {
        let mut rig = Rig::connected(1);
        rig.fake(1).hook = Some(Box::new(move |c| c.is_identify(0).then_some(Say::Status(status))));
        rig.cut(1);
        rig.advance_s(3_600);
        let out = Some(false);
        assert_eq!((rig.state(0), rig.fake(1).connections), (LIVE, 2), "{:#?}", rig.events);
        assert_eq!(rig.path("nvme0n1", 0).map(|path| path.ready), out);
        rig.fake(1).hook = None;
        rig.advance_s(11);
        assert_eq!(rig.path("nvme0n1", 0).map(|path| path.ready), Some(true));
        // And while it is live.
        rig.fake(1).hook = Some(Box::new(move |c| c.is_identify(0).then_some(Say::Status(status))));
        rig.raise(1, NAMESPACES_CHANGED);
        rig.advance_s(3_600);
        assert_eq!((rig.state(0), rig.fake(1).connections), (LIVE, 2), "{:#?}", rig.events);
        assert_eq!(rig.path("nvme0n1", 0).map(|path| path.ready), out);
    }
}

#[test]
fn a_namespace_that_goes_while_it_is_read_does_not_keep_the_others_waiting() {
    for cns in [3, 0] {
        let mut rig = Rig::connected(1);
        rig.fake(1).spaces.extend([2, 3].map(|nsid| (nsid, Space::new(nsid as u8, 2048))));
        rig.fake(1).hook = Some(Box::new(move |c| {
            (c.is_identify(cns) && c.nsid == 2).then_some(Say::Status(0x00b))
        }));
        rig.raise(1, NAMESPACES_CHANGED);
        assert_eq!((rig.heads().len(), rig.event_count("namespace scan")), (2, 0), "CNS {cns}");
    }
}

#[test]
fn c63_identifiers_that_make_no_sense_are_no_basis_for_a_path() {
    let cases: [(&str, Vec<u8>); 4] = [
        ("length 0", vec![3, 0, 0, 0]),
        ("length beyond the type", vec![3, 17, 0, 0]),
        ("two UUIDs", [&[3, 16, 0, 0][..], &[1; 16], &[3, 16, 0, 0], &[2; 16]].concat()),
        ("another command set", [&[3, 16, 0, 0][..], &[1; 16], &[4, 1, 0, 0, 2]].concat()),
    ];
    for (what, data) in cases {
        let mut rig = Rig::connected(1);
        rig.fake(1).hook =
            Some(Box::new(move |c| c.is_identify(3).then(|| Say::Data(data.clone()))));
        rig.raise(1, NAMESPACES_CHANGED);
        assert_eq!(rig.heads().len(), 0, "{what}: not the device that it was");
        assert_eq!(rig.event_count("ignoring nsid 1"), 1, "{what}");
    }
}

#[test]
fn c64_a_controller_that_wants_authentication_is_refused() {
    for bit in [1_u64 << 16, 1 << 17, 1 << 18] {
        let mut rig = Rig::new(1);
        rig.put(1, Fake::new(NQN, 1));
        rig.fake(1).hook = Some(Box::new(move |c| c.is_connect().then_some(Say::Result(1 | bit))));
        let why = rig.connect_fails(1, |_| ());
        assert!(why.contains("requires authentication"), "{why}");
    }
}

#[test]
fn c64_two_live_controllers_with_one_number_are_refused() {
    let mut rig = Rig::connected(1);
    rig.put(2, Fake::new(NQN, 1));
    let why = rig.connect_fails(2, |_| ());
    assert!(why.contains("duplicate controller id 1 with nvme0"), "{why}");
    assert_eq!(rig.state(0), Some(ControllerState::Live));
}

/// Neither is live when the other one asks.
#[test]
fn c64_two_controllers_with_one_number_that_connect_at_once_are_refused() {
    const SET_FEATURES: u8 = 0x09;
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    rig.put(2, Fake::new(NQN, 1));
    rig.fake(1).hook = Some(Box::new(|c| (c.opcode == SET_FEATURES).then_some(Say::Nothing)));
    let first = rig.connect(1, |request| request.keep_trying = true);
    assert_eq!(rig.state(0), Some(ControllerState::Connecting));
    let why = rig.connect_fails(2, |_| ());
    assert!(why.contains("duplicate controller id 1 with nvme0"), "{why}");
    assert!(rig.reply(first).is_some());

    // An attempt that has failed is nobody's number.
    rig.fake(1).hook = Some(Box::new(|c| c.is_connect().then_some(Say::Nothing)));
    rig.cut(1);
    rig.connect_ok(2, |_| ());
}

/// The second answer comes in with the first: what is told is that, not that the next step finds
/// no connection.
#[test]
fn an_answer_that_comes_twice_is_named_at_every_step() {
    type Step = fn(&crate::fake::Command) -> Option<u64>;
    let steps: [Step; 3] = [
        |command| command.is_connect().then_some(1),
        |command| command.is_property_get(0).then_some(1023 | 1 << 16 | 2 << 24 | 1 << 37),
        |command| command.is_property_set().then_some(0),
    ];
    for step in steps {
        let mut rig = Rig::new(1);
        rig.put(1, Fake::new(NQN, 1));
        rig.fake(1).hook = Some(Box::new(move |command| step(command).map(Say::Twice)));
        let why = rig.connect_fails(1, |_| ());
        assert!(why.contains("CapsuleResp CID"), "{why}");
    }
}

#[test]
fn a_refused_connect_says_what_was_wrong() {
    for (status, result, why) in [
        (0x182, 256 | 1 << 16, "no such subsystem"),
        (0x182, 512 | 1 << 16, "host NQN"),
        (0x184, 0, "this host is not allowed"),
        (0x016, 0, "data travel in the capsule"),
    ] {
        let mut rig = Rig::new(1);
        rig.put(1, Fake::new(NQN, 1));
        rig.fake(1).hook = Some(Box::new(move |c| {
            c.is_connect().then_some(Say::Refusal(status | 1 << 14, result))
        }));
        let told = rig.connect_fails(1, |_| ());
        assert!(told.contains(why), "{told}");
    }
}

#[test]
fn c67_odd_statuses_never_pass_for_success() {
    for status in [0x7ff, 0x400, 0x302 | 1 << 14, 0x7f, 0x006 | 3 << 11] {
        let mut rig = Rig::new(1);
        rig.put(1, Fake::new(NQN, 1));
        rig.fake(1).hook = Some(Box::new(move |c| c.is_connect().then_some(Say::Status(status))));
        let why = rig.connect_fails(1, |_| ());
        assert!(why.contains("Connect: "), "{why}");
    }
}

#[test]
fn a_controller_that_reports_a_fatal_state_or_never_gets_ready_is_given_up() {
    for (csts, why) in [(2, "CFS"), (0, "not ready within CAP.TO")] {
        let mut rig = Rig::new(1);
        rig.put(1, Fake::new(NQN, 1));
        rig.fake(1).hook =
            Some(Box::new(move |c| c.is_property_get(0x1c).then_some(Say::Result(csts))));
        let told = rig.connect_fails(1, |_| ());
        assert!(told.contains(why), "{told}");
    }
}

#[test]
fn p21_a_host_without_buffers_fails_the_attempt_and_recovers() {
    let mut rig = Rig::connected(1);
    rig.bufs = anabranch_proto::testing::MemoryBuffers::with_limit(0);
    rig.cut(1);
    rig.advance_s(11);
    assert_eq!(rig.state(0), Some(ControllerState::Connecting));
    rig.bufs = anabranch_proto::testing::MemoryBuffers::new();
    rig.advance_s(10);
    assert_eq!(rig.state(0), Some(ControllerState::Live));
}

#[test]
fn p21_a_host_without_buffers_reads_the_namespaces_when_it_has_some() {
    let mut rig = Rig::connected(1);
    rig.fake(1).spaces.insert(2, Space::new(0x22, 4096));
    rig.bufs = anabranch_proto::testing::MemoryBuffers::with_limit(0);
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!((rig.heads().len(), rig.event_count("namespace scan: no buffer")), (1, 1));
    rig.bufs = anabranch_proto::testing::MemoryBuffers::new();
    rig.advance_s(1);
    assert_eq!(rig.heads().len(), 2);
    assert_eq!(rig.fake(1).count(|command| command.is_log(4)), 1, "the event is cleared");
    assert_eq!(rig.controller(0).unwrap().association.0, 1);
}
