//! Submitting and waiting: one `io_uring_enter` per turn of the loop.

use super::{Kind, Uring};
use crate::driver::{Driver, Sleeper, WaitError};
use anabranch_proto::machine::{CloseHow, Time};
use io_uring::EnterFlags;
use io_uring::types::{SubmitArgs, Timespec};
use std::io;
use std::time::Duration;

/// The kernel adds the current time to a limit: a limit near the end of time would overflow there
/// and end at once.
const LONGEST_SLEEP: Duration = Duration::from_secs(24 * 3600);

/// Whether an error of `io_uring_enter` only says "not now".
pub(super) fn passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN | libc::ENOMEM)
    )
}

impl Uring {
    /// Events are at hand: nothing to sleep for.
    fn ready(&mut self, sleeper: &dyn Sleeper) -> bool {
        !self.events.is_empty() || sleeper.is_pending() || !self.ring.completion().is_empty()
    }

    /// Whether the kernel has work that it does only when entered.
    fn must_enter(&mut self) -> bool {
        let queue = self.ring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    pub(super) fn wait_for_events(
        &mut self,
        deadline: Option<Time>,
        spin: Duration,
        sleeper: &dyn Sleeper,
    ) -> Result<(), WaitError> {
        self.arm_wake();
        if self.listeners.retry_at().is_some() {
            self.retry_accepts();
        }
        if self.disk.retry_at().is_some() {
            self.retry_disk(crate::now());
        }
        if self.watches.retry_at().is_some() {
            self.retry_watches(crate::now());
        }
        let retry_at = [self.listeners.retry_at(), self.disk.retry_at(), self.watches.retry_at()];
        let deadline = retry_at.into_iter().chain([deadline]).flatten().min();
        if !spin.is_zero() && !self.ready(sleeper) {
            self.spin(spin, deadline, sleeper)?;
        }
        if self.ready(sleeper) {
            if self.must_enter() {
                self.enter()?;
            }
        } else {
            let left = deadline.map(|at| at.since(crate::now()).min(LONGEST_SLEEP));
            if left != Some(Duration::ZERO) && sleeper.may_sleep() {
                self.counters.sleeps.add(1);
                let slept = self.sleep(left);
                sleeper.awake();
                slept?;
            } else if self.must_enter() {
                self.enter()?;
            }
        }
        self.unseen = self.ring.completion().len();
        match self.failed.take() {
            Some(error) => Err(WaitError(error)),
            None => Ok(()),
        }
    }

    /// Watches for events without sleeping.
    fn spin(
        &mut self,
        spin: Duration,
        deadline: Option<Time>,
        sleeper: &dyn Sleeper,
    ) -> Result<(), WaitError> {
        let start = crate::now();
        let end = start.after(spin);
        let end = deadline.map_or(end, |at| at.min(end));
        if self.must_enter() {
            self.enter()?;
        }
        loop {
            if self.ready(sleeper) {
                return Ok(());
            }
            if self.must_enter() {
                self.enter()?;
                continue;
            }
            if crate::now() >= end {
                return Ok(());
            }
            std::hint::spin_loop();
        }
    }

    /// Submits, and has the kernel do what it does only when entered.
    fn enter(&mut self) -> Result<(), WaitError> {
        self.entered(|it| it.ring.submit())
    }

    /// Submits, and waits for an event.
    fn sleep(&mut self, limit: Option<Duration>) -> Result<(), WaitError> {
        let mut flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        // Waiting for peers and mail is no waiting for disks: counted as that, all idle workers
        // would make their machine look as if its disks were too slow.
        if self.disk.is_idle() && self.ring.params().is_feature_no_iowait() {
            flags |= EnterFlags::NO_IOWAIT;
        }
        let time = limit.map(|it| Timespec::new().sec(it.as_secs()).nsec(it.subsec_nanos()));
        let args = time.as_ref().map_or(SubmitArgs::new(), |it| SubmitArgs::new().timespec(it));
        self.entered(|it| {
            let queued = it.ring.submission().len() as u32;
            // SAFETY: `args` is what EXT_ARG announces, of the size of its type; it and the time
            // that it names outlive the call. What is queued was queued by `push`, which says why
            // that is sound.
            unsafe { it.ring.submitter().enter(queued, 1, flags.bits(), Some(&args)) }
        })
    }

    fn entered(
        &mut self,
        how: impl FnOnce(&mut Uring) -> io::Result<usize>,
    ) -> Result<(), WaitError> {
        self.counters.system_calls.add(1);
        self.counters.enters.add(1);
        match how(self) {
            Ok(_) => Ok(()),
            Err(error) if passing(&error) => Ok(()),
            Err(error) => Err(WaitError(error)),
        }
    }

    /// Resets all connections and removes all listeners, then waits until the kernel has nothing of
    /// this worker any more, at most until `deadline`.
    pub(super) fn end_everything(&mut self, deadline: Time, sleeper: &dyn Sleeper) -> usize {
        for listener in self.listeners.ids() {
            self.stop_listener(listener);
        }
        for conn in self.conns.ids() {
            self.start_close(conn, CloseHow::Abort);
        }
        self.ending = true;
        if self.wake_armed {
            self.push_cancel(self.wake, Kind::CancelWake, 0);
        }
        while self.in_flight > 0 && crate::now() < deadline {
            if self.wait_for_events(Some(deadline), Duration::ZERO, sleeper).is_err() {
                break;
            }
            while let Some(event) = self.next_event() {
                if let crate::driver::Event::Received { bytes, .. } = event {
                    self.buffers.provide(bytes.buffer);
                }
            }
        }
        self.in_flight
    }
}
