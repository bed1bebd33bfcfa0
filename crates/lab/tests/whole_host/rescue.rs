//! A path falls silent under `finish-time`: reads that are stuck on it are answered through another
//! one, what was never sent leaves it, and what comes late touches nobody's memory. (The memory of
//! the simulation fails a test in which a buffer is touched after its request was answered.)

use crate::rig::{MS, Rig, SECOND, Setup};
use crate::script::Op;
use crate::setup;
use anabranch_host::verb::Verb;
use anabranch_lab::rng::Rng;
use anabranch_policy::Policy;
use anabranch_proto::machine::{Time, WorkerId};
use anabranch_proto::nvme::AnaState;
use anabranch_proto::nvme::opcode::io;
use std::collections::BTreeMap;
use std::time::Duration;

const DEVICE_BLOCKS: u32 = 2048;

/// No read takes so long while there is a sound path: the silence rule and a few round trips.
const SOON: Duration = Duration::from_millis(200);

pub(crate) fn two_ports(change: impl FnOnce(&mut Setup)) -> Rig {
    let mut setup = Setup::new(2, 1);
    setup.host.default_policy = Policy::FinishTime;
    change(&mut setup);
    setup.connect()
}

/// Everything on the I/O connection of a port waits for so long.
pub(crate) fn stall(rig: &mut Rig, port: u16, stretch: Duration) {
    let stream = rig.world.stream(WorkerId(1), &setup::port(port)).expect("open");
    rig.world.stall_stream(stream, stretch);
}

/// Nothing that a port says about I/O arrives any more.
pub(crate) fn silence(rig: &Rig, port: u16) {
    rig.wire().rule(move |pdu| {
        if pdu.port == port && pdu.worker > 0 && !pdu.to_target {
            pdu.bytes.clear();
        }
    });
}

/// Reads and writes all over the device, each place under one request at a time: what a read must
/// find is always known.
struct Load {
    rng: Rng,
    blocks: u32,
    values: Vec<u8>,
    busy: Vec<bool>,
    pending: BTreeMap<u64, (usize, Op, Time)>,
    reads: Vec<Duration>,
    answered: usize,
}

impl Load {
    fn new(rig: &mut Rig, seed: u64, blocks: u32) -> Load {
        let places = (DEVICE_BLOCKS / blocks) as usize;
        let (values, busy) = (vec![0; places], vec![false; places]);
        let (rng, pending) = (Rng::new(seed), BTreeMap::new());
        let mut load = Load { rng, blocks, values, busy, pending, reads: Vec::new(), answered: 0 };
        for place in 0..places {
            load.start(rig, place, true);
        }
        load.drain(rig);
        load
    }

    fn start(&mut self, rig: &mut Rig, place: usize, write: bool) {
        let (lba, blocks) = (place as u64 * u64::from(self.blocks), self.blocks);
        let op = match write {
            true => Op::Write { lba, blocks, fill: self.rng.below(256) as u8 },
            false => Op::Read { lba, blocks },
        };
        self.busy[place] = true;
        let name = rig.submit([op])[0];
        self.pending.insert(name, (place, op, rig.now()));
    }

    /// Up to so many new requests, and a millisecond.
    fn step(&mut self, rig: &mut Rig, count: usize, write_percent: u32) {
        for _ in 0..count {
            let place = self.rng.below(self.busy.len() as u64) as usize;
            if !self.busy[place] {
                let write = self.rng.percent(write_percent);
                self.start(rig, place, write);
            }
        }
        rig.run(MS);
        self.collect(rig);
    }

    fn run(&mut self, rig: &mut Rig, stretch: Duration, count: usize, write_percent: u32) {
        let end = rig.now().after(stretch);
        while rig.now() < end {
            self.step(rig, count, write_percent);
        }
    }

    fn collect(&mut self, rig: &Rig) {
        let names: Vec<u64> = self.pending.keys().copied().collect();
        for name in names {
            let Some(outcome) = rig.outcome(name) else { continue };
            let (place, op, submitted) = self.pending[&name];
            assert_eq!(outcome.result, Ok(()), "{op:?}");
            match op {
                Op::Write { fill, .. } => self.values[place] = fill,
                _ => {
                    let right = outcome.data.iter().all(|&byte| byte == self.values[place]);
                    assert!(right, "{op:?} of {}", self.values[place]);
                    self.reads.push(outcome.at.since(submitted));
                }
            }
            self.answered += 1;
            self.busy[place] = false;
            self.pending.remove(&name);
        }
    }

    fn drain(&mut self, rig: &mut Rig) {
        let end = rig.now().after(SECOND * 60);
        while !self.pending.is_empty() {
            assert!(rig.now() < end, "{} are not answered", self.pending.len());
            rig.run(MS);
            self.collect(rig);
        }
    }

    /// Reads that took longer than a rescue does, answered or not.
    fn slow_reads(&self, now: Time) -> usize {
        let waiting = self.pending.values().filter(|(_, op, _)| matches!(op, Op::Read { .. }));
        let waiting = waiting.map(|(_, _, submitted)| now.since(*submitted));
        self.reads.iter().copied().chain(waiting).filter(|took| *took > SOON).count()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Both directions; what was on its way arrives 2 s later.
    Late,
    /// What the target says is lost for good.
    Lost,
    /// In the middle of what the target was saying; the rest arrives 2 s later.
    Torn,
}

/// Load, a silence of the second port in the middle of it, and what came of it.
fn silence_under_load(seed: u64, fault: Fault, blocks: u32, digests: bool) {
    println!("seed {seed}, {fault:?}, {blocks} blocks, digests {digests}");
    let mut rig = two_ports(|setup| {
        setup.options.hdr_digest = digests;
        setup.options.data_digest = digests;
        // Large ones are several data PDUs.
        setup.options.queue_size = 32;
    });
    rig.world.rng().skip(seed);
    // So that the other one is used more.
    let near = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.slow_stream(near, MS / 2);
    let mut load = Load::new(&mut rig, seed, blocks);
    load.run(&mut rig, 50 * MS, 12, 30);
    let begin = rig.now();
    match fault {
        Fault::Late => stall(&mut rig, 1, 2 * SECOND),
        Fault::Lost => silence(&rig, 1),
        Fault::Torn => {
            let stream = rig.world.stream(WorkerId(1), &setup::port(1)).expect("open");
            rig.world.tear_stream(stream, 2 * SECOND);
        }
    }
    load.step(&mut rig, 24, 20);
    load.run(&mut rig, SECOND / 4, 12, 30);
    let path = rig.path(1);
    assert!(path.rescued > 0, "some were stuck");
    // One may be stuck in a buffer that is just being received into: none below 16 KiB.
    let stays = usize::from(fault == Fault::Torn && blocks >= 32);
    assert!(load.slow_reads(rig.now()) <= stays, "{} reads waited", load.slow_reads(rig.now()));
    let line = rig.event(begin, "nvme0c1n1: silent for ").expect("the log hears of it");
    assert!(line.since(begin) < SOON);
    assert_eq!(rig.event(begin, "nvme1: live -> "), None, "the path is not lost");
    rig.run(31 * SECOND);
    load.collect(&rig);
    rig.wire().clear_rules();
    rig.wait_live(1);
    let lost = rig.event(begin, "nvme1: live -> resetting");
    assert_eq!(lost.is_some(), fault == Fault::Lost, "its time limit ends a command all the same");
    load.drain(&mut rig);
    // It is a path like before.
    let before = rig.path(1).commands;
    load.run(&mut rig, SECOND / 4, 12, 30);
    load.drain(&mut rig);
    assert!(rig.path(1).commands > before);
    let (head, path) = (rig.head(), rig.path(1));
    assert_eq!((head.errors, path.errors, path.retries), (0, 0, 0));
    // One that asked whether the path is there is lost with its connection.
    assert!(path.probe_errors <= u64::from(fault == Fault::Lost), "{}", path.probe_errors);
    assert_eq!(head.requests[0] + head.requests[1], load.answered as u64);
    let commands: u64 = (0..2).map(|port| rig.path(port).commands.iter().sum::<u64>()).sum();
    assert_eq!(commands, load.answered as u64, "each request is one command that ended well");
    rig.finish();
}

#[test]
fn small_reads_are_answered_soon_whatever_comes_late() {
    for seed in 1..=4 {
        silence_under_load(seed, Fault::Late, 8, false);
        silence_under_load(seed, Fault::Torn, 8, seed % 2 == 0);
    }
}

#[test]
fn large_reads_are_answered_soon_but_the_one_that_is_being_received() {
    for seed in 1..=4 {
        silence_under_load(seed, Fault::Late, 128, seed % 2 == 0);
        silence_under_load(seed, Fault::Torn, 128, false);
    }
}

#[test]
fn what_is_lost_for_good_ends_with_its_connection() {
    for seed in 1..=3 {
        silence_under_load(seed, Fault::Lost, 8, false);
        silence_under_load(seed, Fault::Lost, 128, true);
    }
}

#[test]
fn reads_do_not_wait_on_a_path_that_has_never_answered_one() {
    let mut rig = two_ports(|_| ());
    silence(&rig, 1);
    let names = rig.submit(places(16, read));
    rig.run(2 * SECOND);
    assert_eq!(rig.answered(&names), 16, "nothing is known of the path, but that it is silent");
    assert!(rig.path(1).rescued > 0, "some were stuck");
    rig.wire().clear_rules();
    rig.run(31 * SECOND);
    rig.wait_live(1);
    assert_eq!(rig.head().errors, 0);
    rig.finish();
}

/// Requests side by side, of four blocks each.
pub(crate) fn places(count: u64, op: impl Fn(u64) -> Op) -> Vec<Op> {
    (0..count).map(|place| op(4 * place)).collect()
}

pub(crate) fn read(lba: u64) -> Op {
    Op::Read { lba, blocks: 4 }
}

pub(crate) fn write(lba: u64) -> Op {
    Op::Write { lba, blocks: 4, fill: 7 }
}

/// Both paths are measured.
pub(crate) fn measured(change: impl FnOnce(&mut Setup)) -> Rig {
    let mut rig = two_ports(change);
    for _ in 0..20 {
        rig.io(places(16, write));
        rig.io(places(16, read));
    }
    assert!((0..2).all(|port| rig.path(port).commands[0] > 0));
    rig
}

/// Commands with this opcode that went to a port.
fn sent(rig: &Rig, port: u16, opcode: u8) -> usize {
    let of = |sqe: anabranch_proto::nvme::Sqe| sqe.opcode() == opcode;
    rig.seen(|pdu| pdu.is_io() && pdu.port == port && pdu.sqe.is_some_and(of)).len()
}

#[test]
fn what_was_never_sent_leaves_the_path_whatever_it_does() {
    for probes in ["1", "0"] {
        let mut rig = measured(|setup| setup.options.queue_size = 16);
        rig.set("nvme-subsys0", "finish_time_probes", probes);
        silence(&rig, 1);
        let (reads, writes) = (sent(&rig, 1, io::READ), sent(&rig, 1, io::WRITE));
        let begin = rig.now();
        let mut ops = places(100, write);
        ops.extend((100..200).map(|place| read(4 * place)));
        let names = rig.submit(ops);
        rig.run(SECOND);
        let reads = sent(&rig, 1, io::READ) - reads;
        let writes = sent(&rig, 1, io::WRITE) - writes;
        assert!(reads + writes >= 15, "all tags of the silent path are taken");
        let stuck = names.len() - rig.answered(&names);
        let path = rig.path(1);
        // Without probes nothing is sent twice.
        let expected = if probes == "1" { (writes, reads as u64) } else { (writes + reads, 0) };
        assert_eq!((stuck, path.rescued), expected);
        assert_eq!((path.in_flight as usize, path.failovers), (stuck, 0));
        let line = rig.event(begin, "commands that had not been sent moved there");
        assert!(line.is_some_and(|at| at.since(begin) < SOON));
        assert!(rig.event(begin, ", 0 commands").is_none());
        rig.run(30 * SECOND);
        rig.wire().clear_rules();
        rig.wait_live(1);
        rig.succeed(&names);
        assert_eq!(rig.path(1).uncertain_writes_resent, writes as u64, "nobody else was");
        rig.finish();
    }
}

/// What a controller has acknowledged only that one can make durable.
#[test]
fn a_flush_that_was_never_sent_waits_for_its_controller() {
    let mut rig = measured(|setup| setup.options.queue_size = 16);
    silence(&rig, 1);
    let mut ops = places(100, write);
    ops.extend((100..200).map(|place| read(4 * place)));
    let names = rig.submit(ops);
    let flush = rig.submit([Op::Flush]);
    rig.run(SECOND);
    assert_eq!((sent(&rig, 0, io::FLUSH), sent(&rig, 1, io::FLUSH)), (1, 0), "no tag was free");
    assert_eq!(rig.answered(&flush), 0, "the other one cannot answer for it");
    rig.run(30 * SECOND);
    rig.wire().clear_rules();
    rig.wait_live(1);
    rig.succeed(&names);
    rig.succeed(&flush);
    rig.finish();
}

#[test]
fn when_all_paths_are_silent_nothing_is_sent_again_and_nothing_spins() {
    let mut rig = measured(|_| ());
    (0..2).for_each(|port| stall(&mut rig, port, 4 * SECOND));
    let names = rig.submit(places(64, read));
    rig.run(SECOND);
    let (steps, sent) = (rig.world.steps(), rig.sent(0) + rig.sent(1));
    rig.run(2 * SECOND);
    assert_eq!((rig.answered(&names), rig.sent(0) + rig.sent(1)), (0, sent));
    let looks = rig.world.steps() - steps;
    assert!(looks < 100, "{looks} inputs in two seconds of silence");
    assert_eq!(rig.path(0).rescued + rig.path(1).rescued, 0);
    rig.succeed(&names);
    rig.finish();
}

/// New pictures and new commands, more often than the paths are looked at, put no look off.
#[test]
fn stuck_reads_do_not_wait_for_a_host_at_rest() {
    let mut rig = measured(|_| ());
    stall(&mut rig, 1, 10 * SECOND);
    let names = rig.submit(places(64, read));
    let end = rig.now().after(SOON);
    for sample in ["1", "2"].into_iter().cycle() {
        if rig.now() >= end {
            break;
        }
        rig.set("nvme0n1", "explain_sample", sample);
        rig.submit(places(2, read));
        rig.run(10 * MS);
    }
    assert!(rig.path(1).rescued > 0);
    rig.succeed(&names);
    assert!(rig.now().since(end) < MS, "they were answered by then");
    rig.run(10 * SECOND);
    rig.finish();
}

/// Nothing of a quiesced device is looked after, but afterwards what is stuck since before is: also
/// when its user sends nothing more before it is answered.
#[test]
fn a_read_that_is_stuck_over_a_quiesce_is_answered_soon_after_it() {
    let mut rig = measured(|_| ());
    stall(&mut rig, 1, 20 * SECOND);
    let names = rig.submit(places(16, read));
    rig.run(5 * MS);
    let device = || "nvme0n1".to_owned();
    rig.done(Verb::Quiesce { device: device() });
    rig.run(SECOND);
    assert!(rig.answered(&names) < names.len(), "some are stuck");
    rig.done(Verb::Unquiesce { device: device() });
    rig.run(SOON);
    assert_eq!(rig.answered(&names), names.len());
    rig.succeed(&names);
    rig.run(20 * SECOND);
    rig.finish();
}

#[test]
fn an_idle_worker_is_not_woken() {
    let mut rig = measured(|setup| setup.options.keep_alive_tmo = 600 * SECOND);
    rig.run(31 * SECOND);
    let steps = rig.world.steps();
    rig.run(10 * SECOND);
    assert_eq!(rig.world.steps(), steps);
    rig.finish();
}

#[test]
fn other_policies_leave_everything_where_it_is() {
    for policy in Policy::ALL.into_iter().filter(|policy| *policy != Policy::FinishTime) {
        let mut rig = two_ports(|setup| setup.host.default_policy = policy);
        rig.io(places(64, write));
        (0..2).for_each(|port| stall(&mut rig, port, SECOND));
        let names = rig.submit(places(64, read));
        stall(&mut rig, 0, MS);
        rig.run(SECOND / 2);
        assert_eq!(rig.path(0).rescued + rig.path(1).rescued, 0, "{policy}");
        rig.succeed(&names);
        rig.finish();
    }
}

#[test]
fn a_read_that_was_rescued_may_be_rescued_again() {
    let mut setup = Setup::new(3, 1);
    setup.host.default_policy = Policy::FinishTime;
    let mut rig = setup.connect();
    for _ in 0..20 {
        rig.io(places(48, write));
        rig.io(places(48, read));
    }
    // All that are sent from now on get stuck, until the third path answers again.
    stall(&mut rig, 0, 20 * SECOND);
    stall(&mut rig, 1, 20 * SECOND);
    let names = rig.submit(places(48, read));
    rig.run(20 * MS);
    // Those of the first path go to the second or the third; the third falls silent later.
    stall(&mut rig, 2, 300 * MS);
    let begin = rig.now();
    let outcomes = rig.succeed(&names);
    assert!(outcomes.iter().all(|outcome| outcome.at.since(begin) < SECOND));
    assert!(outcomes.iter().all(|outcome| outcome.data.iter().all(|&byte| byte == 7)));
    let rescued: u64 = (0..3).map(|port| rig.path(port).rescued).sum();
    assert!(rescued > 0);
    let more = sent(&rig, 0, io::READ) + sent(&rig, 1, io::READ) + sent(&rig, 2, io::READ);
    rig.run(SECOND);
    let later = sent(&rig, 0, io::READ) + sent(&rig, 1, io::READ) + sent(&rig, 2, io::READ);
    assert_eq!(more, later, "what was answered is sent no more");
    rig.run(20 * SECOND);
    rig.finish();
}

#[test]
fn no_more_are_left_behind_than_the_table_has_room_for() {
    let mut setup = Setup::new(3, 1);
    setup.host.default_policy = Policy::FinishTime;
    setup.host.max_requests = 2048;
    setup.options.queue_size = 1024;
    let mut rig = setup.connect();
    for _ in 0..20 {
        rig.io(places(32, write));
        rig.io(places(32, read));
    }
    let only = |rig: &mut Rig, port: u16| {
        rig.ana(port, AnaState::Optimized);
        let others = (0..3).filter(|other| *other != port);
        others.for_each(|other| rig.ana(other, AnaState::Inaccessible));
        rig.run(MS);
    };
    // First all tags of one path are taken, then all of another, each by reads that are stuck.
    let one = |place: u64| Op::Read { lba: place, blocks: 1 };
    let mut names = Vec::new();
    for port in 0..2 {
        only(&mut rig, port);
        stall(&mut rig, port, 20 * SECOND);
        names.extend(rig.submit((0..1000).map(one)));
        rig.run(MS);
    }
    rig.run(SECOND);
    assert_eq!(rig.answered(&names), 0);
    only(&mut rig, 2);
    rig.run(SECOND);
    // A quarter of what the worker may have: 2048 for one device make 5888 for all.
    assert_eq!(rig.path(0).rescued + rig.path(1).rescued, 5888 / 4);
    let stuck = names.len() - rig.answered(&names);
    assert!(stuck > 0, "some had to stay");
    rig.run(SECOND);
    assert_eq!(names.len() - rig.answered(&names), stuck);
    assert_eq!(rig.path(0).in_flight + rig.path(1).in_flight, stuck as u64);
    rig.succeed(&names);
    rig.finish();
}

/// Without probes nothing is sent twice.
#[test]
fn without_probes_a_read_that_was_sent_stays_where_it_is() {
    let mut rig = measured(|_| ());
    rig.set("nvme-subsys0", "finish_time_probes", "0");
    stall(&mut rig, 1, 5 * SECOND);
    let before = sent(&rig, 1, io::READ);
    let names = rig.submit(places(32, read));
    rig.run(SECOND);
    let stuck = sent(&rig, 1, io::READ) - before;
    assert!(stuck > 0);
    assert_eq!((names.len() - rig.answered(&names), rig.path(1).rescued), (stuck, 0));
    rig.succeed(&names);
    rig.finish();
}

/// Only what is on the silent one of three paths goes elsewhere.
#[test]
fn what_is_on_sound_paths_stays_there() {
    let mut setup = Setup::new(3, 1);
    setup.host.default_policy = Policy::FinishTime;
    setup.options.queue_size = 16;
    let mut rig = setup.connect();
    for port in 0..3 {
        let stream = rig.world.stream(WorkerId(1), &setup::port(port)).expect("open");
        rig.world.slow_stream(stream, 2 * MS);
    }
    for _ in 0..20 {
        rig.io(places(48, write));
        rig.io(places(48, read));
    }
    let begin = rig.now();
    stall(&mut rig, 2, 5 * SECOND);
    let mut names = rig.submit(places(48, read));
    while rig.now().since(begin) < SOON {
        names.extend(rig.submit((48..96).map(|place| read(4 * place))));
        rig.run(MS);
    }
    assert!(rig.path(2).rescued > 0);
    for path in ["nvme0c0n1", "nvme0c1n1"] {
        assert_eq!(rig.event(begin, &format!("{path}: silent")), None, "{path}");
    }
    assert_eq!((rig.path(0).rescued, rig.path(1).rescued), (0, 0));
    rig.succeed(&names);
    rig.run(5 * SECOND);
    rig.finish();
}

/// What the controllers have of a quiesced device is left alone.
#[test]
fn a_read_that_is_stuck_is_answered_over_a_quiesce_when_its_path_is_back() {
    let mut rig = measured(|_| ());
    stall(&mut rig, 1, SECOND);
    let names = rig.submit(places(16, read));
    rig.run(5 * MS);
    rig.done(Verb::Quiesce { device: "nvme0n1".to_owned() });
    assert!(rig.answered(&names) < names.len(), "some are stuck");
    rig.run(2 * SECOND);
    assert_eq!((rig.answered(&names), rig.path(1).rescued), (names.len(), 0));
    rig.succeed(&names);
    rig.done(Verb::Unquiesce { device: "nvme0n1".to_owned() });
    rig.finish();
}

/// What was left behind and has ended makes room for more; and the log does not hear of each time.
#[test]
fn a_path_that_falls_silent_again_and_again_is_left_each_time() {
    let mut rig = measured(|setup| {
        setup.host.max_requests = 2048;
        setup.options.queue_size = 1024;
    });
    let begin = rig.now();
    let one = |place: u64| Op::Read { lba: place, blocks: 1 };
    // Together more than may be left behind at once.
    for round in 1..=4 {
        rig.ana(0, AnaState::Inaccessible);
        rig.run(MS);
        // It is known as a fast one again.
        (0..40).for_each(|_| drop(rig.io(places(16, read))));
        stall(&mut rig, 1, 300 * MS);
        let names = rig.submit((0..600).map(one));
        rig.run(MS);
        rig.ana(0, AnaState::Optimized);
        rig.run(SOON);
        assert_eq!((rig.answered(&names), rig.path(1).rescued), (names.len(), 600 * round));
        rig.succeed(&names);
        rig.run(200 * MS);
    }
    let told = rig.events().into_iter().filter(|(_, text)| text.contains("nvme0c1n1: silent"));
    assert_eq!((told.count(), rig.now().since(begin).as_secs()), (2, 1));
    rig.finish();
}
