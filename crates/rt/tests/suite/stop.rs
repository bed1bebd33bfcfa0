//! The end of a group is heard by its workers, whatever they do at that moment.

use crate::support::Rig;
use anabranch_proto::machine::{
    Buffers, ConnId, DiskId, DiskOp, Gather, Input, Machine, Output, Time,
};
use anabranch_rt::{Config, Error, Group};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Wants its time-out at once, again and again, until it is told to rest.
struct Restless(Arc<AtomicBool>);

impl Machine for Restless {
    type Mail = ();
    type Verb = ();
    type Reply = ();
    type Event = ();

    fn handle(&mut self, _: Time, _: Input<'_, (), ()>, _: &mut dyn Buffers) {}

    fn poll_output(&mut self) -> Option<Output<(), (), ()>> {
        None
    }

    fn poll_transmit(&mut self, _: Time, _: ConnId, _: &mut dyn Gather, _: &mut dyn Buffers) {}

    fn poll_timeout(&mut self) -> Option<Time> {
        (!self.0.load(Ordering::Relaxed)).then_some(Time::ZERO)
    }
}

/// Told to stop just before it would sleep for ever, a worker must not sleep.
#[test]
fn a_worker_about_to_rest_hears_it() {
    let config = Config { pool_bytes: 4 << 20, receive_buffers: 2, ..Config::named("stop") };
    for round in 0..4000 {
        let rest = Arc::new(AtomicBool::new(false));
        let engine = Restless(rest.clone());
        let group = Group::start(config.clone(), vec![engine], Box::new(|_, ()| {}));
        let group = group.expect("started");
        rest.store(true, Ordering::Relaxed);
        group.stop().unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
}

/// The system lets no thread end while a file operation of it hangs. (This one, which never ends
/// either, it gives up with the thread.)
#[test]
fn a_worker_that_the_system_has_operations_of_is_left_behind() {
    let rig = Rig::new(2);
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    let file = rig.group.register_file(File::from(OwnedFd::from(reader)));
    rig.ask(1, move |engine, bufs| {
        let buf = bufs.alloc(4096).expect("a buffer");
        let op = DiskOp::Read { offset: 0, buf };
        engine.out(Output::Disk { id: DiskId(1), file, op });
    });
    let stopped = rig.group.stop();
    assert!(matches!(stopped, Err(Error::StopTimeout(1))), "{stopped:?}");
}
