//! What is physically possible on the links, the target and the load of a cell, whatever the
//! policy.
//!
//! Three bounds, the lowest is the limit:
//!
//! 1. **Links.** Per direction the rates of all paths, with the headers that the load puts on
//!    them. Congestion takes the time away in which it is there.
//! 2. **Target.** Its servers over the mean service time.
//! 3. **Load.** What is offered by an open loop; in a closed loop, what the open requests can
//!    bring: they fill the paths by base delay, the nearest first, each up to rate times delay.
//!    This bound takes requests as the load's mean request: where some are nearest on one path and
//!    some on another, a policy that sorts them may exceed it, and results say so.
//!
//! What asks for a number of requests a second (open loops, `rate`, `rate_iops`) comes first, as
//! one load in the proportion of what its jobs ask for. The other jobs get what that leaves, as one
//! load in the proportion of their open requests. Where one of them reads and another writes, each
//! direction goes on at its own pace, and together they may do much more: results say so
//! (`beyond`).
//!
//! A rate of reads or of writes bounds these alone: a job that mixes them goes on with the others
//! once these have it, and where the others have none it is no job that comes first (`demand`).
//!
//! Inside, numbers of requests a second are in thousandths: a few long requests a second are no
//! whole number.
//!
//! Paths count that may be used: up, and optimized unless none is. Where a variant of the scenario
//! lets others compete, or has paths of weight 0, non-optimized ones count as well, for all
//! variants. A path that is silent counts as down from the start of its silence.

pub(crate) mod beyond;
mod demand;

use crate::cell::Cell;
use crate::light::{bytes_in, bytes_out};
use crate::scenario::{Alteration, AnaState, Arrival, Job, Path, PathState};
use anabranch_policy::{OpClass, Policy};
use core::fmt;
use core::time::Duration;
pub(crate) use demand::is_paced;
use demand::{Demand, Stream};

const SECOND_NS: u128 = 1_000_000_000;
/// In these parts a number of requests, or of requests a second, is counted.
const PARTS: u128 = 1000;
/// Without a bound.
const ENDLESS: u128 = 1 << 96;

/// The limit of a cell at one time, or over a span of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Requests per second of all hosts.
    pub iops: u64,
    /// Payload per second of all hosts.
    pub bytes_per_second: u64,
    /// What sets it.
    pub bound: Bound,
}

/// What sets a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The links from the hosts to the target.
    LinksIn,
    /// The links from the target to the hosts.
    LinksOut,
    /// The target's servers.
    Target,
    /// The requests that the load keeps open.
    OpenRequests,
    /// The tags of the queue pairs.
    Tags,
    /// The requests that the load asks for: an open loop, or a rate.
    Offered,
    /// No path may be used.
    NoPath,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bound::LinksIn => "the sum of the links to the target",
            Bound::LinksOut => "the sum of the links to the hosts",
            Bound::Target => "the target's servers",
            Bound::OpenRequests => "too few open requests for the delay of the paths",
            Bound::Tags => "too few tags for the delay of the paths",
            Bound::Offered => "the load asks for no more",
            Bound::NoPath => "no path is usable",
        })
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib_s = self.bytes_per_second >> 20;
        write!(f, "{} IOPS, {mib_s} MiB/s: {}", self.iops, self.bound)
    }
}

/// The load, and its mean request: bytes in thousandths.
struct Load {
    payload_milli: u128,
    /// On a link to the target.
    in_milli: u128,
    /// On a link to a host.
    out_milli: u128,
    service_ns: u128,
    /// Classes and sizes with their shares in millionths.
    kinds: Vec<(OpClass, u32, u128)>,
    /// Requests per second that all hosts ask for, in [`PARTS`].
    offered: u128,
    /// Requests that closed loops keep open, on all hosts, in [`PARTS`].
    open: u128,
    /// For so long each of those is not made again when it has ended.
    thought_ns: u128,
    /// Queue pairs per path that the load reaches times their tags, in [`PARTS`]: of the variant
    /// that has the most.
    tags: u128,
}

impl Load {
    /// Of all jobs.
    fn of(cell: Cell<'_>) -> Load {
        let jobs: Vec<&Job> = cell.scenario.jobs.iter().collect();
        let (streams, offered) = demand::together(cell, &jobs);
        Load::new(cell, &streams, offered)
    }

    /// Of these together, which ask for so many requests a second.
    fn new(cell: Cell<'_>, streams: &[Stream<'_>], offered: u128) -> Load {
        let scenario = cell.scenario;
        let hosts = u128::from(scenario.hosts.count);
        let mut open = 0u128;
        let mut all: Vec<(OpClass, u32, u128)> = Vec::new();
        let mut total = 0;
        for Stream { job, kinds, weight } in streams {
            let clones = u128::from(job.clones) * hosts;
            open = match job.arrival {
                Arrival::Closed => open.saturating_add(clones * u128::from(job.depth) * PARTS),
                Arrival::Poisson { .. } => ENDLESS,
            };
            total += weight;
            all.extend(kinds.iter().map(|(op, n, ppm)| (*op, *n, weight * u128::from(*ppm))));
        }
        // One limit for all variants, also for those that have fewer queue pairs than others.
        let variants = scenario.variants.iter().chain([cell.variant]);
        let pairs = variants.map(|variant| pairs(streams, variant.queues(&scenario.hosts), hosts));
        for (_, _, share) in &mut all {
            *share /= total.max(1);
        }
        let mean = |value: &dyn Fn(OpClass, u32) -> u64| -> u128 {
            let of = |&(op, n, share): &(OpClass, u32, u128)| u128::from(value(op, n)) * share;
            all.iter().map(of).sum::<u128>() / 1000
        };
        let thought_ns = streams.iter().map(|stream| u128::from(stream.job.thinktime_ns));
        Load {
            payload_milli: mean(&|_, bytes| bytes.into()),
            in_milli: mean(&bytes_in),
            out_milli: mean(&bytes_out),
            service_ns: mean(&|op, _| cell.service_ns(op)) / 1000,
            offered,
            open: open.min(ENDLESS),
            thought_ns: thought_ns.min().unwrap_or(0),
            tags: pairs.max().unwrap_or(0) * u128::from(scenario.hosts.tags()) * PARTS,
            kinds: all,
        }
    }
}

/// How many of the queue pairs on a path the jobs' clones can use, where each host has so many.
fn pairs(streams: &[Stream<'_>], queues: u32, hosts: u128) -> u128 {
    let used = streams.iter().map(|Stream { job, .. }| {
        (u128::from(job.clones) * hosts).min(u128::from(queues_of(job, queues)) * hosts)
    });
    used.sum::<u128>().min(u128::from(queues) * hosts)
}

/// How many of a host's queue pairs on a path the job's clones can use.
fn queues_of(job: &Job, queues: u32) -> u32 {
    if job.workers.is_empty() {
        return queues;
    }
    let mut used: Vec<u32> = job.workers.iter().map(|worker| worker % queues).collect();
    used.sort_unstable();
    used.dedup();
    used.len() as u32
}

const MILLION: u128 = 1_000_000;

/// A path and its condition over a span of time.
#[derive(Clone)]
struct Spell {
    path: Path,
    up: bool,
    /// When its links began: from then on congestion comes and goes.
    since_ns: u64,
    /// Of the time, the part in which its links carry, in millionths.
    carrying: u128,
}

impl Spell {
    fn new(path: &Path) -> Spell {
        Spell { path: path.clone(), up: true, since_ns: 0, carrying: MILLION }
    }

    fn change(&mut self, to: &Alteration, now_ns: u64) {
        match to {
            Alteration::Shape(shape) => {
                (self.path.shape, self.since_ns) = (shape.clone(), now_ns);
            }
            Alteration::Brownout(brownout) => self.path.brownout = *brownout,
            Alteration::Ana(ana) => self.path.ana = *ana,
            Alteration::State(state) => {
                let up = *state == PathState::Up;
                if up && !self.up {
                    self.since_ns = now_ns;
                }
                self.up = up;
            }
        }
    }

    /// The same over this span.
    fn over(mut self, from_ns: u64, until_ns: u64) -> Spell {
        if let Some(on_off) = self.path.shape.on_off {
            let (on, off) = (on_off.on.as_nanos().max(1), on_off.off.as_nanos());
            let carried = |at_ns: u64| {
                let at = u128::from(at_ns.saturating_sub(self.since_ns));
                at / (on + off) * on + (at % (on + off)).min(on)
            };
            let span = u128::from(until_ns.saturating_sub(from_ns)).max(1);
            self.carrying = carried(until_ns).saturating_sub(carried(from_ns)) * MILLION / span;
        }
        self
    }

    /// Bits a second of one direction; none is without limit.
    fn rate_of(&self, rate: Option<u64>) -> u128 {
        rate.map_or(ENDLESS, |rate| u128::from(rate) * self.carrying / MILLION)
    }
}

/// Requests a second that a direction of this rate carries, in [`PARTS`].
fn carries(rate: u128, bytes_milli: u128) -> u128 {
    if rate >= ENDLESS { ENDLESS } else { rate * 1000 * PARTS / (8 * bytes_milli).max(1) }
}

/// The part of links and target that is left, and of the requests that jobs keep open, in
/// millionths.
struct Room {
    links_in: u128,
    links_out: u128,
    target: u128,
    open: u128,
}

impl Room {
    const ALL: Room =
        Room { links_in: MILLION, links_out: MILLION, target: MILLION, open: MILLION };

    /// What is left beside a load.
    fn beside(self, cell: Cell<'_>, load: &Load, most: &Most, paths: &[&Spell]) -> Room {
        let iops = most.iops;
        let (links_in, links_out) = links(paths);
        let left = |room: u128, taken: u128, of: u128| match of {
            ENDLESS.. => room,
            _ => room.saturating_sub(taken.saturating_mul(MILLION).div_ceil(of.max(1))),
        };
        let bits = |bytes_milli: u128| iops.saturating_mul(bytes_milli) / 125 / PARTS;
        Room {
            links_in: left(self.links_in, bits(load.in_milli), links_in),
            links_out: left(self.links_out, bits(load.out_milli), links_out),
            target: left(self.target, iops, target_iops(cell, load, paths.len())),
            open: left(self.open, iops, most.if_all_open),
        }
    }
}

/// Bits a second of all paths, to the target and to the hosts.
fn links(paths: &[&Spell]) -> (u128, u128) {
    let sum = |rates: &dyn Fn(&Spell) -> u128| {
        paths.iter().map(|path| rates(path)).fold(0u128, u128::saturating_add).min(ENDLESS)
    };
    let shape = |path: &Spell| path.path.shape.clone();
    (
        sum(&|path| path.rate_of(shape(path).rate_in)),
        sum(&|path| path.rate_of(shape(path).rate_out)),
    )
}

/// This part of something that may have no bound.
fn part(of: u128, millionths: u128) -> u128 {
    if of >= ENDLESS { ENDLESS } else { of * millionths / MILLION }
}

/// A path's part in the closed-loop bound.
struct Reach {
    /// How long the mean request takes when nothing else is there.
    base_ns: u128,
    /// Requests a second that its links carry, in [`PARTS`].
    iops: u128,
}

fn reach(spell: &Spell, load: &Load, room: &Room) -> Reach {
    let (path, shape) = (&spell.path, &spell.path.shape);
    let rate_in = part(spell.rate_of(shape.rate_in), room.links_in);
    let rate_out = part(spell.rate_of(shape.rate_out), room.links_out);
    let mut base_ns = shape.delay.as_nanos() + load.service_ns;
    for (rate, bytes_milli) in [(shape.rate_in, load.in_milli), (shape.rate_out, load.out_milli)] {
        if let Some(rate) = rate {
            base_ns += bytes_milli * 8 * SECOND_NS / 1000 / u128::from(rate.max(1));
        }
    }
    for &(_, bytes, share) in &load.kinds {
        base_ns += shape.large_delay(bytes.into()).as_nanos() * share / MILLION;
    }
    if let Some(brownout) = path.brownout {
        base_ns += u128::from(brownout.percent) * u128::from(brownout.delay_ns()) / 100;
    }
    let iops = carries(rate_in, load.in_milli).min(carries(rate_out, load.out_milli));
    Reach { base_ns: base_ns.max(1), iops }
}

/// Requests a second that the target's servers end, in [`PARTS`].
fn target_iops(cell: Cell<'_>, load: &Load, paths: usize) -> u128 {
    let target = &cell.scenario.target;
    let servers = match (target.servers, target.per_path) {
        (None, _) => return ENDLESS,
        (Some(servers), true) => u128::from(servers) * paths as u128,
        (Some(servers), false) => servers.into(),
    };
    (servers * SECOND_NS * PARTS).checked_div(load.service_ns).unwrap_or(ENDLESS)
}

/// The limit with these paths.
fn limit(cell: Cell<'_>, demand: &Demand, paths: &[&Spell]) -> Limit {
    let mut bound = Bound::NoPath;
    let (mut iops, mut bytes) = (0u128, 0u128);
    for part in parts(cell, demand, paths) {
        if iops == 0 || part.iops > 0 {
            bound = part.bound;
        }
        iops += part.iops;
        bytes += part.iops.saturating_mul(part.load.payload_milli) / (1000 * PARTS);
    }
    let narrow = |value: u128| u64::try_from(value).unwrap_or(u64::MAX);
    // Less than one a second is not nothing.
    let whole = (iops / PARTS).max(u128::from(iops > 0));
    Limit { iops: narrow(whole), bytes_per_second: narrow(bytes), bound }
}

/// What one of the loads of a cell gets at most.
struct Part<'a> {
    load: &'a Load,
    paced: bool,
    /// Whether it has a rate: what it misses is caught up.
    has_a_rate: bool,
    /// Requests a second, in [`PARTS`].
    iops: u128,
    bound: Bound,
}

/// The loads of a cell, one after the other; none where no path may be used.
fn parts<'a>(cell: Cell<'_>, demand: &'a Demand, paths: &[&Spell]) -> Vec<Part<'a>> {
    let mut room = Room::ALL;
    let mut found = Vec::new();
    if paths.is_empty() {
        return found;
    }
    for (loads, paced) in [(&demand.paced, true), (&demand.rest, false)] {
        room.open = MILLION;
        for (index, load) in loads.iter().enumerate() {
            let most = most(cell, load, paths, &room);
            room = room.beside(cell, load, &most, paths);
            let has_a_rate = paced || index + 1 < loads.len();
            let Most { iops, bound, .. } = most;
            found.push(Part { load, paced, has_a_rate, iops, bound });
            if bound != Bound::Offered {
                break;
            }
        }
    }
    found
}

/// What a load gets at most.
struct Most {
    /// Requests a second, in [`PARTS`].
    iops: u128,
    /// What sets that.
    bound: Bound,
    /// Requests a second if every request of its jobs were open for it, in [`PARTS`].
    if_all_open: u128,
}

/// What a load gets at most in this room.
fn most(cell: Cell<'_>, load: &Load, paths: &[&Spell], room: &Room) -> Most {
    let (links_in, links_out) = links(paths);
    let target = part(target_iops(cell, load, paths.len()), room.target);
    let mut reaches: Vec<Reach> = paths.iter().map(|path| reach(path, load, room)).collect();
    reaches.sort_by_key(|reach| reach.base_ns);
    let opened = |open: u128| filled(&reaches, load.thought_ns, open, ENDLESS);
    let bounds = [
        (carries(part(links_in, room.links_in), load.in_milli), Bound::LinksIn),
        (carries(part(links_out, room.links_out), load.out_milli), Bound::LinksOut),
        (target, Bound::Target),
        (opened(part(load.open, room.open)), Bound::OpenRequests),
        (filled(&reaches, 0, ENDLESS, load.tags), Bound::Tags),
        (load.offered, Bound::Offered),
    ];
    let (iops, bound) = bounds.into_iter().min_by_key(|(iops, _)| *iops).unwrap_or(bounds[0]);
    Most { iops, bound, if_all_open: opened(load.open) }
}

/// Paths by base delay, nearest first, each filled up to rate times delay and at most `each`
/// commands, as far as `open` requests go, which are made again so long after their end. Without a
/// bound when that fills all of them. Requests and rates in [`PARTS`].
fn filled(reaches: &[Reach], thought_ns: u128, open: u128, each: u128) -> u128 {
    let (mut left, mut iops, mut full) = (open, 0u128, true);
    for reach in reaches {
        let turn_ns = reach.base_ns + thought_ns;
        let holds = reach.iops.saturating_mul(turn_ns) / SECOND_NS;
        let most = left.min(each);
        if most >= holds || most >= ENDLESS {
            iops = iops.saturating_add(reach.iops);
            left = left.saturating_sub(holds);
        } else {
            full = false;
            iops = iops.saturating_add(most * SECOND_NS / turn_ns);
            left -= most;
        }
    }
    if full { ENDLESS } else { iops.min(ENDLESS) }
}

/// From when on which limit holds: at 0, and at every change (from the start of the run). In order
/// of time.
#[must_use]
pub fn limits(cell: Cell<'_>) -> Vec<(u64, Limit)> {
    let demand = Demand::of(cell);
    let spans = spans(cell, 0, |paths| limit(cell, &demand, paths));
    spans.into_iter().map(|(from, _, limit)| (from, limit)).collect()
}

/// What it takes to fill the paths that can be used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Filling {
    /// How many paths there are.
    pub(crate) paths: u64,
    /// Requests that they hold when they are full, in thousandths: each its rate times the delay of
    /// the mean request; less where the target's servers bind.
    pub(crate) held_milli: u128,
    /// The largest request of the load over the mean one, in thousandths.
    pub(crate) largest_milli: u128,
}

/// What it takes to fill the paths, whatever the load keeps open: of all spans of the window, the
/// most.
pub(crate) fn filling(cell: Cell<'_>) -> Filling {
    let load = Load::of(cell);
    let of = |paths: &[&Spell]| filling_of(cell, &load, paths);
    let all = spans(cell, cell.scenario.run.ramp_ns, of).into_iter();
    all.map(|(_, _, filling)| filling).max_by_key(|one| one.held_milli).unwrap_or_default()
}

fn filling_of(cell: Cell<'_>, load: &Load, paths: &[&Spell]) -> Filling {
    let target = target_iops(cell, load, paths.len());
    let reaches: Vec<Reach> = paths.iter().map(|path| reach(path, load, &Room::ALL)).collect();
    let sum = reaches.iter().map(|reach| reach.iops.min(target)).fold(0, u128::saturating_add);
    let held = |reach: &Reach| {
        let carries = reach.iops.min(target);
        let carries = if sum > target { carries.saturating_mul(target) / sum } else { carries };
        carries.saturating_mul(reach.base_ns) * 1000 / PARTS / SECOND_NS
    };
    let sizes = load.kinds.iter().filter(|(_, _, share)| *share > 0).map(|(_, bytes, _)| *bytes);
    let largest = u128::from(sizes.max().unwrap_or(0)) * MILLION;
    Filling {
        paths: paths.len() as u64,
        held_milli: reaches.iter().map(held).fold(0, u128::saturating_add),
        largest_milli: largest.checked_div(load.payload_milli).unwrap_or(1000).max(1000),
    }
}

/// What is true of the paths between changes, from `begin_ns` on: from when, until when, what.
fn spans<T>(cell: Cell<'_>, begin_ns: u64, of: impl Fn(&[&Spell]) -> T) -> Vec<(u64, u64, T)> {
    let changes = &cell.scenario.changes;
    let mut paths: Vec<Spell> = cell.paths().iter().map(Spell::new).collect();
    let mut found = Vec::new();
    let (mut from, mut index) = (0, 0);
    loop {
        while index < changes.len() && cell.change_ns(index) == from {
            let path = &mut paths[changes[index].path];
            path.change(&changes[index].what, from);
            index += 1;
        }
        let next = if index < changes.len() { cell.change_ns(index) } else { cell.end_ns() };
        let until = next.min(cell.end_ns());
        if until > begin_ns {
            let begin = from.max(begin_ns);
            let spells: Vec<Spell> =
                paths.iter().map(|path| path.clone().over(begin, until)).collect();
            found.push((begin, until, of(&usable(cell, &spells))));
        }
        if index == changes.len() {
            return found;
        }
        from = next;
    }
}

/// What counts: see the top of this file.
fn usable<'a>(cell: Cell<'_>, paths: &'a [Spell]) -> Vec<&'a Spell> {
    let of = |ana: AnaState| paths.iter().filter(move |one| one.up && one.path.ana == ana);
    let mut found: Vec<&Spell> = of(AnaState::Optimized).collect();
    if found.is_empty() || states_compete(cell) {
        found.extend(of(AnaState::NonOptimized));
    }
    found
}

/// Whether a variant of the scenario may use a non-optimized path beside or before an optimized
/// one. All variants are measured by the same limit.
fn states_compete(cell: Cell<'_>) -> bool {
    cell.scenario.variants.iter().any(|variant| match variant.parameters.policy {
        Policy::Latency => variant.parameters.latency.compete,
        Policy::ServiceTime => variant.weights.contains(&0),
        _ => false,
    })
}

/// The limit of the measured window: the mean of the limits that hold in it, by time; the bound is
/// that which holds for the longest.
#[must_use]
pub fn limit_of_window(cell: Cell<'_>) -> Limit {
    let (mut iops, mut bytes) = (0u128, 0u128);
    let mut bounds: Vec<(Bound, u64)> = Vec::new();
    let demand = Demand::of(cell);
    let of = |paths: &[&Spell]| limit(cell, &demand, paths);
    for (from, until, limit) in spans(cell, cell.scenario.run.ramp_ns, of) {
        let time = until - from;
        iops += u128::from(limit.iops) * u128::from(time);
        bytes += u128::from(limit.bytes_per_second) * u128::from(time);
        match bounds.iter_mut().find(|(bound, _)| *bound == limit.bound) {
            Some((_, sum)) => *sum += time,
            None => bounds.push((limit.bound, time)),
        }
    }
    let span = u128::from(cell.scenario.run.window_ns.max(1));
    let narrow = |value: u128| u64::try_from(value / span).unwrap_or(u64::MAX);
    let longest = bounds.into_iter().rev().max_by_key(|(_, time)| *time);
    Limit {
        iops: narrow(iops),
        bytes_per_second: narrow(bytes),
        bound: longest.map_or(Bound::NoPath, |(bound, _)| bound),
    }
}

/// How long the mean request takes on a path that has nothing else to do.
#[must_use]
pub fn base_delay(cell: Cell<'_>, path: usize) -> Duration {
    let ns = reach(&Spell::new(&cell.paths()[path]), &Load::of(cell), &Room::ALL).base_ns;
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}
