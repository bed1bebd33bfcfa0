//! One HTML file that tells a results directory: the verdict, the tables, the charts, the
//! circumstances.
//!
//! It opens from a disk, without a network: style, script and charts are in it, and a content
//! security policy forbids everything else. Nothing in it depends on the script.

mod distribution;
mod document;
mod figures;
mod overview;
mod page;
mod places;
mod series;
mod study;
mod svg;
#[cfg(test)]
mod tests;
mod verdict;
mod words;

use crate::result::CellResult;
use crate::result::environment::Environment;
use crate::result::slug::slug;
use crate::result::store::{Store, StoreError};
use crate::scenario::{Scenario, file};
use std::fs;
use std::path::Path;

/// What a report is made from.
#[derive(Clone, Debug, Default)]
pub struct Material {
    /// All cells of one directory.
    pub cells: Vec<CellResult>,
    /// The scenarios' files, by name.
    pub texts: Vec<ScenarioText>,
    /// Where and when.
    pub environment: Environment,
    /// What could not be read, in sentences.
    pub unread: Vec<String>,
}

/// A scenario's file, and what it says.
#[derive(Clone, Debug)]
pub struct ScenarioText {
    /// The file's name.
    pub file: String,
    /// The file, verbatim.
    pub text: String,
    /// What it says; nothing for job files.
    pub scenario: Option<Scenario>,
}

/// The largest file that is shown: those of scenarios are smaller.
const MAX_TEXT_BYTES: u64 = 1 << 20;

impl Material {
    /// Reads a results directory.
    ///
    /// # Errors
    /// There are no results, or one of them cannot be read. A scenario that cannot be read is
    /// [`Material::unread`].
    pub fn read(dir: &Path) -> Result<Material, StoreError> {
        let store = Store::open(dir)?;
        let mut material = Material { environment: store.environment()?, ..Material::default() };
        for path in store.cells()? {
            material.cells.push(store.read(&path)?);
        }
        let scenarios = dir.join("scenarios");
        material.read_texts(&scenarios, &scenarios);
        material.texts.sort_by(|a, b| a.file.cmp(&b.file));
        Ok(material)
    }

    fn read_texts(&mut self, base: &Path, dir: &Path) {
        let Ok(entries) = fs::read_dir(dir) else {
            self.unread.push(format!("{}: there is no such directory", dir.display()));
            return;
        };
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let hidden = path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"."));
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            if hidden {
                continue;
            }
            if meta.is_dir() {
                self.read_texts(base, &path);
            } else if meta.is_file() && meta.len() <= MAX_TEXT_BYTES {
                self.read_text(base, &path);
            }
        }
    }

    fn read_text(&mut self, base: &Path, path: &Path) {
        let text = match fs::read(path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => return self.unread.push(format!("{}: {error}", path.display())),
        };
        let file = path.strip_prefix(base).unwrap_or(path).to_string_lossy().into_owned();
        let mut scenario = None;
        if path.parent() == Some(base) && path.extension().is_some_and(|end| end == "toml") {
            match file::read(path) {
                Ok(loaded) => scenario = Some(loaded.scenario),
                Err(mistake) => self.unread.push(mistake.to_string()),
            }
        }
        self.texts.push(ScenarioText { file, text, scenario });
    }

    /// By the name that results have, or by that of the file in the directory.
    fn scenario(&self, name: &str) -> Option<&Scenario> {
        let kept = slug(name);
        let mut all = self.texts.iter().filter_map(|one| one.scenario.as_ref());
        all.find(|one| one.name == name || one.name == kept)
    }
}

/// The report, as one HTML file.
#[must_use]
pub fn render(mut material: Material) -> String {
    let study = study::Study::new(&mut material);
    document::document(&study, &material)
}
