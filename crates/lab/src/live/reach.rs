//! Whether real hosts can use a path at all: they, and the target, give up what takes too long.

use super::LiveError;
use super::host::{CONNECT, falls_silent, options};
use crate::light::{COMMAND_BYTES, RESPONSE_BYTES, bytes_in, bytes_out};
use crate::scenario::{Alteration, Brownout, Part, Problem, Scenario};
use anabranch_policy::OpClass;
use anabranch_target::link::Shape;
use core::fmt;
use core::time::Duration;
use std::cmp::Reverse;

/// What a host asks before it has the device, one after the other, at least; and what that brings.
const QUESTIONS: u32 = 12;
const ASKED_BYTES: u64 = 2 << 10;
const TOLD_BYTES: u64 = 24 << 10;
/// The data of Fabrics Connect, and how long the target waits for that.
const CONNECT_BYTES: u64 = 1024;
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// What adds up to the time that something takes on an idle path, by the key that sets it.
struct Parts(Vec<(&'static str, Duration)>);

impl Parts {
    /// So many exchanges one after the other, with so many bytes in both directions together.
    fn new(shape: &Shape, times: u32, bytes_in: u64, bytes_out: u64) -> Parts {
        let (to, from) = if shape.rate_in == shape.rate_out {
            ("rate", "rate")
        } else {
            ("rate_in", "rate_out")
        };
        Parts(vec![
            // What jitter takes away it may take away each time.
            ("delay", (shape.delay - shape.jitter.min(shape.delay)).saturating_mul(times)),
            (to, on_link(bytes_in, shape.rate_in)),
            (from, on_link(bytes_out, shape.rate_out)),
        ])
    }

    fn sum(&self) -> Duration {
        self.0.iter().fold(Duration::ZERO, |sum, (_, part)| sum.saturating_add(*part))
    }

    /// The key of the longest part.
    fn key(&self) -> &'static str {
        self.0.iter().min_by_key(|(_, part)| Reverse(*part)).map_or("delay", |(key, _)| key)
    }
}

fn on_link(bytes: u64, rate: Option<u64>) -> Duration {
    let Some(rate) = rate else { return Duration::ZERO };
    let ns = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// One state of a path, in words and in values.
struct Spell<'a> {
    path: &'a str,
    /// What brought it about.
    part: Part,
    /// Since when, if not from the beginning.
    at_ns: Option<u64>,
    shape: &'a Shape,
    brownout: Option<Brownout>,
}

impl Spell<'_> {
    fn within(&self, what: impl fmt::Display, parts: &Parts, limit: Limit) -> Result<(), Problem> {
        let takes = parts.sum();
        if takes <= limit.time {
            return Ok(());
        }
        let since = self.at_ns.map_or_else(String::new, |at| {
            format!(" after the change at {} s", Duration::from_nanos(at).as_secs_f64())
        });
        let text = format!(
            "on path {:?}{since} ({}) {what} takes {:.1} s without any other load; live, {} {} s \
             ({}); use a faster path, or --mode light",
            self.path,
            self.shape,
            takes.as_secs_f64(),
            limit.gives_up,
            limit.time.as_secs_f64(),
            limit.name
        );
        let key = parts.key();
        let part = if matches!(key, "read" | "write") { Part::Target } else { self.part };
        Err(Problem::of(part, key, text))
    }

    /// Hosts come to the path as it is.
    fn connects(&self) -> Result<(), Problem> {
        let (gives_up, name) = ("the target waits", "for Connect");
        let connect = Parts::new(self.shape, 1, COMMAND_BYTES + CONNECT_BYTES, 0);
        let limit = Limit { time: CONNECT_LIMIT, gives_up, name };
        self.within("Fabrics Connect", &connect, limit)?;
        let all = Parts::new(self.shape, QUESTIONS, ASKED_BYTES, TOLD_BYTES);
        let (gives_up, name) = ("a host has", "to connect");
        self.within("to connect", &all, Limit { time: CONNECT, gives_up, name })
    }

    /// Hosts stay on it.
    fn keeps_alive(&self, keep_alive: Duration, whose: &'static str) -> Result<(), Problem> {
        let parts = Parts::new(self.shape, 1, COMMAND_BYTES, RESPONSE_BYTES);
        let gives_up = "a host gives a path up when Keep Alive is not answered within";
        let limit = Limit { time: keep_alive / 2, gives_up, name: whose };
        self.within("Keep Alive", &parts, limit)
    }

    /// The largest requests end.
    fn carries(&self, scenario: &Scenario, io_timeout: Duration) -> Result<(), Problem> {
        for job in &scenario.jobs {
            let (sizes, mix) = (&job.sizes, &job.mix);
            let service = &scenario.target;
            for (op, word, of, share, service_ns) in [
                (OpClass::Read, "read", &sizes.read, mix.read, service.read_ns),
                (OpClass::Write, "write", &sizes.write, mix.write, service.write_ns),
            ] {
                if share == 0 {
                    continue;
                }
                let bytes = of.largest();
                let mut parts =
                    Parts::new(self.shape, 1, bytes_in(op, bytes), bytes_out(op, bytes));
                parts.0.push(("large", self.shape.large_delay(bytes.into())));
                parts.0.push((word, Duration::from_nanos(service_ns)));
                if let Some(brownout) = self.brownout {
                    parts.0.push(("brownout", brownout.delay));
                }
                let gives_up = "a host gives a command up after";
                let limit = Limit { time: io_timeout, gives_up, name: "its I/O time-out" };
                self.within(format_args!("a {word} of {bytes} bytes"), &parts, limit)?;
            }
        }
        Ok(())
    }
}

struct Limit {
    time: Duration,
    /// Who does what.
    gives_up: &'static str,
    name: &'static str,
}

/// Refuses paths on which hosts could not stay, whatever the load.
///
/// # Errors
/// Names the path, the key and the limit.
pub(super) fn check(scenario: &Scenario) -> Result<(), Problem> {
    let options = options(scenario, scenario.hosts.workers);
    let keep_alive = options.keep_alive_tmo;
    let silent = falls_silent(scenario);
    let whose = if silent { "half of detect" } else { "half of its time-out" };
    for (index, path) in scenario.paths.iter().enumerate() {
        let (mut shape, mut brownout) = (&path.shape, path.brownout);
        let part = Part::Path(index);
        let spell = Spell { path: &path.name, part, at_ns: None, shape, brownout };
        spell.connects()?;
        spell.keeps_alive(keep_alive, whose)?;
        spell.carries(scenario, options.io_timeout)?;
        let changes = scenario.changes.iter().enumerate();
        for (number, change) in changes.filter(|(_, change)| change.path == index) {
            match &change.what {
                Alteration::Shape(now) => shape = now,
                Alteration::Brownout(now) => brownout = *now,
                Alteration::Ana(_) | Alteration::State(_) => continue,
            }
            let (part, at_ns) = (Part::Change(number), Some(change.at_ns));
            let spell = Spell { path: &path.name, part, at_ns, shape, brownout };
            spell.keeps_alive(keep_alive, whose)?;
            spell.carries(scenario, options.io_timeout)?;
        }
    }
    Ok(())
}

/// As [`check`], of a scenario whose rates are this part of what was asked for.
///
/// # Errors
/// Names the part, too.
pub(super) fn check_scaled(scenario: &Scenario, part: &str) -> Result<(), LiveError> {
    check(scenario).map_err(|problem| {
        let why = format!("with {part} of the scenario's rates: {problem}");
        LiveError::Option { name: "scale", why }
    })
}

#[cfg(test)]
mod tests;
