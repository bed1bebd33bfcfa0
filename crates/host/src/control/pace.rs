//! How often something is done that a peer may ask for as often as it likes.

use anabranch_proto::machine::Time;
use core::time::Duration;

/// The first pause; it doubles, up to the second one.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// At once when nobody has asked for [`PAUSE_MAX`], then after 1, 2, 4 … 60 s.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When it was done last, and how long it is not done again.
    done: Option<(Time, Duration)>,
    asked: Option<Time>,
    /// Somebody has asked for it in vain since.
    owed: bool,
}

impl Pace {
    /// Somebody asks for it; gives back whether it is done now.
    pub(super) fn allows(&mut self, now: Time) -> bool {
        if !self.may(now) {
            return false;
        }
        let pause = match self.done {
            Some((_, pause)) if !self.is_forgotten(now) => (pause * 2).min(PAUSE_MAX),
            _ => PAUSE,
        };
        self.asked = Some(now);
        self.done = Some((now, pause));
        self.owed = false;
        true
    }

    /// Somebody asks whether it may be done now; when it may not, that is owed.
    pub(super) fn may(&mut self, now: Time) -> bool {
        let rests = self.done.is_some_and(|(at, pause)| now.since(at) < pause);
        if rests && !self.is_forgotten(now) {
            self.asked = Some(now);
            self.owed = true;
            return false;
        }
        true
    }

    /// When it may be done again.
    pub(super) fn due(&self) -> Option<Time> {
        self.done.map(|(at, pause)| at.after(pause))
    }

    /// When what was asked for in vain may be done.
    pub(super) fn owed_at(&self) -> Option<Time> {
        self.due().filter(|_| self.owed)
    }

    /// That moment has come: whoever still wants it asks again.
    pub(super) fn take_owed(&mut self, now: Time) -> bool {
        let due = self.owed_at().is_some_and(|at| at <= now);
        self.owed &= !due;
        due
    }

    /// Nobody has asked for so long that it begins anew.
    pub(super) fn is_forgotten(&self, now: Time) -> bool {
        self.asked.is_none_or(|at| now.since(at) >= PAUSE_MAX)
    }
}
