//! Checks that the structure parsers share.

use crate::error::{Blame, ProtocolError, Rule};
use alloc::string::String;

/// A structure must have at least `needed` bytes.
pub(super) fn length(bytes: &[u8], what: &'static str, needed: usize) -> Result<(), ProtocolError> {
    if bytes.len() >= needed {
        return Ok(());
    }
    let error =
        ProtocolError::new(what, "length", bytes.len() as u64, Rule::AtLeast, needed as u64);
    Err(error.blaming(Blame::Bytes))
}

/// The peer breaks the protocol: `sentence` says how.
pub(super) const fn broken(
    what: &'static str,
    field: &'static str,
    value: u64,
    sentence: &'static str,
) -> ProtocolError {
    ProtocolError::new(what, field, value, Rule::Plain(sentence), 0)
}

/// The peer breaks the protocol in a field of text.
pub(super) const fn no_text(
    what: &'static str,
    field: &'static str,
    sentence: &'static str,
) -> ProtocolError {
    ProtocolError::new(what, field, 0, Rule::Text(sentence), 0)
}

/// A value above what the peer has said in another field.
pub(super) const fn above_its(
    what: &'static str,
    field: &'static str,
    value: u64,
    (limit_field, limit): (&'static str, u64),
) -> ProtocolError {
    ProtocolError::new(what, field, value, Rule::AtMostIts(limit_field), limit)
}

/// The peer keeps the protocol but offers what we cannot use: `sentence` says what.
pub(super) const fn unusable(
    what: &'static str,
    field: &'static str,
    value: u64,
    sentence: &'static str,
) -> ProtocolError {
    broken(what, field, value, sentence).blaming(Blame::Incompatible)
}

/// Text of an ASCII field: up to the first zero, without spaces at the end; what is not printable
/// ASCII becomes `?`, so that it can be shown anywhere.
pub(super) fn ascii(field: &[u8]) -> String {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    let printable = |&byte: &u8| if matches!(byte, 0x20..=0x7e) { byte as char } else { '?' };
    let text: String = field[..end].iter().map(printable).collect();
    String::from(text.trim_end_matches(' '))
}

/// Fills an ASCII field with as much of `text` as fits, `pad` behind it.
pub(super) fn put_ascii(field: &mut [u8], text: &str, pad: u8) {
    field.fill(pad);
    let printable = text.bytes().map(|byte| if matches!(byte, 0x20..=0x7e) { byte } else { b'?' });
    for (to, from) in field.iter_mut().zip(printable) {
        *to = from;
    }
}

/// Copies as much of `from` as fits; the rest of `out` stays as it is.
pub(super) fn copy_prefix(from: &[u8], out: &mut [u8]) {
    let len = from.len().min(out.len());
    out[..len].copy_from_slice(&from[..len]);
}
