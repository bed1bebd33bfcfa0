//! What is asked for, and what is answered.

use super::exposition::exposition;
use super::http::{Request, Response, Status};
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
        let (content_type, body) = ("text/html; charset=utf-8", INDEX.to_owned());
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
    match exposition(&look, request.format) {
        Ok(body) => Response { status: Status::Ok, content_type, body, head_only: false },
        Err(_) => Response::sentence(Status::Failed, "what is counted cannot be written as text"),
    }
}
