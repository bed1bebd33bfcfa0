//! The life of a controller, from the first attempt to connect to its removal.
//!
//! | phase | state shown | left by | at the latest after |
//! |---|---|---|---|
//! | `Waiting` | new / connecting | time | `reconnect_delay` |
//! | `Opening` | connecting | TCP and ICResp, or closed | [`TCP_LIMIT`], [`ICRESP_LIMIT`] |
//! | `Setup` | connecting | the answer of each step | `admin_timeout` per step, CAP.TO for ready |
//! | `Queues` | connecting | every shard's answer | `admin_timeout` + [`SHARD_GRACE`] |
//! | `Live` | live | loss, reset, removal | (keep-alive watches it) |
//! | `Quieting` | resetting, on request | nothing in flight | [`QUIET_LIMIT`] |
//! | `Draining` | deleting | nothing in flight | `shutdown_timeout` |
//! | `ShuttingDown` | deleting | CSTS.SHST complete, nothing in flight | `shutdown_timeout` |
//! | `ShuttingDown` | resetting | the same | [`QUIET_LIMIT`] |
//! | `Stopping` | resetting / deleting / as it was | shards, admin connection | [`STOP_LIMIT`] |
//! | `Gone` | dead | - | - |
//!
//! Going down is two-phase: the new state is published and each shard is told to stop; only when
//! all have answered and the admin connection is closed does the controller go on.
//! `reconnect_delay` is waited for as it is, without jitter, as in Linux.

use super::controller::{Controller, Kind, Waiter};
use super::env::{Env, Notice};
use super::link::{Link, Purpose};
use super::setup::Step;
use super::shutdown::POLL;
use crate::event::{HostEvent, is_news};
use crate::mail::ToShard;
use crate::topology::{Association, ControllerState};
use crate::verb::{IgnoredSnapshot, Reply, VerbError};
use alloc::format;
use alloc::string::String;
use anabranch_proto::machine::{Buffers, CloseCause, Endpoint, SystemError, Time};
use core::net::SocketAddr;
use core::time::Duration;

/// How long a TCP connection may take. One whose first packets are lost is of little use: TCP sends
/// them ever more seldom, so that a new attempt finds a path that is back sooner. Linux gives up
/// after 3 s, for the same reason.
pub(super) const TCP_LIMIT: Duration = Duration::from_secs(5);

/// How long ICResp may take after that, as in Linux.
pub(super) const ICRESP_LIMIT: Duration = Duration::from_secs(10);

/// How much longer than its own limit a shard may take to say that a queue could not be opened.
pub(super) const SHARD_GRACE: Duration = Duration::from_secs(5);

/// How long shards and the driver may take to let go of a controller's connections. All of that
/// is local, so this time passes only when a worker hangs; associations keep its late answers out.
pub(super) const STOP_LIMIT: Duration = Duration::from_secs(60);

/// How long a reset on request waits for what is in flight: a write whose connection is cut has an
/// unknown outcome, and there is no need for that while the controller answers.
const QUIET_LIMIT: Duration = Duration::from_secs(1);

/// Why a controller that somebody wants reset goes down.
const ON_REQUEST: &str = "reset on request";

/// What keeps a connection from being begun, where the system's own words say nothing of it:
/// `blackhole` and `prohibit` of `ip route`, a packet filter.
fn in_the_way(cause: CloseCause) -> &'static str {
    match cause {
        CloseCause::Failed(SystemError(22)) => {
            ": a blackhole route leads there, or our own address cannot reach it"
        }
        CloseCause::Failed(SystemError(1 | 13)) => {
            ": a route or a firewall of this machine forbids it"
        }
        _ => "",
    }
}

/// What follows when everything is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Connect again after this pause.
    Retry(Duration),
    /// The end.
    Remove,
}

/// See the module documentation. `down`: it has said that it has shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Waiting { until: Time },
    Opening { until: Time },
    Setup { step: Step, until: Time },
    Queues { until: Time },
    Live,
    Quieting { until: Time, poll_at: Time },
    Draining { until: Time, poll_at: Time },
    ShuttingDown { until: Time, poll_at: Option<Time>, then: Then, down: bool },
    Stopping { then: Then, until: Time },
    Gone,
}

impl Controller {
    /// The first attempt.
    pub(super) fn start(&mut self, env: &mut Env) {
        self.set_state(env, ControllerState::Connecting, None);
        self.open(env);
    }

    pub(super) fn set_state(&mut self, env: &mut Env, to: ControllerState, why: Option<&str>) {
        let from = core::mem::replace(&mut self.state, to);
        if from == to {
            return;
        }
        if to == ControllerState::Connecting && self.lost_at.is_none() {
            self.lost_at = Some(env.now);
        }
        env.dirty = true;
        if !self.is_discovery() {
            let why = why.map(String::from);
            env.event(HostEvent::State { controller: self.name(), from, to, why });
        }
    }

    /// Where the next attempt to connect goes. One that has begun goes on where it is: its queues
    /// must not end up at different controllers. Should it fail, this is still known.
    pub(super) fn move_to(&mut self, env: &mut Env, to: Endpoint) -> bool {
        match self.phase {
            Phase::Waiting { .. } | Phase::Stopping { then: Then::Retry(_), .. } => {
                self.moves(env, to);
            }
            Phase::Opening { .. } | Phase::Setup { .. } | Phase::Queues { .. } => {
                self.noted = Some(to);
            }
            _ => return false,
        }
        true
    }

    fn moves(&mut self, env: &mut Env, to: Endpoint) {
        // One whose name has several addresses goes from one to the next while none answers.
        if is_news(self.alike) {
            let text = format!("it moves from {} to {to}", self.address());
            env.event(HostEvent::Note { controller: self.name(), text });
        }
        self.request.to = to;
        env.dirty = true;
    }

    fn open(&mut self, env: &mut Env) {
        self.association = Association(self.association.0.wrapping_add(1));
        self.queues.clear();
        self.events.clear();
        self.keep_alive_at = None;
        self.scan.abandon();
        self.ana.abandon_read();
        self.link = Some(Link::open(env, &self.request.to, &self.request.options));
        self.phase = Phase::Opening { until: self.opening_deadline(env.now, TCP_LIMIT) };
    }

    fn opening_deadline(&self, now: Time, limit: Duration) -> Time {
        now.after(limit.min(self.request.options.admin_timeout))
    }

    /// TCP is up.
    pub(super) fn connected(
        &mut self,
        env: &mut Env,
        local: Option<SocketAddr>,
        node: Option<u32>,
    ) {
        (self.local, self.node) = (local, node);
        self.distances = node.map(|node| env.config.distances_to(node));
        if let (Phase::Opening { .. }, Some(link)) = (self.phase, &mut self.link) {
            link.connected(env);
            self.phase = Phase::Opening { until: self.opening_deadline(env.now, ICRESP_LIMIT) };
        }
    }

    /// The admin connection is over.
    pub(super) fn closed(&mut self, env: &mut Env, cause: CloseCause, bufs: &mut dyn Buffers) {
        let Some(link) = self.link.take() else { return };
        let connected = link.was_connected();
        for caller in link.closed(bufs) {
            let text = format!("{}: the admin connection was lost", self.name());
            env.refuse(caller, VerbError::Failed(text));
        }
        match self.phase {
            Phase::Stopping { .. } => self.check_stopped(env),
            Phase::Waiting { .. } | Phase::Gone => {}
            // Its queue pairs were the first to go: what was said of them is the reason.
            Phase::ShuttingDown { then: then @ Then::Retry(_), .. } => self.stop(env, then),
            // A port that talks TLS only ends a connection that begins with ICReq; one that was
            // live before is down instead, behind something that accepts connections for it.
            Phase::Opening { .. } if connected => {
                let hint = match self.was_live {
                    true => "",
                    false => " (a port that requires TLS does so, or one that is not ready yet)",
                };
                let text = format!("{cause} before ICResp{hint}");
                self.fail(env, text, false);
            }
            Phase::Opening { .. } => {
                let text = format!("{cause}{}{}", in_the_way(cause), self.own_side());
                self.fail(env, text, false);
            }
            _ => self.fail(env, format!("admin queue: {cause}"), false),
        }
    }

    /// The controller cannot go on as it is: down, and then up again or away.
    pub(super) fn fail(&mut self, env: &mut Env, why: String, do_not_retry: bool) {
        // When the peer has broken the protocol, everything else only follows from that.
        let why = self.link.as_ref().and_then(Link::fault).unwrap_or(why);
        match self.phase {
            Phase::Stopping { .. } | Phase::Waiting { .. } | Phase::Gone => {}
            Phase::Draining { .. } => {
                self.last_error = Some(why);
                self.stop(env, Then::Remove);
            }
            Phase::ShuttingDown { then, .. } => {
                if then == Then::Remove {
                    self.last_error = Some(why.clone());
                }
                self.left_unanswered(env, &why, then);
            }
            Phase::Live | Phase::Quieting { .. } => self.lose(env, why),
            Phase::Opening { .. } | Phase::Setup { .. } | Phase::Queues { .. } => {
                self.attempt_failed(env, why, do_not_retry);
            }
        }
    }

    /// As [`Controller::fail`], of one that may still answer: it is told that it will be left, and
    /// has a moment to end what it has begun, before any of that is sent elsewhere.
    pub(super) fn let_go(&mut self, env: &mut Env, bufs: &mut dyn Buffers, why: String) {
        if self.is_connecting() {
            return self.fail(env, why, false);
        }
        self.ana.stop_timers();
        if let Phase::Live | Phase::Quieting { .. } = self.phase {
            let then = self.after_loss();
            self.lost(env, why);
            self.begin_shutdown(env, bufs, QUIET_LIMIT, then);
        }
        // Else it is on its way down.
    }

    /// One of its queue pairs is gone. What is on its way down goes on with the others.
    pub(super) fn queue_lost(&mut self, env: &mut Env, bufs: &mut dyn Buffers, why: String) {
        match self.phase {
            Phase::Draining { .. } | Phase::ShuttingDown { .. } => {}
            _ => self.leave(env, bufs, why),
        }
    }

    /// From live to resetting.
    fn lose(&mut self, env: &mut Env, why: String) {
        let then = self.after_loss();
        self.lost(env, why);
        self.stop(env, then);
    }

    /// What follows when a live one is lost.
    fn after_loss(&mut self) -> Then {
        if self.proven_in != Some(self.association) {
            // A connection that never proved itself counts as a failed attempt.
            self.attempts = self.attempts.saturating_add(1);
        }
        let reachable = self.max_attempts().is_none_or(|limit| self.attempts < limit);
        if reachable { Then::Retry(self.request.options.reconnect_delay) } else { Then::Remove }
    }

    /// Notes that it is live no more.
    fn lost(&mut self, env: &mut Env, why: String) {
        self.resets += 1;
        self.set_state(env, ControllerState::Resetting, Some(&why));
        env.notice(self, Notice::Lost);
        self.last_error = Some(why);
        self.answer_connect(env, &[]);
    }

    fn attempt_failed(&mut self, env: &mut Env, why: String, do_not_retry: bool) {
        self.attempts = self.attempts.saturating_add(1);
        let allowed = self.max_attempts().is_none_or(|limit| self.attempts < limit);
        let wanted = self.request.keep_trying || (self.was_live && !do_not_retry);
        let retry = allowed && wanted && !self.is_discovery();
        // As Linux does: a target sets DNR on purpose, on a subsystem that it took off a port, too.
        let forbidden = allowed && self.was_live && !retry;
        let again = self.attempts > 1 && self.last_error.as_ref() == Some(&why);
        self.alike = if again { self.alike.saturating_add(1) } else { 0 };
        let noted = self.noted.take().filter(|_| retry);
        if !self.is_discovery() {
            env.event(HostEvent::ConnectFailed {
                controller: self.name(),
                to: self.address(),
                next: noted.as_ref().unwrap_or(&self.request.to).clone(),
                why: why.clone(),
                attempts: self.attempts,
                retry,
                forbidden,
                expired: wanted && !allowed,
                alike: self.alike,
            });
        }
        if let Some(to) = noted {
            self.moves(env, to);
        }
        self.answer_reset(env, Err(&why));
        self.last_error = Some(why);
        let delay = self.request.options.reconnect_delay;
        self.stop(env, if retry { Then::Retry(delay) } else { Then::Remove });
    }

    /// A reset that somebody asked for: nothing new goes there, what is in flight ends if it can,
    /// then down and up again at once. Only for a live controller.
    pub(super) fn reset(&mut self, env: &mut Env) {
        if self.phase == Phase::Live {
            self.set_state(env, ControllerState::Resetting, Some(ON_REQUEST));
            self.phase = Phase::Quieting { until: env.now.after(QUIET_LIMIT), poll_at: env.now };
        }
    }

    /// Nothing is in flight any more, or that takes too long: then it goes elsewhere, once the
    /// controller has said, if it does, that it works on nothing any more. Flushes are asked for
    /// until the end, and one may have come since; what it has in a cache is safe when it has shut
    /// down. Whoever asks for a reset wants the controller back: that is no loss, however often it
    /// is asked for.
    pub(super) fn quiet(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        self.lost(env, String::from(ON_REQUEST));
        self.begin_shutdown(env, bufs, QUIET_LIMIT, Then::Retry(Duration::ZERO));
    }

    /// Removal in an orderly way; what is in flight has so much time to end.
    pub(super) fn delete(&mut self, env: &mut Env, patience: Duration) {
        match self.phase {
            Phase::Live | Phase::Quieting { .. } => {
                self.set_state(env, ControllerState::Deleting, Some("on request"));
                env.notice(self, Notice::Lost);
                self.answer_connect(env, &[]);
                let until = env.now.after(patience);
                self.phase = Phase::Draining { until, poll_at: env.now };
            }
            Phase::ShuttingDown { until, poll_at, down, .. } => {
                self.set_state(env, ControllerState::Deleting, Some("on request"));
                let then = Then::Remove;
                self.phase = Phase::ShuttingDown { until, poll_at, then, down };
            }
            Phase::Draining { .. } | Phase::Gone => {}
            Phase::Stopping { until, .. } => {
                self.phase = Phase::Stopping { then: Then::Remove, until };
                self.set_state(env, ControllerState::Deleting, Some("on request"));
            }
            Phase::Waiting { .. }
            | Phase::Opening { .. }
            | Phase::Setup { .. }
            | Phase::Queues { .. } => {
                self.last_error.get_or_insert_with(|| String::from("removed on request"));
                self.set_state(env, ControllerState::Deleting, Some("on request"));
                self.stop(env, Then::Remove);
            }
        }
    }

    /// First phase of going down: tells everybody to let go.
    pub(super) fn stop(&mut self, env: &mut Env, then: Then) {
        self.keep_alive_at = None;
        self.scan.abandon();
        self.ana.abandon_read();
        self.ana.stop_timers();
        self.stop_queues(env);
        if let Some(link) = &mut self.link {
            link.close(env);
        }
        self.phase = Phase::Stopping { then, until: env.now.after(STOP_LIMIT) };
        env.dirty = true;
        self.check_stopped(env);
    }

    /// Tells the shards to stop their queue pairs.
    pub(super) fn stop_queues(&mut self, env: &mut Env) {
        let (controller, association) = (self.id, self.association);
        for worker in self.queues.stop() {
            env.mail(worker, ToShard::StopQueue { controller, association });
        }
    }

    /// Goes on when all have let go.
    pub(super) fn check_stopped(&mut self, env: &mut Env) {
        let Phase::Stopping { then, .. } = self.phase else { return };
        if self.link.is_some() || !self.queues.all_stopped() {
            return;
        }
        match then {
            Then::Remove => self.finish(env),
            Then::Retry(delay) if delay.is_zero() => {
                self.set_state(env, ControllerState::Connecting, None);
                self.open(env);
            }
            Then::Retry(delay) => {
                self.set_state(env, ControllerState::Connecting, None);
                self.phase = Phase::Waiting { until: env.now.after(delay) };
            }
        }
    }

    fn finish(&mut self, env: &mut Env) {
        self.phase = Phase::Gone;
        let asked = self.state == ControllerState::Deleting;
        self.set_state(env, ControllerState::Dead, None);
        let why = self.last_error.clone().unwrap_or_else(|| String::from("removed"));
        if !asked && !self.is_discovery() && self.was_live {
            env.event(HostEvent::Removed { controller: self.name(), why: why.clone() });
        }
        let text = format!("{}: {why}", self.address());
        for waiter in core::mem::take(&mut self.waiters) {
            let (Waiter::Connect(id) | Waiter::Reset(id)) = waiter;
            env.refuse(id, VerbError::Failed(text.clone()));
        }
        if let Kind::Discovery(id, read) = &mut self.kind {
            match read.take_log() {
                Some(log) => env.reply(*id, log),
                None => env.refuse(*id, VerbError::Failed(text)),
            }
        }
        env.notice(self, Notice::Gone);
    }

    /// Every queue pair is open.
    pub(super) fn go_live(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        self.phase = Phase::Live;
        self.noted = None;
        self.fast_io_failed = false;
        self.proven = self.facts.clone();
        self.set_state(env, ControllerState::Live, None);
        self.reconnects += u64::from(self.was_live);
        self.was_live = true;
        self.ana.check_transition(env.now);
        self.arm_events(env);
        self.read_ana_log_for_suspects(env, bufs);
        self.request_scan(env, bufs);
        self.answer_reset(env, Ok(()));
    }

    /// The namespaces of this association are known.
    pub(super) fn verified(&mut self, env: &mut Env, ignored: &[IgnoredSnapshot]) {
        self.proven(env);
        self.answer_connect(env, ignored);
    }

    /// Whether somebody waits to hear that it is connected.
    pub(super) fn is_awaited(&self) -> bool {
        self.waiters.iter().any(|waiter| matches!(waiter, Waiter::Connect(_)))
    }

    /// The connection has proven itself: losses are counted from the start again.
    pub(super) fn proven(&mut self, env: &mut Env) {
        self.proven_in = Some(self.association);
        self.attempts = 0;
        self.lost_at = None;
        env.dirty = true;
    }

    fn answer_connect(&mut self, env: &mut Env, ignored: &[IgnoredSnapshot]) {
        let name = self.name();
        self.waiters.retain(|waiter| match waiter {
            Waiter::Connect(id) => {
                env.reply(*id, Reply::Connected(name.clone(), ignored.to_vec()));
                false
            }
            Waiter::Reset(_) => true,
        });
    }

    fn answer_reset(&mut self, env: &mut Env, result: Result<(), &str>) {
        let name = self.name();
        self.waiters.retain(|waiter| match waiter {
            Waiter::Connect(_) => true,
            Waiter::Reset(id) => {
                match result {
                    Ok(()) => env.reply(*id, Reply::Done),
                    Err(why) => {
                        env.refuse(*id, VerbError::Failed(format!("{name}: {why}")));
                    }
                }
                false
            }
        });
    }

    /// When something is to be done at the latest.
    pub(super) fn due(&self) -> Option<Time> {
        let phase = match self.phase {
            Phase::Live | Phase::Gone => None,
            Phase::Quieting { until, poll_at } | Phase::Draining { until, poll_at } => {
                Some(until.min(poll_at))
            }
            Phase::ShuttingDown { until, poll_at, .. } => {
                Some(poll_at.map_or(until, |at| at.min(until)))
            }
            Phase::Waiting { until }
            | Phase::Opening { until }
            | Phase::Setup { until, .. }
            | Phase::Queues { until }
            | Phase::Stopping { until, .. } => Some(until),
        };
        let of_life = [
            phase,
            self.link.as_ref().and_then(Link::due),
            self.keep_alive_at.filter(|_| self.keeps_alive()),
            self.fast_io_fail_at(),
        ];
        let while_live = [self.ana.due(), self.scan.due(), self.events.due()];
        let while_live = while_live.into_iter().filter(|_| self.phase == Phase::Live);
        of_life.into_iter().chain(while_live).flatten().min()
    }

    /// Keep-alive goes on until it is told to shut down.
    fn keeps_alive(&self) -> bool {
        self.is_connecting()
            || matches!(self.phase, Phase::Live | Phase::Quieting { .. } | Phase::Draining { .. })
    }

    fn fast_io_fail_at(&self) -> Option<Time> {
        let tmo = self.request.options.fast_io_fail_tmo?;
        let waits = self.state == ControllerState::Connecting && !self.fast_io_failed;
        if waits { self.lost_at.map(|lost_at| lost_at.after(tmo)) } else { None }
    }

    /// Does what is due.
    pub(super) fn timeout(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        let now = env.now;
        if self.fast_io_fail_at().is_some_and(|at| at <= now) {
            self.fast_io_failed = true;
            env.dirty = true;
            if self.was_live {
                env.event(HostEvent::FastIoFail { controller: self.name() });
            }
        }
        if let Some(link) = &mut self.link {
            // Whoever is heard of is not silent: its Keep Alive has all of the time-out, as in
            // Linux. One that falls silent from then on is noticed within it, too.
            let limit = self.request.options.keep_alive_tmo;
            link.prolong(Purpose::KeepAlive, self.load.heard_at(), limit);
            if let Some(expired) = link.expired(env) {
                return self.command_expired(env, bufs, expired);
            }
        }
        self.phase_timeout(env, bufs);
        if self.keeps_alive() && self.keep_alive_at.is_some_and(|at| at <= now) {
            self.send_keep_alive(env, bufs);
        }
        if self.phase == Phase::Live {
            self.live_timeout(env, bufs);
        }
    }

    fn phase_timeout(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        let now = env.now;
        match self.phase {
            Phase::Waiting { until } if until <= now => {
                self.reconnect_attempts += u64::from(self.was_live);
                self.open(env);
            }
            Phase::Opening { until } if until <= now => {
                let to = match self.link.as_ref().is_some_and(Link::was_connected) {
                    true => "ICReq",
                    false => "TCP connect",
                };
                self.fail(env, format!("no answer to {to} in time"), false);
            }
            Phase::Setup { step, until } if until <= now => self.setup_timeout(env, bufs, step),
            Phase::Queues { until } if until <= now => {
                self.fail(env, String::from("the I/O queues did not open in time"), false);
            }
            Phase::Quieting { until, .. } if until <= now => self.quiet(env, bufs),
            Phase::Quieting { until, poll_at } if poll_at <= now => {
                self.phase = Phase::Quieting { until, poll_at: now.after(POLL) };
                env.notice(self, Notice::Draining);
            }
            Phase::Draining { .. } | Phase::ShuttingDown { .. } => {
                self.deleting_timeout(env, bufs);
            }
            Phase::Stopping { until, .. } if until <= now => self.stop_limit(env),
            _ => {}
        }
    }

    /// Some worker hangs. Waiting longer would keep the path away for ever.
    fn stop_limit(&mut self, env: &mut Env) {
        let late = self.queues.give_up();
        let text = format!("workers {late:?} did not let go of their queues in time");
        env.event(HostEvent::Note { controller: self.name(), text });
        if self.link.is_some() {
            // The driver still owns buffers of the admin connection: only `Closed` frees them.
            self.phase = match self.phase {
                Phase::Stopping { then, .. } => {
                    Phase::Stopping { then, until: env.now.after(STOP_LIMIT) }
                }
                other => other,
            };
        }
        self.check_stopped(env);
    }

    fn live_timeout(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        self.ana_timeout(env, bufs);
        self.scan_timeout(env, bufs);
        self.event_timeout(env);
    }

    /// An admin command was not answered in time.
    fn command_expired(
        &mut self,
        env: &mut Env,
        bufs: &mut dyn Buffers,
        (purpose, limit): (Purpose, Duration),
    ) {
        let text = match purpose {
            Purpose::KeepAlive if limit < self.request.options.keep_alive_tmo => {
                format!("no answer to Keep Alive in {limit:?}, half of its time-out")
            }
            Purpose::KeepAlive => format!("no answer to Keep Alive in {limit:?}"),
            Purpose::Setup => match self.phase {
                Phase::Setup { step, .. } => format!("no answer to {step} in time"),
                _ => format!("no answer to {purpose} in time"),
            },
            _ => format!("no answer to {purpose} in time"),
        };
        match self.phase {
            // It has so long to shut down, whatever else it has not answered.
            Phase::ShuttingDown { .. } if purpose != Purpose::Shutdown => {}
            // So does what it has when it is removed.
            Phase::Draining { .. } if self.is_heard(env.now) => {
                self.last_error = Some(text);
                self.shut_down(env, bufs);
            }
            _ => self.leave(env, bufs, text),
        }
    }

    /// It cannot go on as it is. What is silent altogether need not be told that it will be left.
    fn leave(&mut self, env: &mut Env, bufs: &mut dyn Buffers, why: String) {
        match self.phase {
            Phase::Live | Phase::Quieting { .. } if !self.is_heard(env.now) => self.lose(env, why),
            Phase::Live | Phase::Quieting { .. } => self.let_go(env, bufs, why),
            _ => self.fail(env, why, false),
        }
    }

    /// Whether anything has come from it of late.
    fn is_heard(&self, now: Time) -> bool {
        let here = self.link.as_ref().map_or(Time::ZERO, Link::heard_at);
        let kato = self.request.options.keep_alive_tmo;
        let window = if kato.is_zero() { QUIET_LIMIT } else { QUIET_LIMIT.min(kato / 4) };
        self.load.heard_at().max(here).after(window) > now
    }
}
