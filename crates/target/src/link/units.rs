//! Rates, times and sizes as text: `NUMBER[.FRACTION][UNIT]`, up to six digits of fraction, units
//! in any case of letters.
//!
//! * Rates: `bit`, `kbit`, `mbit`, `gbit` (also none, `k`, `m`, `g`) are powers of 1000 **bits**;
//!   `bps`, `kbps`, `mbps`, `gbps` are powers of 1000 **bytes**, as `tc` has it; `KiB/s`, `MiB/s`,
//!   `GiB/s` are powers of 1024 bytes.
//! * Times: `ns`, `us`, `ms`, `s`, `m`, `h`; 0 needs none.
//! * Sizes: none, `b`, and `k`, `m`, `g`, `t` (also `KiB`, …), powers of 1024.

/// `NUMBER[.FRACTION][UNIT]` times the unit's worth, rounded down. `None` when it is not that, or
/// too large.
#[must_use]
pub fn scaled(value: &str, units: &[(&str, u64)]) -> Option<u64> {
    parse(value, units).and_then(|scaled| u64::try_from(scaled).ok())
}

/// As [`scaled`]; what is too large is `u64::MAX`, so that whoever knows the limit names it.
fn bounded(value: &str, units: &[(&str, u64)]) -> Option<u64> {
    parse(value, units).map(|scaled| u64::try_from(scaled).unwrap_or(u64::MAX))
}

fn parse(value: &str, units: &[(&str, u64)]) -> Option<u128> {
    let digits = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    let (_, worth) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.len() > 6 {
        return None;
    }
    // Digits alone: only their number can be too much.
    let whole = whole.parse().unwrap_or(u64::MAX);
    let part: u64 = fraction.parse().ok()?;
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let worth = u128::from(*worth);
    Some(u128::from(whole) * worth + u128::from(part) * worth / scale)
}

/// Bits per second.
#[must_use]
pub fn rate(value: &str) -> Option<u64> {
    const UNITS: &[(&str, u64)] = &[
        ("", 1),
        ("bit", 1),
        ("k", 1_000),
        ("kbit", 1_000),
        ("m", 1_000_000),
        ("mbit", 1_000_000),
        ("g", 1_000_000_000),
        ("gbit", 1_000_000_000),
        ("bps", 8),
        ("kbps", 8_000),
        ("mbps", 8_000_000),
        ("gbps", 8_000_000_000),
        ("kib/s", 8 << 10),
        ("mib/s", 8 << 20),
        ("gib/s", 8 << 30),
    ];
    bounded(value, UNITS)
}

/// Nanoseconds.
#[must_use]
pub fn time_ns(value: &str) -> Option<u64> {
    const UNITS: &[(&str, u64)] = &[
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    bounded(value, UNITS).or_else(|| (value == "0").then_some(0))
}

/// Bytes.
#[must_use]
pub fn size(value: &str) -> Option<u64> {
    const UNITS: &[(&str, u64)] = &[
        ("", 1),
        ("b", 1),
        ("k", 1 << 10),
        ("kib", 1 << 10),
        ("m", 1 << 20),
        ("mib", 1 << 20),
        ("g", 1 << 30),
        ("gib", 1 << 30),
        ("t", 1 << 40),
        ("tib", 1 << 40),
    ];
    bounded(value, UNITS)
}
