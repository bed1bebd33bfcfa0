//! Every charge goes back to where it was made: all counters read 0 when nothing is in flight,
//! whatever happened in between, under every policy, in every scope, in either mode.

use crate::rig::{MS, Rig, SECOND, Setup, writes};
use crate::script::Op;
use crate::setup;
use anabranch_host::load::Charged;
use anabranch_host::verb::{Selection, Verb};
use anabranch_policy::{Policy, Scope};
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::AnaState;
use anabranch_target::TargetVerb;

/// A way of choosing and charging.
#[derive(Clone, Copy, Debug)]
struct Way {
    policy: Policy,
    scope: Scope,
    kernel_exact: bool,
}

/// Every policy, `queue-depth` in every scope, both modes.
fn ways() -> Vec<Way> {
    let others = Policy::ALL.into_iter().filter(|&policy| policy != Policy::QueueDepth);
    let others = others.map(|policy| (policy, Scope::Controller));
    let depths = Scope::ALL.map(|scope| (Policy::QueueDepth, scope));
    let all = others.chain(depths);
    all.flat_map(|(policy, scope)| {
        [false, true].map(|kernel_exact| Way { policy, scope, kernel_exact })
    })
    .collect()
}

/// Three ports, three workers, slow enough that commands pile up on every path.
fn rig(way: Way, change: impl FnOnce(&mut Setup)) -> Rig {
    let mut setup = Setup::new(3, 3);
    setup.host.default_policy = way.policy;
    setup.host.kernel_exact = way.kernel_exact;
    setup.options.queue_size = 16;
    change(&mut setup);
    let mut rig = setup.connect();
    rig.set("nvme-subsys0", "queue_depth_scope", way.scope.name());
    slow(&mut rig);
    rig
}

fn slow(rig: &mut Rig) {
    for port in 0..3 {
        for worker in 1..=3 {
            if let Some(stream) = rig.world.stream(WorkerId(worker), &setup::port(port)) {
                rig.world.slow_stream(stream, 5 * MS);
            }
        }
    }
}

/// Requests on every worker, some small, some large; they are under way when this returns.
fn load(rig: &mut Rig, device: &str) -> Vec<u64> {
    let mut names = Vec::new();
    for worker in 1..=3 {
        let large = (0..4).map(|_| Op::Write { lba: 0, blocks: 64, fill: 2 });
        names.extend(rig.submit_to(worker, device, writes(20, 1).chain(large)));
    }
    rig.run(2 * MS);
    names
}

/// What is charged to all paths of all devices.
fn charged(rig: &mut Rig) -> Vec<(String, Charged)> {
    let subsystems = rig.snapshot().subsystems.into_iter();
    let heads = subsystems.flat_map(|subsystem| subsystem.heads);
    heads.flat_map(|head| head.paths).map(|path| (path.name, path.charged)).collect()
}

#[track_caller]
fn check_idle(rig: &mut Rig, way: Way) {
    rig.run(MS);
    for (path, charged) in charged(rig) {
        assert_eq!(charged, Charged::default(), "{path}, {way:?}");
    }
}

/// The counters that this way of choosing reads, and no other, have something in them.
#[track_caller]
fn check_busy(rig: &mut Rig, way: Way) {
    let all = charged(rig);
    let some = |of: fn(&Charged) -> u64| all.iter().any(|(_, charged)| of(charged) > 0);
    let busy = [
        some(|c| u64::from(c.controller)),
        some(|c| u64::from(c.path)),
        some(|c| u64::from(c.queue_pairs)),
        some(|c| u64::from(c.workers)),
        some(|c| c.bytes),
    ];
    let expected = match (way.policy, way.scope) {
        (Policy::QueueDepth, Scope::Controller) => [true, false, false, false, false],
        (Policy::QueueDepth, Scope::Namespace)
        | (Policy::QueueLength | Policy::HistoricalServiceTime, _) => {
            [false, true, false, false, false]
        }
        (Policy::QueueDepth, Scope::QueuePair | Scope::Sum) => [false, false, true, false, false],
        // `finish-time` also counts in what it predicts from.
        (Policy::QueueDepth, Scope::Worker) | (Policy::FinishTime, _) => {
            [false, false, false, true, false]
        }
        (Policy::ServiceTime, _) => [false, false, false, false, true],
        (Policy::Numa | Policy::RoundRobin | Policy::Latency | Policy::IoAffinity, _) => [false; 5],
    };
    assert_eq!(busy, expected, "{way:?}");
}

#[test]
fn m6_each_way_of_choosing_writes_the_counters_that_it_reads_and_no_others() {
    for way in ways() {
        let mut rig = rig(way, |_| {});
        let names = load(&mut rig, "nvme0n1");
        check_busy(&mut rig, way);
        rig.succeed(&names);
        check_idle(&mut rig, way);
        rig.finish();
    }
}

#[test]
fn m6_charges_return_over_failures_and_resets() {
    for way in ways() {
        let mut rig = rig(way, |_| {});
        let mut names = load(&mut rig, "nvme0n1");
        let stream = rig.world.stream(WorkerId(2), &setup::port(1)).expect("open");
        rig.world.break_stream(stream);
        rig.run(MS);
        rig.ana(2, AnaState::Inaccessible);
        names.extend(load(&mut rig, "nvme0n1"));
        rig.ana(2, AnaState::Optimized);
        rig.done(Verb::Reset { controller: "nvme0".into() });
        names.extend(load(&mut rig, "nvme0n1"));
        rig.succeed(&names);
        check_idle(&mut rig, way);
        rig.finish();
    }
}

#[test]
fn m6_charges_return_when_a_path_is_removed_with_commands_in_flight() {
    for way in ways() {
        let mut rig = rig(way, |_| {});
        let mut names = load(&mut rig, "nvme0n1");
        let controller = Selection::Controller("nvme1".into());
        let gone = rig.start(Verb::Disconnect(controller));
        rig.run(MS / 2);
        names.extend(load(&mut rig, "nvme0n1"));
        rig.succeed(&names);
        rig.world.host_answer(gone, SECOND * 60).expect("it is removed");
        check_idle(&mut rig, way);
        // It is another controller with counters of its own when it comes back.
        rig.connect(1);
        let names = load(&mut rig, "nvme0n1");
        rig.succeed(&names);
        check_idle(&mut rig, way);
        rig.finish();
    }
}

#[test]
fn m6_charges_return_when_a_namespace_leaves_and_comes_back_under_its_commands() {
    for way in ways() {
        let mut rig = rig(way, |setup| setup.namespaces().push(setup::namespace(2, 512)));
        rig.set("nvme0n2", "delayed_removal_secs", "5");
        let mut names = load(&mut rig, "nvme0n2");
        let mut others = load(&mut rig, "nvme0n1");
        let subsystem = setup::subsystem();
        rig.target(TargetVerb::NamespaceRemove { subsystem, nsid: 2 });
        names.extend(load(&mut rig, "nvme0n2"));
        rig.run(20 * MS);
        let (subsystem, config) = (setup::subsystem(), setup::namespace(2, 512));
        rig.target(TargetVerb::NamespaceAdd { subsystem, config });
        others.extend(load(&mut rig, "nvme0n1"));
        rig.run(SECOND);
        names.extend(load(&mut rig, "nvme0n2"));
        rig.succeed(&others);
        rig.answers(&names);
        check_idle(&mut rig, way);
        rig.finish();
    }
}

#[test]
fn m6_charges_return_when_workers_share_queue_pairs() {
    for way in ways() {
        for queues in [1, 2] {
            let mut rig = rig(way, |setup| setup.target.limits.io_queues = queues);
            let mut names = load(&mut rig, "nvme0n1");
            check_busy(&mut rig, way);
            rig.done(Verb::Reset { controller: "nvme1".into() });
            names.extend(load(&mut rig, "nvme0n1"));
            let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
            rig.world.break_stream(stream);
            names.extend(load(&mut rig, "nvme0n1"));
            rig.succeed(&names);
            check_idle(&mut rig, way);
            rig.finish();
        }
    }
}

#[test]
fn m9_charges_return_to_where_they_were_made_whenever_the_way_of_choosing_changes() {
    let all = ways();
    // Each way is followed by each other one, under load.
    for step in 1..all.len() {
        let mut rig = rig(all[0], |setup| setup.target.limits.io_queues = 2);
        let mut names = Vec::new();
        for turn in 0..all.len() {
            let way = all[turn * step % all.len()];
            names.extend(load(&mut rig, "nvme0n1"));
            rig.set("nvme-subsys0", "iopolicy", way.policy.name());
            rig.set("nvme-subsys0", "queue_depth_scope", way.scope.name());
            rig.set("nvme-subsys0", "kernel_exact", if way.kernel_exact { "1" } else { "0" });
        }
        rig.succeed(&names);
        check_idle(&mut rig, all[0]);
        rig.finish();
    }
}
