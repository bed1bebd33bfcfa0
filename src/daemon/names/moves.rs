//! Paths that were given by name, and move with it.
//!
//! A target that has another address under its name is to be found again, so a name is looked up
//! anew whenever an attempt to connect there has failed, while the host waits for the next one.
//! That one is made at the next of its addresses, in turn, that no other path has.

use super::{Names, no_thread, spawn};
use crate::daemon::front::FrontEvent;
use crate::daemon::host::Host;
use crate::daemon::log::{log, log_of};
use crate::daemon::path::NamedPath;
use anabranch_host::Event;
use anabranch_host::event::HostEvent;
use anabranch_proto::machine::Endpoint;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

/// Failed attempts that nobody has looked at yet. What finds no place is told again by the next
/// attempt.
const QUEUE: usize = 1024;

/// Where it is told whose attempts to connect fail.
#[derive(Clone, Debug)]
pub struct Failed(SyncSender<Miss>);

/// Whose attempts have failed.
#[derive(Debug)]
pub struct Failures(Receiver<Miss>);

/// An attempt that failed.
#[derive(Debug)]
struct Miss {
    controller: String,
    /// Where the next one goes, unless it moves.
    at: SocketAddr,
    /// A log has it: one that the name service does not answer then is no news, either.
    told: bool,
}

/// Both ends.
#[must_use]
pub fn failures() -> (Failed, Failures) {
    let (failed, failures) = sync_channel(QUEUE);
    (Failed(failed), Failures(failures))
}

impl Failed {
    /// Never waits: workers tell.
    pub fn see(&self, event: &Event<FrontEvent>) {
        let Event::Host(event) = event else { return };
        if let HostEvent::ConnectFailed { controller, next, retry: true, .. } = event
            && let Endpoint::Tcp(at) = *next
        {
            let told = event.is_news();
            let _ = self.0.try_send(Miss { controller: controller.clone(), at, told });
        }
    }
}

/// Looks again where the names of such paths lead, until the host is no more; names without an
/// address are looked up again from now on, too, where that is asked for.
///
/// # Errors
/// The system gives no thread.
pub fn follow(host: &Arc<Host>, failures: Failures) -> Result<(), String> {
    let names = host.names();
    let host = Arc::downgrade(host);
    // It may be followed again: it is the same host.
    let _ = names.home.set(host.clone());
    let all = move || {
        for miss in failures.0 {
            let Some(host) = host.upgrade() else { return };
            look_again(&host, miss);
        }
    };
    Builder::new().name("moves".to_owned()).spawn(all).map(drop).map_err(no_thread)
}

/// The system's resolver may take minutes: a thread of its own waits for it, one per path, and
/// keeps nothing of the host meanwhile.
fn look_again(host: &Arc<Host>, Miss { controller, at, told }: Miss) {
    let Some(path) = host.names().moves.begin(&controller) else { return };
    let (of, looked_up) = (controller.clone(), Arc::clone(&path));
    let looking = Arc::downgrade(host);
    let started = spawn(move || {
        let found = looked_up.addresses();
        let Some(host) = looking.upgrade() else { return };
        let went = settle(&looked_up, at, found, |to| host.move_path(&looked_up, at, to));
        if let (Err(why), true) = (&went, told) {
            log_of(Some(format!("{of} name")), format!("{of}: {why}"));
        }
        host.names().moves.end(&of, &looked_up);
    });
    if let Err(why) = started {
        host.names().moves.end(&controller, &path);
        log(why);
    }
}

/// What follows from a look-up for a path that is tried at an address, or one sentence.
fn settle(
    path: &NamedPath,
    at: SocketAddr,
    found: Result<Vec<SocketAddr>, String>,
    mut go: impl FnMut(SocketAddr) -> Result<(), String>,
) -> Result<(), String> {
    let all = found.map_err(|why| format!("{why}; it stays at {}", at.ip()))?;
    let present = all.iter().position(|to| *to == at);
    let (before, others) = match present {
        Some(present) => (&all[..present], &all[present + 1..]),
        None => (&[][..], &all[..]),
    };
    let mut refused = None;
    for to in others.iter().chain(before) {
        match go(*to) {
            Ok(()) => return Ok(()),
            Err(why) => {
                let name = &path.traddr;
                refused.get_or_insert(format!("'{name}' is {} now, but: {why}", to.ip()));
            }
        }
    }
    // While its own address is one of its name's, others that are not free are no news.
    refused.filter(|_| present.is_none()).map_or(Ok(()), Err)
}

/// A path that was given by name.
#[derive(Debug)]
struct Place {
    path: Arc<NamedPath>,
    /// Its name is being looked up.
    looking: bool,
}

/// Paths that have their address, and were given by name: one per controller at most.
#[derive(Debug, Default)]
pub(super) struct Moves(Mutex<HashMap<String, Place>>);

impl Moves {
    fn places(&self) -> MutexGuard<'_, HashMap<String, Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which path it is; `None` if that is being looked up, or has no name.
    fn begin(&self, controller: &str) -> Option<Arc<NamedPath>> {
        let mut places = self.places();
        let place = places.get_mut(controller).filter(|place| !place.looking)?;
        place.looking = true;
        Some(Arc::clone(&place.path))
    }

    fn end(&self, controller: &str, path: &Arc<NamedPath>) {
        let mut places = self.places();
        // Another one may be called so by now.
        if let Some(place) = places.get_mut(controller).filter(|it| Arc::ptr_eq(&it.path, path)) {
            place.looking = false;
        }
    }
}

impl Names {
    /// A controller was connected, perhaps under the name of one that is no more: at an address, or
    /// where the name of a path has led.
    pub(in crate::daemon) fn connected(&self, controller: &str, path: Option<&NamedPath>) {
        let mut places = self.moves.places();
        match path {
            Some(path) if path.has_name() => {
                let place = Place { path: Arc::new(path.clone()), looking: false };
                places.insert(controller.to_owned(), place);
            }
            _ => drop(places.remove(controller)),
        }
    }

    /// What controllers are called, or were, that a path of this name has made.
    pub(in crate::daemon) fn of(&self, path: &NamedPath) -> Vec<String> {
        let places = self.moves.places();
        let same = places.iter().filter(|(_, place)| place.path.is_same(path));
        same.map(|(controller, _)| controller.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::path::PathSpec;

    fn path(traddr: &str) -> NamedPath {
        let spec = PathSpec { traddr: traddr.to_owned(), ..PathSpec::default() };
        spec.named("nqn.2026-01.org.example:a", true).expect("a path")
    }

    fn at(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 4420))
    }

    #[test]
    fn a_path_goes_where_its_name_leads_and_stays_where_it_does_not_say() {
        let path = path("array.example");
        let found = |all: &[u8]| Ok(all.iter().copied().map(at).collect());
        for (from, found, free, tried, told) in [
            (1, found(&[1]), &[][..], &[][..], None),
            (1, Err("nobody knows it".to_owned()), &[], &[], Some("nobody knows it; it stays")),
            (1, found(&[2]), &[], &[2], Some("'array.example' is 192.0.2.2 now, but: another's")),
            (1, found(&[2]), &[2], &[2], None),
            (2, found(&[2]), &[], &[], None),
            // In turn, from its own on.
            (2, found(&[1, 2, 3]), &[1, 3], &[3], None),
            (3, found(&[1, 2, 3]), &[1, 2], &[1], None),
            (1, found(&[1, 2, 3]), &[3], &[2, 3], None),
            (3, found(&[1, 2, 3]), &[], &[1, 2], None),
        ] {
            let mut gone = Vec::new();
            let free: Vec<SocketAddr> = free.iter().copied().map(at).collect();
            let went = settle(&path, at(from), found, |to| {
                gone.push(to);
                if free.contains(&to) { Ok(()) } else { Err("another's".to_owned()) }
            });
            let said = went.as_ref().err().cloned().unwrap_or_default();
            assert!(said.starts_with(told.unwrap_or_default()), "{said}");
            assert_eq!(went.is_err(), told.is_some(), "{said}");
            assert_eq!(gone, tried.iter().copied().map(at).collect::<Vec<_>>());
        }
    }

    /// Where a controller is depends on what the host made of an earlier answer.
    #[test]
    fn a_failed_attempt_says_where_the_next_one_goes() {
        let (failed, failures) = failures();
        failed.see(&Event::Host(HostEvent::ConnectFailed {
            controller: "nvme0".to_owned(),
            to: at(1).to_string(),
            next: Endpoint::Tcp(at(2)),
            why: "no answer".to_owned(),
            attempts: 1,
            retry: true,
            forbidden: false,
            expired: false,
            alike: 0,
        }));
        let miss = failures.0.try_recv().expect("it was told");
        assert_eq!((miss.controller.as_str(), miss.at, miss.told), ("nvme0", at(2), true));
    }

    #[test]
    fn a_controller_at_an_address_is_nobodys_name() {
        let names = Names::default();
        names.connected("nvme0", Some(&path("array.example")));
        let first = names.moves.begin("nvme0").expect("a name");
        assert!(names.moves.begin("nvme0").is_none(), "it is being looked up");
        names.connected("nvme0", Some(&path("192.0.2.7")));
        names.moves.end("nvme0", &first);
        assert!(names.moves.begin("nvme0").is_none());
        names.connected("nvme0", Some(&path("array.example")));
        let second = names.moves.begin("nvme0").expect("a name");
        names.moves.end("nvme0", &first);
        assert!(names.moves.begin("nvme0").is_none(), "that was the look-up of another one");
        names.moves.end("nvme0", &second);
        assert!(names.moves.begin("nvme0").is_some());
        assert_eq!(names.of(&path("array.example")), ["nvme0"]);
        assert!(names.of(&path("other.example")).is_empty());
        names.connected("nvme0", None);
        assert!(names.of(&path("array.example")).is_empty());
        assert!(names.moves.begin("nvme0").is_none());
    }
}
