//! Devices that share a queue pair: one whose commands take long does not have all of its tags.

use crate::rig::{MS, Rig, SECOND, Setup, reads, writes};
use crate::script::Op;
use crate::setup;
use crate::wire::kind;
use anabranch_host::verb::Verb;
use anabranch_lab::rng::Rng;
use anabranch_lab::sim::StreamId;
use anabranch_policy::Policy;
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::{AnaState, Sqe};
use anabranch_target::TargetVerb;
use std::time::Duration;

/// Tags of a queue pair.
const TAGS: usize = 31;

/// What one device has of them at the most where there are others: eight for each that is left.
const OF_ONE: usize = 28;

/// So many devices over one port.
fn devices(count: u32, data_workers: u16) -> Setup {
    let mut setup = Setup::new(1, data_workers);
    *setup.namespaces() = (1..=count).map(|nsid| setup::namespace(nsid, 512)).collect();
    setup.host.max_requests = 1024;
    setup.options.queue_size = TAGS as u16 + 1;
    setup
}

/// No command for the first devices, so many, arrives.
fn hang(rig: &Rig, devices: u32) {
    rig.wire().rule(move |pdu| {
        if pdu.is_io() && pdu.sqe.is_some_and(|sqe| sqe.nsid() <= devices) {
            pdu.bytes.clear();
        }
    });
}

fn device(nsid: u32) -> String {
    format!("nvme0n{nsid}")
}

/// What takes long, takes so long each way.
fn slow(rig: &mut Rig, each_way: Duration) -> StreamId {
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.slow_stream(stream, each_way);
    stream
}

#[test]
fn a_device_that_hangs_leaves_tags_to_the_others() {
    for shared_queue in [false, true] {
        let mut setup = devices(3, 2);
        setup.host.shared_queue = shared_queue;
        let mut rig = setup.connect();
        hang(&rig, 1);
        let stuck = rig.submit_to(2, "nvme0n1", writes(200, 1));
        rig.run(10 * MS);
        assert_eq!(rig.sent(0), OF_ONE);
        let start = rig.now();
        for device in ["nvme0n2", "nvme0n3"] {
            let names = rig.submit_to(2, device, writes(100, 2).chain(reads(100)));
            rig.succeed(&names);
        }
        assert!(rig.now().since(start) < SECOND, "they did not wait for the first");
        assert_eq!(rig.answered(&stuck), 0);
        rig.wire().clear_rules();
        rig.run(60 * SECOND);
        rig.succeed(&stuck);
        rig.finish();
    }
}

/// With nobody else there is nobody to leave a tag to.
#[test]
fn one_device_alone_has_all_tags() {
    for (count, had) in [(1, TAGS), (2, OF_ONE)] {
        let mut rig = devices(count, 1).connect();
        hang(&rig, 1);
        let stuck = rig.submit(reads(100));
        rig.run(SECOND);
        assert_eq!(rig.sent(0), had);
        rig.wire().clear_rules();
        rig.run(60 * SECOND);
        rig.succeed(&stuck);
        rig.finish();
    }
}

/// Whoever comes later does not wait until all is done that came before.
#[test]
fn a_tag_that_comes_free_goes_to_the_device_with_the_fewest() {
    let mut rig = devices(2, 1).connect();
    slow(&mut rig, 5 * MS);
    let first = rig.submit(reads(600));
    rig.run(25 * MS);
    let second = rig.submit_to(1, "nvme0n2", reads(100));
    rig.succeed(&second);
    let done = rig.answered(&first);
    assert!((80..250).contains(&done), "{done}: half of the tags each, from then on");
    rig.succeed(&first);
    rig.finish();
}

/// A policy chooses paths before there are tags, or (kernel-exact) as they come.
#[test]
fn all_of_a_crowd_is_answered_whatever_becomes_of_it() {
    for (kernel_exact, what) in
        [(false, 0), (true, 0), (false, 1), (true, 1), (false, 2), (false, 3)]
    {
        let mut setup = devices(5, 1);
        setup.host.kernel_exact = kernel_exact;
        setup.host.default_policy = Policy::QueueDepth;
        let mut rig = setup.connect();
        let stream = slow(&mut rig, 5 * MS);
        let all: Vec<Vec<u64>> = (1..=5)
            .map(|nsid| rig.submit_to(1, &device(nsid), writes(40 * u64::from(nsid), nsid as u8)))
            .collect();
        rig.run(12 * MS);
        match what {
            0 => rig.world.break_stream(stream),
            1 => {
                rig.done(Verb::Quiesce { device: device(3) });
                rig.run(100 * MS);
                rig.done(Verb::Unquiesce { device: device(3) });
            }
            2 => {
                rig.submit_to(1, &device(4), [Op::Withdraw]);
                rig.answers(&all[3]);
            }
            _ => {
                let subsystem = setup::subsystem();
                rig.target(TargetVerb::NamespaceRemove { subsystem, nsid: 5 });
                rig.answers(&all[4]);
            }
        }
        for (names, nsid) in all.iter().zip(1..) {
            if (what, nsid) != (2, 4) && (what, nsid) != (3, 5) {
                rig.succeed(names);
            }
        }
        rig.finish();
    }
}

/// How many of each are answered.
fn answered(rig: &Rig, all: &[Vec<u64>]) -> Vec<usize> {
    all.iter().map(|names| rig.answered(names)).collect()
}

#[test]
fn devices_get_their_tags_in_turn_where_there_are_more_than_tags() {
    // So many hang, and so many work.
    for (hung, working) in [(0, 40), (1, 5)] {
        let mut rig = devices(hung + working, 1).connect();
        slow(&mut rig, 5 * MS);
        hang(&rig, hung);
        let stuck: Vec<_> = (1..=hung).map(|n| rig.submit_to(1, &device(n), reads(200))).collect();
        rig.run(20 * MS);
        let (from, to) = (hung + 1, hung + working);
        let all: Vec<_> = (from..=to).map(|n| rig.submit_to(1, &device(n), reads(200))).collect();
        rig.run(1500 * MS);
        let done = answered(&rig, &all);
        let (least, most) = (done.iter().min().unwrap(), done[1..].iter().max().unwrap());
        assert!(*least > 50 && *most < 200 && most - least <= 3, "{done:?}");
        // It was there before the others.
        assert!(done[0] <= most + OF_ONE, "{done:?}");
        rig.wire().clear_rules();
        stuck.iter().chain(&all).for_each(|names| drop(rig.succeed(names)));
        rig.finish();
    }
}

/// New pictures and withdrawals have all that waits looked through: the turns stay.
#[test]
fn turns_in_a_crowd_outlast_what_happens_to_other_devices() {
    for withdraws in [false, true] {
        let mut setup = devices(42, 1);
        setup.options.queue_size = 16;
        setup.host.max_requests = 4096;
        let mut rig = setup.connect();
        slow(&mut rig, 500 * MS);
        let all: Vec<_> = (1..=40).map(|n| rig.submit_to(1, &device(n), reads(60))).collect();
        for _ in 0..100 {
            if withdraws {
                rig.submit_to(1, &device(41), reads(2).chain([Op::WithdrawOdd]));
            } else {
                rig.done(Verb::Quiesce { device: device(42) });
                rig.done(Verb::Unquiesce { device: device(42) });
            }
            rig.run(300 * MS);
        }
        let done = answered(&rig, &all);
        let (least, most) = (done.iter().min().unwrap(), done[1..].iter().max().unwrap());
        assert!(*least >= 5 && most - least <= 3, "{done:?}");
        rig.run(200 * SECOND);
        all.iter().for_each(|names| drop(rig.answers(names)));
    }
}

/// Each that hangs costs the others a tag or two more, not all that are left.
#[test]
fn devices_that_hang_one_after_the_other_leave_some_to_the_others() {
    for queue_size in [16, 32, 128] {
        for hung in [1, 2] {
            let mut setup = devices(8, 1);
            setup.options.queue_size = queue_size;
            let mut rig = setup.connect();
            hang(&rig, hung);
            let mut stuck = Vec::new();
            for n in 1..=hung {
                stuck.extend(rig.submit_to(1, &device(n), reads(200)));
                rig.run(10 * MS);
            }
            let all: Vec<_> = (4..=8).map(|n| rig.submit_to(1, &device(n), reads(100))).collect();
            rig.run(SECOND);
            assert_eq!(answered(&rig, &all), [100; 5], "{queue_size}: {hung} hang");
            rig.wire().clear_rules();
            rig.run(60 * SECOND);
            rig.succeed(&stuck);
            rig.finish();
        }
    }
}

#[test]
fn a_device_that_hangs_leaves_one_of_two_tags_to_the_others() {
    let mut rig = devices(2, 1).build();
    // CAP.MQES, from 0: three entries, of which one stays free.
    rig.wire().rule(|pdu| {
        let reads_cap = |sqe: Sqe| sqe.is_fabrics() && sqe.fctype() == 4 && sqe.cdw(11) == 0;
        if pdu.kind == kind::CAPSULE_RESP && pdu.worker == 0 && pdu.sqe.is_some_and(reads_cap) {
            pdu.bytes[8..10].copy_from_slice(&2_u16.to_le_bytes());
        }
    });
    rig.connect(0);
    hang(&rig, 1);
    let stuck = rig.submit_to(1, &device(1), reads(10));
    rig.run(10 * MS);
    assert_eq!(rig.sent(0), 1);
    let names = rig.submit_to(1, &device(2), reads(100));
    rig.run(SECOND);
    assert_eq!(rig.answered(&names), 100);
    rig.wire().clear_rules();
    rig.run(60 * SECOND);
    rig.succeed(&stuck);
    rig.finish();
}

/// A queue pair on which nothing waits any more takes probes, whatever waited there before.
#[test]
fn probes_do_not_stay_away_after_a_crowd() {
    let mut probes = Vec::new();
    for burst in [0, 40] {
        let mut setup = Setup::new(2, 1);
        *setup.namespaces() = vec![setup::namespace(1, 512), setup::namespace(2, 512)];
        setup.namespaces()[1].ana_group = 2;
        setup.host.default_policy = Policy::FinishTime;
        setup.options.queue_size = TAGS as u16 + 1;
        setup.options.io_timeout = SECOND * 600;
        let mut rig = setup.connect();
        rig.target(TargetVerb::Ana { port: 0, group: 2, state: AnaState::Inaccessible });
        let stream = rig.world.stream(WorkerId(1), &setup::port(1)).expect("open");
        rig.world.slow_stream(stream, 20 * MS);
        let (write, read) =
            (Op::Write { lba: 0, blocks: 8, fill: 7 }, Op::Read { lba: 0, blocks: 8 });
        (0..5).for_each(|_| drop(rig.io([write; 4])));
        (0..5).for_each(|_| drop(rig.io([read; 4])));
        rig.run(SECOND);
        let mut seen = 0;
        rig.wire().rule(move |pdu| {
            if pdu.is_io() && pdu.sqe.is_some_and(|sqe| sqe.nsid() == 2) {
                seen += 1;
                if seen > burst {
                    pdu.bytes.clear();
                }
            }
        });
        let names = rig.submit_to(1, "nvme0n2", reads(burst + 20));
        rig.run(5 * SECOND);
        assert_eq!(rig.answered(&names), burst as usize, "20 have their tags for long");
        let before = rig.path(0).probes + rig.path(1).probes;
        (0..3000).for_each(|_| drop(rig.io([write; 4])));
        probes.push(rig.path(0).probes + rig.path(1).probes - before);
    }
    assert!(probes[0] > 0 && probes[0].abs_diff(probes[1]) <= 1, "{probes:?}");
}

/// One thing after the other happens to devices, streams and requests of a crowd.
struct Trouble {
    rig: Rig,
    rng: Rng,
    devices: u32,
    workers: u16,
    quiesced: Vec<u32>,
    names: Vec<u64>,
}

impl Trouble {
    fn new(seed: u64) -> Trouble {
        let mut rng = Rng::new(seed);
        let (workers, devices) = (1 + rng.below(3) as u16, 2 + rng.below(20) as u32);
        let mut setup = self::devices(devices, workers);
        setup.ports = 2;
        let second = anabranch_target::config::PortConfig::new(setup::port(1));
        setup.target.ports.push(second);
        setup.host.shared_queue = rng.percent(40);
        setup.host.kernel_exact = rng.percent(25);
        let policies = Policy::ALL;
        setup.host.default_policy = policies[rng.below(policies.len() as u64) as usize];
        setup.options.queue_size = 16 + rng.below(32) as u16;
        setup.options.nr_write_queues = u16::from(rng.percent(30));
        let (rig, quiesced, names) = (setup.connect(), Vec::new(), Vec::new());
        Trouble { rig, rng, devices, workers, quiesced, names }
    }

    fn step(&mut self) {
        let nsid = 1 + self.rng.below(u64::from(self.devices)) as u32;
        let worker = 1 + self.rng.below(u64::from(self.workers)) as u16;
        let port = self.rng.below(2) as u16;
        let stream = self.rig.world.stream(WorkerId(worker), &setup::port(port));
        match (self.rng.below(13), stream) {
            (0..=5, _) => {
                let count = self.rng.below(80);
                let ops = writes(count, nsid as u8).chain(reads(count)).chain([Op::Flush]);
                self.names.extend(self.rig.submit_to(worker, &device(nsid), ops));
            }
            (6, _) => {
                let odd = self.rig.submit_to(worker, &device(nsid), [Op::WithdrawOdd]);
                self.names.extend(odd);
            }
            (7, Some(stream)) => self.rig.world.break_stream(stream),
            (8, Some(stream)) => self.rig.world.stall_stream(stream, 200 * MS),
            (9, Some(stream)) => {
                self.rig.world.slow_stream(stream, MS * self.rng.below(10) as u32);
            }
            (10, Some(stream)) => self.rig.world.block_stream(stream, 100 * MS),
            (11, _) => match self.quiesced.iter().position(|it| *it == nsid) {
                None => {
                    self.quiesced.push(nsid);
                    self.rig.start(Verb::Quiesce { device: device(nsid) });
                }
                Some(at) => {
                    self.quiesced.remove(at);
                    self.rig.done(Verb::Unquiesce { device: device(nsid) });
                }
            },
            _ => self.rig.run(MS * self.rng.below(50) as u32),
        }
        self.rig.run(MS * self.rng.below(4) as u32);
    }

    fn end(mut self, seed: u64) {
        for nsid in core::mem::take(&mut self.quiesced) {
            self.rig.done(Verb::Unquiesce { device: device(nsid) });
        }
        let end = self.rig.now().after(SECOND * 120);
        while self.rig.answered(&self.names) < self.names.len() {
            assert!(self.rig.now() < end, "{seed}: {}", self.rig.answered(&self.names));
            self.rig.run(MS * 10);
        }
        self.rig.run(SECOND * 5);
        (0..2).for_each(|port| self.rig.wait_live(port));
        self.rig.finish();
    }
}

#[test]
fn every_request_of_a_crowd_ends_once_whatever_happens() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("ANABRANCH_FIRST_SEED").unwrap_or(1);
    for seed in first..first + number("ANABRANCH_SEEDS").unwrap_or(60) {
        let mut trouble = Trouble::new(seed);
        (0..40).for_each(|_| trouble.step());
        trouble.end(seed);
    }
}
