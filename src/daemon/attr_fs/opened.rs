//! Open files and directories.

use super::source::Source;
use super::tree::{Child, File};
use fuser::Errno;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Files and directories open at once.
const MAX_OPEN: usize = 16 << 10;
/// The most that one write gives to an attribute, as in sysfs: the rest is another write.
const MAX_WRITE: usize = 4096;

/// Open files or directories by handle.
pub(super) struct Handles<T> {
    next: u64,
    open: HashMap<u64, Arc<T>>,
}

impl<T> Handles<T> {
    pub(super) fn new() -> Handles<T> {
        Handles { next: 1, open: HashMap::new() }
    }

    pub(super) fn add(&mut self, opened: T) -> Result<u64, Errno> {
        if self.open.len() >= MAX_OPEN {
            return Err(Errno::ENFILE);
        }
        let handle = self.next;
        self.next += 1;
        self.open.insert(handle, Arc::new(opened));
        Ok(handle)
    }

    pub(super) fn get(&self, handle: u64) -> Result<Arc<T>, Errno> {
        self.open.get(&handle).cloned().ok_or(Errno::EBADF)
    }

    pub(super) fn remove(&mut self, handle: u64) {
        self.open.remove(&handle);
    }
}

/// A directory as it was when it was opened.
pub(super) type OpenDir = Vec<Child>;

/// An open attribute.
pub(super) struct OpenFile {
    file: File,
    text: Mutex<Text>,
}

/// What a reader gets. As in sysfs it is made once and stays the same while it is read on, and is
/// made anew when somebody reads from the beginning again.
struct Text {
    bytes: Vec<u8>,
    is_fresh: bool,
}

impl OpenFile {
    /// Opens an attribute.
    ///
    /// # Errors
    /// `EACCES` for what its mode does not allow: in sysfs that holds for root, too.
    pub(super) fn open(
        file: File,
        (reads, writes): (bool, bool),
        source: &dyn Source,
    ) -> Result<OpenFile, Errno> {
        let in_debugfs = file.dir == anabranch_host::attribute::Dir::Debug;
        let refused = writes && file.mode & 0o222 == 0 || reads && file.mode & 0o444 == 0;
        if refused && !in_debugfs {
            return Err(Errno::EACCES);
        }
        let bytes = if reads { read(&file, source)? } else { Vec::new() };
        Ok(OpenFile { file, text: Mutex::new(Text { bytes, is_fresh: reads }) })
    }

    /// What stands at `offset`, at most `size` bytes.
    pub(super) fn read(
        &self,
        offset: u64,
        size: usize,
        source: &dyn Source,
    ) -> Result<Vec<u8>, Errno> {
        let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        if offset == 0 && !text.is_fresh {
            text.bytes = read(&self.file, source)?;
        }
        text.is_fresh = false;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(text.bytes.len());
        let end = start.saturating_add(size).min(text.bytes.len());
        Ok(text.bytes[start..end].to_vec())
    }

    /// Writes a value; where in the file does not matter. The answer is how many bytes were taken.
    ///
    /// # Errors
    /// As the kernel: `EPERM` for a file of debugfs that only reads, else what the attribute says.
    pub(super) fn write(&self, data: &[u8], source: &dyn Source) -> Result<usize, Errno> {
        if self.file.mode & 0o222 == 0 {
            return Err(Errno::EPERM);
        }
        let data = &data[..data.len().min(MAX_WRITE)];
        if !data.is_empty() {
            let value = std::str::from_utf8(data).map_err(|_| Errno::EINVAL)?;
            source.set(&self.file.object, self.file.attribute, value)?;
            self.text.lock().unwrap_or_else(PoisonError::into_inner).is_fresh = false;
        }
        Ok(data.len())
    }
}

/// An attribute that has nothing to say under the present policy is empty; others are lines.
fn read(file: &File, source: &dyn Source) -> Result<Vec<u8>, Errno> {
    let mut text = source.get(&file.object, file.attribute)?;
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text.into_bytes())
}
