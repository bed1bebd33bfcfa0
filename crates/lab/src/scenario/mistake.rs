//! One mistake in a file: where, what, and what would be right.

use super::limits::{MAX_FILE_BYTES, MAX_NAME};
use crate::shown::Shown;
use std::fmt;
use std::io::Read;
use std::path::Path;

/// A mistake in a scenario or job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The file, as the caller named it.
    pub file: String,
    /// Counted from 1; 0 when it is the whole file.
    pub line: usize,
    /// The key or option at fault; empty when it is none.
    pub key: String,
    /// What is wrong, the limit, and what to do.
    pub text: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", Shown(&self.file))?;
        if self.line > 0 {
            write!(f, "{}:", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, " {}:", Shown(&self.key))?;
        }
        write!(f, " {}", Shown(&self.text))
    }
}

impl std::error::Error for Mistake {}

/// At most 40 characters of a value, for a sentence.
pub(super) fn shorten(value: &str) -> String {
    match value.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value.to_owned(),
    }
}

/// The text of a file. The size is looked at before anything is read.
pub(super) fn read_text(path: &Path) -> Result<String, Mistake> {
    let file = path.display().to_string();
    let fail = |text: String| Mistake { file: file.clone(), line: 0, key: String::new(), text };
    let io = |error: std::io::Error| fail(format!("cannot be read: {error}"));
    // Not even opened unless it is a file: a FIFO would wait for a writer.
    let meta = std::fs::metadata(path).map_err(io)?;
    if !meta.is_file() {
        return Err(fail("is no regular file; name one".to_owned()));
    }
    if meta.len() > MAX_FILE_BYTES {
        let bytes = meta.len();
        let text =
            format!("has {bytes} bytes, at most {MAX_FILE_BYTES} are read; is it the right file?");
        return Err(fail(text));
    }
    let mut bytes = Vec::new();
    // It may have grown since.
    let open = std::fs::File::open(path).map_err(io)?;
    open.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(fail(format!("grew to more than {MAX_FILE_BYTES} bytes while it was read")));
    }
    String::from_utf8(bytes).map_err(|_| fail("is no UTF-8 text; is it the right file?".to_owned()))
}

/// `; did you mean X?` for the nearest of `known`, if one is near.
pub(super) fn did_you_mean(word: &str, known: &[&str]) -> String {
    if word.chars().count() > 40 {
        return String::new();
    }
    let begun = |name: &&&str| word.len() >= 3 && name.starts_with(word);
    if let Some(name) = known.iter().find(begun) {
        return format!("; did you mean {name}?");
    }
    let near = known.iter().map(|name| (distance(word, name), *name)).min();
    match near {
        // Something of the word must be left: "a" is not what "b" was meant to be.
        Some((d, name)) if (d <= 2 || d * 3 <= name.len()) && d * 2 <= name.len() => {
            format!("; did you mean {name}?")
        }
        _ => String::new(),
    }
}

/// As [`did_you_mean`]; where nothing is near, what there is, unless that is much.
pub(super) fn near_or_all(word: &str, known: &[&str]) -> String {
    match did_you_mean(word, known) {
        near if near.is_empty() && known.len() <= 8 => format!("; there are {}", known.join(", ")),
        near => near,
    }
}

/// The names that are near to a word or contain it, the nearest first, at most `most`.
pub(super) fn nearest(word: &str, known: &[String], most: usize) -> Vec<String> {
    if word.chars().count() > MAX_NAME {
        return Vec::new();
    }
    let within = |name: &str| word.len() >= 3 && name.contains(word);
    let far = |name: &&String| (!within(name), distance(word, name));
    let mut near: Vec<&String> = known
        .iter()
        .filter(|name| within(name) || distance(word, name) * 3 <= name.chars().count())
        .collect();
    near.sort_by_key(far);
    near.into_iter().take(most).cloned().collect()
}

/// Letters to insert, remove or replace (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replace = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
