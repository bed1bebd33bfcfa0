//! The daemon and its mount: where it cannot be, how it ends, and what is left when it is killed.

use crate::stand::{Place, errno, has_fuse};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(place: &Path, config: &str) -> Command {
    let file = place.join("serve.toml");
    fs::write(&file, config).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command
        .args(["serve", "-o", "json", "--workers", "1", "--socket"])
        .arg(place.join("host.sock"))
        .arg("--config")
        .arg(file)
        .args(["--hostnqn", "nqn.2014-08.org.nvmexpress:uuid:0c0ffee0-0000-4000-8000-000000000007"])
        .args(["--hostid", "0c0ffee0-0000-4000-8000-000000000007"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn config(dir: &Path) -> String {
    format!("attr_fs = {:?}\n", dir.to_str().expect("text"))
}

/// A daemon that has said that it is ready.
fn ready(place: &Path, config: &str) -> (Daemon, Value) {
    said_ready(serve(place, config).spawn().expect("it starts"))
}

fn said_ready(mut child: Child) -> (Daemon, Value) {
    let stdout = child.stdout.take().expect("a pipe");
    let daemon = Daemon(child);
    let mut values = serde_json::Deserializer::from_reader(stdout).into_iter();
    let said = values.next().expect("it says that it is ready").expect("JSON");
    (daemon, said)
}

/// The function of the kernel that the main thread of a process waits in.
fn waits_in(pid: Pid) -> String {
    fs::read_to_string(format!("/proc/{}/wchan", pid.as_raw_nonzero())).expect("it is there")
}

fn refused(place: &Path, dir: &Path) -> String {
    let Output { status, stderr, .. } =
        serve(place, &config(dir)).output().expect("it runs and ends");
    assert_eq!(status.code(), Some(1));
    String::from_utf8(stderr).expect("text")
}

/// A place with an empty directory for the tree.
fn place() -> (Place, PathBuf) {
    let place = Place::new();
    let dir = place.dir("sys");
    (place, dir)
}

#[test]
fn a_directory_that_will_not_do_is_named_with_the_reason() {
    let (place, dir) = place();
    let at = |name: &str| dir.join(name);
    fs::write(at("file"), "").expect("a file");
    for (dir, why) in [
        (at("none/sys"), "the directory that it is to stand in is not there"),
        (at("file"), "it is not a directory"),
        (dir.clone(), "the directory is not empty"),
    ] {
        let said = refused(place.path(), &dir);
        let wanted = format!("cannot mount the attribute tree on {}: {why}", dir.display());
        assert!(said.contains(&wanted), "{said}");
    }
    fs::remove_file(at("file")).expect("it goes");
}

#[test]
fn the_tree_goes_with_the_daemon_even_if_files_are_open() {
    if !has_fuse() {
        return;
    }
    let (place, dir) = place();
    // Below /run nothing is there after the machine has started.
    let dir = dir.join("made");
    let (mut daemon, said) = ready(place.path(), &config(&dir));
    assert_eq!(said["attr_fs"].as_str(), dir.to_str());
    let parameter = dir.join("module/nvme_core/parameters/multipath");
    assert_eq!(fs::read_to_string(&parameter).expect("it reads"), "Y\n");
    let open = File::open(&parameter).expect("it opens");
    let pid = Pid::from_child(&daemon.0);
    kill_process(pid, Signal::TERM).expect("it runs");
    assert_eq!(daemon.0.wait().expect("it ends").code(), Some(0));
    assert_eq!(fs::read_dir(&dir).expect("it is there").count(), 0, "unmounted");
    assert!(open.read_at(&mut [0; 8], 0).is_err(), "nobody answers");
}

#[test]
fn of_two_that_start_at_once_one_has_the_directory() {
    if !has_fuse() {
        return;
    }
    let (_place, dir) = place();
    for _ in 0..5 {
        let places = [Place::new(), Place::new()];
        let children = places
            .each_ref()
            .map(|place| serve(place.path(), &config(&dir)).spawn().expect("it starts"));
        let ready = children.map(|mut child| {
            let stdout = child.stdout.take().expect("a pipe");
            let mut values = serde_json::Deserializer::from_reader(stdout).into_iter::<Value>();
            (values.next().is_some(), Daemon(child))
        });
        let count = ready.iter().filter(|(is_ready, _)| *is_ready).count();
        assert_eq!(count, 1, "the other one has found the directory not empty");
        let parameter = dir.join("module/nvme_core/parameters/multipath");
        assert_eq!(fs::read_to_string(parameter).expect("it reads"), "Y\n");
        for (_, mut daemon) in ready {
            let _ = kill_process(Pid::from_child(&daemon.0), Signal::TERM);
            daemon.0.wait().expect("it ends");
        }
        assert_eq!(fs::read_dir(&dir).expect("it is there").count(), 0, "unmounted");
    }
}

/// Its own one was taken away meanwhile.
#[test]
fn a_daemon_that_ends_leaves_the_tree_of_another_one_alone() {
    if !has_fuse() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        println!("NOT RUN: only root unmounts what is in use");
        return;
    }
    let (place, dir) = place();
    let (mut first, _) = ready(place.path(), &config(&dir));
    let parameter = dir.join("module/nvme_core/parameters/multipath");
    let open = File::open(&parameter).expect("it opens");
    rustix::mount::unmount(&dir, rustix::mount::UnmountFlags::DETACH).expect("it is detached");
    let other = Place::new();
    let (mut second, _) = ready(other.path(), &config(&dir));
    kill_process(Pid::from_child(&first.0), Signal::TERM).expect("it runs");
    assert_eq!(first.0.wait().expect("it ends").code(), Some(0));
    assert_eq!(fs::read_to_string(&parameter).expect("it reads"), "Y\n", "the other's");
    drop(open);
    rustix::mount::unmount(&dir, rustix::mount::UnmountFlags::DETACH).expect("it is unmounted");
    let told = BufReader::new(second.0.stderr.take().expect("a pipe")).lines();
    let mut told = told.map(|line| line.expect("text"));
    assert!(told.any(|line| line.contains("somebody has unmounted the attribute tree at")));
    kill_process(Pid::from_child(&second.0), Signal::TERM).expect("it runs");
    assert_eq!(second.0.wait().expect("it ends").code(), Some(0));
}

/// As when a supervisor's next one is there before all of the last one has gone.
#[test]
fn one_that_dies_while_the_next_asks_it_is_replaced_too() {
    if !has_fuse() {
        return;
    }
    let (place, dir) = place();
    let (mut last, _) = ready(place.path(), &config(&dir));
    let pid = Pid::from_child(&last.0);
    kill_process(pid, Signal::STOP).expect("it runs");
    waitpid(Some(pid), WaitOptions::UNTRACED).expect("it is ours").expect("it has stopped");
    let known = waits_in(pid) != "0";
    if !known {
        eprintln!("this kernel does not say what a process waits for: it may die too early here");
    }
    let other = Place::new();
    let next = serve(other.path(), &config(&dir)).spawn().expect("it starts");
    while known && waits_in(Pid::from_child(&next)) != "request_wait_answer" {
        std::thread::yield_now();
    }
    last.0.kill().expect("it runs");
    last.0.wait().expect("it ends");
    let (mut daemon, _) = said_ready(next);
    assert!(dir.join("class/nvme").is_dir());
    kill_process(Pid::from_child(&daemon.0), Signal::TERM).expect("it runs");
    assert_eq!(daemon.0.wait().expect("it ends").code(), Some(0));
    assert_eq!(fs::read_dir(&dir).expect("it is there").count(), 0, "nothing is left below");
}

#[test]
fn what_a_killed_daemon_has_left_mounted_is_replaced_by_the_next() {
    if !has_fuse() {
        return;
    }
    let (place, dir) = place();
    // However the directory is named.
    let link = place.path().join("link");
    symlink("sys", &link).expect("a link");
    for named in [&dir, &link] {
        let (mut daemon, _) = ready(place.path(), &config(named));
        assert!(dir.join("class/nvme").is_dir());
        daemon.0.kill().expect("it runs");
        daemon.0.wait().expect("it ends");
        assert_eq!(errno(fs::read_dir(&dir)), Errno::NOTCONN.raw_os_error());
    }
    let (mut daemon, _) = ready(place.path(), &config(&link));
    assert!(dir.join("class/nvme").is_dir());
    kill_process(Pid::from_child(&daemon.0), Signal::TERM).expect("it runs");
    assert_eq!(daemon.0.wait().expect("it ends").code(), Some(0));
    assert_eq!(fs::read_dir(&dir).expect("it is there").count(), 0, "nothing is left below");
}
