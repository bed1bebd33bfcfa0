//! Commands that take far longer than others, one now and then: a brownout of the way, a pause of
//! the device. One alone says little of the next command, all of them what each one costs.

use super::forecast::Forecast;
use super::learn::step;
use super::unit::{since_ms, word};
use crate::{Charge, OpClass, SizeClass};

/// An outlier takes more than this many times as long as was predicted.
const FAR: u64 = 4;
/// What they cost is a mean of 2^9 commands or so. (Of fewer, a single one keeps others away for
/// long where hardly anything goes meanwhile.)
const MEMORY_SHIFT: u32 = 9;
/// … of probes that are none, 2^4: of a path that is left for its outliers they alone tell when
/// there are none any more, a few in a second.
const PROBE_SHIFT: u32 = 4;
/// One counts as at most this many times its base latency: a single command that hangs for
/// seconds in the device would else keep all others away for as long.
const MOST: u64 = 1 << (MEMORY_SHIFT + 1);
/// A write was an outlier when a read of its size takes less than one in this many of its time …
const WRITE_FAR: u32 = 3;
/// … and none has ended there since, for so long, ms.
const WRITE_UNSEEN_MS: u32 = 40;

/// The last command was no outlier …
const NEAR: u32 = 0;
/// … it took as long …
const FAR_AWAY: u32 = 1;
/// … and ended alone after nothing had ended for most of its time.
const AFTER_SILENCE: u32 = 2;
/// … after so long that all was held to be forgotten.
const AFTER_LONG_SILENCE: u32 = 3;
/// So many of the next one's latencies would have to pass until it ends, were the path slower.
const AT_ONCE: u64 = 8;

/// What the first command after a silence leaves open, and the second one tells.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Silence {
    /// Nothing: there was none.
    None,
    /// The path did nothing for a while, and goes on as before: commands end at once that had all
    /// been waited for. What was sent before says nothing.
    Over,
    /// It was long, and the path does not go on as before.
    Changed,
}

/// (Only when all was as usual between two such times: a way that has become longer looks alike at
/// first.)
#[inline]
pub(super) fn silence(
    forecast: &Forecast,
    charge: Charge,
    quiet_ns: u64,
    latency_ns: u64,
    now_ns: u64,
) -> Silence {
    let state = forecast.far.get();
    let ended_ns = now_ns.saturating_sub(quiet_ns);
    if state < AFTER_SILENCE || charge.start_ns() >= ended_ns {
        return Silence::None;
    }
    forecast.far.set(FAR_AWAY);
    if quiet_ns <= latency_ns / AT_ONCE {
        forecast.reset_ns.set(forecast.reset_ns.get().max(ended_ns));
        Silence::Over
    } else if state == AFTER_LONG_SILENCE {
        Silence::Changed
    } else {
        Silence::None
    }
}

/// The first command after a long silence has ended, and others are to end. Gives back whether they
/// tell what that was.
pub(super) fn others_tell(forecast: &Forecast) -> bool {
    let usual = forecast.far.get() == NEAR;
    if usual {
        forecast.far.set(AFTER_LONG_SILENCE);
    }
    usual
}

/// Whether the command was an outlier, and came alone: the one before was none. (When there is one
/// after another the way has become longer.) What the path did meanwhile takes `queued_ns`.
#[inline]
pub(super) fn learn(
    forecast: &Forecast,
    charge: Charge,
    queued_ns: u64,
    latency_ns: u64,
    quiet_ns: u64,
) -> bool {
    let base_ns = u64::from(forecast.base_ns(charge.op(), SizeClass::of(charge.bytes())));
    if base_ns == 0 {
        return false;
    }
    let predicted_ns = base_ns.max(queued_ns);
    let far = latency_ns > FAR.saturating_mul(predicted_ns);
    let alone = far && forecast.far.get() == NEAR;
    let next = match (alone, far) {
        (true, _) if quiet_ns > latency_ns / 2 => AFTER_SILENCE,
        (_, true) => FAR_AWAY,
        _ => NEAR,
    };
    forecast.far.set(next);
    if alone || !far {
        let excess_ns = if far {
            word((latency_ns - predicted_ns).min(MOST.saturating_mul(base_ns)))
        } else {
            0
        };
        learn_cost(forecast, charge, excess_ns);
    }
    alone
}

/// A command was an outlier by so much, or none.
#[inline]
fn learn_cost(forecast: &Forecast, charge: Charge, excess_ns: u32) {
    let known_ns = forecast.outliers.get();
    let falls = charge.is_probe() && excess_ns < known_ns;
    let shift = if falls { PROBE_SHIFT } else { MEMORY_SHIFT };
    let next_ns = step(known_ns, excess_ns, shift);
    // What is left falls to nothing, too.
    forecast.outliers.set(if excess_ns == 0 {
        next_ns.min(known_ns.saturating_sub(1))
    } else {
        next_ns
    });
}

/// A read that was sent as a probe took so long: what is known of writes of its size may come of
/// outliers. Another write would tell, but none goes there before much else was written.
#[inline]
pub(super) fn doubt_writes(forecast: &Forecast, class: SizeClass, latency: u32, now_ms: u32) {
    let write = forecast.of(OpClass::Write, class);
    let known = write.latency.get();
    let far = known > latency.saturating_mul(WRITE_FAR);
    if far && since_ms(now_ms, write.seen_ms.get()) > WRITE_UNSEEN_MS {
        write.latency.set(known - (known - latency) / 2);
    }
}
