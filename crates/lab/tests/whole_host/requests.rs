//! Requests that take several commands, and more requests than the table holds.

use crate::rig::{Setup, writes};
use crate::script::{Failure, Op};
use crate::wire::Pdu;
use anabranch_host::user::IoError;
use anabranch_proto::nvme::Status;
use anabranch_proto::nvme::opcode::io;
use anabranch_target::config::BackendConfig;

fn small_transfers() -> Setup {
    let mut setup = Setup::new(2, 1);
    setup.target.limits.max_transfer_bytes = 16 << 10;
    setup
}

#[test]
fn a_request_beyond_mdts_is_split_and_answered_once() {
    let mut rig = small_transfers().connect();
    rig.io([Op::Write { lba: 3, blocks: 400, fill: 9 }]);
    let sent: Vec<(u64, u32)> = rig
        .seen(Pdu::is_io)
        .iter()
        .filter_map(|pdu| pdu.sqe)
        .map(|sqe| (sqe.cdw_pair(10), (sqe.cdw(12) & 0xffff) + 1))
        .collect();
    let mut pieces = sent.clone();
    pieces.sort_unstable();
    let expected: Vec<(u64, u32)> =
        (0..13).map(|n| (3 + 32 * n, if n < 12 { 32 } else { 16 })).collect();
    assert_eq!(pieces, expected);
    assert!(rig.sent(0) > 0 && rig.sent(1) > 0, "its parts took both paths");
    let read = rig.io([Op::Read { lba: 2, blocks: 402 }]).remove(0);
    assert!(read.data[..512].iter().all(|&byte| byte == 0));
    assert!(read.data[512..512 * 401].iter().all(|&byte| byte == 9));
    assert!(read.data[512 * 401..].iter().all(|&byte| byte == 0));
    assert_eq!(rig.head().requests, [1, 1, 0], "two requests, however many commands");
    rig.finish();
}

#[test]
fn one_bad_part_fails_the_request_once_all_parts_have_ended() {
    let mut rig = small_transfers().connect();
    let stream = rig
        .world
        .stream(anabranch_proto::machine::WorkerId(1), &crate::setup::port(1))
        .expect("open");
    rig.world.slow_stream(stream, crate::rig::SECOND);
    let status = Status::new(2, 0x80).with_dnr();
    rig.wire().rule(move |pdu| {
        let third = pdu.sqe.is_some_and(|sqe| sqe.cdw_pair(10) == 64);
        if pdu.answers(io::WRITE) && third {
            pdu.answer(status);
        }
    });
    let begin = rig.now();
    let names = rig.submit([Op::Write { lba: 0, blocks: 256, fill: 1 }]);
    let outcome = rig.answers(&names).remove(0);
    assert_eq!(outcome.result, Err(Failure::Io(IoError::Status(status))));
    let took = outcome.at.since(begin);
    assert!(took > crate::rig::SECOND, "the slow parts were waited for: {took:?}");
    assert_eq!(rig.head().errors, 1);
    rig.finish();
}

#[test]
fn a_full_table_pushes_back_and_nothing_fails() {
    let mut setup = small_transfers();
    setup.host.max_requests = 4;
    let mut rig = setup.connect();
    let ops = (0..100).map(|n| Op::Write { lba: n * 16, blocks: 400, fill: 1 });
    let names = rig.submit(ops);
    rig.succeed(&names);
    let user = rig.world.host(anabranch_proto::machine::WorkerId(1)).user();
    assert!(user.pushed_back > 10, "the table was full: {}", user.pushed_back);
    assert_eq!(rig.seen(Pdu::is_io).len(), 1300);
    rig.finish();
}

#[test]
fn requests_that_wait_for_a_path_leave_other_devices_alone() {
    let mut setup = Setup::new(1, 1);
    setup.namespaces().push(crate::setup::namespace(2, 512));
    setup.namespaces()[1].ana_group = 2;
    let mut rig = setup.connect();
    rig.ana(0, anabranch_proto::nvme::AnaState::Inaccessible);
    rig.run(crate::rig::MS);
    let stuck = rig.submit(writes(20, 1));
    let begin = rig.now();
    let other = rig.submit_to(1, "nvme0n2", writes(20, 2));
    let outcomes = rig.succeed(&other);
    assert!(outcomes.iter().all(|outcome| outcome.at.since(begin) < 2 * crate::rig::MS));
    assert_eq!(rig.answered(&stuck), 0);
    rig.ana(0, anabranch_proto::nvme::AnaState::Optimized);
    rig.succeed(&stuck);
    rig.finish();
}

/// Its other parts were not made yet, as it takes more commands than there are at once.
#[test]
fn a_bad_part_makes_the_rest_of_a_long_request_pointless() {
    let mut setup = Setup::new(1, 1);
    // Zeroes take no memory: 4096 commands of 65536 blocks.
    let parts = 4096;
    let bytes = parts * 65536 * 512;
    setup.namespaces()[0].backend = BackendConfig::Memory { bytes };
    let mut rig = setup.connect();
    let status = Status::new(2, 0x80).with_dnr();
    rig.wire().rule(move |pdu| {
        if pdu.answers(io::WRITE_ZEROES) && pdu.sqe.is_some_and(|sqe| sqe.cdw_pair(10) == 0) {
            pdu.answer(status);
        }
    });
    let names = rig.submit([Op::Zero { lba: 0, blocks: parts * 65536 }]);
    let outcome = rig.answers(&names).remove(0);
    assert_eq!(outcome.result, Err(Failure::Io(IoError::Status(status))));
    let sent = rig.sent(0);
    assert!(sent > 2000 && sent < 2200, "what was made is waited for, no more is: {sent}");
    rig.finish();
}

/// Nothing else happens on the worker that would make it look again.
#[test]
fn a_discard_that_found_no_memory_is_made_when_there_is_some() {
    let mut rig = Setup::new(1, 1).connect();
    rig.world.exhaust_pool(Some(anabranch_proto::machine::WorkerId(1)));
    let names = rig.submit([Op::Discard { lba: 0, blocks: 8 }]);
    rig.run(crate::rig::MS);
    rig.world.exhaust_pool(None);
    assert_eq!(rig.answered(&names), 0);
    rig.run(20 * crate::rig::MS);
    assert_eq!(rig.answered(&names), 1);
    rig.succeed(&names);
    rig.finish();
}
