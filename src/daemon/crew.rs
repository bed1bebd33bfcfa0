//! Threads for clients, one for each while it is served.
//!
//! Some stand ready from the beginning, so that people can ask what is going on also where there is
//! no memory for another thread. Whoever comes beyond them gets one that ends with the client.

use crate::failure::Failure;
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Of each thread; it is touched only as far as it is used.
pub(super) const STACK_BYTES: usize = 256 << 10;

/// Threads that serve clients. Those that serve nobody end with it.
pub(super) struct Crew<C> {
    name: &'static str,
    serve: fn(C),
    clients: SyncSender<C>,
    waiting: Waiting<C>,
}

/// The clients that no thread has taken yet, and how many threads wait beyond them.
struct Waiting<C> {
    clients: Arc<Mutex<Receiver<C>>>,
    idle: Arc<AtomicUsize>,
}

impl<C: Send + 'static> Crew<C> {
    /// `standing` threads are started, or as many of them as the system gives: the others when
    /// they are needed. Whoever hands clients over keeps them at `most` at once.
    pub(super) fn start(
        name: &'static str,
        (standing, most): (usize, usize),
        serve: fn(C),
    ) -> Crew<C> {
        let (sender, receiver) = sync_channel(most);
        let clients = Arc::new(Mutex::new(receiver));
        let waiting = Waiting { clients, idle: Arc::default() };
        for _ in 0..standing.min(most) {
            let one = waiting.clone();
            let stand = move || {
                while one.serve_one(serve) {
                    one.idle.fetch_add(1, Ordering::AcqRel);
                }
            };
            if begin(name, stand).is_ok() {
                waiting.idle.fetch_add(1, Ordering::AcqRel);
            }
        }
        Crew { name, serve, clients: sender, waiting }
    }

    /// Has a client served.
    ///
    /// # Errors
    /// There is no thread for it: the client, and why.
    pub(super) fn serve(&self, client: C) -> Result<(), (C, io::Error)> {
        let one_less = |idle: usize| idle.checked_sub(1);
        let idle = &self.waiting.idle;
        if idle.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).is_err() {
            let (waiting, serve) = (self.waiting.clone(), self.serve);
            let once = move || {
                waiting.serve_one(serve);
            };
            if let Err(error) = anabranch_rt::thread::spawn(self.name, STACK_BYTES, once) {
                return Err((client, error));
            }
        }
        // There is room, and a thread that takes it: both ends are here.
        let _ = self.clients.try_send(client);
        Ok(())
    }
}

/// Why there is no server: it has no thread.
pub(super) fn none_for(what: &str, why: &io::Error) -> Failure {
    Failure::failed(format!("the system gives no thread for {what}: {why}"))
}

/// Waits until somebody comes, or the socket is shut down. To accept takes a descriptor before it
/// waits: where there is none left that would fail again and again, with nobody there.
pub(super) fn await_client(listener: &impl AsFd) {
    // Whatever is wrong with it, accepting says it better.
    let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], None);
}

/// Starts a thread and waits until it runs: then it has all the memory that a thread maps.
///
/// # Errors
/// The system gives none.
pub(super) fn begin(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let (up, is_up) = sync_channel(1);
    let builder = Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
    let begun = builder.spawn(move || {
        let _ = up.send(());
        work();
    })?;
    let _ = is_up.recv();
    Ok(begun)
}

impl<C> Clone for Waiting<C> {
    fn clone(&self) -> Waiting<C> {
        Waiting { clients: Arc::clone(&self.clients), idle: Arc::clone(&self.idle) }
    }
}

impl<C> Waiting<C> {
    /// Whether there was one.
    fn serve_one(&self, serve: fn(C)) -> bool {
        let next = self.clients.lock().unwrap_or_else(PoisonError::into_inner).recv();
        next.map(serve).is_ok()
    }
}
