//! The group itself: settings, requests, failures, the end.

use crate::support::{Engine, LIMIT, Piece, Rig, Verb, loopback, tcp};
use anabranch_proto::machine::{CloseCause, ConnId, SystemError, WorkerId};
use anabranch_rt::signal::Termination;
use anabranch_rt::{Config, Error, Group};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

fn start(config: Config, workers: usize) -> Result<Group<Engine>, Error> {
    let engines = (0..workers).map(|_| Engine::default()).collect();
    Group::start(config, engines, Box::new(|_, _| {}))
}

#[test]
fn bad_settings_are_named() {
    let name = || Config::named("bad");
    let bad = [
        ("engines", start(name(), 0)),
        ("pool_bytes", start(Config { pool_bytes: 1000, ..name() }, 1)),
        ("power of two", start(Config { receive_buffers: 3, ..name() }, 1)),
        ("receive_buffer_bytes", start(Config { receive_buffer_bytes: 100, ..name() }, 1)),
        ("mailbox", start(Config { mailbox: 0, ..name() }, 1)),
        ("CPU 9999", start(Config { cpus: Some(vec![9999]), ..name() }, 1)),
    ];
    for (field, result) in bad {
        let text = result.expect_err(field).to_string();
        assert!(text.contains(field), "{text}");
    }
}

#[test]
fn workers_can_be_pinned() {
    let group = start(Config { pin: true, ..Config::named("pinned") }, 2).expect("started");
    let ask = |worker| {
        let verb: Verb = Box::new(|_, _| {
            Box::new(anabranch_rt::topology::CpuSet::allowed().expect("readable").len())
        });
        let reply = group.verb(WorkerId(worker), verb, LIMIT).expect("an answer");
        *reply.downcast::<usize>().expect("a number")
    };
    assert_eq!((ask(0), ask(1)), (1, 1));
    group.stop().expect("an orderly end");
}

#[test]
fn a_request_ends_in_time() {
    let group = start(Config::named("late"), 1).expect("started");
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let verb: Verb = Box::new(move |_, _| {
        let _ = held.recv();
        Box::new(())
    });
    let late = group.verb(WorkerId(0), verb, Duration::from_millis(1));
    assert!(matches!(late, Err(Error::NoAnswer(_))), "{late:?}");
    drop(hold);
    let none = group.verb(WorkerId(5), Box::new(|_, _| Box::new(())), LIMIT);
    assert!(matches!(none, Err(Error::NoWorker(5))), "{none:?}");
    group.stop().expect("an orderly end");
}

/// Requests that wait are bounded, and those that were refused or answered do not count.
#[test]
fn too_many_requests_are_refused() {
    let group = start(Config::named("busy"), 1).expect("started");
    let nothing = || -> Verb { Box::new(|_, _| Box::new(())) };
    for _ in 0..2 {
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let mut verb: Verb = Box::new(move |_, _| {
            let _ = held.recv();
            Box::new(())
        });
        let mut waiting = 0;
        while let Err(Error::NoAnswer(_)) = group.verb(WorkerId(0), verb, Duration::ZERO) {
            waiting += 1;
            verb = nothing();
        }
        assert_eq!(waiting, 1024);
        let refused = group.verb(WorkerId(0), nothing(), LIMIT);
        assert!(matches!(refused, Err(Error::Busy(1024))), "{refused:?}");
        drop(hold);
        // The turn of the first that is taken comes after those of all that wait.
        let start = anabranch_rt::now();
        while matches!(group.verb(WorkerId(0), nothing(), LIMIT), Err(Error::Busy(_))) {
            assert!(anabranch_rt::now().since(start) < LIMIT, "it stays busy");
        }
    }
    group.stop().expect("an orderly end");
}

/// A defect of an engine ends the group with a message instead of hanging its users.
#[test]
fn a_defect_is_reported() {
    let group = start(Config::named("defect"), 2).expect("started");
    let verb: Verb = Box::new(|_, _| panic!("an engine's own mistake"));
    let error = group.verb(WorkerId(1), verb, LIMIT).expect_err("no answer");
    assert!(error.to_string().contains("an engine's own mistake"), "{error}");
    let other = group.verb(WorkerId(0), Box::new(|_, _| Box::new(())), LIMIT);
    assert!(other.is_err(), "all workers end");
    let error = group.stop().expect_err("it failed");
    assert!(matches!(error, Error::Failed { worker: 1, .. }), "{error}");
}

/// Whoever keeps a group can wait for its failure beside the signals that end a program.
#[test]
fn a_defect_ends_the_wait_for_a_signal() {
    let termination = Termination::install().expect("signals");
    let group = start(Config::named("waited"), 2).expect("started");
    let failed = || PollFd::from_borrowed_fd(group.failed_fd(), PollFlags::IN);
    assert_eq!(poll(&mut [failed()], Some(&Timespec::default())), Ok(0), "all is well");
    let verb: Verb = Box::new(|_, _| panic!("the worker that holds no client"));
    assert!(group.verb(WorkerId(1), verb, LIMIT).is_err());
    assert!(!termination.wait_or(group.failed_fd()).expect("an end"), "no signal came");
    let error = group.failure().expect("it says why");
    assert!(error.to_string().contains("holds no client"), "{error}");
}

/// Freeing a buffer that the kernel still has is a defect that does not go unnoticed.
#[test]
fn freeing_too_early_is_a_defect() {
    let mut rig = Rig::new(1);
    let at = rig.listen(0, loopback());
    let _peer = TcpStream::connect(tcp(&at)).expect("connected");
    let conn = rig.accepted(0);
    let bufs = rig.ask(0, move |engine, bufs| {
        let all: Vec<_> = (0..64).map(|_| bufs.alloc(1 << 20).expect("a buffer")).collect();
        all.iter().for_each(|buf| engine.send(conn, Piece::Payload(*buf)));
        all
    });
    // By the second answer a batch is in flight, or the next one is about to be made.
    rig.ask(0, |_, _| ());
    let verb: Verb = Box::new(move |_, pool| {
        bufs.into_iter().for_each(|buf| pool.free(buf));
        Box::new(())
    });
    let answer = rig.group.verb(WorkerId(0), verb, LIMIT);
    let error = answer.err().unwrap_or_else(|| rig.group.stop().expect_err("noticed"));
    let text = error.to_string();
    assert!(text.contains("still name it") || text.contains("was freed"), "{text}");
}

/// The end of a group resets its connections and joins its threads.
#[test]
fn stop_resets_connections() {
    let mut rig = Rig::new(2);
    let at = rig.listen(0, loopback());
    let mut peer = TcpStream::connect(tcp(&at)).expect("connected");
    peer.set_read_timeout(Some(LIMIT)).expect("a limit");
    rig.accepted(0);
    rig.connect(1, ConnId::opened(0), at.clone());
    rig.stop();
    let error = peer.read(&mut [0; 1]).expect_err("a reset");
    assert_eq!(error.raw_os_error(), Some(SystemError::RESET.0));
    TcpStream::connect(tcp(&at)).expect_err("nobody listens");
}

/// One side's end is the other side's `Closed`.
#[test]
fn groups_are_independent() {
    let (mut one, mut two) = (Rig::new(1), Rig::new(1));
    let at = one.listen(0, loopback());
    let conn = ConnId::opened(4);
    two.connect(0, conn, at);
    one.accepted(0);
    one.stop();
    assert_eq!(two.closed(0, conn), CloseCause::Failed(SystemError::RESET));
    two.stop();
}
