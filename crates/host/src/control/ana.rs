//! ANA of one controller: its log, what it says about each namespace, and when it is read again.
//!
//! The last good log stays in force until the next good one. A path is *pending* (out of use until
//! a log was read) when a command met an ANA status on it (M14) or when the log does not list its
//! group (M17). A log whose reading began before such an error was reported may already have been
//! stale: its states are taken, but it clears nothing and the log is read once more.

use super::controller::Controller;
use super::env::{Env, Notice};
use super::facts::Facts;
use super::lifecycle::Phase;
use super::link::{Answer, NotSent, Purpose};
use super::wire;
use crate::event::HostEvent;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use anabranch_proto::machine::{Buffers, Time};
use anabranch_proto::nvme::ana::AnaState;
use anabranch_proto::nvme::log::AnaLimits;
use anabranch_proto::nvme::status::Status;
use core::time::Duration;

/// First pause before an ANA log is read again that could not be read or did not list a group;
/// doubles up to the second one.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// So many logs in a row that cannot be read make the controller unusable: it is reset.
const MAX_FAILURES: u32 = 5;

/// An ANA status from a controller that reports no ANA takes the path out for this long: there is
/// no log that could tell when it is better.
const NO_LOG_PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    No,
    /// In progress; `overtaken`: an error or event came in after it was sent.
    Yes {
        overtaken: bool,
    },
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct AnaBook {
    log_bytes: Option<u32>,
    limits: AnaLimits,
    transition_limit: Duration,
    disabled: Option<String>,
    groups: BTreeMap<u32, AnaState>,
    /// The group of each namespace that the log lists.
    members: BTreeMap<u32, u32>,
    /// Namespaces whose path met an ANA status.
    suspects: BTreeSet<u32>,
    generation: u64,
    reading: Reading,
    failures: u32,
    retry_at: Option<Time>,
    retry_pause: Duration,
    transition_by: Option<Time>,
    /// Without a log: when suspects are forgiven.
    forgive_at: Option<Time>,
}

impl Default for AnaBook {
    fn default() -> AnaBook {
        AnaBook {
            log_bytes: None,
            limits: AnaLimits { group_id: 0, groups: 0 },
            transition_limit: Duration::ZERO,
            disabled: None,
            groups: BTreeMap::new(),
            members: BTreeMap::new(),
            suspects: BTreeSet::new(),
            generation: 0,
            reading: Reading::No,
            failures: 0,
            retry_at: None,
            retry_pause: RETRY,
            transition_by: None,
            forgive_at: None,
        }
    }
}

impl AnaBook {
    /// Takes what Identify Controller says about ANA. A log that is larger than one transfer turns
    /// ANA off for this controller, with a reason (M18).
    pub(super) fn configure(&mut self, facts: &Facts, max_bytes: u32) {
        self.log_bytes = None;
        let Some(ana) = &facts.ana else { return self.forgive() };
        let bytes = ana.log_bytes;
        match u32::try_from(bytes).ok().filter(|&bytes| bytes <= max_bytes) {
            Some(bytes) => self.log_bytes = Some(bytes),
            None => {
                self.disabled = Some(format!(
                    "its log takes {bytes} bytes, one transfer carries at most {max_bytes}"
                ));
                self.forgive();
            }
        }
        self.limits = AnaLimits { group_id: ana.max_group, groups: ana.groups };
        self.transition_limit = Duration::from_secs(2 * u64::from(ana.transition_secs));
    }

    /// No log will say when a path that met an ANA status is better: it is taken to be so now.
    fn forgive(&mut self) {
        self.forgive_at = None;
        self.suspects.clear();
        self.generation += 1;
    }

    pub(super) fn take_disabled_reason(&mut self) -> Option<String> {
        self.disabled.take()
    }

    /// Size of the whole log; `None` when ANA is not used.
    pub(super) fn log_bytes(&self) -> Option<u32> {
        self.log_bytes
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// State and group of a namespace; `None` for a state that is not known (M17).
    pub(super) fn state_of(&self, nsid: u32, group: u32) -> (u32, Option<AnaState>) {
        if self.log_bytes.is_none() {
            return (0, Some(AnaState::Optimized));
        }
        let group = self.members.get(&nsid).copied().unwrap_or(group);
        (group, self.groups.get(&group).copied())
    }

    /// Whether the path of a namespace waits for a fresh log.
    pub(super) fn is_pending(&self, nsid: u32, group: u32) -> bool {
        self.suspects.contains(&nsid) || self.state_of(nsid, group).1.is_none()
    }

    /// Processes a whole log. Nothing changes when it does not make sense (C61).
    pub(super) fn take_log(&mut self, now: Time, bytes: &[u8]) -> Result<(), String> {
        let log = wire::parse_ana(bytes, self.limits)?;
        self.groups.clear();
        self.members.clear();
        for group in log.groups {
            for nsid in group.nsids {
                self.members.insert(nsid, group.id);
            }
            self.groups.insert(group.id, group.state);
        }
        self.failures = 0;
        self.retry_at = None;
        if self.reading != (Reading::Yes { overtaken: true }) {
            self.suspects.clear();
            self.generation += 1;
        }
        self.check_transition(now);
        Ok(())
    }

    /// One timer for all groups in the change state, twice ANATT (M15).
    pub(super) fn check_transition(&mut self, now: Time) {
        let changing = self.groups.values().any(|&state| state == AnaState::Change);
        self.transition_by = match self.transition_by {
            _ if !changing || self.log_bytes.is_none() => None,
            Some(by) => Some(by),
            None => Some(now.after(self.transition_limit)),
        };
    }

    /// The connection is over; so is what was being read.
    pub(super) fn abandon_read(&mut self) {
        self.reading = Reading::No;
    }

    pub(super) fn stop_timers(&mut self) {
        self.retry_at = None;
        self.transition_by = None;
        self.forgive_at = None;
        self.failures = 0;
        self.retry_pause = RETRY;
    }

    pub(super) fn due(&self) -> Option<Time> {
        [self.retry_at, self.transition_by, self.forgive_at].into_iter().flatten().min()
    }

    fn retry_later(&mut self, now: Time) {
        if self.retry_at.is_none() {
            self.retry_at = Some(now.after(self.retry_pause));
            self.retry_pause = (self.retry_pause * 2).min(RETRY_MAX);
        }
    }
}

impl Controller {
    /// Reads the ANA log, or once more when it is being read already.
    pub(super) fn read_ana_log(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        let (Phase::Live, Some(bytes)) = (self.phase, self.ana.log_bytes) else { return };
        if self.ana.reading != Reading::No {
            self.ana.reading = Reading::Yes { overtaken: true };
            return;
        }
        let deadline = self.admin_deadline(env.now);
        let Some(link) = &mut self.link else { return };
        match link.send(env, bufs, Purpose::AnaLog, wire::ana_log(bytes), deadline) {
            Ok(()) => {
                self.ana.reading = Reading::Yes { overtaken: false };
                self.ana.retry_at = None;
            }
            Err(NotSent::Busy | NotSent::Down) => self.ana.retry_later(env.now),
        }
    }

    /// The log came, or an error instead.
    pub(super) fn ana_log_answered(
        &mut self,
        env: &mut Env,
        bufs: &mut dyn Buffers,
        answer: &Answer,
    ) {
        let result = if answer.status.is_success() {
            self.ana.take_log(env.now, &answer.data)
        } else {
            Err(answer.status.to_string())
        };
        let again = self.ana.reading == Reading::Yes { overtaken: true };
        self.ana.reading = Reading::No;
        match result {
            Ok(()) => {
                env.dirty = true;
                env.notice(self, Notice::AnaRead);
            }
            Err(why) => {
                self.ana.failures += 1;
                if self.ana.failures >= MAX_FAILURES {
                    return self.fail(env, format!("ANA log: {why}"), false);
                }
                let text = format!("ANA log: {why}");
                env.event(HostEvent::Note { controller: self.name(), text });
                self.ana.retry_later(env.now);
            }
        }
        if again {
            self.read_ana_log(env, bufs);
        }
    }

    /// A shard met an ANA status on the path of `nsid`.
    pub(super) fn ana_error(
        &mut self,
        env: &mut Env,
        bufs: &mut dyn Buffers,
        (nsid, path): (u32, String),
        status: Status,
    ) {
        if self.ana.suspects.insert(nsid) {
            env.event(HostEvent::AnaError { path, status });
            env.dirty = true;
        }
        if self.ana.log_bytes.is_some() {
            self.read_ana_log(env, bufs);
        } else if self.ana.forgive_at.is_none() {
            self.ana.forgive_at = Some(env.now.after(NO_LOG_PAUSE));
        }
    }

    /// A namespace's group is not in the log that we have: it is read again now, and then at
    /// growing intervals while the group stays unknown.
    pub(super) fn ana_group_unknown(
        &mut self,
        env: &mut Env,
        bufs: &mut dyn Buffers,
        first_time: bool,
    ) {
        if first_time && self.ana.reading == Reading::No {
            self.ana.retry_pause = RETRY;
            self.read_ana_log(env, bufs);
        } else if self.ana.reading == Reading::No {
            self.ana.retry_later(env.now);
        }
    }

    pub(super) fn ana_timeout(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        let now = env.now;
        if self.ana.transition_by.is_some_and(|by| by <= now) {
            env.event(HostEvent::AnaTimeout { controller: self.name() });
            return self.fail(env, String::from("ANA transition took longer than ANATT"), false);
        }
        if self.ana.forgive_at.is_some_and(|at| at <= now) {
            self.ana.forgive();
            env.dirty = true;
        }
        if self.ana.retry_at.is_some_and(|at| at <= now) {
            self.ana.retry_at = None;
            self.read_ana_log(env, bufs);
        }
    }
}
