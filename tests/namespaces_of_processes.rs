//! A daemon in a container serves those outside, whose processes it cannot see.

use anabranch::cli::client::Client;
use anabranch::daemon::socket::Role;
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A daemon in a namespace of processes of its own, with a directory; all goes with the test.
struct Daemon {
    child: Child,
    directory: PathBuf,
}

impl Daemon {
    /// `None` where such namespaces may not be made.
    fn start() -> Option<Daemon> {
        let unshare = || {
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]);
            command
        };
        if !unshare().arg("true").status().is_ok_and(|status| status.success()) {
            eprintln!("not run: no namespace of processes may be made here");
            return None;
        }
        let name = format!("anabranch-processes-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).expect("a directory");
        let mut child = unshare()
            .arg(env!("CARGO_BIN_EXE_anabranch"))
            .args(["serve", "--workers", "1", "-o", "json", "--socket"])
            .arg(directory.join("run/control.sock"))
            .env("XDG_STATE_HOME", &directory)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let mut said = BufReader::new(child.stdout.take().expect("a pipe"));
        let daemon = Daemon { child, directory };
        said.read_line(&mut String::new()).expect("it says that it is ready");
        Some(daemon)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn a_client_that_the_daemon_cannot_see_is_answered() {
    let Some(daemon) = Daemon::start() else { return };
    let socket = daemon.directory.join("run/control.sock");
    let client = Client::connect_while(Role::Host, Some(&socket), || false).expect("it listens");
    let answer = client.call("export_list", json!({})).expect("an answer");
    assert_eq!(answer["exports"], json!([]));
}
