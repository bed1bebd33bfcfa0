//! `lab list` and `lab run`: the library is listed, a table is printed, the same seeds print it
//! again.

use std::process::{Command, Output};

fn lab(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.arg("lab").args(args).current_dir(env!("CARGO_MANIFEST_DIR"));
    command.output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_library_is_listed() {
    let output = lab(&["list"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let listed = text(&output.stdout);
    assert!(listed.contains("\nservice-time-mixed "), "{listed}");
    let json = lab(&["list", "-o", "json"]).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON alone");
    let all = json.as_array().expect("a list");
    let one = all.iter().find(|one| one["name"] == "path-fails").expect("listed");
    assert_eq!(one["title"], "A path fails");
    assert_eq!(one["file"], "scenarios/path-fails.toml");
    assert_eq!(all.len(), listed.lines().count() - 2);
    assert_eq!(lab(&["list", "nowhere"]).status.code(), Some(2));
    let some = lab(&["list", "scenarios/path-fails.toml", "service-time-mixed", "-o", "json"]);
    let some: serde_json::Value = serde_json::from_slice(&some.stdout).expect("JSON alone");
    let names: Vec<_> = some.as_array().expect("a list").iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["path-fails", "service-time-mixed"]);
}

#[test]
fn a_broken_file_does_not_hide_the_others() {
    let dir = std::env::temp_dir().join(format!("anabranch-lab-list-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let good = "title = \"good\"\n[[path]]\nname = \"a\"\n[[job]]\nrw = \"randread\"\n";
    std::fs::write(dir.join("good.toml"), good).expect("a file");
    std::fs::write(dir.join("bad.toml"), good.replace("randread", "sideways")).expect("a file");
    let output = lab(&["list", &dir.to_string_lossy()]);
    std::fs::remove_dir_all(&dir).expect("it was there");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stdout).contains("\ngood "), "{}", text(&output.stdout));
    let told = text(&output.stderr);
    assert!(told.contains("bad.toml:5: rw: sideways is none of"), "{told}");
    assert!(told.contains("1 of 2 scenarios cannot be used"), "{told}");
}

/// What is wrong only for the mode that is asked for, or only in the end, stands in the file, too.
#[test]
fn what_cannot_be_run_is_told_with_file_line_and_key() {
    let dir = std::env::temp_dir().join(format!("anabranch-lab-refused-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let file = dir.join("x.toml");
    let head = "title = \"t\"\njob = [{ rw = \"randread\" }]\n";
    let idle = "[target]\nread = \"0\"\n";
    let slow = "[[path]]\nname = \"a\"\nrate = \"1gbit\"\n";
    let far = "[[path]]\nname = \"a\"\ndelay = \"1ms\"\n";
    let change = "[[change]]\nat = \"1s\"\npath = \"a\"\nrepeat = \"1s\"\n";
    for (parts, mode, says) in [
        (vec![idle, "[[path]]\nname = \"a\"\n"], "light", "x.toml:5: rate: commands would take no"),
        (
            vec![idle, slow, "[[path]]\nname = \"b\"\n"],
            "light",
            "x.toml:8: rate: commands would take no",
        ),
        (
            vec![idle, far, change, "state = \"cut\"\n", change, "jitter = \"1ms\"\n"],
            "light",
            "x.toml:13: rate: commands would take no",
        ),
        (vec!["[host]\nqueue_depth = 8\n", slow], "sim", "x.toml:4: queue_depth: the engine"),
        (vec!["[target]\nsize = \"1024t\"\n", slow], "sim", "x.toml:4: size: must not exceed"),
        (vec![slow, "ana = \"inaccessible\"\n"], "sim", "x.toml:6: ana: every path begins"),
        (vec![slow, "delay = \"30s\"\n"], "live", "x.toml:6: delay: on path \"a\""),
        (vec![slow, "delay = \"3s\"\n"], "sim", "x.toml:6: delay: on path \"a\""),
        (
            vec!["[host]\ndetect = \"1ms\"\n", far, change, "state = \"silent\"\n"],
            "sim",
            "x.toml:7: delay: on path \"a\" (delay=1ms) a Keep Alive takes 1ms without",
        ),
    ] {
        let text = head.to_owned() + &parts.concat();
        std::fs::write(&file, &text).expect("a file");
        let output = lab(&["run", &file.to_string_lossy(), "--mode", mode, "--policies", "numa"]);
        let told = self::text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}: {told}");
        assert!(told.contains(says), "{text}: {told}");
    }
    std::fs::remove_dir_all(&dir).expect("it was there");
}

#[test]
fn a_run_is_a_table_and_the_same_again_in_json() {
    let file = "scenarios/service-time-mixed.toml";
    let output = lab(&["run", file, "--runs", "1"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    for line in ["light simulation, 1 run of", "\nservice-time tuned ", "\npublished: "] {
        assert!(table.contains(line), "{line}: {table}");
    }
    let json = || lab(&["run", file, "--runs", "2", "--policies", "latency,numa", "-o", "json"]);
    let all = lab(&["run", file, "--runs", "1", "--policies", "all", "--mode", "light"]);
    assert_eq!(text(&all.stdout), table, "all of them is the default");
    let (first, second) = (json().stdout, json().stdout);
    assert_eq!(first, second);
    let value: serde_json::Value = serde_json::from_slice(&first).expect("JSON alone");
    let table = &value["tables"][0];
    assert_eq!((value["schema"].as_u64(), table["mode"].as_str()), (Some(1), Some("light")));
    let names: Vec<_> =
        table["rows"].as_array().unwrap().iter().map(|row| &row["variant"]).collect();
    assert_eq!(names, ["numa", "latency"], "in the order of policies");
}

#[test]
fn a_variant_whose_name_holds_a_comma_can_be_chosen() {
    let scenario = "scenarios/service-time-mixed.toml";
    let names = "latency per node, size buckets, numa,latency per node";
    let output = lab(&["run", scenario, "--short", "--policies", names, "-o", "json"]);
    let told = text(&output.stderr);
    assert!(output.status.success(), "{told}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON alone");
    let rows = json["tables"][0]["rows"].as_array().expect("rows");
    let names: Vec<_> = rows.iter().map(|row| &row["variant"]).collect();
    assert_eq!(names, ["numa", "latency per node", "latency per node, size buckets"]);
}

/// The table rounds to the nearest, as the report does, and shows digits where rates are low.
#[test]
fn a_table_shows_what_the_summary_says() {
    let dir = std::env::temp_dir().join(format!("anabranch-lab-table-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let file = dir.join("wan.toml");
    let links =
        ["4mbit", "1mbit"].map(|rate| format!("[[path]]\nname = \"{rate}\"\nrate = \"{rate}\"\n"));
    let head = "title = \"t\"\njob = [{ rw = \"randread\", bs = \"4k\", iodepth = 8 }]\n";
    std::fs::write(&file, head.to_owned() + &links.concat()).expect("a file");
    let run = |format: &str| {
        let policies = "queue-depth,round-robin";
        let output = lab(&["run", &file.to_string_lossy(), "--policies", policies, "-o", format]);
        text(&output.stdout)
    };
    let (table, json) = (run("normal"), run("json"));
    std::fs::remove_dir_all(&dir).expect("it was there");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON alone");
    for row in json["tables"][0]["rows"].as_array().expect("rows") {
        let name = row["variant"].as_str().expect("a name");
        let line = table.lines().find(|line| line.starts_with(name)).expect("a row");
        let cells: Vec<&str> = line.split_whitespace().collect();
        let figure = |key: &str| row[key].as_f64().expect("a number");
        assert_eq!(cells[1], format!("{:.2}", figure("bytes_s") / 1_048_576.0), "{table}");
        assert_eq!(cells[2], format!("{:.1}", figure("of_limit_ppm") / 1e4), "{table}");
        assert_eq!(cells[3], format!("{:.1}", figure("of_best_ppm") / 1e4), "{table}");
    }
}

#[test]
fn mistakes_are_usage() {
    let output = lab(&["run", "scenarios/none.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("scenarios/none.toml: there is no such file"));
    let output = lab(&["run", "scenarios/path-fails.toml", "--policies", "fastest"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no variant \"fastest\"; there are \"numa\""));
}
