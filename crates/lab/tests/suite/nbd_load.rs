//! The load through NBD: against the server of this house, and against servers that do what they
//! like.

use anabranch_export::fuzz::Harness;
use anabranch_export::nbd::wire::{self, errno, export_flag, option_reply};
use anabranch_export::nbd::{Export, NbdConfig};
use anabranch_lab::load::{Job, LoadReport};
use anabranch_lab::nbd::fuzz::{
    Stage, block_info, export_info, fuzz_nbd_client, greet, job, opened, option_reply, reply,
    requests,
};
use anabranch_lab::nbd::{
    NEGOTIATION_TIMEOUT, NbdLoadEvent, NbdLoadReply, NbdLoadVerb, Opened, SILENCE_TIMEOUT,
};
use anabranch_lab::rng::Rng;
use anabranch_proto::machine::{CloseCause, ConnId, SystemError};
use std::collections::BTreeMap;
use std::time::Duration;

const POOL: u64 = 64 << 20;
const DISK_BYTES: u64 = 4 << 20;

/// A client and the server of this house, and the streams between them.
struct Pair {
    stage: Stage,
    server: Harness,
    ends: BTreeMap<ConnId, ConnId>,
}

impl Pair {
    fn new() -> Pair {
        let exports = ["disk"].map(|name| Export {
            name: name.into(),
            device: "nvme0n1".into(),
            ..Export::default()
        });
        let config = NbdConfig { listen: None, exports: exports.to_vec() };
        let mut server = Harness::new(config, 256 << 20);
        server.host.add_disk("nvme0n1", DISK_BYTES as usize, 512);
        Pair { stage: Stage::new(POOL), server, ends: BTreeMap::new() }
    }

    fn open(&mut self, export: &str, connections: u16) -> NbdLoadReply {
        let id = self.stage.open(export, connections);
        for conn in self.stage.conns() {
            self.ends.insert(conn, self.server.connect());
        }
        self.exchange(20);
        self.stage.answer(id).expect("an answer")
    }

    /// Carries bytes both ways, `rounds` times at most.
    fn exchange(&mut self, rounds: usize) {
        for _ in 0..rounds {
            for (&here, &there) in &self.ends {
                let bytes = self.server.take(there);
                self.stage.say(here, &bytes);
                let bytes = self.stage.take(here);
                self.server.send(there, &bytes);
            }
            self.stage.pass(Duration::from_millis(1));
        }
    }

    fn start(&mut self, job: Job) {
        let of = self.ends.len() as u16;
        let start = NbdLoadVerb::Start { job: Box::new(job), first: 0, of };
        let id = self.stage.verb(start);
        let reply = self.stage.answer(id);
        assert!(matches!(reply, Some(NbdLoadReply::Started)), "{reply:?}");
    }

    fn stop(&mut self) -> LoadReport {
        let id = self.stage.verb(NbdLoadVerb::Stop);
        self.exchange(200);
        match self.stage.answer(id) {
            Some(NbdLoadReply::Report(report)) => *report,
            other => panic!("no report: {other:?}"),
        }
    }
}

/// A client with an open export of 1 MiB and a load on it; its one connection.
fn loaded(job: Job) -> (Stage, ConnId) {
    let mut stage = Stage::new(POOL);
    let open = stage.open("disk", 1);
    let conn = stage.conns()[0];
    stage.welcome(conn, 1 << 20);
    assert!(matches!(stage.answer(open), Some(NbdLoadReply::Opened(_))));
    // Flags, an option's header, and its payload with a name of four bytes.
    assert_eq!(stage.take(conn).len(), 4 + 16 + 12);
    let id = stage.verb(NbdLoadVerb::Start { job: Box::new(job), first: 0, of: 1 });
    assert!(matches!(stage.answer(id), Some(NbdLoadReply::Started)));
    (stage, conn)
}

fn stopped(stage: &mut Stage) -> LoadReport {
    let id = stage.verb(NbdLoadVerb::Stop);
    for conn in stage.conns() {
        let mut bytes = stage.take(conn);
        requests(&mut bytes).iter().for_each(|seen| stage.say(conn, &reply(seen, 0)));
    }
    match stage.answer(id) {
        Some(NbdLoadReply::Report(report)) => *report,
        other => panic!("no report: {other:?}"),
    }
}

/// What a client says when the server says this first.
fn refusal(said: &[u8]) -> String {
    let mut stage = Stage::new(POOL);
    stage.portion = 3;
    let open = stage.open("disk", 1);
    stage.say(stage.conns()[0], said);
    let why = match stage.answer(open) {
        Some(NbdLoadReply::Failed(why)) => why,
        other => panic!("not refused: {other:?}"),
    };
    assert!(stage.conns().is_empty(), "the connection was ended");
    why
}

#[test]
fn a_verified_mix_on_three_connections_of_our_server() {
    let mut pair = Pair::new();
    let opened = pair.open("disk", 3);
    let NbdLoadReply::Opened(opened) = opened else { panic!("{opened:?}") };
    assert_eq!(opened.bytes, DISK_BYTES);
    assert_eq!((opened.read_only, opened.block_bytes), (false, 512));
    for (aims, hold) in [(true, false), (false, true)] {
        (pair.stage.aims, pair.stage.hold) = (aims, hold);
        pair.start(job(50, &[4096, 65536], 8, true));
        for _ in 0..100 {
            pair.exchange(1);
            pair.stage.release();
        }
        pair.stage.hold = false;
        pair.stage.release();
        let report = pair.stop();
        assert_eq!((report.errors, report.verify_errors), (0, 0), "{report:?}");
        assert!(report.requests.iter().all(|&requests| requests > 300), "{:?}", report.requests);
        assert!(report.blocks_verified > 0);
        assert_eq!(report.latency_ns[0].count(), report.requests[0]);
        let sizes = report.bytes[0] + report.bytes[1];
        assert!(sizes > report.total_requests() * 4096);
    }
    assert!(pair.stage.aimed > 0, "large payload goes straight to its place");
    let close = pair.stage.verb(NbdLoadVerb::Close);
    assert!(matches!(pair.stage.answer(close), Some(NbdLoadReply::Closed)));
    assert_eq!(pair.stage.pool.in_use_bytes(), 0);
    for &there in pair.ends.values() {
        pair.server.disconnect(there);
    }
    pair.server.check_empty();
}

#[test]
fn an_export_that_is_not_there_is_named() {
    let mut pair = Pair::new();
    let NbdLoadReply::Failed(why) = pair.open("other", 2) else { panic!("it is not there") };
    assert!(why.contains("no export 'other'"), "{why}");
}

#[test]
fn a_wrong_block_is_found() {
    let mut pair = Pair::new();
    pair.open("disk", 1);
    let all = Job { random: false, ..job(0, &[65536], 4, true) };
    pair.start(all);
    pair.exchange(200);
    let written = pair.stop();
    assert_eq!((written.errors, written.verify_errors), (0, 0));
    // Another run knows nothing of the first: blocks that it has not written may hold anything.
    pair.start(job(100, &[65536], 4, true));
    pair.exchange(20);
    let report = pair.stop();
    assert_eq!((report.verify_errors, report.blocks_verified), (0, 0));
    // In one run, a server that answers zeroes for what was written is found out.
    let (mut stage, conn) = loaded(Job { size: Some(4096), ..job(50, &[4096], 1, true) });
    for _ in 0..50 {
        let mut bytes = stage.take(conn);
        for seen in requests(&mut bytes) {
            stage.say(conn, &reply(&seen, 0));
        }
    }
    let report = stopped(&mut stage);
    assert!(report.verify_errors > 0 && report.mismatches[0].contains("not stamped"), "{report:?}");
}

#[test]
fn the_depth_is_kept_and_each_cookie_is_new() {
    let (mut stage, conn) = loaded(job(100, &[4096], 5, false));
    let mut cookies = std::collections::BTreeSet::new();
    let mut open = Vec::new();
    for round in 0..40 {
        let mut bytes = stage.take(conn);
        open.extend(requests(&mut bytes));
        assert_eq!(open.len(), 5, "round {round}");
        // Replies may come in any order.
        let seen = open.remove(round % 5);
        assert!(cookies.insert(seen.cookie), "a cookie of before");
        assert!(seen.offset % 4096 == 0 && seen.offset < 1 << 20 && seen.bytes == 4096);
        stage.say(conn, &reply(&seen, 0));
    }
    let stop = stage.verb(NbdLoadVerb::Stop);
    assert!(stage.answer(stop).is_none(), "five replies are owed");
    let mut bytes = stage.take(conn);
    open.extend(requests(&mut bytes));
    for seen in open {
        stage.say(conn, &reply(&seen, 0));
    }
    let Some(NbdLoadReply::Report(report)) = stage.answer(stop) else { panic!("a report") };
    assert_eq!((report.requests, report.errors), ([45, 0], 0));
    assert_eq!(report.bytes, [45 * 4096, 0]);
}

#[test]
fn a_buffer_is_not_used_again_before_it_has_left() {
    let (mut stage, conn) = loaded(job(0, &[4096], 1, true));
    let mut bytes = stage.take(conn);
    let first = requests(&mut bytes);
    stage.hold = true;
    stage.say(conn, &reply(&first[0], 0));
    let mut bytes = stage.take(conn);
    let second = requests(&mut bytes);
    // The second batch is held back, yet the server answers: the third must wait.
    stage.say(conn, &reply(&second[0], 0));
    assert!(stage.take(conn).is_empty());
    stage.release();
    assert_eq!(requests(&mut stage.take(conn)).len(), 1);
}

#[test]
fn errors_of_requests_are_counted_and_slow_the_load_down() {
    let (mut stage, conn) = loaded(job(100, &[4096], 2, false));
    for _ in 0..100 {
        let mut bytes = stage.take(conn);
        for seen in requests(&mut bytes) {
            stage.say(conn, &reply(&seen, errno::EIO));
        }
        stage.pass(Duration::from_millis(1));
    }
    let report = stopped(&mut stage);
    assert!((10..=40).contains(&report.errors), "{}", report.errors);
    assert_eq!(report.first_error.as_deref(), Some("the server answers EIO (5)"));
    assert_eq!(stage.events, []);
}

#[test]
fn a_pause_ends_even_when_no_buffer_is_free() {
    let (mut stage, conn) = loaded(job(0, &[4096], 1, false));
    let mut bytes = stage.take(conn);
    let seen = requests(&mut bytes);
    stage.hold = true;
    stage.say(conn, &reply(&seen[0], errno::EIO));
    stage.pass(Duration::from_millis(10));
    let mut bytes = stage.take(conn);
    let second = requests(&mut bytes);
    // It has failed while its payload was still on its way out, as far as the driver knows.
    stage.say(conn, &reply(&second[0], errno::EIO));
    stage.pass(Duration::from_millis(20));
    assert!(stage.take(conn).is_empty());
    stage.release();
    assert_eq!(requests(&mut stage.take(conn)).len(), 1);
}

#[test]
fn negotiations_that_fail_say_why() {
    let size = || option_reply(option_reply::INFO, &export_info(1 << 20, 0));
    let ack = || option_reply(option_reply::ACK, &[]);
    let after_greeting = |rest: &[Vec<u8>]| refusal(&[greet(), rest.concat()].concat());
    let mut old = greet();
    old[8..16].copy_from_slice(&0x0000_4202_8186_1253_u64.to_be_bytes());
    let mut no_fixed = greet();
    no_fixed[17] = 2;
    let mut other_option = ack();
    other_option[11] = 6;
    let mut long = ack();
    long[16..20].copy_from_slice(&8193_u32.to_be_bytes());
    let refused = |kind| after_greeting(&[option_reply(kind, b"because\n")]);
    for (why, named) in [
        (refusal(b"HTTP/1.1 400 Bad Request\r\n"), "no NBD server"),
        (refusal(&old), "oldstyle"),
        (refusal(&[&greet()[..8], &[9; 10]].concat()), "IHAVEOPT"),
        (refusal(&no_fixed), "fixed newstyle"),
        (after_greeting(&[vec![1; 20]]), "0x0101010101010101"),
        (after_greeting(&[other_option]), "option 6"),
        (after_greeting(&[long]), "8193 bytes, at most 8192"),
        (after_greeting(&[ack()]), "size"),
        (after_greeting(&vec![size(); 70]), "more than 64 replies"),
        (after_greeting(&[option_reply(2, &[])]), "type 2"),
        (after_greeting(&[option_reply(option_reply::INFO, &[0])]), "1 bytes"),
        (after_greeting(&[option_reply(option_reply::INFO, &[0; 11])]), "must have 12"),
        (after_greeting(&[option_reply(option_reply::INFO, &block_info(3, 9))]), "size is 3"),
        (
            after_greeting(&[option_reply(option_reply::INFO, &block_info(1 << 17, 1 << 20))]),
            "131072",
        ),
        (
            after_greeting(&[option_reply(option_reply::INFO, &block_info(4096, 512))]),
            "512 is below",
        ),
        (
            after_greeting(&[option_reply(option_reply::INFO, &export_info(1 << 63, 0)), ack()]),
            "2^63 - 1",
        ),
        (refused(option_reply::ERR_UNKNOWN), "no export 'disk' (it says: because)"),
        (refused(option_reply::ERR_UNSUP), "NBD_OPT_GO"),
        (refused(option_reply::ERR_TLS_REQD), "TLS"),
        (refused(option_reply::ERR_POLICY), "policy"),
        (refused(option_reply::ERR_SHUTDOWN), "shutting down"),
        (refused(0x8000_0063), "0x80000063"),
    ] {
        assert!(why.contains(named), "'{why}' does not name '{named}'");
    }
}

#[test]
fn a_server_that_breaks_the_protocol_loses_the_connection() {
    let mut wrong_magic = vec![0; 16];
    wrong_magic[3] = 1;
    let mut structured = vec![0; 20];
    structured[..4].copy_from_slice(&wire::CHUNK_MAGIC.to_be_bytes());
    let mut unknown = wire::SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec();
    unknown.extend([0; 4]);
    unknown.extend(0xdead_0000_u64.to_be_bytes());
    for (said, named) in [
        (wrong_magic, "0x00000001"),
        (structured, "structured reply"),
        (unknown, "cookie 0xdead0000"),
    ] {
        let (mut stage, conn) = loaded(job(100, &[4096], 3, false));
        stage.say(conn, &said);
        let [NbdLoadEvent::Lost(why)] = &stage.events[..] else { panic!("{:?}", stage.events) };
        assert!(why.contains(named), "{why}");
        assert!(stage.conns().is_empty());
        let report = stopped(&mut stage);
        assert_eq!(report.errors, 3, "all that were under way");
        assert!(report.first_error.expect("told").contains(named));
        assert_eq!(stage.pool.in_use_bytes(), 0);
    }
}

#[test]
fn the_second_reply_to_a_request_is_a_violation() {
    let (mut stage, conn) = loaded(job(0, &[4096], 2, false));
    let mut bytes = stage.take(conn);
    let seen = requests(&mut bytes).remove(0);
    stage.say(conn, &reply(&seen, 0));
    assert_eq!(stage.events, []);
    stage.say(conn, &reply(&seen, 0));
    assert_eq!(stage.events.len(), 1);
}

#[test]
fn a_server_that_goes_away_or_never_came_is_told() {
    let (mut stage, conn) = loaded(job(100, &[4096], 3, false));
    stage.close(conn, CloseCause::PeerClosed);
    assert_eq!(stage.events.len(), 1);
    let report = stopped(&mut stage);
    assert_eq!(report.errors, 3);
    assert_eq!(report.first_error.as_deref(), Some("the server closed the connection"));

    let mut stage = Stage::new(POOL);
    let open = stage.open("disk", 2);
    stage.close(stage.conns()[0], CloseCause::Failed(SystemError::REFUSED));
    let Some(NbdLoadReply::Failed(why)) = stage.answer(open) else { panic!("refused") };
    assert!(why.contains("connection refused"), "{why}");
    assert!(stage.conns().is_empty(), "the other connection was ended too");
}

#[test]
fn silence_ends_in_time() {
    let mut stage = Stage::new(POOL);
    let open = stage.open("disk", 1);
    stage.say(stage.conns()[0], &greet()[..17]);
    stage.pass(NEGOTIATION_TIMEOUT / 2);
    assert!(stage.answer(open).is_none());
    stage.pass(NEGOTIATION_TIMEOUT / 2);
    let Some(NbdLoadReply::Failed(why)) = stage.answer(open) else { panic!("too slow") };
    assert!(why.contains("10 s"), "{why}");

    let (mut stage, conn) = loaded(job(100, &[4096], 3, false));
    stage.pass(SILENCE_TIMEOUT - Duration::from_secs(2));
    let mut bytes = stage.take(conn);
    let seen = requests(&mut bytes).remove(0);
    stage.say(conn, &reply(&seen, 0));
    stage.pass(SILENCE_TIMEOUT - Duration::from_secs(2));
    assert_eq!(stage.events, []);
    // A reply that trickles in is none until it is complete.
    stage.say(conn, &wire::SIMPLE_REPLY_MAGIC.to_be_bytes());
    stage.pass(Duration::from_secs(4));
    let [NbdLoadEvent::Lost(why)] = &stage.events[..] else { panic!("{:?}", stage.events) };
    assert!(why.contains("30 s"), "{why}");
}

#[test]
fn jobs_that_do_not_fit_the_export_are_refused() {
    let refused = |flags: u16, block: (u32, u32), pool: u64, job: Job| {
        let mut stage = Stage::new(pool);
        let open = stage.open("disk", 1);
        stage.say(stage.conns()[0], &greet());
        let said = [
            option_reply(option_reply::INFO, &export_info(1 << 20, flags)),
            option_reply(option_reply::INFO, &block_info(block.0, block.1)),
            option_reply(option_reply::ACK, &[]),
        ];
        stage.say(stage.conns()[0], &said.concat());
        let Some(NbdLoadReply::Opened(_)) = stage.answer(open) else { panic!("it is open") };
        let id = stage.verb(NbdLoadVerb::Start { job: Box::new(job), first: 0, of: 1 });
        assert_eq!(stage.pool.in_use_bytes(), 0, "a refused load keeps nothing");
        match stage.answer(id) {
            Some(NbdLoadReply::Failed(why)) => why,
            other => panic!("not refused: {other:?}"),
        }
    };
    let any = (512, 1 << 20);
    let job = |sizes: &[u32]| job(50, sizes, 4, false);
    for (why, named) in [
        (refused(export_flag::READ_ONLY, any, POOL, job(&[4096])), "read-only"),
        (refused(0, (512, 65536), POOL, job(&[4096, 131_072])), "bs 131072 exceeds the 65536"),
        (refused(0, (4096, 65536), POOL, job(&[512])), "not a multiple of the device's 4096"),
        (refused(0, any, 12 << 10, job(&[4096])), "buffer memory"),
        (refused(0, any, POOL, Job { offset: 1 << 20, ..job(&[4096]) }), "1048576 bytes"),
        (refused(0, any, POOL, Job { depth: 5000, ..job(&[512]) }), "iodepth 5000"),
    ] {
        assert!(why.contains(named), "'{why}' does not name '{named}'");
    }
}

#[test]
fn without_block_sizes_the_protocols_defaults_hold() {
    let mut stage = Stage::new(POOL);
    let open = stage.open("", 1);
    stage.say(stage.conns()[0], &greet());
    let said = [
        option_reply(option_reply::INFO, &[0, 77, 1, 2, 3]),
        option_reply(option_reply::INFO, &export_info(12_345, export_flag::READ_ONLY)),
        option_reply(option_reply::ACK, &[]),
    ];
    stage.say(stage.conns()[0], &said.concat());
    let opened =
        Opened { bytes: 12_345, read_only: true, block_bytes: 512, max_request_bytes: 32 << 20 };
    match stage.answer(open) {
        Some(NbdLoadReply::Opened(found)) => assert_eq!(found, opened),
        other => panic!("{other:?}"),
    }
}

#[test]
fn servers_that_say_anything_do_no_harm() {
    const SEED: u64 = 0x6e62_64c1;
    println!("seed {SEED:#x}");
    let mut rng = Rng::new(SEED);
    let mut corpus = vec![[greet(), opened(1 << 20)].concat(), greet(), Vec::new()];
    corpus.push([greet(), opened(1 << 20), vec![0; 40]].concat());
    corpus.push(option_reply(option_reply::ERR_UNKNOWN, b"no"));
    for round in 0..6000_u32 {
        let mut bytes: Vec<u8> = (0..4).map(|_| rng.next_u64() as u8).collect();
        if round % 2 == 0 {
            // Each piece said as it is, behind the step that says so.
            for piece in corpus[rng.below(corpus.len() as u64) as usize].chunks(28) {
                bytes.push(28 * 8 + 7);
                bytes.extend(piece);
            }
        } else {
            bytes[0] |= 8;
            bytes.extend((0..rng.below(200)).map(|_| rng.next_u64() as u8 & 0xf5));
        }
        for _ in 0..rng.below(5) {
            let at = 4 + rng.below(bytes.len() as u64 - 3) as usize;
            match rng.below(3) {
                0 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
                1 => bytes.truncate(at),
                _ => bytes.insert(at, rng.next_u64() as u8),
            }
        }
        fuzz_nbd_client(&bytes);
    }
}
