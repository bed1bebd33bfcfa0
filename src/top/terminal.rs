//! The terminal: taken over, drawn on, and always given back as it was.

use super::text::{Line, Look};
use rustix::process::getpgrp;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The other screen, no cursor, nothing wraps.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
/// The reverse, and no colours.
const LEAVE: &str = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";
/// What stands in for a size that the terminal does not know.
const SIZE: (usize, usize) = (80, 24);

/// What is to be given back.
#[derive(Debug)]
struct Before {
    settings: Termios,
    taken: AtomicBool,
}

impl Before {
    /// Gives the terminal back; once.
    fn restore(&self) {
        if self.taken.swap(false, Ordering::AcqRel) {
            // A terminal that has gone needs nothing.
            let mut stdout = io::stdout();
            let _ = stdout.write_all(LEAVE.as_bytes()).and_then(|()| stdout.flush());
            if !in_background() {
                let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.settings);
            }
        }
    }
}

/// Whether the terminal is somebody else's now: a job in the background that changes its settings
/// is stopped, with the signals that should end it (tcsetattr(3), SIGTTOU).
#[must_use]
pub fn in_background() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|foreground| foreground != getpgrp())
}

/// A terminal that is ours. Dropping it gives it back; so does a panic, before it says why.
#[derive(Debug)]
pub struct Terminal {
    before: Arc<Before>,
    colours: bool,
}

impl Terminal {
    /// Takes the terminal over.
    ///
    /// # Errors
    /// Standard input is none.
    pub fn take(colours: bool) -> io::Result<Terminal> {
        let settings = tcgetattr(io::stdin())?;
        let before = Arc::new(Before { settings, taken: AtomicBool::new(false) });
        let in_panic = Arc::clone(&before);
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            in_panic.restore();
            others(info);
        }));
        let terminal = Terminal { before, colours };
        terminal.enter()?;
        Ok(terminal)
    }

    /// Takes the terminal over (again).
    ///
    /// # Errors
    /// It has gone.
    pub fn enter(&self) -> io::Result<()> {
        let mut raw = self.before.settings.clone();
        raw.make_raw();
        self.before.taken.store(true, Ordering::Release);
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?;
        let mut stdout = io::stdout();
        stdout.write_all(ENTER.as_bytes())?;
        stdout.flush()
    }

    /// Gives it back.
    pub fn leave(&self) {
        self.before.restore();
    }

    /// Columns and lines.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (size.ws_col.into(), size.ws_row.into())
            }
            _ => SIZE,
        }
    }

    /// Draws a screen over the one before, in one write.
    ///
    /// # Errors
    /// It has gone.
    pub fn draw(&self, lines: &[Line]) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(paint(lines, self.colours).as_bytes())?;
        stdout.flush()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.leave();
    }
}

/// What is sent to draw these lines from the top.
#[must_use]
pub fn paint(lines: &[Line], colours: bool) -> String {
    let mut text = String::from("\x1b[H");
    for (at, line) in lines.iter().enumerate() {
        if at > 0 {
            text.push_str("\r\n");
        }
        // Before the text: behind a line that is full the cursor stands on its last character.
        text.push_str(if at + 1 < lines.len() { "\x1b[K" } else { "\x1b[J" });
        for piece in &line.0 {
            let code = match (piece.look, colours) {
                (Look::Plain, _) | (Look::Bar, false) => "",
                (Look::Bold, _) => "1",
                (Look::Dim, _) => "2",
                (Look::Selected, _) => "7",
                (Look::Alarm, true) => "31",
                (Look::Alarm, false) => "1",
                (Look::Bar, true) => "36",
            };
            if code.is_empty() || piece.text.is_empty() {
                text.push_str(&piece.text);
            } else {
                text.push_str(&format!("\x1b[{code}m{}\x1b[0m", piece.text));
            }
        }
    }
    text
}
