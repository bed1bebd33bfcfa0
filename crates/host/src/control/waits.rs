//! Answers that control waits for on behalf of callers, each with a limit.

use super::Control;
use super::subsystem::Head;
use crate::mail::{Detail, ShardStats, ToShard};
use crate::topology::{ControllerId, HeadId};
use crate::verb::{Reply, VerbError};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use anabranch_proto::machine::{Buffers, Time, VerbId, WorkerId};
use core::ops::RangeInclusive;
use core::time::Duration;

/// Shards report at once; only a worker that hangs takes longer for a portion.
const STATS_LIMIT: Duration = Duration::from_secs(1);

/// Heads and paths that a shard reports at once, where there are not tens of thousands. It is about
/// 0.1 ms in which no I/O goes on.
const PORTION: usize = 256;

/// In no more portions than these: a shard looks at all that it has for each.
const PORTIONS_MAX: usize = 64;

/// All heads there may be, also those that only a shard still knows.
const ALL: RangeInclusive<HeadId> = HeadId(0)..=HeadId(u32::MAX);

/// How long a freeze or a quiesce may take before it is undone and the caller is told.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// Callers at once who wait for figures or for a head to rest.
const MAX_WAITS: usize = 1024;

/// What figures were asked for.
pub(super) enum StatsFor {
    Snapshot(VerbId, Detail),
    Attributes(VerbId, Option<String>),
    Explain(VerbId, HeadId),
    /// An object that is this head or a path to it, and the attribute.
    Get(VerbId, HeadId, String, String),
    /// The same, and the value: resets a counter to what it is now.
    Set(VerbId, HeadId, String, String, String),
    /// How many commands a controller that is being removed still has.
    InFlight(ControllerId),
    /// How many requests are unanswered when the time for draining is over.
    Shutdown(VerbId),
}

impl StatsFor {
    /// What shards have to report besides their figures.
    fn detail(&self) -> Detail {
        match self {
            StatsFor::Snapshot(_, detail) => *detail,
            StatsFor::Explain(_, head) => Detail::Explain(*head),
            StatsFor::InFlight(controller) => Detail::InFlight(*controller),
            StatsFor::Attributes(..) => Detail::Measured,
            StatsFor::Get(.., attribute) if is_measured(attribute) => Detail::Measured,
            _ => Detail::None,
        }
    }

    /// Whose figures are needed: those of one head, or in which portions those of all.
    fn of(&self, heads: impl Iterator<Item = (HeadId, usize)>) -> Vec<RangeInclusive<HeadId>> {
        match self {
            StatsFor::Explain(_, head)
            | StatsFor::Get(_, head, ..)
            | StatsFor::Set(_, head, ..) => vec![*head..=*head],
            // What it reports is little.
            StatsFor::InFlight(_) => vec![ALL],
            StatsFor::Snapshot(..) | StatsFor::Attributes(..) | StatsFor::Shutdown(_) => {
                portions(heads)
            }
        }
    }
}

/// All heads, in portions that take a shard little time each. `heads` are those that there are,
/// with the number of their paths.
fn portions(heads: impl Iterator<Item = (HeadId, usize)>) -> Vec<RangeInclusive<HeadId>> {
    let mut heads: Vec<(HeadId, usize)> = heads.collect();
    heads.sort_unstable();
    let (mut portions, mut first, mut entries) = (Vec::new(), *ALL.start(), 0);
    let all: usize = heads.iter().map(|(_, paths)| 1 + paths).sum();
    let portion = PORTION.max(all / PORTIONS_MAX);
    for (head, paths) in heads {
        let more = 1 + paths;
        if entries > 0 && entries + more > portion {
            portions.push(first..=HeadId(head.0 - 1));
            (first, entries) = (head, 0);
        }
        entries += more;
    }
    portions.push(first..=*ALL.end());
    portions
}

/// Attributes that show what policies have measured.
fn is_measured(attribute: &str) -> bool {
    matches!(attribute, "latency_stat" | "finish_time_stat")
}

/// Requests that these have not answered.
fn unanswered(got: &[(WorkerId, ShardStats)]) -> u64 {
    let heads = got.iter().flat_map(|(_, stats)| &stats.heads);
    heads.map(|head| u64::from(head.in_flight)).sum()
}

struct StatsWait {
    id: u64,
    /// Anew with each answer.
    by: Time,
    portions: Vec<RangeInclusive<HeadId>>,
    /// Who has not told all, and how many portions it has told.
    waiting: Vec<(WorkerId, usize)>,
    got: Vec<(WorkerId, ShardStats)>,
    purpose: StatsFor,
}

/// Two ways to bring a head to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Nothing more is dispatched; what is in flight goes on.
    Quiesce,
    /// Nothing new is let in; done when nothing is in flight.
    Freeze,
}

impl Stop {
    /// How often the head was stopped in this way.
    pub(super) fn count(self, head: &mut Head) -> &mut u32 {
        match self {
            Stop::Quiesce => &mut head.quiesced,
            Stop::Freeze => &mut head.frozen,
        }
    }
}

struct StopWait {
    id: VerbId,
    head: HeadId,
    stop: Stop,
    by: Time,
    /// The first epoch in which the head is published as stopped.
    epoch: u64,
    waiting: Vec<WorkerId>,
}

/// Somebody waits until controllers are gone.
pub(super) struct RemovalWait {
    pub(super) id: VerbId,
    pub(super) count: u32,
    pub(super) waiting: Vec<ControllerId>,
    /// For `Shutdown`: requests that were not answered in time.
    pub(super) unanswered: Option<u64>,
}

struct DrainWait {
    id: VerbId,
    by: Time,
    waiting: Vec<WorkerId>,
}

/// Everything that is waited for.
#[derive(Default)]
pub(super) struct Waits {
    next_id: u64,
    stats: Vec<StatsWait>,
    stops: Vec<StopWait>,
    pub(super) removals: Vec<RemovalWait>,
    drain: Option<DrainWait>,
}

impl Waits {
    pub(super) fn due(&self) -> Option<Time> {
        let stats = self.stats.iter().map(|wait| wait.by);
        let stops = self.stops.iter().map(|wait| wait.by);
        stats.chain(stops).chain(self.drain.as_ref().map(|wait| wait.by)).min()
    }
}

impl Control {
    fn data_workers(&self) -> Vec<WorkerId> {
        (1..=self.env.config.data_workers).map(WorkerId).collect()
    }

    /// Asks all shards for their figures; [`Control::figures`] goes on.
    pub(super) fn ask_stats(&mut self, purpose: StatsFor) {
        if self.waits.stats.len() >= MAX_WAITS {
            return self.stats_busy(&purpose);
        }
        let id = self.waits.next_id;
        self.waits.next_id += 1;
        let workers = self.data_workers();
        let by = self.env.now.after(STATS_LIMIT);
        let heads = self.subsystems.iter().flat_map(|subsystem| &subsystem.heads);
        let portions = purpose.of(heads.map(|head| (head.id, head.paths.len())));
        let (of, detail) = (portions[0].clone(), purpose.detail());
        self.env.mail_all(|| ToShard::ReportStats { id, of: of.clone(), detail });
        let waiting = workers.iter().map(|&worker| (worker, 0)).collect();
        let room = self.room_for(&portions);
        let got = workers.iter().map(|&worker| (worker, room())).collect();
        self.waits.stats.push(StatsWait { id, by, portions, waiting, got, purpose });
    }

    /// For what a worker will tell in several portions: it is large.
    fn room_for(&self, portions: &[RangeInclusive<HeadId>]) -> impl Fn() -> ShardStats + use<> {
        let heads = || self.subsystems.iter().flat_map(|subsystem| &subsystem.heads);
        let (paths, heads) = match portions {
            [_] => (0, 0),
            _ => (heads().map(|head| head.paths.len()).sum(), heads().count()),
        };
        move || ShardStats::with_room(paths, heads)
    }

    fn stats_busy(&mut self, purpose: &StatsFor) {
        match purpose {
            StatsFor::Snapshot(id, _)
            | StatsFor::Attributes(id, _)
            | StatsFor::Explain(id, _)
            | StatsFor::Get(id, ..)
            | StatsFor::Set(id, ..) => {
                let text = String::from("too many callers wait for figures, try again");
                self.env.refuse(*id, VerbError::Conflict(text));
            }
            // The removal looks again by itself; the shutdown counts what it does not know as none.
            StatsFor::InFlight(_) => {}
            StatsFor::Shutdown(id) => self.remove_all(*id, 0),
        }
    }

    /// A controller that is being removed wants to know whether it is idle.
    pub(super) fn ask_in_flight(&mut self, id: ControllerId) {
        let asked = |wait: &StatsWait| matches!(wait.purpose, StatsFor::InFlight(c) if c == id);
        if !self.waits.stats.iter().any(asked) {
            self.ask_stats(StatsFor::InFlight(id));
        }
    }

    pub(super) fn stats_arrived(
        &mut self,
        from: WorkerId,
        id: u64,
        mut stats: ShardStats,
        bufs: &mut dyn Buffers,
    ) {
        let Some(at) = self.waits.stats.iter().position(|wait| wait.id == id) else { return };
        let wait = &mut self.waits.stats[at];
        let Some(place) = wait.waiting.iter().position(|&(worker, _)| worker == from) else {
            return;
        };
        stats.sort();
        if let Some((_, got)) = wait.got.iter_mut().find(|(worker, _)| *worker == from) {
            match wait.portions.len() {
                1 => *got = stats,
                _ => got.append(stats),
            }
        }
        wait.by = self.env.now.after(STATS_LIMIT);
        wait.waiting[place].1 += 1;
        if let Some(of) = wait.portions.get(wait.waiting[place].1) {
            let (of, detail) = (of.clone(), wait.purpose.detail());
            self.env.mail(from, ToShard::ReportStats { id, of, detail });
        } else {
            wait.waiting.swap_remove(place);
        }
        if wait.waiting.is_empty() {
            let wait = self.waits.stats.swap_remove(at);
            self.figures(wait.purpose, wait.got, bufs);
        }
    }

    /// Some worker has not reported in time. Sums without it would be lower than they were, and a
    /// counter that falls looks as if it had begun anew; what there is can be listed all the same.
    fn figures_missing(&mut self, wait: StatsWait) {
        match wait.purpose {
            StatsFor::Snapshot(id, Detail::None) => {
                let snapshot = self.snapshot(&wait.got);
                self.env.reply(id, Reply::Snapshot(alloc::boxed::Box::new(snapshot)));
            }
            StatsFor::Snapshot(id, _)
            | StatsFor::Attributes(id, _)
            | StatsFor::Explain(id, _)
            | StatsFor::Get(id, ..)
            | StatsFor::Set(id, ..) => {
                let late: Vec<u16> = wait.waiting.iter().map(|(worker, _)| worker.0).collect();
                let text = format!(
                    "workers {late:?} have not told their figures in {STATS_LIMIT:?}, try again"
                );
                self.env.refuse(id, VerbError::Failed(text));
            }
            // The removal looks again by itself.
            StatsFor::InFlight(_) => {}
            // What a worker that hangs has is unanswered: one at least.
            StatsFor::Shutdown(id) => {
                let silent = wait.waiting.len() as u64;
                self.remove_all(id, silent + unanswered(&wait.got));
            }
        }
    }

    /// The figures of all are there.
    fn figures(
        &mut self,
        purpose: StatsFor,
        got: Vec<(WorkerId, ShardStats)>,
        bufs: &mut dyn Buffers,
    ) {
        match purpose {
            StatsFor::Snapshot(id, _) => {
                let snapshot = self.snapshot(&got);
                self.env.reply(id, Reply::Snapshot(alloc::boxed::Box::new(snapshot)));
            }
            StatsFor::Attributes(id, object) => {
                let reply = match self.list_attributes(object.as_deref(), &got) {
                    Ok(attributes) => Reply::Attributes(attributes),
                    Err(error) => Reply::Error(error),
                };
                self.env.reply(id, reply);
            }
            StatsFor::Explain(id, head) => {
                let reply = match self.explain(head, &got) {
                    Ok(report) => Reply::Explain(alloc::boxed::Box::new(report)),
                    Err(error) => Reply::Error(error),
                };
                self.env.reply(id, reply);
            }
            StatsFor::Get(id, head, object, attribute) => {
                let text = self
                    .still_of(head, &object)
                    .and_then(|()| self.get_attribute(&object, &attribute, &got));
                self.env.reply(id, text.map_or_else(Reply::Error, Reply::Value));
            }
            StatsFor::Set(id, head, object, attribute, value) => {
                let set = self
                    .still_of(head, &object)
                    .and_then(|()| self.set_attribute(&object, &attribute, &value, &got));
                self.env.reply(id, set.map_or_else(Reply::Error, |()| Reply::Done));
            }
            StatsFor::InFlight(controller) => {
                let paths = got.iter().flat_map(|(_, stats)| &stats.paths);
                let of_it = paths.filter(|path| path.controller == controller);
                let commands = of_it.map(|path| u64::from(path.in_flight)).sum();
                if let Some(controller) = self.controllers.get_mut(&controller) {
                    controller.in_flight(&mut self.env, bufs, commands);
                }
            }
            StatsFor::Shutdown(id) => self.remove_all(id, unanswered(&got)),
        }
    }

    /// Whether a name that was asked for means the same head as it did then.
    fn still_of(&self, head: HeadId, object: &str) -> Result<(), VerbError> {
        match self.head_of(object)? {
            Some(now) if now == head => Ok(()),
            _ => Err(VerbError::Failed(format!("{object} is another one now, try again"))),
        }
    }

    /// `Shutdown`, first part: no more requests; those in flight are answered.
    pub(super) fn begin_drain(&mut self, id: VerbId) {
        let by = self.env.now.after(self.env.config.shutdown_timeout);
        self.waits.drain = Some(DrainWait { id, by, waiting: self.data_workers() });
        self.env.mail_all(|| ToShard::Drain);
    }

    pub(super) fn drained(&mut self, from: WorkerId) {
        let Some(wait) = &mut self.waits.drain else { return };
        wait.waiting.retain(|&waiting| waiting != from);
        if wait.waiting.is_empty() {
            let id = wait.id;
            self.waits.drain = None;
            self.remove_all(id, 0);
        }
    }

    /// Waits until every shard has stopped a head. Its count was raised just now, so the next
    /// picture is the first that says so.
    pub(super) fn await_stop(&mut self, id: VerbId, head: HeadId, stop: Stop) {
        let by = self.env.now.after(STOP_LIMIT);
        let (epoch, waiting) = (self.epoch + 1, self.data_workers());
        self.waits.stops.push(StopWait { id, head, stop, by, epoch, waiting });
    }

    /// A head is to rest no more often than so: of those who wait for it to, each has raised the
    /// count by one, so the last of them was taken back.
    pub(super) fn take_back_stops(&mut self, head: HeadId, stop: Stop, left: u32) {
        let is_it = |wait: &StopWait| wait.head == head && wait.stop == stop;
        let waiting = self.waits.stops.iter().filter(|wait| is_it(wait)).count();
        if waiting > left as usize
            && let Some(at) = self.waits.stops.iter().rposition(is_it)
        {
            let wait = self.waits.stops.remove(at);
            let text = String::from("somebody told the device to go on before it had come to rest");
            self.env.refuse(wait.id, VerbError::Failed(text));
        }
    }

    pub(super) fn may_wait(&self) -> bool {
        self.waits.stops.len() < MAX_WAITS
    }

    pub(super) fn stopped(&mut self, from: WorkerId, stop: Stop, head: HeadId, epoch: u64) {
        for wait in &mut self.waits.stops {
            if wait.head == head && wait.stop == stop && epoch >= wait.epoch {
                wait.waiting.retain(|&waiting| waiting != from);
            }
        }
        let waits = core::mem::take(&mut self.waits.stops);
        let (done, rest): (Vec<_>, Vec<_>) =
            waits.into_iter().partition(|wait| wait.waiting.is_empty());
        self.waits.stops = rest;
        for wait in done {
            self.env.reply(wait.id, Reply::Done);
        }
    }

    /// Who waits for a head that is gone is told.
    pub(super) fn heads_removed(&mut self, heads: &[HeadId]) {
        let waits = core::mem::take(&mut self.waits.stops);
        let (over, rest): (Vec<_>, Vec<_>) =
            waits.into_iter().partition(|wait| heads.contains(&wait.head));
        self.waits.stops = rest;
        for wait in over {
            let text = String::from("the device was removed");
            self.env.refuse(wait.id, VerbError::Failed(text));
        }
    }

    pub(super) fn waits_timeout(&mut self) {
        let now = self.env.now;
        while let Some(at) = self.waits.stats.iter().position(|wait| wait.by <= now) {
            let wait = self.waits.stats.swap_remove(at);
            self.figures_missing(wait);
        }
        while let Some(at) = self.waits.stops.iter().position(|wait| wait.by <= now) {
            let wait = self.waits.stops.swap_remove(at);
            let before = self.rests(wait.head);
            if let Some(head) = self.head_mut(wait.head) {
                // A stop that failed leaves nothing behind.
                let count = wait.stop.count(head);
                *count = count.saturating_sub(1);
            }
            self.tell_rest(wait.head, before);
            self.env.dirty = true;
            let seconds = STOP_LIMIT.as_secs();
            let text = match wait.stop {
                Stop::Freeze => format!("requests were still in flight after {seconds} s"),
                Stop::Quiesce => format!("a worker had not answered after {seconds} s"),
            };
            self.env.refuse(wait.id, VerbError::Failed(text));
        }
        if self.waits.drain.as_ref().is_some_and(|wait| wait.by <= now)
            && let Some(wait) = self.waits.drain.take()
        {
            self.ask_stats(StatsFor::Shutdown(wait.id));
        }
    }
}
