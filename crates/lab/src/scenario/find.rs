//! Scenarios by name or by path.

use super::file::{self, Loaded};
use super::library;
use super::mistake::{Mistake, nearest, shorten};
use std::path::{Path, PathBuf};

/// Where a scenario is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// In a file.
    File(PathBuf),
    /// In the program, under this name of the [`library`].
    Library(&'static str),
}

impl Found {
    /// Reads it.
    ///
    /// # Errors
    /// See [`file::read`].
    pub fn read(&self) -> Result<Loaded, Mistake> {
        match self {
            Found::File(path) => file::read(path),
            Found::Library(name) => file::read_library(name),
        }
    }
}

/// Finds a scenario: the file of this path, else `NAME.toml` in the first of `dirs` that has it
/// (programs pass `scenarios`), else the one of this name in the [`library`].
///
/// # Errors
/// There is none; names that are close are listed.
pub fn find(name_or_path: &str, dirs: &[&Path]) -> Result<Found, Mistake> {
    let path = Path::new(name_or_path);
    if path.exists() && !path.is_dir() {
        return Ok(Found::File(path.to_owned()));
    }
    let name = name_or_path.strip_suffix(".toml").unwrap_or(name_or_path);
    let is_name = !name.is_empty() && path.components().count() == 1 && !name.contains(['/', '\\']);
    if is_name {
        let file = format!("{name}.toml");
        if let Some(path) = dirs.iter().map(|dir| dir.join(&file)).find(|path| path.is_file()) {
            return Ok(Found::File(path));
        }
        if let Some(name) = library::names().find(|known| *known == name) {
            return Ok(Found::Library(name));
        }
    }
    if path.is_dir() {
        // The reader says what is wrong with it.
        return Ok(Found::File(path.to_owned()));
    }
    let text = if is_name {
        let near = nearest(name, &known(dirs), 4);
        let hint = match near.as_slice() {
            [] => "`anabranch lab list` names all".to_owned(),
            near => format!("did you mean {}?", near.join(", ")),
        };
        format!("there is no such file, and no scenario of this name; {hint}")
    } else {
        "there is no such file; name a file, or a scenario of `anabranch lab list`".to_owned()
    };
    let file = shorten(name_or_path);
    Err(Mistake { file, line: 0, key: String::new(), text })
}

/// Every name that [`find`] knows.
fn known(dirs: &[&Path]) -> Vec<String> {
    let mut names: Vec<String> = library::names().map(str::to_owned).collect();
    for entry in dirs.iter().filter_map(|dir| std::fs::read_dir(dir).ok()).flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}
