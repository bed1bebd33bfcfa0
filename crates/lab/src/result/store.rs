//! A results directory.
//!
//! ```text
//! environment.json                        where and when: alone has wall times and host names
//! scenarios/NAME.toml, scenarios/jobs/…   what was run, verbatim
//! cells/SCENARIO/MODE/VARIANT/RUN.json    one CellResult each
//! fio/SCENARIO/MODE/VARIANT/RUN.json      the same in the shape of fio's json+
//! results.csv, summary.json               made from the cells
//! ```
//!
//! Each file is written beside its place and renamed into it: a file that is there is whole, so
//! that what was interrupted goes on where it ended. Nothing is forced to the disk: after a loss of
//! power a file may be damaged, and is then named.

use super::environment::{Environment, Session};
use super::slug::slug;
use super::{CellResult, Mode, SCHEMA, whole};
use crate::scenario::{Found, Text};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

/// The largest file that is read back: an hour in windows of 50 ms on 64 paths stays below it.
const MAX_BYTES: u64 = 256 << 20;
/// Entries of `environment.json`; the oldest go.
const MAX_SESSIONS: usize = 1000;

/// Why results cannot be written or read.
#[derive(Debug)]
pub enum StoreError {
    /// The system refused.
    System {
        /// What was tried.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// A file does not hold what it should.
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        text: String,
    },
    /// A file is of another version of the schema.
    OtherSchema {
        /// Which.
        path: PathBuf,
        /// The version.
        found: u32,
    },
    /// What is there is of something else than what is to be run.
    Conflict {
        /// The file.
        path: PathBuf,
        /// What differs.
        text: String,
    },
    /// Another process writes into the directory.
    InUse(PathBuf),
    /// There are no results.
    Empty(PathBuf),
    /// There is nothing of that name.
    Missing(PathBuf),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::System { doing, path, error } => {
                write!(f, "{}: cannot {doing}: {error}", path.display())
            }
            StoreError::Damaged { path, text } => {
                let path = path.display();
                write!(f, "{path}: is damaged: {text}; delete it, and lab run --out makes it again")
            }
            StoreError::OtherSchema { path, found } => write!(
                f,
                "{}: has schema {found}, this version reads {SCHEMA}; use the version that wrote \
                 it, or run it again into another directory",
                path.display()
            ),
            StoreError::Conflict { path, text } => {
                let path = path.display();
                write!(f, "{path}: {text}; give another --out, or delete that directory")
            }
            StoreError::InUse(path) => {
                write!(f, "{}: another lab run is writing there; wait for its end", path.display())
            }
            StoreError::Empty(path) => {
                write!(f, "{}: holds no results; lab run --out makes them", path.display())
            }
            StoreError::Missing(path) => {
                write!(f, "{}: is not there; lab run --out makes results", path.display())
            }
        }
    }
}

impl std::error::Error for StoreError {}

/// Which cell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The scenario's name.
    pub scenario: String,
    /// How it is run.
    pub mode: Mode,
    /// The variant's name.
    pub variant: String,
    /// The seed, or the number of the turn.
    pub run: u64,
}

impl Key {
    /// Of a result.
    #[must_use]
    pub fn of(cell: &CellResult) -> Key {
        Key {
            scenario: cell.scenario.clone(),
            mode: cell.mode,
            variant: cell.variant.clone(),
            run: cell.run,
        }
    }

    /// Its place below `cells` or `fio`.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        let mut path = PathBuf::from(slug(&self.scenario));
        path.push(self.mode.name());
        path.push(slug(&self.variant));
        path.push(format!("{}.json", self.run));
        path
    }
}

/// What cells of one scenario and mode in one directory have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Not counted.
    pub ramp_ns: u64,
    /// Counted.
    pub window_ns: u64,
    /// See [`CellResult::scale_permille`]; nothing: any.
    pub scale_permille: Option<u32>,
    /// See [`CellResult::open_permille`]; nothing: any. A cell that does not tell has the part of
    /// the rates, or all.
    pub open_permille: Option<u32>,
    /// See [`CellResult::kernel_shaping`].
    pub kernel_shaping: bool,
}

impl Terms {
    /// In which this cell differs, in words.
    fn differences(&self, cell: &CellResult) -> Vec<String> {
        let asked = self.scale_permille.unwrap_or(cell.scale_permille);
        let open = match (cell.open_permille, self.open_permille) {
            (Some(there), asked) => (there, asked.unwrap_or(there)),
            (None, Some(asked)) if ![cell.scale_permille, 1000].contains(&asked) => {
                (cell.scale_permille, asked)
            }
            (None, _) => (0, 0),
        };
        let mut differs = Vec::new();
        let pairs = [
            ("a ramp", "ns", cell.ramp_ns, self.ramp_ns),
            ("a window", "ns", cell.window_ns, self.window_ns),
            ("a scale", "/1000", cell.scale_permille.into(), asked.into()),
            ("a part of the open requests", "/1000", open.0.into(), open.1.into()),
        ];
        for (what, unit, there, asked) in pairs {
            if there != asked {
                differs.push(format!("{what} of {there}{unit} and is to have {asked}{unit}"));
            }
        }
        let shaper = |kernel| if kernel { "the kernel" } else { "the target" };
        if cell.kernel_shaping != self.kernel_shaping {
            let (there, asked) = (shaper(cell.kernel_shaping), shaper(self.kernel_shaping));
            differs.push(format!("links shaped by {there} and is to have them shaped by {asked}"));
        }
        differs
    }
}

/// A results directory.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    /// Held while somebody writes.
    _lock: Option<File>,
}

impl Store {
    /// Makes the directory, or goes on with it. One process at a time.
    ///
    /// # Errors
    /// The system refuses, or another process writes there.
    pub fn create(dir: &Path) -> Result<Store, StoreError> {
        make_dir(&dir.join("cells"))?;
        let lock = File::open(dir).map_err(system("open", dir))?;
        match lock.try_lock() {
            Ok(()) => Ok(Store { dir: dir.to_owned(), _lock: Some(lock) }),
            Err(TryLockError::WouldBlock) => Err(StoreError::InUse(dir.to_owned())),
            Err(TryLockError::Error(error)) => Err(system("lock", dir)(error)),
        }
    }

    /// Opens results to read them.
    ///
    /// # Errors
    /// There are none.
    pub fn open(dir: &Path) -> Result<Store, StoreError> {
        if dir.join("cells").is_dir() {
            return Ok(Store { dir: dir.to_owned(), _lock: None });
        }
        match fs::metadata(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(StoreError::Missing(dir.to_owned()))
            }
            Err(error) => Err(system("read", dir)(error)),
            Ok(_) => Err(StoreError::Empty(dir.to_owned())),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file of a cell.
    #[must_use]
    pub fn cell_path(&self, key: &Key) -> PathBuf {
        self.dir.join("cells").join(key.path())
    }

    /// Keeps the text of a scenario, and of the job file that it names.
    ///
    /// # Errors
    /// The system refuses, or another text is there under this name.
    pub fn keep_scenario(
        &self,
        name: &str,
        text: &str,
        job: Option<(&Path, &str)>,
    ) -> Result<(), StoreError> {
        let dir = self.dir.join("scenarios");
        self.keep(&dir.join(slug(name) + ".toml"), text)?;
        if let Some((path, text)) = job {
            // Where the scenario will look for it, unless that lies somewhere else.
            let inside = path.components().all(|part| matches!(part, Component::Normal(_)));
            let name = path.file_name().unwrap_or_default();
            let place = if inside { dir.join(path) } else { dir.join("jobs").join(name) };
            self.keep(&place, text)?;
        }
        Ok(())
    }

    /// The text of a scenario that was kept, and of the job file that it names, if it can be read.
    #[must_use]
    pub fn scenario_texts(&self, name: &str) -> Vec<Text> {
        let path = self.dir.join("scenarios").join(slug(name) + ".toml");
        Found::File(path).read().map_or_else(|_| Vec::new(), |loaded| loaded.texts)
    }

    fn keep(&self, path: &Path, text: &str) -> Result<(), StoreError> {
        match fs::read(path) {
            Ok(there) if there == text.as_bytes() => Ok(()),
            Ok(_) => {
                let text = "is another text than the one that is to be run".to_owned();
                Err(StoreError::Conflict { path: path.to_owned(), text })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => write(path, text.as_bytes()),
            Err(error) => Err(system("read", path)(error)),
        }
    }

    /// The cell, if it was run before.
    ///
    /// # Errors
    /// What is there is damaged, of another schema, or was run otherwise.
    pub fn find(&self, key: &Key, terms: &Terms) -> Result<Option<CellResult>, StoreError> {
        let path = self.cell_path(key);
        if !path.exists() {
            return Ok(None);
        }
        let cell = self.read(&path)?;
        self.agree(&cell, terms).map(|()| Some(cell))
    }

    /// Checks that a cell of this directory was run on these terms.
    ///
    /// # Errors
    /// It was not: names it, and what differs.
    pub fn agree(&self, cell: &CellResult, terms: &Terms) -> Result<(), StoreError> {
        let differs = terms.differences(cell);
        if differs.is_empty() {
            return Ok(());
        }
        let text = format!("had {}", differs.join(", "));
        Err(StoreError::Conflict { path: self.cell_path(&Key::of(cell)), text })
    }

    /// Some cell of this scenario in this mode, if there is one: others have to be run as it was.
    ///
    /// # Errors
    /// What is there cannot be read, is damaged, or of another schema.
    pub fn any(&self, scenario: &str, mode: Mode) -> Result<Option<CellResult>, StoreError> {
        let dir = self.dir.join("cells").join(slug(scenario)).join(mode.name());
        if !dir.exists() {
            return Ok(None);
        }
        files(dir, 1)?.first().map(|path| self.read(path)).transpose()
    }

    /// Writes a cell, and the same in fio's shape. The cell comes last: when it is there, all is.
    ///
    /// # Errors
    /// The system refuses.
    pub fn put(&self, cell: &CellResult, fio: &str) -> Result<(), StoreError> {
        let key = Key::of(cell);
        write(&self.dir.join("fio").join(key.path()), fio.as_bytes())?;
        let path = self.cell_path(&key);
        let text = json(cell, &path)?;
        write(&path, text.as_bytes())
    }

    /// The files of all cells, in the order of scenario, mode, variant and run.
    ///
    /// # Errors
    /// The system refuses, or there are none.
    pub fn cells(&self) -> Result<Vec<PathBuf>, StoreError> {
        match files(self.dir.join("cells"), 3)? {
            found if found.is_empty() => Err(StoreError::Empty(self.dir.clone())),
            found => Ok(found),
        }
    }

    /// Reads a cell that [`Store::cells`] named.
    ///
    /// # Errors
    /// It cannot be read, is damaged, or of another schema.
    pub fn read(&self, path: &Path) -> Result<CellResult, StoreError> {
        let cell: CellResult = read_json(path)?;
        if self.cell_path(&Key::of(&cell)) != path {
            let text = format!(
                "it is of {}, {}, {}, run {}",
                cell.scenario, cell.mode, cell.variant, cell.run
            );
            return Err(StoreError::Damaged { path: path.to_owned(), text });
        }
        Ok(cell)
    }

    /// Writes a file of the directory.
    ///
    /// # Errors
    /// The system refuses.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        write(&self.dir.join(name), bytes)
    }

    /// Adds to `environment.json`.
    ///
    /// # Errors
    /// The system refuses, or what is there is damaged.
    pub fn add_session(&self, session: Session) -> Result<(), StoreError> {
        let mut all = self.environment()?;
        all.sessions.push(session);
        let surplus = all.sessions.len().saturating_sub(MAX_SESSIONS);
        all.sessions.drain(..surplus);
        self.put_environment(&all)
    }

    /// Says in `environment.json` that the session which was added last ends now.
    ///
    /// # Errors
    /// The system refuses, or what is there is damaged.
    pub fn end_session(&self, cells_run: u64, cells_kept: u64) -> Result<(), StoreError> {
        let mut all = self.environment()?;
        if let Some(session) = all.sessions.last_mut() {
            session.end(cells_run, cells_kept);
        }
        self.put_environment(&all)
    }

    fn put_environment(&self, all: &Environment) -> Result<(), StoreError> {
        let path = self.dir.join("environment.json");
        let text = serde_json::to_string_pretty(all).map_err(|error| unwritable(&path, &error))?;
        write(&path, (text + "\n").as_bytes())
    }

    /// Reads `environment.json`; there are no sessions when there is no file.
    ///
    /// # Errors
    /// It cannot be read, is damaged, or of another schema.
    pub fn environment(&self) -> Result<Environment, StoreError> {
        let path = self.dir.join("environment.json");
        if path.exists() {
            return read_json(&path);
        }
        Ok(Environment { schema: SCHEMA, sessions: Vec::new() })
    }
}

/// The files of cells so many directories below this one, in the order of those and of the runs.
fn files(dir: PathBuf, below: usize) -> Result<Vec<PathBuf>, StoreError> {
    let mut found = Vec::new();
    let mut open = vec![(dir, 0)];
    while let Some((dir, depth)) = open.pop() {
        for entry in fs::read_dir(&dir).map_err(system("read", &dir))? {
            let path = entry.map_err(system("read", &dir))?.path();
            if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")) {
                continue;
            }
            if depth < below && path.is_dir() {
                open.push((path, depth + 1));
            } else if depth == below && path.extension().is_some_and(|ending| ending == "json") {
                let stem = path.file_stem().and_then(|stem| stem.to_str());
                let run = stem.and_then(|stem| stem.parse::<u64>().ok());
                found.push((dir.clone(), run, path));
            }
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, _, path)| path).collect())
}

fn system(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> StoreError {
    let path = path.to_owned();
    move |error| StoreError::System { doing, path: path.clone(), error }
}

fn unwritable(path: &Path, error: &serde_json::Error) -> StoreError {
    system("write", path)(io::Error::other(error.to_string()))
}

fn json(cell: &CellResult, path: &Path) -> Result<String, StoreError> {
    let text = serde_json::to_string(cell).map_err(|error| unwritable(path, &error))?;
    Ok(text + "\n")
}

fn make_dir(dir: &Path) -> Result<(), StoreError> {
    fs::create_dir_all(dir).map_err(system("make the directory", dir))
}

/// Writes the whole file, or leaves what is there.
fn write(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    make_dir(path.parent().unwrap_or(Path::new(".")))?;
    whole::write(path, bytes).map_err(system("write", path))
}

/// Reads a file of this schema, of at most 256 MiB.
///
/// # Errors
/// It cannot be read, is damaged, or of another schema.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, StoreError> {
    #[derive(Deserialize)]
    struct Head {
        schema: u32,
    }
    let damaged = |text: String| StoreError::Damaged { path: path.to_owned(), text };
    let meta = fs::metadata(path).map_err(system("read", path))?;
    if !meta.is_file() {
        return Err(damaged("it is no regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(system("read", path))?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(system("read", path))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(damaged(format!("it has more than {MAX_BYTES} bytes")));
    }
    // Another schema may have other fields: its number is looked at first, where there is one.
    match serde_json::from_slice::<Head>(&bytes) {
        Ok(head) if head.schema != SCHEMA => {
            Err(StoreError::OtherSchema { path: path.to_owned(), found: head.schema })
        }
        Ok(_) => serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string())),
        Err(error) => Err(damaged(error.to_string())),
    }
}

#[cfg(test)]
mod tests;
