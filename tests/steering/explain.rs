//! `explain` over real TCP: its counts are those of the paths' `stat`, its shares follow from the
//! weights, and its samples say under which policy they were taken.

use crate::stand::{HEAD, SUBSYSTEM, Stand, WORKERS, reads};
use anabranch::daemon::explain::{ExplainView, PathExplain};

/// Reads of each worker.
const READS: u64 = 4000;
const PATHS: [&str; 2] = ["nvme0c0n1", "nvme0c1n1"];

/// Reads that `stat` counts: its first field.
fn stat_reads(stand: &Stand, path: &str) -> u64 {
    let text = stand.get(path, "stat");
    text.split_whitespace().next().expect("fields").parse().expect("a number")
}

/// Choices of a path for one reason, and all of them.
fn chosen(path: &PathExplain, reason: &str) -> (u64, u64) {
    let of = |wanted: Option<&str>| {
        let choices = path.choices.iter().filter(|c| wanted.is_none_or(|w| c.reason == w));
        choices.map(|choices| choices.commands).sum()
    };
    (of(Some(reason)), of(None))
}

fn sums(view: &ExplainView) -> u64 {
    view.paths.iter().map(|path| path.commands).sum()
}

#[test]
fn x4_counts_add_up_to_the_stat_of_the_paths() {
    let stand = Stand::new(&["rate=800mbit", "rate=200mbit"], 128);
    let nothing = stand.explain();
    assert_eq!((nothing.commands, nothing.samples.len(), nothing.paths.len()), (0, 0, 2));
    stand.set(SUBSYSTEM, "iopolicy", "service-time");
    stand.set(PATHS[0], "relative_throughput", "4");
    stand.run(&reads(&[4096, 128 << 10], 64, Some(READS)));
    let first = stand.explain();
    assert_eq!(
        (first.iopolicy.as_str(), first.iopolicy_set_by.as_str()),
        ("service-time", "attribute")
    );
    assert_eq!((first.commands, sums(&first)), (READS * WORKERS, READS * WORKERS));
    for path in &first.paths {
        let (why, all) = chosen(path, "least-service-time");
        assert_eq!((why, all), (path.commands, path.commands), "no other reason");
        assert_eq!(path.commands, stat_reads(&stand, &path.path), "{}", path.path);
    }
    assert!(first.paths[0].commands > first.paths[1].commands, "the weights show");
    let sizes =
        |path: &PathExplain| path.choices.iter().all(|c| c.size == "<=4k" || c.size == "128k");
    assert!(first.paths.iter().all(sizes));
    // One of each 64 of each worker; of the last ones, fewer than 64, perhaps none.
    let some = READS / 64 * WORKERS..=READS.div_ceil(64) * WORKERS;
    assert!(some.contains(&first.noted), "{} in {some:?}", first.noted);

    stand.set(SUBSYSTEM, "iopolicy", "round-robin");
    stand.ana(&["non-optimized", "optimized"]);
    stand.run(&reads(&[4096], 16, Some(READS)));
    let both = stand.explain();
    let since = both.clone().since(&first).expect("the same run");
    let got: Vec<u64> = since.paths.iter().map(|path| path.commands).collect();
    assert_eq!(got, [0, READS * WORKERS], "the one optimized path");
    assert_eq!(chosen(&since.paths[1], "turn"), (READS * WORKERS, READS * WORKERS));
    assert!(since.samples.iter().all(|sample| sample.iopolicy == "round-robin"));
    assert!(!since.samples.is_empty());
    for (path, total) in both.paths.iter().zip(PATHS.map(|path| stat_reads(&stand, path))) {
        assert_eq!(path.commands, total, "{}", path.path);
    }
    let policies = |name: &str| both.samples.iter().filter(|s| s.iopolicy == name).count() as u64;
    assert_eq!((policies("service-time"), both.noted), (first.noted, both.samples.len() as u64));
    for sample in &both.samples {
        assert_eq!((sample.paths, sample.candidates.len(), sample.op.as_str()), (2, 2, "read"));
        assert!(sample.candidates.iter().any(|c| c.path == sample.path && c.usable));
    }
    assert_eq!(both.device, HEAD);
    for sample in both.samples.iter().filter(|sample| sample.iopolicy == "service-time") {
        for (candidate, weight) in sample.candidates.iter().zip([4, 1]) {
            assert_eq!(candidate.inputs["relative_throughput"], weight);
            let load = candidate.inputs["load_bytes"].as_u64().expect("bytes");
            assert!(load >= u64::from(sample.bytes), "its own bytes count: {sample:?}");
        }
    }
    stand.finish();
}

#[test]
fn explain_of_what_is_not_there_is_refused_with_a_remedy() {
    let stand = Stand::new(&["none"], 32);
    for (params, said) in [
        (r#"{"device":"nvme7n1"}"#, "there is no device nvme7n1: there is nvme0n1"),
        (r#"{"device":"nvme0n1","sample":1}"#, "unknown field `sample`"),
        (r#"{"device":"nvme0n1","samples":-1}"#, "samples"),
        ("{}", "missing field `device`"),
    ] {
        let error = stand.call("explain", params).expect_err("refused");
        assert!(error.message.contains(said) || said == "samples", "{params}: {}", error.message);
    }
    stand.finish();
}
