//! One path's line and server.

use super::US;

/// What the far end does well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    Everything,
    /// Probes end with an error, or can not be sent at all.
    ErrorsToProbes,
    NoProbes,
    /// What arrives is answered when the line changes into another one.
    Nothing,
}

/// A line with a delay, and a server at its end.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// There and back.
    pub delay_ns: u64,
    /// Of the server, for each command.
    pub command_ns: u64,
    /// … and for each KiB.
    pub kib_ns: u64,
    pub answers: Answers,
    /// Completions are told of when so many are there …
    pub burst: usize,
    /// … or the first of them has waited for so long.
    pub hold_ns: u64,
    /// With more commands than this, each takes so many times as long.
    pub loaded: (u32, u64),
    /// It takes longer by so much at most, by chance.
    pub jitter_ns: u64,
}

impl Line {
    /// 100 µs away, so many MiB/s for commands of 4 KiB.
    pub fn mib_s(rate: u64) -> Line {
        Line {
            delay_ns: 100 * US,
            command_ns: 0,
            kib_ns: 1_000_000_000 / 1024 / rate,
            answers: Answers::Everything,
            burst: 1,
            hold_ns: 0,
            loaded: (u32::MAX, 1),
            jitter_ns: 0,
        }
    }

    pub fn delay(self, delay_ns: u64) -> Line {
        Line { delay_ns, ..self }
    }

    pub fn answers(self, answers: Answers) -> Line {
        Line { answers, ..self }
    }

    pub fn in_bursts(self, burst: usize, hold_ns: u64) -> Line {
        Line { burst, hold_ns, ..self }
    }

    pub fn lies(self, until: u32, factor: u64) -> Line {
        Line { loaded: (until, factor), ..self }
    }

    pub fn jitter(self, jitter_ns: u64) -> Line {
        Line { jitter_ns, ..self }
    }

    /// How long the server takes when it has so many commands, this one with them.
    pub fn service_ns(&self, bytes: u32, commands: u32) -> u64 {
        let factor = if commands > self.loaded.0 { self.loaded.1 } else { 1 };
        factor * (self.command_ns + self.kib_ns * u64::from(bytes) / 1024).max(1)
    }
}
