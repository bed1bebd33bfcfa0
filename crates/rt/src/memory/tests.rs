use super::pool::{GIVE_BACK_AFTER, GIVE_BACK_CHUNKS, GIVE_BACK_PAUSE};
use super::{Pool, Regions};
use anabranch_proto::machine::{BufRef, Buffers, Time};
use std::sync::Arc;

fn pool(mib: usize) -> Pool {
    Pool::new(Arc::new(Regions::new(1, mib << 20).expect("mapped")), 0)
}

/// A small generator; the seeds are fixed, so a failure repeats itself.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn random_sizes_never_overlap_and_all_comes_back() {
    for seed in 1..20u64 {
        println!("seed {seed}");
        let mut state = seed;
        let mut pool = pool(8);
        let mut held: Vec<(BufRef, u8)> = Vec::new();
        for step in 0..5000u32 {
            if next(&mut state).is_multiple_of(2) {
                let len = 1 + next(&mut state) as u32 % (1 << (next(&mut state) % 21));
                if let Some(buf) = pool.alloc(len) {
                    assert_eq!(buf.len(), len);
                    pool.bytes_mut(buf).fill(step as u8);
                    held.push((buf, step as u8));
                }
            } else if !held.is_empty() {
                let (buf, mark) = held.swap_remove(next(&mut state) as usize % held.len());
                assert!(pool.bytes(buf).iter().all(|b| *b == mark), "nobody else wrote here");
                pool.free(buf);
            }
        }
        held.drain(..).for_each(|(buf, _)| pool.free(buf));
        let all: Vec<_> = (0..8).map(|_| pool.alloc(1 << 20).expect("whole again")).collect();
        assert_eq!(pool.alloc(1), None, "bounded");
        all.into_iter().for_each(|buf| pool.free(buf));
        let small = (0..8 * 256).filter(|_| pool.alloc(4096).is_some()).count();
        assert_eq!(small, 8 * 256, "any size may use all of it");
    }
}

/// Of two full chunks of small buffers one becomes idle, and is kept as the only one with room;
/// then the other one has room as well, and comes first.
#[test]
fn an_idle_chunk_behind_another_one_serves_any_size() {
    let mut pool = pool(2);
    let held: Vec<_> = (0..2 * 256).map(|_| pool.alloc(4096).expect("room")).collect();
    held[..256].iter().for_each(|&buf| pool.free(buf));
    pool.free(held[256]);
    let whole = pool.alloc(1 << 20).expect("a chunk of which nothing is used");
    assert_eq!(pool.alloc(8192), None, "of the other one a slot is free");
    assert!(pool.alloc(4096).is_some());
    pool.free(whole);
}

#[test]
fn limits() {
    let mut pool = pool(4);
    assert_eq!(pool.alloc(0), Some(BufRef::EMPTY));
    assert_eq!(pool.bytes(BufRef::EMPTY), b"");
    pool.free(BufRef::EMPTY);
    assert_eq!(pool.alloc((1 << 20) + 1), None);
    assert_eq!(pool.max_alloc(), 1 << 20);
}

#[test]
fn a_slice_names_its_whole_buffer() {
    let mut pool = pool(4);
    let before = pool.alloc(16384).expect("a buffer");
    pool.bytes_mut(before)[5000] = 3;
    assert_eq!(pool.bytes(before.slice(5000, 1)), &[3]);
    pool.free(before.slice(8000, 10));
    let after = pool.alloc(16384).expect("a buffer");
    assert_ne!(before.generation(), after.generation());
}

#[test]
#[should_panic(expected = "outlived its buffer")]
fn a_stale_handle_is_noticed() {
    let mut pool = pool(4);
    let keeps_the_chunk = pool.alloc(4096);
    let buf = pool.alloc(4096).expect("a buffer");
    pool.free(buf);
    let _ = (pool.bytes(buf), keeps_the_chunk);
}

#[test]
#[should_panic(expected = "freed twice")]
fn freeing_twice_is_noticed() {
    let mut pool = pool(4);
    let keeps_the_chunk = pool.alloc(4096);
    let buf = pool.alloc(4096).expect("a buffer");
    pool.free(buf);
    pool.free(buf);
    let _ = keeps_the_chunk;
}

#[test]
#[should_panic(expected = "leaves its buffer")]
fn a_handle_beyond_its_buffer_is_noticed() {
    let mut pool = pool(4);
    let buf = pool.alloc(4096).expect("a buffer");
    let forged = BufRef::new(buf.region(), buf.generation(), buf.offset(), 4097);
    let _ = pool.bytes(forged);
}

#[test]
#[should_panic(expected = "freed while 1 operations still name it")]
fn freeing_what_is_lent_is_noticed() {
    let regions = Arc::new(Regions::new(1, 4 << 20).expect("mapped"));
    let mut pool = Pool::new(regions.clone(), 0);
    let buf = pool.alloc(4096).expect("a buffer");
    regions.lend(buf);
    pool.free(buf);
}

/// Buffers travel with mail: freed on another worker, they come home.
#[test]
fn freed_elsewhere_comes_home() {
    let regions = Arc::new(Regions::new(2, 4 << 20).expect("mapped"));
    let mut home = Pool::new(regions.clone(), 0);
    let mut away = Pool::new(regions, 1);
    for round in 0..50u8 {
        let all: Vec<_> = (0..1024).map(|_| home.alloc(4096).expect("all of it")).collect();
        assert_eq!(home.alloc(1), None);
        home.bytes_mut(all[7])[0] = round;
        std::thread::scope(|scope| {
            let freeing = scope.spawn(|| {
                assert_eq!(away.bytes(all[7])[0], round, "the same bytes on every worker");
                all.iter().for_each(|buf| away.free(*buf));
            });
            freeing.join().expect("freed");
        });
    }
    assert_eq!(away.alloc(4096).map(BufRef::region), Some(1), "they went home");
}

#[test]
fn what_buffers_cost_adds_up_to_the_capacity() {
    for len in [1, 512, 4096, 5000, 64 << 10, 513 << 10, 1 << 20] {
        let mut pool = pool(8);
        assert_eq!(pool.capacity(), 8 << 20);
        let mut taken = 0;
        while let Some(buf) = pool.alloc(len) {
            assert!(pool.cost(len) >= u64::from(buf.len()));
            taken += pool.cost(len);
        }
        assert_eq!(taken, pool.capacity(), "in buffers of {len}");
    }
    assert_eq!(pool(4).cost(0), 0);
}

/// Chunks of the pool that have pages: those that still hold what was written.
fn warm(pool: &mut Pool, chunks: usize) -> usize {
    let all: Vec<_> = (0..chunks).map(|_| pool.alloc(1 << 20).expect("all of it")).collect();
    let warm = all.iter().filter(|buf| pool.bytes(**buf)[77] == 7).count();
    all.into_iter().for_each(|buf| pool.free(buf));
    warm
}

fn touch(pool: &mut Pool, chunks: usize) {
    let all: Vec<_> = (0..chunks).map(|_| pool.alloc(1 << 20).expect("enough")).collect();
    all.iter().for_each(|buf| pool.bytes_mut(*buf)[77] = 7);
    all.into_iter().for_each(|buf| pool.free(buf));
}

/// After a storm of clients, say. One chunk per size stays, for the next request.
#[test]
fn memory_that_nobody_needs_goes_back_to_the_system() {
    let mut pool = pool(32);
    let mut now = Time::from_ns(1);
    assert_eq!(pool.tidy(now), None, "nothing was used yet");
    touch(&mut pool, 24);
    let first = pool.tidy(now).expect("a look");
    assert_eq!(first, now.after(GIVE_BACK_AFTER));
    now = Time::from_ns(first.ns() - 1);
    assert_eq!(pool.tidy(now), Some(first), "not yet");
    now = first;
    for _ in 0..23 / GIVE_BACK_CHUNKS {
        let next = pool.tidy(now).expect("there is more");
        assert_eq!(next, now.after(GIVE_BACK_PAUSE), "a few at a time");
        now = next;
    }
    assert_eq!(pool.tidy(now), None, "and then nobody looks any more");
    assert_eq!(warm(&mut pool, 32), 1);
}

#[test]
fn memory_that_is_used_over_and_over_stays() {
    let mut pool = pool(32);
    let mut now = Time::from_ns(1);
    touch(&mut pool, 24);
    for _ in 0..10 {
        now = pool.tidy(now).expect("a look");
        touch(&mut pool, 16);
    }
    assert_eq!(pool.tidy(now), Some(now.after(GIVE_BACK_AFTER)), "the rest has gone");
    assert_eq!(warm(&mut pool, 32), 16);
}
