//! Files behind namespaces: who has which, and when they are let go.

#[cfg(test)]
mod tests;

use crate::daemon::backing::{Backend, NamespaceSpec, Opened, check_length, open_file};
use crate::daemon::crew;
use crate::daemon::rpc::RpcError;
use crate::failure::Failure;
use crate::units::Bytes;
use anabranch_proto::machine::FileId;
use anabranch_proto::nvme::Nqn;
use anabranch_rt::Files;
use anabranch_target::config::BackendConfig;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long whoever removes a namespace waits for what was begun on its file to end. The file is
/// let go later when it takes longer: how often that is looked at then.
pub(super) const RELEASE: Duration = Duration::from_secs(1);
const RELEASE_PAUSE: Duration = Duration::from_millis(100);

/// Files behind namespaces: the same file is never behind two. Without a namespace it stays open
/// only as long as something is done to it: a namespace that takes it meanwhile is to come after
/// that.
///
/// No lock is held while the system or the engine is asked: on a file that hangs, nobody waits but
/// who works on it.
#[derive(Clone, Debug)]
pub(in crate::daemon) struct FileTable {
    files: Files,
    opened: Arc<Mutex<Vec<OpenFile>>>,
    /// What is worked on.
    claims: Arc<Mutex<Vec<Claimed>>>,
    /// A thread looks after files that are to be let go.
    lets_go: Arc<AtomicBool>,
}

#[derive(Debug)]
struct OpenFile {
    device: u64,
    inode: u64,
    id: FileId,
    /// The same open file, for changes of its length.
    file: Arc<File>,
    user: Option<(Nqn, u32)>,
    /// Where it was made, when it was not there before.
    made: Option<PathBuf>,
    /// It was opened for a namespace that the engine has not taken yet.
    new: bool,
    /// Its namespace may be there or not: the engine has not said in time what it has done.
    unsure: bool,
}

/// A namespace, and the file that is to be opened for it.
#[derive(Clone, Debug, PartialEq)]
struct Claimed {
    namespace: (Nqn, u32),
    path: Option<PathBuf>,
}

/// As long as this is there, nobody else adds, resizes or removes the namespace, or opens the file.
#[derive(Debug)]
pub(super) struct Claim {
    claims: Arc<Mutex<Vec<Claimed>>>,
    claimed: Claimed,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        claims.retain(|other| *other != self.claimed);
    }
}

impl FileTable {
    pub(super) fn new() -> FileTable {
        FileTable {
            files: Files::new(),
            opened: Arc::default(),
            claims: Arc::default(),
            lets_go: Arc::default(),
        }
    }

    /// A namespace to work on, and a file to open for it.
    pub(super) fn claim(
        &self,
        subsystem: &Nqn,
        nsid: u32,
        spec: Option<&NamespaceSpec>,
    ) -> Result<Claim, RpcError> {
        let path = spec.and_then(|spec| match &spec.backend {
            Backend::File(path) => Some(path.clone()),
            Backend::Memory(_) => None,
        });
        let claimed = Claimed { namespace: (subsystem.clone(), nsid), path };
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        for other in claims.iter() {
            let busy = if other.namespace == claimed.namespace {
                format!("namespace {nsid}")
            } else if let (true, Some(path)) = (other.path == claimed.path, &claimed.path) {
                path.display().to_string()
            } else {
                continue;
            };
            let text = format!("{busy} is being worked on: try again when that has ended");
            return Err(RpcError::new(RpcError::BUSY, text));
        }
        claims.push(claimed.clone());
        Ok(Claim { claims: Arc::clone(&self.claims), claimed })
    }

    /// For the driver.
    pub(super) fn files(&self) -> &Files {
        &self.files
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
        let found = std::fs::symlink_metadata(path);
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(found) = found
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
        drop(opened);
        let opening = open_file(path, spec.size.map(|Bytes(size)| size), spec.bs)?;
        let Opened { file, bytes, made } = opening;
        let (device, inode) = numbers(&file, path).map_err(Failure::Failed)?;
        let kept = file.try_clone().map_err(|why| {
            if made {
                let _ = std::fs::remove_file(path);
            }
            Failure::failed(format!("cannot open {}: {why}", path.display()))
        })?;
        let id = self.files.register(file);
        let made = made.then(|| path.clone());
        let (new, unsure, kept) = (true, false, Arc::new(kept));
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
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
    pub(super) fn settle(&self, backend: &BackendConfig, error: Option<&RpcError>) {
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
    pub(super) fn behind(&self, subsystem: &Nqn, nsid: u32) -> Vec<FileId> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let behind = opened.iter().filter(|file| file.is_behind(subsystem, nsid));
        behind.map(|file| file.id).collect()
    }

    /// The engine was asked to take or remove a namespace, and does so sooner or later.
    pub(super) fn doubt(&self, files: &[FileId]) {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        for file in opened.iter_mut().filter(|file| files.contains(&file.id)) {
            file.unsure = true;
        }
    }

    /// Those of these files that may be behind no namespace.
    pub(super) fn doubtful(&self, mut files: Vec<FileId>) -> Vec<FileId> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|id| opened.iter().any(|file| file.id == *id && file.unsure));
        files
    }

    pub(super) fn all_taken(&self) {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.iter_mut().for_each(|file| file.new = false);
    }

    /// The engine has not taken the namespace, and has not seen its file: one that was opened for
    /// it is let go, and one that was made for it goes.
    pub(super) fn refused(&self, backend: &BackendConfig) {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.iter_mut().filter(|file| file.is(backend)).for_each(|file| file.user = None);
        let gone = opened.extract_if(.., |file| file.is(backend) && file.new);
        let gone: Vec<OpenFile> = gone.collect();
        drop(opened);
        for file in gone {
            file.unmake();
            self.files.forget(file.id);
        }
        if !self.close_idle() {
            self.look_after_idle();
        }
    }

    /// A namespace is gone: its file is let go, so that another target can have it, and the file
    /// system its room.
    pub(super) fn release(&self, gone: &[FileId], within: Duration) {
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
        let is_idle = |file: &mut OpenFile| file.user.is_none() && !self.files.is_busy(file.id);
        let idle: Vec<OpenFile> = opened.extract_if(.., is_idle).collect();
        let all = opened.iter().all(|file| file.user.is_some());
        drop(opened);
        idle.iter().for_each(|file| self.files.forget(file.id));
        all
    }

    /// Takes away the files that were made for a target that does not start: nobody has written to
    /// them, and the next attempt may want another size.
    pub(super) fn unmake(&self) {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.iter().for_each(OpenFile::unmake);
    }

    /// Gives a namespace another size by `change`, and its file at least that length before: blocks
    /// that the file lacks cannot be read. A longer file keeps its length. One that is shorter than
    /// the namespace, whose `size` in bytes is asked for, has lost blocks: they must not come back
    /// as zeroes, so it is not made longer.
    pub(super) fn resize<T>(
        &self,
        subsystem: &Nqn,
        nsid: u32,
        bytes: u64,
        size: impl FnOnce() -> Result<Option<u64>, RpcError>,
        change: impl FnOnce() -> Result<T, RpcError>,
    ) -> Result<T, RpcError> {
        let _claim = self.claim(subsystem, nsid, None)?;
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let known = opened.iter().find(|file| file.is_behind(subsystem, nsid));
        let known = known.map(|known| Arc::clone(&known.file));
        drop(opened);
        let Some(file) = known else { return change() };
        let failed = |why| {
            RpcError::failed(format!("cannot make the file of namespace {nsid} that long: {why}"))
        };
        let Some(size) = size()? else { return change() };
        let before = file.metadata().map_err(failed)?.len();
        if before < size && before < bytes {
            return Err(RpcError::failed(format!(
                "the file of namespace {nsid} has become shorter than its {size} bytes, and what \
                 is lost would read as zeroes: resize it to {before} bytes or less, which are \
                 left, or remove the namespace and add it again"
            )));
        }
        if before < bytes {
            file.set_len(bytes).map_err(failed)?;
        }
        let changed = change();
        if before < bytes
            && matches!(&changed, Err(error) if error.code == RpcError::INVALID_PARAMS)
        {
            // Nobody was told of the new blocks.
            let _ = file.set_len(before);
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

/// Which file it is. One that was there before may have been taken away until it was locked, by
/// whoever had made it for a namespace that was refused.
fn numbers(file: &File, path: &Path) -> Result<(u64, u64), String> {
    let name = path.display();
    let of = |found: std::io::Result<Metadata>| found.map(|it| (it.dev(), it.ino()));
    let numbers = of(file.metadata()).map_err(|why| format!("cannot inspect {name}: {why}"))?;
    match of(std::fs::symlink_metadata(path)) {
        Ok(there) if there == numbers => Ok(numbers),
        _ => Err(format!("{name} was taken away while it was opened")),
    }
}
