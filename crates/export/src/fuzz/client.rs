//! The client's side of the wire: what it sends as bytes, what it gets taken apart.

use crate::nbd::wire::{self, command, greeting, option};
use std::collections::BTreeMap;

/// The client's answer to the greeting.
#[must_use]
pub fn flags() -> Vec<u8> {
    u32::from(greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES).to_be_bytes().to_vec()
}

/// An option.
#[must_use]
pub fn option(option: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = wire::OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend_from_slice(&option.to_be_bytes());
    bytes.extend_from_slice(&u32::try_from(payload.len()).expect("short").to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// The payload of `NBD_OPT_INFO` and `NBD_OPT_GO`.
#[must_use]
pub fn info(name: &str, wishes: &[u16]) -> Vec<u8> {
    let mut bytes = u32::try_from(name.len()).expect("short").to_be_bytes().to_vec();
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(&u16::try_from(wishes.len()).expect("few").to_be_bytes());
    wishes.iter().for_each(|wish| bytes.extend_from_slice(&wish.to_be_bytes()));
    bytes
}

/// Everything from the flags to an opened export.
#[must_use]
pub fn negotiate(name: &str, structured: bool) -> Vec<u8> {
    let mut bytes = flags();
    if structured {
        bytes.extend(option(option::STRUCTURED_REPLY, &[]));
    }
    bytes.extend(option(option::GO, &info(name, &[])));
    bytes
}

/// A request header.
#[must_use]
pub fn request(command: u16, flags: u16, cookie: u64, offset: u64, bytes: u32) -> Vec<u8> {
    let mut header = wire::REQUEST_MAGIC.to_be_bytes().to_vec();
    header.extend_from_slice(&flags.to_be_bytes());
    header.extend_from_slice(&command.to_be_bytes());
    header.extend_from_slice(&cookie.to_be_bytes());
    header.extend_from_slice(&offset.to_be_bytes());
    header.extend_from_slice(&bytes.to_be_bytes());
    header
}

/// A write with its payload.
#[must_use]
pub fn write(flags: u16, cookie: u64, offset: u64, payload: &[u8]) -> Vec<u8> {
    let bytes = u32::try_from(payload.len()).expect("below 4 GiB");
    let mut message = request(command::WRITE, flags, cookie, offset, bytes);
    message.extend_from_slice(payload);
    message
}

/// One reply to an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionReply {
    /// To which option.
    pub option: u32,
    /// Its type.
    pub kind: u32,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// Reads the greeting and replies to options until something else comes; returns the rest.
///
/// # Panics
/// When the greeting is wrong.
#[must_use]
pub fn negotiation(mut bytes: &[u8]) -> (Vec<OptionReply>, &[u8]) {
    assert_eq!(be(&mut bytes, 8), wire::NBD_MAGIC);
    assert_eq!(be(&mut bytes, 8), wire::OPTION_MAGIC);
    assert_eq!(be(&mut bytes, 2), 3, "fixed newstyle, no zeroes");
    let mut replies = Vec::new();
    while bytes.starts_with(&wire::OPTION_REPLY_MAGIC.to_be_bytes()) {
        be(&mut bytes, 8);
        let (option, kind) = (be(&mut bytes, 4) as u32, be(&mut bytes, 4) as u32);
        let len = be(&mut bytes, 4) as usize;
        let (payload, rest) = bytes.split_at(len);
        bytes = rest;
        replies.push(OptionReply { option, kind, payload: payload.to_vec() });
    }
    (replies, bytes)
}

/// What a request was answered with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// 0 or an error number.
    pub errno: u32,
    /// Data of a read, by offset on the device.
    pub data: BTreeMap<u64, Vec<u8>>,
    /// The text of an error chunk.
    pub text: String,
    /// Replies or chunks that it took.
    pub parts: usize,
    /// The answer is complete.
    pub done: bool,
}

impl Answer {
    /// The data in one stretch.
    ///
    /// # Panics
    /// When there are holes or overlaps.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut next = self.data.keys().next().copied();
        for (&offset, part) in &self.data {
            assert_eq!(Some(offset), next, "data is contiguous");
            next = Some(offset + part.len() as u64);
            bytes.extend_from_slice(part);
        }
        bytes
    }
}

/// Takes apart the replies to requests. `reads` gives, for each cookie that is a read, its length
/// (a simple reply does not say it). Returns the rest, an incomplete reply.
///
/// # Panics
/// When the stream is out of step, or a request is answered twice.
#[must_use]
pub fn answers<'a>(
    mut bytes: &'a [u8],
    reads: &BTreeMap<u64, u32>,
) -> (BTreeMap<u64, Answer>, &'a [u8]) {
    let mut answers: BTreeMap<u64, Answer> = BTreeMap::new();
    loop {
        let before = bytes;
        if bytes.len() < 16 {
            return (answers, before);
        }
        let magic = be(&mut bytes, 4) as u32;
        if magic == wire::SIMPLE_REPLY_MAGIC {
            let (errno, cookie) = (be(&mut bytes, 4) as u32, be(&mut bytes, 8));
            let len = reads.get(&cookie).filter(|_| errno == 0).map_or(0, |&len| len as usize);
            if bytes.len() < len {
                return (answers, before);
            }
            let answer = answers.entry(cookie).or_default();
            assert!(!answer.done, "answered twice");
            let (data, rest) = bytes.split_at(len);
            bytes = rest;
            if len > 0 {
                answer.data.insert(0, data.to_vec());
            }
            (answer.errno, answer.done) = (errno, true);
            answer.parts += 1;
            continue;
        }
        assert_eq!(magic, wire::CHUNK_MAGIC, "the stream is in step");
        if bytes.len() < 16 {
            return (answers, before);
        }
        let (flags, kind) = (be(&mut bytes, 2) as u16, be(&mut bytes, 2) as u16);
        let (cookie, len) = (be(&mut bytes, 8), be(&mut bytes, 4) as usize);
        if bytes.len() < len {
            return (answers, before);
        }
        let (mut body, rest) = bytes.split_at(len);
        bytes = rest;
        let answer = answers.entry(cookie).or_default();
        assert!(!answer.done, "answered twice");
        answer.parts += 1;
        answer.done = flags & wire::chunk::DONE != 0;
        match kind {
            wire::chunk::OFFSET_DATA => {
                let offset = be(&mut body, 8);
                assert!(answer.data.insert(offset, body.to_vec()).is_none());
            }
            wire::chunk::ERROR => {
                answer.errno = be(&mut body, 4) as u32;
                assert_eq!(be(&mut body, 2) as usize, body.len());
                answer.text = String::from_utf8(body.to_vec()).expect("text");
            }
            other => panic!("unexpected chunk type {other}"),
        }
    }
}

/// Takes a big-endian number off the front.
fn be(bytes: &mut &[u8], len: usize) -> u64 {
    let (number, rest) = bytes.split_at(len);
    *bytes = rest;
    number.iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
}
