//! Looks at paths that nobody uses.

use super::forecast::Forecast;
use super::select::Incoming;
use super::unit::ms;
use super::{ANSWERED_MS, FIRST_GAP_MS};
use crate::{
    AnaRank, AsCandidate, Charge, Choice, Load, OpClass, Reason, Selector, SizeClass, charge,
};
use core::sync::atomic::Ordering::Relaxed;

/// Each command earns this part of its size, as a shift.
const SHARE_SHIFT: u32 = 7;
/// A user's own write on an unused path costs this many times its size.
const WRITE_PRICE: i64 = 8;
/// The most that is saved, bytes.
const MOST: i64 = 16 << 20;
/// Every so many selections unused paths are looked at.
const EVERY: u8 = 8;

/// What one worker has for probes of one head.
#[derive(Clone, Debug)]
pub(crate) struct Probing {
    /// Bytes.
    credit: i64,
    /// Selections since paths were looked at.
    since: u8,
    /// The path that a read is to be sent to.
    due: Option<u32>,
}

impl Probing {
    pub(crate) const fn new() -> Probing {
        Probing { credit: 0, since: 0, due: None }
    }

    #[inline]
    pub(super) fn earn(&mut self, bytes: u32) {
        self.credit = (self.credit + i64::from(bytes >> SHARE_SHIFT)).min(MOST);
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Option<u32> {
        self.due.take()
    }

    /// The list of paths has changed.
    pub(crate) fn forget(&mut self) {
        self.due = None;
    }
}

impl Default for Probing {
    fn default() -> Self {
        Probing::new()
    }
}

/// Every now and then, when there is something to spend: has a path that was not chosen and that
/// has gone unseen for too long looked at, by a read beside this command; or, when such a read has
/// just been answered there, by this very write.
#[inline]
pub(super) fn look<P: AsCandidate>(
    selector: &mut Selector,
    paths: &[P],
    rank: Option<AnaRank>,
    choice: Choice,
    incoming: Incoming,
) -> Choice {
    let probing = &mut selector.probing;
    probing.due = None;
    probing.since = probing.since.wrapping_add(1);
    if probing.since < EVERY || incoming.op == OpClass::Other || incoming.bytes == 0 {
        return choice;
    }
    probing.since = 0;
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
    let start = selector.rotation_start(paths);
    let price = i64::from(incoming.bytes);
    for turn in 0..paths.len() {
        let index = (start + turn) % paths.len();
        let path = paths[index].candidate();
        let fits = path.usable && rank.is_none_or(|rank| path.rank == rank);
        let forecast = path.load.shared.forecast();
        // What is in use shows itself; what was asked has not answered yet.
        if index == choice.index || !fits || forecast.work() != 0 {
            continue;
        }
        if incoming.op == OpClass::Write
            && selector.probing.credit >= WRITE_PRICE * price
            && write_is_due(forecast, incoming.class, now_ms)
        {
            selector.probing.credit -= WRITE_PRICE * price;
            return Choice { index, reason: Reason::WriteProbe };
        }
        let unknown = forecast.pace.get() == 0;
        if (unknown || selector.probing.credit >= price)
            && is_due(forecast, OpClass::Read, incoming.class, now_ms)
        {
            forecast.of(OpClass::Read, incoming.class).seen_ms.set(now_ms);
            selector.probing.credit -= price;
            selector.probing.due = Some(index as u32);
            return choice;
        }
    }
    choice
}

/// Whether nothing of this kind was seen there for its gap.
fn is_due(forecast: &Forecast, op: OpClass, class: SizeClass, now_ms: u32) -> bool {
    let base = forecast.of(op, class);
    now_ms.wrapping_sub(base.seen_ms.get()) > base.gap_ms.get().max(FIRST_GAP_MS)
}

/// Whether a write is due there, and a read probe has just been answered.
fn write_is_due(forecast: &Forecast, class: SizeClass, now_ms: u32) -> bool {
    let answered_ms = now_ms.wrapping_sub(forecast.answered_ms.get());
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
