//! What a target is started with, from options or a file.

use super::{FileTable, find_port, namespace};
use crate::daemon::backing::{Backend, NamespaceSpec, check_file};
use crate::daemon::config::Source;
use crate::daemon::listen::socket_address;
use crate::failure::Failure;
use anabranch_proto::machine::Endpoint;
use anabranch_proto::nvme::{AnaState, Nqn};
use anabranch_target::config::{
    MAX_ANA_GROUP, MAX_NSID, MAX_PORTS, PortConfig, SubsystemConfig, TargetConfig,
};
use anabranch_target::{Shape, derived_serial};
use serde::de::{Error, IgnoredAny};
use serde::{Deserialize, Deserializer};
use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use toml::Spanned;

/// The subsystem's NQN when none is given.
const DEFAULT_NQN: &str = "nqn.2026-01.org.anabranch:target";
/// Where it listens when nothing is given.
const DEFAULT_LISTEN: &str = "127.0.0.1:4420";
/// What it offers when nothing is given.
const DEFAULT_NAMESPACE: &str = "mem:1GiB";

/// A whole target: also the schema of its configuration file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetSetup {
    /// Where it listens.
    #[serde(default, rename = "port")]
    pub ports: Vec<PortSpec>,
    /// What it offers.
    #[serde(default, rename = "subsystem")]
    pub subsystems: Vec<SubsystemSpec>,
    /// CPU that it is bound to.
    #[serde(skip)]
    pub cpus: Option<Vec<usize>>,
}

/// Where the tables of a file stand.
#[derive(Deserialize)]
struct Outline {
    #[serde(default, rename = "port")]
    ports: Vec<Spanned<IgnoredAny>>,
    #[serde(default, rename = "subsystem")]
    subsystems: Vec<Spanned<SubsystemOutline>>,
}

#[derive(Deserialize)]
struct SubsystemOutline {
    #[serde(default, rename = "namespace")]
    namespaces: Vec<Spanned<IgnoredAny>>,
}

/// A port.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortSpec {
    /// `ADDR:PORT`.
    pub listen: String,
    /// What the discovery log names instead: `ADDR` or `ADDR:PORT`.
    pub advertise: Option<String>,
    /// `KEY=V,…`; not shaped when `None`.
    pub shape: Option<String>,
    /// ANA state by group.
    #[serde(default)]
    pub ana: BTreeMap<String, String>,
}

/// A subsystem.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubsystemSpec {
    /// Its NQN.
    #[serde(default = "default_nqn")]
    pub nqn: String,
    /// Serial number; follows from the NQN when `None`.
    pub serial: Option<String>,
    /// Model number.
    #[serde(default = "default_model")]
    pub model: String,
    /// Hosts that may connect; all when empty, which a file has to leave out to mean it.
    #[serde(default, deserialize_with = "hosts")]
    pub allow_hosts: Vec<String>,
    /// Its namespaces.
    #[serde(default, rename = "namespace")]
    pub namespaces: Vec<NamespaceSpec>,
}

/// A list without hosts reads as if nobody might connect.
fn hosts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let hosts = Vec::deserialize(from)?;
    if hosts.is_empty() {
        let text = "is empty: name a host, or leave it out to let every host connect";
        return Err(D::Error::custom(text));
    }
    Ok(hosts)
}

fn default_nqn() -> String {
    DEFAULT_NQN.to_owned()
}

/// A serial number that no other subsystem has: hosts name disks by model and serial number
/// (`/dev/disk/by-id`). The same in every run, and of every instance that serves the subsystem.
fn serial_of(nqn: &Nqn) -> String {
    let digits = derived_serial(nqn);
    let digits = digits.iter().take(8).map(|byte| format!("{byte:02X}"));
    format!("AB{}", digits.collect::<String>())
}

fn default_model() -> String {
    "Anabranch target".to_owned()
}

impl TargetSetup {
    /// From a file.
    ///
    /// # Errors
    /// Names file, line and key.
    pub fn load(path: &Path) -> Result<TargetSetup, Failure> {
        let source = Source::read(path)?;
        let setup: TargetSetup = source.parse()?;
        setup.check(&source)?;
        Ok(setup)
    }

    /// What can be said without opening files, by file, line and key.
    fn check(&self, source: &Source) -> Result<(), Failure> {
        let outline: Outline = source.parse()?;
        for (table, missing) in
            [("port", self.ports.is_empty()), ("subsystem", self.subsystems.is_empty())]
        {
            if missing {
                return Err(source.wrong(None, &format!("at least one [[{table}]] is missing")));
            }
        }
        let spans = outline.ports.iter().map(Spanned::span);
        fits(source, "port", spans.map(|span| span.start), MAX_PORTS)?;
        for (place, (port, at)) in self.ports.iter().zip(&outline.ports).enumerate() {
            let wrong = |why: String| source.wrong_in(at.span().start, &why);
            let listen = port.config().map_err(wrong)?.listen;
            let before = self.ports[..place].iter().filter_map(|other| other.endpoint().ok());
            if is_one_place(&listen) && before.into_iter().any(|other| other == listen) {
                return Err(wrong(format!("listen '{}' stands here twice", port.listen)));
            }
        }
        let spans = outline.subsystems.iter().map(Spanned::span);
        fits(source, "subsystem", spans.map(|span| span.start), MAX_PORTS)?;
        let mut files = HashSet::new();
        for (place, (subsystem, at)) in self.subsystems.iter().zip(&outline.subsystems).enumerate()
        {
            let wrong = |why: String| source.wrong_in(at.span().start, &why);
            subsystem.names().map_err(wrong)?;
            if let Some(port) = self.ports.first() {
                subsystem.texts(port).map_err(wrong)?;
            }
            if self.subsystems[..place].iter().any(|other| other.nqn == subsystem.nqn) {
                let nqn = subsystem.nqn.escape_debug();
                return Err(wrong(format!("nqn '{nqn}' stands here twice")));
            }
            subsystem.check_namespaces(&at.get_ref().namespaces, source, &mut files)?;
        }
        Ok(())
    }

    /// From options, as given on the command line.
    ///
    /// # Errors
    /// Names the option and what would be right.
    pub fn from_options(run: &crate::cli::args::target::Run) -> Result<TargetSetup, Failure> {
        let or_default = |given: &[String], default: &str| -> Vec<String> {
            if given.is_empty() { vec![default.to_owned()] } else { given.to_vec() }
        };
        let mut ports: Vec<PortSpec> = or_default(&run.listen, DEFAULT_LISTEN)
            .into_iter()
            .map(|listen| PortSpec { listen, ..PortSpec::default() })
            .collect();
        if run.advertise.len() > 1 && run.advertise.len() != ports.len() {
            return Err(Failure::usage(format!(
                "--advertise is given {} times for {} ports: give it once, or once per port",
                run.advertise.len(),
                ports.len()
            )));
        }
        for (index, port) in ports.iter_mut().enumerate() {
            port.advertise = run.advertise.get(index).or(run.advertise.first()).cloned();
        }
        let listeners = ports.iter().map(PortSpec::endpoint).collect::<Result<Vec<_>, String>>();
        let listeners = listeners.map_err(Failure::Usage)?;
        for text in &run.shape {
            let (port, shape) = split_shape(text).map_err(Failure::Usage)?;
            let place = find_port(port, &listeners)
                .map_err(|why| Failure::usage(format!("--shape '{text}': {why}")))?;
            let before = ports[usize::from(place)].shape.replace(shape.to_owned());
            if let Some(before) = before {
                return Err(Failure::usage(format!(
                    "--shape '{text}': this port has '{before}' already: give all keys of a port \
                     in one --shape"
                )));
            }
        }
        let namespaces = or_default(&run.namespace, DEFAULT_NAMESPACE)
            .iter()
            .map(|text| {
                let spec: NamespaceSpec = text.parse()?;
                let wrong = |why| format!("namespace '{}': {why}", text.escape_debug());
                spec.check().map_err(wrong)?;
                Ok(spec)
            })
            .collect::<Result<Vec<NamespaceSpec>, String>>()
            .map_err(Failure::Usage)?;
        Ok(TargetSetup {
            ports,
            subsystems: vec![SubsystemSpec {
                allow_hosts: run.allow_host.clone(),
                namespaces,
                ..SubsystemSpec::named(run.nqn.as_deref().unwrap_or(DEFAULT_NQN))
            }],
            cpus: None,
        })
    }

    /// As the engine takes it; files are opened.
    ///
    /// # Errors
    /// Names the setting and what would be right.
    pub(in crate::daemon) fn config(&self, files: &FileTable) -> Result<TargetConfig, Failure> {
        let mut config = TargetConfig::default();
        for port in &self.ports {
            config.ports.push(port.config().map_err(Failure::Usage)?);
        }
        for subsystem in &self.subsystems {
            config.subsystems.push(subsystem.config(files)?);
        }
        config.check().map_err(|error| Failure::usage(error.to_string()))?;
        Ok(config)
    }
}

/// Whether there may be as many of a table as stand in the file, at these places.
fn fits(
    source: &Source,
    table: &str,
    mut places: impl Iterator<Item = usize>,
    most: usize,
) -> Result<(), Failure> {
    places.nth(most).map_or(Ok(()), |at| {
        Err(source
            .wrong(Some(at), &format!("there may be {most} of [[{table}]], this is one more")))
    })
}

/// Port 0 is another one each time.
fn is_one_place(at: &Endpoint) -> bool {
    !matches!(at, Endpoint::Tcp(address) if address.port() == 0)
}

/// `PORT:SHAPE`; the port may be an address with colons of its own.
fn split_shape(text: &str) -> Result<(&str, &str), String> {
    let keys = text.find('=').unwrap_or(text.len());
    match text[..keys].rfind(':') {
        Some(colon) => Ok((&text[..colon], &text[colon + 1..])),
        None => Err(format!("--shape '{text}' is not PORT:KEY=VALUE,…")),
    }
}

/// Where hosts are told to connect; port 0 is the one that it listens on.
fn advertised(text: &str) -> Result<SocketAddr, String> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, 0));
    }
    let address = text.parse::<SocketAddr>().ok().filter(|address| address.port() != 0);
    address.ok_or_else(|| {
        let text = text.escape_debug();
        format!("advertise '{text}' is neither ADDR nor ADDR:PORT with a port from 1 to 65535")
    })
}

impl PortSpec {
    fn endpoint(&self) -> Result<Endpoint, String> {
        let at = socket_address(&self.listen).and_then(|at| {
            at.ok_or_else(|| {
                let like = "such as 127.0.0.1:4420 or [::1]:4420";
                format!("is not ADDR:PORT with a port up to 65535, {like}")
            })
        });
        at.map(Endpoint::Tcp).map_err(|why| {
            let text = self.listen.escape_debug();
            format!("listen '{text}' {why}")
        })
    }

    fn config(&self) -> Result<PortConfig, String> {
        let mut port = PortConfig::new(self.endpoint()?);
        if let Some(text) = &self.advertise {
            port.advertise = Some(advertised(text)?);
        }
        if let Some(text) = &self.shape {
            let shape = text.parse::<Shape>();
            port.shape = shape.map_err(|why| format!("port {}: {why}", self.listen))?;
        }
        for (group, state) in &self.ana {
            let number = group.parse().ok().filter(|number| (1..=MAX_ANA_GROUP).contains(number));
            let group = number.ok_or_else(|| {
                let group = group.escape_debug();
                format!("ana: '{group}' is no group, which is a number from 1 to {MAX_ANA_GROUP}")
            })?;
            let state: AnaState =
                state.parse().map_err(|why| format!("ana of group {group}: {why}"))?;
            if port.ana.insert(group, state).is_some() {
                return Err(format!("ana: group {group} stands here twice"));
            }
        }
        Ok(port)
    }
}

impl SubsystemSpec {
    /// A subsystem without namespaces that every host may use.
    #[must_use]
    pub fn named(nqn: &str) -> SubsystemSpec {
        SubsystemSpec {
            nqn: nqn.to_owned(),
            serial: None,
            model: default_model(),
            allow_hosts: Vec::new(),
            namespaces: Vec::new(),
        }
    }

    /// What can be said of its namespaces without opening files. `files` are those of all.
    fn check_namespaces<'a>(
        &'a self,
        places: &[Spanned<IgnoredAny>],
        source: &Source,
        files: &mut HashSet<&'a Path>,
    ) -> Result<(), Failure> {
        let spans = places.iter().map(Spanned::span);
        fits(source, "subsystem.namespace", spans.map(|span| span.start), MAX_NSID as usize)?;
        for (number, (namespace, at)) in self.namespaces.iter().zip(places).enumerate() {
            let wrong = |why: String| source.wrong_in(at.span().start, &why);
            namespace.check().map_err(wrong)?;
            check_file(namespace).map_err(wrong)?;
            let before = &self.namespaces[..number];
            if let Some(nsid) = namespace.nsid
                && before.iter().any(|other| other.nsid == Some(nsid))
            {
                return Err(wrong(format!("nsid {nsid} stands here twice")));
            }
            if namespace.uuid.is_some() && before.iter().any(|other| other.uuid == namespace.uuid) {
                return Err(wrong("uuid stands here twice".to_owned()));
            }
            if let Backend::File(path) = &namespace.backend
                && !files.insert(path)
            {
                return Err(wrong(format!("backend {} stands here twice", path.display())));
            }
        }
        Ok(())
    }

    /// Its NQN, and those of the hosts that may connect.
    fn names(&self) -> Result<(Nqn, Vec<Nqn>), String> {
        let nqn =
            self.nqn.parse().map_err(|why| format!("nqn '{}': {why}", self.nqn.escape_debug()))?;
        let hosts = self.allow_hosts.iter().map(|host| {
            host.parse().map_err(|why| format!("allow_hosts: '{}': {why}", host.escape_debug()))
        });
        Ok((nqn, hosts.collect::<Result<Vec<Nqn>, String>>()?))
    }

    /// What the engine would refuse of its texts, whatever its namespaces are.
    fn texts(&self, port: &PortSpec) -> Result<(), String> {
        let alone = SubsystemSpec { namespaces: Vec::new(), ..self.clone() };
        let subsystems = vec![alone.config(&FileTable::new()).map_err(|why| why.to_string())?];
        let config =
            TargetConfig { subsystems, ports: vec![port.config()?], ..TargetConfig::default() };
        config.check().map_err(|error| error.to_string())
    }

    fn config(&self, files: &FileTable) -> Result<SubsystemConfig, Failure> {
        let (nqn, allowed_hosts) = self.names().map_err(Failure::Usage)?;
        let mut namespaces = Vec::new();
        let mut taken: Vec<u32> = self.namespaces.iter().filter_map(|spec| spec.nsid).collect();
        for spec in &self.namespaces {
            let nsid = match spec.nsid {
                Some(nsid) => nsid,
                None => {
                    let free = (1..=u32::MAX).find(|nsid| !taken.contains(nsid)).unwrap_or(0);
                    taken.push(free);
                    free
                }
            };
            namespaces.push(namespace(files, spec, &nqn, nsid)?);
        }
        Ok(SubsystemConfig {
            serial: self.serial.clone().unwrap_or_else(|| serial_of(&nqn)),
            nqn,
            model: self.model.clone(),
            namespaces,
            allowed_hosts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_subsystem_has_a_serial_number_of_its_own() {
        let files = FileTable::new();
        let config = |nqn| SubsystemSpec::named(nqn).config(&files).expect("a configuration");
        let (first, second) = (config("nqn.2026-01.org.test:a"), config("nqn.2026-01.org.test:b"));
        assert_ne!(first.serial, second.serial);
        assert_eq!(first.serial, config("nqn.2026-01.org.test:a").serial);
        assert_eq!(first.serial.len(), 18, "it has 20 bytes: {}", first.serial);
        let given = SubsystemSpec { serial: Some("S1".into()), ..SubsystemSpec::named("nqn.x:y") };
        assert_eq!(given.config(&files).map(|config| config.serial), Ok("S1".into()));
    }
}
