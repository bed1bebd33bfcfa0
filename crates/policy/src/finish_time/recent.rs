//! What one worker has seen of its load on one head.

/// Each command earns this part of its size for probes, as a shift.
const SHARE_SHIFT: u32 = 7;
/// The most that is saved, bytes.
const MOST: i64 = 16 << 20;
/// Fraction bits of a number of commands.
const FRACTION: u32 = 8;
/// How slowly the mean number in flight follows, as a shift.
const MEAN_SHIFT: u32 = 6;
/// How slowly the highest number in flight is forgotten, as a shift.
const PEAK_SHIFT: u32 = 8;

/// What one worker remembers of one head.
#[derive(Clone, Debug)]
pub(crate) struct Recent {
    /// What may be spent on probes, bytes.
    pub(super) credit: i64,
    /// Selections since paths were looked at.
    pub(super) since: u8,
    /// The path that a read is to be sent to.
    pub(super) due: Option<u32>,
    /// Commands of this worker in flight: the mean at each selection, and the most of late.
    mean: u32,
    peak: u32,
}

impl Recent {
    pub(crate) const fn new() -> Recent {
        Recent { credit: 0, since: 0, due: None, mean: 0, peak: 0 }
    }

    /// Whether commands come as others end: then about as many are in flight as ever are. `own` is
    /// how many are now. In an open load more of them would not make more be done.
    #[inline]
    pub(super) fn is_closed(&mut self, own: u32) -> bool {
        let own = own << FRACTION;
        self.mean = if own < self.mean {
            self.mean - ((self.mean - own) >> MEAN_SHIFT)
        } else {
            self.mean + ((own - self.mean) >> MEAN_SHIFT)
        };
        self.peak = own.max(self.peak - (self.peak >> PEAK_SHIFT));
        4 * u64::from(self.mean) >= 3 * u64::from(self.peak)
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

impl Default for Recent {
    fn default() -> Self {
        Recent::new()
    }
}
