//! Clients that come before the device of their export has: they wait a moment, once.

use crate::support::{DISK_BYTES, export, one_answer};
use anabranch_export::fuzz::Harness;
use anabranch_export::fuzz::client::{self, OptionReply};
use anabranch_export::nbd::wire::{NBD_MAGIC, OPTION_MAGIC, command, option, option_reply};
use anabranch_export::nbd::{CLOSE_TIMEOUT, DEVICE_TIMEOUT, NbdConfig, NbdEvent, NbdMail};
use anabranch_proto::machine::{ConnId, Input, WorkerId};
use std::collections::BTreeMap;
use std::time::Duration;

const MOMENT: Duration = Duration::from_millis(1);

/// A server with an export whose device is not there.
fn without_disk() -> Harness {
    let config = NbdConfig { listen: None, exports: vec![export("disk", "nvme0n1")] };
    Harness::new(config, 64 << 20)
}

fn add_disk(harness: &mut Harness) {
    harness.host.add_disk("nvme0n1", DISK_BYTES as usize, 512);
    harness.heads_changed();
}

fn go(name: &str) -> Vec<u8> {
    client::option(option::GO, &client::info(name, &[]))
}

/// A client that has sent these options.
fn client_with(harness: &mut Harness, options: &[Vec<u8>]) -> ConnId {
    let conn = harness.connect();
    harness.send(conn, &[client::flags(), options.concat()].concat());
    conn
}

/// What it was sent since the last look, as if the greeting came before it.
fn taken(harness: &mut Harness, conn: ConnId) -> Vec<u8> {
    let (mut bytes, greeting) = (harness.take(conn), greeting());
    if !bytes.starts_with(&greeting) {
        bytes.splice(..0, greeting);
    }
    bytes
}

fn greeting() -> Vec<u8> {
    let magic = [NBD_MAGIC.to_be_bytes(), OPTION_MAGIC.to_be_bytes()].concat();
    [magic, vec![0, 3]].concat()
}

fn replies(harness: &mut Harness, conn: ConnId) -> Vec<OptionReply> {
    client::negotiation(&taken(harness, conn)).0
}

fn kinds(harness: &mut Harness, conn: ConnId) -> Vec<u32> {
    replies(harness, conn).iter().map(|reply| reply.kind).collect()
}

/// No more than two receives are kept of what it sends meanwhile.
#[test]
fn a_client_waits_for_the_device_of_its_export() {
    let mut harness = without_disk();
    let conn = client_with(&mut harness, &[go("disk")]);
    assert_eq!(kinds(&mut harness, conn), []);
    assert!(harness.is_paused(conn));
    harness.send(conn, &client::request(command::READ, 0, 77, 0, 512));
    harness.pass(DEVICE_TIMEOUT - MOMENT);
    harness.heads_changed();
    assert_eq!(kinds(&mut harness, conn), [], "some other device has come");
    add_disk(&mut harness);
    let received = taken(&mut harness, conn);
    let (told, rest) = client::negotiation(&received);
    assert_eq!(told.last().map(|reply| reply.kind), Some(option_reply::ACK));
    let (answers, _) = client::answers(rest, &BTreeMap::from([(77, 512)]));
    assert_eq!(answers[&77].errno, 0);
    harness.pass(DEVICE_TIMEOUT);
    harness.send(conn, &client::request(command::FLUSH, 0, 77, 0, 0));
    assert_eq!(one_answer(&mut harness, conn, 0).errno, 0);
    harness.disconnect(conn);
    harness.check_empty();
}

#[test]
fn a_client_whose_device_does_not_come_is_told_so_and_may_ask_for_another() {
    let mut harness = without_disk();
    let conn = client_with(&mut harness, &[go("disk")]);
    harness.pass(DEVICE_TIMEOUT);
    let told = replies(&mut harness, conn);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].kind, option_reply::ERR_UNKNOWN);
    let text = String::from_utf8_lossy(&told[0].payload);
    assert!(text.contains("device is not there"), "{text}");
    harness.send(conn, &[go("disk"), go("other")].concat());
    let told = kinds(&mut harness, conn);
    assert_eq!(told, [option_reply::ERR_UNKNOWN; 2], "nobody waits twice");
    add_disk(&mut harness);
    harness.send(conn, &go("disk"));
    assert_eq!(kinds(&mut harness, conn).last(), Some(&option_reply::ACK));
}

/// Names of devices are given anew when a subsystem comes again: its clients must not find the
/// blocks of another namespace.
#[test]
fn an_export_never_leads_to_another_device_that_has_its_name() {
    let mut harness = without_disk();
    add_disk(&mut harness);
    let rename = |harness: &mut Harness, index, name: &str| {
        harness.host.change_head(index, |head| head.name = name.into());
    };
    // Nobody has opened it until then.
    rename(&mut harness, 0, "nvme0n2");
    harness.host.add_disk("nvme0n1", DISK_BYTES as usize, 512);
    harness.host.change_head(1, |head| head.wwid = "uuid.another".into());
    harness.heads_changed();
    let conn = client_with(&mut harness, &[go("disk")]);
    assert_eq!(kinds(&mut harness, conn), [], "it waits for the device that it was");
    rename(&mut harness, 1, "nvme0n3");
    rename(&mut harness, 0, "nvme0n1");
    harness.heads_changed();
    assert_eq!(kinds(&mut harness, conn).last(), Some(&option_reply::ACK));
    rename(&mut harness, 0, "nvme0n2");
    rename(&mut harness, 1, "nvme0n1");
    harness.heads_changed();
    harness.release_transmissions();
    assert!(!harness.is_connected(conn), "whoever has it open is not moved either");
}

#[test]
fn who_only_asks_about_an_export_or_for_one_that_is_not_offered_is_told_at_once() {
    let mut harness = without_disk();
    let options = [
        client::option(option::INFO, &client::info("disk", &[])),
        client::option(option::LIST, &[]),
        go("other"),
    ];
    let conn = client_with(&mut harness, &options);
    let unknown = option_reply::ERR_UNKNOWN;
    assert_eq!(kinds(&mut harness, conn), [unknown, option_reply::ACK, unknown]);
}

#[test]
fn the_old_way_waits_too_and_then_has_no_way_to_say_no() {
    for comes in [true, false] {
        let mut harness = without_disk();
        let old = client::option(option::EXPORT_NAME, b"disk");
        let conn = client_with(&mut harness, &[old]);
        let greeting = harness.take(conn).len();
        if comes {
            add_disk(&mut harness);
            assert_eq!((greeting, harness.take(conn).len()), (18, 8 + 2));
        } else {
            harness.pass(DEVICE_TIMEOUT);
            assert!(!harness.is_connected(conn));
            let events = &harness.events;
            let said = |it: &NbdEvent| it.to_string().contains("without its device");
            assert!(events.iter().any(said), "{events:?}");
        }
    }
}

#[test]
fn an_export_that_is_withdrawn_is_waited_for_no_longer() {
    let mut harness = without_disk();
    let conn = client_with(&mut harness, &[go("disk")]);
    let mail = NbdMail::Offer { epoch: 1, exports: vec![].into() };
    harness.input(Input::Mail { from: WorkerId(0), mail });
    assert_eq!(kinds(&mut harness, conn), [option_reply::ERR_UNKNOWN]);
}

#[test]
fn a_client_that_leaves_while_it_waits_leaves_nothing_behind() {
    let mut harness = without_disk();
    let conn = client_with(&mut harness, &[go("disk")]);
    harness.disconnect(conn);
    harness.check_empty();
    // Whoever gets its place waits as long as anybody.
    harness.pass(DEVICE_TIMEOUT / 2);
    let next = client_with(&mut harness, &[go("disk")]);
    harness.take(next);
    harness.pass(DEVICE_TIMEOUT - MOMENT);
    assert!(harness.take(next).is_empty());
    add_disk(&mut harness);
    assert!(!harness.take(next).is_empty());
}

#[test]
fn the_end_of_the_server_waits_for_no_device() {
    let mut harness = without_disk();
    let conn = client_with(&mut harness, &[go("disk")]);
    harness.input(Input::Mail { from: WorkerId(0), mail: NbdMail::Drain(CLOSE_TIMEOUT) });
    assert!(!harness.is_connected(conn));
    harness.pass(CLOSE_TIMEOUT);
    harness.check_empty();
}
