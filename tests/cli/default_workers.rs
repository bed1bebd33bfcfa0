//! How many workers a host has when nobody says: as many as there are CPUs for them.

use anabranch_rt::topology::CpuSet;
use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};

/// What `serve` with this configuration says when it is ready.
fn ready(name: &str, config: &str) -> Value {
    let directory = std::env::temp_dir().join(format!("anabranch-{name}-{}", std::process::id()));
    fs::create_dir(&directory).expect("a directory");
    let file = directory.join("serve.toml");
    fs::write(&file, config).expect("a file");
    let mut child = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["serve", "-o", "json", "--socket"])
        .arg(directory.join("run/control.sock"))
        .arg("--config")
        .arg(&file)
        .env("XDG_STATE_HOME", &directory)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let stdout = child.stdout.take().expect("a pipe");
    let mut values = serde_json::Deserializer::from_reader(stdout).into_iter();
    let said = values.next().expect("it says that it is ready").expect("JSON");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    fs::remove_dir_all(&directory).expect("removed");
    said
}

#[test]
fn there_are_no_more_workers_than_cpus_that_are_named_for_them() {
    let allowed = CpuSet::allowed().expect("a set");
    let first = allowed.iter().next().expect("a CPU");
    assert_eq!(ready("one", &format!("cpus = [{first}]\n"))["workers"], 1);
    let asked = ready("asked", &format!("cpus = [{first}]\nworkers = 3\n"));
    assert_eq!(asked["workers"], 3, "whoever says so has more");
}

#[test]
fn there_are_as_many_workers_as_cpus_that_this_process_may_use() {
    let usable = std::thread::available_parallelism().expect("a number").get().min(128);
    assert_eq!(ready("all", "")["workers"], usable);
}
