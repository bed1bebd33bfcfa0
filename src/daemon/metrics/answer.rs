//! What is asked for, and what is answered.

use super::http::{Body, Request, Response, Status};
use super::pace::Looks;
use std::time::Instant;

/// The one page there is, and where a person who looks for it comes first.
const METRICS: &str = "/metrics";
const INDEX: &str = "<!doctype html><title>anabranch</title><a href=\"/metrics\">/metrics</a>\n";

/// Answers a request.
pub(super) fn answer(request: Request<'_>, looks: &Looks) -> Response {
    if request.path != METRICS && request.path != "/" {
        return Response::sentence(Status::NotFound, "there is nothing here: ask for /metrics");
    }
    let head_only = match request.method {
        "GET" => false,
        "HEAD" => true,
        _ => {
            let sentence = "this can be read with GET, nothing else";
            return Response::sentence(Status::MethodNotAllowed, sentence);
        }
    };
    let response = if request.path == METRICS {
        metrics(request, looks)
    } else {
        let content_type = "text/html; charset=utf-8";
        let body = Body::Sentence(INDEX.to_owned());
        Response { status: Status::Ok, content_type, body, head_only }
    };
    Response { head_only, ..response }
}

fn metrics(request: Request<'_>, looks: &Looks) -> Response {
    let look = match looks.look(Instant::now()) {
        Ok(look) => look,
        Err(why) => return Response::sentence(Status::Unavailable, &why.0),
    };
    let content_type = request.format.content_type();
    if look.text(request.format).is_err() {
        let sentence = "what is counted cannot be written as text";
        return Response::sentence(Status::Failed, sentence);
    }
    let body = Body::Counted(look, request.format);
    Response { status: Status::Ok, content_type, body, head_only: false }
}
