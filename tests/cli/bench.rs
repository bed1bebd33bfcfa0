//! Options of `bench` that would do nothing where the load runs are refused, so that nobody
//! believes to have measured what was not.

use anabranch::bench::report::Figures;
use anabranch::cli::args::Cli;
use anabranch::daemon::load::JobSpec;
use clap::Parser;
use clap::error::ErrorKind;
use serde_json::{Value, json};
use std::time::Duration;

fn parse(options: &[&str]) -> Result<(), ErrorKind> {
    let words = ["anabranch", "bench"].iter().chain(options);
    Cli::try_parse_from(words).map(|_| ()).map_err(|error| error.kind())
}

#[test]
fn what_a_running_host_decides_is_refused_with_its_device() {
    for option in [
        ["--policy", "numa"],
        ["--paths", "2"],
        ["--workers", "2"],
        ["--cpus", "0"],
        ["-a", "127.0.0.1"],
    ] {
        let words = ["nvme0n1", option[0], option[1]];
        assert_eq!(parse(&words), Err(ErrorKind::ArgumentConflict), "{words:?}");
        assert_eq!(parse(&option), Ok(()), "{option:?}");
    }
}

#[test]
fn what_belongs_to_an_address_needs_one() {
    for option in [["-s", "4420"], ["-n", "nqn.2026-01.org.example:a"], ["-t", "tcp"]] {
        assert_eq!(parse(&option), Err(ErrorKind::MissingRequiredArgument), "{option:?}");
        assert_eq!(parse(&["-a", "::1", option[0], option[1]]), Ok(()), "{option:?}");
    }
    let paths = ["-a", "::1", "--paths", "2"];
    assert_eq!(parse(&paths), Err(ErrorKind::ArgumentConflict));
    assert_eq!(parse(&["-a", "::1", "-s", "0"]), Err(ErrorKind::ValueValidation));
}

#[test]
fn a_job_file_stands_for_the_options_that_say_the_same() {
    let file = ["--job-file", "a.fio"];
    assert_eq!(parse(&file), Ok(()));
    assert_eq!(parse(&["nvme0n1", file[0], file[1], "--runtime", "1s"]), Ok(()));
    for option in [["--rw", "read"], ["--bs", "8k"], ["--iodepth", "2"], ["--size", "1m"]] {
        let words = [file[0], file[1], option[0], option[1]];
        assert_eq!(parse(&words), Err(ErrorKind::ArgumentConflict), "{words:?}");
    }
}

/// Its client stops it before that, unless it was killed.
#[test]
fn a_load_on_a_running_host_is_stopped_by_itself_a_while_after_its_time() {
    let mut spec = json!({
        "device": "nvme0n1", "read_percent": 0, "random": true, "sizes": [[4096, 100]],
        "iodepth": 1, "numjobs": 1, "offset": 0, "size": null, "verify": false, "seed": 1,
    });
    let limit = |spec: &Value| serde_json::from_value::<JobSpec>(spec.clone()).unwrap().limit();
    assert_eq!(limit(&spec), None, "programs may stop it when they like");
    spec["runtime_ns"] = json!(60_000_000_000_u64);
    assert_eq!(limit(&spec), Some(Duration::from_secs(70)));
}

#[test]
fn a_load_that_does_not_fit_says_why() {
    let report = json!({ "reads": 0, "writes": 0, "rejected": "offset 100 is no multiple of 512" });
    let failure = Figures::of(&report).expect_err("nothing was done");
    assert_eq!(failure.to_string(), "no I/O was done: offset 100 is no multiple of 512");
}
