//! The shaper through the engine: rates, delays and fairness as a host measures them.

use crate::common::*;
use anabranch_proto::machine::{ConnId, Time};
use anabranch_proto::nvme::property::Cc;
use anabranch_proto::nvme::{Sgl, Status, aer};
use anabranch_target::{Brownout, Service, TargetVerb};
use std::time::Duration;

fn shape(rig: &mut Rig, port: u16, text: &str) {
    rig.ok(TargetVerb::Shape { port, shape: text.parse().unwrap() });
}

/// How long one command takes.
fn latency(rig: &mut Rig, conn: ConnId, start: impl FnOnce(&mut Rig) -> u16) -> Duration {
    let begin = rig.now;
    let cid = start(rig);
    for _ in 0..1000 {
        if let Some(done) = rig.poll(conn, cid) {
            return done.at.since(begin);
        }
        rig.advance(ms(1));
    }
    panic!("no answer within a second");
}

/// Keeps `depth` commands going for `span`; returns how many ended.
fn closed_loop(
    rig: &mut Rig,
    conns: &[(ConnId, usize)],
    span: Duration,
    start: impl Fn(&mut Rig, ConnId) -> u16,
) -> Vec<u64> {
    let end = rig.now.after(span);
    let mut counts = vec![0; conns.len()];
    let mut flying: Vec<Vec<u16>> =
        conns.iter().map(|&(conn, depth)| (0..depth).map(|_| start(rig, conn)).collect()).collect();
    while rig.now < end {
        let next = rig.target_timeout().unwrap_or(end).min(end);
        rig.advance(next.since(rig.now).max(Duration::from_nanos(1)));
        for (index, &(conn, _)) in conns.iter().enumerate() {
            for cid in std::mem::take(&mut flying[index]) {
                if rig.poll(conn, cid).is_some() {
                    counts[index] += 1;
                    let next = start(rig, conn);
                    flying[index].push(next);
                } else {
                    flying[index].push(cid);
                }
            }
        }
    }
    counts
}

#[track_caller]
fn near(measured: f64, wanted: f64) {
    assert!((measured / wanted - 1.0).abs() < 0.03, "{measured} instead of {wanted}");
}

#[test]
fn an_unshaped_port_answers_at_once() {
    let mut rig = Rig::new(config());
    let (_, queue) = rig.controller(0);
    let read = latency(&mut rig, queue, |rig| rig.start(queue, read(0, 1), 4096));
    assert_eq!(read, Duration::ZERO);
}

#[test]
fn each_command_pays_the_delay_once() {
    let mut rig = Rig::new(config());
    let (admin, queue) = rig.controller(0);
    shape(&mut rig, 0, "delay=30ms");
    let wanted = ms(30)..ms(31);
    let small = latency(&mut rig, queue, |rig| rig.start(queue, read(0, 1), 4096));
    let large = latency(&mut rig, queue, |rig| rig.start(queue, read(0, 256), 1 << 20));
    let capsule = latency(&mut rig, queue, |rig| rig.start_out(queue, write(0, 1), &[1; 4096]));
    let data = vec![1; 1 << 20];
    let asked = latency(&mut rig, queue, |rig| rig.start_out(queue, write(0, 256), &data));
    let alive = anabranch_proto::nvme::aer::keep_alive();
    let admin = latency(&mut rig, admin, |rig| rig.start(admin, alive, 0));
    for (name, time) in [
        ("read", small),
        ("large read", large),
        ("write", capsule),
        ("R2T", asked),
        ("admin", admin),
    ] {
        assert!(wanted.contains(&time), "{name}: {time:?}");
    }
}

#[test]
fn large_commands_are_slower() {
    let mut rig = Rig::new(config());
    let (_, queue) = rig.controller(0);
    shape(&mut rig, 0, "large=64k:20ms,delay=1ms");
    let small = latency(&mut rig, queue, |rig| rig.start(queue, read(0, 15), 15 * 4096));
    let large = latency(&mut rig, queue, |rig| rig.start(queue, read(0, 16), 16 * 4096));
    assert_eq!(small, ms(1));
    assert!((ms(21)..ms(22)).contains(&large), "{large:?}");
}

/// A slow port holds no buffers: what is read is read when the link lets it leave.
#[test]
fn a_read_through_a_slow_port_brings_what_is_there_when_it_leaves() {
    let subsystem = || nqn(SUBSYSTEM);
    let remove = || TargetVerb::NamespaceRemove { subsystem: subsystem(), nsid: 1 };
    let resize = |bytes| TargetVerb::NamespaceResize { subsystem: subsystem(), nsid: 1, bytes };
    let config_again = memory_namespace(1, 16 * MIB);
    let add = TargetVerb::NamespaceAdd { subsystem: subsystem(), config: config_again };
    let gone = Status::INVALID_NAMESPACE.with_dnr();
    for (verbs, expected) in [
        (vec![], Ok(7)),
        (vec![resize(8192)], Ok(7)),
        (vec![resize(4096)], Err(gone)),
        (vec![resize(4096), resize(8192)], Ok(0)),
        (vec![remove()], Err(gone)),
        (vec![remove(), add], Err(gone)),
    ] {
        let mut rig = Rig::new(config());
        let (_, queue) = rig.controller(0);
        assert_eq!(rig.run_out(queue, write(1, 1), &[7; 4096]).status, Status::SUCCESS);
        shape(&mut rig, 0, "rate_out=8mbit");
        let cid = rig.start(queue, read(1, 1), 4096);
        let case = format!("{verbs:?}");
        verbs.into_iter().for_each(|verb| rig.ok(verb));
        assert!(rig.poll(queue, cid).is_none(), "the link takes 4 ms");
        rig.advance(ms(10));
        let done = rig.poll(queue, cid).expect("answered");
        match expected {
            Ok(byte) => assert_eq!(done.data, vec![byte; 4096], "{case}"),
            Err(status) => assert_eq!((done.status, done.data.len()), (status, 0), "{case}"),
        }
        rig.assert_no_leak();
    }
}

/// What is still on its way when its host shuts the controller down is not carried out, and not
/// refused for good either.
#[test]
fn a_shutdown_aborts_what_is_on_its_way() {
    let mut rig = Rig::new(config());
    let (admin, queue) = rig.controller(0);
    shape(&mut rig, 0, "large=4k:20ms");
    let late = rig.start_out(queue, write(0, 1), &[1; 4096]);
    rig.advance(ms(10));
    rig.set_cc(admin, Cc::ENABLE.with_shutdown());
    assert_eq!(rig.csts(admin) >> 2 & 3, 2, "through");
    rig.advance(ms(20));
    let done = rig.poll(queue, late).expect("answered");
    assert_eq!(done.status, Status::ABORTED_SQ_DELETION);
    assert_eq!(rig.status().subsystems[0].namespaces[0].counters.writes, 0);
    rig.assert_no_leak();
}

#[test]
fn an_abort_stops_the_command_that_it_names_and_no_other() {
    for named in 0..3 {
        let mut rig = Rig::new(config());
        let (admin, queue) = rig.controller(0);
        shape(&mut rig, 0, "large=4k:20ms");
        let cids = [0, 1, 2].map(|lba| rig.start_out(queue, write(lba, 1), &[1; 4096]));
        let abort = |rig: &mut Rig, sqid| rig.run(admin, aer::abort(sqid, cids[named]), 0).result;
        assert_eq!([0, 2, 1].map(|sqid| abort(&mut rig, sqid)), [1, 1, 0], "by its own queue");
        rig.advance(ms(30));
        let mut written = vec![1; 3 * 4096];
        written[named * 4096..][..4096].fill(0);
        for (at, cid) in cids.into_iter().enumerate() {
            let aborted = [Status::SUCCESS, Status::ABORT_REQUESTED][usize::from(at == named)];
            assert_eq!(rig.poll(queue, cid).expect("answered").status, aborted, "{at}");
        }
        shape(&mut rig, 0, "none");
        assert_eq!(rig.run(queue, read(0, 3), 3 * 4096).data, written);
        rig.assert_no_leak();
    }
}

/// A port's figures count what the link counts.
#[test]
fn commands_and_their_bytes_are_counted() {
    let mut rig = Rig::new(config());
    let (_, queue) = rig.controller(0);
    let figures = |rig: &mut Rig| {
        let port = &rig.status().ports[0];
        [port.commands, port.bytes_in, port.bytes_out]
    };
    let before = figures(&mut rig);
    rig.run_out(queue, write(0, 1), &[1; 4096]);
    rig.run(queue, read(0, 2), 8192);
    let after = figures(&mut rig);
    assert_eq!(
        [0, 1, 2].map(|at| after[at] - before[at]),
        [2, 72 + 4096 + 72, 24 + 24 + 24 + 8192]
    );
}

/// What a descriptor only claims takes nothing of the link from others.
#[test]
fn a_claimed_length_that_nothing_moves_holds_nobody_up() {
    let mut rig = Rig::new(config());
    let (_, queue) = rig.controller(0);
    let (_, other) = rig.controller(0);
    shape(&mut rig, 0, "rate=1gbit");
    let claim = write(0, 1).with_cid(900).with_sgl(Sgl::transport(u32::MAX));
    rig.raw(queue, claim, &[]);
    let stranger = rig.open(0);
    rig.raw(stranger, claim, &[]);
    let read = latency(&mut rig, other, |rig| rig.start(other, read(0, 1), 4096));
    assert!(read < ms(20), "{read:?}");
}

#[test]
fn reads_are_held_to_rate_out() {
    for (text, bytes_per_second) in [("rate_out=500mbit", 62.5e6), ("rate_out=2gbit", 250e6)] {
        let mut rig = Rig::new(config());
        let (_, queue) = rig.controller(0);
        shape(&mut rig, 0, text);
        let counts = closed_loop(&mut rig, &[(queue, 32)], ms(500), |rig, conn| {
            rig.start(conn, read(0, 1), 4096)
        });
        near(counts[0] as f64 * 4096.0 / 0.5, bytes_per_second);
    }
}

#[test]
fn writes_are_held_to_rate_in() {
    let mut rig = Rig::new(config());
    let (_, queue) = rig.controller(0);
    shape(&mut rig, 0, "rate_in=400mbit");
    let data = vec![1; 64 << 10];
    let counts = closed_loop(&mut rig, &[(queue, 8)], ms(500), |rig, conn| {
        rig.start_out(conn, write(0, 16), &data)
    });
    near(counts[0] as f64 * 65536.0 / 0.5, 50e6);
    // The other direction is free.
    let counts = closed_loop(&mut rig, &[(queue, 8)], ms(20), |rig, conn| {
        rig.start(conn, read(0, 16), 64 << 10)
    });
    assert!(counts[0] as f64 * 65536.0 / 0.02 > 50e6 * 3.0);
}

#[test]
fn ports_do_not_share_a_link_and_connections_of_a_port_do() {
    let mut rig = Rig::new(config());
    let (_, deep) = rig.controller(0);
    let (_, shallow) = rig.controller(0);
    let (_, other) = rig.controller(1);
    shape(&mut rig, 0, "rate=400mbit");
    shape(&mut rig, 1, "rate=400mbit");
    let conns = [(deep, 64), (shallow, 8), (other, 16)];
    let counts =
        closed_loop(&mut rig, &conns, ms(500), |rig, conn| rig.start(conn, read(0, 4), 16 << 10));
    let rate = |count: u64| count as f64 * 16384.0 / 0.5;
    near(rate(counts[0] + counts[1]), 50e6);
    near(rate(counts[2]), 50e6);
    let share = counts[1] as f64 / (counts[0] + counts[1]) as f64;
    assert!((0.4..0.6).contains(&share), "depth 8 gets {share} beside depth 64");
}

#[test]
fn congestion_stops_and_goes_on() {
    let mut rig = Rig::new(config());
    let (_, queue) = rig.controller(0);
    shape(&mut rig, 0, "rate=400mbit,onoff=20ms:60ms");
    let counts = closed_loop(&mut rig, &[(queue, 32)], ms(800), |rig, conn| {
        rig.start(conn, read(0, 1), 4096)
    });
    near(counts[0] as f64 * 4096.0 / 0.8, 50e6 / 4.0);
}

#[test]
fn a_slow_port_holds_no_buffers() {
    let mut rig = Rig::new(config());
    let (_, queue) = rig.controller(0);
    shape(&mut rig, 0, "rate_out=8mbit");
    for _ in 0..100 {
        rig.start(queue, read(0, 256), 1 << 20);
    }
    assert_eq!(rig.bufs.in_use_bytes(), 0);
}

#[test]
fn a_shape_can_change_while_commands_wait() {
    let mut rig = Rig::new(config());
    let (_, queue) = rig.controller(0);
    shape(&mut rig, 0, "rate_out=8kbit");
    let cids: Vec<u16> = (0..64).map(|_| rig.start(queue, read(0, 1), 4096)).collect();
    rig.advance(ms(100));
    shape(&mut rig, 0, "none");
    // One was on the link already; the others go at once.
    rig.advance(ms(1));
    assert!(cids.iter().filter(|cid| rig.poll(queue, **cid).is_some()).count() >= 63);
    rig.advance(ms(60_000));
    assert_eq!(rig.now.since(Time::ZERO).as_secs(), 61);
    rig.assert_no_leak();
}

fn service(servers: Option<u32>, per_port: bool) -> TargetVerb {
    let (read, write, other) = (ms(2), ms(4), ms(1));
    let exponential = false;
    TargetVerb::Service(Some(Service { servers, read, write, other, exponential, per_port }))
}

#[test]
fn commands_take_their_service_time_and_admin_commands_none() {
    let mut rig = Rig::new(config());
    let (admin, queue) = rig.controller(0);
    rig.ok(service(Some(1), false));
    let small = latency(&mut rig, queue, |rig| rig.start(queue, read(0, 1), 4096));
    let capsule = latency(&mut rig, queue, |rig| rig.start_out(queue, write(0, 1), &[1; 4096]));
    let data = vec![1; 1 << 20];
    let asked = latency(&mut rig, queue, |rig| rig.start_out(queue, write(0, 256), &data));
    let alive = anabranch_proto::nvme::aer::keep_alive();
    let admin = latency(&mut rig, admin, |rig| rig.start(admin, alive, 0));
    assert_eq!((small, capsule, asked, admin), (ms(2), ms(4), ms(4), Duration::ZERO));
    let open = rig.start(queue, read(0, 1), 4096);
    assert!(rig.poll(queue, open).is_none());
    rig.ok(TargetVerb::Service(None));
    assert!(rig.poll(queue, open).is_some(), "what was being served is not forgotten");
    let small = latency(&mut rig, queue, |rig| rig.start(queue, read(0, 1), 4096));
    assert_eq!(small, Duration::ZERO);
}

#[test]
fn ports_share_servers_or_have_their_own() {
    for (per_port, wanted) in [(false, 500), (true, 1000)] {
        let mut rig = Rig::new(config());
        let (_, first) = rig.controller(0);
        let (_, second) = rig.controller(1);
        rig.ok(service(Some(1), per_port));
        let start = |rig: &mut Rig, conn| rig.start(conn, read(0, 1), 4096);
        let counts = closed_loop(&mut rig, &[(first, 4), (second, 4)], ms(1000), start);
        let sum: u64 = counts.iter().sum();
        assert!(sum.abs_diff(wanted) <= 2, "{counts:?}");
    }
}

#[test]
fn a_stall_holds_what_has_taken_its_time() {
    let mut rig = Rig::new(config());
    let (_, queue) = rig.controller(0);
    rig.ok(service(Some(1), false));
    let cids = [0, 1].map(|lba| rig.start(queue, read(lba, 1), 4096));
    rig.advance(ms(1));
    rig.ok(TargetVerb::Stall { port: 0 });
    rig.advance(ms(20));
    assert!(cids.iter().all(|&cid| rig.poll(queue, cid).is_none()));
    rig.ok(TargetVerb::Restore { port: 0 });
    rig.advance(ms(20));
    assert!(cids.iter().all(|&cid| rig.poll(queue, cid).is_some()));
}

#[test]
fn a_brownout_slows_its_share() {
    let mut rig = Rig::new(config());
    let (_, queue) = rig.controller(0);
    let brownout = Some(Brownout { percent: 10, delay: ms(50) });
    rig.ok(TargetVerb::Brownout { port: 0, brownout });
    let mut slow = 0;
    for _ in 0..1000 {
        let time = latency(&mut rig, queue, |rig| rig.start(queue, read(0, 1), 4096));
        assert!([Duration::ZERO, ms(50)].contains(&time), "{time:?}");
        slow += u32::from(time > Duration::ZERO);
    }
    // The standard deviation is below 10.
    assert!((60..140).contains(&slow), "{slow} of 1000");
    rig.ok(TargetVerb::Brownout { port: 0, brownout: None });
    let time = latency(&mut rig, queue, |rig| rig.start(queue, read(0, 1), 4096));
    assert_eq!(time, Duration::ZERO);
}

#[test]
fn service_and_brownouts_out_of_bounds_are_refused() {
    let mut rig = Rig::new(config());
    let long = Duration::from_secs(61);
    for verb in [
        service(Some(0), false),
        service(Some(65_537), false),
        TargetVerb::Brownout { port: 0, brownout: Some(Brownout { percent: 0, delay: ms(1) }) },
        TargetVerb::Brownout { port: 0, brownout: Some(Brownout { percent: 1, delay: long }) },
        TargetVerb::Brownout { port: 9, brownout: None },
    ] {
        rig.verb(verb).unwrap_err();
    }
}
