//! Commands by size.

/// The size class of a command, for statistics: powers of two from 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SizeClass(u8);

impl SizeClass {
    /// How many there are.
    pub const COUNT: usize = 8;

    /// The class of a command with `bytes` of payload.
    #[inline]
    #[must_use]
    pub const fn of(bytes: u32) -> SizeClass {
        if bytes <= 4096 {
            return SizeClass(0);
        }
        // Up to 8 KiB the log of (bytes - 1) is 12.
        let class = (bytes - 1).ilog2() - 11;
        SizeClass(if class < 7 { class as u8 } else { 7 })
    }

    /// Its number, from 0.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Its name: the largest size in it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            0 => "<=4k",
            1 => "8k",
            2 => "16k",
            3 => "32k",
            4 => "64k",
            5 => "128k",
            6 => "256k",
            _ => ">256k",
        }
    }

    /// Every class, the smallest first.
    pub fn all() -> impl Iterator<Item = SizeClass> {
        (0..8).map(SizeClass)
    }
}
