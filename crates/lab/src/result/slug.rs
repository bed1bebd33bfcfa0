//! Names as parts of paths.

use crate::fnv::Fnv;

/// Longer ones are cut: file systems allow names of 255 bytes, and an ending is to come.
const LONGEST: usize = 200;

/// The name as one part of a path: letters, digits, `.`, `-` and `_` stay, a space is `+`, every
/// other byte is `%` and two hexadecimal digits, as in the address of a page. A dot at the
/// beginning is written that way too. Different names have different ones; a name that becomes too
/// long ends in its hash.
#[must_use]
pub(crate) fn slug(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for (place, byte) in name.bytes().enumerate() {
        match byte {
            b'.' if place == 0 => text.push_str("%2E"),
            b' ' => text.push('+'),
            b'.' | b'-' | b'_' => text.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    if text.is_empty() {
        return "%".to_owned();
    }
    if text.len() > LONGEST {
        text.truncate(LONGEST);
        let mut hash = Fnv::new();
        hash.add(name.as_bytes());
        text.push_str(&format!("~{:016x}", hash.get()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::slug;

    #[test]
    fn a_name_becomes_one_safe_part_of_a_path() {
        assert_eq!(slug("service-time tuned"), "service-time+tuned");
        assert_eq!(slug(".."), "%2E.");
        assert_eq!(slug("a/b\\c"), "a%2Fb%5Cc");
        assert_eq!(slug("a+b%"), "a%2Bb%25");
        assert_eq!(slug("µ"), "%C2%B5");
        assert_eq!(slug(""), "%");
        let (long, other) = ("€".repeat(64), "€".repeat(63) + "£");
        assert!(slug(&long).len() < 220);
        assert_ne!(slug(&long), slug(&other));
    }
}
