//! What serde says of a value that does not fit, in words of those who wrote the value.

use anabranch_host::verb::IgnoredSnapshot;
use std::borrow::Cow;

/// What serde calls the numbers of a field, and what these are.
const NUMBERS: [(&str, &str); 6] = [
    ("i64", "a whole number"),
    ("u8", "a whole number from 0 to 255"),
    ("u16", "a whole number from 0 to 65535"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("u64", "a whole number, 0 or more"),
    ("usize", "a whole number, 0 or more"),
];

/// The message without names of types. `table` is what the language calls a set of keys and values.
#[must_use]
pub(super) fn plain<'a>(message: &'a str, table: &str) -> Cow<'a, str> {
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return Cow::Borrowed(message);
    };
    let meant = match expected {
        "a sequence" => "a list",
        "a map" => "a table",
        "path string" => "a string",
        _ if expected.starts_with("struct ") => table,
        _ => match NUMBERS.iter().find(|(name, _)| *name == expected) {
            Some((_, meant)) => meant,
            None => return Cow::Borrowed(message),
        },
    };
    Cow::Owned(format!("{found}, expected {meant}"))
}

/// The beginning of a text that may have come from anybody, in characters.
#[must_use]
pub(super) fn shortened(text: &str, chars: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars) {
        Some((end, _)) => Cow::Owned(format!("{} …", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// Namespaces that are told one by one.
const IGNORED_MAX: usize = 8;

/// What a controller that is connected has that became no path: a line for each, as the log says
/// it.
#[must_use]
pub(super) fn of_ignored(ignored: &[IgnoredSnapshot]) -> Vec<String> {
    let told = ignored.iter().take(IGNORED_MAX);
    let mut lines: Vec<_> =
        told.map(|it| format!("namespace {} is not used: {}", it.nsid, it.why)).collect();
    match ignored.len().saturating_sub(IGNORED_MAX) {
        0 => {}
        more => lines.push(format!("{more} more are not used, either: show-topology tells why")),
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_no_path_is_told_within_bounds() {
        let ignored = |count| -> Vec<_> {
            (1..=count).map(|nsid| IgnoredSnapshot { nsid, why: "it is odd".to_owned() }).collect()
        };
        assert_eq!(of_ignored(&ignored(0)), [""; 0]);
        assert_eq!(of_ignored(&ignored(1)), ["namespace 1 is not used: it is odd"]);
        let many = of_ignored(&ignored(11));
        assert_eq!(many.len(), IGNORED_MAX + 1);
        assert_eq!(many[IGNORED_MAX], "3 more are not used, either: show-topology tells why");
    }

    #[test]
    fn types_are_told_as_what_can_be_written() {
        for (said, told) in [
            (
                "invalid value: integer `300`, expected u8",
                "invalid value: integer `300`, expected a whole number from 0 to 255",
            ),
            ("invalid type: map, expected a sequence", "invalid type: map, expected a list"),
            (
                "invalid type: null, expected struct Envelope",
                "invalid type: null, expected a table",
            ),
            ("unknown field `a`, expected `b`", "unknown field `a`, expected `b`"),
            ("missing field `a`", "missing field `a`"),
        ] {
            assert_eq!(plain(said, "a table"), told);
        }
    }
}
