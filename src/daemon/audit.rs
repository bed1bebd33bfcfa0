//! What servers of ordinary threads tell about clients that they refuse.

use super::log;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Tells about refused clients on standard error, at most once a second.
#[derive(Debug, Default)]
pub(super) struct Audit(Mutex<(Option<Instant>, u64)>);

impl Audit {
    pub(super) fn note(&self, text: &str) {
        let Ok(mut state) = self.0.lock() else { return };
        let (last, suppressed) = &mut *state;
        if last.is_some_and(|last| last.elapsed() < Duration::from_secs(1)) {
            *suppressed += 1;
            return;
        }
        if *suppressed > 0 {
            log(format_args!("{text} ({suppressed} more like this before)"));
        } else {
            log(text);
        }
        *last = Some(Instant::now());
        *suppressed = 0;
    }
}
