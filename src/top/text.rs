//! Text with looks, and numbers in few columns.

/// How a piece of text looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Look {
    /// As everything else.
    #[default]
    Plain,
    /// What one looks for first.
    Bold,
    /// What is of little account now.
    Dim,
    /// The selected head.
    Selected,
    /// Something is wrong.
    Alarm,
    /// Bars.
    Bar,
}

/// A piece of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The text, one column per character.
    pub text: String,
    /// How it looks.
    pub look: Look,
}

/// One line of the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line(pub Vec<Piece>);

impl Line {
    /// A line of one piece.
    #[must_use]
    pub fn new(look: Look, text: impl Into<String>) -> Line {
        Line(vec![Piece { text: text.into(), look }])
    }

    /// Adds a piece.
    pub fn push(&mut self, look: Look, text: impl Into<String>) {
        self.0.push(Piece { text: text.into(), look });
    }

    /// The text alone, without blanks at its end.
    #[must_use]
    pub fn plain(&self) -> String {
        let text: String = self.0.iter().map(|piece| piece.text.as_str()).collect();
        text.trim_end().to_owned()
    }

    /// Columns.
    #[must_use]
    pub fn width(&self) -> usize {
        self.0.iter().map(|piece| piece.text.chars().count()).sum()
    }

    /// No wider than this.
    #[must_use]
    pub fn clipped(mut self, width: usize) -> Line {
        let mut left = width;
        for piece in &mut self.0 {
            let count = piece.text.chars().count();
            if count > left {
                piece.text = piece.text.chars().take(left).collect();
            }
            left = left.saturating_sub(count);
        }
        self
    }
}

/// Text of others' making, fit for a terminal: nothing in it controls, each character takes one
/// column.
#[must_use]
pub fn tame(text: &str) -> String {
    text.chars().map(|c| if c == ' ' || c.is_ascii_graphic() { c } else { '?' }).collect()
}

/// What is not known.
pub const NOTHING: &str = "-";

/// A count in at most five columns or so: `98765`, `123k`, `4.56M`.
#[must_use]
pub fn count(number: f64) -> String {
    match number {
        n if n < 99_999.5 => format!("{n:.0}"),
        n if n < 999_500.0 => format!("{:.0}k", n / 1e3),
        n if n < 99_995_000.0 => format!("{:.2}M", n / 1e6),
        n => format!("{:.0}M", n / 1e6),
    }
}

/// Bytes per second as MiB/s.
#[must_use]
pub fn mib(bytes: f64) -> String {
    let mib = bytes / 1_048_576.0;
    if mib < 9_999.95 { format!("{mib:.1}") } else { format!("{mib:.0}") }
}

/// Bytes: `512`, `64k`, `1.5M`, powers of 1024.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "";
    for next in ["k", "M", "G", "T", "P"] {
        // What rounds to 1000 takes a column too many.
        if value < 999.5 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    let whole = unit.is_empty() || value >= 99.95 || value.fract() == 0.0;
    if whole { format!("{value:.0}{unit}") } else { format!("{value:.1}{unit}") }
}

/// A size with its unit: `64 MiB`, `1.5 TiB`.
#[must_use]
pub fn size(size: u64) -> String {
    let text = bytes(size);
    match text.strip_suffix(|unit: char| unit.is_ascii_alphabetic()) {
        Some(number) => format!("{number} {}iB", text[number.len()..].replace('k', "K")),
        None => format!("{text} B"),
    }
}

/// A time in three digits: `87us`, `1.42ms`, `12.0s`.
#[must_use]
pub fn time(ns: u64) -> String {
    let digits = |value: f64| match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    };
    match ns {
        0..1_000 => format!("{ns}ns"),
        1_000..9_950 => format!("{:.1}us", ns as f64 / 1e3),
        9_950..999_500 => format!("{:.0}us", ns as f64 / 1e3),
        999_500..999_500_000 => format!("{}ms", digits(ns as f64 / 1e6)),
        _ => format!("{}s", digits(ns as f64 / 1e9)),
    }
}

/// How long something runs: `0:04:12`, `3 d 04:12:09`.
#[must_use]
pub fn uptime(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    match days {
        0 => format!("{hours}:{minutes:02}:{seconds:02}"),
        _ => format!("{days} d {hours:02}:{minutes:02}:{seconds:02}"),
    }
}

/// How bars are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bars {
    /// Block elements, an eighth of a column exact.
    Blocks,
    /// `#`.
    Ascii,
}

/// A bar of at most `width` columns, padded to that.
#[must_use]
pub fn bar(share: f64, width: usize, bars: Bars) -> String {
    let share = share.clamp(0.0, 1.0);
    let mut text = match bars {
        Bars::Ascii => {
            let full = (share * width as f64).round() as usize;
            // Something is not nothing.
            "#".repeat(if share > 0.0 { full.max(1) } else { full })
        }
        Bars::Blocks => {
            let eighths = (share * 8.0 * width as f64).round() as usize;
            let eighths = if share > 0.0 { eighths.max(1) } else { eighths };
            let rest = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
            format!("{}{rest}", "█".repeat(eighths / 8))
        }
    };
    let missing = width.saturating_sub(text.chars().count());
    text.push_str(&" ".repeat(missing));
    text
}
