//! Paths that were given by name, and move with it.
//!
//! A target that has another address under its name is to be found again, so a name is looked up
//! anew whenever an attempt to connect there has failed, while the host waits for the next one. As
//! long as its present address is one of those that the name leads to, a path stays where it is.

use super::{Names, spawn, spawn_as};
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

/// Looks again where the names of such paths lead, until the host is no more.
///
/// # Errors
/// The system gives no thread.
pub fn follow(host: &Arc<Host>, failures: Failures) -> Result<(), String> {
    let host = Arc::downgrade(host);
    spawn_as("moves", move || {
        for miss in failures.0 {
            let Some(host) = host.upgrade() else { return };
            look_again(&host, miss);
        }
    })
}

/// The system's resolver may take minutes: a thread of its own waits for it, one per path.
fn look_again(host: &Arc<Host>, Miss { controller, told }: Miss) {
    let Some(place) = host.names().moves.begin(&controller) else { return };
    let (of, at) = (controller.clone(), place.at);
    let looking = Arc::clone(host);
    let started = spawn(move || {
        let found = place.path.look_up_again(at);
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
        found: Result<SocketAddr, String>,
        go: impl FnOnce(SocketAddr) -> Result<(), String>,
    ) -> Result<SocketAddr, String> {
        let to = found.map_err(|why| format!("{why}; it stays at {}", self.at.ip()))?;
        if to != self.at {
            let name = &self.path.traddr;
            go(to).map_err(|why| format!("'{name}' is {} now, but: {why}", to.ip()))?;
        }
        Ok(to)
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
    use std::cell::Cell;

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
        for (found, taken, goes, then) in [
            (Ok(at(1)), true, None, at(1)),
            (Err("nobody knows it".to_owned()), true, None, at(1)),
            (Ok(at(2)), false, Some(at(2)), at(1)),
            (Ok(at(2)), true, Some(at(2)), at(2)),
            (Ok(at(2)), true, None, at(2)),
        ] {
            let place = names.moves.begin("nvme0").expect("a name");
            assert!(names.moves.begin("nvme0").is_none(), "it is being looked up");
            let gone = Cell::new(None);
            let went = place.settle(found, |to| {
                gone.set(Some(to));
                if taken { Ok(()) } else { Err("an attempt is under way".to_owned()) }
            });
            names.moves.end("nvme0", place.at, went.ok());
            assert_eq!(gone.get(), goes);
            assert_eq!(names.moves.places()["nvme0"].at, then);
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
