//! A service manager is told when a daemon is ready, and when it ends: what is ordered after it
//! finds it there.

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, PipeReader, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Far longer than anything here takes; it only ends a test that hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// A daemon with a directory of its own; both go with the test.
struct Daemon {
    child: Child,
    directory: PathBuf,
}

impl Daemon {
    fn start(name: &str, notify: &str, args: &[&str]) -> Daemon {
        Daemon::told_to(Stdio::piped(), name, notify, args)
    }

    fn told_to(stdout: Stdio, name: &str, notify: &str, args: &[&str]) -> Daemon {
        let name = format!("anabranch-service-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).expect("a directory");
        let child = Command::new(env!("CARGO_BIN_EXE_anabranch"))
            .arg("--socket")
            .arg(directory.join("run/control.sock"))
            .args(args)
            .env("NOTIFY_SOCKET", notify)
            .env("XDG_STATE_HOME", &directory)
            .stdout(stdout)
            .spawn()
            .expect("the binary runs");
        Daemon { child, directory }
    }

    fn terminate(&mut self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).expect("it runs");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn heard(manager: &UnixDatagram) -> String {
    let mut message = [0; 256];
    let bytes = manager.recv(&mut message).expect("a message");
    String::from_utf8(message[..bytes].to_vec()).expect("text")
}

#[test]
fn serve_and_target_say_that_they_are_ready_and_that_they_end() {
    for args in [&["serve"][..], &["target", "--listen", "127.0.0.1:0", "--namespace", "mem:1MiB"]]
    {
        let name = format!("anabranch-manager-{}-{}", args[0], std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("an address");
        let manager = UnixDatagram::bind_addr(&address).expect("a socket");
        manager.set_read_timeout(Some(LIMIT)).expect("a time-out");
        let mut daemon = Daemon::start(args[0], &format!("@{name}"), args);
        assert_eq!(heard(&manager), "READY=1");
        assert!(daemon.directory.join("run/control.sock").exists(), "it can be asked");
        daemon.terminate();
        assert_eq!(heard(&manager), "STOPPING=1");
        assert!(daemon.child.wait().expect("an end").success());
    }
}

/// A log on a full disk, or a pipe that is full and that nobody reads.
#[test]
fn a_daemon_serves_whether_or_not_standard_output_takes_what_it_says() {
    let full = fs::File::options().write(true).open("/dev/full").expect("it takes nothing");
    let (_unread, pipe) = full_pipe();
    for (at, stdout) in [full, pipe].into_iter().enumerate() {
        let target = ["target", "--listen", "127.0.0.1:0", "--namespace", "mem:1MiB"];
        for args in [&["serve"][..], &target] {
            let name = format!("anabranch-full-{}-{at}-{}", args[0], std::process::id());
            let address = SocketAddr::from_abstract_name(&name).expect("an address");
            let manager = UnixDatagram::bind_addr(&address).expect("a socket");
            manager.set_read_timeout(Some(LIMIT)).expect("a time-out");
            let stdout = stdout.try_clone().expect("another descriptor").into();
            let mut daemon = Daemon::told_to(stdout, &name, &format!("@{name}"), args);
            assert_eq!(heard(&manager), "READY=1");
            daemon.terminate();
            assert!(daemon.child.wait().expect("an end").success());
        }
    }
}

/// Its end to read from, and the one that takes nothing more, and waits.
fn full_pipe() -> (PipeReader, fs::File) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut writer = fs::File::from(OwnedFd::from(writer));
    let flags = fcntl_getfl(&writer).expect("flags");
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).expect("a moment without waiting");
    while writer.write(&[0; 4096]).is_ok() {}
    fcntl_setfl(&writer, flags).expect("as it was");
    (reader, writer)
}

#[test]
fn a_service_manager_at_a_path_is_told_too() {
    let directory = std::env::temp_dir().join(format!("anabranch-manager-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let path = directory.join("notify");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager.set_read_timeout(Some(LIMIT)).expect("a time-out");
    let _daemon = Daemon::start("path", path.to_str().expect("UTF-8"), &["serve"]);
    assert_eq!(heard(&manager), "READY=1");
    fs::remove_dir_all(&directory).expect("removed");
}

/// It goes on serving: standard output says that it is ready.
#[test]
fn a_service_manager_that_is_not_there_hinders_nobody() {
    let mut daemon = Daemon::start("nobody", "/nonexistent/notify", &["serve"]);
    let mut said = BufReader::new(daemon.child.stdout.take().expect("piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("a line");
    assert!(line.starts_with("host "), "{line}");
    daemon.terminate();
    assert!(daemon.child.wait().expect("an end").success());
}
