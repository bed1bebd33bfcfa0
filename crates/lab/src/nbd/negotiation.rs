//! From the greeting to an open export: bytes in, bytes out.

use super::{DEFAULT_MAX_REQUEST_BYTES, LEAST_BLOCK_BYTES, MAX_REPLIES, MAX_REPLY_BYTES};
use anabranch_export::nbd::wire::{self, export_flag, greeting, info, option, option_reply};

/// What a server of before 2007 says in the place of `IHAVEOPT`.
const OLDSTYLE_MAGIC: u64 = 0x0000_4202_8186_1253;
const GREETING_BYTES: usize = 18;
const REPLY_HEADER_BYTES: usize = 20;
/// The largest block that the protocol lets a server ask for.
const MAX_BLOCK_BYTES: u32 = 64 << 10;

/// An export as the server describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its size in bytes.
    pub bytes: u64,
    /// It takes no writes.
    pub read_only: bool,
    /// What offset and length of a request must be multiples of, at least 512.
    pub block_bytes: u32,
    /// The longest request.
    pub max_request_bytes: u32,
}

#[derive(Clone, Copy)]
enum State {
    Greeting,
    ReplyHeader,
    Payload { kind: u32, bytes: u32 },
    Over,
}

/// A negotiation under way.
pub(super) struct Negotiation {
    state: State,
    input: Vec<u8>,
    /// What is to be sent.
    pub(super) output: Vec<u8>,
    export: String,
    replies: u32,
    size: Option<(u64, u16)>,
    blocks: Option<(u32, u32)>,
}

impl Negotiation {
    /// `export` is at most [`super::MAX_NAME_BYTES`] long.
    pub(super) fn new(export: &str) -> Negotiation {
        Negotiation {
            state: State::Greeting,
            input: Vec::with_capacity(GREETING_BYTES),
            output: Vec::new(),
            export: export.to_owned(),
            replies: 0,
            size: None,
            blocks: None,
        }
    }

    /// Takes bytes; `bytes` moves behind what was used. `None`: more is needed.
    ///
    /// # Errors
    /// The server broke the protocol, does not have what is needed, or refuses: one sentence.
    pub(super) fn received(&mut self, bytes: &mut &[u8]) -> Result<Option<Opened>, String> {
        loop {
            let wanted = match self.state {
                State::Greeting => GREETING_BYTES,
                State::ReplyHeader => REPLY_HEADER_BYTES,
                State::Payload { bytes, .. } => bytes as usize,
                State::Over => return Ok(None),
            };
            let now = bytes.len().min(wanted - self.input.len());
            self.input.extend_from_slice(&bytes[..now]);
            *bytes = &bytes[now..];
            if self.input.len() < wanted {
                return Ok(None);
            }
            let input = std::mem::take(&mut self.input);
            match self.state {
                State::Greeting => self.greeting(&input)?,
                State::ReplyHeader => self.reply_header(&input)?,
                State::Payload { kind, .. } => {
                    if let Some(opened) = self.reply(kind, &input)? {
                        self.state = State::Over;
                        return Ok(Some(opened));
                    }
                }
                State::Over => {}
            }
        }
    }

    fn greeting(&mut self, input: &[u8]) -> Result<(), String> {
        if be(input, 0, 8) != wire::NBD_MAGIC {
            return Err(format!(
                "this is no NBD server: it begins with {:#018x}, not with NBDMAGIC",
                be(input, 0, 8)
            ));
        }
        if be(input, 8, 8) == OLDSTYLE_MAGIC {
            return Err("the server speaks oldstyle NBD, fixed newstyle is needed".to_owned());
        }
        if be(input, 8, 8) != wire::OPTION_MAGIC {
            return Err(format!(
                "the greeting goes on with {:#018x}, not with IHAVEOPT",
                be(input, 8, 8)
            ));
        }
        // Two bytes were taken.
        let flags = be(input, 16, 2) as u16;
        if flags & greeting::FIXED_NEWSTYLE == 0 {
            return Err(format!(
                "the greeting's flags are {flags:#06x}: fixed newstyle is needed (bit 0)"
            ));
        }
        let ours = greeting::FIXED_NEWSTYLE | flags & greeting::NO_ZEROES;
        self.output.extend_from_slice(&u32::from(ours).to_be_bytes());
        self.go();
        self.state = State::ReplyHeader;
        Ok(())
    }

    /// `NBD_OPT_GO`: the name, and that block sizes are wanted.
    fn go(&mut self) {
        let name = self.export.as_bytes();
        // The name is at most 4096 bytes.
        let name_bytes = name.len() as u32;
        let out = &mut self.output;
        out.extend_from_slice(&wire::OPTION_MAGIC.to_be_bytes());
        out.extend_from_slice(&option::GO.to_be_bytes());
        out.extend_from_slice(&(4 + name_bytes + 2 + 2).to_be_bytes());
        out.extend_from_slice(&name_bytes.to_be_bytes());
        out.extend_from_slice(name);
        out.extend_from_slice(&1u16.to_be_bytes());
        out.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
    }

    fn reply_header(&mut self, input: &[u8]) -> Result<(), String> {
        if be(input, 0, 8) != wire::OPTION_REPLY_MAGIC {
            return Err(format!(
                "a reply to an option begins with {:#018x}, must with {:#018x}",
                be(input, 0, 8),
                wire::OPTION_REPLY_MAGIC
            ));
        }
        // Each of these fields has four bytes.
        let field = |at| be(input, at, 4) as u32;
        let (to, kind, bytes) = (field(8), field(12), field(16));
        if to != option::GO || !self.output.is_empty() {
            return Err(format!("a reply to option {to}, which was not sent"));
        }
        if bytes > MAX_REPLY_BYTES {
            return Err(format!("a reply of {bytes} bytes, at most {MAX_REPLY_BYTES} make sense"));
        }
        self.replies += 1;
        if self.replies > MAX_REPLIES {
            return Err(format!("more than {MAX_REPLIES} replies to one option"));
        }
        self.state = State::Payload { kind, bytes };
        Ok(())
    }

    fn reply(&mut self, kind: u32, payload: &[u8]) -> Result<Option<Opened>, String> {
        match kind {
            option_reply::INFO => self.info(payload)?,
            option_reply::ACK => return self.opened().map(Some),
            _ if kind >> 31 == 1 => return Err(self.refusal(kind, payload)),
            _ => return Err(format!("a reply of type {kind} to NBD_OPT_GO")),
        }
        self.state = State::ReplyHeader;
        Ok(None)
    }

    fn info(&mut self, payload: &[u8]) -> Result<(), String> {
        let length = |wanted: usize| {
            if payload.len() == wanted {
                return Ok(());
            }
            Err(format!("information of {} bytes, must have {wanted}", payload.len()))
        };
        if payload.len() < 2 {
            return Err(format!("information of {} bytes, has at least 2", payload.len()));
        }
        match be(payload, 0, 2) as u16 {
            info::EXPORT => {
                length(12)?;
                self.size = Some((be(payload, 2, 8), be(payload, 10, 2) as u16));
            }
            info::BLOCK_SIZE => {
                length(14)?;
                // Each of these fields has four bytes.
                let (least, most) = (be(payload, 2, 4) as u32, be(payload, 10, 4) as u32);
                if !least.is_power_of_two() || least > MAX_BLOCK_BYTES {
                    return Err(format!(
                        "the minimum block size is {least}, must be a power of two up to \
                         {MAX_BLOCK_BYTES}"
                    ));
                }
                if most < least {
                    return Err(format!("the maximum block size {most} is below the minimum"));
                }
                self.blocks = Some((least, most));
            }
            // Whoever asks gets information that it does not know, and skips it (protocol).
            _ => {}
        }
        Ok(())
    }

    fn opened(&self) -> Result<Opened, String> {
        let Some((bytes, flags)) = self.size else {
            return Err("the export was opened without telling its size".to_owned());
        };
        if i64::try_from(bytes).is_err() {
            return Err(format!("the export's size is {bytes} bytes, at most 2^63 - 1"));
        }
        let (least, most) = self.blocks.unwrap_or((LEAST_BLOCK_BYTES, DEFAULT_MAX_REQUEST_BYTES));
        let has = |flag| flags & export_flag::HAS_FLAGS != 0 && flags & flag != 0;
        Ok(Opened {
            bytes,
            read_only: has(export_flag::READ_ONLY),
            block_bytes: least.max(LEAST_BLOCK_BYTES),
            max_request_bytes: most,
        })
    }

    fn refusal(&self, kind: u32, payload: &[u8]) -> String {
        let why = match kind {
            option_reply::ERR_UNKNOWN => format!("it has no export '{}'", self.export),
            option_reply::ERR_UNSUP => "it does not know NBD_OPT_GO".to_owned(),
            option_reply::ERR_POLICY => "its policy forbids it".to_owned(),
            option_reply::ERR_TLS_REQD => "it wants TLS, which is not built".to_owned(),
            option_reply::ERR_SHUTDOWN => "it is shutting down".to_owned(),
            _ => format!("error type {:#010x}", kind),
        };
        let text: String = String::from_utf8_lossy(payload)
            .chars()
            .filter(|c| !c.is_control())
            .take(200)
            .collect();
        match text.is_empty() {
            true => format!("the server refuses: {why}"),
            false => format!("the server refuses: {why} (it says: {text})"),
        }
    }
}

/// A big-endian number of `len` bytes at `at`.
fn be(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
}
