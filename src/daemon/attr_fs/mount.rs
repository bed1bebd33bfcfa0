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
use std::fs::TryLockError;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Threads that answer: one slow answer does not hold up everybody.
const THREADS: usize = 4;
/// How long the end waits for the kernel to let go of the tree.
const LET_GO: Duration = Duration::from_secs(2);

/// How often, and how far apart, it is tried to be alone with a directory.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Links that lead to a directory, one to the next, as in the kernel.
const MAX_LINKS: u32 = 40;

/// What the list of mounts calls ours: this, a colon and the number of the daemon's process.
const SOURCE: &str = "anabranch";

/// A file system that is mounted.
struct Mount {
    kind: String,
    source: String,
}

/// A mounted tree; dropping it takes it away.
#[derive(Debug)]
pub struct AttrFs {
    dir: PathBuf,
    unmounter: SessionUnmounter,
    /// It is to end: whoever takes it away before is told of.
    ends: Arc<AtomicBool>,
    ended: Receiver<()>,
}

impl AttrFs {
    /// Mounts the attributes of a host on an empty directory. Only the user of this process sees
    /// them.
    ///
    /// # Errors
    /// Says what is wrong with the directory, or what FUSE lacks.
    pub fn mount(dir: &Path, host: &Arc<Host>) -> Result<AttrFs, Failure> {
        // Till it is mounted, and answers: another daemon finds the directory as it is then.
        let _alone = alone(dir);
        if let Some(place) = ours_without_a_daemon(dir) {
            take_away(&place);
        }
        check(dir)?;
        let dir = dir.canonicalize().map_err(|error| cannot(dir, &error.to_string()))?;
        let owner = (geteuid().as_raw(), getegid().as_raw());
        let tree = AttributeTree::new(Arc::downgrade(host), owner);
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(own_source()),
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
        let ends = Arc::new(AtomicBool::new(false));
        let is_meant = Arc::clone(&ends);
        let spawned = std::thread::Builder::new().name("attr-fs".to_owned()).spawn(move || {
            match session.run() {
                Err(error) if !is_unmount(&error) => {
                    log(format_args!("the attribute tree at {name} has ended: {error}"));
                }
                _ if !is_meant.load(Ordering::Acquire) => {
                    log(format_args!("somebody has unmounted the attribute tree at {name}"));
                }
                _ => {}
            }
            // Nobody may be listening any more.
            let _ = tell.send(());
        });
        spawned.map_err(|error| cannot(&dir, &error.to_string()))?;
        Ok(AttrFs { dir, unmounter, ends, ended })
    }

    /// Where it is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for AttrFs {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        if let Ok(()) | Err(RecvTimeoutError::Disconnected) =
            self.ended.recv_timeout(Duration::ZERO)
        {
            return;
        }
        // What is mounted there by now may be somebody else's, and ours be taken away already.
        let mounts = mountinfo();
        match mounts_on(&mounts, &self.dir).last() {
            Some(mount) if is_own(mount) => {}
            Some(_) => {
                let dir = self.dir.display();
                log(format_args!("{dir} is not unmounted: something else is mounted there"));
                return;
            }
            None if mounts.is_empty() => {}
            None => return,
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

/// The right to mount something in the directory in which this one stands: of several daemons that
/// start at once each sees what the one before it has done. It is waited for for a moment, as
/// whoever reads a directory may lock it.
fn alone(dir: &Path) -> Option<std::fs::File> {
    let dir = std::path::absolute(dir).ok()?;
    let parent = std::fs::File::open(dir.parent()?).ok()?;
    for _ in 0..LOCK_TRIES {
        match parent.try_lock() {
            Ok(()) => return Some(parent),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(_)) => return None,
        }
    }
    None
}

/// So the kernel answers whoever takes a request of a tree that is being taken away (fuse(4): its
/// connection was aborted before the request was read).
fn is_unmount(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::CONNABORTED.raw_os_error())
}

/// Nobody answers there: any more, when the daemon died while it was asked.
fn is_stale(error: &io::Error) -> bool {
    let stale = [Errno::NOTCONN, Errno::CONNABORTED].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|error| stale.contains(&error))
}

/// Where exactly a daemon that was killed has left its tree, if it has. Whoever starts the next one
/// is often no human but a supervisor, who cannot follow advice.
fn ours_without_a_daemon(dir: &Path) -> Option<PathBuf> {
    // What the kernel remembers of the directory itself it tells all the same.
    let stale = std::fs::read_dir(dir).is_err_and(|error| is_stale(&error));
    let place = stale.then(|| real_place(dir)).flatten()?;
    let is_last_ours = mounts_on(&mountinfo(), &place).last().is_some_and(is_ours);
    is_last_ours.then_some(place)
}

/// What is mounted where, as the kernel lists it (proc(5)); nothing where it cannot be read.
fn mountinfo() -> Vec<u8> {
    std::fs::read("/proc/self/mountinfo").unwrap_or_default()
}

fn own_source() -> String {
    format!("{SOURCE}:{}", std::process::id())
}

/// Where a directory is whose own inode nobody answers for.
fn real_place(dir: &Path) -> Option<PathBuf> {
    let mut dir = std::path::absolute(dir).ok()?;
    for _ in 0..MAX_LINKS {
        let place = dir.parent()?.canonicalize().ok()?.join(dir.file_name()?);
        match std::fs::read_link(&place) {
            Ok(to) => dir = place.parent()?.join(to),
            Err(_) => return Some(place),
        }
    }
    None
}

/// What is mounted on a directory, the last one on top.
fn mounts_on(mounts: &[u8], dir: &Path) -> Vec<Mount> {
    let place = escaped(dir);
    let on_it = |line: &&[u8]| line.split(|byte| *byte == b' ').nth(4) == Some(&place[..]);
    let mount = |line: &[u8]| {
        let words = line.split(|byte| *byte == b' ').skip_while(|word| *word != b"-").skip(1);
        let mut words = words.map(|word| String::from_utf8_lossy(word).into_owned());
        Mount { kind: words.next().unwrap_or_default(), source: words.next().unwrap_or_default() }
    };
    mounts.split(|byte| *byte == b'\n').filter(on_it).map(mount).collect()
}

/// Whether a mount is the tree of an `anabranch serve`.
fn is_ours(mount: &Mount) -> bool {
    let (name, _) = mount.source.split_once(':').unwrap_or((&mount.source, ""));
    mount.kind == "fuse" && name == SOURCE
}

fn is_own(mount: &Mount) -> bool {
    is_ours(mount) && mount.source == own_source()
}

/// A path as that list shows it.
fn escaped(path: &Path) -> Vec<u8> {
    let mut shown = Vec::new();
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => shown.extend(format!("\\{byte:03o}").bytes()),
            _ => shown.push(byte),
        }
    }
    shown
}

/// Takes such a tree away, if it can: the check that follows tells what is left.
fn take_away(dir: &Path) {
    let gone = match unmount(dir, UnmountFlags::DETACH) {
        Ok(()) => true,
        Err(_) => std::process::Command::new("fusermount3")
            .args(["-u", "-z", "-q", "--"])
            .arg(dir)
            .stdin(std::process::Stdio::null())
            .status()
            .is_ok_and(|status| status.success()),
    };
    if gone {
        let dir = dir.display();
        log(format_args!("a daemon that died had left its attribute tree on {dir}: taken away"));
    }
}

fn cannot(dir: &Path, why: &str) -> Failure {
    Failure::failed(format!("cannot mount the attribute tree on {}: {why}", dir.display()))
}

/// The directory must be one, and empty. One that is not there is made, if its place is there: what
/// lies below `/run` goes with each start of the machine.
fn check(dir: &Path) -> Result<(), Failure> {
    let fails = |error: io::Error| {
        let shown = dir.display();
        let why = match error.kind() {
            _ if is_stale(&error) => format!(
                "a program that died has left its mount there: run 'fusermount3 -u {shown}' (as \
                 root: 'umount {shown}')"
            ),
            io::ErrorKind::NotFound => {
                "the directory that it is to stand in is not there".to_owned()
            }
            _ => error.to_string(),
        };
        cannot(dir, &why)
    };
    if let Err(error) = std::fs::symlink_metadata(dir)
        && error.kind() == io::ErrorKind::NotFound
    {
        std::fs::create_dir(dir).map_err(fails)?;
    }
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
    let mut why = error.to_string().trim_end().to_owned();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !geteuid().is_root() && gains_nothing(&status) {
        why.push_str(
            ": fusermount3 needs the rights of root, and may not gain any here (NoNewPrivileges= \
             of a service)",
        );
    }
    why
}

/// Whether a program that is started has no more rights than who starts it, as proc(5) says of a
/// process.
fn gains_nothing(status: &str) -> bool {
    status.lines().any(|line| {
        line.split_once(':').is_some_and(|(key, value)| key == "NoNewPrivs" && value.trim() == "1")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_gains_no_rights_is_told_by_its_status() {
        for (status, expected) in [
            ("CapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t0\n", true),
            ("CapAmb:\t0000000000000000\nNoNewPrivs:\t0\nSeccomp:\t1\n", false),
            ("Seccomp:\t1\n", false),
            ("", false),
        ] {
            assert_eq!(gains_nothing(status), expected, "{status}");
        }
    }

    #[test]
    fn only_the_tree_that_was_mounted_last_and_is_ours_counts() {
        let line = |place: &str, rest: &str| format!("36 35 0:50 / {place} rw,nosuid - {rest}\n");
        let dir = Path::new("/run/a b\\/sys");
        let ours = line("/run/a\\040b\\134/sys", "fuse anabranch:7 rw,user_id=0");
        let former = line("/run/a\\040b\\134/sys", "fuse anabranch rw,user_id=0");
        let sshfs = line("/run/a\\040b\\134/sys", "fuse.sshfs anabranch rw");
        let other = line("/run/a\\040b\\134/sys", "fuse other rw");
        let elsewhere = line("/run/sys", "fuse anabranch rw");
        for (mounts, expected) in [
            (ours.clone(), true),
            (former, true),
            (format!("{other}{ours}{elsewhere}"), true),
            (format!("{ours}{other}"), false),
            (sshfs, false),
            (elsewhere, false),
            (String::new(), false),
        ] {
            let last = mounts_on(mounts.as_bytes(), dir).pop();
            assert_eq!(last.as_ref().is_some_and(is_ours), expected, "{mounts}");
            assert!(!last.as_ref().is_some_and(is_own), "that of process 7 is not this one's");
        }
    }
}
