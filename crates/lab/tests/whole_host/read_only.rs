//! A namespace that is write protected: the device refuses what would change it.

use crate::rig::{Rig, Setup, reads};
use crate::script::{Failure, Op};
use crate::wire::kind;
use anabranch_host::user::Refused;
use anabranch_proto::nvme::opcode::admin;

/// From now on both controllers say that the namespace is write protected (NSATTR, byte 99 of
/// Identify with CNS 00h).
fn protect(rig: &Rig) {
    rig.wire().rule(|pdu| {
        let identifies = |sqe: anabranch_proto::nvme::Sqe| {
            sqe.opcode() == admin::IDENTIFY && sqe.cdw(10) & 0xff == 0
        };
        if pdu.kind == kind::C2H_DATA && pdu.worker == 0 && pdu.sqe.is_some_and(identifies) {
            pdu.bytes[24 + 99] |= 1;
        }
    });
}

#[test]
fn what_would_change_a_device_that_is_read_only_is_refused_by_the_host() {
    let mut rig = Setup::new(2, 1).build();
    protect(&rig);
    rig.connect(0);
    rig.connect(1);
    let names = rig.submit([
        Op::Write { lba: 0, blocks: 1, fill: 1 },
        Op::WriteFua { lba: 0, blocks: 1, fill: 1 },
        Op::Zero { lba: 0, blocks: 1 },
        Op::Discard { lba: 0, blocks: 1 },
    ]);
    for outcome in rig.answers(&names) {
        assert_eq!(outcome.result, Err(Failure::Refused(Refused::NotSupported)));
    }
    assert_eq!(rig.sent(0) + rig.sent(1), 0, "none was sent");
    rig.io(reads(4));
    rig.io([Op::Flush]);
    rig.finish();
}
