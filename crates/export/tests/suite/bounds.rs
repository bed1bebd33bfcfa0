//! What a client can not do: use up memory, starve others, or leave anything behind.

use crate::support;

use crate::support::{ask, export, large_server, open, server};
use anabranch_export::fuzz::{Harness, client};
use anabranch_export::nbd::wire::{command, command_flag, errno};
use anabranch_export::nbd::{
    ADDRESS_SHARE, CLOSE_TIMEOUT, MAX_BUFFER_BYTES, MAX_CONNECTIONS, MAX_REQUESTS,
    NEGOTIATION_TIME, NbdConfig, NbdEvent, RETRY_DELAY,
};
use anabranch_host::topology::HeadId;
use anabranch_host::user::{IoError, User};
use anabranch_proto::machine::{ConnId, ListenerId, Peer};
use anabranch_proto::nvme::status::Status;
use std::collections::BTreeMap;

const MIB: usize = 1 << 20;

/// A server whose payload memory and request slots are scarce.
fn scarce(pool_bytes: u64, room: usize) -> Harness {
    let config = NbdConfig { listen: None, exports: vec![export("disk", "nvme0n1")] };
    let mut harness = Harness::new(config, pool_bytes);
    harness.host.add_disk("nvme0n1", 64 * MIB, 512);
    harness.host.room = room;
    harness
}

#[test]
fn a_client_that_does_not_read_holds_bounded_memory_and_is_paused() {
    for structured in [false, true] {
        let mut harness = large_server();
        harness.hold_transmissions = true;
        harness.late = false;
        let conn = harness.connect();
        harness.send(conn, &client::negotiate("disk", structured));
        harness.release_transmissions();
        let stream: Vec<u8> = (0..200)
            .flat_map(|cookie| client::request(command::READ, 0, cookie, 0, MIB as u32))
            .collect();
        harness.send(conn, &stream);
        assert!(harness.is_paused(conn));
        assert!(harness.pool.in_use_bytes() <= u64::from(MAX_BUFFER_BYTES));
        // What is being sent to that client stays so; another one is served meanwhile.
        harness.hold_transmissions = false;
        let other = harness.connect();
        harness.send(other, &client::negotiate("disk", true));
        harness.take(other);
        assert_eq!(ask(&mut harness, other, command::READ, 0, 0, 512).errno, 0);
        // It reads after all.
        let mut unread = usize::MAX;
        while harness.is_connected(conn) && harness.unread(conn) < unread {
            unread = harness.unread(conn);
            harness.release_transmissions();
        }
        harness.complete_all();
        let received = harness.take(conn);
        let (_, rest) = client::negotiation(&received);
        let reads = (0..200).map(|cookie| (cookie, MIB as u32)).collect();
        let (answers, rest) = client::answers(rest, &reads);
        assert!(rest.is_empty());
        assert_eq!(answers.len(), 200);
    }
}

#[test]
fn small_requests_without_end_are_let_in_one_table_at_a_time() {
    let mut harness = server();
    harness.complete_at_once = false;
    let conn = open(&mut harness, true);
    // Half of them are refused, and still count until their answers have left.
    harness.hold_transmissions = true;
    let stream: Vec<u8> = (0..1000)
        .flat_map(|cookie| client::request(command::READ, 0, cookie, cookie % 2, 512))
        .collect();
    harness.late = false;
    harness.portion = 512;
    harness.send(conn, &stream);
    assert!(harness.is_paused(conn));
    assert_eq!(harness.host.pending(), MAX_REQUESTS / 2);
    harness.hold_transmissions = false;
    harness.complete_all();
    while harness.unread(conn) > 0 || harness.host.pending() > 0 {
        harness.complete_all();
    }
    let received = harness.take(conn);
    let (answers, _) = client::answers(&received, &BTreeMap::new());
    assert_eq!(answers.len(), 1000);
    assert!(answers.iter().all(|(cookie, it)| (it.errno == errno::EINVAL) == (cookie % 2 == 1)));
}

#[test]
fn requests_wait_for_memory_and_all_get_it() {
    // One MiB for three clients with requests of many.
    for structured in [false, true] {
        let mut harness = scarce(MIB as u64, 1000);
        harness.complete_at_once = false;
        let conns = [0; 3].map(|_| open(&mut harness, structured));
        for conn in conns {
            let mut stream = client::request(command::READ, 0, 1, 0, 5 << 20);
            stream.extend(client::write(0, 2, 8 << 20, &vec![7; 3 * MIB + 512]));
            stream.extend(client::request(command::READ, 0, 3, 512, 512));
            harness.send(conn, &stream);
        }
        let reads = BTreeMap::from([(1, 5 << 20), (3, 512)]);
        let mut turns = 0;
        while harness.host.pending() > 0 || conns.iter().any(|&conn| harness.unread(conn) > 0) {
            harness.complete_one(0);
            turns += 1;
            assert!(turns < 10_000, "it goes on");
        }
        for conn in conns {
            let received = harness.take(conn);
            let (answers, rest) = client::answers(&received, &reads);
            assert!(rest.is_empty());
            assert_eq!(answers.len(), 3);
            assert!(answers.values().all(|answer| answer.done && answer.errno == 0));
            harness.disconnect(conn);
        }
        harness.check_empty();
    }
}

#[test]
fn requests_wait_for_room_in_the_host_and_all_get_it() {
    let mut harness = scarce(64 << 20, 1);
    harness.complete_at_once = false;
    let conns = [0; 3].map(|_| open(&mut harness, true));
    for conn in conns {
        let mut stream = Vec::new();
        for cookie in 0..20 {
            stream.extend(client::request(command::READ, 0, 2 * cookie, 0, 2 << 20));
            stream.extend(client::write(0, 2 * cookie + 1, 0, &[1; 512]));
        }
        harness.send(conn, &stream);
    }
    let mut turns = 0;
    while harness.host.pending() > 0 {
        harness.complete_one(0);
        turns += 1;
        assert!(turns < 10_000, "it goes on");
    }
    for conn in conns {
        let received = harness.take(conn);
        assert_eq!(client::answers(&received, &BTreeMap::new()).0.len(), 40);
        harness.disconnect(conn);
    }
    harness.check_empty();
}

/// Two devices, of which the host takes 64 requests each; the first has no path.
fn with_a_stuck_device(clients: u64) -> (Harness, Vec<ConnId>) {
    let exports = vec![export("stuck", "nvme0n1"), export("disk", "nvme0n2")];
    let mut harness = Harness::new(NbdConfig { listen: None, exports }, 256 << 20);
    harness.host.add_disk("nvme0n1", 4 * MIB, 512);
    harness.host.add_disk("nvme0n2", 4 * MIB, 512);
    harness.host.share = 64;
    harness.complete_at_once = false;
    let stuck = (0..clients).map(|_| harness.connect()).collect::<Vec<_>>();
    for &conn in &stuck {
        harness.send(conn, &client::negotiate("stuck", true));
        harness.take(conn);
        harness.send(conn, &requests(0..400));
    }
    assert_eq!(harness.host.pending_of(HeadId(0)), 64);
    (harness, stuck)
}

fn requests(cookies: std::ops::Range<u64>) -> Vec<u8> {
    cookies.flat_map(|cookie| client::request(command::READ, 0, cookie, 0, 4096)).collect()
}

fn answered(harness: &mut Harness, conn: ConnId, count: u64) {
    let received = harness.take(conn);
    let reads = (0..count).map(|cookie| (cookie, 4096)).collect();
    let (answers, rest) = client::answers(&received, &reads);
    assert!(rest.is_empty());
    assert_eq!(answers.len() as u64, count);
}

#[test]
fn clients_of_a_device_without_a_path_leave_those_of_others_alone() {
    let (mut harness, stuck) = with_a_stuck_device(3);
    // One keeps its device as busy as it may, the other always finds no room at first.
    let going = [0; 2].map(|_| open(&mut harness, true));
    for conn in going {
        harness.send(conn, &requests(0..400));
    }
    assert!(harness.is_paused(going[1]));
    let mut turns = 0;
    while let Some(first) = harness.host.first_of(HeadId(1)) {
        let full = harness.host.pending_of(HeadId(1));
        assert!(full == 64 || turns >= 700, "at full depth: {full} after {turns}");
        harness.complete_one(first);
        turns += 1;
    }
    assert_eq!(turns, 800, "each got an answer");
    going.into_iter().for_each(|conn| answered(&mut harness, conn, 400));
    // The path is back.
    assert_eq!(harness.host.pending_of(HeadId(0)), 64);
    harness.complete_all();
    stuck.into_iter().for_each(|conn| answered(&mut harness, conn, 400));
}

#[test]
fn a_greedy_client_leaves_room_to_others_of_its_device() {
    // The device's share is less than what one client may have in progress.
    let (mut harness, greedy) = with_a_stuck_device(1);
    let modest = harness.connect();
    harness.send(modest, &client::negotiate("stuck", true));
    harness.take(modest);
    harness.send(modest, &requests(0..2));
    for turn in 0..64 + 4 {
        let more = requests(400 + turn..401 + turn);
        harness.send(greedy[0], &more);
        harness.complete_one(0);
    }
    answered(&mut harness, modest, 2);
    harness.complete_all();
}

/// In the least memory that a worker has.
#[test]
fn many_devices_without_a_path_leave_memory_to_each_other_one() {
    for stuck in [8, 31, 100, 250] {
        let names: Vec<String> = (1..=stuck + 1).map(|head| format!("nvme0n{head}")).collect();
        let exports = names.iter().map(|name| export(name, name)).collect();
        let mut harness = Harness::new(NbdConfig { listen: None, exports }, 64 * MIB as u64);
        names.iter().for_each(|name| harness.host.add_disk(name, MIB, 512));
        harness.complete_at_once = false;
        let open = |harness: &mut Harness, name: &str| {
            let conn = harness.connect();
            harness.send(conn, &client::negotiate(name, true));
            harness.take(conn);
            conn
        };
        for name in &names[..stuck] {
            let conn = open(&mut harness, name);
            for cookie in 0..8 {
                harness.send(conn, &client::write(0, cookie, 0, &[1; MIB]));
            }
        }
        let conn = open(&mut harness, &names[stuck]);
        let mut stream = client::write(0, 1, 0, &[7; 64 << 10]);
        stream.extend(client::request(command::READ, 0, 2, 0, MIB as u32));
        harness.send(conn, &stream);
        while let Some(first) = harness.host.first_of(HeadId(stuck as u32)) {
            harness.complete_one(first);
        }
        let received = harness.take(conn);
        let (answers, rest) = client::answers(&received, &BTreeMap::from([(2, MIB as u32)]));
        assert!(rest.is_empty() && answers.len() == 2, "{stuck}: {} answers", answers.len());
    }
}

#[test]
fn a_device_without_a_path_leaves_memory_to_the_others() {
    let exports = vec![export("stuck", "nvme0n1"), export("disk", "nvme0n2")];
    let pool_bytes = 64 * MIB as u64;
    let mut harness = Harness::new(NbdConfig { listen: None, exports }, pool_bytes);
    harness.host.add_disk("nvme0n1", 16 * MIB, 512);
    harness.host.add_disk("nvme0n2", 16 * MIB, 512);
    harness.complete_at_once = false;
    let stuck = [0; 8].map(|_| harness.connect());
    for (reads, &conn) in stuck.iter().enumerate() {
        harness.send(conn, &client::negotiate("stuck", true));
        harness.take(conn);
        for cookie in 0..20 {
            // Half of them write.
            let request = match reads % 2 {
                0 => client::request(command::READ, 0, cookie, 0, MIB as u32),
                _ => client::write(0, cookie, 0, &[1; MIB]),
            };
            harness.send(conn, &request);
        }
        assert!(harness.is_paused(conn));
    }
    let held = harness.pool.in_use_bytes();
    assert!(held >= pool_bytes / 4, "it is used: {held}");
    assert_eq!(harness.nbd.poll_timeout(), None, "they are woken and do not look");
    // Another device's clients work as ever, as much as they like at once.
    let conn = open(&mut harness, true);
    let mut stream = client::write(0, 1, 0, &[7; 8 * MIB]);
    stream.extend(client::request(command::READ, 0, 2, 0, 8 * MIB as u32));
    harness.send(conn, &stream);
    while let Some(first) = harness.host.first_of(HeadId(1)) {
        harness.complete_one(first);
    }
    let received = harness.take(conn);
    let (answers, rest) = client::answers(&received, &BTreeMap::from([(2, 8 * MIB as u32)]));
    assert!(rest.is_empty() && answers.len() == 2, "{}", answers.len());
    assert!(harness.pool.in_use_bytes() >= held, "the others still hold theirs");
    // The path is back.
    harness.complete_all();
    for (reads, conn) in stuck.into_iter().enumerate() {
        let bytes = if reads % 2 == 0 { MIB as u32 } else { 0 };
        let received = harness.take(conn);
        let reads = (0..20).map(|cookie| (cookie, bytes)).collect();
        let (answers, rest) = client::answers(&received, &reads);
        assert!(rest.is_empty());
        assert_eq!(answers.len(), 20);
        harness.disconnect(conn);
    }
    harness.disconnect(conn);
    harness.check_empty();
}

/// Reads and writes more than a piece.
fn is_served(harness: &mut Harness, structured: bool) {
    let conn = open(harness, structured);
    let mut stream = client::write(0, 1, 0, &[7; 4 * MIB]);
    stream.extend(client::request(command::READ, 0, 2, 0, 4 * MIB as u32));
    harness.send(conn, &stream);
    let received = harness.take(conn);
    let (answers, rest) = client::answers(&received, &BTreeMap::from([(2, 4 * MIB as u32)]));
    assert!(rest.is_empty() && answers.len() == 2, "{}", answers.len());
    assert!(answers.values().all(|answer| answer.done && answer.errno == 0));
    harness.disconnect(conn);
}

#[test]
fn clients_that_do_not_read_leave_memory_to_the_others_of_their_device() {
    for (structured, clients) in [(false, 8), (true, 8), (true, 120)] {
        let mut harness = large_server();
        harness.late = false;
        let greedy = (0..clients).map(|_| open(&mut harness, structured)).collect::<Vec<_>>();
        harness.hold_transmissions = true;
        let reads = |cookie| client::request(command::READ, 0, cookie, 0, MIB as u32);
        let stream = (0..20).flat_map(reads).collect::<Vec<_>>();
        greedy.iter().for_each(|&conn| harness.send(conn, &stream));
        let held = harness.pool.in_use_bytes();
        assert!(held >= 80 << 20, "it is used: {held}");
        // What was being sent stays so; who comes now is served.
        harness.hold_transmissions = false;
        is_served(&mut harness, structured);
        is_served(&mut harness, !structured);
        for &conn in &greedy {
            harness.disconnect(conn);
        }
        harness.check_empty();
    }
}

/// A client with sixteen requests open keeps sixteen open.
#[test]
fn small_requests_go_at_once_however_little_is_left() {
    let mut harness = large_server();
    harness.late = false;
    let greedy = (0..120).map(|_| open(&mut harness, true)).collect::<Vec<_>>();
    harness.hold_transmissions = true;
    let reads = |cookie| client::request(command::READ, 0, cookie, 0, MIB as u32);
    let stream = (0..20).flat_map(reads).collect::<Vec<_>>();
    greedy.iter().for_each(|&conn| harness.send(conn, &stream));
    harness.hold_transmissions = false;
    harness.complete_at_once = false;
    let conn = open(&mut harness, true);
    let small = |cookie| client::request(command::READ, 0, cookie, cookie * 4096, 4096);
    harness.send(conn, &(0..20).flat_map(small).collect::<Vec<_>>());
    assert_eq!(harness.host.pending(), 16, "as many as the shortest piece has room for");
    while harness.host.pending() > 0 {
        harness.complete_all();
    }
    let received = harness.take(conn);
    let asked = (0..20).map(|cookie| (cookie, 4096)).collect();
    assert_eq!(client::answers(&received, &asked).0.len(), 20);
    for conn in greedy.into_iter().chain([conn]) {
        harness.disconnect(conn);
    }
    harness.check_empty();
}

#[test]
fn writes_that_are_left_half_sent_leave_memory_to_the_others_of_the_device() {
    let mut harness = large_server();
    let write = client::write(0, 1, 0, &[7; MIB]);
    let silent = (0..MAX_CONNECTIONS - 1).map(|_| open(&mut harness, true)).collect::<Vec<_>>();
    for &conn in &silent {
        harness.send(conn, &write[..100]);
        assert!(!harness.is_paused(conn), "each may go on");
    }
    is_served(&mut harness, true);
    is_served(&mut harness, false);
    // They go on after all.
    for &conn in &silent {
        harness.send(conn, &write[100..]);
    }
    for &conn in &silent {
        let received = harness.take(conn);
        assert_eq!(client::answers(&received, &BTreeMap::new()).0.len(), 1);
        harness.disconnect(conn);
    }
    harness.check_empty();
}

#[test]
fn a_read_in_one_chunk_is_never_cut_however_little_is_left() {
    let mut harness = large_server();
    let write = client::write(0, 1, 0, &[7; MIB]);
    let silent = (0..150).map(|_| open(&mut harness, true)).collect::<Vec<_>>();
    silent.iter().for_each(|&conn| harness.send(conn, &write[..100]));
    let conn = open(&mut harness, true);
    let whole = client::request(command::READ, command_flag::DF, 77, 0, MIB as u32);
    harness.send(conn, &whole);
    assert!(harness.take(conn).is_empty(), "it waits");
    silent.iter().for_each(|&conn| harness.disconnect(conn));
    let answer = support::one_answer(&mut harness, conn, MIB as u32);
    assert_eq!((answer.errno, answer.parts), (0, 1));
}

/// Half of an odd number of blocks is none: shorter pieces are whole blocks, too.
#[test]
fn a_request_of_an_odd_length_is_cut_into_whole_blocks() {
    let mut harness = large_server();
    let write = client::write(0, 1, 0, &[7; MIB]);
    // They leave room for half of a piece.
    let silent = (0..96).map(|_| open(&mut harness, true)).collect::<Vec<_>>();
    silent.iter().for_each(|&conn| harness.send(conn, &write[..100]));
    let conn = open(&mut harness, true);
    let bytes = MIB - 512;
    let answer = ask(&mut harness, conn, command::READ, 0, 512, bytes as u32);
    assert_eq!((answer.errno, answer.parts), (0, 3), "{}", answer.text);
    assert!(answer.bytes() == harness.host.disk(0)[512..512 + bytes]);
}

/// Zeroes that the device has refused need memory, which comes back when the payload that is on its
/// way has been written.
#[test]
fn zeroes_that_wait_for_memory_do_not_keep_a_payload_from_coming_in() {
    let mut harness = large_server();
    harness.complete_at_once = false;
    harness.host.unable = Some(IoError::Status(Status::COMMAND_SIZE_LIMIT_EXCEEDED));
    let conn = open(&mut harness, true);
    let write = client::write(0, 2, 0, &[7; MIB]);
    harness.send(conn, &client::request(command::WRITE_ZEROES, 0, 1, MIB as u64, MIB as u32));
    harness.send(conn, &write[..MIB / 2]);
    let silent = (0..150).map(|_| open(&mut harness, true)).collect::<Vec<_>>();
    silent.iter().for_each(|&other| harness.send(other, &write[..100]));
    harness.complete_all();
    harness.send(conn, &write[MIB / 2..]);
    harness.complete_all();
    let received = harness.take(conn);
    let (answers, _) = client::answers(&received, &BTreeMap::new());
    assert_eq!(answers.keys().copied().collect::<Vec<_>>(), [1, 2]);
    assert!(answers.values().all(|answer| answer.errno == 0 && answer.done));
}

#[test]
fn who_waits_for_room_is_woken_and_does_not_look_every_few_milliseconds() {
    let (mut harness, stuck) = with_a_stuck_device(1);
    assert_eq!(harness.nbd.poll_timeout(), None);
    harness.complete_all();
    answered(&mut harness, stuck[0], 400);
    // Room that somebody else made.
    let (mut harness, stuck) = with_a_stuck_device(2);
    harness.host.share = 1000;
    harness.room_made();
    assert!(harness.host.pending_of(HeadId(0)) > 64);
    harness.complete_all();
    stuck.into_iter().for_each(|conn| answered(&mut harness, conn, 400));
}

#[test]
fn memory_that_others_hold_is_asked_for_again_after_a_while() {
    let mut harness = scarce(MIB as u64, 1000);
    let conn = open(&mut harness, true);
    let taken = harness.pool.filled(&vec![0; MIB]);
    harness.send(conn, &client::request(command::READ, 0, 77, 0, 4096));
    assert!(harness.is_paused(conn));
    harness.pass(RETRY_DELAY);
    assert!(harness.take(conn).is_empty());
    anabranch_proto::machine::Buffers::free(&mut harness.pool, taken);
    harness.pass(RETRY_DELAY);
    assert_eq!(support::one_answer(&mut harness, conn, 4096).errno, 0);
    assert!(!harness.is_paused(conn));
}

#[test]
fn a_client_that_vanishes_leaves_nothing_behind() {
    let write = client::write(0, 5, 0, &vec![1; 5 * MIB]);
    let cuts = [10, 28, 29, 28 + 4096, 28 + MIB, 29 + MIB, 28 + 3 * MIB, write.len()];
    for cut in cuts {
        for aims in [false, true] {
            for complete_before in [0, 1, 2, 10] {
                let mut harness = large_server();
                harness.aims = aims;
                harness.complete_at_once = false;
                let conn = open(&mut harness, true);
                let mut stream = client::request(command::READ, 0, 1, 0, 8 << 20);
                stream.extend(client::request(command::READ, 0, 2, 0, 4096));
                stream.extend_from_slice(&write[..cut]);
                harness.send(conn, &stream);
                for _ in 0..complete_before {
                    harness.complete_one(usize::MAX);
                }
                harness.disconnect(conn);
                let in_flight = harness.host.pending();
                assert_eq!(harness.nbd.clients(), usize::from(in_flight > 0));
                harness.complete_all();
                harness.check_empty();
                assert!(harness.take(conn).len() < 20 << 20);
            }
        }
    }
}

/// It may be back at once and ask again: what it was not answered must not be sent behind that.
#[test]
fn what_a_client_that_vanishes_was_not_answered_is_withdrawn() {
    let mut harness = server();
    harness.complete_at_once = false;
    let [gone, other] = [0; 2].map(|_| open(&mut harness, true));
    for (conn, block) in [(gone, 0), (other, 8), (gone, 16), (gone, 24)] {
        harness.send(conn, &client::write(0, block, block * 512, &[7; 4096]));
    }
    harness.complete_one(0);
    let tags: Vec<u64> = harness.host.tags().collect();
    harness.disconnect(gone);
    assert_eq!(harness.host.withdrawn, tags[1..]);
    harness.complete_all();
    harness.disconnect(other);
    assert_eq!(harness.host.withdrawn.len(), 2, "all of that one's had ended");
    harness.check_empty();
}

/// As long as its requests wait for a path nothing is sent to it, either: who is not read would
/// seem to be there for ever, and what it asked for would be sent behind what it asks for anew.
#[test]
fn a_client_that_vanishes_while_it_is_held_up_is_heard_of() {
    let mut harness = server();
    harness.complete_at_once = false;
    let conn = open(&mut harness, true);
    for block in 0..MAX_REQUESTS as u64 + 1 {
        harness.send(conn, &client::write(0, block, 0, &[7; 512]));
    }
    assert!(harness.is_paused(conn) && harness.is_watched(conn));
    let tags: Vec<u64> = harness.host.tags().collect();
    harness.disconnect(conn);
    assert_eq!(harness.host.withdrawn, tags);
    harness.complete_all();
    harness.check_empty();
}

/// It need not wait for the answers.
#[test]
fn a_client_that_has_said_good_bye_is_not_watched() {
    let mut harness = server();
    harness.complete_at_once = false;
    let conn = open(&mut harness, true);
    let mut stream = client::write(0, 1, 0, &[7; 4096]);
    stream.extend(client::request(command::DISC, 0, 2, 0, 0));
    harness.send(conn, &stream);
    assert!(harness.is_paused(conn) && !harness.is_watched(conn));
    harness.complete_all();
    assert!(!harness.is_connected(conn));
    harness.check_empty();
}

/// Its table may be full, and more wait before that.
#[test]
fn a_good_bye_is_heard_where_nothing_else_has_room() {
    for more in [0, 1, 3] {
        let mut harness = server();
        harness.complete_at_once = false;
        let conn = open(&mut harness, true);
        let all = MAX_REQUESTS as u64 + more;
        for block in 0..all {
            harness.send(conn, &client::write(0, block, 512 * block, &[7; 512]));
        }
        harness.send(conn, &client::request(command::DISC, 0, all, 0, 0));
        assert!(harness.is_paused(conn), "{more}");
        assert_eq!(
            harness.is_watched(conn),
            more > 0,
            "{more}: what stands before it is looked at"
        );
        // Room for what stands before it, not for more.
        for _ in 0..more {
            harness.complete_one(0);
            harness.release_transmissions();
        }
        assert!(harness.is_paused(conn) && !harness.is_watched(conn), "{more}");
        harness.complete_all();
        assert!(!harness.is_connected(conn));
        let received = harness.take(conn);
        let (answers, _) = client::answers(&received, &BTreeMap::new());
        assert_eq!(answers.len() as u64, all, "{more}: not one request is lost");
        harness.check_empty();
    }
}

#[test]
fn a_client_that_says_good_bye_has_its_requests_finished() {
    let mut harness = server();
    harness.complete_at_once = false;
    let conn = open(&mut harness, true);
    let mut stream = client::write(0, 1, 0, &[7; 4096]);
    stream.extend(client::request(command::FLUSH, 0, 2, 0, 0));
    stream.extend(client::request(command::DISC, 0, 3, 0, 0));
    stream.extend(client::request(command::WRITE, 0, 4, 0, 4096));
    harness.send(conn, &stream);
    assert!(harness.is_connected(conn));
    assert_eq!(harness.host.pending(), 2);
    harness.complete_all();
    assert!(!harness.is_connected(conn));
    let received = harness.take(conn);
    let (answers, _) = client::answers(&received, &BTreeMap::new());
    assert_eq!(answers.keys().copied().collect::<Vec<_>>(), [1, 2]);
    harness.check_empty();
}

#[test]
fn an_orderly_end_that_takes_too_long_is_cut_off() {
    let mut harness = server();
    harness.complete_at_once = false;
    let conn = open(&mut harness, true);
    let mut stream = client::write(0, 1, 0, &[7; 4096]);
    stream.extend(client::request(command::DISC, 0, 3, 0, 0));
    harness.send(conn, &stream);
    harness.pass(CLOSE_TIMEOUT);
    assert!(!harness.is_connected(conn));
    assert_eq!(harness.nbd.clients(), 1, "its write is still in flight");
    harness.complete_all();
    harness.check_empty();
}

/// Clients that connect and say nothing keep nobody out; who is served is not put out.
#[test]
fn who_does_not_negotiate_makes_room() {
    let mut harness = server();
    let served: Vec<_> = (0..MAX_CONNECTIONS / 2).map(|_| open(&mut harness, true)).collect();
    let silent: Vec<_> = (served.len()..MAX_CONNECTIONS).map(|_| harness.connect()).collect();
    let one_more = harness.connect();
    assert!(!harness.is_connected(one_more), "they may just be about to negotiate");
    assert!(harness.events.iter().any(|event| matches!(event, NbdEvent::Crowded { .. })));
    harness.events.clear();
    harness.pass(NEGOTIATION_TIME);
    for oldest in &silent[..10] {
        assert!(harness.is_connected(*oldest));
        let conn = open(&mut harness, true);
        assert!(!harness.is_connected(*oldest));
        assert_eq!(ask(&mut harness, conn, command::READ, 0, 0, 512).errno, 0);
    }
    assert!(served.iter().chain(&silent[10..]).all(|conn| harness.is_connected(*conn)));
    assert!(!harness.events.iter().any(|event| matches!(event, NbdEvent::Crowded { .. })));
}

#[test]
fn one_address_does_not_take_all_places() {
    let mut harness = server();
    let share = MAX_CONNECTIONS * ADDRESS_SHARE.0 / ADDRESS_SHARE.1;
    let mut connect = |address: [u8; 4], port| {
        let peer = Peer::Address((address, port).into());
        let conn = harness.connect_as(ListenerId(0), Some(peer));
        harness.send(conn, &client::negotiate("disk", true));
        harness.is_connected(conn)
    };
    let greedy = (0..MAX_CONNECTIONS as u16).filter(|port| connect([10, 0, 0, 1], *port)).count();
    assert_eq!(greedy, share);
    let others = (0..MAX_CONNECTIONS as u16).filter(|port| connect([10, 0, 0, 2], *port)).count();
    assert_eq!(others, MAX_CONNECTIONS - share);
    let text = harness.events.iter().map(|event| event.to_string());
    let told = |what: &str| text.clone().any(|text| text.contains(what));
    assert!(told(&format!("has {share} clients from 10.0.0.1, another one was turned away")));
    assert!(told(&format!("has {MAX_CONNECTIONS} clients, another one was turned away")));
}

/// Whoever has one IPv6 address has 2^64 of them.
#[test]
fn one_ipv6_network_does_not_take_all_places() {
    let mut harness = server();
    let mut connect = |address: [u16; 8]| {
        let peer = Peer::Address((address, 5000).into());
        let conn = harness.connect_as(ListenerId(0), Some(peer));
        harness.send(conn, &client::negotiate("disk", true));
        harness.is_connected(conn)
    };
    let share = MAX_CONNECTIONS * ADDRESS_SHARE.0 / ADDRESS_SHARE.1;
    let all = 0..MAX_CONNECTIONS as u16;
    let greedy = all.filter(|host| connect([0x2001, 0xdb8, 0, 1, 0, 0, 0, *host])).count();
    assert_eq!(greedy, share);
    assert!(connect([0x2001, 0xdb8, 0, 2, 0, 0, 0, 1]), "another one has its places");
    let why = format!("has {share} clients from 2001:db8:0:1::/64, another one was turned away");
    assert!(harness.events.iter().any(|event| event.to_string().contains(&why)));
}

#[test]
fn too_many_clients_are_turned_away() {
    let mut harness = server();
    let conns: Vec<_> = (0..MAX_CONNECTIONS).map(|_| open(&mut harness, true)).collect();
    let one_more = harness.connect();
    assert!(!harness.is_connected(one_more));
    assert!(harness.events.iter().any(|event| matches!(event, NbdEvent::Crowded { .. })));
    harness.disconnect(conns[0]);
    let conn = open(&mut harness, true);
    assert_eq!(ask(&mut harness, conn, command::READ, 0, 0, 512).errno, 0);
}
