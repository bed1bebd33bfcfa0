//! A flush that takes long says nothing about its path under `finish-time`, nor do zeroes or a
//! deallocation: the disk is busy, not the way.

use crate::rig::{MS, Rig, SECOND, Setup};
use crate::script::Op;
use crate::setup;
use anabranch_host::verb::{Reply, Verb};
use anabranch_policy::{FinishTimeReport, Policy};
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::opcode::io;

const WRITE: Op = Op::Write { lba: 0, blocks: 8, fill: 7 };

/// Two ports, the second 20 ms farther, both measured; nothing is owed a flush.
fn near_and_far() -> Rig {
    let mut setup = Setup::new(2, 1);
    setup.host.default_policy = Policy::FinishTime;
    let mut rig = setup.connect();
    let stream = rig.world.stream(WorkerId(1), &setup::port(1)).expect("open");
    rig.world.slow_stream(stream, 20 * MS);
    for _ in 0..5 {
        rig.io([WRITE; 4]);
        rig.io([Op::Read { lba: 0, blocks: 8 }; 4]);
    }
    rig.run(SECOND);
    rig.io([Op::Flush]);
    rig
}

fn known_of_near(rig: &mut Rig) -> FinishTimeReport {
    match rig.ask(Verb::Explain { device: "nvme0n1".into() }) {
        Reply::Explain(report) => report.paths[0].finish_time.expect("it is in force"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn writes_stay_on_a_path_that_has_nothing_but_a_slow_flush() {
    let mut rig = near_and_far();
    rig.io([WRITE]);
    assert_eq!(rig.path(1).in_flight, 0);
    rig.wire().rule(|pdu| {
        if pdu.port == 0 && pdu.answers(io::FLUSH) {
            pdu.bytes.clear();
        }
    });
    let flush = rig.submit([Op::Flush]);
    rig.run(60 * MS);
    assert_eq!(rig.path(0).in_flight, 1, "the flush alone");
    let known = known_of_near(&mut rig);
    assert_eq!((known.silent_ns, known.in_flight_bytes), (0, 0), "it waits for nothing");
    let written = [0, 1].map(|port| rig.path(port).commands[1]);
    for _ in 0..20 {
        rig.io([WRITE]);
        rig.run(5 * MS);
    }
    let written = [0, 1].map(|port| rig.path(port).commands[1] - written[usize::from(port)]);
    assert_eq!(written, [20, 0], "nothing keeps them away from the near path");
    rig.wire().clear_rules();
    // It is asked for anew when its time limit has passed.
    rig.succeed(&flush);
    rig.finish();
}

/// Zeroes and a deallocation, each unanswered on the near path: reads and writes stay there.
#[test]
fn nothing_leaves_a_path_that_makes_zeroes_or_deallocates_for_long() {
    for (op, opcode) in [
        (Op::Zero { lba: 64, blocks: 8 }, io::WRITE_ZEROES),
        (Op::Discard { lba: 64, blocks: 8 }, io::DATASET_MANAGEMENT),
    ] {
        let mut rig = near_and_far();
        rig.wire().rule(move |pdu| {
            if pdu.answers(opcode) {
                pdu.bytes.clear();
            }
        });
        let slow = rig.submit([op]);
        rig.run(60 * MS);
        assert_eq!([0, 1].map(|port| rig.path(port).in_flight), [1, 0], "{op:?}");
        let known = known_of_near(&mut rig);
        assert_eq!(
            (known.silent_ns, known.in_flight_bytes),
            (0, 0),
            "{op:?}: nothing is waited for"
        );
        let commands = |rig: &mut Rig, port| {
            let commands = rig.path(port).commands;
            commands[0] + commands[1]
        };
        let before = [0, 1].map(|port| commands(&mut rig, port));
        for _ in 0..20 {
            rig.io([WRITE, Op::Read { lba: 0, blocks: 8 }]);
            rig.run(5 * MS);
        }
        let near = commands(&mut rig, 0) - before[0];
        assert_eq!((near, commands(&mut rig, 1) - before[1]), (40, 0), "{op:?}");
        rig.wire().clear_rules();
        rig.succeed(&slow);
        rig.finish();
    }
}
