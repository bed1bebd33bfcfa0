//! What a daemon tells people, on standard error.
//!
//! Workers tell things in the middle of I/O. So telling never waits and never fails, whatever
//! became of standard error: a pipe that nobody reads, one whose reader has gone, a full disk. A
//! thread of its own writes; lines that find its queue full are counted, and told as a number.
//! Each has the time at which it was written before it, unless systemd's journal notes that anyway.

mod repetitions;
mod stamp;
#[cfg(test)]
mod tests;

use crate::failure::Failure;
use anabranch_lab::shown::{Shown, shown_lines};
use repetitions::Repetitions;
use stamp::Stamp;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// Lines that wait to be written: a thousand namespaces may come at once, and each is told.
const QUEUE_LINES: usize = 4096;

/// Places behind them, which no ordinary line takes: why the program ends is said there, and that
/// everything is written is asked there.
const LAST_WORDS: usize = 16;

/// How long the end of the program waits for what was told to be written.
const FLUSH: Duration = Duration::from_millis(500);

static JOURNAL: OnceLock<Journal> = OnceLock::new();

/// Tells a human, on standard error. What stands in the line may come from others: nothing in it
/// controls a terminal, or passes for another line.
pub fn log(line: impl Display) {
    log_of(None, line);
}

/// As [`log`], of something that others can make happen as often as they like: of one kind a few
/// lines are written at once, and then how many there were.
pub fn log_of(kind: Option<String>, line: impl Display) {
    journal().tell(Line { kind, text: Shown(&line.to_string()).to_string() });
}

fn journal() -> &'static Journal {
    JOURNAL.get_or_init(|| Journal::start(io::stderr(), stamp::of_standard_error()))
}

/// Tells panics of every thread from now on, too, in one line each (and a backtrace if
/// `RUST_BACKTRACE` asks for it). What the standard library does instead waits for whoever reads
/// standard error, and a worker that waits there never ends. Whoever has something to tell later
/// finds a thread that writes it: there may be no memory for one then.
pub fn take_panics() {
    journal();
    std::panic::set_hook(Box::new(|info| {
        let thread = thread::current();
        let name = thread.name().unwrap_or("without a name");
        let place = info.location().map_or_else(String::new, |at| format!(" at {at}"));
        let what = info.payload_as_str().unwrap_or("panic");
        let backtrace = Backtrace::capture();
        let traced = match backtrace.status() {
            BacktraceStatus::Captured => format!("\n{backtrace}"),
            _ => String::new(),
        };
        journal().insist(format!("a defect: thread '{name}' panicked{place}: {what}{traced}"));
        // The process may end with this thread.
        flush();
    }));
}

/// Tells why the program ends, and waits, for a moment at most, until that is written. It may show
/// what stands in a file that others have made.
pub fn last(failure: &Failure) {
    let failure = shown_lines(&failure.to_string());
    if let Some(journal) = JOURNAL.get().filter(|journal| journal.is_read) {
        journal.insist(failure);
        flush();
    } else {
        // The exit status says it, too, when nobody can read this.
        let _ = writeln!(io::stderr(), "anabranch: {failure}");
    }
}

/// Waits, for a moment at most, until what was told is written.
pub fn flush() {
    if let Some(journal) = JOURNAL.get() {
        journal.flush(FLUSH);
    }
}

/// A line, and what it is one of, when there may be many.
struct Line {
    kind: Option<String>,
    text: String,
}

enum Entry {
    Line(Line),
    /// Written however often it came.
    Reason(String),
    /// Everything before it is written: say so.
    Flush(SyncSender<()>),
}

/// Lines on their way to one place.
struct Journal {
    entries: SyncSender<Entry>,
    /// There is a thread that writes them.
    is_read: bool,
    /// Ordinary lines on their way.
    lines: Arc<AtomicUsize>,
    lost: Arc<AtomicU64>,
}

impl Journal {
    fn start(to: impl Write + Send + 'static, stamp: Stamp) -> Journal {
        let (entries, queue) = sync_channel(QUEUE_LINES + LAST_WORDS);
        let (lines, lost) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
        let (taken, counted) = (Arc::clone(&lines), Arc::clone(&lost));
        // Without a thread the queue has no reader: all is lost but why the program ends.
        let is_read = thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || write_all(&queue, &taken, &counted, Paper::new(to, stamp)))
            .is_ok();
        Journal { entries, is_read, lines, lost }
    }

    fn tell(&self, line: Line) {
        let room = self.lines.fetch_add(1, Ordering::Relaxed) < QUEUE_LINES;
        if !room || self.entries.try_send(Entry::Line(line)).is_err() {
            self.lines.fetch_sub(1, Ordering::Relaxed);
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Tells why the program ends, also when there is no room for lines.
    fn insist(&self, reason: String) {
        if self.entries.try_send(Entry::Reason(reason)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self, limit: Duration) {
        let (written, done) = sync_channel(1);
        // No place is left even for this: nobody reads standard error, and many have asked.
        if self.entries.try_send(Entry::Flush(written)).is_ok() {
            let _ = done.recv_timeout(limit);
        }
    }
}

/// A place for lines that may refuse some: a pipe whose reader has gone, a disk that is full for a
/// while.
struct Paper<W> {
    to: W,
    stamp: Stamp,
    /// Part of a line stands there.
    torn: bool,
    /// Lines that do not, or not whole.
    missing: u64,
}

fn missing(lines: u64, why: [&str; 2]) -> String {
    match lines {
        1 => format!("1 line is missing: {}", why[0]),
        _ => format!("{lines} lines are missing: {}", why[1]),
    }
}

impl<W: Write> Paper<W> {
    fn new(to: W, stamp: Stamp) -> Paper<W> {
        Paper { to, stamp, torn: false, missing: 0 }
    }

    /// Writes a line if it can, and then, when lines are missing before it, how many.
    fn say(&mut self, line: &str) {
        if self.put(line) && self.missing > 0 {
            let told =
                missing(self.missing, ["it could not be written", "they could not be written"]);
            if self.put(&told) {
                self.missing = 0;
            }
        }
    }

    /// Whether all of it was taken. What was torn off is ended first.
    fn put(&mut self, line: &str) -> bool {
        let end = if self.torn { "\n" } else { "" };
        let text = format!("{end}{}anabranch: {line}\n", (self.stamp)());
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            match self.to.write(rest) {
                Ok(taken) if taken > 0 => rest = &rest[taken..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        if rest.len() < text.len() {
            self.torn = !rest.is_empty();
        }
        self.missing += u64::from(!rest.is_empty());
        rest.is_empty()
    }
}

/// Writes what comes. Errors change nothing: the next line may find a reader again.
fn write_all(
    queue: &Receiver<Entry>,
    lines: &AtomicUsize,
    lost: &AtomicU64,
    mut paper: Paper<impl Write>,
) {
    let (mut same, mut alike) = (Repetitions::lines(), Repetitions::kinds());
    let mut say = |line: &str| paper.say(line);
    loop {
        let due = [same.due(), alike.due()].into_iter().flatten().min();
        let entry = match due {
            Some(due) => queue.recv_timeout(due.saturating_duration_since(Instant::now())),
            None => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let now = Instant::now();
        for line in same.overdue(now).into_iter().chain(alike.overdue(now)) {
            say(&line);
        }
        match entry {
            Ok(Entry::Reason(line)) => say(&line),
            Ok(Entry::Line(Line { kind, text })) => {
                lines.fetch_sub(1, Ordering::Relaxed);
                let admitted = match kind {
                    Some(kind) => alike.admit(Some(&kind), text, now),
                    None => same.admit(None, text, now),
                };
                if let Some(line) = admitted {
                    say(&line);
                }
            }
            Ok(Entry::Flush(done)) => {
                for line in same.hidden().into_iter().chain(alike.hidden()) {
                    say(&line);
                }
                let _ = done.try_send(());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let lost = lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            say(&missing(lost, ["it was not read in time", "they were not read in time"]));
        }
    }
}
