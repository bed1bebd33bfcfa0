//! ANA of one controller: its log, what it says about each namespace, and when it is read again.
//!
//! The last good log stays in force until the next good one. A path is *pending* (out of use until
//! a log was read) when a command met an ANA status on it (M14) or when the log does not list its
//! group (M17). A log whose reading began before such an error was reported may already have been
//! stale: its states are taken, but it clears nothing and the log is read once more.
//!
//! A namespace may move to another group without an event about ANA: its attributes have changed,
//! and that is all that SPDK says. So the log is read once more, too, when a scan finds a namespace
//! that says that it is in another group than the log has it in. Nor need an event come when the
//! state of a group changes together with the attachment of a namespace (NVM Express Base
//! Specification, Asymmetric Namespace Access Change): so does whatever gives a path to a
//! controller that was looked at before.
//!
//! A large log is read at a pace by its size ([`Pace`]), except when a command has met an ANA
//! status, and one that came before is not looked through again.

use super::ana_pace::Pace;
use super::ana_read::{LogRead, LogSize, Part, Trouble};
use super::controller::Controller;
use super::env::{Env, Notice};
use super::facts::Facts;
use super::lifecycle::Phase;
use super::link::{Answer, Purpose};
use super::setup::Step;
use super::wire;
use crate::event::HostEvent;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use anabranch_proto::machine::{Buffers, Time, VerbId};
use anabranch_proto::nvme::ana::AnaState;
use anabranch_proto::nvme::log::{Ana, AnaLimits};
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

/// So often in a row a log may say that all is well with a path, and the next command meet an ANA
/// status there all the same: it may be a moment late. After that it is no better than none.
const MAX_CONTRADICTIONS: u32 = 8;

/// Who meets no ANA status for so long has none in a row.
const IN_A_ROW: Duration = Duration::from_secs(3);

/// The same ANA status on the same path is told so often. A controller whose log says that all is
/// well gives it again after each reading.
const TELL_AGAIN: Duration = Duration::from_secs(10);

/// What was told so long ago is forgotten, so that namespaces that come and go leave nothing.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// A reading in progress.
#[derive(Debug)]
struct Reading {
    log: LogRead,
    /// An ANA status came in after it began: the log may have been put together before.
    overtaken: bool,
    /// It is to be read once more, for whatever reason.
    again: bool,
}

impl Reading {
    fn new(log: LogRead) -> Reading {
        Reading { log, overtaken: false, again: false }
    }
}

/// An ANA status that was told.
#[derive(Debug)]
struct Told {
    status: Status,
    at: Time,
    /// How often it came since.
    untold: u32,
}

/// ANA statuses that came in a row although the log says that all is well.
#[derive(Debug)]
struct Contradicted {
    times: u32,
    last: Time,
}

/// Whether the log was contradicted too often to be believed of a namespace.
fn is_out(contradicted: &BTreeMap<u32, Contradicted>, nsid: u32) -> bool {
    contradicted.get(&nsid).is_some_and(|said| said.times > MAX_CONTRADICTIONS)
}

/// What a log says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    groups: BTreeMap<u32, AnaState>,
    /// Each namespace that the log lists and its group, ascending. There may be two million.
    members: Vec<(u32, u32)>,
}

impl Said {
    fn new(log: Ana) -> Said {
        let mut said = Said::default();
        for group in log.groups {
            said.members.extend(group.nsids.iter().map(|nsid| (*nsid, group.id)));
            said.groups.insert(group.id, group.state);
        }
        // Each group is in order already: this one merges, where an unstable one begins anew.
        said.members.sort();
        said
    }

    fn group_of(&self, nsid: u32) -> Option<u32> {
        let at = self.members.binary_search_by_key(&nsid, |(nsid, _)| *nsid);
        at.ok().map(|at| self.members[at].1)
    }

    /// The state of a namespace that the log lists.
    fn state_of(&self, nsid: u32) -> Option<AnaState> {
        self.groups.get(&self.group_of(nsid)?).copied()
    }
}

/// Where a reading stands after an answer.
enum Taken {
    /// More is to be read.
    More,
    /// Processed. It may have said what was known. One that does not rest is read again later, and
    /// told of the first time.
    Whole { news: bool, restless: Option<String> },
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct AnaBook {
    size: Option<LogSize>,
    limits: AnaLimits,
    transition_limit: Duration,
    disabled: Option<String>,
    /// The last good log, as it came, and what it says.
    log: Vec<u8>,
    said: Said,
    pace: Pace,
    /// Namespaces whose path met an ANA status.
    suspects: BTreeSet<u32>,
    /// What was told of them of late, by namespace.
    told: BTreeMap<u32, Told>,
    /// Those whose statuses the log contradicts, by namespace.
    contradicted: BTreeMap<u32, Contradicted>,
    generation: u64,
    reading: Option<Reading>,
    /// Some namespace's group is in none of what was read since.
    lacks_groups: bool,
    /// The last one has brought parts of several logs: when it is read again after the next such.
    torn: Option<Duration>,
    /// Readings for callers, beside ours.
    pub(super) raw_reads: Vec<(VerbId, LogRead)>,
    failures: u32,
    retry_at: Option<Time>,
    retry_pause: Duration,
    /// By when each group in the change state has to have left it.
    changing: BTreeMap<u32, Time>,
    /// The first of these times.
    transition_by: Option<Time>,
    /// Without a log, or with one that is contradicted: when suspects are forgiven.
    forgive_at: Option<Time>,
}

impl Default for AnaBook {
    fn default() -> AnaBook {
        AnaBook {
            size: None,
            limits: AnaLimits { group_id: 0, groups: 0 },
            transition_limit: Duration::ZERO,
            disabled: None,
            log: Vec::new(),
            said: Said::default(),
            pace: Pace::default(),
            suspects: BTreeSet::new(),
            told: BTreeMap::new(),
            contradicted: BTreeMap::new(),
            generation: 0,
            reading: None,
            lacks_groups: false,
            torn: None,
            raw_reads: Vec::new(),
            failures: 0,
            retry_at: None,
            retry_pause: RETRY,
            changing: BTreeMap::new(),
            transition_by: None,
            forgive_at: None,
        }
    }
}

impl AnaBook {
    /// Whether a status is to be told, and how often it came untold before.
    fn told_or_counted(&mut self, now: Time, nsid: u32, status: Status) -> Option<u32> {
        let before = self.told.get_mut(&nsid).filter(|told| told.status == status);
        let untold = match before {
            Some(told) if now.since(told.at) < TELL_AGAIN => {
                told.untold = told.untold.saturating_add(1);
                return None;
            }
            Some(told) => told.untold,
            None => 0,
        };
        self.told.retain(|_, told| now.since(told.at) < FORGET_AFTER);
        self.told.insert(nsid, Told { status, at: now, untold: 0 });
        Some(untold)
    }

    /// Takes what Identify Controller says about ANA. A log that is larger than one transfer and
    /// cannot be read in parts turns ANA off for this controller, with a reason (M18).
    pub(super) fn configure(&mut self, facts: &Facts, max_bytes: u32) {
        self.size = None;
        let Some(ana) = &facts.ana else { return self.forgive() };
        match LogSize::new(ana.log_bytes, max_bytes, ana.offsets) {
            Ok(size) => self.size = Some(size),
            Err(why) => self.disable(why),
        }
        let limits = AnaLimits { group_id: ana.max_group, groups: ana.groups };
        if core::mem::replace(&mut self.limits, limits) != limits {
            // The same log may say more than is allowed now.
            self.log = Vec::new();
        }
        self.transition_limit = Duration::from_secs(2 * u64::from(ana.transition_secs));
    }

    fn disable(&mut self, why: String) {
        self.size = None;
        self.disabled = Some(why);
        self.forgive();
    }

    /// No log will say when a path that met an ANA status is better: it is taken to be so now.
    fn forgive(&mut self) {
        self.forgive_at = None;
        self.suspects.clear();
        self.generation += 1;
    }

    /// The pause is over. Those that wait for a log go on waiting.
    fn try_again(&mut self) {
        if !self.is_used() {
            return self.forgive();
        }
        self.forgive_at = None;
        let AnaBook { suspects, contradicted, .. } = self;
        suspects.retain(|nsid| !is_out(contradicted, *nsid));
        self.generation += 1;
    }

    /// Whether ANA is used.
    pub(super) fn is_used(&self) -> bool {
        self.size.is_some()
    }

    /// How its log is read; `None` when ANA is not used.
    pub(super) fn size(&self) -> Option<LogSize> {
        self.size
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// State and group of a namespace; `None` for a state that is not known (M17).
    pub(super) fn state_of(&self, nsid: u32, group: u32) -> (u32, Option<AnaState>) {
        if self.size.is_none() {
            return (0, Some(AnaState::Optimized));
        }
        let group = self.said.group_of(nsid).unwrap_or(group);
        (group, self.said.groups.get(&group).copied())
    }

    /// Whether the path of a namespace waits for a fresh log, whatever state it is in.
    pub(super) fn is_suspect(&self, nsid: u32) -> bool {
        self.suspects.contains(&nsid)
    }

    /// Whether the log has a namespace in another group than that says of itself.
    pub(super) fn lists_elsewhere(&self, nsid: u32, group: u32) -> bool {
        let listed = self.said.group_of(nsid).filter(|_| self.size.is_some() && group != 0);
        listed.is_some_and(|listed| listed != group)
    }

    /// Takes an answer to the reading in progress. Gives back, too, whether something came in
    /// meanwhile that asks for another one.
    fn take_answer(&mut self, now: Time, answer: &Answer) -> (Result<Taken, Trouble>, bool) {
        let Some(mut reading) = self.reading.take() else {
            return (Ok(Taken::Whole { news: false, restless: None }), false);
        };
        let again = reading.again;
        let part = reading.log.take(now, answer);
        let (bytes, torn) = match part {
            Ok(part @ (Part::More | Part::Again)) => {
                return (self.go_on(reading, matches!(part, Part::Again)), false);
            }
            Ok(Part::Whole(bytes)) => (bytes, false),
            Ok(Part::Torn(bytes)) => (bytes, true),
            Err(trouble) => return (Err(trouble), again),
        };
        // What comes behind its end is no work.
        self.pace.read(now, Ana::bytes_at_least(&bytes).min(bytes.len() as u64));
        let taken = match self.take_log(now, &bytes, reading.overtaken) {
            Ok(news) if torn => {
                let restless = self.torn.is_none().then(|| reading.log.restless());
                let pause = self.torn.unwrap_or(RETRY);
                self.torn = Some((pause * 2).min(RETRY_MAX));
                let at = now.after(pause);
                self.retry_by(self.pace.next(now).map_or(at, |next| at.max(next)));
                Ok(Taken::Whole { news, restless })
            }
            Ok(news) => {
                self.torn = None;
                Ok(Taken::Whole { news, restless: None })
            }
            Err(why) => match reading.log.nonsense(now, &bytes, why) {
                Ok(()) => return (self.go_on(reading, true), false),
                Err(trouble) => Err(trouble),
            },
        };
        (taken, again)
    }

    /// From its start it is read later than what came in meanwhile.
    fn go_on(&mut self, reading: Reading, from_start: bool) -> Result<Taken, Trouble> {
        let Reading { log, overtaken, again } = reading;
        let (overtaken, again) = (overtaken && !from_start, again && !from_start);
        self.reading = Some(Reading { log, overtaken, again });
        Ok(Taken::More)
    }

    /// Processes a whole log. Nothing changes when it does not make sense (C61). Gives back whether
    /// anybody has to hear of it.
    fn take_log(&mut self, now: Time, bytes: &[u8], overtaken: bool) -> Result<bool, String> {
        let (waited_for, is_same) = (!self.suspects.is_empty(), self.log == bytes);
        let before = if is_same {
            None
        } else {
            let said = Said::new(wire::parse_ana(bytes, self.limits)?);
            self.log = bytes.to_vec();
            Some(core::mem::replace(&mut self.said, said))
        };
        let news = waited_for || before.as_ref().is_some_and(|before| *before != self.said);
        self.failures = 0;
        self.retry_at = None;
        if !overtaken {
            let AnaBook { said, suspects, contradicted, .. } = self;
            let before = before.as_ref().unwrap_or(said);
            contradicted.retain(|nsid, _| {
                let state = said.state_of(*nsid);
                state == before.state_of(*nsid) && state.is_some_and(AnaState::is_accessible)
            });
            suspects.retain(|nsid| is_out(contradicted, *nsid));
            if !suspects.is_empty() && self.forgive_at.is_none() {
                self.forgive_at = Some(now.after(NO_LOG_PAUSE));
            }
            self.generation += 1;
        }
        self.check_transition(now);
        Ok(news)
    }

    /// A path that was not out of use has met an ANA status.
    fn count_contradiction(&mut self, now: Time, nsid: u32) {
        self.contradicted.retain(|_, said| now.since(said.last) < IN_A_ROW);
        let said = self.contradicted.entry(nsid).or_insert(Contradicted { times: 0, last: now });
        *said = Contradicted { times: said.times.saturating_add(1), last: now };
    }

    /// Each group may be in the change state for twice ANATT (M15), whatever others do meanwhile:
    /// when groups move one after the other, some group is changing all that time.
    pub(super) fn check_transition(&mut self, now: Time) {
        let AnaBook { size, said: Said { groups, .. }, changing, transition_limit, .. } = self;
        let is_changing =
            |group: &u32| size.is_some() && groups.get(group) == Some(&AnaState::Change);
        changing.retain(|group, _| is_changing(group));
        for group in groups.keys().filter(|group| is_changing(group)) {
            changing.entry(*group).or_insert_with(|| now.after(*transition_limit));
        }
        self.transition_by = self.changing.values().copied().min();
    }

    /// The connection is over; so is what was being read.
    pub(super) fn abandon_read(&mut self) {
        self.reading = None;
        self.lacks_groups = false;
        // Who waits for one is told by the link that is over.
        self.raw_reads.clear();
    }

    pub(super) fn stop_timers(&mut self) {
        self.retry_at = None;
        self.changing.clear();
        self.transition_by = None;
        self.forgive_at = None;
        self.contradicted.clear();
        self.failures = 0;
        self.torn = None;
        self.pace = Pace::default();
        self.retry_pause = RETRY;
    }

    pub(super) fn due(&self) -> Option<Time> {
        [self.retry_at, self.transition_by, self.forgive_at].into_iter().flatten().min()
    }

    /// Whether the log that was read last has not all groups that it should.
    pub(super) fn lacks_groups(&self) -> bool {
        self.lacks_groups
    }

    /// The log lists every group that it should: trouble that comes later begins anew.
    pub(super) fn groups_known(&mut self) {
        self.retry_pause = RETRY;
        self.lacks_groups = false;
    }

    /// When it may be read because something asks for it; `None` = at once.
    fn next_reading(&self, now: Time) -> Option<Time> {
        // A log that is contradicted is not what its paths wait for.
        let is_waited_for = self.suspects.iter().any(|nsid| !is_out(&self.contradicted, *nsid));
        let paced = self.pace.next(now).filter(|_| !is_waited_for);
        // The end of a transition is read in time.
        let half = self.transition_by.map(|by| now.after(by.since(now) / 2));
        let paced = paced.map(|at| half.map_or(at, |half| at.min(half)));
        paced.max(self.torn.map(|_| now.after(RETRY)))
    }

    fn retry_by(&mut self, at: Time) {
        self.retry_at = Some(self.retry_at.map_or(at, |retry_at| retry_at.min(at)));
    }

    fn retry_later(&mut self, now: Time) {
        if self.retry_at.is_none() {
            let at = now.after(self.retry_pause);
            self.retry_at = self.next_reading(now).max(Some(at));
            self.retry_pause = (self.retry_pause * 2).min(RETRY_MAX);
        }
    }
}

impl Controller {
    /// A step of the connect sequence: reads the log, or goes on where ANA is not used.
    pub(super) fn begin_ana_log(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        let Some(size) = self.ana.size else { return self.ask_queues(env, bufs) };
        let log = size.read(env.now, self.admin_deadline(env.now));
        self.ana.reading = Some(Reading::new(log));
        self.ask_ana_log(env, bufs);
    }

    fn ask_ana_log(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        let Some(Reading { log, .. }) = &self.ana.reading else { return };
        let (command, deadline) = (log.command(), log.deadline());
        self.step_by(env, bufs, Step::AnaLog, command, deadline);
    }

    /// The log came in the connect sequence, or a part of it. One that is read in parts and cannot
    /// be, or makes no sense so although it does not change, costs ANA, not the connection.
    pub(super) fn setup_log_answered(
        &mut self,
        env: &mut Env,
        bufs: &mut dyn Buffers,
        answer: &Answer,
    ) {
        match self.ana.take_answer(env.now, answer).0 {
            Ok(Taken::More) => self.ask_ana_log(env, bufs),
            Ok(Taken::Whole { restless, .. }) => {
                self.tell_restless(env, restless);
                self.ask_queues(env, bufs);
            }
            Err(trouble) if trouble.hopeless => {
                self.ana.disable(trouble.why);
                self.tell_ana_disabled(env);
                self.ask_queues(env, bufs);
            }
            Err(trouble) if !answer.status.is_success() => {
                self.fail(env, format!("{}: {}", Step::AnaLog, trouble.why), false);
            }
            Err(trouble) => self.fail(env, format!("ANA log: {}", trouble.why), false),
        }
    }

    /// An ANA status may have come in while the controller was being set up, from a worker that
    /// had not heard of that: a log that was read then does not count for it.
    pub(super) fn read_ana_log_for_suspects(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        if !self.ana.suspects.is_empty() {
            self.read_ana_log(env, bufs);
        }
    }

    fn tell_restless(&self, env: &mut Env, why: Option<String>) {
        if let Some(why) = why {
            let text = format!("ANA log: {why}: it is taken as it came, and read again");
            env.event(HostEvent::Note { controller: self.name(), text });
        }
    }

    pub(super) fn tell_ana_disabled(&mut self, env: &mut Env) {
        if let Some(why) = self.ana.disabled.take() {
            env.event(HostEvent::AnaDisabled { controller: self.name(), why });
        }
    }

    /// Reads the ANA log, or once more when it is being read already. One that did not rest when it
    /// was last read is read once per [`RETRY`], however often something asks for it; one that is
    /// large, as often as its size lets it.
    pub(super) fn read_ana_log(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        if self.phase != Phase::Live || !self.ana.is_used() {
            return;
        }
        if let Some(reading) = &mut self.ana.reading {
            reading.again = true;
        } else if let Some(at) = self.ana.next_reading(env.now) {
            self.ana.retry_by(at);
        } else {
            self.begin_live_log(env, bufs);
        }
    }

    fn begin_live_log(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        let (Phase::Live, Some(size), None) = (self.phase, self.ana.size, &self.ana.reading) else {
            return;
        };
        let log = size.read(env.now, self.admin_deadline(env.now));
        self.ana.reading = Some(Reading::new(log));
        self.ask_live_log(env, bufs);
    }

    fn ask_live_log(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        let (Some(reading), Some(link)) = (&self.ana.reading, &mut self.link) else { return };
        let (command, deadline) = (reading.log.command(), reading.log.deadline());
        match link.send(env, bufs, Purpose::AnaLog, command, deadline) {
            Ok(()) => self.ana.retry_at = None,
            Err(_) => {
                self.ana.reading = None;
                self.ana.retry_later(env.now);
            }
        }
    }

    /// The log came, or a part of it, or an error instead.
    pub(super) fn ana_log_answered(
        &mut self,
        env: &mut Env,
        bufs: &mut dyn Buffers,
        answer: &Answer,
    ) {
        let (result, again) = self.ana.take_answer(env.now, answer);
        match result {
            Ok(Taken::More) => return self.ask_live_log(env, bufs),
            Ok(Taken::Whole { news, restless }) => {
                self.tell_restless(env, restless);
                // A controller may tell of changes as often as it likes where there are none: that
                // is no work for every worker.
                env.dirty |= news;
                if news {
                    self.look_at_unread(env);
                }
                env.notice(self, Notice::AnaRead);
            }
            Err(Trouble { why, .. }) => {
                self.ana.failures += 1;
                if self.ana.failures >= MAX_FAILURES {
                    return self.let_go(env, bufs, format!("ANA log: {why}"));
                }
                let text = format!("ANA log: {why}");
                env.event(HostEvent::Note { controller: self.name(), text });
                if again {
                    self.ana.retry_by(env.now.after(RETRY));
                }
                return self.ana.retry_later(env.now);
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
            if let Some(untold) = self.ana.told_or_counted(env.now, nsid, status) {
                env.event(HostEvent::AnaError { path, status, untold });
            }
            self.ana.count_contradiction(env.now, nsid);
            env.dirty = true;
        }
        if let (Some(reading), Phase::Live) = (&mut self.ana.reading, self.phase) {
            reading.overtaken = true;
        }
        // A large log that is contradicted is read at its pace: the pause does not wait for that.
        let pauses = !self.ana.is_used() || is_out(&self.ana.contradicted, nsid);
        if pauses && self.ana.forgive_at.is_none() {
            self.ana.forgive_at = Some(env.now.after(NO_LOG_PAUSE));
        }
        if self.ana.is_used() {
            self.read_ana_log(env, bufs);
        }
    }

    /// A namespace's group is not in the log that we have: it is read again now, and then at
    /// growing intervals while the group stays unknown.
    pub(super) fn ana_group_unknown(
        &mut self,
        env: &mut Env,
        bufs: &mut dyn Buffers,
        (nsid, group): (u32, u32),
        first_time: bool,
    ) {
        if first_time {
            // One that is being read may have been put together before there was the group.
            self.ana.retry_pause = RETRY;
            self.read_ana_log(env, bufs);
        } else if self.ana.reading.is_none() {
            env.dirty |= !core::mem::replace(&mut self.ana.lacks_groups, true);
            if self.ana.retry_pause == RETRY {
                let text = format!("nsid {nsid}: its ANA group {group} is not in the ANA log");
                env.event(HostEvent::Note { controller: self.name(), text });
            }
            self.ana.retry_later(env.now);
        }
    }

    pub(super) fn ana_timeout(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        let now = env.now;
        if self.ana.transition_by.is_some_and(|by| by <= now) {
            env.event(HostEvent::AnaTimeout { controller: self.name() });
            return self.let_go(env, bufs, String::from("ANA transition took longer than ANATT"));
        }
        if self.ana.forgive_at.is_some_and(|at| at <= now) {
            self.ana.try_again();
            env.dirty = true;
        }
        if self.ana.retry_at.is_some_and(|at| at <= now) {
            self.ana.retry_at = None;
            self.begin_live_log(env, bufs);
        }
    }
}
