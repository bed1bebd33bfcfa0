//! Paths of the configuration whose names lead nowhere yet.
//!
//! A name service that is away when the host starts is no reason to do without the other paths, nor
//! to give this one up: its name is looked up again as often as a controller that does not answer
//! would be tried. Looking up blocks, so each such path has a thread of its own until it has its
//! address; from then on the host does the rest.

#[cfg(test)]
mod tests;

use super::host::Host;
use super::log;
use super::path::NamedPath;
use anabranch_host::config::ConnectRequest;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Instant;

/// Paths whose names are looked up again. With it that ends; a look-up that is under way is not
/// waited for.
#[derive(Debug, Default)]
pub struct Names {
    /// The other end notices that it goes.
    stops: Vec<Sender<()>>,
}

impl Names {
    /// How many there were at the start.
    #[must_use]
    pub fn count(&self) -> usize {
        self.stops.len()
    }

    /// Goes on looking for a path's address, and connects when there is one. The number that it
    /// would have now is kept for it: what an export calls `nvme1n1` must not become another
    /// subsystem's device because a name service was away.
    ///
    /// # Errors
    /// There are too many paths, or the system gives no thread.
    pub fn await_address(&mut self, path: NamedPath, host: &Arc<Host>) -> Result<(), String> {
        let number = host.set_aside(&path.subsystem_nqn).map_err(|error| error.message)?;
        let (stop, stopped) = channel();
        let host = Arc::clone(host);
        let connect =
            move |request| host.connect_as(number, request).map_err(|error| error.message);
        thread::Builder::new()
            .name("names".to_owned())
            .spawn(move || keep_looking(&path, NamedPath::look_up, connect, &stopped))
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        self.stops.push(stop);
        Ok(())
    }
}

/// Looks up and connects, until that is done, its time is over, or nobody wants it any more.
fn keep_looking(
    path: &NamedPath,
    mut look_up: impl FnMut(&NamedPath) -> Result<SocketAddr, String>,
    connect: impl FnOnce(ConnectRequest) -> Result<String, String>,
    stopped: &Receiver<()>,
) {
    let since = Instant::now();
    let (pause, limit) = (path.options.reconnect_delay, path.options.ctrl_loss_tmo);
    while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        match look_up(path) {
            Ok(address) => {
                let (traddr, to) = (&path.traddr, address.ip());
                match connect(path.request(address)) {
                    Ok(controller) => log(format_args!("{controller}: '{traddr}' is {to}")),
                    Err(why) => log(format_args!("'{traddr}' is {to}, but: {why}")),
                }
                return;
            }
            Err(why) if limit.is_some_and(|limit| since.elapsed() >= limit) => {
                return log(format_args!("{why}; given up after ctrl-loss-tmo"));
            }
            Err(why) => log(why),
        }
    }
}
