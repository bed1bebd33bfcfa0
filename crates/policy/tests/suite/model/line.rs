//! One path's line and server.

use super::US;

/// What the far end does well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    Everything,
    /// Probes end with an error, or can not be sent at all.
    ErrorsToProbes,
    NoProbes,
    /// What arrives is answered when the line changes into another one.
    Nothing,
}

/// A line with a delay, and a server at its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// There and back.
    pub(crate) delay_ns: u64,
    /// Of the server, for each command.
    pub(crate) command_ns: u64,
    /// … and for each KiB.
    pub(crate) kib_ns: u64,
    pub(crate) answers: Answers,
    /// Completions are told of when so many are there …
    pub(crate) burst: usize,
    /// … or the first of them has waited for so long.
    pub(crate) hold_ns: u64,
    /// With more commands than this, each takes so many times as long.
    pub(crate) loaded: (u32, u64),
    /// It takes longer by so much at most, by chance.
    pub(crate) jitter_ns: u64,
}

impl Line {
    /// 100 µs away, so many MiB/s for commands of 4 KiB.
    pub(crate) fn mib_s(rate: u64) -> Line {
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

    pub(crate) fn delay(self, delay_ns: u64) -> Line {
        Line { delay_ns, ..self }
    }

    pub(crate) fn answers(self, answers: Answers) -> Line {
        Line { answers, ..self }
    }

    pub(crate) fn in_bursts(self, burst: usize, hold_ns: u64) -> Line {
        Line { burst, hold_ns, ..self }
    }

    pub(crate) fn lies(self, until: u32, factor: u64) -> Line {
        Line { loaded: (until, factor), ..self }
    }

    pub(crate) fn jitter(self, jitter_ns: u64) -> Line {
        Line { jitter_ns, ..self }
    }

    /// How long the server takes when it has so many commands, this one with them.
    pub(crate) fn service_ns(&self, bytes: u32, commands: u32) -> u64 {
        let factor = if commands > self.loaded.0 { self.loaded.1 } else { 1 };
        factor * (self.command_ns + self.kib_ns * u64::from(bytes) / 1024).max(1)
    }
}
