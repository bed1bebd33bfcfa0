//! A worker's mailbox: bounded, many senders, one receiver that sleeps when there is nothing.
//!
//! Senders deliver in batches (one lock, at most one wake-up); the receiver takes everything with
//! one exchange of two queues, so no memory is allocated once both have grown. A full mailbox never
//! blocks a sender: what does not fit stays with the sender, who is woken when there is room.

use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Messages to one worker.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    inner: Mutex<Inner<T>>,
    /// Something is in the queue, or the receiver has been poked.
    pending: AtomicBool,
    sleeping: AtomicBool,
    wake: OwnedFd,
    capacity: usize,
}

#[derive(Debug)]
struct Inner<T> {
    queue: VecDeque<T>,
    /// Workers that found the mailbox full, one bit each.
    waiting: [u64; 4],
    closed: bool,
}

/// Whether a delivery woke a sleeping receiver (one system call).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The receiver was awake.
    Quiet,
    /// The receiver slept and was woken.
    Woke,
    /// The receiver has ended; the messages stay with the sender.
    Closed,
}

impl<T> Mailbox<T> {
    pub(crate) fn new(capacity: usize) -> io::Result<Mailbox<T>> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC)?;
        let queue = VecDeque::new();
        Ok(Mailbox {
            inner: Mutex::new(Inner { queue, waiting: [0; 4], closed: false }),
            pending: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            wake,
            capacity,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Readable when the receiver must wake up.
    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Moves messages from the front of `from` while there is room; `sender` is woken later if some
    /// stayed.
    pub(crate) fn deliver(&self, from: &mut VecDeque<T>, sender: usize) -> Delivery {
        let mut inner = self.lock();
        if inner.closed {
            return Delivery::Closed;
        }
        let room = self.capacity.saturating_sub(inner.queue.len());
        let count = room.min(from.len());
        inner.queue.extend(from.drain(..count));
        if !from.is_empty() {
            inner.waiting[sender / 64] |= 1 << (sender % 64);
        }
        drop(inner);
        if count == 0 { Delivery::Quiet } else { self.poke() }
    }

    /// Adds a message from outside the group, beside the capacity for mail (the number of such
    /// messages is bounded by the caller). Gives it back when the receiver has ended.
    pub(crate) fn post(&self, message: T) -> Result<(), T> {
        let mut inner = self.lock();
        if inner.closed {
            return Err(message);
        }
        inner.queue.push_back(message);
        drop(inner);
        self.poke();
        Ok(())
    }

    /// Makes the receiver look into its mailbox (and at whatever else it checks when awake).
    pub(crate) fn poke(&self) -> Delivery {
        self.pending.store(true, Ordering::Release);
        // Either the receiver sees `pending` before it sleeps, or we see that it sleeps.
        fence(Ordering::SeqCst);
        if !self.sleeping.load(Ordering::Relaxed) || !self.sleeping.swap(false, Ordering::AcqRel) {
            return Delivery::Quiet;
        }
        // Cannot block: the counter is read whenever it is not zero, long before 2^64.
        let written = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        debug_assert!(written.is_ok(), "an eventfd takes a wake-up");
        Delivery::Woke
    }

    /// Whether the receiver should look into its mailbox.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    /// The receiver is about to sleep. False when it must not: something came meanwhile.
    pub(crate) fn may_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.is_pending() {
            self.sleeping.store(false, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// The receiver is awake.
    pub(crate) fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// Takes all messages into the empty `into`, and calls `wake` for each worker that waits for
    /// room.
    pub(crate) fn take(&self, into: &mut VecDeque<T>, mut wake: impl FnMut(usize)) {
        debug_assert!(into.is_empty(), "messages taken before are gone");
        if !self.pending.swap(false, Ordering::AcqRel) {
            return;
        }
        let mut inner = self.lock();
        std::mem::swap(&mut inner.queue, into);
        let waiting = std::mem::take(&mut inner.waiting);
        drop(inner);
        for (word, mut bits) in waiting.into_iter().enumerate() {
            while bits != 0 {
                wake(word * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }

    /// Ends the mailbox: nothing is accepted any more; what was in it is dropped (outside the
    /// lock).
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        let left = std::mem::take(&mut inner.queue);
        drop(inner);
        drop(left);
    }
}
