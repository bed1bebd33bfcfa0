//! Listening, offering, withdrawing and ending, across workers.

use crate::support;

use crate::support::{ask, export, one_answer, open, server};
use anabranch_export::fuzz::{Harness, client};
use anabranch_export::nbd::wire::{command, option, option_reply};
use anabranch_export::nbd::{
    Access, CLOSE_TIMEOUT, DEVICE_TIMEOUT, Nbd, NbdConfig, NbdError, NbdEvent, NbdMail, NbdReply,
    NbdVerb, RETRY_DELAY,
};
use anabranch_host::user::IoError;
use anabranch_proto::machine::{
    Buffers, CloseCause, ConnId, Endpoint, Input, ListenerId, SocketAccess, SystemError, VerbId,
    WorkerId,
};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

fn unix(path: &str) -> Endpoint {
    Endpoint::Unix(path.into())
}

/// The server on the control worker of a host with two data workers.
fn control() -> Harness {
    let config = NbdConfig { listen: Some(unix("/a")), exports: vec![export("x", "nvme0n1")] };
    Harness::on_worker(0, config, 1 << 20)
}

/// To offer the first disk under this name.
fn add(name: &str, at: Endpoint) -> NbdVerb {
    NbdVerb::Add { export: export(name, "nvme0n1"), at, access: Access::default() }
}

/// Both data workers have heard these offers.
fn offered(harness: &mut Harness, epochs: RangeInclusive<u64>) {
    for epoch in epochs {
        for from in [1, 2] {
            harness.input(Input::Mail { from: WorkerId(from), mail: NbdMail::Offered { epoch } });
        }
    }
}

fn unlistened(harness: &Harness) -> Vec<&str> {
    harness.others.iter().filter(|other| other.starts_with("Unlisten")).map(|it| &it[..]).collect()
}

fn verb(harness: &mut Harness, id: u64, verb: NbdVerb) {
    harness.input(Input::Verb { id: VerbId(id), verb });
}

/// Where the connections went so far.
fn handed(control: &Harness) -> Vec<u16> {
    let handed = control.others.iter().filter(|other| other.starts_with("HandOver"));
    let worker = |other: &String| {
        let (_, to) = other.split_once("to: WorkerId(").expect("a worker");
        to.trim_end_matches(") }").parse().expect("a number")
    };
    handed.map(worker).collect()
}

/// A control worker and two data workers that each let in so many clients.
struct House {
    control: Harness,
    workers: [Harness; 2],
    /// How much of what they tell of those that are gone has come.
    told: [usize; 2],
    arrived: u32,
}

impl House {
    fn new(at_most: usize) -> House {
        let config = NbdConfig { listen: None, exports: vec![export("disk", "nvme0n1")] };
        let workers = [1, 2].map(|worker| {
            let mut harness = Harness::on_worker(worker, config.clone(), 1 << 20);
            harness.nbd = Nbd::new(config.clone()).with_at_most(at_most);
            harness.host.add_disk("nvme0n1", 1 << 20, 512);
            harness.input(Input::Start);
            harness
        });
        House { control: control(), workers, told: [0; 2], arrived: 0 }
    }

    /// A client comes; gives back which worker it is handed to, and what it is called there.
    fn come(&mut self) -> (usize, ConnId) {
        let conn = ConnId::accepted(self.arrived);
        self.arrived += 1;
        self.control.input(Input::Accepted { listener: ListenerId(0), conn, peer: None });
        let worker = usize::from(*handed(&self.control).last().expect("one")) - 1;
        let conn = self.workers[worker].connect();
        self.tell();
        (worker, conn)
    }

    fn go(&mut self, (worker, conn): (usize, ConnId)) {
        self.workers[worker].disconnect(conn);
        self.tell();
    }

    fn tell(&mut self) {
        for (at, worker) in self.workers.iter().enumerate() {
            for _ in self.told[at]..worker.gone {
                let from = WorkerId(at as u16 + 1);
                self.control.input(Input::Mail { from, mail: NbdMail::Gone });
            }
            self.told[at] = worker.gone;
        }
    }

    fn clients(&self) -> [usize; 2] {
        [0, 1].map(|worker| self.workers[worker].nbd.clients())
    }
}

#[test]
fn clients_are_handed_to_the_data_workers_in_turn() {
    let mut harness = control();
    harness.input(Input::Listening { listener: ListenerId(0), at: unix("/a") });
    for i in 0..5 {
        let conn = ConnId::accepted(i);
        harness.input(Input::Accepted { listener: ListenerId(0), conn, peer: None });
    }
    assert_eq!(handed(&harness), [1, 2, 1, 2, 1]);
    assert_eq!(harness.nbd.clients(), 0);
}

/// As where somebody asks what is there before each client that stays.
#[test]
fn clients_that_stay_are_spread_though_others_come_and_go_between_them() {
    let mut house = House::new(256);
    for _ in 0..8 {
        let short = house.come();
        house.go(short);
        house.come();
    }
    assert_eq!(house.clients(), [4, 4]);
}

#[test]
fn a_worker_that_is_full_gets_no_client_while_another_one_has_room() {
    let mut house = House::new(3);
    let clients: Vec<_> = (0..6).map(|_| house.come()).collect();
    for client in clients.into_iter().filter(|(worker, _)| *worker == 1) {
        house.go(client);
    }
    for room in (0..3).rev() {
        house.come();
        assert_eq!(house.clients(), [3, 3 - room]);
    }
    // Who is refused then has no place.
    for _ in 0..5 {
        let (worker, conn) = house.come();
        assert!(!house.workers[worker].is_connected(conn));
    }
    let events = |worker: &Harness| worker.events.len();
    assert_eq!(house.workers.iter().map(events).sum::<usize>(), 5, "only those were refused");
    assert_eq!(house.told.iter().sum::<usize>(), 3 + 5);
}

/// The driver closes a connection that was over before it could be handed over.
#[test]
fn a_client_that_is_gone_before_it_is_handed_over_is_nobodys() {
    let mut harness = control();
    let come = |harness: &mut Harness, conn| {
        let conn = ConnId::accepted(conn);
        harness.input(Input::Accepted { listener: ListenerId(0), conn, peer: None });
        conn
    };
    let conns = [0, 1, 2].map(|conn| come(&mut harness, conn));
    harness.input(Input::Closed { conn: conns[1], cause: CloseCause::PeerClosed });
    for conn in [3, 4] {
        come(&mut harness, conn);
    }
    assert_eq!(handed(&harness), [1, 2, 1, 2, 2]);
    // It counts once, and one that was never there does not.
    for conn in [conns[1], ConnId::accepted(7)] {
        harness.input(Input::Closed { conn, cause: CloseCause::PeerClosed });
    }
    come(&mut harness, 5);
    assert_eq!(handed(&harness)[5..], [1]);
}

#[test]
fn listening_is_answered_when_it_works_and_when_it_does_not() {
    let mut harness = control();
    assert!(harness.others[0].starts_with("Listen"), "{:?}", harness.others);
    let real = Endpoint::Tcp("127.0.0.1:10809".parse().expect("address"));
    let any = Endpoint::Tcp("127.0.0.1:0".parse().expect("address"));
    verb(&mut harness, 1, add("y", any));
    verb(&mut harness, 2, add("z", unix("/b")));
    offered(&mut harness, 1..=2);
    assert!(harness.replies.is_empty(), "the addresses are still missing");
    harness.input(Input::Listening { listener: ListenerId(1), at: real.clone() });
    let error = Some(SystemError::NO_SPACE);
    harness.input(Input::Unlistened { listener: ListenerId(2), error });
    assert_eq!(harness.replies.len(), 1, "the workers still offer what nobody can reach");
    offered(&mut harness, 3..=3);
    verb(&mut harness, 3, NbdVerb::List);
    let failed = NbdReply::Error(NbdError::Listen(unix("/b"), SystemError::NO_SPACE));
    assert_eq!(harness.replies[0], (VerbId(1), NbdReply::Listening(real.clone())));
    assert_eq!(harness.replies[1], (VerbId(2), failed));
    let exports =
        vec![(export("x", "nvme0n1"), unix("/a")), (export("y", "nvme0n1"), real.clone())];
    assert_eq!(
        harness.replies[2],
        (VerbId(3), NbdReply::Exports { exports, listening: vec![real.clone()] })
    );
    let failed = NbdEvent::ListenFailed(unix("/b"), SystemError::NO_SPACE);
    assert_eq!(harness.events, [NbdEvent::Listening(real), failed]);
}

#[test]
fn an_offer_is_answered_when_every_worker_has_it() {
    let mut harness = control();
    harness.input(Input::Listening { listener: ListenerId(0), at: unix("/a") });
    verb(&mut harness, 1, add("y", unix("/a")));
    verb(&mut harness, 2, NbdVerb::Remove("x".into()));
    let offers: Vec<(WorkerId, u64, usize)> = harness
        .mail
        .iter()
        .filter_map(|(to, mail)| match mail {
            NbdMail::Offer { epoch, exports } => Some((*to, *epoch, exports.len())),
            _ => None,
        })
        .collect();
    let (one, two) = (WorkerId(1), WorkerId(2));
    assert_eq!(offers, [(one, 1, 2), (two, 1, 2), (one, 2, 1), (two, 2, 1)]);
    let offered =
        |from, epoch| Input::Mail { from: WorkerId(from), mail: NbdMail::Offered { epoch } };
    harness.input(offered(1, 1));
    harness.input(offered(1, 2));
    assert!(harness.replies.is_empty());
    harness.input(offered(2, 1));
    assert_eq!(harness.replies, [(VerbId(1), NbdReply::Listening(unix("/a")))]);
    harness.input(offered(2, 2));
    assert_eq!(harness.replies[1], (VerbId(2), NbdReply::Done));
}

#[test]
fn with_its_last_export_an_address_is_given_up_and_can_be_used_again() {
    let mut harness = control();
    harness.input(Input::Listening { listener: ListenerId(0), at: unix("/a") });
    verb(&mut harness, 1, add("y", unix("/a")));
    verb(&mut harness, 2, add("z", unix("/b")));
    harness.input(Input::Listening { listener: ListenerId(1), at: unix("/b") });
    verb(&mut harness, 3, NbdVerb::Remove("x".into()));
    assert!(unlistened(&harness).is_empty(), "another export is still there");
    verb(&mut harness, 4, NbdVerb::Remove("y".into()));
    assert_eq!(unlistened(&harness), ["Unlisten { listener: ListenerId(0) }"]);
    offered(&mut harness, 1..=4);
    assert_eq!(harness.replies.len(), 3, "the last one waits for the address");
    verb(&mut harness, 5, NbdVerb::List);
    let exports = vec![(export("z", "nvme0n1"), unix("/b"))];
    let left = NbdReply::Exports { exports, listening: vec![unix("/b")] };
    assert_eq!(harness.replies[3], (VerbId(5), left));
    harness.input(Input::Unlistened { listener: ListenerId(0), error: None });
    assert_eq!(harness.replies[4], (VerbId(4), NbdReply::Done));
    verb(&mut harness, 6, add("x", unix("/a")));
    assert!(
        harness.others.last().expect("an output").starts_with("Listen { listener: ListenerId(2)")
    );
    verb(&mut harness, 7, NbdVerb::Close);
    assert_eq!(unlistened(&harness).len(), 3);
}

/// Somebody else's verb does not find it taken by what is just being withdrawn.
#[test]
fn an_address_that_is_being_given_up_is_used_again_when_it_is_free() {
    let listens = |harness: &Harness| {
        harness.others.iter().filter(|other| other.starts_with("Listen")).count()
    };
    let mut harness = control();
    harness.input(Input::Listening { listener: ListenerId(0), at: unix("/a") });
    let before = listens(&harness);
    verb(&mut harness, 1, NbdVerb::Remove("x".into()));
    verb(&mut harness, 2, add("y", unix("/a")));
    verb(&mut harness, 3, NbdVerb::Remove("y".into()));
    verb(&mut harness, 4, add("z", unix("/a")));
    offered(&mut harness, 1..=4);
    assert_eq!((listens(&harness), unlistened(&harness).len()), (before, 1), "it is not free yet");
    harness.input(Input::Unlistened { listener: ListenerId(0), error: None });
    assert_eq!(listens(&harness), before + 1);
    assert_eq!(unlistened(&harness)[1..], ["Unlisten { listener: ListenerId(1) }"]);
    harness.input(Input::Listening { listener: ListenerId(1), at: unix("/a") });
    harness.input(Input::Unlistened { listener: ListenerId(1), error: None });
    assert_eq!((listens(&harness), unlistened(&harness).len()), (before + 2, 2));
    harness.input(Input::Listening { listener: ListenerId(2), at: unix("/a") });
    let there = NbdReply::Listening(unix("/a"));
    let expected = [(1, NbdReply::Done), (2, there.clone()), (3, NbdReply::Done), (4, there)];
    let expected = expected.map(|(verb, reply)| (VerbId(verb), reply));
    assert_eq!(harness.replies, expected);
    verb(&mut harness, 5, NbdVerb::Close);
    assert_eq!(unlistened(&harness).len(), 3);
}

/// What begins only when another one has ended does not begin any more.
#[test]
fn a_drain_begins_with_no_address() {
    let mut harness = control();
    harness.input(Input::Listening { listener: ListenerId(0), at: unix("/a") });
    verb(&mut harness, 1, NbdVerb::Remove("x".into()));
    verb(&mut harness, 2, add("y", unix("/a")));
    verb(&mut harness, 3, NbdVerb::Remove("y".into()));
    verb(&mut harness, 4, add("z", unix("/a")));
    verb(&mut harness, 5, NbdVerb::Drain(CLOSE_TIMEOUT));
    let refused = |verb| (VerbId(verb), NbdReply::Error(NbdError::Draining));
    assert_eq!(harness.replies, [refused(2), refused(4)]);
    offered(&mut harness, 1..=4);
    let before = harness.others.len();
    harness.input(Input::Unlistened { listener: ListenerId(0), error: None });
    assert_eq!(harness.others.len(), before);
    assert_eq!(unlistened(&harness).len(), 1);
    let done = [3, 1].map(|verb| (VerbId(verb), NbdReply::Done));
    assert_eq!(harness.replies[2..], done);
}

/// One that takes any port has another one than what is being given up.
#[test]
fn an_address_that_is_not_known_yet_is_nobody_elses() {
    let any = || Endpoint::Tcp("127.0.0.1:0".parse().expect("an address"));
    let mut harness = control();
    verb(&mut harness, 1, add("y", any()));
    verb(&mut harness, 2, NbdVerb::Remove("y".into()));
    let before = harness.others.iter().filter(|other| other.starts_with("Listen")).count();
    verb(&mut harness, 3, add("z", any()));
    let after = harness.others.iter().filter(|other| other.starts_with("Listen")).count();
    assert_eq!(after, before + 1);
}

/// One socket has one mode: who does not say which takes what is there.
#[test]
fn exports_of_one_address_agree_about_who_may_connect() {
    let mut harness = control();
    let at = unix("/b");
    let add_with = |name: &str, mode, group| NbdVerb::Add {
        export: export(name, "nvme0n1"),
        at: at.clone(),
        access: Access { mode, group },
    };
    verb(&mut harness, 1, add_with("y", None, Some(36)));
    let listen = harness.others.last().expect("an output");
    assert!(listen.contains("mode: 432, group: Some(36)"), "0660 is usual with a group: {listen}");
    harness.replies.clear();
    let there = SocketAccess { mode: 0o660, group: Some(36) };
    let other = NbdReply::Error(NbdError::OtherAccess(at.clone(), there));
    for (mode, group) in [(Some(0o600), None), (None, Some(37)), (Some(0o666), Some(36))] {
        verb(&mut harness, 2, add_with("z", mode, group));
        assert_eq!(harness.replies.pop(), Some((VerbId(2), other.clone())));
    }
    for (number, (mode, group)) in (3..).zip([(None, None), (Some(0o660), None), (None, Some(36))])
    {
        verb(&mut harness, number, add_with(&number.to_string(), mode, group));
        assert_eq!(harness.replies, [], "it waits with the first");
    }
}

/// What goes wrong with an address that two wait for ends both, and leaves nothing behind.
#[test]
fn an_address_is_shared_before_it_is_known_to_work() {
    let mut harness = control();
    verb(&mut harness, 1, add("y", unix("/b")));
    verb(&mut harness, 2, add("z", unix("/b")));
    let listens = harness.others.iter().filter(|other| other.starts_with("Listen ")).count();
    assert_eq!(listens, 2, "one of them from the start");
    offered(&mut harness, 1..=2);
    let error = Some(SystemError::NO_SPACE);
    harness.input(Input::Unlistened { listener: ListenerId(1), error });
    offered(&mut harness, 3..=4);
    let failed = NbdReply::Error(NbdError::Listen(unix("/b"), SystemError::NO_SPACE));
    assert_eq!(harness.replies, [(VerbId(1), failed.clone()), (VerbId(2), failed)]);
    let Some((_, NbdMail::Offer { exports, .. })) = harness.mail.last() else { panic!("an offer") };
    assert_eq!(exports[..], [(ListenerId(0), export("x", "nvme0n1"))]);
}

/// Another one that is still waited for is heard of by itself.
#[test]
fn an_address_that_fails_ends_only_what_was_to_be_offered_there() {
    let mut harness = control();
    verb(&mut harness, 1, add("y", unix("/b")));
    verb(&mut harness, 2, add("z", unix("/c")));
    offered(&mut harness, 1..=2);
    let error = Some(SystemError::NO_SPACE);
    harness.input(Input::Unlistened { listener: ListenerId(1), error });
    offered(&mut harness, 3..=3);
    harness.input(Input::Listening { listener: ListenerId(2), at: unix("/c") });
    let failed = NbdReply::Error(NbdError::Listen(unix("/b"), SystemError::NO_SPACE));
    let listening = NbdReply::Listening(unix("/c"));
    assert_eq!(harness.replies, [(VerbId(1), failed), (VerbId(2), listening)]);
}

/// An export that goes before its address is known takes the address with it.
#[test]
fn an_export_can_go_while_its_address_comes() {
    let mut harness = control();
    verb(&mut harness, 1, add("y", unix("/b")));
    verb(&mut harness, 2, NbdVerb::Remove("y".into()));
    assert_eq!(unlistened(&harness), ["Unlisten { listener: ListenerId(1) }"]);
    harness.input(Input::Listening { listener: ListenerId(1), at: unix("/b") });
    offered(&mut harness, 1..=2);
    harness.input(Input::Unlistened { listener: ListenerId(1), error: None });
    let both = [NbdReply::Listening(unix("/b")), NbdReply::Done];
    assert_eq!(harness.replies.iter().map(|(_, reply)| reply.clone()).collect::<Vec<_>>(), both);
}

#[test]
fn wrong_verbs_are_refused_with_a_reason() {
    let mut harness = control();
    let long = "n".repeat(300);
    let table = [
        (add("x", unix("/b")), "an export named \"x\" exists already: give this one another name"),
        (NbdVerb::Remove("q".into()), "there is no export named \"q\""),
        (add(&long, unix("/b")), "the export's name has 300 bytes, at most 256 fit"),
        (add("a\nb", unix("/b")), "the export's name holds a control character"),
    ];
    for (i, (wrong, text)) in table.into_iter().enumerate() {
        verb(&mut harness, i as u64, wrong);
        let (id, NbdReply::Error(error)) = &harness.replies[i] else { panic!("refused") };
        assert_eq!((id.0, error.to_string().as_str()), (i as u64, text));
    }
    assert!(harness.mail.is_empty());
    let mut data = server();
    verb(&mut data, 1, NbdVerb::List);
    assert_eq!(data.replies, [(VerbId(1), NbdReply::Error(NbdError::NotControl))]);
}

#[test]
fn a_new_offer_is_open_at_once_and_a_withdrawn_one_ends() {
    let mut harness = server();
    harness.complete_at_once = false;
    let old = open(&mut harness, true);
    harness.send(old, &client::write(0, 1, 0, &[9; 512]));
    let exports = vec![(ListenerId(0), export("new", "nvme0n1"))].into();
    let mail = NbdMail::Offer { epoch: 7, exports };
    harness.input(Input::Mail { from: WorkerId(0), mail });
    assert!(matches!(harness.mail[..], [(WorkerId(0), NbdMail::Offered { epoch: 7 })]));
    assert!(harness.is_connected(old), "its write is in flight");
    harness.complete_all();
    assert!(!harness.is_connected(old));
    let received = harness.take(old);
    let (answers, _) = client::answers(&received, &BTreeMap::new());
    assert!(answers[&1].done && answers[&1].errno == 0, "and was answered");
    let conn = harness.connect();
    harness.send(conn, &client::negotiate("new", true));
    let received = harness.take(conn);
    let (replies, _) = client::negotiation(&received);
    assert_eq!(replies.last().map(|reply| reply.kind), Some(option_reply::ACK));
    assert!(replies.iter().all(|reply| reply.kind != option_reply::ERR_UNKNOWN));
}

fn withdraw(harness: &mut Harness) {
    let mail = NbdMail::Offer { epoch: 7, exports: vec![].into() };
    harness.input(Input::Mail { from: WorkerId(0), mail });
}

#[test]
fn a_request_that_waits_for_memory_is_answered_before_its_export_goes() {
    let write = client::write(0, 2, 0, &[7; 8192]);
    let read = client::request(command::READ, 0, 1, 0, 4096);
    let behind = client::request(command::READ, 0, 3, 0, 512);
    for (cookie, request, early) in [(1, &read, 28), (2, &write, 28), (2, &write, 5000)] {
        let mut harness = server();
        let conn = open(&mut harness, true);
        let taken: Vec<_> = (0..256).map(|_| harness.pool.filled(&vec![0; 1 << 20])).collect();
        harness.send(conn, &request[..early]);
        withdraw(&mut harness);
        assert!(harness.is_connected(conn), "it has a request");
        // The rest of its payload, and a request that comes too late.
        harness.send(conn, &[&request[early..], &behind].concat());
        taken.into_iter().for_each(|buf| harness.pool.free(buf));
        harness.pass(RETRY_DELAY);
        assert!(!harness.is_connected(conn));
        let received = harness.take(conn);
        let (answers, rest) = client::answers(&received, &BTreeMap::from([(1, 4096)]));
        assert!(rest.is_empty());
        assert_eq!(answers.keys().copied().collect::<Vec<_>>(), [cookie]);
        assert_eq!((answers[&cookie].done, answers[&cookie].errno), (true, 0));
        assert!(cookie == 1 || harness.host.disk(0)[..8192] == [7; 8192]);
        harness.check_empty();
    }
}

#[test]
fn a_payload_that_does_not_come_keeps_an_export_for_a_moment_only() {
    let mut harness = server();
    let conn = open(&mut harness, true);
    harness.send(conn, &client::write(0, 2, 0, &[7; 8192])[..5000]);
    withdraw(&mut harness);
    assert!(harness.is_connected(conn));
    harness.pass(CLOSE_TIMEOUT);
    assert!(!harness.is_connected(conn));
    harness.check_empty();
}

#[test]
fn a_device_that_goes_ends_its_clients_and_one_that_grows_does_not() {
    let mut harness = server();
    let conn = open(&mut harness, true);
    let end = support::DISK_BYTES - 4096;
    harness.host.change_head(0, |head| head.blocks -= 8);
    harness.heads_changed();
    assert_ne!(ask(&mut harness, conn, command::READ, 0, end, 512).errno, 0);
    harness.host.change_head(0, |head| head.blocks += 8);
    harness.heads_changed();
    assert_eq!(ask(&mut harness, conn, command::READ, 0, end, 512).errno, 0);
    harness.host.change_head(0, |head| head.gone = true);
    harness.heads_changed();
    assert!(!harness.is_connected(conn));
    let late = harness.connect();
    let bytes = [client::flags(), client::option(option::GO, &client::info("disk", &[]))].concat();
    harness.send(late, &bytes);
    harness.pass(DEVICE_TIMEOUT);
    let received = harness.take(late);
    assert_eq!(client::negotiation(&received).0[0].kind, option_reply::ERR_UNKNOWN);
}

/// Whoever is cut off at the end is counted as unanswered: the host goes on with what was asked.
#[test]
fn what_cannot_be_finished_while_draining_is_not_withdrawn() {
    let mut harness = server();
    harness.complete_at_once = false;
    let busy = open(&mut harness, true);
    harness.send(busy, &client::write(0, 1, 0, &[9; 512]));
    harness.input(Input::Mail { from: WorkerId(0), mail: NbdMail::Drain(CLOSE_TIMEOUT) });
    harness.pass(CLOSE_TIMEOUT);
    assert!(!harness.is_connected(busy));
    assert_eq!((harness.host.pending(), harness.host.withdrawn.len()), (1, 0));
    harness.complete_all();
    harness.check_empty();
}

/// "On a server shutdown, the server SHOULD wait for inflight requests to be serviced": for as long
/// as it is given.
#[test]
fn a_drain_that_may_take_longer_waits_longer() {
    let mut harness = server();
    harness.complete_at_once = false;
    let busy = open(&mut harness, true);
    harness.send(busy, &client::write(0, 77, 0, &[9; 512]));
    let mail = NbdMail::Drain(2 * CLOSE_TIMEOUT);
    harness.input(Input::Mail { from: WorkerId(0), mail });
    harness.pass(2 * CLOSE_TIMEOUT - Duration::from_millis(1));
    harness.complete_all();
    assert_eq!(one_answer(&mut harness, busy, 0).errno, 0);
    harness.check_empty();
}

/// An error would reach a guest, which could ask the next server.
#[test]
fn what_the_end_of_the_host_makes_impossible_is_not_answered() {
    for error in [IoError::NoPath, IoError::Gone] {
        let mut harness = server();
        harness.complete_at_once = false;
        let [busy, long, other] = [(); 3].map(|()| open(&mut harness, false));
        harness.send(busy, &client::write(0, 77, 0, &[9; 512]));
        harness.send(busy, &client::write(0, 2, 512, &[9; 512]));
        // Less than all of it is at the host.
        harness.send(long, &client::request(command::READ, 0, 3, 0, 4 << 20));
        harness.send(other, &client::write(0, 77, 1024, &[9; 512]));
        harness.input(Input::Mail { from: WorkerId(0), mail: NbdMail::Drain(CLOSE_TIMEOUT) });
        harness.complete_one(0);
        assert_eq!(one_answer(&mut harness, busy, 0).errno, 0, "what has ended is answered");
        harness.host.ending = true;
        harness.host.fault = Some((1, error));
        harness.complete_one(0);
        assert!(!harness.is_connected(busy));
        assert_eq!(harness.take(busy), []);
        harness.host.fault = None;
        harness.complete_all();
        assert!(!harness.is_connected(long), "no more of it can be read");
        assert_eq!(one_answer(&mut harness, other, 0).errno, 0);
        harness.check_empty();
    }
}

#[test]
fn draining_finishes_clients_and_reports_when_none_is_left() {
    let mut harness = server();
    harness.complete_at_once = false;
    let idle = open(&mut harness, true);
    let busy = open(&mut harness, true);
    harness.send(busy, &client::write(0, 1, 0, &[9; 512]));
    harness.input(Input::Mail { from: WorkerId(0), mail: NbdMail::Drain(CLOSE_TIMEOUT) });
    assert!(!harness.is_connected(idle) && harness.is_connected(busy));
    let late = harness.connect();
    assert!(!harness.is_connected(late));
    assert!(harness.mail.is_empty());
    harness.complete_all();
    assert!(!harness.is_connected(busy));
    assert!(matches!(harness.mail[..], [(WorkerId(0), NbdMail::Drained)]));
    harness.check_empty();

    let mut control = control();
    verb(&mut control, 1, NbdVerb::Drain(CLOSE_TIMEOUT));
    for worker in [1, 2] {
        assert!(control.replies.is_empty());
        control.input(Input::Mail { from: WorkerId(worker), mail: NbdMail::Drained });
    }
    assert_eq!(control.replies, [(VerbId(1), NbdReply::Done)]);
    verb(&mut control, 2, add("y", unix("/b")));
    assert_eq!(control.replies[1].1, NbdReply::Error(NbdError::Draining));
}

/// What clients were not answered may still be sent again: the next server must not begin before.
#[test]
fn addresses_are_kept_until_the_server_is_closed() {
    let mut harness = control();
    harness.input(Input::Listening { listener: ListenerId(0), at: unix("/a") });
    verb(&mut harness, 1, add("y", unix("/b")));
    harness.input(Input::Listening { listener: ListenerId(1), at: unix("/b") });
    offered(&mut harness, 1..=1);
    verb(&mut harness, 2, NbdVerb::Drain(CLOSE_TIMEOUT));
    for worker in [1, 2] {
        harness.input(Input::Mail { from: WorkerId(worker), mail: NbdMail::Drained });
    }
    assert_eq!(harness.replies.last(), Some(&(VerbId(2), NbdReply::Done)));
    assert!(unlistened(&harness).is_empty());

    verb(&mut harness, 3, NbdVerb::Close);
    assert_eq!(unlistened(&harness).len(), 2);
    harness.input(Input::Unlistened { listener: ListenerId(0), error: None });
    assert_eq!(harness.replies.len(), 2, "one is still taken");
    harness.input(Input::Unlistened { listener: ListenerId(1), error: None });
    assert_eq!(harness.replies.last(), Some(&(VerbId(3), NbdReply::Done)));
    verb(&mut harness, 4, NbdVerb::Close);
    assert_eq!(harness.replies.last(), Some(&(VerbId(4), NbdReply::Done)), "there is none");
}

/// Nothing asks who a client is: an address that is not this machine's own says so.
#[test]
fn an_address_that_others_reach_is_told_to_be_open_to_them() {
    let open = |at: &str| {
        let at = at.parse().map_or_else(|_| unix(at), Endpoint::Tcp);
        NbdEvent::Listening(at).to_string().contains("there is no authentication")
    };
    for at in ["0.0.0.0:10809", "[::]:1", "192.0.2.7:1", "[2001:db8::7]:1", "[::ffff:192.0.2.7]:1"]
    {
        assert!(open(at), "{at}");
    }
    for at in ["127.0.0.1:10809", "127.1.2.3:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "/run/n.sock"] {
        assert!(!open(at), "{at}");
    }
}
