//! Sizes and times as people write them, and numbers as people read them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::num::{IntErrorKind, ParseIntError};
use std::time::Duration;

/// Parses a size: a number of bytes, or one with `k`, `m`, `g`, `t` or `KiB`, `MiB`, `GiB`, `TiB`,
/// all powers of 1024 and in any case.
///
/// # Errors
/// One sentence that names the text and the units.
pub fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => {
            return Err(format!(
                "'{text}' is not a size: write a number with k, m, g, t or KiB, MiB, GiB, \
                 TiB (powers of 1024)"
            ));
        }
    };
    let number: u64 = number.parse().map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => format!("the size '{text}' exceeds 64 bits"),
        _ => format!("'{text}' is not a size: write a whole number, such as 64MiB"),
    })?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("the size '{text}' exceeds 64 bits"))
}

/// Parses a time with the unit `ns`, `us`, `ms`, `s`, `m` or `h`; a bare number is seconds, as in
/// nvme-cli. Fractions are fine: `0.5s`.
///
/// # Errors
/// One sentence that names the text and the units.
pub fn time(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!("'{text}' is not a time: write a number with ns, us, ms, s, m or h, such as 250ms")
    };
    let (number, unit) = split(text);
    let unit_ns: u64 = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "" | "s" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return Err(wrong()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let mut ns = whole.checked_mul(unit_ns);
    let mut place = unit_ns;
    for digit in fraction.chars() {
        place /= 10;
        let digit = u64::from(digit.to_digit(10).ok_or_else(wrong)?);
        ns = ns.and_then(|ns| ns.checked_add(digit * place));
    }
    ns.map(Duration::from_nanos).ok_or_else(|| format!("the time '{text}' exceeds 584 years"))
}

/// Parses a time that may be switched off: `off`, `-1` or, as in Linux, any other negative number
/// is `None`.
///
/// # Errors
/// As [`time`].
pub fn time_or_off(text: &str) -> Result<Option<Duration>, String> {
    if text == "off" || text.parse().is_ok_and(|number: i64| number < 0) {
        return Ok(None);
    }
    time(text).map(Some).map_err(|why| format!("{why}; off or -1 switches it off"))
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

/// A time in a configuration file or a request: a whole number of seconds or a text with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

/// As [`Span`]; `-1` or `"off"` switches it off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanOrOff(pub Option<Duration>);

/// A size in a configuration file or a request: a whole number of bytes or a text with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a whole number is expected, or a text with a unit, such as \"250ms\" or \"64MiB\""
)]
enum NumberOrText {
    Number(i64),
    Text(String),
}

impl NumberOrText {
    fn text(self) -> String {
        match self {
            NumberOrText::Number(number) => number.to_string(),
            NumberOrText::Text(text) => text,
        }
    }
}

macro_rules! from_text {
    ($type:ident, $parse:path, $text:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = NumberOrText::deserialize(from)?.text();
                $parse(&text).map($type).map_err(serde::de::Error::custom)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&$text(self.0))
            }
        }
    };
}

from_text!(Span, time, |span: Duration| format!("{}ns", span.as_nanos()));
from_text!(SpanOrOff, time_or_off, |span: Option<Duration>| match span {
    Some(span) => format!("{}ns", span.as_nanos()),
    None => "off".to_owned(),
});
from_text!(Bytes, size, |bytes: u64| bytes.to_string());

/// A size as nvme-cli's `list` shows it: decimal, two digits, `GB`.
#[must_use]
pub fn decimal_size(bytes: u64) -> (f64, &'static str) {
    let units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    (value, units[unit])
}

/// A latency as a short text: `87 us`, `1.4 ms`, `2.10 s`.
#[must_use]
pub fn latency_text(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}
