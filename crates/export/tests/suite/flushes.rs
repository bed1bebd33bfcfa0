//! A flush that fails may have been for what any client has written, and the next one succeeds.

use crate::support::{ask, open, server};
use anabranch_export::fuzz::Harness;
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
