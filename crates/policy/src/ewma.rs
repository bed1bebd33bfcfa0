//! Exponentially weighted moving averages, in integers.

use crate::number;
use core::fmt;
use core::str::FromStr;

/// How slowly an average follows: a new value counts 1/2^shift, what was there counts the rest.
///
/// 0 (only the newest value) to 8; 3 unless set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EwmaShift(u8);

impl EwmaShift {
    /// The slowest.
    pub const MAX: EwmaShift = EwmaShift(8);

    /// A shift of 0 to 8.
    ///
    /// # Errors
    /// The number is larger.
    pub const fn new(shift: u8) -> Result<EwmaShift, InvalidShift> {
        if shift > EwmaShift::MAX.0 { Err(InvalidShift) } else { Ok(EwmaShift(shift)) }
    }

    /// The number.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The average after `value`: `(old * (2^shift - 1) + value) / 2^shift`, rounded down.
    ///
    /// Because of the rounding an average that rises stops up to `2^shift - 1` below a constant
    /// value; one that falls reaches it. An average of at least 1 never becomes 0.
    ///
    /// Both must be below 2^55.
    #[inline]
    pub(crate) const fn smooth(self, old: u64, value: u64) -> u64 {
        ((old << self.0) - old + value) >> self.0
    }
}

impl Default for EwmaShift {
    fn default() -> Self {
        EwmaShift(3)
    }
}

/// The text or number is no shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidShift;

impl fmt::Display for InvalidShift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no EWMA shift: use 0 (only the newest batch) to {}", EwmaShift::MAX)
    }
}

impl core::error::Error for InvalidShift {}

impl fmt::Display for EwmaShift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for EwmaShift {
    type Err = InvalidShift;

    /// As the kernel reads numbers: `0x` and `0` mean hexadecimal and octal; one newline may
    /// follow.
    fn from_str(text: &str) -> Result<EwmaShift, InvalidShift> {
        let number = number::parse_line(text).ok_or(InvalidShift)?;
        EwmaShift::new(u8::try_from(number).map_err(|_| InvalidShift)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smoothing_rounds_down_and_never_reaches_zero() {
        let shift = EwmaShift::default();
        assert_eq!(shift.smooth(800, 1600), 900);
        assert_eq!(shift.smooth(1, 1), 1);
        assert_eq!(shift.smooth(7, 8), 7, "(7 * 7 + 8) / 8 = 7.125");
        assert_eq!(EwmaShift::new(0).unwrap().smooth(5, 9), 9);
        assert_eq!(EwmaShift::MAX.smooth((1 << 55) - 1, (1 << 55) - 1), (1 << 55) - 1);
    }

    #[test]
    fn shifts_as_text() {
        for (text, shift) in [("0", 0), ("8", 8), ("3\n", 3), ("0x7", 7), ("010", 8)] {
            assert_eq!(text.parse(), EwmaShift::new(shift), "{text:?}");
        }
        for text in ["", "9", "256", "-1", "3 ", "0x", "3\n\n", "08", "4294967296"] {
            assert_eq!(text.parse::<EwmaShift>(), Err(InvalidShift), "{text:?}");
        }
    }
}
