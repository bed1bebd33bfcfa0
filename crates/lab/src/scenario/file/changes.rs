//! `[[change]]`: what happens to paths, and when.

use super::super::limits::MAX_CHANGES;
use super::super::mistake::{Mistake, near_or_all, shorten};
use super::super::path::check_shape;
use super::super::{Alteration, Change, Path, PathState, Run};
use super::parts;
use super::table::Table;

/// The tables of changes.
pub(super) fn tables<'a>(root: &Table<'a>) -> Result<Vec<Table<'a>>, Mistake> {
    let mut known = parts::CHANGEABLE.to_vec();
    known.extend(["at", "path", "state", "repeat"]);
    root.tables("change", &known, MAX_CHANGES)
}

/// Reads all changes, writes repetitions out, and puts them in the order of time; with each comes
/// the number of its table.
pub(super) fn read(
    tables: &[Table<'_>],
    run: &Run,
    paths: &[Path],
) -> Result<Vec<(Change, usize)>, Mistake> {
    // When, and which table.
    let mut times: Vec<(u64, usize)> = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        let at = table.must("at", table.time("at")?)?;
        if at >= run.window_ns {
            let window = Seconds(run.window_ns);
            let text = format!("lies after the end; the window is {window} long");
            return Err(table.fail("at", text));
        }
        let step = match table.time("repeat")? {
            Some(0) => return Err(table.fail("repeat", "must be longer than 0")),
            Some(step) => step,
            None => run.window_ns,
        };
        let mut next = at;
        while next < run.window_ns {
            if times.len() == MAX_CHANGES {
                let text = format!("makes more than {MAX_CHANGES} changes; repeat less often");
                return Err(table.fail("repeat", text));
            }
            times.push((next, index));
            next = next.saturating_add(step);
        }
    }
    times.sort_by_key(|(at, _)| *at);
    // A change names some keys; the others keep what they are by then.
    let mut shapes: Vec<_> = paths.iter().map(|path| path.shape.clone()).collect();
    let mut changes = Vec::with_capacity(times.len());
    for (at_ns, index) in times {
        let table = &tables[index];
        let path = path_index(table, paths)?;
        let before = changes.len();
        let mut push = |what| changes.push((Change { at_ns, path, what }, index));
        if parts::shape(table, &mut shapes[path])? {
            table.checked(check_shape(&shapes[path]))?;
            push(Alteration::Shape(shapes[path].clone()));
        }
        if let Some(brownout) = parts::brownout(table)? {
            push(Alteration::Brownout(brownout));
        }
        if let Some(ana) = parts::ana(table)? {
            push(Alteration::Ana(ana));
        }
        if let Some(state) = table.choice("state", &PathState::ALL.map(|s| (s.name(), s)))? {
            push(Alteration::State(state));
        }
        if changes.len() == before {
            let text = "changes nothing; name a key of [[path]], or state = \"cut\"";
            return Err(table.fail("change", text));
        }
        if changes.len() > MAX_CHANGES {
            return Err(table.fail("change", format!("there are more than {MAX_CHANGES} changes")));
        }
    }
    Ok(changes)
}

fn path_index(table: &Table<'_>, paths: &[Path]) -> Result<usize, Mistake> {
    let name = table.must("path", table.word("path")?)?;
    paths.iter().position(|path| path.name == name).ok_or_else(|| {
        let names: Vec<&str> = paths.iter().map(|path| path.name.as_str()).collect();
        let near = near_or_all(&name, &names);
        table.fail("path", format!("there is no path {}{near}", shorten(&name)))
    })
}

/// Nanoseconds as seconds.
struct Seconds(u64);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, part) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        if part == 0 {
            return write!(f, "{whole}s");
        }
        let digits = format!("{part:09}");
        write!(f, "{whole}.{}s", digits.trim_end_matches('0'))
    }
}
