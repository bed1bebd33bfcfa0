//! From what a terminal sends to keys.

/// A key that somebody pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// Enter.
    Enter,
    /// Escape alone.
    Escape,
    /// Backspace.
    Backspace,
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// Home.
    Home,
    /// End.
    End,
    /// Control-C.
    Interrupt,
    /// Control-Z.
    Suspend,
    /// One that means nothing here.
    Other,
}

/// The longest sequence that is waited for; what is longer is no key.
const SEQUENCE_MAX: usize = 16;

/// Takes bytes as they come and finds keys in them. A sequence may come in pieces.
#[derive(Debug, Default)]
pub struct Keys {
    pending: Vec<u8>,
}

impl Keys {
    /// The keys in these bytes. An escape that nothing follows in the same piece is the key itself:
    /// terminals send sequences at once.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.pending.extend_from_slice(bytes);
        let mut keys = Vec::new();
        let mut at = 0;
        while at < self.pending.len() {
            match key(&self.pending[at..]) {
                Some((key, length)) => {
                    keys.push(key);
                    at += length;
                }
                // The rest of it is still to come.
                None if self.pending.len() - at < SEQUENCE_MAX => break,
                None => {
                    keys.push(Key::Other);
                    at = self.pending.len();
                }
            }
        }
        self.pending.drain(..at);
        keys
    }
}

/// The first key and its length; `None` when more has to come.
fn key(bytes: &[u8]) -> Option<(Key, usize)> {
    let single = match bytes[0] {
        0x03 => Key::Interrupt,
        0x1a => Key::Suspend,
        b'\r' | b'\n' => Key::Enter,
        0x08 | 0x7f => Key::Backspace,
        0x1b => return escape(bytes),
        byte if byte == b' ' || byte.is_ascii_graphic() => Key::Char(char::from(byte)),
        _ => Key::Other,
    };
    Some((single, 1))
}

fn escape(bytes: &[u8]) -> Option<(Key, usize)> {
    match bytes.get(1) {
        None => Some((Key::Escape, 1)),
        // Application mode: one more byte.
        Some(b'O') => bytes.get(2).map(|last| (ending(*last, &[]), 3)),
        Some(b'[') => {
            let parameters = bytes[2..].iter().take_while(|byte| !(0x40..=0x7e).contains(*byte));
            let end = 2 + parameters.count();
            bytes.get(end).map(|last| (ending(*last, &bytes[2..end]), end + 1))
        }
        // Alt with a key.
        Some(_) => Some((Key::Other, 2)),
    }
}

fn ending(last: u8, parameters: &[u8]) -> Key {
    match (last, parameters) {
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'H', _) | (b'~', b"1" | b"7") => Key::Home,
        (b'F', _) | (b'~', b"4" | b"8") => Key::End,
        (b'M', []) => Key::Enter,
        (b'~', b"5") => Key::PageUp,
        (b'~', b"6") => Key::PageDown,
        _ => Key::Other,
    }
}
