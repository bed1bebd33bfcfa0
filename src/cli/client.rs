//! The control socket's client: one request, one answer.

use crate::daemon::host::talk;
use crate::daemon::rpc::RpcError;
use crate::daemon::socket::{self, MAX_SOCKET_PATH, Role, SocketError};
use crate::failure::Failure;
use anabranch_lab::shown::Shown;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest answer in bytes.
const MAX_ANSWER_BYTES: u64 = 64 << 20;
/// How long to wait for the answer of a method that only looks: longer than the other side does.
const LOOK: Duration = Duration::from_secs(15);
/// Of any other: it may talk to a controller that is silent, and wait for I/O to end.
const TALK: Duration = Duration::from_secs(150);
/// How much longer than the other side.
const MARGIN: Duration = Duration::from_secs(20);

/// Methods that only look at what is there.
const LOOKS: [&str; 6] = ["snapshot", "top", "explain", "export_list", "get", "status"];

/// How long somebody who was started just before may take until he listens.
const START: Duration = Duration::from_secs(1);

/// Whether an error says that nobody listens; a file in the socket's place is nothing that goes
/// away.
fn is_nobody(error: &io::Error, path: &Path) -> bool {
    match error.kind() {
        io::ErrorKind::NotFound => true,
        io::ErrorKind::ConnectionRefused => !is_something_else(path),
        _ => false,
    }
}

/// The directory of a socket that was named, when it is not there. Our own is made by whoever comes
/// to listen.
fn missing_directory(named: Option<&Path>) -> Option<&Path> {
    let directory = named?.parent().filter(|directory| !directory.as_os_str().is_empty())?;
    std::fs::metadata(directory)
        .is_err_and(|why| why.kind() == io::ErrorKind::NotFound)
        .then_some(directory)
}

/// To connect to a file that is no socket is refused, too.
fn is_something_else(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| !found.file_type().is_socket())
}

/// Where as many connections wait as may, a further one waits for its place: not for ever.
fn connect(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// A running host or target, as seen from the command line.
#[derive(Debug)]
pub struct Client {
    role: Role,
    path: PathBuf,
    stream: UnixStream,
    /// How long an answer is waited for that may need a controller's.
    talk: Duration,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    result: Value,
    error: Option<RpcError>,
}

impl Client {
    /// Connects. Whoever is to listen there may have been started just before, in the line above:
    /// that is waited for, for a second, unless the directory that was named is not there.
    ///
    /// # Errors
    /// Nobody listens there: the text names the verb that starts somebody.
    pub fn connect(role: Role, path: Option<&Path>) -> Result<Client, Failure> {
        let until = Instant::now() + START;
        Client::connect_while(role, path, || {
            std::thread::sleep(Duration::from_millis(5));
            Instant::now() < until
        })
    }

    /// Connects as soon as somebody listens there, and tries `again` until then.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_while(
        role: Role,
        named: Option<&Path>,
        mut again: impl FnMut() -> bool,
    ) -> Result<Client, Failure> {
        let path = named.map_or_else(|| socket::default_path(role), Path::to_owned);
        let bytes = path.as_os_str().len();
        if bytes > MAX_SOCKET_PATH {
            return Err(SocketError::TooLong(path, bytes).into());
        }
        let stream = loop {
            match connect(&path, LOOK) {
                Err(error)
                    if is_nobody(&error, &path)
                        && missing_directory(named).is_none()
                        && again() => {}
                done => break done,
            }
        };
        let stream = stream.map_err(|error| {
            let what = match role {
                Role::Host => "host",
                Role::Target => "target",
            };
            let verb = role.verb();
            let nobody = is_nobody(&error, &path);
            let something_else = is_something_else(&path);
            let path = path.display();
            if let Some(directory) = missing_directory(named) {
                let directory = directory.display();
                return Failure::failed(format!(
                    "no {what} is running on {path}: there is no directory {directory}; name the \
                     {what}'s socket with --socket"
                ));
            }
            if something_else {
                return Failure::failed(format!(
                    "{path} is not a socket: name that of the {what} with --socket"
                ));
            }
            if nobody {
                return Failure::failed(format!(
                    "no {what} is running on {path}: start one with 'anabranch {verb}', or name \
                     its socket with --socket"
                ));
            }
            let why = match error.kind() {
                io::ErrorKind::WouldBlock => {
                    format!("it has taken no connection for {} s", LOOK.as_secs())
                }
                _ => error.to_string(),
            };
            Failure::failed(format!("cannot reach the {what} on {path}: {why}"))
        })?;
        Ok(Client { role, path, stream, talk: TALK })
    }

    /// Waits for longer than the other side does, which waits for a controller that may take so
    /// long over a step.
    pub fn patient(self, admin_timeout: Duration) -> Client {
        Client { talk: talk(admin_timeout).saturating_add(MARGIN), ..self }
    }

    /// Asks and waits for the answer.
    ///
    /// # Errors
    /// What the other side says, or that it does not answer.
    pub fn call(&self, method: &str, params: Value) -> Result<Value, Failure> {
        self.ask(method, params)?.map_err(|error| Failure::Failed(self.explain(error)))
    }

    /// A method of ours that is not known there: somebody else listens, most likely.
    fn explain(&self, error: RpcError) -> String {
        if error.code != RpcError::NO_METHOD {
            return error.message;
        }
        let verb = self.role.verb();
        let path = self.path.display();
        let why = error.message;
        format!("{path} is not the socket of an 'anabranch {verb}', or of an older one: {why}")
    }

    /// What has answered does not speak as we do.
    fn is_another(&self) -> Failure {
        let (path, program) = (self.path.display(), self.role.verb());
        Failure::failed(format!(
            "what answers on {path} is no 'anabranch {program}': its control socket is meant, not \
             that of an export"
        ))
    }

    /// As [`Client::call`], with the other side's error and its code. Nothing in its text controls
    /// a terminal.
    ///
    /// # Errors
    /// It does not answer.
    pub fn ask(&self, method: &str, params: Value) -> Result<Result<Value, RpcError>, Failure> {
        let patience = if LOOKS.contains(&method) { LOOK } else { self.talk };
        let lost = |error: io::Error| {
            let program = self.role.verb();
            let path = self.path.display();
            let why = match error.kind() {
                io::ErrorKind::WouldBlock => format!("nothing came for {} s", patience.as_secs()),
                _ => error.to_string(),
            };
            Failure::failed(format!("'anabranch {program}' on {path} does not answer: {why}"))
        };
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut line = request.to_string();
        line.push('\n');
        self.stream.set_read_timeout(Some(patience)).map_err(lost)?;
        // A server that refuses us answers and closes: then its answer is worth more than our
        // broken pipe.
        let sent = (&self.stream).write_all(line.as_bytes());
        let mut answer = Vec::new();
        let read = BufReader::new(&self.stream)
            .take(MAX_ANSWER_BYTES)
            .read_until(b'\n', &mut answer)
            .map_err(lost);
        if answer.is_empty() {
            sent.map_err(lost)?;
            read?;
            return Err(lost(io::ErrorKind::UnexpectedEof.into()));
        }
        let answer: Answer = serde_json::from_slice(&answer).map_err(|_| self.is_another())?;
        Ok(match answer.error {
            None => Ok(answer.result),
            Some(RpcError { code, message }) => {
                Err(RpcError::new(code, Shown(&message).to_string()))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_controller_that_takes_its_time_is_waited_for_here_longer_than_there() {
        let (stream, _other) = UnixStream::pair().expect("a pair");
        let mut client =
            Client { role: Role::Host, path: PathBuf::new(), stream, talk: Duration::ZERO };
        for seconds in [0, 60, 66, 600, u64::MAX] {
            let admin_timeout = Duration::from_secs(seconds);
            client = client.patient(admin_timeout);
            assert!(client.talk > talk(admin_timeout) || client.talk == Duration::MAX);
            assert!(client.talk >= TALK, "{seconds} s");
        }
    }

    /// Whoever is stopped takes no connection, and each that has asked in vain keeps its place.
    #[test]
    fn a_place_among_those_who_wait_is_not_waited_for_for_ever() {
        let dir = std::env::temp_dir().join(format!("anabranch-{}-client", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let path = dir.join("full.sock");
        let listener = UnixListener::bind(&path).expect("a socket");
        net::listen(&listener, 0).expect("a short line");
        let short = Duration::from_millis(20);
        let waiting: Vec<_> = std::iter::from_fn(|| connect(&path, short).ok()).collect();
        assert!(!waiting.is_empty(), "there is room for one");
        let error = connect(&path, short).expect_err("there is no more");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        listener.accept().expect("the first");
        connect(&path, short).expect("its place is free");
        std::fs::remove_dir_all(&dir).expect("it goes");
    }
}
