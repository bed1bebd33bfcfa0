//! A client says that it leaves and goes, without waiting to be answered: "The server MUST handle
//! all outstanding requests".

use crate::support::{open, server};
use anabranch_export::fuzz::Harness;
use anabranch_export::fuzz::client;
use anabranch_export::nbd::wire::{command, command_flag};
use anabranch_export::nbd::{CLOSE_TIMEOUT, MAX_CONNECTIONS, NbdEvent, RETRY_DELAY};
use anabranch_host::user::{IoError, RequestOp};
use anabranch_proto::machine::ConnId;
use anabranch_proto::nvme::status::Status;

/// Asks for this and goes.
fn leave(harness: &mut Harness, asked: &[Vec<u8>], gone: fn(&mut Harness, ConnId)) {
    let conn = open(harness, true);
    let good_bye = client::request(command::DISC, 0, 99, 0, 0);
    harness.send(conn, &[asked.concat(), good_bye].concat());
    gone(harness, conn);
    assert!(!harness.is_connected(conn));
}

#[test]
fn what_it_had_asked_for_is_done_though_its_connection_breaks() {
    for gone in [Harness::break_off, Harness::disconnect] {
        let mut harness = server();
        harness.complete_at_once = false;
        harness.host.unable = Some(IoError::Status(Status::INVALID_OPCODE));
        let asked = [
            client::write(0, 1, 0, &[1; 1024]),
            client::write(command_flag::FUA, 2, 512, &[2; 512]),
            client::request(command::READ, 0, 3, 0, 1 << 20),
            client::request(command::WRITE_ZEROES, 0, 4, 4096, 512 << 10),
            client::request(command::FLUSH, 0, 5, 0, 0),
        ];
        leave(&mut harness, &asked, gone);
        let next = open(&mut harness, false);
        harness.send(next, &client::write(0, 1, 0, &[3; 512]));
        assert!(harness.take(next).is_empty() && harness.host.disk(0)[..512] != [3; 512]);

        harness.complete_all();
        assert!(harness.host.withdrawn.is_empty());
        assert_eq!(harness.host.disk(0)[512..1024], [2; 512]);
        assert!(harness.host.disk(0)[4096..4096 + (512 << 10)].iter().all(|byte| *byte == 0));
        let reads = harness.host.log.iter().filter(|op| matches!(op, RequestOp::Read { .. }));
        assert!(reads.count() <= 2, "what is read is of use to nobody");
        harness.pass(RETRY_DELAY);
        harness.complete_all();
        assert_eq!(harness.host.disk(0)[..512], [3; 512], "who comes then comes after all of it");
        harness.disconnect(next);
        harness.check_empty();
    }
}

#[test]
fn a_trim_that_was_to_be_durable_is_made_so() {
    let mut harness = server();
    harness.complete_at_once = false;
    let trim = client::request(command::TRIM, command_flag::FUA, 1, 0, 4096);
    leave(&mut harness, &[trim], Harness::break_off);
    harness.complete_all();
    let is_flush = |op: &RequestOp| matches!(op, RequestOp::Flush);
    assert!(harness.host.log.last().is_some_and(is_flush), "{:?}", harness.host.log);
    harness.check_empty();
}

#[test]
fn what_has_no_room_at_the_host_waits_for_it() {
    let mut harness = server();
    harness.complete_at_once = false;
    harness.host.room = 1;
    let other = open(&mut harness, true);
    let trim = client::request(command::TRIM, command_flag::FUA, 1, 0, 4096);
    leave(&mut harness, &[trim], Harness::break_off);
    harness.send(other, &client::write(0, 2, 8192, &[7; 512]));
    harness.complete_one(0);
    assert!(matches!(harness.host.log[1..], [RequestOp::Write { .. }]), "{:?}", harness.host.log);
    harness.complete_one(0);
    assert!(matches!(harness.host.log[2..], [RequestOp::Flush]), "{:?}", harness.host.log);
    harness.complete_all();
    harness.disconnect(other);
    harness.check_empty();
}

/// A device without a path may have none for long.
#[test]
fn what_takes_too_long_is_withdrawn() {
    let mut harness = server();
    harness.complete_at_once = false;
    let zeroes = client::request(command::WRITE_ZEROES, 0, 1, 4096, 4 << 20);
    leave(&mut harness, &[client::write(0, 2, 0, &[7; 512]), zeroes], Harness::break_off);
    let tags: Vec<u64> = harness.host.tags().collect();
    harness.pass(CLOSE_TIMEOUT - RETRY_DELAY);
    assert!(harness.host.withdrawn.is_empty());
    harness.pass(RETRY_DELAY);
    assert_eq!(harness.host.withdrawn, tags);
    harness.host.unable = Some(IoError::Status(Status::INVALID_OPCODE));
    harness.complete_all();
    assert_eq!(harness.host.log.len(), tags.len(), "nothing more of it begins");
    harness.check_empty();
}

#[test]
fn it_is_done_as_far_as_the_host_goes_on() {
    let mut harness = server();
    harness.complete_at_once = false;
    let trim = client::request(command::TRIM, command_flag::FUA, 1, 0, 4096);
    leave(&mut harness, &[trim], Harness::break_off);
    harness.host.ending = true;
    harness.complete_all();
    harness.check_empty();
}

/// However many leave so, what is kept of them is bounded.
#[test]
fn those_that_are_not_done_have_their_places() {
    let mut harness = server();
    harness.complete_at_once = false;
    for _ in 0..MAX_CONNECTIONS {
        let read = client::request(command::FLUSH, 0, 1, 0, 0);
        leave(&mut harness, &[read], Harness::break_off);
    }
    let one_more = harness.connect();
    assert!(!harness.is_connected(one_more));
    assert!(harness.events.iter().any(|event| matches!(event, NbdEvent::Crowded { .. })));
    harness.complete_all();
    let one_more = open(&mut harness, true);
    harness.disconnect(one_more);
    harness.check_empty();
}
