//! Text of others' making, fit for a terminal.

use std::fmt;

/// Shows text with nothing in it that a terminal obeys: control characters, line ends among them,
/// and marks that turn the writing direction stand escaped.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        for c in self.0.chars() {
            if obeyed(c) { write!(f, "{}", c.escape_default())? } else { f.write_char(c)? }
        }
        Ok(())
    }
}

/// The same for a text of several lines, whose ends are ours.
#[must_use]
pub fn shown_lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(|line| Shown(line).to_string()).collect();
    lines.join("\n")
}

/// Whether a character is not shown, but changes how or where others are.
#[must_use]
pub fn obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
