//! Listeners: one accept in flight each, a pause when connections cannot be accepted.

#[cfg(test)]
mod tests;

use super::{CLOSE, Kind, Uring};
use crate::driver::socket::{self, SocketFile};
use crate::driver::uring::conn::{Conn, Phase};
use crate::driver::{Event, Handed};
use anabranch_proto::machine::{ConnId, Endpoint, ListenerId, SocketOptions, SystemError, Time};
use io_uring::{opcode, types};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// How long accepting rests after it has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Listener {
    id: ListenerId,
    fd: OwnedFd,
    tcp: bool,
    /// Removed from the file system together with the listener.
    _file: Option<SocketFile>,
    accepting: bool,
    cancelling: bool,
    ending: bool,
    retry_at: Option<Time>,
    /// Since the last connection, accepting has failed with an error of the one that came.
    blamed: bool,
    /// That nothing can be accepted was told.
    starved: bool,
}

/// Whether an error is of the connection that came, not of the listener. accept(2) gives those of
/// the network, too, that a new connection has met already, and asks to accept again.
fn is_of_connection(error: i32) -> bool {
    use libc::{ECONNABORTED, ENOPROTOOPT, EOPNOTSUPP, EPROTO};
    use libc::{EHOSTDOWN, EHOSTUNREACH, ENETDOWN, ENETUNREACH, ENONET};
    let of_network = matches!(error, EHOSTDOWN | EHOSTUNREACH | ENETDOWN | ENETUNREACH | ENONET);
    of_network || matches!(error, ECONNABORTED | ENOPROTOOPT | EOPNOTSUPP | EPROTO)
}

/// All listeners of a worker. There are few: looked up by walking.
#[derive(Debug, Default)]
pub(super) struct Listeners(Vec<Option<Listener>>);

impl Listeners {
    fn find(&self, id: ListenerId) -> Option<usize> {
        self.0.iter().position(|l| l.as_ref().is_some_and(|l| l.id == id))
    }

    pub(super) fn ids(&self) -> Vec<ListenerId> {
        self.0.iter().flatten().map(|l| l.id).collect()
    }

    /// When a pause ends.
    pub(super) fn retry_at(&self) -> Option<Time> {
        self.0.iter().flatten().filter_map(|l| l.retry_at).min()
    }
}

impl Uring {
    pub(super) fn start_listener(
        &mut self,
        id: ListenerId,
        at: &Endpoint,
        options: &SocketOptions,
    ) {
        assert!(self.listeners.find(id).is_none(), "{id:?} is in use");
        let (fd, at, file) = match socket::listening(at, options) {
            Ok(made) => made,
            Err(error) => {
                let error = Some(socket::system_error(&error));
                self.events.push_back(Event::Unlistened { listener: id, error });
                return;
            }
        };
        let listener = Listener {
            id,
            fd,
            tcp: matches!(at, Endpoint::Tcp(_)),
            _file: file,
            accepting: false,
            cancelling: false,
            ending: false,
            retry_at: None,
            blamed: false,
            starved: false,
        };
        let free = self.listeners.0.iter().position(Option::is_none);
        let slot = free.unwrap_or_else(|| {
            self.listeners.0.push(None);
            self.listeners.0.len() - 1
        });
        self.listeners.0[slot] = Some(listener);
        self.events.push_back(Event::Listening { listener: id, at });
        self.accept(slot);
    }

    fn accept(&mut self, slot: usize) {
        let Some(listener) = self.listeners.0[slot].as_mut() else { return };
        if listener.accepting || listener.ending {
            return;
        }
        listener.accepting = true;
        listener.retry_at = None;
        let fd = types::Fd(socket::raw(&listener.fd));
        let null = std::ptr::null_mut();
        let accept = opcode::Accept::new(fd, null, null.cast()).flags(libc::SOCK_CLOEXEC).build();
        self.push(accept, Kind::Accept, slot as u32);
    }

    pub(super) fn accepted(&mut self, slot: u32, result: i32) {
        let Some(listener) = self.listeners.0[slot as usize].as_mut() else { return };
        listener.accepting = false;
        let (id, tcp) = (listener.id, listener.tcp);
        if result >= 0 {
            (listener.blamed, listener.starved) = (false, false);
            let fd = socket::accepted(result);
            if listener.ending {
                self.finish_listener(slot);
                return;
            }
            let peer = socket::peer(fd.as_fd(), tcp);
            self.counters.system_calls.add(2);
            // Fails only on a connection that is over already; reading it will tell.
            let _ = socket::set_accepted(fd.as_fd(), tcp);
            self.counters.accepts.add(1);
            self.adopt_accepted(Handed { listener: id, peer, fd, early: None });
            self.accept(slot as usize);
            return;
        }
        if listener.ending {
            self.finish_listener(slot);
            return;
        }
        match -result {
            libc::EINTR | libc::EAGAIN => self.accept(slot as usize),
            // When the next one fares no better it is none of theirs.
            error if is_of_connection(error) && !std::mem::replace(&mut listener.blamed, true) => {
                self.accept(slot as usize);
            }
            _ => {
                self.counters.accept_failures.add(1);
                listener.retry_at = Some(crate::now().after(ACCEPT_PAUSE));
                if !std::mem::replace(&mut listener.starved, true)
                    && let Some(tell) = self.tell_starved
                {
                    tell(SystemError(-result));
                }
            }
        }
    }

    /// Accepts again where a pause is over.
    pub(super) fn retry_accepts(&mut self) {
        let now = crate::now();
        for slot in 0..self.listeners.0.len() {
            let retry_at = self.listeners.0[slot].as_ref().and_then(|l| l.retry_at);
            if retry_at.is_some_and(|at| at <= now) {
                self.accept(slot);
            }
        }
    }

    /// Gives the engine a connection that was accepted here or by another worker.
    pub(super) fn adopt_accepted(&mut self, handed: Handed) {
        let Handed { listener, peer, fd, early } = handed;
        let slot = self.conns.insert(|slot| {
            let mut conn = Conn::new(ConnId::accepted(slot), fd, Phase::Open);
            conn.peer = peer;
            conn.early = early;
            conn
        });
        let conn = ConnId::accepted(slot);
        self.events.push_back(Event::Accepted { listener, conn, peer });
    }

    pub(super) fn stop_listener(&mut self, id: ListenerId) {
        let Some(slot) = self.listeners.find(id) else { return };
        let Some(listener) = self.listeners.0[slot].as_mut() else { return };
        if listener.ending {
            return;
        }
        listener.ending = true;
        listener.retry_at = None;
        if listener.accepting {
            listener.cancelling = true;
            let fd = socket::raw(&listener.fd);
            self.push_cancel(fd, Kind::CancelAccept, slot as u32);
        }
        self.finish_listener(slot as u32);
    }

    pub(super) fn accept_cancelled(&mut self, slot: u32) {
        if let Some(listener) = self.listeners.0[slot as usize].as_mut() {
            listener.cancelling = false;
        }
        self.finish_listener(slot);
    }

    fn finish_listener(&mut self, slot: u32) {
        let place = &mut self.listeners.0[slot as usize];
        let Some(listener) = place.as_ref() else { return };
        if !listener.ending || listener.accepting || listener.cancelling {
            return;
        }
        let id = listener.id;
        *place = None;
        self.counters.system_calls.add(CLOSE);
        self.events.push_back(Event::Unlistened { listener: id, error: None::<SystemError> });
    }
}
