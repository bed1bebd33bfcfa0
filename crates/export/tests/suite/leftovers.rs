//! A client comes while a controller still has what another one, or itself before its connection
//! broke, was not answered: it is let in when that has ended.

use crate::support::{open, server};
use anabranch_export::fuzz::Harness;
use anabranch_export::fuzz::client::{self, OptionReply};
use anabranch_export::nbd::wire::{command, option, option_reply};
use anabranch_export::nbd::{DEVICE_TIMEOUT, RETRY_DELAY};
use anabranch_proto::machine::ConnId;

/// A server, one of whose clients vanished with a write and a read unanswered.
fn left_behind() -> Harness {
    let mut harness = server();
    harness.complete_at_once = false;
    let conn = open(&mut harness, true);
    harness.send(conn, &client::request(command::READ, 0, 1, 0, 512));
    harness.send(conn, &client::write(0, 2, 0, &[7; 512]));
    harness.disconnect(conn);
    assert_eq!(harness.host.withdrawn.len(), 2);
    harness
}

fn asks(harness: &mut Harness, option: u32) -> ConnId {
    let conn = harness.connect();
    let payload = match option {
        option::EXPORT_NAME => b"disk".to_vec(),
        _ => client::info("disk", &[]),
    };
    harness.send(conn, &[client::flags(), client::option(option, &payload)].concat());
    conn
}

fn replies(harness: &mut Harness, conn: ConnId) -> Vec<OptionReply> {
    client::negotiation(&harness.take(conn)).0
}

#[test]
fn who_comes_back_waits_for_its_former_writes() {
    let mut harness = left_behind();
    let back = asks(&mut harness, option::GO);
    assert!(replies(&mut harness, back).is_empty());
    assert!(harness.is_paused(back));
    let curious = asks(&mut harness, option::INFO);
    let told = replies(&mut harness, curious);
    assert_eq!(told.last().map(|it| it.kind), Some(option_reply::ACK), "who only asks is told");

    harness.complete_one(0);
    harness.pass(2 * RETRY_DELAY);
    assert_eq!(harness.take(back), [], "a read changes nothing, and the write is still there");
    harness.complete_one(0);
    assert_eq!(harness.take(back), [], "another worker may have it: it is looked at again");
    harness.pass(RETRY_DELAY);
    assert!(!harness.take(back).is_empty() && !harness.is_paused(back));
    harness.send(back, &client::write(0, 3, 0, &[8; 512]));
    harness.complete_all();
    assert_eq!(harness.host.disk(0)[..512], [8; 512]);
    harness.disconnect(back);
    harness.disconnect(curious);
    harness.check_empty();
}

/// So that it tries again: one that is let in may lose what it is answered.
#[test]
fn whose_patience_ends_before_they_do_is_told_why() {
    for asked in [option::GO, option::EXPORT_NAME] {
        let mut harness = left_behind();
        let back = asks(&mut harness, asked);
        harness.pass(DEVICE_TIMEOUT);
        if asked == option::EXPORT_NAME {
            assert!(!harness.is_connected(back), "there is no other way to say no");
            continue;
        }
        let told = replies(&mut harness, back);
        assert_eq!(told.iter().map(|it| it.kind).collect::<Vec<_>>(), [option_reply::ERR_POLICY]);
        let text = String::from_utf8_lossy(&told[0].payload);
        assert!(text.contains("writes of a client that has left"), "{text}");
        harness.complete_all();
        harness.send(back, &client::option(option::GO, &client::info("disk", &[])));
        assert!(!harness.take(back).is_empty(), "it may ask again");
    }
}
