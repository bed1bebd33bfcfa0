//! Where and when results came to be: a file of its own, so that everything else can be compared
//! byte for byte.

use serde::{Deserialize, Serialize};
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// `environment.json`: an entry for each time that `lab run` worked on the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// [`SCHEMA`](super::SCHEMA).
    pub schema: u32,
    /// In the order in which they were.
    pub sessions: Vec<Session>,
}

/// One time that `lab run` worked on the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// Of Anabranch.
    pub version: String,
    /// The command line.
    pub command: Vec<String>,
    /// The machine's name.
    pub host: String,
    /// The kernel's release.
    pub kernel: String,
    /// The processor's name for itself; empty when it has none.
    pub cpu_model: String,
    /// Processors that this process may use.
    pub cpus: u32,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// When it began: RFC 3339, UTC.
    pub started: String,
    /// When it ended; when it has not, when it began.
    pub ended: String,
    /// Cells that were run.
    pub cells_run: u64,
    /// Cells that were there already.
    pub cells_kept: u64,
}

impl Session {
    /// What the machine says of itself; it begins now.
    #[must_use]
    pub fn begin(command: Vec<String>) -> Session {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key));
            let value = line.and_then(|line| line.split_once(':'));
            value.map_or(String::new(), |(_, value)| value.trim().to_owned())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let kib = memory.split_whitespace().next().and_then(|number| number.parse::<u64>().ok());
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let now = rfc3339(SystemTime::now());
        Session {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command,
            host: read("/proc/sys/kernel/hostname").trim().to_owned(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu_model: field(&read("/proc/cpuinfo"), "model name"),
            cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
            memory_bytes: kib.unwrap_or(0).saturating_mul(1024),
            started: now.clone(),
            ended: now,
            cells_run: 0,
            cells_kept: 0,
        }
    }

    /// It ends now.
    pub fn end(&mut self, cells_run: u64, cells_kept: u64) {
        self.ended = rfc3339(SystemTime::now());
        (self.cells_run, self.cells_kept) = (cells_run, cells_kept);
    }
}

/// Seconds, UTC.
fn rfc3339(time: SystemTime) -> String {
    // What is before that it cannot write.
    humantime::format_rfc3339_seconds(time.max(UNIX_EPOCH)).to_string()
}

#[cfg(test)]
mod tests {
    use super::{Session, rfc3339};
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn times_are_written_as_calendars_have_them() {
        let at = |seconds| rfc3339(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn a_machine_has_a_kernel_and_memory() {
        let session = Session::begin(vec!["anabranch".to_owned()]);
        assert!(!session.kernel.is_empty());
        assert!(session.memory_bytes > 1 << 20 && session.cpus > 0, "{session:?}");
    }
}
