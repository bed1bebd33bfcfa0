//! Markup, piece by piece: what the program wrote itself, and everything else, escaped.

use crate::shown::obeyed;
use std::fmt::{self, Display, Write};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Number,
}

/// A page under construction. Markup can only come from the program's own text; whatever was read
/// or computed goes through [`Page::text`], so that no name can become markup.
#[derive(Debug, Default)]
pub(super) struct Page {
    out: String,
    ids: u32,
}

impl Page {
    pub(super) fn new() -> Page {
        Page::default()
    }

    /// Markup of the program's own.
    pub(super) fn raw(&mut self, markup: &'static str) -> &mut Page {
        self.out.push_str(markup);
        self
    }

    /// Text, or an attribute's value between double quotes.
    pub(super) fn text(&mut self, text: impl Display) -> &mut Page {
        // Writing to a string does not fail.
        let _ = write!(Escaped(&mut self.out), "{text}");
        self
    }

    /// A whole element without attributes; the tag must be a plain name.
    pub(super) fn element(&mut self, tag: &'static str, text: impl Display) -> &mut Page {
        self.raw("<").raw(tag).raw(">").text(text).raw("</").raw(tag).raw(">\n")
    }

    /// A cell with a number.
    pub(super) fn number(&mut self, text: impl Display) -> &mut Page {
        self.raw("<td class=\"n\">").text(text).raw("</td>")
    }

    /// A number that no other element of the page has.
    pub(super) fn fresh(&mut self) -> u32 {
        self.ids += 1;
        self.ids
    }

    /// Opens a table that scrolls in a region of its own when the page is narrow.
    pub(super) fn open_table(&mut self, class: &'static str, caption: impl Display) -> &mut Page {
        let id = self.fresh();
        self.raw("<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-labelledby=\"t");
        self.text(id).raw("\"><table class=\"").raw(class).raw("\"><caption id=\"t").text(id);
        self.raw("\"><span>").text(caption).raw("</span></caption>\n")
    }

    /// Ends what [`Page::open_table`] began.
    pub(super) fn close_table(&mut self) -> &mut Page {
        self.raw("</tbody></table></div>\n")
    }

    /// The head of a table whose columns are numbers but for the first, and the beginning of its
    /// body.
    pub(super) fn head<T: Display>(&mut self, columns: impl IntoIterator<Item = T>) -> &mut Page {
        let mut columns = columns.into_iter();
        let first = columns.next().map(|column| (column, Kind::Text));
        self.head_of(first.into_iter().chain(columns.map(|column| (column, Kind::Number))))
    }

    /// The head of any table, and the beginning of its body.
    pub(super) fn head_of<T: Display>(
        &mut self,
        columns: impl IntoIterator<Item = (T, Kind)>,
    ) -> &mut Page {
        self.raw("<thead><tr>");
        for (column, kind) in columns {
            self.raw(match kind {
                Kind::Text => "<th scope=\"col\">",
                Kind::Number => "<th scope=\"col\" class=\"n\">",
            });
            self.raw("<span>").text(column).raw("</span></th>");
        }
        self.raw("</tr></thead>\n<tbody>\n")
    }

    /// The head of a row, and the row's beginning.
    pub(super) fn row(&mut self, name: impl Display) -> &mut Page {
        self.raw("<tr><th scope=\"row\">").text(name).raw("</th>")
    }

    pub(super) fn end_row(&mut self) -> &mut Page {
        self.raw("</tr>\n")
    }

    pub(super) fn finish(self) -> String {
        self.out
    }
}

struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '\n' | '\t' => self.0.push(c),
                // Characters that could not stand in the file, or turn the writing direction of
                // what follows.
                c if obeyed(c) => self.0.push('\u{fffd}'),
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}
