//! Who is at the other end of a Unix socket.

use nix::sys::socket::{getsockopt, sockopt};
use std::io;
use std::os::fd::AsFd;

/// The process that has connected to a Unix socket, as it was then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Its number; `None` when it is in a namespace of processes that ours does not show: a
    /// container's host, or another container.
    pub pid: Option<u32>,
    /// Its effective user.
    pub uid: u32,
}

/// Asks the system.
///
/// # Errors
/// The system's answer.
pub fn credentials(socket: impl AsFd) -> io::Result<Credentials> {
    let found = getsockopt(&socket, sockopt::PeerCredentials)?;
    let pid = u32::try_from(found.pid()).ok().filter(|pid| *pid != 0);
    Ok(Credentials { pid, uid: found.uid() })
}
