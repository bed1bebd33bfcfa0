//! A shape as text: `KEY=V,…`.
//!
//! | key | value |
//! | --- | --- |
//! | `rate` | both directions, as in `tc`: `500mbit`, `1.5gbit` (decimal), a bare number is bit/s |
//! | `rate_in`, `rate_out` | one direction: from hosts, to hosts |
//! | `delay` | added once to each command's round trip: `30ms`, `250us`, `1s` |
//! | `jitter` | up to so much more or less than `delay` |
//! | `large` | `SIZE:DELAY`, extra delay of commands that move at least SIZE bytes: `64k:10ms` |
//! | `onoff` | `ON:OFF`, carries for ON, then nothing for OFF: `2s:500ms` |
//!
//! Units: [`units`]. `none` is no shaping; nothing at all is a mistake, such as a
//! variable of a script that was never set.

use super::{Large, OnOff, Shape, units};
use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;
use core::time::Duration;

const KEYS: &str = "rate, rate_in, rate_out, delay, jitter, large, onoff";
const MIN_RATE: u64 = 1_000;
const MAX_RATE: u64 = 1_000_000_000_000;
const MAX_DELAY: Duration = Duration::from_secs(60);
const MIN_PERIOD: Duration = Duration::from_micros(100);
const MAX_PERIOD: Duration = Duration::from_secs(3600);
const MAX_SIZE: u64 = 1 << 40;

/// Why a text is no shape: names the key, and the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeError {
    /// The key at fault, as written; empty where there is none.
    pub key: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            return write!(f, "shape: {}", self.problem.escape_debug());
        }
        write!(f, "shape: {}: {}", self.key.escape_debug(), self.problem.escape_debug())
    }
}

impl core::error::Error for ShapeError {}

fn fail(key: &str, problem: impl ToString) -> ShapeError {
    ShapeError { key: key.to_string(), problem: problem.to_string() }
}

impl FromStr for Shape {
    type Err = ShapeError;

    fn from_str(text: &str) -> Result<Shape, ShapeError> {
        let mut shape = Shape::default();
        let text = text.trim();
        if text == "none" {
            return Ok(shape);
        }
        if text.is_empty() {
            return Err(fail("", "nothing is given; write KEY=VALUE,… or none"));
        }
        let mut seen: [bool; 7] = [false; 7];
        for part in text.split(',') {
            if part.trim().is_empty() {
                return Err(fail("", "nothing stands beside a comma; expected KEY=VALUE"));
            }
            let (key, value) =
                part.split_once('=').ok_or_else(|| fail(part, "expected KEY=VALUE"))?;
            let (key, value) = (key.trim(), value.trim());
            let index = KEYS
                .split(", ")
                .position(|known| known == key)
                .ok_or_else(|| fail(key, alloc::format!("no such key; there are {KEYS}")))?;
            if core::mem::replace(&mut seen[index], true) {
                return Err(fail(key, "given twice"));
            }
            set(&mut shape, key, value)?;
        }
        if seen[0] && (seen[1] || seen[2]) {
            return Err(fail("rate", "already means both rate_in and rate_out"));
        }
        shape.check().map_err(|error| match error.key.as_str() {
            // As it was written.
            "rate_in" | "rate_out" if seen[0] => fail("rate", error.problem),
            _ => error,
        })?;
        Ok(shape)
    }
}

fn set(shape: &mut Shape, key: &str, value: &str) -> Result<(), ShapeError> {
    match key {
        "rate" => {
            let rate = rate(key, value)?;
            shape.rate_in = Some(rate);
            shape.rate_out = Some(rate);
        }
        "rate_in" => shape.rate_in = Some(rate(key, value)?),
        "rate_out" => shape.rate_out = Some(rate(key, value)?),
        "delay" => shape.delay = time(key, value)?,
        "jitter" => shape.jitter = time(key, value)?,
        "large" => {
            let (bytes, delay) = pair(key, value, "SIZE:DELAY, for example 64k:10ms")?;
            shape.large = Some(Large { bytes: size(key, bytes)?, delay: time(key, delay)? });
        }
        _ => {
            let (on, off) = pair(key, value, "ON:OFF, for example 2s:500ms")?;
            shape.on_off = Some(OnOff { on: time(key, on)?, off: time(key, off)? });
        }
    }
    Ok(())
}

impl Shape {
    /// Checks the limits that the text form has, for shapes that were built otherwise.
    ///
    /// # Errors
    /// Names the key and its limit.
    pub fn check(&self) -> Result<(), ShapeError> {
        for (key, rate) in [("rate_in", self.rate_in), ("rate_out", self.rate_out)] {
            if rate.is_some_and(|rate| !(MIN_RATE..=MAX_RATE).contains(&rate)) {
                return Err(fail(key, "must lie between 1kbit and 1000gbit"));
            }
        }
        if self.delay > MAX_DELAY {
            return Err(fail("delay", "must not exceed 60s"));
        }
        if self.jitter > self.delay {
            return Err(fail("jitter", "must not exceed delay"));
        }
        if let Some(large) = self.large
            && (large.bytes == 0 || large.bytes > MAX_SIZE || large.delay > MAX_DELAY)
        {
            return Err(fail("large", "SIZE must lie between 1 and 1024g, DELAY not exceed 60s"));
        }
        if let Some(OnOff { on, off }) = self.on_off {
            let fits = |t: Duration| (MIN_PERIOD..=MAX_PERIOD).contains(&t);
            if !fits(on) || !fits(off) {
                return Err(fail("onoff", "ON and OFF must lie between 100us and 3600s"));
            }
        }
        Ok(())
    }
}

fn pair<'a>(key: &str, value: &'a str, wanted: &str) -> Result<(&'a str, &'a str), ShapeError> {
    value.split_once(':').ok_or_else(|| fail(key, alloc::format!("expected {wanted}")))
}

fn rate(key: &str, value: &str) -> Result<u64, ShapeError> {
    units::rate(value).ok_or_else(|| {
        fail(key, alloc::format!("{value} is no rate; write 500mbit, 1.5gbit or 60MiB/s"))
    })
}

fn time(key: &str, value: &str) -> Result<Duration, ShapeError> {
    units::time_ns(value)
        .map(Duration::from_nanos)
        .ok_or_else(|| fail(key, alloc::format!("{value} is no time; write 250us, 30ms or 1.5s")))
}

fn size(key: &str, value: &str) -> Result<u64, ShapeError> {
    units::size(value)
        .ok_or_else(|| fail(key, alloc::format!("{value} is no size; write 4096, 64k or 1MiB")))
}

impl fmt::Display for Shape {
    /// The text form; parsing it gives the same shape.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("none");
        }
        let mut sep = "";
        let mut next = || core::mem::replace(&mut sep, ",");
        if let (Some(rate), true) = (self.rate_in, self.rate_in == self.rate_out) {
            write!(f, "{}rate={}", next(), RateText(rate))?;
        } else {
            for (key, rate) in [("rate_in", self.rate_in), ("rate_out", self.rate_out)] {
                if let Some(rate) = rate {
                    write!(f, "{}{key}={}", next(), RateText(rate))?;
                }
            }
        }
        for (key, time) in [("delay", self.delay), ("jitter", self.jitter)] {
            if !time.is_zero() {
                write!(f, "{}{key}={}", next(), TimeText(time))?;
            }
        }
        if let Some(large) = self.large {
            write!(f, "{}large={}:{}", next(), large.bytes, TimeText(large.delay))?;
        }
        if let Some(o) = self.on_off {
            write!(f, "{}onoff={}:{}", next(), TimeText(o.on), TimeText(o.off))?;
        }
        Ok(())
    }
}

/// The largest unit that leaves a whole number.
fn whole(f: &mut fmt::Formatter<'_>, n: u64, units: &[(u64, &str)]) -> fmt::Result {
    let fits = |(worth, _): &&(u64, &str)| n.is_multiple_of(*worth) && n >= *worth;
    let (worth, name) = units.iter().find(fits).unwrap_or(&units[units.len() - 1]);
    write!(f, "{}{name}", n / worth)
}

struct RateText(u64);

impl fmt::Display for RateText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimal = [(1_000_000_000, "gbit"), (1_000_000, "mbit"), (1_000, "kbit")];
        let binary = [(8 << 30, "GiB/s"), (8 << 20, "MiB/s"), (8 << 10, "KiB/s"), (1, "bit")];
        let is_decimal = self.0.is_multiple_of(1_000);
        whole(f, self.0, if is_decimal { &decimal } else { &binary })
    }
}

struct TimeText(Duration);

impl fmt::Display for TimeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX);
        whole(f, ns, &[(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")])
    }
}
