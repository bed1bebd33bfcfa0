//! What can be set about `historical-service-time`.

use crate::number;
use core::fmt;
use core::str::FromStr;

/// What can be set about `historical-service-time`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoricalParameters {
    /// How slowly the history follows short service times.
    pub base_weight: BaseWeight,
    /// Paths whose histories differ by no more than this factor are told apart by their commands in
    /// flight alone. 0 (unless set): histories are always compared.
    pub threshold_multiplier: u32,
}

/// How much of the history of a path stays after a service time below 17 ms, in 1/1024; longer ones
/// leave less.
///
/// 0 (nothing) to 1023; 972 (95 %) unless set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BaseWeight(u16);

impl BaseWeight {
    /// The slowest.
    pub const MAX: BaseWeight = BaseWeight(1023);

    /// A weight of 0 to 1023.
    ///
    /// # Errors
    /// The number is larger.
    pub const fn new(weight: u16) -> Result<BaseWeight, InvalidBaseWeight> {
        if weight > BaseWeight::MAX.0 { Err(InvalidBaseWeight) } else { Ok(BaseWeight(weight)) }
    }

    /// The number.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl Default for BaseWeight {
    fn default() -> Self {
        BaseWeight(972)
    }
}

/// The text or number is no base weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidBaseWeight;

impl fmt::Display for InvalidBaseWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no base weight: use 0 (no history) to {}", BaseWeight::MAX)
    }
}

impl core::error::Error for InvalidBaseWeight {}

impl fmt::Display for BaseWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for BaseWeight {
    type Err = InvalidBaseWeight;

    /// As the kernel reads numbers: `0x` and `0` mean hexadecimal and octal; one newline may
    /// follow.
    fn from_str(text: &str) -> Result<BaseWeight, InvalidBaseWeight> {
        let number = number::parse_line(text).ok_or(InvalidBaseWeight)?;
        BaseWeight::new(u16::try_from(number).map_err(|_| InvalidBaseWeight)?)
    }
}
