//! A Unix socket that a former run left behind is replaced by one daemon, not by two.

use anabranch::daemon::host::{Host, HostSetup};
use anabranch::daemon::identity::Identity;
use anabranch::daemon::rpc::RpcError;
use anabranch_export::nbd::{Access, Export};
use anabranch_proto::machine::Endpoint;
use anabranch_rt::SocketLock;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;

/// A directory of this test, removed at its end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let name = format!("anabranch-stale-{name}-{}", std::process::id());
        let directory = Directory(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&directory.0).expect("a directory");
        directory
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn host() -> Host {
    let identity = Identity {
        nqn: "nqn.2014-08.org.example:host".parse().expect("an NQN"),
        id: "0a1b2c3d-0000-4000-8000-000000000001".parse().expect("a UUID"),
    };
    let setup = HostSetup::new(identity);
    Host::start(&setup, |_| {}).expect("a host")
}

fn end(host: Host) {
    host.shut_down().expect("an end in order");
    host.stop().expect("an end");
}

fn export(host: &Host, name: String, path: &Path) -> Result<Endpoint, RpcError> {
    let at = Endpoint::Unix(path.to_str().expect("UTF-8").to_owned());
    let device = "nvme0n1".to_owned();
    host.export(Export { name, device, ..Export::default() }, &at, Access::default())
}

/// What a daemon that was killed leaves behind.
fn leave_stale(path: &Path) {
    drop(UnixListener::bind(path).expect("a socket"));
    std::fs::write(path.with_added_extension("lock"), "").expect("a lock that nobody holds");
}

#[test]
fn exports_that_are_added_at_once_share_what_was_a_stale_socket() {
    const ROUNDS: usize = 20;
    const AT_ONCE: usize = 4;
    let directory = Directory::new("share");
    let host = host();
    for round in 0..ROUNDS {
        let path = directory.0.join(format!("{round}.sock"));
        leave_stale(&path);
        let barrier = Barrier::new(AT_ONCE);
        thread::scope(|scope| {
            for number in 0..AT_ONCE {
                let (host, path, barrier) = (&host, &path, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    export(host, format!("{round}-{number}"), path).expect("the address is ours");
                });
            }
        });
        UnixStream::connect(&path).expect("somebody listens");
    }
    end(host);
    let left: Vec<_> = std::fs::read_dir(&directory.0).expect("read").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn of_daemons_that_begin_at_once_one_gets_the_path_and_the_others_are_told() {
    const ROUNDS: usize = 20;
    let directory = Directory::new("daemons");
    let daemons = [host(), host(), host()];
    for round in 0..ROUNDS {
        let path = directory.0.join(format!("{round}.sock"));
        leave_stale(&path);
        let barrier = Barrier::new(daemons.len());
        let outcomes: Vec<_> = thread::scope(|scope| {
            let begin = |host| {
                let (path, barrier) = (&path, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    export(host, round.to_string(), path)
                })
            };
            let begun: Vec<_> = daemons.iter().map(begin).collect();
            begun.into_iter().map(|one| one.join().expect("an outcome")).collect()
        });
        assert_eq!(outcomes.iter().filter(|it| it.is_ok()).count(), 1, "{outcomes:?}");
        for error in outcomes.iter().filter_map(|it| it.as_ref().err()) {
            let shown = path.display();
            let told =
                format!("somebody listens on {shown} already: end it, or choose another path");
            assert_eq!(error.message, told);
        }
        UnixStream::connect(&path).expect("somebody listens");
    }
    daemons.into_iter().for_each(end);
}

/// Between its `bind` and its `listen` a live daemon's socket looks like a dead one's.
#[test]
fn a_daemon_that_is_about_to_listen_keeps_its_path() {
    let directory = Directory::new("about");
    let path = directory.0.join("s.sock");
    let _lock = SocketLock::take(&path).expect("a lock").expect("the first");
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("made");
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path).expect("an address")).expect("bound");
    let host = host();
    let refused = export(&host, "a".to_owned(), &path).expect_err("it is another's");
    assert!(refused.message.contains(path.to_str().expect("UTF-8")), "{}", refused.message);
    rustix::net::listen(&socket, 1).expect("listening");
    UnixStream::connect(&path).expect("it is still the first one's");
    end(host);
}

#[test]
fn what_is_no_socket_is_left_alone() {
    let directory = Directory::new("precious");
    let path = directory.0.join("precious");
    std::fs::write(&path, "data").expect("written");
    let host = host();
    let refused = export(&host, "a".to_owned(), &path).expect_err("it is no socket").message;
    assert!(refused.ends_with("is not a socket: remove it, or choose another path"), "{refused}");
    assert_eq!(std::fs::read_to_string(&path).expect("still there"), "data");
    end(host);
}
