//! Bytes that change on the way.

use crate::rig::{MS, Rig, SECOND, Setup, reads, writes};
use crate::setup;
use crate::wire::{Pdu, kind};
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::opcode::io;
use std::cell::Cell;

/// One PDU that fits has its byte at `at` (from its end when negative) changed.
fn flip_once(rig: &Rig, fits: impl Fn(&Pdu) -> bool + 'static, at: isize) {
    let once = Cell::new(true);
    rig.wire().rule(move |pdu| {
        if fits(pdu) && once.replace(false) {
            let index = if at < 0 { pdu.bytes.len() as isize + at } else { at };
            pdu.bytes[index as usize] ^= 0x40;
        }
    });
}

fn with_digests() -> Rig {
    let mut setup = Setup::new(2, 1);
    setup.options.hdr_digest = true;
    setup.options.data_digest = true;
    let mut rig = setup.connect();
    rig.io(writes(20, 0x5a));
    rig
}

fn resets(rig: &mut Rig) -> u64 {
    (0..2).map(|port| rig.controller(port).map_or(0, |c| c.resets)).sum()
}

fn read_all(rig: &mut Rig) {
    for read in rig.io(reads(20)) {
        assert!(read.data.iter().all(|&byte| byte == 0x5a));
    }
}

#[test]
fn b6_a_wrong_header_digest_from_the_target_resets_the_controller() {
    let mut rig = with_digests();
    let begin = rig.now();
    flip_once(&rig, |pdu| pdu.port == 0 && pdu.answers(io::READ), 20);
    read_all(&mut rig);
    assert!(rig.event(begin, "nvme0: live -> resetting").is_some());
    assert!(rig.path(0).failovers > 0, "what it carried has moved");
    rig.wait_live(0);
    assert_eq!(resets(&mut rig), 1);
    read_all(&mut rig);
    rig.finish();
}

/// It is told what it did wrong; whether it hears that is its own affair.
#[test]
fn a_controller_that_sends_nonsense_and_then_nothing_holds_no_read_up() {
    let mut rig = with_digests();
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    flip_once(&rig, |pdu| pdu.port == 0 && pdu.answers(io::READ), 20);
    let begin = rig.now();
    let names = rig.submit(reads(20));
    while rig.seen(|pdu| pdu.kind == kind::H2C_TERM_REQ).is_empty() {
        assert!(rig.world.step());
    }
    rig.world.silence_stream(stream);
    let outcomes = rig.succeed(&names);
    assert!(outcomes.iter().all(|it| it.at.since(begin) < MS * 200), "a moment for it to hear");
    assert!(outcomes.iter().any(|it| it.at.since(begin) >= MS * 50), "it does not close");
    rig.wait_live(0);
    rig.finish();
}

#[test]
fn b6_a_wrong_data_digest_of_a_read_retries_that_command_alone() {
    let mut rig = with_digests();
    let before = rig.sent(0) + rig.sent(1);
    let is_data = |pdu: &Pdu| pdu.worker > 0 && pdu.kind == kind::C2H_DATA && pdu.port == 0;
    // The payload, not the digest behind it.
    flip_once(&rig, is_data, -100);
    read_all(&mut rig);
    assert_eq!(rig.sent(0) + rig.sent(1), before + 21, "one command was sent twice");
    assert_eq!((rig.path(0).retries, rig.path(1).retries), (1, 0), "on its path");
    assert_eq!((rig.path(0).failovers, resets(&mut rig)), (0, 0));
    rig.finish();
}

/// The controller has said "success": it is not the one that says what was wrong.
#[test]
fn who_reads_the_log_hears_that_a_data_digest_did_not_match() {
    for shared_queue in [false, true] {
        let mut setup = Setup::new(1, 2);
        setup.options.data_digest = true;
        setup.host.shared_queue = shared_queue;
        let mut rig = setup.connect();
        rig.io(writes(20, 0x5a));
        let is_data = |pdu: &Pdu| pdu.worker > 0 && pdu.kind == kind::C2H_DATA;
        let told = |rig: &Rig, what: &str| -> Vec<String> {
            let lines = rig.events().into_iter().map(|(_, text)| text);
            lines.filter(|text| text.contains(what)).collect()
        };
        let noticed = "though it was answered so: a data digest did not match";
        // Both workers', which reads again and has it.
        for worker in [1, 2] {
            flip_once(&rig, is_data, -100);
            let names = rig.submit_to(worker, "nvme0n1", reads(1));
            rig.succeed(&names);
        }
        assert_eq!((rig.path(0).flawed, rig.path(0).errors), (2, 2));
        let lines = told(&rig, noticed);
        assert_eq!(lines.len(), 2, "each worker tells of its own: {lines:?}");
        assert!(lines.iter().all(|line| line.starts_with("nvme0c0n1: ")), "{lines:?}");
        assert!(told(&rig, " failed: ").is_empty());
        // Each time.
        rig.run(2 * SECOND);
        rig.wire().rule(move |pdu| {
            if is_data(pdu) {
                let at = pdu.bytes.len() - 100;
                pdu.bytes[at] ^= 0x40;
            }
        });
        let before = rig.path(0).flawed;
        let names = rig.submit_to(2, "nvme0n1", reads(1));
        rig.answers(&names);
        let failed = told(&rig, " failed: ");
        assert_eq!(failed.len(), 1, "{failed:?}");
        let why = "22h): a data digest did not match, though nvme0 says that it succeeded";
        assert!(failed[0].ends_with(why), "{failed:?}");
        let more = rig.path(0).flawed - before;
        assert!(more > 1, "{more}");
        assert_eq!(told(&rig, noticed).len(), 3, "once, however often it is tried");
        // The next line says how many there were.
        rig.run(2 * SECOND);
        let names = rig.submit_to(2, "nvme0n1", reads(1));
        rig.answers(&names);
        let untold = format!("{noticed} ({} more before)", more - 1);
        assert_eq!(told(&rig, &untold).len(), 1, "{:?}", told(&rig, noticed));
    }
}

#[test]
fn b6_a_wrong_data_digest_of_a_write_retries_that_command_alone() {
    for blocks in [1u32, 64] {
        let mut rig = with_digests();
        let carries = move |pdu: &Pdu| match pdu.kind {
            kind::CAPSULE_CMD => blocks == 1 && pdu.is_io(),
            kind::H2C_DATA => true,
            _ => false,
        };
        flip_once(&rig, move |pdu| pdu.port == 0 && carries(pdu), -100);
        let fill = 0x77;
        let ops = (0..4).map(|n| crate::script::Op::Write { lba: n * 64, blocks, fill });
        rig.io(ops);
        let ops = (0..4).map(|n| crate::script::Op::Read { lba: n * 64, blocks });
        for read in rig.io(ops) {
            assert!(read.data.iter().all(|&byte| byte == fill), "{blocks} blocks");
        }
        assert_eq!((rig.path(0).retries, rig.path(1).retries), (1, 0), "{blocks} blocks");
        assert_eq!((rig.path(0).failovers, resets(&mut rig)), (0, 0), "{blocks} blocks");
        rig.finish();
    }
}

#[test]
fn b6_a_wrong_header_digest_from_the_host_ends_the_connection_and_nothing_is_lost() {
    let mut rig = with_digests();
    flip_once(&rig, |pdu| pdu.port == 0 && pdu.is_io(), 20);
    read_all(&mut rig);
    rig.wait_live(0);
    assert_eq!(resets(&mut rig), 1);
    rig.finish();
}

/// Without digests a byte that changed on the way is not noticed: what the tests above show is
/// the digests' work.
#[test]
fn without_digests_a_changed_byte_arrives() {
    let mut rig = Setup::new(1, 1).connect();
    rig.io(writes(1, 0x5a));
    flip_once(&rig, |pdu| pdu.worker > 0 && pdu.kind == kind::C2H_DATA, -100);
    let read = rig.io(reads(1)).remove(0);
    assert_eq!(read.data.iter().filter(|&&byte| byte != 0x5a).count(), 1);
    rig.finish();
}
