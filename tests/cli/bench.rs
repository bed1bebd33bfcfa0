//! Options of `bench` that would do nothing where the load runs are refused, so that nobody
//! believes to have measured what was not.

use anabranch::bench::report::Figures;
use anabranch::cli::args::Cli;
use anabranch::daemon::load::JobSpec;
use clap::Parser;
use clap::error::ErrorKind;
use serde_json::{Value, json};
use std::process::{Command, Output};
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

fn bench(options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.arg("bench").args(options).output().expect("the binary runs")
}

/// Nothing was checked, and it ended as if all had been well.
#[test]
fn a_load_that_writes_nothing_is_not_verified() {
    let file = std::env::temp_dir().join(format!("anabranch-reads-{}.fio", std::process::id()));
    std::fs::write(&file, "[disk]\nrw=randread\n").expect("writable");
    let file_name = file.to_string_lossy();
    for (options, rw) in [
        (&[][..], "'randread' writes nothing:"),
        (&["--rw", "read"], "'read' writes nothing:"),
        (&["--rw", "rw", "--rwmixread", "100"], "'rw' writes nothing with rwmixread 100:"),
        (&["--job-file", &file_name], "'randread' writes nothing:"),
        (&["--nbd", "nbd://127.0.0.1:1/a"], "'randread' writes nothing:"),
        (&["nvme0n1"], "'randread' writes nothing:"),
    ] {
        let refused = bench(&[&["--verify", "--runtime", "1ms", "--runs", "1"], options].concat());
        let told = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{options:?}: {told}");
        assert!(told.contains(&format!("has written, and {rw} use a mixed load")), "{told}");
    }
    let _ = std::fs::remove_file(&file);
}

/// It ran with what there was room for, and its report had the depth that was asked for.
#[test]
fn a_load_deeper_than_workers_hold_is_refused() {
    let load = ["--iodepth", "2048", "--rw", "read", "--runtime", "10ms", "--runs", "1"];
    for (options, on_one) in [(["--numjobs", "3"], 6144), (["--numjobs", "1024"], 2_097_152)] {
        let refused = bench(&[&load[..], &options].concat());
        let told = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{options:?}: {told}");
        let jobs = options[1];
        let wanted = format!("iodepth 2048 and numjobs {jobs} make {on_one} requests at once on");
        assert!(told.contains(&wanted) && told.contains("holds 4096 of a device"), "{told}");
        assert!(told.contains("give more --workers"), "{told}");
    }
    for options in [&["--numjobs", "2"][..], &["--numjobs", "3", "--workers", "2"]] {
        let taken = bench(&[&load[..], options].concat());
        assert!(taken.status.success(), "{}", String::from_utf8_lossy(&taken.stderr));
    }
}

#[test]
fn how_much_was_verified_is_told() {
    let load = ["--rw", "randrw", "--size", "64k", "--runtime", "100ms", "--runs", "2"];
    let verified = bench(&[&load[..], &["--verify"]].concat());
    let told = String::from_utf8_lossy(&verified.stdout);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    let blocks = |line: &str| {
        let number = line.strip_prefix("blocks verified: ")?.strip_suffix(", none of them wrong");
        number?.parse::<u64>().ok()
    };
    assert!(told.lines().find_map(blocks).is_some_and(|blocks| blocks > 0), "{told}");
    let written = bench(&["--rw", "write", "--verify", "--runtime", "100ms", "--runs", "1"]);
    let told = String::from_utf8_lossy(&written.stdout);
    assert!(told.contains("\nblocks verified: 0, for no run has read"), "{told}");
    let plain = bench(&load);
    assert!(plain.status.success(), "{}", String::from_utf8_lossy(&plain.stderr));
    assert!(!String::from_utf8_lossy(&plain.stdout).contains("verified"));
}
