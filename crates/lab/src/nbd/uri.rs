//! `nbd://host[:port]/export` and `nbd+unix:///export?socket=path`.
//!
//! Source: `doc/uri.md` of the NetworkBlockDevice project.

use super::{DEFAULT_PORT, MAX_NAME_BYTES};
use std::fmt;
use std::str::FromStr;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// TCP.
    Tcp {
        /// Name or address; IPv6 without its brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// A Unix socket at this path.
    Unix(String),
}

/// An export of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdUri {
    /// Where.
    pub server: Server,
    /// The export's name; empty = the server's default.
    pub export: String,
    text: String,
}

const HELP: &str = "write nbd://HOST:PORT/EXPORT or nbd+unix:///EXPORT?socket=PATH";

impl NbdUri {
    /// How clients name an export of a server: what would mean something else is encoded.
    #[must_use]
    pub fn new(server: Server, export: &str) -> NbdUri {
        let name = encoded(export);
        let text = match &server {
            Server::Tcp { host, port } if host.contains(':') => {
                // An interface stands behind '%' (RFC 6874).
                format!("nbd://[{}]:{port}/{name}", host.replace('%', "%25"))
            }
            Server::Tcp { host, port } => format!("nbd://{host}:{port}/{name}"),
            Server::Unix(path) => format!("nbd+unix:///{name}?socket={}", encoded(path)),
        };
        NbdUri { server, export: export.to_owned(), text }
    }
}

impl FromStr for NbdUri {
    type Err = String;

    fn from_str(text: &str) -> Result<NbdUri, String> {
        let wrong = |what: &str| format!("'{text}': {what}; {HELP}");
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(wrong("not an NBD URI"));
        };
        if rest.contains('#') {
            return Err(wrong("an NBD URI has no fragment ('#')"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
        let export = decoded(export).map_err(|e| wrong(&e))?;
        if export.len() > MAX_NAME_BYTES {
            let length = export.len();
            return Err(wrong(&format!("an export of {length} bytes, at most {MAX_NAME_BYTES}")));
        }
        let socket = socket(query).map_err(|e| wrong(&e))?;
        let server = match (scheme, socket) {
            ("nbd", None) => tcp(authority).map_err(|e| wrong(&e))?,
            ("nbd", Some(_)) => return Err(wrong("a socket needs the scheme nbd+unix")),
            ("nbd+unix", Some(path)) if authority.is_empty() => Server::Unix(path),
            ("nbd+unix", Some(_)) => {
                return Err(wrong(&format!("'{authority}' stands where a socket needs no host")));
            }
            ("nbd+unix", None) => return Err(wrong("the socket is missing")),
            ("nbds" | "nbds+unix", _) => return Err(wrong("TLS is not built")),
            _ => return Err(wrong(&format!("the scheme '{scheme}' is not known"))),
        };
        Ok(NbdUri { server, export, text: text.to_owned() })
    }
}

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn socket(query: &str) -> Result<Option<String>, String> {
    let mut socket = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if key != "socket" {
            return Err(format!("'{key}' is not supported here"));
        }
        let path = decoded(value)?;
        if path.is_empty() || socket.replace(path).is_some() {
            return Err("one socket path is needed".to_owned());
        }
    }
    Ok(socket)
}

fn tcp(authority: &str) -> Result<Server, String> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or("']' is missing")?;
            let port = match rest.strip_prefix(':') {
                Some(port) => Some(port),
                None if rest.is_empty() => None,
                None => return Err(format!("'{rest}' behind the address")),
            };
            (host, port)
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err("the host is missing".to_owned());
    }
    let port = match port {
        None | Some("") => DEFAULT_PORT,
        Some(port) => match port.parse() {
            Ok(port) if port > 0 => port,
            _ => return Err(format!("'{port}' is no port, 1 to 65535")),
        },
    };
    Ok(Server::Tcp { host: decoded(host)?, port })
}

/// With percent-encoding of all that is not sure to stand for itself (RFC 3986, section 2.3).
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Without percent-encoding.
fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |at: usize| rest.get(at).and_then(|&byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            return Err("'%' needs two hexadecimal digits".to_owned());
        };
        // Two digits make less than 256.
        bytes.push((high * 16 + low) as u8);
        rest = &rest[2..];
    }
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err("a name must be UTF-8 without a zero byte".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> NbdUri {
        text.parse().expect("a URI")
    }

    #[test]
    fn what_fio_takes_is_taken() {
        let tcp = |host: &str, port| Server::Tcp { host: host.to_owned(), port };
        assert_eq!(uri("nbd://localhost").server, tcp("localhost", 10809));
        assert_eq!(uri("nbd://localhost").export, "");
        assert_eq!(uri("nbd://10.0.0.1:7/a%20b").server, tcp("10.0.0.1", 7));
        assert_eq!(uri("nbd://10.0.0.1:7/a%20b").export, "a b");
        assert_eq!(uri("nbd://[::1]/x").server, tcp("::1", 10809));
        assert_eq!(uri("nbd://[::1]:9/x/y").export, "x/y");
        let unix = uri("nbd+unix:///disk?socket=/run/a%2Bb.sock");
        assert_eq!((unix.server, &*unix.export), (Server::Unix("/run/a+b.sock".into()), "disk"));
        assert_eq!(uri("nbd+unix:///?socket=relative").server, Server::Unix("relative".into()));
    }

    #[test]
    fn what_is_made_is_read_as_what_it_was_made_of() {
        let tcp = |host: &str| Server::Tcp { host: host.to_owned(), port: 9 };
        let unix = |path: &str| Server::Unix(path.to_owned());
        let scoped = tcp("fe80::1%eth0");
        let servers = [
            tcp("192.0.2.1"),
            tcp("::1"),
            scoped.clone(),
            unix("/run/a b?c#d&e%20.sock"),
            unix("/s"),
        ];
        for server in servers {
            for export in ["", "nvme0n1", "ünï cödé", "100%/a b?c#d", "a+b&c=d", "x/y"] {
                let made = NbdUri::new(server.clone(), export);
                assert!(made.text.bytes().all(|byte| byte.is_ascii_graphic()), "{made}");
                assert_eq!(made.text.parse(), Ok(made.clone()));
                assert_eq!((&made.server, &*made.export), (&server, export));
            }
        }
        assert_eq!(NbdUri::new(scoped, "a").text, "nbd://[fe80::1%25eth0]:9/a");
        let plain = NbdUri::new(unix("/run/anabranch/nvme0n1.sock"), "nvme0n1");
        assert_eq!(plain.text, "nbd+unix:///nvme0n1?socket=/run/anabranch/nvme0n1.sock");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, named) in [
            ("127.0.0.1:10809", "not an NBD URI"),
            ("http://x/", "'http'"),
            ("nbds://x/", "TLS"),
            ("nbd:///x", "host"),
            ("nbd://x:0/", "'0'"),
            ("nbd://x:70000/", "70000"),
            ("nbd://[::1/", "']'"),
            ("nbd://[::1]9/", "'9'"),
            ("nbd://x/?socket=/y", "nbd+unix"),
            ("nbd+unix:///x", "socket"),
            ("nbd+unix:///x?socket=", "socket"),
            ("nbd+unix://host/x?socket=/y", "'host'"),
            ("nbd+unix:///x?socket=/y&tls=1", "'tls'"),
            ("nbd://x/%4", "'%'"),
            ("nbd://x/%ff", "UTF-8"),
            ("nbd://x/#y", "fragment"),
        ] {
            let error = text.parse::<NbdUri>().expect_err(text);
            assert!(error.contains(named) && error.contains(HELP), "{text}: {error}");
        }
        let long = format!("nbd://x/{}", "a".repeat(MAX_NAME_BYTES + 1));
        assert!(long.parse::<NbdUri>().expect_err("too long").contains("4096"));
    }
}
