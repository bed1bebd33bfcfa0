//! A controller says that its namespaces have changed while it is being looked at.

use crate::fake::{Command, Fake, Hook, Say, Space};
use crate::rig::{NAMESPACES_CHANGED, NQN, Rig};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// The scan may have read what has changed since: its end puts nothing into use. What was not named
/// then is used at once.
#[test]
fn f13_a_change_during_the_first_scan_keeps_the_path_out_of_use_until_it_is_named() {
    let mut rig = Rig::connected_twice(1);
    for at in [1, 2] {
        rig.fake(at).spaces.insert(2, Space::new(0x22, 2048));
        rig.raise(at, NAMESPACES_CHANGED);
    }
    rig.fake(1).hook =
        Some(Box::new(|c| (c.is_identify(0) && c.nsid == 2).then_some(Say::Nothing)));
    rig.cut(1);
    rig.advance_s(11);
    let ready = |rig: &Rig| {
        ["nvme0n1", "nvme0n2"].map(|head| rig.path(head, 0).is_some_and(|path| path.ready))
    };
    let last = |rig: &mut Rig, is: &dyn Fn(&Command) -> bool| {
        rig.fake(1).seen.iter().rfind(|&c| is(c)).copied().expect("it was asked")
    };
    rig.fake(1).spaces.insert(1, Space::new(0x99, 2048));
    rig.fake(1).hook =
        Some(Box::new(|c| (c.is_log(4) || c.is_identify(2)).then_some(Say::Nothing)));
    rig.raise(1, NAMESPACES_CHANGED);
    let held = last(&mut rig, &|c| c.is_identify(0) && c.nsid == 2);
    rig.fake(1).say(&held, Say::namespace(2048));
    rig.deliver(1);
    rig.run();
    assert_eq!(ready(&rig), [false, false], "which of them has changed was not said yet");
    let held = last(&mut rig, &|c| c.is_log(4));
    let mut named = vec![0; 4096];
    named[0] = 1;
    rig.fake(1).say(&held, Say::Data(named));
    rig.deliver(1);
    rig.run();
    assert_eq!(ready(&rig), [false, true], "the other one was looked at");
    let held = last(&mut rig, &|c| c.is_identify(2));
    rig.fake(1).hook = None;
    let mut list = vec![0; 4096];
    (list[0], list[4]) = (1, 2);
    rig.fake(1).say(&held, Say::Data(list));
    rig.deliver(1);
    rig.run();
    assert_eq!(ready(&rig), [false, true]);
    assert_eq!(rig.head("nvme0n1").unwrap().paths.len(), 1, "it leads elsewhere now");
}

/// The event and the last answer of the scan come at once, and a further event before the list:
/// what the first one is about is not known any better.
#[test]
fn f13_a_change_that_comes_with_the_end_of_the_first_scan_is_waited_for() {
    let mut rig = Rig::connected_twice(1);
    let held = |c: &Command| c.is_identify(0) || c.is_log(4);
    rig.fake(1).hook = Some(Box::new(move |c| held(c).then_some(Say::Nothing)));
    rig.cut(1);
    rig.advance_s(11);
    let ready = |rig: &Rig| rig.path("nvme0n1", 0).is_some_and(|path| path.ready);
    let last = |rig: &mut Rig, is: fn(&Command) -> bool| {
        rig.fake(1).seen.iter().rfind(|&c| is(c)).copied().expect("it was asked")
    };
    let identify = last(&mut rig, |c| c.is_identify(0));
    rig.fake(1).raise(NAMESPACES_CHANGED);
    rig.fake(1).say(&identify, Say::namespace(2048));
    rig.deliver(1);
    rig.run();
    assert!(!ready(&rig), "it may be what has changed");
    rig.raise(1, NAMESPACES_CHANGED);
    assert!(!ready(&rig), "it still may");
    let log = last(&mut rig, |c| c.is_log(4));
    rig.fake(1).hook = None;
    rig.fake(1).say(&log, Say::Data(vec![0; 4096]));
    rig.deliver(1);
    rig.run();
    assert!(ready(&rig), "it is not");
}

/// The controller was lost before it has named what has changed. It looks at everything then.
#[test]
fn a_path_does_not_wait_for_news_of_a_connection_that_is_gone() {
    let mut rig = Rig::connected(1);
    rig.fake(1).hook = Some(Box::new(|c| c.is_identify(2).then_some(Say::Nothing)));
    rig.cut(1);
    rig.advance_s(11);
    rig.raise(1, NAMESPACES_CHANGED);
    rig.fake(1).hook = None;
    rig.cut(1);
    rig.advance_s(11);
    assert!(rig.path("nvme0n1", 0).unwrap().ready);
}

/// One that names all it has as changed, and has changed again during each look at it, is used all
/// the same.
#[test]
fn changes_without_end_do_not_keep_a_path_out_of_use() {
    let mut rig = Rig::connected(1);
    let hold = |c: &Command| c.is_log(4) || c.is_identify(2);
    rig.fake(1).hook = Some(Box::new(move |c| hold(c).then_some(Say::Nothing)));
    rig.cut(1);
    rig.advance_s(11);
    let answer = |rig: &mut Rig, is: fn(&Command) -> bool, say: Say| {
        let held = rig.fake(1).seen.iter().rfind(|&c| is(c)).copied().expect("it was asked");
        rig.fake(1).say(&held, say);
        rig.deliver(1);
        rig.run();
        rig.path("nvme0n1", 0).unwrap().ready
    };
    let list = || {
        let mut list = vec![0; 4096];
        list[0] = 1;
        Say::Data(list)
    };
    let used = [(); 8].map(|()| {
        rig.raise(1, NAMESPACES_CHANGED);
        let used = answer(&mut rig, |c| c.is_identify(2), list());
        answer(&mut rig, |c| c.is_log(4), Say::Status(0x002));
        used
    });
    assert_eq!(used, [false, true, true, true, true, true, true, true]);
}

/// Three namespaces through two controllers. The first is being looked at (in use, or as it has
/// come back), and Identify Namespace of the last is not answered; nor is what has changed.
fn under_a_long_look(comes_back: bool) -> Rig {
    let mut rig = Rig::connected_twice(1);
    for at in [1, 2] {
        for nsid in [2, 3] {
            rig.fake(at).spaces.insert(nsid, Space::new(nsid as u8, 2048));
        }
        rig.raise(at, NAMESPACES_CHANGED);
    }
    rig.fake(1).hook = Some(Box::new(|c| (is_slow(c) || c.is_log(4)).then_some(Say::Nothing)));
    if comes_back {
        rig.cut(1);
    } else {
        rig.set("nvme0", "rescan_controller", "1").unwrap();
    }
    rig.advance_s(11);
    assert_eq!(ready_ones(&rig), [true, true, !comes_back]);
    rig
}

fn is_slow(command: &Command) -> bool {
    command.is_identify(0) && command.nsid == 3
}

fn ready_ones(rig: &Rig) -> [bool; 3] {
    ["nvme0n1", "nvme0n2", "nvme0n3"].map(|head| rig.path(head, 0).is_some_and(|path| path.ready))
}

/// The first controller answers the last command of that kind now.
fn answer_last(rig: &mut Rig, is: fn(&Command) -> bool, say: Say) {
    let asked = rig.fake(1).seen.iter().rfind(|&c| is(c)).copied().expect("it was asked");
    rig.fake(1).say(&asked, say);
    rig.deliver(1);
    rig.advance_s(1);
}

fn names(nsids: &[u32]) -> Say {
    Say::Data(nsids.iter().copied().flat_map(u32::to_le_bytes).collect())
}

/// It is asked at once which ones have changed, however long the scan that goes on takes. What that
/// one has read of them does not count.
#[test]
fn f13_what_has_changed_is_named_while_a_long_scan_goes_on() {
    for comes_back in [false, true] {
        let mut rig = under_a_long_look(comes_back);
        rig.fake(1).spaces.insert(2, Space::new(0x99, 2048));
        rig.raise(1, NAMESPACES_CHANGED);
        assert_eq!(ready_ones(&rig), [!comes_back; 3], "what has changed was not said yet");
        // Another event comes before the answer.
        rig.raise(1, NAMESPACES_CHANGED);
        let asked = |rig: &Rig| rig.fake(1).count(|c| c.is_log(4));
        let before = asked(&rig);
        answer_last(&mut rig, |c| c.is_log(4), names(&[2]));
        let unused = [!comes_back, false, !comes_back];
        assert_eq!(ready_ones(&rig), unused, "nor all of it: {:?}", rig.events);
        assert_eq!(asked(&rig), before + 1, "what came meanwhile is asked for, too");
        answer_last(&mut rig, |c| c.is_log(4), names(&[]));
        assert_eq!(ready_ones(&rig), [true, false, !comes_back]);
        // That scan tells what there is now.
        answer_last(&mut rig, is_slow, Say::namespace(2048));
        assert_eq!(ready_ones(&rig), [true, false, true], "{:?}", rig.events);
        assert!(rig.path("nvme0n2", 0).is_none(), "it leads elsewhere now");
    }
}

/// What has changed, and is what it was, waits for its own look and for nothing else: not until it
/// is told next what the scan has seen.
#[test]
fn what_was_named_is_used_as_soon_as_it_was_looked_at() {
    let mut rig = under_a_long_look(false);
    rig.raise(1, NAMESPACES_CHANGED);
    let log = rig.fake(1).seen.iter().rfind(|c| c.is_log(4)).copied().unwrap();
    rig.fake(1).say(&log, names(&[1, 2]));
    rig.deliver(1);
    rig.run();
    assert_eq!(ready_ones(&rig), [true; 3], "{:?}", rig.events);
}

/// One that has grown stands idle no longer than the look at it takes; one that is new is found.
#[test]
fn what_has_changed_during_a_long_scan_is_looked_at_first() {
    for named in [[2, 4].as_slice(), &[u32::MAX]] {
        for comes_back in [false, true] {
            let mut rig = under_a_long_look(comes_back);
            for at in [1, 2] {
                rig.fake(at).spaces.insert(2, Space::new(2, 4096));
                rig.fake(at).spaces.insert(4, Space::new(4, 2048));
            }
            rig.raise(2, NAMESPACES_CHANGED);
            rig.raise(1, NAMESPACES_CHANGED);
            answer_last(&mut rig, |c| c.is_log(4), names(named));
            let lasts = !comes_back && named.len() == 2;
            assert_eq!(ready_ones(&rig), [true, true, lasts], "{named:?}: {:?}", rig.events);
            assert_eq!(rig.head("nvme0n2").unwrap().blocks, 4096);
            assert_eq!(rig.path("nvme0n2", 0).unwrap().blocks, 4096);
            let lists = rig.fake(1).count(|c| c.is_identify(2));
            rig.fake(1).hook = Some(Box::new(|c| c.is_identify(2).then_some(Say::Nothing)));
            answer_last(&mut rig, is_slow, Say::namespace(2048));
            if named.len() == 1 {
                // The look at it had begun before, and is done once more.
                rig.advance_s(1);
            }
            assert_eq!(ready_ones(&rig), [true; 3], "{named:?}: {:?}", rig.events);
            assert_eq!(rig.path("nvme0n4", 0).is_some(), named.len() == 2, "{:?}", rig.events);
            assert_eq!(
                rig.fake(1).count(|c| c.is_identify(2)),
                lists + 1,
                "it may have missed one"
            );
        }
    }
}

/// What was asked before it has changed may be answered with what it was.
#[test]
fn f13_a_look_that_began_before_the_change_does_not_count() {
    for comes_back in [false, true] {
        let mut rig = under_a_long_look(comes_back);
        let looks = |rig: &Rig| rig.fake(1).count(is_slow);
        let before = looks(&rig);
        rig.raise(1, NAMESPACES_CHANGED);
        answer_last(&mut rig, |c| c.is_log(4), names(&[3]));
        assert_eq!(ready_ones(&rig), [true, true, false]);
        assert_eq!(looks(&rig), before, "nothing is asked twice at a time");
        answer_last(&mut rig, is_slow, Say::namespace(2048));
        assert_eq!(ready_ones(&rig), [true, true, false], "{:?}", rig.events);
        assert_eq!(looks(&rig), before + 1);
        answer_last(&mut rig, is_slow, Say::namespace(2048));
        assert_eq!(ready_ones(&rig), [true; 3], "{:?}", rig.events);
    }
}

/// A scan ends however often it is told that something has changed.
#[test]
fn changes_without_end_do_not_keep_a_scan_from_its_end() {
    let mut rig = under_a_long_look(false);
    let asked = |rig: &Rig| rig.fake(1).count(|c| c.is_log(4));
    let mut rounds = 0;
    loop {
        while !rig.fake(1).has_event_request() {
            rig.advance_s(1);
        }
        let before = asked(&rig);
        rig.raise(1, NAMESPACES_CHANGED);
        if asked(&rig) == before {
            break;
        }
        answer_last(&mut rig, |c| c.is_log(4), names(&[1, 2, 3]));
        answer_last(&mut rig, is_slow, Say::namespace(2048));
        assert!(!ready_ones(&rig)[2]);
        rounds += 1;
        assert!(rounds < 1000, "{:?}", rig.events.last());
    }
    assert!(rounds > 100, "{rounds}: some changes are nothing special");
    let before = asked(&rig);
    answer_last(&mut rig, is_slow, Say::namespace(2048));
    assert_eq!(ready_ones(&rig), [true; 3]);
    assert_eq!(asked(&rig), before + 1, "by the next scan");
}

/// The scan that it was asked for beside has failed, and something changes before the answer: that
/// is asked for, too, or the controller would never tell of anything again.
#[test]
fn a_change_is_read_though_the_scan_has_failed_beside_which_the_former_was_asked_for() {
    let mut rig = under_a_long_look(false);
    let asked = |rig: &Rig| rig.fake(1).count(|c| c.is_log(4));
    rig.raise(1, NAMESPACES_CHANGED);
    let log = rig.fake(1).seen.iter().rfind(|c| c.is_log(4)).copied().unwrap();
    let look = rig.fake(1).seen.iter().rfind(|&c| is_slow(c)).copied().unwrap();
    rig.fake(1).say(&look, Say::Status(0x006));
    rig.deliver(1);
    rig.run();
    assert_eq!(rig.event_count("will try again"), 1);
    rig.raise(1, NAMESPACES_CHANGED);
    let before = asked(&rig);
    rig.fake(1).hook = None;
    rig.fake(1).say(&log, names(&[1]));
    rig.deliver(1);
    rig.run();
    assert_eq!(asked(&rig), before + 1);
    answer_last(&mut rig, is_slow, Say::namespace(2048));
    assert_eq!(ready_ones(&rig), [true; 3]);
}

/// What it has read last may have changed since.
#[test]
fn f13_a_scan_ends_when_it_has_been_said_what_has_changed_meanwhile() {
    for comes_back in [false, true] {
        let mut rig = under_a_long_look(comes_back);
        rig.raise(1, NAMESPACES_CHANGED);
        answer_last(&mut rig, |c| c.is_log(4), names(&[3]));
        answer_last(&mut rig, is_slow, Say::namespace(2048));
        let unheard = !comes_back;
        assert_eq!(ready_ones(&rig), [true, true, false], "it is looked at once more");
        rig.raise(1, NAMESPACES_CHANGED);
        answer_last(&mut rig, is_slow, Say::namespace(2048));
        assert_eq!(ready_ones(&rig), [unheard, unheard, false], "{:?}", rig.events);
        answer_last(&mut rig, |c| c.is_log(4), names(&[3]));
        assert_eq!(ready_ones(&rig), [true, true, false], "it had changed: {:?}", rig.events);
        answer_last(&mut rig, is_slow, Say::namespace(2048));
        assert_eq!(ready_ones(&rig), [true; 3], "{:?}", rig.events);
    }
}

/// What has changed waits for no other look, though all that may be under way at once hang.
#[test]
fn what_has_changed_is_looked_at_beside_looks_that_hang() {
    let mut rig = Rig::connected_twice(1);
    for at in [1, 2] {
        let many = (2..=12).map(|nsid| (nsid, Space::new(nsid as u8, 2048)));
        rig.fake(at).spaces.extend(many);
        rig.raise(at, NAMESPACES_CHANGED);
    }
    let hangs = |c: &Command| c.is_identify(0) && c.nsid > 2;
    rig.fake(1).hook = Some(Box::new(move |c| match c {
        c if c.is_log(4) => Some(names(&[1])),
        c => hangs(c).then_some(Say::Nothing),
    }));
    rig.set("nvme0", "rescan_controller", "1").unwrap();
    rig.advance_s(1);
    assert_eq!(rig.fake(1).count(hangs), 8 + 10, "eight of them at once");
    for at in [1, 2] {
        rig.fake(at).spaces.get_mut(&1).unwrap().blocks = 4096;
    }
    rig.raise(2, NAMESPACES_CHANGED);
    rig.raise(1, NAMESPACES_CHANGED);
    rig.advance(std::time::Duration::from_millis(200));
    assert_eq!(ready_ones(&rig), [true; 3]);
    assert_eq!(rig.head("nvme0n1").unwrap().blocks, 4096);
}

/// What is taken away while a scan goes on may be on its list: that is not odd. (SPDK answers
/// Invalid Field then, another one an error that may pass.)
#[test]
fn a_namespace_that_goes_during_a_scan_goes_in_silence() {
    for status in [0x002 | 1 << 14, 0x006] {
        let mut rig = under_a_long_look(false);
        rig.fake(1).spaces.remove(&2);
        rig.fake(1).hook = Some(Box::new(move |c| match c {
            c if c.is_log(4) => Some(names(&[2, 9])),
            c if c.is_identify(3) && [2, 9].contains(&c.nsid) => Some(Say::Status(status)),
            _ => None,
        }));
        rig.raise(1, NAMESPACES_CHANGED);
        rig.advance_s(1);
        assert_eq!(ready_ones(&rig), [true, false, true]);
        assert!(rig.path("nvme0n2", 0).is_some(), "the list will say whether it has gone");
        answer_last(&mut rig, is_slow, Say::namespace(2048));
        assert!(rig.path("nvme0n2", 0).is_none());
        assert_eq!(ready_ones(&rig), [true, false, true]);
        let odd = ["hides", "cannot be read", "will try again"].map(|text| rig.event_count(text));
        assert_eq!(odd, [0; 3], "{:?}", rig.events);
    }
}

/// One that shows others in the place of all that it had, and names those that it had, is left out
/// for what is beyond the limit.
#[test]
fn c62_a_controller_that_names_what_it_does_not_list_has_no_more_namespaces_for_it() {
    let mut rig = Rig::new(1);
    // It shows 1024 behind this one. Of the second thousand no look ends, nor a later list.
    let from = Rc::new(Cell::new(0_u32));
    let begin = Rc::clone(&from);
    let mut fake = Fake::new(NQN, 1);
    fake.hook = Some(Box::new(move |c| match c {
        c if c.is_identify(2) && begin.get() > 1024 => Some(Say::Nothing),
        c if c.is_identify(2) => {
            let all = begin.get().max(c.nsid) + 1..=begin.get() + 1024;
            Some(names(&all.collect::<Vec<u32>>()))
        }
        c if c.is_identify(3) => Some(Say::Data(uuid_descriptor(c.nsid))),
        c if c.is_identify(0) && c.nsid > 1024 && begin.get() == 1024 => Some(Say::Nothing),
        c if c.is_identify(0) => Some(Say::namespace(8)),
        c if c.is_log(4) => Some(names(&(1..=1024).collect::<Vec<u32>>())),
        _ => None,
    }));
    rig.put(1, fake);
    rig.connect_ok(1, |_| ());
    rig.advance_s(30);
    assert_eq!(rig.heads().len(), 1024);
    from.set(1024);
    rig.set("nvme0", "rescan_controller", "1").unwrap();
    rig.raise(1, NAMESPACES_CHANGED);
    from.set(1025);
    let seen = rig.fake(1).seen.clone();
    for held in seen.iter().filter(|c| c.is_identify(0) && c.nsid > 1024) {
        rig.fake(1).say(held, Say::namespace(8));
    }
    rig.deliver(1);
    rig.advance_s(30);
    assert!(rig.event_count("nvme0n1025: added") == 1, "the scan has ended");
    assert!(rig.heads().len() <= 1024, "{}", rig.heads().len());
}

/// A UUID for each NSID.
fn uuid_descriptor(nsid: u32) -> Vec<u8> {
    let mut data = vec![3, 16, 0, 0];
    data.extend([0; 12]);
    data.extend(nsid.to_be_bytes());
    data
}

/// A controller may change so often that scans have to wait. What has changed is asked all the
/// same: there may be another namespace under the NSID.
#[test]
fn what_has_changed_is_out_of_use_at_once_although_the_scan_has_to_wait() {
    let mut rig = Rig::connected_twice(1);
    rig.fake(1).spaces.insert(2, Space::new(0x22, 2048));
    rig.raise(1, NAMESPACES_CHANGED);
    let lists = |rig: &Rig| rig.fake(1).count(|c| c.is_identify(2));
    let mut blocks = 100;
    let mut before = lists(&rig);
    loop {
        blocks += 1;
        rig.fake(1).spaces.insert(5, Space::new(0x55, blocks));
        rig.raise(1, NAMESPACES_CHANGED);
        rig.advance(Duration::from_millis(20));
        let now = lists(&rig);
        if core::mem::replace(&mut before, now) == now {
            break;
        }
        assert!(blocks < 1000, "there is no pace");
    }
    rig.fake(1).hook = Some(Box::new(|c| c.is_log(4).then(|| Say::Data(vec![1, 0, 0, 0]))));
    rig.fake(1).spaces.insert(1, Space::new(0x99, 2048));
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(lists(&rig), before, "it waits");
    let ready =
        |rig: &Rig| ["nvme0n1", "nvme0n2"].map(|head| rig.path(head, 0).map(|path| path.ready));
    assert_eq!(ready(&rig), [Some(false), Some(true)], "{:?}", rig.events);
    rig.advance_s(10);
    assert_eq!(ready(&rig), [None, Some(true)], "{:?}", rig.events);
}

/// Faster than it can be looked at.
#[test]
fn what_changes_over_and_over_is_not_kept_from_all_use() {
    let mut rig = Rig::connected(1);
    rig.fake(1).hook = Some(Box::new(|c| c.is_log(4).then(|| Say::Data(vec![1, 0, 0, 0]))));
    let mut used = 0;
    for blocks in 101..701 {
        rig.fake(1).spaces.insert(5, Space::new(0x55, blocks));
        rig.raise(1, NAMESPACES_CHANGED);
        rig.advance(Duration::from_millis(100));
        used += u32::from(rig.path("nvme0n1", 0).is_some_and(|path| path.ready));
    }
    assert!(used > 240, "{used} of 600");
}

/// Answers what has changed, and the slow look as ever: not.
fn names_alone(changed: &'static [u32]) -> Option<Hook> {
    Some(Box::new(move |c| match c {
        c if c.is_log(4) => Some(names(changed)),
        c => is_slow(c).then_some(Say::Nothing),
    }))
}

/// Raises the event when the host waits for one.
fn raise_next(rig: &mut Rig) {
    while !rig.fake(1).has_event_request() {
        rig.advance(Duration::from_millis(20));
    }
    rig.raise(1, NAMESPACES_CHANGED);
}

/// It was asked too often of late, and is asked again when it may be: the look that goes on may
/// take a minute, and all that time commands would go to what is there now.
#[test]
fn what_changes_when_it_was_just_asked_too_often_is_asked_for_a_moment_later() {
    let mut rig = under_a_long_look(false);
    rig.fake(1).hook = names_alone(&[]);
    for _ in 0..12 {
        raise_next(&mut rig);
    }
    let asked = |rig: &Rig| rig.fake(1).count(|c| c.is_log(4));
    rig.fake(1).hook = names_alone(&[1]);
    rig.fake(1).spaces.insert(1, Space::new(0x99, 2048));
    while !rig.fake(1).has_event_request() {
        rig.advance(Duration::from_millis(20));
    }
    let before = asked(&rig);
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(asked(&rig), before, "not at once");
    rig.advance_s(1);
    assert_eq!(asked(&rig), before + 1);
    assert_eq!(ready_ones(&rig), [false, true, true], "{:?}", rig.events);
}

/// The next scan would have to wait, but one goes on: it is asked beside that.
#[test]
fn what_has_changed_is_asked_for_beside_a_scan_behind_which_the_next_has_to_wait() {
    let mut rig = under_a_long_look(false);
    rig.fake(1).hook = names_alone(&[5]);
    for blocks in 0..40 {
        rig.fake(1).spaces.insert(5, Space::new(0x55, 1000 + blocks));
        raise_next(&mut rig);
        rig.advance(Duration::from_millis(200));
    }
    rig.fake(1).hook = names_alone(&[1]);
    rig.fake(1).spaces.insert(1, Space::new(0x99, 2048));
    raise_next(&mut rig);
    rig.advance_s(1);
    assert_eq!(ready_ones(&rig), [false, true, true], "{:?}", rig.events);
}
