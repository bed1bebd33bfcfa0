//! Times as attributes: seconds or, where the kernel has them so, milliseconds; fractions and the
//! units `us`, `ms`, `s`, `m`, `h` are ours.

use super::Refused;
use alloc::format;
use alloc::string::{String, ToString};
use core::time::Duration;

/// Longest time that an attribute takes: as in the kernel, what fits 31 bits of seconds.
const MAX: Duration = Duration::from_secs(i32::MAX as u64);

/// `10`, `0.25`.
pub(super) fn print(time: Duration) -> String {
    decimal(time.as_secs().into(), time.subsec_nanos(), 9)
}

/// `30000`, `0.25`.
pub(super) fn print_ms(time: Duration) -> String {
    decimal(time.as_millis(), time.subsec_nanos() % 1_000_000, 6)
}

/// So many, and a fraction of so many digits.
fn decimal(whole: u128, fraction: u32, digits: usize) -> String {
    if fraction == 0 {
        return whole.to_string();
    }
    let fraction = format!("{fraction:0digits$}");
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

/// A time or `off`.
pub(super) fn print_or_off(time: Option<Duration>) -> String {
    time.map_or_else(|| String::from("off"), print)
}

/// Why a text is no time.
enum Unread {
    NoTime,
    TooLong,
}

/// What a number without a unit is in.
#[derive(Clone, Copy)]
enum Plain {
    Seconds,
    Milliseconds,
}

impl Plain {
    const fn ns(self) -> u128 {
        match self {
            Plain::Seconds => 1_000_000_000,
            Plain::Milliseconds => 1_000_000,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Plain::Seconds => "seconds",
            Plain::Milliseconds => "milliseconds",
        }
    }
}

/// The reverse of [`print()`]; also `200ms`, `50us`, `3s`, `10m`, `1h`.
pub(super) fn parse(text: &str) -> Result<Duration, Refused> {
    parse_as(text, Plain::Seconds)
}

/// The reverse of [`print_ms()`]; also `200ms`, `50us`, `3s`, `10m`, `1h`.
pub(super) fn parse_ms(text: &str) -> Result<Duration, Refused> {
    parse_as(text, Plain::Milliseconds)
}

fn parse_as(text: &str, plain: Plain) -> Result<Duration, Refused> {
    let word = plain.word();
    read(text, plain).map_err(|why| match why {
        Unread::NoTime => {
            Refused::Invalid(format!("\"{text}\" is no time in {word} (or with us, ms, s, m, h)"))
        }
        Unread::TooLong => {
            let most = MAX.as_nanos() / plain.ns();
            Refused::OutOfRange(format!("{text} is too long: at most {most} {word}"))
        }
    })
}

fn read(text: &str, plain: Plain) -> Result<Duration, Unread> {
    let (digits, unit_ns) = if let Some(digits) = text.strip_suffix("us") {
        (digits, 1_000)
    } else if let Some(digits) = text.strip_suffix("ms") {
        (digits, Plain::Milliseconds.ns())
    } else if let Some(digits) = text.strip_suffix('s') {
        (digits, Plain::Seconds.ns())
    } else if let Some(digits) = text.strip_suffix('m') {
        (digits, 60 * Plain::Seconds.ns())
    } else if let Some(digits) = text.strip_suffix('h') {
        (digits, 3600 * Plain::Seconds.ns())
    } else {
        (text, plain.ns())
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !plain(whole) || !plain(fraction) || fraction.len() > 9 {
        return Err(Unread::NoTime);
    }
    // Digits alone: what does not parse has too many of them.
    let whole: u64 = whole.parse().map_err(|_| Unread::TooLong)?;
    let scale = 10_u64.pow(fraction.len() as u32);
    let fraction: u64 = fraction.parse().map_err(|_| Unread::NoTime)?;
    let ns = u128::from(whole) * unit_ns + u128::from(fraction) * unit_ns / u128::from(scale);
    let time = u64::try_from(ns).map(Duration::from_nanos).map_err(|_| Unread::TooLong)?;
    if time > MAX { Err(Unread::TooLong) } else { Ok(time) }
}

/// A time; `off`, `-1` and, as in Linux, any other negative number are none. What is too long is
/// invalid, too: Linux says no more of these.
pub(super) fn parse_or_off(text: &str) -> Result<Option<Duration>, String> {
    if text == "off" || text.parse().is_ok_and(|number: i64| number < 0) {
        return Ok(None);
    }
    read(text, Plain::Seconds).map(Some).map_err(|why| match why {
        Unread::NoTime => {
            format!("\"{text}\" is neither a time in seconds (or with us, ms, s, m, h) nor \"off\"")
        }
        Unread::TooLong => {
            format!("{text} is too long: at most {} seconds, or \"off\"", MAX.as_secs())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_again() {
        for (text, ns) in [
            ("0", 0),
            ("10", 10_000_000_000),
            ("0.25", 250_000_000),
            ("1.000000001", 1_000_000_001),
        ] {
            let time = Duration::from_nanos(ns);
            assert_eq!(print(time), text);
            assert_eq!(parse(text), Ok(time));
        }
        assert_eq!(parse("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(parse("1.5us"), Ok(Duration::from_nanos(1500)));
        assert_eq!(parse_or_off("10m"), Ok(Some(Duration::from_secs(600))));
        assert_eq!(parse_or_off("0.5h"), Ok(Some(Duration::from_secs(1800))));
        assert_eq!(parse_or_off("off"), Ok(None));
        assert_eq!(parse_or_off("-1"), Ok(None));
        assert_eq!(parse_or_off("-600"), Ok(None));
    }

    #[test]
    fn a_plain_number_may_be_milliseconds() {
        for (text, ns) in [("30000", 30_000_000_000), ("1", 1_000_000), ("1.5", 1_500_000)] {
            let time = Duration::from_nanos(ns);
            assert_eq!(print_ms(time), text);
            assert_eq!(parse_ms(text), Ok(time));
        }
        assert_eq!(parse_ms("7s"), Ok(Duration::from_secs(7)));
        assert_eq!(parse_ms("50us"), Ok(Duration::from_micros(50)));
        let why = "2147483647001 is too long: at most 2147483647000 milliseconds";
        assert_eq!(parse_ms("2147483647001"), Err(Refused::OutOfRange(why.to_string())));
        let why = "\"soon\" is no time in milliseconds (or with us, ms, s, m, h)";
        assert_eq!(parse_ms("soon"), Err(Refused::Invalid(why.to_string())));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "x", "-2", "1.", ".5", "1e3", "ms", "99999999999999999999", "3 s"] {
            assert!(parse(text).is_err(), "{text:?} must be refused");
        }
        for text in ["-0", "-", "-1s", "--1", "-1.5", "-99999999999999999999"] {
            assert!(parse_or_off(text).is_err(), "{text:?} must be refused");
        }
    }

    #[test]
    fn what_is_too_long_is_told_the_limit_however_long_it_is() {
        for text in ["2147483648", "99999999999", "99999999999999999999", "2147483648000ms"] {
            let why = format!("{text} is too long: at most 2147483647 seconds");
            assert_eq!(parse(text), Err(Refused::OutOfRange(why)));
            let why = parse_or_off(text).expect_err("beyond 31 bits");
            assert!(why.ends_with("at most 2147483647 seconds, or \"off\""), "{why}");
        }
        let why = parse_or_off("soon").expect_err("no time");
        assert_eq!(
            why,
            "\"soon\" is neither a time in seconds (or with us, ms, s, m, h) nor \"off\""
        );
    }
}
