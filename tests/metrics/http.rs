//! The server: what it answers, and what clients cannot do to it.

use crate::looks::Fixed;
use crate::stand::{Answer, ask, get, open, open_from, read_all};
use crate::text::parse;
use anabranch::daemon::metrics::{
    BoundMetrics, Format, Limits, Look, MAX_HEAD_BYTES, MetricsServer, Source, Unavailable,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

fn start(source: impl Source, limits: Limits) -> MetricsServer {
    let at = "127.0.0.1:0".parse().expect("an address");
    BoundMetrics::bind(at).expect("a port").serve(source, limits).expect("a thread")
}

fn good(limits: Limits) -> MetricsServer {
    start(Fixed::good(), limits)
}

const OPEN: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

#[test]
fn the_text_is_the_one_that_the_client_would_rather_read() {
    let server = good(Limits::default());
    let of_prometheus = "application/openmetrics-text;version=1.0.0,\
                         application/openmetrics-text;version=0.0.1;q=0.75,\
                         text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    for (accept, content_type, format) in [
        ("*/*", PLAIN, Format::Plain),
        (of_prometheus, OPEN, Format::OpenMetrics),
        ("Application/OpenMetrics-Text", OPEN, Format::OpenMetrics),
        ("application/openmetrics-text;q=0", PLAIN, Format::Plain),
        ("application/openmetrics-text; q=0.1, text/plain", PLAIN, Format::Plain),
    ] {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\r\n");
        let answer = ask(server.at(), request.as_bytes());
        assert_eq!(answer.status, 200);
        assert_eq!(answer.field("content-type"), content_type, "{accept}");
        let found = parse(&answer.body, format);
        assert_eq!(found.value("anabranch_path_retries_total", &[("path", "nvme0c0n1")]), 2.0);
    }
}

#[test]
fn the_first_page_names_the_other() {
    let answer = get(good(Limits::default()).at(), "/");
    assert_eq!((answer.status, answer.field("content-type")), (200, "text/html; charset=utf-8"));
    assert!(answer.body.lines().count() == 1 && answer.body.contains("/metrics"), "{answer:?}");
}

#[test]
fn whoever_asks_in_another_way_gets_the_same() {
    let server = good(Limits::default());
    for request in [
        "GET /metrics HTTP/1.0\r\n\r\n",
        "GET /metrics HTTP/1.0\n\n",
        "\r\nGET /metrics?collect=all HTTP/1.1\r\nhost:a\r\n\r\n",
        "GET http://a:1/metrics HTTP/1.1\r\nHost: a:1\r\nX-Odd:\té\r\n\r\n",
        "GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
    ] {
        let answer = ask(server.at(), request.as_bytes());
        assert_eq!(answer.status, 200, "{request:?}: {answer:?}");
        parse(&answer.body, Format::Plain);
    }
}

#[test]
fn head_is_get_without_the_text() {
    let answer = ask(good(Limits::default()).at(), b"HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
    assert!(answer.field("content-length").parse::<usize>().expect("a length") > 1000);
}

#[test]
fn everything_else_is_refused_with_a_sentence() {
    let server = good(Limits::default());
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(MAX_HEAD_BYTES));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n\r\n", "a: b\r\n".repeat(MAX_HEAD_BYTES / 6));
    let empty = vec![b'\n'; MAX_HEAD_BYTES];
    let endless = vec![b'x'; 4 * MAX_HEAD_BYTES];
    for (request, status) in [
        (&b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n"[..], 404),
        (b"GET /metrics/ HTTP/1.1\r\nHost: a\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx", 405),
        (b"DELETE / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (b"get /metrics HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\nA: \x01\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: \xff\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET /m\x01 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"hello\r\n\r\n", 400),
        // TLS: the first bytes of its first record.
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (long.as_bytes(), 431),
        (many.as_bytes(), 431),
        (&endless, 431),
        (&empty, 431),
    ] {
        let answer = ask(server.at(), request);
        let shown = String::from_utf8_lossy(&request[..request.len().min(60)]).into_owned();
        assert_eq!(answer.status, status, "{shown:?}: {answer:?}");
        assert_eq!(answer.field("content-type"), "text/plain; charset=utf-8", "{shown:?}");
        assert!(answer.body.len() > 10 && answer.body.lines().count() == 1, "{answer:?}");
        assert_eq!(answer.has("allow"), status == 405, "{shown:?}");
    }
    assert_eq!(get(server.at(), "/metrics").status, 200, "it goes on");
}

#[test]
fn half_a_request_and_silence_are_bounded() {
    let limits = Limits { request: Duration::from_millis(200), ..Limits::default() };
    let server = good(limits);
    let half = open(server.at());
    (&half).write_all(b"GET /metrics HT").expect("sent");
    let answer = Answer::read(&half);
    assert_eq!(answer.status, 408, "{answer:?}");
    assert_eq!(read_all(&open(server.at())), b"", "a silent client is let go");
}

#[test]
fn a_host_that_does_not_answer_is_told_as_that() {
    let why = Unavailable("no answer within 5 s".to_owned());
    let answer = get(start(Fixed(Err(why)), Limits::default()).at(), "/metrics");
    assert_eq!((answer.status, answer.body.as_str()), (503, "no answer within 5 s\n"));
}

/// Whether there is a place for a client. One who sends a request and is refused may lose the
/// answer.
fn serves(at: SocketAddr) -> bool {
    let mut text = String::new();
    let mut stream = open(at);
    let _ = stream.write_all(b"GET / HTTP/1.0\r\n\r\n");
    stream.read_to_string(&mut text).is_ok() && text.starts_with("HTTP/1.1 200 ")
}

#[test]
fn clients_beyond_the_limit_are_told_so() {
    let server = good(Limits { clients: 6, request: Duration::from_secs(60), ..Limits::default() });
    let inside: Vec<TcpStream> = (0..3).map(|_| open(server.at())).collect();
    for _ in 0..100 {
        let answer = Answer::read(&open(server.at()));
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!(answer.body.contains("too many clients"), "{answer:?}");
    }
    let mut other = open_from([127, 0, 0, 2], server.at());
    other.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("sent");
    assert_eq!(Answer::read(&other).status, 200, "half of the places are for other addresses");
    for mut stream in &inside {
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("sent");
        assert_eq!(Answer::read(stream).status, 200, "the others are served");
    }
    drop(inside);
    // Their places become free as soon as the server notices.
    while !serves(server.at()) {}
}

#[test]
fn a_client_that_does_not_read_is_let_go() {
    let limits = Limits { answer: Duration::from_millis(100), clients: 1, ..Limits::default() };
    let server = start(Huge, limits);
    let lazy = open(server.at());
    (&lazy).write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("sent");
    assert_eq!((&lazy).read(&mut [0; 1]).expect("it begins"), 1);
    // While it is served, it has the only place.
    while !serves(server.at()) {}
}

/// More than the buffers of a socket take.
struct Huge;

impl Source for Huge {
    fn look(&self) -> Result<Look, Unavailable> {
        let mut look = Fixed::good().0?;
        let one = look.snapshot.subsystems[0].clone();
        look.snapshot.subsystems = (0..4000)
            .map(|number| {
                let mut subsystem = one.clone();
                subsystem.name = format!("nvme-subsys{number}");
                subsystem
            })
            .collect();
        Ok(look)
    }
}
