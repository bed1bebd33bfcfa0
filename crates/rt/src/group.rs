//! Several workers that know each other.

use crate::driver::Uring;
use crate::mailbox::Mailbox;
use crate::memory::{Pool, Regions};
use crate::stats::Counters;
use crate::topology::{CpuSet, Topology};
use crate::worker::{EventSink, Place, Post, Shared, Worker};
use crate::{Config, Error, Stats, clock, placement};
use anabranch_proto::machine::{FileId, Machine, WorkerId};
use rustix::event::{EventfdFlags, eventfd};
use std::any::Any;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Control requests that one worker may have waiting.
const MAX_VERBS: usize = 1024;
/// How long a worker waits at its end for the system to let go of its operations. A thread that
/// ends before that waits for the rest inside the system, however long it takes.
const REAP: Duration = Duration::from_secs(4);
/// How long [`Group::stop`] waits for all threads.
const JOIN: Duration = Duration::from_secs(5);

/// N workers, one thread and one io_uring each, with mailboxes between them.
///
/// Dropping a group stops it, as [`Group::stop`] does.
pub struct Group<M: Machine> {
    shared: Arc<Shared<M>>,
    config: Config,
    threads: Vec<Option<JoinHandle<()>>>,
    /// Locked only to make the group shareable; used at its end.
    ended: Mutex<Receiver<Ended>>,
    failure: Arc<Failure>,
}

/// A worker is done.
struct Ended {
    id: usize,
    /// The system has operations of it still: its thread may not end for as long as they last.
    held: bool,
}

/// The first failure of a worker.
struct Failure {
    first: Mutex<Option<(u16, String)>>,
    /// An eventfd; readable from the first failure on.
    told: OwnedFd,
}

impl Failure {
    fn new() -> io::Result<Failure> {
        Ok(Failure { first: Mutex::new(None), told: eventfd(0, EventfdFlags::CLOEXEC)? })
    }

    fn tell(&self, worker: u16, message: String) {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert((worker, message));
        drop(first);
        // Cannot block: nobody fails 2^64 times.
        let written = rustix::io::write(&self.told, &1u64.to_ne_bytes());
        debug_assert!(written.is_ok(), "an eventfd takes a failure");
    }
}

impl<M> Group<M>
where
    M: Machine + Send + 'static,
    M::Mail: Send,
    M::Verb: Send,
    M::Reply: Send,
    M::Event: Send,
{
    /// Starts one worker per engine; engine `i` is worker `i`. `events` is called on the workers'
    /// threads and must not block.
    ///
    /// # Errors
    /// A setting out of range, a CPU that is not allowed, io_uring refused (the text names the
    /// remedy), memory or threads refused. No worker is left behind.
    pub fn start(
        config: Config,
        engines: Vec<M>,
        events: EventSink<M::Event>,
    ) -> Result<Group<M>, Error> {
        config.check(engines.len())?;
        let cpus = placement::cpus(&config, engines.len(), &Topology::read(Path::new("/")))?;
        let regions = Regions::new(engines.len(), config.pool_bytes)
            .map_err(|source| Error::System { what: "map the buffer pools", source })?;
        let regions = Arc::new(regions);
        let places = engines.iter().map(|_| place(&config)).collect::<Result<Vec<_>, _>>()?;
        let shared = Arc::new(Shared { places, stop: AtomicBool::new(false), events });
        let failure = Failure::new()
            .map_err(|source| Error::System { what: "make an event descriptor", source })?;
        let failure = Arc::new(failure);
        let (ended, all_ended) = channel();
        let (ready, all_ready) = channel();
        let mut group = Group {
            shared: shared.clone(),
            config: config.clone(),
            threads: Vec::with_capacity(engines.len()),
            ended: Mutex::new(all_ended),
            failure: failure.clone(),
        };
        let count = engines.len();
        for (id, (engine, cpus)) in engines.into_iter().zip(cpus).enumerate() {
            let start = Start {
                id,
                cpus,
                regions: regions.clone(),
                shared: shared.clone(),
                config: config.clone(),
                failure: failure.clone(),
            };
            let (ready, ended) = (ready.clone(), ended.clone());
            let thread = std::thread::Builder::new()
                .name(format!("{}-{id}", config.name))
                .spawn(move || {
                    let held = start.run(engine, ready);
                    // The group may be gone already.
                    let _ = ended.send(Ended { id, held });
                })
                .map_err(|source| Error::System { what: "start a thread", source })?;
            group.threads.push(Some(thread));
        }
        drop(ready);
        for _ in 0..count {
            // On an error the group is dropped, which ends the workers that did start.
            all_ready.recv().map_err(|_| group.why_stopped())??;
        }
        Ok(group)
    }
}

impl<M: Machine> Group<M> {
    /// Asks a worker's engine, and waits for the answer. Not to be called on a worker's thread.
    ///
    /// # Errors
    /// No such worker, too many requests waiting, no answer in time (the engine may still carry
    /// the request out), worker stopped or failed.
    pub fn verb(
        &self,
        worker: WorkerId,
        verb: M::Verb,
        timeout: Duration,
    ) -> Result<M::Reply, Error> {
        let place = self.place(worker)?;
        if place.verbs.fetch_add(1, Ordering::AcqRel) >= MAX_VERBS {
            place.verbs.fetch_sub(1, Ordering::AcqRel);
            return Err(Error::Busy(MAX_VERBS));
        }
        let (reply, answer) = sync_channel(1);
        if place.mailbox.post(Post::Verb { verb, reply }).is_err() {
            return Err(self.why_stopped());
        }
        match answer.recv_timeout(timeout) {
            Ok(reply) => Ok(reply),
            Err(RecvTimeoutError::Timeout) => Err(Error::NoAnswer(timeout)),
            Err(RecvTimeoutError::Disconnected) => Err(self.why_stopped()),
        }
    }

    /// Makes a file usable by every worker of the group.
    pub fn register_file(&self, file: File) -> FileId {
        self.config.files.register(file)
    }

    /// The number of workers.
    pub fn workers(&self) -> usize {
        self.shared.places.len()
    }

    /// A worker's counters.
    ///
    /// # Errors
    /// No such worker.
    pub fn stats(&self, worker: WorkerId) -> Result<Stats, Error> {
        Ok(self.place(worker)?.counters.read())
    }

    /// Why the group has ended by itself, if it has.
    pub fn failure(&self) -> Option<Error> {
        let first = self.failure.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.clone().map(|(worker, message)| Error::Failed { worker, message })
    }

    /// Readable as soon as the group has ended by itself: [`Group::failure`] then says why. Whoever
    /// keeps a group has to watch this, as a group does not come back.
    pub fn failed_fd(&self) -> BorrowedFd<'_> {
        self.failure.told.as_fd()
    }

    /// Ends all workers: open connections are reset, listeners removed, threads joined.
    ///
    /// # Errors
    /// A worker had failed before, or threads did not end in time.
    pub fn stop(mut self) -> Result<(), Error> {
        let left = self.join();
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        if left > 0 { Err(Error::StopTimeout(left)) } else { Ok(()) }
    }

    fn place(&self, worker: WorkerId) -> Result<&Place<M>, Error> {
        self.shared.places.get(usize::from(worker.0)).ok_or(Error::NoWorker(worker.0))
    }

    fn why_stopped(&self) -> Error {
        self.failure().unwrap_or(Error::Stopped)
    }

    /// Stops and joins; returns how many threads had to be left behind.
    fn join(&mut self) -> usize {
        self.shared.stop_all();
        let until = Instant::now() + JOIN;
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut waiting = self.threads.iter().flatten().count();
        let mut left = 0;
        while waiting > 0 {
            let wait = until.saturating_duration_since(Instant::now());
            let Ok(Ended { id, held }) = ended.recv_timeout(wait) else { break };
            if let Some(thread) = self.threads.get_mut(id).and_then(Option::take) {
                waiting -= 1;
                if held {
                    // A file that hangs keeps it inside the system, and would keep us, too.
                    left += 1;
                } else {
                    // The thread's body catches panics and has just said that it is done.
                    let _ = thread.join();
                }
            }
        }
        self.threads.clear();
        left + waiting
    }
}

impl<M: Machine> Drop for Group<M> {
    fn drop(&mut self) {
        self.join();
    }
}

impl<M: Machine> std::fmt::Debug for Group<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("name", &self.config.name).finish_non_exhaustive()
    }
}

fn place<M: Machine>(config: &Config) -> Result<Place<M>, Error> {
    let mailbox = Mailbox::new(config.mailbox)
        .map_err(|source| Error::System { what: "make a mailbox", source })?;
    let counters = Arc::new(Counters::default());
    Ok(Place { mailbox, counters, verbs: AtomicUsize::new(0) })
}

/// What a worker's thread needs to begin.
struct Start<M: Machine> {
    id: usize,
    cpus: Option<CpuSet>,
    regions: Arc<Regions>,
    shared: Arc<Shared<M>>,
    config: Config,
    failure: Arc<Failure>,
}

impl<M: Machine> Start<M> {
    /// The thread's body; whether the system has operations of it still.
    fn run(self, engine: M, ready: Sender<Result<(), Error>>) -> bool {
        let shared = self.shared.clone();
        let place = &shared.places[self.id];
        let mut held = false;
        match self.prepare(engine) {
            Ok(mut worker) => {
                // Whoever waits for it has gone only if another worker failed to start. Kept, it
                // would have the group wait for ever for one that ends without a word.
                let _ = ready.send(Ok(()));
                drop(ready);
                let ran = catch_unwind(AssertUnwindSafe(|| worker.run()));
                match ran {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => self.failed(format!("io_uring_enter: {}", error.0)),
                    Err(panic) => self.failed(message(&*panic)),
                }
                let until = clock::now().after(REAP);
                let end = AssertUnwindSafe(|| worker.shutdown(until));
                held = match catch_unwind(end) {
                    Ok(operations) => operations > 0,
                    Err(panic) => {
                        self.failed(message(&*panic));
                        // Nobody has counted.
                        true
                    }
                };
                place.mailbox.close();
                drop(worker);
            }
            Err(error) => {
                let _ = ready.send(Err(error));
            }
        }
        place.mailbox.close();
        held
    }

    fn prepare(&self, engine: M) -> Result<Worker<M, Uring>, Error> {
        if let Some(cpus) = &self.cpus {
            let applied = cpus.apply();
            // Nobody has asked for it otherwise, and it goes on without.
            if self.config.pin || self.config.cpus.is_some() {
                applied.map_err(|source| Error::System { what: "bind to a CPU", source })?;
            }
        }
        let place = &self.shared.places[self.id];
        let (regions, counters) = (self.regions.clone(), place.counters.clone());
        let driver = Uring::new(&self.config, regions.clone(), counters, place.mailbox.wake_fd())?;
        let pool = Pool::new(regions, self.id as u16);
        Ok(Worker::new(self.id, engine, driver, pool, self.shared.clone(), &self.config))
    }

    /// A group without one of its workers cannot keep its promises: all end.
    fn failed(&self, message: String) {
        self.failure.tell(self.id as u16, message);
        self.shared.stop_all();
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "panic".to_owned()
    }
}
