//! A Unix socket that a former run left behind is replaced by one export, not by two.

use anabranch::daemon::host::{Host, HostSetup};
use anabranch::daemon::identity::Identity;
use anabranch_export::nbd::Export;
use anabranch_proto::machine::Endpoint;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Barrier;
use std::thread;

/// A directory of this test, removed at its end.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn exports_that_are_added_at_once_share_what_was_a_stale_socket() {
    const ROUNDS: usize = 20;
    const AT_ONCE: usize = 4;
    let directory =
        Directory(std::env::temp_dir().join(format!("anabranch-stale-{}", std::process::id())));
    std::fs::create_dir_all(&directory.0).expect("a directory");
    let identity = Identity {
        nqn: "nqn.2014-08.org.example:host".parse().expect("an NQN"),
        id: "0a1b2c3d-0000-4000-8000-000000000001".parse().expect("a UUID"),
    };
    let setup = HostSetup::new(identity).expect("random numbers");
    let host = Host::start(&setup, |_| {}).expect("a host");
    for round in 0..ROUNDS {
        let path = directory.0.join(format!("{round}.sock"));
        drop(UnixListener::bind(&path).expect("a socket"));
        let at = Endpoint::Unix(path.to_str().expect("UTF-8").to_owned());
        let barrier = Barrier::new(AT_ONCE);
        thread::scope(|scope| {
            for number in 0..AT_ONCE {
                let (host, at, barrier) = (&host, &at, &barrier);
                scope.spawn(move || {
                    let export = Export {
                        name: format!("{round}-{number}"),
                        description: String::new(),
                        device: "nvme0n1".to_owned(),
                    };
                    barrier.wait();
                    host.export(export, at).expect("the address is ours");
                });
            }
        });
        UnixStream::connect(&path).expect("somebody listens");
    }
    host.shut_down().expect("an end in order");
    host.stop().expect("an end");
}
