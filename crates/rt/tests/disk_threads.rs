//! What the kernel does on files it often does in threads that it starts for that. Where it may
//! start none, work on files waits. Alone in its process: the limit is the process's.

#[path = "suite/support/mod.rs"]
mod support;

use anabranch_proto::machine::{DiskId, DiskOp, Output, WorkerId};
use rustix::process::{Resource, Rlimit, getrlimit, getuid, setrlimit};
use std::fs::File;
use support::{Dir, LIMIT, Rig, Seen};

/// A user number that is nobody's: limits of threads do not hold for root.
const NOBODY: libc::uid_t = 61_234;

/// Makes this thread, and those that it starts, a user's for whom limits hold.
fn be_no_root() {
    if getuid().is_root() {
        // SAFETY: three numbers; called directly, it concerns this thread alone.
        let done = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
        assert_eq!(done, 0, "another user: {}", std::io::Error::last_os_error());
    }
}

#[test]
fn work_on_files_waits_for_a_thread() {
    let dir = Dir::new("threads");
    let file = File::create_new(dir.path("f")).expect("made");
    std::thread::spawn(move || without_threads(file)).join().expect("no panic");
}

fn without_threads(file: File) {
    be_no_root();
    let mut rig = Rig::new(1);
    let file = rig.group.register_file(file);
    let limit = getrlimit(Resource::Nproc);
    setrlimit(Resource::Nproc, Rlimit { current: Some(1), ..limit }).expect("set");
    let id = DiskId(77);
    rig.ask(0, move |engine, _| engine.out(Output::Disk { id, file, op: DiskOp::Flush }));
    let started = anabranch_rt::now();
    while rig.group.stats(WorkerId(0)).expect("stats").disk_put_off < 2 {
        assert!(anabranch_rt::now().since(started) < LIMIT, "it is not tried again");
        rig.ask(0, |_, _| ());
    }
    setrlimit(Resource::Nproc, limit).expect("set");
    rig.expect(0, &Seen::DiskDone(id, Ok(0)));
    rig.stop();
}
