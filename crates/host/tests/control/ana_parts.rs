//! ANA logs that one transfer does not carry.

use crate::ana::ana_error;
use crate::fake::{Command, Fake, Say, Space};
use crate::rig::{ANA_CHANGED, NQN, Rig};
use anabranch_host::mail::ToControl;
use anabranch_host::topology::{Association, ControllerId, ControllerState};
use anabranch_host::verb::{Reply, Verb};
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::status::Status;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

const GROUPS: u32 = 300;
const GROUPS_AT_MOST: u32 = 1024;

/// A controller that carries 8 KiB at once and whose log has 300 groups, the namespace in the last.
pub(crate) fn large(state: u8) -> Fake {
    let mut fake = Fake::new(NQN, 1);
    fake.mdts = 1;
    fake.ana = Some((1..GROUPS).map(|group| (group, 1)).chain([(GROUPS, state)]).collect());
    fake.spaces.get_mut(&1).unwrap().group = GROUPS;
    fake.patch_identify = Some(Box::new(|data| {
        data[261] = 1 << 2;
        data[344..348].copy_from_slice(&1024_u32.to_le_bytes());
        data[348..352].copy_from_slice(&1024_u32.to_le_bytes());
    }));
    fake
}

fn rig(fake: Fake) -> Rig {
    let mut rig = Rig::new(1);
    rig.put(1, fake);
    rig
}

/// Offset and length of each read of the log.
fn reads(rig: &Rig) -> Vec<(usize, u32)> {
    let fake = rig.fake(1);
    let logs = fake.seen.iter().filter(|command| command.is_log(0x0c));
    logs.map(|c| (c.log_offset(), c.length)).collect()
}

fn state(rig: &Rig) -> String {
    rig.path("nvme0n1", 0).expect("a path").ana_state.as_str().to_string()
}

const ONE_READING: [(usize, u32); 3] = [(0, 8192), (8192, 8192), (0, 8192)];

#[test]
fn m18_a_log_larger_than_mdts_is_read_in_parts() {
    let mut rig = rig(large(2));
    rig.connect_ok(1, |_| ());
    assert_eq!(reads(&rig), ONE_READING);
    assert_eq!(state(&rig), "non-optimized");
    assert_eq!(rig.event_count("ANA is not used"), 0);
    // An event, and a caller who wants it raw.
    rig.fake(1).ana.as_mut().unwrap().insert(GROUPS, 3);
    rig.fake(1).ana_changes += 1;
    rig.raise(1, ANA_CHANGED);
    assert_eq!(state(&rig), "inaccessible");
    let Reply::Raw(log) = rig.ask(Verb::AnaLog { controller: "nvme0".to_string() }) else {
        panic!("a log");
    };
    let whole = rig.fake(1).ana_log();
    assert_eq!(log[..whole.len()], whole[..]);
    assert_eq!(reads(&rig).len(), 9);
}

/// Whether each read retains the event (RAE). One that does not clears it, and what changes from
/// then on is another event: only the first part of a reading of ours may, and a caller's may not.
fn retained(rig: &Rig) -> Vec<bool> {
    let fake = rig.fake(1);
    let logs = fake.seen.iter().filter(|command| command.is_log(0x0c));
    logs.map(|c| c.cdw10 >> 15 & 1 != 0).collect()
}

#[test]
fn only_the_first_part_of_a_log_clears_the_event() {
    let mut rig = rig(large(2));
    rig.connect_ok(1, |_| ());
    assert_eq!(retained(&rig), [false, true, true]);
}

#[test]
fn a_caller_who_reads_the_log_clears_no_event() {
    for (fake, commands) in [(Fake::new(NQN, 1), 1), (large(2), 3)] {
        let mut rig = rig(fake);
        rig.connect_ok(1, |_| ());
        rig.fake(1).seen.clear();
        let read = rig.ask(Verb::AnaLog { controller: "nvme0".to_string() });
        assert!(matches!(read, Reply::Raw(_)), "{read:?}");
        assert_eq!(retained(&rig), vec![true; commands]);
    }
}

#[test]
fn m18_a_log_that_is_shorter_than_it_may_be_is_read_at_once() {
    let mut fake = large(1);
    fake.ana = Some([(GROUPS, 2)].into());
    let mut rig = rig(fake);
    rig.connect_ok(1, |_| ());
    assert_eq!(reads(&rig), [(0, 8192)], "it ends in the first part");
    assert_eq!(state(&rig), "non-optimized");
}

/// It goes straight into its buffer, as the live driver does it.
#[test]
fn m18_a_log_that_comes_piece_by_piece_is_put_together() {
    let mut fake = large(2);
    fake.mdts = 0;
    fake.ana = Some((1..GROUPS_AT_MOST).map(|group| (group, 2)).collect());
    let mut rig = rig(fake);
    rig.piece = 5000;
    rig.connect_ok(1, |_| ());
    assert_eq!(reads(&rig), [(0, 16 + 32 * GROUPS_AT_MOST + 4 * 2048)]);
    assert!(rig.received_into > 2, "{}", rig.received_into);
    assert_eq!(state(&rig), "non-optimized");
    rig.fake(1).ana.as_mut().unwrap().insert(GROUPS, 3);
    rig.raise(1, ANA_CHANGED);
    assert_eq!(state(&rig), "inaccessible");
}

/// 16 bytes, 32 for each of 64 groups and 4 for each of so many namespaces.
#[test]
fn m18_a_log_that_just_fits_one_transfer_is_read_whole_though_no_offsets_are_known() {
    for (mnan, used) in [(1532_u32, true), (1533, false)] {
        let mut fake = Fake::new(NQN, 1);
        fake.mdts = 1;
        fake.ana = Some([(1, 2)].into());
        fake.patch_identify =
            Some(Box::new(move |data| data[540..544].copy_from_slice(&mnan.to_le_bytes())));
        let mut rig = rig(fake);
        rig.connect_ok(1, |_| ());
        assert_eq!(reads(&rig).len(), usize::from(used));
        assert_eq!(state(&rig), if used { "non-optimized" } else { "optimized" });
    }
}

#[test]
fn m18_a_log_that_ends_with_a_part_is_read_no_further() {
    let mut fake = large(2);
    // 16 + 511 * 32 + 4 * 4 bytes are two parts.
    let groups = (1..511).chain([GROUPS_AT_MOST]);
    fake.ana = Some(groups.map(|group| (group, 2)).collect());
    for nsid in 1..=4 {
        let space = Space { group: GROUPS_AT_MOST, ..Space::new(nsid as u8, 2048) };
        fake.spaces.insert(nsid, space);
    }
    // Just as long as it may be.
    fake.patch_identify = Some(Box::new(|data| {
        data[261] = 1 << 2;
        data[344..348].copy_from_slice(&GROUPS_AT_MOST.to_le_bytes());
        data[348..352].copy_from_slice(&511_u32.to_le_bytes());
        data[540..544].copy_from_slice(&4_u32.to_le_bytes());
    }));
    assert_eq!(fake.ana_log().len(), 16_384);
    let mut rig = rig(fake);
    rig.connect_ok(1, |_| ());
    assert_eq!(reads(&rig), ONE_READING);
    assert_eq!(state(&rig), "non-optimized");
}

/// Each reading goes on where it is, whichever was begun first.
#[test]
fn callers_who_read_the_log_in_parts_at_the_same_time_have_it_whole() {
    let mut rig = rig(large(2));
    rig.connect_ok(1, |_| ());
    let whole = rig.fake(1).ana_log();
    rig.fake(1).hook = Some(Box::new(|c| c.is_log(0x0c).then_some(Say::Nothing)));
    rig.fake(1).seen.clear();
    let ask = |rig: &mut Rig| rig.verb(Verb::AnaLog { controller: "nvme0".to_string() });
    let answer = |rig: &mut Rig, at: usize| {
        let command = *rig.fake(1).seen.iter().filter(|c| c.is_log(0x0c)).nth(at).unwrap();
        let part = whole[command.log_offset()..].to_vec();
        rig.fake(1).say(&command, Say::Data(part));
        rig.deliver(1);
        rig.run();
    };
    let first = ask(&mut rig);
    answer(&mut rig, 0);
    let second = ask(&mut rig);
    // The later one asked twice, at once; then both check.
    for at in [2, 1, 3, 4, 5] {
        answer(&mut rig, at);
    }
    for caller in [first, second] {
        let Some(Reply::Raw(log)) = rig.reply(caller) else { panic!("a log") };
        assert_eq!(log[..whole.len()], whole[..]);
    }
}

/// The change count is 0 for ever, as with SPDK.
#[test]
fn m18_a_log_without_a_change_count_is_put_together_right() {
    let mut rig = rig(large(2));
    let (first, old) = (Rc::new(Cell::new(true)), large(1));
    let mut old = old.ana_log();
    old[16 + 16] = 3;
    rig.fake(1).hook = Some(Box::new(move |c: &Command| {
        let is_first = c.is_log(0x0c) && c.log_offset() == 0 && first.replace(false);
        is_first.then(|| Say::Data(old[..8192].to_vec()))
    }));
    rig.connect_ok(1, |_| ());
    assert_eq!(reads(&rig), [ONE_READING, ONE_READING].concat());
}

#[test]
fn m18_a_controller_that_takes_no_notice_of_offsets_is_used_without_ana() {
    let mut rig = rig(large(2));
    let log = large(2).ana_log();
    rig.fake(1).hook = Some(Box::new(move |c| c.is_log(0x0c).then(|| Say::Data(log.clone()))));
    rig.connect_ok(1, |_| ());
    assert_eq!(rig.event_count("ANA is not used"), 1, "{:?}", rig.events);
    assert_eq!(state(&rig), "optimized");
    assert_eq!(reads(&rig).len(), 3 * 3, "it is read again twice");
}

#[test]
fn m18_a_log_that_changes_while_it_is_read_in_parts_is_read_again() {
    let mut rig = rig(large(2));
    let first = Rc::new(Cell::new(true));
    // The first part and the second are of different logs.
    let old = large(1).ana_log();
    rig.fake(1).ana_changes = 7;
    rig.fake(1).hook = Some(Box::new(move |c: &Command| {
        let is_first = c.is_log(0x0c) && c.log_offset() == 0 && first.replace(false);
        is_first.then(|| Say::Data(old[..8192].to_vec()))
    }));
    rig.connect_ok(1, |_| ());
    assert_eq!(reads(&rig), [ONE_READING, ONE_READING].concat());
    assert_eq!(state(&rig), "non-optimized");
}

/// The second part begins in the middle of a group, as one that is longer has come before it.
#[test]
fn m18_parts_of_different_logs_that_do_not_fit_together_are_read_again() {
    let mut rig = rig(large(2));
    let (log, torn) = (large(2).ana_log(), Cell::new(true));
    rig.fake(1).hook = Some(Box::new(move |c| {
        let is_second = c.is_log(0x0c) && c.log_offset() > 0;
        (is_second && torn.replace(false)).then(|| {
            // NNSIDs of whatever group begins there: more than all of the log has.
            let mut part = log[c.log_offset()..].to_vec();
            part.iter_mut().take(4096).for_each(|byte| *byte = 0x7f);
            Say::Data(part)
        })
    }));
    rig.connect_ok(1, |_| ());
    assert_eq!(rig.event_count("ANA is not used"), 0, "{:?}", rig.events);
    assert_eq!(state(&rig), "non-optimized");
}

/// Each answer to a read of the log has another change count, as long as the cell says so.
fn restless(log: Vec<u8>) -> (Rc<Cell<bool>>, impl FnMut(&Command) -> Option<Say>) {
    let (on, mut changes) = (Rc::new(Cell::new(true)), 0_u64);
    let still = Rc::clone(&on);
    let hook = move |c: &Command| {
        (c.is_log(0x0c) && still.get()).then(|| {
            changes += 1;
            let mut log = log.clone();
            log[..8].copy_from_slice(&changes.to_le_bytes());
            Say::Data(log.split_off(c.log_offset()))
        })
    };
    (on, hook)
}

#[test]
fn m18_a_log_that_does_not_rest_while_it_is_read_in_parts_is_taken_as_it_comes() {
    let mut rig = rig(large(2));
    let (on, hook) = restless(large(2).ana_log());
    rig.fake(1).hook = Some(Box::new(hook));
    rig.connect_ok(1, |_| ());
    assert_eq!(reads(&rig).len(), 17 * 3, "sixteen more readings, then no more");
    assert_eq!(state(&rig), "non-optimized");
    let told = "changes faster than it is read in parts: it is taken as it came, and read again";
    assert_eq!(rig.event_count(told), 1, "{:?}", rig.events);
    // A caller has one that is whole or none.
    let Reply::Error(error) = rig.ask(Verb::AnaLog { controller: "nvme0".to_string() }) else {
        panic!("no log");
    };
    assert!(error.to_string().contains("changes faster than it is read"), "{error}");
    // What a command meets there is over with the next reading, which is no more whole.
    rig.fake(1).seen.clear();
    ana_error(&mut rig);
    rig.run();
    assert!(rig.path("nvme0n1", 0).unwrap().ana_pending);
    rig.advance_s(1);
    assert!(!rig.path("nvme0n1", 0).unwrap().ana_pending);
    // It is read less and less often: at 1 s, 2 s, 4 s and so on, up to 30 s.
    rig.fake(1).seen.clear();
    rig.advance_s(300);
    let often = reads(&rig).len();
    assert!((9 * 51..=14 * 51).contains(&often), "{often}");
    assert_eq!(rig.event_count(told), 1, "it is told once");
    // It has come to rest, with another state than it had.
    on.set(false);
    rig.fake(1).ana.as_mut().unwrap().insert(GROUPS, 3);
    rig.advance_s(31);
    assert_eq!(state(&rig), "inaccessible");
    rig.fake(1).seen.clear();
    rig.advance_s(300);
    assert!(reads(&rig).is_empty());
    assert_eq!(rig.event_count("ANA is not used"), 0);
}

/// Answers to reads of the log come when the test gives them.
fn held(rig: &Rig) -> Rc<RefCell<VecDeque<Command>>> {
    let held: Rc<RefCell<VecDeque<Command>>> = Rc::default();
    let to = Rc::clone(&held);
    rig.fake(1).hook = Some(Box::new(move |c| {
        c.is_log(0x0c).then(|| {
            to.borrow_mut().push_back(*c);
            Say::Nothing
        })
    }));
    held
}

/// It tells so, too, all the time.
#[test]
fn f21_a_path_does_not_wait_for_a_log_to_come_to_rest() {
    let mut rig = rig(large(2));
    rig.connect_ok(1, |_| ());
    let (log, held) = (large(2).ana_log(), held(&rig));
    let head = rig.head("nvme0n1").unwrap().id;
    let (controller, association) = (ControllerId(0), Association(1));
    let status = Status::ANA_TRANSITION;
    rig.post(WorkerId(1), ToControl::AnaError { controller, association, head, status });
    rig.run();
    let (mut reads, mut told) = (0_u64, 0);
    for ms in 0..60_000 {
        rig.advance(Duration::from_millis(1));
        if ms % 25 == 0 && rig.fake(1).has_event_request() {
            rig.fake(1).raise(ANA_CHANGED);
            told += 1;
        }
        let command = held.borrow_mut().pop_front();
        if let Some(c) = command {
            reads += 1;
            let mut log = log.clone();
            log[..8].copy_from_slice(&reads.to_le_bytes());
            rig.fake(1).say(&c, Say::Data(log.split_off(c.log_offset())));
        }
        rig.deliver(1);
        rig.run();
        assert!(ms < 2_000 || !rig.path("nvme0n1", 0).unwrap().ana_pending, "{ms} ms");
    }
    assert_eq!(
        (rig.state(0), state(&rig).as_str()),
        (Some(ControllerState::Live), "non-optimized")
    );
    assert!(told > 20, "{told} events");
    // Seventeen times three parts a second.
    assert!(reads < 62 * 51, "{reads} reads");
}

/// It has a minute for the log. At 1.3 s for each part that is not enough for many readings.
#[test]
fn m18_a_log_that_comes_slowly_and_does_not_rest_or_makes_no_sense_is_no_reason_to_go_down() {
    for knows_offsets in [true, false] {
        let mut rig = rig(large(2));
        let (log, held) = (large(2).ana_log(), held(&rig));
        rig.connect(1, |_| ());
        let mut changes = 0_u64;
        while rig.state(0) == Some(ControllerState::Connecting) {
            rig.advance(Duration::from_millis(1_300));
            let command = held.borrow_mut().pop_front();
            let Some(c) = command else { continue };
            changes += 1;
            let mut log = log.clone();
            let data = if knows_offsets {
                log[..8].copy_from_slice(&changes.to_le_bytes());
                log.split_off(c.log_offset())
            } else {
                log
            };
            rig.fake(1).say(&c, Say::Data(data));
            rig.deliver(1);
            rig.run();
        }
        rig.advance_s(5);
        let how = (rig.state(0), rig.event_count("ANA is not used"));
        let off = usize::from(!knows_offsets);
        assert_eq!(how, (Some(ControllerState::Live), off), "{:?}", rig.events);
        let expected = if knows_offsets { "non-optimized" } else { "optimized" };
        assert_eq!(state(&rig), expected);
    }
}

/// SPDK's change count is always 0, and what is in the first part stays as it is.
#[test]
fn m18_what_makes_no_sense_is_not_given_up_while_a_later_part_changes() {
    let mut rig = rig(large(2));
    let (log, changes) = (large(2).ana_log(), Cell::new(0_u8));
    let rests = Rc::new(Cell::new(false));
    let still = Rc::clone(&rests);
    rig.fake(1).hook = Some(Box::new(move |c| {
        (c.is_log(0x0c) && c.log_offset() > 0 && !still.get()).then(|| {
            changes.set(changes.get().wrapping_add(1));
            // Group 300 has another number each time, lower than those before it.
            let mut log = log.clone();
            let at = log.len() - 4 - 32;
            log[at..at + 4].copy_from_slice(&[1 + changes.get() % 100, 0, 0, 0]);
            Say::Data(log.split_off(c.log_offset()))
        })
    }));
    rig.connect(1, |request| request.keep_trying = true);
    assert_eq!(rig.state(0), Some(ControllerState::Connecting));
    assert_eq!(rig.event_count("ANA is not used"), 0, "{:?}", rig.events);
    rests.set(true);
    rig.advance_s(11);
    assert_eq!(rig.state(0), Some(ControllerState::Live), "{:?}", rig.events);
    assert_eq!(state(&rig), "non-optimized");
}

/// Its parts do not make a log either: the first begins a longer one each time.
#[test]
fn m18_a_log_that_does_not_rest_and_makes_no_sense_fails_the_connection_until_it_does() {
    let mut rig = rig(large(2));
    let mut log = large(2).ana_log();
    log[8..10].copy_from_slice(&(GROUPS as u16 + 1).to_le_bytes());
    let (on, hook) = restless(log.clone());
    rig.fake(1).hook = Some(Box::new(hook));
    rig.connect(1, |request| request.keep_trying = true);
    assert_eq!(rig.state(0), Some(ControllerState::Connecting));
    assert_eq!(reads(&rig).len(), 17 * 3);
    assert_eq!(rig.event_count("ANA is not used"), 0, "{:?}", rig.events);
    on.set(false);
    rig.advance_s(11);
    assert_eq!(rig.state(0), Some(ControllerState::Live), "{:?}", rig.events);
    assert_eq!(state(&rig), "non-optimized");
}

#[test]
fn m18_a_controller_that_refuses_parts_after_all_is_used_without_ana() {
    let mut rig = rig(large(2));
    rig.fake(1).hook = Some(Box::new(|c| {
        (c.is_log(0x0c) && c.log_offset() > 0).then_some(Say::Status(0x002 | 1 << 14))
    }));
    rig.connect_ok(1, |_| ());
    assert_eq!(rig.event_count("reading it in parts is refused"), 1, "{:?}", rig.events);
    assert_eq!(state(&rig), "optimized");
    assert_eq!(reads(&rig).len(), 2);
}

/// A controller that does not know a field says so without "do not retry", too; what may pass is
/// tried again.
#[test]
fn m18_what_a_refused_part_means_follows_from_its_status() {
    let mut fake = large(2);
    fake.hook =
        Some(Box::new(|c| (c.is_log(0x0c) && c.log_offset() > 0).then_some(Say::Status(0x002))));
    let mut without = rig(fake);
    without.connect_ok(1, |_| ());
    assert_eq!(without.event_count("reading it in parts is refused"), 1, "{:?}", without.events);

    let mut rig = rig(large(2));
    rig.connect_ok(1, |_| ());
    rig.fake(1).hook =
        Some(Box::new(|c| (c.is_log(0x0c) && c.log_offset() > 0).then_some(Say::Status(0x006))));
    rig.cut(1);
    rig.advance_s(11);
    assert_eq!(rig.state(0), Some(ControllerState::Connecting));
    rig.fake(1).hook = None;
    rig.advance_s(10);
    assert_eq!(rig.state(0), Some(ControllerState::Live));
    assert_eq!((state(&rig).as_str(), rig.event_count("ANA is not used")), ("non-optimized", 0));
}

#[test]
fn m14_an_error_that_comes_between_two_parts_has_the_log_read_once_more() {
    let mut rig = rig(large(1));
    rig.connect_ok(1, |_| ());
    let generation = rig.controller(0).unwrap().ana_generation;
    rig.fake(1).raise(ANA_CHANGED);
    rig.deliver(1);
    let head = rig.head("nvme0n1").unwrap().id;
    let mail = ToControl::AnaError {
        controller: ControllerId(0),
        association: Association(1),
        head,
        status: Status::ANA_INACCESSIBLE,
    };
    rig.post(WorkerId(1), mail);
    rig.run();
    assert_eq!(reads(&rig), [ONE_READING, ONE_READING, ONE_READING].concat());
    assert_eq!(rig.controller(0).unwrap().ana_generation, generation + 1, "only the second counts");
    assert!(!rig.path("nvme0n1", 0).unwrap().ana_pending);
}

#[test]
fn c61_a_log_in_parts_is_bounded_by_what_identify_says_and_by_us() {
    // A group of so many namespaces that the log has no end.
    let endless = |mut log: Vec<u8>| {
        log[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        log
    };
    let log = endless(large(1).ana_log());
    let mut rig = rig(large(1));
    let said = log.clone();
    rig.fake(1).hook =
        Some(Box::new(move |c| c.is_log(0x0c).then(|| Say::Data(said[c.log_offset()..].to_vec()))));
    rig.connect_ok(1, |_| ());
    assert_eq!(rig.event_count("ANA is not used: its log goes on for"), 1, "{:?}", rig.events);
    assert_eq!(rig.event_count("bytes, NANAGRPID and MNAN allow 40976"), 1);

    let mut fake = large(1);
    fake.patch_identify = Some(Box::new(|data| {
        data[261] = 1 << 2;
        data[344..348].copy_from_slice(&1024_u32.to_le_bytes());
        data[348..352].copy_from_slice(&1024_u32.to_le_bytes());
        data[516..520].copy_from_slice(&(u32::MAX - 1).to_le_bytes());
        data[540..544].copy_from_slice(&(u32::MAX - 1).to_le_bytes());
    }));
    fake.hook =
        Some(Box::new(move |c| c.is_log(0x0c).then(|| Say::Data(log[c.log_offset()..].to_vec()))));
    let mut rig = Rig::new(1);
    rig.put(1, fake);
    rig.connect_ok(1, |_| ());
    assert_eq!(rig.event_count("at most 8388608 are read in parts"), 1, "{:?}", rig.events);
    assert_eq!(reads(&rig).len(), 1);
}

#[test]
fn m18_a_reading_in_parts_has_one_deadline() {
    let mut rig = rig(large(1));
    rig.connect_ok(1, |_| ());
    rig.fake(1).hook =
        Some(Box::new(|c| (c.is_log(0x0c) && c.log_offset() > 0).then_some(Say::Nothing)));
    rig.raise(1, ANA_CHANGED);
    let caller = rig.verb(Verb::AnaLog { controller: "nvme0".to_string() });
    rig.advance_s(61);
    assert_ne!(rig.state(0), Some(ControllerState::Live), "it is given up");
    assert!(matches!(rig.reply(caller), Some(Reply::Error(_))), "its caller is told");
}

/// A controller with so many groups, the namespace in the last, that tells of changes as often as
/// it may.
fn talkative(groups: u32) -> Rig {
    talkative_for(groups, 10)
}

/// Each of which may take twice so many seconds to change.
fn talkative_for(groups: u32, anatt: u8) -> Rig {
    let mut fake = large(1);
    fake.mdts = 8;
    fake.ana = Some((1..=groups).map(|group| (group, 1)).collect());
    fake.spaces.get_mut(&1).unwrap().group = groups;
    fake.patch_identify = Some(Box::new(move |data| {
        data[261] = 1 << 2;
        data[342] = anatt;
        data[344..348].copy_from_slice(&groups.to_le_bytes());
        data[348..352].copy_from_slice(&groups.to_le_bytes());
    }));
    let mut rig = rig(fake);
    rig.connect_ok(1, |_| ());
    rig.advance_s(10);
    rig
}

/// Tells of changes for so many milliseconds; gives back how often the log was begun.
fn tell(rig: &mut Rig, ms: u32) -> usize {
    rig.fake(1).seen.clear();
    for _ in 0..ms / 10 {
        if rig.fake(1).has_event_request() {
            rig.raise(1, ANA_CHANGED);
        }
        rig.advance(Duration::from_millis(10));
    }
    // In parts the first one is read again after the last.
    let reads = reads(rig);
    let parts = reads.iter().filter(|(at, _)| *at > 0).count();
    let begun = reads.len() - parts;
    if parts > 0 { begun / 2 } else { begun }
}

fn is_pending(rig: &Rig) -> bool {
    rig.path("nvme0n1", 0).expect("a path").ana_pending
}

/// By the 96 KB and the 1.9 MB that it has.
#[test]
fn a_large_log_is_read_at_a_pace_whatever_its_controller_tells() {
    for (groups, pause, at_most) in [(3_000, 1_000, 15), (60_000, 2_000, 10)] {
        let mut rig = talkative(groups);
        let begun = tell(&mut rig, 10_000);
        assert!((2..=at_most).contains(&begun), "{groups} groups: {begun} readings in 10 s");
        // A change is seen when the pause is over.
        rig.fake(1).ana.as_mut().unwrap().insert(groups, 3);
        tell(&mut rig, pause);
        assert_eq!(state(&rig), "inaccessible", "{groups} groups");
        // After a rest at once, and so is what comes just after that.
        rig.advance_s(10);
        for (state_now, name) in [(15, "change"), (1, "optimized")] {
            rig.fake(1).ana.as_mut().unwrap().insert(groups, state_now);
            rig.raise(1, ANA_CHANGED);
            assert_eq!(state(&rig), name, "{groups} groups");
        }
        // A command that met an ANA status does not wait.
        rig.raise(1, ANA_CHANGED);
        ana_error(&mut rig);
        rig.run();
        assert!(!is_pending(&rig), "{groups} groups");
    }
}

/// However much was read before, the end of a transition is not missed.
#[test]
fn m15_a_transition_that_ends_in_time_is_seen_to_though_its_log_is_large() {
    let groups = 60_000;
    let mut rig = talkative_for(groups, 1);
    tell(&mut rig, 10_000);
    rig.fake(1).ana.as_mut().unwrap().insert(groups, 15);
    tell(&mut rig, 2_000);
    assert_eq!(state(&rig), "change");
    rig.fake(1).ana.as_mut().unwrap().insert(groups, 1);
    rig.raise(1, ANA_CHANGED);
    rig.advance_s(3);
    assert_eq!(rig.event_count("ANATT timeout"), 0);
    assert_eq!(state(&rig), "optimized");
}

/// Each of a hundred groups moves, and a command meets an ANA status in each.
#[test]
fn what_commands_have_met_makes_no_large_log_be_left_alone_for_long() {
    let groups = 3_000;
    let mut rig = talkative(groups);
    for _ in 0..100 {
        ana_error(&mut rig);
        rig.run();
    }
    rig.fake(1).ana.as_mut().unwrap().insert(groups, 3);
    rig.raise(1, ANA_CHANGED);
    rig.advance_s(1);
    assert_eq!(state(&rig), "inaccessible");
}

#[test]
fn an_ordinary_log_is_read_at_every_event() {
    let mut rig = talkative(1_000);
    for state_now in [2, 3, 1, 2] {
        rig.fake(1).ana.as_mut().unwrap().insert(1_000, state_now);
        rig.raise(1, ANA_CHANGED);
        let names = ["optimized", "non-optimized", "inaccessible"];
        assert_eq!(state(&rig), names[usize::from(state_now) - 1]);
    }
}

#[test]
fn c61_a_log_that_was_good_is_none_where_less_is_allowed_now() {
    let mut rig = rig(large(2));
    rig.connect_ok(1, |_| ());
    rig.fake(1).patch_identify = Some(Box::new(|data| {
        data[261] = 1 << 2;
        data[344..348].copy_from_slice(&1024_u32.to_le_bytes());
        data[348..352].copy_from_slice(&(GROUPS - 1).to_le_bytes());
        // It may be as long as before.
        for at in [516, 540] {
            data[at..at + 4].copy_from_slice(&8192_u32.to_le_bytes());
        }
    }));
    rig.cut(1);
    rig.advance_s(11);
    assert_eq!(rig.event_count("NANAGRPID"), 1, "{:?}", rig.events);
}

/// However long it takes until that is read again.
#[test]
fn m14_a_path_whose_large_log_is_contradicted_is_tried_once_a_second() {
    for groups in [1_000, 60_000] {
        let mut rig = talkative(groups);
        let mut tries = Vec::new();
        for now in (0..20_000_u32).step_by(50) {
            if !is_pending(&rig) {
                tries.push(now);
                ana_error(&mut rig);
                rig.run();
            }
            rig.advance(Duration::from_millis(50));
        }
        let late = tries.partition_point(|at| *at < 5_000);
        let pauses: Vec<u32> = tries[late..].windows(2).map(|two| two[1] - two[0]).collect();
        let once_a_second = |pause: &u32| (1_000..1_100).contains(pause);
        assert!(pauses.len() >= 12 && pauses.iter().all(once_a_second), "{groups}: {tries:?}");
    }
}
