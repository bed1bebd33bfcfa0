//! The server: blocking threads, every client bounded in time, size and number.

use super::super::audit::Audit;
use super::super::crew::{self, Crew};
use super::answer::answer;
use super::http::{self, MAX_HEAD_BYTES, Response, Status};
use super::look::Source;
use super::pace::Looks;
use super::places::{Place, Places};
use crate::failure::Failure;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Threads that stand ready for clients.
const STANDING: usize = 2;

/// What clients may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Clients at once, no more from one address than places are left; others are told so and let
    /// go.
    pub clients: usize,
    /// How long a request may take from the connection to the end of its head.
    pub request: Duration,
    /// How long a client may take to read the whole answer.
    pub answer: Duration,
    /// How long it is waited for its end after that, so that what it still sends does not cost it
    /// the answer (RFC 9112, section 9.6).
    pub linger: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            clients: 16,
            request: Duration::from_secs(5),
            answer: Duration::from_secs(10),
            linger: Duration::from_secs(1),
        }
    }
}

/// The most that is read, and thrown away, of what a client sends beyond its request.
const MAX_REST_BYTES: usize = 256 << 10;

/// An address that is ours, and not yet served.
#[derive(Debug)]
pub struct BoundMetrics {
    listener: TcpListener,
    at: SocketAddr,
}

/// Metrics that are being served.
#[derive(Debug)]
pub struct MetricsServer {
    listener: Arc<TcpListener>,
    at: SocketAddr,
    stopping: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

/// So much of an answer is copied behind its head.
const SMALL_BYTES: usize = 64 << 10;

/// Somebody with a place.
struct Client {
    stream: TcpStream,
    shared: Arc<Shared>,
    _place: Place,
}

struct Shared {
    looks: Looks,
    limits: Limits,
    places: Arc<Places>,
    audit: Audit,
}

impl BoundMetrics {
    /// Takes an address. Port 0 takes any that is free.
    ///
    /// # Errors
    /// Another program has it, or the system refuses.
    pub fn bind(at: SocketAddr) -> Result<BoundMetrics, Failure> {
        let failed = |error: io::Error| {
            let remedy = match error.kind() {
                io::ErrorKind::AddrInUse => ": end what listens there, or choose another port",
                io::ErrorKind::AddrNotAvailable => ": choose an address of this machine",
                _ => "",
            };
            Failure::failed(format!("cannot serve metrics at {at}: {error}{remedy}"))
        };
        let listener = TcpListener::bind(at).map_err(failed)?;
        let at = listener.local_addr().map_err(failed)?;
        Ok(BoundMetrics { listener, at })
    }

    /// Starts to answer.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn serve(self, source: impl Source, limits: Limits) -> Result<MetricsServer, Failure> {
        let BoundMetrics { listener, at } = self;
        let (listener, stopping) = (Arc::new(listener), Arc::new(AtomicBool::new(false)));
        let shared = Arc::new(Shared {
            looks: Looks::new(source),
            limits,
            places: Places::new(limits.clients),
            audit: Audit::default(),
        });
        let crew = Crew::start("metrics", (STANDING, limits.clients), serve);
        let acceptor = {
            let (listener, stopping) = (Arc::clone(&listener), Arc::clone(&stopping));
            crew::begin("metrics", move || accept(&listener, &stopping, &shared, &crew))
        };
        let acceptor = acceptor.map_err(|why| crew::none_for("metrics", &why))?;
        Ok(MetricsServer { listener, at, stopping, acceptor: Some(acceptor) })
    }
}

impl MetricsServer {
    /// Where it is, with the port that it has.
    #[must_use]
    pub fn at(&self) -> SocketAddr {
        self.at
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // Ends the blocking accept.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn accept(
    listener: &TcpListener,
    stopping: &AtomicBool,
    shared: &Arc<Shared>,
    crew: &Crew<Client>,
) {
    while !stopping.load(Ordering::Acquire) {
        crew::await_client(listener);
        match listener.accept() {
            Ok((stream, from)) => admit(stream, from, shared, crew),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if stopping.load(Ordering::Acquire) => return,
            Err(error) => {
                // Out of file descriptors or memory: it passes when a client goes.
                shared.audit.note(&format!("metrics: cannot accept: {error}"));
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// Gives a client a thread of its own, unless there are too many.
fn admit(stream: TcpStream, from: SocketAddr, shared: &Arc<Shared>, crew: &Crew<Client>) {
    let Some(place) = shared.places.take(from.ip()) else {
        shared.audit.note("metrics: too many clients, one was refused");
        let text = "there are too many clients, in all or from your address: try again";
        return turn_away(&stream, text);
    };
    let client = Client { stream, shared: Arc::clone(shared), _place: place };
    if let Err((client, error)) = crew.serve(client) {
        shared.audit.note(&format!("metrics: no thread for a client: {error}"));
        let text = format!("there is no thread for one more client: {error}");
        turn_away(&client.stream, &text);
    }
}

fn turn_away(mut stream: &TcpStream, text: &str) {
    let response = Response::sentence(Status::Unavailable, text);
    let (head, body) = response.parts();
    let bytes = [head.as_bytes(), body.as_bytes()].concat();
    // A fresh socket takes this without waiting, or the client is not there any more.
    let _ = stream.set_nonblocking(true).and_then(|()| stream.write_all(&bytes));
    let _ = stream.shutdown(Shutdown::Write);
    // What it has sent by now does not cost it the answer.
    let _ = stream.read(&mut [0; MAX_HEAD_BYTES]);
}

fn serve(client: Client) {
    // However a client goes (silence, a reset), that is its own affair.
    let _ = talk(&client.stream, &client.shared);
}

fn talk(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    let limits = &shared.limits;
    let response = match read_head(stream, limits.request)? {
        Head::Complete(head) => match http::parse(&head) {
            Ok(request) => answer(request, &shared.looks),
            Err(refusal) => refusal,
        },
        Head::End => return Ok(()),
        Head::Refused(refusal) => refusal,
    };
    let (head, body) = response.parts();
    let deadline = Instant::now() + limits.answer;
    if body.len() <= SMALL_BYTES {
        // In one piece: a second small one would wait for the first to be acknowledged.
        send(stream, (head + body).as_bytes(), deadline)?;
    } else {
        send(stream, head.as_bytes(), deadline)?;
        send(stream, body.as_bytes(), deadline)?;
    }
    stream.shutdown(Shutdown::Write)?;
    drain(stream, limits.linger)
}

enum Head {
    Complete(Vec<u8>),
    End,
    Refused(Response),
}

fn read_head(stream: &TcpStream, limit: Duration) -> io::Result<Head> {
    let (deadline, mut head) = (Instant::now() + limit, Vec::new());
    loop {
        let mut piece = [0; 4096];
        match read(stream, &mut piece, deadline)? {
            None if head.is_empty() => return Ok(Head::End),
            None => {
                let late = "the request was not finished in time";
                return Ok(Head::Refused(Response::sentence(Status::Timeout, late)));
            }
            Some(0) => return Ok(Head::End),
            Some(length) => head.extend_from_slice(&piece[..length]),
        }
        if !http::may_be_http(&head) {
            return Ok(Head::Refused(http::not_http()));
        }
        match http::end_of_head(&head) {
            Some(end) if end <= MAX_HEAD_BYTES => {
                head.truncate(end);
                return Ok(Head::Complete(head));
            }
            None if head.len() < MAX_HEAD_BYTES => {}
            _ => {
                let text = format!("the head of a request has {MAX_HEAD_BYTES} bytes at most");
                return Ok(Head::Refused(Response::sentence(Status::TooLarge, &text)));
            }
        }
    }
}

/// Reads what there is, waiting for it until the deadline; `None` when that has passed.
fn read(mut stream: &TcpStream, into: &mut [u8], deadline: Instant) -> io::Result<Option<usize>> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(into) {
            Ok(length) => return Ok(Some(length)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// Sends all of it by then: a client that takes a byte now and then does not stay.
fn send(mut stream: &TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(length) => bytes = &bytes[length..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads until the client has closed, for a moment: a socket that is closed with something unread
/// resets the connection, and the client may lose the answer.
fn drain(stream: &TcpStream, limit: Duration) -> io::Result<()> {
    let (deadline, mut rest) = (Instant::now() + limit, 0);
    let mut piece = [0; 4096];
    while rest < MAX_REST_BYTES {
        match read(stream, &mut piece, deadline)? {
            Some(length) if length > 0 => rest += length,
            _ => break,
        }
    }
    Ok(())
}
