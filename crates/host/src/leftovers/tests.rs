//! Places are taken and given back by several workers at once.

extern crate std;

use super::*;

fn blocks(first: u64, count: u64) -> Range<u64> {
    first..first + count
}

#[test]
fn what_changes_other_blocks_is_not_touched() {
    let leftovers = Leftovers::default();
    leftovers.begin(&(8..16));
    leftovers.begin(&(u64::MAX - 9..u64::MAX));
    for (first, count, touched) in [(0, 8, false), (0, 9, true), (15, 1, true), (16, 4, false)] {
        assert_eq!(leftovers.touch(&blocks(first, count)), touched, "{first}+{count}");
    }
    assert!(leftovers.touch(&(0..u64::MAX)));
    leftovers.end(&(8..16));
    assert!(!leftovers.touch(&(8..16)) && leftovers.any());
    leftovers.end(&(u64::MAX - 9..u64::MAX));
    assert!(!leftovers.any() && !leftovers.touch(&(0..u64::MAX)));
}

#[test]
fn heads_have_their_own() {
    let places = Places::default();
    let [a, b] = [1, 2].map(|head| Leftovers::new(HeadId(head), places.clone()));
    a.begin(&(0..8));
    b.begin(&(8..16));
    assert!(a.touch(&(0..8)) && !a.touch(&(8..16)) && !b.touch(&(0..8)));
    b.end(&(8..16));
    assert!(a.any() && !b.any());
}

#[test]
fn who_leaves_waits_for_those_alone_who_are_gone() {
    let leftovers = Leftovers::default();
    leftovers.begin_leaving(&(0..8));
    leftovers.begin(&(16..24));
    assert!(leftovers.touch(&(0..1)) && !leftovers.gone_touch(&(0..16)));
    assert!(leftovers.gone_touch(&(23..24)));
    leftovers.begin(&(0..8));
    leftovers.end_leaving(&(0..8));
    assert!(leftovers.gone_touch(&(0..1)), "the other one is still there");
    // Those without a place, too.
    (2..PLACES as u64).for_each(|_| leftovers.begin_leaving(&(32..40)));
    leftovers.begin_leaving(&(32..40));
    assert!(leftovers.touch(&(64..65)) && !leftovers.gone_touch(&(64..65)));
    leftovers.begin(&(40..48));
    assert!(leftovers.gone_touch(&(64..65)));
    leftovers.end(&(40..48));
    assert!(!leftovers.gone_touch(&(64..65)));
}

#[test]
fn what_has_no_place_may_be_anywhere() {
    let leftovers = Leftovers::default();
    let many = PLACES as u64 + 2;
    // Two of each, so that it does not matter whose place is given back.
    (0..many).for_each(|at| leftovers.begin(&blocks(at / 2, 1)));
    assert!(leftovers.touch(&blocks(1 << 40, 1)));
    (0..many).rev().for_each(|at| leftovers.end(&blocks(at / 2, 1)));
    assert!(!leftovers.any());
    leftovers.begin(&(3..4));
    assert!(!leftovers.touch(&blocks(1 << 40, 1)), "places are free again");
}

/// Each thread sees what it has begun until it ends it, whatever the others do.
#[test]
fn workers_begin_and_end_at_the_same_time() {
    let leftovers = Leftovers::default();
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let leftovers = &leftovers;
            scope.spawn(move || {
                for round in 0..20_000_u64 {
                    // Blocks of its own, and some that all of them have.
                    let mine = blocks(1000 * (worker + 1) + round % 7, 1);
                    let common = blocks(round % 3, 1);
                    leftovers.begin(&mine);
                    leftovers.begin(&common);
                    assert!(leftovers.touch(&mine) && leftovers.touch(&common));
                    leftovers.end(&common);
                    assert!(leftovers.touch(&mine));
                    leftovers.end(&mine);
                }
            });
        }
    });
    assert!(!leftovers.any());
    assert_eq!(leftovers.unlisted.load(Ordering::Relaxed), 0);
    assert!(leftovers.places.0.iter().all(|it| it.state.load(Ordering::Relaxed) % STEP == 0));
}
