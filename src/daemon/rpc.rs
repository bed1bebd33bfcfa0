//! JSON-RPC 2.0, one request per line: parsing that is bounded in every way, and answers.

use super::wording;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// The longest request in bytes, its newline not counted.
pub const MAX_REQUEST_BYTES: usize = 64 << 10;
/// How deep objects and arrays of a request may nest.
pub const MAX_DEPTH: usize = 16;
/// The longest text that serves as `id`, in bytes.
const MAX_ID_BYTES: usize = 64;
/// The longest message of an error, in characters. It may quote what was sent.
const MAX_MESSAGE_CHARS: usize = 1000;

/// An error answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RpcError {
    /// A code of JSON-RPC, or one of ours from -32000 down.
    pub code: i32,
    /// One clear sentence.
    pub message: String,
}

impl RpcError {
    /// Not JSON.
    pub const PARSE: i32 = -32700;
    /// JSON, but no request.
    pub const INVALID_REQUEST: i32 = -32600;
    /// No such method.
    pub const NO_METHOD: i32 = -32601;
    /// The parameters do not fit the method.
    pub const INVALID_PARAMS: i32 = -32602;
    /// It was tried and failed.
    pub const FAILED: i32 = -32000;
    /// Such a thing exists already, or a limit is reached.
    pub const CONFLICT: i32 = -32001;
    /// Too many clients, or the engine has too much to do.
    pub const BUSY: i32 = -32002;
    /// No answer in time.
    pub const TIMEOUT: i32 = -32003;
    /// The path that was asked for is there already.
    pub const CONNECTED: i32 = -32004;

    /// An error answer. Of a message that is too long its beginning is told.
    pub fn new(code: i32, message: impl Into<String>) -> RpcError {
        let message = wording::shortened(&message.into(), MAX_MESSAGE_CHARS).into_owned();
        RpcError { code, message }
    }

    /// It was tried and failed.
    pub fn failed(message: impl Into<String>) -> RpcError {
        RpcError::new(RpcError::FAILED, message)
    }

    /// The parameters do not fit the method.
    pub fn invalid(message: impl Into<String>) -> RpcError {
        RpcError::new(RpcError::INVALID_PARAMS, message)
    }

    /// There is no such method.
    #[must_use]
    pub fn no_method(method: &str) -> RpcError {
        let method: String = method.chars().take(64).collect();
        RpcError::new(
            RpcError::NO_METHOD,
            format!("there is no method '{}'", method.escape_debug()),
        )
    }
}

/// What a client names its request with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "id must be a whole number or a text")]
pub enum Id {
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: Cow<'a, str>,
    id: Id,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

/// A request that parsed.
#[derive(Debug)]
pub struct Call<'a> {
    /// Given back in the answer.
    pub id: Id,
    /// What to do.
    pub method: String,
    /// With what.
    pub params: Params<'a>,
}

/// The parameters of a request, not yet looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Params<'a>(Option<&'a str>);

impl<'a> Params<'a> {
    /// From the text of a JSON object.
    #[must_use]
    pub fn from_text(text: &'a str) -> Params<'a> {
        Params(Some(text))
    }

    /// Reads them as `T`, in which unknown and duplicate fields are errors.
    ///
    /// # Errors
    /// [`RpcError::INVALID_PARAMS`] with the field's name.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, RpcError> {
        let text = self.0.unwrap_or("{}");
        if !text.trim_start().starts_with('{') {
            return Err(RpcError::invalid("params must be an object"));
        }
        serde_json::from_str(text).map_err(|error| {
            let message = without_place(&error);
            // Of a value that is none of its field's, only the place is told.
            let named = ["unknown field", "missing field", "duplicate field"];
            let is_named = named.iter().any(|named| message.starts_with(named));
            let field = if is_named { None } else { field_at(text, &error) };
            let field = field.map_or(String::new(), |field| format!("{}: ", field.escape_debug()));
            RpcError::invalid(format!("params: {field}{message}"))
        })
    }

    /// Reads them as `T`, an enum with a variant for each of these fields.
    ///
    /// # Errors
    /// [`RpcError::INVALID_PARAMS`] when it is not exactly one of them, or not its value.
    pub fn one_of<T: DeserializeOwned>(self, fields: &str) -> Result<T, RpcError> {
        let count = self.read::<serde_json::Map<String, serde_json::Value>>()?.len();
        if count != 1 {
            return Err(RpcError::invalid(format!("params: give one of {fields}")));
        }
        self.read()
    }

    /// There must be none.
    ///
    /// # Errors
    /// [`RpcError::INVALID_PARAMS`] with the field's name.
    pub fn none(self) -> Result<(), RpcError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Nothing {}
        self.read::<Nothing>().map(|_| ())
    }
}

/// The message of an error without "at line 1 column 20", which says nothing to a client.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    wording::plain(&text[..end], "an object").into_owned()
}

/// The field whose value an error is about: the last one before its place.
fn field_at<'a>(text: &'a str, error: &serde_json::Error) -> Option<&'a str> {
    let line = text.lines().nth(error.line().checked_sub(1)?)?;
    let mut rest = line.get(..error.column().min(line.len()))?;
    let mut field = None;
    while let Some((_, opened)) = rest.split_once('"') {
        let mut escaped = false;
        let end = opened.find(|c: char| {
            let closes = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            closes
        })?;
        rest = &opened[end + 1..];
        if rest.trim_start().starts_with(':') {
            field = Some(&opened[..end]);
        }
    }
    field
}

/// Parses one request line.
///
/// # Errors
/// The answer to give (with `id` null): not UTF-8, not JSON, too deep, an unknown or duplicate
/// field, a batch, a notification.
pub fn parse(line: &[u8]) -> Result<Call<'_>, RpcError> {
    let text = std::str::from_utf8(line)
        .map_err(|_| RpcError::new(RpcError::PARSE, "the request is not UTF-8"))?;
    if !depth_within(line, MAX_DEPTH) {
        let message = format!("the request nests deeper than {MAX_DEPTH}");
        return Err(RpcError::new(RpcError::PARSE, message));
    }
    if text.trim_start().starts_with('[') {
        return Err(RpcError::new(RpcError::INVALID_REQUEST, "batches are not supported"));
    }
    let envelope: Envelope = serde_json::from_str(text).map_err(|error| {
        if error.is_data() {
            RpcError::new(RpcError::INVALID_REQUEST, without_place(&error))
        } else {
            RpcError::new(RpcError::PARSE, error.to_string())
        }
    })?;
    if envelope.jsonrpc != "2.0" {
        return Err(RpcError::new(RpcError::INVALID_REQUEST, "jsonrpc must be \"2.0\""));
    }
    if matches!(&envelope.id, Id::Text(text) if text.len() > MAX_ID_BYTES) {
        let message = format!("id is longer than {MAX_ID_BYTES} bytes");
        return Err(RpcError::new(RpcError::INVALID_REQUEST, message));
    }
    Ok(Call {
        id: envelope.id,
        method: envelope.method.into_owned(),
        params: Params(envelope.params.map(RawValue::get)),
    })
}

/// Whether brackets outside of texts nest at most `limit` deep.
fn depth_within(bytes: &[u8], limit: usize) -> bool {
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'{' | b'[' => {
                depth += 1;
                if depth > limit {
                    return false;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    true
}

/// What a request came to, as JSON text. Of a host with thousands of paths that is megabytes, and a
/// tree of its values would take many times as much.
#[derive(Debug)]
pub struct Answer(Box<RawValue>);

impl Answer {
    /// # Errors
    /// It has no form in JSON.
    pub fn of(value: &impl Serialize) -> Result<Answer, RpcError> {
        let text = serde_json::value::to_raw_value(value);
        text.map(Answer).map_err(|error| RpcError::failed(error.to_string()))
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        self.0.get()
    }
}

#[derive(Serialize)]
struct AnswerLine<'a> {
    jsonrpc: &'static str,
    id: Option<&'a Id>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<RpcError>,
}

/// The line that answers a request, newline included. `id` is `None` when it could not be read.
#[must_use]
pub fn answer(id: Option<&Id>, result: Result<Answer, RpcError>) -> Vec<u8> {
    let (result, error) = match result {
        Ok(Answer(text)) => (Some(text), None),
        Err(error) => (None, Some(error)),
    };
    let line = AnswerLine { jsonrpc: "2.0", id, result, error };
    let text = serde_json::to_vec(&line);
    let mut line = text.unwrap_or_else(|error| unreachable!("it is JSON already: {error}"));
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only whether they can be read matters")]
    struct Outer {
        name: String,
        path: Option<Inner>,
        samples: Option<u32>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only whether they can be read matters")]
    struct Inner {
        tos: u8,
    }

    #[test]
    fn a_value_that_is_none_of_its_fields_is_told_with_the_field() {
        for (text, told) in [
            (r#"{"name":7}"#, "params: name: invalid type: integer `7`, expected a string"),
            (r#"{"name":"a:\"b\":","samples":-1}"#, "params: samples: invalid value"),
            (r#"{"name":"x","samples":"y"}"#, "params: samples: invalid type: string"),
            (
                r#"{"name":"x","path":{"tos":300}}"#,
                "params: tos: invalid value: integer `300`, expected a whole number from 0 to 255",
            ),
            (r#"{"name":"x", "path" : 1}"#, "params: path: invalid type: integer `1`"),
            ("{\"name\":\n[]}", "params: invalid type: sequence"),
            (r#"{"names":"x"}"#, "params: unknown field `names`"),
            ("{}", "params: missing field `name`"),
        ] {
            let error = Params::from_text(text).read::<Outer>().expect_err(text);
            assert!(error.message.starts_with(told), "{text}: {}", error.message);
        }
        assert!(Params::from_text("{}").read::<Value>().is_ok());
    }

    #[test]
    fn a_long_value_is_not_told_whole() {
        let text = format!(r#"{{"name":"x","samples":"{}"}}"#, "ä".repeat(20_000));
        let error = Params::from_text(&text).read::<Outer>().expect_err("no number");
        assert_eq!(error.message.chars().count(), MAX_MESSAGE_CHARS + 2);
        assert!(error.message.starts_with("params: samples: invalid type: string"));
    }
}
