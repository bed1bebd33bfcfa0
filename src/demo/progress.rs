//! How the demo keeps its user informed: a live line on a terminal, plain lines elsewhere.

use anabranch_lab::load::LoadReport;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::time::Duration;

/// Text beside the result, on standard error where standard output is for JSON alone. Whether
/// anybody reads it does not matter: that a path fails and returns, and every byte is right, does.
pub(super) fn beside(json: bool, text: &str) {
    let out: &mut dyn Write = if json { &mut io::stderr() } else { &mut io::stdout() };
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Tells how far the demo is.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    /// Time and bytes of the last look.
    last: Mutex<(Duration, u64)>,
}

impl Progress {
    pub(super) fn new(json: bool, seconds: u32) -> Progress {
        let bar = (!json && std::io::stdout().is_terminal()).then(|| {
            let bar = ProgressBar::new(u64::from(seconds) * 1000);
            // A template that does not parse would be a mistake of ours; the default serves too.
            if let Ok(style) = ProgressStyle::with_template("{bar:24} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        // It is drawn on standard error, which may be something else than a terminal.
        let bar = bar.filter(|bar| !bar.is_hidden());
        Progress { bar, quiet: json, last: Mutex::new((Duration::ZERO, 0)) }
    }

    /// The live line.
    pub(super) fn show(&self, elapsed: Duration, phase: &str, load: &LoadReport) {
        let Some(bar) = &self.bar else { return };
        let bytes = load.bytes[0] + load.bytes[1];
        let Ok(mut last) = self.last.lock() else { return };
        let (then, before) = *last;
        let seconds = elapsed.saturating_sub(then).as_secs_f64();
        if seconds < 0.05 {
            return;
        }
        *last = (elapsed, bytes);
        let rate = bytes.saturating_sub(before) as f64 / seconds / 1048576.0;
        bar.set_position(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
        bar.set_message(format!(
            "{:4.1} s  {rate:6.1} MiB/s  {} I/Os, {} blocks verified, {} errors  {phase}",
            elapsed.as_secs_f64(),
            load.total_requests(),
            load.blocks_verified,
            load.errors + load.verify_errors
        ));
    }

    /// A line that stays.
    pub(super) fn say(&self, line: String) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => beside(self.quiet, &(line + "\n")),
        }
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
