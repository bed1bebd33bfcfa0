//! NBD clients, however many come, leave files to paths and to whoever asks what is going on.

use anabranch::cli::client::Client;
use anabranch::daemon::socket::Role;
use anabranch::daemon::target::{PortSpec, RunningTarget, SubsystemSpec, TargetSetup};
use serde_json::json;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CLIENTS: usize = 100;
const GREETING_BYTES: usize = 18;

/// Far longer than anything here takes; it only ends a test that hangs.
const LIMIT: Duration = Duration::from_secs(60);

struct Daemon {
    child: Child,
    directory: PathBuf,
}

impl Daemon {
    /// Starts `serve` with two workers, one export and these paths. `limit` is how the shell sets
    /// `ulimit`.
    fn start(name: &str, limit: &str, paths: &str) -> Daemon {
        let directory = std::env::temp_dir();
        let directory = directory.join(format!("anabranch-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).expect("a directory");
        let nbd = directory.join("nbd");
        let text =
            format!("[[export]]\ndevice = \"nvme0n1\"\nnbd = \"{}\"\n{paths}", nbd.display());
        let config = directory.join("serve.toml");
        std::fs::write(&config, text).expect("a file");
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("ulimit {limit} && exec \"$0\" \"$@\""));
        command.arg(env!("CARGO_BIN_EXE_anabranch")).args(["serve", "--workers", "2"]);
        command.args(["--hostnqn", "nqn.2026-01.org.example:me"]);
        command.args(["--hostid", "12345678-9abc-def0-1234-56789abcdef0"]);
        command.arg("--config").arg(&config).arg("--socket").arg(control(&directory));
        let mut child = command.stdout(Stdio::piped()).spawn().expect("started");
        let mut ready = String::new();
        let output = child.stdout.as_mut().expect("its output");
        BufReader::new(output).read_line(&mut ready).expect("its first line");
        assert!(ready.starts_with("host "), "{ready}");
        Daemon { child, directory }
    }

    fn client(&self) -> UnixStream {
        let client = UnixStream::connect(self.directory.join("nbd")).expect("a connection");
        client.set_read_timeout(Some(LIMIT)).expect("a time-out");
        client
    }
}

impl Daemon {
    /// Waits until so many paths are live.
    fn await_live(&self, paths: usize) {
        let client = Client::connect(Role::Host, Some(&control(&self.directory)));
        let client = client.expect("it runs");
        let until = Instant::now() + LIMIT;
        loop {
            let snapshot = client.call("snapshot", json!({})).expect("an answer").to_string();
            let live = snapshot.matches("\"state\":\"live\"").count();
            if live == paths {
                return;
            }
            assert!(Instant::now() < until, "{live} of {paths}: {snapshot}");
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn control(directory: &Path) -> PathBuf {
    directory.join("host.sock")
}

/// Whether a client is greeted, and not turned away.
fn is_greeted(mut client: &UnixStream) -> bool {
    match client.read_exact(&mut [0; GREETING_BYTES]) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => false,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
        Err(error) => panic!("neither let in nor turned away: {error}"),
    }
}

/// Whether a client that was greeted is still let in: who does not negotiate makes room in time.
fn is_still_in(mut client: &UnixStream) -> bool {
    client.set_nonblocking(true).expect("a socket");
    match client.read(&mut [0]) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => true,
        Ok(0) => false,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
        other => panic!("nothing comes that was not asked for: {other:?}"),
    }
}

/// How many of many clients at once are let in. The control socket has to answer all the while.
fn let_in(daemon: &Daemon) -> usize {
    let clients: Vec<UnixStream> = (0..CLIENTS).map(|_| daemon.client()).collect();
    let greeted: Vec<_> = clients.iter().filter(|client| is_greeted(client)).collect();
    let count = greeted.into_iter().filter(|client| is_still_in(client)).count();
    let mut list = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    let list = list.args(["list", "--socket"]).arg(control(&daemon.directory));
    let output = list.output().expect("the binary runs");
    assert!(output.status.success(), "{output:?}");
    count
}

#[test]
fn nbd_clients_leave_half_of_the_files() {
    let daemon = Daemon::start("half", "-n 64", "");
    assert_eq!(let_in(&daemon), 32);
}

#[test]
fn a_daemon_raises_its_limit_of_files() {
    let daemon = Daemon::start("raised", "-Sn 64", "");
    assert_eq!(let_in(&daemon), CLIENTS);
}

/// They ask for the files that were theirs while others do, too.
#[test]
fn paths_come_back_however_many_clients_there_are() {
    const NQN: &str = "nqn.2026-01.org.example:files";
    let port = || PortSpec { listen: "127.0.0.1:0".to_owned(), ..PortSpec::default() };
    let namespaces = vec!["mem:16m".parse().expect("a namespace")];
    let setup = TargetSetup {
        ports: vec![port(), port()],
        subsystems: vec![SubsystemSpec { namespaces, ..SubsystemSpec::named(NQN) }],
        cpus: None,
    };
    let target = RunningTarget::start(&setup, |_| {}).expect("a target");
    let mut paths = format!("[[subsystem]]\nnqn = \"{NQN}\"\n");
    for listener in target.listeners().expect("its ports") {
        let listener = listener.to_string();
        let port = listener.rsplit_once(':').expect("an address").1;
        paths += &format!(
            "[[subsystem.path]]\ntraddr = \"127.0.0.1\"\ntrsvcid = {port}\n\
             reconnect_delay = \"200ms\"\n"
        );
    }
    let daemon = Daemon::start("paths", "-n 36", &paths);
    daemon.await_live(2);
    let come = || -> Vec<UnixStream> { (0..CLIENTS).map(|_| daemon.client()).collect() };
    let before = come();
    assert!(before.iter().filter(|client| is_greeted(client)).count() >= 2);
    for port in [0, 1] {
        target.cut(port).expect("it is cut");
    }
    daemon.await_live(0);
    let meanwhile = come();
    for port in [0, 1] {
        target.restore(port).expect("it is back");
    }
    daemon.await_live(2);
    drop((before, meanwhile));
}
