use super::*;
use alloc::vec::Vec;

fn known(failed: &FailedFlushes) -> u64 {
    failed.join().known
}

fn flush(failed: &FailedFlushes) {
    failed.end(failed.begin(), true);
}

#[test]
fn a_newcomer_knows_what_the_least_knew_who_has_left() {
    let failed = FailedFlushes::default();
    failed.note();
    assert_eq!(known(&failed), 1, "nobody has left");
    failed.leave(1);
    failed.leave(0);
    failed.note();
    assert_eq!(known(&failed), 0);
    failed.told(failed.join(), 2);
    assert_eq!(known(&failed), 1, "the other one has still to be told");
    failed.told(failed.join(), 2);
    assert_eq!(known(&failed), 2);
}

#[test]
fn who_is_told_settles_one_debt_at_most_and_none_of_those_that_left_later() {
    let failed = FailedFlushes::default();
    failed.leave(0);
    let early = failed.join();
    failed.leave(0);
    failed.note();
    failed.told(early, 1);
    assert_eq!(known(&failed), 0, "of the one that left later");
    failed.told(early, 1);
    assert_eq!(known(&failed), 0, "it stands in for the first alone");
    failed.told(failed.join(), 1);
    assert_eq!(known(&failed), 1);
    failed.leave(1);
    let knows = failed.join();
    failed.told(knows, 1);
    failed.note();
    assert_eq!(known(&failed), 1, "it was told of nothing new");
}

#[test]
fn who_was_not_told_of_all_that_is_owed_settles_nothing() {
    let failed = FailedFlushes::default();
    failed.note();
    let later = Standing { since: 1, ..failed.join() };
    failed.leave(0);
    failed.told(later, 2);
    assert_eq!(known(&failed), 0, "that one was not told of the first");
}

#[test]
fn when_there_are_too_many_debts_two_are_one() {
    let failed = FailedFlushes::default();
    failed.leave(0);
    (0..3).for_each(|_| failed.note());
    (1..DEBTS).for_each(|_| failed.leave(3));
    let early = failed.join();
    failed.leave(1);
    let known: Vec<u32> = failed.debts().map(|(_, debt)| debt.known).collect();
    assert_eq!(known.len(), DEBTS);
    assert_eq!(
        [0, 1, 3].map(|it| known.iter().filter(|known| **known == it).count()),
        [1, 1, DEBTS - 2]
    );
    (0..2).for_each(|_| failed.told(early, 3));
    assert_eq!(failed.join().known, 1, "it is owed to somebody who comes later");
    failed.told(failed.join(), 3);
    assert_eq!(failed.join().known, 3);
    failed.leave(0);
    failed.leave(3);
    failed.leave(3);
    assert_eq!(failed.join().known, 0, "who is owed most is left alone");
}

#[test]
fn what_a_later_flush_has_made_durable_is_owed_to_nobody() {
    let failed = FailedFlushes::default();
    failed.leave(0);
    flush(&failed);
    failed.note();
    assert_eq!(known(&failed), 1, "it knew all that there was to know");
    failed.leave(0);
    flush(&failed);
    assert_eq!(known(&failed), 0, "what had failed is not durable");
    failed.told(failed.join(), 1);

    let before = failed.begin();
    failed.leave(1);
    failed.end(before, true);
    failed.note();
    assert_eq!(known(&failed), 1, "the flush had begun before");
    failed.told(failed.join(), 2);

    failed.leave(2);
    let during = failed.begin();
    failed.note();
    failed.end(during, true);
    assert_eq!(known(&failed), 2, "one has failed meanwhile");
    failed.told(failed.join(), 3);

    failed.leave(3);
    failed.end(failed.begin(), false);
    failed.note();
    assert_eq!(known(&failed), 3, "that was no flush, or it failed");
    failed.told(failed.join(), 4);

    failed.leave(4);
    let partly = failed.begin();
    failed.pass_over();
    failed.end(partly, true);
    failed.note();
    assert_eq!(known(&failed), 4, "what one controller has may still be lost");
}

#[test]
fn nothing_is_void_while_another_flush_may_still_be_told_of_a_loss() {
    let failed = FailedFlushes::default();
    failed.leave(0);
    let fails = failed.begin();
    flush(&failed);
    failed.note();
    failed.end(fails, false);
    assert_eq!(known(&failed), 0);
}

#[test]
fn who_leaves_unheard_leaves_one_debt_more_that_is_owed_nothing_yet() {
    let failed = FailedFlushes::default();
    failed.leave(0);
    failed.note();
    let early = failed.join();
    for _ in 0..3 {
        failed.leave_unheard(&failed.join());
    }
    failed.told(early, 1);
    assert_eq!(known(&failed), 0, "it may be the one that has come and gone");
    failed.told(failed.join(), 1);
    assert_eq!(known(&failed), 1);
    let unheard = Standing { known: 0, ..early };
    failed.leave_unheard(&unheard);
    assert_eq!(known(&failed), 0, "somebody was told in its place while it was there");
}

#[test]
fn debts_are_told_apart_when_their_numbers_begin_anew() {
    let failed = FailedFlushes::default();
    failed.sequence.store(u32::MAX - 1, Ordering::Relaxed);
    failed.leave(0);
    let early = failed.join();
    (0..2).for_each(|_| failed.leave(0));
    failed.note();
    (0..2).for_each(|_| failed.told(early, 1));
    assert_eq!(failed.debts().count(), 2);
    (0..2).for_each(|_| failed.told(failed.join(), 1));
    assert_eq!(failed.debts().count(), 0);
}
