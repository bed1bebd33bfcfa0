//! The option, the key of the file, and what `serve` says of them.

use crate::stand::{get, scrape};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

/// A directory of our own that goes with the test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path =
            std::env::temp_dir().join(format!("anabranch-metrics-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::DirBuilder::new().mode(0o700).create(&path).expect("a directory");
        Place(path)
    }

    fn serve(&self, config: &str, arguments: &[&str]) -> Command {
        let file = self.0.join("serve.toml");
        fs::write(&file, config).expect("a file");
        let id = "0c0ffee0-0000-4000-8000-000000000009";
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        command
            .args(["serve", "-o", "json", "--workers", "1", "--hostid", id, "--socket"])
            .arg(self.0.join("host.sock"))
            .arg(format!("--hostnqn=nqn.2014-08.org.nvmexpress:uuid:{id}"))
            .arg("--config")
            .arg(file)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn refused(&self, config: &str, arguments: &[&str]) -> (Option<i32>, String) {
        let Output { status, stderr, .. } =
            self.serve(config, arguments).output().expect("it runs and ends");
        (status.code(), String::from_utf8(stderr).expect("text"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Daemon(Child);

impl Daemon {
    /// One that has said that it is ready, and what it said of metrics.
    fn ready(mut command: Command) -> (Daemon, Value) {
        let mut child = command.spawn().expect("it starts");
        let stdout = child.stdout.take().expect("a pipe");
        let daemon = Daemon(child);
        let mut values = serde_json::Deserializer::from_reader(stdout).into_iter::<Value>();
        let said = values.next().expect("it says that it is ready").expect("JSON");
        (daemon, said["metrics"].clone())
    }

    fn end(mut self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).expect("it runs");
        assert_eq!(self.0.wait().expect("it ends").code(), Some(0));
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn address(said: &Value) -> SocketAddr {
    said.as_str().expect("a text").parse().expect("an address")
}

#[test]
fn the_option_goes_before_the_file_and_the_port_is_told() {
    let place = Place::new("option");
    let in_file = "metrics = \"192.0.2.1:1\"\n";
    let (daemon, said) = Daemon::ready(place.serve(in_file, &["--metrics", "[::1]:0"]));
    let at = address(&said);
    assert!(at.is_ipv6() && at.port() != 0, "{at}");
    assert_eq!(scrape(at).value("anabranch_data_workers", &[]), 1.0);
    daemon.end();
    assert!(TcpStream::connect(at).is_err(), "it goes with the daemon");
}

#[test]
fn the_key_of_the_file_is_enough() {
    let place = Place::new("file");
    let (daemon, said) = Daemon::ready(place.serve("metrics = \"127.0.0.1:0\"\n", &[]));
    assert_eq!(get(address(&said), "/").status, 200);
    daemon.end();
}

#[test]
fn nothing_is_served_unless_it_is_asked_for() {
    let (daemon, said) = Daemon::ready(Place::new("off").serve("", &[]));
    assert!(said.is_null(), "{said}");
    daemon.end();
}

#[test]
fn a_port_that_is_taken_is_an_error_at_the_start() {
    let place = Place::new("taken");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = taken.local_addr().expect("an address").to_string();
    let (status, told) = place.refused("", &["--metrics", &at]);
    assert_eq!(status, Some(1), "{told}");
    let wanted = format!("cannot serve metrics at {at}: Address already in use");
    assert!(told.contains(&wanted) && told.contains("choose another port"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(!place.0.join("host.sock").exists(), "nothing is left");
}

#[test]
fn what_is_no_address_is_refused_where_it_stands() {
    let place = Place::new("wrong");
    for text in ["", "9899", ":9899", "localhost:9899", "127.0.0.1", "127.0.0.1:65536", "::1:9899"]
    {
        let (status, told) = place.refused("", &[&format!("--metrics={text}")]);
        assert_eq!(status, Some(2), "{text:?}: {told}");
        assert!(told.contains("--metrics"), "{text:?}: {told}");
        let (status, told) = place.refused(&format!("\nmetrics = {text:?}\n"), &[]);
        assert_eq!(status, Some(2), "{text:?}: {told}");
        let says = told.contains("line 2 (metrics)") && told.contains("[::1]:9899");
        assert!(says, "{text:?}: {told}");
    }
}
