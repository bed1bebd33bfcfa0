//! A number that goes up and down, and its integral over time.

/// How many there are, and the sum of that over all nanoseconds so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Level {
    count: u64,
    since_ns: u64,
    /// Count times nanoseconds, up to `since_ns`.
    area: u64,
}

impl Level {
    #[inline]
    pub(super) fn up(&mut self, now_ns: u64) {
        self.area += self.count * (now_ns - self.since_ns);
        self.since_ns = now_ns;
        self.count += 1;
    }

    #[inline]
    pub(super) fn down(&mut self, now_ns: u64) {
        self.area += self.count * (now_ns - self.since_ns);
        self.since_ns = now_ns;
        self.count -= 1;
    }

    /// The integral up to now.
    pub(super) fn area(&self, now_ns: u64) -> u64 {
        self.area + self.count * (now_ns - self.since_ns)
    }
}
