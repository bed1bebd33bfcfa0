//! A path that takes less at once than those that commands were made for.

use crate::rig::{MS, Rig, SECOND, Setup};
use crate::script::{Failure, Op};
use crate::wire::{Pdu, kind};
use anabranch_host::user::IoError;
use anabranch_host::verb::Verb;
use anabranch_proto::nvme::fabrics::PropertyGet;
use anabranch_proto::nvme::io::DsmRange;
use anabranch_proto::nvme::{AnaState, Status};
use anabranch_target::TargetVerb;
use std::cell::RefCell;
use std::rc::Rc;

/// What the small path takes at once.
const SMALL_BYTES: u32 = 16 << 10;

/// From now on the controller behind a port says that it takes 16 KiB at once (MDTS, byte 77 of
/// Identify Controller), and refuses more.
fn make_small(rig: &Rig, port: u16) {
    let refusal = Status::INVALID_FIELD.with_dnr();
    rig.wire().rule(move |pdu: &mut Pdu| {
        let Some(sqe) = pdu.sqe.filter(|_| pdu.port == port && !pdu.to_target) else { return };
        let identifies = pdu.worker == 0 && sqe.opcode() == 6 && sqe.cdw(10) & 0xff == 1;
        if identifies && pdu.kind == kind::C2H_DATA {
            pdu.bytes[24 + 77] = 2;
        }
        if pdu.answers(1) && bytes_of(pdu) > SMALL_BYTES {
            pdu.answer(refusal);
        }
    });
}

fn bytes_of(pdu: &Pdu) -> u32 {
    pdu.sqe.map_or(0, |sqe| ((sqe.cdw(12) & 0xffff) + 1) * 512)
}

/// The longest write or read that was sent to a port.
fn longest(rig: &Rig, port: u16) -> u32 {
    let sent = rig.seen(|pdu| pdu.is_io() && pdu.port == port);
    sent.iter().map(bytes_of).max().unwrap_or(0)
}

fn write_and_check(rig: &mut Rig, names: &[u64]) {
    let outcomes = rig.answers(names);
    assert!(outcomes.iter().all(|outcome| outcome.result.is_ok()), "{:?}", outcomes[0].result);
    let read = rig.io([Op::Read { lba: 0, blocks: 1000 }]).remove(0);
    assert!(read.data.iter().all(|&byte| byte == 9), "every byte was written");
    assert_eq!(rig.head().errors, 0);
}

const WRITE: Op = Op::Write { lba: 0, blocks: 1000, fill: 9 };

#[test]
fn commands_that_wait_are_cut_for_a_smaller_path_that_joins() {
    let mut setup = Setup::new(2, 1);
    setup.ports = 1;
    let mut rig = setup.connect();
    make_small(&rig, 1);
    rig.ana(0, AnaState::Inaccessible);
    rig.run(MS);
    let names = rig.submit([WRITE, WRITE]);
    rig.run(MS);
    rig.connect(1);
    write_and_check(&mut rig, &names);
    assert_eq!(longest(&rig, 1), SMALL_BYTES);
    rig.finish();
}

#[test]
fn commands_that_fly_are_cut_when_they_move_to_a_smaller_path() {
    let mut setup = Setup::new(2, 1);
    setup.ports = 1;
    let mut rig = setup.connect();
    make_small(&rig, 1);
    let stream = rig.world.stream(anabranch_proto::machine::WorkerId(1), &crate::setup::port(0));
    rig.world.slow_stream(stream.expect("open"), SECOND);
    let names = rig.submit([WRITE, WRITE]);
    rig.run(MS);
    rig.connect(1);
    rig.target(TargetVerb::Cut { port: 0 });
    write_and_check(&mut rig, &names);
    assert_eq!(longest(&rig, 1), SMALL_BYTES);
    rig.target(TargetVerb::Restore { port: 0 });
    rig.wait_live(0);
    rig.finish();
}

#[test]
fn commands_that_wait_are_cut_for_a_controller_that_comes_back_smaller() {
    let mut rig = Setup::new(1, 1).connect();
    rig.target(TargetVerb::Cut { port: 0 });
    rig.run(10 * MS);
    let names = rig.submit([WRITE, WRITE]);
    rig.run(MS);
    make_small(&rig, 0);
    rig.target(TargetVerb::Restore { port: 0 });
    rig.wait_live(0);
    write_and_check(&mut rig, &names);
    assert_eq!(longest(&rig, 0), SMALL_BYTES);
    rig.finish();
}

/// Each turn is about its own part of the request's memory.
#[test]
fn every_block_of_a_command_that_was_cut_is_where_it_belongs() {
    let mut rig = Setup::new(1, 1).connect();
    let right = |data: &[u8], lba: u64| {
        (lba..).zip(data.chunks(512)).all(|(lba, block)| block.iter().all(|&it| it == lba as u8))
    };
    rig.io([Op::WriteEach { lba: 100, blocks: 400 }]);
    rig.target(TargetVerb::Cut { port: 0 });
    rig.run(10 * MS);
    let read = Op::Read { lba: 100, blocks: 400 };
    let names = rig.submit([read, Op::WriteEach { lba: 700, blocks: 400 }]);
    rig.run(MS);
    make_small(&rig, 0);
    rig.target(TargetVerb::Restore { port: 0 });
    rig.wait_live(0);
    assert!(right(&rig.succeed(&names)[0].data, 100), "what was read");
    let read = rig.io([Op::Read { lba: 700, blocks: 400 }]).remove(0);
    assert!(right(&read.data, 700), "what was written");
    rig.finish();
}

#[test]
fn zeroes_and_comparisons_are_cut_as_well() {
    let mut rig = Setup::new(1, 1).connect();
    rig.io([0, 1000].map(|lba| Op::Write { lba, blocks: 1000, fill: 9 }));
    let long = rig.sent(0);
    rig.target(TargetVerb::Cut { port: 0 });
    rig.run(10 * MS);
    let names = rig.submit([
        Op::Compare { lba: 0, blocks: 1000, fill: 9 },
        Op::Compare { lba: 0, blocks: 1000, fill: 8 },
        Op::Zero { lba: 1000, blocks: 900 },
    ]);
    rig.run(MS);
    make_small(&rig, 0);
    rig.target(TargetVerb::Restore { port: 0 });
    rig.wait_live(0);
    let outcomes = rig.answers(&names);
    assert_eq!(outcomes[0].result, Ok(()), "every part is as it should be");
    assert!(outcomes[1].result.is_err(), "some part differs, and no further one is looked at");
    assert_eq!(outcomes[2].result, Ok(()));
    let sent = rig.seen(|pdu| pdu.is_io());
    assert!(sent[long..].iter().all(|pdu| bytes_of(pdu) <= SMALL_BYTES));
    let comparisons = sent.iter().filter(|pdu| pdu.sqe.is_some_and(|sqe| sqe.opcode() == 5));
    assert_eq!(comparisons.count(), 32 + 1);
    let read = rig.io([Op::Read { lba: 900, blocks: 1100 }]).remove(0);
    let zeroes = read.data.chunks(512).map(|block| block.iter().all(|&it| it == 0));
    let wanted = (900..2000).map(|lba| (1000..1900).contains(&lba));
    assert!(zeroes.eq(wanted), "there, and nowhere else");
    rig.finish();
}

#[test]
fn every_turn_of_a_durable_write_is_durable() {
    let mut rig = Setup::new(1, 1).connect();
    rig.target(TargetVerb::Cut { port: 0 });
    rig.run(10 * MS);
    let names = rig.submit([Op::WriteFua { lba: 0, blocks: 400, fill: 1 }]);
    rig.run(MS);
    make_small(&rig, 0);
    rig.target(TargetVerb::Restore { port: 0 });
    rig.wait_live(0);
    rig.succeed(&names);
    let turns = rig.seen(|pdu| pdu.is_io() && pdu.sqe.is_some_and(|sqe| sqe.opcode() == 1));
    assert!(turns.len() > 1, "it was cut");
    // FUA is bit 30 of dword 12.
    assert!(turns.iter().all(|pdu| pdu.sqe.is_some_and(|sqe| sqe.cdw(12) >> 30 & 1 == 1)));
    rig.finish();
}

/// What deallocate commands cover: first block and number of blocks.
type Ranges = Rc<RefCell<Vec<(u64, u32)>>>;

/// From now on the controller behind a port says that it is one of NVMe 2.0 and deallocates 32
/// blocks at once (DMRSL, bytes 4 to 7 of Identify with CNS 06h). What it is asked for is kept.
fn deallocates_little(rig: &Rig, port: u16) -> Ranges {
    let ranges = Ranges::default();
    let kept = Rc::clone(&ranges);
    rig.wire().rule(move |pdu: &mut Pdu| {
        let Some(sqe) = pdu.sqe.filter(|_| pdu.port == port) else { return };
        let identifies = pdu.worker == 0 && sqe.opcode() == 6 && sqe.cdw(10) & 0xff == 6;
        if identifies && pdu.kind == kind::C2H_DATA {
            pdu.bytes[24 + 4..24 + 8].copy_from_slice(&32_u32.to_le_bytes());
        }
        let version = sqe.is_fabrics() && sqe.cdw(11) == 8 && PropertyGet::parse(&sqe).is_ok();
        if version && pdu.kind == kind::CAPSULE_RESP {
            pdu.bytes[8..12].copy_from_slice(&0x0002_0000_u32.to_le_bytes());
        }
        if pdu.is_io() && sqe.opcode() == 9 {
            // The descriptor travels in the capsule.
            let range = pdu.bytes[72..].first_chunk().expect("a range");
            let range = DsmRange::from_bytes(range);
            kept.borrow_mut().push((range.lba, range.blocks));
        }
    });
    ranges
}

#[test]
fn discards_are_cut_as_well() {
    let mut setup = Setup::new(2, 1);
    setup.ports = 1;
    let mut rig = setup.connect();
    rig.io([Op::Write { lba: 0, blocks: 400, fill: 9 }]);
    let ranges = deallocates_little(&rig, 1);
    rig.ana(0, AnaState::Inaccessible);
    rig.run(MS);
    let names = rig.submit([Op::Discard { lba: 100, blocks: 100 }]);
    rig.run(MS);
    rig.connect(1);
    let outcomes = rig.answers(&names);
    assert_eq!(outcomes[0].result, Ok(()));
    assert_eq!(*ranges.borrow(), [(100, 32), (132, 32), (164, 32), (196, 4)]);
    let read = rig.io([Op::Read { lba: 0, blocks: 400 }]).remove(0);
    let gone = |block: usize| read.data[block * 512..][..512].iter().all(|&byte| byte == 0);
    let there = |block: usize| read.data[block * 512..][..512].iter().all(|&byte| byte == 9);
    assert!((100..200).all(gone) && (0..100).chain(200..400).all(there));
    rig.finish();
}

/// From now on the controller behind a port says that it has neither Write Zeroes nor Dataset
/// Management (ONCS, byte 520 of Identify Controller).
fn forgets_commands(rig: &Rig, port: u16) {
    rig.wire().rule(move |pdu: &mut Pdu| {
        let Some(sqe) = pdu.sqe.filter(|_| pdu.port == port && !pdu.to_target) else { return };
        let identifies = pdu.worker == 0 && sqe.opcode() == 6 && sqe.cdw(10) & 0xff == 1;
        if identifies && pdu.kind == kind::C2H_DATA {
            pdu.bytes[24 + 520] &= !(1 << 2 | 1 << 3);
        }
    });
}

/// Nobody has failed: zeroes can be written, and to deallocate is a wish.
#[test]
fn what_a_controller_comes_back_without_is_not_asked_of_it() {
    let mut rig = Setup::new(1, 1).connect();
    rig.target(TargetVerb::Cut { port: 0 });
    rig.run(10 * MS);
    let (zero, discard) = (Op::Zero { lba: 0, blocks: 900 }, Op::Discard { lba: 0, blocks: 100 });
    let names = rig.submit([zero, discard, Op::Write { lba: 0, blocks: 8, fill: 9 }]);
    rig.run(MS);
    let begin = rig.now();
    forgets_commands(&rig, 0);
    rig.target(TargetVerb::Restore { port: 0 });
    rig.wait_live(0);
    let results: Vec<_> = rig.answers(&names).iter().map(|outcome| outcome.result).collect();
    let lacks = Err(Failure::Io(IoError::Status(Status::INVALID_OPCODE)));
    assert_eq!(results, [lacks, lacks, Ok(())]);
    assert_eq!(rig.sent(0), 1, "the write alone");
    assert_eq!(rig.event(begin, "failed"), None);
    assert_eq!(rig.event(begin, "zeroes"), None);
    // It has them again, and so has the device.
    rig.wire().clear_rules();
    rig.done(Verb::Reset { controller: "nvme0".into() });
    rig.wait_live(0);
    rig.io([zero, discard]);
    rig.finish();
}

/// Of a request too long for one command, what no command was made for yet ends likewise.
#[test]
fn the_rest_of_what_a_head_takes_no_more_is_not_asked_for_block_by_block() {
    let mut setup = Setup::new(2, 1);
    setup.ports = 1;
    setup.host.max_requests = 200;
    let mut rig = setup.connect();
    make_small(&rig, 0);
    rig.done(Verb::Reset { controller: "nvme0".into() });
    rig.wait_live(0);
    let stream = rig.world.stream(anabranch_proto::machine::WorkerId(1), &crate::setup::port(0));
    rig.world.slow_stream(stream.expect("open"), SECOND);
    // Commands of 32 blocks each; most of them have to wait for room.
    let names = rig.submit(std::iter::repeat_n(Op::Zero { lba: 0, blocks: 2048 }, 200));
    rig.run(MS);
    let before = rig.sent(0);
    forgets_commands(&rig, 1);
    rig.connect(1);
    let lacks = Err(Failure::Io(IoError::Status(Status::INVALID_OPCODE)));
    assert!(rig.answers(&names).iter().any(|outcome| outcome.result == lacks));
    let zeroed = rig.seen(|pdu| pdu.is_io());
    assert!(zeroed[before..].iter().all(|pdu| bytes_of(pdu) == SMALL_BYTES), "no crumbs");
    rig.finish();
}
