//! A TOML table with positions, read key by key.

use super::super::mistake::{Mistake, did_you_mean, shorten};
use super::super::{Notice, Problem, limits};
use super::units;
use anabranch_policy::MAX_RELATIVE_THROUGHPUT;
use std::fmt::Display;
use std::str::FromStr;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A file's name and where its lines begin.
pub(super) struct Source<'a> {
    name: &'a str,
    starts: Vec<usize>,
}

impl<'a> Source<'a> {
    pub(super) fn new(name: &'a str, text: &str) -> Source<'a> {
        let behind = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(behind.map(|(at, _)| at + 1)).collect();
        Source { name, starts }
    }

    /// The line of a byte, counted from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at)
    }

    pub(super) fn name(&self) -> &'a str {
        self.name
    }

    pub(super) fn fail(&self, line: usize, key: &str, text: impl Into<String>) -> Mistake {
        Mistake { file: self.name.to_owned(), line, key: shorten(key), text: text.into() }
    }
}

/// One table.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    pub(super) source: &'a Source<'a>,
    /// What the file calls it: `host`, `path`; empty at the top.
    section: &'static str,
    /// Its header's line.
    pub(super) line: usize,
    entries: &'a DeTable<'a>,
}

type Read<T> = Result<Option<T>, Mistake>;

impl<'a> Table<'a> {
    /// A table of which only `known` keys may be there.
    pub(super) fn new(
        source: &'a Source<'a>,
        (section, line): (&'static str, usize),
        entries: &'a DeTable<'a>,
        known: &[&str],
    ) -> Result<Table<'a>, Mistake> {
        let table = Table { source, section, line, entries };
        for key in table.keys() {
            if !known.contains(&key) {
                let near = did_you_mean(key, known);
                let text = if near.is_empty() {
                    format!("no such key; there are {}", known.join(", "))
                } else {
                    format!("no such key{near}")
                };
                return Err(table.fail(key, text));
            }
        }
        Ok(table)
    }

    /// The keys in the file's order.
    pub(super) fn keys(&self) -> Vec<&'a str> {
        let mut keys: Vec<_> =
            self.entries.keys().map(|key| (key.span().start, key.get_ref().as_ref())).collect();
        keys.sort_unstable();
        keys.into_iter().map(|(_, key)| key).collect()
    }

    fn entry(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.entries.get(key)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    /// The line of a key, or of the table when the key is not there.
    pub(super) fn line_of(&self, key: &str) -> usize {
        self.entries
            .get_key_value(key)
            .map_or(self.line, |(key, _)| self.source.line(key.span().start))
    }

    pub(super) fn fail(&self, key: &str, text: impl Into<String>) -> Mistake {
        self.source.fail(self.line_of(key), key, text)
    }

    pub(super) fn notice(&self, key: &str, text: String) -> Notice {
        let (file, line) = (self.source.name.to_owned(), self.line_of(key));
        Notice { file, line, key: shorten(key), text }
    }

    /// A check's problem, at the line of its key.
    pub(super) fn checked(&self, check: Result<(), Problem>) -> Result<(), Mistake> {
        // The other spellings of what checks name.
        let others: &[&str] = match check.as_ref().map_err(|problem| problem.key) {
            Err("rate_in" | "rate_out") => &["rate"],
            Err("bs") => &["blocksize", "bssplit"],
            Err("bsrange") => &["blocksize_range"],
            _ => &[],
        };
        check.map_err(|problem| {
            let other = others.iter().copied().find(|other| self.has(other));
            let key =
                if self.has(problem.key) { problem.key } else { other.unwrap_or(problem.key) };
            self.fail(key, problem.text)
        })
    }

    pub(super) fn must<T>(&self, key: &str, value: Option<T>) -> Result<T, Mistake> {
        value.ok_or_else(|| self.source.fail(self.line, key, "is missing"))
    }

    /// The value as a word: strings as they are, numbers and booleans as written.
    pub(super) fn word(&self, key: &str) -> Read<String> {
        let Some(value) = self.entry(key) else { return Ok(None) };
        scalar(value.get_ref())
            .map(Some)
            .ok_or_else(|| self.fail(key, "must be a string or a number"))
    }

    fn with<T>(&self, key: &str, read: impl Fn(&str) -> Result<T, String>) -> Read<T> {
        let Some(word) = self.word(key)? else { return Ok(None) };
        if word.starts_with('-') {
            let word = shorten(&word);
            return Err(self.fail(key, format!("{word} is negative; it must be 0 or more")));
        }
        read(&word).map(Some).map_err(|text| self.fail(key, text))
    }

    pub(super) fn time(&self, key: &str) -> Read<u64> {
        self.with(key, units::time)
    }

    pub(super) fn rate(&self, key: &str) -> Read<u64> {
        self.with(key, units::rate)
    }

    pub(super) fn size(&self, key: &str) -> Read<u64> {
        self.with(key, units::size)
    }

    pub(super) fn mib_s(&self, key: &str) -> Read<u64> {
        self.with(key, units::mib_s)
    }

    /// Percent as tables print it, in millionths.
    pub(super) fn percent(&self, key: &str) -> Read<u64> {
        self.with(key, units::percent)
    }

    pub(super) fn number<T: FromStr>(&self, key: &str) -> Read<T> {
        self.with(key, |word| {
            word.parse().map_err(|_| {
                let word = shorten(word);
                let section = self.section;
                match range(section, key) {
                    Some((least, most)) => {
                        format!("{word} is no whole number from {least} to {most} (in {section})")
                    }
                    None => format!("{word} is no whole number in range (in {section})"),
                }
            })
        })
    }

    pub(super) fn parsed<T: FromStr<Err: Display>>(&self, key: &str) -> Read<T> {
        self.with(key, |word| word.parse().map_err(|error| format!("{}: {error}", shorten(word))))
    }

    /// One of some words.
    pub(super) fn choice<T: Copy>(&self, key: &str, known: &[(&str, T)]) -> Read<T> {
        self.with(key, |word| {
            let found = known.iter().find(|(name, _)| *name == word);
            found.map(|(_, value)| *value).ok_or_else(|| {
                let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
                format!("{} is none of {}", shorten(word), names.join(", "))
            })
        })
    }

    pub(super) fn flag(&self, key: &str) -> Read<bool> {
        match self.entry(key).map(Spanned::get_ref) {
            None => Ok(None),
            Some(DeValue::Boolean(flag)) => Ok(Some(*flag)),
            Some(_) => Err(self.fail(key, "must be true or false")),
        }
    }

    pub(super) fn numbers(&self, key: &str) -> Read<Vec<u32>> {
        let fail = || self.fail(key, "must be a list of whole numbers: [0, 0, 1, 1]");
        let array = match self.entry(key).map(Spanned::get_ref) {
            None => return Ok(None),
            Some(DeValue::Array(array)) => array,
            Some(_) => return Err(fail()),
        };
        let number = |value: &Spanned<DeValue<'_>>| scalar(value.get_ref())?.parse().ok();
        array.iter().map(number).collect::<Option<Vec<u32>>>().map(Some).ok_or_else(fail)
    }

    /// A table under a key: `[key]` or `key = { … }`.
    pub(super) fn table(&self, key: &'static str, known: &[&str]) -> Read<Table<'a>> {
        match self.entry(key) {
            None => Ok(None),
            Some(value) => match value.get_ref() {
                DeValue::Table(entries) => {
                    let place = (key, self.line_of(key));
                    Table::new(self.source, place, entries, known).map(Some)
                }
                _ => Err(self.fail(key, format!("must be a table of {}", known.join(", ")))),
            },
        }
    }

    /// A table of which the caller checks the keys.
    pub(super) fn any_table(&self, key: &'static str) -> Read<Table<'a>> {
        match self.entry(key).map(Spanned::get_ref) {
            None => Ok(None),
            Some(DeValue::Table(entries)) => {
                let line = self.line_of(key);
                Ok(Some(Table { source: self.source, section: key, line, entries }))
            }
            Some(_) => Err(self.fail(key, "must be a table: { fast = 4, slow = 1 }")),
        }
    }

    /// The tables `[[key]]`, at most `most`.
    pub(super) fn tables(
        &self,
        key: &'static str,
        known: &[&str],
        most: usize,
    ) -> Result<Vec<Table<'a>>, Mistake> {
        let Some(value) = self.entry(key) else { return Ok(Vec::new()) };
        let DeValue::Array(array) = value.get_ref() else {
            return Err(self.fail(key, format!("is written [[{key}]], once for each")));
        };
        if array.len() > most {
            return Err(self.fail(key, format!("there are {}; at most {most}", array.len())));
        }
        let table = |value: &'a Spanned<DeValue<'a>>| match value.get_ref() {
            DeValue::Table(entries) => {
                let place = (key, self.source.line(value.span().start));
                Table::new(self.source, place, entries, known)
            }
            _ => Err(self.fail(key, format!("is written [[{key}]], once for each"))),
        };
        array.iter().map(table).collect()
    }
}

/// What a key of a section may hold, for the sentence about a value that is no number at all or far
/// too large; others are told by the check of what they belong to.
fn range(section: &str, key: &str) -> Option<(u64, u64)> {
    let up_to = |most: u32| Some((1, u64::from(most)));
    match (section, key) {
        ("run", "runs") => up_to(limits::MAX_RUNS),
        ("host", "count") => up_to(limits::MAX_HOSTS),
        ("host", "workers") => up_to(limits::MAX_WORKERS),
        ("host" | "variant", "io_queues") => Some((0, u64::from(limits::MAX_WORKERS))),
        ("host", "queue_depth") => Some((2, u64::from(limits::MAX_QUEUE_DEPTH))),
        ("target", "servers") => Some((0, u64::from(limits::MAX_SERVERS))),
        ("path", "node") => Some((0, u64::from(limits::MAX_NODES) - 1)),
        // Keys of `weights` are what the file calls its paths.
        ("path", "weight") | ("weights", _) => Some((0, u64::from(MAX_RELATIVE_THROUGHPUT))),
        ("brownout", "percent") => Some((1, 100)),
        ("job", "poisson_iops") => Some((1, limits::MAX_POISSON_IOPS)),
        ("variant", "hst_threshold_multiplier") => Some((0, u64::from(u32::MAX))),
        ("published", "iops") => Some((0, u64::MAX)),
        _ => None,
    }
}

/// Strings, numbers and booleans as words.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => {
            i128::from_str_radix(number.as_str(), number.radix()).ok().map(|n| n.to_string())
        }
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(flag) => Some(if *flag { "1" } else { "0" }.to_owned()),
        _ => None,
    }
}

/// The first thing that is no TOML at all.
pub(super) fn syntax(source: &Source<'_>, error: &toml::de::Error) -> Mistake {
    let line = error.span().map_or(0, |span| source.line(span.start));
    source.fail(line, "", format!("this is no TOML: {}", error.message()))
}
