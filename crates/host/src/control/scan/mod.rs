//! The namespaces that a controller shows: read when it goes live, after an event, and when a
//! command met "invalid namespace". What was read before stays until a scan is complete.
//!
//! One namespace that cannot be read does not keep the others from their users, as in Linux: when
//! it stays so, the scan is complete without it. Its path is out of use until it can be read: what
//! is under its NSID may be something else by now. So it is when none can be read, as of a gateway
//! that has lost what is behind it: what it has taken in already may still be carried out there, so
//! it is not sent elsewhere by a reset.
//!
//! After an event the controller is asked first which namespaces have changed. Nothing is sent to
//! those before they have been looked at: each may be another one by now, and commands name no more
//! of it than its NSID. So they are the first that the scan looks at, and when it has seen them all
//! their users go on, however many others it has yet to read. What changes while one goes on is
//! named beside it, and what it has read of that is read once more. Of a controller that comes
//! back, too, nothing is used before it has been looked at.
//!
//! That may take long where there are many or each look does: those that are seen to be what they
//! were, and new ones, are used while it goes on.

mod named;
mod news;
mod progress;
mod seen;

use super::controller::Controller;
use super::env::{Env, Notice};
use super::lifecycle::Phase;
use super::link::{Answer, Payload, Purpose};
use super::namespace::{Ids, Namespace};
use super::wire;
use crate::event::HostEvent;
use crate::topology::Association;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use anabranch_proto::machine::{Buffers, Time};
use anabranch_proto::nvme::sqe::Sqe;
use anabranch_proto::nvme::status::Status;
use core::time::Duration;
use named::Doubts;
use news::News;
use progress::{Look, MAX_NAMESPACES, Progress};

pub(super) use named::Named;

/// Namespaces looked at in parallel, so that a slow link does not add up.
const WINDOW: u16 = 8;

/// A controller that takes longer than this part of the Keep Alive time-out for a command of the
/// scan is asked for one thing at a time: many work off one admin command after the other, and
/// behind eight slow ones Keep Alive would come too late.
const SLOW_PART: u32 = 16;

/// A scan that could not be completed is tried again so often, after this pause; then the
/// controller is reset.
const MAX_FAILURES: u32 = 5;
const RETRY: Duration = Duration::from_secs(1);

/// When a namespace is looked at again that could not be read: doubles, while it is so, up to the
/// second one. What the controller asks for (CRD) is waited for up to there, too.
const UNREAD_PAUSE: Duration = Duration::from_secs(1);
const UNREAD_PAUSE_MAX: Duration = Duration::from_secs(10);

/// A scan that takes longer than this is told of: paths may stand idle for it.
const LONG: Duration = Duration::from_secs(5);

/// So many scans that found something else than before may follow each other at once, and one more
/// each time this has passed: a controller that shows something else at every look must not keep
/// the host, and the controllers that are asked whether they show the same, from their work.
const CHANGES: u32 = 32;
const CHANGE_PACE: Duration = Duration::from_millis(500);

/// So many new devices at once count like one more such scan: what was known about one that is gone
/// is not all forgotten, as its number and name stay its own.
const DEVICES_LIKE_A_CHANGE: u32 = 64;

/// What a command of a scan reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanRead {
    /// The list of changed namespaces, which lets the next event come.
    Clear,
    /// The list of active namespaces.
    List,
    /// The identifiers of one namespace.
    Ids(u32),
    /// Identify Namespace of one namespace.
    Namespace(u32),
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Scan {
    running: Option<Progress>,
    again: bool,
    clear_first: bool,
    /// What has changed since a scan has begun.
    news: News,
    /// What has changed was asked while a scan had to wait: when last, and how often of late.
    asks_between: (Time, u32),
    /// What has changed last was not read yet.
    unheard: bool,
    /// How often in a row that could not be read.
    refusals: u32,
    failures: u32,
    retry_at: Option<Time>,
    /// The least pause before what the last complete scan could not read is looked at again.
    unread_pause: Option<Duration>,
    /// It is to be looked at soon after the scan that goes on.
    unread_soon: bool,
    ended_at: Option<Time>,
    verified: Option<Association>,
    /// It has given identification descriptors in this association.
    described: Option<Association>,
    namespaces: Vec<Namespace>,
    /// Namespaces that cannot be used: why, as was told, and the scan that last found it so. Told
    /// once, however often the controller's namespaces change.
    refused: BTreeMap<u32, (String, u64)>,
    /// Tells what was read before something has changed from what was read later: it ticks when a
    /// scan begins, and when the controller names what has changed while one goes on.
    clock: u64,
    /// No scan of this connection was complete when the last one began.
    first: bool,
    /// The tick with which the last scan, and the last complete one, began.
    number: u64,
    complete: u64,
    /// What was looked at by a scan that is not complete yet, or by the last complete one later
    /// than when that began: by NSID, the tick.
    early: BTreeMap<u32, u64>,
    /// Being looked at when the connection was lost, maybe for one of them: they come last.
    hung: Vec<u32>,
    /// Known namespaces that the scan was said to have seen, and that are the same, until it is
    /// complete or something changes.
    seen: BTreeSet<u32>,
    /// Known namespaces that no complete scan has shown.
    unsettled: BTreeSet<u32>,
    /// The controller took long for what it has answered last.
    slow: bool,
    /// When what was seen since is told.
    tell_at: Option<Time>,
    /// What the controller has named as changed, until a scan that has looked at it since is
    /// complete.
    doubts: Doubts,
    /// If nothing changed any more: when [`CHANGES`] would be allowed again.
    changes_by: Time,
}

impl Scan {
    pub(super) fn is_verified(&self, association: Association) -> bool {
        self.verified == Some(association)
    }

    /// Whether a namespace was seen to be what it was before, or to be new, by a scan of a
    /// controller that has come back that is not complete yet.
    pub(super) fn has_seen(&self, nsid: u32) -> bool {
        self.seen.contains(&nsid)
    }

    /// Whether the last scan was the first one of its connection, or tried that again.
    pub(super) fn is_first(&self) -> bool {
        self.first
    }

    /// Whether a complete scan has shown it.
    pub(super) fn is_settled(&self, nsid: u32) -> bool {
        !self.unsettled.contains(&nsid)
    }

    /// What the last complete scan has found and what was seen since, ordered by NSID.
    pub(super) fn namespaces(&self) -> &[Namespace] {
        &self.namespaces
    }

    /// A namespace in that scan. Asked for each path of a subsystem whenever one of its controllers
    /// has been looked at, so not by a look at all of them.
    pub(super) fn namespace(&self, nsid: u32) -> Option<&Namespace> {
        let at = self.namespaces.binary_search_by_key(&nsid, |found| found.nsid).ok()?;
        Some(&self.namespaces[at])
    }

    /// The size of a namespace in that scan, in blocks.
    pub(super) fn blocks_of(&self, nsid: u32) -> Option<u64> {
        self.namespace(nsid).map(|found| found.blocks)
    }

    /// The present tick: what is being read now may have been so before.
    pub(super) fn clock(&self) -> u64 {
        self.clock
    }

    /// Whether what is known of a namespace was read after this tick.
    pub(super) fn is_newer_than(&self, tick: u64, nsid: u32) -> bool {
        self.complete > tick || self.early.get(&nsid).is_some_and(|early| *early > tick)
    }

    pub(super) fn abandon(&mut self) {
        if let Some(progress) = self.running.take() {
            self.hung = progress.doing.into_keys().collect();
        }
        self.again = false;
        // Whoever comes back looks at everything.
        self.unheard = false;
        self.refusals = 0;
        self.news = News::None;
        self.doubts = Doubts::default();
        self.retry_at = None;
        self.unread_pause = None;
        self.unread_soon = false;
        self.failures = 0;
        self.forget_seen();
    }

    fn forget_seen(&mut self) {
        self.seen.clear();
        self.tell_at = None;
    }

    pub(super) fn due(&self) -> Option<Time> {
        let long_at = self.running.as_ref().and_then(|progress| progress.long_at);
        let asks_at = self.asks_later();
        [self.retry_at, self.tell_at, asks_at, long_at].into_iter().flatten().min()
    }

    /// Whether a scan that can wait may begin now; otherwise one begins later.
    fn may_begin(&mut self, now: Time) -> bool {
        let wait = self.changes_by.since(now.after(CHANGE_PACE * CHANGES));
        if wait.is_zero() {
            return true;
        }
        self.retry_by(now.after(wait));
        false
    }

    /// Namespaces that cannot be used, and why.
    pub(super) fn refused(&self) -> impl Iterator<Item = (u32, &str)> {
        self.refused.iter().map(|(&nsid, (why, _))| (nsid, why.as_str()))
    }

    /// Of scans that were not complete, what the last one has refused is enough: a controller may
    /// show others each time, and be lost before it has shown all.
    fn forget_refused(&mut self) {
        let (last, complete) = (self.number, self.complete);
        self.refused.retain(|_, (_, seen)| *seen == last || *seen == complete);
    }

    /// Whether none goes on, and none will begin by itself.
    fn is_idle(&self) -> bool {
        self.running.is_none() && self.retry_at.is_none()
    }

    /// Whether another namespace may be looked at beside those that are being so.
    /// One that is out of use because it has just changed waits for none of them.
    fn may_look(&self, window: usize) -> bool {
        self.running.as_ref().is_some_and(|progress| {
            let is_urgent = progress.todo.last().is_some_and(|&nsid| self.has_just_changed(nsid));
            !progress.listing && progress.doing.len() < window + usize::from(is_urgent)
        })
    }

    /// Commands under way.
    fn under_way(&self) -> usize {
        let asked = matches!(self.news, News::Asked { .. });
        let of_scan = |it: &Progress| it.doing.len() + usize::from(it.listing);
        self.running.as_ref().map_or(0, of_scan) + usize::from(asked)
    }

    /// One is to begin by then.
    fn retry_by(&mut self, at: Time) {
        self.retry_at = Some(self.retry_at.map_or(at, |retry_at| retry_at.min(at)));
    }

    /// New devices came of it.
    pub(super) fn has_made(&mut self, devices: u32, now: Time) {
        self.has_changed(devices / DEVICES_LIKE_A_CHANGE, now);
    }

    /// Whether something has changed, and nobody has read what.
    pub(super) fn has_unheard(&self) -> bool {
        self.unheard
    }

    /// The tick up to which nothing counts that was read of a namespace, if the controller has
    /// named it as changed.
    pub(super) fn doubted_since(&self, nsid: u32) -> Option<u64> {
        self.doubts.since(nsid)
    }

    /// The controller has named what has changed since the scan has begun that goes on, if one
    /// does: what was read of these before does not count. Those that are in use are waited for.
    fn has_changed_meanwhile(&mut self, named: &Named, in_use: bool) {
        self.doubts.add(named, self.clock);
        self.clock += 1;
        let Some(progress) = &mut self.running else { return };
        progress.look_again(named, &self.namespaces);
        if in_use {
            progress.wait_for(named, &self.namespaces);
        }
    }

    /// The tick before the scan that goes on has begun.
    fn before(&self) -> u64 {
        self.number.saturating_sub(1)
    }

    fn has_changed(&mut self, times: u32, now: Time) {
        self.changes_by = self.changes_by.max(now).after(CHANGE_PACE * times);
    }
}

impl Controller {
    /// Reads the namespace list, or once more when that is going on already.
    pub(super) fn request_scan(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        if self.phase != Phase::Live {
            return;
        }
        // Whatever is to begin later begins when this one has ended, or with it.
        self.scan.retry_at = None;
        if self.scan.running.is_some() {
            self.scan.again = true;
            return;
        }
        self.scan.forget_refused();
        self.scan.running = Some(Progress::new(env.now.after(LONG)));
        self.scan.clock += 1;
        self.scan.number = self.scan.clock;
        self.scan.first = !self.is_verified();
        let asked = matches!(self.scan.news, News::Asked { .. });
        if !asked && core::mem::take(&mut self.scan.clear_first) {
            self.scan.news = News::None;
            self.send_scan(env, bufs, ScanRead::Clear, wire::changed_namespaces());
            // An event that comes before the answer is another one; what was not sent is still due.
            self.scan.clear_first = self.scan.running.is_none();
        } else {
            self.read_list(env, bufs, 0);
        }
    }

    /// As [`Controller::request_scan`], after the event "namespace attributes changed": the list of
    /// changed namespaces is read first, which lets the next event come.
    pub(super) fn request_cleared_scan(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        (self.scan.clear_first, self.scan.refusals) = (true, 0);
        // What may have changed twice is waited for since the first time.
        if !core::mem::replace(&mut self.scan.unheard, true) {
            env.notice(self, Notice::Unheard { unused: !self.is_verified() });
        }
        // What the scan that goes on has seen may be what has changed again.
        self.scan.forget_seen();
        env.dirty = true;
        self.ask_for_news(env, bufs);
        self.request_paced_scan(env, bufs);
    }

    /// As [`Controller::request_scan`], later if it has shown something else too often of late.
    pub(super) fn request_paced_scan(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        if self.phase == Phase::Live && self.scan.may_begin(env.now) {
            self.request_scan(env, bufs);
        }
    }

    /// A command met "invalid namespace": at most one scan per [`RETRY`] for that reason.
    pub(super) fn suspect_namespaces(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        let earliest = self.scan.ended_at.map_or(env.now, |ended| ended.after(RETRY));
        if earliest <= env.now || self.scan.running.is_some() {
            self.request_scan(env, bufs);
        } else if self.phase == Phase::Live {
            self.scan.retry_by(earliest);
        }
    }

    /// Something else than its namespaces has changed: what could not be read may be now. A scan
    /// that goes on is not followed by another one at once: its end may be why that was found.
    pub(super) fn look_at_unread(&mut self, env: &Env) {
        if self.scan.unread_pause.is_some() {
            self.scan.unread_soon = self.scan.running.is_some();
            if !self.scan.unread_soon {
                let earliest = self.scan.ended_at.map_or(env.now, |ended| ended.after(RETRY));
                self.scan.retry_by(earliest);
            }
        }
    }

    fn read_list(&mut self, env: &mut Env, bufs: &mut dyn Buffers, after: u32) {
        self.send_scan(env, bufs, ScanRead::List, wire::active_namespaces(after));
    }

    fn send_scan(
        &mut self,
        env: &mut Env,
        bufs: &mut dyn Buffers,
        read: ScanRead,
        command: (Sqe, Payload<'_>),
    ) {
        let deadline = self.admin_deadline(env.now);
        let purpose = Purpose::Scan(self.scan.number, read);
        let Some(link) = &mut self.link else { return };
        if let Err(error) = link.send(env, bufs, purpose, command, deadline) {
            self.scan_failed(env, bufs, error.text().to_string());
        }
    }

    fn scan_failed(&mut self, env: &mut Env, bufs: &mut dyn Buffers, why: String) {
        // What it has seen to be something else is not used until the next one has looked.
        self.tell_seen(env);
        if self.scan.running.take().is_none() {
            return;
        }
        self.scan.failures += 1;
        if self.scan.failures >= MAX_FAILURES {
            return self.let_go(env, bufs, format!("namespace scan: {why}"));
        }
        let text = format!("namespace scan: {why}; will try again");
        env.event(HostEvent::Note { controller: self.name(), text });
        self.scan.again = false;
        self.scan.retry_at = Some(env.now.after(RETRY));
    }

    pub(super) fn scan_timeout(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        if self.scan.tell_at.is_some_and(|at| at <= env.now) {
            self.tell_seen(env);
        }
        if self.scan.retry_at.is_some_and(|at| at <= env.now) {
            self.request_scan(env, bufs);
        }
        if self.scan.asks_later().is_some_and(|at| at <= env.now) {
            self.ask_for_news(env, bufs);
        }
        let name = self.name();
        let Some(progress) = &mut self.scan.running else { return };
        if progress.long_at.is_some_and(|at| at <= env.now) {
            progress.long_at = None;
            let Progress { found, doing, todo, .. } = progress;
            let (seen, all) = (found.len(), found.len() + doing.len() + todo.len());
            let so_far = match all {
                0 => String::from("their list has not come"),
                all => format!("{seen} of {all} so far"),
            };
            let text = format!("looking at its namespaces takes long: {so_far}");
            env.event(HostEvent::Note { controller: name, text });
        }
    }

    /// A command of a scan was answered. Answers to a scan that was given up change nothing, nor do
    /// they to the next one: they tell of a time before that began.
    pub(super) fn scan_answered(
        &mut self,
        env: &mut Env,
        bufs: &mut dyn Buffers,
        (number, read): (u64, ScanRead),
        answer: &Answer,
    ) {
        let current = self.scan.running.is_some() && number == self.scan.number;
        if !current || self.phase != Phase::Live {
            return;
        }
        self.note_pace(answer);
        if let ScanRead::Ids(nsid) | ScanRead::Namespace(nsid) = read
            && self.is_outdated(nsid)
        {
            return self.look_again(env, bufs, nsid);
        }
        match read {
            ScanRead::Clear => self.named_answered(env, bufs, answer),
            ScanRead::List => self.list_answered(env, bufs, answer),
            ScanRead::Ids(nsid) => self.ids_answered(env, bufs, nsid, answer),
            ScanRead::Namespace(nsid) => self.namespace_answered(env, bufs, nsid, answer),
        }
    }

    /// Whether it answers soon enough to be asked for several things at once.
    fn note_pace(&mut self, answer: &Answer) {
        let kato = self.request.options.keep_alive_tmo;
        self.scan.slow = !kato.is_zero() && answer.took > kato / SLOW_PART;
    }

    /// Commands that may be under way for the scan and beside it.
    fn admin_room(&self) -> usize {
        usize::from(self.facts.scan_window(WINDOW + 1))
    }

    /// Whether a namespace has changed since the look at it began that goes on.
    fn is_outdated(&self, nsid: u32) -> bool {
        let look = self.scan.running.as_ref().and_then(|progress| progress.doing.get(&nsid));
        look.is_some_and(|look| self.scan.doubts.since(nsid) >= Some(look.tick))
    }

    fn look_again(&mut self, env: &mut Env, bufs: &mut dyn Buffers, nsid: u32) {
        if let Some(progress) = &mut self.scan.running {
            progress.doing.remove(&nsid);
            progress.todo.push(nsid);
        }
        self.scan_on(env, bufs);
    }

    /// Which namespaces have changed. The whole list is read all the same: events may be lost.
    fn named_answered(&mut self, env: &mut Env, bufs: &mut dyn Buffers, answer: &Answer) {
        self.scan.unheard = false;
        let named = self.scan.heeds(answer, env.now);
        // After a reconnect nothing is used before the whole scan anyway.
        let in_use = self.is_verified();
        if let (Some(progress), true) = (&mut self.scan.running, in_use) {
            progress.wait_for(&named, &self.scan.namespaces);
        }
        let before = self.scan.before();
        self.scan.doubts.add(&named, before);
        env.notice(self, Notice::Named);
        self.read_list(env, bufs, 0);
    }

    fn list_answered(&mut self, env: &mut Env, bufs: &mut dyn Buffers, answer: &Answer) {
        if !answer.status.is_success() {
            return self.scan_failed(
                env,
                bufs,
                format!("active namespace list: {}", answer.says()),
            );
        }
        let name = self.name();
        let Some(progress) = &mut self.scan.running else { return };
        let next = match wire::parse_active(&answer.data, progress.listed) {
            Ok((nsids, next)) => {
                progress.listed = nsids.last().copied().unwrap_or(progress.listed);
                progress.todo.extend(nsids);
                next
            }
            Err(why) => {
                return self.scan_failed(env, bufs, format!("active namespace list: {why}"));
            }
        };
        let next = progress.make_room(&self.scan.namespaces, next);
        if let Some(after) = next {
            progress.listed = after;
            return self.read_list(env, bufs, after);
        }
        if progress.some_left_out {
            let text = format!("more than {MAX_NAMESPACES} namespaces, the rest is left out");
            env.event(HostEvent::Note { controller: name, text });
        }
        progress.listing = false;
        let gone = self.scan.namespaces.iter().map(|known| known.nsid);
        let gone = gone.filter(|nsid| progress.todo.binary_search(nsid).is_err());
        progress.gone = gone.collect();
        progress.todo.reverse();
        let Progress { todo, named, .. } = progress;
        let (known, hung) = (&self.scan.namespaces, &self.scan.hung);
        let is_known = |nsid: &u32| known.binary_search_by_key(nsid, |it| it.nsid).is_ok();
        todo.sort_by_key(|nsid| {
            (!hung.contains(nsid), named.binary_search(nsid).is_ok(), is_known(nsid))
        });
        if !progress.gone.is_empty() {
            self.tell_later(env);
        }
        self.scan_on(env, bufs);
    }

    /// Keeps the window full once the list is known; ends the scan when nothing is left.
    fn scan_on(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        self.send_for_news(env, bufs);
        let window = usize::from(if self.scan.slow { 1 } else { WINDOW });
        let tick = self.scan.clock;
        while self.scan.may_look(window) && self.scan.under_way() < self.admin_room() {
            let Some(progress) = &mut self.scan.running else { return };
            let Some(nsid) = progress.todo.pop() else {
                // What is asked for beside it may have changed before it was looked at.
                let asked = matches!(self.scan.news, News::Asked { .. });
                if progress.doing.is_empty() && !asked {
                    self.scan_done(env, bufs);
                }
                return;
            };
            if self.facts.has_descriptors() {
                progress.doing.insert(nsid, Look { ids: None, tick });
                let command = wire::namespace_descriptors(nsid);
                self.send_scan(env, bufs, ScanRead::Ids(nsid), command);
            } else {
                progress.doing.insert(nsid, Look { ids: Some(Ids::default()), tick });
                let command = wire::identify_namespace(nsid);
                self.send_scan(env, bufs, ScanRead::Namespace(nsid), command);
            }
        }
    }

    fn ids_answered(&mut self, env: &mut Env, bufs: &mut dyn Buffers, nsid: u32, answer: &Answer) {
        let parsed = if answer.status.is_success() {
            wire::parse_descriptors(&answer.data)
        } else if answer.status.is(Status::INVALID_NAMESPACE) {
            return self.namespace_gone(env, bufs, nsid);
        } else if answer.status.dnr() || answer.status.is(Status::INVALID_FIELD) {
            if self.scan.has_just_changed(nsid) {
                return self.leave_to_next(env, bufs, nsid);
            }
            // Only descriptors give a UUID: who has given one in an earlier connection has them.
            let has_told = self.scan.namespace(nsid).is_some_and(|it| !it.ids.uuid.is_zero());
            if has_told || self.scan.described == Some(self.association) {
                return self.ids_hidden(env, bufs, nsid, answer);
            }
            // A controller that has no descriptors; Identify Namespace may have identifiers.
            Ok(Ids::default())
        } else {
            return self.namespace_failed(env, bufs, nsid, ("identifiers of", answer));
        };
        match parsed {
            Ok(ids) => {
                if answer.status.is_success() {
                    self.scan.described = Some(self.association);
                }
                let Some(progress) = &mut self.scan.running else { return };
                let Some(look) = progress.doing.get_mut(&nsid) else { return };
                look.ids = Some(ids);
                let command = wire::identify_namespace(nsid);
                self.send_scan(env, bufs, ScanRead::Namespace(nsid), command);
            }
            Err(why) => self.namespace_refused(env, bufs, nsid, why),
        }
    }

    /// A controller that gives identifiers refuses those of one namespace. SPDK does of one that
    /// has just been taken away, others while what is behind it cannot be asked. By the next
    /// command there may be one again: with half of its identifiers it would be another one. So it
    /// is looked at again, and a path that there is stays till then, out of use.
    fn ids_hidden(&mut self, env: &mut Env, bufs: &mut dyn Buffers, nsid: u32, answer: &Answer) {
        if self.scan.namespace(nsid).is_some() {
            return self.namespace_failed(env, bufs, nsid, ("identifiers of", answer));
        }
        if let Some(progress) = &mut self.scan.running {
            progress.asked_to_wait = Some(Duration::ZERO);
        }
        let why = format!("it has just gone, or hides its identifiers: {}", answer.status);
        self.namespace_refused(env, bufs, nsid, why);
    }

    fn namespace_answered(
        &mut self,
        env: &mut Env,
        bufs: &mut dyn Buffers,
        nsid: u32,
        answer: &Answer,
    ) {
        if answer.status.is(Status::INVALID_NAMESPACE) {
            return self.namespace_gone(env, bufs, nsid);
        }
        if !answer.status.is_success() {
            return self.namespace_failed(env, bufs, nsid, ("identify", answer));
        }
        let Some(progress) = &mut self.scan.running else { return };
        let Some(ids) = progress.doing.get(&nsid).and_then(|look| look.ids) else { return };
        let max_transfer_bytes = self.facts.max_transfer_bytes.unwrap_or(u32::MAX);
        match wire::parse_namespace(nsid, ids, &answer.data) {
            Ok(Some(namespace)) if namespace.block_bytes > max_transfer_bytes => {
                let why = format!(
                    "its blocks have {} bytes, and the controller transfers {max_transfer_bytes} \
                     at once (MDTS)",
                    namespace.block_bytes
                );
                self.namespace_refused(env, bufs, nsid, why);
            }
            Ok(Some(namespace)) => {
                let tick = progress.doing.remove(&nsid).map(|look| look.tick);
                if let Some(tick) = tick.filter(|tick| *tick > self.scan.number) {
                    progress.late.insert(nsid, tick);
                }
                progress.found.push(namespace);
                self.note_seen(env, &namespace);
                self.scan_on(env, bufs);
            }
            Ok(None) => self.namespace_gone(env, bufs, nsid),
            Err(why) => self.namespace_refused(env, bufs, nsid, why),
        }
    }

    /// It cannot be read: if that may pass, the whole scan is tried again before it goes on so.
    fn namespace_failed(
        &mut self,
        env: &mut Env,
        bufs: &mut dyn Buffers,
        nsid: u32,
        (what, answer): (&str, &Answer),
    ) {
        let status = answer.status;
        if self.scan.has_just_changed(nsid) {
            return self.leave_to_next(env, bufs, nsid);
        }
        let crd = if status.dnr() { 0 } else { usize::from(status.crd()) };
        let asked = crd.checked_sub(1).map_or(Duration::ZERO, |it| self.proven.retry_delays[it]);
        let why = format!("it cannot be read: {}", answer.says());
        // It was tried again often enough when it was first so.
        let told = self.scan.refused.get(&nsid).is_some_and(|(told, _)| *told == why);
        let may_pass = !status.dnr() && !told && self.scan.failures + 1 < MAX_FAILURES;
        let known = self.scan.namespace(nsid).copied();
        let in_use = self.scan.is_verified(self.association) && known.is_some_and(|it| !it.unread);
        // What is in use stays so till then. For longer the others do not wait for one that is not.
        if may_pass && (in_use || asked <= RETRY) {
            return self.scan_failed(env, bufs, format!("{what} nsid {nsid}: {}", answer.says()));
        }
        if let Some(progress) = &mut self.scan.running {
            progress.found.extend(known.map(|known| Namespace { unread: true, ..known }));
            let least = progress.asked_to_wait.map_or(asked, |before| before.min(asked));
            progress.asked_to_wait = Some(least);
        }
        self.namespace_refused(env, bufs, nsid, why);
    }

    /// It has changed since the scan began, and cannot be read: it may have just gone. The list
    /// the next scan reads will say so.
    fn leave_to_next(&mut self, env: &mut Env, bufs: &mut dyn Buffers, nsid: u32) {
        let known = self.scan.namespace(nsid).copied();
        if let Some(progress) = &mut self.scan.running {
            progress.doing.remove(&nsid);
            progress.found.extend(known.map(|known| Namespace { unread: true, ..known }));
            if known.is_some() {
                progress.asked_to_wait = Some(Duration::ZERO);
            }
        }
        self.scan.again = true;
        self.scan_on(env, bufs);
    }

    fn namespace_gone(&mut self, env: &mut Env, bufs: &mut dyn Buffers, nsid: u32) {
        let known = self.scan.namespace(nsid).is_some();
        if let Some(progress) = &mut self.scan.running {
            progress.doing.remove(&nsid);
            if known {
                progress.gone.push(nsid);
                self.tell_later(env);
            }
        }
        self.scan_on(env, bufs);
    }

    fn namespace_refused(&mut self, env: &mut Env, bufs: &mut dyn Buffers, nsid: u32, why: String) {
        let told = self.scan.refused.insert(nsid, (why.clone(), self.scan.number));
        if told.is_none_or(|(before, _)| before != why) {
            env.event(HostEvent::NamespaceRefused { controller: self.name(), nsid, why });
        }
        self.namespace_gone(env, bufs, nsid);
    }

    fn scan_done(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        let Some(mut progress) = self.scan.running.take() else { return };
        progress.found.sort_unstable_by_key(|namespace| namespace.nsid);
        let known = self.scan.verified.is_some();
        let found = progress.found.iter().map(lasting);
        let changed = known && !found.eq(self.scan.namespaces.iter().map(lasting));
        if changed {
            self.scan.has_changed(1, env.now);
        }
        if progress.long_at.is_none() {
            let text = format!("has shown its namespaces: {}", progress.found.len());
            env.event(HostEvent::Note { controller: self.name(), text });
        }
        progress.found.shrink_to_fit();
        self.scan.namespaces = progress.found;
        let number = self.scan.number;
        self.scan.refused.retain(|_, (_, seen)| *seen == number);
        self.scan.verified = Some(self.association);
        self.scan.complete = number;
        self.scan.hung.clear();
        self.scan.doubts = Doubts::default();
        self.scan.early = progress.late;
        self.scan.unsettled.clear();
        self.scan.forget_seen();
        self.scan.failures = 0;
        self.scan.ended_at = Some(env.now);
        let (before, soon) = (self.scan.unread_pause.take(), self.scan.unread_soon);
        self.scan.unread_soon = false;
        if let Some(asked) = progress.asked_to_wait {
            let pause = before.map_or(UNREAD_PAUSE, |it| (it * 2).min(UNREAD_PAUSE_MAX));
            self.scan.unread_pause = Some(pause);
            let pause = if soon { RETRY } else { pause.max(asked.min(UNREAD_PAUSE_MAX)) };
            self.scan.retry_by(env.now.after(pause));
        }
        env.notice(self, Notice::Scanned);
        if core::mem::take(&mut self.scan.again) {
            self.request_paced_scan(env, bufs);
        }
    }
}

/// What does not change with every write.
fn lasting(namespace: &Namespace) -> Namespace {
    Namespace { used_blocks: 0, ..*namespace }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_kept_of_two_scans_only() {
        let mut scan = Scan { number: 1, complete: 1, ..Scan::default() };
        for nsid in 1..=9 {
            scan.refused.insert(nsid, (String::from("odd"), scan.number));
            scan.forget_refused();
            scan.number += 1;
        }
        assert_eq!(scan.refused.into_keys().collect::<Vec<_>>(), [1, 9]);
    }
}
