//! Looks at paths that nobody uses.

use super::forecast::Forecast;
use super::rescue::overdue_at_ns;
use super::select::Incoming;
use super::unit::{ms, since_ms};
use super::{ANSWERED_MS, FIRST_GAP_MS, LAST_GAP_MS};
use crate::{
    AnaRank, AsCandidate, Charge, Choice, Load, OpClass, Reason, Selector, SizeClass, charge,
};
use core::sync::atomic::Ordering::Relaxed;

/// A user's own write on an unused path costs this many times its size: the user waits for it.
const WRITE_PRICE: i64 = 8;
/// As many probes of a path of which nothing is known may be overdrawn.
const ON_CREDIT: i64 = 8;
/// Every so many selections unused paths are looked at.
pub(super) const EVERY: u8 = 8;

/// Every now and then, when there is something to spend: has a path that was not chosen and that
/// has gone unseen for too long looked at, by a read beside this command; or, when a read has just
/// been answered there, by this very write.
#[inline]
pub(super) fn look<P: AsCandidate>(
    selector: &mut Selector,
    paths: &[P],
    rank: Option<AnaRank>,
    choice: Choice,
    incoming: Incoming,
) -> Choice {
    let recent = &mut selector.recent;
    recent.due = None;
    recent.since = recent.since.saturating_add(1);
    if recent.since < EVERY || incoming.op == OpClass::Other || incoming.bytes == 0 {
        return choice;
    }
    // As long as nothing is known of any path, commands find out as soon.
    if choice.reason == Reason::Unmeasured {
        return choice;
    }
    recent.since = 0;
    find(selector, paths, rank, choice, incoming)
}

#[inline(never)]
fn find<P: AsCandidate>(
    selector: &mut Selector,
    paths: &[P],
    rank: Option<AnaRank>,
    choice: Choice,
    incoming: Incoming,
) -> Choice {
    let now_ms = ms(incoming.now_ns);
    // Not where the rotation of selections stands: at every eighth of them it would always be the
    // same one of eight paths, and that one alone would ever be looked at.
    let start = selector.recent.turn as usize;
    let price = i64::from(incoming.bytes);
    let on_credit = -(ON_CREDIT - 1) * price;
    // What large probes have overdrawn does not keep small ones from looking.
    if selector.recent.credit < 2 * on_credit {
        selector.recent.credit = on_credit;
    }
    for turn in 0..paths.len() {
        let index = (start + turn) % paths.len();
        let path = paths[index].candidate();
        let fits = path.usable && rank.is_none_or(|rank| path.rank == rank);
        let forecast = path.load.shared.forecast();
        if index == choice.index || !fits {
            continue;
        }
        // What is in use shows itself; what was asked has not answered yet. Where that is overdue
        // one command may hang, and the path be sound.
        let overdue_ns = overdue_at_ns(path.load);
        if overdue_ns.is_some_and(|at| at > incoming.now_ns) {
            continue;
        }
        let overdue = overdue_ns.is_some();
        if !overdue
            && incoming.op == OpClass::Write
            && selector.recent.write_credit >= 0
            && write_is_due(forecast, incoming.class, now_ms)
        {
            selector.recent.write_credit -= WRITE_PRICE * price;
            selector.recent.looked(index);
            return Choice { index, reason: Reason::WriteProbe };
        }
        let new = !overdue && forecast.pace.get() == 0;
        if new {
            // The next command looks again: for this one when it is due, or for others.
            selector.recent.since = EVERY;
        }
        let least = if new { on_credit } else { price };
        if selector.recent.credit >= least
            && is_due(forecast, OpClass::Read, incoming.class, now_ms)
        {
            selector.recent.looked(index);
            if incoming.op == OpClass::Write && paths[choice.index].candidate().load.work() == 0 {
                // Writes are few: once it is answered the next one may go there, and no later one.
                selector.recent.since = EVERY;
            }
            if !asks(forecast, incoming, new, overdue) {
                return Choice { index, reason: Reason::Unmeasured };
            }
            selector.recent.credit -= price;
            selector.recent.due = Some(index as u32);
            return choice;
        }
    }
    choice
}

/// Notes that a path is looked at. Gives back whether a probe asks; the command itself does where
/// nothing is known of the path and probes can not be sent. (Those that fail keep the gap shorter.)
fn asks(forecast: &Forecast, incoming: Incoming, new: bool, overdue: bool) -> bool {
    let base = forecast.of(OpClass::Read, incoming.class);
    base.seen_ms.set(ms(incoming.now_ns));
    if new && incoming.op == OpClass::Read && base.gap_ms.get() >= LAST_GAP_MS {
        return false;
    }
    if new || overdue {
        base.gap_ms.set((2 * base.gap_ms.get().max(FIRST_GAP_MS)).min(LAST_GAP_MS));
    }
    true
}

/// Whether nothing of this kind was seen there for its gap.
fn is_due(forecast: &Forecast, op: OpClass, class: SizeClass, now_ms: u32) -> bool {
    let base = forecast.of(op, class);
    since_ms(now_ms, base.seen_ms.get()) > base.gap_ms.get().max(FIRST_GAP_MS)
}

/// Whether a write is due there, and a read, of a user or a probe, has just been answered.
fn write_is_due(forecast: &Forecast, class: SizeClass, now_ms: u32) -> bool {
    let answered_ms = since_ms(now_ms, forecast.answered_ms.get());
    forecast.pace.get() != 0
        && forecast.answered_ms.get() != 0
        && answered_ms <= ANSWERED_MS
        && is_due(forecast, OpClass::Write, class, now_ms)
}

/// Charges a probe: a read of `bytes` that is sent to learn how long it takes.
#[inline]
#[must_use = "the charge must be returned when the command ends"]
pub fn start_probe(load: Load<'_>, bytes: u32, now_ns: u64) -> Charge {
    let forecast = load.shared.forecast();
    forecast.probes.fetch_add(1, Relaxed);
    forecast.probe_bytes.fetch_add(u64::from(bytes), Relaxed);
    charge::of_probe(load, bytes, now_ns)
}

/// A probe was answered with an error. It will be sent again, with a pause; while nothing is known
/// of the path, no read of the user's is tried there.
#[cold]
pub fn probe_failed(load: Load<'_>, charge: Charge) {
    let gap_ms = &load.shared.forecast().of(OpClass::Read, SizeClass::of(charge.bytes())).gap_ms;
    gap_ms.set(gap_ms.get().min(LAST_GAP_MS / 2));
}
