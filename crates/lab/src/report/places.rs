//! Where parts of the page are: names that no file can choose.

/// The section of a scenario.
pub(super) fn place(subject: usize) -> String {
    format!("s{}", subject + 1)
}

/// The verbatim file of this number.
pub(super) fn file_place(index: usize) -> String {
    format!("f{}", index + 1)
}
