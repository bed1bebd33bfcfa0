//! Tables as documents have them.

/// A table, column by column padded, so that it reads in a terminal, too.
pub(crate) struct Table {
    lines: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(head: [&str; N]) -> Table {
        let mut table = Table { lines: Vec::new() };
        table.line(head.map(str::to_owned));
        table.line([const { String::new() }; N]);
        table
    }

    pub(crate) fn line<const N: usize>(&mut self, cells: [String; N]) {
        self.lines.push(cells.to_vec());
    }

    /// Prints it under a heading.
    pub(crate) fn print(&self, heading: &str) {
        println!("\n{heading}\n");
        let width = |column: usize| {
            let cells = self.lines.iter().map(|line| line[column].chars().count());
            cells.max().unwrap_or(0).max(3)
        };
        for (number, line) in self.lines.iter().enumerate() {
            let mut text = String::from("|");
            for (column, cell) in line.iter().enumerate() {
                let width = width(column);
                // The line under the head.
                let cell = if number == 1 { "-".repeat(width) } else { cell.clone() };
                text.push_str(&format!(" {cell:width$} |"));
            }
            println!("{text}");
        }
    }
}
