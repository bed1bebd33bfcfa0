//! NVMe qualified names.

use alloc::sync::Arc;
use core::fmt;
use core::str::FromStr;

/// A checked NVMe qualified name (Base 4.5): UTF-8, at most 223 bytes, no control characters.
///
/// [`FromStr`] asks for one that is qualified, too: it starts with `nqn.`, and the UUID form
/// (`nqn.2014-08.org.nvmexpress:uuid:…`) holds a UUID. What a peer calls its subsystem need not be:
/// Linux's target takes any text ([`Nqn::as_named`], [`Nqn::from_field`]).
///
/// Cloning shares the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nqn(Arc<str>);

/// Why a text or a field is no NQN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NqnError {
    /// There is nothing.
    Empty,
    /// More than 223 bytes.
    TooLong,
    /// Does not start with `nqn.` and go on.
    Prefix,
    /// A control character at this byte.
    Control(u8),
    /// Not UTF-8.
    Encoding,
    /// The UUID form without a UUID.
    Uuid,
    /// The 256-byte field has no zero byte within 224 bytes, or something follows the first one.
    Unterminated,
}

impl fmt::Display for NqnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NqnError::Empty => f.write_str("empty NQN"),
            NqnError::TooLong => write!(f, "NQN longer than {} bytes", Nqn::MAX_BYTES),
            NqnError::Prefix => f.write_str("NQN does not start with \"nqn.\" and a name"),
            NqnError::Control(at) => write!(f, "NQN has a control character at byte {at}"),
            NqnError::Encoding => f.write_str("NQN is not UTF-8"),
            NqnError::Uuid => f.write_str("NQN of the UUID form holds no UUID"),
            NqnError::Unterminated => {
                f.write_str("NQN field is not one zero-terminated, zero-padded text")
            }
        }
    }
}

impl core::error::Error for NqnError {}

impl Nqn {
    /// The longest name in bytes, without the terminating zero.
    pub const MAX_BYTES: usize = 223;

    /// The size of the field in Connect data, Identify and discovery entries, in bytes.
    pub const FIELD_BYTES: usize = 256;

    /// The well-known name of the discovery subsystem, as text.
    pub const DISCOVERY: &'static str = "nqn.2014-08.org.nvmexpress.discovery";

    const UUID_FORM: &'static str = "nqn.2014-08.org.nvmexpress:uuid:";

    /// The well-known name of the discovery subsystem.
    #[must_use]
    pub fn discovery() -> Nqn {
        Nqn(Arc::from(Self::DISCOVERY))
    }

    /// The name that holds nothing but a UUID, as hosts generate theirs.
    #[must_use]
    pub fn from_uuid(uuid: super::Uuid) -> Nqn {
        Nqn(Arc::from(alloc::format!("{}{uuid}", Self::UUID_FORM)))
    }

    /// The name that somebody else has given to a subsystem, qualified or not.
    ///
    /// # Errors
    /// Nothing, more than 223 bytes, or a control character.
    pub fn as_named(text: &str) -> Result<Nqn, NqnError> {
        if text.is_empty() {
            return Err(NqnError::Empty);
        }
        if text.len() > Self::MAX_BYTES {
            return Err(NqnError::TooLong);
        }
        if let Some((at, _)) = text.char_indices().find(|(_, letter)| letter.is_control()) {
            return Err(NqnError::Control(u8::try_from(at).unwrap_or(u8::MAX)));
        }
        Ok(Nqn(Arc::from(text)))
    }

    /// The name, if it has a form that the specification knows.
    ///
    /// # Errors
    /// It does not start with `nqn.` and go on, or has the UUID form without a UUID.
    pub fn qualified(self) -> Result<Nqn, NqnError> {
        if self.0.strip_prefix("nqn.").is_none_or(str::is_empty) {
            return Err(NqnError::Prefix);
        }
        if let Some(uuid) = self.0.strip_prefix(Self::UUID_FORM) {
            uuid.parse::<super::Uuid>().map_err(|_| NqnError::Uuid)?;
        }
        Ok(self)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the well-known discovery subsystem.
    #[must_use]
    pub fn is_discovery(&self) -> bool {
        self.as_str() == Self::DISCOVERY
    }

    /// Reads a zero-terminated, zero-padded field, whose name may be a qualified one or not.
    ///
    /// # Errors
    /// The field is not terminated within 224 bytes, has bytes behind the terminator, or holds no
    /// name.
    pub fn from_field(field: &[u8; Nqn::FIELD_BYTES]) -> Result<Nqn, NqnError> {
        let end = field.iter().position(|&byte| byte == 0).ok_or(NqnError::Unterminated)?;
        if end > Self::MAX_BYTES || field[end..].iter().any(|&byte| byte != 0) {
            return Err(NqnError::Unterminated);
        }
        Nqn::as_named(core::str::from_utf8(&field[..end]).map_err(|_| NqnError::Encoding)?)
    }

    /// The zero-padded 256-byte field.
    #[must_use]
    pub fn to_field(&self) -> [u8; Nqn::FIELD_BYTES] {
        let mut field = [0; Self::FIELD_BYTES];
        field[..self.0.len()].copy_from_slice(self.0.as_bytes());
        field
    }
}

impl FromStr for Nqn {
    type Err = NqnError;

    fn from_str(text: &str) -> Result<Nqn, NqnError> {
        Nqn::as_named(text)?.qualified()
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}
