//! `io-affinity`: each worker has its path.

use crate::rig::{Rig, SECOND, Setup, reads};
use crate::script::Failure;
use crate::wire::Pdu;
use anabranch_host::user::IoError;
use anabranch_policy::Policy;
use anabranch_proto::nvme::AnaState;
use anabranch_proto::nvme::opcode::io;
use anabranch_proto::nvme::status::Status;
use anabranch_target::TargetVerb;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;

/// The ports that the I/O of one worker uses.
fn ports(rig: &mut Rig, worker: u16) -> BTreeSet<u16> {
    let before = rig.seen(Pdu::is_io).len();
    let names = rig.submit_to(worker, "nvme0n1", reads(12));
    rig.succeed(&names);
    rig.seen(Pdu::is_io).split_off(before).iter().map(|pdu| pdu.port).collect()
}

#[test]
fn without_masks_each_worker_has_a_path_in_turn() {
    let mut setup = Setup::new(2, 3);
    setup.host.default_policy = Policy::IoAffinity;
    let mut rig = setup.connect();
    for (worker, port) in [(1, 0), (2, 1), (3, 0)] {
        assert_eq!(ports(&mut rig, worker), BTreeSet::from([port]), "worker {worker}");
    }
    rig.finish();
}

#[test]
fn without_masks_a_worker_whose_path_fails_uses_another() {
    let mut setup = Setup::new(3, 2);
    setup.host.default_policy = Policy::IoAffinity;
    let mut rig = setup.connect();
    for port in [0, 1] {
        rig.ana(port, AnaState::Inaccessible);
        rig.run(crate::rig::MS * 10);
    }
    // The third path belongs to nobody in particular.
    assert_eq!(ports(&mut rig, 1), BTreeSet::from([2]));
    assert_eq!(ports(&mut rig, 2), BTreeSet::from([2]));
    rig.ana(1, AnaState::Optimized);
    rig.run(crate::rig::MS * 10);
    assert_eq!(ports(&mut rig, 2), BTreeSet::from([1]), "and goes back");
    rig.finish();
}

/// The other path can be used, and is nobody's.
#[test]
fn nobody_waits_for_a_path_that_is_never_chosen() {
    let mut setup = Setup::new(2, 1);
    setup.host.default_policy = Policy::IoAffinity;
    setup.options.fast_io_fail_tmo = Some(Duration::from_secs(2));
    setup.options.ctrl_loss_tmo = None;
    let mut rig = setup.connect();
    rig.set("nvme0c0n1", "io_affinity", "1");
    rig.target(TargetVerb::Cut { port: 0 });
    let names = rig.submit(reads(1));
    rig.run(SECOND);
    assert_eq!(rig.answered(&names), 0, "its own path may come back");
    rig.run(2 * SECOND);
    assert_eq!(rig.answers(&names)[0].result, Err(Failure::Io(IoError::NoPath)));
    rig.target(TargetVerb::Restore { port: 0 });
    rig.wait_live(0);
    assert_eq!(ports(&mut rig, 1), BTreeSet::from([0]));
    rig.finish();
}

/// What the only path that is used says of a block is the user's: the other does not serve.
#[test]
fn a_path_that_is_never_chosen_is_no_other_path() {
    let mut setup = Setup::new(2, 1);
    setup.host.default_policy = Policy::IoAffinity;
    let mut rig = setup.connect();
    rig.set("nvme0c0n1", "io_affinity", "1");
    rig.wire().rule(|pdu| {
        if pdu.answers(io::READ) {
            pdu.answer(Status::LBA_OUT_OF_RANGE.with_dnr());
        }
    });
    let names = rig.submit(reads(1));
    let error = Failure::Io(IoError::Status(Status::LBA_OUT_OF_RANGE.with_dnr()));
    assert_eq!(rig.answers(&names)[0].result, Err(error));
    rig.wire().clear_rules();
    assert_eq!(ports(&mut rig, 1), BTreeSet::from([0]), "it is in use still");
    rig.finish();
}

#[test]
fn a_choice_of_a_worker_without_a_path_counts_once_also_when_only_a_failed_path_is_left() {
    let mut setup = Setup::new(2, 2);
    setup.host.default_policy = Policy::IoAffinity;
    let mut rig = setup.connect();
    // The first path is the second worker's, the other one nobody's.
    rig.set("nvme0c0n1", "io_affinity", "2");
    let once = Cell::new(true);
    rig.wire().rule(move |pdu| {
        if pdu.answers(io::READ) && once.replace(false) {
            pdu.answer(Status::INTERNAL_PATH_ERROR);
        }
    });
    rig.io(reads(1));
    assert_eq!((rig.sent(0), rig.sent(1)), (2, 0), "there is no other for it");
    assert_eq!(rig.get("nvme0n1", "io_affinity_map_misses"), "2");
    rig.finish();
}
