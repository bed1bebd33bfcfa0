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
        if let HostEvent::ConnectFailed { controller, retry: true, .. } = event {
            let told = event.is_news();
            let _ = self.0.try_send(Miss { controller: controller.clone(), told });
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

/// The system's resolver may take minutes: a thread of its own waits for it, one per path.
fn look_again(host: &Arc<Host>, Miss { controller, told }: Miss) {
    let Some(place) = host.names().moves.begin(&controller) else { return };
    let (of, at) = (controller.clone(), place.at);
    let looking = Arc::clone(host);
    let started = spawn(move || {
        let found = place.path.addresses();
        let went = place.settle(found, |to| looking.move_path(&place.path, at, to));
        if let (Err(why), true) = (&went, told) {
            log_of(Some(format!("{of} name")), format!("{of}: {why}"));
        }
        looking.names().moves.end(&of, at, went.ok());
    });
    if let Err(why) = started {
        host.names().moves.end(&controller, at, None);
        log(why);
    }
}

/// A path, and the address at which it is tried.
#[derive(Clone, Debug)]
struct Place {
    path: NamedPath,
    at: SocketAddr,
    /// Its name is being looked up.
    looking: bool,
}

impl Place {
    /// What follows from a look-up: where it is now, or one sentence.
    fn settle(
        &self,
        found: Result<Vec<SocketAddr>, String>,
        mut go: impl FnMut(SocketAddr) -> Result<(), String>,
    ) -> Result<SocketAddr, String> {
        let all = found.map_err(|why| format!("{why}; it stays at {}", self.at.ip()))?;
        let present = all.iter().position(|to| *to == self.at);
        let (before, others) = match present {
            Some(present) => (&all[..present], &all[present + 1..]),
            None => (&[][..], &all[..]),
        };
        let mut refused = None;
        for to in others.iter().chain(before) {
            match go(*to) {
                Ok(()) => return Ok(*to),
                Err(why) => {
                    let name = &self.path.traddr;
                    refused.get_or_insert(format!("'{name}' is {} now, but: {why}", to.ip()));
                }
            }
        }
        // While its own address is one of its name's, others that are not free are no news.
        refused.filter(|_| present.is_none()).map_or(Ok(self.at), Err)
    }
}

/// Paths that have their address, and were given by name: one per controller at most.
#[derive(Debug, Default)]
pub(super) struct Moves(Mutex<HashMap<String, Place>>);

impl Moves {
    fn places(&self) -> MutexGuard<'_, HashMap<String, Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which path it is, and where; `None` if that is being looked up, or has no name.
    fn begin(&self, controller: &str) -> Option<Place> {
        let mut places = self.places();
        let place = places.get_mut(controller).filter(|place| !place.looking)?;
        place.looking = true;
        Some(place.clone())
    }

    fn end(&self, controller: &str, from: SocketAddr, to: Option<SocketAddr>) {
        let mut places = self.places();
        // Another one may be called so by now.
        if let Some(place) = places.get_mut(controller).filter(|place| place.at == from) {
            place.looking = false;
            place.at = to.unwrap_or(from);
        }
    }
}

impl Names {
    /// A controller was connected, perhaps under the name of one that is no more: at an address, or
    /// at one that a name has led to.
    pub(in crate::daemon) fn connected(
        &self,
        controller: &str,
        at: Option<(&NamedPath, SocketAddr)>,
    ) {
        let mut places = self.moves.places();
        match at {
            Some((path, at)) if path.has_name() => {
                let place = Place { path: path.clone(), at, looking: false };
                places.insert(controller.to_owned(), place);
            }
            _ => drop(places.remove(controller)),
        }
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
        let names = Names::default();
        names.connected("nvme0", Some((&path("array.example"), at(1))));
        let found = |all: &[u8]| Ok(all.iter().copied().map(at).collect());
        for (found, free, tried, then, told) in [
            (found(&[1]), &[][..], &[][..], 1, None),
            (Err("nobody knows it".to_owned()), &[], &[], 1, Some("nobody knows it; it stays")),
            (found(&[2]), &[], &[2], 1, Some("'array.example' is 192.0.2.2 now, but: another's")),
            (found(&[2]), &[2], &[2], 2, None),
            (found(&[2]), &[], &[], 2, None),
            // In turn, from its own on.
            (found(&[1, 2, 3]), &[1, 3], &[3], 3, None),
            (found(&[1, 2, 3]), &[1, 2], &[1], 1, None),
            (found(&[1, 2, 3]), &[3], &[2, 3], 3, None),
            (found(&[1, 2, 3]), &[], &[1, 2], 3, None),
        ] {
            let place = names.moves.begin("nvme0").expect("a name");
            assert!(names.moves.begin("nvme0").is_none(), "it is being looked up");
            let mut gone = Vec::new();
            let free: Vec<SocketAddr> = free.iter().copied().map(at).collect();
            let went = place.settle(found, |to| {
                gone.push(to);
                if free.contains(&to) { Ok(()) } else { Err("another's".to_owned()) }
            });
            let said = went.as_ref().err().cloned().unwrap_or_default();
            assert!(said.starts_with(told.unwrap_or_default()), "{said}");
            assert_eq!(went.is_err(), told.is_some(), "{said}");
            names.moves.end("nvme0", place.at, went.ok());
            assert_eq!(gone, tried.iter().copied().map(at).collect::<Vec<_>>());
            assert_eq!(names.moves.places()["nvme0"].at, at(then));
        }
    }

    #[test]
    fn a_controller_at_an_address_is_nobodys_name() {
        let names = Names::default();
        names.connected("nvme0", Some((&path("array.example"), at(1))));
        let place = names.moves.begin("nvme0").expect("a name");
        names.connected("nvme0", Some((&path("192.0.2.7"), at(7))));
        names.moves.end("nvme0", place.at, Some(at(2)));
        assert!(names.moves.begin("nvme0").is_none());
        names.connected("nvme0", Some((&path("array.example"), at(1))));
        names.connected("nvme0", None);
        assert!(names.moves.begin("nvme0").is_none());
    }
}
