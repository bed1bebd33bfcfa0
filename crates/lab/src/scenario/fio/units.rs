//! Numbers as fio 3.33 reads them, where it reads all of the text.
//!
//! What fio silently drops (`4q` is 4, `4.5k` is 4) is refused here.

use super::super::mistake::shorten;

/// `NUMBER[SUFFIX]`, decimal or `0x…`; blanks before it are skipped.
fn split(value: &str) -> Option<(u64, &str)> {
    let value = value.trim_start_matches([' ', '\t']);
    let hex = value.strip_prefix("0x").or_else(|| value.strip_prefix("0X"));
    let (digits, radix) = hex.map_or((value, 10), |digits| (digits, 16));
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let number = u64::from_str_radix(&digits[..end], radix).ok()?;
    Some((number, &digits[end..]))
}

/// Bytes: `k`, `m`, `g`, `t`, `p` (also `kb`, `ki`, …) are powers of 1024 as `kb_base=1024` has
/// them, and for its old scripts' sake `kib`, `mib`, … are powers of 1000.
pub(super) fn bytes(value: &str) -> Result<u64, String> {
    let read = || {
        let (number, suffix) = split(value)?;
        let suffix = suffix.to_ascii_lowercase();
        let mut letters = suffix.chars();
        let power = match letters.next() {
            None => return Some(number),
            Some('b') if suffix == "b" => return Some(number),
            Some(letter) => "kmgtp".find(letter)? + 1,
        };
        let base: u64 = match letters.as_str() {
            "" | "b" | "i" => 1024,
            "ib" => 1000,
            _ => return None,
        };
        number.checked_mul(base.checked_pow(u32::try_from(power).ok()?)?)
    };
    read().ok_or_else(|| {
        format!("{} is no size; write a whole number with k, m, g or t: 4096, 64k", shorten(value))
    })
}

/// A plain count; fio allows the suffixes of sizes here too.
pub(super) fn number(value: &str) -> Result<u32, String> {
    bytes(value)
        .ok()
        .and_then(|n| u32::try_from(n).ok())
        .ok_or_else(|| format!("{} is no whole number from 0 to {}", shorten(value), u32::MAX))
}

/// Nanoseconds; a number without a unit counts in `bare_ns`.
pub(super) fn time(value: &str, bare_ns: u64) -> Result<u64, String> {
    let read = || {
        let (number, suffix) = split(value)?;
        let worth = match suffix.to_ascii_lowercase().as_str() {
            "" => bare_ns,
            "us" | "usec" => 1_000,
            "ms" | "msec" => 1_000_000,
            "s" | "sec" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            _ => return None,
        };
        number.checked_mul(worth)
    };
    read().ok_or_else(|| {
        format!("{} is no time; write a whole number with us, ms, s, m, h or d", shorten(value))
    })
}

/// 0 or 1.
pub(super) fn flag(value: Option<&str>, alone: Option<bool>) -> Result<bool, String> {
    match (value.map(str::trim), alone) {
        (None, Some(flag)) => Ok(flag),
        (Some("1"), _) => Ok(true),
        (Some("0"), _) => Ok(false),
        _ => Err("must be 0 or 1".to_owned()),
    }
}

/// CPU numbers: `0-3,6`.
pub(super) fn cpus(value: &str) -> Result<Vec<u32>, String> {
    const MOST: u32 = 4096;
    let mut all = Vec::new();
    for part in value.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let cpu = |text: &str| text.trim().parse::<u32>().ok().filter(|cpu| *cpu < MOST);
        match (cpu(first), cpu(last)) {
            (Some(first), Some(last)) if first <= last => all.extend(first..=last),
            _ => {
                let part = shorten(part);
                return Err(format!("{part:?} is no CPU below {MOST}; write 0-3,6"));
            }
        }
        if all.len() > MOST as usize {
            return Err("names CPUs more than once; write 0-3,6".to_owned());
        }
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}
