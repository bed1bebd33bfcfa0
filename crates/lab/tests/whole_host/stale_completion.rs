//! A late answer to an earlier command must not end a later one.

use crate::rig::{Setup, reads, writes};
use crate::wire::{Pdu, kind};
use anabranch_proto::nvme::opcode::io;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The low 12 bits of a CID are the tag, the others count its uses.
const TAG: u16 = 0x0fff;

#[test]
fn b7_an_answer_with_an_old_generation_is_not_delivered() {
    let mut rig = Setup::new(2, 1).connect();
    rig.io(writes(40, 1));
    let old: RefCell<BTreeMap<(u32, u16), Vec<u8>>> = RefCell::default();
    let struck = Rc::new(Cell::new(None));
    let strike = Rc::clone(&struck);
    rig.wire().rule(move |pdu: &mut Pdu| {
        let is_answer = pdu.kind == kind::CAPSULE_RESP && pdu.port == 0 && pdu.worker > 0;
        if !is_answer || strike.get().is_some() {
            return;
        }
        let tag = (pdu.serial, pdu.cid() & TAG);
        let earlier = old.borrow_mut().insert(tag, pdu.bytes.clone());
        let Some(earlier) = earlier.filter(|_| pdu.answers(io::WRITE)) else { return };
        // The true answer is lost, and that of the tag's last use comes instead.
        strike.set(pdu.sqe.map(|sqe| sqe.cdw_pair(10)));
        pdu.bytes = earlier;
    });
    let begin = rig.now();
    let mut round = 0;
    while struck.get().is_none() {
        round += 1;
        assert!(round < 100, "a tag is used again some time");
        rig.io((0..40).map(|lba| crate::script::Op::Write { lba, blocks: 1, fill: round }));
    }
    let lba = struck.get().expect("just struck");
    let on_wire = rig.seen(|pdu| {
        pdu.at >= begin && pdu.is_io() && pdu.sqe.is_some_and(|sqe| sqe.cdw_pair(10) == lba)
    });
    assert_eq!(on_wire.len(), usize::from(round) + 1, "its outcome was unknown: sent again");
    assert_eq!(rig.path(0).uncertain_writes_resent, rig.path(0).failovers);
    assert!(rig.event(begin, "nvme0: live -> resetting").is_some(), "such a peer is not trusted");
    rig.wait_live(0);
    for read in rig.io(reads(40)) {
        assert!(read.data.iter().all(|&byte| byte == round));
    }
    rig.finish();
}
