//! Places are taken and given back by several workers at once.

extern crate std;

use super::*;
use anabranch_proto::machine::BufRef;

fn write(lba: u64, blocks: u32) -> RequestOp {
    RequestOp::Write { lba, blocks, buf: BufRef::EMPTY, fua: false }
}

fn zeroes(lba: u64, blocks: u64) -> RequestOp {
    RequestOp::WriteZeroes { lba, blocks, deallocate: false, fua: false }
}

#[test]
fn only_what_changes_the_same_blocks_may_be_undone() {
    let leftovers = Leftovers::default();
    leftovers.begin(&write(8, 8));
    leftovers.begin(&RequestOp::Discard { lba: u64::MAX, blocks: 9 });
    for (lba, blocks, undone) in [(0, 8, false), (0, 9, true), (15, 1, true), (16, 4, false)] {
        assert_eq!(leftovers.may_undo(&write(lba, blocks)), undone, "{lba}+{blocks}");
    }
    assert!(leftovers.may_undo(&zeroes(0, u64::MAX)));
    assert!(!leftovers.may_undo(&RequestOp::Flush));
    let buf = BufRef::EMPTY;
    assert!(!leftovers.may_undo(&RequestOp::Read { lba: 8, blocks: 8, buf }));
    leftovers.end(&write(8, 8));
    assert!(!leftovers.may_undo(&write(8, 8)) && leftovers.any());
    leftovers.end(&RequestOp::Discard { lba: u64::MAX, blocks: 9 });
    assert!(!leftovers.any());
}

#[test]
fn what_has_no_place_may_be_anywhere() {
    let leftovers = Leftovers::default();
    let many = PLACES as u64 + 2;
    // Two of each, so that it does not matter whose place is given back.
    (0..many).for_each(|at| leftovers.begin(&write(at / 2, 1)));
    assert!(leftovers.may_undo(&write(1 << 40, 1)));
    (0..many).rev().for_each(|at| leftovers.end(&write(at / 2, 1)));
    assert!(!leftovers.any());
    leftovers.begin(&write(3, 1));
    assert!(!leftovers.may_undo(&write(1 << 40, 1)), "places are free again");
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
                    let mine = write(1000 * (worker + 1) + round % 7, 1);
                    let common = zeroes(round % 3, 1);
                    leftovers.begin(&mine);
                    leftovers.begin(&common);
                    assert!(leftovers.may_undo(&mine) && leftovers.may_undo(&common));
                    leftovers.end(&common);
                    assert!(leftovers.may_undo(&mine));
                    leftovers.end(&mine);
                }
            });
        }
    });
    assert!(!leftovers.any());
    assert_eq!(leftovers.unlisted.load(Ordering::Relaxed), 0);
    assert!(leftovers.places.iter().all(|place| place.state.load(Ordering::Relaxed) % 4 == 0));
}
