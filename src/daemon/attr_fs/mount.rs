//! Mounting the tree, and taking it away again.

use super::super::host::Host;
use super::super::log;
use super::filesystem::AttributeTree;
use crate::failure::Failure;
use fuser::{Config, MountOption, Session, SessionUnmounter};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{getegid, geteuid};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Threads that answer: one slow answer does not hold up everybody.
const THREADS: usize = 4;
/// How long the end waits for the kernel to let go of the tree.
const LET_GO: Duration = Duration::from_secs(2);

/// A mounted tree; dropping it takes it away.
#[derive(Debug)]
pub struct AttrFs {
    dir: PathBuf,
    unmounter: SessionUnmounter,
    ended: Receiver<()>,
}

impl AttrFs {
    /// Mounts the attributes of a host on an empty directory. Only the user of this process sees
    /// them.
    ///
    /// # Errors
    /// Says what is wrong with the directory, or what FUSE lacks.
    pub fn mount(dir: &Path, host: &Arc<Host>) -> Result<AttrFs, Failure> {
        check(dir)?;
        let dir = dir.canonicalize().map_err(|error| cannot(dir, &error.to_string()))?;
        let owner = (geteuid().as_raw(), getegid().as_raw());
        let tree = AttributeTree::new(Arc::downgrade(host), owner);
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("anabranch".to_owned()),
            MountOption::DefaultPermissions,
            MountOption::NoExec,
            MountOption::NoSuid,
            MountOption::NoDev,
        ];
        config.n_threads = Some(THREADS);
        let mut session =
            Session::new(tree, &dir, &config).map_err(|error| cannot(&dir, &why(&error)))?;
        let unmounter = session.unmount_callable();
        let (tell, ended) = channel();
        let name = dir.display().to_string();
        let spawned = std::thread::Builder::new().name("attr-fs".to_owned()).spawn(move || {
            if let Err(error) = session.run() {
                log(format_args!("the attribute tree at {name} has ended: {error}"));
            }
            // Nobody may be listening any more.
            let _ = tell.send(());
        });
        spawned.map_err(|error| cannot(&dir, &error.to_string()))?;
        Ok(AttrFs { dir, unmounter, ended })
    }

    /// Where it is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for AttrFs {
    fn drop(&mut self) {
        if let Ok(()) | Err(RecvTimeoutError::Disconnected) =
            self.ended.recv_timeout(Duration::ZERO)
        {
            return;
        }
        // At once, even if a program stands in a directory of it; else the way of users.
        let detached = unmount(&self.dir, UnmountFlags::DETACH);
        let result = match detached {
            Err(Errno::PERM) => self.unmounter.unmount(),
            other => other.map_err(io::Error::from),
        };
        if let Err(error) = result {
            log(format_args!("cannot unmount {}: {error}", self.dir.display()));
        } else if self.ended.recv_timeout(LET_GO) == Err(RecvTimeoutError::Timeout) {
            log(format_args!("programs still have files of {} open", self.dir.display()));
        }
    }
}

fn cannot(dir: &Path, why: &str) -> Failure {
    Failure::failed(format!("cannot mount the attribute tree on {}: {why}", dir.display()))
}

/// The directory must be there, be one, and be empty.
fn check(dir: &Path) -> Result<(), Failure> {
    let stale = |error: &io::Error| error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error());
    let fails = |error: io::Error| {
        let shown = dir.display();
        let why = match error.kind() {
            _ if stale(&error) => format!(
                "a daemon that died has left its mount there: run 'fusermount3 -u {shown}' (as \
                 root: 'umount {shown}')"
            ),
            io::ErrorKind::NotFound => "there is no such directory: create it first".to_owned(),
            _ => error.to_string(),
        };
        cannot(dir, &why)
    };
    if !std::fs::metadata(dir).map_err(fails)?.is_dir() {
        return Err(cannot(dir, "it is not a directory"));
    }
    match std::fs::read_dir(dir).map_err(fails)?.next() {
        None => Ok(()),
        Some(Err(error)) => Err(fails(error)),
        Some(Ok(_)) => Err(cannot(dir, "the directory is not empty")),
    }
}

/// What FUSE lacks.
fn why(error: &io::Error) -> String {
    if !Path::new("/dev/fuse").exists() {
        return "there is no /dev/fuse: load the module 'fuse' (in a container: pass the device)"
            .to_owned();
    }
    if error.kind() == io::ErrorKind::PermissionDenied && !geteuid().is_root() {
        return "this user may not open /dev/fuse (its mode is 0666 on most systems)".to_owned();
    }
    let on_path = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
        found || Path::new("/bin").join(program).is_file()
    };
    let helper = ["fusermount3", "fusermount"].into_iter().any(on_path)
        || std::env::var_os("FUSERMOUNT_PATH").is_some_and(|path| Path::new(&path).is_file());
    if !geteuid().is_root() && !helper {
        let missing = OsStr::new("fusermount3").display();
        return format!("{missing} is needed to mount without being root: install fuse3");
    }
    error.to_string().trim_end().to_owned()
}
