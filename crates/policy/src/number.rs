//! Numbers in attributes.

/// A number as the kernel's attributes take it: decimal, hexadecimal behind `0x`, octal behind `0`.
/// No sign, no space.
pub(crate) fn parse(text: &str) -> Option<u32> {
    let (digits, radix) = if let Some(digits) = text.strip_prefix("0x") {
        (digits, 16)
    } else if text.len() > 1 && text.starts_with('0') {
        (&text[1..], 8)
    } else {
        (text, 10)
    };
    // The standard parser would take a sign.
    if !digits.starts_with(|digit: char| digit.is_digit(radix)) {
        return None;
    }
    u32::from_str_radix(digits, radix).ok()
}
