//! Files that engines name by number.

use anabranch_proto::machine::FileId;
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Arc, PoisonError, RwLock};

/// A table of open files. Clones share it. A file stays open as long as any clone lives, or until
/// it is let go ([`Files::forget`]) and nothing is done to it any more.
#[derive(Clone, Debug, Default)]
pub struct Files(Arc<RwLock<Table>>);

#[derive(Debug, Default)]
struct Table {
    open: BTreeMap<FileId, Arc<File>>,
    next: u32,
}

impl Files {
    /// An empty table.
    #[must_use]
    pub fn new() -> Files {
        Files::default()
    }

    /// Adds a file, opened for what engines will do with it. The number is valid for every group
    /// that was started with (a clone of) this table.
    ///
    /// # Panics
    /// When 2^32 files were registered.
    #[must_use]
    pub fn register(&self, file: File) -> FileId {
        let mut files = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let id = FileId(files.next);
        files.next = files.next.checked_add(1).expect("fewer than 2^32 files");
        files.open.insert(id, Arc::new(file));
        id
    }

    /// Whether something is being done to a file at this moment.
    #[must_use]
    pub fn is_busy(&self, id: FileId) -> bool {
        let files = self.0.read().unwrap_or_else(PoisonError::into_inner);
        files.open.get(&id).is_some_and(|file| Arc::strong_count(file) > 1)
    }

    /// Lets a file go that no engine will name any more. It is closed when what is being done to it
    /// has ended. Its number stays unused.
    pub fn forget(&self, id: FileId) {
        let mut files = self.0.write().unwrap_or_else(PoisonError::into_inner);
        files.open.remove(&id);
    }

    /// A file that was not let go. It is busy while somebody has it.
    #[must_use]
    pub fn get(&self, id: FileId) -> Option<Arc<File>> {
        let files = self.0.read().unwrap_or_else(PoisonError::into_inner);
        files.open.get(&id).cloned()
    }
}
