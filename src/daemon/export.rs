//! Where exports listen, as text.

use super::socket::MAX_SOCKET_PATH;
use anabranch_export::nbd::NbdError;
use anabranch_proto::machine::Endpoint;
use rustix::io::Errno;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;

/// `ADDR:PORT` is TCP, everything else the path of a Unix socket.
///
/// # Errors
/// One sentence that says what would be right.
pub fn listen_endpoint(text: &str) -> Result<Endpoint, String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(Endpoint::Tcp(address));
    }
    let path = text.strip_prefix("unix:").unwrap_or(text);
    if path.is_empty() || path.contains('\0') {
        return Err("nbd takes the path of a Unix socket, or ADDR:PORT".to_owned());
    }
    let path = std::path::absolute(path).map_err(|why| format!("nbd '{path}': {why}"))?;
    let Some(path) = path.to_str() else {
        return Err("the path of the NBD socket is not UTF-8".to_owned());
    };
    if path.len() > MAX_SOCKET_PATH {
        return Err(format!(
            "the path of the NBD socket has {} bytes, at most {MAX_SOCKET_PATH} fit",
            path.len()
        ));
    }
    Ok(Endpoint::Unix(path.to_owned()))
}

/// What the NBD server says, and what to do where it cannot listen: it replaces the socket of a
/// server that is gone, and leaves everything else at that path alone.
#[must_use]
pub fn explain_refusal(error: &NbdError) -> String {
    let NbdError::Listen(Endpoint::Unix(path), why) = error else { return error.to_string() };
    if why.0 != Errno::ADDRINUSE.raw_os_error() {
        return error.to_string();
    }
    let found = std::fs::symlink_metadata(path);
    let path = path.escape_debug();
    match found {
        Ok(found) if !found.file_type().is_socket() => {
            format!("{path} exists and is not a socket: remove it, or choose another path")
        }
        _ => format!("somebody listens on {path} already: end it, or choose another path"),
    }
}
