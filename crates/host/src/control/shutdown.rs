//! The orderly removal of a controller: no new data, drain, CC.SHN, stop the queues, close.
//!
//! Flushes are asked for until it is told to shut down, and one may come while it is: so the queues
//! are stopped last. When draining takes too long, too, CC.SHN comes before all has ended. A
//! controller that has shut down begins nothing any more; but Linux's target says so at once, and
//! what it had begun goes on, and is answered. So what is in flight has the rest of the time to
//! end, and only then is sent elsewhere. SPDK's closes each queue pair that has nothing in flight
//! when it is told: that is no loss, and says nothing of the others.
//!
//! A Fabrics Disconnect is for I/O queues only, and is not sent: closing the connections of
//! drained queues does the same on every target.

use super::controller::Controller;
use super::env::{Env, Notice};
use super::lifecycle::{Phase, Then};
use super::link::{Answer, Link, Payload, Purpose};
use super::wire;
use crate::event::HostEvent;
use alloc::format;
use alloc::string::String;
use anabranch_proto::machine::Buffers;
use anabranch_proto::nvme::sqe::Sqe;
use core::time::Duration;

/// Pause between two looks at what is in flight, and at CSTS.SHST.
pub(super) const POLL: Duration = Duration::from_millis(5);

impl Controller {
    pub(super) fn deleting_timeout(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        let now = env.now;
        match self.phase {
            Phase::Draining { until, .. } if until <= now => self.shut_down(env, bufs),
            Phase::Draining { until, poll_at } if poll_at <= now => {
                self.phase = Phase::Draining { until, poll_at: now.after(POLL) };
                env.notice(self, Notice::Draining);
            }
            Phase::ShuttingDown { until, then, down: true, .. } if until <= now => {
                let text = String::from("it has shut down, and not answered all that it had");
                env.event(HostEvent::Note { controller: self.name(), text });
                self.stop(env, then);
            }
            Phase::ShuttingDown { until, then, .. } if until <= now => {
                self.left_unanswered(env, "it took too long", then);
            }
            Phase::ShuttingDown { until, poll_at: Some(at), then, down: true } if at <= now => {
                let poll_at = Some(now.after(POLL));
                self.phase = Phase::ShuttingDown { until, poll_at, then, down: true };
                env.notice(self, Notice::Draining);
            }
            Phase::ShuttingDown { until, poll_at: Some(at), then, down } if at <= now => {
                self.phase = Phase::ShuttingDown { until, poll_at: None, then, down };
                self.send_shutdown(env, bufs, wire::get_csts());
            }
            _ => {}
        }
    }

    /// What the shards have in flight on it.
    pub(super) fn in_flight(&mut self, env: &mut Env, bufs: &mut dyn Buffers, commands: u64) {
        match self.phase {
            Phase::Draining { .. } if commands == 0 => self.shut_down(env, bufs),
            Phase::Quieting { .. } if commands == 0 => self.quiet(env, bufs),
            Phase::ShuttingDown { then, down: true, .. } if commands == 0 => self.stop(env, then),
            _ => {}
        }
    }

    /// Before it is removed.
    pub(super) fn shut_down(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        self.begin_shutdown(env, bufs, env.config.shutdown_timeout, Then::Remove);
    }

    /// Tells the controller that it will be left.
    pub(super) fn begin_shutdown(
        &mut self,
        env: &mut Env,
        bufs: &mut dyn Buffers,
        limit: Duration,
        then: Then,
    ) {
        if !self.link.as_ref().is_some_and(Link::is_ready) {
            return self.stop(env, then);
        }
        self.keep_alive_at = None;
        let until = env.now.after(limit);
        self.phase = Phase::ShuttingDown { until, poll_at: None, then, down: false };
        self.send_shutdown(env, bufs, wire::shut_down(self.facts.configuration));
    }

    fn send_shutdown(
        &mut self,
        env: &mut Env,
        bufs: &mut dyn Buffers,
        command: (Sqe, Payload<'_>),
    ) {
        let Phase::ShuttingDown { until, then, .. } = self.phase else { return };
        let deadline = self.admin_deadline(env.now).min(until);
        let Some(link) = &mut self.link else { return };
        if link.send(env, bufs, Purpose::Shutdown, command, deadline).is_err() {
            self.stop(env, then);
        }
    }

    /// It is left although it has not said that it has shut down.
    pub(super) fn left_unanswered(&mut self, env: &mut Env, why: &str, then: Then) {
        if !self.is_discovery() {
            let text = format!("it has not said that it has shut down (CSTS.SHST): {why}");
            env.event(HostEvent::Note { controller: self.name(), text });
        }
        self.stop(env, then);
    }

    pub(super) fn shutdown_answered(&mut self, env: &mut Env, answer: &Answer) {
        let Phase::ShuttingDown { until, poll_at: None, then, .. } = self.phase else { return };
        if !answer.status.is_success() {
            return self.stop(env, then);
        }
        let down = wire::csts(answer.result).shutdown_complete();
        let poll_at = Some(if down { env.now } else { env.now.after(POLL) });
        self.phase = Phase::ShuttingDown { until, poll_at, then, down };
    }
}
