//! Where exports listen, as text.

use super::socket::MAX_SOCKET_PATH;
use anabranch_proto::machine::Endpoint;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

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

/// Removes a Unix socket that nobody listens on, so that its path can be used again.
///
/// # Errors
/// Something else is there, or somebody listens on it.
pub fn clear_stale(endpoint: &Endpoint) -> Result<(), String> {
    let Endpoint::Unix(path) = endpoint else { return Ok(()) };
    let Ok(found) = std::fs::symlink_metadata(Path::new(path)) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(format!(
            "{path} exists and is not a socket: remove it, or choose another path"
        ));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(format!("somebody listens on {path} already: choose another path")),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(|why| format!("cannot remove {path}: {why}"))
        }
        Err(error) => Err(format!("{path} is in the way: {error}")),
    }
}
