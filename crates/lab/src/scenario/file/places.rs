//! Where the parts of a scenario stand in its file, for what is found once it has been read: that
//! it cannot be run in the way that is asked for.

use super::super::mistake::Mistake;
use super::super::{Part, Problem};
use super::parts;
use super::table::Table;

/// The lines of a table and of its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Lines {
    own: usize,
    keys: Vec<(String, usize)>,
}

impl Lines {
    fn new(table: &Table<'_>) -> Lines {
        let lines = table.keys().into_iter().map(|key| (key.to_owned(), table.line_of(key)));
        Lines { own: table.line, keys: lines.collect() }
    }

    fn of(&self, key: &str) -> usize {
        self.keys.iter().find(|(name, _)| name == key).map_or(self.own, |(_, line)| *line)
    }
}

/// Where the parts of a scenario stand in its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    file: String,
    host: Lines,
    target: Lines,
    paths: Vec<Lines>,
    changes: Vec<Lines>,
    /// Which of these each change of the scenario was read from.
    tables_of_changes: Vec<usize>,
}

impl Places {
    /// Of a file in which everything was read already.
    pub(super) fn new(
        root: &Table<'_>,
        changes: &[Table<'_>],
        tables_of_changes: Vec<usize>,
    ) -> Result<Places, Mistake> {
        let section = |key| {
            let table = root.any_table(key)?;
            Ok(table.map(|table| Lines::new(&table)).unwrap_or_default())
        };
        let paths = parts::path_tables(root)?;
        Ok(Places {
            file: root.source.name().to_owned(),
            host: section("host")?,
            target: section("target")?,
            paths: paths.iter().map(Lines::new).collect(),
            changes: changes.iter().map(Lines::new).collect(),
            tables_of_changes,
        })
    }

    /// What is wrong with a part of the scenario, with its place in the file.
    #[must_use]
    pub fn mistake(&self, problem: &Problem) -> Option<Mistake> {
        let lines = match problem.part {
            Part::Whole => return None,
            Part::Host => &self.host,
            Part::Target => &self.target,
            Part::Path(number) => self.paths.get(number)?,
            Part::Change(number) => self.changes.get(*self.tables_of_changes.get(number)?)?,
        };
        let line = lines.of(problem.key);
        let (file, key, text) = (self.file.clone(), problem.key.to_owned(), problem.text.clone());
        Some(Mistake { file, line, key, text })
    }
}
