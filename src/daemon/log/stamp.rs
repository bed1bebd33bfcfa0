//! When a line was written: what happened to a path is held against what others have noted.

use rustix::fs::fstat;
use std::env;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

/// What stands before a line.
pub(super) type Stamp = fn() -> String;

/// For standard error as it is now.
pub(super) fn of_standard_error() -> Stamp {
    let journal = env::var("JOURNAL_STREAM").ok();
    let file = fstat(io::stderr()).map(|stat| (stat.st_dev, stat.st_ino)).ok();
    if leads_to_journal(journal.as_deref(), file) { nothing } else { time }
}

/// Whether systemd's journal reads there, which notes the time of each line itself. The variable
/// `JOURNAL_STREAM` names the device and inode that it gave to the service (systemd.exec(5));
/// standard error may lead elsewhere since.
fn leads_to_journal(journal: Option<&str>, file: Option<(u64, u64)>) -> bool {
    let named = journal.and_then(|text| text.split_once(':'));
    let named = named.and_then(|(dev, ino)| Some((dev.parse().ok()?, ino.parse().ok()?)));
    named.is_some() && named == file
}

fn nothing() -> String {
    String::new()
}

/// In UTC, to the millisecond (RFC 3339).
fn time() -> String {
    // What is before that it cannot write.
    let now = SystemTime::now().max(UNIX_EPOCH);
    format!("{} ", humantime::format_rfc3339_millis(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_needs_no_time_and_whatever_else_reads_does() {
        let file = Some((9, 31337));
        assert!(leads_to_journal(Some("9:31337"), file));
        for other in ["9:31338", "8:31337", "9", "", "9:", "a:b", "9:31337:1"] {
            assert!(!leads_to_journal(Some(other), file), "{other}");
        }
        assert!(!leads_to_journal(None, file));
        assert!(!leads_to_journal(None, None));
        assert!(!leads_to_journal(Some("9"), None));
    }

    #[test]
    fn a_time_is_in_utc_and_of_one_width() {
        let text = time();
        let shape: String =
            text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000-00-00T00:00:00.000Z ");
    }
}
