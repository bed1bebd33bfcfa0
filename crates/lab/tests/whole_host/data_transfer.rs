//! How payload travels: in the capsule, asked for, or with success on its last piece.

use crate::rig::{Rig, Setup};
use crate::script::Op;
use crate::wire::{Pdu, kind};
use anabranch_proto::nvme::opcode::io;

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

#[test]
fn b4_data_pdus_keep_to_what_the_controller_takes_at_once() {
    for limit in [4096u32, 6144, 131_072] {
        let mut setup = Setup::new(1, 1);
        setup.target.limits.max_h2c_data_bytes = limit;
        let mut rig = setup.connect();
        there_and_back(&mut rig, 128);
        let sent = of_io(&rig, kind::H2C_DATA);
        assert_eq!(sent.len(), 65_536usize.div_ceil(limit as usize), "{limit}");
        assert!(sent.iter().all(|pdu| pdu.len <= 24 + limit as usize), "{limit}");
        rig.finish();
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
