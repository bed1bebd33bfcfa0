//! What a service manager is told (`sd_notify(3)`): that we are ready, and that we end.

use super::log;
use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// How long a manager may take that has more to read than it has room for.
const PATIENCE: Duration = Duration::from_secs(5);

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
    // One that reads nothing keeps nobody waiting for long.
    sender.set_write_timeout(Some(PATIENCE))?;
    sender.send_to_addr(state.as_bytes(), &address).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{RecvTimeoutError, channel};

    #[test]
    fn a_manager_that_has_much_to_read_hears_of_it_all_the_same() {
        let dir = std::env::temp_dir().join(format!("anabranch-{}-notify", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let path = dir.join("notify");
        let manager = UnixDatagram::bind(&path).expect("a socket");
        let other = UnixDatagram::unbound().expect("a socket");
        other.set_nonblocking(true).expect("as asked");
        while other.send_to(b"EXTEND_TIMEOUT_USEC=1", &path).is_ok() {}
        let (told, sent) = channel();
        let to = path.clone();
        let sender = std::thread::spawn(move || told.send(send(to.as_os_str(), "READY=1")));
        let early = sent.recv_timeout(Duration::from_millis(100));
        assert!(matches!(early, Err(RecvTimeoutError::Timeout)), "{early:?}");
        let mut text = [0; 64];
        while !text.starts_with(b"READY=1") {
            manager.recv(&mut text).expect("there is more");
        }
        assert!(sent.recv().expect("an answer").is_ok());
        sender.join().expect("it ends").expect("it was heard");
        std::fs::remove_dir_all(&dir).expect("it goes");
    }
}
