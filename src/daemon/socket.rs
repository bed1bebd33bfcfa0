//! Where the control socket is, and how it comes to be there safely.

use crate::failure::Failure;
use anabranch_rt::SocketLock;
use rustix::fs::{FileType, Mode};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// A Unix socket's longest path in bytes (`sun_path` without its terminator).
pub(crate) const MAX_SOCKET_PATH: usize = 107;

/// Which program a control socket belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `anabranch serve`.
    Host,
    /// `anabranch target`.
    Target,
}

impl Role {
    /// The verb that starts it.
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self {
            Role::Host => "serve",
            Role::Target => "target",
        }
    }

    fn file(self) -> &'static str {
        match self {
            Role::Host => "host.sock",
            Role::Target => "target.sock",
        }
    }
}

/// Why a control socket cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another instance has it.
    #[error(
        "another instance is running on the control socket {0}: end it first, or choose another \
         with --socket"
    )]
    InUse(PathBuf),
    /// The directory lets others replace files.
    #[error(
        "{directory} is no safe place for a control socket ({why}): use a directory of mode 0700, \
         or choose another with --socket"
    )]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Something that is no socket is in the way.
    #[error("{0} exists and is not a socket: remove it, or choose another place with --socket")]
    NotASocket(PathBuf),
    /// The name does not fit into an address.
    #[error(
        "the path of the control socket, {0}, has {1} bytes, at most {MAX_SOCKET_PATH} fit: choose \
         another with --socket"
    )]
    TooLong(PathBuf, usize),
    /// The system refuses.
    #[error("control socket: cannot {what} {path}: {source}; choose another place with --socket")]
    System {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl From<SocketError> for Failure {
    fn from(error: SocketError) -> Failure {
        match error {
            SocketError::TooLong(..) => Failure::usage(error.to_string()),
            _ => Failure::failed(error.to_string()),
        }
    }
}

fn system(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SocketError {
    let path = path.to_owned();
    move |source| SocketError::System { what, path, source }
}

/// The user this process acts for.
#[must_use]
pub fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// `/run/anabranch` for root, else `$XDG_RUNTIME_DIR/anabranch`, else `/tmp/anabranch-UID`.
#[must_use]
pub fn runtime_directory() -> PathBuf {
    let uid = own_uid();
    if uid == 0 {
        return PathBuf::from("/run/anabranch");
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) if Path::new(&directory).is_absolute() => {
            Path::new(&directory).join("anabranch")
        }
        _ => PathBuf::from(format!("/tmp/anabranch-{uid}")),
    }
}

/// The control socket used when `--socket` is not given.
#[must_use]
pub fn default_path(role: Role) -> PathBuf {
    runtime_directory().join(role.file())
}

/// A control socket that is ours: bound, listening, and locked against a second instance.
#[derive(Debug)]
pub struct BoundSocket {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    /// Given back after the socket's name is gone.
    _lock: SocketLock,
}

impl BoundSocket {
    /// Binds a socket at `path`, in a directory in which nobody else can replace it, which is made
    /// (with mode 0700) if it is not there. A stale socket is replaced.
    ///
    /// # Errors
    /// [`SocketError`], which says what to do.
    pub fn bind(path: &Path) -> Result<BoundSocket, SocketError> {
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        if path.as_os_str().len() > MAX_SOCKET_PATH {
            return Err(SocketError::TooLong(path.to_owned(), path.as_os_str().len()));
        }
        prepare_directory(directory)?;
        let lock = SocketLock::take(path).map_err(system("lock", path))?;
        let lock = lock.ok_or_else(|| SocketError::InUse(path.to_owned()))?;
        remove_stale(path)?;
        let listener = listen(path).map_err(|error| system("bind", path)(error.into()))?;
        Ok(BoundSocket { listener, path: path.to_owned(), _lock: lock })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        // The lock goes after the name: whoever gets the lock next finds no socket of ours. A name
        // that is gone already is no loss.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Makes the directory, or checks that only we (and root) can replace what is in it.
fn prepare_directory(directory: &Path) -> Result<(), SocketError> {
    let made = std::fs::DirBuilder::new().mode(0o700).recursive(true).create(directory);
    made.map_err(system("make the directory", directory))?;
    let real = std::fs::metadata(directory).map_err(system("inspect", directory))?;
    let refuse = |why| SocketError::Directory { directory: directory.to_owned(), why };
    if !real.is_dir() {
        return Err(refuse("it is not a directory"));
    }
    if real.uid() != own_uid() && real.uid() != 0 {
        return Err(refuse("it belongs to another user"));
    }
    let (writable, sticky) = (real.mode() & 0o022 != 0, real.mode() & 0o1000 != 0);
    if writable && !sticky {
        return Err(refuse("others may write in it"));
    }
    if directory == runtime_directory() && (real.uid() != own_uid() || real.mode() & 0o077 != 0) {
        return Err(refuse("others may enter it"));
    }
    Ok(())
}

/// We hold the lock, so whatever socket is there belongs to nobody, unless somebody listens: the
/// lock of one that runs may have been cleaned away.
fn remove_stale(path: &Path) -> Result<(), SocketError> {
    let found = match rustix::fs::lstat(path) {
        Ok(found) => found,
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(error) => return Err(system("inspect", path)(error.into())),
    };
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
        return Err(SocketError::NotASocket(path.to_owned()));
    }
    if is_listened_on(path) {
        return Err(SocketError::InUse(path.to_owned()));
    }
    std::fs::remove_file(path).map_err(system("remove", path))
}

fn is_listened_on(path: &Path) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let connected = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .and_then(|socket| rustix::net::connect(&socket, &SocketAddrUnix::new(path)?));
    // "Again": it has no time for us. "Protocol wrong type": it takes datagrams, as a log does.
    matches!(connected, Ok(()) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::PROTOTYPE))
}

/// The mode is set on the socket before it has a name: there is no moment in which others could
/// connect.
fn listen(path: &Path) -> rustix::io::Result<UnixListener> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, 64)?;
    Ok(UnixListener::from(socket))
}

/// Whether a peer may control us: the same user, or root.
#[must_use]
pub fn may_control(peer_uid: u32, own_uid: u32) -> bool {
    peer_uid == own_uid || peer_uid == 0
}
