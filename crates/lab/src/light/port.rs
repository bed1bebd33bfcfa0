//! A port of the target: its two links, its condition, what it has carried.

use super::events::What;
use super::level::Level;
use super::links::Way;
use crate::scenario::{AnaState, Brownout, Path};
use anabranch_policy::OpClass;
use anabranch_proto::machine::Time;
use anabranch_target::link::{Link, Shape, Turns};
use anabranch_target::rng::Rng as LinkRng;
use core::time::Duration;

/// A command capsule's PDU, as the target's shaper counts it.
pub const COMMAND_BYTES: u64 = 72;
/// The one range that a trim names (NVM Command Set 3.2.3, Dataset Management), in its capsule.
const RANGE_BYTES: u32 = 16;
/// A response capsule's PDU.
pub const RESPONSE_BYTES: u64 = 24;
/// The header of the data that a read brings.
pub const DATA_HEADER_BYTES: u64 = 24;

/// What a command takes of the link to the target.
#[inline]
#[must_use]
pub fn bytes_in(op: OpClass, payload: u32) -> u64 {
    COMMAND_BYTES + if op == OpClass::Read { 0 } else { u64::from(charged(op, payload)) }
}

/// The bytes that a host counts for a command when it chooses a path and while it is there.
#[inline]
#[must_use]
pub(super) fn charged(op: OpClass, payload: u32) -> u32 {
    if op == OpClass::Other { RANGE_BYTES } else { payload }
}

/// What its reply takes of the link to the host.
#[inline]
#[must_use]
pub fn bytes_out(op: OpClass, payload: u32) -> u64 {
    match op {
        OpClass::Read if payload > 0 => RESPONSE_BYTES + DATA_HEADER_BYTES + u64::from(payload),
        _ => RESPONSE_BYTES,
    }
}

/// Whether a path carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Up,
    Silent,
    Cut,
}

/// One direction, and how busy it was.
#[derive(Debug)]
pub(super) struct Direction {
    link: Link,
    /// Raised with each new link: what was planned for the old one does not happen.
    pub(super) generation: u32,
    /// What waits for it, in a lane per connection.
    pub(super) turns: Turns<u32>,
    /// What the link carried, in bytes.
    pub(super) bytes: u64,
    /// For how long it was carrying (`off` time of congestion included).
    pub(super) busy_ns: u64,
    /// Draws jitter.
    rng: LinkRng,
}

impl Direction {
    fn new(link: Link, seed: u64, lanes: u32) -> Direction {
        let mut turns = Turns::default();
        (0..lanes).for_each(|lane| turns.attach(lane));
        Direction { link, generation: 0, turns, bytes: 0, busy_ns: 0, rng: LinkRng::new(seed) }
    }

    /// Whether it takes something at once.
    #[inline]
    pub(super) fn is_free(&self, now_ns: u64) -> bool {
        self.turns.is_empty() && self.free_at_ns() <= now_ns
    }

    /// When it has finished with what it was given so far.
    #[inline]
    pub(super) fn free_at_ns(&self) -> u64 {
        self.link.free_at().ns()
    }

    /// When it has left the link, and when it comes out.
    #[inline]
    pub(super) fn depart(&mut self, now_ns: u64, bytes: u64) -> (u64, u64) {
        let begin = self.link.free_at().ns().max(now_ns);
        let at = self.link.depart(Time::from_ns(now_ns), bytes, &mut self.rng).ns();
        let leaves = self.link.free_at().ns();
        self.bytes += bytes;
        self.busy_ns += leaves - begin;
        (leaves, at)
    }

    /// Another link takes over. What the old one has begun with comes out when it would have.
    fn replace(&mut self, link: Link, now_ns: u64) {
        self.busy_ns -= self.free_at_ns().saturating_sub(now_ns);
        self.link = link;
        self.generation += 1;
    }
}

/// A port.
#[derive(Debug)]
pub(super) struct Port {
    shape: Shape,
    pub(super) brownout: Option<Brownout>,
    pub(super) ana: AnaState,
    pub(super) condition: Condition,
    /// Raised with each change of condition, so that a silence that is over is not noticed.
    pub(super) spell: u32,
    pub(super) inbound: Direction,
    pub(super) outbound: Direction,
    /// What would have come through while the path is silent: slot and generation.
    pub(super) held: Vec<(What, u32, u32)>,
    /// Commands given to it, waiting ones included.
    pub(super) in_flight: Level,
    extras: LinkRng,
}

impl Port {
    pub(super) fn new(path: &Path, seeds: [u64; 3], lanes: u32) -> Port {
        let zero = Time::from_ns(0);
        Port {
            shape: path.shape.clone(),
            brownout: path.brownout,
            ana: path.ana,
            condition: Condition::Up,
            spell: 0,
            inbound: Direction::new(Link::inbound(&path.shape, zero), seeds[0], lanes),
            outbound: Direction::new(Link::outbound(&path.shape, zero), seeds[1], lanes),
            held: Vec::new(),
            in_flight: Level::default(),
            extras: LinkRng::new(seeds[2]),
        }
    }

    #[inline]
    pub(super) fn link(&mut self, way: Way) -> &mut Direction {
        match way {
            Way::In => &mut self.inbound,
            Way::Out => &mut self.outbound,
        }
    }

    pub(super) fn is_usable(&self) -> bool {
        // A path that is silent is used until somebody notices.
        self.condition != Condition::Cut && self.ana != AnaState::Inaccessible
    }

    /// What this command waits for on top of the link's delay.
    #[inline]
    pub(super) fn extra_ns(&mut self, payload: u32) -> u64 {
        let mut extra = 0;
        if self.shape.large.is_some() {
            extra = nanos(self.shape.large_delay(payload.into()));
        }
        if let Some(brownout) = self.brownout
            && self.extras.below(100) < u64::from(brownout.percent)
        {
            extra += brownout.delay_ns();
        }
        extra
    }

    /// Links of this shape from now on, for what waits, too.
    pub(super) fn reshape(&mut self, shape: &Shape, now_ns: u64) {
        self.shape = shape.clone();
        self.replace_links(now_ns);
    }

    /// Links with nothing on them.
    pub(super) fn fresh_links(&mut self, now_ns: u64) {
        self.inbound.turns.clear_all();
        self.outbound.turns.clear_all();
        self.replace_links(now_ns);
    }

    fn replace_links(&mut self, now_ns: u64) {
        let now = Time::from_ns(now_ns);
        self.inbound.replace(Link::inbound(&self.shape, now), now_ns);
        self.outbound.replace(Link::outbound(&self.shape, now), now_ns);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
