//! A flush that fails may have been for what any client has written, and the next one succeeds.

use crate::support::{ask, export, one_answer, open, server};
use anabranch_export::fuzz::{Harness, client};
use anabranch_export::nbd::wire::{command, command_flag, errno};
use anabranch_export::nbd::{Export, NbdConfig};
use anabranch_host::user::IoError;
use anabranch_proto::machine::ConnId;
use anabranch_proto::nvme::status::Status;

fn flush(harness: &mut Harness, conn: ConnId) -> u32 {
    ask(harness, conn, command::FLUSH, 0, 0, 0).errno
}

#[test]
fn every_client_is_told_once_of_a_flush_that_failed() {
    let mut harness = server();
    let [asks, other, trims, zeroes] = [(); 4].map(|()| open(&mut harness, true));
    harness.host.flush_fault = Some(IoError::Status(Status::WRITE_FAULT));
    assert_eq!(flush(&mut harness, asks), errno::EIO);
    harness.host.flush_fault = None;
    let later = open(&mut harness, true);
    assert_eq!([0, 1].map(|_| flush(&mut harness, other)), [errno::EIO, 0]);
    for (conn, command) in [(trims, command::TRIM), (zeroes, command::WRITE_ZEROES)] {
        let mut durable = || ask(&mut harness, conn, command, command_flag::FUA, 0, 512).errno;
        assert_eq!([durable(), durable()], [errno::EIO, 0], "{command} has a flush behind it");
    }
    assert_eq!(flush(&mut harness, asks), 0, "it knows");
    assert_eq!(flush(&mut harness, later), 0, "it had written nothing then");
}

/// Whoever reads "invalid" takes the device for one that needs no flush.
#[test]
fn a_flush_that_failed_is_never_an_invalid_one() {
    let mut harness = server();
    let conn = open(&mut harness, true);
    for (status, number) in [
        (Status::LBA_OUT_OF_RANGE, errno::EIO),
        (Status::INVALID_FIELD, errno::EIO),
        (Status::WRITE_PROTECTED, errno::EIO),
        (Status::CAPACITY_EXCEEDED, errno::ENOSPC),
    ] {
        harness.host.flush_fault = Some(IoError::Status(status));
        assert_eq!(flush(&mut harness, conn), number, "{status}");
        for command in [command::TRIM, command::WRITE_ZEROES] {
            harness.host.log.clear();
            let durable = ask(&mut harness, conn, command, command_flag::FUA, 0, 512);
            assert_eq!(durable.errno, number, "{status}: {command} has a flush behind it");
            assert_eq!(harness.host.log.len(), 2, "{status}: {command} is not tried another way");
        }
    }
}

/// What the caches of controllers have that cannot be asked stays owed.
#[test]
fn a_flush_that_nobody_was_asked_for_tells_nobody_else_anything() {
    let mut harness = server();
    let [asks, other] = [(); 2].map(|()| open(&mut harness, true));
    harness.host.flush_fault = Some(IoError::NoPath);
    assert_eq!(flush(&mut harness, asks), errno::EIO);
    harness.host.flush_fault = None;
    assert_eq!([asks, other].map(|conn| flush(&mut harness, conn)), [0, 0]);
}

/// A client that broke off comes back and flushes again, as qemu and Linux do. What it had flushed
/// is lost, and the controller has nothing left to fail with.
#[test]
fn who_comes_back_is_told_of_a_flush_that_failed_while_it_was_away() {
    let mut harness = server();
    let stays = open(&mut harness, true);
    let mut errors = |leave: &mut dyn FnMut(&mut Harness)| {
        leave(&mut harness);
        harness.host.flush_fault = None;
        let back = open(&mut harness, true);
        let errors = [(); 2].map(|()| flush(&mut harness, back));
        let stranger = open(&mut harness, true);
        assert_eq!(flush(&mut harness, stranger), 0, "it was told to who came first");
        for conn in [back, stranger] {
            harness.send(conn, &client::request(command::DISC, 0, 0, 0, 0));
            harness.disconnect(conn);
        }
        errors
    };
    let once = [errno::EIO, 0];
    let fails = Some(IoError::Status(Status::WRITE_FAULT));
    let in_flight = errors(&mut |harness| {
        harness.complete_at_once = false;
        let conn = open(harness, true);
        harness.send(conn, &client::request(command::FLUSH, 0, 1, 0, 0));
        harness.disconnect(conn);
        harness.host.flush_fault = fails;
        harness.complete_all();
        harness.complete_at_once = true;
    });
    assert_eq!(in_flight, once, "its answer found nobody");
    let unsent = errors(&mut |harness| {
        let conn = open(harness, true);
        harness.hold_transmissions = true;
        harness.host.flush_fault = fails;
        harness.send(conn, &client::request(command::FLUSH, 0, 1, 0, 0));
        harness.hold_transmissions = false;
        harness.disconnect(conn);
    });
    assert_eq!(unsent, once, "its answer had not left");
    let of_another = errors(&mut |harness| {
        let conn = writer(harness);
        harness.disconnect(conn);
        harness.host.flush_fault = fails;
        assert_eq!(flush(harness, stays), errno::EIO);
    });
    assert_eq!(of_another, once, "what was lost may have been its own");
    let said_good_bye = errors(&mut |harness| {
        let conn = writer(harness);
        harness.send(conn, &client::request(command::DISC, 0, 0, 0, 0));
        harness.disconnect(conn);
        harness.host.flush_fault = fails;
        assert_eq!(flush(harness, stays), errno::EIO);
    });
    assert_eq!(said_good_bye, [0, 0], "who has left will not ask");
}

const FAILS: Option<IoError> = Some(IoError::Status(Status::WRITE_FAULT));

/// A flush of this client fails, and tells it so.
fn fail(harness: &mut Harness, conn: ConnId) {
    harness.host.flush_fault = FAILS;
    assert_eq!(flush(harness, conn), errno::EIO);
    harness.host.flush_fault = None;
}

/// It writes something that is not flushed.
fn write(harness: &mut Harness, conn: ConnId) {
    harness.send(conn, &client::write(0, 77, 0, &[7; 512]));
    assert_eq!(one_answer(harness, conn, 0).errno, 0);
}

/// One that has opened the export and has written something.
fn writer(harness: &mut Harness) -> ConnId {
    let conn = open(harness, true);
    write(harness, conn);
    conn
}

/// What newcomers are told, one after the other, each of which goes on then.
fn newcomers<const N: usize>(harness: &mut Harness) -> [u32; N] {
    [(); N].map(|()| {
        let conn = open(harness, true);
        let first = flush(harness, conn);
        assert_eq!(flush(harness, conn), 0, "it was told");
        first
    })
}

#[test]
fn who_is_told_in_the_place_of_another_leaves_those_alone_that_left_later() {
    let mut harness = server();
    let before = writer(&mut harness);
    harness.break_off(before);
    let [asks, writes] = [(); 2].map(|()| open(&mut harness, true));
    write(&mut harness, writes);
    harness.break_off(writes);
    fail(&mut harness, asks);
    assert_eq!(flush(&mut harness, asks), 0);
    assert_eq!(newcomers(&mut harness), [errno::EIO, 0]);
}

#[test]
fn who_cannot_write_is_told_in_nobodys_place() {
    let exports = [false, true].map(|read_only| {
        let name = if read_only { "ro" } else { "disk" };
        Export { read_only, ..export(name, "nvme0n1") }
    });
    let config = NbdConfig { listen: None, exports: exports.to_vec() };
    let mut harness = Harness::new(config, 256 << 20);
    harness.host.add_disk("nvme0n1", 4 << 20, 512);
    let [stays, leaves] = [(); 2].map(|()| writer(&mut harness));
    harness.break_off(leaves);
    let read_only = harness.connect();
    harness.send(read_only, &client::negotiate("ro", true));
    harness.take(read_only);
    fail(&mut harness, stays);
    assert_eq!([(); 2].map(|()| flush(&mut harness, read_only)), [errno::EIO, 0]);
    harness.break_off(read_only);
    assert_eq!(newcomers(&mut harness), [errno::EIO, 0]);
}

#[test]
fn who_comes_back_to_a_device_that_became_write_protected_is_told() {
    let mut harness = server();
    let [stays, leaves] = [(); 2].map(|()| writer(&mut harness));
    harness.break_off(leaves);
    fail(&mut harness, stays);
    let mut protect = |read_only| {
        harness.host.change_head(0, |head| head.limits.read_only = read_only);
        harness.heads_changed();
        newcomers(&mut harness)
    };
    assert_eq!(protect(true), [errno::EIO, errno::EIO]);
    assert_eq!(protect(false), [errno::EIO, 0], "they may have been others");
}

#[test]
fn who_was_told_in_the_place_of_another_is_told_for_itself_from_then_on() {
    let mut harness = server();
    let before = writer(&mut harness);
    harness.break_off(before);
    let [asks, writes] = [(); 2].map(|()| writer(&mut harness));
    fail(&mut harness, asks);
    assert_eq!([asks, writes].map(|conn| flush(&mut harness, conn)), [0, errno::EIO]);
    write(&mut harness, writes);
    harness.break_off(writes);
    fail(&mut harness, asks);
    assert_eq!(flush(&mut harness, asks), 0);
    assert_eq!(newcomers(&mut harness), [errno::EIO, 0]);
}

/// The socket has its answer: whether it has come to the client shows in what comes from there.
#[test]
fn who_breaks_off_before_it_is_known_to_have_heard_is_told_again() {
    let told_again = |ends: &dyn Fn(&mut Harness, ConnId)| {
        let mut harness = server();
        let conn = writer(&mut harness);
        fail(&mut harness, conn);
        ends(&mut harness, conn);
        newcomers::<2>(&mut harness)
    };
    assert_eq!(told_again(&|harness, conn| harness.break_off(conn)), [errno::EIO, 0]);
    assert_eq!(told_again(&|harness, conn| harness.disconnect(conn)), [0, 0], "it had read it");
    let asks = |harness: &mut Harness, conn| {
        ask(harness, conn, command::READ, 0, 0, 512);
        harness.break_off(conn);
    };
    assert_eq!(told_again(&asks), [0, 0], "it has asked for something since");
    // One that asks ahead may have asked for that before the answer came.
    let asks_ahead = |more: usize| {
        let mut harness = server();
        let conn = writer(&mut harness);
        let reads = |count| client::request(command::READ, 0, 2, 0, 512).repeat(count);
        harness.complete_at_once = false;
        harness.send(conn, &reads(3));
        harness.complete_all();
        harness.complete_at_once = true;
        assert_eq!(harness.take(conn).len(), 3 * (20 + 8 + 512));
        fail(&mut harness, conn);
        for _ in 0..more {
            harness.send(conn, &reads(1));
        }
        harness.break_off(conn);
        newcomers::<2>(&mut harness)
    };
    assert_eq!(asks_ahead(2), [errno::EIO, 0], "as many as it had under way");
    assert_eq!(asks_ahead(3), [0, 0], "it had never more than three under way");
    let asked_before = |harness: &mut Harness, conn| {
        // It waits for room in the host behind one that is not answered.
        harness.complete_at_once = false;
        harness.host.room = 1;
        harness.host.flush_fault = FAILS;
        let flush = client::request(command::FLUSH, 0, 1, 0, 0);
        let reads = client::request(command::READ, 0, 2, 0, 512).repeat(4);
        harness.send(conn, &[flush, reads].concat());
        for _ in 0..3 {
            harness.complete_one(0);
        }
        harness.host.flush_fault = None;
        harness.break_off(conn);
        harness.complete_all();
        harness.complete_at_once = true;
        harness.host.room = 1024;
    };
    assert_eq!(told_again(&asked_before), [errno::EIO, 0], "that was under way before");
}

#[test]
fn each_of_those_who_have_left_is_told() {
    let mut harness = server();
    let [stays, one, other] = [(); 3].map(|()| writer(&mut harness));
    harness.break_off(one);
    harness.disconnect(other);
    fail(&mut harness, stays);
    assert_eq!(newcomers(&mut harness), [errno::EIO, errno::EIO, 0]);
}

#[test]
fn who_never_asked_for_anything_leaves_nothing_to_be_told() {
    let mut harness = server();
    let [stays, leaves] = [(); 2].map(|()| writer(&mut harness));
    harness.break_off(leaves);
    fail(&mut harness, stays);
    let [looks, refused] = [(); 2].map(|()| open(&mut harness, true));
    assert_eq!(newcomers(&mut harness), [errno::EIO]);
    ask(&mut harness, looks, command::READ, 0, 0, 512);
    assert_ne!(ask(&mut harness, refused, command::TRIM, 0, u64::MAX - 511, 512).errno, 0);
    harness.disconnect(looks);
    harness.break_off(refused);
    assert_eq!(newcomers(&mut harness), [0]);
}

#[test]
fn who_is_being_closed_is_owed_before_that_has_ended() {
    let mut harness = server();
    let stays = writer(&mut harness);
    let leaves = open(&mut harness, true);
    harness.hold_transmissions = true;
    harness.send(leaves, &client::write(0, 77, 0, &[7; 512]));
    harness.send(leaves, &[0; 28]);
    harness.hold_transmissions = false;
    fail(&mut harness, stays);
    let back = open(&mut harness, true);
    assert!(harness.is_connected(leaves), "it has something to send still");
    harness.release_transmissions();
    assert!(!harness.is_connected(leaves));
    assert_eq!([(); 2].map(|()| flush(&mut harness, back)), [errno::EIO, 0]);
    assert_eq!(newcomers(&mut harness), [0], "that was all that it is owed");
}

#[test]
fn a_client_that_comes_and_goes_leaves_nothing_behind_what_was_made_durable() {
    let mut harness = server();
    let stays = writer(&mut harness);
    for _ in 0..100 {
        let flaps = writer(&mut harness);
        harness.break_off(flaps);
    }
    assert_eq!(flush(&mut harness, stays), 0);
    let leaves = writer(&mut harness);
    harness.break_off(leaves);
    fail(&mut harness, stays);
    // And again, before anybody was told.
    for _ in 0..100 {
        let flaps = writer(&mut harness);
        harness.break_off(flaps);
    }
    assert_eq!(newcomers(&mut harness), [errno::EIO, 0, 0]);
}

/// Of two flushes the controller tells one of the loss, and the other is answered first.
#[test]
fn a_flush_beside_one_that_fails_makes_nobody_forgotten() {
    let mut harness = server();
    let [fails, succeeds, leaves] = [(); 3].map(|()| writer(&mut harness));
    harness.break_off(leaves);
    harness.complete_at_once = false;
    for conn in [fails, succeeds] {
        harness.send(conn, &client::request(command::FLUSH, 0, 77, 0, 0));
    }
    harness.complete_one(1);
    assert_eq!(one_answer(&mut harness, succeeds, 0).errno, 0);
    harness.complete_at_once = true;
    harness.host.flush_fault = FAILS;
    harness.complete_one(0);
    assert_eq!(one_answer(&mut harness, fails, 0).errno, errno::EIO);
    harness.host.flush_fault = None;
    assert_eq!(newcomers(&mut harness), [errno::EIO, 0]);
}
