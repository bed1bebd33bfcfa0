//! Operations beside read and write: split, moved and answered like those.

use crate::rig::{MS, Rig, SECOND, Setup, reads, writes};
use crate::script::{Failure, Op};
use crate::setup;
use crate::wire::{Pdu, kind};
use anabranch_host::user::{IoError, Refused};
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::opcode::io;
use anabranch_proto::nvme::{AnaState, Status};
use anabranch_target::config::BackendConfig;

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

/// One range has 32 bits for its length.
#[test]
fn a_discard_longer_than_one_range_reaches_every_block() {
    let mut setup = Setup::new(1, 1);
    let blocks = 1_u64 << 33;
    setup.namespaces()[0].backend = BackendConfig::Memory { bytes: blocks * 512 };
    let mut rig = setup.connect();
    let kept = [0, 4];
    let gone = [5, (1 << 32) - 1, 1 << 32, (1 << 32) + 100, blocks - 1];
    let written = kept.into_iter().chain(gone);
    rig.io(written.map(|lba| Op::Write { lba, blocks: 1, fill: 7 }));
    rig.io([Op::Discard { lba: 5, blocks: blocks - 5 }]);
    for (places, fill) in [(&kept[..], 7), (&gone[..], 0)] {
        let reads = rig.io(places.iter().map(|&lba| Op::Read { lba, blocks: 1 }));
        assert!(reads.iter().all(|read| read.data.iter().all(|&byte| byte == fill)), "{fill}");
    }
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

/// CDW12 of Write Zeroes: the space may be given back.
const DEAC: u32 = 1 << 25;

fn is_zeroing(pdu: &Pdu) -> bool {
    pdu.sqe.is_some_and(|sqe| sqe.opcode() == io::WRITE_ZEROES && !sqe.is_fabrics())
}

fn is_freeing(pdu: &Pdu) -> bool {
    is_zeroing(pdu) && pdu.sqe.is_some_and(|sqe| sqe.cdw(12) & DEAC != 0)
}

/// The namespace behind a port has this DLFEAT (byte 33 of Identify Namespace), and refuses to give
/// space back with Write Zeroes if that has no bit 3, as SPDK does.
fn zeroes_as(rig: &Rig, port: u16, dlfeat: u8) {
    rig.wire().rule(move |pdu: &mut Pdu| {
        let Some(sqe) = pdu.sqe.filter(|_| pdu.port == port && !pdu.to_target) else { return };
        let identifies = pdu.worker == 0 && sqe.opcode() == 6 && sqe.cdw(10) & 0xff == 0;
        if identifies && pdu.kind == kind::C2H_DATA {
            pdu.bytes[24 + 33] = dlfeat;
        }
        if pdu.answers(io::WRITE_ZEROES) && is_freeing(pdu) && dlfeat & 8 == 0 {
            pdu.answer(Status::INVALID_FIELD);
        }
    });
}

#[test]
fn zeroes_give_space_back_only_where_that_is_supported_and_reads_as_zeroes() {
    for (dlfeat, frees) in
        [(0, false), (1, false), (8, false), (0xa, false), (9, true), (0x19, true)]
    {
        let mut rig = Setup::new(1, 1).build();
        zeroes_as(&rig, 0, dlfeat);
        rig.connect(0);
        rig.io(writes(8, 7));
        rig.io([Op::ZeroAndFree { lba: 0, blocks: 8 }]);
        assert!(all_are(&mut rig, 8, 0));
        let sent = rig.seen(|pdu| pdu.is_io() && is_zeroing(pdu));
        assert_eq!(sent.iter().map(is_freeing).collect::<Vec<_>>(), [frees], "DLFEAT {dlfeat:#x}");
        rig.finish();
    }
}

/// As Linux's target answers for a file on a file system that cannot make zeroes.
#[test]
fn zeroes_that_the_namespace_turns_out_not_to_make_are_not_taken_any_more() {
    let mut rig = Setup::new(2, 2).connect();
    assert_ne!(rig.get("nvme0n1", "write_zeroes_max_bytes"), "0");
    let status = Status::COMMAND_SIZE_LIMIT_EXCEEDED.with_more().with_dnr();
    rig.wire().rule(move |pdu: &mut Pdu| {
        if pdu.answers(io::WRITE_ZEROES) {
            pdu.answer(status);
        }
    });
    let zero = Op::Zero { lba: 0, blocks: 8 };
    let start = rig.now();
    let names = rig.submit([zero]);
    let first = rig.answers(&names).remove(0);
    assert_eq!(first.result, Err(Failure::Io(IoError::Status(status))));
    rig.run(10 * MS);
    let told = "zeroes after all (Command Size Limit Exceeded (sct 1h, sc 83h)";
    assert!(rig.event(start, told).is_some(), "in the words of an I/O command");
    let sent = rig.sent(0) + rig.sent(1);
    // The other worker knows it, too.
    for worker in [1, 2] {
        let names = rig.submit_to(worker, "nvme0n1", [zero]);
        let second = rig.answers(&names).remove(0);
        assert_eq!(second.result, Err(Failure::Refused(Refused::NotSupported)));
    }
    assert_eq!(rig.sent(0) + rig.sent(1), sent);
    rig.io(writes(8, 0));
    assert_eq!(rig.get("nvme0n1", "write_zeroes_max_bytes"), "0", "and so do those who ask");
    let after = |text: &str| rig.events().iter().filter(|(_, told)| told.contains(text)).count();
    assert_eq!((after("zeroes after all"), after("failed")), (1, 0), "no request has failed");
    rig.finish();
}

#[test]
fn zeroes_that_move_give_no_space_back_where_that_is_not_supported() {
    let mut rig = Setup::new(2, 1).build();
    zeroes_as(&rig, 1, 0);
    rig.connect(0);
    rig.connect(1);
    rig.ana(1, AnaState::NonOptimized);
    rig.run(10 * MS);
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.slow_stream(stream, SECOND);
    let names = rig.submit([Op::ZeroAndFree { lba: 0, blocks: 8 }]);
    rig.run(10 * MS);
    rig.world.break_stream(stream);
    rig.succeed(&names);
    let sent = rig.seen(|pdu| pdu.is_io() && is_zeroing(pdu));
    let sent: Vec<(u16, bool)> = sent.iter().map(|pdu| (pdu.port, is_freeing(pdu))).collect();
    assert_eq!(sent, [(0, true), (1, false)]);
    rig.wait_live(0);
    rig.finish();
}
