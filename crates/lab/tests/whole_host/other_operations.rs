//! Operations beside read and write: split, moved and answered like those.

use crate::rig::{MS, Rig, SECOND, Setup, reads, writes};
use crate::script::{Failure, Op};
use crate::setup;
use anabranch_host::user::IoError;
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::Status;
use anabranch_proto::nvme::opcode::io;

fn all_are(rig: &mut Rig, count: u64, fill: u8) -> bool {
    rig.io(reads(count)).iter().all(|read| read.data.iter().all(|&byte| byte == fill))
}

#[test]
fn compare_succeeds_on_equal_blocks_and_tells_a_difference_once() {
    let mut rig = Setup::new(2, 1).connect();
    rig.io(writes(32, 7));
    rig.io([Op::Compare { lba: 0, blocks: 32, fill: 7 }]);
    let before = rig.sent(0) + rig.sent(1);
    let names = rig.submit([Op::Compare { lba: 0, blocks: 32, fill: 8 }]);
    match rig.answers(&names)[0].result {
        Err(Failure::Io(IoError::Status(status))) => {
            assert!(status.is(Status::COMPARE_FAILURE), "{status}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(rig.sent(0) + rig.sent(1), before + 1, "to compare again would not help");
    rig.finish();
}

#[test]
fn zeroes_and_discards_of_the_whole_device_are_split_to_the_limits() {
    let mut rig = Setup::new(2, 1).connect();
    rig.io(writes(100, 7));
    rig.io([Op::Zero { lba: 0, blocks: 2048 }]);
    assert!(all_are(&mut rig, 100, 0));
    rig.io(writes(100, 7));
    rig.io([Op::Discard { lba: 0, blocks: 2048 }]);
    assert!(all_are(&mut rig, 100, 0), "what was discarded reads as zeroes from memory");
    rig.finish();
}

#[test]
fn they_move_with_a_lost_path_and_leave_no_buffer_behind() {
    let mut rig = Setup::new(2, 1).connect();
    rig.io(writes(64, 7));
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.slow_stream(stream, SECOND);
    let ops = (0..8).flat_map(|n| {
        let lba = 100 + 8 * n;
        [
            Op::Discard { lba, blocks: 2 },
            Op::Zero { lba: lba + 2, blocks: 2 },
            Op::Compare { lba: 8 * n, blocks: 2, fill: 7 },
            Op::Flush,
            Op::WriteFua { lba: lba + 4, blocks: 2, fill: 9 },
        ]
    });
    let names = rig.submit(ops);
    rig.run(10 * MS);
    assert!(rig.answered(&names) < names.len(), "some are on the slow path");
    rig.world.break_stream(stream);
    rig.succeed(&names);
    assert!(rig.path(0).failovers >= 10);
    rig.wait_live(0);
    rig.finish();
}

#[test]
fn a_discard_is_one_range_in_the_capsule() {
    let mut rig = Setup::new(1, 1).connect();
    rig.io([Op::Discard { lba: 5, blocks: 3 }]);
    let sent = rig.seen(|pdu| {
        pdu.is_io() && pdu.sqe.is_some_and(|sqe| sqe.opcode() == io::DATASET_MANAGEMENT)
    });
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].len, 72 + 16, "a capsule with its one range");
    rig.finish();
}
