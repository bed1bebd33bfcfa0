//! Requests and their answers: data, flags, errors, and that the stream stays in step.

use crate::support::{DISK_BYTES, Random, ask, export, large_server, one_answer, open, server};
use anabranch_export::fuzz::{Harness, client};
use anabranch_export::nbd::wire::{command, command_flag, errno};
use anabranch_export::nbd::{Export, MAX_REQUEST_BYTES, NbdConfig, NbdEvent};
use anabranch_host::user::{IoError, RequestOp};
use anabranch_proto::machine::ConnId;
use anabranch_proto::nvme::status::Status;
use std::collections::BTreeMap;

const MIB: usize = 1 << 20;

#[test]
fn reads_and_writes_of_all_sizes_move_the_right_bytes() {
    for structured in [false, true] {
        for aims in [false, true] {
            let mut harness = large_server();
            harness.aims = aims;
            let conn = open(&mut harness, structured);
            for (offset, bytes) in [
                (0, 512),
                (4096, 4096),
                (512, 128 << 10),
                (MIB, MIB),
                (512, MIB + 512),
                (3 * MIB, 5 * MIB + 1024),
                (32 * MIB, 32 * MIB),
            ] {
                let payload: Vec<u8> = (0..bytes).map(|i| (i / 512 * 7 + i) as u8).collect();
                harness.send(conn, &client::write(0, 77, offset as u64, &payload));
                let answer = one_answer(&mut harness, conn, 0);
                assert_eq!(answer.errno, 0, "{bytes} bytes at {offset}");
                assert!(harness.host.disk(0)[offset..offset + bytes] == payload, "on the disk");
                let len = bytes as u32;
                let answer = ask(&mut harness, conn, command::READ, 0, offset as u64, len);
                assert_eq!(answer.errno, 0);
                assert!(answer.bytes() == payload, "{bytes} bytes read at {offset}");
                let first = answer.data.keys().next().copied();
                assert_eq!(first, Some(if structured { offset as u64 } else { 0 }));
            }
            assert!(harness.aimed > 0, "large payload is aimed");
            harness.disconnect(conn);
            harness.check_empty();
        }
    }
}

#[test]
fn every_piece_of_a_write_carries_fua() {
    let mut harness = large_server();
    let conn = open(&mut harness, true);
    for (flags, expected) in [(command_flag::FUA, true), (0, false)] {
        harness.host.log.clear();
        harness.send(conn, &client::write(flags, 77, 0, &vec![5; 3 * MIB + 512]));
        assert_eq!(one_answer(&mut harness, conn, 0).errno, 0);
        let fua: Vec<bool> = harness
            .host
            .log
            .iter()
            .map(|op| matches!(op, RequestOp::Write { fua: true, .. }))
            .collect();
        assert_eq!(fua, [expected; 4]);
    }
}

#[test]
fn commands_without_data_become_the_right_requests() {
    let mut harness = server();
    let conn = open(&mut harness, true);
    let fua = command_flag::FUA;
    let no_hole = command_flag::NO_HOLE;
    let zeroes = |deallocate| RequestOp::WriteZeroes { lba: 8, blocks: 16, deallocate };
    let trim = RequestOp::Discard { lba: 8, blocks: 16 };
    let table: &[(u16, u16, &[RequestOp])] = &[
        (command::FLUSH, 0, &[RequestOp::Flush]),
        (command::FLUSH, fua, &[RequestOp::Flush]),
        (command::TRIM, 0, &[trim]),
        // Neither has a FUA of its own that all targets heed.
        (command::TRIM, fua, &[trim, RequestOp::Flush]),
        (command::WRITE_ZEROES, 0, &[zeroes(true)]),
        (command::WRITE_ZEROES, no_hole, &[zeroes(false)]),
        (command::WRITE_ZEROES, no_hole | fua, &[zeroes(false), RequestOp::Flush]),
    ];
    for (command, flags, expected) in table {
        harness.host.log.clear();
        let answer = ask(&mut harness, conn, *command, *flags, 4096, 8192);
        assert_eq!(answer.errno, 0, "command {command} flags {flags}");
        assert_eq!(harness.host.log, *expected);
    }
    // These have no announced maximum.
    let bytes = (DISK_BYTES - 512) as u32;
    assert_eq!(ask(&mut harness, conn, command::TRIM, 0, 512, bytes).errno, 0);
    assert_eq!(ask(&mut harness, conn, command::WRITE_ZEROES, 0, 512, bytes).errno, 0);
}

#[test]
fn a_trim_gives_back_the_whole_blocks_of_its_range() {
    let mut harness = server();
    harness.host.change_head(0, |head| head.block_bytes = 4096);
    let conn = open(&mut harness, true);
    let fua = command_flag::FUA;
    let trim = |lba, blocks| RequestOp::Discard { lba, blocks };
    let end = DISK_BYTES;
    let table: &[(u16, u64, u32, &[RequestOp])] = &[
        (0, 512, 4096, &[]),
        (0, 512, 3584, &[]),
        (fua, 4095, 2, &[]),
        (0, 4095, 4097, &[trim(1, 1)]),
        (0, 512, 16384, &[trim(1, 3)]),
        (0, 4096, 4097, &[trim(1, 1)]),
        (fua, 1, 3 * 4096, &[trim(1, 2), RequestOp::Flush]),
        (0, end - 8191, 8191, &[trim(end / 4096 - 1, 1)]),
        (0, end - 1, 1, &[]),
    ];
    for (flags, offset, bytes, expected) in table {
        harness.host.log.clear();
        let answer = ask(&mut harness, conn, command::TRIM, *flags, *offset, *bytes);
        assert_eq!(answer.errno, 0, "{bytes} at {offset}");
        assert_eq!(harness.host.log, *expected, "{bytes} at {offset}");
    }
    harness.disconnect(conn);
    harness.check_empty();
}

#[test]
fn bad_requests_are_answered_and_the_stream_stays_in_step() {
    let end = DISK_BYTES;
    let too_long = MAX_REQUEST_BYTES + 512;
    let table: &[(&str, u16, u16, u64, u32, u32)] = &[
        ("read past the end", command::READ, 0, end, 512, errno::EINVAL),
        ("read over the end", command::READ, 0, end - 512, 1024, errno::EINVAL),
        ("offset overflow", command::READ, 0, u64::MAX - 511, 512, errno::EINVAL),
        ("offset far out", command::READ, 0, 1 << 63, 512, errno::EINVAL),
        ("oversize read", command::READ, 0, 0, too_long, errno::EINVAL),
        ("huge read", command::READ, 0, 0, u32::MAX, errno::EINVAL),
        ("unaligned offset", command::READ, 0, 1, 512, errno::EINVAL),
        ("unaligned length", command::READ, 0, 0, 513, errno::EINVAL),
        ("empty read", command::READ, 0, 0, 0, errno::EINVAL),
        ("unknown flag", command::READ, 1 << 9, 0, 512, errno::EINVAL),
        ("one chunk too long", command::READ, command_flag::DF, 0, 2 << 20, errno::EOVERFLOW),
        ("write past the end", command::WRITE, 0, end, 512, errno::ENOSPC),
        ("write over the end", command::WRITE, 0, end - 512, 1024, errno::ENOSPC),
        ("unaligned write", command::WRITE, 0, 100, 512, errno::EINVAL),
        ("unaligned write length", command::WRITE, 0, 0, 100, errno::EINVAL),
        ("oversize write", command::WRITE, 0, 0, too_long, errno::EINVAL),
        ("empty write", command::WRITE, 0, 0, 0, errno::EINVAL),
        ("flag of another command", command::WRITE, command_flag::DF, 0, 512, errno::EINVAL),
        ("trim over the end", command::TRIM, 0, end - 512, 1024, errno::EINVAL),
        ("empty trim", command::TRIM, 0, 512, 0, errno::EINVAL),
        ("unaligned trim past the end", command::TRIM, 0, end - 1, 2, errno::EINVAL),
        ("zeroes over the end", command::WRITE_ZEROES, 0, end - 512, 1024, errno::ENOSPC),
        ("fast zero", command::WRITE_ZEROES, 1 << 4, 0, 512, errno::EINVAL),
        ("cache", 5, 0, 0, 512, errno::EINVAL),
        ("block status", 7, 0, 0, 512, errno::EINVAL),
        ("unknown command", 0xffff, 0xffff, u64::MAX, u32::MAX, errno::EINVAL),
    ];
    for structured in [false, true] {
        for (what, command, flags, offset, bytes, expected) in table {
            let mut harness = server();
            harness.portion = 1 << 20;
            let conn = open(&mut harness, structured);
            let mut stream = client::request(*command, *flags, 77, *offset, *bytes);
            if *command == command::WRITE {
                stream.resize(stream.len() + *bytes as usize, 0xee);
            }
            stream.extend(client::request(command::READ, 0, 78, 4096, 512));
            harness.send(conn, &stream);
            let received = harness.take(conn);
            let (answers, rest) = client::answers(&received, &BTreeMap::from([(78, 512)]));
            assert!(rest.is_empty(), "{what}");
            // Without structured replies there is no such flag.
            let expected = match (structured, *expected) {
                (false, errno::EOVERFLOW) => errno::EINVAL,
                (_, expected) => expected,
            };
            assert_eq!(answers[&77].errno, expected, "{what}");
            assert!(answers[&77].done && answers[&77].data.is_empty(), "{what}");
            assert_eq!(answers[&78].bytes(), harness.host.disk(0)[4096..4608], "{what}");
            // "The server SHOULD prefer sending errors via a structured reply".
            assert_eq!(answers[&77].text.is_empty(), !structured, "{what}: says why");
            harness.disconnect(conn);
            harness.check_empty();
        }
    }
}

#[test]
fn a_read_only_device_refuses_to_be_changed() {
    let mut harness = server();
    harness.host.change_head(0, |head| head.limits.read_only = true);
    let conn = open(&mut harness, true);
    harness.send(conn, &client::write(0, 77, 0, &[0; 512]));
    assert_eq!(one_answer(&mut harness, conn, 0).errno, errno::EPERM);
    for command in [command::TRIM, command::WRITE_ZEROES] {
        assert_eq!(ask(&mut harness, conn, command, 0, 0, 512).errno, errno::EPERM);
    }
    assert_eq!(ask(&mut harness, conn, command::READ, 0, 0, 512).errno, 0);
    assert_eq!(ask(&mut harness, conn, command::FLUSH, 0, 0, 0).errno, 0);
}

/// The device itself may be changed, by the clients of another export.
#[test]
fn a_read_only_export_refuses_to_be_changed() {
    let only = Export { read_only: true, ..export("only", "nvme0n1") };
    let exports = vec![export("disk", "nvme0n1"), only];
    let mut harness = Harness::new(NbdConfig { listen: None, exports }, 256 << 20);
    harness.host.add_disk("nvme0n1", 4 << 20, 512);
    let reader = harness.connect();
    harness.send(reader, &client::negotiate("only", true));
    harness.take(reader);
    let writer = open(&mut harness, true);
    harness.send(reader, &client::write(0, 77, 0, &[1; 512]));
    assert_eq!(one_answer(&mut harness, reader, 0).errno, errno::EPERM);
    harness.send(writer, &client::write(0, 77, 0, &[2; 512]));
    assert_eq!(one_answer(&mut harness, writer, 0).errno, 0);
    for command in [command::TRIM, command::WRITE_ZEROES] {
        assert_eq!(ask(&mut harness, reader, command, 0, 0, 512).errno, errno::EPERM);
    }
    assert_eq!(ask(&mut harness, reader, command::READ, 0, 0, 512).bytes(), [2; 512]);
}

/// "The server SHOULD return NBD_EPERM if it receives a write or trim request on a read-only
/// export", also where the device knows neither trim nor zeroes.
#[test]
fn what_a_read_only_device_could_not_do_anyway_is_forbidden_all_the_same() {
    let mut harness = server();
    harness.host.change_head(0, |head| {
        head.limits.read_only = true;
        head.limits.max_discard_blocks = 0;
        head.limits.max_write_zeroes_blocks = 0;
    });
    let conn = open(&mut harness, true);
    for command in [command::TRIM, command::WRITE_ZEROES] {
        assert_eq!(ask(&mut harness, conn, command, 0, 0, 512).errno, errno::EPERM);
    }
}

/// "If this flag is set, the server MUST error subsequent write operations to the export."
#[test]
fn who_was_told_that_a_device_is_read_only_never_changes_it() {
    let mut harness = server();
    harness.host.change_head(0, |head| head.limits.read_only = true);
    let conn = open(&mut harness, true);
    harness.host.change_head(0, |head| head.limits.read_only = false);
    harness.heads_changed();
    harness.send(conn, &client::write(0, 77, 0, &[0; 512]));
    assert_eq!(one_answer(&mut harness, conn, 0).errno, errno::EPERM);
}

/// Who was not told so may go on when the device may be changed again.
#[test]
fn a_device_that_was_read_only_for_a_while_takes_writes_again() {
    let mut harness = server();
    let conn = open(&mut harness, true);
    for (read_only, expected) in [(true, errno::EPERM), (false, 0)] {
        harness.host.change_head(0, |head| head.limits.read_only = read_only);
        harness.heads_changed();
        harness.send(conn, &client::write(0, 77, 0, &[0; 512]));
        assert_eq!(one_answer(&mut harness, conn, 0).errno, expected);
    }
}

/// "It SHOULD return NBD_EINVAL if it receives a read or trim request including one or more sectors
/// beyond the size of the device", also where it was checked before the device shrank.
#[test]
fn a_trim_that_waits_while_its_device_shrinks_is_invalid() {
    let mut harness = server();
    let conn = open(&mut harness, true);
    harness.host.share = 0;
    harness.send(conn, &client::request(command::TRIM, 0, 77, DISK_BYTES - 4096, 4096));
    harness.host.change_head(0, |head| head.blocks -= 8);
    harness.host.share = usize::MAX;
    harness.heads_changed();
    assert_eq!(one_answer(&mut harness, conn, 0).errno, errno::EINVAL);
}

/// It was checked before, and waits for its payload.
#[test]
fn a_write_to_a_device_that_becomes_read_only_meanwhile_is_not_permitted() {
    let mut harness = server();
    let conn = open(&mut harness, true);
    let request = client::write(0, 77, 0, &[0; 512]);
    harness.send(conn, &request[..100]);
    harness.host.change_head(0, |head| head.limits.read_only = true);
    harness.heads_changed();
    harness.send(conn, &request[100..]);
    assert_eq!(one_answer(&mut harness, conn, 0).errno, errno::EPERM);
}

#[test]
fn a_device_without_trim_or_write_zeroes_refuses_them() {
    let mut harness = server();
    harness.host.change_head(0, |head| {
        head.limits.max_discard_blocks = 0;
        head.limits.max_write_zeroes_blocks = 0;
    });
    let conn = open(&mut harness, true);
    for command in [command::TRIM, command::WRITE_ZEROES] {
        assert_eq!(ask(&mut harness, conn, command, 0, 0, 512).errno, errno::EINVAL);
    }
}

#[test]
fn a_device_that_ceases_to_trim_and_make_zeroes_fails_nobody_who_was_offered_them() {
    let mut harness = large_server();
    let conn = open(&mut harness, true);
    let bytes = 5 * MIB / 2 + 1024;
    harness.send(conn, &client::write(0, 77, 0, &vec![0x5a; 3 * MIB]));
    assert_eq!(one_answer(&mut harness, conn, 0).errno, 0);
    harness.host.change_head(0, |head| {
        head.limits.max_discard_blocks = 0;
        head.limits.max_write_zeroes_blocks = 0;
    });
    harness.heads_changed();
    harness.host.log.clear();
    let (fua, len) = (command_flag::FUA, bytes as u32);
    assert_eq!(ask(&mut harness, conn, command::WRITE_ZEROES, fua, 0, len).errno, 0);
    let mut written = Vec::new();
    for op in &harness.host.log {
        let RequestOp::Write { lba, blocks, fua: true, .. } = *op else { panic!("{op:?}") };
        written.push((lba, blocks));
    }
    assert_eq!(written, [(0, 2048), (2048, 2048), (4096, 1026)]);
    let disk = harness.host.disk(0);
    assert!(disk[..bytes].iter().all(|&byte| byte == 0), "to the end");
    assert!(disk[bytes..3 * MIB].iter().all(|&byte| byte == 0x5a), "and no further");
    // A trim is a hint; that it is durable is still asked for.
    harness.host.log.clear();
    assert_eq!(ask(&mut harness, conn, command::TRIM, 0, 0, 4096).errno, 0);
    assert_eq!(harness.host.log, []);
    assert_eq!(ask(&mut harness, conn, command::TRIM, fua, 0, 4096).errno, 0);
    assert_eq!(harness.host.log, [RequestOp::Flush]);
    // A fault among the zeroes ends them, and the client hears of it.
    harness.host.fault = Some((2100, IoError::Status(Status::INTERNAL_ERROR)));
    harness.host.log.clear();
    let answer = ask(&mut harness, conn, command::WRITE_ZEROES, 0, 0, len);
    assert_eq!((answer.errno, harness.host.log.len()), (errno::EIO, 2));
    // Who comes now is not offered them.
    let late = open(&mut harness, true);
    assert_eq!(ask(&mut harness, late, command::WRITE_ZEROES, 0, 0, 512).errno, errno::EINVAL);
}

/// As Linux's target answers for a file on tmpfs: offered by the controller, refused by the file.
#[test]
fn zeroes_and_trims_that_are_refused_once_tried_fail_nobody() {
    let mut harness = large_server();
    let conn = open(&mut harness, true);
    let bytes = 5 * MIB / 2 + 1024;
    let (fua, len) = (command_flag::FUA, bytes as u32);
    for status in [
        Status::INVALID_OPCODE,
        Status::INVALID_FIELD.with_dnr(),
        Status::CONFLICTING_ATTRIBUTES,
        Status::COMMAND_SIZE_LIMIT_EXCEEDED.with_more().with_dnr(),
    ] {
        harness.host.unable = None;
        harness.send(conn, &client::write(0, 77, 0, &vec![0x5a; 3 * MIB]));
        assert_eq!(one_answer(&mut harness, conn, 0).errno, 0);
        harness.host.unable = Some(IoError::Status(status));
        harness.host.log.clear();
        assert_eq!(
            ask(&mut harness, conn, command::WRITE_ZEROES, fua, 0, len).errno,
            0,
            "{status}"
        );
        let mut written = Vec::new();
        for op in &harness.host.log[1..] {
            let RequestOp::Write { lba, blocks, fua: true, .. } = *op else { panic!("{op:?}") };
            written.push((lba, blocks));
        }
        assert_eq!(written, [(0, 2048), (2048, 2048), (4096, 1026)], "{status}");
        let disk = harness.host.disk(0);
        assert!(disk[..bytes].iter().all(|&byte| byte == 0), "{status}: to the end");
        assert!(disk[bytes..3 * MIB].iter().all(|&byte| byte == 0x5a), "{status}: no further");
        assert_eq!(ask(&mut harness, conn, command::TRIM, 0, 0, 4096).errno, 0, "{status}");
        harness.host.log.clear();
        assert_eq!(ask(&mut harness, conn, command::TRIM, fua, 0, 4096).errno, 0, "{status}");
        assert_eq!(harness.host.log.last(), Some(&RequestOp::Flush), "{status}");
    }
    // What went wrong on the way is an error.
    harness.host.unable = Some(IoError::Status(Status::WRITE_FAULT));
    for command in [command::WRITE_ZEROES, command::TRIM] {
        assert_eq!(ask(&mut harness, conn, command, 0, 0, len).errno, errno::EIO);
    }
}

/// Each waits for memory that the others may hold: all are served in the end, and none in a spin.
#[test]
fn many_refused_zeroes_at_once_share_the_memory() {
    let mut harness = large_server();
    let conn = open(&mut harness, true);
    harness.host.unable = Some(IoError::Status(Status::COMMAND_SIZE_LIMIT_EXCEEDED));
    let requests: Vec<u8> = (0..48_u64)
        .flat_map(|n| client::request(command::WRITE_ZEROES, 0, n, n * 65_536, MIB as u32))
        .collect();
    harness.send(conn, &requests);
    let received = harness.take(conn);
    let (answers, rest) = client::answers(&received, &BTreeMap::new());
    assert!(rest.is_empty());
    assert_eq!(answers.len(), 48);
    assert!(answers.values().all(|answer| answer.errno == 0 && answer.done));
    let disk = harness.host.disk(0);
    assert!(disk[..47 * 65_536 + MIB].iter().all(|&byte| byte == 0));
}

#[test]
fn a_bad_magic_number_ends_this_connection_only() {
    let mut harness = server();
    let other = open(&mut harness, true);
    let conn = open(&mut harness, true);
    let mut stream = client::request(command::READ, 0, 77, 0, 512);
    stream.extend([0x42; 28]);
    stream.extend(client::request(command::READ, 0, 78, 0, 512));
    harness.send(conn, &stream);
    assert!(!harness.is_connected(conn));
    assert!(harness.events.iter().any(|event| matches!(event, NbdEvent::Violation { .. })));
    assert_eq!(ask(&mut harness, other, command::READ, 0, 0, 512).errno, 0);
    harness.disconnect(other);
    harness.check_empty();
}

#[test]
fn errors_of_the_host_become_the_right_numbers() {
    let status = IoError::Status;
    let table = [
        (IoError::NoPath, errno::EIO, errno::EIO),
        (IoError::Gone, errno::ESHUTDOWN, errno::ESHUTDOWN),
        (status(Status::UNRECOVERED_READ_ERROR), errno::EIO, errno::EIO),
        (status(Status::LBA_OUT_OF_RANGE), errno::EINVAL, errno::ENOSPC),
        // Not a write: a flush that finds no room for what was promised is not "invalid".
        (status(Status::CAPACITY_EXCEEDED), errno::ENOSPC, errno::ENOSPC),
        (status(Status::WRITE_PROTECTED), errno::EPERM, errno::EPERM),
        (status(Status::WRITE_TO_READ_ONLY_RANGE), errno::EPERM, errno::EPERM),
        (status(Status::COMMAND_SIZE_LIMIT_EXCEEDED), errno::EIO, errno::EIO),
    ];
    for structured in [false, true] {
        for (error, on_read, on_write) in table {
            let mut harness = server();
            let conn = open(&mut harness, structured);
            harness.host.fault = Some((8, error));
            let answer = ask(&mut harness, conn, command::READ, 0, 4096, 4096);
            assert_eq!((answer.errno, answer.done), (on_read, true), "{error}");
            assert!(answer.data.is_empty());
            harness.send(conn, &client::write(0, 77, 4096, &[1; 4096]));
            assert_eq!(one_answer(&mut harness, conn, 0).errno, on_write, "{error}");
            // The same connection goes on.
            assert_eq!(ask(&mut harness, conn, command::READ, 0, 0, 512).errno, 0);
        }
    }
}

#[test]
fn a_long_read_that_fails_in_the_middle_ends_with_an_error() {
    // Structured: an error chunk, after whatever data was there.
    let mut harness = large_server();
    let conn = open(&mut harness, true);
    let bad = (5 * MIB / 512) as u64;
    harness.host.fault = Some((bad, IoError::Status(Status::UNRECOVERED_READ_ERROR)));
    let answer = ask(&mut harness, conn, command::READ, 0, 0, 16 << 20);
    assert_eq!((answer.errno, answer.text.as_str()), (errno::EIO, "Unrecovered Read Error"));
    assert!(answer.data.keys().all(|&offset| offset != 5 << 20));
    assert_eq!(ask(&mut harness, conn, command::READ, 0, 0, 512).errno, 0);
    // Simple: success was promised already, so the connection has to end.
    let conn = open(&mut harness, false);
    harness.send(conn, &client::request(command::READ, 0, 77, 0, 16 << 20));
    assert!(!harness.is_connected(conn));
    assert!(harness.events.iter().any(|event| matches!(event, NbdEvent::BrokenReply { .. })));
    // Unless the first piece fails.
    let conn = open(&mut harness, false);
    let answer = ask(&mut harness, conn, command::READ, 0, 5 << 20, 16 << 20);
    assert_eq!(answer.errno, errno::EIO);
    harness.disconnect(conn);
}

/// Linux's client, which knows simple replies only and reads up to 1280 KiB at once, would lose its
/// device for good.
#[test]
fn a_simple_read_of_few_pieces_that_fails_costs_no_connection() {
    let mut random = Random::seeded();
    for round in 0..6 {
        let mut harness = large_server();
        harness.complete_at_once = false;
        let conn = open(&mut harness, false);
        let reads: BTreeMap<u64, u32> = (0..40).map(|cookie| (cookie, 1280 << 10)).collect();
        for (&cookie, &bytes) in &reads {
            harness.send(conn, &client::request(command::READ, 0, cookie, cookie << 20, bytes));
        }
        let bad = random.below(30 << 20);
        harness.host.fault = Some((bad / 512, IoError::Status(Status::UNRECOVERED_READ_ERROR)));
        while harness.host.pending() > 0 {
            let which = random.below(harness.host.pending() as u64) as usize;
            harness.complete_one(which);
        }
        let received = harness.take(conn);
        let (answers, rest) = client::answers(&received, &reads);
        assert!(rest.is_empty() && harness.is_connected(conn), "round {round}");
        for (&cookie, &bytes) in &reads {
            let from = (cookie << 20) as usize;
            let range = from..from + bytes as usize;
            let answer = &answers[&cookie];
            if range.contains(&(bad as usize)) {
                assert_eq!(answer.errno, errno::EIO, "round {round}, read {cookie}");
            } else {
                assert!(answer.bytes() == harness.host.disk(0)[range], "round {round}, {cookie}");
            }
        }
        harness.disconnect(conn);
        harness.check_empty();
    }
}

#[test]
fn a_long_write_that_fails_in_the_middle_takes_all_of_its_payload() {
    for fault_at in [0, 2, 7] {
        let mut harness = large_server();
        let conn = open(&mut harness, true);
        let bad = (fault_at * MIB / 512) as u64;
        harness.host.fault = Some((bad, IoError::Status(Status::WRITE_FAULT)));
        let mut stream = client::write(0, 77, 0, &vec![3; 8 * MIB]);
        stream.extend(client::request(command::READ, 0, 78, 16 << 20, 512));
        harness.send(conn, &stream);
        let received = harness.take(conn);
        let (answers, rest) = client::answers(&received, &BTreeMap::new());
        assert!(rest.is_empty());
        assert_eq!(answers[&77].errno, errno::EIO);
        assert_eq!(answers[&78].errno, 0);
        harness.disconnect(conn);
        harness.check_empty();
    }
}

#[test]
fn long_simple_replies_are_one_stretch_each() {
    let mut harness = large_server();
    harness.complete_at_once = false;
    let conn = open(&mut harness, false);
    let mut stream = Vec::new();
    let mut reads = BTreeMap::new();
    // Those of 8 MiB go out while they are read.
    let lengths = [8 << 20, 512, (2 << 20) + 512, 4096, 8 << 20, 3 << 20, 1 << 20];
    for (cookie, bytes) in (1..).zip(lengths) {
        stream.extend(client::request(command::READ, 0, cookie, cookie << 20, bytes));
        reads.insert(cookie, bytes);
    }
    stream.extend(client::request(command::FLUSH, 0, 99, 0, 0));
    harness.send(conn, &stream);
    // The last one completes first, again and again.
    while harness.host.pending() > 0 {
        harness.complete_one(usize::MAX);
    }
    let received = harness.take(conn);
    let (answers, rest) = client::answers(&received, &reads);
    assert!(rest.is_empty());
    assert_eq!(answers.len(), lengths.len() + 1);
    for (cookie, bytes) in reads {
        let from = (cookie << 20) as usize;
        assert!(answers[&cookie].bytes() == harness.host.disk(0)[from..from + bytes as usize]);
    }
}

#[test]
fn random_requests_in_random_portions_and_orders_are_all_answered_right() {
    let mut random = Random::seeded();
    for round in 0..40 {
        let mut harness = large_server();
        let structured = random.below(2) == 0;
        let conn = open(&mut harness, structured);
        harness.complete_at_once = false;
        harness.host.room = 1 + random.below(8) as usize;
        harness.portion = [7, 100, 5000, 70_000][random.below(4) as usize];
        harness.aims = random.below(2) == 0;
        harness.hold_transmissions = random.below(2) == 0;
        let (mut stream, mut reads) = (Vec::new(), BTreeMap::new());
        let mut written = Vec::new();
        let mut expected = harness.host.disk(0).to_vec();
        let count = 40;
        for cookie in 0..count {
            // Each request has a MiB and a half of its own, so their order does not matter.
            let offset = cookie * 3 * (MIB as u64 / 2);
            let most = if random.below(4) == 0 { 3072 } else { 16 };
            let bytes = 512 * (1 + random.below(most)) as u32;
            let at = offset as usize..offset as usize + bytes as usize;
            match random.below(4) {
                0 => {
                    let payload: Vec<u8> =
                        (0..bytes).map(|i| (u64::from(i) * 3 + cookie) as u8).collect();
                    expected[at].copy_from_slice(&payload);
                    stream.extend(client::write(0, cookie, offset, &payload));
                }
                1 => {
                    expected[at].fill(0);
                    stream.extend(client::request(command::WRITE_ZEROES, 0, cookie, offset, bytes));
                }
                _ => {
                    stream.extend(client::request(command::READ, 0, cookie, offset, bytes));
                    reads.insert(cookie, bytes);
                    written.push((cookie, at));
                }
            }
        }
        for part in stream.chunks(1 + random.below(90_000) as usize) {
            harness.send(conn, part);
            for _ in 0..random.below(4) {
                harness.complete_one(random.below(8) as usize);
                if random.below(3) == 0 {
                    harness.release_transmissions();
                }
            }
        }
        while harness.unread(conn) > 0 || harness.host.pending() > 0 {
            harness.complete_all();
            harness.pass_time();
        }
        harness.complete_all();
        let received = harness.take(conn);
        let (answers, rest) = client::answers(&received, &reads);
        assert!(rest.is_empty());
        assert_eq!(answers.len() as u64, count, "round {round}: every request is answered");
        assert!(answers.values().all(|answer| answer.done && answer.errno == 0));
        assert!(harness.host.disk(0) == expected, "round {round}: the disk is right");
        for (cookie, at) in written {
            assert!(answers[&cookie].bytes() == expected[at], "round {round}: read {cookie}");
        }
        harness.disconnect(conn);
        harness.check_empty();
    }
}

#[test]
fn every_split_of_a_stream_gives_the_same() {
    let mut stream = client::request(command::READ, 0, 1, 0, 1024);
    stream.extend(client::write(0, 2, 4096, &[9; 512]));
    stream.extend(client::write(0, 3, 1, &[9; 512]));
    stream.extend(client::request(99, 0, 4, 0, 0));
    stream.extend(client::request(command::FLUSH, 0, 5, 0, 0));
    stream.extend(client::request(command::READ, 0, 6, 4096, 512));
    // In which order they are answered depends on what was there at once; how does not.
    let answered = |bytes: &[u8]| client::answers(bytes, &BTreeMap::new()).0;
    let whole = {
        let mut harness = server();
        let conn = open(&mut harness, true);
        harness.send(conn, &stream);
        answered(&harness.take(conn))
    };
    assert_eq!(whole.len(), 6);
    let mut harness = server();
    for cut in 1..stream.len() {
        let conn = open(&mut harness, true);
        harness.send(conn, &stream[..cut]);
        harness.send(conn, &stream[cut..]);
        assert_eq!(answered(&harness.take(conn)), whole, "cut at {cut}");
        harness.disconnect(conn);
    }
    harness.portion = 1;
    let conn = open(&mut harness, true);
    harness.send(conn, &stream);
    assert_eq!(answered(&harness.take(conn)), whole, "byte by byte");
}

/// Each request, with 4 MiB of its own, was answered once: it failed, or its data is right.
fn check_answers(
    harness: &mut Harness,
    conn: ConnId,
    count: u64,
    (reads, writes): (&BTreeMap<u64, u32>, &BTreeMap<u64, usize>),
    before: &[u8],
) {
    let received = harness.take(conn);
    let (answers, rest) = client::answers(&received, reads);
    assert!(rest.is_empty());
    assert_eq!(answers.len() as u64, count, "every request is answered");
    for (cookie, answer) in answers {
        assert!(answer.done && (answer.errno == 0 || answer.errno == errno::EIO));
        let from = cookie as usize * 4 * MIB;
        if answer.errno != 0 {
            continue;
        }
        if let Some(&bytes) = reads.get(&cookie) {
            assert!(answer.bytes() == before[from..from + bytes as usize], "{cookie}");
        } else {
            let disk = &harness.host.disk(0)[from..from + writes[&cookie]];
            assert!(disk.iter().all(|&byte| byte == cookie as u8 + 1), "{cookie}");
        }
    }
}

#[test]
fn requests_that_fail_in_part_are_answered_once_and_clients_that_vanish_leave_nothing() {
    let mut random = Random::seeded();
    for _ in 0..20 {
        let mut harness = large_server();
        let conn = open(&mut harness, true);
        harness.complete_at_once = false;
        harness.host.room = 1 + random.below(8) as usize;
        harness.portion = [100, 5000, 70_000][random.below(3) as usize];
        harness.aims = random.below(2) == 0;
        harness.hold_transmissions = random.below(2) == 0;
        let (mut stream, mut reads, mut writes) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let before = harness.host.disk(0).to_vec();
        let count = 16;
        for cookie in 0..count {
            let (offset, bytes) = (cookie * 4 * MIB as u64, 512 * (1 + random.below(8000)) as u32);
            if random.below(2) == 0 {
                let payload = vec![cookie as u8 + 1; bytes as usize];
                stream.extend(client::write(0, cookie, offset, &payload));
                writes.insert(cookie, bytes as usize);
            } else {
                stream.extend(client::request(command::READ, 0, cookie, offset, bytes));
                reads.insert(cookie, bytes);
            }
        }
        let vanishes = random.below(3) == 0;
        for part in stream.chunks(1 + random.below(900_000) as usize) {
            harness.send(conn, part);
            // Some block is bad for a while.
            let bad = random.below(count * 4 * MIB as u64 / 512);
            let range = if random.below(2) == 0 { bad } else { bad / 8192 * 8192 };
            harness.host.fault = (random.below(4) > 0).then_some((range, IoError::NoPath));
            for _ in 0..random.below(5) {
                harness.complete_one(random.below(8) as usize);
                harness.release_transmissions();
            }
            harness.check_bounds();
            if vanishes && random.below(8) == 0 {
                break;
            }
        }
        if vanishes {
            harness.disconnect(conn);
            harness.complete_all();
            harness.check_empty();
            continue;
        }
        while harness.unread(conn) > 0 || harness.host.pending() > 0 {
            harness.complete_all();
            harness.pass_time();
        }
        harness.complete_all();
        check_answers(&mut harness, conn, count, (&reads, &writes), &before);
        harness.disconnect(conn);
        harness.check_empty();
    }
}
