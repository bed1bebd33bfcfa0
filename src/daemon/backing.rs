//! Namespaces of a target as text, and the files behind them.

use crate::failure::Failure;
use crate::units::{self, Bytes};
use anabranch_proto::nvme::Nqn;
use anabranch_proto::nvme::ids::{Nguid, Uuid};
use anabranch_target::config::{MAX_ANA_GROUP, MAX_NAMESPACE_BYTES, MAX_NSID};
use anabranch_target::{derived_ids, derived_nguid};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// How often it is tried to lock a file, and how long it is waited between: a target that was
/// killed has its files until the system has ended what it was doing there, some time after the
/// process is gone.
const LOCK_ATTEMPTS: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// What the system calls this machine.
const MACHINE_ID: &str = "/etc/machine-id";

/// A namespace: `mem:SIZE` or `file:PATH`, with `bs`, `uuid`, `anagrp`, `nsid` and, for a file that
/// may be made, `size`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespaceSpec {
    /// Where its blocks are: `mem:SIZE` or `file:PATH`.
    pub backend: Backend,
    /// Bytes per block, 512 or 4096.
    #[serde(default = "default_block_bytes")]
    pub bs: u32,
    /// Its UUID. When it is not given it follows from NQN, NSID and which file it is; memory, which
    /// is empty with each start, has another one each time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<UuidText>,
    /// Its ANA group.
    #[serde(default = "default_group")]
    pub anagrp: u32,
    /// Its identifier; the first free one when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nsid: Option<u32>,
    /// Size of a file that is made if it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
}

fn default_block_bytes() -> u32 {
    512
}

fn default_group() -> u32 {
    1
}

/// Where blocks are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Backend {
    /// In memory, this many bytes.
    Memory(u64),
    /// In a file.
    File(PathBuf),
}

/// A UUID in a file or a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UuidText(pub Uuid);

impl TryFrom<String> for UuidText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map(UuidText).map_err(|why| format!("uuid '{}': {why}", text.escape_debug()))
    }
}

impl From<UuidText> for String {
    fn from(uuid: UuidText) -> String {
        uuid.0.to_string()
    }
}

impl TryFrom<String> for Backend {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("mem", size)) => units::size(size).map(Backend::Memory),
            Some(("file", path)) if !path.is_empty() => Ok(Backend::File(PathBuf::from(path))),
            _ => Err(format!("'{}' is neither mem:SIZE nor file:PATH", text.escape_debug())),
        }
    }
}

impl From<Backend> for String {
    fn from(backend: Backend) -> String {
        match backend {
            Backend::Memory(bytes) => format!("mem:{bytes}"),
            Backend::File(path) => format!("file:{}", path.display()),
        }
    }
}

impl std::str::FromStr for NamespaceSpec {
    type Err = String;

    /// `mem:SIZE|file:PATH[,bs=512|4096][,uuid=…][,anagrp=N][,nsid=N][,size=SIZE]`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: String| format!("namespace '{}': {why}", text.escape_debug());
        let mut parts = text.split(',');
        let backend = parts.next().unwrap_or("").to_owned();
        let mut spec = NamespaceSpec {
            backend: Backend::try_from(backend).map_err(wrong)?,
            bs: default_block_bytes(),
            uuid: None,
            anagrp: default_group(),
            nsid: None,
            size: None,
        };
        let mut seen = Vec::new();
        for part in parts {
            let Some((key, value)) = part.split_once('=') else {
                return Err(wrong(format!("'{part}' is not KEY=VALUE")));
            };
            if seen.contains(&key) {
                return Err(wrong(format!("{key} is given twice")));
            }
            seen.push(key);
            spec.set(key, value).map_err(wrong)?;
        }
        Ok(spec)
    }
}

impl NamespaceSpec {
    /// Its identifiers. What was not chosen follows from which blocks they are: memory is empty
    /// with each start, a file that was lost may be made again, and a host that took either for
    /// what was there before would go on without what it had written. Nor must a host merge two
    /// targets that happen to bear the same name, as two machines do that have one configuration.
    ///
    /// # Errors
    /// The file is not there, or what the machine is called cannot be read.
    pub fn identifiers(&self, subsystem: &Nqn, nsid: u32) -> Result<(Uuid, Nguid), String> {
        if let Some(UuidText(uuid)) = self.uuid {
            return Ok((uuid, derived_nguid(uuid)));
        }
        let origin = match &self.backend {
            Backend::Memory(_) => {
                let random = super::identity::random_uuid();
                random.map_err(|why| format!("no random numbers: {why}"))?.0.to_vec()
            }
            Backend::File(path) => {
                let file = which_file(path).map_err(|why| format!("{}: {why}", path.display()))?;
                of_machine(subsystem, nsid, &machine_id(Path::new(MACHINE_ID))?, &file)
            }
        };
        Ok(derived_ids(subsystem, nsid, &origin))
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let number = || value.parse::<u32>().map_err(|_| format!("{key} '{value}' is no number"));
        match key {
            "bs" => {
                let size = units::size(value).ok().and_then(|size| u32::try_from(size).ok());
                self.bs = size.ok_or_else(|| format!("bs '{value}' is neither 512 nor 4096"))?;
            }
            "uuid" => self.uuid = Some(UuidText::try_from(value.to_owned())?),
            "anagrp" => self.anagrp = number()?,
            "nsid" => self.nsid = Some(number()?),
            "size" => {
                let size = units::size(value).map_err(|why| format!("size: {why}"))?;
                self.size = Some(Bytes(size));
            }
            _ => {
                return Err(format!(
                    "there is no key '{key}': bs, uuid, anagrp, nsid and size are known"
                ));
            }
        }
        Ok(())
    }

    /// Checks what does not need the file.
    ///
    /// # Errors
    /// One sentence that names the key and what would be right.
    pub fn check(&self) -> Result<(), String> {
        if self.bs != 512 && self.bs != 4096 {
            return Err(format!("bs is {}, must be 512 or 4096", self.bs));
        }
        within("nsid", self.nsid.unwrap_or(1), MAX_NSID)?;
        within("anagrp", self.anagrp, MAX_ANA_GROUP)?;
        if self.uuid.is_some_and(|UuidText(uuid)| uuid.is_zero()) {
            return Err("uuid must not be zero".to_owned());
        }
        match (&self.backend, self.size) {
            (Backend::Memory(_), Some(_)) => {
                Err("size belongs to file:PATH; write mem:SIZE".to_owned())
            }
            (Backend::Memory(bytes), None) => whole_blocks("backend mem", *bytes, self.bs),
            (Backend::File(path), size) => {
                no_traversal(path).map_err(|why| format!("backend {why}"))?;
                size.map_or(Ok(()), |Bytes(size)| whole_blocks("size", size, self.bs))
            }
        }
    }
}

/// Checks what can be seen of its file without opening it.
///
/// # Errors
/// One sentence that names the key, the file and what would be right.
pub fn check_file(spec: &NamespaceSpec) -> Result<(), String> {
    let Backend::File(path) = &spec.backend else { return Ok(()) };
    let size = spec.size.map(|Bytes(size)| size);
    let found =
        inspect(path, size).and_then(|kind| match (kind, std::fs::symlink_metadata(path)) {
            (Some(_), Ok(found)) => check_length(path, found.len(), size, spec.bs),
            _ => Ok(()),
        });
    found.map_err(|why| format!("backend {why}"))
}

fn within(key: &str, number: u32, most: u32) -> Result<(), String> {
    if !(1..=most).contains(&number) {
        return Err(format!("{key} is {number}, must lie between 1 and {most}"));
    }
    Ok(())
}

pub(crate) fn whole_blocks(what: &str, bytes: u64, block_bytes: u32) -> Result<(), String> {
    if bytes == 0 || !bytes.is_multiple_of(block_bytes.into()) {
        return Err(format!(
            "{what} has {bytes} bytes, must be a multiple of {block_bytes} and not 0"
        ));
    }
    if bytes > MAX_NAMESPACE_BYTES {
        let most = MAX_NAMESPACE_BYTES >> 40;
        return Err(format!("{what} has {bytes} bytes, must not exceed {most} TiB"));
    }
    Ok(())
}

/// A path that climbs is refused: who reads `a/../../b` in a log should not have to compute.
fn no_traversal(path: &Path) -> Result<(), String> {
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(format!("{} contains '..': write the path without it", path.display()));
    }
    Ok(())
}

/// A file behind a namespace.
#[derive(Debug)]
pub struct Opened {
    /// Open and locked.
    pub file: File,
    /// Its length.
    pub bytes: u64,
    /// It was not there before.
    pub made: bool,
}

/// Opens the file behind a namespace and locks it against a second target. Only regular files are
/// taken: a symbolic link, a device, a FIFO or a directory in its place is refused.
///
/// # Errors
/// One sentence that names the file: as misuse what would be right, as a failure what another
/// target or the file system is in the way of.
pub fn open_file(path: &Path, size: Option<u64>, block_bytes: u32) -> Result<Opened, Failure> {
    let (kind, opened) = open_regular(path, size, block_bytes).map_err(Failure::Usage)?;
    lock(&opened, path, || std::thread::sleep(LOCK_PAUSE)).map_err(Failure::Failed)?;
    let file = File::from(opened);
    let bytes = match (kind, size) {
        (None, Some(size)) => {
            settle(&file, path, size).map_err(|why| {
                // Of no use, and in the way of the next attempt.
                let _ = std::fs::remove_file(path);
                Failure::failed(format!("cannot make {} that long: {why}", path.display()))
            })?;
            size
        }
        // Whoever had the lock before may have changed it.
        _ => {
            file.metadata().map_err(|why| cannot_inspect(path, why)).map_err(Failure::Failed)?.len()
        }
    };
    check_length(path, bytes, size, block_bytes).map_err(Failure::Usage)?;
    Ok(Opened { file, bytes, made: kind.is_none() })
}

/// Opens it, if it is one that can be taken. What was there before.
fn open_regular(
    path: &Path,
    size: Option<u64>,
    block_bytes: u32,
) -> Result<(Option<FileType>, OwnedFd), String> {
    no_traversal(path)?;
    let name = path.display();
    let kind = inspect(path, size)?;
    if let Some(size) = size {
        whole_blocks("size", size, block_bytes)?;
    }
    let mut flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    if kind.is_none() {
        flags |= OFlags::CREATE | OFlags::EXCL;
    }
    let opened = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|error| format!("cannot open {name} for reading and writing: {error}"))?;
    // Not blocking was for a FIFO that might have taken the file's place.
    rustix::fs::fcntl_setfl(&opened, OFlags::empty())
        .map_err(|error| format!("cannot set up {name}: {error}"))?;
    // What was inspected and what was opened may differ: the open file decides.
    let found = rustix::fs::fstat(&opened).map_err(|why| cannot_inspect(path, why))?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => Ok((kind, opened)),
        other => Err(refused(path, other)),
    }
}

fn cannot_inspect(path: &Path, why: impl std::fmt::Display) -> String {
    format!("cannot inspect {}: {why}", path.display())
}

/// Locks it, with a pause after each attempt that finds it locked.
fn lock(opened: impl AsFd, path: &Path, mut pause: impl FnMut()) -> Result<(), String> {
    let name = path.display();
    for _ in 0..LOCK_ATTEMPTS {
        match rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK) => pause(),
            Err(error) => return Err(format!("cannot lock {name}: {error}")),
        }
    }
    Err(format!("{name} is in use by another target"))
}

/// Gives a new file its length, and keeps its name from going with the system's power: what is
/// flushed to a file must be found again.
fn settle(file: &File, path: &Path, size: u64) -> std::io::Result<()> {
    file.set_len(size)?;
    file.sync_all()?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

/// What no other file of a file system has: its number and when it was made, on which every file
/// system agrees with itself that can tell. Of one that cannot, there is only its place.
fn which_file(path: &Path) -> std::io::Result<Vec<u8>> {
    let found = std::fs::metadata(path)?;
    let born = found.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    Ok(match born.filter(|born| !born.is_zero()) {
        Some(born) => {
            let number = found.ino().to_le_bytes();
            [&b"born"[..], &number, &born.as_nanos().to_le_bytes()].concat()
        }
        None => std::fs::canonicalize(path)?.into_os_string().into_encoded_bytes(),
    })
}

/// What no file of another machine has: a disk may have been copied as a whole, and the numbers of
/// its files with it. Hosts are not to learn what the machine is called: half of a number that
/// follows from that tells it from others, and no more.
fn of_machine(subsystem: &Nqn, nsid: u32, machine: &str, file: &[u8]) -> Vec<u8> {
    let (_, Nguid(machine)) = derived_ids(subsystem, nsid, machine.as_bytes());
    [&machine[..8], file].concat()
}

/// Nothing where there is none. What cannot be read for another reason may be there the next time,
/// and would make another namespace of the same file.
fn machine_id(path: &Path) -> Result<String, String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(why) => Err(format!("cannot read {}: {why}; or give a uuid", path.display())),
    }
}

/// Whether the file is there, and one that can be taken.
fn inspect(path: &Path, size: Option<u64>) -> Result<Option<FileType>, String> {
    let name = path.display();
    let kind = match rustix::fs::lstat(path) {
        Ok(found) => Some(FileType::from_raw_mode(found.st_mode)),
        Err(rustix::io::Errno::NOENT) => None,
        Err(error) => return Err(cannot_inspect(path, error)),
    };
    match (kind, size) {
        (Some(FileType::RegularFile), _) | (None, Some(_)) => Ok(kind),
        (None, None) => Err(format!(
            "{name} does not exist: make it first (truncate -s SIZE {name}), or add size=SIZE"
        )),
        (Some(other), _) => Err(refused(path, other)),
    }
}

/// Whether a file that is there has the length that was asked for, and whole blocks.
///
/// # Errors
/// One sentence that names the file and what it has.
pub fn check_length(
    path: &Path,
    have: u64,
    asked: Option<u64>,
    block_bytes: u32,
) -> Result<(), String> {
    let name = path.display();
    match asked {
        Some(size) if have != size => {
            Err(format!("{name} exists with {have} bytes, not the {size} asked for"))
        }
        _ => whole_blocks(&name.to_string(), have, block_bytes),
    }
}

fn refused(path: &Path, kind: FileType) -> String {
    let kind = match kind {
        FileType::Symlink => "a symbolic link",
        FileType::BlockDevice | FileType::CharacterDevice => "a device",
        FileType::Fifo => "a FIFO",
        FileType::Directory => "a directory",
        FileType::Socket => "a socket",
        _ => "no regular file",
    };
    format!("{} is {kind}: a namespace needs a regular file", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As after a target that was killed under load.
    #[test]
    fn a_file_that_is_let_go_meanwhile_is_had() {
        let path = std::env::temp_dir().join(format!("anabranch-lock-{}", std::process::id()));
        let open = || File::options().create(true).append(true).open(&path).expect("a file");
        let (first, second) = (open(), open());
        lock(&first, &path, || panic!("nobody has it")).expect("locked");
        let mut pauses = 0;
        let told = lock(&second, &path, || pauses += 1).expect_err("it stays locked");
        assert!(told.ends_with("is in use by another target"), "{told}");
        assert_eq!(pauses, LOCK_ATTEMPTS);
        let let_go = || rustix::fs::flock(&first, FlockOperation::Unlock).expect("it was ours");
        lock(&second, &path, let_go).expect("it was let go");
        std::fs::remove_file(&path).expect("it goes");
    }

    /// One image is on many disks, with the same numbers of its files and the same times.
    #[test]
    fn a_file_of_a_machine_with_a_copy_of_the_disk_is_another_namespace() {
        let name = format!("anabranch-machine-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let nqn: Nqn = "nqn.2026-01.org.anabranch:target".parse().expect("an NQN");
        let on = |text: &str| {
            std::fs::write(&path, text).expect("a file");
            let machine = machine_id(&path).expect("it is there");
            derived_ids(&nqn, 1, &of_machine(&nqn, 1, &machine, b"one file"))
        };
        let (one, other) = ("5c0ffee0123456789abcdef012345678", "6c0ffee0123456789abcdef012345678");
        assert_eq!(on(one), on(&format!("{one}\n")), "it keeps them");
        assert!(on(one).0 != on(other).0 && on(one).1 != on(other).1);
        let spec: NamespaceSpec = format!("file:{}", path.display()).parse().expect("a namespace");
        let file = which_file(&path).expect("it is there");
        let told = spec.identifiers(&nqn, 1).expect("identifiers");
        assert_ne!(told, derived_ids(&nqn, 1, &file), "this machine is in them");
        let directory = machine_id(&std::env::temp_dir()).expect_err("no text");
        assert!(directory.starts_with("cannot read"), "{directory}");
        std::fs::remove_file(&path).expect("it goes");
        assert_eq!(machine_id(&path), Ok(String::new()), "a system without any");
    }
}
