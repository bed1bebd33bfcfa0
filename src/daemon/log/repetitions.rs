//! What came often of late: peers can make us say something as fast as they can send.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// So often in so long a time the same line is written.
pub(super) const SAME_IN_WINDOW: u64 = 10;
pub(super) const SAME_WINDOW: Duration = Duration::from_secs(1);
/// Different lines whose repetition is noticed.
pub(super) const MAX_LINES: usize = 256;

/// So many lines of one kind in so long a time are written: everything that a host with many paths
/// does at once, and a few lines a second when somebody never ends.
pub(super) const ALIKE_IN_WINDOW: u64 = 64;
pub(super) const ALIKE_WINDOW: Duration = Duration::from_secs(10);
/// Kinds that are told apart: a few for each of a target's ports.
const MAX_KINDS: usize = 8192;

/// Lines of late, by what makes them the same, and how often each came.
pub(super) struct Repetitions {
    in_window: u64,
    window: Duration,
    most: usize,
    seen: HashMap<String, Seen>,
    /// When something hidden is to be told; none that is hidden is due earlier.
    due: Option<Instant>,
}

struct Seen {
    since: Instant,
    written: u64,
    hidden: u64,
    /// The last that was hidden.
    last: String,
}

impl Repetitions {
    /// For lines that come over and over.
    pub(super) fn lines() -> Repetitions {
        Repetitions::new(SAME_IN_WINDOW, SAME_WINDOW, MAX_LINES)
    }

    /// For different lines of one kind.
    pub(super) fn kinds() -> Repetitions {
        Repetitions::new(ALIKE_IN_WINDOW, ALIKE_WINDOW, MAX_KINDS)
    }

    fn new(in_window: u64, window: Duration, most: usize) -> Repetitions {
        Repetitions { in_window, window, most, seen: HashMap::new(), due: None }
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.seen.len()
    }

    /// What to write for a line; nothing when too many like it came in their window. Without a kind
    /// it is like those that say the same.
    pub(super) fn admit(
        &mut self,
        kind: Option<&str>,
        line: String,
        now: Instant,
    ) -> Option<String> {
        let (key, window) = (kind.unwrap_or(&line), self.window);
        if let Some(seen) = self.seen.get_mut(key) {
            if now.duration_since(seen.since) >= window {
                let hidden = seen.begin(now);
                return Some(counted(line, hidden));
            }
            if seen.written < self.in_window {
                seen.written += 1;
                return Some(line);
            }
            seen.hidden += 1;
            seen.last = line;
            let due = seen.since + window;
            self.due = Some(self.due.map_or(due, |other| other.min(due)));
            return None;
        }
        if self.seen.len() >= self.most {
            let recent = |seen: &Seen| now.duration_since(seen.since) < window;
            self.seen.retain(|_, seen| recent(seen) || seen.hidden > 0);
        }
        if self.seen.len() < self.most {
            let seen = Seen { since: now, written: 1, hidden: 0, last: String::new() };
            self.seen.insert(key.to_owned(), seen);
        }
        Some(line)
    }

    /// When [`Repetitions::overdue`] has something to say, at the earliest.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// What was hidden in windows that are over: the last line of each, and the number of others.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<String> {
        if self.due.is_none_or(|due| now < due) {
            return Vec::new();
        }
        let window = self.window;
        let lines = self.tell(|seen| (now.duration_since(seen.since) >= window).then_some(now));
        let hiding = self.seen.values().filter(|seen| seen.hidden > 0);
        self.due = hiding.map(|seen| seen.since + window).min();
        lines
    }

    /// All that is hidden; the windows go on.
    pub(super) fn hidden(&mut self) -> Vec<String> {
        self.due = None;
        self.tell(|seen| Some(seen.since))
    }

    /// Tells what those hide for which `begin` says when their window begins.
    fn tell(&mut self, begin: impl Fn(&Seen) -> Option<Instant>) -> Vec<String> {
        let mut lines = Vec::new();
        for seen in self.seen.values_mut().filter(|seen| seen.hidden > 0) {
            let Some(since) = begin(seen) else { continue };
            let (last, written) = (std::mem::take(&mut seen.last), seen.written);
            let same_window = since == seen.since;
            let hidden = seen.begin(since);
            if same_window {
                seen.written = written;
            }
            lines.push(counted(last, hidden - 1));
        }
        lines
    }
}

impl Seen {
    /// A window begins with one line. How many the last one hid.
    fn begin(&mut self, now: Instant) -> u64 {
        (self.since, self.written) = (now, 1);
        std::mem::take(&mut self.hidden)
    }
}

fn counted(line: String, hidden: u64) -> String {
    match hidden {
        0 => line,
        hidden => format!("{line} ({hidden} more like this before)"),
    }
}
