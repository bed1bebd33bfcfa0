//! Times, rates and sizes in scenario files, in the words of the command line's `--shape`.

use super::super::mistake::shorten;
use anabranch_target::link::units::{self, scaled};

/// Nanoseconds: `80us`, `1.5s`, `1h`; `0` needs no unit.
pub(super) fn time(value: &str) -> Result<u64, String> {
    units::time_ns(value).ok_or_else(|| {
        format!("{} is no time; write \"250us\", \"30ms\" or \"1.5s\"", shorten(value))
    })
}

/// Bits per second: `500mbit`, `10gbit`; `60MiB/s` and tc's `60mbps` are bytes. Here a bare number
/// is refused: bits are not what everybody would expect of it.
pub(super) fn rate(value: &str) -> Result<u64, String> {
    let has_unit = value.ends_with(|c: char| c.is_ascii_alphabetic());
    units::rate(value).filter(|_| has_unit).ok_or_else(|| {
        let value = shorten(value);
        format!("{value} is no rate; write \"500mbit\", \"10gbit\" or \"60MiB/s\"")
    })
}

/// Bytes: `4096`, `64k`, `1g`, powers of 1024.
pub(super) fn size(value: &str) -> Result<u64, String> {
    units::size(value)
        .ok_or_else(|| format!("{} is no size; write 4096, \"64k\" or \"1g\"", shorten(value)))
}

/// MiB per second as tables print it (`56.5`), in bytes per second, to the nearest byte.
pub(super) fn mib_s(value: &str) -> Result<u64, String> {
    scaled(value, &[("", 1 << 20)])
        .ok_or_else(|| format!("{} is no number of MiB/s; write 56 or 56.5", shorten(value)))
}

/// Percent as tables print it (`12.58`), in millionths.
pub(super) fn percent(value: &str) -> Result<u64, String> {
    scaled(value, &[("", 10_000), ("%", 10_000)])
        .ok_or_else(|| format!("{} is no percentage; write 12.58", shorten(value)))
}
