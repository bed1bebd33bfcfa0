//! As much of HTTP/1.1 (RFC 9112) as one page needs: the head of a request, checked, and the
//! answer. Each connection carries one request.

use super::exposition::Format;
use super::pace::Found;
use std::sync::Arc;

/// The longest head of a request in bytes: its first line, its fields, the empty line.
pub const MAX_HEAD_BYTES: usize = 8 << 10;

/// A request that parsed. What it may carry besides its head is of no interest here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    /// What is asked for, without a query.
    pub(super) path: &'a str,
    /// Which text the client would rather read.
    pub(super) format: Format,
}

/// What is answered.
pub(super) struct Response {
    pub(super) status: Status,
    pub(super) content_type: &'static str,
    pub(super) body: Body,
    /// It answers HEAD: the body is described, and not sent.
    pub(super) head_only: bool,
}

pub(super) enum Body {
    Sentence(String),
    /// What was counted, as text that others may read, too.
    Counted(Arc<Found>, Format),
}

impl Body {
    fn text(&self) -> &str {
        match self {
            Body::Sentence(text) => text,
            // Whoever answers with it has seen that there is one.
            Body::Counted(found, format) => found.text(*format).unwrap_or_default(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    BadRequest,
    NotFound,
    MethodNotAllowed,
    Timeout,
    TooLarge,
    Failed,
    Unavailable,
    Version,
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Status::Ok => "200 OK",
            Status::BadRequest => "400 Bad Request",
            Status::NotFound => "404 Not Found",
            Status::MethodNotAllowed => "405 Method Not Allowed",
            Status::Timeout => "408 Request Timeout",
            Status::TooLarge => "431 Request Header Fields Too Large",
            Status::Failed => "500 Internal Server Error",
            Status::Unavailable => "503 Service Unavailable",
            Status::Version => "505 HTTP Version Not Supported",
        }
    }
}

impl Response {
    /// A sentence for people.
    pub(super) fn sentence(status: Status, sentence: &str) -> Response {
        let body = Body::Sentence(format!("{sentence}\n"));
        Response { status, content_type: "text/plain; charset=utf-8", body, head_only: false }
    }

    /// As it goes over the wire: the head, and what follows it.
    pub(super) fn parts(&self) -> (String, &str) {
        let body = self.body.text();
        let allow = match self.status {
            Status::MethodNotAllowed => "Allow: GET, HEAD\r\n",
            _ => "",
        };
        let head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
             Connection: close\r\n\r\n",
            self.status.line(),
            self.content_type,
            body.len(),
        );
        (head, if self.head_only { "" } else { body })
    }
}

/// Where the head of a request ends, empty line included; `None` as long as it does not.
pub(super) fn end_of_head(bytes: &[u8]) -> Option<usize> {
    let (mut line, mut begun) = (0, false);
    for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
        // Empty lines before the first are left over from another request (section 2.2).
        match &bytes[line..at] {
            b"" | b"\r" if begun => return Some(at + 1),
            b"" | b"\r" => {}
            _ => begun = true,
        }
        line = at + 1;
    }
    None
}

fn is_end(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

/// Whether a request may begin like this. Otherwise its end need not be waited for: TLS, for one,
/// has no lines.
pub(super) fn may_be_http(bytes: &[u8]) -> bool {
    bytes.iter().find(|byte| !is_end(**byte)).is_none_or(|byte| is_token(*byte))
}

/// The characters of names (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn bad(sentence: &str) -> Response {
    Response::sentence(Status::BadRequest, sentence)
}

/// What is told to whoever speaks something else.
pub(super) fn not_http() -> Response {
    bad("this is no HTTP request; what is served here is plain HTTP, without TLS")
}

/// Parses the head of a request.
///
/// # Errors
/// What to answer instead.
pub(super) fn parse(head: &[u8]) -> Result<Request<'_>, Response> {
    let text = std::str::from_utf8(head).map_err(|_| bad("the request is not text (UTF-8)"))?;
    let mut lines = text.trim_start_matches(['\r', '\n']).lines();
    let line = lines.next().unwrap_or_default();
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = words[..] else { return Err(not_http()) };
    if !line.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        || method.is_empty()
        || !method.bytes().all(is_token)
    {
        return Err(not_http());
    }
    let old = match version {
        "HTTP/1.0" => true,
        "HTTP/1.1" => false,
        _ if version.starts_with("HTTP/") => {
            return Err(Response::sentence(Status::Version, "only HTTP/1.1 is spoken here"));
        }
        _ => return Err(not_http()),
    };
    let (mut hosts, mut accepted) = (0, Vec::new());
    for line in lines.take_while(|line| !line.is_empty()) {
        let field = line.split_once(':').filter(|(name, value)| {
            let printable = |c: char| !c.is_control() || c == '\t';
            !name.is_empty() && name.bytes().all(is_token) && value.chars().all(printable)
        });
        let Some((name, value)) = field else {
            return Err(bad("a header field of the request is not 'Name: value'"));
        };
        if name.eq_ignore_ascii_case("host") {
            hosts += 1;
        } else if name.eq_ignore_ascii_case("accept") {
            accepted.push(value);
        }
    }
    if hosts > 1 || hosts == 0 && !old {
        return Err(bad("the request must have one Host field"));
    }
    Ok(Request { method, path: path_of(target), format: preferred(&accepted) })
}

/// The path of a target in one of its forms (RFC 9112, section 3.2).
fn path_of(target: &str) -> &str {
    let absolute = target.strip_prefix("http://").map(|rest| match rest.find('/') {
        Some(at) => &rest[at..],
        None => "/",
    });
    let path = absolute.unwrap_or(target);
    path.split_once('?').map_or(path, |(path, _)| path)
}

/// OpenMetrics for whoever asks for it and for nothing rather; what every scraper reads otherwise.
fn preferred(accepted: &[&str]) -> Format {
    let (mut open, mut plain) = (0.0, 0.0);
    for range in accepted.iter().flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let weigh = match parts.next().map(str::to_ascii_lowercase).as_deref() {
            Some("application/openmetrics-text") => &mut open,
            Some("text/plain" | "text/*") => &mut plain,
            _ => continue,
        };
        let mut weights = parts.filter_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok());
        *weigh = weights.next().unwrap_or(1.0).max(*weigh);
    }
    if open > 0.0 && open >= plain { Format::OpenMetrics } else { Format::Plain }
}
