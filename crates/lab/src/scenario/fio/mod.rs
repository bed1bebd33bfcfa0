//! fio's job files, taken as they are.
//!
//! What an option means is what fio 3.33 makes of it. What fio refuses is refused, and what it
//! would do but the lab cannot is refused as well, with a sentence, never dropped in silence.
//! Options that do not matter here are taken with a [notice](JobFile::notices).
//!
//! * `[global]` holds for the sections behind it, several add up; `;` and `#` begin a comment
//!   anywhere in a line; an option given twice counts the second time.
//! * `name` gives a section's job another name; in `[global]` it does nothing.
//! * `include`, `${VARIABLES}` and `$keywords` are refused.
//! * `kb_base` is 1024. `runtime` and `ramp_time` are seconds unless they say otherwise,
//!   `thinktime` and `cpuchunks` microseconds.

mod blocks;
mod units;
mod words;

pub(super) use words::{Made, OPTIONS, Words};

use super::job::{Burner, Job};
use super::limits::{MAX_FILE_BYTES, MAX_JOBS};
use super::mistake::{Mistake, read_text, shorten};
use crate::shown::Shown;
use std::fmt;
use std::path::Path;

/// What a job file asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFile {
    /// Jobs that do I/O, in the file's order. All run at the same time.
    pub jobs: Vec<Job>,
    /// The line of each one's section, counted from 1.
    pub lines: Vec<usize>,
    /// Sections with `ioengine=cpuio`.
    pub burners: Vec<Burner>,
    /// The longest `runtime`; a scenario's own window counts, this is for the record.
    pub runtime_ns: Option<u64>,
    /// The longest `ramp_time`, likewise.
    pub ramp_ns: Option<u64>,
    /// What was taken but does something else than in fio.
    pub notices: Vec<Notice>,
}

/// Something that a reader of the file should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The file, as the caller named it.
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    /// The option.
    pub key: String,
    /// What becomes of it.
    pub text: String,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}: {}",
            Shown(&self.file),
            self.line,
            Shown(&self.key),
            Shown(&self.text)
        )
    }
}

/// Reads a job file.
///
/// # Errors
/// It cannot be read, is too large, or the first mistake in it.
pub fn read(path: &Path) -> Result<JobFile, Mistake> {
    parse(&read_text(path)?, &path.display().to_string())
}

/// Reads the text of a job file; `file` is its name for messages.
///
/// # Errors
/// The first mistake.
pub fn parse(text: &str, file: &str) -> Result<JobFile, Mistake> {
    let mut parser = Parser { file, out: JobFile::default(), global: Words::default(), at: None };
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(parser.fail(0, "", format!("has more than {MAX_FILE_BYTES} bytes")));
    }
    for (index, line) in text.lines().enumerate() {
        parser.line(index + 1, line)?;
    }
    parser.end_section()?;
    if parser.out.jobs.is_empty() {
        let text = "has no job that does I/O; add a section: [disk] and rw=randread".to_owned();
        return Err(parser.fail(0, "", text));
    }
    Ok(parser.out)
}

struct Parser<'a> {
    file: &'a str,
    out: JobFile,
    global: Words,
    /// The section that is being read.
    at: Option<Section>,
}

struct Section {
    line: usize,
    /// `None`: `[global]`.
    job: Option<(String, Words)>,
}

impl Parser<'_> {
    fn fail(&self, line: usize, key: &str, text: String) -> Mistake {
        Mistake { file: self.file.to_owned(), line, key: shorten(key), text }
    }

    fn notice(&self, line: usize, key: &str, text: String) -> Notice {
        Notice { file: self.file.to_owned(), line, key: shorten(key), text }
    }

    fn line(&mut self, number: usize, line: &str) -> Result<(), Mistake> {
        let line = line.split([';', '#']).next().unwrap_or("").trim();
        if line.is_empty() {
            return Ok(());
        }
        if let Some(rest) = line.strip_prefix('[') {
            return self.section(number, rest);
        }
        if line.split_whitespace().next() == Some("include") {
            let text = "other files are not read; put their lines here".to_owned();
            return Err(self.fail(number, "include", text));
        }
        let (key, value) = match line.split_once('=') {
            Some((key, value)) => (key.trim_end(), Some(value)),
            None => (line, None),
        };
        self.option(number, key, value)
    }

    fn option(&mut self, number: usize, key: &str, value: Option<&str>) -> Result<(), Mistake> {
        // As a mail of 2026 writes it, and as the command line would take it.
        let (known, notice) = match key {
            "ramp-time" => ("ramp_time", Some("fio 3.33 only takes ramp_time, which is meant")),
            _ => (key, None),
        };
        if let Some(text) = notice {
            let notice = self.notice(number, key, text.to_owned());
            self.out.notices.push(notice);
        }
        let words = match &mut self.at {
            Some(Section { job: Some((_, words)), .. }) => words,
            Some(Section { job: None, .. }) => &mut self.global,
            None => {
                let text = "stands before the first section; put [global] above it".to_owned();
                return Err(self.fail(number, key, text));
            }
        };
        match words.set(known, value) {
            Ok(Some(text)) => {
                let notice = self.notice(number, key, text);
                self.out.notices.push(notice);
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(text) => Err(self.fail(number, key, text)),
        }
    }

    fn section(&mut self, number: usize, rest: &str) -> Result<(), Mistake> {
        self.end_section()?;
        let name = match rest.split_once(']') {
            Some((name, "")) if !name.trim().is_empty() => name,
            _ => {
                let text = format!("[{} is no section; write [name]", shorten(rest));
                return Err(self.fail(number, "", text));
            }
        };
        // fio compares six letters, and lets no section have the name of all.
        let job = (!name.starts_with("global")).then(|| {
            let mut words = self.global.clone();
            words.name = None;
            (name.to_owned(), words)
        });
        self.at = Some(Section { line: number, job });
        Ok(())
    }

    fn end_section(&mut self) -> Result<(), Mistake> {
        let Some(Section { line, job: Some((name, words)) }) = self.at.take() else {
            return Ok(());
        };
        if self.out.jobs.len() + self.out.burners.len() == MAX_JOBS {
            return Err(self.fail(line, "", format!("has more than {MAX_JOBS} sections")));
        }
        let out = &mut self.out;
        out.runtime_ns = out.runtime_ns.max(words.runtime_ns);
        out.ramp_ns = out.ramp_ns.max(words.ramp_ns);
        let ends = !words.time_based;
        let (made, notice) = words
            .make(&name)
            .map_err(|(key, text)| self.fail(line, key, format!("[{}] {text}", shorten(&name))))?;
        let section = format!("[{}]", shorten(&name));
        if let Some(text) = notice {
            let notice = self.notice(line, &section, text);
            self.out.notices.push(notice);
        }
        match made {
            Made::Burner(burner) => self.out.burners.push(burner),
            Made::Job(job) => {
                if ends {
                    let text = "the job goes on to the end of the window, as with time_based";
                    let notice = self.notice(line, &section, text.to_owned());
                    self.out.notices.push(notice);
                }
                self.out.jobs.push(*job);
                self.out.lines.push(line);
            }
        }
        Ok(())
    }
}
