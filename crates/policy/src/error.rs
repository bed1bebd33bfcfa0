//! The one mistake that can be made here: a name that is no policy.

use crate::Policy;
use core::fmt;

/// The caller named a policy that does not exist. Its text lists those that do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UnknownPolicy {
    /// The beginning of the name, whole characters.
    name: [u8; NAME_BYTES],
    len: u8,
    cut: bool,
}

/// How much of a wrong name is repeated in the error.
const NAME_BYTES: usize = 32;

/// The series that posted `latency` called it so up to its fifth version.
const FIRST_NAME_OF_LATENCY: &str = "adaptive";

impl UnknownPolicy {
    pub(crate) fn new(word: &str) -> UnknownPolicy {
        let end = word.floor_char_boundary(NAME_BYTES);
        let mut name = [0; NAME_BYTES];
        name[..end].copy_from_slice(&word.as_bytes()[..end]);
        // `end` is at most 32.
        UnknownPolicy { name, len: end as u8, cut: end < word.len() }
    }

    /// The beginning of what was asked for.
    #[must_use]
    pub fn name(&self) -> &str {
        core::str::from_utf8(&self.name[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.cut { "…" } else { "" };
        write!(f, "unknown I/O policy \"{}{more}\": use ", self.name().escape_debug())?;
        let last = Policy::ALL.len() - 1;
        for (i, policy) in Policy::ALL.into_iter().enumerate() {
            let glue = match i {
                0 => "",
                i if i == last => " or ",
                _ => ", ",
            };
            write!(f, "{glue}{policy}")?;
        }
        if self.name() == FIRST_NAME_OF_LATENCY && !self.cut {
            write!(f, " ({FIRST_NAME_OF_LATENCY} is now called {})", Policy::Latency)?;
        }
        Ok(())
    }
}

impl fmt::Debug for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for UnknownPolicy {}
