//! Times, rates and sizes in scenario files; the words are those of the command line's `--shape`.

use super::super::mistake::shorten;

/// `NUMBER[.FRACTION]UNIT`, times the unit's worth; up to six digits of fraction.
fn scaled(value: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    let (_, worth) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.len() > 6 {
        return None;
    }
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let worth = u128::from(*worth);
    let part = u128::from(fraction.parse::<u64>().ok()?) * worth / scale;
    u64::try_from(u128::from(whole.parse::<u64>().ok()?) * worth + part).ok()
}

/// Nanoseconds: `80us`, `1.5s`, `1h`; `0` needs no unit.
pub(super) fn time(value: &str) -> Result<u64, String> {
    const UNITS: &[(&str, u64)] = &[
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    scaled(value, UNITS).or_else(|| (value == "0").then_some(0)).ok_or_else(|| {
        format!("{} is no time; write \"250us\", \"30ms\" or \"1.5s\"", shorten(value))
    })
}

/// Bits per second: `500mbit`, `10gbit`; `60MiB/s` and tc's `60mbps` are bytes.
pub(super) fn rate(value: &str) -> Result<u64, String> {
    const UNITS: &[(&str, u64)] = &[
        ("bit", 1),
        ("kbit", 1_000),
        ("mbit", 1_000_000),
        ("gbit", 1_000_000_000),
        ("bps", 8),
        ("kbps", 8_000),
        ("mbps", 8_000_000),
        ("gbps", 8_000_000_000),
        ("kib/s", 8 << 10),
        ("mib/s", 8 << 20),
        ("gib/s", 8 << 30),
    ];
    scaled(value, UNITS).ok_or_else(|| {
        let value = shorten(value);
        format!("{value} is no rate; write \"500mbit\", \"10gbit\" or \"60MiB/s\"")
    })
}

/// Bytes: `4096`, `64k`, `1g`, powers of 1024.
pub(super) fn size(value: &str) -> Result<u64, String> {
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
    scaled(value, UNITS)
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
