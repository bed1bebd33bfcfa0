//! Submitting and waiting: one `io_uring_enter` per turn of the loop.

use super::{Kind, Uring};
use crate::driver::{Driver, Sleeper, WaitError};
use anabranch_proto::machine::{CloseHow, Time};
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
        let retry_at = [self.listeners.retry_at(), self.disk.retry_at()];
        let deadline = retry_at.into_iter().chain([deadline]).flatten().min();
        if !spin.is_zero() && !self.ready(sleeper) {
            self.spin(spin, deadline, sleeper)?;
        }
        if self.ready(sleeper) {
            if self.must_enter() {
                self.enter(0, None)?;
            }
        } else {
            let left = deadline.map(|at| at.since(crate::now()).min(LONGEST_SLEEP));
            if left != Some(Duration::ZERO) && sleeper.may_sleep() {
                self.counters.sleeps.add(1);
                let slept = self.enter(1, left);
                sleeper.awake();
                slept?;
            } else if self.must_enter() {
                self.enter(0, None)?;
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
            self.enter(0, None)?;
        }
        loop {
            if self.ready(sleeper) {
                return Ok(());
            }
            if self.must_enter() {
                self.enter(0, None)?;
                continue;
            }
            if crate::now() >= end {
                return Ok(());
            }
            std::hint::spin_loop();
        }
    }

    fn enter(&mut self, want: usize, limit: Option<Duration>) -> Result<(), WaitError> {
        self.counters.system_calls.add(1);
        self.counters.enters.add(1);
        let entered = match limit {
            Some(limit) if want > 0 => {
                let time = Timespec::new().sec(limit.as_secs()).nsec(limit.subsec_nanos());
                let args = SubmitArgs::new().timespec(&time);
                self.ring.submitter().submit_with_args(want, &args)
            }
            _ => self.ring.submitter().submit_and_wait(want),
        };
        match entered {
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
                    self.give_back(bytes.buffer);
                }
            }
        }
        self.in_flight
    }
}
