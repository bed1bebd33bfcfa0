//! Names of the configuration's paths, and where they lead.
//!
//! A name service that is away when the host starts, or takes its time, is no reason to do without
//! the other paths, nor to give this one up: its answer is waited for, and its name looked up again
//! as often as a controller that does not answer would be tried. Looking up blocks, so each such
//! path has a thread of its own until it has its address; from then on the host does the rest, and
//! `moves` sees to names that lead elsewhere later.

mod moves;
#[cfg(test)]
mod tests;

pub use moves::{failures, follow};

use super::host::Host;
use super::log;
use super::path::NamedPath;
use super::rpc::RpcError;
use anabranch_host::event::is_news;
use anabranch_host::verb::{AsideId, Selection};
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The system's resolver calls what others have written.
const STACK_BYTES: usize = 2 << 20;

/// Where a path's name leads.
#[derive(Debug)]
pub enum Found {
    /// There: at one address at least.
    At(Vec<SocketAddr>),
    /// To no address now: one sentence.
    Nowhere(String),
    /// Nobody has said so far.
    NotYet(LookUp),
}

/// All addresses of a name, of which there is one at least, or one sentence.
type Addresses = Result<Vec<SocketAddr>, String>;

/// Where a path leads that somebody has just named.
///
/// # Errors
/// To no address now, which is nobody's mistake: one sentence, with what can be done.
pub fn addresses(path: &NamedPath) -> Result<Vec<SocketAddr>, String> {
    let what_to_do = "check the name, or give the controller's address";
    path.addresses().map_err(|why| format!("{why}: {what_to_do}"))
}

/// Does something at each address of a name until it goes well. An address that fails leaves it to
/// the next one; any other error is the answer.
///
/// # Errors
/// That, or why each address failed.
pub fn at_one_of<T>(
    addresses: &[SocketAddr],
    at: impl FnMut(SocketAddr) -> Result<T, RpcError>,
) -> Result<T, RpcError> {
    one_of(addresses, &[RpcError::FAILED], at)
}

/// The same, where an address that another path has leaves it to the next one, too.
///
/// # Errors
/// Likewise; that it is connected if all are taken.
pub(super) fn at_one_free_of<T>(
    addresses: &[SocketAddr],
    at: impl FnMut(SocketAddr) -> Result<T, RpcError>,
) -> Result<T, RpcError> {
    one_of(addresses, &[RpcError::FAILED, RpcError::CONNECTED], at)
}

fn one_of<T>(
    addresses: &[SocketAddr],
    go_on: &[i32],
    mut at: impl FnMut(SocketAddr) -> Result<T, RpcError>,
) -> Result<T, RpcError> {
    let (mut why, mut all_taken) = (Vec::new(), true);
    for to in addresses {
        match at(*to) {
            Err(RpcError { code, message }) if go_on.contains(&code) => {
                all_taken &= code == RpcError::CONNECTED;
                why.push(message);
            }
            answer => return answer,
        }
    }
    let code = if all_taken { RpcError::CONNECTED } else { RpcError::FAILED };
    Err(RpcError::new(code, why.join("; ")))
}

/// A look-up that is under way: the system's resolver may take minutes to give one up.
#[derive(Debug)]
pub struct LookUp(Receiver<Addresses>);

impl LookUp {
    fn start(look_up: impl FnOnce() -> Addresses + Send + 'static) -> Result<LookUp, String> {
        let (told, answer) = channel();
        // Nobody may want to know any more.
        spawn(move || drop(told.send(look_up())))?;
        Ok(LookUp(answer))
    }

    fn by(self, until: Instant) -> Found {
        match self.0.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Ok(addresses)) => Found::At(addresses),
            Ok(Err(why)) => Found::Nowhere(why),
            Err(_) => Found::NotYet(self),
        }
    }

    fn answer(self) -> Addresses {
        self.0.recv().unwrap_or_else(|_| Err("a name was not looked up".to_owned()))
    }
}

/// Looks all names up at once. What is not known after `limit` goes on being looked up.
///
/// # Errors
/// The system gives no thread.
pub fn look_up_all(
    paths: &[NamedPath],
    look_up: impl Fn(&NamedPath) -> Addresses + Clone + Send + 'static,
    limit: Duration,
) -> Result<Vec<Found>, String> {
    let mut found = Vec::with_capacity(paths.len());
    for path in paths {
        found.push(if path.has_name() {
            let (path, look_up) = (path.clone(), look_up.clone());
            Found::NotYet(LookUp::start(move || look_up(&path))?)
        } else {
            look_up(path).map_or_else(Found::Nowhere, Found::At)
        });
    }
    let until = Instant::now() + limit;
    Ok(found
        .into_iter()
        .map(|found| match found {
            Found::NotYet(look_up) => look_up.by(until),
            known => known,
        })
        .collect())
}

/// Of several paths, each with what was found for it, each at one address that it alone has. What
/// stands there as an address has that one; a name has its first that is free, or none for now:
/// that two names lead to one place may have passed when they are looked up again.
///
/// # Errors
/// Which one is, in numbers, where another one is.
pub fn one_each(paths: &[NamedPath], all: Vec<Found>) -> Result<Vec<Found>, usize> {
    let mut taken = HashSet::new();
    let mut take = |path: &NamedPath, to: SocketAddr| {
        let own = &path.options.socket;
        taken.insert((path.subsystem_nqn.clone(), to, own.source, own.interface.clone()))
    };
    for (at, (path, found)) in paths.iter().zip(&all).enumerate() {
        if let Found::At(found) = found
            && !path.has_name()
            && !found.iter().all(|to| take(path, *to))
        {
            return Err(at);
        }
    }
    let mut choose = |path: &NamedPath, found: Vec<SocketAddr>| {
        let free = found.iter().find(|to| !path.has_name() || take(path, **to));
        free.map(|to| Found::At(vec![*to])).unwrap_or_else(|| {
            let (name, all) = (path.traddr.escape_debug(), found.iter().map(SocketAddr::ip));
            let all: Vec<_> = all.map(|ip| ip.to_string()).collect();
            let is = all.join(", ");
            Found::Nowhere(format!("traddr '{name}' is {is}, where another path leads already"))
        })
    };
    Ok(paths
        .iter()
        .zip(all)
        .map(|(path, found)| match found {
            Found::At(found) => choose(path, found),
            other => other,
        })
        .collect())
}

fn spawn(work: impl FnOnce() + Send + 'static) -> Result<(), String> {
    anabranch_rt::thread::spawn("names", STACK_BYTES, work).map_err(no_thread)
}

fn no_thread(error: io::Error) -> String {
    format!("cannot start a thread: {error}")
}

/// Paths that are known by name. With it the looking for those that have no address ends; a look-up
/// that is under way is not waited for.
#[derive(Debug, Default)]
pub struct Names {
    sought: Mutex<Sought>,
    moves: moves::Moves,
    /// Whose they are, once it follows them.
    home: OnceLock<Weak<Host>>,
}

/// Paths whose names have no address.
#[derive(Debug, Default)]
struct Sought {
    all: Vec<SoughtPath>,
    /// How many of the configuration's there are, or were.
    of_file: usize,
}

#[derive(Debug)]
struct SoughtPath {
    path: NamedPath,
    to_be: ToBe,
    /// The other end notices that it goes.
    _stop: Sender<()>,
}

/// A controller that is not there yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ToBe {
    pub(super) number: u32,
    /// Tells it from others that had its number, or are going to have it.
    pub(super) aside: AsideId,
}

impl ToBe {
    fn name(&self) -> String {
        format!("nvme{}", self.number)
    }
}

impl Sought {
    fn check_new(&self, path: &NamedPath) -> Result<(), RpcError> {
        match self.all.iter().find(|other| other.path.is_same(path)) {
            Some(SoughtPath {
                path: NamedPath { traddr, port, subsystem_nqn, .. }, to_be, ..
            }) => {
                let name = to_be.name();
                Err(RpcError::new(
                    RpcError::CONNECTED,
                    format!(
                        "already being connected: {name} is going to be {subsystem_nqn} at \
                         {traddr}, port {port}"
                    ),
                ))
            }
            None => Ok(()),
        }
    }
}

impl Names {
    /// How many of the configuration's paths are looked for, or were.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sought().of_file
    }

    /// Nobody wants what is chosen any more.
    pub fn forget(&self, which: &Selection) {
        drop(self.give_up(which));
    }

    /// The same. Those that were looked for until now.
    pub(super) fn give_up(&self, which: &Selection) -> Vec<ToBe> {
        let chosen = |path: &mut SoughtPath| match which {
            Selection::Subsystem(nqn) => path.path.subsystem_nqn == *nqn,
            Selection::Controller(name) => path.to_be.name() == *name,
            Selection::All => true,
        };
        self.sought().all.extract_if(.., chosen).map(|path| path.to_be).collect()
    }

    /// That a path is not one of those that are looked for: it is no second one, as if it were
    /// connected.
    ///
    /// # Errors
    /// It is.
    pub(super) fn check_new(&self, path: &NamedPath) -> Result<(), RpcError> {
        self.sought().check_new(path)
    }

    fn sought(&self) -> MutexGuard<'_, Sought> {
        self.sought.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on looking for the address of a path of the configuration, at once where a look-up is
    /// under way, and connects when there is one. The number that it would have now is kept for it:
    /// what an export calls `nvme1n1` must not become another subsystem's device because a name
    /// service was away.
    ///
    /// # Errors
    /// There are too many paths, or the system gives no thread.
    pub fn await_address(
        &self,
        path: NamedPath,
        under_way: Option<LookUp>,
        host: &Arc<Host>,
    ) -> Result<(), String> {
        self.seek(path, under_way, host).map_err(|error| error.message)?;
        self.sought().of_file += 1;
        Ok(())
    }

    /// The same for a path that somebody wants to be tried until it is there; `why` it has no
    /// address now. The name of the controller that it will be.
    ///
    /// # Errors
    /// Likewise, or nobody follows names here.
    pub(super) fn keep_trying(&self, path: NamedPath, why: String) -> Result<String, RpcError> {
        let host = self.home.get().and_then(Weak::upgrade).ok_or_else(|| RpcError::failed(why))?;
        Ok(self.seek(path, None, &host)?.name())
    }

    fn seek(
        &self,
        path: NamedPath,
        under_way: Option<LookUp>,
        host: &Arc<Host>,
    ) -> Result<ToBe, RpcError> {
        self.check_new(&path)?;
        let to_be = host.set_aside(&path)?;
        let aside = to_be.aside;
        let (stop, stopped) = channel();
        self.add(path.clone(), to_be.clone(), stop).inspect_err(|_| drop(host.give_up(aside)))?;
        // Whoever looks for a path must not keep a host that has failed to start.
        let looking = Arc::downgrade(host);
        let started = spawn(move || {
            let connect = |path: &NamedPath, at| match looking.upgrade() {
                Some(host) => host.connect_as(aside, path, at),
                None => Err(RpcError::invalid("the host has ended")),
            };
            keep_looking(&path, under_way, NamedPath::addresses, connect, &stopped);
            if let Some(host) = looking.upgrade() {
                host.names().end(aside, &host);
            }
        });
        if let Err(why) = started {
            self.end(aside, host);
            return Err(RpcError::failed(why));
        }
        Ok(to_be)
    }

    fn add(&self, path: NamedPath, to_be: ToBe, stop: Sender<()>) -> Result<(), RpcError> {
        let mut sought = self.sought();
        sought.check_new(&path)?;
        sought.all.push(SoughtPath { path, to_be, _stop: stop });
        Ok(())
    }

    /// One is looked for no more. Where it has not come, its number is free.
    fn end(&self, aside: AsideId, host: &Host) {
        let is_it = |path: &mut SoughtPath| path.to_be.aside == aside;
        let ended: Vec<_> = self.sought().all.extract_if(.., is_it).collect();
        for path in ended {
            // One that has come, or a host that has stopped, keeps nothing.
            let _ = host.give_up(path.to_be.aside);
        }
    }
}

/// Looks up and connects, until that is done, its time is over, or nobody wants it any more.
fn keep_looking(
    path: &NamedPath,
    mut under_way: Option<LookUp>,
    mut look_up: impl FnMut(&NamedPath) -> Addresses,
    mut connect: impl FnMut(&NamedPath, SocketAddr) -> Result<String, RpcError>,
    stopped: &Receiver<()>,
) {
    let since = Instant::now();
    let (nqn, limit) = (&path.subsystem_nqn, path.options.ctrl_loss_tmo);
    let (mut last, mut alike) = (String::new(), 0_u32);
    let mut pause = if under_way.is_some() { Duration::ZERO } else { path.options.reconnect_delay };
    while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        pause = path.options.reconnect_delay;
        let found = under_way.take().map_or_else(|| look_up(path), LookUp::answer);
        // That may have taken minutes.
        if stopped.try_recv() == Err(TryRecvError::Disconnected) {
            return;
        }
        let missed =
            found.map_err(Miss::ForNow).and_then(|all| connect_one(path, &all, &mut connect));
        let why = match missed {
            Ok(told) => return log(told),
            Err(Miss::ForGood(why)) => return log(format_args!("{nqn}: {why}")),
            Err(Miss::ForNow(why)) => why,
        };
        if limit.is_some_and(|limit| since.elapsed() >= limit) {
            return log(format_args!("{nqn}: {why}; given up after ctrl-loss-tmo"));
        }
        alike = if why == last { alike.saturating_add(1) } else { 0 };
        if is_news(alike) {
            log(format_args!("{nqn}: {why}"));
        }
        last = why;
    }
}

/// Why a path that is looked for is not there.
enum Miss {
    /// It may be the next time.
    ForNow(String),
    /// Nothing can come of it any more.
    ForGood(String),
}

/// Connects at one of the addresses of a name. What there is to tell.
fn connect_one(
    path: &NamedPath,
    all: &[SocketAddr],
    mut connect: impl FnMut(&NamedPath, SocketAddr) -> Result<String, RpcError>,
) -> Result<String, Miss> {
    let name = path.traddr.escape_debug();
    let mut refused = Vec::new();
    for to in all {
        let to_ip = to.ip();
        match connect(path, *to) {
            Ok(controller) => return Ok(format!("{controller}: '{name}' is {to_ip}")),
            Err(RpcError { code, message }) => {
                let why = format!("'{name}' is {to_ip}, but: {message}");
                // It is wanted no more, or can never be had.
                if code == RpcError::INVALID_PARAMS {
                    return Err(Miss::ForGood(why));
                }
                refused.push(why);
            }
        }
    }
    Err(Miss::ForNow(refused.join("; ")))
}
