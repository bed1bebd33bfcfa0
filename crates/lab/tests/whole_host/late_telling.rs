//! A controller has answered, and the driver has not yet said that the command's batch has left:
//! its memory is still the driver's.

use crate::rig::{MS, Rig, Setup, writes};
use crate::script::Op;
use crate::setup;
use anabranch_proto::machine::WorkerId;

/// Drivers say only 5 ms later what has left.
fn late(ports: u16) -> Rig {
    let mut setup = Setup::new(ports, 1);
    setup.times.telling = (5 * MS, 5 * MS);
    setup.connect()
}

#[test]
fn a_write_ends_when_its_memory_is_free() {
    let mut rig = late(1);
    let begin = rig.now();
    let outcome = rig.io([Op::Write { lba: 0, blocks: 16, fill: 3 }]).remove(0);
    let took = outcome.at.since(begin);
    assert!(took >= 5 * MS && took < 10 * MS, "{took:?}");
    rig.finish();
}

/// The answer is a fact, though nobody has been told of it yet.
#[test]
fn a_write_that_was_answered_is_not_sent_again_when_its_connection_is_lost() {
    let mut rig = late(2);
    let names = rig.submit(writes(2, 1));
    rig.run(2 * MS);
    assert_eq!((rig.sent(0), rig.sent(1), rig.answered(&names)), (1, 1, 0));
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.break_stream(stream);
    rig.succeed(&names);
    assert_eq!((rig.sent(0), rig.sent(1)), (1, 1));
    assert_eq!(rig.path(0).uncertain_writes_resent, 0);
    rig.wait_live(0);
    rig.finish();
}
