//! Where no more memory can be mapped a daemon goes on, and people can still ask what is going on.

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Far longer than anything here takes; it only ends a test that hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// How many may ask in turn.
const TIMES: usize = 20;

/// A daemon that has as much memory as it has mapped; it ends with the test.
struct Daemon {
    child: Child,
    directory: PathBuf,
    told: BufReader<std::process::ChildStdout>,
}

impl Daemon {
    fn start(name: &str, args: &[&str]) -> Daemon {
        let name = format!("anabranch-no-memory-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let mut child = Command::new(env!("CARGO_BIN_EXE_anabranch"))
            .arg("--socket")
            .arg(directory.join("run/control.sock"))
            .args(args)
            .env("XDG_STATE_HOME", &directory)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let told = BufReader::new(child.stdout.take().expect("its output"));
        Daemon { child, directory, told }
    }

    /// What it tells when it is ready, from this word to the end of the line.
    fn tells(&mut self, word: &str) -> String {
        let line = |line: String| line.split_once(word).map(|(_, rest)| rest.trim().to_owned());
        let mut lines = self.told.by_ref().lines().map(|line| line.expect("text"));
        lines.find_map(line).unwrap_or_else(|| panic!("no {word}"))
    }

    /// It gets no more than it has mapped, or as much as there is again.
    fn may_map(&self, more: bool) {
        let all = getrlimit(Resource::As);
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("it runs");
        let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("a line");
        let kib: u64 = size.trim().trim_end_matches(" kB").parse().expect("a number");
        let current = if more { all.current } else { Some(kib << 10) };
        let limit = Rlimit { current, maximum: all.maximum };
        prlimit(Some(Pid::from_child(&self.child)), Resource::As, limit).expect("it is ours");
    }

    fn ask(&self, verb: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        command.arg("--socket").arg(self.directory.join("run/control.sock")).args(verb);
        command.output().expect("the binary runs")
    }

    fn client(&self) -> UnixStream {
        let stream = UnixStream::connect(self.directory.join("run/control.sock")).expect("it runs");
        stream.set_read_timeout(Some(LIMIT)).expect("a time-out");
        stream
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn answered(mut client: &UnixStream) -> Value {
    client.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"none\"}\n").expect("sent");
    let mut line = String::new();
    BufReader::new(client).read_line(&mut line).expect("an answer");
    serde_json::from_str(&line).expect("JSON")
}

fn scraped(at: SocketAddr) -> String {
    let mut stream = TcpStream::connect_timeout(&at, LIMIT).expect("it listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a time-out");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}

#[test]
fn a_host_is_asked_and_scraped() {
    let args = ["serve", "--workers", "1", "--metrics", "127.0.0.1:0"];
    let mut daemon = Daemon::start("host", &args);
    let at = daemon.tells("metrics http://");
    let at = at.trim_end_matches("/metrics").parse().expect("an address");
    daemon.may_map(false);
    for _ in 0..TIMES {
        let output = daemon.ask(&["list"]);
        assert!(output.status.success(), "{output:?}");
        let text = scraped(at);
        assert!(text.contains("anabranch_data_workers{} 1"), "{text}");
    }
}

#[test]
fn a_target_is_asked() {
    let mut daemon = Daemon::start("target", &["target", "--listen", "127.0.0.1:0"]);
    daemon.tells("control socket");
    daemon.may_map(false);
    for _ in 0..TIMES {
        let output = daemon.ask(&["target", "ctl", "status"]);
        assert!(output.status.success(), "{output:?}");
    }
}

/// Those that are there go on.
#[test]
fn who_finds_no_thread_is_told_so_and_may_come_again() {
    let mut daemon = Daemon::start("many", &["target", "--listen", "127.0.0.1:0"]);
    daemon.tells("control socket");
    daemon.may_map(false);
    let inside: Vec<UnixStream> = (0..2).map(|_| daemon.client()).collect();
    for client in &inside {
        assert_eq!(answered(client)["error"]["code"], -32601);
    }
    let output = daemon.ask(&["target", "ctl", "status"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && told.contains("no thread for one more"), "{told}");
    for client in &inside {
        assert_eq!(answered(client)["error"]["code"], -32601);
    }
    daemon.may_map(true);
    let output = daemon.ask(&["target", "ctl", "status"]);
    assert!(output.status.success(), "{output:?}");
}
