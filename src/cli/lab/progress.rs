//! How far the cells are: a line on a terminal only, on standard error.

use crate::cli::aside;
use anabranch_lab::shown::Shown;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// A bar over all cells of all scenarios; its length is their virtual or real time.
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// Hidden unless standard error is a terminal.
    pub(super) fn new(total_ms: u64) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(total_ms), ProgressDrawTarget::stderr());
        let style = "{bar:32} {percent:>3} %  {elapsed} gone, {eta} to go  {wide_msg}";
        // A template that does not parse would be a mistake of ours; the default serves too.
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        if !bar.is_hidden() {
            // Live cells take seconds, and time goes on.
            bar.enable_steady_tick(Duration::from_millis(250));
        }
        Progress(bar)
    }

    /// What is being done.
    pub(super) fn show(&self, what: String) {
        self.0.set_message(Shown(&what).to_string());
    }

    /// So much of it is done.
    pub(super) fn add(&self, ms: u64) {
        self.0.inc(ms);
    }

    /// A line above the bar that stays, on standard error.
    pub(super) fn say(&self, line: &str) {
        self.0.suspend(|| aside(line));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
