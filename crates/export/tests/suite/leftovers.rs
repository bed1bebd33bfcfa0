//! A client comes while a controller still has what another one, or itself before its connection
//! broke, was not answered: it is let in when that has ended.

use crate::support::{export, open, server};
use anabranch_export::fuzz::Harness;
use anabranch_export::fuzz::client::{self, OptionReply};
use anabranch_export::nbd::wire::{command, option, option_reply};
use anabranch_export::nbd::{DEVICE_TIMEOUT, Export, NbdConfig, NbdEvent, NbdMail, RETRY_DELAY};
use anabranch_host::user::{IoError, Submit};
use anabranch_proto::machine::{ConnId, Input, WorkerId};
use anabranch_proto::nvme::status::Status;

/// A server, one of whose clients vanished with a write and a read unanswered.
fn left_behind() -> Harness {
    let readable = Export { read_only: true, ..export("readable", "nvme0n1") };
    let exports = vec![export("disk", "nvme0n1"), readable];
    let mut harness = Harness::new(NbdConfig { listen: None, exports }, 1 << 20);
    harness.host.add_disk("nvme0n1", 1 << 20, 512);
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
    let reader = harness.connect();
    harness.send(reader, &client::negotiate("readable", true));
    assert!(!harness.is_paused(reader), "who cannot write is let in");
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
    [back, curious, reader].into_iter().for_each(|conn| harness.disconnect(conn));
    harness.check_empty();
}

/// The end of the former connection may not have been read yet when the client is back: somebody
/// has to look.
#[test]
fn who_comes_back_before_its_end_was_heard_of_waits_for_that_and_for_its_former_writes() {
    let mut harness = server();
    harness.complete_at_once = false;
    let former = open(&mut harness, false);
    harness.send(former, &client::write(0, 1, 0, &[7; 512]));
    harness.vanish(former);
    let back = asks(&mut harness, option::GO);
    assert!(replies(&mut harness, back).is_empty() && harness.is_paused(back));
    harness.disconnect(former);
    assert_eq!(harness.take(back), [], "it is heard of, and its write not answered");
    harness.complete_all();
    harness.pass(RETRY_DELAY);
    assert!(!harness.take(back).is_empty() && !harness.is_paused(back));
    harness.disconnect(back);
    harness.check_empty();
}

#[test]
fn every_worker_looks_before_a_client_gets_its_export() {
    let mut harness = server();
    let neighbour = open(&mut harness, false);
    harness.hold_looks = true;
    let client = asks(&mut harness, option::GO);
    assert!(replies(&mut harness, client).is_empty() && harness.is_paused(client));
    harness.release_looks();
    assert!(!harness.take(client).is_empty() && !harness.is_paused(client));
    assert!(!harness.events.iter().any(|it| matches!(it, NbdEvent::WaitsForRest { .. })));

    harness.hold_looks = true;
    let patient = asks(&mut harness, option::GO);
    harness.pass(DEVICE_TIMEOUT);
    let refused = replies(&mut harness, patient).last().map(|it| it.kind);
    assert_eq!(refused, Some(option_reply::ERR_POLICY), "a worker that never answers");
    // It may have left elsewhere since then, so that what was found out before tells nothing, be it
    // told before it asks anew or after that.
    harness.send(patient, &client::option(option::GO, &client::info("disk", &[])));
    assert!(harness.take(patient).is_empty() && harness.is_paused(patient));
    harness.release_first_look();
    assert!(harness.take(patient).is_empty() && harness.is_paused(patient));
    harness.pass(DEVICE_TIMEOUT);
    let refused = harness.take(patient);
    assert_eq!(
        refused[12..16],
        option_reply::ERR_POLICY.to_be_bytes(),
        "it has waited as long again"
    );
    harness.release_looks();
    harness.hold_looks = true;
    harness.send(patient, &client::option(option::GO, &client::info("disk", &[])));
    assert!(harness.take(patient).is_empty() && harness.is_paused(patient));
    harness.release_looks();
    assert!(!harness.take(patient).is_empty() && !harness.is_paused(patient));
    [client, neighbour, patient].into_iter().for_each(|conn| harness.disconnect(conn));
    harness.check_empty();
}

/// One that is being closed, with nothing at the host, has nothing to be heard of: nobody waits for
/// it to take what it was sent.
#[test]
fn who_is_being_closed_and_was_answered_keeps_nobody_waiting() {
    let mut harness = server();
    let slow = open(&mut harness, false);
    harness.hold_transmissions = true;
    harness.send(slow, &client::request(command::READ, 0, 1, 0, 512));
    harness.send(slow, &[0xee; 28]);
    harness.vanish(slow);
    asks(&mut harness, option::GO);
    let opened = |it: &&NbdEvent| matches!(it, NbdEvent::Opened { .. });
    assert_eq!(harness.events.iter().filter(opened).count(), 2);
    assert!(harness.is_connected(slow), "it has taken nothing yet");
}

/// Another worker asks: it is told when each client is known to be there, or has been heard of.
#[test]
fn a_worker_that_asks_who_has_left_is_told_when_all_are_heard_of() {
    let mut harness = server();
    harness.complete_at_once = false;
    let [there, gone] = [(); 2].map(|()| open(&mut harness, false));
    harness.send(gone, &client::write(0, 1, 0, &[7; 512]));
    harness.vanish(gone);
    let head = harness.host.heads()[0].id;
    let ask = |round| Input::Mail { from: WorkerId(2), mail: NbdMail::Look { round, head } };
    let told = |harness: &Harness| {
        let of = |mail: &(WorkerId, NbdMail)| match *mail {
            (WorkerId(2), NbdMail::Looked { round }) => Some(round),
            _ => None,
        };
        harness.mail.iter().filter_map(of).collect::<Vec<_>>()
    };
    harness.input(ask(5));
    assert_eq!(told(&harness), [], "the end of one is there, and was not read");
    harness.disconnect(gone);
    assert_eq!(told(&harness), [5]);
    assert!(harness.host.heads()[0].leftovers.any());
    harness.input(ask(6));
    assert_eq!(told(&harness), [5, 6], "who is there keeps nobody waiting");
    harness.complete_all();
    harness.disconnect(there);
    harness.input(ask(7));
    assert_eq!(told(&harness), [5, 6, 7]);
    harness.check_empty();
}

/// As a client does that has several connections and loses one. One block is as far as it goes:
/// nobody else waits, and who only reads does not either.
#[test]
fn on_a_connection_that_is_open_already_what_changes_the_same_blocks_waits() {
    type Ask = fn(u64) -> Vec<u8>;
    let changes: [(Ask, u8); 3] = [
        (|at| client::write(0, 9, at, &[8; 512]), 8),
        (|at| client::request(command::WRITE_ZEROES, 0, 9, at, 512), 0),
        (|at| client::request(command::TRIM, 0, 9, at, 512), 0),
    ];
    for (ask, becomes) in changes {
        let mut harness = server();
        harness.complete_at_once = false;
        let [lost, other, neighbour] = [(); 3].map(|()| open(&mut harness, false));
        harness.send(lost, &client::write(0, 1, 512, &[7; 512]));
        harness.disconnect(lost);
        let sent = harness.host.log.len();
        harness.send(other, &client::request(command::READ, 0, 4, 512, 512));
        harness.send(other, &ask(512));
        harness.send(neighbour, &ask(0));
        harness.send(neighbour, &ask(1024));
        harness.pass(3 * RETRY_DELAY);
        assert_eq!(harness.host.log.len() - sent, 3, "only the one waits");
        assert!(harness.is_paused(other) && !harness.is_paused(neighbour));

        harness.complete_one(0);
        assert_eq!(harness.host.disk(0)[512..1024], [7; 512], "what was left is carried out");
        harness.pass(RETRY_DELAY);
        harness.complete_all();
        assert!(!harness.is_paused(other));
        assert_eq!(harness.host.disk(0)[512..1024], [becomes; 512], "and then what was answered");
        let asked = [(4, 512), (9, 0)].into();
        let taken = harness.take(other);
        let (answers, rest) = client::answers(&taken, &asked);
        assert!(rest.is_empty() && answers.len() == 2, "{answers:?}");
        assert!(answers.values().all(|answer| answer.done && answer.errno == 0));
        harness.disconnect(other);
        harness.disconnect(neighbour);
        harness.check_empty();
    }
}

/// Who waits so may say good-bye, and is answered first, or vanish, and nothing is done.
#[test]
fn who_waits_with_a_write_may_leave() {
    for good_bye in [true, false] {
        let mut harness = server();
        harness.complete_at_once = false;
        let [lost, other] = [(); 2].map(|()| open(&mut harness, false));
        harness.send(lost, &client::write(0, 1, 0, &[7; 1024]));
        harness.disconnect(lost);
        harness.send(other, &client::write(0, 2, 512, &[8; 1024]));
        if good_bye {
            harness.send(other, &client::request(command::DISC, 0, 3, 0, 0));
        } else {
            harness.disconnect(other);
        }
        harness.complete_all();
        harness.pass(RETRY_DELAY);
        harness.complete_all();
        let kept = if good_bye { 8 } else { 7 };
        assert_eq!(harness.host.disk(0)[..512], [7; 512]);
        assert_eq!(harness.host.disk(0)[512..1024], [kept; 512]);
        assert_eq!(harness.take(other).is_empty(), !good_bye);
        assert!(!harness.is_connected(other));
        harness.check_empty();
    }
}

/// "The server MUST handle all outstanding requests": whether the client is there to hear of it
/// nobody knows, and it may be back.
#[test]
fn what_is_open_when_a_client_says_good_bye_is_done_and_waited_for() {
    let mut harness = server();
    harness.complete_at_once = false;
    let [leaving, other] = [(); 2].map(|()| open(&mut harness, false));
    let read = client::request(command::READ, 0, 1, 0, 512);
    let trim = client::request(command::TRIM, 0, 2, 2048, 512);
    let good_bye = client::request(command::DISC, 0, 9, 0, 0);
    let writes = [3, 4].map(|cookie| client::write(0, cookie, 0, &[cookie as u8; 512])).concat();
    harness.send(leaving, &[read, trim, writes, good_bye].concat());
    let next = asks(&mut harness, option::GO);
    harness.send(other, &client::write(0, 5, 0, &[5; 512]));
    assert_eq!(harness.host.pending(), 4);
    assert!(harness.is_paused(other) && harness.is_paused(next));
    for _ in 0..4 {
        assert!(harness.host.pending() > 0);
        harness.complete_one(0);
    }
    let asked = [(1, 512), (2, 0), (3, 0), (4, 0)].into();
    assert_eq!(client::answers(&harness.take(leaving), &asked).0.len(), 4);
    assert!(!harness.is_connected(leaving));
    assert_eq!(harness.host.disk(0)[..512], [4; 512]);
    harness.pass(RETRY_DELAY);
    harness.complete_all();
    assert!(!harness.is_paused(next) && !harness.take(next).is_empty());
    assert_eq!(harness.host.disk(0)[..512], [5; 512]);
    harness.disconnect(other);
    harness.disconnect(next);
    harness.check_empty();
}

/// Who has been answered everything, or has only read, leaves nothing behind.
#[test]
fn nobody_waits_for_who_left_in_order() {
    let mut harness = server();
    harness.complete_at_once = false;
    let leaving = open(&mut harness, false);
    harness.send(leaving, &client::write(0, 1, 0, &[7; 512]));
    harness.complete_all();
    harness.send(leaving, &client::request(command::READ, 0, 2, 0, 512));
    harness.send(leaving, &client::request(command::DISC, 0, 3, 0, 0));
    let next = open(&mut harness, false);
    harness.send(next, &client::write(0, 1, 0, &[8; 512]));
    harness.complete_all();
    assert_eq!(harness.host.disk(0)[..512], [8; 512]);
    harness.disconnect(next);
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

/// Each has still to write zeroes that the device did not make.
#[test]
fn two_that_leave_do_not_wait_for_each_other() {
    let mut harness = server();
    harness.complete_at_once = false;
    harness.host.unable = Some(IoError::Status(Status::INVALID_OPCODE.with_dnr()));
    let leaving = [(); 2].map(|()| open(&mut harness, false));
    let zeroes = client::request(command::WRITE_ZEROES, 0, 1, 0, 512);
    let good_bye = client::request(command::DISC, 0, 9, 0, 0);
    leaving.into_iter().for_each(|conn| harness.send(conn, &zeroes));
    leaving.into_iter().for_each(|conn| harness.send(conn, &good_bye));
    for _ in 0..10 {
        harness.complete_all();
        harness.pass(RETRY_DELAY);
    }
    assert_eq!(leaving.map(|conn| harness.is_connected(conn)), [false; 2]);
    harness.check_empty();
}
