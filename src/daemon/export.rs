//! Where exports listen, as text.

use super::listen::socket_address;
use super::rpc::RpcError;
use super::socket::MAX_SOCKET_PATH;
use anabranch_export::nbd::{Access, NbdError};
use anabranch_proto::machine::Endpoint;
use rustix::io::Errno;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileTypeExt;

/// `ADDR:PORT` is TCP, everything else the path of a Unix socket.
///
/// # Errors
/// One sentence that says what would be right.
pub fn listen_endpoint(text: &str) -> Result<Endpoint, String> {
    match socket_address(text) {
        Ok(Some(address)) => return Ok(Endpoint::Tcp(address)),
        Err(why) => return Err(format!("nbd '{}' {why}", text.escape_debug())),
        Ok(None) => {}
    }
    if resembles_address(text) {
        return Err(format!(
            "nbd '{text}': an address is ADDR:PORT, in numbers ('[::1]:10809'); if a Unix socket \
             is meant, write './{text}'"
        ));
    }
    let path = text.strip_prefix("unix:").unwrap_or(text);
    if path.is_empty() || path.contains('\0') {
        return Err("nbd takes the path of a Unix socket, or ADDR:PORT".to_owned());
    }
    let path = std::path::absolute(path).map_err(|why| format!("nbd '{path}': {why}"))?;
    let Some(path) = path.to_str() else {
        return Err("nbd: the path of the socket is not UTF-8".to_owned());
    };
    if path.len() > MAX_SOCKET_PATH {
        return Err(format!(
            "nbd: the path of the socket has {} bytes, at most {MAX_SOCKET_PATH} fit",
            path.len()
        ));
    }
    Ok(Endpoint::Unix(path.to_owned()))
}

/// An address without its port, a port without its address, or `SOMETHING:NUMBER`: hardly the name
/// of a file.
fn resembles_address(text: &str) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    !text.contains('/')
        && !text.starts_with("unix:")
        && (text.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
            || is_port(text.rsplit_once(':').map_or(text, |(_, port)| port)))
}

/// The modes that a socket may have: whoever runs the host can always connect.
const MODES: RangeInclusive<u16> = 0o600..=0o777;

/// The mode of a socket from its text, if there is one, and that it is a socket's.
///
/// # Errors
/// One sentence that says what would be right.
pub fn socket_mode(
    at: &Endpoint,
    mode: Option<&str>,
    group: Option<&str>,
) -> Result<Option<u16>, String> {
    if let Endpoint::Tcp(address) = at {
        let key = mode.map(|_| "mode").or(group.map(|_| "group"));
        return match key {
            Some(key) => Err(format!("{key}: only a Unix socket has one, {address} is none")),
            None => Ok(None),
        };
    }
    let Some(text) = mode else { return Ok(None) };
    let octal = text.bytes().all(|digit| digit.is_ascii_digit());
    let mode = u16::from_str_radix(text, 8).ok().filter(|mode| octal && MODES.contains(mode));
    mode.map(Some).ok_or_else(|| {
        let text = text.escape_debug();
        format!("mode '{text}': an octal number from 0600 to 0777 is expected")
    })
}

/// Who may connect to a socket: its mode, and its group by name or number.
///
/// # Errors
/// One sentence that says what would be right.
pub fn access(at: &Endpoint, mode: Option<&str>, group: Option<&str>) -> Result<Access, String> {
    let mode = socket_mode(at, mode, group)?;
    Ok(Access { mode, group: group.map(group_number).transpose()? })
}

fn group_number(text: &str) -> Result<u32, String> {
    let shown = text.escape_debug();
    if !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit()) {
        // The largest means "leave it as it is" to the system.
        let number = text.parse().ok().filter(|number| *number != u32::MAX);
        return number.ok_or_else(|| format!("group '{shown}': at most 4294967294 is expected"));
    }
    match anabranch_rt::group_id(text) {
        Ok(Some(number)) => Ok(number),
        Ok(None) => Err(format!("group '{shown}': this machine has no such group")),
        Err(error) => Err(format!("group '{shown}' cannot be looked up: {error}")),
    }
}

/// What the NBD server says, and what to do where it cannot listen: it replaces the socket of a
/// server that is gone, and leaves everything else at that path alone.
fn explain_refusal(error: &NbdError) -> String {
    if let NbdError::Unknown(_) = error {
        return format!("{error}: 'anabranch export list' shows those that exist");
    }
    let NbdError::Listen(Endpoint::Unix(path), why) = error else { return error.to_string() };
    if why.0 == Errno::PERM.raw_os_error() {
        return format!(
            "{error}: only root, or a member of the group, can give it a socket (systemd: \
             SupplementaryGroups=)"
        );
    }
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

/// The same with its code.
#[must_use]
pub fn refusal(error: &NbdError) -> RpcError {
    let code = match error {
        NbdError::Exists(_) | NbdError::TooMany | NbdError::OtherAccess(..) => RpcError::CONFLICT,
        NbdError::Unknown(_) | NbdError::TooLong { .. } | NbdError::ControlCharacter { .. } => {
            RpcError::INVALID_PARAMS
        }
        NbdError::Listen(..) | NbdError::Draining | NbdError::NotControl => RpcError::FAILED,
    };
    RpcError::new(code, explain_refusal(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_names_an_export_that_is_not_there_is_told_where_to_look() {
        let said = explain_refusal(&NbdError::Unknown("a".into()));
        assert!(said.contains("\"a\"") && said.contains("anabranch export list"), "{said}");
    }

    /// As for devices, paths and namespaces: programs tell by the code what can be done.
    #[test]
    fn what_is_there_already_has_another_code_than_what_is_not() {
        let code = |error| refusal(&error).code;
        assert_eq!(code(NbdError::Exists("a".into())), RpcError::CONFLICT);
        assert_eq!(code(NbdError::TooMany), RpcError::CONFLICT);
        assert_eq!(code(NbdError::Unknown("a".into())), RpcError::INVALID_PARAMS);
        assert_eq!(code(NbdError::ControlCharacter { what: "name" }), RpcError::INVALID_PARAMS);
        assert_eq!(code(NbdError::Draining), RpcError::FAILED);
    }

    #[test]
    fn an_address_is_not_taken_for_the_path_of_a_socket() {
        let addresses = ["127.0.0.1", "127.0.0.1:99999", "::1:10809", "::1", "[::1]"];
        for text in ["localhost:10809", "10809"].into_iter().chain(addresses) {
            let refusal = listen_endpoint(text).expect_err(text);
            assert!(refusal.contains("ADDR:PORT") && refusal.contains(text), "{refusal}");
        }
    }

    #[test]
    fn addresses_and_paths_are_told_apart() {
        let tcp = |text: &str| Endpoint::Tcp(text.parse().expect("an address"));
        assert_eq!(listen_endpoint("127.0.0.1:10809"), Ok(tcp("127.0.0.1:10809")));
        assert_eq!(listen_endpoint("[::1]:0"), Ok(tcp("[::1]:0")));
        for (text, end) in [
            ("/run/x.sock", "/run/x.sock"),
            ("nvme0n1.sock", "/nvme0n1.sock"),
            ("./localhost:10809", "/localhost:10809"),
            ("./10809", "/10809"),
            ("unix:disk:1", "/disk:1"),
            ("/run/disks:1", "/run/disks:1"),
        ] {
            match listen_endpoint(text) {
                Ok(Endpoint::Unix(path)) => assert!(path.ends_with(end), "{text}: {path}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
