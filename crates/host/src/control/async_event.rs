//! Keep-alive, and asynchronous events: one request outstanding, re-armed after each event (B14).

use super::controller::Controller;
use super::env::Env;
use super::lifecycle::Phase;
use super::link::{Answer, Purpose};
use super::wire::{self, Happening};
use crate::event::HostEvent;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::ToString;
use anabranch_proto::machine::{Buffers, Time};
use anabranch_proto::nvme::aer::AsyncEvent;
use anabranch_proto::nvme::log::lid;
use core::time::Duration;

/// Pause before the event request is sent again after the controller refused it.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);

/// So many events within [`EVENT_WINDOW`] are taken as they come; then the request is not sent
/// again before the window is over (F22). The controller keeps what happens meanwhile, once per
/// kind.
const EVENTS_IN_WINDOW: u32 = 64;
const EVENT_WINDOW: Duration = Duration::from_secs(1);

/// Kinds of unknown events that are remembered as already logged (C66).
const MAX_LOGGED: usize = 64;

/// What is remembered about events.
#[derive(Debug, Default)]
pub(super) struct EventRequests {
    rearm_at: Option<Time>,
    /// When the present window began, and the events in it.
    window: (Time, u32),
    /// Events that mean nothing to us and were logged once.
    logged: BTreeSet<u64>,
}

impl EventRequests {
    pub(super) fn clear(&mut self) {
        self.rearm_at = None;
    }

    pub(super) fn due(&self) -> Option<Time> {
        self.rearm_at
    }

    /// Counts an event; when there were too many, the time from which the next one is welcome.
    fn count(&mut self, now: Time) -> Option<Time> {
        let over = self.window.0.after(EVENT_WINDOW);
        if over <= now {
            self.window = (now, 0);
        }
        self.window.1 += 1;
        (self.window.1 >= EVENTS_IN_WINDOW).then(|| self.window.0.after(EVENT_WINDOW))
    }
}

impl Controller {
    /// The controller's timer runs from now on (CSTS.RDY, Base, "Keep Alive"): connecting may take
    /// longer than that.
    pub(super) fn begin_keep_alive(&mut self, env: &Env) {
        self.keep_alive_at = self.keep_alive_interval().map(|interval| env.now.after(interval));
    }

    /// Whether steps of the connect sequence are under way, each with a time limit of its own.
    pub(super) fn is_connecting(&self) -> bool {
        matches!(self.phase, Phase::Setup { .. } | Phase::Queues { .. })
    }

    pub(super) fn send_keep_alive(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        let Some(interval) = self.keep_alive_interval() else { return };
        let next = env.now.after(interval);
        self.keep_alive_at = Some(next);
        // When nothing comes it must be answered before the next one is due: a silent peer is
        // noticed within KATO. One that is slow while we connect is no worse for that, and has its
        // time as for any step.
        let connecting = self.is_connecting();
        let deadline = if connecting { self.admin_deadline(env.now) } else { next };
        let command = wire::keep_alive();
        let Some(link) = &mut self.link else { return };
        if connecting && link.awaits(Purpose::KeepAlive) {
            return;
        }
        if let Err(error) = link.send(env, bufs, Purpose::KeepAlive, command, deadline) {
            self.let_go(env, bufs, format!("Keep Alive: {}", error.text()));
        }
    }

    pub(super) fn keep_alive_answered(
        &mut self,
        env: &mut Env,
        bufs: &mut dyn Buffers,
        answer: &Answer,
    ) {
        if !answer.status.is_success() && !self.is_connecting() {
            self.let_go(env, bufs, format!("Keep Alive: {}", answer.says()));
        }
    }

    pub(super) fn arm_events(&mut self, env: &mut Env) {
        self.events.rearm_at = None;
        if let Some(link) = &mut self.link
            && self.facts.events_mask != 0
        {
            link.send_event_request(env);
        }
    }

    pub(super) fn event_timeout(&mut self, env: &mut Env) {
        if self.events.rearm_at.is_some_and(|at| at <= env.now) {
            self.arm_events(env);
        }
    }

    /// The event request was answered: something has happened.
    pub(super) fn event_answered(
        &mut self,
        env: &mut Env,
        bufs: &mut dyn Buffers,
        answer: &Answer,
    ) {
        if self.phase != Phase::Live {
            return;
        }
        if !answer.status.is_success() {
            let text = format!("Asynchronous Event Request: {}", answer.says());
            env.event(HostEvent::Note { controller: self.name(), text });
            self.events.rearm_at = Some(env.now.after(REFUSED_PAUSE));
            return;
        }
        match wire::happening(answer.result) {
            Happening::NamespacesChanged => {
                self.note_event(env, "namespace attributes changed");
                self.request_cleared_scan(env, bufs);
            }
            Happening::AnaChanged => {
                self.note_event(env, "asymmetric namespace access changed");
                self.read_ana_log(env, bufs);
            }
            Happening::DiscoveryChanged => {
                self.note_event(env, "discovery log changed");
                self.clear_event(env, bufs, lid::DISCOVERY);
            }
            Happening::Fatal => {
                return self.let_go(env, bufs, "persistent internal error reported".to_string());
            }
            Happening::Other(event) => self.other_event(env, bufs, event),
        }
        match self.events.count(env.now) {
            Some(later) => self.events.rearm_at = Some(later),
            None => self.arm_events(env),
        }
    }

    fn note_event(&self, env: &mut Env, what: &str) {
        let what = what.to_string();
        env.event(HostEvent::AsyncEvent { controller: self.name(), what });
    }

    /// Events that mean nothing to us are logged once per kind; their log is read so that the next
    /// one can come.
    fn other_event(&mut self, env: &mut Env, bufs: &mut dyn Buffers, event: AsyncEvent) {
        let logged = &mut self.events.logged;
        if logged.len() < MAX_LOGGED && logged.insert(event.result()) {
            let (kind, info, page) = (event.kind, event.info, event.log_page);
            let text = format!("{kind:?}, information {info:#04x}, log page {page:#04x}");
            self.note_event(env, &text);
        }
        self.clear_event(env, bufs, event.log_page);
    }

    /// Reading the log page that an event names (without "retain") lets the next event of its kind
    /// come. Nobody looks at the data.
    fn clear_event(&mut self, env: &mut Env, bufs: &mut dyn Buffers, page: u8) {
        let deadline = self.admin_deadline(env.now);
        if let Some(link) = &mut self.link {
            // When it cannot be sent, this kind of event stays masked until its log is read again.
            let command = wire::clear_event(page);
            let _sent = link.send(env, bufs, Purpose::ClearEvent, command, deadline);
        }
    }
}
