//! Any bytes as a PDU, and as a stream of them.

use crate::error::ProtocolError;
use crate::pdu::{Format, Pdu, Role, View};
use crate::stream::{Step, Stream};
use alloc::vec::Vec;

fn role_and_format(choice: u8) -> (Role, Format) {
    let role = if choice & 1 != 0 { Role::Host } else { Role::Controller };
    let (header_digest, data_digest) = (choice & 2 != 0, choice & 4 != 0);
    (role, Format { header_digest, data_digest, alignment: choice >> 3 })
}

/// The first byte chooses who reads and what was negotiated, the rest is a head. What parses is
/// emitted and parsed again to the same value.
///
/// # Panics
/// When it is not the same.
pub fn pdu(bytes: &[u8]) {
    let [choice, head @ ..] = bytes else { return };
    let (role, format) = role_and_format(*choice);
    let Ok(Some(view)) = View::of(head, role, format) else { return };
    let Ok(pdu) = Pdu::parse(&view) else { return };
    let emitted = pdu.emit(format);
    let again = View::of(emitted.as_bytes(), role, format).expect("what we emit is good");
    let again = again.map(|view| Pdu::parse(&view));
    assert_eq!(again, Some(Ok(pdu)), "what we emit is what we parse");
}

/// What a stream gives, with the pieces of data joined.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    pdus: Vec<Pdu>,
    data: Vec<u8>,
    ends: Vec<bool>,
    error: Option<ProtocolError>,
}

fn listen(stream: &mut Stream, bytes: &[u8], piece: usize) -> Heard {
    let mut heard = Heard::default();
    for mut input in bytes.chunks(piece.max(1)) {
        loop {
            match stream.next(&mut input) {
                Ok(None) => break,
                Ok(Some(Step::Pdu(pdu))) => heard.pdus.push(pdu),
                Ok(Some(Step::Data { bytes, .. })) => heard.data.extend_from_slice(bytes),
                Ok(Some(Step::DataEnd { intact })) => heard.ends.push(intact),
                Err(error) => {
                    assert_eq!(heard.error, None, "an error is told once");
                    heard.error = Some(error);
                }
            }
        }
        assert!(input.is_empty(), "all input is used");
    }
    heard
}

/// The first two bytes choose who reads, what was negotiated and how the rest is cut: however it is
/// cut, the same is heard.
///
/// # Panics
/// When it is not the same.
pub fn stream(bytes: &[u8]) {
    let [choice, piece, bytes @ ..] = bytes else { return };
    let (role, format) = role_and_format(*choice);
    let run = |piece| {
        let mut stream = Stream::new(role);
        stream.set_format(format);
        listen(&mut stream, bytes, piece)
    };
    assert_eq!(run(bytes.len()), run(usize::from(*piece)), "in pieces of {piece}");
}
