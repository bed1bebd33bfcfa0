//! A Unix socket's path belongs to one server at a time: a lock file beside the socket says whose.
//!
//! Asking the socket itself is not enough: one that is bound and does not listen yet looks like one
//! that a dead server left behind.

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// How often the lock file may vanish or appear under our hands before we give up.
const TRIES: u32 = 16;

/// The right to put a socket at a path, until this is dropped.
///
/// It is an exclusive `flock` on the file `PATH.lock`, which goes with it. A file that a server
/// left behind when it was killed is locked by nobody, and used again.
#[derive(Debug)]
pub struct SocketLock {
    name: PathBuf,
    /// Closing it gives the lock back.
    _file: OwnedFd,
}

impl SocketLock {
    /// Takes the lock of the socket at `path`; `None` when another server has it. Does not wait.
    ///
    /// # Errors
    /// The lock file can neither be opened nor made.
    pub fn take(path: &Path) -> io::Result<Option<SocketLock>> {
        let mut name = OsString::from(path);
        name.push(".lock");
        let name = PathBuf::from(name);
        for _ in 0..TRIES {
            let Some(file) = open_or_make(&name)? else { continue };
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            if names(&name, &file)? {
                return Ok(Some(SocketLock { name, _file: file }));
            }
            // Whoever had it ended, and took the name away, between our open and our lock.
        }
        Ok(None)
    }
}

impl Drop for SocketLock {
    fn drop(&mut self) {
        // While we still hold it. A file that stays behind is used again.
        let _ = std::fs::remove_file(&self.name);
    }
}

/// Opening and making are apart because the kernel (`fs.protected_regular`) refuses one call for
/// both when the file is there, is another user's, and the directory is like `/tmp`.
fn open_or_make(name: &Path) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    match rustix::fs::open(name, flags, Mode::empty()) {
        Err(Errno::NOENT) => {}
        opened => return Ok(Some(opened?)),
    }
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::open(name, flags | OFlags::CREATE | OFlags::EXCL, mode) {
        Err(Errno::EXIST) => Ok(None),
        made => Ok(Some(made?)),
    }
}

/// Whether the name is (still) that of the open file.
fn names(name: &Path, file: &OwnedFd) -> io::Result<bool> {
    let open = rustix::fs::fstat(file)?;
    match rustix::fs::lstat(name) {
        Ok(found) => Ok((found.st_dev, found.st_ino) == (open.st_dev, open.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
