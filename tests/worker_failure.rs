//! A worker that panics ends the daemon, whatever became of standard error. A program of its own:
//! what other tests start would tell things there, too.

use anabranch::daemon::{ending, log};
use anabranch_proto::machine::{Buffers, ConnId, Gather, Input, Machine, Output, Time, WorkerId};
use anabranch_rt::{Config, Group};
use rustix::fs::{OFlags, fcntl_setfl};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::time::Duration;

/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(20);

/// An engine with a defect: any verb finds it.
struct Defective;

impl Machine for Defective {
    type Mail = ();
    type Verb = ();
    type Reply = ();
    type Event = ();

    fn handle(&mut self, _: Time, input: Input<'_, (), ()>, _: &mut dyn Buffers) {
        assert!(!matches!(input, Input::Verb { .. }), "the path list has a hole");
    }

    fn poll_output(&mut self) -> Option<Output<(), (), ()>> {
        None
    }

    fn poll_transmit(&mut self, _: Time, _: ConnId, _: &mut dyn Gather, _: &mut dyn Buffers) {}

    fn poll_timeout(&mut self) -> Option<Time> {
        None
    }
}

/// Makes standard error a full pipe. Returns its reader and the bytes in front of what comes.
fn stop_reading_standard_error() -> (impl Read, u64) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    fcntl_setfl(&writer, OFlags::NONBLOCK).expect("a flag");
    let mut filled = 0;
    loop {
        match writer.write(&[b'.'; 4096]) {
            Ok(len) => filled += len as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("the pipe: {error}"),
        }
    }
    fcntl_setfl(&writer, OFlags::empty()).expect("no flag");
    rustix::stdio::dup2_stderr(&writer).expect("standard error");
    (reader, filled)
}

#[test]
fn a_daemon_ends_when_a_worker_panics_even_if_nobody_reads_standard_error() {
    let termination = ending::prepare().expect("signals and panics");
    let (mut reader, filled) = stop_reading_standard_error();
    let workers = vec![Defective, Defective];
    let group = Group::start(Config::named("broken"), workers, Box::new(|_, ()| {}));
    let group = group.expect("started");
    group.verb(WorkerId(1), (), LIMIT).expect_err("nothing is answered that was not done");
    let failure = ending::wait(&termination, &group).expect_err("not an end in order");
    assert_eq!(failure.status(), 1, "so that a supervisor starts it again");
    assert!(failure.to_string().contains("worker 1 failed: the path list"), "{failure}");
    log::last(&failure);
    group.stop().expect_err("it failed");
    std::io::copy(&mut reader.by_ref().take(filled), &mut std::io::sink()).expect("the filling");
    let mut line = String::new();
    BufReader::new(reader).read_line(&mut line).expect("what was told");
    let (_, told) = line.split_once("Z ").expect("the time of the line");
    assert!(told.starts_with("anabranch: a defect: thread 'broken-1' panicked at "), "{line}");
    assert!(line.ends_with(": the path list has a hole\n"), "{line}");
}
