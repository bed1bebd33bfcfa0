//! Identifiers of namespaces and hosts: UUID, NGUID, EUI64.

use core::fmt;
use core::str::FromStr;

/// A UUID, in the byte order of its text.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

/// A namespace globally unique identifier, most significant byte first as on the wire.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nguid(pub [u8; 16]);

/// An IEEE extended unique identifier, most significant byte first as on the wire.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Eui64(pub [u8; 8]);

/// The text is no identifier of the kind asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadIdentifier {
    /// What was expected, for a human.
    pub expected: &'static str,
}

impl fmt::Display for BadIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not {}", self.expected)
    }
}

impl core::error::Error for BadIdentifier {}

const UUID_TEXT: &str = "a UUID (xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx, hexadecimal)";
const NGUID_TEXT: &str = "an NGUID (32 hexadecimal digits, or in the form of a UUID)";
const EUI64_TEXT: &str = "an EUI64 (16 hexadecimal digits, bytes may be apart by ' ', '-' or ':')";

fn digit(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// Reads `2 * N` hexadecimal digits; `separator_before(byte index)` names what must stand there.
fn hex<const N: usize>(text: &str, separated: impl Fn(usize) -> Option<u8>) -> Option<[u8; N]> {
    let mut out = [0; N];
    let mut rest = text.bytes();
    for (index, byte) in out.iter_mut().enumerate() {
        if let Some(separator) = separated(index)
            && rest.next()? != separator
        {
            return None;
        }
        *byte = digit(rest.next()?)? << 4 | digit(rest.next()?)?;
    }
    rest.next().is_none().then_some(out)
}

fn uuid_separator(index: usize) -> Option<u8> {
    matches!(index, 4 | 6 | 8 | 10).then_some(b'-')
}

fn fmt_uuid(bytes: &[u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (index, byte) in bytes.iter().enumerate() {
        if uuid_separator(index).is_some() {
            f.write_str("-")?;
        }
        write!(f, "{byte:02x}")?;
    }
    Ok(())
}

fn fmt_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

macro_rules! identifier {
    ($name:ident, $bytes:literal) => {
        impl $name {
            /// Whether every byte is zero, which means "none".
            #[must_use]
            pub fn is_zero(&self) -> bool {
                self.0 == [0; $bytes]
            }

            /// The bytes on the wire.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; $bytes] {
                &self.0
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt_hex(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

identifier!(Uuid, 16);
identifier!(Nguid, 16);
identifier!(Eui64, 8);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_uuid(&self.0, f)
    }
}

/// The kernel prints an NGUID in the form of a UUID; `{:x}` gives the 32 bare digits.
impl fmt::Display for Nguid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_uuid(&self.0, f)
    }
}

/// The kernel prints an EUI64 as bytes apart by spaces; `{:x}` gives the 16 bare digits.
impl fmt::Display for Eui64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02x}", if index == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

impl FromStr for Uuid {
    type Err = BadIdentifier;

    fn from_str(text: &str) -> Result<Uuid, BadIdentifier> {
        hex(text, uuid_separator).map(Uuid).ok_or(BadIdentifier { expected: UUID_TEXT })
    }
}

impl FromStr for Nguid {
    type Err = BadIdentifier;

    fn from_str(text: &str) -> Result<Nguid, BadIdentifier> {
        hex(text, uuid_separator)
            .or_else(|| hex(text, |_| None))
            .map(Nguid)
            .ok_or(BadIdentifier { expected: NGUID_TEXT })
    }
}

impl FromStr for Eui64 {
    type Err = BadIdentifier;

    fn from_str(text: &str) -> Result<Eui64, BadIdentifier> {
        let apart = |separator: u8| hex(text, move |index| (index > 0).then_some(separator));
        hex(text, |_| None)
            .or_else(|| b" -:".iter().find_map(|&separator| apart(separator)))
            .map(Eui64)
            .ok_or(BadIdentifier { expected: EUI64_TEXT })
    }
}
