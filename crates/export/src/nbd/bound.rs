//! Which namespace the device of an export is.

use std::sync::{Arc, OnceLock};

/// The world wide identifier of the device that an export has led to since it was seen first. All
/// copies of the export share it.
///
/// Names of devices are given anew when their subsystem comes again after it was disconnected: an
/// export by name must not lead its clients, who may be in the middle of something, to the blocks
/// of another namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound(Arc<OnceLock<String>>);

impl Bound {
    /// Whether this is the device that was seen first; it is, when none was.
    #[must_use]
    pub fn is(&self, wwid: &str) -> bool {
        self.0.get().is_none_or(|bound| bound == wwid)
    }

    /// Whether a device was seen.
    pub(super) fn is_known(&self) -> bool {
        self.0.get().is_some()
    }

    /// From now on it is this one, unless another worker has seen one before.
    pub(super) fn see(&self, wwid: &str) {
        self.0.get_or_init(|| wwid.to_owned());
    }
}
