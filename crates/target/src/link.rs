//! A link without bytes: when does what is sent now come out at the other end?
//!
//! One [`Link`] per port and direction, and [`Turns`] for what waits for it: the target and the
//! light simulation ask both about commands and replies.
//!
//! * `rate` serialises: a link carries one thing at a time, `bytes * 8 / rate` each.
//! * `delay` is added once to each command's round trip, by the inbound link; `jitter` makes it a
//!   uniform choice from `delay - jitter` to `delay + jitter`. Commands are independent of each
//!   other, so jitter may change their order.
//! * `large` adds a delay to commands that move at least so many bytes, once per command.
//! * `onoff` is congestion: the link carries for `ON`, then nothing for `OFF`, and so on.

mod text;
mod turns;
pub mod units;

pub use text::ShapeError;
pub use turns::Turns;

use crate::rng::Rng;
use anabranch_proto::machine::Time;
use core::time::Duration;

/// How a port's two links behave. The default is no shaping at all.
///
/// As text: `KEY=V,…`, see [`core::str::FromStr`] and the command line's `--shape`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Bits per second from hosts to the target; no limit when `None`.
    pub rate_in: Option<u64>,
    /// Bits per second from the target to hosts; no limit when `None`.
    pub rate_out: Option<u64>,
    /// Added once to each command's round trip.
    pub delay: Duration,
    /// Half the width of the interval around `delay`; at most `delay`.
    pub jitter: Duration,
    /// Extra delay of large commands.
    pub large: Option<Large>,
    /// Congestion that comes and goes.
    pub on_off: Option<OnOff>,
}

/// Extra delay by size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Large {
    /// Commands that move at least this many bytes …
    pub bytes: u64,
    /// … wait this much longer.
    pub delay: Duration,
}

/// A link that carries for `on`, then nothing for `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnOff {
    /// How long the link carries.
    pub on: Duration,
    /// How long it carries nothing.
    pub off: Duration,
}

impl Shape {
    /// Whether nothing is shaped.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Shape::default()
    }

    /// The extra delay of a command that moves `bytes` bytes of data.
    #[must_use]
    pub fn large_delay(&self, bytes: u64) -> Duration {
        match self.large {
            Some(large) if bytes >= large.bytes => large.delay,
            _ => Duration::ZERO,
        }
    }
}

/// One direction of a port.
#[derive(Clone, Debug)]
pub struct Link {
    /// Bits per second; 0 is no limit.
    rate: u64,
    delay_ns: u64,
    jitter_ns: u64,
    on_off: Option<(u64, u64)>,
    /// When the first `on` began.
    start: Time,
    /// When the last thing sent has left the sender.
    free_at: Time,
}

impl Link {
    /// The link from hosts to the target: `rate_in`, and the delay of the round trip.
    #[must_use]
    pub fn inbound(shape: &Shape, now: Time) -> Link {
        Link {
            delay_ns: nanos(shape.delay),
            jitter_ns: nanos(shape.jitter),
            ..Link::with_rate(shape, shape.rate_in, now)
        }
    }

    /// The link from the target to hosts: `rate_out`.
    #[must_use]
    pub fn outbound(shape: &Shape, now: Time) -> Link {
        Link::with_rate(shape, shape.rate_out, now)
    }

    fn with_rate(shape: &Shape, rate: Option<u64>, now: Time) -> Link {
        Link {
            rate: rate.unwrap_or(0),
            delay_ns: 0,
            jitter_ns: 0,
            on_off: shape.on_off.map(|o| (nanos(o.on).max(1), nanos(o.off))),
            start: now,
            free_at: now,
        }
    }

    /// Whether everything comes out at once.
    #[must_use]
    pub fn is_transparent(&self) -> bool {
        self.rate == 0 && self.delay_ns == 0 && self.on_off.is_none()
    }

    /// When the sender has finished with what it was given so far.
    #[must_use]
    pub fn free_at(&self) -> Time {
        self.free_at
    }

    /// Sends `bytes` bytes that are ready at `now`, behind everything sent before; returns when
    /// they arrive. `now` must not go back.
    pub fn depart(&mut self, now: Time, bytes: u64, rng: &mut Rng) -> Time {
        let begin = now.max(self.free_at);
        self.free_at = self.carry(begin, self.work_ns(bytes));
        let mut delay = self.delay_ns;
        if self.jitter_ns > 0 {
            let swing = rng.below(self.jitter_ns.saturating_mul(2).saturating_add(1));
            delay = delay.saturating_add(swing).saturating_sub(self.jitter_ns);
        }
        Time::from_ns(self.free_at.ns().saturating_add(delay))
    }

    /// How long the link is occupied by `bytes` bytes.
    fn work_ns(&self, bytes: u64) -> u64 {
        if self.rate == 0 {
            return 0;
        }
        let ns = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(self.rate);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// The end of `work` nanoseconds of carrying that begin at `begin`: only `on` time counts.
    fn carry(&self, begin: Time, work: u64) -> Time {
        let Some((on, off)) = self.on_off else {
            return Time::from_ns(begin.ns().saturating_add(work));
        };
        let period = on.saturating_add(off);
        let since = begin.ns().saturating_sub(self.start.ns());
        let cycle = begin.ns() - since % period;
        // Carrying time that this period had used up when the work began.
        let used = (since % period).min(on);
        if work == 0 {
            return if used < on { begin } else { Time::from_ns(cycle.saturating_add(period)) };
        }
        let total = used.saturating_add(work);
        let periods = (total - 1) / on;
        let rest = total - periods * on;
        Time::from_ns(cycle.saturating_add(periods.saturating_mul(period)).saturating_add(rest))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
