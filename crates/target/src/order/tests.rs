use super::*;
use crate::rng::Rng;
use alloc::collections::BTreeMap;
use alloc::vec;

fn range(file: u32, start: u64, len: u64, writes: bool) -> Range {
    Range { file: FileId(file), start, end: start + len, writes }
}

fn ready(order: &mut Order) -> Vec<u32> {
    core::iter::from_fn(|| order.poll_ready()).collect()
}

#[test]
fn only_what_overlaps_a_write_waits() {
    let mut order = Order::default();
    assert!(order.enter(0, range(1, 0, 4096, false)));
    assert!(order.enter(1, range(1, 0, 4096, false)), "reads go side by side");
    assert!(order.enter(2, range(2, 0, 4096, true)), "another file");
    assert!(order.enter(3, range(1, 4096, 512, true)), "the next block");
    assert!(!order.enter(4, range(1, 3584, 1024, true)), "two reads and a write in the way");
    for (over, turn) in [(1, vec![]), (3, vec![]), (2, vec![]), (0, vec![4])] {
        order.leave(over);
        assert_eq!(ready(&mut order), turn, "after {over}");
    }
    let mut order = Order::default();
    assert!(order.enter(0, range(1, 8192, 4096, true)));
    assert!(order.enter(1, range(1, 4096, 4096, true)), "the blocks just before");
    assert!(order.enter(2, range(1, 4 << 20, 4 << 20, true)));
    assert!(order.enter(3, range(2, 4 << 20, 4 << 20, true)), "many blocks of another file");
    assert!(order.enter(5, range(2, 0, 4 << 20, true)), "many blocks just before");
}

#[test]
fn nobody_overtakes_one_that_waits() {
    let mut order = Order::default();
    assert!(order.enter(0, range(1, 0, 512, false)));
    assert!(!order.enter(1, range(1, 0, 1 << 20, true)), "a large write behind a small read");
    for place in 2..10 {
        let read = range(1, u64::from(place) << 12, 512, false);
        assert!(!order.enter(place, read), "small reads that came after it");
    }
    order.leave(0);
    assert_eq!(ready(&mut order), [1]);
    order.leave(1);
    assert_eq!(ready(&mut order), (2..10).collect::<Vec<_>>());
}

/// Whatever comes and ends in whatever order: an operation runs exactly when none that came before
/// it, and is still here, is in its way.
#[test]
fn who_runs_is_who_nobody_is_in_the_way_of() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        // Few blocks, or many; some files have long operations.
        let space = [16, 512, 1 << 16][seed as usize % 3];
        let mut order = Order::default();
        let mut here: BTreeMap<u32, (u64, Range, bool)> = BTreeMap::new();
        for number in 0..2000 {
            if here.len() < 40 && rng.below(100) < 55 {
                let place = (0..).find(|place| !here.contains_key(place)).unwrap();
                let len = match rng.below(8) {
                    0 => 1 + rng.below(space),
                    1 => 1 + rng.below(space.min(2048)),
                    _ => 1 + rng.below(8),
                };
                let start = rng.below(space) * 512;
                let range = range(rng.below(2) as u32, start, len * 512, rng.below(3) == 0);
                let runs = order.enter(place, range);
                here.insert(place, (number, range, runs));
            } else {
                let running: Vec<u32> =
                    here.iter().filter(|(_, (.., runs))| *runs).map(|(place, _)| *place).collect();
                if running.is_empty() {
                    assert!(here.is_empty(), "seed {seed}: all wait for each other");
                    continue;
                }
                let over = running[rng.below(running.len() as u64) as usize];
                here.remove(&over);
                order.leave(over);
                for turn in ready(&mut order) {
                    let runs = &mut here.get_mut(&turn).unwrap().2;
                    assert!(!core::mem::replace(runs, true), "seed {seed}: {turn} began twice");
                }
            }
            for (number, range, runs) in here.values() {
                let in_the_way = |(other, theirs, _): &(u64, Range, bool)| {
                    other < number && theirs.collides(range)
                };
                assert_eq!(*runs, !here.values().any(in_the_way), "seed {seed}: {range:?}");
            }
        }
    }
}

/// Else an operation could wait for itself.
#[test]
fn the_stripes_of_one_operation_share_no_line() {
    let places = u64::MAX / LINES as u64 + 1;
    for apart in 1..=LONG {
        let distance = apart.wrapping_mul(ODD);
        assert!(distance.min(distance.wrapping_neg()) > places, "{apart} stripes apart");
    }
}

/// More than anybody looks at in one go: some wait for one that is not in their way, but nobody
/// runs too early, and none is forgotten.
#[test]
fn thousands_in_one_place_begin_in_order_and_all_begin() {
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let mut order = Order::default();
        let mut here: BTreeMap<u32, Range> = BTreeMap::new();
        let (mut running, mut waiting) = (Vec::new(), 0);
        for place in 0..3000 {
            let long = rng.below(20) == 0;
            let (start, len) = if long { (0, 4 << 20) } else { (rng.below(128) * 512, 512) };
            // Few or many write.
            let range = range(1, start, len, rng.below(100) < [1, 10, 60][seed as usize % 3]);
            match order.enter(place, range) {
                true => running.push(place),
                false => waiting += 1,
            }
            here.insert(place, range);
        }
        assert!(waiting > 1000, "seed {seed}: {waiting}");
        while !running.is_empty() {
            let over = running.swap_remove(rng.below(running.len() as u64) as usize);
            here.remove(&over);
            order.leave(over);
            for turn in ready(&mut order) {
                let early = here.range(..turn).find(|(_, other)| other.collides(&here[&turn]));
                assert_eq!(early, None, "seed {seed}: {turn}");
                running.push(turn);
            }
        }
        assert!(here.is_empty(), "seed {seed}: {} wait for each other", here.len());
    }
}

#[test]
fn places_and_notes_are_used_again() {
    let mut order = Order::default();
    for round in 0..1000_u64 {
        for place in 0..16 {
            order.enter(place, range(1, (round * 16 + u64::from(place)) << 17, 1 << 17, true));
        }
        (0..16).for_each(|place| order.leave(place));
    }
    assert_eq!((order.members.len(), order.notes.len()), (16, 16 * 3));
    assert_eq!(order.writers, 0);
    assert!(order.lines.iter().all(|newest| *newest == NONE));
}
