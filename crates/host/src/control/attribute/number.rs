//! Whole numbers as attributes take them: as `kstrtouint` with base 0, errors included.

use super::Refused;
use alloc::format;
use anabranch_policy::{NoNumber, parse_number};

/// `17`, `+17`, `0x11`, `021`. Nonsense is invalid, more than 32 bits are out of range.
pub(super) fn parse_u32(text: &str) -> Result<u32, Refused> {
    parse_number(text).map_err(|why| match why {
        NoNumber::Invalid => {
            Refused::Invalid(format!("\"{}\" is no whole number of 0 or more", text.escape_debug()))
        }
        NoNumber::TooLarge => Refused::OutOfRange(format!("{text} does not fit 32 bits")),
    })
}

/// A switch: `0` or `1`.
pub(super) fn parse_bool(text: &str) -> Result<bool, Refused> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(Refused::Invalid(format!("\"{}\" is neither 0 nor 1", text.escape_debug()))),
    }
}

#[cfg(test)]
mod tests {
    use super::{Refused, parse_u32};

    #[test]
    fn numbers_are_read_as_the_kernel_reads_them() {
        for (text, value) in
            [("0", 0), ("17", 17), ("+17", 17), ("0x1F", 31), ("021", 17), ("4294967295", u32::MAX)]
        {
            assert_eq!(parse_u32(text), Ok(value), "{text}");
        }
        for text in ["", "+", "-1", "x", "0x", "08", "1 ", " 1", "1s", "++1", "1\n"] {
            assert!(matches!(parse_u32(text), Err(Refused::Invalid(_))), "{text:?}");
        }
        for text in ["4294967296", "0x100000000", "99999999999999999999999"] {
            assert!(matches!(parse_u32(text), Err(Refused::OutOfRange(_))), "{text}");
        }
    }
}
