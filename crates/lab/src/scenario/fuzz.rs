//! Bodies for fuzzers: whatever the bytes are, the parsers answer, and what they accept holds.

use super::limits::MAX_CHANGES;
use super::{Job, Mistake, file, fio};
use crate::rng::Rng;

/// A scenario file.
pub fn fuzz_scenario(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match file::parse(&text, "fuzz.toml") {
        Err(mistake) => is_a_sentence(&mistake),
        Ok(loaded) => {
            let scenario = loaded.scenario;
            assert_eq!(scenario.check(), Ok(()));
            assert!(scenario.changes.len() <= MAX_CHANGES);
            assert!(scenario.changes.is_sorted_by_key(|change| change.at_ns));
            scenario.jobs.iter().for_each(draws_hold);
        }
    }
}

/// A job file.
pub fn fuzz_job_file(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match fio::parse(&text, "fuzz.fio") {
        Err(mistake) => is_a_sentence(&mistake),
        Ok(file) => {
            assert!(!file.jobs.is_empty());
            file.jobs.iter().for_each(draws_hold);
        }
    }
}

/// One line, of a bounded length, that a terminal can show.
fn is_a_sentence(mistake: &Mistake) {
    let text = mistake.to_string();
    assert!(!mistake.text.is_empty() && text.chars().count() < 1000, "{text}");
    assert!(!text.contains(char::is_control), "{text:?}");
}

/// Drawing does not panic, and stays below the largest size.
fn draws_hold(job: &Job) {
    let mut rng = Rng::new(1);
    for _ in 0..16 {
        let sizes = job.sizes.of(job.mix.draw(&mut rng));
        let bytes = sizes.draw(&mut rng);
        assert!(bytes > 0 && bytes <= sizes.largest(), "{bytes} of {sizes:?}");
    }
}
