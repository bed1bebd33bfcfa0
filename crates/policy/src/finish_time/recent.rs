//! What one worker has seen of its load on one head.

use super::probe::EVERY;

/// Each command earns this part of its size for probes, as a shift.
const SHARE_SHIFT: u32 = 7;
/// The most that is saved, bytes.
const MOST: i64 = 16 << 20;
/// Fraction bits of a number of commands, and of its square.
const FRACTION: u32 = 16;
/// The mean number in flight is of 2^6 commands, of eight times as many as are in flight when those
/// are more, of 2^10 at most.
const MEMORY_SHIFTS: (u32, u32) = (6, 10);
const MEMORY_IN_FLIGHT_SHIFT: u32 = 3;
/// More than a worker has; their square still fits.
const MOST_IN_FLIGHT: u32 = 1 << 20;

/// What one worker remembers of one head.
#[derive(Clone, Debug)]
pub(crate) struct Recent {
    /// What may be spent on probes, bytes.
    pub(super) credit: i64,
    /// What may be spent on users' own writes to unused paths, bytes.
    pub(super) write_credit: i64,
    /// Selections since paths were looked at.
    pub(super) since: u8,
    /// The path behind the one that was looked at last; they are looked at in turn.
    pub(super) turn: u32,
    /// The path that a read is to be sent to.
    pub(super) due: Option<u32>,
    /// Commands of this worker in flight at each selection, and their variance.
    mean: u64,
    variance: u64,
}

impl Recent {
    pub(crate) const fn new() -> Recent {
        Recent {
            credit: 0,
            write_credit: 0,
            since: EVERY,
            turn: 0,
            due: None,
            mean: 0,
            variance: 0,
        }
    }

    /// Whether commands come as others end: then about as many are in flight as ever are, and their
    /// number varies by less than half of what chance would make of it. `own` is how many are now.
    /// In an open load more of them would not make more be done.
    #[inline]
    pub(super) fn is_closed(&mut self, own: u32) -> bool {
        let (least, most) = MEMORY_SHIFTS;
        let mean = self.mean >> FRACTION;
        let shift = (mean.max(1).ilog2() + MEMORY_IN_FLIGHT_SHIFT).clamp(least, most);
        let now = u64::from(own.min(MOST_IN_FLIGHT)) << FRACTION;
        let off = now.abs_diff(self.mean) >> (FRACTION / 2);
        self.mean = self.mean - (self.mean >> shift) + (now >> shift);
        self.variance = self.variance - (self.variance >> shift) + ((off * off) >> shift);
        8 * self.variance <= 4 * self.mean + (1 << FRACTION)
    }

    #[inline]
    pub(super) fn earn(&mut self, bytes: u32) {
        let earned = i64::from(bytes >> SHARE_SHIFT);
        self.credit = (self.credit + earned).min(MOST);
        self.write_credit = (self.write_credit + earned).min(MOST);
    }

    /// A probe of `bytes` moved nothing.
    pub(crate) fn give_back(&mut self, bytes: u32) {
        self.credit = (self.credit + i64::from(bytes)).min(MOST);
    }

    /// The path at `index` is looked at now.
    pub(super) fn looked(&mut self, index: usize) {
        // A list has no more.
        self.turn = index as u32 + 1;
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Option<u32> {
        self.due.take()
    }

    /// The list of paths has changed.
    pub(crate) fn forget(&mut self) {
        self.due = None;
        // There may be a new one.
        self.since = EVERY;
    }
}

impl Default for Recent {
    fn default() -> Self {
        Recent::new()
    }
}
