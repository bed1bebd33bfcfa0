//! The control socket's server: blocking threads, every client bounded in time, size and number.

use super::audit::Audit;
use super::crew::{self, Crew};
use super::rpc::{self, Answer, Params, RpcError};
use super::socket::{self, BoundSocket};
use crate::failure::Failure;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Carries out what clients ask for, on the client's thread; it must answer in bounded time.
pub trait Handler: Send + Sync + 'static {
    /// Carries out one request.
    ///
    /// # Errors
    /// The error to answer with.
    fn call(&self, method: &str, params: Params<'_>) -> Result<Answer, RpcError>;
}

/// Threads that stand ready for clients.
const STANDING: usize = 2;

/// What clients may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Clients at once; more are told so and let go.
    pub clients: usize,
    /// How long a client may stay silent between requests.
    pub idle: Duration,
    /// How long a request may take from its first byte to its newline.
    pub request: Duration,
    /// How long a client may take to accept a part of an answer.
    pub answer: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            clients: 64,
            idle: Duration::from_secs(60),
            request: Duration::from_secs(5),
            answer: Duration::from_secs(10),
        }
    }
}

/// A running control socket.
#[derive(Debug)]
pub struct ControlServer {
    socket: Arc<BoundSocket>,
    stopping: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

/// Somebody with a place.
struct Client {
    stream: UnixStream,
    slot: Slot,
}

struct Shared {
    handler: Arc<dyn Handler>,
    limits: Limits,
    clients: AtomicUsize,
    audit: Audit,
}

impl ControlServer {
    /// Binds the socket and starts to answer.
    ///
    /// # Errors
    /// What is wrong with the place, or the system gives no thread.
    pub fn start(
        path: &Path,
        handler: Arc<dyn Handler>,
        limits: Limits,
    ) -> Result<ControlServer, Failure> {
        ControlServer::serve(BoundSocket::bind(path)?, handler, limits)
    }

    /// Starts to answer on a socket that was bound before (so that a second instance is noticed
    /// before anything else is started).
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn serve(
        socket: BoundSocket,
        handler: Arc<dyn Handler>,
        limits: Limits,
    ) -> Result<ControlServer, Failure> {
        let socket = Arc::new(socket);
        let stopping = Arc::new(AtomicBool::new(false));
        let shared = Arc::new(Shared {
            handler,
            limits,
            clients: AtomicUsize::new(0),
            audit: Audit::default(),
        });
        let crew = Crew::start("control", (STANDING, limits.clients), serve);
        let acceptor = {
            let (socket, stopping) = (Arc::clone(&socket), Arc::clone(&stopping));
            crew::begin("control", move || accept(&socket, &stopping, &shared, &crew))
        };
        let acceptor = acceptor.map_err(|why| crew::none_for("the control socket", &why))?;
        Ok(ControlServer { socket, stopping, acceptor: Some(acceptor) })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.socket.path()
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // Ends the blocking accept.
        let _ = rustix::net::shutdown(&self.socket.listener, rustix::net::Shutdown::Both);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn accept(socket: &BoundSocket, stopping: &AtomicBool, shared: &Arc<Shared>, crew: &Crew<Client>) {
    while !stopping.load(Ordering::Acquire) {
        crew::await_client(&socket.listener);
        match socket.listener.accept() {
            Ok((stream, _)) => admit(stream, shared, crew),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if stopping.load(Ordering::Acquire) => return,
            Err(error) => {
                // Out of file descriptors or memory: it passes when a client goes.
                shared.audit.note(&format!("control socket: cannot accept: {error}"));
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// Checks who it is and how many there are, and gives the client a thread of its own.
fn admit(stream: UnixStream, shared: &Arc<Shared>, crew: &Crew<Client>) {
    let uid = match anabranch_rt::credentials(&stream) {
        Ok(peer) => peer.uid,
        Err(error) => {
            shared.audit.note(&format!("control socket: a client without credentials: {error}"));
            return;
        }
    };
    if !socket::may_control(uid, socket::own_uid()) {
        shared.audit.note(&format!("control socket: user {uid} was refused"));
        return;
    }
    if shared.clients.fetch_add(1, Ordering::AcqRel) >= shared.limits.clients {
        shared.clients.fetch_sub(1, Ordering::AcqRel);
        shared.audit.note("control socket: too many clients, one was refused");
        let text = format!("there are {} clients already: try again", shared.limits.clients);
        return turn_away(&stream, text);
    }
    let slot = Slot(Arc::clone(shared));
    if let Err((client, error)) = crew.serve(Client { stream, slot }) {
        shared.audit.note(&format!("control socket: no thread for a client: {error}"));
        turn_away(&client.stream, format!("there is no thread for one more client: {error}"));
    }
}

fn turn_away(mut stream: &UnixStream, text: String) {
    let line = rpc::answer(None, Err(RpcError::new(RpcError::BUSY, text)));
    // A fresh socket takes one line without waiting, or the client is not there any more.
    let _ = stream.set_nonblocking(true).and_then(|()| stream.write_all(&line));
}

fn serve(client: Client) {
    // However a client goes (silence, a broken pipe), that is its own affair.
    let _ = talk(&client.stream, &client.slot.0);
    let _ = client.stream.shutdown(Shutdown::Both);
}

/// A client's place among those allowed at once.
struct Slot(Arc<Shared>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::AcqRel);
    }
}

fn talk(stream: &UnixStream, shared: &Shared) -> io::Result<()> {
    stream.set_write_timeout(Some(shared.limits.answer))?;
    let mut pending: Vec<u8> = Vec::new();
    loop {
        let line = match next_line(stream, &mut pending, &shared.limits)? {
            Line::Complete(line) => line,
            Line::End => return Ok(()),
            Line::Refused(message) => {
                shared.audit.note(&format!("control socket: {message}"));
                let error = RpcError::new(RpcError::INVALID_REQUEST, message);
                return (&*stream).write_all(&rpc::answer(None, Err(error)));
            }
        };
        let answer = match rpc::parse(&line) {
            Ok(call) => rpc::answer(Some(&call.id), shared.handler.call(&call.method, call.params)),
            Err(error) => {
                shared.audit.note(&format!("control socket: refused: {}", error.message));
                rpc::answer(None, Err(error))
            }
        };
        (&*stream).write_all(&answer)?;
    }
}

enum Line {
    Complete(Vec<u8>),
    End,
    Refused(String),
}

/// Reads up to the next newline; what follows it stays in `pending`.
fn next_line(mut stream: &UnixStream, pending: &mut Vec<u8>, limits: &Limits) -> io::Result<Line> {
    let mut deadline = Instant::now() + limits.idle;
    let mut in_request = false;
    let mut searched = 0;
    loop {
        if let Some(at) = pending[searched..].iter().position(|byte| *byte == b'\n') {
            let rest = pending.split_off(searched + at + 1);
            let mut line = std::mem::replace(pending, rest);
            line.pop();
            return Ok(if line.len() > rpc::MAX_REQUEST_BYTES {
                too_long()
            } else {
                Line::Complete(line)
            });
        }
        searched = pending.len();
        if searched > rpc::MAX_REQUEST_BYTES {
            return Ok(too_long());
        }
        if !in_request && !pending.is_empty() {
            in_request = true;
            deadline = Instant::now() + limits.request;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(timed_out(in_request));
        }
        stream.set_read_timeout(Some(left))?;
        let mut piece = [0; 4096];
        match stream.read(&mut piece) {
            Ok(0) => return Ok(Line::End),
            Ok(length) => pending.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(timed_out(in_request));
            }
            Err(error) => return Err(error),
        }
    }
}

fn too_long() -> Line {
    Line::Refused(format!("a request is longer than {} bytes", rpc::MAX_REQUEST_BYTES))
}

fn timed_out(in_request: bool) -> Line {
    if in_request {
        Line::Refused("a request was not finished in time".to_owned())
    } else {
        Line::End
    }
}
