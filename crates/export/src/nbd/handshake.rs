//! Option haggling of one connection: bytes in, bytes out, and at the end an export or a farewell.

use super::exports::{Catalog, Device, Export, Missing};
use super::wire::{self, greeting, info, option, option_reply};
use super::{MAX_HANDSHAKE_BACKLOG_BYTES, MAX_OPTION_BYTES, MAX_OPTIONS, MAX_SKIPPED_OPTION_BYTES};

/// Where a negotiation stands.
pub(super) struct Handshake {
    state: State,
    /// Header or payload of what is being received.
    input: Vec<u8>,
    /// What is to be sent.
    pub(super) output: Vec<u8>,
    no_zeroes: bool,
    structured: bool,
    options: u32,
    /// It may still wait for a device: once, in all.
    patient: bool,
    /// Nobody will say any more who has left.
    given_up: bool,
}

#[derive(Clone, Copy)]
enum State {
    /// Four bytes of flags.
    ClientFlags,
    /// Sixteen bytes of an option.
    OptionHeader,
    /// An option's payload.
    Payload { option: u32, bytes: u32 },
    /// The rest of a payload that is too long.
    Skip { left: u32 },
    /// The device that this option is about, whose payload is there, may still come.
    Waiting { option: u32 },
    /// Nothing more is read.
    Over,
}

/// What came of some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The negotiation goes on. Not all bytes were taken when too much waits to be sent.
    More,
    /// It goes on when there is what the client lacks, or when its patience ends.
    Await(Missing),
    /// The client has taken an export; what follows are requests.
    Open {
        name: String,
        device: Device,
        /// Reads are answered with structured replies.
        structured: bool,
    },
    /// The client said good-bye: send what is there, then close.
    Leave,
    /// The client broke the protocol, or asked for what it can not get without a way to say no.
    Violation(&'static str),
}

impl Handshake {
    /// With the greeting ready to be sent.
    pub(super) fn new() -> Handshake {
        let mut output = Vec::with_capacity(1024);
        output.extend_from_slice(&wire::NBD_MAGIC.to_be_bytes());
        output.extend_from_slice(&wire::OPTION_MAGIC.to_be_bytes());
        let flags = greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES;
        output.extend_from_slice(&flags.to_be_bytes());
        Handshake {
            state: State::ClientFlags,
            input: Vec::new(),
            output,
            no_zeroes: false,
            structured: false,
            options: 0,
            patient: true,
            given_up: false,
        }
    }

    /// How many options have begun.
    pub(super) fn options(&self) -> u32 {
        self.options
    }

    /// The name of the export whose device it waits for; empty when it has asked for no name.
    pub(super) fn awaited(&self) -> Option<&[u8]> {
        match self.state {
            State::Waiting { option } => wanted(option, &self.input),
            _ => None,
        }
    }

    /// From now on it is told at once that a device is not there, or (`given_up`) that it is not
    /// known who has left.
    pub(super) fn lose_patience(&mut self, given_up: bool) {
        self.patient = false;
        self.given_up |= given_up;
    }

    /// Takes bytes. `bytes` moves behind what was used.
    pub(super) fn received(&mut self, bytes: &mut &[u8], catalog: &Catalog<'_>) -> Outcome {
        loop {
            // The answer to an option that waits is small.
            let waits = matches!(self.state, State::Waiting { .. });
            if self.output.len() > MAX_HANDSHAKE_BACKLOG_BYTES && !waits {
                return Outcome::More;
            }
            let outcome = match self.state {
                State::Waiting { option } => self.option(option, catalog),
                State::ClientFlags => match self.collect(bytes, 4) {
                    true => self.client_flags(),
                    false => return Outcome::More,
                },
                State::OptionHeader => match self.collect(bytes, wire::OPTION_BYTES) {
                    true => self.option_header(),
                    false => return Outcome::More,
                },
                State::Payload { option, bytes: wanted } => {
                    match self.collect(bytes, wanted as usize) {
                        true => self.option(option, catalog),
                        false => return Outcome::More,
                    }
                }
                State::Skip { left } => {
                    let now = bytes.len().min(left as usize);
                    *bytes = &bytes[now..];
                    // `now` is at most `left`.
                    let left = left - now as u32;
                    if left > 0 {
                        self.state = State::Skip { left };
                        return Outcome::More;
                    }
                    self.next_option();
                    Outcome::More
                }
                State::Over => return Outcome::More,
            };
            match outcome {
                Outcome::More => {}
                Outcome::Await(_) => return outcome,
                _ => {
                    self.state = State::Over;
                    return outcome;
                }
            }
        }
    }

    /// Moves bytes to `self.input` until it holds `wanted`.
    fn collect(&mut self, bytes: &mut &[u8], wanted: usize) -> bool {
        let now = bytes.len().min(wanted - self.input.len());
        self.input.extend_from_slice(&bytes[..now]);
        *bytes = &bytes[now..];
        self.input.len() == wanted
    }

    fn next_option(&mut self) {
        self.input.clear();
        self.state = State::OptionHeader;
    }

    fn client_flags(&mut self) -> Outcome {
        let flags = be32(&self.input, 0);
        let known = u32::from(greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES);
        if flags & !known != 0 {
            return Outcome::Violation("unknown client flags");
        }
        self.no_zeroes = flags & u32::from(greeting::NO_ZEROES) != 0;
        self.next_option();
        Outcome::More
    }

    fn option_header(&mut self) -> Outcome {
        if be64(&self.input, 0) != wire::OPTION_MAGIC {
            return Outcome::Violation("an option without its magic number");
        }
        let (option, bytes) = (be32(&self.input, 8), be32(&self.input, 12));
        self.options += 1;
        if self.options > MAX_OPTIONS {
            return Outcome::Violation("too many options");
        }
        self.input.clear();
        if bytes <= MAX_OPTION_BYTES {
            self.state = State::Payload { option, bytes };
            return Outcome::More;
        }
        if bytes > MAX_SKIPPED_OPTION_BYTES || option == option::EXPORT_NAME {
            return Outcome::Violation("an option of absurd length");
        }
        self.skip(option, bytes)
    }

    /// An option whose payload is too long to be kept. Where a payload plays no part, its length
    /// does not either.
    fn skip(&mut self, option: u32, bytes: u32) -> Outcome {
        match option {
            // What follows is ignored, as all that follows a good-bye.
            option::ABORT => return self.abort(),
            option::INFO | option::GO => {
                let text = b"the option is too long";
                self.reply(option, option_reply::ERR_TOO_BIG, &[text]);
            }
            option::LIST | option::STRUCTURED_REPLY => self.has_payload(option),
            _ => self.unsupported(option),
        }
        self.state = State::Skip { left: bytes };
        Outcome::More
    }

    fn option(&mut self, option: u32, catalog: &Catalog<'_>) -> Outcome {
        let lacks = wanted(option, &self.input).and_then(|name| catalog.take(name).err());
        let waits = |missing: &Missing| match missing {
            Missing::Export | Missing::Name => false,
            Missing::Device | Missing::Rest => self.patient,
            Missing::Look(_) => !self.given_up,
        };
        if let Some(missing) = lacks.filter(waits) {
            self.state = State::Waiting { option };
            return Outcome::Await(missing);
        }
        self.patient &= !matches!(self.state, State::Waiting { .. });
        self.given_up = false;
        let payload = std::mem::take(&mut self.input);
        let outcome = match option {
            option::EXPORT_NAME => self.export_name(&payload, catalog),
            option::ABORT => self.abort(),
            option::LIST => self.list(&payload, catalog),
            option::INFO | option::GO => self.info(option, &payload, catalog),
            option::STRUCTURED_REPLY => {
                if payload.is_empty() {
                    self.structured = true;
                    self.reply(option, option_reply::ACK, &[]);
                } else {
                    self.has_payload(option);
                }
                Outcome::More
            }
            _ => {
                self.unsupported(option);
                Outcome::More
            }
        };
        // The same memory serves for the next option.
        self.input = payload;
        self.next_option();
        outcome
    }

    /// The one option that has no reply of its own: the export's size and flags, or the end.
    fn export_name(&mut self, payload: &[u8], catalog: &Catalog<'_>) -> Outcome {
        let (export, device) = match catalog.take(payload) {
            Ok(found) => found,
            Err(Missing::Rest | Missing::Look(_)) => {
                return Outcome::Violation(
                    "an export that is still written to for another, asked for in the old way",
                );
            }
            Err(Missing::Export | Missing::Name) => {
                return Outcome::Violation("an unknown export, asked for in the old way");
            }
            Err(Missing::Device) => {
                return Outcome::Violation(
                    "an export without its device, asked for in the old way",
                );
            }
        };
        self.output.extend_from_slice(&device.bytes.to_be_bytes());
        self.output.extend_from_slice(&device.flags(self.structured).to_be_bytes());
        if !self.no_zeroes {
            self.output.extend_from_slice(&[0; 124]);
        }
        Outcome::Open { name: export.name.clone(), device, structured: self.structured }
    }

    fn list(&mut self, payload: &[u8], catalog: &Catalog<'_>) -> Outcome {
        if !payload.is_empty() {
            self.has_payload(option::LIST);
            return Outcome::More;
        }
        for export in catalog.present() {
            let name = export.name.as_bytes();
            // Names are shorter than 2^32 bytes.
            let len = (name.len() as u32).to_be_bytes();
            let parts = [&len[..], name, export.description.as_bytes()];
            self.reply(option::LIST, option_reply::SERVER, &parts);
        }
        self.reply(option::LIST, option_reply::ACK, &[]);
        Outcome::More
    }

    /// `NBD_OPT_INFO` and `NBD_OPT_GO`: name length, name, number of wishes, wishes.
    fn info(&mut self, option: u32, payload: &[u8], catalog: &Catalog<'_>) -> Outcome {
        let Some((name, wishes)) = split_info(payload) else {
            self.invalid(option, b"lengths in the option do not fit together");
            return Outcome::More;
        };
        let asks = option == option::INFO;
        let found = if asks { catalog.find(name) } else { catalog.take(name) };
        let (export, device) = match found {
            Ok(found) => found,
            Err(missing) => {
                let kind = match missing {
                    Missing::Export | Missing::Name | Missing::Device => option_reply::ERR_UNKNOWN,
                    Missing::Rest | Missing::Look(_) => option_reply::ERR_POLICY,
                };
                self.reply(option, kind, &[missing.text().as_bytes()]);
                return Outcome::More;
            }
        };
        self.information(option, export, &device, wishes);
        self.reply(option, option_reply::ACK, &[]);
        if asks {
            return Outcome::More;
        }
        Outcome::Open { name: export.name.clone(), device, structured: self.structured }
    }

    /// Size and block sizes are told always, texts on request.
    fn information(&mut self, option: u32, export: &Export, device: &Device, wishes: &[u8]) {
        let wished =
            |kind: u16| wishes.chunks_exact(2).any(|wish| wish == kind.to_be_bytes().as_slice());
        let size = device.bytes.to_be_bytes();
        let flags = device.flags(self.structured).to_be_bytes();
        self.reply(option, option_reply::INFO, &[&info::EXPORT.to_be_bytes(), &size, &flags]);
        let [min, preferred, max] = device.block_sizes().map(u32::to_be_bytes);
        let kind = info::BLOCK_SIZE.to_be_bytes();
        self.reply(option, option_reply::INFO, &[&kind, &min, &preferred, &max]);
        for (kind, text) in [(info::NAME, &export.name), (info::DESCRIPTION, &export.description)] {
            if wished(kind) && (kind == info::NAME || !text.is_empty()) {
                let parts = [&kind.to_be_bytes()[..], text.as_bytes()];
                self.reply(option, option_reply::INFO, &parts);
            }
        }
    }

    fn abort(&mut self) -> Outcome {
        self.reply(option::ABORT, option_reply::ACK, &[]);
        Outcome::Leave
    }

    fn unsupported(&mut self, option: u32) {
        let text: &[u8] = if option == option::STARTTLS { b"TLS is not supported" } else { b"" };
        self.reply(option, option_reply::ERR_UNSUP, &[text]);
    }

    fn has_payload(&mut self, option: u32) {
        self.invalid(option, b"this option has no payload");
    }

    fn invalid(&mut self, option: u32, text: &[u8]) {
        self.reply(option, option_reply::ERR_INVALID, &[text]);
    }

    fn reply(&mut self, option: u32, kind: u32, parts: &[&[u8]]) {
        self.output.extend_from_slice(&wire::OPTION_REPLY_MAGIC.to_be_bytes());
        self.output.extend_from_slice(&option.to_be_bytes());
        self.output.extend_from_slice(&kind.to_be_bytes());
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        // Texts of ours, names of bounded length.
        self.output.extend_from_slice(&(bytes as u32).to_be_bytes());
        for part in parts {
            self.output.extend_from_slice(part);
        }
    }
}

/// The name of the export that a client wants to take. Who only asks about one is told at once.
fn wanted(option: u32, payload: &[u8]) -> Option<&[u8]> {
    match option {
        option::EXPORT_NAME => Some(payload),
        option::GO => split_info(payload).map(|(name, _)| name),
        _ => None,
    }
}

/// The name and the list of wishes in the payload of `NBD_OPT_INFO`; `None` when it is malformed.
fn split_info(payload: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = payload.split_first_chunk::<4>()?;
    let len = usize::try_from(u32::from_be_bytes(*len)).ok()?;
    let (name, rest) = rest.split_at_checked(len)?;
    let (count, wishes) = rest.split_first_chunk::<2>()?;
    (wishes.len() == 2 * usize::from(u16::from_be_bytes(*count))).then_some((name, wishes))
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}
