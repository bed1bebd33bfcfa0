//! Looks at a pace: whoever reaches the address may scrape as often as they like, and a look costs
//! every worker some time.

use super::exposition::{Format, exposition};
use super::look::{Look, Source, Unavailable};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The least time from the begin of one look to that of the next.
const PAUSE: Duration = Duration::from_millis(100);

/// Looks one after the other. Whoever asked before one began has that one: so however many ask at
/// once, and however long the host takes, the last of them waits for two.
pub(super) struct Looks {
    source: Box<dyn Source>,
    last: Mutex<Option<Last>>,
}

struct Last {
    began: Instant,
    /// Gone when nobody reads it any more: between scrapes it would be nothing but memory.
    found: Result<Weak<Found>, Unavailable>,
}

/// A look, and its texts as soon as somebody has asked for them: who has the same look has the same
/// text, which may be tens of MiB long.
pub(super) struct Found {
    look: Arc<Look>,
    texts: [OnceLock<Result<String, fmt::Error>>; 2],
}

impl Found {
    /// The text in a format.
    ///
    /// # Errors
    /// As [`exposition`].
    pub(super) fn text(&self, format: Format) -> Result<&str, fmt::Error> {
        let text = match format {
            Format::OpenMetrics => &self.texts[0],
            Format::Plain => &self.texts[1],
        };
        match text.get_or_init(|| exposition(&self.look, format)) {
            Ok(text) => Ok(text),
            Err(error) => Err(*error),
        }
    }
}

impl Looks {
    pub(super) fn new(source: impl Source) -> Looks {
        Looks { source: Box::new(source), last: Mutex::new(None) }
    }

    /// What was there at a moment that is not before `asked`.
    pub(super) fn look(&self, asked: Instant) -> Result<Arc<Found>, Unavailable> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last.as_ref() {
            if last.began >= asked {
                match &last.found {
                    Ok(found) => {
                        if let Some(look) = found.upgrade() {
                            return Ok(look);
                        }
                    }
                    Err(why) => return Err(why.clone()),
                }
            }
            std::thread::sleep((last.began + PAUSE).saturating_duration_since(Instant::now()));
        }
        let began = Instant::now();
        let texts = || [OnceLock::new(), OnceLock::new()];
        let found = self.source.look();
        let found = found.map(|look| Arc::new(Found { look: Arc::new(look), texts: texts() }));
        *last =
            Some(Last { began, found: found.as_ref().map(Arc::downgrade).map_err(Clone::clone) });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A host that does not answer; how often it was asked.
    struct Silent(Arc<AtomicU32>);

    impl Source for Silent {
        fn look(&self) -> Result<Look, Unavailable> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Err(Unavailable("no answer".to_owned()))
        }
    }

    #[test]
    fn whoever_asked_before_a_look_began_has_that_one() {
        let times = Arc::new(AtomicU32::new(0));
        let looks = Looks::new(Silent(Arc::clone(&times)));
        let asked = Instant::now();
        for _ in 0..3 {
            assert!(looks.look(asked).is_err());
        }
        assert_eq!(times.load(Ordering::Relaxed), 1);
        assert!(looks.look(Instant::now()).is_err());
        assert_eq!(times.load(Ordering::Relaxed), 2, "what was before it asked is no answer");
    }
}
