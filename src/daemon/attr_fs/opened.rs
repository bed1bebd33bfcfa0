//! Open files and directories.

use super::source::Source;
use super::tree::{self, Child, File, Node};
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

/// An open directory.
pub(super) struct OpenDir {
    node: Node,
    /// As it was when somebody last began to read it: places in it count from there.
    children: Mutex<Arc<[Child]>>,
}

impl OpenDir {
    pub(super) fn open(node: Node) -> OpenDir {
        OpenDir { node, children: Mutex::new(Arc::default()) }
    }

    /// What is in it, for who reads on at `offset`.
    pub(super) fn children(&self, offset: u64, source: &dyn Source) -> Result<Arc<[Child]>, Errno> {
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        if offset == 0 {
            *children = tree::children(&self.node, source)?.into();
        }
        Ok(Arc::clone(&children))
    }
}

/// An open attribute.
pub(super) struct OpenFile {
    file: File,
    /// What a reader gets, once there was one. As in sysfs it is made when the file is read and not
    /// when it is opened, stays the same while it is read on, and is made anew when somebody reads
    /// from the beginning again.
    text: Mutex<Option<Vec<u8>>>,
}

impl OpenFile {
    /// Opens an attribute.
    ///
    /// # Errors
    /// `EACCES` for what its mode does not allow: in sysfs that holds for root, too.
    pub(super) fn open(file: File, (reads, writes): (bool, bool)) -> Result<OpenFile, Errno> {
        let in_debugfs = file.dir == anabranch_host::attribute::Dir::Debug;
        let refused = writes && file.mode & 0o222 == 0 || reads && file.mode & 0o444 == 0;
        if refused && !in_debugfs {
            return Err(Errno::EACCES);
        }
        Ok(OpenFile { file, text: Mutex::new(None) })
    }

    /// What stands at `offset`, at most `size` bytes.
    pub(super) fn read(
        &self,
        offset: u64,
        size: usize,
        source: &dyn Source,
    ) -> Result<Vec<u8>, Errno> {
        let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = text.take().filter(|_| offset > 0);
        let bytes = begun.map_or_else(|| read(&self.file, source), Ok)?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let end = start.saturating_add(size).min(bytes.len());
        let part = bytes[start..end].to_vec();
        *text = Some(bytes);
        Ok(part)
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
            // As in the kernel a text ends at a NUL: programs in C write theirs along with it.
            let text = data.split(|byte| *byte == 0).next().unwrap_or_default();
            let value = std::str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
            source.set(&self.file.object, self.file.attribute, value)?;
        }
        Ok(data.len())
    }
}

/// An attribute that has nothing to say under the present policy is empty; others are lines.
pub(super) fn read(file: &File, source: &dyn Source) -> Result<Vec<u8>, Errno> {
    let mut text = source.get(&file.object, file.attribute)?;
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text.into_bytes())
}
