//! How long commands take to execute: servers in front of the namespaces, as slow media would be.
//!
//! Off unless [`crate::TargetVerb::Service`] sets it. A command takes a server when it has come
//! through the inbound link and its data is there; it is executed when its time is over, and its
//! answer leaves then. Commands that find no free server wait in the order in which they came.

use crate::exponential::exponential_ns;
use crate::rng::Rng;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use anabranch_proto::machine::Time;
use core::cmp::Reverse;
use core::time::Duration;

/// The longest mean service time, and the longest delay of a brownout.
pub const MAX_SERVICE: Duration = Duration::from_secs(60);
/// The most servers of a station.
pub const MAX_SERVERS: u32 = 65_536;
/// From so many commands on, those of connections that are gone are looked for and dropped.
const SWEEP: usize = 4096;

/// Servers and what they take for a command. Only commands of I/O queues are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// Commands that are executed at once, others wait: 1 to [`MAX_SERVERS`]; no limit when `None`.
    pub servers: Option<u32>,
    /// Mean time of a read; none of the three above [`MAX_SERVICE`].
    pub read: Duration,
    /// Mean time of a write.
    pub write: Duration,
    /// Mean time of any other command.
    pub other: Duration,
    /// Times are drawn from the exponential distribution; else they are always the mean.
    pub exponential: bool,
    /// Each port has `servers` servers of its own; else all ports share them.
    pub per_port: bool,
}

impl Service {
    /// What is out of bounds, and the bounds.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        if self.servers.is_some_and(|servers| !(1..=MAX_SERVERS).contains(&servers)) {
            return Some("service: servers must lie between 1 and 65536");
        }
        let longest = self.read.max(self.write).max(self.other);
        (longest > MAX_SERVICE).then_some("service: a time must not exceed 60 s")
    }
}

/// A share of the commands of a port takes much longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brownout {
    /// Of 100 commands of I/O queues so many, drawn one by one: 1 to 100.
    pub percent: u32,
    /// How much longer they are on their way to the target: up to [`MAX_SERVICE`].
    pub delay: Duration,
}

impl Brownout {
    /// What is out of bounds, and the bounds.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        if !(1..=100).contains(&self.percent) {
            return Some("brownout: percent must lie between 1 and 100");
        }
        let fits = self.delay <= MAX_SERVICE;
        (!fits).then_some("brownout: the delay must not exceed 60 s")
    }
}

/// What a command is, as far as its time goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Read,
    Write,
    Other,
}

/// A command at a station: the engine's name for it, which the stations do not look into.
#[derive(Clone, Copy, Debug)]
struct Waiting<T> {
    ticket: T,
    work: Work,
}

#[derive(Debug)]
struct Station<T> {
    free: Option<u32>,
    queue: VecDeque<Waiting<T>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    at: Time,
    order: u64,
    station: u16,
    /// Index into `serving`.
    place: u32,
}

/// All stations: one, or one per port.
#[derive(Debug)]
pub(crate) struct Stations<T> {
    service: Service,
    stations: Vec<Station<T>>,
    ends: BinaryHeap<Reverse<End>>,
    serving: Vec<T>,
    free: Vec<u32>,
    order: u64,
    /// Commands that are being served or wait.
    kept: usize,
    /// How many of them make the next sweep due.
    sweep_at: usize,
}

impl<T: Copy> Stations<T> {
    pub(crate) fn new(service: Service, ports: usize) -> Stations<T> {
        let count = if service.per_port { ports } else { 1 };
        let station = || Station { free: service.servers, queue: VecDeque::new() };
        Stations {
            service,
            stations: (0..count).map(|_| station()).collect(),
            ends: BinaryHeap::new(),
            serving: Vec::new(),
            free: Vec::new(),
            order: 0,
            kept: 0,
            sweep_at: SWEEP,
        }
    }

    /// Drops commands that `alive` does not know any more, when many have gathered. One that
    /// occupies a server, of a limited number, stays until its time is over.
    pub(crate) fn sweep(&mut self, mut alive: impl FnMut(&T) -> bool) {
        if self.kept < self.sweep_at {
            return;
        }
        let mut kept = 0;
        for station in &mut self.stations {
            station.queue.retain(|waiting| alive(&waiting.ticket));
            kept += station.queue.len();
        }
        if self.service.servers.is_none() {
            let (serving, free) = (&self.serving, &mut self.free);
            self.ends.retain(|Reverse(end)| {
                let keep = alive(&serving[end.place as usize]);
                if !keep {
                    free.push(end.place);
                }
                keep
            });
        }
        self.kept = kept + self.ends.len();
        self.sweep_at = SWEEP.max(2 * self.kept);
    }

    /// A command of a port is ready to be executed: it takes a server, or waits for one.
    pub(crate) fn enter(&mut self, now: Time, port: usize, ticket: T, work: Work, rng: &mut Rng) {
        let at = if self.service.per_port { port } else { 0 };
        self.kept += 1;
        match &mut self.stations[at].free {
            Some(0) => return self.stations[at].queue.push_back(Waiting { ticket, work }),
            Some(free) => *free -= 1,
            None => {}
        }
        self.serve(now, at, Waiting { ticket, work }, rng);
    }

    fn serve(&mut self, now: Time, station: usize, waiting: Waiting<T>, rng: &mut Rng) {
        let mean = match waiting.work {
            Work::Read => self.service.read,
            Work::Write => self.service.write,
            Work::Other => self.service.other,
        };
        let mut time_ns = u64::try_from(mean.as_nanos()).unwrap_or(u64::MAX);
        if self.service.exponential {
            time_ns = exponential_ns(rng.next_u64(), time_ns);
        }
        let place = match self.free.pop() {
            Some(place) => {
                self.serving[place as usize] = waiting.ticket;
                place
            }
            None => {
                self.serving.push(waiting.ticket);
                u32::try_from(self.serving.len() - 1).unwrap_or(u32::MAX)
            }
        };
        let order = self.order;
        self.order += 1;
        let at = Time::from_ns(now.ns().saturating_add(time_ns));
        let station = u16::try_from(station).unwrap_or(u16::MAX);
        self.ends.push(Reverse(End { at, order, station, place }));
    }

    /// The next command whose time is over by now. Its server takes the next one that waits, of
    /// those that `alive` still knows.
    pub(crate) fn served(
        &mut self,
        now: Time,
        rng: &mut Rng,
        mut alive: impl FnMut(&T) -> bool,
    ) -> Option<T> {
        let Reverse(end) = self.ends.peek().copied().filter(|end| end.0.at <= now)?;
        self.ends.pop();
        self.kept -= 1;
        self.free.push(end.place);
        let done = self.serving[end.place as usize];
        let at = usize::from(end.station);
        if let Some(free) = self.stations[at].free {
            let next = loop {
                match self.stations[at].queue.pop_front() {
                    Some(waiting) if !alive(&waiting.ticket) => self.kept -= 1,
                    next => break next,
                }
            };
            match next {
                // When the server became free, not when somebody looked.
                Some(next) => self.serve(end.at, at, next, rng),
                None => self.stations[at].free = Some(free + 1),
            }
        }
        Some(done)
    }

    /// When to call `served` again.
    pub(crate) fn next(&self) -> Option<Time> {
        self.ends.peek().map(|end| end.0.at)
    }

    /// Everything that is being served or waits, in the order in which it would end or was queued.
    pub(crate) fn drain(mut self) -> Vec<T> {
        let mut all = Vec::new();
        while let Some(Reverse(end)) = self.ends.pop() {
            all.push(self.serving[end.place as usize]);
        }
        for station in &mut self.stations {
            all.extend(station.queue.drain(..).map(|waiting| waiting.ticket));
        }
        all
    }
}

#[cfg(test)]
mod tests;
