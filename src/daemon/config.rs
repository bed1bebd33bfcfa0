//! Configuration files of `serve`, as checked structures: every error names file, line and key.

mod attributes;

pub use attributes::Attributes;

use super::path::{IO_PORT, PathSpec};
use super::wording;
use crate::failure::Failure;
use crate::units::Span;
use anabranch_export::nbd::{Access, Export, MAX_EXPORTS, NbdError};
use anabranch_host::config::{MAX_CONTROLLERS, SubsystemSettings, check_subsystem};
use anabranch_policy::Policy;
use anabranch_proto::machine::Endpoint;
use anabranch_proto::nvme::ids::Uuid;
use anabranch_proto::nvme::nqn::Nqn;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServeConfig {
    /// Host NQN.
    pub hostnqn: Option<String>,
    /// Host identifier.
    pub hostid: Option<String>,
    /// Data workers; one per CPU that they may use when not given.
    pub workers: Option<i64>,
    /// CPUs that workers run on.
    pub cpus: Option<Vec<usize>>,
    /// Bind each worker to one CPU.
    #[serde(default)]
    pub pin: bool,
    /// How long a worker spins before it sleeps.
    pub spin: Option<Span>,
    /// All workers submit through one queue pair per path.
    #[serde(default)]
    pub shared_queue: bool,
    /// Default I/O policy: what subsystems have at first that have none of their own.
    #[serde(default, deserialize_with = "policy")]
    pub iopolicy: Option<Policy>,
    /// Choices exactly as the kernel makes them.
    #[serde(default)]
    pub kernel_exact: bool,
    /// What happens to writes whose outcome is unknown; only `fast` is there.
    #[serde(default, deserialize_with = "fence")]
    pub fence: Fence,
    /// How long an orderly end may take.
    pub shutdown_timeout: Option<Span>,
    /// Where the attributes stand as files: an empty directory.
    pub attr_fs: Option<PathBuf>,
    /// Where metrics are served, `ADDR:PORT`.
    pub metrics: Option<String>,
    /// What to connect to.
    #[serde(default, rename = "subsystem")]
    pub subsystems: Vec<SubsystemConfig>,
    /// What to offer.
    #[serde(default, rename = "export")]
    pub exports: Vec<Spanned<ExportConfig>>,
}

/// What happens to writes whose outcome is unknown after a path failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fence {
    /// They are sent again at once, as Linux does.
    #[default]
    Fast,
}

/// A subsystem.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubsystemConfig {
    /// Its NQN.
    pub nqn: Spanned<String>,
    /// Its I/O policy at first.
    #[serde(default, deserialize_with = "policy")]
    pub iopolicy: Option<Policy>,
    /// What it and its devices have at first.
    #[serde(default)]
    pub attributes: Attributes,
    /// The paths to it.
    #[serde(default, rename = "path")]
    pub paths: Vec<Spanned<PathSpec>>,
}

/// An export.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportConfig {
    /// The head, such as `nvme0n1`, or its `wwid`; it may come later.
    pub device: String,
    /// Its name; the device's when not given.
    pub name: Option<String>,
    /// A sentence for people.
    #[serde(default)]
    pub description: String,
    /// Its clients may not change the device.
    #[serde(default)]
    pub read_only: bool,
    /// NBD on a Unix socket at this path, or on TCP at `ADDR:PORT`. Several may name the same.
    pub nbd: String,
    /// The mode of that Unix socket, octal; what one of its exports says holds for all.
    #[serde(default, deserialize_with = "octal")]
    pub mode: Option<String>,
    /// Its group, by name or number; likewise.
    pub group: Option<String>,
}

impl ExportConfig {
    /// As the NBD server takes it.
    #[must_use]
    pub fn offered(&self) -> Export {
        Export {
            name: self.name.clone().unwrap_or_else(|| self.device.clone()),
            description: self.description.clone(),
            device: self.device.clone(),
            read_only: self.read_only,
            ..Export::default()
        }
    }
}

/// What the exports of one socket say of who may connect to it: the value, and how it is written.
#[derive(Default)]
struct Said<'a> {
    mode: Option<(u16, &'a str)>,
    group: Option<(u32, &'a str)>,
}

impl<'a> Said<'a> {
    /// What one more says.
    fn add(&mut self, export: &'a ExportConfig, at: &Endpoint) -> Result<(), String> {
        let (mode, group) = (export.mode.as_deref(), export.group.as_deref());
        let access = super::export::access(at, mode, group)?;
        agree("mode", at, &mut self.mode, access.mode.zip(mode))?;
        agree("group", at, &mut self.group, access.group.zip(group))
    }

    fn access(&self) -> Access {
        Access { mode: self.mode.map(|(mode, _)| mode), group: self.group.map(|(group, _)| group) }
    }
}

/// Takes what one export says beside what others have said.
fn agree<'a, T: Copy + PartialEq>(
    key: &str,
    at: &Endpoint,
    there: &mut Option<(T, &'a str)>,
    said: Option<(T, &'a str)>,
) -> Result<(), String> {
    match (*there, said) {
        (Some((value, text)), Some((other, said))) if value != other => Err(format!(
            "{key} '{}': another export of {at} has '{}', say it once or alike",
            said.escape_debug(),
            text.escape_debug()
        )),
        (before, said) => {
            *there = before.or(said);
            Ok(())
        }
    }
}

fn policy<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Policy>, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

/// TOML's own octal numbers (`0o660`) and plain ones look alike once they are read.
fn octal<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    struct Text;
    impl serde::de::Visitor<'_> for Text {
        type Value = String;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("octal digits in quotes, such as \"0660\"")
        }
        fn visit_str<E>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }
    }
    from.deserialize_str(Text).map(Some)
}

fn fence<'de, D: Deserializer<'de>>(from: D) -> Result<Fence, D::Error> {
    let text = String::deserialize(from)?;
    match text.as_str() {
        "fast" => Ok(Fence::Fast),
        "strict" => Err(serde::de::Error::custom(
            "fence = \"strict\" is not there yet, so it is refused rather than ignored: writes \
             whose outcome is unknown are sent again at once; write fence = \"fast\" to accept \
             that",
        )),
        _ => Err(serde::de::Error::custom(format!(
            "unknown fence '{}': \"fast\" is the only one there is",
            text.escape_debug()
        ))),
    }
}

/// The longest time for which a worker looks for work before it sleeps.
const MAX_SPIN: Duration = Duration::from_millis(10);

/// What a message shows at most of a file's own text, in characters.
const MAX_KEY_CHARS: usize = 60;
const MAX_MESSAGE_CHARS: usize = 600;

/// The largest configuration file in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A configuration file that was read, for messages that name lines.
#[derive(Clone, Debug)]
pub struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read or is too long.
    pub fn read(path: &Path) -> Result<Source, Failure> {
        let failed = |error: std::io::Error| {
            Failure::usage(format!("cannot read the configuration {}: {error}", path.display()))
        };
        // Its length says nothing where it is a device or a pipe.
        let mut file = std::fs::File::open(path).map_err(failed)?.take(MAX_FILE_BYTES + 1);
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            let text = format!(
                "the configuration {} is longer than the {MAX_FILE_BYTES} bytes that are read",
                path.display()
            );
            return Err(Failure::Usage(text));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let text = error.as_bytes();
            let line =
                text[..error.utf8_error().valid_up_to()].split(|byte| *byte == b'\n').count();
            let path = path.display();
            Failure::usage(format!("{path}, line {line}: is not text (UTF-8)"))
        })?;
        Ok(Source::new(path, text))
    }

    /// Takes text that stands for a file.
    #[must_use]
    pub fn new(path: &Path, text: String) -> Source {
        Source { path: path.to_owned(), text }
    }

    /// Parses it.
    ///
    /// # Errors
    /// Names file, line and key.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        toml::from_str(&self.text).map_err(|error| {
            let at = error.span().map(|span| span.start);
            let meant =
                |at| self.misplaced_table(at, error.message()).or_else(|| self.without_quotes(at));
            match at.and_then(meant) {
                Some(meant) => self.wrong(at, &meant),
                None => self.wrong(at, &wording::plain(error.message(), "a table")),
            }
        })
    }

    /// What to say of a table that stands in single brackets though there may be several of it, or
    /// without the one that it belongs to.
    fn misplaced_table(&self, at: usize, message: &str) -> Option<String> {
        let begin = self.text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
        let header = self.text[begin..].lines().next()?.trim();
        let name = header.strip_prefix('[')?.split(']').next()?;
        if message != "invalid type: map, expected a sequence" {
            return None;
        }
        // `[subsystem.attributes]` is one table; what there may be several of is the subsystem.
        let single = !name.starts_with('[') && name != "subsystem.attributes";
        let within = name.trim_start_matches('[').trim().split_once('.');
        Some(match within {
            _ if single => format!("there may be several of these: write [[{name}]]"),
            Some((of, _)) => {
                let of = wording::shortened(of.trim(), MAX_KEY_CHARS);
                format!("this belongs to a [[{of}]], which must stand before it")
            }
            None => return None,
        })
    }

    /// What to say of a text that stands without quotes: the parser looks for a number there.
    fn without_quotes(&self, at: usize) -> Option<String> {
        let begin = self.text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
        let (key, value) = self.text[begin..].lines().next()?.split_once('=')?;
        let (key, value) = (key.trim(), value.split('#').next()?.trim());
        let of_text = |c: char| c.is_alphanumeric() || ".:/-_%".contains(c);
        let is_key = key.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        let is_text = !value.is_empty() && value.chars().all(of_text);
        // What is right as it is has another mistake.
        if !is_key || !is_text || DeTable::parse(&format!("x = {value}")).is_ok() {
            return None;
        }
        let value = wording::shortened(value, MAX_KEY_CHARS);
        Some(format!("text stands in quotes: {key} = \"{value}\""))
    }

    /// An error about what stands at byte `at`.
    #[must_use]
    pub fn wrong(&self, at: Option<usize>, message: &str) -> Failure {
        let message = wording::shortened(message.trim_end(), MAX_MESSAGE_CHARS);
        let Some(at) = at.filter(|at| *at <= self.text.len() && self.text.is_char_boundary(*at))
        else {
            return Failure::usage(format!("{}: {message}", self.path.display()));
        };
        let line = self.text.lines().nth(self.line(at) - 1).unwrap_or("");
        let key = line.split_once('=').map_or(line, |(key, _)| key);
        self.wrong_key(at, key.trim(), &message)
    }

    fn wrong_key(&self, at: usize, key: &str, message: &str) -> Failure {
        let (file, line) = (self.path.display(), self.line(at));
        if key.is_empty() {
            return Failure::usage(format!("{file}, line {line}: {message}"));
        }
        let key = wording::shortened(key, MAX_KEY_CHARS);
        Failure::usage(format!("{file}, line {line} ({key}): {message}"))
    }

    /// The line of a byte, from 1.
    fn line(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }

    /// An error about a key of the table whose header or brace stands at byte `at`: about the first
    /// of its keys that the message names, or the table.
    #[must_use]
    pub fn wrong_in(&self, at: usize, message: &str) -> Failure {
        let words = message.split(|c: char| c.is_whitespace() || matches!(c, ':' | ',' | '('));
        let file = DeTable::parse(&self.text).ok();
        let table = file.as_ref().and_then(|file| table_at(file.get_ref(), at));
        let key = table.and_then(|table| words.into_iter().find_map(|word| key_of(table, word)));
        match key {
            Some(key) => self.wrong_key(key.span().start, key.get_ref(), message),
            None => self.wrong(Some(at), message),
        }
    }

    /// An error about a key of the file's own table.
    fn wrong_at(&self, key: &str, message: &str) -> Failure {
        let file = DeTable::parse(&self.text).ok();
        match file.as_ref().and_then(|file| key_of(file.get_ref(), key)) {
            Some(found) => self.wrong_key(found.span().start, key, message),
            None => self.wrong(None, &format!("{key} {message}")),
        }
    }
}

/// The table below this one whose header or brace stands at byte `at`.
fn table_at<'a>(within: &'a DeTable<'a>, at: usize) -> Option<&'a DeTable<'a>> {
    within.values().find_map(|value| value_at(value, at))
}

fn value_at<'a>(value: &'a Spanned<DeValue<'a>>, at: usize) -> Option<&'a DeTable<'a>> {
    match value.get_ref() {
        DeValue::Table(table) if value.span().start == at => Some(table),
        DeValue::Table(table) => table_at(table, at),
        DeValue::Array(values) => values.iter().find_map(|value| value_at(value, at)),
        _ => None,
    }
}

/// The key of a table that is called so, in one of its spellings. What stands under headers of its
/// own is told by itself.
fn key_of<'a>(table: &'a DeTable<'a>, word: &str) -> Option<&'a Spanned<Cow<'a, str>>> {
    let plain = |text: &str| text.replace('-', "_");
    let tables = |value: &DeValue<'_>| match value {
        DeValue::Array(values) => values.iter().any(|value| value.get_ref().is_table()),
        _ => false,
    };
    let found = table.iter().find(|(key, _)| plain(key.get_ref()) == plain(word));
    found.filter(|(_, value)| !tables(value.get_ref())).map(|(key, _)| key)
}

/// Whether a head is, or may come to be, called so: by its name, or as its `wwid` says.
pub(super) fn may_be_a_head(device: &str) -> bool {
    let wide = ["uuid.", "eui.", "nvme."].into_iter().find_map(|kind| device.strip_prefix(kind));
    if let Some(wide) = wide {
        return wide.contains(|digit: char| digit.is_ascii_hexdigit())
            && wide.chars().all(|digit| digit.is_ascii_hexdigit() || digit == '-');
    }
    let number = |text: &str| text.parse::<u32>().is_ok_and(|number| number.to_string() == text);
    let numbers = device.strip_prefix("nvme").and_then(|rest| rest.split_once('n'));
    numbers.is_some_and(|(subsystem, head)| number(subsystem) && number(head) && head != "0")
}

impl ServeConfig {
    /// What single subsystems have at first, by NQN.
    ///
    /// # Errors
    /// Names file, line and key.
    pub fn settings(&self, source: &Source) -> Result<Vec<(Nqn, SubsystemSettings)>, Failure> {
        let of = |subsystem: &SubsystemConfig| {
            let nqn = subsystem.nqn.get_ref();
            let parsed = Nqn::as_named(nqn).map_err(|why| {
                let message = format!("nqn '{}': {why}", nqn.escape_debug());
                source.wrong(Some(subsystem.nqn.span().start), &message)
            })?;
            let mut settings = SubsystemSettings::new(subsystem.iopolicy, self.kernel_exact);
            let applied = subsystem.attributes.apply(&mut settings);
            applied.map_err(|(name, why)| {
                let why = wording::shortened(&why, MAX_MESSAGE_CHARS);
                let key = name.get_ref().escape_debug().to_string();
                source.wrong_key(name.span().start, &key, &why)
            })?;
            Ok((parsed, settings))
        };
        self.subsystems.iter().map(of).collect()
    }

    /// Reads and parses a file.
    ///
    /// # Errors
    /// Names file, line and key.
    pub fn load(path: &Path) -> Result<(ServeConfig, Source), Failure> {
        let source = Source::read(path)?;
        let config: ServeConfig = source.parse()?;
        config.check(&source)?;
        Ok((config, source))
    }

    /// What is no mistake on another machine.
    ///
    /// # Errors
    /// Names file, line and key.
    pub fn check_machine(&self, source: &Source) -> Result<(), Failure> {
        let cpus = self.cpus.as_deref().unwrap_or_default();
        super::host::check_cpus(cpus).map_err(|why| source.wrong_at("cpus", &why))?;
        self.access(source).map(|_| ())
    }

    /// Who may connect to where exports are offered: what one of them says holds for all that
    /// share it.
    ///
    /// # Errors
    /// There is no such group, or they do not agree: names file, line and key.
    pub fn access(&self, source: &Source) -> Result<HashMap<Endpoint, Access>, Failure> {
        let mut sockets: HashMap<Endpoint, Said<'_>> = HashMap::new();
        for entry in &self.exports {
            let (export, start) = (entry.get_ref(), entry.span().start);
            let wrong = |why: String| source.wrong_in(start, &why);
            let at = super::export::listen_endpoint(&export.nbd).map_err(wrong)?;
            sockets.entry(at.clone()).or_default().add(export, &at).map_err(wrong)?;
        }
        Ok(sockets.into_iter().map(|(at, said)| (at, said.access())).collect())
    }

    /// What a structure cannot check by itself.
    fn check(&self, source: &Source) -> Result<(), Failure> {
        let wrong = |key: &str, message: &str| Err(source.wrong_at(key, message));
        if let Some(workers) = self.workers.filter(|workers| !(1..=128).contains(workers)) {
            return wrong("workers", &format!("is {workers}, must lie between 1 and 128"));
        }
        if let Some(cpus) = &self.cpus {
            if cpus.is_empty() {
                return wrong("cpus", "is empty: name at least one CPU, or leave it out");
            }
            let mut seen = HashSet::new();
            if let Some(twice) = cpus.iter().find(|cpu| !seen.insert(*cpu)) {
                return wrong("cpus", &format!("names CPU {twice} twice"));
            }
        }
        if let Some(spin) = self.spin.filter(|spin| spin.0 > MAX_SPIN) {
            let asked = spin.0.as_secs_f64();
            let message = format!(
                "is {asked} s, must not exceed 10ms: a worker would hardly ever sleep; write a \
                 unit, as in spin = \"20us\""
            );
            return wrong("spin", &message);
        }
        if self.attr_fs.as_ref().is_some_and(|dir| dir.as_os_str().is_empty()) {
            return wrong("attr_fs", "is empty: name a directory, or leave it out");
        }
        if let Some(text) = self.metrics.as_deref()
            && let Err(why) = super::metrics::address(text)
        {
            return wrong("metrics", &format!("'{}': {why}", text.escape_debug()));
        }
        if let Some(Err(why)) = self.hostnqn.as_deref().map(str::parse::<Nqn>) {
            return wrong("hostnqn", &why.to_string());
        }
        match self.hostid.as_deref().map(str::parse::<Uuid>) {
            Some(Err(why)) => return wrong("hostid", &why.to_string()),
            Some(Ok(hostid)) if hostid.is_zero() => return wrong("hostid", "must not be all zero"),
            _ => {}
        }
        self.check_subsystems(source)?;
        self.check_paths(source)?;
        self.check_exports(source)
    }

    fn check_subsystems(&self, source: &Source) -> Result<(), Failure> {
        let settings = self.settings(source)?;
        for (subsystem, (nqn, own)) in self.subsystems.iter().zip(&settings) {
            let wrong = |message: &str| source.wrong(Some(subsystem.nqn.span().start), message);
            let mut same = settings.iter().filter(|(other, _)| other == nqn);
            if let Some((_, other)) = same.find(|(_, other)| other != own) {
                let differ = if other.policy == own.policy { "attributes" } else { "policies" };
                return Err(wrong(&format!(
                    "this subsystem stands here twice, with different {differ}"
                )));
            }
            check_subsystem(nqn).map_err(|why| wrong(&format!("nqn: {why}")))?;
            if subsystem.paths.is_empty() {
                return Err(wrong("a subsystem needs at least one [[subsystem.path]]"));
            }
            for path in &subsystem.paths {
                let named = path.get_ref().named(subsystem.nqn.get_ref(), true);
                named.map_err(|why| source.wrong_in(path.span().start, &why))?;
            }
        }
        Ok(())
    }

    /// No path stands there twice, and there are no more than a host may have.
    fn check_paths(&self, source: &Source) -> Result<(), Failure> {
        let (mut seen, mut count) = (HashSet::new(), 0);
        for subsystem in &self.subsystems {
            for path in &subsystem.paths {
                let (spec, at) = (path.get_ref(), path.span().start);
                if count == MAX_CONTROLLERS {
                    let message = format!(
                        "there may be {MAX_CONTROLLERS} of [[subsystem.path]], this is one more"
                    );
                    return Err(source.wrong(Some(at), &message));
                }
                count += 1;
                let port = spec.trsvcid.map_or(IO_PORT, |service| service.0);
                let from = (spec.own_address(), spec.host_iface.as_ref());
                if !seen.insert((subsystem.nqn.get_ref(), spec.plain_traddr(), port, from)) {
                    let message = "traddr: this path stands here twice";
                    return Err(source.wrong_in(at, message));
                }
            }
        }
        Ok(())
    }

    fn check_exports(&self, source: &Source) -> Result<(), Failure> {
        let mut names = HashSet::new();
        for (place, entry) in self.exports.iter().enumerate() {
            let (export, at) = (entry.get_ref(), entry.span().start);
            if place == MAX_EXPORTS {
                let message = format!("there may be {MAX_EXPORTS} of [[export]], this is one more");
                return Err(source.wrong(Some(at), &message));
            }
            if !may_be_a_head(&export.device) {
                let device = export.device.escape_debug();
                let message = format!(
                    "export of '{device}': a device is called nvmeXnY, such as nvme0n1, \
                             or as its attribute wwid says, such as uuid.6b3c1c3e-…"
                );
                return Err(source.wrong_in(at, &message));
            }
            let (mode, group) = (export.mode.as_deref(), export.group.as_deref());
            super::export::listen_endpoint(&export.nbd)
                .and_then(|to| super::export::socket_mode(&to, mode, group))
                .map_err(|why| source.wrong_in(at, &why))?;
            let offered = export.offered();
            offered.check().map_err(|why| source.wrong_in(at, &why.to_string()))?;
            if !names.insert(offered.name.clone()) {
                let error = NbdError::Exists(offered.name);
                return Err(source.wrong_in(at, &error.to_string()));
            }
        }
        Ok(())
    }
}
