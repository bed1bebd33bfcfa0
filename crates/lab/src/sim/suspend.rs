//! Host workers that do not run for a while, as when a process or its machine is suspended.

use super::net::NodeId;
use super::world::{Core, Due, World};
use anabranch_proto::machine::{Machine, Time, WorkerId};
use std::time::Duration;

impl<H: Machine, T: Machine> World<H, T> {
    /// Suspends a host worker for a stretch: what comes for it waits, and when it runs again all of
    /// its times may be over. It must be given no verb meanwhile.
    pub fn suspend(&mut self, worker: WorkerId, stretch: Duration) {
        self.asleep[usize::from(worker.0)] = self.core.now.after(stretch);
    }

    /// Until when whom this is for does not run.
    pub(super) fn sleeps(&self, due: &Due<H::Mail>) -> Option<Time> {
        let node = match *due {
            Due::Timer(node) => node,
            Due::Told { stream, end }
            | Due::Deliver { stream, end }
            | Due::Over { stream, end, .. } => self.core.streams[stream].as_ref()?.ends[end].node,
            Due::Established { stream } => self.core.streams[stream].as_ref()?.ends[0].node,
            Due::Mail { to, .. } => NodeId(to.0.into()),
            // The system's, which goes on, or a target's.
            Due::Sent { .. } | Due::Arrive { .. } | Due::Fin { .. } | Due::Disk { .. } => {
                return None;
            }
        };
        self.asleep.get(node.0).copied().filter(|&until| until > self.core.now)
    }
}

impl<HM> Core<HM> {
    /// As a worker of the runtime does it: it hears all that has come before it looks at its times.
    pub(super) fn put_off(&mut self, until: Time, due: Due<HM>) {
        let Due::Timer(node) = due else { return self.schedule(until, due) };
        if self.timers.get(&node) == Some(&self.now) {
            self.timers.remove(&node);
            self.timer_at(node, until.after(Duration::from_nanos(1)));
        }
    }
}
