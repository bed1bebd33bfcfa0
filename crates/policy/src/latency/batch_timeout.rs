//! The batch window, as a value and as the text of `latency_batch_timeout`.

use crate::number;
use core::fmt;
use core::str::FromStr;

/// How long samples are gathered before they are averaged. 15 s unless set; 0 closes a batch at
/// each completion.
///
/// The series takes whole seconds. Here a unit may follow, for what is shorter, and what was
/// written is what is read: `15` reads back as `15`, `200ms` as `200ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchTimeout {
    count: u32,
    unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Unit {
    /// Seconds, without saying so.
    Bare,
    S,
    Ms,
    Us,
}

impl Unit {
    const fn suffix(self) -> &'static str {
        match self {
            Unit::Bare => "",
            Unit::S => "s",
            Unit::Ms => "ms",
            Unit::Us => "us",
        }
    }

    const fn as_nanos(self) -> u64 {
        match self {
            Unit::Bare | Unit::S => 1_000_000_000,
            Unit::Ms => 1_000_000,
            Unit::Us => 1_000,
        }
    }
}

impl BatchTimeout {
    /// Whole seconds.
    #[must_use]
    pub const fn from_secs(seconds: u32) -> BatchTimeout {
        BatchTimeout { count: seconds, unit: Unit::Bare }
    }

    /// The time in nanoseconds.
    #[inline]
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        // 2^32 seconds are 4.3e18 ns.
        self.count as u64 * self.unit.as_nanos()
    }
}

impl Default for BatchTimeout {
    fn default() -> Self {
        BatchTimeout::from_secs(15)
    }
}

impl fmt::Display for BatchTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.count, self.unit.suffix())
    }
}

/// The text is no batch window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidBatchTimeout;

impl fmt::Display for InvalidBatchTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let max = u32::MAX;
        write!(
            f,
            "no batch timeout: use a whole number up to {max}, of seconds (15) or with a unit \
             (200ms, 50us, 3s)"
        )
    }
}

impl core::error::Error for InvalidBatchTimeout {}

impl FromStr for BatchTimeout {
    type Err = InvalidBatchTimeout;

    /// A whole number, as the kernel reads numbers ([`parse_number`](crate::parse_number)), and a
    /// unit (`us`, `ms`, `s`) or none for seconds; one newline may follow.
    fn from_str(text: &str) -> Result<BatchTimeout, InvalidBatchTimeout> {
        let text = text.strip_suffix('\n').unwrap_or(text);
        // "s" ends the other two as well.
        let (digits, unit) = [Unit::Us, Unit::Ms, Unit::S]
            .into_iter()
            .find_map(|unit| Some((text.strip_suffix(unit.suffix())?, unit)))
            .unwrap_or((text, Unit::Bare));
        let count = number::parse_number(digits).map_err(|_| InvalidBatchTimeout)?;
        Ok(BatchTimeout { count, unit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;

    #[test]
    fn what_is_written_is_what_is_read() {
        for (text, ns) in [
            ("0", 0),
            ("15", 15_000_000_000),
            ("15s", 15_000_000_000),
            ("200ms", 200_000_000),
            ("2000ms", 2_000_000_000),
            ("50us", 50_000),
            ("0ms", 0),
            ("4294967295", 4_294_967_295_000_000_000),
        ] {
            let timeout: BatchTimeout = text.parse().unwrap();
            assert_eq!((timeout.as_nanos(), timeout.to_string().as_str()), (ns, text));
            assert_eq!(std::format!("{text}\n").parse(), Ok(timeout), "as echo writes it");
        }
        assert_eq!(BatchTimeout::default().to_string(), "15");
        for (text, seconds) in [("0x10", 16), ("0X10", 16), ("017", 15), ("+15", 15), ("+0xf", 15)]
        {
            assert_eq!(text.parse(), Ok(BatchTimeout::from_secs(seconds)), "{text}");
        }
        assert_eq!("+200ms".parse(), "200ms".parse::<BatchTimeout>());
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "s",
            "ms",
            "-1",
            "++1",
            "+",
            "+-1",
            "0X",
            "1.5",
            "1 s",
            "1m",
            "15\n\n",
            "4294967296",
            "1e3",
            "0x",
            "ns",
        ] {
            assert_eq!(text.parse::<BatchTimeout>(), Err(InvalidBatchTimeout), "{text:?}");
        }
    }
}
