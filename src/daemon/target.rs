//! A running target: from options or a file to workers, and what the control socket may ask of it.

mod setup;
mod status;
#[cfg(test)]
mod tests;

pub use setup::{PortSpec, SubsystemSpec, TargetSetup};
pub use status::{json as status_json, text as status_text};

use super::backing::{Backend, NamespaceSpec, Opened, check_length, open_file};
use super::control::Handler;
use super::crew;
use super::listen::socket_address;
use super::rpc::{Answer, Params, RpcError};
use crate::failure::Failure;
use crate::units::Bytes;
use anabranch_proto::machine::{Endpoint, FileId, WorkerId};
use anabranch_proto::nvme::{AnaState, Nqn};
use anabranch_rt::signal::Termination;
use anabranch_rt::{Config, Files, Group};
use anabranch_target::config::{BackendConfig, MAX_CNTLID, MAX_NSID, NamespaceConfig};
use anabranch_target::status::PortStatus;
use anabranch_target::{
    PortFault, Shape, Target, TargetError, TargetEvent, TargetReply, TargetStatus, TargetVerb,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a verb may take.
const VERB: Duration = Duration::from_secs(10);
/// How long whoever removes a namespace waits for what was begun on its file to end. The file is
/// let go later when it takes longer: how often that is looked at then.
const RELEASE: Duration = Duration::from_secs(1);
const RELEASE_PAUSE: Duration = Duration::from_millis(100);
/// How long all ports together may take until they listen.
const LISTEN: Duration = Duration::from_secs(5);

/// A running target.
#[derive(Debug)]
pub struct RunningTarget {
    group: Group<Target>,
    files: FileTable,
    nqns: Vec<Nqn>,
}

/// Files behind namespaces: the same file is never behind two. Without a namespace it stays open
/// only as long as something is done to it: a namespace that takes it meanwhile is to come after
/// that.
#[derive(Clone, Debug)]
pub(super) struct FileTable {
    files: Files,
    opened: Arc<Mutex<Vec<OpenFile>>>,
    /// A thread looks after files that are to be let go.
    lets_go: Arc<AtomicBool>,
}

#[derive(Debug)]
struct OpenFile {
    device: u64,
    inode: u64,
    id: FileId,
    /// The same open file, for changes of its length.
    file: File,
    user: Option<(Nqn, u32)>,
    /// Where it was made, when it was not there before.
    made: Option<PathBuf>,
    /// It was opened for a namespace that the engine has not taken yet.
    new: bool,
    /// Its namespace may be there or not: the engine has not said in time what it has done.
    unsure: bool,
}

impl FileTable {
    pub(super) fn new() -> FileTable {
        FileTable { files: Files::new(), opened: Arc::default(), lets_go: Arc::default() }
    }

    /// The back end of a namespace; its file is opened and marked as in use.
    pub(super) fn backend(
        &self,
        spec: &NamespaceSpec,
        subsystem: &Nqn,
        nsid: u32,
    ) -> Result<BackendConfig, Failure> {
        spec.check().map_err(Failure::Usage)?;
        let path = match &spec.backend {
            Backend::Memory(bytes) => return Ok(BackendConfig::Memory { bytes: *bytes }),
            Backend::File(path) => path,
        };
        let user = Some((subsystem.clone(), nsid));
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(found) = std::fs::symlink_metadata(path)
            && let Some(known) = opened
                .iter_mut()
                .find(|file| (file.device, file.inode) == (found.dev(), found.ino()))
        {
            if let Some((nqn, nsid)) = &known.user {
                let name = path.display();
                return Err(Failure::usage(format!(
                    "{name} is behind namespace {nsid} of {nqn} already"
                )));
            }
            // It was opened for another namespace: this one may ask for other things.
            let size = spec.size.map(|Bytes(size)| size);
            check_length(path, found.len(), size, spec.bs).map_err(Failure::Usage)?;
            known.user = user;
            return Ok(BackendConfig::File { file: known.id, bytes: found.len() });
        }
        let opening = open_file(path, spec.size.map(|Bytes(size)| size), spec.bs)?;
        let Opened { file, bytes, made } = opening;
        let twice = numbers(&file, path).and_then(|numbers| {
            let kept = file.try_clone();
            Ok((numbers, kept.map_err(|why| format!("cannot open {}: {why}", path.display()))?))
        });
        let twice = twice.map_err(Failure::Failed);
        let ((device, inode), kept) = twice.inspect_err(|_| {
            if made {
                let _ = std::fs::remove_file(path);
            }
        })?;
        let id = self.files.register(file);
        let made = made.then(|| path.clone());
        let (new, unsure) = (true, false);
        opened.push(OpenFile { device, inode, id, file: kept, user, made, new, unsure });
        Ok(BackendConfig::File { file: id, bytes })
    }

    /// The engine has taken the namespace: its file stays.
    fn taken(&self, backend: &BackendConfig) {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        for file in opened.iter_mut().filter(|file| file.is(backend)) {
            file.new = false;
        }
    }

    /// What becomes of the file of a namespace that the engine was asked to take. Without an answer
    /// it may be there, or may come to be, and hosts may write: its file stays.
    fn settle(&self, backend: &BackendConfig, error: Option<&RpcError>) {
        match error.map(|error| error.code) {
            Some(RpcError::INVALID_PARAMS | RpcError::CONFLICT | RpcError::BUSY) => {
                self.refused(backend);
            }
            code => {
                self.taken(backend);
                if let (Some(RpcError::TIMEOUT), BackendConfig::File { file, .. }) = (code, backend)
                {
                    self.doubt(&[*file]);
                }
            }
        }
    }

    /// The files behind a namespace: a former one's, too, that may not have gone.
    fn behind(&self, subsystem: &Nqn, nsid: u32) -> Vec<FileId> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let behind = opened.iter().filter(|file| file.is_behind(subsystem, nsid));
        behind.map(|file| file.id).collect()
    }

    /// The engine was asked to take or remove a namespace, and does so sooner or later.
    fn doubt(&self, files: &[FileId]) {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        for file in opened.iter_mut().filter(|file| files.contains(&file.id)) {
            file.unsure = true;
        }
    }

    /// Those of these files that may be behind no namespace.
    fn doubtful(&self, mut files: Vec<FileId>) -> Vec<FileId> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|id| opened.iter().any(|file| file.id == *id && file.unsure));
        files
    }

    fn all_taken(&self) {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.iter_mut().for_each(|file| file.new = false);
    }

    /// The engine has not taken the namespace, and has not seen its file: one that was opened for
    /// it is let go, and one that was made for it goes.
    fn refused(&self, backend: &BackendConfig) {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.retain_mut(|file| {
            if !file.is(backend) {
                return true;
            }
            file.user = None;
            if file.new {
                file.unmake();
                self.files.forget(file.id);
            }
            !file.new
        });
        drop(opened);
        if !self.close_idle() {
            self.look_after_idle();
        }
    }

    /// A namespace is gone: its file is let go, so that another target can have it, and the file
    /// system its room.
    fn release(&self, gone: &[FileId], within: Duration) {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        for file in opened.iter_mut().filter(|file| gone.contains(&file.id)) {
            (file.user, file.unsure) = (None, false);
        }
        drop(opened);
        let until = Instant::now() + within;
        while !self.close_idle() {
            if Instant::now() >= until {
                return self.look_after_idle();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Has the files that are behind no namespace closed as soon as nothing is done to them.
    fn look_after_idle(&self) {
        if self.lets_go.swap(true, Ordering::AcqRel) {
            return;
        }
        let files = self.clone();
        let work = move || files.go_on_letting_go();
        // Without a thread they are closed when the next namespace goes.
        if anabranch_rt::thread::spawn("let-go", crew::STACK_BYTES, work).is_err() {
            self.lets_go.store(false, Ordering::Release);
        }
    }

    fn go_on_letting_go(&self) {
        loop {
            std::thread::sleep(RELEASE_PAUSE);
            if !self.close_idle() {
                continue;
            }
            self.lets_go.store(false, Ordering::Release);
            // Whoever came in between has seen that somebody looks.
            if self.close_idle() || self.lets_go.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    }

    /// Closes the files that are behind no namespace, as far as nothing is done to them any more:
    /// the engine begins nothing there. Tells whether these are all.
    fn close_idle(&self) -> bool {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.retain(|file| {
            let idle = file.user.is_none() && !self.files.is_busy(file.id);
            if idle {
                self.files.forget(file.id);
            }
            !idle
        });
        opened.iter().all(|file| file.user.is_some())
    }

    /// Takes away the files that were made for a target that does not start: nobody has written to
    /// them, and the next attempt may want another size.
    fn unmake(&self) {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.iter().for_each(OpenFile::unmake);
    }

    /// Gives a namespace another size by `change`, and its file at least that length before: blocks
    /// that the file lacks cannot be read. A longer file keeps its length.
    fn resize<T>(
        &self,
        subsystem: &Nqn,
        nsid: u32,
        bytes: u64,
        change: impl FnOnce() -> Result<T, RpcError>,
    ) -> Result<T, RpcError> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = opened.iter().find(|file| file.is_behind(subsystem, nsid)) else {
            return change();
        };
        let failed = |why| {
            RpcError::failed(format!("cannot make the file of namespace {nsid} that long: {why}"))
        };
        let before = known.file.metadata().map_err(failed)?.len();
        if before < bytes {
            known.file.set_len(bytes).map_err(failed)?;
        }
        let changed = change();
        if before < bytes
            && matches!(&changed, Err(error) if error.code == RpcError::INVALID_PARAMS)
        {
            // Nobody was told of the new blocks.
            let _ = known.file.set_len(before);
        }
        changed
    }
}

impl OpenFile {
    fn is(&self, backend: &BackendConfig) -> bool {
        matches!(backend, BackendConfig::File { file, .. } if *file == self.id)
    }

    fn is_behind(&self, subsystem: &Nqn, nsid: u32) -> bool {
        self.user.as_ref().is_some_and(|user| user.0 == *subsystem && user.1 == nsid)
    }

    /// Takes the file away if it was made by us and still stands where it was made.
    fn unmake(&self) {
        let Some(path) = &self.made else { return };
        let found = std::fs::symlink_metadata(path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode)) {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn numbers(file: &File, path: &Path) -> Result<(u64, u64), String> {
    let found =
        file.metadata().map_err(|why| format!("cannot inspect {}: {why}", path.display()))?;
    Ok((found.dev(), found.ino()))
}

/// Where a start begins to number controllers: elsewhere than the one before it. Linux takes no
/// path whose number another path to the subsystem has, also when that one is only being connected
/// again and has its number from the target as it was before.
fn first_cntlid(seed: u64) -> u16 {
    u16::try_from(seed % u64::from(MAX_CNTLID)).unwrap_or(0) + 1
}

/// A namespace as the engine takes it.
fn namespace(
    files: &FileTable,
    spec: &NamespaceSpec,
    subsystem: &Nqn,
    nsid: u32,
) -> Result<NamespaceConfig, Failure> {
    let backend = files.backend(spec, subsystem, nsid)?;
    let ids = spec.identifiers(subsystem, nsid);
    let (uuid, nguid) = ids.inspect_err(|_| files.refused(&backend)).map_err(Failure::Usage)?;
    Ok(NamespaceConfig {
        nsid,
        backend,
        block_bytes: spec.bs,
        uuid: Some(uuid),
        nguid: Some(nguid),
        ana_group: spec.anagrp,
    })
}

impl RunningTarget {
    /// Starts it and waits until every port listens.
    ///
    /// # Errors
    /// A setting that makes no sense, a file that cannot be had, an address in use.
    pub fn start(
        setup: &TargetSetup,
        log: impl Fn(TargetEvent) + Send + Sync + 'static,
    ) -> Result<RunningTarget, Failure> {
        let files = FileTable::new();
        let visited = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&visited);
        let log = move |event| {
            if matches!(event, TargetEvent::ControllerUp { .. }) {
                seen.store(true, Ordering::SeqCst);
            }
            log(event);
        };
        let (group, nqns) = Self::launch(setup, &files, log).inspect_err(|_| files.unmake())?;
        let target = RunningTarget { group, files, nqns };
        if let Err(failure) = target.await_ports() {
            let RunningTarget { group, files, .. } = target;
            // A host that was let in through a port that did listen may have written already.
            if group.stop().is_ok() && !visited.load(Ordering::SeqCst) {
                files.unmake();
            }
            return Err(failure);
        }
        target.files.all_taken();
        Ok(target)
    }

    fn launch(
        setup: &TargetSetup,
        files: &FileTable,
        log: impl Fn(TargetEvent) + Send + Sync + 'static,
    ) -> Result<(Group<Target>, Vec<Nqn>), Failure> {
        let mut config = setup.config(files)?;
        let nqns = config.subsystems.iter().map(|subsystem| subsystem.nqn.clone()).collect();
        let seed = super::identity::random_seed()?;
        config.first_cntlid = Some(first_cntlid(seed));
        let engine =
            Target::new(config, seed).map_err(|error| Failure::usage(error.to_string()))?;
        let runtime = Config {
            files: files.files.clone(),
            cpus: setup.cpus.clone(),
            pin: setup.cpus.is_some(),
            pool_bytes: super::memory::of_each(1),
            starved: Some(super::ending::starved),
            ..Config::named("target")
        };
        let group = Group::start(runtime, vec![engine], Box::new(move |_, event| log(event)))
            .map_err(|error| Failure::failed(format!("cannot start the target: {error}")))?;
        Ok((group, nqns))
    }

    fn await_ports(&self) -> Result<(), Failure> {
        self.await_listeners(|_| true).map_err(|error| Failure::failed(error.message))
    }

    /// Waits until the ports that `wanted` picks listen; one that was cut meanwhile shall not.
    fn await_listeners(&self, wanted: impl Fn(&PortStatus) -> bool) -> Result<(), RpcError> {
        let until = Instant::now() + LISTEN;
        loop {
            let status = self.status()?;
            let mut waits = false;
            let shall = |port: &&PortStatus| wanted(port) && port.fault != PortFault::Cut;
            for port in status.ports.iter().filter(shall) {
                if let Some(error) = port.error {
                    let text = format!("cannot listen on {}: {error}", port.at);
                    return Err(RpcError::failed(text));
                }
                waits |= !port.listening;
            }
            if !waits {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(RpcError::failed("the target's ports do not listen after 5 s"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn ask(&self, verb: TargetVerb) -> Result<TargetReply, RpcError> {
        match self.group.verb(WorkerId(0), verb, VERB) {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error @ (TargetError::Disk(_) | TargetError::NoMemory))) => {
                Err(RpcError::failed(error.to_string()))
            }
            Ok(Err(error @ TargetError::NamespaceExists { .. })) => {
                Err(RpcError::new(RpcError::CONFLICT, error.to_string()))
            }
            Ok(Err(TargetError::NoSuchNamespace { nsid })) => Err(RpcError::invalid(format!(
                "there is no namespace {nsid}: 'anabranch target ctl status' shows those that exist"
            ))),
            Ok(Err(error)) => Err(RpcError::invalid(error.to_string())),
            Err(error @ anabranch_rt::Error::NoAnswer(_)) => {
                Err(RpcError::new(RpcError::TIMEOUT, error.to_string()))
            }
            Err(error @ anabranch_rt::Error::Busy(_)) => {
                Err(RpcError::new(RpcError::BUSY, error.to_string()))
            }
            Err(error) => Err(RpcError::failed(error.to_string())),
        }
    }

    fn done(&self, verb: TargetVerb) -> Result<Value, RpcError> {
        self.ask(verb).map(|_| json!({}))
    }

    /// Everything there is to see.
    ///
    /// # Errors
    /// The engine does not answer.
    pub fn status(&self) -> Result<TargetStatus, RpcError> {
        match self.ask(TargetVerb::Status)? {
            TargetReply::Status(status) => Ok(*status),
            TargetReply::Done => Err(RpcError::failed("the target did not tell its status")),
        }
    }

    /// The addresses that ports listen on, in order.
    ///
    /// # Errors
    /// The engine does not answer.
    pub fn listeners(&self) -> Result<Vec<Endpoint>, RpcError> {
        Ok(self.status()?.ports.into_iter().map(|port| port.at).collect())
    }

    /// The addresses that the discovery log names, in the order of the ports.
    ///
    /// # Errors
    /// The engine does not answer.
    pub fn advertised(&self) -> Result<Vec<Option<SocketAddr>>, RpcError> {
        Ok(self.status()?.ports.into_iter().map(|port| port.advertised).collect())
    }

    /// The NQNs of its I/O subsystems.
    #[must_use]
    pub fn nqns(&self) -> &[Nqn] {
        &self.nqns
    }

    /// Resets a port's connections and refuses new ones.
    ///
    /// # Errors
    /// There is no such port.
    pub fn cut(&self, port: u16) -> Result<(), RpcError> {
        self.ask(TargetVerb::Cut { port }).map(|_| ())
    }

    /// Ends a cut or a stall, and waits until the port listens.
    ///
    /// # Errors
    /// There is no such port, or its address was taken meanwhile.
    pub fn restore(&self, port: u16) -> Result<(), RpcError> {
        self.ask(TargetVerb::Restore { port })?;
        self.await_listeners(|status| status.port == port).map_err(|error| RpcError {
            message: format!("{}: mend that, then restore it again", error.message),
            ..error
        })
    }

    /// Waits until a signal asks for an end.
    ///
    /// # Errors
    /// Its worker failed.
    pub fn wait(&self, termination: &Termination) -> Result<(), Failure> {
        super::ending::wait(termination, &self.group)
    }

    /// Ends the threads.
    ///
    /// # Errors
    /// A worker had failed, or does not end.
    pub fn stop(self) -> Result<(), Failure> {
        self.group.stop().map_err(|error| Failure::failed(error.to_string()))
    }

    fn port(&self, text: &str) -> Result<u16, RpcError> {
        find_port(text, &self.listeners()?).map_err(RpcError::invalid)
    }

    /// The subsystem that is meant: the only one, or the one that is named.
    fn subsystem(&self, nqn: Option<&str>) -> Result<Nqn, RpcError> {
        match (nqn, &self.nqns[..]) {
            (None, [only]) => Ok(only.clone()),
            (None, all) => {
                let text = format!("there are {} subsystems: name one with --nqn", all.len());
                Err(RpcError::invalid(text))
            }
            (Some(nqn), all) => {
                all.iter().find(|known| known.as_str() == nqn).cloned().ok_or_else(|| {
                    let known: Vec<&str> = all.iter().map(Nqn::as_str).collect();
                    let (nqn, known) = (nqn.escape_debug(), known.join(", "));
                    let are = if all.len() == 1 { "the only one is" } else { "there are" };
                    RpcError::invalid(format!("there is no subsystem '{nqn}': {are} {known}"))
                })
            }
        }
    }
}

/// A port by its TCP port number, its address or its place in the list, from 1.
///
/// # Errors
/// One sentence that lists the ports.
pub fn find_port(text: &str, listeners: &[Endpoint]) -> Result<u16, String> {
    let tcp = |at: &Endpoint| match at {
        Endpoint::Tcp(address) => Some(*address),
        Endpoint::Unix(_) => None,
    };
    let number = text.parse::<u16>().ok();
    let place = number
        .filter(|number| *number != 0)
        .and_then(|number| {
            listeners.iter().position(|at| tcp(at).is_some_and(|tcp| tcp.port() == number))
        })
        .or_else(|| {
            let named = socket_address(text).ok().flatten()?;
            listeners.iter().position(|at| tcp(at) == Some(named))
        })
        .or_else(|| {
            number.and_then(|n| usize::from(n).checked_sub(1)).filter(|n| *n < listeners.len())
        });
    place.and_then(|place| u16::try_from(place).ok()).ok_or_else(|| {
        let known: Vec<String> = listeners
            .iter()
            .enumerate()
            .map(|(place, at)| format!("{} ({at})", place + 1))
            .collect();
        let (text, known) = (text.escape_debug(), known.join(", "));
        let are = if listeners.len() == 1 { "the only one is" } else { "there are" };
        format!("there is no port '{text}': {are} {known}")
    })
}

/// How a request names a port: also with the number that `status` has for it.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a port: its place from 1, its TCP port, or its address as text")]
enum PortName {
    Number(u16),
    Text(String),
}

impl PortName {
    fn text(self) -> String {
        match self {
            PortName::Number(number) => number.to_string(),
            PortName::Text(text) => text,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OnePort {
    port: PortName,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnaParams {
    port: PortName,
    group: u32,
    state: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShapeParams {
    port: PortName,
    shape: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NsAdd {
    namespace: NamespaceSpec,
    nqn: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NsChange {
    nsid: u32,
    nqn: Option<String>,
    size: Option<Bytes>,
    group: Option<u32>,
    lba: Option<u64>,
}

impl RunningTarget {
    fn add_namespace(&self, params: NsAdd) -> Result<Value, RpcError> {
        let subsystem = self.subsystem(params.nqn.as_deref())?;
        let status = self.status()?;
        let taken: Vec<u32> = status
            .subsystems
            .iter()
            .filter(|known| known.nqn == subsystem)
            .flat_map(|known| known.namespaces.iter().map(|namespace| namespace.nsid))
            .collect();
        let nsid = match params.namespace.nsid {
            Some(nsid) if taken.contains(&nsid) => {
                return Err(RpcError::new(RpcError::CONFLICT, format!("namespace {nsid} exists")));
            }
            Some(nsid) => nsid,
            None => (1..=MAX_NSID)
                .find(|nsid| !taken.contains(nsid))
                .ok_or_else(|| RpcError::new(RpcError::CONFLICT, "every namespace is taken"))?,
        };
        let config = namespace(&self.files, &params.namespace, &subsystem, nsid).map_err(
            |why| match why {
                Failure::Usage(text) => RpcError::invalid(text),
                Failure::Failed(text) => RpcError::failed(text),
            },
        )?;
        let backend = config.backend.clone();
        let added = self.ask(TargetVerb::NamespaceAdd { subsystem, config });
        self.files.settle(&backend, added.as_ref().err());
        added.map(|_| json!({ "nsid": nsid }))
    }

    fn remove_namespace(&self, subsystem: Nqn, nsid: u32) -> Result<Value, RpcError> {
        // Not those of a namespace that somebody adds in its place meanwhile.
        let mut files = self.files.behind(&subsystem, nsid);
        let removed = self.ask(TargetVerb::NamespaceRemove { subsystem, nsid });
        if let Err(error) = removed {
            if error.code == RpcError::TIMEOUT {
                self.files.doubt(&files);
            }
            // It may have gone after we stopped waiting for an earlier answer.
            files = match error.code {
                RpcError::INVALID_PARAMS => self.files.doubtful(files),
                _ => Vec::new(),
            };
            if files.is_empty() {
                return Err(error);
            }
        }
        self.files.release(&files, RELEASE);
        Ok(json!({}))
    }

    fn change_namespace(&self, method: &str, params: Params<'_>) -> Result<Value, RpcError> {
        let NsChange { nsid, nqn, size, group, lba } = params.read()?;
        let subsystem = self.subsystem(nqn.as_deref())?;
        match (method, size, group, lba) {
            ("ns_rm", None, None, None) => self.remove_namespace(subsystem, nsid),
            ("ns_resize", Some(Bytes(bytes)), None, None) => {
                let of = subsystem.clone();
                self.files.resize(&of, nsid, bytes, || {
                    self.done(TargetVerb::NamespaceResize { subsystem, nsid, bytes })
                })
            }
            ("ns_group", None, Some(group), None) => {
                self.done(TargetVerb::NamespaceGroup { subsystem, nsid, group })
            }
            ("ns_corrupt", None, None, Some(lba)) => {
                self.done(TargetVerb::Corrupt { subsystem, nsid, lba })
            }
            _ => Err(RpcError::invalid(format!("params: {method} takes other fields"))),
        }
    }
}

impl Handler for RunningTarget {
    fn call(&self, method: &str, params: Params<'_>) -> Result<Answer, RpcError> {
        self.carry_out(method, params).and_then(|value| Answer::of(&value))
    }
}

impl RunningTarget {
    fn carry_out(&self, method: &str, params: Params<'_>) -> Result<Value, RpcError> {
        match method {
            "status" => {
                params.none()?;
                Ok(status_json(&self.status()?))
            }
            "ana" => {
                let AnaParams { port, group, state } = params.read()?;
                let port = self.port(&port.text())?;
                let state: AnaState =
                    state.parse().map_err(|error| RpcError::invalid(format!("state: {error}")))?;
                self.done(TargetVerb::Ana { port, group, state })
            }
            "shape" => {
                let ShapeParams { port, shape } = params.read()?;
                let port = self.port(&port.text())?;
                let shape: Shape =
                    shape.parse().map_err(|error| RpcError::invalid(format!("{error}")))?;
                self.done(TargetVerb::Shape { port, shape })
            }
            "cut" | "stall" | "restore" => {
                let OnePort { port } = params.read()?;
                let port = self.port(&port.text())?;
                match method {
                    "cut" => self.done(TargetVerb::Cut { port }),
                    "stall" => self.done(TargetVerb::Stall { port }),
                    _ => self.restore(port).map(|()| json!({})),
                }
            }
            "ns_add" => self.add_namespace(params.read()?),
            "ns_rm" | "ns_resize" | "ns_group" | "ns_corrupt" => {
                self.change_namespace(method, params)
            }
            _ => Err(RpcError::no_method(method)),
        }
    }
}
