//! How payload travels: in the capsule, asked for, or with success on its last piece.

use crate::rig::{MS, Rig, SECOND, Setup};
use crate::script::Op;
use crate::wire::{Pdu, kind};
use anabranch_proto::nvme::opcode::io;
use std::cell::Cell;

const R2T: u8 = 9;
const FLAG_SUCCESS: u8 = 1 << 3;

fn of_io(rig: &Rig, kind: u8) -> Vec<Pdu> {
    rig.seen(|pdu| pdu.worker > 0 && pdu.kind == kind && pdu.sqe.is_some_and(|s| !s.is_fabrics()))
}

/// Writes `blocks` blocks and reads them back.
fn there_and_back(rig: &mut Rig, blocks: u32) {
    let fill = blocks as u8 | 1;
    rig.io([Op::Write { lba: 0, blocks, fill }]);
    let read = rig.io([Op::Read { lba: 0, blocks }]).remove(0);
    assert_eq!(read.data.len(), blocks as usize * 512);
    assert!(read.data.iter().all(|&byte| byte == fill));
}

#[test]
fn b3_a_write_up_to_the_limit_travels_in_the_capsule_and_more_is_asked_for() {
    for limit in [512u32, 4096, 8192, 16384] {
        let mut setup = Setup::new(1, 1);
        setup.target.limits.in_capsule_bytes = limit;
        let mut rig = setup.connect();
        there_and_back(&mut rig, limit / 512);
        assert_eq!((of_io(&rig, R2T).len(), of_io(&rig, kind::H2C_DATA).len()), (0, 0), "{limit}");
        there_and_back(&mut rig, limit / 512 + 1);
        assert_eq!((of_io(&rig, R2T).len(), of_io(&rig, kind::H2C_DATA).len()), (1, 1), "{limit}");
        rig.finish();
    }
}

/// And to 128 KiB: other commands have their turn between them.
#[test]
fn b4_data_pdus_keep_to_what_the_controller_takes_at_once() {
    for limit in [4096u32, 6144, 131_072, 1 << 20] {
        let mut setup = Setup::new(1, 1);
        setup.target.limits.max_h2c_data_bytes = limit;
        let mut rig = setup.connect();
        there_and_back(&mut rig, 600);
        let (sent, most) = (of_io(&rig, kind::H2C_DATA), limit.min(131_072) as usize);
        assert_eq!(sent.len(), (600 * 512usize).div_ceil(most), "{limit}");
        assert!(sent.iter().all(|pdu| pdu.len <= 24 + most), "{limit}");
        rig.finish();
    }
}

/// A controller may keep the status until the data is acknowledged, and nothing else is to be sent
/// that would do so.
#[test]
fn data_without_its_status_is_acknowledged_at_once() {
    for (disable_sqflow, acknowledged) in [(false, 1), (true, 0)] {
        let mut setup = Setup::new(1, 1);
        setup.options.disable_sqflow = disable_sqflow;
        let mut rig = setup.connect();
        rig.run(SECOND);
        rig.wire().rule(|pdu| {
            if pdu.answers(io::READ) {
                pdu.bytes.clear();
            }
        });
        let before = rig.world.acknowledged();
        let read = rig.submit([Op::Read { lba: 0, blocks: 100 }]);
        rig.run(SECOND);
        // With the data itself where the queue pair's flow is not controlled.
        assert_eq!(rig.answered(&read), usize::from(disable_sqflow));
        assert_eq!(rig.world.acknowledged() - before, acknowledged, "once");
    }
}

#[test]
fn b5_success_with_the_data_completes_a_read() {
    for disable_sqflow in [true, false] {
        let mut setup = Setup::new(1, 1);
        setup.options.disable_sqflow = disable_sqflow;
        let mut rig = setup.connect();
        for blocks in [1, 8, 100] {
            there_and_back(&mut rig, blocks);
        }
        let data = of_io(&rig, kind::C2H_DATA);
        let with_success = data.iter().filter(|pdu| pdu.flags & FLAG_SUCCESS != 0).count();
        let responses = rig.seen(|pdu| pdu.answers(io::READ)).len();
        let expected = if disable_sqflow { (3, 0) } else { (0, 3) };
        assert_eq!((with_success, responses), expected);
        rig.finish();
    }
}

/// A response that claims success for a read whose data never came.
#[test]
fn c56_success_without_the_data_never_reaches_the_user() {
    let mut rig = Setup::new(2, 1).connect();
    rig.io((0..20).map(|lba| Op::Write { lba, blocks: 1, fill: 9 }));
    let once = Cell::new(true);
    rig.wire().rule(move |pdu| {
        let is_data = pdu.kind == kind::C2H_DATA && pdu.worker > 0 && pdu.port == 0;
        if is_data && once.replace(false) {
            pdu.bytes.clear();
        }
    });
    let reads = rig.io((0..20).map(|lba| Op::Read { lba, blocks: 1 }));
    assert!(reads.iter().all(|read| read.data.iter().all(|&byte| byte == 9)));
    rig.wait_live(0);
    rig.finish();
}

/// However often it is asked: the other path has what it lacks.
#[test]
fn a_path_whose_answers_never_have_their_data_costs_the_user_nothing() {
    let mut rig = Setup::new(2, 1).connect();
    rig.io((0..20).map(|lba| Op::Write { lba, blocks: 1, fill: 9 }));
    rig.wire().rule(move |pdu| {
        if pdu.kind == kind::C2H_DATA && pdu.worker > 0 && pdu.port == 0 {
            pdu.bytes.clear();
        }
    });
    let reads = rig.io((0..20).map(|lba| Op::Read { lba, blocks: 1 }));
    assert!(reads.iter().all(|read| read.result.is_ok() && read.data.iter().all(|&it| it == 9)));
    assert!(rig.sent(0) > 20, "it was asked, and more than once");
    rig.wire().clear_rules();
    rig.finish();
}

#[test]
fn a_write_whose_data_is_never_asked_for_moves_after_io_timeout() {
    let mut setup = Setup::new(2, 1);
    setup.options.io_timeout = 2 * SECOND;
    let mut rig = setup.connect();
    rig.wire().rule(|pdu| {
        if pdu.kind == R2T && pdu.worker > 0 && pdu.port == 0 {
            pdu.bytes.clear();
        }
    });
    let begin = rig.now();
    let outcomes = rig.io((0..2).map(|n| Op::Write { lba: n * 64, blocks: 64, fill: 5 }));
    let last = outcomes.iter().map(|outcome| outcome.at.since(begin)).max().expect("two");
    assert!(last >= 2 * SECOND && last < 2100 * MS, "{last:?}");
    rig.wire().clear_rules();
    rig.wait_live(0);
    let read = rig.io([Op::Read { lba: 0, blocks: 128 }]).remove(0);
    assert!(read.data.iter().all(|&byte| byte == 5));
    rig.finish();
}
