//! Numbers in attributes.

/// The text is no number of 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoNumber {
    /// It is none at all.
    Invalid,
    /// It does not fit.
    TooLarge,
}

/// A number as the kernel's attributes take it (`kstrtouint` with base 0): decimal, hexadecimal
/// behind `0x`, octal behind `0`. One `+` may come before it; no other sign, no space.
///
/// # Errors
/// See [`NoNumber`].
pub fn parse_number(text: &str) -> Result<u32, NoNumber> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (digits, radix) = match hex {
        Some(hex) => (hex, 16),
        None if digits.len() > 1 && digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    let digit = |c: char| c.to_digit(radix);
    if digits.is_empty() || !digits.chars().all(|c| digit(c).is_some()) {
        return Err(NoNumber::Invalid);
    }
    digits
        .chars()
        .try_fold(0_u32, |sum, c| sum.checked_mul(radix)?.checked_add(digit(c)?))
        .ok_or(NoNumber::TooLarge)
}

/// The same where the reason does not matter; one newline may follow.
pub(crate) fn parse_line(text: &str) -> Option<u32> {
    parse_number(text.strip_suffix('\n').unwrap_or(text)).ok()
}
