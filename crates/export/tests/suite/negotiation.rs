//! Option haggling: what is answered, what ends the connection, and that nothing depends on how the
//! bytes are cut.

use crate::support;

use crate::support::{DISK_BYTES, export, server};
use anabranch_export::fuzz::Harness;
use anabranch_export::fuzz::client::{self, OptionReply};
use anabranch_export::nbd::wire::{export_flag, info, option, option_reply};
use anabranch_export::nbd::{
    Export, HANDSHAKE_TIMEOUT, MAX_EXPORTS, MAX_OPTION_BYTES, MAX_OPTIONS, NbdConfig, NbdEvent,
    NbdMail,
};
use anabranch_proto::machine::{Input, ListenerId, WorkerId};
use std::sync::Arc;

/// An option that is not supported.
const LIST_META_CONTEXT: u32 = 9;

/// The replies to some options sent after the client's flags.
fn haggle(harness: &mut Harness, options: &[Vec<u8>]) -> (Vec<OptionReply>, bool) {
    let conn = harness.connect();
    let mut bytes = client::flags();
    options.iter().for_each(|option| bytes.extend_from_slice(option));
    harness.send(conn, &bytes);
    let received = harness.take(conn);
    let (replies, rest) = client::negotiation(&received);
    assert!(rest.is_empty());
    let connected = harness.is_connected(conn);
    harness.disconnect(conn);
    harness.check_empty();
    (replies, connected)
}

fn kinds(replies: &[OptionReply]) -> Vec<u32> {
    replies.iter().map(|reply| reply.kind).collect()
}

#[test]
fn go_tells_size_flags_and_block_sizes() {
    let mut harness = server();
    let wishes = [info::NAME, info::DESCRIPTION, info::BLOCK_SIZE];
    let options = [
        client::option(option::STRUCTURED_REPLY, &[]),
        client::option(option::GO, &client::info("disk", &wishes)),
    ];
    let (replies, connected) = haggle(&mut harness, &options);
    assert!(connected);
    let ack = option_reply::ACK;
    let told = option_reply::INFO;
    assert_eq!(kinds(&replies), [ack, told, told, told, told, ack]);
    let flags = export_flag::HAS_FLAGS
        | export_flag::SEND_FLUSH
        | export_flag::SEND_FUA
        | export_flag::SEND_TRIM
        | export_flag::SEND_WRITE_ZEROES
        | export_flag::SEND_DF
        | export_flag::CAN_MULTI_CONN;
    let size = [&[0, 0][..], &DISK_BYTES.to_be_bytes(), &flags.to_be_bytes()].concat();
    assert_eq!(replies[1].payload, size);
    let sizes = [512_u32, 4096, 32 << 20].map(u32::to_be_bytes).concat();
    assert_eq!(replies[2].payload, [&[0, 3][..], &sizes].concat());
    assert_eq!(replies[3].payload, b"\0\x01disk");
    assert_eq!(replies[4].payload, b"\0\x02the disk nvme0n1");
    assert_eq!(harness.events.len(), 2, "opened, left: {:?}", harness.events);
}

#[test]
fn flags_follow_the_device() {
    let mut harness = server();
    harness.host.change_head(0, |head| {
        head.limits.max_discard_blocks = 0;
        head.limits.max_write_zeroes_blocks = 0;
    });
    let flags_of = |harness: &mut Harness| {
        let go = client::option(option::GO, &client::info("disk", &[]));
        let (replies, _) = haggle(harness, &[go]);
        u16::from_be_bytes(*replies[0].payload.last_chunk().expect("flags"))
    };
    let flags = flags_of(&mut harness);
    assert_eq!(flags & (export_flag::SEND_TRIM | export_flag::SEND_WRITE_ZEROES), 0);
    assert_eq!(flags & export_flag::SEND_DF, 0, "only with structured replies");
    assert_eq!(flags & export_flag::READ_ONLY, 0);
    harness.host.change_head(0, |head| head.limits.read_only = true);
    assert_ne!(flags_of(&mut harness) & export_flag::READ_ONLY, 0);
}

#[test]
fn a_read_only_export_announces_that_and_nothing_that_changes_the_device() {
    let exports = vec![Export { read_only: true, ..export("disk", "nvme0n1") }];
    let mut harness = Harness::new(NbdConfig { listen: None, exports }, 1 << 20);
    harness.host.add_disk("nvme0n1", 1 << 20, 512);
    let go = client::option(option::GO, &client::info("disk", &[]));
    let (replies, _) = haggle(&mut harness, &[go]);
    let flags = u16::from_be_bytes(*replies[0].payload.last_chunk().expect("flags"));
    assert_ne!(flags & export_flag::READ_ONLY, 0);
    assert_eq!(flags & (export_flag::SEND_TRIM | export_flag::SEND_WRITE_ZEROES), 0);
}

#[test]
fn a_4096_byte_device_announces_its_blocks() {
    let config = NbdConfig { listen: None, exports: vec![export("disk", "nvme0n1")] };
    let mut harness = Harness::new(config, 1 << 20);
    harness.host.add_disk("nvme0n1", 1 << 20, 4096);
    let go = client::option(option::INFO, &client::info("disk", &[info::BLOCK_SIZE]));
    let (replies, _) = haggle(&mut harness, &[go]);
    let sizes = [4096_u32, 4096, 32 << 20].map(u32::to_be_bytes).concat();
    assert_eq!(replies[1].payload, [&[0, 3][..], &sizes].concat());
}

#[test]
fn the_old_way_to_take_an_export() {
    for (flags, zeroes) in [(1_u32, 124), (3, 0)] {
        let mut harness = server();
        let conn = harness.connect();
        let mut bytes = flags.to_be_bytes().to_vec();
        bytes.extend(client::option(option::EXPORT_NAME, b"disk"));
        harness.send(conn, &bytes);
        let received = harness.take(conn);
        let (replies, rest) = client::negotiation(&received);
        assert!(replies.is_empty());
        assert_eq!(rest.len(), 8 + 2 + zeroes);
        assert_eq!(rest[..8], DISK_BYTES.to_be_bytes());
        assert!(rest[10..].iter().all(|&byte| byte == 0));
        assert!(harness.is_connected(conn));
    }
}

#[test]
fn the_only_export_is_the_default_one() {
    let open = |exports: &[&str], name: &str| {
        let exports = exports.iter().map(|name| export(name, "nvme0n1")).collect();
        let mut harness = Harness::new(NbdConfig { listen: None, exports }, 1 << 20);
        harness.host.add_disk("nvme0n1", 1 << 20, 512);
        let go = client::option(option::GO, &client::info(name, &[]));
        kinds(&haggle(&mut harness, &[go]).0).last() == Some(&option_reply::ACK)
    };
    assert!(open(&["disk"], ""));
    assert!(open(&["", "other"], ""));
    assert!(!open(&["disk", "other"], ""));
    assert!(!open(&[], ""));
}

#[test]
fn an_export_may_be_of_a_world_wide_identifier() {
    let exports = vec![export("a", "uuid.OF-nvme0n2"), export("b", "uuid.of-nvme9n9")];
    let mut harness = Harness::new(NbdConfig { listen: None, exports }, 1 << 20);
    for (name, bytes) in [("nvme0n1", 1 << 20), ("nvme0n2", 2 << 20), ("nvme0n3", 1 << 20)] {
        harness.host.add_disk(name, bytes, 512);
    }
    let mut open = |name: &str| {
        let go = client::option(option::GO, &client::info(name, &[]));
        haggle(&mut harness, &[go]).0
    };
    let replies = open("a");
    assert_eq!(kinds(&replies).last(), Some(&option_reply::ACK));
    let size = [&[0, 0][..], &(2_u64 << 20).to_be_bytes()].concat();
    assert!(replies.iter().any(|reply| reply.payload.starts_with(&size)), "{replies:?}");
    assert_ne!(kinds(&open("b")).last(), Some(&option_reply::ACK));
    // Two that call themselves so: neither is meant.
    harness.host.change_head(0, |head| head.wwid = "uuid.of-nvme0n2".into());
    let mut open = |name: &str| {
        let go = client::option(option::GO, &client::info(name, &[]));
        haggle(&mut harness, &[go]).0
    };
    assert_ne!(kinds(&open("a")).last(), Some(&option_reply::ACK));
}

#[test]
fn list_names_what_is_there() {
    let exports = vec![export("a", "nvme0n1"), export("b", "nvme9n9"), export("c", "nvme0n1")];
    let mut harness = Harness::new(NbdConfig { listen: None, exports }, 1 << 20);
    harness.host.add_disk("nvme0n1", 1 << 20, 512);
    let (replies, connected) = haggle(&mut harness, &[client::option(option::LIST, &[])]);
    assert!(connected);
    assert_eq!(
        kinds(&replies),
        [option_reply::SERVER, option_reply::SERVER, option_reply::ACK],
        "an export without its device is not listed"
    );
    assert_eq!(replies[0].payload, b"\0\0\0\x01athe disk nvme0n1");
    // Nor is anything told about it.
    let about = client::option(option::INFO, &client::info("b", &[]));
    assert_eq!(kinds(&haggle(&mut harness, &[about]).0), [option_reply::ERR_UNKNOWN]);
}

/// One alone needs no name. Whoever leaves it out where there are several is told so.
#[test]
fn who_names_no_export_of_several_is_told_that_there_are_several() {
    let refused_of = |names: &[&str]| {
        let exports = names.iter().map(|name| export(name, "nvme0n1")).collect();
        let mut harness = Harness::new(NbdConfig { listen: None, exports }, 1 << 20);
        harness.host.add_disk("nvme0n1", 1 << 20, 512);
        let ask = client::option(option::GO, &client::info("", &[]));
        let (replies, _) = haggle(&mut harness, &[ask]);
        let last = replies.last().expect("an answer");
        (last.kind, String::from_utf8_lossy(&last.payload).into_owned())
    };
    assert_eq!(refused_of(&["a"]).0, option_reply::ACK);
    let (kind, text) = refused_of(&["a", "b"]);
    assert_eq!(kind, option_reply::ERR_UNKNOWN);
    assert!(text.contains("several exports"), "{text}");
}

/// `qemu-nbd --list` and `nbdinfo --list` ask about each export on one connection: for information,
/// then for metadata contexts of one kind and another.
#[test]
fn a_client_may_list_all_exports_and_ask_about_each() {
    let names: Vec<String> = (0..MAX_EXPORTS).map(|at| format!("disk {at}")).collect();
    let exports = names.iter().map(|name| export(name, "nvme0n1")).collect();
    let mut harness = Harness::new(NbdConfig { listen: None, exports }, 1 << 20);
    harness.host.add_disk("nvme0n1", 1 << 20, 512);
    let conn = harness.connect();
    harness.send(conn, &client::flags());
    let mut received = Vec::new();
    let mut ask = |option: &[u8]| {
        harness.send(conn, option);
        received.extend(harness.take(conn));
    };
    ask(&client::option(option::LIST, &[]));
    for name in &names {
        ask(&client::option(option::INFO, &client::info(name, &[info::BLOCK_SIZE])));
        let query = [&(name.len() as u32).to_be_bytes()[..], name.as_bytes(), &[0; 4]].concat();
        (0..3).for_each(|_| ask(&client::option(LIST_META_CONTEXT, &query)));
    }
    ask(&client::option(option::GO, &client::info(&names[MAX_EXPORTS - 1], &[])));
    let (replies, _) = client::negotiation(&received);
    let informed = replies.iter().filter(|it| it.kind == option_reply::ACK).count();
    assert_eq!(informed, MAX_EXPORTS + 2, "the list, each export, and the one that was taken");
    assert!(harness.is_connected(conn));
}

/// A data worker of which two listeners' clients are offered different disks.
fn two_addresses() -> (Harness, [ListenerId; 2]) {
    let [private, public] = [3, 4].map(ListenerId);
    let config = NbdConfig { listen: None, exports: Vec::new() };
    let mut harness = Harness::new(config, 1 << 20);
    for device in ["nvme0n1", "nvme1n1", "nvme2n1"] {
        harness.host.add_disk(device, 1 << 20, 512);
    }
    let exports = [(private, "secret", "nvme0n1"), (public, "a", "nvme1n1")];
    offer(&mut harness, 1, &exports);
    (harness, [private, public])
}

fn offer(harness: &mut Harness, epoch: u64, exports: &[(ListenerId, &str, &str)]) {
    let exports = exports.iter().map(|&(at, name, device)| (at, export(name, device)));
    let mail = NbdMail::Offer { epoch, exports: Arc::new(exports.collect()) };
    harness.input(Input::Mail { from: WorkerId(0), mail });
}

fn haggle_at(harness: &mut Harness, at: ListenerId, option: &[u8]) -> Vec<OptionReply> {
    let conn = harness.connect_at(at);
    harness.send(conn, &[client::flags(), option.to_vec()].concat());
    client::negotiation(&harness.take(conn)).0
}

#[test]
fn an_address_offers_what_was_given_that_address_and_nothing_else() {
    let (mut harness, [private, public]) = two_addresses();
    for (at, name, other) in [(private, "secret", "a"), (public, "a", "secret")] {
        let listed = haggle_at(&mut harness, at, &client::option(option::LIST, &[]));
        assert_eq!(kinds(&listed), [option_reply::SERVER, option_reply::ACK]);
        assert_eq!(listed[0].payload[4..4 + name.len()], *name.as_bytes());
        for option in [option::GO, option::INFO] {
            let ask = |name| client::option(option, &client::info(name, &[]));
            let refused = haggle_at(&mut harness, at, &ask(other));
            assert_eq!(kinds(&refused), [option_reply::ERR_UNKNOWN], "{other} is elsewhere");
            let opened = haggle_at(&mut harness, at, &ask(name));
            assert_eq!(kinds(&opened).last(), Some(&option_reply::ACK));
        }
        let conn = harness.connect_at(at);
        let old = client::option(option::EXPORT_NAME, other.as_bytes());
        harness.send(conn, &[client::flags(), old].concat());
        assert!(!harness.is_connected(conn), "the old way has no other refusal");
    }
}

#[test]
fn the_only_export_of_an_address_is_its_default_one() {
    let (mut harness, [private, public]) = two_addresses();
    let go = client::option(option::GO, &client::info("", &[info::NAME]));
    let name_of = |replies: &[OptionReply]| {
        let told = |reply: &&OptionReply| reply.payload.starts_with(&[0, 1]);
        replies.iter().find(told).map(|reply| reply.payload[2..].to_vec())
    };
    let default = |harness: &mut Harness, at| name_of(&haggle_at(harness, at, &go));
    assert_eq!(default(&mut harness, private).as_deref(), Some(&b"secret"[..]));
    assert_eq!(default(&mut harness, public).as_deref(), Some(&b"a"[..]));
    let three =
        [(private, "secret", "nvme0n1"), (public, "a", "nvme1n1"), (public, "b", "nvme2n1")];
    offer(&mut harness, 2, &three);
    assert_eq!(default(&mut harness, private).as_deref(), Some(&b"secret"[..]));
    assert_eq!(default(&mut harness, public), None, "which of the two?");
}

/// Whoever opened an export where it was offered loses it when it moves to another address.
#[test]
fn an_export_that_moves_leaves_the_clients_of_its_old_address() {
    let (mut harness, [private, public]) = two_addresses();
    let conn = harness.connect_at(public);
    harness.send(conn, &client::negotiate("a", true));
    assert!(harness.is_connected(conn));
    offer(&mut harness, 2, &[(private, "secret", "nvme0n1"), (public, "a", "nvme1n1")]);
    assert!(harness.is_connected(conn), "nothing has changed");
    offer(&mut harness, 3, &[(private, "secret", "nvme0n1"), (private, "a", "nvme1n1")]);
    assert!(!harness.is_connected(conn));
}

/// An option whose payload is more than is kept.
fn too_long(option: u32) -> Vec<u8> {
    client::option(option, &vec![0; MAX_OPTION_BYTES as usize + 1])
}

#[test]
fn refused_options_leave_the_negotiation_going() {
    let table: &[(&str, Vec<u8>, u32)] = &[
        ("TLS", client::option(option::STARTTLS, &[]), option_reply::ERR_UNSUP),
        ("unknown", client::option(99, b"whatever"), option_reply::ERR_UNSUP),
        ("meta context", client::option(10, &[0; 30]), option_reply::ERR_UNSUP),
        ("extended headers", client::option(11, &[]), option_reply::ERR_UNSUP),
        ("list with payload", client::option(option::LIST, b"x"), option_reply::ERR_INVALID),
        (
            "structured with payload",
            client::option(option::STRUCTURED_REPLY, b"x"),
            option_reply::ERR_INVALID,
        ),
        ("empty info", client::option(option::INFO, &[]), option_reply::ERR_INVALID),
        (
            "name longer than the option",
            client::option(option::GO, &[0xff, 0xff, 0xff, 0xff, 0, 0]),
            option_reply::ERR_INVALID,
        ),
        (
            "more wishes than there are",
            client::option(option::GO, b"\0\0\0\x04disk\0\x02\0\x03"),
            option_reply::ERR_INVALID,
        ),
        (
            "bytes behind the wishes",
            client::option(option::GO, b"\0\0\0\x04disk\0\0\0"),
            option_reply::ERR_INVALID,
        ),
        (
            "unknown name",
            client::option(option::GO, &client::info("nope", &[])),
            option_reply::ERR_UNKNOWN,
        ),
        (
            "name that is no text",
            client::option(option::GO, b"\0\0\0\x02\xff\xfe\0\0"),
            option_reply::ERR_UNKNOWN,
        ),
        ("too long", too_long(option::GO), option_reply::ERR_TOO_BIG),
        // "Servers that receive messages which they do not implement MUST reply to them with
        // NBD_REP_ERR_UNSUP", however long.
        ("long and unknown", too_long(99), option_reply::ERR_UNSUP),
        ("long TLS", too_long(option::STARTTLS), option_reply::ERR_UNSUP),
        // "The server SHOULD reject a request that includes data with NBD_REP_ERR_INVALID".
        ("list with long payload", too_long(option::LIST), option_reply::ERR_INVALID),
        (
            "structured with long payload",
            too_long(option::STRUCTURED_REPLY),
            option_reply::ERR_INVALID,
        ),
    ];
    for (what, bytes, kind) in table {
        let mut harness = server();
        let after = client::option(option::LIST, &[]);
        let (replies, connected) = haggle(&mut harness, &[bytes.clone(), after]);
        assert_eq!(replies[0].kind, *kind, "{what}");
        assert_eq!(replies.last().map(|it| it.kind), Some(option_reply::ACK), "{what}: goes on");
        assert!(connected, "{what}");
    }
}

#[test]
fn violations_end_this_connection_only() {
    let header = |option: u32, len: u32| {
        let mut bytes = client::option(option, &[]);
        bytes[12..].copy_from_slice(&len.to_be_bytes());
        bytes
    };
    let flood: Vec<u8> = (0..=MAX_OPTIONS).flat_map(|_| client::option(99, &[])).collect();
    let table: &[(&str, Vec<u8>)] = &[
        ("unknown client flags", 4_u32.to_be_bytes().to_vec()),
        ("no option magic", [client::flags(), vec![0; 16]].concat()),
        ("option length 2^32-1", [client::flags(), header(option::GO, u32::MAX)].concat()),
        ("long old-style name", [client::flags(), header(option::EXPORT_NAME, 9000)].concat()),
        (
            "unknown old-style name",
            [client::flags(), client::option(option::EXPORT_NAME, b"nope")].concat(),
        ),
        ("options without end", [client::flags(), flood].concat()),
    ];
    for (what, bytes) in table {
        let mut harness = server();
        let other = support::open(&mut harness, true);
        let conn = harness.connect();
        harness.send(conn, bytes);
        assert!(!harness.is_connected(conn), "{what}");
        let told = harness.events.iter().any(|it| matches!(it, NbdEvent::Violation { .. }));
        assert!(told, "{what}");
        let answer = support::ask(&mut harness, other, 0, 0, 0, 512);
        assert_eq!(answer.errno, 0, "{what}: the other client is unharmed");
        harness.disconnect(other);
        harness.check_empty();
    }
}

#[test]
fn abort_is_acknowledged_and_ends_the_connection() {
    let mut harness = server();
    let (replies, connected) = haggle(&mut harness, &[client::option(option::ABORT, &[])]);
    assert_eq!(kinds(&replies), [option_reply::ACK]);
    assert!(!connected);
}

/// "The server MUST reply with NBD_REP_ACK [...] a server SHOULD ignore any data sent".
#[test]
fn abort_is_acknowledged_whatever_comes_with_it() {
    for option in [client::option(option::ABORT, b"tired"), too_long(option::ABORT)] {
        let mut harness = server();
        let (replies, connected) = haggle(&mut harness, &[option]);
        assert_eq!(kinds(&replies), [option_reply::ACK]);
        assert!(!connected);
        harness.check_empty();
    }
}

#[test]
fn a_client_that_does_not_finish_negotiating_is_cut_off() {
    let mut harness = server();
    let slow = harness.connect();
    harness.send(slow, &client::flags());
    let good = support::open(&mut harness, true);
    harness.pass(HANDSHAKE_TIMEOUT);
    assert!(!harness.is_connected(slow));
    assert!(harness.is_connected(good));
}

/// nbdinfo asks about each export on one connection, and over TCP needs a fifth of a second for
/// each: its last send says that more would follow.
#[test]
fn a_client_that_goes_on_negotiating_is_not_cut_off() {
    let mut harness = server();
    let conn = harness.connect();
    harness.send(conn, &client::flags());
    for _ in 0..8 {
        harness.pass(HANDSHAKE_TIMEOUT * 3 / 4);
        harness.send(conn, &client::option(option::INFO, &client::info("disk", &[])));
    }
    assert!(harness.is_connected(conn));
    let (replies, _) = client::negotiation(&harness.take(conn));
    assert_eq!(replies.iter().filter(|reply| reply.kind == option_reply::ACK).count(), 8);
}

#[test]
fn a_client_that_stops_negotiating_is_cut_off_and_told_of() {
    let mut harness = server();
    let conn = harness.connect();
    harness.send(conn, &client::flags());
    harness.send(conn, &client::option(option::INFO, &client::info("disk", &[])));
    harness.pass(HANDSHAKE_TIMEOUT);
    harness.pass(HANDSHAKE_TIMEOUT);
    assert!(!harness.is_connected(conn));
    let told = harness.events.iter().any(|it| it.to_string().contains("negotiate"));
    assert!(told, "{:?}", harness.events);
}

/// Who comes after one that has left while it negotiated has a time of its own.
#[test]
fn the_time_of_a_client_that_left_is_not_that_of_the_next() {
    let mut harness = server();
    let gone = harness.connect();
    harness.pass(HANDSHAKE_TIMEOUT / 2);
    harness.disconnect(gone);
    let conn = harness.connect();
    harness.pass(HANDSHAKE_TIMEOUT * 3 / 4);
    assert!(harness.is_connected(conn));
    harness.pass(HANDSHAKE_TIMEOUT / 4);
    assert!(!harness.is_connected(conn));
}

#[test]
fn a_client_that_does_not_read_replies_is_not_read_either() {
    let (name, description) = ("n".repeat(256), "d".repeat(256));
    let device = "nvme0n1".to_owned();
    let exports = vec![Export { name: name.clone(), description, device, ..Export::default() }];
    let mut harness = Harness::new(NbdConfig { listen: None, exports }, 1 << 20);
    harness.host.add_disk("nvme0n1", 1 << 20, 512);
    harness.hold_transmissions = true;
    let conn = harness.connect();
    let mut bytes = client::flags();
    // Replies with both texts; the backlog fills before the number of options does.
    let mut wishes = vec![info::NAME; 3800];
    wishes.push(info::DESCRIPTION);
    for _ in 0..250 {
        bytes.extend(client::option(option::INFO, &client::info(&name, &wishes)));
    }
    harness.send(conn, &bytes);
    assert!(harness.is_paused(conn));
    assert!(harness.unread(conn) > bytes.len() / 2, "{} bytes", harness.unread(conn));
    // It reads after all.
    harness.hold_transmissions = false;
    harness.release_transmissions();
    assert_eq!(harness.unread(conn), 0);
    let (replies, _) = client::negotiation(&harness.take(conn));
    let acknowledged = replies.iter().filter(|reply| reply.kind == option_reply::ACK);
    assert_eq!(acknowledged.count(), 250);
    harness.disconnect(conn);
    harness.check_empty();
}

#[test]
fn every_split_of_a_negotiation_gives_the_same() {
    let mut stream = client::flags();
    stream.extend(client::option(99, b"abc"));
    stream.extend(client::option(option::GO, &vec![1; MAX_OPTION_BYTES as usize + 5]));
    stream.extend(client::option(option::STRUCTURED_REPLY, &[]));
    stream.extend(client::option(option::LIST, &[]));
    stream.extend(client::option(option::GO, &client::info("disk", &[info::NAME])));
    stream.extend(client::request(0, 0, 5, 512, 1024));
    let whole = {
        let mut harness = server();
        let conn = harness.connect();
        harness.send(conn, &stream);
        harness.take(conn)
    };
    // The long option in the middle is all alike: cut around it, and at some places in it.
    for cut in (1..120)
        .chain((120..stream.len() - 200).step_by(97))
        .chain(stream.len() - 200..stream.len())
    {
        let mut harness = server();
        let conn = harness.connect();
        harness.send(conn, &stream[..cut]);
        harness.send(conn, &stream[cut..]);
        assert_eq!(harness.take(conn), whole, "cut at {cut}");
    }
    let mut harness = server();
    harness.portion = 1;
    let conn = harness.connect();
    harness.send(conn, &stream);
    assert_eq!(harness.take(conn), whole, "byte by byte");
}
