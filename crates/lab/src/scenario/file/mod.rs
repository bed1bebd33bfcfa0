//! Scenario files: TOML to checked values.
//!
//! Every key is checked; what is wrong is one sentence with file, line, key, limit and remedy. All
//! of them are on the page `scenarios/README.md`.

mod changes;
mod load;
mod parts;
mod places;
mod table;
mod units;
mod variants;

use super::limits::MAX_FILE_BYTES;
use super::mistake::{Mistake, read_text};
use super::variant::standard_variants;
use super::{Notice, Scenario, library};
pub use places::Places;
use std::path::Path;
use table::{Source, Table};
use toml::de::DeTable;

/// A scenario, and what its reader should know about its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The scenario; [`Scenario::check`] holds.
    pub scenario: Scenario,
    /// Options of jobs that do something else than in fio.
    pub notices: Vec<Notice>,
    /// What was read: the scenario, and the job file that it names.
    pub texts: Vec<Text>,
    /// Where its parts stand in the file.
    pub places: Places,
}

/// A file as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// Below the scenario's directory: `mixed.toml`, `jobs/mixed.fio`.
    pub name: String,
    /// All of it.
    pub text: String,
}

/// Where a scenario's job file is looked for.
#[derive(Clone, Copy)]
enum Beside<'a> {
    /// Nowhere.
    Nothing,
    /// In this directory.
    Dir(&'a Path),
    /// In the program.
    Library,
}

/// Reads a scenario file, and the job file that it may name.
///
/// # Errors
/// It cannot be read, is too large, or the first mistake in it.
pub fn read(path: &Path) -> Result<Loaded, Mistake> {
    let text = read_text(path)?;
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let beside = path.parent().map_or(Beside::Nothing, Beside::Dir);
    parse_in(&text, &path.display().to_string(), &name.unwrap_or_default(), beside)
}

/// Reads a scenario of the [`library`].
///
/// # Errors
/// There is none of this name.
pub fn read_library(name: &str) -> Result<Loaded, Mistake> {
    let file = format!("{name}.toml");
    let Some(text) = library::text(name) else {
        let text = "is no scenario of the library; `anabranch lab list` names all".to_owned();
        return Err(Mistake { file, line: 0, key: String::new(), text });
    };
    parse_in(text, &file, name, Beside::Library)
}

/// Reads the text of a scenario file; `file` is its name for messages. It cannot name a job file.
///
/// # Errors
/// The first mistake.
pub fn parse(text: &str, file: &str) -> Result<Loaded, Mistake> {
    let name = Path::new(file).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    parse_in(text, file, &name.unwrap_or_default(), Beside::Nothing)
}

fn parse_in(text: &str, file: &str, name: &str, beside: Beside<'_>) -> Result<Loaded, Mistake> {
    let source = Source::new(file, text);
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(source.fail(0, "", format!("has more than {MAX_FILE_BYTES} bytes")));
    }
    let root = DeTable::parse(text).map_err(|error| table::syntax(&source, &error))?;
    let known = [
        "title",
        "source",
        "run",
        "host",
        "target",
        "path",
        "change",
        "job",
        "load",
        "published",
        "variant",
    ];
    let root = Table::new(&source, ("", 0), root.get_ref(), &known)?;
    let run = parts::run(&root)?;
    let hosts = parts::hosts(&root)?;
    let target = parts::target(&root)?;
    let paths = parts::paths(&root)?;
    let change_tables = changes::tables(&root)?;
    let (changes, tables_of_changes) =
        changes::read(&change_tables, &run, &paths)?.into_iter().unzip();
    let load::Load { jobs, burners, mut notices, file: job_file } =
        load::jobs(&root, &target, &hosts, beside)?;
    let mut variants = standard_variants(&paths, &run);
    variants::read(&root, &paths, &hosts, &mut variants)?;
    let published = load::published(&root, paths.len(), &hosts, &variants, &mut notices)?;
    let scenario = Scenario {
        name: name.to_owned(),
        title: root
            .word("title")?
            .ok_or_else(|| root.fail("title", "is missing; say in a line what it is"))?,
        source: root.word("source")?.unwrap_or_default(),
        run,
        hosts,
        target,
        paths,
        changes,
        jobs,
        burners,
        variants,
        published,
    };
    let places = Places::new(&root, &change_tables, tables_of_changes)?;
    // What concerns several parts at once; all else has been refused above, with its line.
    scenario.check().map_err(|problem| {
        if let Some(mistake) = places.mistake(&problem) {
            return mistake;
        }
        let line = ["job", "load"].into_iter().map(|key| root.line_of(key)).max().unwrap_or(0);
        source.fail(line, problem.key, problem.text)
    })?;
    let mut texts = vec![Text { name: format!("{name}.toml"), text: text.to_owned() }];
    texts.extend(job_file);
    Ok(Loaded { scenario, notices, texts, places })
}
