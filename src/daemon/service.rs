//! What a service manager is told (`sd_notify(3)`): that we are ready, and that we end.

use super::log;
use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// What is set up is there: whoever was to be started after us can be started.
pub fn ready() {
    tell("READY=1");
}

/// An end in order has begun.
pub fn stopping() {
    tell("STOPPING=1");
}

/// Nobody asks for it, unless we were started as a service of `Type=notify`.
fn tell(state: &str) {
    let Some(socket) = env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) else {
        return;
    };
    if let Err(error) = send(&socket, state) {
        let socket = socket.to_string_lossy();
        log(format_args!("cannot tell the service manager ({socket}) {state}: {error}"));
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    let sender = UnixDatagram::unbound()?;
    // A manager that does not listen keeps nobody waiting.
    sender.set_nonblocking(true)?;
    sender.send_to_addr(state.as_bytes(), &address).map(|_| ())
}
