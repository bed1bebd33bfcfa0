//! Who this host is: host NQN and host identifier, the same pair on every path.

use crate::failure::Failure;
use anabranch_proto::nvme::ids::Uuid;
use anabranch_proto::nvme::nqn::Nqn;
use std::env;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Host NQN and host identifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Host NQN.
    pub nqn: Nqn,
    /// Host identifier.
    pub id: Uuid,
}

/// Where the pair is looked for.
#[derive(Clone, Debug)]
pub struct Places {
    /// The system's own, `/etc/nvme`.
    pub system: PathBuf,
    /// Where a generated pair is kept, if there is a place that is the user's own.
    pub state: Option<PathBuf>,
}

impl Default for Places {
    fn default() -> Self {
        // Without HOME, the system's list of users says where a user is at home.
        let (state, home) = (env::var_os("XDG_STATE_HOME"), env::home_dir());
        Places::of(super::socket::own_uid(), state.map(PathBuf::from), home)
    }
}

impl Places {
    /// Those of a user: `/var/lib/anabranch` for root, else `$XDG_STATE_HOME/anabranch`, else
    /// `~/.local/state/anabranch`. Never a directory in which others may put a file first: who we
    /// are would then be for them to say.
    #[must_use]
    pub fn of(uid: u32, state: Option<PathBuf>, home: Option<PathBuf>) -> Places {
        let absolute = |path: Option<PathBuf>| path.filter(|path| path.is_absolute());
        let state = if uid == 0 {
            Some(PathBuf::from("/var/lib"))
        } else {
            absolute(state).or_else(|| absolute(home).map(|home| home.join(".local/state")))
        };
        let state = state.map(|place| place.join("anabranch"));
        Places { system: PathBuf::from("/etc/nvme"), state }
    }
}

impl Identity {
    /// The pair in force: what is given, else the system's files, else a pair that is generated
    /// once and kept.
    ///
    /// # Errors
    /// A given or stored value that is none, or a state directory that cannot be written.
    pub fn find(nqn: Option<&str>, id: Option<&str>, places: &Places) -> Result<Identity, Failure> {
        let nqn = match nqn {
            Some(text) => Some(parse_nqn(text, "hostnqn").map_err(Failure::Usage)?),
            None => stored(&places.system.join("hostnqn"), parse_nqn)?,
        };
        let id = match id {
            Some(text) => Some(parse_id(text, "hostid").map_err(Failure::Usage)?),
            None => stored(&places.system.join("hostid"), parse_id)?,
        };
        match (nqn, id) {
            (Some(nqn), Some(id)) => Ok(Identity { nqn, id }),
            // As nvme-cli: the identifier is the UUID of an NQN that holds one.
            (Some(nqn), None) => match uuid_of(&nqn) {
                Some(id) => Ok(Identity { nqn, id }),
                None => Ok(Identity { nqn, id: kept(places)?.id }),
            },
            (None, Some(id)) => Ok(Identity { nqn: Nqn::from_uuid(id), id }),
            (None, None) => kept(places),
        }
    }

    /// A pair that nobody has had before, for a host that lives as long as a demo.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn fresh() -> Result<Identity, Failure> {
        let id = random_uuid()
            .map_err(|error| Failure::failed(format!("cannot read /dev/urandom: {error}")))?;
        Ok(Identity { nqn: Nqn::from_uuid(id), id })
    }
}

fn parse_nqn(text: &str, place: &str) -> Result<Nqn, String> {
    text.parse().map_err(|why| format!("{place} '{}': {why}", text.escape_debug()))
}

fn parse_id(text: &str, place: &str) -> Result<Uuid, String> {
    let id: Uuid =
        text.parse().map_err(|why| format!("{place} '{}': {why}", text.escape_debug()))?;
    // Every controller refuses it (Base 6.3, "Connect").
    if id.is_zero() { Err(format!("{place} '{text}': must not be all zero")) } else { Ok(id) }
}

fn uuid_of(nqn: &Nqn) -> Option<Uuid> {
    nqn.as_str()
        .strip_prefix("nqn.2014-08.org.nvmexpress:uuid:")?
        .parse()
        .ok()
        .filter(|id: &Uuid| !id.is_zero())
}

/// The first line of a file, if the file is there and has one.
fn stored<T>(
    path: &Path,
    parse: impl Fn(&str, &str) -> Result<T, String>,
) -> Result<Option<T>, Failure> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Failure::failed(format!("cannot read {}: {error}", path.display())));
        }
    };
    let line = text.lines().next().unwrap_or("").trim();
    if line.is_empty() {
        return Ok(None);
    }
    parse(line, &path.display().to_string()).map(Some).map_err(Failure::Failed)
}

/// The pair that was generated once; generated now if it is the first time.
fn kept(places: &Places) -> Result<Identity, Failure> {
    let directory = places.state.as_ref().ok_or_else(|| {
        Failure::failed(
            "there is no place to keep the host NQN in, as neither XDG_STATE_HOME nor HOME is the \
             path of a directory: set one, or give --hostnqn and --hostid",
        )
    })?;
    if let Some(identity) = stored_pair(directory)? {
        return Ok(identity);
    }
    let refused = |error: io::Error| {
        Failure::failed(format!(
            "cannot keep the host NQN in {}: {error}; give --hostnqn and --hostid instead",
            directory.display()
        ))
    };
    // Of several that start for the first time at once the identifier of one stays, and the NQN of
    // all is made of it. An NQN without an identifier is older: the identifier is made of that.
    let (nqn_file, id_file) = (directory.join("hostnqn"), directory.join("hostid"));
    fs::DirBuilder::new().mode(0o700).recursive(true).create(directory).map_err(refused)?;
    let id = match stored(&id_file, parse_id)? {
        Some(id) => id,
        None => {
            let own = match stored(&nqn_file, parse_nqn)? {
                Some(nqn) => uuid_of(&nqn).ok_or_else(|| {
                    Failure::failed(format!(
                        "{} names {nqn}, but there is no identifier in {}: put it there, or give \
                         --hostnqn and --hostid",
                        nqn_file.display(),
                        id_file.display()
                    ))
                })?,
                None => Identity::fresh()?.id,
            };
            put(&id_file, &own.to_string()).map_err(refused)?;
            stored(&id_file, parse_id)?.unwrap_or(own)
        }
    };
    put(&nqn_file, Nqn::from_uuid(id).as_str()).map_err(refused)?;
    // One that says another identifier is somebody else's, who has started at the same time.
    let ours = |nqn: &Nqn| uuid_of(nqn).is_none_or(|said| said == id);
    let nqn = stored(&nqn_file, parse_nqn)?.filter(ours);
    Ok(Identity { nqn: nqn.unwrap_or_else(|| Nqn::from_uuid(id)), id })
}

fn stored_pair(directory: &Path) -> Result<Option<Identity>, Failure> {
    let id = stored(&directory.join("hostid"), parse_id)?;
    let nqn = stored(&directory.join("hostnqn"), parse_nqn)?;
    Ok(nqn.zip(id).map(|(nqn, id)| Identity { nqn, id }))
}

/// Writes a file that a reader sees whole or not at all. One that is there already stays, unless
/// there is nothing in it.
fn put(path: &Path, line: &str) -> io::Result<()> {
    let (new, mut file) = beside(path)?;
    let has_line = || fs::read_to_string(path).is_ok_and(|text| !text.trim().is_empty());
    let written = writeln!(file, "{line}").and_then(|()| file.sync_all());
    let put = written.and_then(|()| match fs::hard_link(&new, path) {
        Err(_) if has_line() => Ok(()),
        // It is empty, or the file system knows no second names.
        Err(_) => fs::rename(&new, path),
        linked => linked,
    });
    // A supervisor that tries again and again does not fill the directory.
    let removed = remove(&new);
    put.and(removed)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// A new file beside another one. Processes in containers may have one number, and who was killed
/// has left its file.
fn beside(path: &Path) -> io::Result<(PathBuf, fs::File)> {
    let mut tries = 0;
    loop {
        let new = path.with_extension(format!("new{}-{tries}", std::process::id()));
        let mut options = fs::OpenOptions::new();
        match options.write(true).create_new(true).mode(0o644).open(&new) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < 100 => tries += 1,
            opened => return opened.map(|file| (new, file)),
        }
    }
}

/// A random (version 4) UUID.
pub(super) fn random_uuid() -> io::Result<Uuid> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    Ok(Uuid(bytes))
}

/// A random seed.
///
/// # Errors
/// When the system has no random numbers.
pub fn random_seed() -> Result<u64, Failure> {
    let mut bytes = [0; 8];
    fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| Failure::failed(format!("cannot read /dev/urandom: {error}")))?;
    Ok(u64::from_le_bytes(bytes))
}
