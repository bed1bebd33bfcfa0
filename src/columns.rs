//! Tables as text.

/// Columns of text: each as wide as its widest cell, two spaces between, no space at line ends.
#[must_use]
pub fn columns(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let mut text = String::new();
    for row in [&head, &rule].into_iter().chain(rows) {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}
