//! An allocator that counts what all threads do, for tests that say how little that is.

#![allow(dead_code, reason = "each test looks at some of it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

static OPERATIONS: AtomicU64 = AtomicU64::new(0);
static TAKEN: AtomicU64 = AtomicU64::new(0);
static GIVEN_BACK: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static OWN: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    OPERATIONS.fetch_add(1, Ordering::Relaxed);
    OWN.set(OWN.get() + 1);
}

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        TAKEN.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count();
        GIVEN_BACK.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

/// Heap operations so far.
pub(crate) fn operations() -> u64 {
    OPERATIONS.load(Ordering::Relaxed)
}

/// Those of the thread that asks: what runs tests beside it allocates, too, now and then.
pub(crate) fn own_operations() -> u64 {
    OWN.get()
}

/// Bytes that were ever taken.
pub(crate) fn taken_bytes() -> u64 {
    TAKEN.load(Ordering::Relaxed)
}

/// Bytes that are held.
pub(crate) fn held_bytes() -> u64 {
    taken_bytes() - GIVEN_BACK.load(Ordering::Relaxed)
}
