//! A flush that fails may have been for what any client has written, and the next one succeeds.

use crate::support::{ask, open, server};
use anabranch_export::fuzz::{Harness, client};
use anabranch_export::nbd::wire::{command, command_flag, errno};
use anabranch_host::user::IoError;
use anabranch_proto::machine::ConnId;
use anabranch_proto::nvme::status::Status;

fn flush(harness: &mut Harness, conn: ConnId) -> u32 {
    ask(harness, conn, command::FLUSH, 0, 0, 0).errno
}

#[test]
fn every_client_is_told_once_of_a_flush_that_failed() {
    let mut harness = server();
    let [asks, other, trims] = [(); 3].map(|()| open(&mut harness, true));
    harness.host.flush_fault = Some(IoError::Status(Status::WRITE_FAULT));
    assert_eq!(flush(&mut harness, asks), errno::EIO);
    harness.host.flush_fault = None;
    let later = open(&mut harness, true);
    assert_eq!([0, 1].map(|_| flush(&mut harness, other)), [errno::EIO, 0]);
    let mut trim = || ask(&mut harness, trims, command::TRIM, command_flag::FUA, 0, 512).errno;
    assert_eq!([trim(), trim()], [errno::EIO, 0], "that has a flush behind it");
    assert_eq!(flush(&mut harness, asks), 0, "it knows");
    assert_eq!(flush(&mut harness, later), 0, "it had written nothing then");
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
        let conn = open(harness, true);
        harness.disconnect(conn);
        harness.host.flush_fault = fails;
        assert_eq!(flush(harness, stays), errno::EIO);
    });
    assert_eq!(of_another, once, "what was lost may have been its own");
    let said_good_bye = errors(&mut |harness| {
        let conn = open(harness, true);
        harness.send(conn, &client::request(command::DISC, 0, 0, 0, 0));
        harness.disconnect(conn);
        harness.host.flush_fault = fails;
        assert_eq!(flush(harness, stays), errno::EIO);
    });
    assert_eq!(said_good_bye, [0, 0], "who has left will not ask");
}
