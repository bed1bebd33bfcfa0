//! Asynchronous events.

use crate::fake::{EVENT_REQUEST, Fake, Say, Space};
use crate::rig::{ANA_CHANGED, NAMESPACES_CHANGED, NQN, Rig};
use anabranch_host::topology::ControllerState;
use anabranch_host::verb::{Verb, VerbError};
use std::time::Duration;

#[test]
fn b14_one_event_request_is_outstanding_and_armed_again_after_each_event() {
    let mut rig = Rig::connected(1);
    for round in 1..=20 {
        assert!(rig.fake(1).has_event_request());
        rig.raise(1, if round % 2 == 0 { ANA_CHANGED } else { NAMESPACES_CHANGED });
        let sent = rig.fake(1).count(|command| command.opcode == EVENT_REQUEST);
        assert_eq!(sent, round + 1);
    }
    // It has no time-out.
    rig.advance_s(3600);
    assert_eq!(rig.state(0), Some(ControllerState::Live));
    assert_eq!(rig.fake(1).connections, 1);
}

#[test]
fn b14_an_event_request_that_is_refused_is_tried_again_later() {
    let mut rig = Rig::connected(1);
    rig.fake(1).hook =
        Some(Box::new(|c| (c.opcode == EVENT_REQUEST).then_some(Say::Status(0x105))));
    rig.raise(1, ANA_CHANGED);
    rig.advance_s(60);
    let sent = rig.fake(1).count(|command| command.opcode == EVENT_REQUEST);
    assert!((5..=9).contains(&sent), "{sent}");
    rig.fake(1).hook = None;
    rig.advance_s(11);
    assert!(rig.fake(1).has_event_request());
}

#[test]
fn b14_controllers_without_events_get_no_request() {
    let mut rig = Rig::new(1);
    let mut fake = crate::fake::Fake::new(crate::rig::NQN, 1);
    fake.oaes = 0;
    rig.put(1, fake);
    rig.connect_ok(1, |_| ());
    assert!(!rig.fake(1).has_event_request());
}

#[test]
fn m16_an_ana_event_brings_new_states_without_a_reconnect() {
    let mut rig = Rig::connected_twice(1);
    rig.fake(1).ana = Some([(1, 3)].into());
    rig.raise(1, ANA_CHANGED);
    assert_eq!(rig.path("nvme0n1", 0).unwrap().ana_state.as_str(), "inaccessible");
    assert_eq!(rig.path("nvme0n1", 1).unwrap().ana_state.as_str(), "optimized");
    rig.fake(1).ana = Some([(1, 2)].into());
    rig.raise(1, ANA_CHANGED);
    assert_eq!(rig.path("nvme0n1", 0).unwrap().ana_state.as_str(), "non-optimized");
    assert_eq!(rig.fake(1).connections, 1);
    assert_eq!(rig.event_count("nvme0c0n1: ANA optimized -> inaccessible"), 1);
    assert_eq!(rig.event_count("nvme0c0n1: ANA inaccessible -> non-optimized"), 1);
    assert_eq!((rig.event_count(": ANA "), rig.event_count(": added, ")), (2, 1), "nothing else");
}

/// There is no device before a path could be used; that there is a namespace is told.
#[test]
fn a_namespace_that_nobody_may_use_yet_is_shown_without_a_device() {
    let mut rig = Rig::new(1);
    let mut fake = crate::fake::Fake::new(crate::rig::NQN, 1);
    fake.ana = Some([(1, 3)].into());
    rig.put(1, fake);
    rig.connect_ok(1, |_| ());
    let subsystem = rig.snapshot().subsystems.remove(0);
    assert!(subsystem.heads.is_empty());
    let paths: Vec<_> = subsystem.unborn.iter().flat_map(|head| &head.paths).collect();
    assert_eq!(paths.iter().map(|path| &*path.name).collect::<Vec<_>>(), ["nvme0c0n1"]);
    let Err(VerbError::Invalid(told)) = rig.get("nvme0n1", "size") else { panic!("no device") };
    assert!(told.starts_with("there is no device nvme0n1 yet: its path has not been"), "{told}");
    let told = Err(VerbError::Invalid("there is no device nvme0n2, nor any other".into()));
    assert_eq!(rig.get("nvme0n2", "size"), told);

    rig.fake(1).ana = Some([(1, 1)].into());
    rig.raise(1, ANA_CHANGED);
    let subsystem = rig.snapshot().subsystems.remove(0);
    assert_eq!((subsystem.heads.len(), subsystem.unborn.len()), (1, 0));
}

#[test]
fn a_namespace_event_is_cleared_and_leads_to_a_scan() {
    let mut rig = Rig::connected(1);
    rig.fake(1).spaces.insert(2, crate::fake::Space::new(0x22, 4096));
    let before = rig.fake(1).seen.len();
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(rig.heads().len(), 2);
    let fake = rig.fake(1);
    let after = &fake.seen[before..];
    let cleared = after.iter().position(|command| command.is_log(4));
    let listed = after.iter().position(|command| command.is_identify(2));
    assert!(cleared.is_some() && cleared < listed, "cleared first, so that no change is missed");
    drop(fake);
    rig.raise(1, ANA_CHANGED);
    assert_eq!(rig.event_count("nvme0: asynchronous event: namespace attributes changed"), 1);
    assert_eq!(
        rig.event_count("nvme0: asynchronous event: asymmetric namespace access changed"),
        1
    );
}

/// A namespace that has changed may be another one by now: what a user writes must not get there.
#[test]
fn what_a_controller_names_as_changed_is_not_used_before_it_was_looked_at() {
    let list = |nsids: &[u32]| nsids.iter().flat_map(|nsid| nsid.to_le_bytes()).collect();
    let refused = Say::Status(0x109 | 1 << 14);
    let cases = [
        (Say::Data(list(&[2, 7])), [true, false]),
        (Say::Data(list(&[])), [true, true]),
        (Say::Data(list(&[u32::MAX])), [false, false]),
        (refused, [false, false]),
    ];
    for (named, during) in cases {
        let mut rig = Rig::connected_twice(1);
        for port in [1, 2] {
            rig.fake(port).spaces.insert(2, crate::fake::Space::new(0x22, 4096));
            rig.raise(port, NAMESPACES_CHANGED);
        }
        let ready = |rig: &Rig, path| {
            ["nvme0n1", "nvme0n2"].map(|head| rig.path(head, path).is_some_and(|path| path.ready))
        };
        let said = named.clone();
        rig.fake(1).hook = Some(Box::new(move |c| match c {
            c if c.is_log(4) => Some(said.clone()),
            c => c.is_identify(2).then_some(Say::Nothing),
        }));
        rig.raise(1, NAMESPACES_CHANGED);
        assert_eq!(ready(&rig, 0), during, "{named:?}");
        assert_eq!(ready(&rig, 1), [true, true], "the other controller has said nothing");
        rig.fake(1).hook = None;
        let asked = *rig.fake(1).seen.iter().rfind(|command| command.is_identify(2)).unwrap();
        rig.fake(1).say(&asked, Say::Data(list(&[1, 2])));
        rig.deliver(1);
        rig.run();
        assert_eq!(ready(&rig, 0), [true, true], "it was looked at: {named:?}");
    }
}

/// However long the others take: nobody has said that those have changed.
#[test]
fn what_a_controller_names_as_changed_is_looked_at_first() {
    let mut rig = Rig::connected_twice(1);
    for port in [1, 2] {
        for nsid in 2..=40 {
            rig.fake(port).spaces.insert(nsid, Space::new(0x40 + nsid as u8, 4096));
        }
        rig.raise(port, NAMESPACES_CHANGED);
    }
    let seen = |rig: &Rig| {
        let path = rig.path("nvme0n30", 0).expect("a path");
        (path.ready, path.verified, path.blocks)
    };
    for (blocks, named) in [(1024, [30, 31]), (8192, [31, 30]), (2048, [30, 99])] {
        for port in [1, 2] {
            rig.fake(port).spaces.insert(30, Space::new(0x40 + 30, blocks));
        }
        rig.fake(2).hook = None;
        rig.fake(1).hook = Some(Box::new(move |c| match c.nsid {
            _ if c.is_log(4) => Some(Say::Data(named.map(u32::to_le_bytes).concat())),
            1..30 | 32..=40 if c.is_identify(0) => Some(Say::Nothing),
            _ => None,
        }));
        rig.raise(1, NAMESPACES_CHANGED);
        rig.raise(2, NAMESPACES_CHANGED);
        assert_eq!(seen(&rig), (true, true, blocks), "{named:?}");
        assert_eq!(rig.head("nvme0n30").unwrap().blocks, blocks);
        // One of them changes again before the scan has ended.
        rig.fake(1).hook = Some(Box::new(move |c| match c.nsid {
            _ if c.is_log(4) => Some(Say::Data(named.map(u32::to_le_bytes).concat())),
            1..=40 if c.is_identify(0) => Some(Say::Nothing),
            _ => None,
        }));
        rig.raise(1, NAMESPACES_CHANGED);
        assert!(!seen(&rig).0);
        // It connects again to be done with the scan.
        rig.fake(1).hook = None;
        rig.cut(1);
        rig.advance_s(11);
        assert_eq!(seen(&rig), (true, true, blocks));
    }
    // One of them is another one, or has gone: what there is now takes the whole scan.
    for space in [Some(Space::new(0x99, 4096)), None] {
        rig.fake(1).spaces.remove(&31);
        rig.fake(1).spaces.extend(space.map(|space| (31, space)));
        rig.fake(1).hook = Some(Box::new(|c| match c.nsid {
            _ if c.is_log(4) => Some(Say::Data([30, 31].map(u32::to_le_bytes).concat())),
            1..30 | 32..=40 if c.is_identify(0) => Some(Say::Nothing),
            _ => None,
        }));
        rig.raise(1, NAMESPACES_CHANGED);
        assert!(!seen(&rig).0);
        rig.fake(1).hook = None;
        rig.cut(1);
        rig.advance_s(11);
    }
}

/// A controller may see the log read, notice the next change and tell it before it has answered.
#[test]
fn a_namespace_event_that_overtakes_the_log_it_was_cleared_by_is_cleared_too() {
    let mut rig = Rig::connected(1);
    rig.fake(1).hook = Some(Box::new(|c| c.is_log(4).then_some(Say::Nothing)));
    rig.raise(1, NAMESPACES_CHANGED);
    rig.fake(1).hook = None;
    rig.raise(1, NAMESPACES_CHANGED);
    let reads = |rig: &Rig| rig.fake(1).count(|command| command.is_log(4));
    assert_eq!(reads(&rig), 2, "or there would be no third event");
    let read = *rig.fake(1).seen.iter().find(|command| command.is_log(4)).unwrap();
    rig.fake(1).say(&read, Say::Data(vec![0; 4096]));
    rig.deliver(1);
    rig.run();
    assert_eq!(reads(&rig), 2);
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(reads(&rig), 3);
}

#[test]
fn f22_events_in_a_burst_are_bounded_work_and_the_last_one_is_not_missed() {
    let mut rig = Rig::connected(1);
    let requests = |rig: &Rig| rig.fake(1).count(|command| command.opcode == EVENT_REQUEST);
    let before = requests(&rig);
    let burst = |rig: &mut Rig| {
        let mut taken = 0;
        while rig.fake(1).has_event_request() {
            rig.raise(1, if taken % 2 == 0 { ANA_CHANGED } else { NAMESPACES_CHANGED });
            taken += 1;
            assert!(taken < 1000, "who talks without end is not listened to for ever");
        }
        taken
    };
    let taken = burst(&mut rig);
    assert!(taken >= 20, "some events at once are nothing special");
    assert_eq!(rig.state(0), Some(ControllerState::Live));
    rig.advance_s(1);
    assert!(rig.fake(1).has_event_request(), "a second later the next one is welcome");
    assert_eq!(requests(&rig), before + taken);
    rig.fake(1).ana = Some([(1, 2)].into());
    rig.raise(1, ANA_CHANGED);
    assert_eq!(rig.path("nvme0n1", 0).unwrap().ana_state.as_str(), "non-optimized");
    rig.advance_s(5);
    assert_eq!(burst(&mut rig), taken, "what was long ago does not count");
}

#[test]
fn c66_events_of_unknown_kind_are_logged_once_and_the_request_is_armed_again() {
    let mut rig = Rig::connected(1);
    for _ in 0..5 {
        for unknown in [0x00_77_03, 0x0c_44_02, 0x01_00_07, 0x02_00_01, 0x00_00_05] {
            rig.raise(1, unknown);
        }
    }
    assert_eq!(rig.event_count("asynchronous event"), 5);
    // The log that each names is read, or there would be no second event of its kind.
    let reads = |page| rig.fake(1).count(|command| command.is_log(page));
    assert_eq!([0x00, 0x01, 0x02].map(reads), [10, 5, 5]);
    assert!(rig.fake(1).has_event_request());
    assert_eq!(rig.state(0), Some(ControllerState::Live));
}

#[test]
fn a_persistent_internal_error_resets_the_controller() {
    let mut rig = Rig::connected(1);
    let told = rig.fake(1).count(|command| command.is_property_set());
    rig.raise(1, 0x01_03_00);
    assert_eq!(rig.state(0), Some(ControllerState::Resetting));
    assert_eq!(rig.fake(1).count(|command| command.is_property_set()), told + 1, "SHN");
    rig.advance(Duration::from_millis(20));
    assert_eq!(rig.state(0), Some(ControllerState::Connecting));
}

#[test]
fn p15_what_happened_while_events_were_lost_is_seen_after_a_reconnect() {
    let mut rig = Rig::connected(1);
    rig.fake(1).ana = Some([(1, 2)].into());
    rig.fake(1).spaces.insert(2, crate::fake::Space::new(0x22, 4096));
    rig.cut(1);
    rig.advance_s(11);
    assert_eq!(rig.heads().len(), 2);
    assert_eq!(rig.path("nvme0n1", 0).unwrap().ana_state.as_str(), "non-optimized");
}

/// Nothing is missed, but the host and the other controllers are not kept from their work.
#[test]
fn namespaces_that_change_without_an_end_are_scanned_at_a_pace() {
    let mut rig = Rig::connected_twice(1);
    let scans = |rig: &Rig, port| rig.fake(port).count(|c| c.is_identify(2));
    let before = (scans(&rig, 1), scans(&rig, 2));
    for round in 0..200_u64 {
        // Another namespace each time: the other controller is asked whether it shows that, too.
        rig.fake(1).spaces = [(1, Space::new((round % 100 + 0x40) as u8, 2048))].into();
        rig.raise(1, NAMESPACES_CHANGED);
        rig.advance(Duration::from_millis(50));
    }
    let asked = (scans(&rig, 1) - before.0, scans(&rig, 2) - before.1);
    assert!((40..=60).contains(&asked.0) && asked.1 <= 60, "in ten seconds {asked:?}");
    rig.fake(1).spaces = [(1, Space::new(0x11, 2048))].into();
    rig.raise(1, NAMESPACES_CHANGED);
    rig.advance_s(1);
    assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 2, "the last state is heeded");
    // After a rest an event is followed at once again.
    rig.advance_s(30);
    rig.fake(1).spaces.clear();
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 1);
}

/// A look that has to wait, and whose time comes while another look goes on, waits for that one
/// without keeping the host awake.
#[test]
fn a_scan_that_is_due_while_one_goes_on_follows_it() {
    let mut rig = Rig::connected(1);
    for round in 0..40 {
        rig.fake(1).spaces = [(1, Space::new(0x40 + round, 2048))].into();
        rig.raise(1, NAMESPACES_CHANGED);
    }
    // The one after a reset does not wait.
    rig.verb(Verb::Reset { controller: "nvme0".to_owned() });
    rig.fake(1).hook = Some(Box::new(|c| c.is_identify(2).then_some(Say::Nothing)));
    rig.advance(Duration::from_millis(10));
    assert_eq!(rig.state(0), Some(ControllerState::Live));
    rig.raise(1, NAMESPACES_CHANGED);
    rig.advance_s(3);
    rig.fake(1).hook = None;
    let lists = |rig: &Rig| rig.fake(1).count(|command| command.is_identify(2));
    let asked = *rig.fake(1).seen.iter().rfind(|command| command.is_identify(2)).unwrap();
    let before = lists(&rig);
    rig.fake(1).say(&asked, Say::Data(vec![1, 0, 0, 0]));
    rig.deliver(1);
    rig.run();
    rig.advance_s(1);
    assert_eq!(lists(&rig), before + 1);
}

#[test]
fn a_controller_with_ever_new_namespaces_makes_no_endless_stream_of_devices() {
    let mut rig = Rig::connected(1);
    for round in 0..600_u32 {
        let space = |nsid: u32| {
            let mut space = Space::new(0, 2048);
            space.uuid[..8]
                .copy_from_slice(&(u64::from(round) << 32 | u64::from(nsid)).to_le_bytes());
            (nsid, space)
        };
        rig.fake(1).spaces = (1..=320).map(space).collect();
        rig.raise(1, NAMESPACES_CHANGED);
        rig.advance(Duration::from_millis(100));
    }
    let made = rig.heads().iter().map(|head| head.id.0).max().unwrap();
    assert!(made < 320 * 30, "{made} in a minute");
}

/// Each is asked again because of what the other one shows: that comes to an end, or to a pace.
#[test]
fn a_controller_that_shows_something_else_at_every_look_does_not_go_round_with_another() {
    let mut rig = Rig::new(1);
    rig.put(1, Fake::new(NQN, 1));
    let mut round = 0_u8;
    rig.fake(1).hook = Some(Box::new(move |c| {
        round = round.wrapping_add(u8::from(c.is_identify(3)));
        let mut data = vec![0; 4096];
        (data[0], data[1]) = (3, 16);
        data[4..20].fill(round | 0x80);
        c.is_identify(3).then_some(Say::Data(data))
    }));
    rig.connect_ok(1, |_| ());
    rig.put(2, Fake::new(NQN, 2));
    rig.connect_ok(2, |_| ());
    rig.advance_s(10);
    let scans = rig.fake(1).count(|c| c.is_identify(2));
    assert!(scans <= 60, "{scans} in ten seconds");
}

/// As long as it has not been read no further event comes.
#[test]
fn a_list_of_changed_namespaces_that_is_refused_for_now_is_asked_for_again() {
    const NOT_READY: u16 = 0x82;
    const INVALID_LOG_PAGE: u16 = 0x109;
    const DNR: u16 = 1 << 14;
    // One refusal, and the event is heard; none of them ever; never any list.
    for (status, times, reads) in [
        (NOT_READY, 1, 2),
        (NOT_READY, u32::MAX, 6),
        (NOT_READY | DNR, u32::MAX, 1),
        (INVALID_LOG_PAGE, u32::MAX, 1),
    ] {
        let mut rig = Rig::connected(1);
        let mut left = times;
        rig.fake(1).hook = Some(Box::new(move |c| {
            let refused = c.is_log(4) && left > 0;
            left -= u32::from(refused);
            refused.then_some(Say::Status(status))
        }));
        for event in 1..=2 {
            rig.raise(1, NAMESPACES_CHANGED);
            rig.advance_s(300);
            let read = rig.fake(1).count(|command| command.is_log(4));
            let again = if times == 1 { reads + event - 1 } else { reads * event };
            assert_eq!(read, again, "{status:#x}, {times} times, event {event}");
        }
    }
}
