//! `lab run --out` and `lab compare`: the same seeds leave the same bytes, what was interrupted
//! goes on, damage is named, and B is told to be worse when it is.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn lab(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.arg("lab").args(args).current_dir(env!("CARGO_MANIFEST_DIR"));
    command.output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A directory of its own for each test, gone at its end.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let dir = std::env::temp_dir().join(format!("anabranch-lab-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        Dir(dir)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }

    /// A scenario of two paths, the fast one with so many Mbit/s.
    fn scenario(&self, name: &str, mbit: u32, more: &str) -> String {
        let text = format!(
            "title = \"Small\"\n[run]\nramp = \"50ms\"\nwindow = \"100ms\"\n\
             [[path]]\nname = \"fast\"\nrate = \"{mbit}mbit\"\n\
             [[path]]\nname = \"slow\"\nrate = \"100mbit\"\n\
             [[job]]\nrw = \"randrw\"\nbs = \"4k\"\niodepth = 16\n{more}"
        );
        let dir = self.0.join(mbit.to_string());
        fs::create_dir_all(&dir).expect("a directory");
        let path = dir.join(format!("{name}.toml"));
        fs::write(&path, text).expect("writable");
        path.to_string_lossy().into_owned()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // What is left in the directory for temporary files harms nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Every file below, but the environment, by its name.
fn files(dir: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut open) = (BTreeMap::new(), vec![PathBuf::from(dir)]);
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).expect("readable") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                open.push(path);
            } else if !path.ends_with("environment.json") {
                let bytes = fs::read(&path).expect("readable");
                found.insert(path.strip_prefix(dir).expect("below").to_owned(), bytes);
            }
        }
    }
    found
}

#[test]
fn the_same_seeds_leave_the_same_bytes() {
    let dir = Dir::new("bytes");
    let scenario = dir.scenario("small", 400, "");
    let run = |out: &str| {
        let out = dir.path(out);
        let policies = "numa,queue-depth,service-time tuned";
        let run = lab(&["run", &scenario, "--policies", policies, "--out", &out, "-o", "json"]);
        assert!(run.status.success(), "{}", text(&run.stderr));
        (run.stdout, files(&out))
    };
    let ((first, all), (second, again)) = (run("one"), run("two"));
    assert_eq!(first, second);
    assert_eq!(all.keys().collect::<Vec<_>>(), again.keys().collect::<Vec<_>>());
    assert!(all == again, "a file differs");
    // Three variants, six runs, each with its twin for fio; summary, table and scenario.
    assert_eq!(all.len(), 3 * 6 * 2 + 3);
    let cell = Path::new("cells/small/light/service-time+tuned/6.json");
    let cell = String::from_utf8(all[cell].clone()).expect("text");
    for word in ["\"host\"", "\"started\"", &dir.0.to_string_lossy()] {
        assert!(!cell.contains(word), "{word} is none of a cell's business");
    }
    let csv = String::from_utf8(all[Path::new("results.csv")].clone()).expect("text");
    assert_eq!(csv.matches("\r\n").count(), 1 + 3 * 6);
    assert!(csv.lines().skip(1).all(|line| line.starts_with("small,light,")), "{csv}");
    let environment = fs::read_to_string(dir.path("one/environment.json")).expect("written");
    assert!(environment.contains("\"cells_run\": 18"), "{environment}");
}

/// The engine simulation leaves the same bytes, too, and both ways of running go into one
/// directory.
#[test]
fn each_mode_has_its_own_cells() {
    let dir = Dir::new("modes");
    let scenario = dir.scenario("small", 40, "");
    let run = |mode: &str, out: &str| {
        let out = dir.path(out);
        let args = ["run", &scenario, "--policies", "queue-depth", "--runs", "1", "--mode", mode];
        let run = lab(&[&args[..], &["--out", &out]].concat());
        assert!(run.status.success(), "{}", text(&run.stderr));
        files(&out)
    };
    run("light", "one");
    run("light", "two");
    let (one, two) = (run("sim", "one"), run("sim", "two"));
    assert!(one == two, "a file differs");
    let live = run("live", "one");
    assert_eq!(live.len(), 3 * 2 + 3);
    for mode in ["light", "sim", "live"] {
        let path = format!("cells/small/{mode}/queue-depth/1.json");
        let cell = live.get(Path::new(&path)).unwrap_or_else(|| panic!("no {path}"));
        let cell: serde_json::Value = serde_json::from_slice(cell).expect("JSON");
        assert_eq!((cell["mode"].as_str(), cell["errors"].as_u64()), (Some(mode), Some(0)));
        assert!(cell["total"]["requests"].as_u64() > Some(0), "{mode}");
        assert_eq!(cell["cpu"].is_object(), mode == "live");
        assert_eq!(
            cell["ceilings"].as_array().map(Vec::len),
            Some(2 * usize::from(mode == "live"))
        );
    }
    let summary: serde_json::Value =
        serde_json::from_slice(&live[Path::new("summary.json")]).expect("JSON");
    assert_eq!(summary["tables"].as_array().map(Vec::len), Some(3));
}

#[test]
fn what_is_there_is_not_run_again() {
    let dir = Dir::new("resume");
    let scenario = dir.scenario("small", 400, "");
    let out = dir.path("out");
    let run = |more: &[&str]| {
        let all = [&["run", &scenario, "--policies", "numa,latency", "--out", &out], more].concat();
        lab(&all)
    };
    assert!(run(&["--runs", "2"]).status.success());
    // A value that no run would give, and a cell that is gone.
    let cell = dir.path("out/cells/small/light/numa/1.json");
    let there = fs::read_to_string(&cell).expect("written");
    let planted = there.replacen("\"errors\":0", "\"errors\":7", 1);
    assert_ne!(planted, there);
    fs::write(&cell, &planted).expect("writable");
    fs::remove_file(dir.path("out/cells/small/light/latency/2.json")).expect("there");
    let again = run(&["--runs", "2"]);
    // What was kept counts: requests failed.
    assert_eq!(again.status.code(), Some(1), "{}", text(&again.stderr));
    assert!(text(&again.stderr).contains("3 cells were there already, 1 were run"));
    assert!(text(&again.stderr).contains("7 requests failed"), "{}", text(&again.stderr));
    assert_eq!(fs::read_to_string(&cell).expect("there"), planted);
    assert!(Path::new(&dir.path("out/cells/small/light/latency/2.json")).is_file());
    assert!(text(&again.stdout).contains("errors"), "{}", text(&again.stdout));
    let longer = run(&["--runs", "2", "--window", "200ms"]);
    assert_eq!(longer.status.code(), Some(2));
    let told = text(&longer.stderr);
    assert!(told.contains("latency/1.json: had a window of") && told.contains("--out"), "{told}");
    // Nor may other variants of the table: nothing of them is run.
    let others = ["run", &scenario, "--policies", "queue-depth", "--window", "200ms"];
    let others = lab(&[&others[..], &["--out", &out]].concat());
    assert_eq!(others.status.code(), Some(2));
    assert!(text(&others.stderr).contains("had a window of"), "{}", text(&others.stderr));
    assert!(!Path::new(&dir.path("out/cells/small/light/queue-depth")).exists());
    let changed = dir.scenario("small", 400, "# another text\n");
    let other = lab(&["run", &changed, "--out", &out]);
    assert_eq!(other.status.code(), Some(2));
    assert!(text(&other.stderr).contains("is another text"), "{}", text(&other.stderr));
}

#[test]
fn a_damaged_file_is_named_with_its_remedy() {
    let dir = Dir::new("damaged");
    let scenario = dir.scenario("small", 400, "");
    let out = dir.path("out");
    let args = ["run", &scenario, "--policies", "numa", "--runs", "1", "--out", &out];
    assert!(lab(&args).status.success());
    let cell = dir.path("out/cells/small/light/numa/1.json");
    let whole = fs::read(&cell).expect("written");
    fs::write(&cell, &whole[..whole.len() / 2]).expect("writable");
    for args in [&args[..], &["compare", &out, &out]] {
        let told = lab(args);
        assert_eq!(told.status.code(), Some(1));
        let told = text(&told.stderr);
        assert!(told.contains("numa/1.json: is damaged") && told.contains("delete it"), "{told}");
    }
    fs::write(&cell, r#"{"schema": 99}"#).expect("writable");
    let told = text(&lab(&args).stderr);
    assert!(told.contains("has schema 99, this version reads 1"), "{told}");
    fs::remove_file(&cell).expect("there");
    assert!(lab(&args).status.success(), "the remedy helps");
    assert_eq!(fs::read(&cell).expect("written"), whole);
}

#[test]
fn compare_says_whether_b_is_worse() {
    let dir = Dir::new("compare");
    let run = |mbit: u32, out: &str, name: &str| {
        let (scenario, out) = (dir.scenario(name, mbit, ""), dir.path(out));
        let run = lab(&["run", &scenario, "--policies", "numa,queue-depth", "--out", &out]);
        assert!(run.status.success(), "{}", text(&run.stderr));
        out
    };
    let (a, b, other) = (run(400, "a", "small"), run(300, "b", "small"), run(500, "c", "other"));
    let status = |args: &[&str]| {
        let output = lab(&[&["compare"], args].concat());
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, table, told) = status(&[&a, &a]);
    assert_eq!((code, told.as_str()), (Some(0), ""));
    assert!(table.contains("0 worse, 0 better, 2 no difference"), "{table}");
    let (code, table, told) = status(&[&a, &b]);
    assert_eq!(code, Some(1), "{table}");
    assert!(told.contains("is worse in 2 of 2 rows"), "{told}");
    let beware = "beware: small is not the same scenario in A and B: line 7 of small.toml is \
                  `rate = \"400mbit\"`, and `rate = \"300mbit\"` in B";
    assert!(told.contains(beware), "{told}");
    assert_eq!(status(&[&b, &a]).0, Some(0), "better is not worse");
    assert_eq!(status(&[&a, &b, "--tolerance", "60"]).0, Some(0));
    let files = [format!("{a}/summary.json"), format!("{b}/summary.json")];
    let (code, json, _) = status(&[&files[0], &files[1], "-o", "json"]);
    assert_eq!(code, Some(1));
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON alone");
    assert_eq!((json["worse"].as_u64(), json["rows"][0]["is"].as_str()), (Some(2), Some("worse")));
    let differing = json["differing"][0].as_str();
    assert!(differing.is_some_and(|text| beware.ends_with(text)), "{differing:?}");
    let (code, _, told) = status(&[&a, &other]);
    assert_eq!(code, Some(2));
    assert!(told.contains("have nothing in common"), "{told}");
    let (code, _, told) = status(&[&a, &dir.path("none")]);
    assert_eq!(code, Some(2));
    assert!(told.contains("none: is not there; lab run --out makes results"), "{told}");
    let report = lab(&["report", &dir.path("none")]);
    let told = text(&report.stderr);
    assert_eq!(report.status.code(), Some(2), "{told}");
    assert!(told.contains("none: is not there; lab run --out makes results"), "{told}");
    let (code, _, told) = status(&[&a, &dir.path("400")]);
    assert_eq!((code, told.contains("holds no results")), (Some(2), true), "{told}");
    assert_eq!(status(&[&a, &a, "--tolerance", "much"]).0, Some(2));
    let (code, _, told) = status(&[&a, &format!("{a}/environment.json")]);
    assert_eq!((code, told.contains("is no summary.json")), (Some(2), true), "{told}");
}

/// A guard in CI asks for the exit status alone.
#[test]
fn what_cannot_be_told_changes_no_exit_status() {
    let dir = Dir::new("untold");
    let run = |mbit: u32, out: &str| {
        let (scenario, out) = (dir.scenario("small", mbit, ""), dir.path(out));
        lab(&["run", &scenario, "--policies", "numa", "--out", &out]);
        out
    };
    let (a, b) = (run(300, "a"), run(400, "b"));
    for (words, status) in [([&a, &b], 0), ([&b, &a], 1)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        command.args(["lab", "compare"]).args(words).stdout(Stdio::null());
        let full = fs::File::options().write(true).open("/dev/full").expect("it takes nothing");
        let ended = command.stderr(full).status().expect("the binary runs");
        assert_eq!(ended.code(), Some(status));
    }
}

#[test]
fn the_short_form_of_several_scenarios() {
    let dir = Dir::new("short");
    let out = dir.path("out");
    let all = ["low-queue-depth", "path-fails", "cold-start"];
    let run =
        lab(&[&["run"][..], &all, &["--short", "--policies", "queue-depth", "--out", &out]]
            .concat());
    assert!(run.status.success(), "{}", text(&run.stderr));
    assert!(run.stderr.is_empty(), "no bar without a terminal: {}", text(&run.stderr));
    let summary = fs::read(dir.path("out/summary.json")).expect("written");
    let summary: serde_json::Value = serde_json::from_slice(&summary).expect("JSON");
    let length = |name: &str| {
        let tables = summary["tables"].as_array().expect("tables");
        let table = tables.iter().find(|table| table["scenario"] == name).expect("a table");
        let runs = table["rows"][0]["runs"].as_array().expect("runs").len();
        (table["ramp_ns"].as_u64().unwrap(), table["window_ns"].as_u64().unwrap(), runs)
    };
    assert_eq!(length("low-queue-depth"), (300_000_000, 1_000_000_000, 1));
    assert_eq!(length("path-fails"), (300_000_000, 3_000_000_000, 1));
    assert_eq!(length("cold-start"), (0, 1_000_000_000, 1), "a cold start stays cold");
    let table = text(&run.stdout);
    let places: Vec<_> =
        all.iter().map(|name| table.find(&format!("{name}: ")).expect("its table")).collect();
    assert!(places.is_sorted(), "in the order that was asked for: {table}");
}

#[test]
fn changes_keep_their_place_in_proportion() {
    let dir = Dir::new("proportion");
    let change = "[[change]]\nat = \"50ms\"\npath = \"fast\"\nstate = \"cut\"\n";
    let scenario = dir.scenario("half", 400, change);
    let out = dir.path("out");
    let args = ["run", &scenario, "--window", "400ms", "--runs", "1", "--policies", "numa"];
    let run = lab(&[&args[..], &["--out", &out]].concat());
    assert!(run.status.success(), "{}", text(&run.stderr));
    let cell = fs::read(dir.path("out/cells/half/light/numa/1.json")).expect("written");
    let cell: serde_json::Value = serde_json::from_slice(&cell).expect("JSON");
    assert_eq!(cell["changes"][0]["at_ns"], 50_000_000 + 200_000_000);
    assert!(text(&run.stdout).contains("note: the window is 400 ms instead of 100 ms"));
}

#[test]
fn what_makes_no_sense_is_usage() {
    let dir = Dir::new("usage");
    let scenario = dir.scenario("small", 400, "");
    let twin = dir.scenario("small", 300, "");
    let told = |args: &[&str]| {
        let output = lab(&[&["run"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    assert!(told(&[&scenario, &twin]).contains("two scenarios are called small"));
    assert!(told(&[&scenario, "--scale", "0.5"]).contains("--mode live"));
    assert!(told(&[&scenario, "--mode", "live", "--scale", "2"]).contains("0.001 to 1"));
    assert!(told(&[&scenario, "--window", "0.1ms"]).contains("window: must be at least 1ms"));
    assert!(told(&[&scenario, "--window", "2h"]).contains("window: must not exceed 1h"));
    assert!(told(&[&scenario, "--runs", "0"]).contains("from 1 to 1000"));
    assert!(told(&["service-time-mixt"]).contains("did you mean service-time-mixed"));
    let out = dir.path("out");
    fs::write(&out, "").expect("writable");
    let output = lab(&["run", &scenario, "--out", &out]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot make the directory"), "{}", text(&output.stderr));
}
