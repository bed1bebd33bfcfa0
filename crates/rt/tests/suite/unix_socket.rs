//! Socket files: private from the first moment, stale ones replaced, live ones left alone.

use crate::support::{Dir, Rig, Seen};
use anabranch_proto::machine::{
    Endpoint, ListenerId, Output, Peer, SocketAccess, SocketOptions, SystemError,
};
use anabranch_rt::SocketLock;
use rustix::fs::Mode;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

const BUSY: Option<SystemError> = Some(SystemError(98));

fn refused(rig: &mut Rig, path: &str) -> Option<SystemError> {
    let at = Endpoint::Unix(path.to_owned());
    rig.ask(0, move |engine, _| engine.listen(8, at));
    rig.wait(0, |seen| match seen {
        Seen::Unlistened(ListenerId(8), error) => Some(*error),
        Seen::Listening(ListenerId(8), _) => panic!("must be refused"),
        _ => None,
    })
}

#[test]
fn the_file_is_private_and_goes_away() {
    let dir = Dir::new("unix");
    let path = dir.path("s");
    let mut rig = Rig::new(1);
    rig.listen(0, Endpoint::Unix(path.clone()));
    let mode = std::fs::metadata(&path).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let _peer = UnixStream::connect(&path).expect("connected");
    let ours = Some(Peer::Process(std::process::id()));
    assert_eq!(rig.accepted_of(0).1, ours, "who has connected");
    rig.ask(0, |engine, _| engine.out(Output::Unlisten { listener: ListenerId(7) }));
    rig.expect(0, &Seen::Unlistened(ListenerId(7), None));
    assert!(!Path::new(&path).exists(), "unlinked");
    // The same name again, ended by the end of the group.
    rig.listen(0, Endpoint::Unix(path.clone()));
    rig.stop();
    assert!(!Path::new(&path).exists(), "unlinked");
}

/// The umask, which most have, takes the right to write from groups.
#[test]
fn a_file_for_others_has_the_mode_and_group_that_were_asked_for() {
    let dir = Dir::new("others");
    let path = dir.path("s");
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let mut groups = rustix::process::getgroups().expect("groups");
    groups.push(rustix::process::getegid());
    // Root may give it to any group; others to one of theirs.
    let root = rustix::process::geteuid().is_root();
    let group = if root { 4242 } else { groups[0].as_raw() };
    for mode in [0o660, 0o666, 0o606] {
        let mut rig = Rig::new(1);
        let at = Endpoint::Unix(path.clone());
        let access = SocketAccess { mode, group: Some(group) };
        let options = SocketOptions { access, ..SocketOptions::default() };
        rig.ask(0, move |engine, _| {
            engine.out(Output::Listen { listener: ListenerId(7), at, options });
        });
        rig.expect(0, &Seen::Listening(ListenerId(7), Endpoint::Unix(path.clone())));
        let file = std::fs::metadata(&path).expect("there");
        assert_eq!((file.permissions().mode() & 0o7777, file.gid()), (mode.into(), group));
        let _peer = UnixStream::connect(&path).expect("connected");
        rig.accepted(0);
        rig.stop();
        assert!(!Path::new(&path).exists(), "unlinked");
    }
}

#[test]
fn a_stale_file_is_replaced() {
    let dir = Dir::new("stale");
    let path = dir.path("s");
    drop(UnixListener::bind(&path).expect("bound"));
    assert!(Path::new(&path).exists(), "a server died and left this");
    let mut rig = Rig::new(1);
    rig.listen(0, Endpoint::Unix(path.clone()));
    let _peer = UnixStream::connect(&path).expect("connected");
    rig.accepted(0);
    rig.stop();
}

#[test]
fn a_live_server_is_left_alone() {
    let dir = Dir::new("live");
    let path = dir.path("s");
    let server = UnixListener::bind(&path).expect("bound");
    let mut rig = Rig::new(1);
    assert_eq!(refused(&mut rig, &path), BUSY);
    rig.stop();
    let _peer = UnixStream::connect(&path).expect("still there");
    server.accept().expect("still served");
}

/// A killed process's socket takes connections until the kernel has taken its ring apart: who is
/// started in its place must not fail for that.
#[test]
fn a_server_that_is_just_going_is_replaced() {
    let dir = Dir::new("going");
    let path = dir.path("s");
    let former = UnixListener::bind(&path).expect("bound");
    let mut rig = Rig::new(1);
    // It goes with the first connection in its backlog, which nobody accepts.
    let owner = std::thread::spawn(move || {
        let mut ready = [rustix::event::PollFd::new(&former, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut ready, None).expect("polled");
    });
    rig.listen(0, Endpoint::Unix(path));
    owner.join().expect("gone");
    rig.stop();
}

/// Not listening yet, it refuses connections as a dead one's would: the lock tells them apart.
#[test]
fn a_server_that_is_about_to_listen_is_left_alone() {
    let dir = Dir::new("about");
    let path = dir.path("s");
    let lock = SocketLock::take(Path::new(&path)).expect("a lock").expect("the first");
    assert!(SocketLock::take(Path::new(&path)).expect("no error").is_none(), "the second");
    drop(UnixListener::bind(&path).expect("bound"));
    let mut rig = Rig::new(1);
    assert_eq!(refused(&mut rig, &path), BUSY);
    assert!(Path::new(&path).exists());
    drop(lock);
    rig.listen(0, Endpoint::Unix(path.clone()));
    assert!(SocketLock::take(Path::new(&path)).expect("no error").is_none(), "while it listens");
    rig.stop();
    let left: Vec<_> = std::fs::read_dir(dir.path("")).expect("read").collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Others lock directories for reasons of their own (those that clean up temporary files do).
#[test]
fn a_locked_directory_is_no_hindrance() {
    let dir = Dir::new("locked");
    let open = std::fs::File::open(dir.path("")).expect("opened");
    open.lock().expect("locked");
    let mut rig = Rig::new(1);
    rig.listen(0, Endpoint::Unix(dir.path("s")));
    rig.stop();
}

#[test]
fn other_files_are_left_alone() {
    let dir = Dir::new("other");
    let path = dir.path("precious");
    std::fs::write(&path, "data").expect("written");
    let mut rig = Rig::new(1);
    assert_eq!(refused(&mut rig, &path), BUSY);
    assert!(refused(&mut rig, &"x".repeat(300)).is_some(), "too long for a socket");
    assert!(refused(&mut rig, "/nonexistent/s").is_some());
    rig.stop();
    assert_eq!(std::fs::read_to_string(&path).expect("still there"), "data");
}

/// A file that somebody else put in our place is not ours to remove.
#[test]
fn a_replaced_file_is_left_alone() {
    let dir = Dir::new("replaced");
    let path = dir.path("s");
    let mut rig = Rig::new(1);
    rig.listen(0, Endpoint::Unix(path.clone()));
    std::fs::remove_file(&path).expect("removed");
    let _other = UnixListener::bind(&path).expect("bound");
    rig.stop();
    assert!(Path::new(&path).exists());
}
