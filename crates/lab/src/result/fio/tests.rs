use super::{bin_of, text};
use crate::result::{CellResult, tests};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// Values that fio 3.33 itself wrote as bins are their own bins; others fall into theirs.
#[test]
fn bins_are_fios_own() {
    for bin in [0, 12, 31, 63, 127, 168_960, 177_152, 183_296, 329_728, 1_089_536, 17_112_760_320] {
        assert_eq!(bin_of(bin), bin);
    }
    assert_eq!(bin_of(128), 129);
    assert_eq!(bin_of(131_072), 132_096);
    assert_eq!(bin_of(133_119), 132_096);
    assert_eq!(bin_of(u64::MAX), 17_112_760_320);
}

fn cell() -> CellResult {
    let mut cell = tests::result(&tests::scenario(), 1);
    // Longer than fio's last bin.
    let longest = &mut cell.jobs[0].write.latency;
    longest.buckets.push((1 << 40, 3));
    cell
}

#[test]
fn a_class_that_did_nothing_has_no_bins() {
    let cell = cell();
    let value: Value = serde_json::from_str(&text(&cell)).expect("JSON");
    let job = &value["jobs"][0];
    assert_eq!(job["read"]["total_ios"], cell.jobs[0].read.requests);
    assert_eq!(job["trim"]["clat_ns"].get("bins"), None);
    let bins = job["read"]["clat_ns"]["bins"].as_object().expect("bins");
    let sum: u64 = bins.values().filter_map(Value::as_u64).sum();
    assert_eq!(sum, cell.jobs[0].read.requests);
    let ours = cell.jobs[0].read.latency.p99_ns;
    let theirs = job["read"]["clat_ns"]["percentile"]["99.000000"].as_u64().expect("a number");
    assert!(ours.abs_diff(theirs) * 100 <= ours, "{ours} {theirs}");
    assert_eq!(job["write"]["clat_ns"]["percentile"]["100.000000"], Value::Null);
}

/// fio's own tool turns it into a table and finds the same in both.
#[test]
fn fios_plot_tool_reads_it() {
    let tool = "fio_jsonplus_clat2csv";
    if Command::new(tool).arg("--help").output().is_err() {
        println!("NOT RUN: {tool} is not there (Debian: apt-get install fio)");
        return;
    }
    let dir = std::env::temp_dir().join(format!("anabranch-fio-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a directory");
    let (json, csv) = (dir.join("1.json"), dir.join("1.csv"));
    fs::write(&json, text(&cell())).expect("writable");
    for last in [&[] as &[&str], &["--validate"]] {
        let output = Command::new(tool).arg(&json).arg(&csv).args(last).output().expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!said.contains("mismatch"), "{said}");
    }
    let table = fs::read_to_string(dir.join("1_job0.csv")).expect("written");
    let last = table.lines().last().expect("lines");
    assert!(last.starts_with("17112760320, ") && last.contains(" 3, "), "{last}");
    fs::remove_dir_all(&dir).expect("removable");
}
