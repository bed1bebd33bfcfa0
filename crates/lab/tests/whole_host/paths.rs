//! Which paths may be chosen at all.

use crate::rig::{MS, SECOND, Setup, reads, writes};
use crate::setup;
use anabranch_host::topology::ControllerState;
use anabranch_host::verb::{Reply, Selection, Verb};
use anabranch_policy::Policy;
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::AnaState;
use anabranch_target::TargetVerb;

#[test]
fn m1_a_path_without_access_is_never_chosen() {
    for state in [AnaState::Inaccessible, AnaState::PersistentLoss, AnaState::Change] {
        let mut rig = Setup::new(2, 1).connect();
        rig.ana(0, state);
        rig.run(10 * MS);
        rig.io(writes(20, 1));
        assert_eq!((rig.sent(0), rig.sent(1)), (0, 20), "{state}");
        assert!(!rig.path(0).usable);
        rig.ana(0, AnaState::Optimized);
        rig.run(10 * MS);
        rig.io(reads(20));
        assert_eq!((rig.sent(0), rig.sent(1)), (10, 30), "{state} is over");
        rig.finish();
    }
}

#[test]
fn m1_m2_a_non_optimized_path_is_chosen_when_there_is_no_better_one() {
    let mut rig = Setup::new(2, 1).connect();
    rig.ana(0, AnaState::NonOptimized);
    rig.run(10 * MS);
    rig.io(writes(20, 1));
    assert_eq!((rig.sent(0), rig.sent(1)), (0, 20));
    rig.ana(1, AnaState::Inaccessible);
    rig.run(10 * MS);
    rig.io(writes(20, 2));
    assert_eq!((rig.sent(0), rig.sent(1)), (20, 20));
    rig.finish();
}

#[test]
fn m1_a_controller_that_is_not_live_is_not_chosen() {
    let mut rig = Setup::new(2, 2).connect();
    rig.target(TargetVerb::Cut { port: 0 });
    rig.run(10 * MS);
    assert_ne!(rig.controller(0).map(|c| c.state), Some(ControllerState::Live));
    let before = rig.sent(0);
    for worker in 1..=2 {
        let names = rig.submit_to(worker, "nvme0n1", writes(20, 1));
        rig.succeed(&names);
    }
    assert_eq!(rig.sent(0), before);
    rig.target(TargetVerb::Restore { port: 0 });
    rig.wait_live(0);
    rig.io(reads(20));
    assert_eq!(rig.sent(0), before + 10);
    rig.finish();
}

/// Linux calls a path of a deleting controller usable, but takes READY from it before anything
/// else; so do we.
#[test]
fn m1_a_deleting_controller_finishes_what_it_has_and_takes_nothing_new() {
    let mut rig = Setup::new(2, 1).connect();
    let stream = rig.world.stream(WorkerId(1), &setup::port(0)).expect("open");
    rig.world.slow_stream(stream, 100 * MS);
    let first = rig.submit(writes(8, 1));
    rig.run(10 * MS);
    assert_eq!((rig.sent(0), rig.sent(1)), (4, 4));
    let gone = rig.start(Verb::Disconnect(Selection::Controller("nvme0".into())));
    rig.run(10 * MS);
    assert_eq!(rig.controller(0).map(|c| c.state), Some(ControllerState::Deleting));
    rig.io(writes(8, 2));
    assert_eq!((rig.sent(0), rig.sent(1)), (4, 12));
    assert_eq!(rig.answered(&first), 4, "those on the slow path are still out");
    rig.succeed(&first);
    assert_eq!(rig.path(0).failovers, 0, "and are answered there");
    let reply = rig.world.host_answer(gone, 10 * SECOND).expect("it goes in the end");
    assert!(matches!(reply, Reply::Disconnected(1)), "{reply:?}");
    rig.finish();
}

/// Whoever configures a path first asks for it first, also when it answers last.
#[test]
fn m3_numa_takes_the_path_that_was_configured_first_whenever_it_joins() {
    for kernel_exact in [false, true] {
        let mut setup = Setup::new(3, 1);
        setup.host.default_policy = Policy::Numa;
        setup.host.kernel_exact = kernel_exact;
        let mut rig = setup.build();
        rig.target(TargetVerb::Cut { port: 0 });
        let request = setup::connect(0, &rig.options);
        rig.start(Verb::Connect(Box::new(request)));
        rig.connect(1);
        rig.connect(2);
        // Those under way are on the path that moves down.
        let stream = rig.world.stream(WorkerId(1), &setup::port(1)).expect("open");
        rig.world.slow_stream(stream, 12 * SECOND);
        let before = rig.submit(writes(8, 1));
        rig.run(10 * MS);
        assert_eq!([0, 1, 2].map(|port| rig.sent(port)), [0, 8, 0]);
        rig.target(TargetVerb::Restore { port: 0 });
        rig.wait_live(0);
        let paths = rig.head().paths;
        assert_eq!(
            Vec::from_iter(paths.iter().map(|path| path.controller.as_str())),
            ["nvme0", "nvme1", "nvme2"]
        );
        assert_eq!((paths[0].in_flight, paths[1].in_flight), (0, 8));
        rig.io(writes(8, 2));
        assert_eq!([0, 1, 2].map(|port| rig.sent(port)), [8, 8, 0], "exact {kernel_exact}");
        rig.succeed(&before);
        assert_eq!(rig.path(1).failovers, 0);
        rig.finish();
    }
}
